#!/usr/bin/env python3
"""Counts the tests of the ONNX standard itself: passed, refused or wrong here, and what ONNX Runtime makes of them. Not part of
ctest, since it needs packages from PyPI:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install onnx onnxruntime numpy
    ninja -C build/release operator-report
    /tmp/venv/bin/python tests/onnx/standard_cases.py DIR
    /tmp/venv/bin/python tests/onnx/standard_cases.py --only ai_onnx_ml DIR     # the operators of classical models

Writes every test of the installed package `onnx` that has data into DIR, one folder each, unless DIR exists already. Then runs
operator-report, which prints the figures per opset, and ONNX Runtime on the same cases. Last, it lists what ONNX Runtime passes
on a CPU and Heddle refuses, apart from strings, sequences, optionals and the training domains. The exit status is 1 if anything
is wrong, and with --strict also if anything is refused, or there is no case.
"""
import argparse
import collections
import glob
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.backend.test import loader

HERE = os.path.dirname(os.path.abspath(__file__))
REPORT = os.path.join(HERE, "../../build/release/bin/operator-report")


# ---- The cases as folders ----


def to_proto(value, info):
    if isinstance(value, onnx.TensorProto):
        return value
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name)
    if kind == "map_type":
        return numpy_helper.from_dict(value, info.name)
    return numpy_helper.from_array(np.asarray(value), info.name)


def write_cases(folder, only):
    for case in loader.load_node_model_tests():
        if only not in case.name:
            continue
        path = os.path.join(folder, "node", case.name)
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "model.onnx"), "wb") as file:
            file.write(case.model.SerializeToString())
        for number, values in enumerate(case.data_sets):
            data = os.path.join(path, f"test_data_set_{number}")
            os.makedirs(data, exist_ok=True)
            for kind, infos, tensors in zip(("input", "output"), (case.model.graph.input, case.model.graph.output), values):
                for i, (value, info) in enumerate(zip(tensors, infos)):
                    with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as file:
                        file.write(to_proto(value, info).SerializeToString())
    for model in glob.glob(os.path.join(loader.DATA_DIR, "*", "*", "model.onnx")):
        source = os.path.dirname(model)
        if only not in os.path.basename(source):
            continue
        shutil.copytree(source, os.path.join(folder, *source.split(os.sep)[-2:]), dirs_exist_ok=True)


# ---- ONNX Runtime ----


def read(path, info):
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        raise NotImplementedError(kind)
    tensor = onnx.TensorProto()
    with open(path, "rb") as file:
        tensor.ParseFromString(file.read())
    return numpy_helper.to_array(tensor)


def plain(array):
    return array.astype(np.float64) if array.dtype.kind not in "biufc" else array


def runtime_passes(path):
    """Whether ONNX Runtime computes what the case expects. Raises what ONNX Runtime raises."""
    model = onnx.load(os.path.join(path, "model.onnx"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for data in glob.glob(os.path.join(path, "test_data_set_*")):
        inputs = {}
        for i, info in enumerate(model.graph.input):
            file = os.path.join(data, f"input_{i}.pb")
            if os.path.exists(file):
                inputs[info.name] = read(file, info)
        results = session.run(None, inputs)
        for i, (result, info) in enumerate(zip(results, model.graph.output)):
            expected, result = plain(read(os.path.join(data, f"output_{i}.pb"), info)), plain(np.asarray(result))
            if expected.shape != result.shape:
                return False
            if expected.dtype.kind in "OSU":
                if not np.array_equal(expected, result):
                    return False
            elif not np.allclose(result.astype(np.complex128), expected.astype(np.complex128), rtol=1e-2, atol=1e-3, equal_nan=True):
                return False
    return True


def out_of_scope(path):
    """The reason why a case is none of ours, or nothing."""
    model = onnx.load(os.path.join(path, "model.onnx"))
    for node in model.graph.node:
        if "training" in node.domain:
            return "training"
        if node.op_type.startswith(("Sequence", "Optional", "String", "Regex", "TfIdf")) or node.op_type in (
                "ConcatFromSequence", "SplitToSequence", "StringNormalizer", "ImageDecoder"):
            return "strings, sequences and optionals"
    for info in list(model.graph.input) + list(model.graph.output):
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type" or info.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            return "strings, sequences and optionals"
        if info.type.tensor_type.elem_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
            return "complex numbers"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--only", default="", help="write the tests whose name contains this")
    parser.add_argument("--report", default=REPORT)
    parser.add_argument("--verbose", action="store_true", help="a line for every case that did not pass here")
    parser.add_argument("--strict", action="store_true", help="a case that is refused is wrong, too")
    args = parser.parse_args()
    if not os.path.exists(args.folder):
        write_cases(args.folder, args.only)
    ours = subprocess.run([args.report, "--verbose", args.folder], capture_output=True, text=True)
    refused, printed = {}, []
    for line in ours.stdout.splitlines():
        found = re.match(r"(WRONG|refused|skipped) ([^:]+): (.*)", line)
        if not found or args.verbose or found[1] == "WRONG":
            printed.append(line)
        if found and found[1] == "refused":
            refused[found[2]] = found[3]
    print("\n".join(printed) + ours.stderr)
    tally, missing, reasons = collections.Counter(), [], collections.Counter()
    for model in sorted(glob.glob(os.path.join(args.folder, "*", "*", "model.onnx"))):
        path = os.path.dirname(model)
        name = os.path.basename(path)
        if name not in refused:
            continue
        scope = out_of_scope(path)
        if scope:
            tally[f"refused, out of scope: {scope}"] += 1
            continue
        try:
            passes = runtime_passes(path)
        except Exception:
            passes = False
        tally["refused here, passed by ONNX Runtime" if passes else "refused here, not passed by ONNX Runtime either"] += 1
        if passes:
            missing.append(name)
            reasons[re.sub(r"'[^']*'", "'..'", re.sub(r" \(node '[^)]*\)", "", refused[name]))[:120]] += 1
    print()
    for what, count in tally.most_common():
        print(f"{count:5d}  {what}")
    print("\nONNX Runtime passes these, Heddle refuses them:")
    for what, count in reasons.most_common():
        print(f"{count:5d}  {what}")
    if args.verbose:
        print("\n".join(missing))
    if args.strict and (refused or not glob.glob(os.path.join(args.folder, "*", "*", "model.onnx"))):
        return 1
    return ours.returncode


sys.exit(main())
