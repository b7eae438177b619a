"""Rows that `bench/run.sh classical` has measured, one file each, so that a later run goes on where one stopped.

A row counts as long as everything that decides its figures is the same: the programs that were measured, the versions of the peers, the
models, the machine, and the options. Otherwise it is measured again.
"""

import hashlib
import importlib.metadata
import json
import os
import time

from bench.common import report

PROGRAMS = ("bin/heddle-bench-module", "bin/heddle-plan-bench", "lib/libheddle.so")  # beside each other


def digest_of(paths):
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def versions_of(packages):
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def circumstances(args, packages):
    """What decides the figures of all rows, as values of JSON. `packages`: of the peers."""
    build = os.path.dirname(args.programs)
    programs = [path for path in (os.path.join(build, program) for program in PROGRAMS) if os.path.exists(path)]
    return {
        "programs": digest_of(programs),
        "records": digest_of([args.records]) if args.records else None,
        "peers": versions_of(packages),
        "cpu": report.cpu_model(),
        "isa": args.isa,
        "blocks": args.blocks,
        "rounds": args.rounds,
    }


class KeptRows:
    """Rows in `folder`, which is made by the first one that is put there."""

    def __init__(self, folder, of):
        """`of`: circumstances()."""
        self.folder, self.of = folder, of

    def path(self, model, rows, threads):
        return os.path.join(self.folder, f"{model}@{rows}-{threads}-{self.of['isa']}.json")

    def put(self, row, made_by):
        """`made_by`: what the model depends on. Replaces an older row at once, so that a run that is stopped leaves none half written."""
        os.makedirs(self.folder, exist_ok=True)
        path = self.path(row["model"], row["rows"], row["threads"])
        row = {**row, "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        with open(path + ".new", "w") as file:
            json.dump({"of": self.of, "made_by": made_by, "row": row}, file, indent=1)
        os.replace(path + ".new", path)

    def take(self, model, rows, threads, made_by):
        """The row, or None: it was not measured, or under other circumstances."""
        try:
            with open(self.path(model, rows, threads)) as file:
                kept = json.load(file)
        except (OSError, ValueError):
            return None
        # As JSON has it: tuples are lists there.
        now = json.loads(json.dumps({"of": self.of, "made_by": made_by}))
        return kept["row"] if {key: kept.get(key) for key in now} == now else None
