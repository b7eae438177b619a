"""What the search for a plan (graph, layouts, fusion) is worth in equal device time, and against what users would pick instead.

Each model is tuned by three jobs of the real service, each from an empty database of its own and for the same time: with the plan
by estimates (off), with graph substitutions first and layouts after them (sequential), and with both together (joint). Then their
modules and the peers are timed in turns, as whole models. Jobs and modules stay in build/bench/graphs: --trials 0 measures the
modules again.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time

from bench.common import ranks, report, service, turns
from bench.common.side import Side, SideError
from bench.common.tool import run_tool
from bench.models import peers, variants

MODELS = ("nasnet_a", "resnext50", "inception_v3", "squeezenet", "bert_base", "nasrnn", "resnet18@96", "bert_base@32")
MODES = ("off", "sequential", "joint")
SEARCHES = MODES[1:]
DEFAULT_MINUTES = 10
# So many that time is what ends a job.
MANY_TRIALS = 2000
# What a job takes beyond its tuning: import, plan stages, compilation and comparison. Beyond that it is taken for stuck.
BEYOND_TUNING_S = 3600
WIN, LOSS = 1.1, 0.99


def stage_seconds(job):
    """How long stages held their slots, by kind. Those of "profile" and "compare" hold the device."""
    used = {}
    for span in job.get("timeline", []):
        if span.get("end_unix_ns"):
            used[span["kind"]] = used.get(span["kind"], 0.0) + (span["end_unix_ns"] - span["start_unix_ns"]) * 1e-9
    return used


def prediction(job):
    """The contender of the latest plan stage whose module the job ended with, or None: no plan stage, or default schedules."""
    contenders = (job.get("plan_report") or {}).get("contenders", [])
    comparison = job.get("comparison") or {}
    if not contenders or comparison.get("module_is_default"):
        return None
    if comparison.get("plan_taken_back"):
        return contenders[0]  # the estimated plan is always the first
    return next((one for one in contenders if one.get("chosen")), None)


class Graphs:
    """One run with `threads` threads."""

    def __init__(self, args, threads, result):
        self.args = args
        self.result = result
        self.threads = threads
        self.cpus = report.cores_for(threads)
        self.work = os.path.join(args.root, "build", "bench", "graphs")
        os.makedirs(self.work, exist_ok=True)
        program = os.path.join(args.programs, "heddle-operator-bench")
        self.gauge = Side("Heddle", [program, "--cpus", ",".join(map(str, self.cpus))])
        self.target = self.gauge.ask("version")["target"]
        self.peers = peers.installed(result)
        result.versions["Heddle"] = f"{args.commit}, {self.target}"

    def close(self):
        self.gauge.close()

    def measure(self, name):
        """The row of a model."""
        stem = os.path.join(self.work, f"{name}-{self.threads}")
        onnx = f"{stem}.onnx"
        variants.write(self.args.programs, name, onnx)
        made = {mode: self.make(name, onnx, mode, f"{stem}-{mode}") for mode in MODES}
        tvm_s = self.tune_tvm(name, onnx)
        opened = peers.Opened(self.args, self.threads, self.cpus, self.result, self.peers)
        try:
            # What is compared with all others comes first: the settling of turns goes by it.
            opened.open(name, onnx, {mode: made[mode] for mode in reversed(MODES)}, stem)
            self.result.add_peak(1, self.gauge.ask("peak", cores=1)["gflops"])
            self.result.add_peak(self.threads, self.gauge.ask("peak")["gflops"])
            measured = turns.measure(opened.contenders, self.args.rounds, self.cpus, settle=True)
        finally:
            opened.close()
        return self.row(name, made, opened.errors, measured, tvm_s)

    def make(self, name, onnx, mode, stem):
        """The job of this mode, and its module: {"job", "path", "winograd", ..}."""
        module, kept = f"{stem}.heddle", f"{stem}.json"
        if self.args.trials == 0:
            if not os.path.exists(module) or not os.path.exists(kept):
                raise SideError(f"{mode} has not been tuned yet; leave out --trials 0")
            with open(kept) as file:
                job = json.load(file)
        else:
            job = self.tune(name, onnx, mode, stem, module)
            with open(kept, "w") as file:
                json.dump(job, file)
        kernels = json.loads(run_tool([os.path.join(self.args.programs, "heddle"), "inspect", module, "--json"])).get("kernels", [])
        return {"job": job, "path": module, "winograd": any(kernel["winograd"] for kernel in kernels)}

    def tune(self, name, onnx, mode, stem, module):
        minutes = self.args.minutes or (None if self.args.trials else DEFAULT_MINUTES)
        flags = ["--plan", mode] + (["--time-limit", f"{minutes}m"] if minutes else [])
        limit_s = minutes * 60 + BEYOND_TUNING_S if minutes else None
        data = f"{stem}-data"
        shutil.rmtree(data, ignore_errors=True)  # what other jobs measured must not help
        print(f"  {name}, {mode}: " + (f"{minutes} min" if minutes else f"{self.args.trials} trials a task"), file=sys.stderr, flush=True)
        tuner = service.Service(self.args.programs, data)
        try:
            job = tuner.tune(onnx, self.target, self.args.trials or MANY_TRIALS, self.args.seed, limit_s, flags=flags)
            if job["state"] != "done":
                raise service.ServiceError(f"{mode}: the job is {job['state']}: {job.get('reason', '')}")
            tuner.fetch(job, module)
            return job
        finally:
            tuner.close()

    def tune_tvm(self, name, onnx):
        """Tunes Apache TVM for --tvm-minutes, on all cores as our service does. Returns the seconds it took; None: it is not tuned."""
        if not self.args.tvm_minutes or peers.TVM not in self.peers or self.args.trials == 0:
            return None
        shutil.rmtree(f"{onnx}.tvm-{self.threads}", ignore_errors=True)
        started = time.monotonic()
        tuner = peers.start_side(self.args, peers.TVM, "tvm", self.threads, None)
        try:
            tuner.ask("tune", self.args.tvm_minutes * 60, model=onnx, trials=MANY_TRIALS)
        except SideError as error:
            print(f"  {name}: {peers.TVM}: {error}", file=sys.stderr, flush=True)
        finally:
            tuner.close()
        return time.monotonic() - started

    def row(self, name, made, errors, measured, tvm_s):
        times = measured.times
        ms = {label: statistics.median(ns) * 1e-6 for label, ns in times.items()}
        counted = sorted((peer for peer in self.peers if peer in times and peer not in peers.NOT_COUNTED), key=ms.get)
        modes = {}
        for mode in MODES:
            job = made[mode]["job"]
            comparison = job.get("comparison") or {}
            predicted = prediction(job)
            used = stage_seconds(job)
            modes[mode] = {
                "ms": ms[mode],
                "rounds_ms": [ns * 1e-6 for ns in times[mode]],
                "max_error": errors[mode],
                "trials": job.get("trials", 0),
                "profile_s": used.get("profile", 0.0),
                "stages_s": used,
                "tuning_s": job.get("tuning_ns", 0) * 1e-9,
                "tasks": len(job.get("tasks", [])),
                "stop": job.get("stop", ""),
                "warnings": job.get("warnings", []),
                "substitutions": sum(line.startswith("substitute ") for line in job.get("plan", "").splitlines()),
                "plan": predicted["name"] if predicted else "estimated",
                "plan_taken_back": comparison.get("plan_taken_back", False),
                "module_is_default": comparison.get("module_is_default", False),
                "gain": (comparison.get("result") or {}).get("gain"),  # over the default schedules, as the job tells it
                "gain_over_estimated": (comparison.get("result") or {}).get("other_gain"),
                "surveys": job.get("surveys", 0),
                "calls": predicted.get("calls", 0) if predicted else None,
                "measured_calls": predicted.get("measured", 0) if predicted else None,  # the others' times are predicted themselves
                "predicted_ns": predicted["ns"] if predicted else None,
                "spread_ns": predicted.get("spread_ns", 0) if predicted else None,
                "predicted_over_measured": predicted["ns"] * 1e-6 / ms[mode] if predicted else None,
                "predicted_gain": job["plan_report"]["contenders"][0]["ns"] / predicted["ns"] if predicted else None,
            }
        return {
            "name": name,
            "threads": self.threads,
            "disturbed": measured.disturbed,
            "turns_repeated": measured.repeated,
            "minutes": self.args.minutes or (None if self.args.trials else DEFAULT_MINUTES),
            "tvm_tune_s": tvm_s,
            "ours_ms": ms["joint"],
            "modes": modes,
            "gains": {mode: turns.compare(times["joint"], times[mode]) for mode in MODES[:-1]},  # over 1: joint is faster
            "peers": {
                peer: {"ms": ms[peer], "counted": peer in counted, "max_error": errors[peer], "rounds_ms": [ns * 1e-6 for ns in times[peer]], **turns.compare(times["joint"], times[peer])}
                for peer in self.peers
                if peer in times
            },
            "peer": counted[0],
            "peer_ms": ms[counted[0]],
            **turns.compare(times["joint"], times[counted[0]]),
            "best_peer": True,
        }


HEAD = (
    f"{'model':<14}{'thr':>3}{'off ms':>9}{'seq. ms':>9}{'joint ms':>9}  {'off/joint':<17}  {'seq./joint':<17}  {'best peer':<13}{'/joint':>6}"
    f"{'subst.':>7}{'pred. ms':>9}{'p./m.':>6}  plan"
)


def ratio_text(found):
    return f"{found['ratio']:.3f} {found['ratio_low']:.3f}-{found['ratio_high']:.3f}"


def planning(mode):
    seconds = mode["stages_s"].get("plan")
    return f", {seconds:.0f} s of planning" if seconds else ""


def print_row(row):
    modes, joint = row["modes"], row["modes"]["joint"]
    line = f"{row['name']:<14}{row['threads']:>3}" + "".join(f"{modes[mode]['ms']:>9.3f}" for mode in MODES)
    line += "".join(f"  {ratio_text(row['gains'][mode]):<17}" for mode in MODES[:-1])
    line += f"  {row['peer']:<13}{row['ratio']:>6.2f}{joint['substitutions']:>7}"
    predicted = joint["predicted_ns"]
    line += f"{predicted * 1e-6:>9.3f}{joint['predicted_over_measured']:>6.2f}" if predicted else f"{'-':>9}{'-':>6}"
    taken_back = " (another plan was slower as a whole module)" if joint["plan_taken_back"] else ""
    taken_back += " (default schedules)" if joint["module_is_default"] else ""
    measured = f", {joint['measured_calls']} of {joint['calls']} calls measured" if predicted else ""
    print(f"{line}  {joint['plan']}{taken_back}{measured}", flush=True)
    used = "; ".join(f"{mode} {modes[mode]['trials']} trials, {modes[mode]['profile_s']:.0f} s on the device" + planning(modes[mode]) for mode in MODES)
    others = ", ".join(f"{peer} {found['ms']:.3f} ms ({found['ratio']:.2f})" for peer, found in row["peers"].items() if peer != row["peer"])
    print(f"{'':<17}{used}; {others}", flush=True)


def summary(rows):
    """What all rows together say, as lines."""
    lines = []
    for mode in MODES[:-1]:
        found = [(row["gains"][mode]["ratio"], row["name"]) for row in rows]
        least = min(found)
        wins = sum(ratio >= WIN for ratio, _ in found)
        losses = [name for ratio, name in found if ratio < LOSS]
        line = f"{mode} / joint: geometric mean {statistics.geometric_mean(ratio for ratio, _ in found):.3f} of {len(found)}; lowest {least[1]} {least[0]:.3f}"
        line += f"; {wins} of at least {WIN:.1f}; below {LOSS}: {', '.join(losses) or 'none'}"
        lines.append(line)
    for peer in sorted({peer for row in rows for peer in row["peers"]}):
        found = [(row["peers"][peer]["ratio"], row["name"]) for row in rows if peer in row["peers"]]
        lines.append(
            f"{peer} / joint: geometric mean {statistics.geometric_mean(ratio for ratio, _ in found):.3f} of {len(found)}; lowest {min(found)[1]} {min(found)[0]:.3f}"
        )
    told = [row["modes"][mode] for row in rows for mode in SEARCHES if row["modes"][mode]["predicted_ns"]]
    if told:
        errors = [abs(mode["predicted_over_measured"] - 1) for mode in told]
        line = f"predicted times of {len(told)} whole models: off by {100 * statistics.median(errors):.1f} % in the median, {100 * max(errors):.1f} % at most"
        rank = ranks.rank_correlation([mode["predicted_ns"] for mode in told], [mode["ms"] for mode in told])
        line += "" if rank is None else f"; rank correlation {rank:.2f}"
        pairs = [(row["modes"][m]["predicted_gain"], row["modes"]["off"]["ms"] / row["modes"][m]["ms"]) for row in rows for m in SEARCHES if row["modes"][m]["predicted_ns"]]
        rank = ranks.rank_correlation(*zip(*pairs))
        line += "" if rank is None else f"; of predicted gains with off / mode {rank:.2f}"
        lines.append(line)
    used = {mode: sum(row["modes"][mode]["profile_s"] for row in rows) for mode in MODES}
    lines.append("seconds on the device: " + ", ".join(f"{mode} {seconds:.0f}" for mode, seconds in used.items()))
    return lines


def run(args, result):
    names = args.only or MODELS
    for threads in report.possible_threads(args.threads, result):
        bench = Graphs(args, threads, result)
        print(HEAD, flush=True)
        try:
            for name in names:
                try:
                    row = bench.measure(name)
                except (SideError, service.ServiceError, OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
                    result.add_failure(f"{name}, {threads} threads", error)
                    continue
                result.add_rows([row])
                print_row(row)
        finally:
            bench.close()
        rows = [row for row in result.rows if row["threads"] == threads and not row["disturbed"]]
        print("/joint: above 1, joint is faster; p./m.: predicted / measured; Apache TVM is tuned only with --tvm-minutes, and no best peer")
        for line in summary(rows) if rows else []:
            print(line)
        result.print_versions()
