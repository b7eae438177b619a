"""What every benchmark prints and writes: the machine, a table, geometric means, JSON."""

import json
import math
import os
import platform
import statistics
import time


# Two physical cores do twice the arithmetic of one. Two threads of one core do hardly more than one thread.
ONE_CORE = 1.5


def cpu_model():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def cpu_flags():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
    return set()


def cores_for(threads):
    """The last cores that this process may use, since the first ones serve interrupts. None if there are too few."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[-threads:] if threads <= len(allowed) else None


def possible_threads(counts, result):
    """The numbers of threads for which there are cores, one by one; the others become failures of the report."""
    for threads in counts:
        if cores_for(threads) is None:
            result.add_failure(f"{threads} threads", f"only {len(os.sched_getaffinity(0))} cores are allowed")
        else:
            yield threads


class Report:
    """The rows of a run. `json_path`, if given, is rewritten after each row, so that an interrupted run keeps its rows."""

    def __init__(self, name, json_path=None):
        self.name = name
        self.json_path = json_path
        self.versions = {}
        self.rows = []
        self.failures = []
        self.notes = []  # what was skipped on purpose
        self.peaks = {}  # number of cores -> the highest GFLOP/s seen of an FMA loop on all of them at once
        self.summary = None  # what all rows together say, where a benchmark tells that as values
        self.save()

    def add_rows(self, rows):
        """Adds the rows of one operator or model. Disturbed rows are kept, but count as not measured."""
        self.rows += rows
        if rows[0]["disturbed"]:
            self.add_failure(f"{rows[0]['name']}, {rows[0]['threads']} threads", "other processes kept using its cores")
        self.save()

    def add_failure(self, row, why):
        self.failures.append(f"{row}: {why}")
        self.save()
        print(f"{row}: not measured: {why}", flush=True)

    def add_note(self, note):
        self.notes.append(str(note))
        self.save()
        print(f"note: {note}", flush=True)

    def add_peak(self, threads, gflops):
        self.peaks[threads] = max(gflops, self.peaks.get(threads, 0))

    def print_versions(self):
        peaks = ", ".join(f"{peak:.0f} GFLOP/s on {threads}" for threads, peak in sorted(self.peaks.items()))
        print(f"{cpu_model()}, {os.cpu_count()} cores" + (f"; FMA peak {peaks}" if peaks else ""))
        if self.peaks.get(1) and self.peaks.get(2, math.inf) < ONE_CORE * self.peaks[1]:
            gain = self.peaks[2] / self.peaks[1]
            print(f"  two cores at once do only {gain:.2f} times the arithmetic of one: they look like one physical core")
        for version in self.versions.values():
            print(f"  {version}")
        print(flush=True)

    def print_mean(self, title, threads, names=None):
        """Prints the geometric mean of the ratios to the best peers, and the lowest ratio."""
        rows = [row for row in self.rows if row["threads"] == threads and row["best_peer"] and not row["disturbed"]]
        rows = [row for row in rows if names is None or row["name"] in names]
        if not rows:
            return
        mean = statistics.geometric_mean(row["ratio"] for row in rows)
        worst = min(rows, key=lambda row: row["ratio"])
        line = f"{title}, {threads} thread{'s' if threads > 1 else ''}: geometric mean {mean:.3f} of {len(rows)}"
        line += f"; lowest {worst['name']} {worst['ratio']:.2f}"
        # The Winograd form executes fewer operations than are counted, so its share of the peak means nothing.
        shares = [
            (row["ours_percent_of_peak"], row["name"]) for row in rows if row["ours_percent_of_peak"] and not row.get("winograd")
        ]
        if shares:
            line += "; lowest share of peak without Winograd {1} {0:.0f} %".format(*min(shares))
        untuned = [(row["default_ratio"], row["name"]) for row in rows if row.get("default_ratio")]
        if untuned:
            line += "; untuned at most {0:.2f} times slower ({1})".format(*max(untuned))
        print(line)

    def save(self):
        if self.json_path is None:
            return
        meta = {
            "benchmark": self.name,
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "versions": self.versions,
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "peak_gflops": self.peaks,
            "failures": self.failures,
            "notes": self.notes,
        }
        summary = {} if self.summary is None else {"summary": self.summary}
        with open(self.json_path, "w") as file:
            json.dump({"meta": meta, **summary, "rows": self.rows}, file, indent=1)
            file.write("\n")
