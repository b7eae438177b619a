#!/usr/bin/env python3
"""Tests run.py with programs that only pretend to fuzz."""

import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

RUN = pathlib.Path(__file__).with_name("run.py")

# What libFuzzer prints, as far as run.py reads it. `crash` in the name makes it fail.
PROGRAM = """#!/bin/sh
trap 'echo "stat::number_of_executed_units: 7"; exit 72' TERM
echo "$0 $*" >>{calls}
for option in "$@"; do case "$option" in -artifact_prefix=*) place=${{option#-artifact_prefix=}} ;; esac; done
echo "#2 INITED cov: 30 ft: 40"
case "$0" in *crash) echo "#55 NEW cov: 31"; echo bad >"$place/crash-1"; exit 77 ;; esac
n=0; while [ $n -lt {tenths} ]; do sleep 0.1; n=$((n + 1)); done
echo "#99 DONE cov: 33 ft: 44"
echo "stat::number_of_executed_units: 99"
"""


class RunTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.place = pathlib.Path(self.folder.name)
        (self.place / "programs").mkdir()
        self.calls = self.place / "calls"
        self.calls.touch()

    def program(self, name, tenths=11):
        path = self.place / "programs" / f"fuzz_{name}"
        path.write_text(PROGRAM.format(calls=self.calls, tenths=tenths))
        path.chmod(0o755)

    def command(self, *arguments):
        return [sys.executable, str(RUN), "--programs", str(self.place / "programs"), "--found", str(self.place / "found"), *arguments]

    def run_it(self, *arguments):
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=100)

    def table(self):
        rows = (self.place / "found/hours.tsv").read_text().splitlines()[1:]
        return {row.split("\t")[0]: [int(n) for n in row.split("\t")[2:]] for row in rows}

    def called(self):
        return [line.split()[0].rsplit("fuzz_", 1)[1] for line in self.calls.read_text().splitlines()]

    def test_each_runs_once_and_counts_add_up(self):
        self.program("a")
        self.program("b")
        for times in (1, 2):
            done = self.run_it("--seconds", "1", "--jobs", "2")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(sorted(self.called()), ["a"] * times + ["b"] * times)
            self.assertEqual(self.table()["a"][1:], [99 * times, 33])
            self.assertGreaterEqual(self.table()["b"][0], times)
        self.assertIn("-max_total_time=1 ", self.calls.read_text())

    def test_until_goes_on_with_who_has_least(self):
        self.program("a")
        self.run_it("--seconds", "1")
        self.program("b")
        done = self.run_it("--seconds", "1", "--until", "2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.called()[1], "b", "it has none yet")
        self.assertGreaterEqual(min(row[0] for row in self.table().values()), 2)
        calls = len(self.called())
        self.assertEqual(self.run_it("--until", "2").returncode, 0)
        self.assertEqual(len(self.called()), calls, "each has its time")

    def test_a_changed_program_begins_anew(self):
        self.program("a")
        self.run_it("--seconds", "1", "--until", "1")
        self.program("a", tenths=12)
        self.run_it("--seconds", "1", "--until", "1")
        self.assertEqual(len(self.called()), 2)
        self.assertEqual(len((self.place / "found/hours.tsv").read_text().splitlines()), 3, "both are kept")

    def test_a_crash_fails_and_ends_its_target(self):
        self.program("a")
        self.program("crash")
        done = self.run_it("--seconds", "1", "--until", "2")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.called().count("crash"), 1, "it would find the same again")
        self.assertGreaterEqual(self.called().count("a"), 2, "the others go on")
        self.assertEqual(self.table()["crash"][1:], [55, 31], "as far as it came")
        self.assertRegex(done.stdout, r"crash +55 +31 +0 +1\n")

    def test_an_interruption_keeps_what_was_done(self):
        self.program("a", tenths=600)
        with subprocess.Popen(self.command("--until", "60"), stdout=subprocess.PIPE, text=True) as process:
            limit = time.monotonic() + 60
            while not self.called() and time.monotonic() < limit:
                time.sleep(0.1)
            time.sleep(1.2)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        seconds, executions, edges = self.table()["a"]
        self.assertGreaterEqual(seconds, 1)
        self.assertEqual((executions, edges), (7, 30))

    def test_what_does_not_exist_is_named(self):
        self.program("a")
        done = self.run_it("b")
        self.assertEqual(done.returncode, 2)
        self.assertIn("has no fuzz target b; it has: a", done.stderr)


if __name__ == "__main__":
    unittest.main()
