#!/usr/bin/env python3
"""Runs fuzz targets, several at once, and keeps count of how long each has run, so that hours can be gathered in pieces.

Usage: tests/fuzz/run.py [--programs DIR] [--found DIR] [--seconds N] [--until N] [--jobs N] [TARGET ..]

  --programs  folder with the programs fuzz_TARGET; default build/fuzz/tests/fuzz
  --found     what is kept from run to run; default build/fuzz/found
  --seconds   how long a target runs at a time; default 300
  --until     run until each target has so many seconds, those with the least first, and none that has them. To stop earlier, interrupt
              it: nothing is lost. Without it, each target runs once.
  --jobs      targets at a time; default 1. Each may take 2 GiB.

FOUND/TARGET has what reaches new code (corpus), what makes the target fail (crashes), and the log of the last run. FOUND/hours.tsv adds
up seconds, executions and edges for each target and program: the same program is the same code, and a changed one begins at 0.
Fails if there are crashes, or a target could not run.
"""

import argparse
import dataclasses
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = "target\tprogram\tseconds\texecutions\tedges\n"
PATIENCE_S = 120  # a program that has not ended so long after its time is killed


@dataclasses.dataclass
class Hours:
    seconds: int = 0
    executions: int = 0
    edges: int = 0


class Table:
    """What each program of each target did so far. Written after every run, so that a kill loses no more than what runs."""

    def __init__(self, path):
        self.path = path
        self.rows = {}
        lines = path.read_text().splitlines()[1:] if path.exists() else []
        for line in lines:
            target, program, *numbers = line.split("\t")
            self.rows[target, program] = Hours(*map(int, numbers))

    def of(self, target, program):
        return self.rows.get((target, program), Hours())

    def add(self, target, program, run):
        row = self.rows.setdefault((target, program), Hours())
        row.seconds += run.seconds
        row.executions += run.executions
        row.edges = max(row.edges, run.edges)
        text = HEADER + "".join(f"{t}\t{p}\t{h.seconds}\t{h.executions}\t{h.edges}\n"
                                for (t, p), h in sorted(self.rows.items()))
        new = self.path.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self.path)


class Target:
    def __init__(self, name, options):
        self.name = name
        self.program = options.programs / f"fuzz_{name}"
        self.digest = hashlib.sha256(self.program.read_bytes()).hexdigest()[:12]
        self.folder = options.found / name
        self.process = None
        self.failed = False
        for part in ("corpus", "crashes"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)

    def crashes(self):
        return sum(1 for _ in (self.folder / "crashes").iterdir())

    def start(self, seconds):
        # The first folder takes what reaches new code. One input may take 10 s and 2 GiB.
        folders = [self.folder / "corpus", ROOT / "tests/fuzz/corpus" / self.name]
        if self.name.startswith("onnx_"):
            folders.append(ROOT / "build/fuzz/models")
        words = ROOT / "tests/fuzz/words" / self.name
        command = [self.program, f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-use_value_profile=1",
                   "-print_final_stats=1", f"-artifact_prefix={self.folder}/crashes/"]
        command += [f"-dict={words}"] if words.exists() else []
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(command + [f for f in folders if f.exists()], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, start_new_session=True)
        self.began = time.monotonic()
        self.kill_at = self.began + seconds + PATIENCE_S

    def running(self):
        if time.monotonic() > self.kill_at and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        return self.process.poll() is None

    def interrupt(self):
        """Lets the program end by itself, so that it tells what it did."""
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def end(self, interrupted=False):
        """What the run did; a failed one counts as long as it lasted."""
        seconds = int(time.monotonic() - self.began)
        log = (self.folder / "log").read_text(errors="replace")
        self.failed = self.failed or (self.process.returncode != 0 and not interrupted) or self.crashes() > 0
        self.process = None

        def numbers(pattern):
            return [int(n) for n in re.findall(pattern, log, re.MULTILINE)]

        # A program that failed tells no total, but as far as it came now and then.
        executions = numbers(r"^stat::number_of_executed_units: *(\d+)") or numbers(r"^#(\d+)")
        return Hours(seconds, max(executions, default=0), max(numbers(r"\bcov: (\d+)"), default=0))


def run_all(targets, table, options):
    """Runs targets until none is left that lacks time. After a failure, a target has had its turn."""
    running, once = [], set()

    def lacks(target):
        if target.failed or target in running:
            return 0
        if options.until is None:
            return 0 if target in once else options.seconds
        return min(options.seconds, options.until - table.of(target.name, target.digest).seconds)

    def finish(target, interrupted=False):
        running.remove(target)
        table.add(target.name, target.digest, target.end(interrupted))
        if target.failed:
            print(f"{target.name} FAILED: {target.folder}/log", flush=True)

    try:
        while True:
            waiting = sorted((t for t in targets if lacks(t) > 0), key=lambda t: table.of(t.name, t.digest).seconds)
            for target in waiting[: options.jobs - len(running)]:
                target.start(lacks(target))
                running.append(target)
                once.add(target)
            if not running:
                return
            time.sleep(0.2)
            for target in [t for t in running if not t.running()]:
                finish(target)
    finally:
        for target in list(running):
            target.interrupt()
            finish(target, interrupted=True)


def print_table(targets, table):
    print(f"\n{'target':18} {'executions':>12} {'edges':>8} {'seconds':>8} {'crashes':>8}")
    for target in targets:
        row = table.of(target.name, target.digest)
        print(f"{target.name:18} {row.executions:12} {row.edges:8} {row.seconds:8} {target.crashes():8}")


def parse(arguments):
    def count(text):
        if int(text) < 1:
            raise argparse.ArgumentTypeError("must be at least 1")
        return int(text)

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/fuzz/tests/fuzz")
    parser.add_argument("--found", type=pathlib.Path, default=ROOT / "build/fuzz/found")
    parser.add_argument("--seconds", type=count, default=300)
    parser.add_argument("--until", type=count)
    parser.add_argument("--jobs", type=count, default=1)
    parser.add_argument("targets", nargs="*")
    options = parser.parse_args(arguments)
    there = sorted(p.name.removeprefix("fuzz_") for p in options.programs.glob("fuzz_*") if p.is_file() and os.access(p, os.X_OK))
    options.targets = options.targets or there
    unknown = sorted(set(options.targets) - set(there))
    if unknown or not options.targets:
        parser.error(f"{options.programs} has no fuzz target {' '.join(unknown)}; it has: {' '.join(there)}")
    return options


def main():
    options = parse(sys.argv[1:])

    def stop(number, frame):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    options.found.mkdir(parents=True, exist_ok=True)
    table = Table(options.found / "hours.tsv")
    targets = [Target(name, options) for name in options.targets]
    status = 0
    try:
        run_all(targets, table, options)
    except KeyboardInterrupt:
        status = 130
    print_table(targets, table)
    return 1 if any(t.failed or t.crashes() for t in targets) else status


if __name__ == "__main__":
    sys.exit(main())
