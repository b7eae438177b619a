#!/usr/bin/env python3
"""Compares heddle with ONNX Runtime on models that ONNX Runtime's quantiser writes. Not part of ctest, since it needs packages from
PyPI and models that architectures.py exported:

    /tmp/venv/bin/python tests/onnx/architectures.py --export DIR
    ninja -C build/release onnx-model-server
    /tmp/venv/bin/python tests/onnx/quantised.py DIR                     # each model of MODELS in each mode of MODES
    /tmp/venv/bin/python tests/onnx/quantised.py DIR --only bert --modes qdq

Each module is compiled for this CPU with default schedules. ONNX Runtime runs the same file with all graph optimisations off.

The results of a quantised model jump: where a value lies next to the border between two steps, the last bit of a float decides, and
what follows multiplies the step. Two different orders of the same sums may thus differ in the final outputs by far more than a step,
and both are right. Hence a model is compared twice.

  in parts  Every tensor that an operator rounds to integers (the results of QuantizeLinear, DynamicQuantizeLinear, QLinearConv, ..)
            becomes an output, and those who read it read an input in its place, which has ONNX Runtime's value. So each part
            between two roundings computes with equal operands, and no error passes from one part to the next. Rounded tensors may
            differ by one step, and one element in TEN_THOUSAND of a tensor by more. Float results, such as the scales of
            DynamicQuantizeLinear or the outputs of the model, may differ by TOLERANCE of their largest element.
  whole     The outputs of the model as it is. They may differ from those of ONNX Runtime by SPREAD times as much as ONNX Runtime's
            own outputs change in RUNS runs in which all float inputs and constants, the scales among them, move by a few units in
            the last place; and by one step or TOLERANCE beyond that. This finds what the parts cannot: an error in how they are
            joined. It cannot find small errors, which is the task of the parts.

Prints one line for each model and mode, then a table. "unequal" is the share of elements of rounded tensors that are off by one
step; "beyond" counts those off by more. The exit status is 1 if anything is wrong.
"""
import argparse
import collections
import logging
import os
import re
import sys
import tempfile
import time
import warnings

import numpy as np
import onnx
from onnx import numpy_helper

from architectures import TOLERANCE, embed, reason
from differential import SERVER, Server, session

TEN_THOUSAND = 10000
SPREAD, RUNS = 4, 4

# Architectures that between them have every operator that the quantiser knows.
MODELS = (
    "torchvision-squeezenet1_1.script",
    "torchvision-resnet18.dynamo",
    "torchvision-mobilenet_v2.script",
    "torchvision-mobilenet_v3_small.script",
    "torchvision-shufflenet_v2_x0_5.script",
    "torchvision-googlenet.script",
    "timm-lcnet_050.dynamo",
    "timm-deit_tiny_patch16_224.script",
    "transformers-bert.script",
    "transformers-gpt2.dynamo",
    "transformers-segformer.script",
    "torch-lstm_tagger.script",
)

# Name of a mode: the format, the types of activations and weights, and whether weights have a scale for each channel.
MODES = {
    "qdq-u8s8": ("QDQ", "QUInt8", "QInt8", False),
    "qdq-u8s8-channels": ("QDQ", "QUInt8", "QInt8", True),
    "qdq-s8s8": ("QDQ", "QInt8", "QInt8", False),
    "qdq-s8s8-channels": ("QDQ", "QInt8", "QInt8", True),
    "qdq-u8u8": ("QDQ", "QUInt8", "QUInt8", False),
    "qdq-u16s8": ("QDQ", "QUInt16", "QInt8", False),
    "qdq-s16s16": ("QDQ", "QInt16", "QInt16", False),
    "qdq-u8s4-channels": ("QDQ", "QUInt8", "QInt4", True),
    "operators-u8s8": ("QOperator", "QUInt8", "QInt8", False),
    "operators-u8s8-channels": ("QOperator", "QUInt8", "QInt8", True),
    "operators-s8s8": ("QOperator", "QInt8", "QInt8", False),
    "operators-s8s8-channels": ("QOperator", "QInt8", "QInt8", True),
    "operators-u8u8": ("QOperator", "QUInt8", "QUInt8", False),
    "dynamic-s8": ("dynamic", None, "QInt8", False),
    "dynamic-s8-channels": ("dynamic", None, "QInt8", True),
    "dynamic-u8": ("dynamic", None, "QUInt8", False),
    "weights-4": ("weights", None, "QUInt4", True),
    "weights-4-qdq": ("weights QDQ", None, "QInt4", True),
}


# ---- The quantised models ----


def calibration(inputs):
    """A reader of some inputs like the given ones."""
    from onnxruntime.quantization import CalibrationDataReader
    rng = np.random.default_rng(3)
    near = lambda v: (v + 0.1 * v.std() * rng.standard_normal(v.shape)).astype(v.dtype) if v.dtype.kind == "f" else v

    class Reader(CalibrationDataReader):
        left = [inputs] + [{k: near(v) for k, v in inputs.items()} for _ in range(2)]

        def get_next(self):
            return self.left.pop(0) if self.left else None

    return Reader()


def prepare(source, target):
    """What the quantiser asks to do first: shapes are inferred, constants folded."""
    from onnxruntime.quantization.shape_inference import quant_pre_process
    with open(target, "wb") as file:  # the quantiser does not find all external data
        file.write(embed(source))
    quant_pre_process(target, target, skip_symbolic_shape=True)


def quantise(prepared, inputs, mode, folder):
    """The model, as bytes, that ONNX Runtime's quantiser makes."""
    import onnxruntime.quantization as q
    form, activations, weights, channels = MODES[mode]
    target = os.path.join(folder, "quantised.onnx")
    if form.startswith("weights"):
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
        writer = MatMulNBitsQuantizer(onnx.load(prepared), block_size=32, is_symmetric=weights == "QInt4",
                                      quant_format=q.QuantFormat.QDQ if "QDQ" in form else q.QuantFormat.QOperator)
        writer.process()
        return writer.model.model.SerializeToString()
    weight_type = getattr(q.QuantType, weights)
    if form == "dynamic":
        q.quantize_dynamic(prepared, target, weight_type=weight_type, per_channel=channels)
    else:
        q.quantize_static(prepared, target, calibration(inputs), quant_format=getattr(q.QuantFormat, form), per_channel=channels,
                          activation_type=getattr(q.QuantType, activations), weight_type=weight_type)
    return embed(target)


# ---- The parts between the roundings ----


def rounds(node):
    """Whether an operator's result is rounded to integers."""
    return node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear") or (node.domain == "com.microsoft" and (
        node.op_type.startswith("QLinear") or node.op_type == "QGemm")) or node.op_type in ("QLinearConv", "QLinearMatMul")


def rounded_tensors(model):
    """The results of rounding operators that depend on the inputs."""
    variable, found = {i.name for i in model.graph.input}, []
    for node in model.graph.node:
        if any(i in variable for i in node.input):
            variable.update(node.output)
            if rounds(node):
                found += [o for o in node.output if o]
    return found


def exposed(model, names):
    """The model with these values as its outputs, behind those that it has."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    given = {o.name for o in out.graph.output}
    out.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in given)
    return out


def in_parts(model, values):
    """The model whose rounded tensors are both inputs, from which their readers take them, and outputs, with MADE behind the name."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    del out.graph.value_info[:]
    for node in out.graph.node:
        for i, name in enumerate(node.output):
            if name in values:
                node.output[i] = name + MADE
    outputs = [onnx.ValueInfoProto(name=o.name + MADE) if o.name in values else o for o in model.graph.output]
    del out.graph.output[:]
    out.graph.output.extend(o for o in outputs if not o.name.endswith(MADE))
    for name, v in values.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(v.dtype)
        out.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, v.shape))
        out.graph.output.append(onnx.helper.make_tensor_value_info(name + MADE, kind, v.shape))
    return out


MADE = "/made"


# ---- Comparison ----


class Steps:
    """How far rounded tensors are from ONNX Runtime's, in steps."""

    def __init__(self):
        self.elements = self.one = self.beyond = self.most = 0
        self.wrong = None  # the first tensor that is

    def add(self, name, expected, found):
        apart = np.abs(expected.astype(np.int64) - found.astype(np.int64))
        beyond = int(np.sum(apart > 1))
        self.elements += apart.size
        self.one += int(np.sum(apart == 1))
        self.beyond += beyond
        self.most = max(self.most, int(apart.max(initial=0)))
        if beyond * TEN_THOUSAND > apart.size and self.wrong is None:
            self.wrong = f"{beyond} of the {apart.size} elements of '{name}' differ by up to {int(apart.max())} steps"


def error(expected, found):
    """Relative to the largest element."""
    a, b = expected.astype(np.float64), found.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.inf
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    return float(np.max(np.abs(a - b)) / max(np.max(np.abs(a)), 1e-30)) if a.size else 0.0


def misfit(expected, found):
    for name, e in expected.items():
        f = found.get(name)
        if f is None or f.dtype != e.dtype or f.shape != e.shape:
            return f"'{name}' is {'missing' if f is None else f'{f.dtype}{list(f.shape)}'} instead of {e.dtype}{list(e.shape)}"
    return None


def moved(model, inputs, seed):
    """The outputs of ONNX Runtime if floats move by a few units in the last place."""
    rng = np.random.default_rng(seed)
    move = lambda v: (v * (1 + rng.choice([-4e-7, 4e-7], size=v.shape))).astype(v.dtype) if v.dtype == np.float32 else v
    out = onnx.ModelProto()
    out.CopyFrom(model)
    sizes = {i for n in out.graph.node if n.op_type in ("Resize", "Upsample") for i in n.input[1:]}
    for tensor in out.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.name not in sizes:
            tensor.CopyFrom(numpy_helper.from_array(move(numpy_helper.to_array(tensor)), tensor.name))
    return session(out.SerializeToString()).run(None, {k: move(v) for k, v in inputs.items()})


class Verdict:
    def __init__(self, word, text=""):
        self.word, self.text = word, text
        self.steps, self.parts, self.whole, self.allowed = None, 0.0, 0.0, 0.0


def run(server, verb, model, inputs):
    """(refusal or None, outputs by name)"""
    status, message, found = server.run(verb, model.SerializeToString(), inputs)
    if status in ("UNIMPLEMENTED", "INVALID_ARGUMENT"):
        return Verdict("refused", message), None
    if status != "OK":
        return Verdict("WRONG", f"{status} {message}"), None
    return None, dict(zip([o.name for o in model.graph.output], found))


def judge(server, verb, model, inputs):
    names = rounded_tensors(model)
    outputs = [o.name for o in model.graph.output]
    try:
        shown = exposed(model, names)
        values = dict(zip([o.name for o in shown.graph.output], session(shown.SerializeToString()).run(None, inputs)))
    except Exception as problem:
        return Verdict("refused by ONNX Runtime", str(problem).splitlines()[0][:200])
    # The whole.
    refusal, found = run(server, verb, model, inputs)
    if refusal:
        return refusal
    expected = {o: np.asarray(values[o]) for o in outputs}
    wrong = misfit(expected, found)
    verdict = Verdict("agrees")
    verdict.steps = Steps()
    if wrong is None:
        runs = [dict(zip(outputs, moved(model, inputs, seed))) for seed in range(RUNS)]
        for o, e in expected.items():
            largest = max(float(np.max(np.abs(e.astype(np.float64)), initial=0)), 1e-30)
            got = error(e, found[o])
            spread = max(error(e, r[o]) for r in runs)
            beyond = TOLERANCE if e.dtype.kind == "f" else 1 / largest
            verdict.whole, verdict.allowed = max(verdict.whole, got), max(verdict.allowed, SPREAD * spread)
            if got > SPREAD * spread + beyond and wrong is None:
                wrong = f"whole: '{o}' differs by {got:.1e} of its largest element; ONNX Runtime's own result moves by {spread:.1e}"
    # The parts.
    middle = {n: np.asarray(values[n]) for n in names}
    parts = in_parts(model, middle)
    refusal, found = run(server, verb, parts, {**inputs, **middle})
    if refusal:
        refusal.text = "in parts: " + refusal.text
        return refusal
    expected = {o.name: np.asarray(values[o.name.removesuffix(MADE)]) for o in parts.graph.output}
    wrong = wrong or misfit(expected, found)
    if wrong is None:
        for o, e in expected.items():
            if e.dtype.kind == "f":
                got = error(e, found[o])
                verdict.parts = max(verdict.parts, got)
                if got > TOLERANCE:
                    wrong = wrong or f"in parts: '{o.removesuffix(MADE)}' differs by {got:.1e} of its largest element"
            else:
                verdict.steps.add(o.removesuffix(MADE), e, found[o])
        if verdict.steps.wrong:
            wrong = wrong or "in parts: " + verdict.steps.wrong
    if wrong:
        verdict.word, verdict.text = "WRONG", wrong
    elif not names and not any(n.op_type in ("MatMulNBits", "DequantizeLinear", "DynamicQuantizeLSTM") for n in model.graph.node):
        verdict.word = "nothing quantised"
    return verdict


def line(verdict):
    s = verdict.steps
    if verdict.word not in ("agrees", "WRONG") or s is None:
        return f"{verdict.word}: {verdict.text[:300]}"
    return (f"{verdict.word}, {s.elements} rounded elements, unequal {s.one / max(s.elements, 1):.1e}, beyond {s.beyond}, float results "
            f"{verdict.parts:.1e}; whole {verdict.whole:.1e} of {verdict.allowed:.1e}" + (f"; {verdict.text}" if verdict.text else ""))


def check(args):
    server = Server(args.server)
    table = collections.defaultdict(collections.Counter)
    steps, reasons = collections.defaultdict(Steps), collections.Counter()
    for entry in args.models or MODELS:
        path = os.path.join(args.folder, entry)
        if args.only and not re.search(args.only, entry):
            continue
        if not os.path.exists(os.path.join(path, "inputs.npz")):
            print(f"{entry}: was not exported", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            prepared = os.path.join(folder, "prepared.onnx")
            source = os.path.join(path, "model.onnx")
            prepare(source, prepared)
            inputs = dict(np.load(os.path.join(path, "inputs.npz")))
            inputs = {i.name: inputs[i.name] for i in session(prepared).get_inputs()}
            for mode in MODES:
                if args.modes and not re.search(args.modes, mode):
                    continue
                begin = time.time()
                try:
                    model = onnx.load_from_string(quantise(prepared, inputs, mode, folder))
                except Exception as problem:
                    verdict = Verdict("refused by the quantiser", f"{type(problem).__name__}: {str(problem)[:200]}")
                else:
                    if args.keep:
                        onnx.save(model, os.path.join(args.keep, f"{entry}.{mode}.onnx"))
                    verdict = judge(server, "interpret" if args.interpret else "compile", model, inputs)
                print(f"{entry} {mode}: {line(verdict)} ({time.time() - begin:.0f} s)", flush=True)
                table[mode][verdict.word] += 1
                if verdict.word not in ("agrees", "WRONG", "nothing quantised"):
                    reasons[f"{verdict.word}: {reason(verdict.text)}"] += 1
                if verdict.steps:
                    total = steps[mode]
                    total.elements, total.one = total.elements + verdict.steps.elements, total.one + verdict.steps.one
                    total.beyond, total.most = total.beyond + verdict.steps.beyond, max(total.most, verdict.steps.most)
    words = sorted({word for row in table.values() for word in row})
    print(f"\n{'mode':26}" + "".join(f"{word:>26}" for word in words) + f"{'elements':>14}{'unequal':>10}{'beyond':>8}{'most steps':>12}")
    for mode, row in table.items():
        s = steps[mode]
        print(f"{mode:26}" + "".join(f"{row[word] or '-':>26}" for word in words) +
              f"{s.elements:14}{s.one / max(s.elements, 1):10.1e}{s.beyond:8}{s.most:12}")
    for text, count in reasons.most_common():
        print(f"{count:5d}  {text}")
    return any(row["WRONG"] for row in table.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", help="of the exported models")
    parser.add_argument("--models", nargs="*", help="names of folders, instead of MODELS")
    parser.add_argument("--only", default="", help="a pattern of names of models")
    parser.add_argument("--modes", default="", help="a pattern of names of modes")
    parser.add_argument("--keep", help="a folder for the quantised models")
    parser.add_argument("--interpret", action="store_true", help="by the interpreter instead of compiled code")
    parser.add_argument("--server", default=SERVER)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # the quantiser's advice
    with np.errstate(all="ignore"):
        sys.exit(check(args))


if __name__ == "__main__":
    main()
