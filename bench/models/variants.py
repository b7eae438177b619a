"""Models of the zoo at other sizes: "resnet18@96" takes images of 96 x 96, "bert_base@32" sequences of 32 tokens."""

import os

from bench.common.tool import run_tool

# The extent that can be changed: the side of the image, or the length of the sequence. Nothing of the weights depends on it.
EXTENTS = {
    "resnet18": 224,
    "resnet50": 224,
    "resnext50": 224,
    "mobilenet_v1": 224,
    "mobilenet_v2": 224,
    "squeezenet": 224,
    "nasnet_a": 224,
    "inception_v3": 299,
    "bert_base": 128,
    "lstm_lm": 20,
}


def write(programs, name, path, seed=1):
    """Writes the model NAME or NAME@EXTENT with the weights of `seed`. ValueError: it is not in the zoo at that size."""
    base, at, extent = name.partition("@")
    if at and (base not in EXTENTS or not extent.isdecimal() or not 1 <= int(extent) <= 4096):
        raise ValueError(f"{name}: other sizes are written {', '.join(f'{known}@N' for known in EXTENTS)}")
    run_tool([os.path.join(programs, "heddle"), "zoo", base, "-o", path, "--seed", str(seed)])
    if at and int(extent) != EXTENTS[base]:
        _resize(path, EXTENTS[base], int(extent))


def _resize(path, old, new):
    """Replaces the extent in the shapes of inputs and outputs, and in the constants that hold shapes."""
    import onnx  # only some benchmarks have it

    model = onnx.load(path)
    for value in [*model.graph.input, *model.graph.output]:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_value == old:
                dimension.dim_value = new
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT64 and len(tensor.dims) == 1:
            values = onnx.numpy_helper.to_array(tensor).copy()
            values[values == old] = new
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(model, path)
