"""Models of the zoo against ONNX Runtime, OpenVINO, MNN and Apache TVM, and the gain from tuning, fusion and the memory plan."""

import json
import os
import statistics
import subprocess
import sys
import time

from bench.common import crown, records, report, service, turns
from bench.common.side import Side, SideError
from bench.common.tool import run_tool
from bench.models import peers

# With --trials, Apache TVM gets as many trials a task as we do, and no more time.
TVM_TUNE_LIMIT_S = 24 * 3600
# This many of the fastest trials of a task are measured in turns with the kept record.
FINALISTS = 3
# Our own variants that are compared: the name in the row, the variant, and the variant it is compared to. Without fusion both
# sides use default schedules, since unfused operators have no records.
ABLATIONS = [
    ("default schedules", "default", "best"),
    ("no fusion, default schedules", "unfused", "default"),
    ("no memory plan", "unplanned", "best"),
]
VARIANTS = {"best": [], "default": [], "unfused": ["--no-fusion"], "unplanned": ["--no-memory-plan"]}
WITH_RECORDS = ("best", "unplanned")


def zoo(programs):
    listed = subprocess.run([os.path.join(programs, "heddle"), "zoo", "--plain"], capture_output=True, text=True, check=True)
    return listed.stdout.split()


class Models:
    """One run with `threads` threads."""

    def __init__(self, args, threads, result):
        self.args = args
        self.result = result
        self.threads = threads
        self.cpus = report.cores_for(threads)
        self.work = os.path.join(args.root, "build", "bench")
        self.peers = peers.installed(result)
        os.makedirs(os.path.join(self.work, "models"), exist_ok=True)
        self.start_gauge()
        self.target = self.gauge.ask("version")["target"]
        self.device = records.device_key(self.target)
        self.records = records.Records(args.records or records.default_path(self.device, args.root))
        result.versions["Heddle"] = f"{args.commit}, {self.target}"

    def start_gauge(self):
        """Starts the program that times single kernels and the machine's peak."""
        program = os.path.join(self.args.programs, "heddle-operator-bench")
        self.gauge = Side("Heddle", [program, "--cpus", ",".join(map(str, self.cpus))])

    def close(self):
        self.gauge.close()

    def path(self, name, suffix):
        return os.path.join(self.work, "models", f"{name}{suffix}")

    def measure(self, name):
        """The rows of a model: one for each peer, fastest first, then the ablations."""
        onnx = self.path(name, ".onnx")
        run_tool([os.path.join(self.args.programs, "heddle"), "zoo", name, "-o", onnx, "--seed", "1"])
        tune_s = self.tune(name, onnx) if self.args.trials else None
        tvm_tune_s = self.tune_tvm(name, onnx, tune_s) if self.args.trials and peers.TVM in self.peers else None
        made = {variant: self.make_module(name, onnx, variant) for variant in VARIANTS}
        opened = peers.Opened(self.args, self.threads, self.cpus, self.result, self.peers)
        try:
            opened.open(name, onnx, made, self.path(name, f"-{self.threads}"))
            errors = opened.errors
            self.result.add_peak(1, self.gauge.ask("peak", cores=1)["gflops"])
            peak = self.gauge.ask("peak")["gflops"]
            measured = turns.measure(opened.contenders, self.args.rounds, self.cpus, settle=True)
            peak = max(peak, self.gauge.ask("peak")["gflops"])
        finally:
            opened.close()
        self.result.add_peak(self.threads, peak)
        return self.rows(name, made, errors, measured, peak, {"tune_s": tune_s, "tvm_tune_s": tvm_tune_s})

    def tune(self, name, onnx):
        """Tunes with the real service, starting from the kept records, and keeps the best. Returns the seconds it took."""
        started = time.monotonic()
        limit_s = self.args.minutes * 60 if self.args.minutes else None
        tuner = service.Service(self.args.programs, os.path.join(self.work, "service"))
        try:
            job = tuner.tune(onnx, self.target, self.args.trials, self.args.seed, limit_s, self.records.path)
            tasks = [task["info"] for task in job.get("tasks", [])]
            finalists = [tuner.fastest_records(task["key"], self.target, FINALISTS) for task in tasks]
        finally:
            tuner.close()
        for lines in finalists:
            if lines:
                self.keep_fastest(name, [json.loads(line) for line in lines])
        return time.monotonic() - started

    def tune_tvm(self, name, onnx, ours_s):
        """Tunes on all cores, as our service does. A time limit is extended to the time that ours took. Trials measured until
        then count. Returns the seconds it took."""
        started = time.monotonic()
        tuner = peers.start_side(self.args, peers.TVM, "tvm", self.threads, None)
        try:
            limit_s = max(self.args.minutes * 60, ours_s) if self.args.minutes else TVM_TUNE_LIMIT_S
            tuner.ask("tune", limit_s, model=onnx, trials=self.args.trials)
        except SideError as error:
            print(f"  {name}: tuning ended: {error}", file=sys.stderr, flush=True)
        finally:
            tuner.close()
        return time.monotonic() - started

    def keep_fastest(self, name, exported):
        """Measures the fastest records of a task, the kept record and the default schedule in turns, and keeps the winner."""
        command = f"bench/run.sh models --trials {self.args.trials} --seed {self.args.seed}"
        first = exported[0]
        about = {"key": first["workload_key"], "label": first["label"], "flops": first.get("flops", 0)}
        kept = self.records.find(about["key"], self.target, self.device)
        candidates = [("record", kept["trace"])] if kept else []
        candidates += [("trial", record["trace"]) for record in exported]
        try:
            self.gauge.ask("open", workload=first["workload"])
            measured = crown.crown(self.gauge, crown.load(self.gauge, f"{name}, {about['label']}", candidates), self.cpus)
        except SideError as error:
            print(f"  warning: {name}, {about['label']}: {error}", file=sys.stderr, flush=True)
            self.gauge.close()  # the candidate may have killed it
            self.start_gauge()
            return
        if measured and measured[0]["from"] != "record":
            winner = measured[0]
            self.records.put(records.make(about, self.target, self.device, winner["trace"], winner["samples_ns"], command))

    def make_module(self, name, onnx, variant):
        """The description that heddle-bench-module prints, and the path of the module."""
        module = self.path(name, f"-{self.threads}-{variant}.heddle")
        argv = [os.path.join(self.args.programs, "heddle-bench-module"), onnx, "-o", module, "--threads", str(self.threads)]
        argv += VARIANTS[variant]
        if variant in WITH_RECORDS and self.args.trials != 0 and os.path.exists(self.records.path):
            argv += ["--records", self.records.path]
        about = json.loads(run_tool(argv))
        for warning in about["warnings"]:
            print(f"  warning: {name}, {variant}: {warning}", file=sys.stderr, flush=True)
        return {**about, "path": module}

    def rows(self, name, made, errors, measured, peak, tuning):
        times = measured.times
        best = made["best"]
        ours_ns = statistics.median(times["best"])
        common = {
            "name": name,
            "threads": self.threads,
            **tuning,
            "turns_repeated": measured.repeated,
            "disturbed": measured.disturbed,
            "schedule": f"{best['tuned']} of {best['kernels']} tuned",
            "arena_bytes": best["arena_bytes"],
            "unshared_bytes": best["unshared_bytes"],
            "max_error": errors["best"],
            "flops": best["flops"],
            "ours_gflops": best["flops"] / ours_ns,
            "ours_percent_of_peak": 100 * best["flops"] / ours_ns / peak if peak else None,
            "peak_gflops": peak,
        }

        def row(kind, peer, ours, theirs):
            return {
                **common,
                "kind": kind,
                "ours_ms": statistics.median(times[ours]) * 1e-6,
                "peer": peer,
                "peer_ms": statistics.median(times[theirs]) * 1e-6,
                "peer_max_error": errors[theirs],
                **turns.compare(times[ours], times[theirs]),
                "ours_rounds_ms": [ns * 1e-6 for ns in times[ours]],
                "peer_rounds_ms": [ns * 1e-6 for ns in times[theirs]],
                "best_peer": False,
            }

        found = [peer for peer in self.peers if peer in times]
        rows = sorted((row("peer", peer, "best", peer) for peer in found if peer not in peers.NOT_COUNTED), key=lambda r: r["peer_ms"])
        rows[0]["best_peer"] = True
        rows += [row("ablation", peer, ours, theirs) for peer, theirs, ours in ABLATIONS]
        return rows + [row("not counted", peer, "best", peer) for peer in found if peer in peers.NOT_COUNTED]


def print_row(rows):
    best, *others = [row for row in rows if row["kind"] == "peer"]
    default, unfused, unplanned = [row for row in rows if row["kind"] == "ablation"]
    others += [row for row in rows if row["kind"] == "not counted"]
    share = "" if best["ours_percent_of_peak"] is None else f"{best['ours_percent_of_peak']:.1f}"
    line = f"{best['name']:<13}{best['threads']:>3}{best['ours_ms']:>9.3f}{share:>7}  {best['peer']:<13}{best['peer_ms']:>9.3f}"
    line += f"{best['ratio']:>6.2f}  {best['ratio_low']:.2f}-{best['ratio_high']:.2f}"
    line += f"{default['ratio']:>9.2f}{unfused['ratio']:>8.2f}{unplanned['ratio']:>6.2f}"
    memory = f"{best['arena_bytes'] / 2**20:.1f}/{best['unshared_bytes'] / 2**20:.1f}"
    also = ", ".join(f"{row['peer']} {row['peer_ms']:.3f} ({row['ratio']:.2f})" for row in others)
    tuned = "" if best["tune_s"] is None else f", {best['tune_s']:.0f} s of tuning"
    if best["tvm_tune_s"] is not None:
        tuned += f" ({peers.TVM}: {best['tvm_tune_s']:.0f} s)"
    print(f"{line}{memory:>12}  {also}; {best['schedule']}{tuned}", flush=True)


HEAD = (
    f"{'model':<13}{'thr':>3}{'ours ms':>9}{'% peak':>7}  {'best peer':<13}{'ms':>9}{'ratio':>6}  {'quartiles'}"
    f"{'untuned':>9}{'unfused':>8}{'unpl.':>6}{'MiB':>12}  others: ms (ratio); schedule"
)
LEGEND = (
    "untuned: default schedules / ours; unfused: without fusion / with, default schedules; unpl.: without memory plan /"
    " with; MiB: activations with / without sharing; Apache TVM is tuned if --trials says so, and no best peer"
)


def run(args, result):
    names = args.only or zoo(args.programs)
    for threads in report.possible_threads(args.threads, result):
        bench = Models(args, threads, result)
        print(HEAD, flush=True)
        try:
            for name in names:
                try:
                    rows = bench.measure(name)
                except (SideError, service.ServiceError, subprocess.TimeoutExpired) as error:
                    result.add_failure(f"{name}, {threads} threads", error)
                    continue
                result.add_rows(rows)
                print_row(rows)
        finally:
            bench.close()
        print(LEGEND)
        result.print_mean("models", threads)
        result.print_versions()
