"""What the measuring scripts share: servers pinned to core 0, the state of the disk and of the clock around a run, medians,
and where a run took place."""

import atexit
import contextlib
import mmap
import os
import pathlib
import platform
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
OURS = "thalweg"
# ElectricSQL's server in Rust, and the reference server of the protocol in JavaScript.
PEER, PEER_VERSION = "durable-streams", "0.1.5"
NODE_PEER, NODE_PEER_VERSION = "@durable-streams/server", "0.3.7"
TICKS = os.sysconf("SC_CLK_TCK")
BUCKET = "bench-bucket"

# A virtual disk that has used up a budget takes milliseconds for what takes a tenth of one otherwise. Above this, it is slow.
SLOW_DISK_US = 300
PAGE_BYTES, MIB = 4096, 1 << 20


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, text=True, **options)


def output(*command):
    return run(*command, stdout=subprocess.PIPE).stdout.strip()


def raise_open_files():
    """The limit of open files as far as it goes, for everything that is started from here; the limit then."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            sys.exit(f"{tool} is missing")


def use_binary(given=None):
    """The server to measure: the one that is named (option or THALWEG_BIN), else a release build of this tree."""
    named = given or os.environ.get("THALWEG_BIN")
    if not named:
        need("cargo")
        run("cargo", "build", "--release", "--locked", "--bin", "thalweg", "--manifest-path", ROOT / "Cargo.toml")
        return TARGET / "release/thalweg"
    if not os.access(named, os.X_OK):
        sys.exit(f"no program: {named}")
    return pathlib.Path(named).resolve()


def install_peer():
    if not (TARGET / "peers/bin/durable-streams-server").exists():
        need("cargo")
        run("cargo", "install", f"{PEER}@{PEER_VERSION}", "--root", TARGET / "peers")


# The options are those of its README for storage on disk; without compression, which no client here asks for anyway.
NODE_START = """import { DurableStreamTestServer } from "@durable-streams/server"
const [port, dataDir] = process.argv.slice(2)
await new DurableStreamTestServer({ port: Number(port), host: "127.0.0.1", dataDir, compression: false }).start()
"""


def install_node_peer():
    place = TARGET / "peers/npm"
    if not (place / "node_modules/@durable-streams/server").exists():
        need("npm")
        place.mkdir(parents=True, exist_ok=True)
        run("npm", "install", "--prefix", place, "--no-audit", "--no-fund", f"{NODE_PEER}@{NODE_PEER_VERSION}")
    (place / "start.mjs").write_text(NODE_START)


class Server:
    """A server process with an empty (or a given) data directory, on core 0 unless `cpus` names others."""

    def __init__(self, who, port, data, extra=(), shards=1, cpus="0", binary=None):
        self.who, self.port, self.data, self.cpus = who, port, data, cpus
        self.command = self._command(binary, shards, extra)
        self.log = tempfile.NamedTemporaryFile("w+", prefix="server-")
        began = time.monotonic()
        self.process = subprocess.Popen(["taskset", "-c", cpus, *self.command], stdout=self.log, stderr=self.log)
        # However this script ends, no server outlives it.
        atexit.register(self.process.kill)
        self._wait_until_it_answers()
        self.start_seconds = time.monotonic() - began

    def _command(self, binary, shards, extra):
        if self.who == OURS:
            command = [binary or os.environ.get("THALWEG_BIN") or TARGET / "release/thalweg", "serve"]
            command += ["--listen", f"127.0.0.1:{self.port}", "--data-dir", self.data]
            command += ["--shards", shards, "--cpus", self.cpus, *extra]
        elif self.who == PEER:
            command = [TARGET / "peers/bin/durable-streams-server", "--host", "127.0.0.1", "--port", self.port]
            command += ["--data-dir", self.data, "--durability", "wal", *extra]
        else:
            command = ["node", TARGET / "peers/npm/start.mjs", self.port, self.data]
        return [str(word) for word in command]

    def _wait_until_it_answers(self):
        while True:
            if self.process.poll() is not None:
                sys.exit(f"{self.who} did not start:\n{pathlib.Path(self.log.name).read_text()}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=60).close()
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.001)

    def put(self, path, content_type="application/octet-stream"):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method="PUT")
        request.add_header("Content-Type", content_type)
        urllib.request.urlopen(request).read()

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024

    def resident_mb(self):
        return self.resident_bytes() / MIB

    def start_line(self):
        lines = pathlib.Path(self.log.name).read_text().splitlines()
        return next((line for line in lines if "serves" in line), "")

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        atexit.unregister(self.process.kill)


class Disk:
    """The disk that data directories are on: how it is now, and what it can do."""

    def __init__(self, directory):
        self.directory = directory
        self.small = self._file("probe", 4 * MIB)
        self.large = None
        self.buffer = mmap.mmap(-1, MIB)
        self.buffer.write(os.urandom(MIB))

    def _file(self, name, size_bytes):
        """A file of so many bytes that were written: only then do writes cost the same each time."""
        file = tempfile.NamedTemporaryFile(dir=self.directory, prefix=f"disk-{name}-")
        block = os.urandom(MIB)
        for _ in range(size_bytes // MIB):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return file

    def latency_us(self, seconds=0.2):
        """Median of synced writes of a page, one after the other."""
        with self._open(self.small, os.O_RDWR | os.O_DIRECT | os.O_DSYNC) as file:
            page, times, place = memoryview(self.buffer)[:PAGE_BYTES], [], 0
            end = time.perf_counter() + seconds
            while (began := time.perf_counter()) < end:
                os.pwrite(file, page, place)
                times.append(time.perf_counter() - began)
                place = (place + PAGE_BYTES) % (4 * MIB)
        return statistics.median(times) * 1e6

    def wait_until_quick(self, most_seconds):
        """The latency once it is below `SLOW_DISK_US`, or after so long; and how long that took."""
        began = time.monotonic()
        while (latency_us := self.latency_us()) >= SLOW_DISK_US and time.monotonic() - began < most_seconds:
            time.sleep(1)
        return latency_us, time.monotonic() - began

    def write_bytes_per_s(self, depth, seconds=0.5):
        """1 MiB direct writes over a file that was written before, so many under way."""
        return self._rate(os.O_RDWR, depth, seconds, lambda file, place: os.pwrite(file, self.buffer, place))

    def durable_write_bytes_per_s(self, write_bytes, size_bytes=128 * MIB):
        """Direct writes of so many bytes into a new file whose space is allocated, each durable before the next: what a log
        that goes on in new files can get."""
        with tempfile.NamedTemporaryFile(dir=self.directory, prefix="disk-new-") as new:
            os.posix_fallocate(new.fileno(), 0, size_bytes)
            os.fsync(new.fileno())
            with self._open(new, os.O_RDWR | os.O_DIRECT | os.O_DSYNC) as file:
                piece, began = memoryview(self.buffer)[:write_bytes], time.perf_counter()
                for place in range(0, size_bytes, write_bytes):
                    os.pwrite(file, piece, place)
                return size_bytes / (time.perf_counter() - began)

    def read_bytes_per_s(self, depth, seconds=1.0):
        """1 MiB direct reads in order, so many under way."""
        local = threading.local()

        def read(file, place):
            if not hasattr(local, "buffer"):
                local.buffer = mmap.mmap(-1, MIB)
            return os.preadv(file, [local.buffer], place)

        return self._rate(os.O_RDONLY, depth, seconds, read)

    def _rate(self, flags, depth, seconds, step):
        size_bytes = 512 * MIB
        self.large = self.large or self._file("large", size_bytes)
        done, lock, place = 0, threading.Lock(), 0
        began = time.monotonic()

        def work(file):
            nonlocal done, place
            while time.monotonic() - began < seconds:
                with lock:
                    mine, place = place, (place + MIB) % size_bytes
                count = step(file, mine)
                with lock:
                    done += count

        with self._open(self.large, flags | os.O_DIRECT) as file:
            workers = [threading.Thread(target=work, args=(file,)) for _ in range(depth)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        return done / (time.monotonic() - began)

    @contextlib.contextmanager
    def _open(self, file, flags):
        number = os.open(file.name, flags)
        try:
            yield number
        finally:
            os.close(number)


class ClockWatch:
    """Finds out whether this process, and so probably everything here, was kept from running for a while."""

    TICK_SECONDS, JUMP_SECONDS = 0.05, 0.5

    def __enter__(self):
        self.longest_seconds, self.over = 0.0, threading.Event()
        self.offset = time.time() - time.monotonic()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def _watch(self):
        last = time.monotonic()
        while not self.over.wait(self.TICK_SECONDS):
            now = time.monotonic()
            self.longest_seconds = max(self.longest_seconds, now - last)
            last = now

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        # A machine that was halted shows in the time of day only.
        self.longest_seconds = max(self.longest_seconds, abs(time.time() - time.monotonic() - self.offset))

    def jumped(self):
        return self.longest_seconds > self.JUMP_SECONDS


class OtherWork:
    """How much of cores 0 and 1 went to processes that are not of this measurement: other ones, the kernel's own, and what the
    hypervisor gave away. Servers and loads count as ours once they have ended."""

    CORES = (0, 1)

    def __enter__(self):
        self.began, self.busy, self.own = time.monotonic(), self._busy_seconds(), self._own_seconds()
        return self

    def __exit__(self, *_):
        passed = (time.monotonic() - self.began) * len(self.CORES)
        others = self._busy_seconds() - self.busy - (self._own_seconds() - self.own)
        self.part = max(others, 0) / passed

    def _busy_seconds(self):
        total = 0
        for line in pathlib.Path("/proc/stat").read_text().splitlines():
            name, *ticks = line.split()
            if name in {f"cpu{core}" for core in self.CORES}:
                user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, ticks[:8])
                total += user + nice + system + irq + softirq + steal
        return total / TICKS

    @staticmethod
    def _own_seconds():
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in used)


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def kernel():
    return f"Linux {platform.release()}"


CONGESTION_CONTROL = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")


def congestion_control():
    """What new connections of this machine get."""
    return CONGESTION_CONTROL.read_text().strip()


def use_congestion_control(name):
    """Gives new connections of this machine another one until this program ends."""
    before = congestion_control()
    if name == before:
        return
    try:
        CONGESTION_CONTROL.write_text(name)
    except OSError as error:
        sys.exit(f"--congestion-control {name}: {error.strerror}; root may set it to one that the kernel has")
    atexit.register(CONGESTION_CONTROL.write_text, before)


def processor():
    cpu = re.search(r"model name\s*:\s*(.+)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores"


def commit():
    return output("git", "-C", ROOT, "describe", "--always", "--dirty")


def file_system(directory):
    return output("df", "--output=fstype", directory).splitlines()[-1].strip()


def where(options):
    """The lines that say what was measured, and where."""
    return [
        f"- commit: `{commit()}`",
        f"- machine: {processor()}, {kernel()}; data on {file_system(options.dir)}",
    ]
