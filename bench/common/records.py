"""The best schedules found so far, kept in files. A line is a record in the format of `heddle records export`, one for each
workload, target and device key. Lines are sorted so that diffs stay small. `heddle tune --records` and `heddle records import`
read the same files."""

import json
import os
import statistics
import sys
import time

SCHEMA_VERSION = 1
# Operators are timed on warm caches, the service times on cold ones. The two kinds of times must never share a device key.
WARM = "-warm"


def device_key(target, warm=False):
    """The service's key of this machine, the name of its CPU. With `warm`, the key of measurements on warm caches."""
    cpu = next((word[6:] for word in target.split() if word.startswith("-mcpu=")), "unknown")
    return cpu + WARM * warm


def default_path(device, root):
    """The repository's file for a device key."""
    return os.path.join(root, "bench", "records", f"{device}.jsonl")


def make(about, target, device, trace, samples_ns, command):
    """A record of one of our measurements. `about` has the key, label and flops of the workload."""
    return {
        "workload_key": about["key"],
        "label": about["label"],
        "flops": about["flops"],
        "target": target,
        "device_key": device,
        "trace": trace,
        "measurement": {"outcome": "ok", "samples_ns": samples_ns, "evidence": {"command": command}},
        "median_ns": statistics.median(samples_ns),
        "created_unix_ns": time.time_ns(),
    }


def _key(record):
    return record["workload_key"], record["target"], record["device_key"]


class Records:
    """A file of records. Lines of another schema are kept unchanged and never used."""

    def __init__(self, path):
        self.path = path
        self._records = {}
        self._other_schema = []
        if not os.path.exists(path):
            return
        with open(path) as file:
            for number, text in enumerate(file, 1):
                try:
                    record = json.loads(text)
                    if record["schema_version"] != SCHEMA_VERSION:
                        self._other_schema.append(text.rstrip("\n") + "\n")
                        continue
                    record["trace"], record["median_ns"]
                    self._records[_key(record)] = record
                except (ValueError, KeyError, TypeError):
                    raise SystemExit(f"{path}:{number}: not a record; remove the line or give another --records") from None
        if self._other_schema:
            others = len(self._other_schema)
            print(f"{path}: {others} records have another schema than {SCHEMA_VERSION} and are not used", file=sys.stderr)

    def find(self, workload_key, target, device):
        """The record of exactly this workload, target and device key, or None."""
        return self._records.get((workload_key, target, device))

    def put(self, *records):
        """Replaces the records of the same workloads, targets and device keys, and writes the file."""
        for record in records:
            self._records[_key(record)] = {"schema_version": SCHEMA_VERSION, **record}
        os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        unfinished = self.path + ".new"
        with open(unfinished, "w") as file:
            file.writelines(self._other_schema)
            for record in sorted(self._records.values(), key=lambda r: (r["target"], r["device_key"], r["label"], r["workload_key"])):
                file.write(json.dumps(record, sort_keys=True, separators=(",", ":")) + "\n")
        os.replace(unfinished, self.path)
