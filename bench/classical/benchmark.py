"""Forests against the libraries that made them, ONNX Runtime and compilers of trees; and what choosing the form by estimate costs.

A row is a model, a number of rows in a call, and a number of threads. Every contender predicts the same table in turns, and its scores
are compared with those of the model's own library before timing.
"""

import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys

from bench.classical import models
from bench.common import report, turns
from bench.common.side import Side, SideError
from bench.common.tool import run_tool

ROWS = (1, 100, 10000)
TOLERANCE = 1e-5  # of a score, absolute for small ones and relative for large ones
OPEN_LIMIT_S = 600  # some peers compile the model first
GENERAL, COMPILED = "general", "compiled"
# Hummingbird's rule with what is built here: up to this depth the form that asks all nodes, as its matrix products do, then the one
# that walks down the trees. Its third form, walks through complete trees up to depth 10, is not built.
RULE_DEPTH, RULE_SHALLOW, RULE_DEEP = 3, "select", "walk"


@dataclasses.dataclass(frozen=True)
class Peer:
    runtime: str  # of side.py
    kind: str
    modules: tuple  # that Python has to find
    shapes: tuple = ("dense", "sparse")  # of the models that it reads
    onnx: bool = False  # reads the ONNX file instead of the library's own


PEERS = {
    "XGBoost": Peer("xgboost", GENERAL, ("xgboost",), shapes=("dense",)),
    "LightGBM": Peer("lightgbm", GENERAL, ("lightgbm",), shapes=("sparse",)),
    "ONNX Runtime": Peer("onnxruntime", GENERAL, ("onnxruntime",), onnx=True),
    "lleaves": Peer("lleaves", COMPILED, ("lleaves",), shapes=("sparse",)),
    "TL2cgen": Peer("tl2cgen", COMPILED, ("tl2cgen", "treelite")),
}


def missing_packages(peer):
    return [module for module in peer.modules if importlib.util.find_spec(module) is None]


def select(only):
    """The models and numbers of rows that --only asks for, as pairs: NAME, or NAME@ROWS. None: all. ValueError: there is no such
    model, or the table has too few rows."""
    if only is None:
        return [(spec, 1) for spec in models.CALLS] + [(spec, rows) for spec in models.MODELS for rows in ROWS]
    found = []
    for item in only:
        name, at, rows = item.partition("@")
        if name not in models.BY_NAME:
            raise ValueError(f"there is no model '{name}'; the models are {', '.join(models.BY_NAME)}")
        if at and not (rows.isdecimal() and 1 <= int(rows) <= models.TABLE_ROWS):
            raise ValueError(f"'{item}' is not a model and a number of rows from 1 to {models.TABLE_ROWS}, such as {name}@100")
        found += [(models.BY_NAME[name], r) for r in ([int(rows)] if at else ROWS)]
    return found


def form_of(made):
    """The forms of a module's forests as one word."""
    return "+".join(sorted(set(made["forests"].values()))) or "none"


def rule_form(depth):
    return RULE_SHALLOW if depth <= RULE_DEPTH else RULE_DEEP


def largest_error(found, expected):
    """In units of what TOLERANCE is: relative to the score, or absolute if the score is small."""
    import numpy as np  # the tests import this file without it

    if found.shape != expected.shape:
        raise SideError(f"the scores have shape {found.shape}, not {expected.shape}")
    error = np.max(np.abs(found.astype(np.float64) - expected) / np.maximum(np.abs(expected), 1))
    return float(error) if error == error else float("inf")


class Classical:
    """One model with `threads` threads: the processes of its contenders, until close()."""

    def __init__(self, args, result, spec, threads, given_up):
        """`given_up`: pairs of a peer and a model that failed before; it grows."""
        self.args, self.result, self.spec, self.threads, self.given_up = args, result, spec, threads, given_up
        self.cpus = report.cores_for(threads)
        self.work = os.path.join(args.root, "build", "bench", "classical")
        os.makedirs(self.work, exist_ok=True)
        self.about = json.loads(run_tool([sys.executable, "-m", "bench.classical.models", spec.name, self.work]))
        self.sides = {}

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

    def make_module(self, rows, form=None):
        """What heddle-bench-module tells, and the path of the module."""
        stem = "-".join([self.spec.name, str(rows), str(self.threads), form or "estimated"])
        module = self.path(f"{stem}.heddle")
        argv = [os.path.join(self.args.programs, "heddle-bench-module"), self.path(self.about["file"]), "-o", module]
        argv += ["--threads", str(self.threads), "--shape", f"rows={rows}"]
        argv += ["--forest-form", form] if form else []
        argv += ["--records", self.args.records] if self.args.records else []
        made = {**json.loads(run_tool(argv)), "path": module}
        for warning in made["warnings"]:
            print(f"  warning: {stem}: {warning}", file=sys.stderr, flush=True)
        self.result.versions["Heddle"] = f"{self.args.commit}, {made['target']}"
        return made

    def make_modules(self, rows):
        """form -> module; first the one whose forms are estimated, then those in which all forests have the same other form."""
        chosen = self.make_module(rows)
        made = {form_of(chosen): chosen}
        for form in chosen["forms"]:
            other = self.make_module(rows, form)
            made.setdefault(form_of(other), other)
        return made

    def open(self, label, runtime, model, rows):
        """The contender for turns.measure, and {"way", "max_error"}. SideError: it fails, or its scores differ."""
        import numpy as np

        scores = self.path(f"{self.spec.name}-scores.npy")
        request = {"model": model, "table": self.path("table.npy"), "rows": rows, "scores": scores}
        opened = self.side(label, runtime).ask("open", OPEN_LIMIT_S, **request)
        found = np.load(scores)
        error = largest_error(found, np.load(self.path(f"{self.spec.name}.npy"))[: len(found)])
        if error > TOLERANCE:
            raise SideError(f"{label}: scores differ from {self.own()}'s by {error:.1e}; {TOLERANCE:.0e} is allowed")
        return (self.side(label, runtime), {"id": opened["id"]}), {"way": opened["way"], "max_error": error}

    def own(self):
        return "XGBoost" if self.spec.shape == "dense" else "LightGBM"

    def open_peers(self, rows):
        """label -> what open() returns. A peer that fails is noted and not tried again with this model."""
        found = {}
        for label, peer in PEERS.items():
            if self.spec.shape not in peer.shapes or missing_packages(peer) or (label, self.spec.name) in self.given_up:
                continue
            try:
                if peer.onnx and self.about["onnx"]:
                    raise SideError(f"the model is not converted to ONNX: {self.about['onnx']}")
                model = f"{self.spec.name}.onnx" if peer.onnx else self.about["file"]
                found[label] = self.open(label, peer.runtime, self.path(model), rows)
                self.result.versions[label] = self.sides[label].ask("version")["version"]
            except SideError as error:
                if label in self.sides:
                    self.sides.pop(label).close()  # a compiler that it has started must not go on
                self.given_up.add((label, self.spec.name))
                self.result.add_note(f"{self.spec.name}: no figure of {label}: {error}")
        return found

    def measure(self, rows):
        ours = {form: (self.open("Heddle", "heddle", made["path"], rows)) for form, made in self.make_modules(rows).items()}
        peers = self.open_peers(rows)
        if not peers:
            raise SideError("no peer predicts it; bench/run.sh says which packages do not install")
        contenders = {label: contender for label, (contender, _) in {**ours, **peers}.items()}
        measured = turns.measure(contenders, self.args.rounds, self.cpus, settle=True)
        about = {label: told for label, (_, told) in {**ours, **peers}.items()}
        return make_row(self.spec, rows, self.threads, self.about, list(ours), about, measured)


def make_row(spec, rows, threads, model, forms, about, measured):
    """`forms`: ours, the estimated one first. `about`: label -> {"way", "max_error"}, of forms and peers."""
    times = measured.times
    us = {label: statistics.median(ns) * 1e-3 for label, ns in times.items()}
    chosen = forms[0]
    best_form = min(forms, key=us.get)
    rule = rule_form(model["depth"])
    peers = {
        label: {
            "us": us[label],
            "kind": PEERS[label].kind,
            **about[label],
            **turns.compare(times[chosen], times[label]),
            "rounds_us": [ns * 1e-3 for ns in times[label]],
        }
        for label in times
        if label not in forms
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
        "ours_us": us[chosen],
        "ours_rounds_us": [ns * 1e-3 for ns in times[chosen]],
        "max_error": about[chosen]["max_error"],
        "forms_us": {form: us[form] for form in forms},
        "best_form": best_form,
        "regret": us[chosen] / us[best_form] - 1,
        "rule_form": rule if rule in forms else chosen,
        "rule_regret": us[rule if rule in forms else chosen] / us[best_form] - 1,
        "peers": peers,
        "best": best,
    }


HEAD = (
    f"{'model@rows':<27}{'thr':>3}{'ours us':>11}  {'form':<8}{'best form':<10}{'general':<13}{'us':>11}{'ratio':>7}  "
    f"{'compiled':<9}{'us':>11}{'ratio':>7}  others: us (ratio)"
)


def print_row(row):
    line = f"{row['name']:<27}{row['threads']:>3}{row['ours_us']:>11.2f}  {row['form']:<8}"
    line += f"{row['best_form'] if row['regret'] > 0 else '':<10}"
    for kind, width in ((GENERAL, 13), (COMPILED, 9)):
        label = row["best"][kind]
        if label is None:
            line += f"{'-':<{width}}{'':>11}{'':>7}  "
        else:
            line += f"{label:<{width}}{row['peers'][label]['us']:>11.2f}{row['peers'][label]['ratio']:>7.2f}  "
    others = [f"{label} {peer['us']:.2f} ({peer['ratio']:.2f})" for label, peer in row["peers"].items() if label not in row["best"].values()]
    print(line + ", ".join(others), flush=True)


def mean_text(ratios, mean=statistics.geometric_mean, name="geometric mean"):
    """`ratios`: pairs of a ratio and a model."""
    least, model = min(ratios)
    return f"{name} {mean([ratio for ratio, _ in ratios]):.2f} of {len(ratios)}, lowest {model} {least:.2f}"


def counted(count, word):
    return f"{count} {word}" + ("" if count == 1 else "s")


def less_the_call(row, label, calls):
    """The ratio if the peer's call took no time beyond its trees; None if that was not measured. A call is what one tree takes."""
    call_us = calls.get((row["shape"], row["threads"], label))
    return None if call_us is None else max(row["peers"][label]["us"] - call_us, 0) / row["ours_us"]


def summary(rows):
    """What all rows together say, as lines. Models of one tree only tell what a call takes."""
    single = {spec.name for spec in models.CALLS}
    calls, lines = {}, []
    for row in rows:
        if row["model"] in single and row["rows"] == 1:
            calls |= {(row["shape"], row["threads"], label): peer["us"] for label, peer in row["peers"].items()}
            peers = "".join(f", {label} {peer['us']:.2f} us" for label, peer in row["peers"].items())
            lines.append(f"a call with one row and one tree, {row['shape']}, {counted(row['threads'], 'thread')}: Heddle {row['ours_us']:.2f} us{peers}")
    rows = [row for row in rows if row["model"] not in single]
    for count, threads in sorted({(row["rows"], row["threads"]) for row in rows}):
        group = [row for row in rows if (row["rows"], row["threads"]) == (count, threads)]
        title = f"{counted(count, 'row')}, {counted(threads, 'thread')}"
        for kind in (GENERAL, COMPILED):
            best = [(row, row["best"][kind]) for row in group if row["best"][kind]]
            if best:
                lines.append(f"{title}: best {kind}: {mean_text([(row['peers'][label]['ratio'], row['model']) for row, label in best])}")
            less = [(less_the_call(row, label, calls), row["model"]) for row, label in best] if count == 1 else []
            less = [pair for pair in less if pair[0] is not None]
            if less:
                lines.append(f"{title}: best {kind}, less what its call takes with one tree: {mean_text(less, statistics.median, 'median')}")
        for label in PEERS:
            found = [(row["peers"][label]["ratio"], row["model"]) for row in group if label in row["peers"]]
            if found:
                lines.append(f"{title}: {label}: {mean_text(found)}")
        lines.append(f"{title}: form by estimate: {regret_text(group, 'regret')}; by Hummingbird's rule: {regret_text(group, 'rule_regret')}")
    return lines


def regret_text(group, key):
    most = max(group, key=lambda row: row[key])
    mean = statistics.fmean(row[key] for row in group)
    return f"{100 * mean:.1f} % slower than the best form on average, at most {100 * most[key]:.1f} % ({most['model']})"


LEGEND = (
    "ratio: theirs / ours, above 1: Heddle is faster; best form: where another form than the estimated one was faster; Hummingbird's"
    f" rule with what is built here: {RULE_SHALLOW} up to depth {RULE_DEPTH}, else {RULE_DEEP}"
)


def run(args, result):
    try:
        chosen = select(args.only)
    except ValueError as error:
        result.add_failure("--only", error)
        return
    for label, peer in PEERS.items():
        if missing_packages(peer):
            result.add_note(f"{label} is not measured: Python does not have {', '.join(missing_packages(peer))}")
    given_up = set()
    print(HEAD, flush=True)
    for threads in args.threads:
        if report.cores_for(threads) is None:
            result.add_failure(f"{threads} threads", f"only {len(os.sched_getaffinity(0))} cores are allowed")
            continue
        for spec in dict.fromkeys(spec for spec, _ in chosen):
            measure(args, result, spec, [rows for other, rows in chosen if other == spec], threads, given_up)
    print(LEGEND)
    for line in summary([row for row in result.rows if not row["disturbed"]]):
        print(line)
    result.print_versions()


def measure(args, result, spec, counts, threads, given_up):
    """Adds the rows of one model, for each number of rows in a call."""
    try:
        bench = Classical(args, result, spec, threads, given_up)
    except SideError as error:
        result.add_failure(f"{spec.name}, {threads} threads", error)
        return
    try:
        for rows in counts:
            try:
                row = bench.measure(rows)
            except (SideError, OSError, ValueError, subprocess.SubprocessError) as error:
                result.add_failure(f"{spec.name}@{rows}, {threads} threads", error)
                continue
            result.add_rows([row])
            print_row(row)
    finally:
        bench.close()
