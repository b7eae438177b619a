#!/usr/bin/env python3
"""Lets ONNX Runtime's quantiser quantise real models and compares heddle with ONNX Runtime on what it writes. Not part of ctest,
since it needs packages from PyPI and the models that architectures.py exports:

    /tmp/venv/bin/pip install onnx onnxruntime numpy sympy
    ninja -C build/release onnx-model-server
    /tmp/venv/bin/python tests/onnx/quantised.py DIR                      # about a quarter of an hour on two cores
    /tmp/venv/bin/python tests/onnx/quantised.py DIR --only resnet18 --modes qdq

What counts as agreement: "equal up to one step of rounding, and at most one element in ten thousand further away". In detail:

- The reference is ONNX Runtime without any optimisation of the graph, so that each node is computed as it is written. heddle
  compiles the same file with default schedules.
- A step is one unit of a quantised tensor, so the comparison needs quantised tensors. Those from which an output of the model
  is computed without another quantised tensor in between become outputs of the compared model as well: the last ones. They
  are integers, and their differences are counted in steps. `off 1` is the share of elements that differ by one step, `off more`
  the share that differs by more, `most` the largest difference.
- A model has more outputs than these: floats. They are compared in steps, too: the step is what 8 bits would give the range
  of that output, a 255th of it.
- Both sides compute sums of floats in their own order. Where a value lies in the middle of two steps, they may round to
  different ones, and a difference early in a model can grow in it. So each line has the same figures for ONNX Runtime
  with all of its optimisations against itself without them (`peer`): how far apart two correct computations of this model are. A
  model counts as equal if it keeps to the criterion, as `like peer` if it does not, but the share beyond one step is at most
  twice that of the peer, and as WRONG otherwise.

Prints one line for each model and mode, then a table of the modes. The exit status is 1 if anything is wrong.
"""
import argparse
import collections
import os
import re
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType
from onnxruntime.quantization.shape_inference import quant_pre_process

from architectures import SERVER, embed, reason
from differential import Server, session

MODELS = ("torchvision-resnet18", "torchvision-mobilenet_v2", "torchvision-mobilenet_v3_small", "torchvision-squeezenet1_1",
          "torchvision-shufflenet_v2_x0_5", "torchvision-efficientnet_b0", "timm-deit_tiny_patch16_224", "timm-mobilevit_xxs",
          "transformers-bert", "transformers-gpt2", "torch-transformer", "torch-lstm_tagger")
SAMPLES = 4  # of the calibration
SHARE = 1e-4  # of elements that may be off by more than a step

S8, U8 = QuantType.QInt8, QuantType.QUInt8
# name: (format, or None for dynamic; type of activations; type of weights; scales of weights per channel; saved by ONNX Runtime
# after its own fusions, which writes more of its own operators)
MODES = {
    "qdq-u8s8": (QuantFormat.QDQ, U8, S8, False, False),
    "qdq-s8s8-channel": (QuantFormat.QDQ, S8, S8, True, False),
    "qdq-u8u8": (QuantFormat.QDQ, U8, U8, False, False),
    "qdq-u8s8-fused": (QuantFormat.QDQ, U8, S8, False, True),
    "qop-u8u8": (QuantFormat.QOperator, U8, U8, False, False),
    "qop-u8s8-channel": (QuantFormat.QOperator, U8, S8, True, False),
    "qop-s8s8": (QuantFormat.QOperator, S8, S8, False, False),
    "dynamic-u8": (None, None, U8, False, False),
    "dynamic-s8-channel": (None, None, S8, True, False),
    "dynamic-u8-fused": (None, None, U8, False, True),
}


class Samples(CalibrationDataReader):
    """The model's inputs, and random ones like them."""

    def __init__(self, inputs):
        rng = np.random.default_rng(1)
        other = lambda v: rng.normal(v.mean(), v.std() + 1e-3, v.shape).astype(v.dtype) if v.dtype.kind == "f" else rng.permuted(v)
        self.left = [inputs] + [{k: other(v) for k, v in inputs.items()} for _ in range(SAMPLES - 1)]

    def get_next(self):
        return self.left.pop() if self.left else None


def prepare(path, target):
    """As the quantiser's documentation asks: shapes inferred, batch normalisations folded."""
    quant_pre_process(path, target, skip_symbolic_shape=True)


def quantise(path, target, mode, inputs):
    """Writes the quantised model."""
    form, activations, weights, per_channel, fused = MODES[mode]
    if form is None:
        quantization.quantize_dynamic(path, target, weight_type=weights, per_channel=per_channel)
    else:
        quantization.quantize_static(path, target, Samples(inputs), quant_format=form, per_channel=per_channel,
                                     activation_type=activations, weight_type=weights)
    if fused:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = target
        options.log_severity_level = 3
        onnxruntime.InferenceSession(target, options, providers=["CPUExecutionProvider"])


def is_quantised(node, index):
    """Whether this output of a node is quantised by the node."""
    if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear"):
        return index == 0
    return node.op_type.startswith("QLinear") or (node.op_type == "QGemm" and len(node.input) > 7 and node.input[7] != "")


def expose_last(model):
    """Makes outputs of the last quantised tensors. Returns their names."""
    makers = {o: (n, i) for n in model.graph.node for i, o in enumerate(n.output) if o}
    own = [o.name for o in model.graph.output]
    last, seen, todo = [], set(), list(own)
    while todo:
        name = todo.pop()
        if name in seen or name not in makers:
            continue
        seen.add(name)
        node, index = makers[name]
        if is_quantised(node, index):
            last.append(name)
        else:
            todo += node.input
    for name in last:
        if name not in own:
            model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    return last


def declare(model, names, arrays):
    """Gives the exposed outputs their types, without which they are no outputs."""
    for output in model.graph.output:
        if output.name in names:
            array = arrays[output.name]
            output.CopyFrom(onnx.helper.make_tensor_value_info(output.name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))


class Distance:
    """How far two lists of results are apart, in steps."""

    def __init__(self, expected, found):
        self.problem, self.elements, self.one, self.more, self.most = None, 0, 0, 0, 0.0
        for e, f in zip(expected, found):
            e = np.asarray(e)
            if e.shape != f.shape or e.dtype != f.dtype:
                self.problem = f"{f.dtype}{list(f.shape)} instead of {e.dtype}{list(e.shape)}"
                return
            a, b = e.astype(np.float64), f.astype(np.float64)
            if not np.all(np.isfinite(a) == np.isfinite(b)):
                self.problem = "other places of NaN or infinity"
                return
            step = 1.0 if e.dtype.kind in "iu" else max(float(np.ptp(a)) / 255, 1e-30)
            steps = np.abs(a - b) / step
            self.elements += e.size
            self.one += int(np.sum((steps > 0.5) & (steps <= 1.001)))
            self.more += int(np.sum(steps > 1.001))
            self.most = max(self.most, float(np.max(steps, initial=0)))

    def share(self):
        return self.more / max(self.elements, 1)

    def __str__(self):
        return self.problem or f"off 1: {self.one / max(self.elements, 1):.2%}, off more: {self.share():.3%}, most {self.most:.3g}"


def compare(path, inputs, server):
    """(verdict, text) for one quantised model."""
    plain = onnx.load(path)
    last = expose_last(plain)
    reference = session(plain.SerializeToString())
    names = [o.name for o in reference.get_outputs()]
    fed = {i.name: inputs[i.name] for i in reference.get_inputs()}
    expected = reference.run(None, fed)
    declare(plain, last, dict(zip(names, expected)))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    peer = onnxruntime.InferenceSession(plain.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, fed)
    status, message, found = server.run("compile", plain.SerializeToString(), fed)
    own = sorted({n.op_type for n in plain.graph.node if n.domain == "com.microsoft"})
    about = f"{len(plain.graph.node)} nodes, {len(last)} last quantised tensors" + (f", {' '.join(own)}" if own else "")
    if status != "OK":
        return ("refused" if status == "UNIMPLEMENTED" else "WRONG"), message, about
    whole = [(e, f, p) for e, f, p in zip(expected, found, peer)]
    integers = [t for t, n in zip(whole, names) if n in last]
    floats = [t for t, n in zip(whole, names) if n not in last]
    verdict, texts = "equal", []
    for what, part in (("integers", integers), ("outputs", floats)):
        if not part:
            continue
        ours, peers = Distance(*zip(*((e, f) for e, f, _ in part))), Distance(*zip(*((e, p) for e, _, p in part)))
        texts.append(f"{what} {ours} (peer {peers})")
        if ours.problem:
            verdict = "WRONG"
        elif ours.share() > SHARE:
            verdict = "WRONG" if ours.share() > 2 * peers.share() or verdict == "WRONG" else "like peer"
    return verdict, "; ".join(texts), about


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="of the models that architectures.py --export wrote")
    parser.add_argument("--only", default="", help="a pattern of models")
    parser.add_argument("--modes", default="", help="a pattern of modes")
    parser.add_argument("--exporter", default="script", help="script or dynamo")
    parser.add_argument("--keep", help="a folder for the quantised models")
    parser.add_argument("--server", default=SERVER)
    args = parser.parse_args()
    server, table, reasons = Server(args.server), collections.defaultdict(collections.Counter), collections.Counter()
    begin = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        for name in MODELS:
            if not re.search(args.only, name):
                continue
            folder = os.path.join(args.folder, f"{name}.{args.exporter}")
            inputs = dict(np.load(os.path.join(folder, "inputs.npz")))
            float_path = os.path.join(scratch, "float.onnx")
            onnx.save(onnx.load_from_string(embed(os.path.join(folder, "model.onnx"))), float_path)
            used = {i.name for i in session(float_path).get_inputs()}
            inputs = {k: v for k, v in inputs.items() if k in used}
            ready = os.path.join(scratch, "ready.onnx")
            prepare(float_path, ready)
            for mode in MODES:
                if not re.search(args.modes, mode):
                    continue
                path = os.path.join(args.keep or scratch, f"{name}.{mode}.onnx")
                try:
                    quantise(ready, path, mode, inputs)
                    verdict, text, about = compare(path, inputs, server)
                except Exception as error:
                    verdict, text, about = "no reference", f"{type(error).__name__}: {str(error).splitlines()[0][:200]}", ""
                table[mode][verdict] += 1
                if verdict == "refused":
                    for part in text.split("; "):
                        reasons[reason(part)] += 1
                print(f"{name} {mode}: {verdict}; {text[:600]} [{about}]", flush=True)
    verdicts = ["equal", "like peer", "WRONG", "refused", "no reference"]
    print(f"\n{'mode':20}" + "".join(f"{v:>14}" for v in verdicts))
    for mode, counts in table.items():
        print(f"{mode:20}" + "".join(f"{counts[v]:14}" for v in verdicts))
    for what, count in reasons.most_common():
        print(f"{count:5}  {what}")
    print(f"{time.time() - begin:.0f} s; onnxruntime {onnxruntime.__version__}")
    sys.exit(any(counts["WRONG"] for counts in table.values()))


if __name__ == "__main__":
    main()
