#!/usr/bin/env python3
"""Exports real architectures with both of torch's exporters and compares heddle with ONNX Runtime. Not part of ctest, since it
needs packages from PyPI (6 GB on disk):

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install onnx onnxruntime onnxscript numpy torch torchvision timm transformers diffusers
    ninja -C build/release onnx-model-server
    /tmp/venv/bin/python tests/onnx/architectures.py --export DIR    # once; about an hour on two cores
    /tmp/venv/bin/python tests/onnx/architectures.py DIR             # takes each model to code for this CPU, default schedules

Prints one line for each model, then how many agreed and the reasons of the others. A model is a folder DIR/NAME.EXPORTER with
model.onnx and its inputs. The exit status is 1 if anything is wrong.
"""
import argparse
import collections
import contextlib
import io
import os
import re
import subprocess
import sys
import time
import traceback

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SERVER = os.path.join(HERE, "../../build/release/bin/onnx-model-server")
EXPORT_S = 400  # limit for one model
EXPORTERS = ("dynamo", "script")
# As compiler/measure/tolerance.h for whole models: relative to the largest element of an output.
TOLERANCE = 1e-4


# ---- Export ----


def export_one(name, exporter, folder):
    """Writes one model. Runs in a process of its own."""
    import torch
    import warnings
    import architecture_models
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    torch.set_num_threads(2)
    _, make = architecture_models.MODELS[name]
    module, inputs = make()
    module = module.eval()
    with torch.no_grad():
        for p in module.parameters():  # parameters that start as zeros or ones would hide mistakes
            if p.ndim == 1:
                p.add_(torch.randn_like(p) * 0.1)
    os.makedirs(folder, exist_ok=True)
    names = [f"input{i}" for i in range(len(inputs))]
    with torch.no_grad():
        torch.onnx.export(module, tuple(inputs), os.path.join(folder, "model.onnx"), input_names=names, dynamo=exporter == "dynamo",
                          **({"opset_version": 17} if exporter == "script" else {}))
    np.savez(os.path.join(folder, "inputs.npz"), **{n: t.numpy() for n, t in zip(names, inputs)})


def export(folder, pattern):
    import architecture_models
    for name in architecture_models.MODELS:
        for exporter in EXPORTERS:
            if pattern and not re.search(pattern, f"{name}.{exporter}"):
                continue
            path = os.path.join(folder, f"{name.replace('/', '-')}.{exporter}")
            if os.path.exists(os.path.join(path, "inputs.npz")):
                continue
            begin = time.time()
            try:
                child = subprocess.run([sys.executable, __file__, "--one", name, exporter, path], capture_output=True, text=True,
                                       timeout=EXPORT_S)
                failed = child.returncode and (child.stderr.strip().splitlines() or ["no message"])[-1][:150]
            except subprocess.TimeoutExpired:
                failed = f"over {EXPORT_S} s"
            print(f"{name} {exporter}: {failed or 'exported'} ({time.time() - begin:.0f} s)", flush=True)
            if failed:
                os.makedirs(path, exist_ok=True)
                with open(os.path.join(path, "failed"), "w") as file:
                    file.write(failed + "\n")


# ---- Comparison ----


def embed(path):
    """The model's bytes, with its external data inside."""
    import onnx
    return onnx.load(path).SerializeToString()


def compare(expected, got):
    """The largest error of any output, relative to its largest element."""
    worst = 0.0
    for e, g in zip(expected, got):
        e = np.asarray(e)
        if e.shape != g.shape or e.dtype != g.dtype:
            return f"{g.dtype}{list(g.shape)} instead of {e.dtype}{list(e.shape)}"
        a, b = e.astype(np.float64), g.astype(np.float64)
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return "other places of NaN or infinity"
        a, b = a[np.isfinite(a)], b[np.isfinite(b)]
        if a.size:
            worst = max(worst, float(np.max(np.abs(a - b)) / max(np.max(np.abs(a)), 1e-30)))
    return worst


def reason(message):
    message = re.sub(r" \(node '[^)]*\)", "", message)
    return re.sub(r"'[^']*'", "'..'", message)[:160]


def check(folder, pattern, verb, server_path):
    from differential import Server, session
    server = Server(server_path)
    tally, reasons = collections.Counter(), collections.Counter()
    for entry in sorted(os.listdir(folder)):
        path = os.path.join(folder, entry)
        if pattern and not re.search(pattern, entry):
            continue
        if not os.path.exists(os.path.join(path, "inputs.npz")):
            tally["not exported"] += 1
            continue
        inputs = dict(np.load(os.path.join(path, "inputs.npz")))
        try:
            reference = session(os.path.join(path, "model.onnx"))
            inputs = {i.name: inputs[i.name] for i in reference.get_inputs()}
            expected = reference.run(None, inputs)
        except Exception as error:
            tally["refused by ONNX Runtime"] += 1
            print(f"{entry}: ONNX Runtime: {str(error)[:150]}")
            continue
        begin = time.time()
        status, message, got = server.run(verb, embed(os.path.join(path, "model.onnx")), inputs)
        seconds = time.time() - begin
        if status != "OK":
            tally["refused"] += 1
            for part in message.split("; ") if status == "UNIMPLEMENTED" else [f"{status} {message}"]:
                reasons[reason(part)] += 1
            print(f"{entry}: refused: {message[:300]}", flush=True)
            continue
        error = compare(expected, got)
        fine = isinstance(error, float) and error <= TOLERANCE
        tally["equal" if fine else "WRONG"] += 1
        print(f"{entry}: {'equal' if fine else 'WRONG'}, {error if isinstance(error, str) else f'relative error {error:.1e}'}, "
              f"{seconds:.1f} s", flush=True)
    print()
    print(", ".join(f"{count} {what}" for what, count in tally.most_common()))
    for what, count in reasons.most_common():
        print(f"{count:5d}  {what}")
    return tally["WRONG"] > 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--export", action="store_true", help="write the models into the folder")
    parser.add_argument("--one", nargs=3)
    parser.add_argument("--only", default="", help="a pattern of names, such as timm or resnet18.dynamo")
    parser.add_argument("--interpret", action="store_true", help="by the interpreter instead of compiled code")
    parser.add_argument("--server", default=SERVER)
    args = parser.parse_args()
    sys.path.insert(0, HERE)
    if args.one:
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                export_one(*args.one)
            except Exception as error:
                print(traceback.format_exc(), f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", sep="\n",
                      file=sys.stderr)
                sys.exit(1)
    elif args.export:
        export(args.folder, args.only)
    else:
        sys.exit(check(args.folder, args.only, "interpret" if args.interpret else "compile", args.server))


if __name__ == "__main__":
    main()
