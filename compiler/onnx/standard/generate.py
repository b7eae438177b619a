#!/usr/bin/env python3
"""Writes operators.inc, the operators of the ONNX standard as text, from the Python package onnx:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install onnx
    /tmp/venv/bin/python compiler/onnx/standard/generate.py > compiler/onnx/standard/operators.inc

standard.h explains the lines. After a new version of the package, read what changed (git diff) before kNewestReviewedOpset
of table.cc is raised.
"""
import sys

import onnx
import onnx.defs

Option = onnx.defs.OpSchema.FormalParameterOption
Attr = onnx.defs.OpSchema.AttrType
SUFFIX = {Option.Single: "", Option.Optional: "?", Option.Variadic: "*"}
OTHER_DOMAINS = ["ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview"]


def element_types(allowed):
    """The tensor types of a constraint, and the kinds of other values that it allows."""
    tensors = sorted(t[len("tensor("):-1] for t in allowed if t.startswith("tensor("))
    others = sorted({t.split("(")[0] for t in allowed if not t.startswith("tensor(")})
    return tuple(tensors + others)


def default_text(attribute):
    value = onnx.helper.get_attribute_value(attribute.default_value)
    if attribute.type == Attr.FLOAT:
        import numpy
        return repr(float(str(numpy.float32(value))))
    if attribute.type == Attr.STRING:
        return value.decode()
    if attribute.type == Attr.STRINGS:
        return ",".join(v.decode() for v in value)
    if attribute.type == Attr.INTS:
        return ",".join(str(v) for v in value)
    assert attribute.type == Attr.INT, attribute.type
    return str(value)


def operand_text(operand, least):
    suffix = SUFFIX[operand.option]
    if operand.option == Option.Variadic:
        suffix += str(least) + ("" if operand.is_homogeneous else "~")
    type_text = operand.type_str[len("tensor("):-1] if operand.type_str.startswith("tensor(") else operand.type_str
    return f"{operand.name}{suffix}:{type_text}"


def attribute_text(name, attribute):
    text = f"{name}:{attribute.type.name.lower()}"
    if attribute.required:
        return text + "!"
    if attribute.default_value.type == onnx.AttributeProto.UNDEFINED:
        return text
    default = default_text(attribute)
    assert " " not in default, (name, default)
    return f"{text}={default}"


# This version is deprecated, and the next one has other operands. Models have it all the same.
GROUPS = ("GroupNormalization", 18)


def operator_line(schema, names_of_sets):
    parts = [schema.name, str(schema.since_version)]
    if schema.deprecated and (schema.name, schema.since_version) != GROUPS:
        return " ".join(parts + ["removed"])
    parts += ["|"] + [operand_text(i, i.min_arity) for i in schema.inputs]
    parts += ["|"] + [operand_text(o, o.min_arity) for o in schema.outputs]
    parts += ["|"] + [attribute_text(n, a) for n, a in sorted(schema.attributes.items())]
    parts += ["|"] + [f"{c.type_param_str}={names_of_sets[element_types(c.allowed_type_strs)]}" for c in schema.type_constraints]
    return " ".join(parts)


def main():
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.support_level == onnx.defs.OpSchema.SupportType.COMMON]
    standard = sorted((s for s in schemas if s.domain == ""), key=lambda s: (s.name, s.since_version))
    sets = {}
    for schema in standard:
        for constraint in schema.type_constraints:
            key = element_types(constraint.allowed_type_strs)
            sets[key] = sets.get(key, 0) + 1
    names_of_sets = {key: key[0] if len(key) == 1 else None for key in sets}
    for key in sorted((k for k in sets if len(k) > 1), key=lambda k: (-sets[k], k)):
        names_of_sets[key] = f"S{sum(n is not None and n[0] == 'S' for n in names_of_sets.values()) + 1}"
    out = ["// Written by generate.py from onnx " + onnx.__version__ + "; standard.h explains the lines.", 'R"(',
           f"newest {onnx.defs.onnx_opset_version()}", f"source onnx {onnx.__version__}"]
    for key, name in names_of_sets.items():
        if len(key) > 1:
            out.append(f"types {name} {' '.join(key)}")
    for domain in OTHER_DOMAINS:
        out.append(f"domain {domain} " + " ".join(sorted({s.name for s in schemas if s.domain == domain})))
    out += [operator_line(s, names_of_sets) for s in standard] + [')"']
    print("\n".join(out))


if __name__ == "__main__":
    sys.exit(main())
