"""Runs of `scripts/compare`: one load on one fresh server, watched, and all runs of a part in alternating order.

What makes a run count: the disk was probed before it (and waited for) and after it; nothing kept this machine from running
meanwhile, else it is made again; no request was refused. A server that cannot do a case is left out of it, with the reason.
"""

import contextlib
import dataclasses
import json
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import time

from harness import OURS, SLOW_DISK_US, TARGET, ClockWatch, Disk, OtherWork, Server

# So often a run is made again before the part is given up.
REPEATS_MOST = 10
# Setup of many streams included.
LOAD_SECONDS_MOST = 400


class CannotRun(Exception):
    """A server that did not do what a case asks for; the text says what happened."""


@dataclasses.dataclass
class Case:
    """One setting, in which sides are compared: their names and what makes one run of each."""

    name: str
    sides: dict
    # The side that the others' ratios are against.
    reference: str = None


@dataclasses.dataclass
class Part:
    """Cases that belong on one record. `columns` and `goals` are those of `record.py`."""

    title: str
    cases: list
    columns: list
    goals: list = ()
    notes: list = ()
    # Length of a run of the load generator unless the command line says otherwise; 0: runs have a length of their own.
    seconds: float = 5
    # For the disk to recover from what a run wrote.
    pause_seconds: float = 0
    pairs_most: int = 1000
    # Whether runs wait for a quick disk.
    disk_matters: bool = True
    # A context that is entered before the first run and left after the last one; its value is `bench.state`.
    prepare: object = None
    # What is measured once, besides runs: a function that returns names and values.
    facts: object = None


class Bench:
    """What runs need: programs, places, lengths."""

    def __init__(self, options, binary, generator):
        self.options, self.binary, self.generator = options, binary, generator
        self.disk = Disk(options.dir)
        self.seconds, self.part, self.label, self.state = 0, "", "", None
        self.outcomes = TARGET / "compare"

    @contextlib.contextmanager
    def data_directory(self):
        with tempfile.TemporaryDirectory(prefix="compare-", dir=self.options.dir) as data:
            yield data

    @contextlib.contextmanager
    def server_on(self, who, data, extra=(), shards=1, cpus="0"):
        """One over a data directory, stopped afterwards if that has not happened."""
        server = Server(who, self.options.port, data, extra, shards, cpus, self.binary)
        try:
            yield server
        finally:
            server.stop()

    @contextlib.contextmanager
    def server(self, who, extra=(), shards=1, cpus="0"):
        """A fresh one, gone with its data afterwards."""
        with self.data_directory() as data, self.server_on(who, data, extra, shards, cpus) as server:
            yield server

    def generate(self, server, workload, *arguments, seconds=None, warm_up="1s", label=None):
        """The outcome of one run of the load generator on core 1."""
        seconds = self.seconds if seconds is None else seconds
        label = label or self.label
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = [self.generator, "bench", workload, "--target", f"http://127.0.0.1:{server.port}", *arguments]
            if "--style" not in arguments:
                command += ["--style", "durable"]
            command += ["--duration", f"{round(seconds * 1000)}ms", "--warm-up", warm_up, "--cpus", "1"]
            command += ["--server-pid", server.process.pid, "--label", label, "--json", file.name, "--quiet"]
            command = [str(word) for word in command]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_SECONDS_MOST)
            except subprocess.TimeoutExpired:
                raise CannotRun(f"`{workload}` did not end within {LOAD_SECONDS_MOST} s") from None
            if done.returncode == 2:
                raise SystemExit(f"the load generator does not take these options: {done.stderr}\n{shlex.join(command)}")
            if done.returncode:
                reason = (done.stderr.strip() or done.stdout.strip()).removeprefix("thalweg bench: ")
                # Advice for somebody who mistook the server.
                raise CannotRun(reason.split(": is it a Durable Streams server")[0])
            text = pathlib.Path(file.name).read_text()
        self._keep(text, label)
        outcome = json.loads(text)
        if outcome["totals"]["errors"]:
            raise CannotRun(f"errors under load: {outcome['totals']['errors']}")
        if outcome["totals"]["operations"] == 0:
            raise CannotRun(f"not one request was answered within {seconds:g} s")
        return outcome

    def _keep(self, text, label):
        """Whole outcomes, with their histograms, for `thalweg bench report`; too large to be kept for ever."""
        place = self.outcomes / self.part
        place.mkdir(parents=True, exist_ok=True)
        name = "".join(letter if letter.isalnum() else "-" for letter in label)
        number = len(list(place.glob(f"{name}.*.json")))
        (place / f"{name}.{number:03}.json").write_text(text)

    def once(self, side, disk_matters=True):
        """One run that counts."""
        for repeated in range(REPEATS_MOST):
            before_us, waited_s = self.disk.wait_until_quick(self.options.disk_wait if disk_matters else 0)
            found, failure = None, None
            with ClockWatch() as clock, OtherWork() as others:
                try:
                    found = side(self)
                except CannotRun as reason:
                    failure = reason
            if not clock.jumped():
                break
            say(f"kept from running for {clock.longest_seconds:.1f} s, once more")
        else:
            raise SystemExit(f"kept from running in each of {REPEATS_MOST} runs: is this machine used for something else?")
        if failure:
            raise failure
        after_us = self.disk.latency_us()
        return {
            **found,
            "disk_before_us": round(before_us, 1),
            "disk_after_us": round(after_us, 1),
            "waited_for_disk_s": round(waited_s, 1),
            "slow_disk": max(before_us, after_us) >= SLOW_DISK_US,
            "other_work": round(others.part, 3),
            "longest_gap_s": round(clock.longest_seconds, 3),
            "repeated": repeated,
        }

    def measure(self, name, part):
        """All runs of a part: rounds over all cases and sides, the sides in turn from the left and from the right."""
        self.part, self.seconds = name, (self.options.seconds or part.seconds) if part.seconds else 0
        shutil.rmtree(self.outcomes / name, ignore_errors=True)
        results = {case.name: {"reference": case.reference, "runs": {}, "cannot": {}} for case in part.cases}
        with part.prepare(self) if part.prepare else contextlib.nullcontext() as self.state:
            facts = part.facts(self) if part.facts else {}
            for number in range(min(self.options.pairs, part.pairs_most)):
                for case in part.cases:
                    sides = list(case.sides.items())
                    for who, side in sides if number % 2 == 0 else reversed(sides):
                        self.label = f"{case.name}, {who}"
                        self._one(part, results[case.name], f"{number + 1}: {self.label}", who, side)
        # In the order of the sides, whichever ran first.
        for case in part.cases:
            runs = results[case.name]["runs"]
            results[case.name]["runs"] = {who: runs[who] for who in case.sides if who in runs}
        return {"facts": facts, "cases": results}

    def _one(self, part, result, what, who, side):
        if who in result["cannot"]:
            return
        try:
            found = self.once(side, part.disk_matters)
        except CannotRun as reason:
            result["cannot"][who] = str(reason)
            result["runs"].pop(who, None)
            say(f"{what}: cannot: {reason}")
            return
        result["runs"].setdefault(who, []).append(found)
        shown = [f"{column.title} {column.show(found[column.key])}" for column in part.columns if column.key in found]
        slow = "slow disk; " if found["slow_disk"] else ""
        say(f"{what}: {', '.join(shown)}; {slow}other work {found['other_work']:.0%}")
        time.sleep(part.pause_seconds)


def say(text):
    print(text, flush=True)


def figures(outcome, series, rate):
    """What a record keeps of an outcome: `rate` names one of its rates, `series` the latencies."""
    latency, server, generator = outcome["latencies"].get(series, {}), outcome["server"], outcome["generator"]
    megabytes = outcome["totals"]["payload_bytes"] / 1e6
    return {
        "rate": outcome["rates"][rate],
        "operations": outcome["totals"]["operations"],
        "measured_s": outcome["measured_us"] / 1e6,
        **{key: latency.get(key) for key in ("p50_us", "p90_us", "p99_us", "p99_9_us", "max_us")},
        "server_cpu_us": server["cpu_us_per_operation"],
        "server_cpu_us_per_mb": server["cpu_us"] / megabytes if megabytes else None,
        "resident_bytes": server["resident_bytes"],
        "peak_resident_bytes": server["peak_resident_bytes"],
        "generator_cpu_us": generator["cpu_us_per_operation"],
        "generator_busy": generator["busy"],
        "generator_limit": generator["why"],
        "extra": outcome["extra"],
        "command": outcome["conditions"]["command"].split(" --json")[0],
    }


def load(who, workload, *arguments, series="append", rate="operations_per_s", extra=(), shards=1, cpus="0", before=None, after=None):
    """A side: the workload against a fresh server, once `before(server)` has waited for what it needs. `after(bench, server)` may
    add figures while the server runs."""

    def side(bench):
        with bench.server(who, extra, shards, cpus) as server:
            if before:
                before(server)
            outcome = bench.generate(server, workload, *arguments)
            found = figures(outcome, series, rate)
            if after:
                found.update(after(bench, server))
            return found

    return side


def ours(workload, *arguments, **settings):
    return load(OURS, workload, *arguments, **settings)
