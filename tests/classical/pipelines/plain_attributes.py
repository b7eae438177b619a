"""Lets skl2onnx write what current versions of protobuf refuse: attributes that are arrays, and lists of booleans or of numpy's
numbers. Importing this changes onnx.helper.make_attribute."""
import numpy as np
import onnx


def with_plain_attributes(make_attribute):
    def make(key, value, *args, **kwargs):
        value = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(value, list):
            value = [v.item() if isinstance(v, np.generic) else v for v in value]
            value = [int(v) if isinstance(v, bool) else v for v in value]
        return make_attribute(key, value, *args, **kwargs)

    return make


onnx.helper.make_attribute = with_plain_attributes(onnx.helper.make_attribute)
