"""Benchmarks against what users would pick instead; bench/run.sh installs and builds what this needs, and calls it."""

import argparse
import importlib
import os
import subprocess
import sys

import report

BENCHMARKS = ("operators", "models")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def threads_list(text):
    threads = [int(part) for part in text.split(",")]
    if not all(1 <= t <= 256 for t in threads):
        raise argparse.ArgumentTypeError("threads are from 1 to 256")
    return threads


def bounded(low, high):
    def parse(text):
        if not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"not from {low} to {high}")
        return int(text)

    return parse


def parse_args():
    parser = argparse.ArgumentParser(prog="bench/run.sh", description=__doc__.partition(";")[0] + ".")
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--only", metavar="ROW,..", type=lambda text: text.split(","), help="these rows alone")
    parser.add_argument("--threads", type=threads_list, default=[1, 2], metavar="1,2")
    parser.add_argument("--trials", type=bounded(0, 100000), help="tune afresh with so many trials; 0: default schedules; else the records")
    parser.add_argument("--records", metavar="FILE", help="read and kept up to date; else bench/records/<cpu>.jsonl")
    parser.add_argument("--seed", type=bounded(0, 2**31), default=0, help="of the search")
    parser.add_argument("--rounds", type=bounded(5, 1000), default=11, help="how often each side has its turn")
    parser.add_argument("--programs", metavar="DIR", default=os.path.join(ROOT, "build", "release", "bin"), help="where the binaries are")
    args = parser.parse_args()
    if args.json:
        try:
            open(args.json, "a").close()
        except OSError as error:
            parser.error(f"cannot write {args.json}: {error.strerror}")
    return args


def commit():
    described = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return described.stdout.strip() or "unknown commit"


def main():
    args = parse_args()
    args.root = ROOT
    args.commit = commit()
    result = report.Report(args.benchmark, args.json)
    try:
        importlib.import_module(args.benchmark).run(args, result)  # each alone needs what it imports
    except KeyboardInterrupt:
        return 130
    for failure in result.failures:
        print(f"not measured: {failure}", file=sys.stderr)
    return 1 if result.failures or not result.rows else 0


if __name__ == "__main__":
    sys.exit(main())
