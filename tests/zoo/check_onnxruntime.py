#!/usr/bin/env python3
"""Compares models of the zoo, compiled with default schedules, with ONNX Runtime.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install onnxruntime onnx numpy
    cmake --build --preset release --target heddle heddle-compile-default
    /tmp/venv/bin/python tests/zoo/check_onnxruntime.py [--bin build/release/bin] [--times] [MODEL ..]

Without names it takes every model that `heddle zoo` lists; a name that ends in .onnx is a file.
Inputs are random: floats uniform in [-1, 1), integers below the rows of the table they index. The
largest difference, over the largest magnitude of the output, may be 1e-4. Exit status 1 if a model
differs or does not compile.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import onnx
import onnxruntime

LARGEST_DIFFERENCE = 1e-4


def random_inputs(model, seed):
    """Values for the inputs of an onnx.ModelProto, by name."""
    rng = numpy.random.default_rng(seed)
    rows = {t.name: t.dims[0] for t in model.graph.initializer if t.dims}
    limits = {n.input[1]: rows[n.input[0]] for n in model.graph.node
              if n.op_type == "Gather" and n.input[0] in rows}
    values = {}
    for info in model.graph.input:
        if info.name in rows:
            continue
        tensor = info.type.tensor_type
        shape = [d.dim_value for d in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if numpy.issubdtype(dtype, numpy.integer):
            values[info.name] = rng.integers(0, limits.get(info.name, 2), shape).astype(dtype)
        else:
            values[info.name] = rng.uniform(-1, 1, shape).astype(dtype)
    return values


def run_onnxruntime(file, inputs, threads, rounds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, inputs)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        session.run(None, inputs)
        times.append(time.perf_counter() - start)
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, outputs)), 1e3 * statistics.median(times) if times else None


def run_heddle(args, file, inputs, folder):
    """Outputs by position, and what the compiler said."""
    module = folder / "model.heddle"
    compiled = subprocess.run(
        [args.bin / "heddle-compile-default", file, "-o", module, "--threads", str(args.threads)],
        capture_output=True, text=True)
    if compiled.returncode != 0:
        raise RuntimeError(compiled.stderr.strip())
    command = [args.bin / "heddle", "run", module]
    for name, value in inputs.items():
        numpy.save(folder / f"{len(command)}.npy", value)
        command += ["--input", f"{name}={folder / f'{len(command)}.npy'}"]
    results = folder / "out"
    results.mkdir()
    # One output is a file, several are a folder of files.
    several = len(onnx.load(file, load_external_data=False).graph.output) > 1
    command += ["-o", results if several else results / "only.npy"]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr.strip())
    outputs = {f.stem: numpy.load(f) for f in results.iterdir()}
    said = " | ".join(compiled.stdout.strip().splitlines())
    milliseconds = None
    if args.times:
        timed = subprocess.run([args.bin / "heddle", "--json", "run", module, "--evaluate"],
                               capture_output=True, text=True)
        milliseconds = json.loads(timed.stdout)["modules"][0]["median_ns"] * 1e-6
    return outputs, said, milliseconds


def check(args, name):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        if name.endswith(".onnx"):
            file = pathlib.Path(name)
        else:
            file = folder / "model.onnx"
            subprocess.run([args.bin / "heddle", "zoo", name, "-o", file, "--seed", str(args.seed)],
                           check=True, capture_output=True)
        inputs = random_inputs(onnx.load(file), args.seed)
        expected, peer_ms = run_onnxruntime(file, inputs, args.threads, 15 if args.times else 0)
        actual, said, ours_ms = run_heddle(args, file, inputs, folder)
    worst = 0.0
    for output, want in expected.items():
        got = actual[output] if output in actual else actual["only"]
        if got.shape != want.shape:
            raise RuntimeError(f"{output} has shape {got.shape}, ONNX Runtime says {want.shape}")
        if not numpy.isfinite(got).all():
            raise RuntimeError(f"{output} is not finite")
        worst = max(worst, float(numpy.max(numpy.abs(got - want)) / numpy.max(numpy.abs(want))))
    verdict = "ok  " if worst <= LARGEST_DIFFERENCE else "FAIL"
    times = f" | {ours_ms:.2f} ms, ONNX Runtime {peer_ms:.2f} ms" if ours_ms else ""
    print(f"{verdict} {name}: difference {worst:.1e} | {said}{times}", flush=True)
    return worst <= LARGEST_DIFFERENCE


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--times", action="store_true", help="time both, one after the other")
    args = parser.parse_args()
    names = args.models or subprocess.run([args.bin / "heddle", "--plain", "zoo"], check=True,
                                          capture_output=True, text=True).stdout.split()
    good = True
    for name in names:
        try:
            good &= check(args, name)
        except RuntimeError as error:
            print(f"FAIL {name}: {error}", flush=True)
            good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
