#!/usr/bin/env python3
"""Writes operators.inc, the operators of the ONNX standard as text, from the Python package onnx:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install onnx
    /tmp/venv/bin/python compiler/onnx/standard/generate.py > compiler/onnx/standard/operators.inc

With --ml it writes ml.inc, the operators of the domain ai.onnx.ml, from the same package.

With --microsoft it writes microsoft.inc, the operators of ONNX Runtime that have a translation, from the Python package
onnxruntime:

    /tmp/venv/bin/pip install onnxruntime
    /tmp/venv/bin/python compiler/onnx/standard/generate.py --microsoft > compiler/onnx/standard/microsoft.inc

standard.h explains the lines. After a new version of a package, read what changed (git diff) before kNewestReviewedOpset
or kNewestReviewedMlOpset of table.cc is raised.
"""
import sys
import types

import onnx
import onnx.defs

Option = onnx.defs.OpSchema.FormalParameterOption
Attr = onnx.defs.OpSchema.AttrType
SUFFIX = {Option.Single: "", Option.Optional: "?", Option.Variadic: "*"}
OTHER_DOMAINS = ["ai.onnx.preview.training", "ai.onnx.preview"]


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


def sets_of(schemas, prefix):
    """Names of the sets of element types in these schemas, the most frequent first. A single type is its own name."""
    counts = {}
    for schema in schemas:
        for constraint in schema.type_constraints:
            key = element_types(constraint.allowed_type_strs)
            counts[key] = counts.get(key, 0) + 1
    names = {key: key[0] for key in counts}
    for i, key in enumerate(sorted((k for k in counts if len(k) > 1), key=lambda k: (-counts[k], k))):
        names[key] = f"{prefix}{i + 1}"
    return names


def set_lines(names_of_sets):
    return [f"types {name} {' '.join(key)}" for key, name in names_of_sets.items() if len(key) > 1]


def standard_lines():
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.support_level == onnx.defs.OpSchema.SupportType.COMMON]
    standard = sorted((s for s in schemas if s.domain == ""), key=lambda s: (s.name, s.since_version))
    names_of_sets = sets_of(standard, "S")
    out = ["// Written by generate.py from onnx " + onnx.__version__ + "; standard.h explains the lines.", 'R"(',
           f"newest {onnx.defs.onnx_opset_version()}", f"source onnx {onnx.__version__}"]
    out += set_lines(names_of_sets)
    for domain in OTHER_DOMAINS:
        out.append(f"domain {domain} " + " ".join(sorted({s.name for s in schemas if s.domain == domain})))
    return out + [operator_line(s, names_of_sets) for s in standard] + [')"']


# ---- Operators of ai.onnx.ml ----


def with_domain(schema):
    """The same schema, with the domain before its name."""
    fields = ("since_version", "deprecated", "inputs", "outputs", "attributes", "type_constraints")
    return types.SimpleNamespace(name=f"{schema.domain}.{schema.name}", **{field: getattr(schema, field) for field in fields})


def ml_lines():
    schemas = [with_domain(s) for s in onnx.defs.get_all_schemas_with_history() if s.domain == "ai.onnx.ml"]
    schemas.sort(key=lambda s: (s.name, s.since_version))
    names_of_sets = sets_of(schemas, "L")
    newest = max(s.since_version for s in schemas)
    out = ["// Written by generate.py --ml from onnx " + onnx.__version__ + "; standard.h explains the lines.", 'R"(', f"newest {newest}",
           f"source onnx {onnx.__version__}"] + set_lines(names_of_sets)
    return out + [operator_line(s, names_of_sets) for s in schemas] + [')"']


# ---- Operators of ONNX Runtime ----

# SimplifiedLayerNormalization stands in the standard's own domain.
MICROSOFT = """
    Attention BiasAdd BiasGelu BiasSplitGelu CDist DequantizeLinear DynamicQuantizeLSTM DynamicQuantizeMatMul EmbedLayerNormalization FastGelu
    FusedConv FusedGemm FusedMatMul Gelu GroupNorm GroupQueryAttention MatMulIntegerToFloat MatMulNBits MultiHeadAttention QAttention
    QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearSigmoid
    QLinearSoftmax QLinearWhere QuantizeLinear QuickGelu RotaryEmbedding SimplifiedLayerNormalization SkipGroupNorm
    SkipLayerNormalization SkipSimplifiedLayerNormalization TransposeMatMul""".split()


# ONNX Runtime has no such operator, but skl2onnx writes it (compiler/onnx/operators/microsoft.cc).
SOLVE = "com.microsoft.Solve 1 | A:T Y:T | X:T | lower:int=0 transposed:int=0 | T="


def like_onnx(schema):
    """A schema of ONNX Runtime with the fields that those of onnx have."""

    def operand(o, before, least):
        option = Option.__members__[str(o.option).split(".")[-1]]
        return types.SimpleNamespace(name=o.name, option=option, type_str=o.typeStr, is_homogeneous=o.isHomogeneous,
                                     min_arity=max(least - before, 0))

    def attribute(a):
        return types.SimpleNamespace(type=Attr.__members__[str(a.type).split(".")[-1]], required=a.required,
                                     default_value=onnx.AttributeProto.FromString(a._default_value))

    return types.SimpleNamespace(
        name=(schema.domain + "." if schema.domain else "") + schema.name, since_version=schema.since_version,
        deprecated=schema.deprecated, type_constraints=schema.type_constraints,
        inputs=[operand(o, i, schema.min_input) for i, o in enumerate(schema.inputs)],
        outputs=[operand(o, i, schema.min_output) for i, o in enumerate(schema.outputs)],
        attributes={name: attribute(a) for name, a in schema.attributes.items()})


def microsoft_lines():
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema
    wanted = lambda s: s.name in MICROSOFT and s.domain == ("" if s.name == "SimplifiedLayerNormalization" else "com.microsoft")
    schemas = sorted((like_onnx(s) for s in get_all_operator_schema() if wanted(s)), key=lambda s: (s.name, s.since_version))
    assert len({s.name for s in schemas}) == len(MICROSOFT)
    names_of_sets = sets_of(schemas, "M")
    out = ["// Written by generate.py --microsoft from onnxruntime " + onnxruntime.__version__ + "; standard.h explains the lines.",
           'R"(', f"source onnxruntime {onnxruntime.__version__}"] + set_lines(names_of_sets)
    lines = [operator_line(s, names_of_sets) for s in schemas] + [SOLVE + names_of_sets["double", "float"]]
    return out + sorted(lines) + [')"']


if __name__ == "__main__":
    written = {"--ml": ml_lines, "--microsoft": microsoft_lines}
    print("\n".join(written[sys.argv[1]]() if len(sys.argv) > 1 else standard_lines()))
