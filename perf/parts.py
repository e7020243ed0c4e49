"""What `scripts/compare` measures: the parts, their cases, and the goals that they are held against."""

import contextlib
import http.client
import json
import pathlib
import random
import signal
import socket
import threading
import time

from harness import BUCKET, MIB, NODE_PEER, OURS, PEER, output
from record import Column, Goal, latency_columns, load_columns, quotient, ratio_of
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
    cases = [Case(f"{count:,} streams", both("append", "--streams", count, "--connections", 256), PEER) for count in counts]

    def of_fewest(case):
        return lambda figures: quotient(figures.median(case, OURS, "rate"), figures.median(cases[0].name, OURS, "rate"))

    goals = [
        Goal(f"{case.name}: rate, part of that at {cases[0].name}", of_fewest(case.name), at_least=0.8) for case in cases[1:]
    ]
    columns = [*load_columns("appends/s", operation="append"), Column("resident MB", "resident_bytes", per=MIB)]
    title = "single appends of 256 bytes over many streams, 256 connections"
    return Part(title, cases, columns, goals, [open_files_note(options)])


def open_files_note(options):
    return f"a process may have {options.open_files:,} files open here; the peer keeps files open for each stream"


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


def segments_and_disk(bench, server):
    """How many segments were filled, and what the disk takes just then."""
    files = pathlib.Path(server.data).glob("generation-*/shard-*/segment-*.log")
    segments = sum(file.stat().st_blocks > 0 for file in files)
    server.stop()
    durable = bench.disk.durable_write_bytes_per_s
    return {"segments": segments, "disk_durable_rate": durable(MIB), "disk_durable_half_rate": durable(MIB // 2)}


def batches(options):
    many = ["--frames", FRAMES, "--streams", 64]

    def side(who, workload, *more, connections=8, **settings):
        after = segments_and_disk if who == OURS else None
        load_of = [*many, "--connections", connections, *more]
        return load(who, workload, *load_of, rate="records_per_s", after=after, **settings)

    binary, batch, array = f"{OURS}, batch of binary", f"{OURS}, batch of JSON", f"{OURS}, JSON array"
    peer = f"{PEER}, JSON array"
    sides = {
        binary: side(OURS, "append-batch", "--style", "thalweg"),
        batch: side(OURS, "append-batch", "--style", "thalweg", "--content", "json"),
        array: side(OURS, "json-array"),
        peer: side(PEER, "json-array"),
    }
    of_32 = {
        binary: side(OURS, "append-batch", "--style", "thalweg", connections=32),
        peer: side(PEER, "json-array", connections=32),
    }
    made_ahead = {
        binary: side(
            OURS,
            "append-batch",
            "--style",
            "thalweg",
            extra=("--segments-ahead", SEGMENTS_AHEAD),
            before=lambda server: wait_for_rest(server, quiet_seconds=1),
        )
    }
    name = f"{FRAMES} records a request"
    ahead_name = f"8 connections, {SEGMENTS_AHEAD} segments made ahead"
    goals = [
        Goal(
            "batch of binary: million records/s (or 80 % of the disk's 1 MiB writes, if that is less)",
            lambda figures: scaled(figures.median(name, binary, "rate"), 1e-6),
            at_least=lambda figures: min(4, figures.facts[DISK_WRITES] * 0.8 / PAYLOAD_BYTES),
        ),
        Goal(
            "batch of binary: bytes of payload, part of what the disk takes in 1 MiB writes that are durable one at a time",
            lambda figures: quotient(
                scaled(figures.median(name, binary, "rate"), PAYLOAD_BYTES),
                figures.median(name, binary, "disk_durable_rate"),
            ),
            at_least=0.8,
        ),
        Goal(
            f"batch of binary, {SEGMENTS_AHEAD} segments made ahead: million records/s",
            lambda figures: scaled(figures.median(ahead_name, binary, "rate"), 1e-6),
            at_least=4,
        ),
        Goal("batch of binary: segment files", lambda figures: figures.median(name, binary, "segments"), at_least=10),
        Goal("batch of JSON: rate, times the peer's arrays", ratio_of(name, batch, peer, "rate"), at_least=2.5),
        Goal("JSON arrays: rate, times the peer's", ratio_of(name, array, peer, "rate"), at_least=1.5),
    ]
    columns = load_columns("million records/s", 1e6, "{:.2f}", "request")
    columns += [
        Column("segment files", "segments"),
        Column("disk alone, durable 1 MiB, MB/s", "disk_durable_rate", per=1e6, spread=True),
        Column("512 KiB", "disk_durable_half_rate", per=1e6, spread=True),
    ]
    return Part(
        "append batches and JSON arrays of 512 records of 256 bytes, 8 connections, 64 streams",
        [Case(name, sides, peer), Case("the same, 32 connections", of_32, peer), Case(ahead_name, made_ahead)],
        columns,
        goals,
        [
            "a batch is as many appends, each acknowledged by itself; an array is one append",
            "disk alone, durable: right after each run, direct writes into a new, allocated file, each durable before the next one "
            "begins, as the log's are; commits of 8 connections have some 512 KiB, for half of the batches wait while the others "
            "are written",
            f"{SEGMENTS_AHEAD} segments made ahead: `--segments-ahead`; the load begins when the server has made them",
        ],
        seconds=2,
        pause_seconds=10,
        facts=disk_writes,
    )


# More than a run fills, of 128 MiB.
SEGMENTS_AHEAD = 32
DISK_WRITES = "disk, 1 MiB direct writes, 8 under way, MB/s"


def disk_writes(bench):
    bench.disk.wait_until_quick(bench.options.disk_wait)
    return {DISK_WRITES: bench.disk.write_bytes_per_s(depth=8) / 1e6}


def scaled(value, factor):
    return None if value is None else value * factor


# --- reads

# Of records; a whole stream is one catch-up.
STREAM_BYTES = 24_000_000


def read_columns():
    return [
        Column("MB/s", "rate", per=1e6, spread=True, ratio=True),
        *latency_columns("whole stream "),
        Column("server CPU us per MB", "server_cpu_us_per_mb", ratio=True),
    ]


def read(options):
    def sides(content):
        arguments = ["--content", content, "--streams", 1, "--connections", 4, "--stream-bytes", STREAM_BYTES]
        return both("read", *arguments, series="catch_up", rate="payload_bytes_per_s")

    cases = [Case("binary", sides("binary"), PEER), Case("JSON array", sides("json"), PEER)]
    goals = [
        Goal(f"{case.name}: MB/s, times the peer's", ratio_of(case.name, OURS, PEER, "rate"), at_least=1) for case in cases
    ]
    notes = ["records of 256 bytes, written 512 at a time; in memory when they are read"]
    return Part("catch-up reads of a stream of 24 MB, 4 connections", cases, read_columns(), goals, notes)


def cold(options):
    """Segments are small, so that next to all of it is in sealed ones, which are settled."""

    def disk_after(bench, server):
        newest = max(file.stat().st_mtime for file in pathlib.Path(server.data).rglob("segment-*.log"))
        found = {"rest_s": time.time() - newest}
        server.stop()
        for name, depth in (("disk_read_rate", 8), ("disk_read_rate_alone", 1)):
            found[name] = bench.disk.read_bytes_per_s(depth)
        return found

    arguments = ["--cold", "--streams", 64, "--connections", 4, "--stream-bytes", STREAM_BYTES, "--pause", "20s"]
    extra = ("--segment-bytes", 64 * MIB)
    settings = {"series": "catch_up", "rate": "payload_bytes_per_s", "extra": extra, "after": disk_after}
    case = Case("64 interleaved streams", {OURS: ours("read", *arguments, **settings)})
    columns = [
        *read_columns(),
        Column("disk alone, 8 reads under way, MB/s", "disk_read_rate", per=1e6, spread=True),
        Column("one read at a time", "disk_read_rate_alone", per=1e6),
        Column("files unchanged for s", "rest_s", "{:.1f}"),
    ]

    def of_disk(figures):
        alone = [figures.median(case.name, OURS, key) for key in ("disk_read_rate", "disk_read_rate_alone")]
        return None if None in alone else quotient(figures.median(case.name, OURS, "rate"), max(alone))

    goal = Goal("MB/s, part of the disk's (the better of the two)", of_disk, at_least=0.7)
    notes = [
        "written in turn to all streams, 512 records of 256 bytes at a time, then 20 s for settling; segments of 64 MiB, a "
        "cache of 64 MiB; the disk: 1 MiB direct reads in order, right after each run",
        "files unchanged: at the end of the run; less than the run took means that settling was still under way",
    ]
    title = "cold catch-up reads of streams of 24 MB that were written interleaved"
    return Part(title, [case], columns, [goal], notes, pause_seconds=10)


def sse(options):
    case = Case("1,000 readers", both("sse", "--streams", 1, "--connections", 1000, "--rate", 50, series="deliver"), PEER)
    goals = [Goal("p99 of delivery, times the peer's", ratio_of(case.name, OURS, PEER, "p99_us"), at_most=0.6)]
    columns = [
        Column("events delivered/s", "rate", spread=True),
        *latency_columns("delivery "),
        Column("server CPU us per delivery", "server_cpu_us", "{:.2f}", ratio=True),
    ]
    notes = ["delivery: from the time at which the append was due to the arrival of the event at each reader"]
    title = "1,000 SSE readers of one stream, 50 appends of 256 bytes a second"
    return Part(title, [case], columns, goals, notes, seconds=10)


# --- two shards


def shards(options):
    """Without spinning: a core that waits for work would count as work."""

    def side(count, *more, connections=64):
        extra = ("--spin-us", "0")
        cpus = ",".join(map(str, range(count)))
        load = ("--streams", connections, "--connections", connections, *more)
        return ours("append", *load, extra=extra, shards=count, cpus=cpus)

    one, two = f"{OURS}, 1 shard", f"{OURS}, 2 shards"
    cases = [
        Case("connections stay with a stream", {one: side(1, "--stay"), two: side(2, "--stay")}, one),
        Case("connections rotate over all streams", {one: side(1), two: side(2)}, one),
        Case(
            "connections stay, 64 and 20,000 appends/s on each shard",
            {
                one: side(1, "--stay", "--rate", 20_000),
                two: side(2, "--stay", "--rate", 40_000, connections=128),
            },
            one,
        ),
    ]
    goals = [
        Goal(f"{case.name}: CPU, times that of one shard", ratio_of(case.name, two, one, "server_cpu_us"), at_most=most)
        for case, most in zip(cases, (1.1, 2.5, 1.1), strict=True)
    ]
    columns = load_columns("appends/s", operation="append")
    notes = [
        "the second shard has core 1, which the load uses as well: compare CPU time, not rates; `--spin-us 0`",
        "64 connections and streams where nothing else is said: each of two shards then has 32, and the load has half of one's "
        "core, so that each gets a third of the appends, has fewer in a commit and sleeps more often",
    ]
    return Part("two shards instead of one: single appends", cases, columns, goals, notes)


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


def file_state(file):
    try:
        stat = file.stat()
    except FileNotFoundError:
        return file, "gone"
    return file, stat.st_size, stat.st_mtime_ns


def wait_for_rest(server, quiet_seconds=3):
    """Until no file has changed for a while and the server has used next to no CPU time."""
    last, since, cpu = None, time.monotonic(), server.cpu_seconds()
    while time.monotonic() - since < quiet_seconds:
        time.sleep(0.2)
        files = sorted(map(str, map(file_state, pathlib.Path(server.data).rglob("*"))))
        used = server.cpu_seconds()
        if files != last or used - cpu > 0.1:
            last, since, cpu = files, time.monotonic(), used


def fill(bench, server, records):
    """Writes at least so many records, 512 a request; how many they were."""
    written = 0
    if server.who == OURS:
        how = ["append-batch", "--style", "thalweg", "--content", "json"]
    else:
        how = ["json-array"]
    while written < records:
        outcome = bench.generate(server, *how, "--payload", 64, "--connections", 8, seconds=1, warm_up="0s", label="fill")
        written += outcome["totals"]["records"]
    return written


class Varied:
    """Append batches of JSON records of many lengths: records of one length would make a smaller index than real ones do."""

    BODIES, CLIENTS, STREAMS = 64, 4, 64
    TYPE = "application/json"

    def __init__(self, server, seed=1):
        self.server, chosen = server, random.Random(seed)
        self.bodies = [b"".join(map(self._frame, range(FRAMES), chosen.choices(range(10, 120), k=FRAMES)))
                       for _ in range(self.BODIES)]  # fmt: skip
        client = Client(server)
        client.send("PUT", f"/{BUCKET}")
        for stream in range(self.STREAMS):
            client.send("PUT", f"/{BUCKET}/s{stream}", content_type=self.TYPE)

    @staticmethod
    def _frame(number, length):
        record = b'{"n":%d,"text":"%s"}' % (number, b"x" * length)
        return len(record).to_bytes(4, "big") + record

    def write(self, records):
        """At least so many; how many they were."""
        rounds = -(-records // (FRAMES * self.CLIENTS))
        failed = []

        def work(worker):
            client, chosen = Client(self.server), random.Random(worker)
            for number in range(rounds):
                # A stream has one writer here.
                path = f"/{BUCKET}/s{(number * self.CLIENTS + worker) % self.STREAMS}/append-batch"
                if (status := client.send("POST", path, chosen.choice(self.bodies), self.TYPE)) != 200:
                    failed.append(status)
                    return

        workers = [threading.Thread(target=work, args=(worker,)) for worker in range(self.CLIENTS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if failed:
            raise CannotRun(f"an append batch was answered with {failed[0]}")
        return rounds * FRAMES * self.CLIENTS


def footer_bytes(bench, server):
    """Length of the footer of a stopped server's only segment: changing the number of shards seals it."""
    with bench.server_on(OURS, server.data, shards=2, cpus="0,1"):
        pass
    lines = output(server.command[0], "inspect", "--json", server.data).splitlines()
    ends = [row for row in map(json.loads, lines) if row["row"] == "segment_end"]
    sealed = [row for row in ends if row["state"] == "sealed"]
    # Both shards have the same file.
    if not sealed or any(row["tail"] != sealed[0]["tail"] for row in sealed):
        raise SystemExit(f"one sealed segment was expected: {ends}")
    return sealed[0]["tail"]["footer_bytes"]


def index_memory(bench):
    """Bytes that records cost in the index. Settled: what a server that was started over them has more than one without; one
    that has just settled also keeps memory that it settled with. Not settled: growth by single appends, whose places in the log
    are all apart, in one segment that is not sealed, without the footer of that segment, which is in memory until then."""
    extra = ("--cache-bytes", "0", "--segment-bytes", 1024 * MIB)
    with bench.server(OURS, extra) as server:
        time.sleep(0.5)
        none = server.resident_bytes()

        def append(seconds):
            single = ["pipeline", "--depth", 16, "--streams", 64, "--connections", 64, "--payload", 64]
            outcome = bench.generate(server, *single, seconds=seconds, warm_up="0s", label="single appends")
            return outcome["totals"]["records"]

        # What grows once does not count.
        before_appended = append(1)
        before = server.resident_bytes()
        appended = append(5)
        grown = server.resident_bytes() - before
        server.stop()
        footer = footer_bytes(bench, server) * appended / (before_appended + appended)
        unsettled = (grown - footer) / appended
    extra = ("--cache-bytes", "0", "--segment-bytes", 64 * MIB)
    with bench.server(OURS, extra) as server:
        written = Varied(server).write(bench.options.records)
        wait_for_rest(server)
        at_rest = server.resident_bytes()
        server.stop()
        with bench.server_on(OURS, server.data, extra) as again:
            time.sleep(0.5)
            restarted = again.resident_bytes()
    return {
        "records": written,
        "unit_bytes": (restarted - none) / written,
        "unsettled_records": appended,
        "unsettled_unit_bytes": unsettled,
        "resident_bytes": restarted,
        "resident_at_rest_bytes": at_rest,
    }


def peer_streams(options):
    return min(options.idle_streams, options.open_files // 4)


def idle_streams(who):
    """The first streams pay for what grows once."""

    def side(bench):
        streams = bench.options.idle_streams if who == OURS else peer_streams(bench.options)
        with bench.server(who) as server:

            def make(count):
                bench.generate(
                    server, "append", "--streams", count, "--connections", 1, seconds=0.05, warm_up="0s", label="make"
                )
                time.sleep(1)
                return server.resident_bytes()

            before = make(streams // 10)
            after = make(streams)
            return {"unit_bytes": (after - before) / streams, "resident_bytes": after}

    return side


def idle_readers(who):
    """Readers of one stream that nothing is written to, after each has received what was there."""

    def side(bench):
        with bench.server(who) as server, contextlib.ExitStack() as readers:
            client, path = Client(server), "/v1/stream/compare/idle"
            if client.send("PUT", path) != 201 or client.send("POST", path, b"x" * 100) not in (200, 204):
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
        Column("not settled", "unsettled_unit_bytes", "{:,.1f}"),
        Column("resident MB", "resident_bytes", per=MIB),
        Column("right after settling", "resident_at_rest_bytes", per=MIB),
        Column("started in s", "start_s", "{:.3f}"),
    ]
    goals = [
        Goal(f"{case}: bytes", (lambda name: lambda figures: figures.median(name, OURS, "unit_bytes"))(case), at_most=most)
        for case, most in ((index, 2.5), (stream, 500), (reader, 4096))
    ]
    goals.append(
        Goal(f"{index}, not settled: bytes", lambda figures: figures.median(index, OURS, "unsettled_unit_bytes"), at_most=10.5)
    )
    notes = [
        "bytes of each: growth of resident memory, divided, when there are many more of them (settled records: see below)",
        f"index: {options.records:,} JSON records of 27 to 138 bytes, in append batches of 512 to 64 streams, no cache, "
        "segments of 64 MiB: what a server started over them has more than an empty one; not settled: growth by 5 s of single "
        "appends to 64 streams, without the footer of the segment in use, which is in memory until the segment is full",
        f"{options.idle_streams:,} streams of which next to none was written to ({peer_streams(options):,} for the peer: "
        f"{open_files_note(options)}); {options.idle_readers:,} readers of one stream; each on top of a tenth as many",
    ]
    return Part("memory", cases, columns, goals, notes, seconds=0, pairs_most=3, disk_matters=False)


# --- restart


class Filled:
    """Data directories of both servers that hold many records, and restarts over them."""

    PATH = "/v1/stream/compare/there"

    def __init__(self, bench, data):
        self.bench, self.data, self.records = bench, data, {}

    def make(self, who):
        with self.bench.server_on(who, self.data[who]) as server:
            client = Client(server)
            made, written = client.send("PUT", self.PATH), client.send("POST", self.PATH, b"there")
            if made not in (200, 201) or written not in (200, 204):
                raise SystemExit(f"{who}: the stream could not be made: {made}, {written}")
            self.records[who] = fill(self.bench, server, self.bench.options.records)
            wait_for_rest(server)
        say(f"{who} holds {self.records[who]:,} records")

    def restart(self, who, how):
        bench, data = self.bench, self.data[who]
        with bench.server_on(who, data) as server:
            # Something that is new in every start.
            bench.generate(server, "append", "--connections", 16, seconds=0.3, warm_up="0s", label="before restart")
            server.stop(how)
        began = time.monotonic()
        with bench.server_on(who, data) as server:
            if (status := Client(server).send("HEAD", self.PATH)) != 200:
                raise CannotRun(f"a stream that was there before the restart answers {status}")
            restart_s = time.monotonic() - began
            return {"restart_s": restart_s, "records": self.records[who], "resident_bytes": server.resident_bytes()}


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
        "from the start of the process to the answer to a HEAD of a stream that was there before; files may be in the page "
        "cache",
    ]
    return Part("restart over many records", cases, columns, goals, notes, seconds=0, prepare=filled)


PARTS = {
    "appends": appends,
    "streams": streams,
    "pipeline": pipeline,
    "batches": batches,
    "read": read,
    "cold": cold,
    "sse": sse,
    "memory": memory,
    "restart": restart,
    "shards": shards,
    "node": node,
}
