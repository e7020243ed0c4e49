"""Checks of what `scripts/compare` makes of its runs: `python3 -m unittest discover -s perf`."""

import types
import unittest

import harness
import record
import runs

QUICK = {"slow_disk": False, "repeated": 0, "other_work": 0.0, "generator_limit": ""}
COLUMNS = [record.Column("ops/s", "rate", spread=True, ratio=True), record.Column("p50 ms", "p50_us", "{:.2f}", 1000)]


def of(rate, **more):
    return {**QUICK, "rate": rate, "p50_us": 1500, **more}


def found(ours, peers, cannot=()):
    sides = {name: side for name, side in (("ours", ours), ("peer", peers)) if side}
    return {"facts": {}, "cases": {"c": {"reference": "peer", "runs": sides, "cannot": dict(cannot)}}}


def part(goals=()):
    return runs.Part("title", [], COLUMNS, goals)


class Records(unittest.TestCase):
    def test_rows_have_medians_spread_and_ratios(self):
        figures = record.Figures(found([of(30), of(10), of(20)], [of(10)]))
        lines = record.table(part(), figures)
        self.assertEqual(lines[2], "| c | ours | 20 [10 to 30] | 2.00 | 1.50 |")
        self.assertEqual(lines[3], "| c | peer | 10 |  | 1.50 |")

    def test_a_slow_disk_gives_a_second_table_without_it(self):
        slow = of(1000, slow_disk=True)
        self.assertEqual(record.Figures(found([of(10), slow, slow], [of(10)])).median("c", "ours", "rate"), 1000)
        lines = record.disk_lines(part(), found([of(10), of(20), slow, slow], [of(10)]))
        self.assertIn("2 of 5 runs had a slow disk", lines[0])
        self.assertEqual(lines[-2], "| c | ours | 15 [10 to 20] | 1.50 | 1.50 |")
        lines = record.disk_lines(part(), found([slow], [slow]))
        self.assertIn("Not one run had a quick disk.", lines)
        self.assertEqual(len(record.disk_lines(part(), found([of(1)], [of(1)]))), 1)

    def test_what_a_server_cannot_do_is_told(self):
        lines = record.table(part(), record.Figures(found([of(1)], [], {"peer": "too\nmany | files"})))
        self.assertEqual(lines[3], "| c | peer | cannot: too many / files |  |  |")

    def test_goals_are_judged(self):
        goals = [
            record.Goal("rate", record.ratio_of("c", "ours", "peer", "rate"), at_least=1.5),
            record.Goal("p50", record.ratio_of("c", "ours", "peer", "p50_us"), at_most=lambda figures: 0.5),
            record.Goal("none", record.ratio_of("d", "ours", "peer", "rate"), at_least=1),
        ]
        lines = record.goal_lines(part(goals), found([of(20)], [of(10)]))
        self.assertEqual(lines[3], "| rate | at least 1.50 | 2.00 | yes |")
        self.assertEqual(lines[4], "| p50 | at most 0.50 | 1.00 | **no** |")
        self.assertEqual(lines[5], "| none | at least 1.00 | - | - |")

    def test_limits_of_the_generator_are_told(self):
        lines = record.limit_lines(found([of(1), of(1, generator_limit="it was busy")], [of(1)]))
        self.assertEqual(lines[-1], "- c, ours: 1 of 2 runs; the last one: it was busy")
        self.assertEqual(record.limit_lines(found([of(1)], [of(1)])), [])


class Runs(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, runs, "say", runs.say)
        runs.say = lambda text: None

    def bench(self):
        """One whose disk is always quick."""
        bench = runs.Bench.__new__(runs.Bench)
        bench.options = types.SimpleNamespace(disk_wait=0, pairs=2, seconds=None)
        bench.disk = types.SimpleNamespace(wait_until_quick=lambda most: (100.0, 0.0), latency_us=lambda: 400.0)
        bench.outcomes = harness.TARGET / "tmp/test-compare"
        return bench

    def test_a_run_that_was_interrupted_is_made_again(self):
        tries = []

        class Jumps(harness.ClockWatch):
            def jumped(self):
                return len(tries) < 3

        def side(_):
            tries.append(None)
            if len(tries) == 1:
                raise runs.CannotRun("because of the interruption")
            return {"rate": len(tries)}

        self.addCleanup(setattr, runs, "ClockWatch", runs.ClockWatch)
        runs.ClockWatch = Jumps
        once = self.bench().once(side)
        self.assertEqual((once["rate"], once["repeated"], once["slow_disk"]), (3, 2, True))

    def test_a_gap_in_either_clock_is_a_jump(self):
        clock = harness.ClockWatch()
        for gap_s, jumped in ((clock.JUMP_SECONDS / 2, False), (clock.JUMP_SECONDS * 2, True)):
            clock.longest_seconds = gap_s
            self.assertEqual(clock.jumped(), jumped)
        with harness.ClockWatch() as clock:
            # As if the time of day had gone on while nothing here did.
            clock.offset -= 1
        self.assertTrue(clock.jumped())

    def test_sides_alternate_and_one_that_cannot_is_left_out(self):
        order = []

        def side(name):
            def work(_):
                order.append(name)
                if name == "c":
                    raise runs.CannotRun("no")
                return {"rate": 1}

            return work

        case = runs.Case("case", {name: side(name) for name in "abc"}, "a")
        result = self.bench().measure("test", runs.Part("title", [case], COLUMNS))
        self.assertEqual("".join(order), "abcba")
        self.assertEqual(list(result["cases"]["case"]["runs"]), ["a", "b"])
        self.assertEqual(result["cases"]["case"]["cannot"], {"c": "no"})

    def test_own_work_is_not_other_work(self):
        others = harness.OtherWork()
        others._busy_seconds, others._own_seconds = iter((100.0, 107.0)).__next__, iter((5.0, 8.0)).__next__
        with others:
            others.began -= 10
        # 7 s of work, 3 of them ours, in somewhat over 10 s of two cores.
        self.assertLessEqual(others.part, 0.2)
        self.assertGreater(others.part, 0)


if __name__ == "__main__":
    unittest.main()
