#!/usr/bin/env python3
"""The driver of bench/run.sh with our real side and a made-up peer.

Usage: bench_test.py BIN_DIR [unittest arguments]
"""
import contextlib
import ctypes
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
DRIVER = [sys.executable, "-m", "bench"]
ROW, OTHER_ROW = "4x32x16", "8x16x32"

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT))
from bench.classical import benchmark as classical
from bench.classical import forests, kept_rows, make, scikit
from bench.classical.rotate import At, Each, Rotation
from bench.common import arguments, crown, ranks, records, report, service, turns
from bench.common.side import Side, SideError
from bench.gains import benchmark as gains
from bench.graphs import benchmark as graphs
from bench.models import variants
from bench.plans import benchmark as plans
from bench.scheduling import benchmark as scheduling
from bench.search import benchmark as search

# Claims a fixed time for every call; on "die" it ends during its second round.
PEER = """#!/usr/bin/env python3
import json, sys
rounds = 0
for line in sys.stdin:
    do = json.loads(line)["do"]
    rounds += do == "round"
    if {die} and rounds == 2:
        sys.exit(3)
    print(json.dumps({{"version": {{"version": "made up 1.0"}}, "open": {{"implementation": "made up"}}}}.get(do)
                     or {{"samples_ns": [5e6] * 5}}), flush=True)
"""


# One tree of LightGBM: feature a above 0.5 gives 2; otherwise feature b above 0.25 gives 3, and else 1.
FOREST = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=1
objective=regression
feature_names=a b
feature_infos=[0:1] [0:1]
tree_sizes=0

Tree=0
num_leaves=3
num_cat=0
split_feature=0 1
split_gain=1 1
threshold=0.5 0.25
decision_type=2 2
left_child=1 -1
right_child=-2 -3
leaf_value=1 2 3
leaf_weight=1 1 1
leaf_count=1 1 1
internal_value=0 0
internal_weight=0 0
internal_count=3 2
is_linear=0
shrinkage=1

end of trees
"""


class RunTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = pathlib.Path(self.folder.name)
        os.symlink(BIN / "heddle-operator-bench", self.dir / "heddle-operator-bench")

    def add_peer(self, die=False):
        path = self.dir / "heddle-bench-onednn"
        path.write_text(PEER.format(die=die))
        path.chmod(0o755)

    def run_bench(self, *flags):
        argv = [*DRIVER, "operators", "--programs", str(self.dir), "--only", ROW, "--threads", "1"]
        argv += ["--rounds", "5", "--patience", "0", "--records", str(self.dir / "records.jsonl"), "--json", str(self.dir / "out.json"), *flags]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd=ROOT)
        return done, json.loads((self.dir / "out.json").read_text())

    def assert_measured(self, done, out, schedule):
        """With that schedule. That others used the cores meanwhile is not what these tests are about."""
        self.assertEqual(out["rows"][0]["schedule"], schedule, done.stderr)
        self.assertEqual([why for why in out["meta"]["failures"] if "kept using its cores" not in why], [])

    def test_tunes_measures_and_keeps_the_record(self):
        self.add_peer()
        done, out = self.run_bench("--trials", "4")
        self.assert_measured(done, out, "4 trials")
        (row,) = out["rows"]
        self.assertEqual((row["name"], row["threads"], row["peer"], row["peer_ms"]), (ROW, 1, "oneDNN", 5))
        self.assertAlmostEqual(row["ratio"], row["peer_ms"] / row["ours_ms"])
        self.assertGreater(row["ratio"], 10)  # 4096 operations do not take half a millisecond
        self.assertIn(len(row["ours_rounds_ms"]), range(5, 16))  # more than asked for while the ratio is not settled
        self.assertGreater(out["meta"]["cores"], 0)
        self.assertEqual(out["meta"]["versions"]["oneDNN"], "made up 1.0")
        (record,) = [json.loads(line) for line in (self.dir / "records.jsonl").read_text().splitlines()]
        self.assertEqual((record["label"].split()[0], record["schema_version"]), (ROW, 1))
        self.assertTrue(record["device_key"].endswith("-warm"), "times of warm caches must not meet the service's cold ones")
        self.assertEqual(record["median_ns"], statistics.median(record["measurement"]["samples_ns"]))
        self.assertIn("--trials 4", record["measurement"]["evidence"]["command"])
        self.assertGreater(row["default_ratio"], 0)

        done, out = self.run_bench()
        self.assert_measured(done, out, "record")
        done, out = self.run_bench("--direct")  # the record holds no Winograd, so it will do
        self.assert_measured(done, out, "record")
        self.assertIn("-winograd=off", out["meta"]["versions"]["Heddle"])
        done, out = self.run_bench("--trials", "0")
        self.assert_measured(done, out, "default")
        self.assertEqual(out["rows"][0]["default_ratio"], 1)
        path = self.dir / "records.jsonl"
        path.write_text(json.dumps({**record, "schema_version": 2}) + "\n")
        done, out = self.run_bench()
        self.assert_measured(done, out, "default")
        self.assertIn("another schema", done.stderr)

    def test_a_record_that_does_not_replay_gives_way(self):
        self.add_peer()
        _, out = self.run_bench("--trials", "1")
        path = self.dir / "records.jsonl"
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "trace": "split nothing.i0 2 2\n"}) + "\n")
        done, out = self.run_bench()
        self.assert_measured(done, out, "default")
        self.assertIn("warning", done.stderr)

    def test_without_peers_it_says_what_to_do(self):
        done, out = self.run_bench("--trials", "0")
        self.assertEqual((done.returncode, out["rows"]), (1, []))
        self.assertIn("setup.sh --bench", done.stderr)

    def test_a_peer_that_dies_is_a_row_not_measured(self):
        self.add_peer(die=True)
        done, out = self.run_bench("--trials", "0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("oneDNN ended during 'round' (status 3)", done.stderr)
        self.assertEqual(len([why for why in out["meta"]["failures"] if "ended during" in why]), 1)


class SearchTest(unittest.TestCase):
    def test_collects_goes_on_compares_and_evaluates(self):
        with tempfile.TemporaryDirectory() as folder:
            tables, out, plot = f"{folder}/tables", f"{folder}/out.json", f"{folder}/out.svg"

            def run(*flags, only=ROW):
                argv = [*DRIVER, *flags, "search", "--programs", str(BIN), "--tables", tables, "--only", only]
                return subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd=ROOT)

            done = run()
            self.assertEqual(done.returncode, 1)
            self.assertIn("--collect makes it", done.stderr)
            done = run("--collect", "--trials", "64", "--threads", "1")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("64 candidates", done.stdout)
            done = run("--collect", "--trials", "96", "--threads", "1")
            self.assertIn("32 of them new", done.stdout)
            done = run("--trials", "40", "--methods", "random")
            self.assertEqual(done.returncode, 1)
            self.assertIn("are too few for runs of 80 trials; take --trials 24, or --collect 160", done.stderr)
            done = run("--trials", "24", "--methods", "annealing+others")
            self.assertIn("needs --sources", done.stderr)
            done = run("--trials", "24", "--methods", "annealing+others", "--sources", tables)
            self.assertIn("no table of --sources is of another workload", done.stderr)
            done = run("--trials", "24", "--seeds", "2", "--methods", "annealing,random,published", "--json", out, "--plot", plot)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = json.loads(pathlib.Path(out).read_text())["rows"]
            self.assertEqual([row["method"] for row in rows], ["annealing", "random", "published"])
            for row in rows:
                self.assertEqual(len(row["curve"]), 24)
                self.assertEqual(row["curve"], sorted(row["curve"]))
                self.assertLessEqual(row["curve"][-1], 1)
                self.assertTrue(all(low <= mean <= high for low, mean, high in zip(row["low"], row["curve"], row["high"])))
            self.assertIn("a larger area than random", done.stdout)
            self.assertEqual(pathlib.Path(plot).read_text().count("<polyline"), 3)
            done = run("--ablate", "--seeds", "1")
            self.assertEqual(done.returncode, 0, done.stderr)
            for row in ("rank without loop", "rank with reuse", "regression", "knobs", "annealing:diversity=1", "ensemble-ucb", "annealing:cold_start=0"):
                self.assertIn(f"\n{row} ", done.stdout)
            done = run("--methods", "annealing:diversity=4", "--seeds", "1", "--ablation", "parts", "--ablate")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count("\nannealing"), 2, "it stands beside what it is compared with, and nothing else")
            self.assertIn("needs more than one table", run("--ablate", "--ablation", "others").stderr)
            for wrong in (("--ablate", "--methods", "annealing"), ("--ablate", "--sources", tables), ("--ablation", "parts")):
                self.assertEqual(run(*wrong).returncode, 2, wrong)
            done = run("--transfer", "--seeds", "1")
            self.assertEqual(done.returncode, 1)
            self.assertIn("transfer needs tables to learn from", done.stderr)
            done = run("--collect", "--trials", "64", "--threads", "1", only=OTHER_ROW)
            self.assertEqual(done.returncode, 0, done.stderr)
            done = run("--ablate", "--ablation", "others", "--methods", "annealing,annealing:depth=2", "--json", out, only=f"{ROW},{OTHER_ROW}")
            self.assertEqual(done.returncode, 0, done.stderr)
            ranked = json.loads(pathlib.Path(out).read_text())["rows"]
            self.assertEqual({(row["name"], row["model"]) for row in ranked}, {(n, m) for n in (ROW, OTHER_ROW) for m in ("annealing", "annealing:depth=2")})
            self.assertTrue(all(row["first"] >= 1 and row["across"] for row in ranked))
            done = run("--all-tasks", "--sample", "40", "--seeds", "2", "--json", out, only=f"{ROW},{OTHER_ROW}")
            self.assertEqual(done.returncode, 0, done.stderr)
            fitted = json.loads(pathlib.Path(out).read_text())["rows"]
            self.assertEqual({(row["name"], row["model"], row["seed"]) for row in fitted}, {(n, m, s) for n in (ROW, OTHER_ROW) for m in ("sample", "all") for s in (0, 1)})
            for row in fitted:
                # Each is fitted to the records of the other one only.
                self.assertEqual(row["samples"], 40 if row["model"] == "sample" else 64 if row["name"] == ROW else 96)
                self.assertTrue(-1 <= row["correlation"] <= 1 and 0 <= row["pairs"] <= 1 and 0 <= row["recall"] <= 1 and row["fit_s"] > 0, row)
            self.assertIn(f"\n{ROW} ", done.stdout)
            self.assertIn("the model of all orders more pairs on", done.stdout)
            only_one = run("--all-tasks", "--sample", "40", "--seeds", "1", "--json", out, only=ROW)
            self.assertEqual([row["name"] for row in json.loads(pathlib.Path(out).read_text())["rows"]], [ROW, ROW], only_one.stderr)
            done = run("--transfer", "--sources", tables, "--methods", "annealing+others", "--seeds", "2", "--each", "40", "--trials", "24", "--json", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            (row,) = json.loads(pathlib.Path(out).read_text())["rows"]
            self.assertEqual((row["name"], list(row["trials_to"])), (ROW, ["annealing", "annealing+others"]))
            for method, share in row["first"].items():
                self.assertTrue(0 < share <= 1, method)
                self.assertTrue(2 <= row["trials_to"][method] <= 24, method)

    def test_curves(self):
        runs = [{"best": [0.5, 1.0], "untuned": 0.4, "propose_s": 1, "update_s": 2}, {"best": [0.5, 0.5, 0.5, 0.96], "propose_s": 3, "update_s": 4}]
        row = search.make_row("C2", "random", runs, 4)
        self.assertEqual(row["curve"], [0.5, 0.75, 0.75, 0.98])
        self.assertEqual(row["trials_to_95"], [2, 4])
        self.assertEqual((row["low"], row["high"]), ([0.5, 0.5, 0.5, 0.96], [0.5, 1.0, 1.0, 1.0]))
        self.assertEqual((row["propose_s"], row["update_s"]), (2, 3))
        self.assertAlmostEqual(row["area"], 0.745)
        self.assertAlmostEqual(row["area_twice"], (0.75 + 0.98 * 3) / 4)
        self.assertAlmostEqual(statistics.fmean(row["areas"]), row["area"])

    def test_runs_that_do_not_get_there_count_whole(self):
        runs = [{"best": [0.5], "untuned": 0.4, "propose_s": 1, "update_s": 2}]
        self.assertEqual(search.make_row("C2", "random", runs, 4)["trials_to_95"], [8])
        self.assertEqual(search.make_row("C2", "annealing", runs, 4)["trials_to_95"], [4])

    def test_a_win_is_more_than_the_seeds_differ(self):
        self.assertGreater(search.margin([0.9, 0.92], [0.8, 0.82]), 0)
        self.assertLess(search.margin([0.7, 0.99], [0.6, 0.98]), 0)
        self.assertEqual(search.margin([1.0], [1.0]), 0)

    def test_transfer_is_told_by_groups_with_the_worst_end(self):
        def row(name, scratch, knowing, end):
            ends = {method: 1.0 for method in search.KNOWING} | {search.KNOWING[0]: end}
            to = {search.OURS: scratch} | {method: knowing for method in search.KNOWING}
            first = {search.OURS: 0.5} | {method: 0.75 for method in search.KNOWING}
            return {"name": name, "trials_to": to, "ends": ends, "first": first, "never": [search.KNOWING[0]] if scratch < knowing else []}

        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            search.print_groups([row("C7", 8, 2, 1.01), row("C9", 32, 8, 0.95), row("D1", 6, 3, 1.0), row("D2", 6, 60, 1.0)], search.GROUPS)
        lines = told.getvalue().splitlines()
        (ours,) = [line.split() for line in lines if line.startswith("C7, C8, C9 ") and search.KNOWING[0] + " " in line]
        self.assertEqual(ours[-7:], ["16.0", "4.0", "4.0x", "50.0", "/", "75.0", "0.950"])
        self.assertIn("C7, C8, C9: 3 times fewer trials", lines)
        self.assertIn("D2, D4, D6, D8: not 3 times fewer trials", lines)
        self.assertNotIn("odd of D1-D9: ", told.getvalue(), "no verdict on what was chosen by it")
        (never,) = [line.split() for line in lines if line.startswith("D2, D4, D6, D8 ") and search.KNOWING[0] + " " in line]
        self.assertIn(">60.0", never)
        self.assertNotIn("matrix products", told.getvalue())

    def test_operators_whose_default_is_the_best_are_named(self):
        def rows(name, untuned):
            runs = [{"best": [0, 1.0], "untuned": untuned, "propose_s": 1, "update_s": 2}]
            return [search.make_row(name, method, runs, 2) for method in ("annealing", "published")]

        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            search.print_summary(rows("C1", 1.02) + rows("C2", 0.5), 2)
        self.assertIn("beats the default schedule of C1\n", told.getvalue())
        self.assertIn("needs 1.00 of the trials of the published method", told.getvalue())


class PartsTest(unittest.TestCase):
    def test_ratio_is_theirs_over_ours(self):
        self.assertEqual(turns.compare([1, 2, 3], [2, 4, 12])["ratio"], 2)
        self.assertEqual(turns.compare([2], [1]), {"ratio": 0.5, "ratio_low": 0.5, "ratio_high": 0.5})

    def test_turns_are_repeated_while_others_use_the_cores(self):
        class Quick:
            def ask(self, do, **fields):
                return {"samples_ns": [3, 1, 2]}

            def cpu_seconds(self):
                return 0, 0

        class Busy:
            """The kernel's counters, as if somebody else took all of the cores in the first `turns` turns."""

            def __init__(self, disturbed_turns):
                self.reads, self.disturbed_reads = 0, 2 * disturbed_turns

            def __call__(self, cpus):
                self.reads += 1
                return 100 * min(self.reads, self.disturbed_reads)

        self.addCleanup(setattr, turns, "busy_ticks", turns.busy_ticks)
        self.addCleanup(setattr, turns, "PAUSE_S", turns.PAUSE_S)
        turns.PAUSE_S = 0
        for disturbed_turns, repeated, disturbed in [(0, 0, False), (3, 3, False), (1000, turns.most_repeated, True)]:
            turns.busy_ticks = Busy(disturbed_turns)
            found = turns.measure({"a": (Quick(), {})}, 5, [0])
            self.assertEqual((found.times, found.repeated, found.disturbed), ({"a": [2] * 5}, repeated, disturbed))

    def test_rounds_go_on_until_the_ratios_are_settled(self):
        class Timed:
            def __init__(self, *times):
                self.times = itertools.chain(times, itertools.repeat(times[-1]))

            def ask(self, do, **fields):
                return {"samples_ns": [next(self.times)]}

            def cpu_seconds(self):
                return 0, 0

        self.addCleanup(setattr, turns, "busy_ticks", turns.busy_ticks)
        turns.busy_ticks = lambda cpus: 0
        for other, settle, rounds in [
            (Timed(200), True, 5),  # twice as slow, always: nothing more to learn
            (Timed(300, 300, 200), False, 5),
            (Timed(300, 300, 200), True, 9),  # until fewer than a quarter of the rounds were the slow ones
            (Timed(*[200, 300] * 20), True, 15),  # never settled, but it ends
        ]:
            times = turns.measure({"a": (Timed(100), {}), "b": (other, {})}, 5, [0], settle=settle).times
            self.assertEqual((len(times["a"]), len(times["b"])), (rounds, rounds))

    def test_the_crown_goes_by_the_moment(self):
        class Machine:
            """Kernel 0 takes nine tenths of what kernel 1 takes at that moment; in one round of five the machine slows down
            between them."""

            def __init__(self):
                self.times = {0: itertools.cycle([180, 180, 180, 90, 90]), 1: itertools.cycle([100, 200, 200, 100, 100])}

            def ask(self, do, id):
                return {"samples_ns": [next(self.times[id])]}

            def cpu_seconds(self):
                return 0, 0

        self.addCleanup(setattr, turns, "busy_ticks", turns.busy_ticks)
        turns.busy_ticks = lambda cpus: 0
        found = crown.crown(Machine(), [{"id": 0}, {"id": 1}], [0])
        self.assertEqual([kernel["id"] for kernel in found], [0, 1])
        medians = [statistics.median(kernel["samples_ns"]) for kernel in found]
        self.assertGreater(medians[0], medians[1])  # by which the other would have won

    def test_the_default_schedule_is_always_in_the_finals(self):
        class Loader:
            """Builds all traces but "old"; without one, the default."""

            def ask(self, do, trace="default"):
                if trace == "old":
                    raise SideError("no such step")
                return {"id": trace, "trace": trace}

        def loaded(*traces):
            with contextlib.redirect_stderr(io.StringIO()):
                return [(k["trace"], k["from"]) for k in crown.load(Loader(), "x", [("trial", trace) for trace in traces])]

        self.assertEqual(loaded("a", "old", "a"), [("a", "trial"), ("default", "default")])
        self.assertEqual(loaded("default", "a"), [("default", "trial"), ("a", "trial")])
        self.assertEqual(loaded(), [("default", "default")])

    def test_figures_of_a_set_up(self):
        def made(name, reported):
            setup = scheduling.Setup(name, None, tempfile.gettempdir())
            setup.wall_s = 10.0
            def stage(kind, start, end):
                return {"kind": kind, "start_unix_ns": start * 10**9, "end_unix_ns": end * 10**9}

            tasks = [{"info": {"key": "a", "weight": 3}}, {"info": {"key": "b"}}]
            spans = [stage("build", 0, 2), stage("profile", 2, 5), stage("profile", 6, 10)]
            setup.jobs = [{"spec": {"name": "m", "target": "t"}, "tasks": tasks, "timeline": spans}]
            setup.records = {("t", key): {"median_ns": ns, "trace": name} for key, ns in reported.items()}
            setup.candidates = {("t", key): {"one", "two"} for key in reported}
            return setup

        dedicated, other = made("sequential", {"a": 100.0, "b": 50.0}), made("predictive", {"a": 400.0, "b": 50.0})
        again = {"sequential": {("t", "a"): [90.0, 100.0, 130.0], ("t", "b"): [50.0] * 3}, "predictive": {("t", "a"): [180.0, 200.0, 260.0], ("t", "b"): [100.0] * 3}}
        row = scheduling.make_row(other, dedicated, again)
        self.assertAlmostEqual(row["busy_share"], 7 / 8)  # of the profiling window, 2 to 10 s
        for figure in (row["quality"]["by_model"], row["quality"]["by_task"]):
            self.assertEqual([round(figure[k], 6) for k in ("ratio", "low", "high")], [0.5] * 3)  # in every turn
        self.assertEqual([row["quality"][k] for k in ("tasks", "other_picks", "same_candidates")], [2, 2, 2])
        self.assertAlmostEqual(row["reported_over_remeasured"], 1.0)  # twice as slow one way, twice the other
        self.assertAlmostEqual(row["worst_error"], 1.0)
        same = scheduling.make_row(dedicated, dedicated, again)["quality"]
        self.assertEqual([same["by_model"], same["by_task"], same["other_picks"]], [{"ratio": 1.0, "low": 1.0, "high": 1.0}] * 2 + [0])
        # Task a is as good, task b half as good: with three uses of a the models differ less than the tasks on average.
        again["predictive"] = {("t", "a"): again["sequential"][("t", "a")], ("t", "b"): [100.0, 90.0, 110.0]}
        quality = scheduling.make_row(other, dedicated, again)["quality"]
        self.assertAlmostEqual(quality["by_model"]["ratio"], 350 / 400)
        self.assertAlmostEqual(quality["by_task"]["ratio"], 0.5**0.5)
        self.assertLess(quality["by_task"]["low"], 0.56)
        self.assertEqual(quality["by_task"]["high"], 1.0)
        self.assertEqual(made("uncoordinated", {}).shares(), (None, None))
        with tempfile.NamedTemporaryFile(suffix=".svg") as file:
            scheduling.plot([row], file.name)
            self.assertEqual(pathlib.Path(file.name).read_text().count("<title>"), 3)

    def test_a_stopped_side_answers_again(self):
        side = Side("echo", ["sh", "-c", "while read line; do echo '{\"a\": 1}'; done"])
        self.assertEqual(side.ask("x"), {"a": 1})
        end = time.monotonic() + 10
        while self.state_of(side._process.pid) != "T":
            self.assertLess(time.monotonic(), end, "it was never stopped")
        self.assertEqual(side.ask("x"), {"a": 1})
        side.close()

    @staticmethod
    def state_of(pid):
        try:
            with open(f"/proc/{pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return None

    def test_a_side_that_hangs_is_given_up(self):
        side = Side("sleeper", ["sleep", "100"])
        with self.assertRaisesRegex(SideError, "took longer than 0 s"):
            side.ask("x", limit_s=0.2)
        side.close()

    def test_what_a_side_started_ends_with_it(self):
        side = Side("parent", ["sh", "-c", 'sleep 100 & read line; echo "{\\"child\\": $!}"; read line'])
        child = side.ask("x")["child"]
        side.close()
        end = time.monotonic() + 10
        while self.state_of(child) not in ("Z", None):
            self.assertLess(time.monotonic(), end, "the child lives on")

    def test_a_side_that_waits_for_its_core_is_disturbed(self):
        class Waiting:
            def __init__(self, used):
                self.reads, self.used = 0, used

            def ask(self, do, **fields):
                return {"samples_ns": [1]}

            def cpu_seconds(self):
                self.reads += 1
                waited = min(self.reads, 6)  # a second more in each of the first turns
                return self.used * waited, waited

        self.addCleanup(setattr, turns, "busy_ticks", turns.busy_ticks)
        self.addCleanup(setattr, turns, "PAUSE_S", turns.PAUSE_S)
        turns.busy_ticks, turns.PAUSE_S = lambda cpus: 0, 0
        self.assertEqual(turns.measure({"a": (Waiting(used=0), {})}, 5, [0]).repeated, 3)
        # One of its threads had the core all the time: they waited for one another.
        self.assertEqual(turns.measure({"a": (Waiting(used=1), {})}, 5, [0]).repeated, 0)

    def test_records_are_kept_by_device_and_sorted(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "records.jsonl")
            about = {"key": "k", "label": "C2 conv2d", "flops": 1}
            cold = records.make(about, "t", "cpu", "a", [5, 7, 6], "command")
            warm = records.make({**about, "label": "C1 conv2d"}, "t", "cpu-warm", "b", [1], "command")
            records.Records(path).put(warm, cold)
            records.Records(path).put({**cold, "trace": "c"})
            kept = records.Records(path)
            self.assertEqual((kept.find("k", "t", "cpu")["trace"], kept.find("k", "t", "cpu")["median_ns"]), ("c", 6))
            self.assertEqual(kept.find("k", "t", "cpu-warm")["trace"], "b")
            self.assertIsNone(kept.find("k", "other target", "cpu"))
            with open(path) as file:
                self.assertEqual([json.loads(line)["device_key"] for line in file], ["cpu", "cpu-warm"])

    def test_two_cores_that_are_one_are_told(self):
        result = report.Report("operators")
        for one_and_two, told in [((100, 190), False), ((100, 120), True)]:
            result.peaks = dict(zip((1, 2), one_and_two))
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                result.print_versions()
            self.assertEqual("one physical core" in output.getvalue(), told)


class PlansTest(unittest.TestCase):
    CONTENDERS = [{"name": "estimated", "ns": 4e6}, {"name": "substituted 1", "ns": 3e6, "chosen": True}]

    def job(self, **comparison):
        return {"plan_report": {"contenders": self.CONTENDERS}, "comparison": comparison}

    def test_a_prediction_is_that_of_the_module_in_the_end(self):
        self.assertEqual(graphs.prediction(self.job())["name"], "substituted 1")
        self.assertEqual(graphs.prediction(self.job(plan_taken_back=True))["name"], "estimated")
        self.assertIsNone(graphs.prediction(self.job(module_is_default=True)))
        self.assertIsNone(graphs.prediction({}))

    def test_seconds_of_stages(self):
        spans = [{"kind": kind, "start_unix_ns": 10**9, "end_unix_ns": end * 10**9} for kind, end in [("profile", 3), ("build", 9), ("profile", 2), ("compare", 6)]]
        unfinished = {"kind": "profile", "start_unix_ns": 10**9}
        self.assertEqual(graphs.stage_seconds({"timeline": spans + [unfinished]}), {"profile": 3.0, "build": 8.0, "compare": 5.0})

    def test_what_all_models_together_say(self):
        def row(name, off, sequential, joint, predicted):
            modes = {
                mode: {"ms": ms, "profile_s": 60, "predicted_ns": p, "predicted_over_measured": p and p * 1e-6 / ms, "predicted_gain": p and off * 1e6 / p}
                for mode, ms, p in [("off", off, None), ("sequential", sequential, predicted), ("joint", joint, predicted)]
            }
            found = {mode: {"ratio": modes[mode]["ms"] / joint} for mode in ("off", "sequential")}
            return {"name": name, "modes": modes, "gains": found, "peers": {"ONNX Runtime": {"ratio": 2.0}}}

        told = graphs.summary([row("a", 4.0, 2.0, 2.0, 2.2e6), row("b", 0.98, 1.0, 1.0, 1e6)])
        self.assertIn("off / joint: geometric mean 1.400 of 2; lowest b 0.980; 1 of at least 1.1; below 0.99: b", told)
        self.assertIn("ONNX Runtime / joint: geometric mean 2.000 of 2; lowest a 2.000", told)
        self.assertIn("predicted times of 4 whole models: off by 5.0 % in the median, 10.0 % at most; rank correlation 1.00; of predicted gains with off / mode 1.00", told)
        self.assertIn("seconds on the device: off 120, sequential 120, joint 120", told)
        self.assertFalse([line for line in graphs.summary([row("a", 4.0, 2.0, 2.0, None)]) if "predicted" in line])

    def test_predictions_are_ranked_within_models_and_over_all(self):
        def row(scale, predicted, rounds):
            contenders = [
                {"name": str(i), "predicted_ns": scale * p, "rounds_ms": [scale * t for t in times], "measured_ms": scale * statistics.median(times)}
                for i, (p, times) in enumerate(zip(predicted, rounds))
            ]
            for one in contenders:
                one["predicted_over_measured"] = one["predicted_ns"] / one["measured_ms"]
            return {"contenders": contenders, "gain": {"ratio": 1.0}, "rank_correlation": 0.5, "repeat_correlation": None}

        apart = row(1, [10, 8, 12], [[10, 10.1, 10], [9, 9.1, 9], [11, 11.1, 11]])
        # The graphs of a larger model take the same time, but one, which is predicted to be slower and is faster.
        alike = row(1000, [10, 10.1, 11], [[10, 11, 10.5], [11, 10, 10.5], [8, 8, 8]])
        self.assertEqual(len(plans.told_apart(apart)), 3)
        self.assertEqual(len(plans.told_apart(alike)), 2)
        told = plans.summary([apart, alike])
        self.assertIn("2 models, 6 graphs: predicted within", told[0])
        self.assertIn("0.50 within a model in the mean, where that of the measurement with itself is -", told[1])
        self.assertIn("3 of the 5 pairs", told[2])
        # Sizes of models do not count: with the first model twice, gains are ranked as in one.
        self.assertIn("1.00 of the gains", plans.summary([apart, row(1000, [10, 8, 12], [[10] * 3, [9] * 3, [11] * 3])])[1])

    def test_graphs_of_one_process_are_held_against_those_of_another(self):
        def half(*medians, disturbed=False):
            times = {name: [ns, ns * 1.1, ns * 0.9] for name, ns in zip("abcd", medians)}
            return turns.Measured({**times, "ONNX Runtime": [40.0, 40.0, 40.0]}, repeated=2, disturbed=disturbed)

        contenders = [{"name": name, "predicted_ns": ns} for name, ns in zip("abcd", (10, 12, 14, 16))]
        chosen = {"contenders": contenders, "chosen": 0, "layouts": None, "held_out_median": 0, "held_out_rms": 0, "kernels": 4}
        bench = object.__new__(plans.Plans)
        bench.threads = 1
        # Each process ranks the graphs as it does in all its rounds, but the two do not agree.
        row = bench.rows("m", chosen, [half(10, 12, 14, 16), half(16, 14, 12, 10, disturbed=True)])[0]
        self.assertAlmostEqual(row["repeat_correlation"], -1)
        self.assertEqual((row["disturbed"], row["turns_repeated"], len(row["contenders"][0]["rounds_ms"])), (True, 4, 6))
        self.assertAlmostEqual(bench.rows("m", chosen, [half(10, 12, 14, 16)] * 2)[0]["repeat_correlation"], 1)

    def test_the_kernels_that_are_predicted_worst_are_named(self):
        kernels = [{"label": f"k{i}", "uses": i, "alone_ns": 2e6, "predicted_ns": 1.5e6, "module_ns": (1.5 + i) * 1e6} for i in range(7)]
        row = {"chosen": "b", "contenders": [{"name": "a"}, {"name": "b", "kernels": kernels}]}
        head, *worst = plans.missed(row)
        self.assertIn("14.000 ms alone, 10.500 predicted, 31.500 one by one in the module", head)
        self.assertEqual([line.rsplit(" ", 1)[1] for line in worst], ["k6", "k5", "k4", "k3", "k2"])
        self.assertEqual(plans.missed({**row, "chosen": "a"}), [])

    def test_told_gains_are_held_against_later_ones(self):
        def row(name, told, later):
            return {"name": name, "told": {"ratio": told, "low": told - 0.02, "high": told + 0.02}, "later_median": later, "later_least_task": (later, f"task of {name}")}

        told = gains.summary([row("a", 1.2, 1.21), row("b", 1.1, 0.98)])
        self.assertIn("below 0.99 later: b", told[0])
        self.assertIn("told within 3 % of later in 1 of 2; farthest +12.2 % (b); later within the told interval in 1", told[1])
        self.assertIn("least 0.980 (task of b)", told[2])

    def test_a_model_has_other_sizes_or_says_which_have(self):
        for wrong in ("mlp@7", "resnet18@", "resnet18@x", "resnet18@99999"):
            with self.assertRaisesRegex(ValueError, "resnet18@N|not"):
                variants.write(str(BIN), wrong, os.devnull)

    def test_ranks(self):
        self.assertEqual(ranks.ranks([30, 10, 30, 20]), [2.5, 0, 2.5, 1])
        self.assertAlmostEqual(ranks.rank_correlation([1, 2, 3], [10, 30, 20]), 0.5)
        self.assertIsNone(ranks.rank_correlation([1, 2], [1, 2]))
        self.assertIsNone(ranks.rank_correlation([1, 1, 1], [1, 2, 3]))


class ClassicalTest(unittest.TestCase):
    DENSE = make.BY_NAME["dense-500x8"]

    def row(self, spec, rows, times_us, forms=("select",), depth=8, choice=None):
        """A row with the same time in every turn. Without a time of its own, the module for any number of rows takes that of the form."""
        times_us = {classical.ANY_ROWS: times_us[choice if choice in forms else forms[0]], **times_us}
        measured = turns.Measured({label: [us * 1e3] * 3 for label, us in times_us.items()})
        about = {label: {"way": "", "max_error": 0} for label in times_us}
        return classical.make_row(spec, rows, 1, {"leaves": 1, "depth": depth}, list(forms), choice, about, measured)

    def lines(self, rows):
        return "\n".join(classical.summary_lines(classical.summarize(rows)))

    def test_rows_are_chosen_by_name_and_number(self):
        everything = classical.select(None)
        self.assertEqual(len(set(everything)), len(everything))
        self.assertEqual({spec for spec, _ in everything}, set(make.CALLS + make.MODELS))
        self.assertEqual({rows for spec, rows in everything if spec in make.CALLS}, {1})
        self.assertEqual(len(make.BY_NAME), len(make.CALLS + make.MODELS))
        self.assertEqual(classical.select(["dense-500x8"]), [(self.DENSE, rows) for rows in classical.ROWS])
        self.assertEqual(classical.select(["dense-500x8@7", "sparse-1x3@1"]), [(self.DENSE, 7), (forests.CALLS[1], 1)])
        for wrong in ("dense", "dense-500x8@", "dense-500x8@0", "dense-500x8@x", f"dense-500x8@{forests.TABLE_ROWS + 1}"):
            with self.assertRaisesRegex(ValueError, f"'{wrong}'"):
                classical.select([wrong])

    def test_quick_rows_come_first_and_are_of_every_kind(self):
        quick = [(make.BY_NAME[name], rows, threads) for name, rows, threads in classical.QUICK]
        everything = classical.select(None)
        ordered = classical.in_order(everything, [1, 2])
        self.assertEqual(ordered[: len(quick)], quick)
        self.assertEqual(set(ordered), {(*pair, threads) for pair in everything for threads in (1, 2)})
        self.assertEqual(len(set(ordered)), len(ordered))
        shapes = {spec.shape for spec, _, _ in quick}
        self.assertEqual(shapes, set(classical.FAMILIES))
        self.assertEqual({rows for _, rows, _ in quick}, set(classical.ROWS))
        self.assertEqual({threads for _, _, threads in quick}, {1, 2})
        for label, peer in classical.PEERS.items():
            self.assertTrue(shapes & set(peer.shapes), label)
        # Behind them, each of the first turns has a model of each shape.
        rest = [spec for spec, _, _ in ordered[len(quick) :] if spec not in make.CALLS]
        self.assertEqual({spec.shape for spec in list(dict.fromkeys(rest))[:4]}, shapes)
        # Only what is asked for, and on these threads.
        self.assertEqual(classical.in_order([(self.DENSE, 7), (self.DENSE, 1)], [2]), [(self.DENSE, 7, 2), (self.DENSE, 1, 2)])

    def measure_rows(self, minutes, seconds_each, todo, kept=None, disturbed=()):
        """What measure_all leaves of rows that take so long, with the rows of the report and its failures."""
        now = [0.0]
        opened = []

        class Made:
            def __init__(made, args, result, spec, threads, given_up, left_s):
                made.spec, made.threads, made.about = spec, threads, {"made_by": spec.name}
                opened.append((spec, threads, left_s()))

            def measure(made, rows):
                now[0] += seconds_each
                if rows == 13:
                    raise SideError("no")
                return {**self.row(made.spec, rows, {"select": 5.0, "XGBoost": 10.0}), "disturbed": rows in disturbed}

            def close(made):
                pass

        class Clock:
            @staticmethod
            def monotonic():
                return now[0]

        for name, value in (("Classical", Made), ("time", Clock)):
            self.addCleanup(setattr, classical, name, getattr(classical, name))
            setattr(classical, name, value)
        args, result = type("Args", (), {"minutes": minutes}), report.Report("classical")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
            left = classical.measure_all(args, result, todo, kept)
        return left, result, opened, told.getvalue()

    def test_no_row_begins_after_the_last_minute(self):
        other = make.BY_NAME["sparse-500x8"]
        todo = [(self.DENSE, 1, 1), (self.DENSE, 13, 1), (self.DENSE, 100, 2), (other, 1, 2)]
        left, result, opened, told = self.measure_rows(3, 60, todo)
        self.assertEqual(left, [(other, 1, 2)])
        self.assertEqual([row["rows"] for row in result.rows], [1, 100])
        self.assertEqual(result.failures, ["dense-500x8@13, 1 thread: no"])
        # Rows of one model with as many threads share its processes.
        self.assertEqual(opened, [(self.DENSE, 1, 180), (self.DENSE, 2, 60)])
        self.assertIn("row 3 of 4, after 2.0 min: dense-500x8@100, 2 threads", told)
        left, result, _, _ = self.measure_rows(None, 1e6, todo)
        self.assertEqual((left, len(result.rows)), ([], 3))

    def test_a_run_goes_on_where_one_stopped(self):
        same = {"programs": "a", "isa": "native", "blocks": None, "rounds": 11}
        made_by = make.made_by
        self.addCleanup(setattr, make, "made_by", made_by)
        make.made_by = lambda spec: {"spec": spec.name, "shape": (1, 2)}  # the libraries need not be there
        todo = [(self.DENSE, rows, 1) for rows in classical.ROWS]
        with tempfile.TemporaryDirectory() as folder:
            rows = os.path.join(folder, "rows")
            kept = kept_rows.KeptRows(rows, same)
            measured = self.row(self.DENSE, 100, {"select": 5.0, "XGBoost": 40.0})
            kept.put(measured, make.made_by(self.DENSE))

            def missing(kept):
                result = report.Report("classical")
                with contextlib.redirect_stdout(io.StringIO()):
                    left = classical.take_kept(kept, result, todo)
                return [rows for _, rows, _ in left], result.rows

            left, taken = missing(kept_rows.KeptRows(rows, same))
            self.assertEqual(left, [1, 10000])
            self.assertEqual({**taken[0], "measured_at": 0}, {**measured, "measured_at": 0})
            # Other programs, another target, or a model that is made otherwise.
            for key, value in (("programs", "b"), ("isa", "avx2"), ("blocks", [1, 64]), ("rounds", 5)):
                self.assertEqual(missing(kept_rows.KeptRows(rows, {**same, key: value})), ([1, 100, 10000], []))
            make.made_by = lambda spec: {"spec": spec.name, "shape": (1, 3)}
            self.assertEqual(missing(kept), ([1, 100, 10000], []))
            # A damaged file is no row.
            pathlib.Path(kept.path("dense-500x8", 100, 1)).write_text('{"of')
            self.assertEqual(missing(kept), ([1, 100, 10000], []))

    def test_rows_that_others_disturbed_are_not_kept(self):
        put = []
        kept = type("Kept", (), {"put": lambda self, row, made_by: put.append(row["rows"])})()
        self.measure_rows(None, 60, [(self.DENSE, 1, 1), (self.DENSE, 100, 1)], kept, disturbed=(100,))
        self.assertEqual(put, [1])

    def test_code_for_avx2_has_the_goals_of_avx2(self):
        self.addCleanup(setattr, report, "cpu_flags", report.cpu_flags)
        report.cpu_flags = lambda: {"avx512f"}
        self.assertEqual(classical.goal_of(classical.GENERAL, 10000, "avx2"), 2)
        self.assertEqual(classical.CPUS.keys(), {"native", "avx2"})

    def test_a_model_is_made_again_if_its_code_or_a_library_changes(self):
        written = []

        def write(spec, folder):
            written.append(spec.name)
            return {"file": "f"}

        self.addCleanup(setattr, scikit, "write", scikit.write)
        scikit.write = write
        spec = make.BY_NAME["ridge"]
        with tempfile.TemporaryDirectory() as folder:
            for wanted in ({"code": "a"}, {"code": "a"}, {"code": "b"}, {"code": "b"}):
                self.assertEqual(make.make(spec, folder, wanted), {"made_by": wanted, "file": "f"})
            self.assertEqual(len(written), 2)
            compiled = pathlib.Path(folder, "ridge.txt.peer-1.so")
            compiled.write_text("")
            make.make(spec, folder, {"code": "b"})
            self.assertTrue(compiled.exists())
            make.make(spec, folder, {"code": "c"})
            self.assertFalse(compiled.exists(), "compiled from the file that was replaced")

    def test_models_have_the_trees_of_their_names(self):
        for spec in forests.CALLS + forests.MODELS:
            self.assertEqual(forests.rounds_of(spec) * (forests.CLASSES if spec.task == "multiclass" else 1), spec.trees)
            self.assertGreater(spec.most_leaves, spec.depth)  # or no tree could be so deep
        xgboost = {"split": "f1", "children": [{"leaf": 1.0}, {"split": "f2", "children": [{"leaf": 2.0}, {"leaf": 3.0}]}]}
        lightgbm = {"left_child": {"left_child": {"leaf_value": 1}, "right_child": {"leaf_value": 2}}, "right_child": {"leaf_value": 3}}
        for tree, leaves, depth in [(xgboost, 3, 2), (lightgbm, 3, 2), ({"leaf_value": 1}, 1, 0)]:
            self.assertEqual((forests.count_leaves(tree), forests.max_depth(tree)), (leaves, depth))

    def test_a_row_has_the_best_of_each_kind_and_the_regrets(self):
        times = {"walk": 6.0, "select": 4.0, "XGBoost": 30.0, "ONNX Runtime": 12.0, "TL2cgen": 9.0}
        forms = ("walk", "select")
        row = self.row(self.DENSE, 100, times, forms)
        self.assertEqual(row["best"], {"general": "ONNX Runtime", "compiled": "TL2cgen"})
        self.assertEqual([row["peers"][label]["ratio"] for label in ("XGBoost", "ONNX Runtime", "TL2cgen")], [5.0, 2.0, 1.5])
        self.assertEqual((row["form"], row["best_form"], row["ours_us"]), ("walk", "select", 6.0))
        self.assertEqual(row["choices"], {"estimated": "walk", "rule": "walk"})  # the trees are deep
        self.assertEqual(row["regrets"], {"estimated": 0.5, "rule": 0.5})
        # The form by measured kernels is what a job makes, and what is compared.
        chosen = self.row(self.DENSE, 100, times, forms, choice="select")
        self.assertEqual((chosen["form"], chosen["ours_us"], chosen["peers"]["TL2cgen"]["ratio"]), ("select", 4.0, 2.25))
        self.assertEqual(chosen["regrets"], {"measured": 0, "estimated": 0.5, "rule": 0.5})
        self.assertNotIn("measured", self.row(self.DENSE, 100, times, forms, choice="select+walk")["choices"])
        # Shallow trees, and a single row.
        self.assertEqual(self.row(self.DENSE, 100, times, forms, depth=3)["choices"]["rule"], "select")
        self.assertEqual(self.row(self.DENSE, 1, times, forms)["choices"]["rule"], "select")
        # A form that the model does not have cannot be what the rule takes.
        self.assertEqual(self.row(self.DENSE, 1, {"walk": 6.0, "other": 5.0, "XGBoost": 7.0}, ("walk", "other"))["choices"]["rule"], "walk")
        self.assertEqual(self.row(make.BY_NAME["ridge"], 1, {"none": 6.0, "scikit-learn": 7.0}, ("none",), None)["regrets"], {"estimated": 0})
        self.assertEqual(self.row(self.DENSE, 1, {"walk": 6.0, "XGBoost": 7.0}, ("walk",))["best"]["compiled"], None)
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            classical.print_row(row)
        self.assertRegex(told.getvalue(), r"dense-500x8@100 +1 +6\.00 +6\.00 +walk +select +ONNX Runtime +12\.00 +2\.00 +TL2cgen +9\.00 +1\.50 +XGBoost 30\.00 \(5\.00\); walk 6\.00, select 4\.00: by estimate walk \+50\.0 %, Hummingbird's rule walk \+50\.0 %")
        self.assertNotIn("made in", told.getvalue())
        row["conversions"] = {"walk": {"convert_s": 0.31, "peak_rss_mib": 99.6}, "ranks": {"convert_s": 12, "peak_rss_mib": 640}}
        with contextlib.redirect_stdout(told):
            classical.print_row(row)
        self.assertIn("; made in: walk 0.3 s 100 MiB, ranks 12.0 s 640 MiB\n", told.getvalue())

    def test_peers_are_compared_with_the_module_for_any_number_of_rows(self):
        row = self.row(self.DENSE, 100, {"any rows": 10.0, "walk": 6.0, "select": 4.0, "XGBoost": 30.0}, ("walk", "select"))
        self.assertEqual((row["ours_us"], row["one_size_us"], row["form"]), (10.0, 6.0, "walk"))
        self.assertEqual((list(row["peers"]), row["peers"]["XGBoost"]["ratio"]), (["XGBoost"], 3.0))
        self.assertEqual((row["forms_us"], row["best_form"]), ({"walk": 6.0, "select": 4.0}, "select"))

    def test_the_module_for_any_number_of_rows_is_made_once(self):
        ran = []

        def run_tool(argv):
            ran.append(argv)
            return json.dumps({"target": "t", "warnings": []})

        self.addCleanup(setattr, classical, "run_tool", classical.run_tool)
        classical.run_tool = run_tool
        for blocks, records, program in ((None, None, "heddle-plan-bench"), ([1, 64], None, "heddle-plan-bench"), (None, "r", "heddle-bench-module")):
            bench = classical.Classical.__new__(classical.Classical)
            bench.spec, bench.threads, bench.cpus, bench.any_rows = self.DENSE, 1, [0], None
            bench.args = type("Args", (), {"blocks": blocks, "records": records, "programs": "bin", "isa": "native", "commit": "c"})
            bench.work, bench.about, bench.result = "w", {"file": "f"}, report.Report("classical")
            ran.clear()
            path = bench.any_rows_module()
            self.assertEqual(bench.any_rows_module(), path)
            ((tool, *argv),) = ran
            self.assertEqual(tool, f"bin/{program}")
            self.assertIn(path, argv)
            self.assertEqual("--shape" in argv, blocks is not None, "the blocks are those by default")
            self.assertEqual("rows=1,64" in argv, blocks is not None)

    def test_what_all_rows_together_say(self):
        rows = [
            self.row(forests.CALLS[0], 1, {"select": 1.0, "XGBoost": 20.0}),
            self.row(self.DENSE, 1, {"select": 5.0, "XGBoost": 40.0, "TL2cgen": 10.0}),
            self.row(make.BY_NAME["dense-100x8"], 1, {"select": 5.0, "walk": 4.0, "XGBoost": 10.0}, ("select", "walk")),
            self.row(make.BY_NAME["dense-100x6"], 1, {"select": 5.0, "walk": 5.0, "XGBoost": 20.0}, ("select", "walk"), choice="walk"),
            self.row(self.DENSE, 100, {"select": 5.0, "XGBoost": 45.0}),
            self.row(make.BY_NAME["ridge"], 1, {"none": 2.0, "scikit-learn": 50.0}, ("none",), None),
        ]
        told = self.lines(rows)
        self.assertIn("a call with one row and one tree, dense, 1 thread: Heddle 1.00 us, XGBoost 20.00 us; goal", told)
        mean = "trees, 1 row, 1 thread: best general: geometric mean 4.00 of 3, lowest dense-100x8 2.00"
        self.assertIn(f"{mean}; goal 5.00: not met by the mean, 2 of 3 below it", told)
        mean = "trees, 1 row, 1 thread: best compiled: geometric mean 2.00 of 1, lowest dense-500x8 2.00"
        self.assertIn(f"{mean}; goal 1.00: met by the mean, 0 of 1 below it", told)
        self.assertIn("less what its call takes with one tree: median 0.00 of 3, lowest dense-100x6 0.00", told)
        self.assertIn("trees, 100 rows, 1 thread: best general: geometric mean 9.00 of 1, lowest dense-500x8 9.00\n", told)
        regret = "slower than the best form on average of"
        self.assertIn(f"trees, 1 row, 1 thread: form by estimate: 12.5 % {regret} 2, at most 25.0 % (dense-100x8)", told)
        self.assertIn(f"form by measured kernels: 0.0 % {regret} 1, at most 0.0 % (dense-100x6); goal 10 %: met", told)
        self.assertIn(f"form by Hummingbird's rule: 12.5 % {regret} 2", told)
        self.assertIn("linear models and SVMs, 1 row, 1 thread: scikit-learn: geometric mean 25.00 of 1", told)
        self.assertNotIn("trees, 100 rows, 1 thread: best compiled", told)
        self.assertNotIn("linear models and SVMs, 1 row, 1 thread: form", told)

    def test_goals_hold_at_one_row_and_at_ten_thousand(self):
        self.addCleanup(setattr, report, "cpu_flags", report.cpu_flags)
        for flags, general in ((set(), 2), ({"avx512f"}, 5)):
            report.cpu_flags = lambda flags=flags: flags
            self.assertEqual([classical.goal_of(classical.GENERAL, rows) for rows in (1, 100, 10000)], [5, None, general])
            self.assertEqual([classical.goal_of(classical.COMPILED, rows) for rows in (1, 100, 10000)], [1, None, 1])

    def test_the_summary_is_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/report.json"
            result = report.Report("classical", path)
            self.assertNotIn("summary", json.loads(pathlib.Path(path).read_text()))
            result.summary = classical.summarize([self.row(self.DENSE, 1, {"select": 5.0, "XGBoost": 40.0})])
            result.save()
            (best, single) = json.loads(pathlib.Path(path).read_text())["summary"]["means"]
            self.assertAlmostEqual(best["mean"], 8)
            self.assertEqual((best["peers"], best["met"]), ("best general", True))
            self.assertEqual(single["peers"], "XGBoost")

    def test_a_peer_that_fails_is_noted_and_not_tried_again(self):
        asked, closed = [], []

        class Answering:
            def ask(self, do):
                return {"version": "1.0"}

            def close(self):
                closed.append(self)

        def open(label, runtime, model, rows):
            asked.append(label)
            if label == "XGBoost":
                raise SideError("no")
            return (None, {}), {}

        self.addCleanup(setattr, classical, "missing_packages", classical.missing_packages)
        classical.missing_packages = lambda peer: []
        bench = classical.Classical.__new__(classical.Classical)
        bench.spec, bench.given_up, bench.result = self.DENSE, set(), report.Report("classical")
        bench.work, bench.about = "", {"file": "f", "own": "f", "onnx": "unknown objective"}
        bench.open = open
        failing, answering = Answering(), Answering()
        bench.sides = {"XGBoost": failing, "TL2cgen": answering}
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual([list(bench.open_peers(1)), list(bench.open_peers(100))], [["TL2cgen"]] * 2)
        self.assertEqual((asked, closed), (["XGBoost", "TL2cgen", "TL2cgen"], [failing]))
        self.assertEqual(len(bench.result.notes), 2)
        self.assertIn("no figure of ONNX Runtime: the model is not converted to ONNX: unknown objective", bench.result.notes[1])
        classical.missing_packages = lambda peer: ["treelite"]
        self.assertEqual(bench.open_peers(1), {})

    def test_a_module_has_the_rows_and_the_form_that_are_asked_for(self):
        def module(*flags):
            argv = [BIN / "heddle-bench-module", f"{folder}/forest.txt", "-o", f"{folder}/forest.heddle", *flags]
            return subprocess.run(argv, capture_output=True, text=True, timeout=60)

        library = ctypes.CDLL(str(BIN.parent / "lib" / "libheddle.so"))
        rows = (ctypes.c_float * 6)(0.5, 0.25, 0.5, 0.26, 0.6, 0)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "forest.txt").write_text(FOREST)
            forms = json.loads(module("--shape", "rows=3").stdout)["forms"]
            self.assertGreater(len(forms), 1)
            for form in forms:
                made = module("--shape", "rows=3", "--forest-form", form)
                self.assertEqual(set(json.loads(made.stdout)["forests"].values()), {form})
                model, scores = ctypes.c_void_p(), (ctypes.c_float * 3)()
                size = ctypes.c_size_t
                self.assertEqual(library.heddle_load(f"{folder}/forest.heddle".encode(), 1, ctypes.byref(model)), 0)
                self.assertEqual(library.heddle_set_input(model, 0, rows, size(ctypes.sizeof(rows))), 0)
                self.assertEqual(library.heddle_run(model), 0)
                self.assertEqual(library.heddle_get_output(model, 0, scores, size(ctypes.sizeof(scores))), 0)
                self.assertEqual(list(scores), [1, 3, 2], form)
                library.heddle_free(model)
            self.assertIn(f"the forms are {', '.join(forms)}", module("--shape", "rows=3", "--forest-form", "none").stderr)
            # Without a number of rows, one module is for any.
            self.assertEqual(module().stderr, "")
            model, scores = ctypes.c_void_p(), (ctypes.c_float * 3)()
            self.assertEqual(library.heddle_load(f"{folder}/forest.heddle".encode(), 1, ctypes.byref(model)), 0)
            inputs, outputs = (ctypes.c_void_p * 1)(ctypes.addressof(rows)), (ctypes.c_void_p * 1)(ctypes.addressof(scores))
            self.assertEqual(library.heddle_run_rows(model, ctypes.c_int64(3), inputs, outputs), 0)
            self.assertEqual(list(scores), [1, 3, 2])
            library.heddle_free(model)

    def test_a_form_is_chosen_by_measured_kernels(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "forest.txt").write_text(FOREST)
            argv = [BIN / "heddle-plan-bench", f"{folder}/forest.txt", "--shape", "rows=64"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            told = json.loads(done.stdout)
            self.assertEqual(told["failed"], [])
            self.assertGreater(told["measured_kernels"], 1)
            forms = [classical.form_of(contender) for contender in told["contenders"]]
            self.assertGreaterEqual(set(forms), {"walk", "select"})
            self.assertEqual(os.listdir(folder), ["forest.txt"], "no module was asked for")
            # The module that a job makes without a trial. By what was measured it knows what its blocks take.
            module = pathlib.Path(folder, "forest.heddle")
            done = subprocess.run([*argv[:2], "--module", module], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            kernels = re.findall(rb'"record_ms": *([0-9.e-]+)', module.read_bytes())
            self.assertGreaterEqual(len(kernels), 4, "of each block one at least")
            self.assertGreater(min(map(float, kernels)), 0)

    def test_what_a_call_takes_beyond_its_kernels(self):
        def run(program, *argv):
            return subprocess.run([BIN / program, *argv], capture_output=True, text=True, timeout=120)

        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "forest.txt").write_text(FOREST)
            module = f"{folder}/forest.heddle"
            self.assertEqual(run("heddle-bench-module", f"{folder}/forest.txt", "-o", module).stderr, "")
            told = run("heddle-bench-call", module)
            self.assertEqual((told.returncode, told.stderr), (0, ""))
            form = re.compile(r"(\d+) rows: a call (\d+) ns, its (\d+) kernels (-?\d+) ns, beyond them (-?\d+) ns")
            lines = [[int(number) for number in form.fullmatch(line).groups()] for line in told.stdout.splitlines()]
            self.assertEqual([line[0] for line in lines], [1, 16, 128, 2048])
            for _, call, kernels, inside, beyond in lines:
                self.assertGreater(min(call, kernels), 0)
                self.assertAlmostEqual(call, inside + beyond, delta=2)
            # A model whose rows are not known to be independent, and no module at all.
            self.assertEqual(run("heddle", "zoo", "mlp", "-o", f"{folder}/mlp.onnx").returncode, 0)
            self.assertEqual(run("heddle-bench-module", f"{folder}/mlp.onnx", "-o", module).stderr, "")
            for file, why in [(module, "its rows are not independent"), (f"{folder}/forest.txt", "")]:
                refused = run("heddle-bench-call", file)
                self.assertEqual((refused.returncode, refused.stdout), (1, ""))
                self.assertTrue(refused.stderr.startswith("heddle-bench-call: "), refused.stderr)
                self.assertIn(why, refused.stderr)

    def test_a_database_that_was_filled_by_sql_is_one_of_the_stores(self):
        with tempfile.TemporaryDirectory() as folder:
            argv = [BIN / "heddle-bench-records", "--records", "2000", "--export", "1000", "--seconds", "1", "--fill", "sql", "--data", f"{folder}/data"]
            told = subprocess.run(argv, capture_output=True, text=True, timeout=120)
            self.assertEqual(told.returncode, 0, told.stderr)
            for line in ("second opening", "inserts, 512 a transaction", "export", "import"):
                self.assertIn(line, told.stdout)

    def test_each_call_takes_the_next_block(self):
        library = ctypes.CDLL(str(BIN.parent / "lib" / "libheddle-bench-rotate.so"))
        libc = ctypes.CDLL(None)
        copy, compare = libc.memcpy, libc.memcmp
        copy.restype = None
        source = (ctypes.c_int64 * 4)(10, 11, 12, 13)
        pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(source) + 8 * i for i in (3, 2, 1, 0)))
        direct, loaded = (ctypes.c_int64 * 4)(), (ctypes.c_int64 * 4)()
        at = ctypes.addressof
        steps = [(copy, Each(at(direct), 8), Each(at(source), 8), 8), (copy, Each(at(loaded), 8), At(at(pointers), 8), 8)]
        rotation = Rotation(library, 4, steps)
        rotation.calls(3)
        self.assertEqual((list(direct), list(loaded)), ([10, 11, 12, 0], [13, 12, 11, 0]))
        source[0], source[1] = 20, 21
        rotation.calls(2)  # the last block and the first one again
        self.assertEqual((list(direct), list(loaded)), ([20, 11, 12, 13], [13, 12, 11, 20]))
        same = Rotation(library, 4, [(compare, Each(at(direct), 8), Each(at(source), 8), 8)], lambda: "they differ")
        same.calls(1)
        with self.assertRaisesRegex(RuntimeError, "they differ"):
            same.calls(3)


class ArgumentsTest(unittest.TestCase):
    def parse(self, *argv):
        self.addCleanup(setattr, sys, "argv", sys.argv)
        sys.argv = ["bench/run.sh", *argv]
        return arguments.parse()

    def test_a_quick_run_is_short(self):
        quick, whole = self.parse("classical", "--quick"), self.parse("classical")
        self.assertEqual((quick.minutes, whole.minutes), (10, None))
        self.assertLess(quick.rounds, whole.rounds)
        longer = self.parse("classical", "--quick", "--minutes", "30", "--rounds", "7")
        self.assertEqual((longer.minutes, longer.rounds), (30, 7))
        for wrong in (["models", "--quick"], ["classical", "--quick", "--only", "ridge"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as told:
                self.parse(*wrong)
            self.assertIn("--quick is for classical, without --only", told.getvalue())

    def test_blocks_are_numbers_of_rows(self):
        self.assertEqual(self.parse("classical", "--blocks", "1,1024").blocks, [1, 1024])
        for wrong, why in ((["models", "--blocks", "1"], "are for classical"), (["classical", "--blocks", "0"], "must be from 1")):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as told:
                self.parse(*wrong)
            self.assertIn(why, told.getvalue())

    def test_the_script_knows_every_benchmark(self):
        script = (ROOT / "bench" / "run.sh").read_text()
        for name in arguments.BENCHMARKS:
            self.assertRegex(script, re.compile(rf"^  (\w+ \| )*{name}( \| \w+)*\)", re.M))
            self.assertRegex(script, rf"# Usage: bench/run\.sh [a-z|]*\b{name}\b")
            self.assertTrue((ROOT / "bench" / name / "benchmark.py").exists(), name)


class FreshMachineTest(unittest.TestCase):
    def test_without_python_the_script_says_what_installs_it(self):
        with tempfile.TemporaryDirectory() as folder:
            for tool in ("bash", "dirname"):
                os.symlink(shutil.which(tool), os.path.join(folder, tool))
            done = subprocess.run([shutil.which("bash"), ROOT / "bench" / "run.sh", "operators"], env={"PATH": folder}, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (2, "run.sh: python3 is missing; deploy/setup.sh --bench installs it\n"))

    def test_onednn_without_opencl_is_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            # As Debian's package: it ends the configuration where OpenCL is missing.
            pathlib.Path(folder, "dnnl-config.cmake").write_text("find_package(OpenCL REQUIRED)\n")
            find = ROOT / "bench" / "operators" / "find_onednn.cmake"
            pathlib.Path(folder, "CMakeLists.txt").write_text(
                f"cmake_minimum_required(VERSION 3.25)\nproject(peers NONE)\nset(dnnl_DIR {folder})\ninclude({find})\nmessage(STATUS \"found: ${{dnnl_FOUND}}\")\n")
            configure = ["cmake", "-S", folder, "-B", os.path.join(folder, "build"), "-DCMAKE_DISABLE_FIND_PACKAGE_OpenCL=ON"]
            done = subprocess.run(configure, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("deploy/setup.sh --bench", done.stdout)
        self.assertNotIn("found: 1", done.stdout)


class ServiceTest(unittest.TestCase):
    def test_goes_on_with_what_was_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "mlp.onnx")
            subprocess.run([BIN / "heddle", "zoo", "mlp", "-o", model], check=True)
            version = subprocess.run([BIN / "heddle-operator-bench", "--cpus", "0"], input=b'{"do": "version"}\n', capture_output=True)
            target = json.loads(version.stdout)["target"]

            def tune(**flags):
                tuner = service.Service(BIN, os.path.join(folder, "data"))
                self.addCleanup(tuner.close)
                try:
                    job = tuner.tune(model, target, 2, 0, **flags)
                    keys = [task["info"]["key"] for task in job["tasks"]]
                    return job, [tuner.fastest_records(key, target, 3) for key in keys] if keys else []
                finally:
                    tuner.close()

            job, found = tune()
            self.assertEqual(job["state"], "done")
            self.assertGreater(job["trials"], len(job["tasks"]))
            self.assertTrue(all(found))
            again, same = tune()
            self.assertEqual(again["state"], "done")
            self.assertLess(again.get("trials", 0), job["trials"])  # a task's small space may have left some over
            self.assertTrue(all(task.get("known_records") for task in again["tasks"]))
            self.assertTrue(all(same))


if __name__ == "__main__":
    unittest.main()
