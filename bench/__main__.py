"""Runs one benchmark. bench/run.sh installs and builds what it needs, then calls this."""

import importlib
import os
import subprocess
import sys

from bench.common import arguments, report, turns


def commit():
    described = subprocess.run(["git", "-C", arguments.ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return described.stdout.strip() or "unknown commit"


def main():
    args = arguments.parse()
    args.root = arguments.ROOT
    args.commit = commit()
    turns.most_repeated = args.patience
    result = report.Report(args.benchmark, args.json)
    try:
        # Imported only now: each benchmark has its own packages.
        importlib.import_module(f"bench.{args.benchmark}.benchmark").run(args, result)
    except KeyboardInterrupt:
        return 130
    for failure in result.failures:
        print(f"not measured: {failure}", file=sys.stderr)
    return 1 if result.failures or not result.rows else 0


if __name__ == "__main__":
    sys.exit(main())
