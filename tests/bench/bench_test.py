#!/usr/bin/env python3
"""bench/run.py with our real side and a made-up peer.

Usage: bench_test.py BIN_DIR [unittest arguments]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
ROW = "4x32x16"

sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))
import records
import turns
from side import Side, SideError

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
        argv = [sys.executable, str(BENCH / "run.py"), "operators", "--programs", str(self.dir), "--only", ROW, "--threads", "1"]
        argv += ["--rounds", "5", "--records", str(self.dir / "records.jsonl"), "--json", str(self.dir / "out.json"), *flags]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        return done, json.loads((self.dir / "out.json").read_text())

    def test_tunes_measures_and_keeps_the_record(self):
        self.add_peer()
        done, out = self.run_bench("--trials", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        (row,) = out["rows"]
        self.assertEqual((row["name"], row["threads"], row["peer"], row["peer_ms"]), (ROW, 1, "oneDNN", 5))
        self.assertAlmostEqual(row["ratio"], row["peer_ms"] / row["ours_ms"])
        self.assertGreater(row["ratio"], 10)  # 4096 operations do not take half a millisecond
        self.assertEqual(row["schedule"], "4 trials")
        self.assertEqual(len(row["ours_rounds_ms"]), 5)
        self.assertGreater(out["meta"]["cores"], 0)
        self.assertEqual(out["meta"]["versions"]["oneDNN"], "made up 1.0")
        (record,) = [json.loads(line) for line in (self.dir / "records.jsonl").read_text().splitlines()]
        self.assertEqual((record["name"], record["schema_version"]), (ROW, 1))

        done, out = self.run_bench()
        self.assertEqual((done.returncode, out["rows"][0]["schedule"]), (0, "record"), done.stderr)
        done, out = self.run_bench("--trials", "0")
        self.assertEqual((done.returncode, out["rows"][0]["schedule"]), (0, "default"), done.stderr)

    def test_a_record_that_does_not_replay_gives_way(self):
        self.add_peer()
        _, out = self.run_bench("--trials", "1")
        path = self.dir / "records.jsonl"
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "trace": "split nothing.i0 2 2\n"}) + "\n")
        done, out = self.run_bench()
        self.assertEqual((done.returncode, out["rows"][0]["schedule"]), (0, "default"), done.stderr)
        self.assertIn("warning", done.stdout)

    def test_without_peers_it_says_what_to_do(self):
        done, out = self.run_bench("--trials", "0")
        self.assertEqual((done.returncode, out["rows"]), (1, []))
        self.assertIn("setup.sh --bench", done.stderr)

    def test_a_peer_that_dies_is_a_row_not_measured(self):
        self.add_peer(die=True)
        done, out = self.run_bench("--trials", "0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("oneDNN ended during 'round' (status 3)", done.stderr)
        self.assertEqual(len(out["meta"]["failures"]), 1)


class PartsTest(unittest.TestCase):
    def test_ratio_is_theirs_over_ours(self):
        self.assertEqual(turns.compare([1, 2, 3], [2, 4, 12])["ratio"], 2)
        self.assertEqual(turns.compare([2], [1]), {"ratio": 0.5, "ratio_low": 0.5, "ratio_high": 0.5})

    def test_turns_are_repeated_while_others_use_the_cores(self):
        class Quick:
            def ask(self, do, **fields):
                return {"samples_ns": [3, 1, 2]}

            def cpu_seconds(self):
                return 0

        class Busy:
            """The kernel's counters, as if somebody else took all of the cores in the first `turns` turns."""

            def __init__(self, disturbed_turns):
                self.reads, self.disturbed_reads = 0, 2 * disturbed_turns

            def __call__(self, cpus):
                self.reads += 1
                return 100 * min(self.reads, self.disturbed_reads)

        self.addCleanup(setattr, turns, "_busy_ticks", turns._busy_ticks)
        self.addCleanup(setattr, turns, "PAUSE_S", turns.PAUSE_S)
        turns.PAUSE_S = 0
        for disturbed_turns, repeated, disturbed in [(0, 0, False), (3, 3, False), (1000, turns.MOST_REPEATED, True)]:
            turns._busy_ticks = Busy(disturbed_turns)
            found = turns.measure({"a": (Quick(), {})}, 5, [0])
            self.assertEqual((found.times, found.repeated, found.disturbed), ({"a": [2] * 5}, repeated, disturbed))

    def test_a_stopped_side_answers_again(self):
        side = Side("echo", ["sh", "-c", "while read line; do echo '{\"a\": 1}'; done"])
        self.assertEqual(side.ask("x"), {"a": 1})
        end = time.monotonic() + 10
        while self.state_of(side) != "T":
            self.assertLess(time.monotonic(), end, "it was never stopped")
        self.assertEqual(side.ask("x"), {"a": 1})
        side.close()

    @staticmethod
    def state_of(side):
        with open(f"/proc/{side._process.pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]

    def test_a_side_that_hangs_is_given_up(self):
        side = Side("sleeper", ["sleep", "100"])
        with self.assertRaisesRegex(SideError, "took longer than 0 s"):
            side.ask("x", limit_s=0.2)
        side.close()

    def test_records_keep_the_faster(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "records.jsonl")
            line = {"workload_key": "k", "target": "t", "name": "n", "trace": "", "median_ns": 5}
            records.Records(path).put(line)
            records.Records(path).put_faster([{**line, "median_ns": 7}, {**line, "workload_key": "l"}])
            kept = records.Records(path)
            self.assertEqual(kept.find("k", "t")["median_ns"], 5)
            self.assertEqual(kept.find("l", "t")["median_ns"], 5)
            self.assertIsNone(kept.find("k", "other target"))


if __name__ == "__main__":
    unittest.main()
