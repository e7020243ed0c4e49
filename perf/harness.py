"""What the measuring scripts share: servers pinned to core 0, loads from core 1, medians, and where a run took place."""

import atexit
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PEER = "durable-streams"
PEER_VERSION = "0.1.5"
TICKS = os.sysconf("SC_CLK_TCK")
BUCKET = "bench-bucket"


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, **options)


def output(*command):
    return run(*command, stdout=subprocess.PIPE).stdout.strip()


class Server:
    """A server process on core 0 with an empty (or a given) data directory."""

    def __init__(self, who, port, data, extra=()):
        self.who, self.port, self.data = who, port, data
        if who == "thalweg":
            command = [TARGET / "release/thalweg", "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", data]
            command += ["--shards", "1", "--cpus", "0", *extra]
        else:
            command = [TARGET / "peers/bin/durable-streams-server", "--host", "127.0.0.1", "--port", str(port)]
            command += ["--data-dir", data, "--durability", "wal"]
        self.log = tempfile.NamedTemporaryFile("w+", prefix=f"{who}-")
        began = time.monotonic()
        self.process = subprocess.Popen(["taskset", "-c", "0", *map(str, command)], stdout=self.log, stderr=self.log)
        # However this script ends, no server outlives it.
        atexit.register(self.process.kill)
        while True:
            if self.process.poll() is not None:
                sys.exit(f"{who} did not start:\n{pathlib.Path(self.log.name).read_text()}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60)
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.001)
        self.start_seconds = time.monotonic() - began

    def put(self, path, content_type="application/octet-stream"):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method="PUT")
        request.add_header("Content-Type", content_type)
        urllib.request.urlopen(request).read()

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_mb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def start_line(self):
        lines = pathlib.Path(self.log.name).read_text().splitlines()
        return next((line for line in lines if "serves" in line), "")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def milliseconds(text):
    number, unit = re.match(r"([\d.]+)(us|ms|s)", text).groups()
    return float(number) * {"us": 0.001, "ms": 1, "s": 1000}[unit]


def load(server, prefix, connections, seconds, frames=0, streams=64):
    """One wrk run from core 1."""
    env = dict(os.environ, PREFIX=prefix, STREAMS=str(streams), FRAMES=str(frames))
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
    command += ["-s", str(ROOT / "perf/append.lua"), f"http://127.0.0.1:{server.port}"]
    before = server.cpu_seconds()
    text = run(*command, env=env, stdout=subprocess.PIPE).stdout
    cpu = server.cpu_seconds() - before
    if "refused" in text or "Non-2xx" in text or "Socket errors" in text:
        sys.exit(f"{server.who}: errors under load:\n{text}")
    requests = int(re.search(r"(\d+) requests in", text)[1])
    return {
        "requests_per_s": float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]),
        "p50_ms": milliseconds(re.search(r"(?m)^\s+50%\s+(\S+)", text)[1]),
        "p99_ms": milliseconds(re.search(r"(?m)^\s+99%\s+(\S+)", text)[1]),
        "cpu_us_per_request": cpu / requests * 1e6,
    }


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def spread(runs, key):
    return f"{min(run[key] for run in runs):,.0f} to {max(run[key] for run in runs):,.0f}"


def machine():
    cpu = re.search(r"model name\s*:\s*(.+)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"


def where(options):
    """The lines that say what was measured, and where."""
    return [
        f"- commit: `{output('git', '-C', str(ROOT), 'describe', '--always', '--dirty')}`",
        f"- machine: {machine()}; data on {output('df', '--output=fstype', options.dir).splitlines()[-1].strip()}",
    ]
