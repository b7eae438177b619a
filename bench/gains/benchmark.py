"""Whether the gain that a job tells is the gain that its user gets.

Each model is tuned by a short job of the real service, from an empty database of its own. The gain over the default schedules that
the job tells is then measured again by later processes, each with both modules in turns (`heddle run --against`).
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import time

from bench.common import report, service, turns
from bench.common.side import SideError
from bench.common.tool import run_tool
from bench.models import variants

# The zoo, and some of its models at other sizes: 20 jobs.
JOBS = (
    ("mlp", "resnet18", "resnet50", "mobilenet_v1", "mobilenet_v2", "squeezenet", "inception_v3", "resnext50", "nasnet_a", "dqn", "dcgan")
    + ("lstm_lm", "nasrnn", "bert_base")
    + ("resnet18@96", "mobilenet_v2@160", "squeezenet@128", "resnet50@128", "bert_base@32", "lstm_lm@5")
)
DEFAULT_TRIALS = 16
DEFAULT_MINUTES = 10
BEYOND_TUNING_S = 1800  # import, compilation and comparison of a job; beyond that it is taken for stuck
LATER = 3  # processes that measure the gain again
RUN_LIMIT_S = 600
MOST_REPEATED = 5  # of one process's measurement that others disturb
NO_LOSS, AGREE = 0.99, 0.03


def run_alone(argv, cpus):
    """The standard output of a program that is confined to `cpus`, and whether others used these cores meanwhile."""
    watched = turns.siblings(cpus)
    busy, used, start = turns.busy_ticks(watched), resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(["taskset", "-c", ",".join(map(str, cpus)), *argv], capture_output=True, text=True, timeout=RUN_LIMIT_S)
    seconds, now = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    own = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    if done.returncode != 0:
        raise SideError((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:400])
    others = turns.busy_ticks(watched) - busy - own * os.sysconf("SC_CLK_TCK")
    return done.stdout, others > turns.DISTURBED * seconds * len(cpus) * os.sysconf("SC_CLK_TCK")


class Gains:
    """One run with `threads` threads."""

    def __init__(self, args, threads, result):
        self.args = args
        self.threads = threads
        self.cpus = report.cores_for(threads)
        self.work = os.path.join(args.root, "build", "bench", "gains")
        os.makedirs(self.work, exist_ok=True)
        program = [os.path.join(args.programs, "heddle-operator-bench"), "--cpus", ",".join(map(str, self.cpus))]
        version = subprocess.run(program, input='{"do": "version"}\n', capture_output=True, text=True, check=True)
        self.target = json.loads(version.stdout)["target"]
        result.versions["Heddle"] = f"{args.commit}, {self.target}"

    def measure(self, name, seed):
        """The row of a job."""
        stem = os.path.join(self.work, f"{name}-{self.threads}")
        onnx, tuned, default = f"{stem}.onnx", f"{stem}-tuned.heddle", f"{stem}-default.heddle"
        variants.write(self.args.programs, name, onnx)
        trials, minutes = self.args.trials or DEFAULT_TRIALS, self.args.minutes or DEFAULT_MINUTES
        data = f"{stem}-data"
        shutil.rmtree(data, ignore_errors=True)
        tuner = service.Service(self.args.programs, data)
        try:
            # The plan by estimates: then both modules have the same kernels, and differ in schedules only.
            flags = ["--plan", "off", "--time-limit", f"{minutes}m"]
            job = tuner.tune(onnx, self.target, trials, seed, minutes * 60 + BEYOND_TUNING_S, flags=flags)
            if job["state"] != "done":
                raise service.ServiceError(f"the job is {job['state']}: {job.get('reason', '')}")
            told = job.get("comparison") or {}
            if not ((told.get("result") or {}).get("gain") or {}).get("ratio"):
                raise service.ServiceError(f"the job tells no gain: {told.get('missing', '')}")
            tuner.fetch(job, tuned)
            tuner.fetch(job, default, "default")
        finally:
            tuner.close()
        kernels = json.loads(run_tool([os.path.join(self.args.programs, "heddle"), "inspect", tuned, "--json"])).get("kernels", [])
        not_default = {kernel["task"] for kernel in kernels if kernel["schedule"] == "tuned"}
        later = [self.again(tuned, default, not_default) for _ in range(LATER)]
        return self.row(name, seed, job, told, later, not_default)

    def again(self, tuned, default, not_default):
        """One later process: the gain, and those of the tasks that do not keep the default schedule."""
        argv = [os.path.join(self.args.programs, "heddle"), "run", tuned, "--evaluate", "--against", default]
        repeated = 0
        while True:
            text, disturbed = run_alone(argv + ["--rounds", str(self.args.rounds), "--json"], self.cpus)
            if not disturbed or repeated >= min(MOST_REPEATED, self.args.patience):
                break
            repeated += 1
            time.sleep(turns.PAUSE_S)
        found = json.loads(text)
        ours, theirs = (module["samples_ns"] for module in found["modules"])
        tasks = {
            task["key"]: {"label": task["label"], "gain": task["ns"][1] / task["ns"][0]}
            for task in found.get("tasks", [])
            if task["key"] in not_default and all(ns > 0 for ns in task["ns"])
        }
        ratios = [b / a for a, b in zip(ours, theirs)]
        return {"gain": statistics.median(ratios), "ms": statistics.median(ours) * 1e-6, "tasks": tasks, "repeated": repeated, "disturbed": disturbed}

    def row(self, name, seed, job, told, later, not_default):
        gain = told["result"]["gain"]
        labels = {task["info"]["key"]: task["info"]["label"] for task in job["tasks"]}
        told_tasks = [
            (task["gain"]["ratio"], labels.get(task["workload_key"], task["workload_key"]))
            for task in told["result"].get("tasks", [])
            if task["workload_key"] in not_default and (task["gain"] or {}).get("ratio")
        ]
        later_tasks = [
            (statistics.median(one["tasks"][key]["gain"] for one in later if key in one["tasks"]), labels.get(key, key))
            for key in sorted(set().union(*(one["tasks"] for one in later)))
        ]
        gains = [one["gain"] for one in later]
        return {
            "name": name,
            "threads": self.threads,
            "seed": seed,
            "disturbed": any(one["disturbed"] for one in later),
            "turns_repeated": sum(one["repeated"] for one in later),
            "trials": job.get("trials", 0),
            "stop": job.get("stop", ""),
            "tasks": sum(task["info"].get("weight", 0) > 0 for task in job["tasks"]),
            "keep_default": sum(task["info"].get("weight", 0) > 0 and task["info"]["key"] not in not_default for task in job["tasks"]),
            "taken_back": len(told.get("taken_back", [])),
            "comparisons": told.get("made", 0),
            "module_is_default": told.get("module_is_default", False),
            # A module that is the default one, or has all its kernels (then no round counts), is as fast as the default one.
            "told": {"ratio": 1.0, "low": 1.0, "high": 1.0} if told.get("module_is_default") or not gain["rounds"] else {end: gain[end] for end in ("ratio", "low", "high")},
            "told_before": gain,
            "later": gains,
            "later_median": statistics.median(gains),
            "ours_ms": statistics.median(one["ms"] for one in later),
            "told_least_task": min(told_tasks, default=None),
            "later_least_task": min(later_tasks, default=None),
            "best_peer": False,
        }


HEAD = f"{'model':<18}{'thr':>3}{'told':>7}  {'95 %':<13}{'later':>7}  {'of each process':<19}{'told/later':>11}{'tasks':>6}{'default':>8}  least task: told, later"


def print_row(row):
    told = row["told"]
    line = f"{row['name']:<18}{row['threads']:>3}{told['ratio']:>7.3f}  {told['low']:.3f}-{told['high']:.3f}  {row['later_median']:>7.3f}"
    line += f"  {' '.join(f'{gain:.3f}' for gain in row['later']):<19}{told['ratio'] / row['later_median']:>11.3f}{row['tasks']:>6}{row['keep_default']:>8}"
    least = ", ".join("-" if one is None else f"{one[0]:.3f} ({one[1]})" for one in (row["told_least_task"], row["later_least_task"]))
    print(f"{line}  {least}" + "; the module is the default one" * row["module_is_default"], flush=True)


def summary(rows):
    """What all rows together say, as lines."""
    told = [(row["told"]["ratio"], row["name"]) for row in rows]
    later = [(row["later_median"], row["name"]) for row in rows]
    losses = [name for gain, name in later if gain < NO_LOSS]
    off = [(row["told"]["ratio"] / row["later_median"] - 1, row["name"]) for row in rows]
    far = [name for error, name in off if abs(error) > AGREE]
    worst = max(off, key=lambda one: abs(one[0]))
    inside = sum(row["told"]["low"] <= row["later_median"] <= row["told"]["high"] for row in rows)
    tasks = [row["later_least_task"] for row in rows if row["later_least_task"]]
    lines = [
        f"{len(rows)} jobs: told gain {statistics.geometric_mean(gain for gain, _ in told):.3f} in the geometric mean, least {min(told)[0]:.3f} ({min(told)[1]});"
        f" later {statistics.geometric_mean(gain for gain, _ in later):.3f}, least {min(later)[0]:.3f} ({min(later)[1]}); below {NO_LOSS} later: {', '.join(losses) or 'none'}",
        f"told within {100 * AGREE:.0f} % of later in {len(rows) - len(far)} of {len(rows)}; farthest {100 * worst[0]:+.1f} % ({worst[1]});"
        f" later within the told interval in {inside}",
    ]
    if tasks:
        least = min(tasks)
        lines.append(f"default / tuned of single tasks, later: least {least[0]:.3f} ({least[1]})")
    return lines


def run(args, result):
    names = args.only or JOBS
    for threads in report.possible_threads(args.threads, result):
        bench = Gains(args, threads, result)
        print(HEAD, flush=True)
        for place, name in enumerate(names):
            try:
                row = bench.measure(name, args.seed + place)
            except (SideError, service.ServiceError, OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
                result.add_failure(f"{name}, {threads} threads", error)
                continue
            result.add_rows([row])
            print_row(row)
        rows = [row for row in result.rows if row["threads"] == threads and not row["disturbed"]]
        print("gains: default schedules / tuned, above 1: tuned is faster; default: tasks that keep the default schedule")
        for line in summary(rows) if rows else []:
            print(line)
        result.print_versions()
