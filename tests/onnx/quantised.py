#!/usr/bin/env python3
"""Lets ONNX Runtime's quantiser quantise real models and compares heddle with ONNX Runtime on what it writes. Not part of ctest,
since it needs packages from PyPI and the models that architectures.py exports:

    /tmp/venv/bin/pip install onnx onnxruntime numpy sympy
    ninja -C build/release onnx-model-server
    /tmp/venv/bin/python tests/onnx/quantised.py DIR                      # about a quarter of an hour on two cores
    /tmp/venv/bin/python tests/onnx/quantised.py DIR --only resnet18 --modes qdq

What counts as agreement: "equal up to one step of rounding, and at most one element in ten thousand further away". In detail:

- The reference is ONNX Runtime without any optimisation of the graph, so that each node is computed as it is written. heddle
  compiles the same graph with default schedules.
- A step is one unit of a quantised tensor. Both sides compute sums of floats in their own order, so a value in the middle
  between two steps may be rounded to either. Such a difference is right, and it spreads: in a deep model, one of them changes half
  of the elements of the result. So the model is cut at every quantised tensor. What follows reads the reference's tensor, and
  every quantised tensor is an output of the compared model. The differences of all of them together have to keep to the
  criterion: `off 1` is the share of elements that differ by one step, `off more` the share that differs by more, `most` the
  largest difference.
- Some operators quantise an operand inside of themselves (DynamicQuantizeMatMul); the model is cut before that operand. Floats
  at a cut, outputs that are floats, and the scales of dynamic quantisation are counted apart (`floats`) and have to keep to the
  same criterion. Their step is what 8 bits would give them: a 255th of the tensor's range.
- The whole model without cuts is compiled and compared, too, but not judged: `whole` is its outputs in steps, `peer` is ONNX
  Runtime with all of its optimisations against itself without them. Both are as far away as differences spread in that model.

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

from architectures import embed, reason
from differential import SERVER, Server, session

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


def quantised_tensors(model):
    """The names of all quantised tensors, of the scales and zero points that are computed with them, and of floats that an operator
    quantises inside of itself."""
    made = {o for n in model.graph.node for o in n.output}
    names = [[o for i, o in enumerate(n.output) if o and is_quantised(n, i)] for n in model.graph.node]
    dynamic = [[o for o in n.output if o] if n.op_type == "DynamicQuantizeLinear" else [] for n in model.graph.node]
    inside = [[n.input[0]] if n.op_type in ("DynamicQuantizeLSTM", "DynamicQuantizeMatMul") and n.input[0] in made else [] for n in model.graph.node]
    return [name for list_ in names + dynamic + inside for name in list_]


def cut(model, tensors):
    """Cuts the graph at these tensors, given as arrays by name. Returns the inputs that this adds."""
    read = {i for n in model.graph.node for i in n.input if i in tensors}
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            if name in tensors:
                node.input[i] = name + "/given"
    info = lambda name, v: onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
    model.graph.input.extend(info(name + "/given", tensors[name]) for name in sorted(read))
    own = {o.name for o in model.graph.output}
    model.graph.output.extend(info(name, v) for name, v in tensors.items() if name not in own)
    return {name + "/given": tensors[name] for name in read}


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
            spread = float(np.ptp(a)) if a.size > 1 else float(np.abs(a).max())
            step = 1.0 if e.dtype.kind in "iu" else max(spread / 255, 1e-30)
            steps = np.abs(a - b) / step
            self.elements += e.size
            self.one += int(np.sum((steps > 0.5) & (steps <= 1.001)))
            self.more += int(np.sum(steps > 1.001))
            self.most = max(self.most, float(np.max(steps, initial=0)))

    def share(self):
        return self.more / max(self.elements, 1)

    def __str__(self):
        return self.problem or f"off 1: {self.one / max(self.elements, 1):.1g}, off more: {self.share():.1g}, most {self.most:.2g}"


def compare(path, inputs, server):
    """(verdict, text, what the model is) for one quantised model."""
    model = onnx.load(path)
    own = sorted({n.op_type for n in model.graph.node if n.domain == "com.microsoft"})
    outputs = [o.name for o in model.graph.output]
    exposed = onnx.load(path)
    names = list(dict.fromkeys(quantised_tensors(exposed)))
    about = f"{len(model.graph.node)} nodes, {len(names)} quantised tensors" + (f", {' '.join(own)}" if own else "")
    exposed.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in names if n not in outputs)
    reference = session(exposed.SerializeToString())
    fed = {i.name: inputs[i.name] for i in reference.get_inputs()}
    expected = dict(zip([o.name for o in reference.get_outputs()], reference.run(None, fed)))

    # The model in parts.
    more = cut(model, {name: expected[name] for name in names})
    status, message, found = server.run("compile", model.SerializeToString(), {**fed, **more})
    if status != "OK":
        return ("refused" if status == "UNIMPLEMENTED" else "WRONG"), message, about
    pairs = [(expected[o.name], f) for o, f in zip(model.graph.output, found)]
    verdict, texts = "equal", []
    for what, kinds in (("", "iub"), ("floats ", "f")):
        part = [(e, f) for e, f in pairs if e.dtype.kind in kinds]
        if not part:
            continue
        distance = Distance(*zip(*part))
        texts.append(what + str(distance))
        if distance.problem or distance.share() > SHARE:
            verdict = "WRONG"

    # The whole model.
    whole = open(path, "rb").read()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    peer = onnxruntime.InferenceSession(whole, options, providers=["CPUExecutionProvider"]).run(None, fed)
    status, message, found = server.run("compile", whole, fed)
    if status != "OK":
        return "WRONG", f"the whole model: {status} {message}", about
    results = [expected[o] for o in outputs]
    return verdict, f"{'; '.join(texts)}; whole {Distance(results, found)}; peer {Distance(results, peer)}", about


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
    verdicts = ["equal", "WRONG", "refused", "no reference"]
    print(f"\n{'mode':20}" + "".join(f"{v:>14}" for v in verdicts))
    for mode, counts in table.items():
        print(f"{mode:20}" + "".join(f"{counts[v]:14}" for v in verdicts))
    for what, count in reasons.most_common():
        print(f"{count:5}  {what}")
    print(f"{time.time() - begin:.0f} s; onnxruntime {onnxruntime.__version__}")
    sys.exit(any(counts["WRONG"] for counts in table.values()))


if __name__ == "__main__":
    main()
