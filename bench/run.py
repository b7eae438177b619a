"""Benchmarks against what users would pick instead; bench/run.sh installs and builds what this needs, and calls it."""

import importlib
import os
import subprocess
import sys

import arguments
import report
import turns

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def commit():
    described = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return described.stdout.strip() or "unknown commit"


def main():
    args = arguments.parse()
    args.root = ROOT
    args.commit = commit()
    turns.most_repeated = args.patience
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
