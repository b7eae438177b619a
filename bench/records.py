"""The best schedules found, kept as data: JSON lines, one a workload and target, sorted so that diffs stay small."""

import json
import os

SCHEMA_VERSION = 1


def default_path(target, root):
    """The repository's file for a CPU: records are comparable within one, and every line names its whole target."""
    cpu = next((word[6:] for word in target.split() if word.startswith("-mcpu=")), "unknown")
    return os.path.join(root, "bench", "records", f"{cpu}.jsonl")


def from_export(record, command):
    """A line of ours from one of `heddle records export`."""
    fields = {field: record[field] for field in ("workload_key", "label", "target", "trace", "median_ns")}
    return {"name": record["label"], **fields, "command": command}


class Records:
    """Lines whose schema is not ours are kept as they are and never applied."""

    def __init__(self, path):
        self.path = path
        self._lines = {}
        if not os.path.exists(path):
            return
        with open(path) as file:
            for number, text in enumerate(file, 1):
                try:
                    line = json.loads(text)
                    self._lines[(line["workload_key"], line["target"])] = line
                except (ValueError, KeyError, TypeError):
                    raise SystemExit(f"{path}:{number}: no record; remove the line or give another --records") from None

    def find(self, workload_key, target):
        """The record of exactly this workload and target, or None."""
        line = self._lines.get((workload_key, target))
        return line if line and line.get("schema_version") == SCHEMA_VERSION else None

    def put(self, *lines):
        """Replaces the records of the same workloads and targets, and writes the file."""
        for line in lines:
            self._lines[(line["workload_key"], line["target"])] = {"schema_version": SCHEMA_VERSION, **line}
        os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        unfinished = self.path + ".new"
        with open(unfinished, "w") as file:
            for line in sorted(self._lines.values(), key=lambda l: (l["target"], l["name"], l["workload_key"])):
                file.write(json.dumps(line) + "\n")
        os.replace(unfinished, self.path)

    def put_faster(self, lines):
        """As put(), for those that beat what is kept."""
        kept = [self.find(line["workload_key"], line["target"]) for line in lines]
        self.put(*(line for line, old in zip(lines, kept) if not old or line["median_ns"] < old["median_ns"]))
