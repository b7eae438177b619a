"""Several jobs on one machine with real processes: what sharing the machine costs, and what coordination gains.

Three models are tuned on two cores in five set-ups, with the same seeds and the same number of trials. The default strategy is
random: every set-up then measures the same candidates, and picks differ only because measurements differ. With a learning
strategy (--strategy) there are update stages, and the candidates differ too.
  sequential        one job after another, as on dedicated machines
  uncoordinated     a service for each job (round_robin), all at once on the same cores, with nothing guarded
  round_robin       one service, jobs take turns in the order of their start
  predictive        one service, the stage that keeps the device busy goes first
  sequential_again  sequential once more: shows how much two such runs differ by chance

Quality. The best records of all set-ups are timed again, in turns. Each distinct schedule is timed once, so that equal picks have
exactly equal times. Each set-up is compared with sequential in two ways: by the latency of the models (the geometric mean of three
ratios, which one heavy task may dominate) and task by task (the geometric mean over all tasks). The interval beside each figure is
the 95 % bootstrap interval: 1000 draws with replacement of tasks, and of turns within each task. Where sequential_again is no
nearer to 1, the figure does not distinguish the set-up from sequential.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time

from bench.common import report, service, turns
from bench.common.side import Side, SideError
from bench.scheduling import picks

MODELS = ("mlp", "dqn", "squeezenet")
DEDICATED = "sequential"
AGAIN = "_again"  # suffix of a set-up that repeats another
SETUPS = (DEDICATED, "uncoordinated", "round_robin", "predictive", DEDICATED + AGAIN)
DEFAULT_TRIALS = 8
# A set-up that takes longer is taken for stuck.
SETUP_LIMIT_S = 600
PROGRESS_S = 10
POLL_S = 2
# Disturbed turns of one task that are repeated. There are many tasks, so more would take very long.
MOST_REPEATED = 5


class Setup:
    """One set-up: runs its services, then holds the results of its jobs."""

    def __init__(self, name, args, work):
        self.name = name
        self.args = args
        self.work = os.path.join(work, name)
        self.jobs = []
        self.records = {}  # (target, workload key) -> best record
        self.candidates = {}  # (target, workload key) -> measured traces
        self.trials = 0
        self.disturbed = 0
        self.repeated = 0
        self.measuring_s = 0.0
        self.canaries_ns = []  # times of the canary, a small fixed kernel timed before each trial

    def run(self, models):
        policy = self.name.removesuffix(AGAIN)
        extra = ["--unguarded", "--policy", "round_robin"] if policy == "uncoordinated" else ["--policy", policy]
        count = len(models) if self.name == "uncoordinated" else 1
        services = []
        shutil.rmtree(self.work, ignore_errors=True)  # start with an empty database
        try:
            for k in range(count):
                services.append(service.Service(self.args.programs, os.path.join(self.work, str(k)), extra))
            ids = []
            for k, model in enumerate(models):
                of = services[k % count]
                ids.append((of, of.submit(model, self.args.trials, self.args.seed, self.args.strategy)))
            self._wait(ids)
            self.jobs = [of.job(job) for of, job in ids]
            first = min(int(job["created_unix_ns"]) for job in self.jobs)
            self.wall_s = (max(int(job["finished_unix_ns"]) for job in self.jobs) - first) * 1e-9
            for k, of in enumerate(services):
                self._read(of.all_records(os.path.join(self.work, f"records{k}.jsonl")))
        finally:
            for of in services:
                of.close()

    def _wait(self, ids):
        begin = told = time.monotonic()
        while True:
            jobs = [of.job(job) for of, job in ids]
            states = [job["state"] for job in jobs]
            if all(state in ("done", "failed", "cancelled") for state in states):
                break
            now = time.monotonic()
            if now - begin > SETUP_LIMIT_S:
                raise service.ServiceError(f"{self.name}: not done after {SETUP_LIMIT_S} s: {states}")
            if now - told >= PROGRESS_S:
                told = now
                done = ", ".join(f"{job['spec']['name']} {job.get('trials', 0)}/{job.get('trials_budget', 0)}" for job in jobs)
                print(f"  {self.name}, {now - begin:.0f} s: {done}", file=sys.stderr, flush=True)
            time.sleep(POLL_S)  # each query is a process that runs beside the jobs
        for job in jobs:
            if job["state"] != "done":
                raise service.ServiceError(f"{self.name}: {job['spec']['name']} {job['state']}: {job.get('reason', '')}")

    def _read(self, lines):
        for record in lines:
            self.trials += 1
            self.measuring_s += record["measurement"].get("profile_ns", 0) * 1e-9
            evidence = record["measurement"].get("evidence") or {}
            self.disturbed += bool(evidence.get("disturbance"))
            self.repeated += evidence.get("times_measured", 1) > 1
            if evidence.get("canary_before") and evidence.get("canary_usual_ns"):
                self.canaries_ns.append(evidence["canary_before"] * evidence["canary_usual_ns"])
            key = (record["target"], record["workload_key"])
            self.candidates.setdefault(key, set()).add(record["trace"])
            if not record.get("median_ns"):
                continue
            if key not in self.records or record["median_ns"] < self.records[key]["median_ns"]:
                self.records[key] = record

    def spans(self, *kinds):
        """(start, end, stage, model) of the stages, in seconds since the first."""
        spans = [(s["start_unix_ns"], s["end_unix_ns"], s["kind"], job["spec"]["name"]) for job in self.jobs for s in job["timeline"]]
        first = min(span[0] for span in spans)
        wanted = [span for span in spans if not kinds or span[2] in kinds]
        return [((start - first) * 1e-9, (end - first) * 1e-9, kind, model) for start, end, kind, model in sorted(wanted)]

    def shares(self):
        """Shares of the time from the start of the first profile stage to the end of the last one: the device was held, and
        candidates were checked and timed on it. None if several services measured at once."""
        if self.name == "uncoordinated":
            return None, None
        spans = self.spans("profile")
        window = max(end for _, end, _, _ in spans) - spans[0][0]
        return sum(end - start for start, end, _, _ in spans) / window, self.measuring_s / window


class Remeasured:
    """Times the best records of all set-ups in turns."""

    def __init__(self, args, setups):
        self.args = args
        self.cpus = report.cores_for(1)
        self.setups = setups
        self.disturbed = 0

    def times(self):
        """{set-up: {task: times in ns, one for each turn}}. The turns of one task are simultaneous for all set-ups. Set-ups that
        picked the same schedule share a list."""
        tool = os.path.join(self.args.programs, "heddle-operator-bench")
        side = Side("Heddle", [tool, "--cpus", ",".join(map(str, self.cpus))])
        found = {setup.name: {} for setup in self.setups}
        keys = sorted(self.setups[0].records)
        told = time.monotonic()
        try:
            for number, key in enumerate(keys):
                if time.monotonic() - told >= PROGRESS_S:
                    told = time.monotonic()
                    print(f"  measured again: {number} of {len(keys)} tasks", file=sys.stderr, flush=True)
                self._measure(side, key, found)
        finally:
            side.close()
        return found

    def _measure(self, side, key, found):
        best = {setup.name: setup.records[key] for setup in self.setups if key in setup.records}
        side.ask("open", workload=next(iter(best.values()))["workload"])
        ids = {}  # by trace, so that each schedule is measured once
        for record in best.values():
            if record["trace"] not in ids:
                ids[record["trace"]] = side.ask("load", trace=record["trace"])["id"]
        measured = turns.measure({trace: (side, {"id": k}) for trace, k in ids.items()}, self.args.rounds, self.cpus, MOST_REPEATED)
        self.disturbed += measured.disturbed
        for name, record in best.items():
            found[name][key] = measured.times[record["trace"]]


def latency_ns(job, times):
    """Latency of a job's model: the sum over its tasks of time x uses. `times` is by (target, workload key). None if one is missing."""
    total = 0
    for task in job["tasks"]:
        ns = times.get((job["spec"]["target"], task["info"]["key"]))
        if ns is None:
            return None
        total += ns * task["info"].get("weight", 1)
    return total


def make_row(setup, dedicated, turns_of):
    again = {key: statistics.median(times) for key, times in turns_of[setup.name].items()}
    reported = {key: record["median_ns"] for key, record in setup.records.items()}
    # The error of the reported time of each task, in either direction.
    off = [max(reported[key] / ns, ns / reported[key]) - 1 for key, ns in again.items() if ns > 0]
    slow = [reported[key] / ns for key, ns in again.items() if ns > 0]
    return {
        "name": setup.name,
        "threads": 1,
        "disturbed": False,
        "wall_s": setup.wall_s,
        # Uncoordinated services disturb each other's canaries, so these do not show the machine's speed.
        "canary_ns": statistics.median(setup.canaries_ns) if setup.canaries_ns and setup.name != "uncoordinated" else None,
        "busy_share": setup.shares()[0],
        "measuring_share": setup.shares()[1],
        "trials": setup.trials,
        "trials_disturbed": setup.disturbed,
        "trials_repeated": setup.repeated,
        "quality": picks.compare(setup, dedicated, turns_of) if dedicated else None,
        "reported_over_remeasured": statistics.geometric_mean(slow) if slow else None,
        "median_error": statistics.median(off) if off else None,
        "worst_error": max(off, default=None),
        "models_ms": {job["spec"]["name"]: (latency_ns(job, again) or 0) * 1e-6 for job in setup.jobs},
        # (reported, timed again): to combine several runs.
        "tasks_ns": {" ".join(key): (reported[key], ns) for key, ns in again.items()},
        "spans": setup.spans(),
    }


HEAD = (
    f"{'set-up':<17}{'wall s':>8}{'x':>6}{'machine':>9}{'device %':>10}{'timing %':>10}{'trials':>8}{'disturbed':>11}{'again':>7}"
    f"{'rep./true':>11}{'typ. off':>10}{'worst':>8}"
)
QUALITY_HEAD = f"{'quality':<17}{'by model':>8}{'from':>8}{'to':>7}{'by task':>10}{'from':>8}{'to':>7}{'other picks':>14}{'same candidates':>18}"
LEGEND = (
    "x: wall time of sequential / of this set-up; machine: speed of the machine relative to sequential, by a small kernel timed before"
    " each trial (-: services disturbed each other);\ndevice: share of the time between the first and the last profile stage in which the"
    " device was held; timing: in which candidates were checked and timed;\ndisturbed: trials whose kept measurement was disturbed; again:"
    " trials measured more than once; rep./true: reported times of the best records / timed again;\nquality: latency of the models with"
    " sequential's best records / with this set-up's, and the same task by task, all timed again in turns on a quiet core, each with"
    " its 95 % interval over tasks and turns;\nother picks: tasks whose best record is another schedule than sequential's; same candidates:"
    " tasks for which both measured the same schedules; sequential_again: the effect of chance alone on these figures"
)


def percent(value, digits=0):
    return "-" if value is None else f"{100 * value:.{digits}f}"


def ratio(value):
    return "-" if value is None else f"{value:.3f}"


def print_row(row, dedicated):
    """`dedicated` is the row of the sequential set-up, or None."""
    speed = f"{dedicated['wall_s'] / row['wall_s']:.2f}" if dedicated else "-"
    both = dedicated and dedicated["canary_ns"] and row["canary_ns"]
    machine = f"{dedicated['canary_ns'] / row['canary_ns']:.2f}" if both else "-"
    print(
        f"{row['name']:<17}{row['wall_s']:>8.1f}{speed:>6}{machine:>9}{percent(row['busy_share'], 1):>10}{percent(row['measuring_share'], 1):>10}{row['trials']:>8}"
        f"{row['trials_disturbed']:>11}{row['trials_repeated']:>7}"
        f"{ratio(row['reported_over_remeasured']):>11}{percent(row['median_error'], 1):>9}%{percent(row['worst_error']):>7}%",
        flush=True,
    )


def print_quality(name, quality):
    of = quality["tasks"]
    others, same = f"{quality['other_picks']} of {of}", f"{quality['same_candidates']} of {of}"
    models, tasks = quality["by_model"], quality["by_task"]
    print(
        f"{name:<17}{models['ratio']:>8.3f}{models['low']:>8.3f}{models['high']:>7.3f}"
        f"{tasks['ratio']:>10.3f}{tasks['low']:>8.3f}{tasks['high']:>7.3f}{others:>14}{same:>18}",
        flush=True,
    )


COLOURS = {"import": "#999999", "propose": "#e69f00", "build": "#56b4e9", "profile": "#009e73", "update": "#d55e00", "compile": "#000000"}


def plot(rows, path):
    """Draws a timeline for each set-up, with a band for each model and a bar for each stage."""
    band, left, width = 14, 190, 1000
    longest = max(end for row in rows for _, end, _, _ in row["spans"])
    parts, y = [], 40
    for row in rows:
        parts.append(f'<text x="8" y="{y + 12}" font-size="14">{row["name"]}</text>')
        for model in sorted({span[3] for span in row["spans"]}):
            parts.append(f'<text x="{left - 6}" y="{y + 11}" text-anchor="end" font-size="11">{model}</text>')
            for start, end, kind, of in row["spans"]:
                if of == model:
                    x, w = left + start / longest * width, max((end - start) / longest * width, 0.3)
                    parts.append(
                        f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{band - 2}" fill="{COLOURS[kind]}">'
                        f"<title>{kind} {start:.1f}-{end:.1f} s</title></rect>"
                    )
            y += band
        parts.append(f'<text x="{left + width}" y="{y + 8}" text-anchor="end" font-size="11">{row["wall_s"]:.0f} s</text>')
        y += 24
    for k, (kind, colour) in enumerate(COLOURS.items()):
        parts.append(f'<rect x="{left + 90 * k}" y="12" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{left + 90 * k + 16}" y="22" font-size="12">{kind}</text>')
    with open(path, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 20}" height="{y}" font-family="sans-serif">\n')
        file.write('<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")


def run(args, result):
    names = [name for name in SETUPS if not args.only or name in args.only]
    unknown = set(args.only or ()) - set(SETUPS)
    if unknown:
        result.add_failure(", ".join(sorted(unknown)), f"no such set-up; the set-ups are {', '.join(SETUPS)}")
    if args.trials is None or args.trials == 0:
        args.trials = DEFAULT_TRIALS
    if len(os.sched_getaffinity(0)) < 2:
        result.add_failure("all", "needs two cores: one to measure on, one for the rest")
        return
    work = os.path.join(args.root, "build", "bench", "scheduling")
    os.makedirs(work, exist_ok=True)
    models = []
    for name in MODELS:
        models.append(os.path.join(work, f"{name}.onnx"))
        subprocess.run([os.path.join(args.programs, "heddle"), "zoo", name, "-o", models[-1], "--seed", "1"], check=True, stderr=subprocess.DEVNULL)
    result.versions["Heddle"] = f"{args.commit}; {', '.join(MODELS)}, {args.trials} trials a task, {args.strategy}, seed {args.seed}"
    setups = []
    for name in names:
        print(f"{name}: {len(models)} jobs", file=sys.stderr, flush=True)
        setup = Setup(name, args, work)
        try:
            setup.run(models)
        except (service.ServiceError, subprocess.TimeoutExpired) as error:
            result.add_failure(name, error)
            continue
        setups.append(setup)
    if not setups:
        return
    print("the best records are measured again, in turns", file=sys.stderr, flush=True)
    remeasured = Remeasured(args, setups)
    try:
        again = remeasured.times()
    except SideError as error:
        result.add_failure("measuring again", error)
        return
    dedicated = next((setup for setup in setups if setup.name == DEDICATED), None)
    print(HEAD)
    for setup in setups:
        result.add_rows([make_row(setup, dedicated, again)])
    for row in result.rows:
        print_row(row, next((row for row in result.rows if row["name"] == DEDICATED), None))
    if dedicated:
        print(QUALITY_HEAD)
    for row in result.rows:
        if row["quality"]:
            print_quality(row["name"], row["quality"])
    print(LEGEND)
    if remeasured.disturbed:
        print(f"{remeasured.disturbed} tasks were disturbed when they were measured again")
    if args.plot:
        plot(result.rows, args.plot)
    result.print_versions()
