"""Writes a model with large weights in external data: a look-up in a table, then a chain of products with one row.

The weights are random and depend only on the seed; the arithmetic of one inference is small. Memory does not grow with the weights.

Usage: make_model.py FOLDER [--gib 3] [--seed 1] [--changed K]   (needs numpy and onnx)
Writes FOLDER/model.onnx and FOLDER/model.onnx.data. --changed K draws the weights of the last K layers from another seed.
"""
import argparse
import pathlib

import numpy
import onnx
from onnx import TensorProto, helper

WIDTH = 4096
TRANSPOSED = 8  # every so many layers the matrix is stored as torch.nn.Linear stores it
PIECE = 1 << 22  # elements that are drawn at a time


def write_weights(file, elements, seed):
    random = numpy.random.default_rng(seed)
    offset = file.tell()
    for begin in range(0, elements, PIECE):
        values = random.random(min(PIECE, elements - begin), dtype=numpy.float32)
        file.write(((values - 0.5) / 16).tobytes())
    return offset, 4 * elements


def external(name, dims, file, location, seed):
    offset, length = write_weights(file, int(numpy.prod(dims)), seed)
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gib", type=float, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--changed", type=int, default=0)
    flags = parser.parse_args()
    flags.folder.mkdir(parents=True, exist_ok=True)
    rows = int(flags.gib * 2**30) // 3 // (4 * WIDTH)
    layers = round((flags.gib * 2**30 - rows * 4 * WIDTH) / (4 * WIDTH * WIDTH))
    location = "model.onnx.data"
    initializers, nodes = [], [helper.make_node("Gather", ["table", "token"], ["h0"], name="look_up")]
    with open(flags.folder / location, "wb") as file:
        initializers.append(external("table", [rows, WIDTH], file, location, [flags.seed, 0]))
        for k in range(layers):
            seed = [flags.seed + (k >= layers - flags.changed), k + 1]
            initializers.append(external(f"w{k}", [WIDTH, WIDTH], file, location, seed))
            inputs, output = [f"h{k}", f"w{k}"], f"h{k + 1}"
            if k % TRANSPOSED == 0:
                nodes.append(helper.make_node("Gemm", inputs, [output], name=f"layer{k}", transB=1))
            else:
                nodes.append(helper.make_node("MatMul", inputs, [output], name=f"layer{k}"))
    graph = helper.make_graph(
        nodes, "large", [helper.make_tensor_value_info("token", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info(f"h{layers}", TensorProto.FLOAT, [1, WIDTH])], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (flags.folder / "model.onnx").write_bytes(model.SerializeToString())
    print(f"{flags.folder}/model.onnx: {layers} layers, table of {rows} rows, "
          f"{(flags.folder / location).stat().st_size} bytes of weights")


if __name__ == "__main__":
    main()
