"""What every benchmark prints and writes: the machine, a table, geometric means, JSON."""

import json
import os
import platform
import statistics
import time


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
    """The last cores this process may use: the first ones get the system's interrupts. None if there are too few."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[-threads:] if threads <= len(allowed) else None


class Report:
    def __init__(self, name):
        self.name = name
        self.versions = {}
        self.rows = []
        self.failures = []
        self.peaks = []

    def add_failure(self, row, why):
        self.failures.append(f"{row}: {why}")
        print(f"{row}: not measured: {why}", flush=True)

    def print_head(self):
        print(f"{cpu_model()}, {os.cpu_count()} cores")
        for side, version in self.versions.items():
            print(f"  {side}: {version}")

    def geomean(self, rows):
        return statistics.geometric_mean(row["ratio"] for row in rows)

    def write_json(self, path):
        meta = {
            "benchmark": self.name,
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "versions": self.versions,
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "peak_gflops": max(self.peaks, default=0),
            "failures": self.failures,
        }
        with open(path, "w") as file:
            json.dump({"meta": meta, "rows": self.rows}, file, indent=1)
            file.write("\n")
