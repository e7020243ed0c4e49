"""What `scripts/compare` measures: the parts, their cases, and the goals that they are held against."""

import contextlib
import http.client
import pathlib
import signal
import socket
import time

from harness import BUCKET, MIB, NODE_PEER, OURS, PEER
from record import Column, Goal, load_columns, quotient, ratio_of
from runs import CannotRun, Case, Part, load, ours, say

FRAMES, PAYLOAD_BYTES = 512, 256


def both(workload, *arguments, **settings):
    return {who: load(who, workload, *arguments, **settings) for who in (OURS, PEER)}


# --- single appends


def appends(options):
    cases = [connections_case(count) for count in (1, 16, 64, 256)]
    goals = []
    for count, least in ((64, 1.5), (256, 1.5), (16, 1.3), (1, 1.3)):
        case = cases_name(count)
        goals.append(Goal(f"{case}: rate, times the peer's", ratio_of(case, OURS, PEER, "rate"), at_least=least))
        percentile, key = ("p99", "p99_us") if count >= 64 else ("p50", "p50_us")
        goals.append(Goal(f"{case}: {percentile}, times the peer's", ratio_of(case, OURS, PEER, key), at_most=1))
    case = cases_name(64)
    goals.append(Goal(f"{case}: CPU, times the peer's", ratio_of(case, OURS, PEER, "server_cpu_us"), at_most=0.65))
    columns = load_columns("appends/s", operation="append")
    return Part("single appends of 256 bytes over 64 streams, one in flight on each connection", cases, columns, goals)


def cases_name(connections):
    return "1 connection" if connections == 1 else f"{connections} connections"


def connections_case(connections):
    return Case(cases_name(connections), both("append", "--streams", 64, "--connections", connections), PEER)


def streams(options):
    counts = (100, 10_000, 100_000)
    cases = [
        Case(f"{count:,} streams", both("append", "--streams", count, "--connections", 256), PEER) for count in counts
    ]

    def of_fewest(case):
        return lambda figures: quotient(figures.median(case, OURS, "rate"), figures.median(cases[0].name, OURS, "rate"))

    goals = [
        Goal(f"{case.name}: rate, part of that at {cases[0].name}", of_fewest(case.name), at_least=0.8) for case in cases[1:]
    ]
    columns = [*load_columns("appends/s", operation="append"), Column("resident MB", "resident_bytes", per=MIB)]
    return Part("single appends of 256 bytes over many streams, 256 connections", cases, columns, goals)


def pipeline(options):
    case = Case("64 connections", both("pipeline", "--depth", 16, "--streams", 64, "--connections", 64), PEER)
    goals = [Goal("rate, times the peer's", ratio_of(case.name, OURS, PEER, "rate"), at_least=3)]
    columns = load_columns("appends/s", operation="append")
    return Part("single appends of 256 bytes, 16 in flight on each connection, 64 streams", [case], columns, goals)


def node(options):
    sides = {who: load(who, "append", "--streams", 64, "--connections", 64) for who in (OURS, PEER, NODE_PEER)}
    title = "single appends next to the reference server in JavaScript"
    columns = load_columns("appends/s", operation="append")
    return Part(title, [Case("64 connections", sides, NODE_PEER)], columns, pairs_most=2)


# --- many records a request


def count_segments(server, _):
    files = pathlib.Path(server.data).glob("generation-*/shard-*/segment-*.log")
    return {"segments": sum(file.stat().st_blocks > 0 for file in files)}


def batches(options):
    many = ["--frames", FRAMES, "--streams", 64, "--connections", 8]

    def side(who, workload, *more):
        after = count_segments if who == OURS else None
        return load(who, workload, *many, *more, rate="records_per_s", after=after)

    binary, batch, array = f"{OURS}, batch of binary", f"{OURS}, batch of JSON", f"{OURS}, JSON array"
    peer = f"{PEER}, JSON array"
    sides = {
        binary: side(OURS, "append-batch", "--style", "thalweg"),
        batch: side(OURS, "append-batch", "--style", "thalweg", "--content", "json"),
        array: side(OURS, "json-array"),
        peer: side(PEER, "json-array"),
    }
    name = f"{FRAMES} records a request"
    goals = [
        Goal(
            "batch of binary: million records/s (or 80 % of the disk's 1 MiB writes, if that is less)",
            lambda figures: scaled(figures.median(name, binary, "rate"), 1e-6),
            at_least=lambda figures: min(4, figures.facts[DISK_WRITES] * 0.8 * MIB / PAYLOAD_BYTES / 1e6),
        ),
        Goal("batch of binary: segments written", lambda figures: figures.median(name, binary, "segments"), at_least=10),
        Goal("batch of JSON: rate, times the peer's arrays", ratio_of(name, batch, peer, "rate"), at_least=2.5),
        Goal("JSON arrays: rate, times the peer's", ratio_of(name, array, peer, "rate"), at_least=1.5),
    ]
    columns = load_columns("million records/s", 1e6, "{:.2f}", "request")
    columns.append(Column("segments", "segments"))
    return Part(
        "append batches and JSON arrays of 512 records of 256 bytes, 8 connections, 64 streams",
        [Case(name, sides, peer)],
        columns,
        goals,
        ["a batch is as many appends, each acknowledged by itself; an array is one append"],
        seconds=2,
        pause_seconds=10,
        facts=disk_writes,
    )


DISK_WRITES = "disk, 1 MiB direct writes, 8 under way, MiB/s"
DISK_READS = "disk, 1 MiB direct reads in order, 8 under way, MiB/s"
DISK_READS_ALONE = "disk, 1 MiB direct reads in order, one at a time, MiB/s"


def disk_writes(bench):
    bench.disk.wait_until_quick()
    return {DISK_WRITES: bench.disk.write_bytes_per_s(depth=8) / MIB}


def disk_reads(bench):
    return {
        DISK_READS: bench.disk.read_bytes_per_s(depth=8) / MIB,
        DISK_READS_ALONE: bench.disk.read_bytes_per_s(depth=1) / MIB,
    }


def scaled(value, factor):
    return None if value is None else value * factor


# --- two shards


def shards(options):
    """Without spinning: a core that waits for work would count as work."""

    def side(count, *more):
        extra = ("--spin-us", "0")
        cpus = ",".join(map(str, range(count)))
        return ours("append", "--streams", 64, "--connections", 64, *more, extra=extra, shards=count, cpus=cpus)

    one, two = f"{OURS}, 1 shard", f"{OURS}, 2 shards"
    cases = [
        Case("connections stay with a stream", {one: side(1, "--stay"), two: side(2, "--stay")}, one),
        Case("connections rotate over all streams", {one: side(1), two: side(2)}, one),
    ]
    goals = [
        Goal(f"{case.name}: CPU, times that of one shard", ratio_of(case.name, two, one, "server_cpu_us"), at_most=most)
        for case, most in zip(cases, (1.1, 2.5))
    ]
    columns = load_columns("appends/s", operation="append")
    notes = ["the second shard has core 1, which the load uses as well: compare CPU time, not rates; `--spin-us 0`"]
    return Part("two shards instead of one: single appends, 64 connections, 64 streams", cases, columns, goals, notes)


# --- what is there without load


class Client:
    """One connection for what the load generator does not do."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)

    def send(self, method, path, body=None, content_type="application/octet-stream"):
        self.connection.request(method, path, body, {"Content-Type": content_type})
        answer = self.connection.getresponse()
        answer.read()
        return answer.status


def wait_for_rest(server, quiet_seconds=2):
    """Until no file has changed for a while and the server has used next to no CPU time."""
    last, since, cpu = None, time.monotonic(), server.cpu_seconds()
    while time.monotonic() - since < quiet_seconds:
        time.sleep(0.2)
        files = sorted((file.name, file.stat().st_size) for file in pathlib.Path(server.data).rglob("*") if file.is_file())
        used = server.cpu_seconds()
        if files != last or used - cpu > 0.1:
            last, since, cpu = files, time.monotonic(), used


def fill(bench, server, records):
    """At least so many records, 512 a request; how many there are, and in how many streams."""
    written, streams_made = 0, 0
    if server.who == OURS:
        how = ["append-batch", "--style", "thalweg", "--content", "json"]
    else:
        how = ["json-array"]
    while written < records:
        outcome = bench.generate(server, *how, "--payload", 64, "--connections", 8, seconds=1, warm_up="0s", label="fill")
        written, streams_made = written + outcome["totals"]["records"], streams_made + 64
    return written


def index_memory(bench):
    """Bytes that records cost: of two fillings, the second, so that buffers that grow once do not count."""
    extra = ("--cache-bytes", "0", "--segment-bytes", str(64 * MIB))
    with bench.server(OURS, extra) as server:
        fill(bench, server, bench.options.records // 10)
        wait_for_rest(server)
        before = server.resident_bytes()
        records = fill(bench, server, bench.options.records)
        unsettled = server.resident_bytes()
        wait_for_rest(server)
        settled = server.resident_bytes()
        return {
            "records": records,
            "unit_bytes": (settled - before) / records,
            "unsettled_unit_bytes": (unsettled - before) / records,
            "resident_bytes": settled,
        }


def idle_streams(who):
    """The first streams pay for what grows once."""

    def side(bench):
        with bench.server(who) as server:
            def make(count):
                bench.generate(
                    server, "append", "--streams", count, "--connections", 1, seconds=0.05, warm_up="0s", label="make"
                )
                time.sleep(1)
                return server.resident_bytes()

            before = make(bench.options.idle_streams // 10)
            after = make(bench.options.idle_streams)
            return {"unit_bytes": (after - before) / bench.options.idle_streams, "resident_bytes": after}

    return side


def idle_readers(who):
    """Readers of one stream that nothing is written to, after each has received what was there."""

    def side(bench):
        with bench.server(who) as server, contextlib.ExitStack() as readers:
            client, path = Client(server), "/v1/stream/compare/idle"
            if client.send("PUT", path) not in (200, 201) or client.send("POST", path, b"x" * 100) not in (200, 204):
                raise CannotRun("the stream could not be made")

            def follow(count):
                for _ in range(count):
                    reader = readers.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
                    reader.sendall(f"GET {path}?offset=-1&live=sse HTTP/1.1\r\nHost: h\r\n\r\n".encode())
                    received = b""
                    while b"event: control" not in received:
                        part = reader.recv(65536)
                        if not part:
                            raise CannotRun(f"a reader was cut off: {received[:200]!r}")
                        received += part
                time.sleep(1)
                return server.resident_bytes()

            before = follow(bench.options.idle_readers // 10)
            after = follow(bench.options.idle_readers)
            return {"unit_bytes": (after - before) / bench.options.idle_readers, "resident_bytes": after}

    return side


def empty(who):
    def side(bench):
        with bench.server(who) as server:
            time.sleep(0.5)
            return {"resident_bytes": server.resident_bytes(), "start_s": server.start_seconds}

    return side


def memory(options):
    index, stream, reader = "a record in the index", "an idle stream", "an idle SSE reader"
    cases = [
        Case("the server on an empty directory", {who: empty(who) for who in (OURS, PEER)}),
        Case(index, {OURS: index_memory}),
        Case(stream, {who: idle_streams(who) for who in (OURS, PEER)}, PEER),
        Case(reader, {who: idle_readers(who) for who in (OURS, PEER)}, PEER),
    ]
    columns = [
        Column("bytes of each", "unit_bytes", "{:,.1f}", spread=True, ratio=True),
        Column("before settling", "unsettled_unit_bytes", "{:,.1f}"),
        Column("resident MB then", "resident_bytes", per=MIB),
        Column("started in s", "start_s", "{:.3f}"),
    ]
    goals = [
        Goal(f"{case}: bytes", (lambda name: lambda figures: figures.median(name, OURS, "unit_bytes"))(case), at_most=most)
        for case, most in ((index, 2.5), (stream, 500), (reader, 4096))
    ]
    notes = [
        "bytes of each: growth of resident memory, divided, when there are many more of them",
        f"index: {options.records:,} records or more of 64 bytes on top of a tenth as many, as JSON in append batches of 512, "
        "64 streams a second of filling, no cache, segments of 64 MiB; after settling, and right after the last append",
        f"{options.idle_streams:,} streams of which next to none was written to; {options.idle_readers:,} readers of one stream; "
        "each on top of a tenth as many",
    ]
    return Part("memory", cases, columns, goals, notes, pairs_most=3)


# --- restart


class Filled:
    """Data directories of both servers that hold many records, and restarts over them."""

    PATH = "/v1/stream/compare/there"

    def __init__(self, bench, data):
        self.bench, self.data, self.records = bench, data, {}

    def make(self, who):
        bench = self.bench
        server = bench.start(who, self.data[who])
        client = Client(server)
        if client.send("PUT", self.PATH) not in (200, 201) or client.send("POST", self.PATH, b"there") not in (200, 204):
            raise SystemExit(f"{who}: the stream could not be made")
        self.records[who] = fill(bench, server, bench.options.records)
        wait_for_rest(server)
        say(f"{who} holds {self.records[who]:,} records")
        server.stop()

    def restart(self, who, how):
        bench, data = self.bench, self.data[who]
        server = bench.start(who, data)
        # Something that is new in every start, and the stream that is asked for.
        bench.generate(server, "append", "--connections", 16, seconds=0.3, warm_up="0s", label="before restart")
        server.stop(how)
        began = time.monotonic()
        server = bench.start(who, data)
        if (status := Client(server).send("HEAD", self.PATH)) != 200:
            raise CannotRun(f"a stream that was there before the restart answers {status}")
        restart_s = time.monotonic() - began
        resident_bytes = server.resident_bytes()
        server.stop()
        return {"restart_s": restart_s, "records": self.records[who], "resident_bytes": resident_bytes}


@contextlib.contextmanager
def filled(bench):
    with bench.data_directory() as ours_data, bench.data_directory() as peer_data:
        state = Filled(bench, {OURS: ours_data, PEER: peer_data})
        for who in state.data:
            state.make(who)
        yield state


def restart(options):
    def side(who, how):
        return lambda bench: bench.state.restart(who, how)

    cases = [
        Case(name, {who: side(who, how) for who in (OURS, PEER)}, PEER)
        for name, how in (("after SIGTERM", signal.SIGTERM), ("after SIGKILL", signal.SIGKILL))
    ]
    columns = [
        Column("s to the first answer", "restart_s", "{:.3f}", spread=True, ratio=True),
        Column("million records", "records", "{:.1f}", 1e6),
        Column("resident MB then", "resident_bytes", per=MIB),
    ]
    goals = [
        Goal(f"{case.name}: s", (lambda name: lambda figures: figures.median(name, OURS, "restart_s"))(case.name), at_most=1)
        for case in cases
    ]
    notes = [
        f"{options.records:,} records or more of 64 bytes: ours single JSON records (append batches of 512), the peer's JSON "
        "arrays of 512; 0.3 s of single appends before each restart",
        "from the start of the process to the answer to a HEAD of a stream that was there before; files may be in the page cache",
    ]
    return Part("restart over many records", cases, columns, goals, notes, prepare=filled)


PARTS = {
    "appends": appends,
    "streams": streams,
    "pipeline": pipeline,
    "batches": batches,
    "memory": memory,
    "restart": restart,
    "shards": shards,
    "node": node,
}
