"""Records of `scripts/compare`: what was found as JSON, and as tables with medians, spread, ratios and goals."""

import dataclasses
import datetime
import json
import statistics

from harness import (
    NODE_PEER,
    NODE_PEER_VERSION,
    OURS,
    PEER,
    PEER_VERSION,
    ROOT,
    SLOW_DISK_US,
    congestion_control,
    file_system,
    kernel,
    processor,
)

# Above this part of both cores, what else is done on the machine is told.
OTHER_WORK_MOST = 0.1

SERVERS = {
    OURS: "`thalweg`: 1 shard and `--sync always` where nothing else is said",
    PEER: f"`{PEER}` {PEER_VERSION}: `--durability wal`",
    NODE_PEER: f"`{NODE_PEER}` {NODE_PEER_VERSION}: files, without compression",
}


@dataclasses.dataclass
class Column:
    """A figure of runs: `key` names it in a run; with `ratio`, it is also shown relative to the side of reference."""

    title: str
    key: str
    form: str = "{:,.0f}"
    per: float = 1
    spread: bool = False
    ratio: bool = False

    def show(self, value):
        return "-" if value is None else self.form.format(value / self.per)


def latency_columns(of=""):
    return [
        Column(f"{of}p50 ms", "p50_us", "{:.2f}", 1000),
        Column(f"{of}p99 ms", "p99_us", "{:.2f}", 1000, spread=True, ratio=True),
    ]


def load_columns(rate, per=1, form="{:,.0f}", operation="operation"):
    """Columns of a load: `rate` is the name of its rate."""
    return [
        Column(rate, "rate", form, per, spread=True, ratio=True),
        *latency_columns(),
        Column(f"server CPU us per {operation}", "server_cpu_us", "{:,.1f}", ratio=True),
    ]


@dataclasses.dataclass
class Goal:
    """What a figure should be. `value` takes the `Figures` of a part and returns a number, or None if there is none."""

    text: str
    value: object
    at_least: object = None
    at_most: object = None
    form: str = "{:.2f}"

    def row(self, figures):
        value, least, most = self.value(figures), self._bound(self.at_least, figures), self._bound(self.at_most, figures)
        wanted = f"at least {self.form.format(least)}" if least is not None else f"at most {self.form.format(most)}"
        if value is None:
            return wanted, "-", "-"
        met = value >= least if least is not None else value <= most
        return wanted, self.form.format(value), "yes" if met else "**no**"

    @staticmethod
    def _bound(bound, figures):
        return bound(figures) if callable(bound) else bound


class Figures:
    """Medians of a part's runs."""

    def __init__(self, found, quick_only=False):
        self.facts, self.cases = found["facts"], found["cases"]
        self.quick_only = quick_only

    def runs(self, case, side):
        runs = self.cases.get(case, {"runs": {}})["runs"].get(side, [])
        return [run for run in runs if not (self.quick_only and run["slow_disk"])]

    def values(self, case, side, key):
        return [run[key] for run in self.runs(case, side) if run.get(key) is not None]

    def median(self, case, side, key):
        values = self.values(case, side, key)
        return statistics.median(values) if values else None

    def ratio(self, case, side, other, key):
        return quotient(self.median(case, side, key), self.median(case, other, key))


def quotient(value, other):
    return None if value is None or not other else value / other


def ratio_of(case, side, other, key):
    """For a goal: the ratio of two sides' medians."""
    return lambda figures: figures.ratio(case, side, other, key)


def table(part, figures):
    head = ["", "server"]
    for column in part.columns:
        head += [column.title, "ratio"] if column.ratio else [column.title]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, case in figures.cases.items():
        for side in case["runs"]:
            if figures.runs(name, side):
                lines.append("| " + " | ".join(row(part, figures, name, case, side)) + " |")
        for side, reason in case["cannot"].items():
            lines.append("| " + " | ".join([name, side, f"cannot: {flat(reason)}"] + [""] * (len(head) - 3)) + " |")
    return lines


def flat(text):
    return " ".join(text.split()).replace("|", "/")


def row(part, figures, name, case, side):
    cells = [name, side]
    for column in part.columns:
        values = figures.values(name, side, column.key)
        cell = column.show(statistics.median(values)) if values else "-"
        if column.spread and len(values) > 1:
            cell += f" [{column.show(min(values))} to {column.show(max(values))}]"
        cells.append(cell)
        if column.ratio:
            reference = case["reference"]
            ratio = figures.ratio(name, side, reference, column.key) if reference not in (None, side) else None
            cells.append("" if ratio is None else f"{ratio:.2f}")
    return cells


def all_runs(found):
    for name, case in found["cases"].items():
        for side, runs in case["runs"].items():
            for run in runs:
                yield name, side, run


def disk_lines(part, found):
    runs = [run for _, _, run in all_runs(found)]
    slow = sum(run["slow_disk"] for run in runs)
    repeated = sum(run["repeated"] for run in runs)
    text = f"{slow} of {len(runs)} runs had a slow disk before or after (a synced 4 KiB write took {SLOW_DISK_US} us or more)"
    lines = [f"- {text}"]
    if disturbed := [run["other_work"] for run in runs if run["other_work"] > OTHER_WORK_MOST]:
        middle = statistics.median(disturbed)
        lines.append(
            f"- {len(disturbed)} of {len(runs)} runs were disturbed: other processes, the kernel or the hypervisor took more "
            f"than {OTHER_WORK_MOST:.0%} of both cores (median of these {middle:.0%})"
        )
    if repeated:
        lines.append(f"- runs made again because something kept the machine from running meanwhile: {repeated}")
    if slow:
        lines += ["", "Without the runs on a slow disk:" if slow < len(runs) else "Not one run had a quick disk."]
        if slow < len(runs):
            lines += ["", *table(part, Figures(found, quick_only=True))]
    return lines


def limit_lines(found):
    """Where the load generator said that it, not the server, was the limit."""
    limits = {}
    for name, side, run in all_runs(found):
        limits.setdefault((name, side), []).append(run.get("generator_limit"))
    lines = []
    for (name, side), whys in limits.items():
        said = [why for why in whys if why]
        if said:
            lines.append(f"- {name}, {side}: {len(said)} of {len(whys)} runs; the last one: {said[-1]}")
    return ["", "Runs in which the load generator, not the server, was the limit:", "", *lines] if lines else []


def goal_lines(part, found):
    if not part.goals:
        return []
    slow = any(run["slow_disk"] for _, _, run in all_runs(found))
    head = ["goal", "wanted", "found", "met"] + (["found on a quick disk", "met"] if slow else [])
    lines = ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for goal in part.goals:
        cells = [goal.text, *goal.row(Figures(found))]
        if slow:
            cells += goal.row(Figures(found, quick_only=True))[1:]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def conditions(options, seconds):
    return {
        "date": options.stamp,
        "written_at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": options.commit,
        "binary": "a release build of the commit" if not options.given else "named on the command line",
        "machine": processor(),
        "kernel": kernel(),
        "congestion_control": congestion_control(),
        "file_system": file_system(options.dir),
        "command": options.command,
        "pairs": options.pairs,
        "seconds": seconds,
    }


def text_of(name, part, found):
    where = found["conditions"]
    sides = {side for case in found["cases"].values() for side in [*case["runs"], *case["cannot"]]}
    shown = [text for who, text in SERVERS.items() if any(side.split(",")[0] == who for side in sides)]
    shown = shown or [SERVERS[OURS]]
    count = min(where["pairs"], part.pairs_most)
    length = f", {where['seconds']:g} s after 1 s of warm-up" if where["seconds"] else ""
    lines = [
        f"# {where['date']}: {part.title}",
        "",
        f"- commit: `{where['commit']}`; the server is {where['binary']}",
        f"- machine: {where['machine']}, {where['kernel']}, TCP with {where['congestion_control']}; data on {where['file_system']}",
        f"- command: `{where['command']}` (this is part `{name}`)",
        *[f"- {text}" for text in shown],
        f"- {count} {'run' if count == 1 else 'runs'} of each, alternating{length}; medians, in brackets least and greatest",
        *[f"- {note}" for note in part.notes],
        *[f"- {fact}: {value:,.0f}" for fact, value in found["facts"].items()],
        "",
        *table(part, Figures(found)),
        *goal_lines(part, found),
        "",
        *disk_lines(part, found),
        *limit_lines(found),
        "",
    ]
    return "\n".join(lines)


def write(options, name, part, found, seconds):
    """Writes both files; returns the text and the goals."""
    found = {"part": name, "title": part.title, "conditions": conditions(options, seconds), **found}
    found["goals"] = []
    for goal in part.goals:
        wanted, value, met = goal.row(Figures(found))
        found["goals"].append({"goal": goal.text, "wanted": wanted, "found": value, "met": met.strip("*")})
    text = text_of(name, part, found)
    stem = options.records_dir / f"{options.stamp}-compare-{name}"
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".md").write_text(text)
    stem.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    return text, found["goals"]


RECORDS = ROOT / "perf/records"
