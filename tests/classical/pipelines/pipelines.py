#!/usr/bin/env python3
"""Takes models and pipelines of scikit-learn, XGBoost and LightGBM to modules and runs these, as users do, and compares what they say of
rows with what the libraries say: labels have to be equal, and scores equal within 1e-5 (relative above 1).

Usage: pipelines.py BIN_DIR [--all] [--only WORDS] [--tune]
  BIN_DIR   has heddle and heddle-compile-default
  --all     all cases instead of the dozen that ctest runs
  --only    the cases whose name contains this
  --tune    make modules by heddle tune, with one candidate for each kernel, instead of heddle-compile-default, which is quicker

A model that we refuse has to be refused with the words that its case expects. Where a case says that the converter to ONNX is wrong, ONNX
Runtime has to make of the file what we make of it. Prints a line for each case, and then the sums, with each case that is not right and
why. The exit status is 1 if a model was wrong, refused without being expected to, or not refused as expected. Needs the packages of
bench/classical/requirements.txt: run.sh makes their environment.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import exported
import made
import own_files
import scikit

LIMIT_S = 300  # of a command
BLOCK = 32  # rows that a module computes at once: fewer than are predicted, and no divisor of them


class Wrong(Exception):
    """What we make of a model is not what its library makes of it."""


class Refused(Exception):
    """The message with which we refuse a model."""


def run(*argv):
    """The standard error of a command. Refused if it fails."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode < 0 or done.returncode > 100:
        raise Wrong(f"{pathlib.Path(argv[0]).name} ends with {done.returncode}: {done.stderr.strip()[-200:]}")
    if done.returncode != 0:
        raise Refused((done.stderr.strip().splitlines() or ["no message"])[-1])
    return done.stderr


def compile_model(tools, path, tune, shapes):
    """The path of a module of the model in the file `path`."""
    module = path.with_suffix(".heddle")
    command = [tools / "heddle-compile-default", path, "-o", module]
    if tune:
        service = ("--data", path.parent / "data", "--server", "127.0.0.1:9")  # nobody listens there, so it starts one of its own
        command = [tools / "heddle", "tune", path, "-o", module, "--trials", 1, "--batch", 1, "--no-compare", "--plan", "off", *service]
    run(*command, *(word for shape in shapes for word in ("--shape", shape)))
    return module


def write_inputs(model, folder):
    """The arguments that give a module its inputs."""
    if model.csv:
        path = folder / "rows.csv"
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            # The columns of an input that has several have no names, and so they have no header.
            if all(array.shape[1] == 1 for array in model.inputs.values()):
                writer.writerow(model.inputs)
            for row in np.concatenate([array.astype(object) for array in model.inputs.values()], 1):
                writer.writerow(cell if isinstance(cell, str) else repr(float(cell)) for cell in row)
        return ["--input", path]
    words = []
    for name, array in model.inputs.items():
        path = folder / f"input-{name}.npy"
        np.save(path, array)
        words += ["--input", f"{name}={path}"]
    return words


def outputs_of(tools, module, model, folder):
    """What the module says of the rows: its outputs in their order."""
    results = folder / "results"
    results.mkdir(exist_ok=True)
    told = run(tools / "heddle", "run", module, *write_inputs(model, folder), "-o", results)
    paths = re.findall(r"^(.*\.npy): \w+\[", told, re.MULTILINE)
    return [np.load(path) for path in paths]


def by_onnx_runtime(model):
    """The same of ONNX Runtime."""
    import onnxruntime

    found = onnxruntime.InferenceSession(model.model, providers=["CPUExecutionProvider"]).run(None, model.inputs)
    found = [np.asarray(array) for array in found]
    return [np.searchsorted(model.classes, array) if array.dtype.kind in "OSU" else array for array in found]


def check_names(tools, module, classes):
    """The module has the names of the classes, which its labels are the places of."""
    done = subprocess.run([tools / "heddle", "inspect", module, "--json"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    labels = [output["labels"] for output in json.loads(done.stdout)["outputs"] if "labels" in output]
    if classes not in labels:
        raise Wrong(f"labels mean {labels}, not {classes}")


def disagreement(found, labels, scores, tolerance):
    """How outputs differ from labels and scores, or nothing. Where a library scores the second of two classes alone, the first one has
    to have the rest, or the opposite."""
    integers = [array for array in found if array.dtype.kind in "iu"]
    floats = [array for array in found if array.dtype.kind == "f"]
    if labels is not None:
        if not integers:
            return "no output of labels"
        differ = np.sum(integers[0].reshape(-1) != labels.reshape(-1))
        if differ:
            return f"{differ} of {labels.size} labels differ"
    if scores is None:
        return None
    if not floats:
        return "no output of scores"
    expected = scores.reshape(len(scores), -1).astype(np.float64)
    score = np.concatenate([array.reshape(len(array), -1) for array in floats], 1).astype(np.float64)
    if expected.shape[1] == 1 and score.shape[1] == 2:
        rest = np.minimum(np.abs(score[:, 0] + score[:, 1]), np.abs(score[:, 0] + score[:, 1] - 1))
        if np.max(rest) > tolerance * max(1, np.max(np.abs(score))):
            return "the two classes do not score the opposite of each other"
        score = score[:, 1:]
    if score.shape != expected.shape:
        return f"scores are {score.shape}, not {expected.shape}"
    if not np.array_equal(np.isnan(score), np.isnan(expected)):
        return "scores are NaN elsewhere"
    apart = np.nanmax(np.abs(score - expected) / np.maximum(1, np.abs(expected)))
    return f"scores differ by {apart:.2g}" if apart > tolerance else None


def check(tools, case, model, tune):
    """A word and what there is to say of a case. Wrong or Refused as the names say."""
    with tempfile.TemporaryDirectory(prefix="heddle-pipelines-") as name:
        folder = pathlib.Path(name)
        path = folder / f"model{model.suffix}"
        path.write_bytes(model.model)
        try:
            module = compile_model(tools, path, tune, [f"rows={BLOCK}"])
            found = outputs_of(tools, module, model, folder)
            if case.whole:
                raise Wrong(f"takes any number of rows, and is not refused with '{case.whole}'")
        except Refused as refused:
            if not case.whole or case.whole not in str(refused):
                raise
            shapes = [f"{name}={'x'.join(map(str, array.shape))}" for name, array in model.inputs.items()]
            module = compile_model(tools, path, tune, shapes)
            found = outputs_of(tools, module, model, folder)
        if model.classes:
            check_names(tools, module, model.classes)
    wrong = disagreement(found, model.labels, model.scores, case.tolerance)
    if not case.exporter:
        if wrong:
            raise Wrong(wrong)
        return "right", ""
    if not wrong:
        raise Wrong(f"agrees with the library, but is expected not to: {case.exporter}")
    others = by_onnx_runtime(model)
    floats = [array for array in others if array.dtype.kind == "f"]
    unlike = disagreement(found, next((array for array in others if array.dtype.kind == "i"), None), np.concatenate(floats, 1), case.tolerance)
    if unlike:
        raise Wrong(f"{wrong}, and from ONNX Runtime: {unlike}")
    return "as the file says", f"{case.exporter} (to the library: {wrong})"


def judge(tools, case, tune):
    """A word and what there is to say of a case."""
    try:
        model = case.make()
    except Exception as error:  # converters raise all kinds of errors
        return "not written", f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
    try:
        word, said = check(tools, case, model, tune)
        return ("wrong", f"is not refused with '{case.refused}'") if case.refused else (word, said)
    except Refused as refused:
        expected = case.refused and case.refused in str(refused)
        return ("refused" if expected else "refused unexpectedly"), str(refused)
    except Wrong as wrong:
        return "wrong", str(wrong)
    except subprocess.TimeoutExpired:
        return "wrong", f"took longer than {LIMIT_S} s"


GOOD = ("right", "as the file says", "refused")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tools", type=pathlib.Path, metavar="BIN_DIR")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    cases = [*own_files.cases, *exported.cases, *scikit.cases]
    names = [case.name for case in cases]
    if len(set(names)) != len(names):
        sys.exit("two cases have one name")
    begun, results = time.monotonic(), []
    for case in cases:
        if options.only not in case.name or not (options.all or options.only or case.quick):
            continue
        word, said = judge(options.tools.resolve(), case, options.tune)
        results.append((word, case.name, said))
        print(f"{word:<20} {case.name}{': ' if said else ''}{said}", flush=True)
    count = lambda word: sum(found == word for found, _, _ in results)
    bad = len(results) - sum(map(count, GOOD))
    print(f"\npipelines: {len(results)} of {len(cases)} cases in {time.monotonic() - begun:.0f} s, {made.ROWS} rows each")
    for word in (*GOOD, "wrong", "refused unexpectedly", "not written"):
        print(f"{count(word):>5} {word}")
        for found, name, said in results:
            if found == word != "right":
                print(f"      - {name}: {said}")
    if not results:
        print("no case was run")
    return 1 if bad or not results else 0


if __name__ == "__main__":
    sys.exit(main())
