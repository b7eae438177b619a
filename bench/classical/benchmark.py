"""Forests, linear models and pipelines against the libraries that made them, ONNX Runtime and compilers of trees; and what each way to
choose the form of a forest costs.

A row is a model, a number of rows in a call, and a number of threads. What is compared with the peers is the module that users get: one for
any number of rows (ANY_ROWS). Beside it stand modules of as many rows as the call has, one for each form of the forests. Every contender
predicts the same table in turns, and its scores are compared with those of the model's own library before timing. Each measured row has a
file; with --resume, a run takes those and measures what is missing (kept_rows.py).
"""

import dataclasses
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

from bench.classical import forests, kept_rows, make
from bench.common import report, turns
from bench.common.side import Side, SideError
from bench.common.tool import run_tool

ROWS = (1, 100, 10000)
OPEN_LIMIT_S = 600  # some peers compile the model first
LEAST_OPEN_LIMIT_S = 30  # while the time for all rows runs out
OPEN_SHARE = 4  # one peer takes at most this part of the time that is left
GENERAL, COMPILED = "general", "compiled"
ANY_ROWS = "any rows"  # the contender that users get: it cuts a call into its blocks of rows
# The rule of Nakandala et al. (OSDI 2020, section 5.1) for CPUs with the forms that are built here. It takes matrix products for
# shallow trees and for few rows, complete trees up to depth 10, and walks beyond. Its matrix products ask all nodes, as `select` does.
# Walks through complete trees are not built, so `walk` stands for both others. What few rows are, the paper does not say.
RULE_DEPTH, RULE_ROWS, RULE_SMALL, RULE_LARGE = 3, 1, "select", "walk"
FAMILIES = {"dense": "trees", "sparse": "trees", "linear": "linear models and SVMs", "pipeline": "pipelines"}
LIBRARIES = {"dense": "XGBoost", "sparse": "LightGBM", "linear": "scikit-learn", "pipeline": "scikit-learn"}
# What --isa asks for, as the CPU that our code is made for. "native" is this one.
CPUS = {"native": "native", "avx2": "x86-64-v3"}
CALL_GOAL_US = 1  # of a call with one row, beyond its kernels
REGRET_GOAL = 0.1  # of the form by measured kernels, at most
# Name, rows in a call, threads. Together they have every kind of model, of peer, number of rows and number of threads, those first that say
# most. A run of more rows begins with these.
QUICK = (
    ("dense-1x3", 1, 1),
    ("dense-500x8", 1, 1),
    ("sparse-500x8", 10000, 1),
    ("onehot-logistic", 10000, 1),
    ("sparse-500x8", 1, 1),
    ("logistic-10", 100, 1),
    ("dense-500x8", 10000, 1),
    ("onehot-boosting", 1, 1),
    ("dense-500x3", 100, 2),
    ("svc-2", 100, 1),
    ("dense-500x8", 10000, 2),
    ("sparse-100x12", 100, 1),
)


@dataclasses.dataclass(frozen=True)
class Peer:
    runtime: str  # of side.py
    kind: str
    modules: tuple  # that Python has to find
    shapes: tuple = tuple(FAMILIES)  # of the models that it reads
    onnx: bool = False  # reads the ONNX file instead of the library's own


PEERS = {
    "XGBoost": Peer("xgboost", GENERAL, ("xgboost",), shapes=("dense",)),
    "LightGBM": Peer("lightgbm", GENERAL, ("lightgbm",), shapes=("sparse",)),
    "ONNX Runtime": Peer("onnxruntime", GENERAL, ("onnxruntime",), onnx=True),
    "scikit-learn": Peer("sklearn", GENERAL, ("sklearn",), shapes=("linear", "pipeline")),
    "lleaves": Peer("lleaves", COMPILED, ("lleaves",), shapes=("sparse",)),
    "TL2cgen": Peer("tl2cgen", COMPILED, ("tl2cgen", "treelite"), shapes=("dense", "sparse")),
}


def goal_of(kind, rows, isa="native"):
    """What the ratio to the best of a kind of peers shall be at least, for trees; None: there is no goal."""
    if rows == 10000:
        wide = isa == "native" and "avx512f" in report.cpu_flags()
        return {GENERAL: 5.0 if wide else 2.0, COMPILED: 1.0}[kind]
    return {GENERAL: 5.0, COMPILED: 1.0}[kind] if rows == 1 else None


def missing_packages(peer):
    return [module for module in peer.modules if importlib.util.find_spec(module) is None]


def select(only):
    """The models and numbers of rows that --only asks for, as pairs: NAME, or NAME@ROWS. None: all. ValueError: there is no such
    model, or the table has too few rows."""
    if only is None:
        return [(spec, 1) for spec in make.CALLS] + [(spec, rows) for spec in make.MODELS for rows in ROWS]
    found = []
    for item in only:
        name, at, rows = item.partition("@")
        if name not in make.BY_NAME:
            raise ValueError(f"there is no model '{name}'; the models are {', '.join(make.BY_NAME)}")
        if at and not (rows.isdecimal() and 1 <= int(rows) <= forests.TABLE_ROWS):
            raise ValueError(f"'{item}' is not a model and a number of rows from 1 to {forests.TABLE_ROWS}, such as {name}@100")
        found += [(make.BY_NAME[name], r) for r in ([int(rows)] if at else ROWS)]
    return list(dict.fromkeys(found))


def in_order(pairs, threads):
    """(spec, rows, threads) for all pairs and numbers of threads, in an order in which every first part has as many kinds as it can: first
    those of QUICK, then a model of each shape in turns. The rows of one model with as many threads follow each other."""
    pairs = list(pairs)
    chosen = {(spec, rows, t) for spec, rows in pairs for t in threads}
    first = [(make.BY_NAME[name], rows, t) for name, rows, t in QUICK]
    by_shape = {}
    for spec in dict.fromkeys(spec for spec, _ in pairs):
        by_shape.setdefault(spec.shape, []).append(spec)
    specs = [spec for turn in itertools.zip_longest(*by_shape.values()) for spec in turn if spec]
    rest = [(spec, rows, t) for spec in specs for t in threads for other, rows in pairs if other == spec]
    return list(dict.fromkeys([row for row in first if row in chosen] + rest))


def form_of(made):
    """The forms of a module's forests as one word."""
    return "+".join(sorted(set(made["forests"].values()))) or "none"


def rule_form(depth, rows):
    return RULE_SMALL if depth <= RULE_DEPTH or rows <= RULE_ROWS else RULE_LARGE


def largest_error(found, expected):
    """As the tolerance is: relative to the score, or absolute if the score is small. Of two classes, `found` may tell both and `expected`
    only the second."""
    import numpy as np  # the tests import this file without it

    if found.shape[1] == 2 and expected.shape[1] == 1:
        found = found[:, 1:]
    if found.shape != expected.shape:
        raise SideError(f"the scores have shape {found.shape}, not {expected.shape}")
    error = np.max(np.abs(found.astype(np.float64) - expected) / np.maximum(np.abs(expected), 1))
    return float(error) if error == error else float("inf")


class Classical:
    """One model with `threads` threads: the processes of its contenders, until close()."""

    def __init__(self, args, result, spec, threads, given_up, left_s=lambda: float("inf")):
        """`given_up`: pairs of a peer and a model that failed before; it grows. `left_s` tells how much time is left for all rows."""
        self.args, self.result, self.spec, self.threads, self.given_up = args, result, spec, threads, given_up
        self.left_s = left_s
        self.cpus = report.cores_for(threads)
        self.work = os.path.join(args.root, "build", "bench", "classical")
        os.makedirs(self.work, exist_ok=True)
        self.about = json.loads(run_tool([sys.executable, "-m", "bench.classical.make", spec.name, self.work]))
        self.sides = {}
        self.any_rows = None  # the path of that module, once it is made

    def close(self):
        for side in self.sides.values():
            side.close()

    def path(self, name):
        return os.path.join(self.work, name)

    def side(self, label, runtime):
        if label not in self.sides:
            libraries = os.path.join(os.path.dirname(self.args.programs), "lib")
            env = {
                "HEDDLE_LIBRARY": os.path.join(libraries, "libheddle.so"),
                "HEDDLE_ROTATE": os.path.join(libraries, "libheddle-bench-rotate.so"),
                "PYTHONPATH": self.args.root,
            }
            argv = [sys.executable, "-m", "bench.classical.side", runtime, str(self.threads)]
            self.sides[label] = Side(label, argv, self.cpus, env)
        return self.sides[label]

    def tool(self, name, rows):
        """`rows`: of the module's blocks, such as "1,64"; empty: those by default."""
        argv = [os.path.join(self.args.programs, name), self.path(self.about["file"])]
        argv += ["--threads", str(self.threads), "--mcpu", CPUS[self.args.isa]]
        return argv + (["--shape", f"{forests.ROWS}={rows}"] if rows else [])

    def module_path(self, rows, *flags):
        stem = [self.spec.name, str(rows or "any"), str(self.threads), self.args.isa, *(flag.strip("-") for flag in flags)]
        return self.path(f"{'-'.join(stem)}.heddle")

    def make_module(self, rows, *flags):
        """What heddle-bench-module tells, and the path of the module."""
        module = self.module_path(rows, *flags)
        stem = os.path.splitext(os.path.basename(module))[0]
        argv = self.tool("heddle-bench-module", rows) + ["-o", module, *flags]
        argv += ["--records", self.args.records] if self.args.records else []
        made = {**json.loads(run_tool(argv)), "path": module}
        for warning in made["warnings"]:
            print(f"  warning: {stem}: {warning}", file=sys.stderr, flush=True)
        self.result.versions["Heddle"] = f"{self.args.commit}, {made['target']}"
        return made

    def make_modules(self, rows):
        """form -> module; first the one whose forms are estimated, then those in which all forests have the same other form."""
        estimated = self.make_module(rows)
        made = {form_of(estimated): estimated}
        for form in estimated["forms"] if estimated["forests"] else []:
            other = self.make_module(rows, "--forest-form", form)
            made.setdefault(form_of(other), other)
        return made

    def any_rows_module(self):
        """The path of the module that a job would make for any number of rows: each block has the forms by measured kernels, and the
        module knows what its blocks take."""
        if isinstance(self.any_rows, SideError):
            raise self.any_rows  # it would fail again, and may take long to do so
        if self.any_rows is None:
            blocks = ",".join(map(str, self.args.blocks or []))
            try:
                if self.args.records:
                    made = self.make_module(blocks, "--measured-plan")["path"]
                else:
                    made = self.module_path(blocks, "any")  # one of a single size has a name of its own
                    run_tool(self.tool("heddle-plan-bench", blocks) + ["--cpus", ",".join(map(str, self.cpus)), "--module", made])
            except SideError as error:
                self.any_rows = error
                raise
            self.any_rows = made
        return self.any_rows

    def measured_form(self, rows):
        """The form that a job would choose: by the records if there are any, else by default schedules that are measured now. None: it is
        not known, and noted why."""
        try:
            if self.args.records:
                return form_of(self.make_module(rows, "--measured-plan"))
            argv = self.tool("heddle-plan-bench", rows) + ["--cpus", ",".join(map(str, self.cpus))]
            found = json.loads(run_tool(argv))
            return form_of(found["contenders"][found["chosen"]])
        except SideError as error:
            self.result.add_note(f"{self.spec.name}@{rows}: the form is not chosen by measured kernels: {error}")
            return None

    def open(self, label, runtime, model, rows):
        """The contender for turns.measure, and {"way", "max_error"}. SideError: it fails, or its scores differ."""
        import numpy as np

        scores = self.path(f"{self.spec.name}-scores.npy")
        request = {"model": model, "table": self.path(self.about["table"]), "rows": rows, "scores": scores}
        limit_s = min(OPEN_LIMIT_S, max(LEAST_OPEN_LIMIT_S, self.left_s() / OPEN_SHARE))
        opened = self.side(label, runtime).ask("open", limit_s, **request)
        found = np.load(scores)
        error = largest_error(found, np.load(self.path(f"{self.spec.name}.npy"))[: len(found)])
        if error > self.spec.tolerance:
            own = LIBRARIES[self.spec.shape]
            raise SideError(f"{label}: scores differ from {own}'s by {error:.1e}; {self.spec.tolerance:.0e} is allowed")
        return (self.side(label, runtime), {"id": opened["id"]}), {"way": opened["way"], "max_error": error}

    def open_peers(self, rows):
        """label -> what open() returns. A peer that fails is noted and not tried again with this model."""
        found = {}
        for label, peer in PEERS.items():
            if self.spec.shape not in peer.shapes or missing_packages(peer) or (label, self.spec.name) in self.given_up:
                continue
            try:
                if peer.onnx and self.about["onnx"]:
                    raise SideError(f"the model is not converted to ONNX: {self.about['onnx']}")
                model = f"{self.spec.name}.onnx" if peer.onnx else self.about["own"]
                found[label] = self.open(label, peer.runtime, self.path(model), rows)
                self.result.versions[label] = self.sides[label].ask("version")["version"]
            except SideError as error:
                if label in self.sides:
                    self.sides.pop(label).close()  # a compiler that it has started must not go on
                self.given_up.add((label, self.spec.name))
                self.result.add_note(f"{self.spec.name}: no figure of {label}: {error}")
        return found

    def measure(self, rows):
        modules = self.make_modules(rows)
        ours = {form: (self.open("Heddle", "heddle", made["path"], rows)) for form, made in modules.items()}
        ours[ANY_ROWS] = self.open("Heddle", "heddle", self.any_rows_module(), rows)
        choice = self.measured_form(rows) if len(modules) > 1 else None
        peers = self.open_peers(rows)
        if not peers:
            raise SideError("no peer predicts it; bench/run.sh says which packages do not install")
        opened = {**ours, **peers}
        # The ratios to the first one are measured until they are settled.
        contenders = {label: opened[label][0] for label in dict.fromkeys([ANY_ROWS, *opened])}
        measured = turns.measure(contenders, self.args.rounds, self.cpus, settle=True)
        about = {label: told for label, (_, told) in opened.items()}
        row = make_row(self.spec, rows, self.threads, self.about, list(modules), choice, about, measured)
        row["isa"] = self.args.isa
        return {**row, "conversions": {form: {key: made[key] for key in ("convert_s", "peak_rss_mib")} for form, made in modules.items()}}


def make_row(spec, rows, threads, model, forms, choice, about, measured):
    """`forms`: those of modules of as many rows, the estimated one first. `choice`: the form by measured kernels, if known. `about`:
    label -> {"way", "max_error"}, of forms, ANY_ROWS and peers. What is compared with the peers is ANY_ROWS. "form" is that by measured
    kernels or else the estimated one, and "one_size_us" what its module takes."""
    times = measured.times
    us = {label: statistics.median(ns) * 1e-3 for label, ns in times.items()}
    choices = {"measured": choice, "estimated": forms[0]}
    if model["depth"] is not None and len(forms) > 1:
        rule = rule_form(model["depth"], rows)
        choices["rule"] = rule if rule in forms else RULE_LARGE
    # Forests of one model may have different forms in the choice, which is no contender then.
    choices = {by: form for by, form in choices.items() if form in forms}
    chosen = choices.get("measured", choices["estimated"])
    best_form = min(forms, key=us.get)
    peers = {
        label: {
            "us": us[label],
            "kind": PEERS[label].kind,
            **about[label],
            **turns.compare(times[ANY_ROWS], times[label]),
            "rounds_us": [ns * 1e-3 for ns in times[label]],
        }
        for label in times
        if label not in forms and label != ANY_ROWS
    }
    best = {
        kind: min((label for label in peers if peers[label]["kind"] == kind), key=us.get, default=None)
        for kind in (GENERAL, COMPILED)
    }
    return {
        "name": f"{spec.name}@{rows}",
        "model": spec.name,
        "shape": spec.shape,
        "rows": rows,
        "threads": threads,
        "leaves": model["leaves"],
        "depth": model["depth"],
        "disturbed": measured.disturbed,
        "turns_repeated": measured.repeated,
        "form": chosen,
        "choices": choices,
        "regrets": {by: us[form] / us[best_form] - 1 for by, form in choices.items()},
        "ours_us": us[ANY_ROWS],
        "ours_rounds_us": [ns * 1e-3 for ns in times[ANY_ROWS]],
        "one_size_us": us[chosen],
        "max_error": about[ANY_ROWS]["max_error"],
        "forms_us": {form: us[form] for form in forms},
        "best_form": best_form,
        "peers": peers,
        "best": best,
    }


HEAD = (
    f"{'model@rows':<27}{'thr':>3}{'ours us':>11}{'one size':>11}  {'form':<8}{'best form':<10}{'general':<13}{'us':>11}{'ratio':>8}  "
    f"{'compiled':<9}{'us':>11}{'ratio':>8}  others: us (ratio)"
)


def print_row(row):
    line = f"{row['name']:<27}{row['threads']:>3}{row['ours_us']:>11.2f}{row['one_size_us']:>11.2f}  {row['form']:<8}"
    line += f"{row['best_form'] if row['best_form'] != row['form'] else '':<10}"
    for kind, width in ((GENERAL, 13), (COMPILED, 9)):
        label = row["best"][kind]
        if label is None:
            line += f"{'-':<{width}}{'':>11}{'':>8}  "
        else:
            line += f"{label:<{width}}{row['peers'][label]['us']:>11.2f}{row['peers'][label]['ratio']:>8.2f}  "
    others = [f"{label} {peer['us']:.2f} ({peer['ratio']:.2f})" for label, peer in row["peers"].items() if label not in row["best"].values()]
    print(line + ", ".join(others) + forms_text(row) + conversions_text(row), flush=True)


CHOICES = {"measured": "measured kernels", "estimated": "estimate", "rule": "Hummingbird's rule"}


def forms_text(row):
    """Of a model with several forms: what each takes, and what each choice loses."""
    if len(row["forms_us"]) < 2:
        return ""
    forms = ", ".join(f"{form} {us:.2f}" for form, us in row["forms_us"].items())
    choices = ", ".join(f"{CHOICES[by]} {form} +{100 * row['regrets'][by]:.1f} %" for by, form in row["choices"].items())
    return f"; {forms}: by {choices}"


def conversions_text(row):
    """What making the module took, by form."""
    told = [f"{form} {made['convert_s']:.1f} s {made['peak_rss_mib']:.0f} MiB" for form, made in row.get("conversions", {}).items()]
    return f"; made in: {', '.join(told)}" if told else ""


def counted(count, word):
    return f"{count} {word}" + ("" if count == 1 else "s")


def call_us(rows):
    """(shape, threads, label) -> what a call with one row takes that asks only one tree. Heddle's label is None."""
    found = {}
    for row in rows:
        if row["model"] in {spec.name for spec in make.CALLS} and row["rows"] == 1:
            found[row["shape"], row["threads"], None] = row["ours_us"]
            found |= {(row["shape"], row["threads"], label): peer["us"] for label, peer in row["peers"].items()}
    return found


def less_the_call(row, label, calls):
    """The ratio if the peer's call took no time beyond its trees; None if that was not measured."""
    call = calls.get((row["shape"], row["threads"], label))
    return None if call is None else max(row["peers"][label]["us"] - call, 0) / row["ours_us"]


def mean_of(ratios, about, goal=None, mean=statistics.geometric_mean):
    """One line of the summary as a value. `ratios`: pairs of a ratio and a model."""
    least, model = min(ratios)
    found = {**about, "mean": mean([ratio for ratio, _ in ratios]), "count": len(ratios), "lowest": least, "lowest_model": model}
    if goal is not None:
        found |= {"goal": goal, "met": found["mean"] >= goal, "models_below": sum(ratio < goal for ratio, _ in ratios)}
    return found


def summarize(rows):
    """What all rows together say, as values: {"calls", "means", "regrets"}. Models of one tree only tell what a call takes."""
    calls = call_us(rows)
    told = {"calls": [], "means": [], "regrets": []}
    for (shape, threads, label), us in calls.items():
        if label is None:
            peers = {peer: us for (s, t, peer), us in calls.items() if (s, t) == (shape, threads) and peer is not None}
            told["calls"].append({"shape": shape, "threads": threads, "ours_us": us, "peers_us": peers})
    rows = [row for row in rows if row["model"] not in {spec.name for spec in make.CALLS}]
    families = list(dict.fromkeys(FAMILIES.values()))
    for key in sorted({(families.index(FAMILIES[row["shape"]]), row["rows"], row["threads"]) for row in rows}):
        group = [row for row in rows if (families.index(FAMILIES[row["shape"]]), row["rows"], row["threads"]) == key]
        about = {"family": families[key[0]], "rows": key[1], "threads": key[2]}
        for kind in (GENERAL, COMPILED):
            best = [(row, row["best"][kind]) for row in group if row["best"][kind]]
            if best:
                goal = goal_of(kind, key[1], best[0][0].get("isa", "native")) if about["family"] == "trees" else None
                ratios = [(row["peers"][label]["ratio"], row["model"]) for row, label in best]
                told["means"].append(mean_of(ratios, {**about, "peers": f"best {kind}"}, goal))
            less = [(less_the_call(row, label, calls), row["model"]) for row, label in best] if key[1] == 1 else []
            less = [pair for pair in less if pair[0] is not None]
            if less:  # some are 0, so they have no geometric mean
                peers = f"best {kind}, less what its call takes with one tree"
                told["means"].append(mean_of(less, {**about, "peers": peers, "is_median": True}, mean=statistics.median))
        for label in PEERS:
            found = [(row["peers"][label]["ratio"], row["model"]) for row in group if label in row["peers"]]
            if found:
                told["means"].append(mean_of(found, {**about, "peers": label}))
        for by in ("measured", "estimated", "rule"):
            found = [(row["regrets"][by], row["model"]) for row in group if len(row["forms_us"]) > 1 and by in row["regrets"]]
            if found:
                most, model = max(found)
                mean = statistics.fmean(regret for regret, _ in found)
                entry = {**about, "by": by, "mean": mean, "count": len(found), "most": most, "most_model": model}
                goal = {"goal": REGRET_GOAL, "met": most <= REGRET_GOAL} if by == "measured" else {}
                told["regrets"].append({**entry, **goal})
    return told


def summary_lines(told):
    lines = []
    for call in told["calls"]:
        peers = "".join(f", {label} {us:.2f} us" for label, us in call["peers_us"].items())
        line = f"a call with one row and one tree, {call['shape']}, {counted(call['threads'], 'thread')}: Heddle {call['ours_us']:.2f} us{peers}"
        lines.append(f"{line}; goal: the call itself takes less than {CALL_GOAL_US} us")

    def title(entry):
        return f"{entry['family']}, {counted(entry['rows'], 'row')}, {counted(entry['threads'], 'thread')}"

    for mean in told["means"]:
        name = "median" if mean.get("is_median") else "geometric mean"
        line = f"{title(mean)}: {mean['peers']}: {name} {mean['mean']:.2f} of {mean['count']}, lowest {mean['lowest_model']} {mean['lowest']:.2f}"
        if "goal" in mean:
            met = "met" if mean["met"] else "not met"
            line += f"; goal {mean['goal']:.2f}: {met} by the mean, {mean['models_below']} of {mean['count']} below it"
        lines.append(line)
    for regret in told["regrets"]:
        line = f"{title(regret)}: form by {CHOICES[regret['by']]}: {100 * regret['mean']:.1f} % slower than the best form on average of"
        line += f" {regret['count']}, at most {100 * regret['most']:.1f} % ({regret['most_model']})"
        if "goal" in regret:
            line += f"; goal {100 * regret['goal']:.0f} %: {'met' if regret['met'] else 'not met'}"
        lines.append(line)
    return lines


LEGEND = (
    "ours: the module for any number of rows; one size: a module of as many rows as the call; ratio: theirs / ours, above 1: Heddle is faster; form of one size: by measured kernels if there are several, or else by estimate; best form: where"
    f" another one was faster; Hummingbird's rule with what is built here: {RULE_SMALL} up to depth {RULE_DEPTH} and for up to"
    f" {counted(RULE_ROWS, 'row')}, else {RULE_LARGE}"
)


def chosen_rows(args, result):
    """(spec, rows, threads) of all rows to measure, in order. ValueError: as select."""
    able = [t for t in args.threads if report.cores_for(t) is not None]
    for threads in args.threads:
        if threads not in able:
            result.add_failure(f"{threads} threads", f"only {len(os.sched_getaffinity(0))} cores are allowed")
    if args.quick:
        return [(make.BY_NAME[name], rows, threads) for name, rows, threads in QUICK if threads in able]
    return in_order(select(args.only), able)


def row_name(spec, rows, threads):
    return f"{spec.name}@{rows}, {counted(threads, 'thread')}"


def run(args, result):
    try:
        todo = chosen_rows(args, result)
    except ValueError as error:
        result.add_failure("--only", error)
        return
    for label, peer in PEERS.items():
        if missing_packages(peer):
            result.add_note(f"{label} is not measured: Python does not have {', '.join(missing_packages(peer))}")
    if args.blocks:
        result.add_note(f"--blocks: the module for any number of rows has blocks of {', '.join(map(str, args.blocks))} rows")
    if args.isa != "native":
        result.add_note(f"--isa {args.isa}: our code is made for {CPUS[args.isa]}; peers use what the CPU has, since they cannot be told otherwise")
    kept = kept_rows.KeptRows(
        os.path.join(args.root, "build", "bench", "classical", "rows"),
        kept_rows.circumstances(args, sorted({module for peer in PEERS.values() for module in peer.modules})),
    )
    print(HEAD, flush=True)
    missing = take_kept(kept, result, todo) if args.resume else todo
    if args.resume:
        print(f"  --resume: {len(todo) - len(missing)} of {len(todo)} rows were measured before", file=sys.stderr, flush=True)
    left = measure_all(args, result, missing, kept)
    if left:
        names = "; ".join(row_name(*row) for row in left)
        result.add_note(
            f"{len(left)} of {len(todo)} rows are missing, which were not begun within {counted(args.minutes, 'minute')}; --resume measures them: {names}"
        )
    print(LEGEND)
    result.summary = summarize([row for row in result.rows if not row["disturbed"]])
    result.save()
    for line in summary_lines(result.summary):
        print(line)
    result.print_versions()


def take_kept(kept, result, todo):
    """Adds the rows that were measured before. Returns the others."""
    missing = []
    for spec, rows, threads in todo:
        row = kept.take(spec.name, rows, threads, make.made_by(spec))
        if row is None:
            missing.append((spec, rows, threads))
            continue
        result.add_rows([row])
        print_row(row)
    return missing


def measure_all(args, result, todo, kept=None):
    """Adds the rows until the time is over, and puts those that nothing disturbed into `kept`. Returns those that it has not begun."""
    start = time.monotonic()
    end = start + args.minutes * 60 if args.minutes else float("inf")
    given_up, bench = set(), None
    try:
        for number, (spec, rows, threads) in enumerate(todo):
            if time.monotonic() >= end:
                return todo[number:]
            minutes = (time.monotonic() - start) / 60
            name = row_name(spec, rows, threads)
            print(f"  row {number + 1} of {len(todo)}, after {minutes:.1f} min: {name}", file=sys.stderr, flush=True)
            try:
                if bench is None or (bench.spec, bench.threads) != (spec, threads):
                    if bench is not None:
                        bench.close()
                    bench = None
                    bench = Classical(args, result, spec, threads, given_up, lambda: end - time.monotonic())
                row = bench.measure(rows)
            except (SideError, OSError, ValueError, subprocess.SubprocessError) as error:
                result.add_failure(name, error)
                if bench is not None:
                    bench.close()  # the next row of the model gets new processes
                bench = None
                continue
            result.add_rows([row])
            print_row(row)
            if kept is not None and not row["disturbed"]:
                kept.put(row, bench.about["made_by"])
    finally:
        if bench is not None:
            bench.close()
    return []
