"""Finds the replay tables of a device, and how many trials they allow."""

import glob
import gzip
import os

from bench.common.side import SideError
from bench.operators import benchmark as operators

PART_TRIALS = 200


def name_of(path):
    return os.path.basename(path)[: -len(".jsonl.gz")]


def tables_in(directory):
    return sorted(glob.glob(os.path.join(directory, "*.jsonl.gz")))


def find_tables(args, every=False):
    """The tables of a device, in the order of the operator table: those of --only, else those of C1 to C12, else all."""
    directories = [args.tables] if args.tables else sorted(glob.glob(os.path.join(args.root, "bench", "replay", "*")))
    if not directories:
        raise SideError("there are no replay tables: bench/run.sh search --collect makes them")
    found = {name_of(path): path for path in tables_in(directories[0])}
    order = [name for _, names in operators.CLASSES for name in names]
    usual = [name for name in operators.CLASSES[0][1] if name in found]
    ordered = sorted(found, key=lambda name: (order.index(name) if name in order else len(order), name))
    names = args.only or (ordered if every or not usual else usual)
    missing = [name for name in names if name not in found]
    if missing or not names:
        raise SideError(f"no table of {', '.join(missing) or 'any operator'} in {directories[0]}: bench/run.sh search --collect makes it")
    return [found[name] for name in names]


def trials_of(tables):
    """Trials of a short run: as many as the smallest table allows."""
    rows = []
    for path in tables:
        with gzip.open(path, "rt") as file:
            rows.append(sum(1 for _ in file) - 1)
    return min([PART_TRIALS] + [n // 2 for n in rows])
