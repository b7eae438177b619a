"""Models of the zoo against ONNX Runtime, OpenVINO and Apache TVM, and the gain from tuning, fusion and the memory plan."""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

from bench.common import crown, records, report, service, turns
from bench.common.side import Side, SideError

PEERS = {"ONNX Runtime": "onnxruntime", "OpenVINO": "openvino"}
# Measured where its wheel installs, and not counted as a peer: untuned or barely tuned it is no fair comparison. With --trials
# it gets as many trials a task as we do, and no more time.
TVM = "Apache TVM"
TVM_COMPILE_LIMIT_S = 600
TVM_TUNE_LIMIT_S = 24 * 3600
# Largest allowed error of an output against ONNX Runtime's, relative to its largest value. Sums in single precision depend on
# their order, and Winograd's transforms add terms.
TOLERANCE = 1e-4
WINOGRAD_TOLERANCE = 1e-3  # also for OpenVINO, which may choose Winograd by itself
COMPILE_LIMIT_S = 1200
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


def run_tool(argv):
    """The standard output of a tool. SideError with its last message if it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=COMPILE_LIMIT_S)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise SideError(words[-1][:400])
    return done.stdout


def largest_error(found, expected):
    """The largest error over all outputs, which both runtimes must name alike."""
    if set(found) != set(expected):
        raise SideError(f"outputs are {sorted(found)}, not {sorted(expected)}")
    worst = 0.0
    for name, right in expected.items():
        if found[name].shape != right.shape:
            raise SideError(f"output '{name}' has shape {found[name].shape}, not {right.shape}")
        scale = max(float(np.max(np.abs(right))), 1e-30)
        error = float(np.max(np.abs(found[name].astype(np.float64) - right))) / scale
        worst = max(worst, error) if error == error else float("inf")
    return worst


class Models:
    """One run with `threads` threads."""

    def __init__(self, args, threads, result):
        self.args = args
        self.result = result
        self.threads = threads
        self.cpus = report.cores_for(threads)
        self.work = os.path.join(args.root, "build", "bench")
        self.with_tvm = importlib.util.find_spec("tvm") is not None
        if not self.with_tvm:
            result.add_note(f"{TVM} is not installed, and not measured")
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
        tvm_tune_s = self.tune_tvm(name, onnx, tune_s) if self.args.trials and self.with_tvm else None
        made = {variant: self.make_module(name, onnx, variant) for variant in VARIANTS}
        sides = self.start_sides()
        try:
            contenders = self.open_all(name, onnx, made, sides)
            self.result.add_peak(1, self.gauge.ask("peak", cores=1)["gflops"])
            peak = self.gauge.ask("peak")["gflops"]
            measured = turns.measure(contenders, self.args.rounds, self.cpus, settle=True)
            peak = max(peak, self.gauge.ask("peak")["gflops"])
        finally:
            for side in sides.values():
                side.close()
        self.result.add_peak(self.threads, peak)
        return self.rows(name, made, measured, peak, {"tune_s": tune_s, "tvm_tune_s": tvm_tune_s})

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
        tuner = self.start_side(TVM, "tvm", None)
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

    def start_side(self, label, runtime, cpus):
        library = os.path.join(os.path.dirname(self.args.programs), "lib", "libheddle.so")
        script = os.path.join(self.args.root, "bench", "models", "model_side.py")
        return Side(label, [sys.executable, script, runtime, str(self.threads)], cpus, {"HEDDLE_LIBRARY": library})

    def start_sides(self):
        names = {"Heddle": "heddle", **PEERS, **({TVM: "tvm"} if self.with_tvm else {})}
        return {label: self.start_side(label, runtime, self.cpus) for label, runtime in names.items()}

    def open_all(self, name, onnx, made, sides):
        """Loads everything, compares all outputs with ONNX Runtime's, and returns the contenders for turns.measure."""
        files = {"inputs": self.path(name, "-inputs.npz")}
        sides["ONNX Runtime"].ask("inputs", model=onnx, seed=0, **files)
        contenders, outputs = {}, {}
        loads = [(peer, peer, onnx) for peer in PEERS] + [(v, "Heddle", made[v]["path"]) for v in made]
        for label, side, model in loads:
            file = self.path(name, f"-{label.replace(' ', '-')}-outputs.npz")
            contenders[label] = (sides[side], {"id": sides[side].ask("open", model=model, outputs=file, **files)["id"]})
            outputs[label] = dict(np.load(file))
        for peer in PEERS:
            self.result.versions[peer] = sides[peer].ask("version")["version"]
        for label in contenders:
            error = largest_error(outputs[label], outputs["ONNX Runtime"])
            allowed = WINOGRAD_TOLERANCE if label == "OpenVINO" or made.get(label, {}).get("winograd") else TOLERANCE
            if label in made:
                made[label]["error"] = error
            if error > allowed:
                raise SideError(f"{label}: outputs differ from ONNX Runtime's by {error:.1e} of the largest; {allowed:.0e} is allowed")
        if self.with_tvm:
            try:
                contenders[TVM] = self.open_tvm(name, onnx, sides[TVM], files["inputs"], outputs["ONNX Runtime"])
            except SideError as error:
                self.result.add_note(f"{name}, {self.threads} threads: no figure of {TVM}: {error}")
        return contenders

    def open_tvm(self, name, onnx, side, inputs, expected):
        file = self.path(name, "-tvm-outputs.npz")
        opened = side.ask("open", TVM_COMPILE_LIMIT_S, model=onnx, inputs=inputs, outputs=file)
        self.result.versions[TVM] = side.ask("version")["version"]
        error = largest_error(dict(np.load(file)), expected)
        if error > WINOGRAD_TOLERANCE:
            raise SideError(f"outputs differ from ONNX Runtime's by {error:.1e} of the largest; {WINOGRAD_TOLERANCE:.0e} is allowed")
        return side, {"id": opened["id"]}

    def rows(self, name, made, measured, peak, tuning):
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
            "max_error": best["error"],
            "flops": best["flops"],
            "ours_gflops": best["flops"] / ours_ns,
            "ours_percent_of_peak": 100 * best["flops"] / ours_ns / peak if peak else None,
            "peak_gflops": peak,
        }

        def row(peer, ours, theirs):
            return {
                **common,
                "ours_ms": statistics.median(times[ours]) * 1e-6,
                "peer": peer,
                "peer_ms": statistics.median(times[theirs]) * 1e-6,
                **turns.compare(times[ours], times[theirs]),
                "ours_rounds_ms": [ns * 1e-6 for ns in times[ours]],
                "peer_rounds_ms": [ns * 1e-6 for ns in times[theirs]],
                "best_peer": False,
            }

        rows = sorted((row(peer, "best", peer) for peer in PEERS), key=lambda r: r["peer_ms"])
        rows[0]["best_peer"] = True
        rows += [row(peer, ours, theirs) for peer, theirs, ours in ABLATIONS]
        return rows + ([row(TVM, "best", TVM)] if TVM in times else [])


def print_row(rows):
    best, other, default, unfused, unplanned, *tvm = rows
    share = "" if best["ours_percent_of_peak"] is None else f"{best['ours_percent_of_peak']:.1f}"
    line = f"{best['name']:<13}{best['threads']:>3}{best['ours_ms']:>9.3f}{share:>7}  {best['peer']:<13}{best['peer_ms']:>9.3f}"
    line += f"{best['ratio']:>6.2f}  {best['ratio_low']:.2f}-{best['ratio_high']:.2f} {other['peer_ms']:>9.3f}"
    line += f"{default['ratio']:>9.2f}{unfused['ratio']:>8.2f}{unplanned['ratio']:>6.2f}"
    line += f"{tvm[0]['ratio']:>7.1f}" if tvm else f"{'-':>7}"
    memory = f"{best['arena_bytes'] / 2**20:.1f}/{best['unshared_bytes'] / 2**20:.1f}"
    tuned = "" if best["tune_s"] is None else f", {best['tune_s']:.0f} s of tuning"
    if best["tvm_tune_s"] is not None:
        tuned += f" ({TVM}: {best['tvm_tune_s']:.0f} s)"
    print(f"{line}{memory:>12}  {best['schedule']}{tuned}", flush=True)


HEAD = (
    f"{'model':<13}{'thr':>3}{'ours ms':>9}{'% peak':>7}  {'best peer':<13}{'ms':>9}{'ratio':>6}  {'quartiles'} {'other ms':>9}"
    f"{'untuned':>9}{'unfused':>8}{'unpl.':>6}{'TVM':>7}{'MiB':>12}  schedule"
)
LEGEND = (
    "untuned: default schedules / ours; unfused: without fusion / with, default schedules; unpl.: without memory plan /"
    " with; TVM: Apache TVM, tuned if --trials says so / ours; MiB: activations with / without sharing"
)


def run(args, result):
    names = args.only or zoo(args.programs)
    for threads in args.threads:
        if report.cores_for(threads) is None:
            result.add_failure(f"{threads} threads", f"only {len(os.sched_getaffinity(0))} cores are allowed")
            continue
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
