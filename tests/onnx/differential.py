#!/usr/bin/env python3
"""Compares heddle with ONNX Runtime on random models. Not part of ctest, since it needs packages from PyPI:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install onnx onnxruntime numpy
    ninja -C build/release onnx-model-server
    /tmp/venv/bin/python tests/onnx/differential.py --count 3000        # models of one operator
    /tmp/venv/bin/python tests/onnx/differential.py --graphs 500        # graphs of 5 to 30 operators

Prints how many models agreed, were refused (by reason), were wrong, and were refused by ONNX Runtime. Each wrong one comes
with the seed that replays it (--replay SEED) and with what the standard's reference implementation says, where it can. Every
model is interpreted; each N-th one (--compile N) is compiled, too. The exit status is 1 if anything was wrong.

DIFFERENCES below lists by name where ONNX Runtime is not what the standard says, or where the standard leaves a case open.
"""
import argparse
import collections
import os
import re
import select
import struct
import subprocess
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

import differential_microsoft
import differential_models as models

SILENCE_S = 60  # a model takes well under a second
HERE = os.path.dirname(os.path.abspath(__file__))
SERVER = os.path.join(HERE, "../../build/release/bin/onnx-model-server")

# What explains a disagreement that is not ours: (name, test on a Case and its difference). The order of the list is the
# order of the checks.
DIFFERENCES = []


def difference(name):
    """Declares a known difference: a function of the case that tells whether it applies."""

    def add(applies):
        DIFFERENCES.append((name, applies))
        return applies

    return add


def has(case, test):
    return any(v.dtype.kind == "f" and bool(np.any(test(v))) for v in case.values().values())


def op_of(case):
    return case.nodes[0].op_type


@difference("a NaN in a maximum or minimum over many elements: ignored here, ONNX Runtime's result depends on its place")
def _(case, found):
    return op_of(case) in ("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "Hardmax") and has(case, np.isnan)


@difference("infinity becomes the largest number in ONNX Runtime where Clip has no bound, and where MaxPool begins with the lowest")
def _(case, found):
    e = np.asarray(case.expected[0])
    return op_of(case) in ("Clip", "MaxPool") and e.dtype.kind == "f" and disagreement(
        [np.clip(v, -np.finfo(np.float32).max, np.finfo(np.float32).max) for v in found[:1]],
        [np.clip(e, -np.finfo(np.float32).max, np.finfo(np.float32).max)]) is None


@difference("auto_pad SAME with strides beyond the kernel: ONNX Runtime crops the input where nothing needs padding")
def _(case, found):
    kernel = case.attribute("kernel_shape")
    return str(case.attribute("auto_pad")).startswith("SAME") and kernel is not None and any(
        s > k for s, k in zip(case.attribute("strides", [1] * len(kernel)), kernel))


@difference("ReduceLogSumExp of NaN is NaN by the standard's function body, ONNX Runtime drops NaNs")
def _(case, found):
    return op_of(case) == "ReduceLogSumExp" and has(case, np.isnan)


@difference("Mod of doubles with a large quotient: the remainder is off by up to the spacing of the dividend here")
def _(case, found):
    x, y = (case.values()[i] for i in case.nodes[0].input[:2]) if op_of(case) == "Mod" else (None, None)
    return x is not None and x.dtype == np.float64 and bool(np.all(
        (np.abs(found[0] - case.expected[0]) <= 4 * np.spacing(np.abs(x + 0 * y))) | ~np.isfinite(x + 0 * y)))


@difference("Mod of floats with a quotient beyond 2^145, which is not reduced")
def _(case, found):
    x, y = (case.values()[i].astype(np.float64) for i in case.nodes[0].input[:2]) if op_of(case) == "Mod" else (None, None)
    return x is not None and bool(np.all(np.isclose(found[0], case.expected[0], equal_nan=True) | ~(np.abs(x / y) < 2.0**145)))


@difference("tf_crop_and_resize: ONNX Runtime ignores the region along dimensions of scale 1")
def _(case, found):
    return op_of(case) == "Resize" and case.attribute("coordinate_transformation_mode") == "tf_crop_and_resize" and any(
        a == b for a, b in zip(found[0].shape[-2:], case.values()[case.nodes[0].input[0]].shape[-2:]))


@difference("Resize and Upsample by a scale that leaves a size unchanged: ONNX Runtime copies")
def _(case, found):
    return op_of(case) in ("Resize", "Upsample") and any(
        a == b for a, b in zip(found[0].shape[-2:], case.values()[case.nodes[0].input[0]].shape[-2:]))


@difference("the reference implementation pads pools with NaN, and so ignores NaNs of the input")
def _(case, found):
    return case.session is None and op_of(case) in ("AveragePool", "LpPool", "MaxPool") and has(case, np.isnan)


@difference("LRN of the reference implementation leaves out channels beyond the size of the batch")
def _(case, found):
    return case.session is None and op_of(case) == "LRN"


@difference("AveragePool of the reference implementation puts half of the padding for a rounded-up window in front")
def _(case, found):
    return case.session is None and op_of(case) in ("AveragePool", "LpPool") and case.attribute("ceil_mode", 0) == 1


@difference("PRelu of the reference implementation multiplies the slope by zero where it has no effect, which gives NaN for infinity")
def _(case, found):
    return case.session is None and op_of(case) == "PRelu" and has(case, np.isinf)


@difference("a weight of NaN or infinity on the padding: zero times it is left out in compiled code (runtime/numerics.h)")
def _(case, found):
    padded = any(case.attribute("pads", [0])) or str(case.attribute("auto_pad")).startswith("SAME")
    return op_of(case) == "Conv" and padded and not np.all(np.isfinite(case.values()[case.nodes[0].input[1]])) and bool(
        np.all((found[0] == case.expected[0]) | ~np.isfinite(case.expected[0]) | (np.abs(found[0] - case.expected[0]) < 1e-3)))


@difference("Conv in groups: compiled code may merge small groups, and a zero between them times NaN or infinity is NaN (runtime/numerics.h)")
def _(case, found):
    return op_of(case) == "Conv" and case.attribute("group", 1) > 1 and has(case, lambda v: ~np.isfinite(v)) and bool(
        np.all((found[0] == case.expected[0]) | np.isnan(found[0]) | (np.abs(found[0] - case.expected[0]) < 1e-3) |
               (any(case.attribute("pads", [0])) & ~np.isfinite(case.expected[0]))))  # as above


@difference("Resize of opset 10 to nearest: onnx.version_converter says asymmetric and floor, ONNX Runtime rounds up where it shrinks")
def _(case, found):
    return op_of(case) == "Resize" and case.opset == 10 and case.attribute("mode", "nearest") == "nearest" and bool(
        np.any(case.values()[case.nodes[0].input[1]] < 1))


@difference("a power that no integer holds: saturated here, undefined in C++")
def _(case, found):
    return op_of(case) == "Pow" and case.expected[0].dtype.kind in "iu" and bool(np.all(
        (found[0] == case.expected[0]) | (np.abs(found[0].astype(np.float64)) >= 2.0**31 - 1)))


@difference("ReduceLogSumExp of integers: ONNX Runtime truncates each exponential, here the result is truncated")
def _(case, found):
    return op_of(case) == "ReduceLogSumExp" and case.expected[0].dtype.kind in "iu" and bool(
        np.all(np.abs(found[0].astype(np.int64) - case.expected[0]) < 8))


@difference("a product of integers that overflows: it wraps here and in the reference, ONNX Runtime saturates some")
def _(case, found):
    return op_of(case) == "ReduceProd" and case.expected[0].dtype.kind == "i"


@difference("LRN in ONNX Runtime keeps a running sum, through which NaN, infinities and cancellation spread")
def _(case, found):
    return op_of(case) == "LRN" and has(case, lambda v: ~(np.abs(v) < 1e4))


@difference("Gelu of doubles with tanh: the constants of ONNX Runtime's formula are floats")
def _(case, found):
    return op_of(case) == "Gelu" and case.attribute("approximate") in ("tanh", b"tanh") and found[0].dtype == np.float64 and np.allclose(
        found[0], case.expected[0], rtol=1e-5, atol=1e-7, equal_nan=True)


@difference("Softplus in a cell overflows in ONNX Runtime from 89 on")
def _(case, found):
    functions = [f if isinstance(f, str) else f.decode() for f in case.attribute("activations", None) or []]
    return op_of(case) in ("RNN", "GRU", "LSTM") and "Softplus" in functions and any(
        not np.all(np.isfinite(e)) for e in case.expected)


@difference("the mask of Dropout before opset 12: nothing is dropped, but ONNX Runtime says False")
def _(case, found):
    return op_of(case) == "Dropout" and case.opset < 12 and disagreement(found[:1], case.expected[:1]) is None


@difference("Shrink and windows of doubles are computed in single precision by ONNX Runtime, and the 1/6 of HardSwish is")
def _(case, found):
    return op_of(case) in ("Shrink", "HardSwish", "HannWindow", "HammingWindow", "BlackmanWindow") and case.expected[0].dtype == np.float64 and (
        disagreement([f.astype(np.float32) for f in found], [e.astype(np.float32) for e in case.expected]) is None)


@difference("MeanVarianceNormalization of a variance of zero is 0 by the standard's function body, NaN in ONNX Runtime")
def _(case, found):
    return op_of(case) == "MeanVarianceNormalization" and np.all((found[0] == 0) | (np.abs(found[0] - case.expected[0]) < 1e-3))


@difference("Resize with align_corners, pytorch_half_pixel or a region by scales: ONNX Runtime divides by the rounded length, the standard by scale * length")
def _(case, found):
    scales = case.constants.get(case.nodes[0].input[2]) if op_of(case) == "Resize" and len(case.nodes[0].input) > 2 else None
    return scales is not None and case.attribute("coordinate_transformation_mode") in ("align_corners", "tf_crop_and_resize", "pytorch_half_pixel") and scales.size > 0 and bool(
        np.any(np.abs(scales * case.values()[case.nodes[0].input[0]].shape % 1) > 1e-6))


@difference("ConvTranspose with auto_pad SAME and strides beyond the kernel: the standard's output is input * stride")
def _(case, found):
    x = case.values()[case.nodes[0].input[0]]
    return op_of(case) == "ConvTranspose" and str(case.attribute("auto_pad")).startswith("SAME") and found[0].shape[2:] == tuple(
        e * s for e, s in zip(x.shape[2:], case.attribute("strides", [1] * (x.ndim - 2))))


@difference("LogSoftmax of NaN or infinity is NaN here, as Softmax is; ONNX Runtime gives numbers")
def _(case, found):
    return op_of(case) in ("LogSoftmax", "SoftmaxCrossEntropyLoss") and has(case, lambda v: ~np.isfinite(v)) and (
        bool(np.all(np.isnan(found[-1]) | (np.abs(found[-1] - case.expected[-1]) < 1e-3) | (found[-1] == case.expected[-1]))))


@difference("GroupNormalization of doubles: the first stage is in single precision by default, but always in double here")
def _(case, found):
    return op_of(case) == "GroupNormalization" and found[0].dtype == np.float64 and case.attribute("stash_type", 1) == 1 and disagreement(
        [found[0].astype(np.float32)], [case.expected[0].astype(np.float32)]) is None


@difference("Einsum of three or more operands: the order of the products is open, and decides between infinity and NaN")
def _(case, found):
    return op_of(case) == "Einsum" and len(case.nodes[0].input) > 2 and has(case, np.isinf) and bool(
        np.all(np.isnan(found[0]) | np.isclose(found[0], case.expected[0], 1e-4, 1e-4)))


@difference("pools with dilations and auto_pad SAME: ONNX Runtime and the reference pad for a window without dilations, but agree if given the pads")
def _(case, found):
    node, opset = case.nodes[0], case.opset
    same, dilations = case.attribute("auto_pad", ""), case.attribute("dilations", [1])
    if op_of(case) not in ("AveragePool", "LpPool", "MaxPool") or not same.startswith("SAME") or max(dilations) == 1:
        return False
    shape, kernel = case.values()[node.input[0]].shape[2:], case.attribute("kernel_shape")
    totals = [max(0, (-(-e // s) - 1) * s + (k - 1) * d + 1 - e)
              for e, s, k, d in zip(shape, case.attribute("strides", [1] * len(kernel)), kernel, dilations)]
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    padded = onnx.NodeProto()
    padded.CopyFrom(node)
    del padded.attribute[:]
    padded.attribute.extend(a for a in node.attribute if a.name != "auto_pad")
    padded.attribute.append(onnx.helper.make_attribute("pads", small + large if same == "SAME_UPPER" else large + small))
    explicit = Case([padded], case.inputs, case.constants, case.outputs, opset)
    explicit.run()
    return disagreement(found, explicit.expected, explicit.slack(), 1 if explicit.session else 1e4) is None


@difference("a product beyond the largest number: infinity in ONNX Runtime, exact within a multiply-add of compiled code")
def _(case, found):
    if op_of(case) != "NegativeLogLikelihoodLoss" or len(case.nodes[0].input) < 3 or np.any(np.isfinite(case.expected[0])):
        return False
    x, w = (np.abs(case.values()[case.nodes[0].input[k]].astype(np.float64)) for k in (0, 2))
    return np.max(x[np.isfinite(x)], initial=0) * np.max(w[np.isfinite(w)], initial=0) > np.finfo(np.float32).max


@difference("LayerNormalization of infinity: its mean is infinite by the standard's function body, NaN in ONNX Runtime")
def _(case, found):
    return op_of(case) == "LayerNormalization" and has(case, np.isinf) and all(
        np.all((f == e) | np.isnan(e) | (np.abs(f - e) <= 1e-4 * (1 + np.abs(e)))) for f, e in zip(found, case.expected))


@difference("AveragePool of a window that lies in the padding: 0 / 0 by the standard, 0 in ONNX Runtime")
def _(case, found):
    return op_of(case) == "AveragePool" and case.attribute("count_include_pad", 0) == 0 and bool(
        np.all(np.isclose(found[0], case.expected[0], 1e-4, 1e-4, equal_nan=True) | (np.isnan(found[0]) & (case.expected[0] == 0))))


@difference("Cast of floats beyond the range of the integer type: saturated here, undefined by the standard")
def _(case, found):
    x, e = case.values()[case.nodes[0].input[0]], case.expected[0]
    if op_of(case) not in ("Cast", "CastLike") or x.dtype.kind != "f" or e.dtype.kind not in "iu":
        return False
    return bool(np.all((found[0] == e) | ~((x > np.iinfo(e.dtype).min - 1.0) & (x < np.iinfo(e.dtype).max + 1.0))))


@difference("Attention before opset 25: ONNX Runtime ignores is_causal for one query with a past, and gives out masked scores as the lowest number; "
            "the reference agrees with us")
def _(case, found):
    past, outputs = case.nodes[0].input[4:5], case.nodes[0].output
    if op_of(case) != "Attention" or case.opset > 24 or not (case.attribute("is_causal", 0) and past and past[0] or len(outputs) > 3):
        return False
    return disagreement(found, [np.asarray(e) for e in case.by_reference()][:len(found)], loose=10) is None


@difference("QLinearAveragePool with ceil_mode and count_include_pad: ONNX Runtime divides by the part of a window beyond the padding, too")
def _(case, found):
    return op_of(case) == "QLinearAveragePool" and case.attribute("ceil_mode", 0) == 1 and case.attribute("count_include_pad", 0) == 1


# ---- The two sides ----


class Server:
    """onnx-model-server, which is started again after a crash."""

    def __init__(self, path):
        self.path, self.process = path, None

    def run(self, verb, model, inputs, limit_s=SILENCE_S):
        """(status, message, arrays). A crash or a silence of limit_s has the status CRASH."""
        if self.process is None:
            self.process = subprocess.Popen([self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        parts = [verb.encode(), model]
        for name, array in inputs.items():
            if array.dtype.kind in "OU":  # strings as bytes, as many for each
                array = np.char.encode(array.astype(str))
            parts += [name.encode(), np.ascontiguousarray(array).tobytes()]
        request = struct.pack("<I", len(parts)) + b"".join(struct.pack("<Q", len(p)) + p for p in parts)
        try:
            self.process.stdin.write(request)
            self.process.stdin.flush()
            self.limit_s = limit_s
            answer = self.read()
        except (BrokenPipeError, EOFError, TimeoutError) as error:
            self.process.kill()
            status = self.process.wait()
            self.process = None
            return "CRASH", f"{type(error).__name__}, exit status {status}", []
        arrays = []
        for text, data in zip(answer[2::2], answer[3::2]):
            kind, dims = re.fullmatch(r"(\w+)\[(.*)\]", text.decode()).groups()
            dtype = {"f32": "f4", "f64": "f8", "bool": "?"}.get(kind) or kind[0] + str(int(kind[1:]) // 8)
            arrays.append(np.frombuffer(data, dtype).reshape([int(d) for d in dims.split(",") if d]))
        return answer[0].decode(), answer[1].decode(errors="replace"), arrays

    def read(self):
        (count,) = struct.unpack("<I", self.bytes(4))
        return [self.bytes(struct.unpack("<Q", self.bytes(8))[0]) for _ in range(count)]

    def bytes(self, size):
        out = b""
        while len(out) < size:
            if not select.select([self.process.stdout], [], [], self.limit_s)[0]:
                raise TimeoutError
            part = os.read(self.process.stdout.fileno(), size - len(out))
            if not part:
                raise EOFError
            out += part
        return out


def session(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def by_runtime(model, inputs):
    return session(model).run(None, inputs)


# ---- One case ----


class Case:
    """A model with inputs, and what ONNX Runtime computes for it."""

    def __init__(self, nodes, inputs, constants, outputs, opset):
        self.nodes, self.inputs, self.constants, self.outputs, self.opset = nodes, inputs, constants, outputs, opset
        self.expected = None

    def run(self):
        """Computes the expected results. Raises what ONNX Runtime raises."""
        plain = models.model_of(self.nodes, self.inputs, self.constants, self.outputs, self.opset)
        self.plain = plain.SerializeToString()
        self.session = None
        try:
            self.session = session(self.plain)
            self.expected = self.session.run(None, self.inputs)
        except Exception as error:
            if "NOT_IMPLEMENTED" not in str(error) or len(self.nodes) > 1:
                raise
            # For a type that ONNX Runtime lacks, the reference implementation decides.
            self.expected = [np.asarray(e) for e in self.by_reference()]
        named = {k: v for k, v in zip(self.outputs, self.expected)}
        self.model = models.model_of(self.nodes, self.inputs, self.constants, self.outputs, self.opset,
                                     {k: v.dtype for k, v in named.items()}, {k: v.ndim for k, v in named.items()}).SerializeToString()

    def slack(self):
        """How far the results move if every float operand moves by a few units in the last place: a bound on what another order
        of the arithmetic may do."""
        rng = np.random.default_rng(1)
        move = lambda v: (v * (1 + rng.choice([-4e-7, 4e-7] if v.dtype == np.float32 else [-1e-15, 1e-15], size=v.shape))).astype(v.dtype)
        moved = lambda vs: {k: np.asarray(move(v)) if v.dtype.kind == "f" and v.size < 100000 else v for k, v in vs.items()}
        out = [np.zeros(e.shape) for e in self.expected]
        if self.session is None:
            return out
        with np.errstate(all="ignore"):
            for _ in range(4):
                try:
                    results = by_runtime(models.model_of(self.nodes, moved(self.inputs), moved(self.constants), self.outputs,
                                                         self.opset).SerializeToString(), moved(self.inputs))
                except Exception:  # operands that must not move, such as scales of Resize
                    continue
                for k, (r, e) in enumerate(zip(results, self.expected)):
                    if r.shape == e.shape and e.dtype.kind == "f":
                        change = np.abs(r.astype(np.float64) - e)
                        out[k] = np.maximum(out[k], np.where(np.isfinite(change), change, 0))
        return out

    def by_reference(self):
        with np.errstate(all="ignore"):
            return ReferenceEvaluator(onnx.load_from_string(self.plain)).run(None, self.inputs)

    def values(self):
        return {**self.inputs, **self.constants}

    def attribute(self, name, default=None):
        for a in self.nodes[0].attribute:
            if a.name == name:
                value = onnx.helper.get_attribute_value(a)
                return value.decode() if isinstance(value, bytes) else value
        return default


def disagreement(found, expected, slack=None, loose=1.0, graph=False):
    """None, or one line on the first element that differs."""
    if len(found) != len(expected):
        return f"{len(found)} outputs, expected {len(expected)}"
    for k, (f, e) in enumerate(zip(found, expected)):
        e = np.asarray(e)
        if f.dtype != e.dtype or f.shape != e.shape:
            return f"output {k} is {f.dtype}{list(f.shape)}, expected {e.dtype}{list(e.shape)}"
        if e.dtype.kind != "f":
            bad = f != e
        else:
            # Sums of some hundred terms in single precision; the absolute part is for sums that cancel.
            # In a graph, doubles may come from single precision.
            relative, absolute = (2e-5, 2e-5) if e.dtype == np.float32 or graph else (1e-9, 1e-9)
            with np.errstate(all="ignore"):
                scale = np.max(np.abs(e[np.isfinite(e)]), initial=0, where=np.abs(e[np.isfinite(e)]) < 1e6) if e.size else 0
                near = np.abs(f.astype(np.float64) - e) <= loose * (relative * np.abs(e) + absolute * max(1e-3, min(1.0, scale))) + (
                    0 if slack is None else 10 * slack[k])
                bad = ~((f == e) | (np.isnan(f) & np.isnan(e)) | (np.isfinite(f) & np.isfinite(e) & near))
        if np.any(bad):
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            return f"output {k}[{','.join(map(str, at))}] = {f[at]}, expected {e[at]} ({int(bad.sum())} of {e.size} differ)"
    return None


# ---- Verdicts ----

REFUSALS = ("INVALID_ARGUMENT", "UNIMPLEMENTED")


def reason(message):
    """A refusal without names and numbers, so that equal ones are counted together."""
    message = re.sub(r"^(unsupported operators?: )?(\w+) \(node '[^']*', opset \d+\):", r"\2:", message)
    message = re.sub(r"'[^']*'", "'..'", message)
    return re.sub(r"-?\d[\dx.,e+-]*", "N", message)[:150]


class Tally:
    def __init__(self):
        self.verdicts = collections.Counter()
        self.refused, self.known, self.peer = collections.Counter(), collections.Counter(), collections.Counter()
        self.operators = collections.defaultdict(collections.Counter)
        self.wrong = []

    def count(self, verdict, ops, detail=None):
        self.verdicts[verdict] += 1
        for op in ops:
            self.operators[op][verdict] += 1
        if verdict == "refused":
            self.refused[detail] += 1
        if verdict == "known difference":
            self.known[detail] += 1
        if verdict == "refused by ONNX Runtime":
            self.peer[detail] += 1

    def report(self, verbose):
        print(f"\n{sum(self.verdicts.values())} models, {len(self.operators)} operators")
        for verdict, n in self.verdicts.most_common():
            print(f"  {n:6} {verdict}")
        for title, table in (("refused", self.refused), ("known differences", self.known), ("refused by ONNX Runtime", self.peer)):
            if table:
                print(f"{title}:")
                for text, n in table.most_common(None if verbose else 40):
                    print(f"  {n:6} {text}")
        never = sorted(op for op, c in self.operators.items() if not any(v.startswith("agreed") for v in c))
        if never:
            print("never agreed:", " ".join(never))
        print("wrong:")
        for op, n in collections.Counter(op for op, _ in self.wrong).most_common():
            print(f"  {n:6} {op}")


def describe(case):
    lines = []
    for n in case.nodes:
        attrs = ", ".join(f"{a.name}={onnx.helper.get_attribute_value(a)}" for a in n.attribute if a.type != onnx.AttributeProto.TENSOR)
        args = []
        for i in n.input:
            v = case.values().get(i)
            if v is None:
                args.append(i or "-")
            else:
                small = f"={v.tolist()}" if v.size <= 8 else ""
                args.append(f"{'const ' if i in case.constants else ''}{v.dtype}{list(v.shape)}{small}")
        lines.append(f"    {', '.join(n.output)} = {n.op_type}({', '.join(args)}) {{{attrs}}}")
    return f"  opset {case.opset}\n" + "\n".join(lines)


def agrees_in_single(case, found):
    """Whether ONNX Runtime agrees if doubles become single: a second opinion on the reference implementation."""
    single = lambda vs: {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in vs.items()}
    narrow = Case(case.nodes, single(case.inputs), single(case.constants), case.outputs, case.opset)
    try:
        narrow.run()
    except Exception:
        return False
    return narrow.session is not None and disagreement(list(single(dict(enumerate(found))).values()), narrow.expected, narrow.slack(), 10) is None


def judge(case, server, compile_too):
    """(verdict, detail) of a case whose expected results are known."""
    for verb in ("interpret", "compile") if compile_too else ("interpret",):
        status, message, found = server.run(verb, case.model, case.inputs)
        if status in REFUSALS:
            return "refused", reason(message)
        if status != "OK":
            return "wrong", f"{verb}: {status} {message}"
        # The reference computes some doubles in single precision.
        loose = 10 if len(case.nodes) > 1 else 1 if case.session else 1e4
        graph = len(case.nodes) > 1
        text = disagreement(found, case.expected, loose=loose, graph=graph)
        if text is None:
            continue
        for name, applies in DIFFERENCES:
            if len(case.nodes) == 1 and applies(case, found):
                return "known difference", name
        if disagreement(found, case.expected, case.slack(), loose, graph) is None:
            return "agreed within rounding", None
        if case.session is None:
            if agrees_in_single(case, found):
                continue
            return "wrong", f"{verb}: {text}, by the reference implementation; ONNX Runtime lacks the type"
        try:
            third = case.by_reference()
            ours, theirs = (disagreement(side, third, loose=10) is None for side in (found, case.expected))
            says = "the reference agrees with " + {(1, 1): "both", (1, 0): "heddle", (0, 1): "ONNX Runtime", (0, 0): "neither"}[(ours, theirs)]
        except Exception as error:
            says = f"the reference fails: {str(error).splitlines()[0][:80] if str(error) else type(error).__name__}"
        return "wrong", f"{verb}: {text}; {says}"
    return "agreed" if case.session else "agreed with the reference, as ONNX Runtime lacks the type", None


# ---- Models of one operator ----


def draw_single(seed, args):
    """A case, or None if the draw did not work out."""
    rng = models.random.Random(seed)
    opset = rng.randint(args.low, args.high)
    names = [n for n in models.OPERATORS if models.fits(n, opset) and (not args.only or n in args.only)]
    if not names:
        return None, None
    name = rng.choice(names)
    d = models.Draw(seed, opset, rng.choice(("plain", "plain", "integers", "special")))
    d.op = name
    for _ in range(20):
        try:
            models.OPERATORS[name][0](d)
            break
        except models.Rejected:
            d = models.Draw(rng.getrandbits(40), opset, d.regime)
            d.op = name
    else:
        return name, None
    return name, Case(d.nodes, d.inputs, d.constants, d.outputs, opset)


def run_single(seed, args, server, tally):
    name, case = draw_single(seed, args)
    if name is None:
        return
    if case is None:
        return tally.count("no draw", [name])
    try:
        case.run()
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        known = "NOT_IMPLEMENTED" in text
        if args.verbose and not known:
            print(f"seed {seed}: refused by ONNX Runtime: {text[:300]}\n{describe(case)}")
        text = re.sub(r".*?(Could not find an implementation for \w+).*", r"\1", text) if known else re.sub(r"-?\d+|'[^']*'|\([^)]*\)", "N", text)
        return tally.count("refused by ONNX Runtime", [name], f"{name}: {text}"[:160])
    if any(e.size == 0 for e in case.expected):
        return tally.count("no elements", [name])
    verdict, detail = judge(case, server, args.compile and seed % args.compile == 0)
    tally.count(verdict, [name], detail)
    if verdict == "wrong":
        tally.wrong.append((name, seed))
        print(f"seed {seed}: {detail}\n{describe(case)}", flush=True)
    if verdict == "refused" and args.verbose:
        print(f"seed {seed}: refused: {detail}\n{describe(case)}")


# ---- Graphs ----

LARGEST = 1e3  # of the values inside a graph: beyond it, rounding errors grow


def tame(case, d):
    """Whether the results of a new node are moderate, and stay where they are if its operands move a little."""
    for e in case.expected:
        if e.size == 0 or e.size > models.MOST_ELEMENTS or (e.dtype.kind == "f" and not np.all(np.abs(e) < LARGEST)):
            return False
        if e.dtype.kind in "iu" and e.size and np.max(np.abs(e.astype(np.float64))) > 1e6:
            return False
    rng = np.random.default_rng(2)
    away = {k: rng.choice([-1e-4, 1e-4], size=v.shape) * np.maximum(np.abs(v), 0.1) for k, v in case.inputs.items() if v.dtype.kind == "f"}
    for sign in (-1, 1):  # results that jump, such as those of Floor, may do so in one direction only
        moved = {k: np.asarray(v + sign * away[k]).astype(v.dtype) if k in away else v for k, v in case.inputs.items()}
        for r, e in zip(case.session.run(None, moved), case.expected):
            if r.shape != e.shape:
                return False
            if e.dtype.kind == "f":
                if not np.all(np.abs(r - e) <= 3e-3 * np.maximum(np.abs(e), 1)):
                    return False
            elif np.any(r != e):
                return False
    return True


def draw_graph(seed, args, server):
    """A graph of nodes that ONNX Runtime takes and we do not refuse, without known differences."""
    rng = models.random.Random(seed)
    opset = rng.randint(args.low, args.high)
    d = models.Draw(seed, opset, "plain", grow=True)
    for _ in range(rng.randint(1, 3)):
        d.tensor(d.values(models.F32, d.shape(rng.choice((2, 3, 4, 4)), 1500)), constant=False)
    if rng.random() < 0.2:
        d.tensor(d.values(rng.choice((models.I64, models.I32)), d.shape(rng.randint(1, 3), 200)), constant=False)
    names = [n for n, (_, _, _, graph) in models.OPERATORS.items() if graph and models.fits(n, opset)]
    wanted = rng.randint(5, 30)
    for _ in range(wanted * 8):
        if len(d.nodes) >= wanted:
            break
        before = len(d.nodes), dict(d.inputs), dict(d.constants), dict(d.value), list(d.outputs)
        d.op = rng.choice(names)
        kept = False
        try:
            models.OPERATORS[d.op][0](d)
            node = d.nodes[-1]
            operands = [i for i in node.input if i]
            step = Case([node], {i: d.value[i] for i in operands if i not in d.constants},
                        {i: d.constants[i] for i in operands if i in d.constants}, [o for o in node.output if o], opset)
            step.run()
            if tame(step, d) and judge(step, server, False)[0] not in ("refused", "known difference"):
                d.value.update(zip(step.outputs, step.expected))
                kept = True
        except models.Rejected:
            pass
        except Exception:  # ONNX Runtime refuses the node
            pass
        if not kept:
            del d.nodes[before[0]:]
            _, d.inputs, d.constants, d.value, d.outputs = before
    used = {i for n in d.nodes for i in n.input}
    free = [o for n in d.nodes for o in n.output if o and o not in used]
    # Sometimes a value inside of the graph is an output as well.
    inner = [o for n in d.nodes for o in n.output if o in used]
    outputs = free + (rng.sample(inner, 1) if inner and rng.random() < 0.3 else [])
    inputs = {k: v for k, v in d.inputs.items() if k in used}
    constants = {k: v for k, v in d.constants.items() if k in used}
    return Case(d.nodes, inputs, constants, outputs, opset) if d.nodes else None


def first_wrong_node(case, server):
    """The first node that alone, on ONNX Runtime's own operands, disagrees; or else the shortest part of the graph that does."""
    inner = [o for n in case.nodes for o in n.output if o]
    whole = Case(case.nodes, case.inputs, case.constants, inner, case.opset)
    whole.run()
    values = {**case.values(), **dict(zip(inner, whole.expected))}
    for node in case.nodes:
        operands = [i for i in node.input if i]
        alone = Case([node], {i: values[i] for i in operands if i not in case.constants},
                     {i: values[i] for i in operands if i in case.constants}, [o for o in node.output if o], case.opset)
        alone.run()
        verdict, detail = judge(alone, server, True)
        if verdict == "wrong":
            return f"  node alone: {detail}\n{describe(alone)}"
    for k in range(1, len(case.nodes) + 1):
        nodes = case.nodes[:k]
        for back in range(k - 1, -1, -1):  # the shortest run of nodes that ends at k
            part = nodes[back:k]
            made = {o for n in part for o in n.output}
            operands = [i for n in part for i in n.input if i and i not in made]
            run = Case(part, {i: values[i] for i in operands if i not in case.constants},
                       {i: values[i] for i in operands if i in case.constants}, [o for o in part[-1].output if o], case.opset)
            run.run()
            verdict, detail = judge(run, server, True)
            if verdict == "wrong":
                return f"  nodes together: {detail}\n{describe(run)}"
    return "  no part disagrees"


def run_graph(seed, args, server, tally):
    case = draw_graph(seed, args, server)
    if case is None:
        return
    ops = {n.op_type for n in case.nodes}
    try:
        case.run()
    except Exception as error:
        return tally.count("refused by ONNX Runtime", ops, str(error).splitlines()[0][:160])
    verdict, detail = judge(case, server, args.compile and seed % args.compile == 0)
    tally.count(verdict, ops, detail)
    if verdict == "wrong":
        tally.wrong.append((f"graph of {len(case.nodes)}", seed))
        print(f"seed {seed}: {detail}\n{first_wrong_node(case, server)}", flush=True)
        if args.verbose:
            print(describe(case))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=0, help="models of one operator")
    parser.add_argument("--graphs", type=int, default=0, help="graphs of 5 to 30 operators")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first model")
    parser.add_argument("--replay", type=int, help="runs the model of one operator (with --graphs 1: the graph) of this seed only")
    parser.add_argument("--only", nargs="*", help="operators of the models")
    parser.add_argument("--low", type=int, default=7, help="oldest opset")
    parser.add_argument("--high", type=int, default=26, help="newest opset")
    parser.add_argument("--compile", type=int, default=4, help="every N-th model is compiled, too; 0: none")
    parser.add_argument("--server", default=SERVER)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    server, tally, begin = Server(args.server), Tally(), time.time()
    if args.replay is not None:
        args.count, args.graphs, args.seed, args.compile, args.verbose = 0 if args.graphs else 1, min(args.graphs, 1), args.replay, 1, True
    with np.errstate(all="ignore"):
        for seed in range(args.seed, args.seed + args.count):
            run_single(seed, args, server, tally)
        for seed in range(args.seed, args.seed + args.graphs):
            run_graph(seed, args, server, tally)
    tally.report(args.verbose)
    print(f"{time.time() - begin:.0f} s; onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
    sys.exit(1 if tally.wrong else 0)


if __name__ == "__main__":
    main()
