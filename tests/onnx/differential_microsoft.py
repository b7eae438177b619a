"""Random models of ONNX Runtime's own operators (domain com.microsoft), for differential.py. Those without a kernel for CPUs
(BiasAdd, BiasSplitGelu, GroupNorm, SkipGroupNorm) are compared with formulas in microsoft_test.cc instead."""
import types

import numpy as np
import onnx
from onnx import defs
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

import differential_models as models
from differential_models import F32, I32, I8, U8, OTHER_SCHEMAS, Rejected, operator, quantisation, windows


def like_onnx(schema):
    """A schema of ONNX Runtime with the fields that Draw reads of those of onnx."""
    attribute = lambda a: types.SimpleNamespace(type=defs.OpSchema.AttrType.__members__[str(a.type).split(".")[-1]])
    return types.SimpleNamespace(inputs=[types.SimpleNamespace(type_str=i.typeStr) for i in schema.inputs],
                                 type_constraints=schema.type_constraints,
                                 attributes={name: attribute(a) for name, a in schema.attributes.items()})


for _schema in get_all_operator_schema():
    if _schema.domain == "com.microsoft":
        OTHER_SCHEMAS["com.microsoft." + _schema.name] = like_onnx(_schema)
    if _schema.name == "SimplifiedLayerNormalization":
        OTHER_SCHEMAS[_schema.name] = like_onnx(_schema)

# NaN and infinities spread in sums, whose terms have no fixed order.
models.FINITE.update(name for name in OTHER_SCHEMAS if not name.endswith("Gelu"))


def microsoft(*names, **options):
    return operator(*("com.microsoft." + n for n in names), **{"since": 13, "graph": False, **options})


def op(d):
    return d.op.rpartition(".")[2]


# ---- Activations, products, normalisations ----


@microsoft("Gelu", "QuickGelu", graph=True)
def activation(d):
    d.add([d.x(rank=(1, 4), among=[F32])], alpha=d.pick(None, d.float(0.5, 2)))


@microsoft("BiasGelu", "FastGelu", graph=True)
def bias_gelu(d):
    x = d.x(rank=(1, 4), among=[F32])
    v = d.of(x)
    d.add([x] + ([d.operand(v.dtype, v.shape[-1:])] if op(d) == "BiasGelu" or d.chance(0.6) else []))


@microsoft("FusedMatMul", "TransposeMatMul", graph=True)
def fused_matmul(d):
    a = d.x(rank=(2, 4), among=[F32])
    v = d.of(a)
    batch = d.pick(0, 0, 1) if v.ndim > 2 and op(d) == "FusedMatMul" else 0
    turn = d.int(0, 1)
    lead = v.shape[1:-1] if batch else v.shape[:-2]  # the batch, as the product sees it
    rows, last = v.shape[0] if batch else v.shape[-2], v.shape[-1]
    k, n = rows if turn else last, d.rng.choice(models.EXTENTS)
    turn_b, batch_b = d.int(0, 1), d.pick(0, 0, 1) if op(d) == "FusedMatMul" and len(lead) > 0 else 0
    x, y = (n, k) if turn_b else (k, n)
    b = d.operand(v.dtype, (x,) + tuple(lead) + (y,) if batch_b else tuple(lead) + (x, y))
    d.add([a, b], transA=turn or None, transB=turn_b or None, transBatchA=batch or None, transBatchB=batch_b or None,
          alpha=d.pick(None, 0.5, -1.5))


ACTIVATIONS = {"Relu": 0, "Tanh": 0, "Sigmoid": 0, "LeakyRelu": 1, "HardSigmoid": 2, "Clip": 2}


@microsoft("FusedGemm")
def fused_gemm(d):
    models.gemm(d)
    name = d.pick("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Elu", "ThresholdedRelu", "Softplus", "Softsign", "HardSigmoid")
    d.nodes[-1].attribute.append(onnx.helper.make_attribute("activation", name))
    count = 2 if name == "HardSigmoid" else 1 if name in ("LeakyRelu", "Elu", "ThresholdedRelu") else 0
    for attribute in ("activation_alpha", "activation_beta")[:count]:
        d.nodes[-1].attribute.append(onnx.helper.make_attribute(attribute, d.float(0.1, 0.9)))


@microsoft("FusedConv")
def fused_conv(d):
    dims = d.pick(2, 2, 1, 3)
    x = d.operand(F32, (d.int(1, 2), d.pick(1, 2, 4)) + tuple(d.int(4, 8) for _ in range(dims)))
    v = d.of(x)
    kernel, attrs = windows(d, dims, v.shape[2:], False)
    group = d.pick(1, 1, v.shape[1])
    w = d.operand(F32, [group * d.int(1, 3), v.shape[1] // group] + kernel, "small", True)
    bias = d.operand(F32, d.of(w).shape[:1], "small", True) if d.chance(0.6) else ""
    name = d.rng.choice(list(ACTIVATIONS))
    parameters = sorted(d.float(0.01, 1) for _ in range(ACTIVATIONS[name]))
    d.add([x, w, bias], group=group, activation=name, activation_params=parameters or None, **attrs)


@microsoft("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", graph=True)
def skip_layer_norm(d):
    x = d.x(rank=(3, 3), among=[F32])
    v = d.of(x)
    full = op(d) == "SkipLayerNormalization"
    skip = d.operand(F32, v.shape if d.chance(0.6) else d.pick((1,) + v.shape[1:], v.shape[1:]), "small")
    more = [d.operand(F32, v.shape[-1:], "small")]
    if full:
        more.append(d.operand(F32, v.shape[-1:], "small") if d.chance(0.7) else "")
    more.append(d.operand(F32, v.shape[-1:], "small") if d.chance(0.5) else "")
    d.add([x, skip] + more, outputs=d.pick([True], [True, False, False, True]), epsilon=d.pick(1e-5, 1e-2))


@operator("SimplifiedLayerNormalization", since=13)
def simplified_layer_norm(d):
    models.rms_norm(d)


@microsoft("EmbedLayerNormalization")
def embed_layer_norm(d):
    batch, steps, size = d.int(1, 3), d.int(1, 5), d.pick(3, 4, 8)
    ids = lambda high, shape: d.tensor(d.np.integers(0, high, size=shape).astype(I32))
    table = lambda rows: d.operand(F32, (rows, size), "small", True)
    segments = d.chance(0.6)
    mask = d.tensor((d.np.random((batch, steps)) < 0.7).astype(I32)) if d.chance(0.6) else ""
    places = ids(7, d.pick((batch, steps), (1, steps))) if d.chance(0.4) else ""
    d.add([ids(9, (batch, steps)), ids(2, (batch, steps)) if segments else "", table(9), table(7), table(2) if segments else "",
           d.operand(F32, (size,), "small"), d.operand(F32, (size,), "small"), mask, places],
          outputs=d.pick([True, True], [True, True, True]), epsilon=d.pick(None, 1e-3))


# ---- Quantised ----


def dequantised(d, dtype, shape, constant=False):
    """An operand with its scale and zero point. ONNX Runtime makes tables of some beforehand, and needs constants for it."""
    x, scale, zero = d.tensor(d.values(dtype, shape)), *quantisation(d, None, dtype)
    for name in (scale, zero):
        if constant:
            d.inputs.pop(name, None)
            d.constants[name] = d.value[name]
    return [x, scale, zero]


def result(d, dtype, low=0.05, high=0.5):
    """Scale and zero point of the result."""
    return [d.tensor(np.asarray(d.float(low, high), F32), True), d.tensor(np.asarray(d.int(5, 90), dtype), True)]


@microsoft("QLinearAdd", "QLinearMul")
def qlinear_pair(d):
    t, shape = d.pick(U8, I8), d.shape(d.int(0, 4))
    d.add(dequantised(d, t, shape) + dequantised(d, t, d.broadcastable(shape, True)) + result(d, t))


@microsoft("QLinearSigmoid", "QLinearLeakyRelu")
def qlinear_unary(d):
    t = d.pick(U8, I8)
    d.add(dequantised(d, t, d.shape(d.int(1, 4))) + result(d, t, 0.004, 0.05), alpha=d.pick(None, d.float(0.01, 1)))


@microsoft("QLinearSoftmax")
def qlinear_softmax(d):
    t, shape = d.pick(U8, I8), d.shape(d.int(1, 4))
    d.add(dequantised(d, t, shape) + [d.tensor(np.asarray(1 / 256, F32), True), d.tensor(np.asarray(0 if t == U8 else -128, t), True)],
          opset=d.pick(11, 13), axis=d.axis(len(shape)))


@microsoft("QLinearConcat")
def qlinear_concat(d):
    t, shape = d.pick(U8, I8), list(d.shape(d.int(1, 4), 500))
    axis = d.axis(len(shape))
    parts = []
    for _ in range(d.int(1, 4)):
        part = list(shape)
        part[axis] = d.int(1, 5)
        parts += dequantised(d, t, part, True)
    d.add(result(d, t) + parts, axis=axis)


@microsoft("QLinearWhere")
def qlinear_where(d):
    t, shape = d.pick(U8, I8), d.shape(d.int(1, 4))
    sides = dequantised(d, t, d.broadcastable(shape, True), True) + dequantised(d, t, shape, True)
    d.add([d.operand(models.BOOL, d.broadcastable(shape), "small")] + sides + result(d, t))


@microsoft("QLinearGlobalAveragePool", "QLinearAveragePool")
def qlinear_pool(d):
    t, dims, last = d.pick(U8, I8), d.pick(1, 2, 2, 3), d.int(0, 1)
    shape = (d.int(1, 2), d.int(1, 5)) + tuple(d.int(3, 8) for _ in range(dims))
    stored = (shape[0],) + shape[2:] + shape[1:2] if last else shape
    inputs = dequantised(d, t, stored) + result(d, t)
    if op(d) == "QLinearGlobalAveragePool":
        return d.add(inputs, channels_last=last or None)
    kernel, attrs = windows(d, dims, shape[2:], True)
    attrs.pop("dilations", None)
    pads = attrs.get("pads") or [0] * (2 * dims)
    if any(e + a + b < k for e, a, b, k in zip(shape[2:], pads, pads[dims:], kernel)):
        raise Rejected  # no result; ONNX Runtime divides by zero
    d.add(inputs, channels_last=last or None, kernel_shape=kernel, ceil_mode=d.pick(None, 0, 1), count_include_pad=d.pick(None, 0, 1), **attrs)


@microsoft("QGemm")
def qgemm(d):
    ta, tb = d.int(0, 1), d.int(0, 1)
    a, b = d.pick(U8, I8), d.pick(U8, I8)
    if a == I8:
        b = I8
    m, k, n = (d.rng.choice(models.EXTENTS) for _ in range(3))
    columns = n if d.chance(0.4) else None
    c = d.tensor(d.np.integers(-300, 300, size=d.pick((n,), (1, n), (m, n))).astype(I32)) if d.chance(0.6) else ""
    scale, zero = quantisation(d, columns, b)
    x = [*dequantised(d, a, (k, m) if ta else (m, k)), d.tensor(d.values(b, (n, k) if tb else (k, n))), scale, zero, c]
    d.add(x + (result(d, a) if d.chance(0.6) else []), transA=ta, transB=tb, alpha=d.pick(None, 0.5, 2.0))


@microsoft("DynamicQuantizeMatMul", "MatMulIntegerToFloat")
def integer_to_float(d):
    dynamic, a = op(d) == "DynamicQuantizeMatMul", d.pick(U8, I8)
    shape, b, n = d.shape(d.int(2, 3), 300), d.pick(U8, I8), d.rng.choice(models.EXTENTS)
    if a == I8 and not dynamic:
        b = I8
    columns = n if d.chance(0.5) else None
    weights = d.tensor(d.values(b, (shape[-1], n)), True)
    scale, zero = quantisation(d, columns, b)
    zero = zero if d.chance(0.6) else ""
    bias = d.operand(F32, (n,), "small", True) if d.chance(0.5) else ""
    if dynamic:
        x = d.values(F32, shape, "small")
        return d.add([d.tensor(x * (d.chance(0.95))), weights, scale, zero, bias])
    x, scale_a, zero_a = dequantised(d, a, shape)
    d.add([x, weights, scale_a, scale, zero_a if d.chance(0.7) else "", zero, bias])


@microsoft("DynamicQuantizeLSTM")
def dynamic_lstm(d):
    steps, batch, size, hidden = d.int(1, 4), d.int(1, 3), d.int(1, 5), d.int(1, 4)
    direction = d.pick(None, "forward", "reverse", "bidirectional")
    n, t = 2 if direction == "bidirectional" else 1, d.pick(U8, I8)

    def weights(rows):
        columns = d.chance(0.5)
        shape = (n, 4 * hidden) if columns else (n,)
        zero = np.zeros(shape, t) if columns or t == I8 else d.np.integers(100, 150, size=shape).astype(t)
        values = d.np.integers(0 if t == U8 else -128, 255 if t == U8 else 127, size=(n, rows, 4 * hidden), endpoint=True).astype(t)
        return d.tensor(values, True), d.tensor(d.np.uniform(0.002, 0.01, size=shape).astype(F32), True), d.tensor(zero, True)

    (w, w_scale, w_zero), (r, r_scale, r_zero) = weights(size), weights(hidden)
    f = lambda *shape: d.operand(F32, shape, "unit", True)
    lengths = d.tensor(np.full(batch, steps, I32), True) if d.chance(0.3) else ""
    state = [f(n, batch, hidden), f(n, batch, hidden)] if d.chance(0.5) else ["", ""]
    d.add([d.operand(F32, (steps, batch, size), "unit"), w, r, f(n, 8 * hidden) if d.chance(0.7) else "", lengths, *state, "",
           w_scale, w_zero, r_scale, r_zero], outputs=3, hidden_size=hidden, direction=direction)


@microsoft("MatMulNBits")
def matmul_nbits(d):
    bits, block = d.pick(4, 4, 8, 2), d.pick(16, 32, 64)
    k, n = d.int(1, 80), d.int(1, 20)
    blocks = -(-k // block)
    packed = lambda *shape: d.tensor(d.np.integers(0, 256, size=shape).astype(U8), True)
    flat = d.chance(0.3)
    scales = d.np.uniform(-0.2, 0.2, size=(n * blocks,) if flat else (n, blocks)).astype(F32)
    zero = packed(*((n * (-(-blocks * bits // 8)),) if flat else (n, -(-blocks * bits // 8)))) if d.chance(0.5) else ""
    if zero == "" and d.chance(0.3) and bits == 4:
        zero = d.tensor(d.np.uniform(0, 15, size=(n, blocks)).astype(F32), True)
    bias = d.operand(F32, (n,), "small", True) if d.chance(0.4) else ""
    d.add([d.operand(F32, d.shape(d.int(1, 2), 40) + (k,), "small"), packed(n, blocks, block * bits // 8), d.tensor(scales, True), zero, "", bias],
          K=k, N=n, bits=d.pick(bits, bits if bits != 4 else None), block_size=block)


@microsoft("QuantizeLinear", "DequantizeLinear")
def quantize(d):
    t = d.pick(U8, I8)
    shape = d.shape(d.int(1, 4))
    axis = d.axis(len(shape)) if d.chance(0.5) else None
    scale, zero = quantisation(d, None if axis is None else shape[axis], t)
    x = d.tensor(d.values(F32 if op(d) == "QuantizeLinear" else t, shape, "small"))
    d.add([x, scale, zero], axis=axis)


# ---- Attention ----


def heads_of(d):
    return d.int(1, 2), d.int(1, 3), d.int(1, 5), d.pick(1, 2, 4, 8)  # batch, heads, steps, size


def mask_of(d, batch, queries, keys, forms=("none", "flags", "pairs", "ends", "both")):
    """A mask of one of its forms, or none."""
    form = d.pick(*forms)
    if form == "none":
        return ""
    if form == "ends":
        return d.tensor(d.np.integers(1, keys, size=(batch,), endpoint=True).astype(I32))
    if form == "both":
        first = d.np.integers(0, keys, size=(batch,))
        return d.tensor(np.concatenate([d.np.integers(first + 1, keys, endpoint=True), first]).astype(I32))
    shape = (batch, keys) if form == "flags" else (batch, queries, keys)
    return d.tensor((d.np.random(shape) < 0.7).astype(I32))


@microsoft("Attention", "QAttention")
def packed_attention(d):
    batch, heads, steps, size = heads_of(d)
    quantised, wide, hidden = op(d) == "QAttention", d.int(1, 9), heads * size
    out = hidden if quantised or d.chance(0.6) else heads * d.int(1, 4)
    past = d.int(1, 3) if d.chance(0.4) and out == hidden else 0
    keys, columns = past + steps, 2 * hidden + out
    before = d.operand(F32, (2, batch, heads, past, size), "small") if past else ""
    bias = d.operand(F32, (columns,), "small", True)
    options = dict(num_heads=heads, unidirectional=d.pick(None, 0, 1), scale=d.pick(None, d.float(0.1, 1)),
                   mask_filter_value=d.pick(None, None, -100.0))
    outputs = [True, True] if past else [True]
    mask = mask_of(d, batch, steps, keys)
    if quantised:
        b = d.pick(U8, I8)
        x, scale, zero = dequantised(d, U8, (batch, steps, wide))
        weights = d.tensor(d.values(b, (wide, columns)), True)
        scale_w, zero_w = quantisation(d, None, b)
        for name in (scale_w, zero_w):
            d.inputs.pop(name, None)
            d.constants[name] = d.value[name]
        return d.add([x, weights, bias, scale, scale_w, mask, zero, zero_w, before], outputs=outputs, **options)
    x = d.operand(F32, (batch, steps, wide), "small")
    weights = d.operand(F32, (wide, columns), "small", True)
    added = d.operand(F32, (d.pick(1, batch), d.pick(1, heads), steps, keys), "small") if d.chance(0.3) and not past else ""
    d.add([x, weights, bias if d.chance(0.8) else "", mask, before, added], outputs=outputs,
          qkv_hidden_sizes=[hidden, hidden, out] if out != hidden or d.chance(0.3) else None, **options)


@microsoft("MultiHeadAttention")
def multi_head_attention(d):
    batch, heads, steps, size = heads_of(d)
    keys, out = d.int(1, 5), size if d.chance(0.6) else d.int(1, 4)
    form = d.pick("flat", "flat", "split")  # packed operands have no kernel for CPUs
    t = lambda *shape: d.operand(F32, shape, "small")
    past = d.int(1, 3) if d.chance(0.4) and form == "flat" and out == size else 0
    if form == "split":
        inputs = [t(batch, steps, heads * size), t(batch, heads, keys, size), t(batch, heads, keys, size)]
        out = size
    else:
        if past:
            keys = steps
        inputs = [t(batch, steps, heads * size), t(batch, keys, heads * size), t(batch, keys, heads * out)]
    total = past + keys
    inputs.append(t(heads * (2 * size + out)) if form in ("flat",) and d.chance(0.5) else "")
    inputs.append(mask_of(d, batch, steps, total, ("none", "flags", "pairs", "ends")))
    inputs.append(t(d.pick(1, batch), d.pick(1, heads), steps, total) if d.chance(0.3) else "")
    inputs += [t(batch, heads, past, size), t(batch, heads, past, out)] if past else []
    d.add(inputs, num_heads=heads, unidirectional=d.pick(None, 0, 1) if total <= past + steps else None, scale=d.pick(None, d.float(0.1, 1)),
          mask_filter_value=d.pick(None, None, -100.0), outputs=[True, True, True] if past else 1)


@microsoft("RotaryEmbedding")
def rotary(d):
    batch, heads, steps, half = d.int(1, 2), d.int(1, 3), d.int(1, 5), d.int(1, 4) * 8
    part = d.chance(0.3)
    size = 2 * half + (16 if part else 0)
    flat = d.chance(0.6)
    x = d.operand(F32, (batch, steps, heads * size) if flat else (batch, heads, steps, size), "small")
    rows = d.int(steps, 9)
    caches = [d.operand(F32, (rows, half), "unit") for _ in range(2)]
    one = d.chance(0.4)
    places = np.asarray([d.int(0, rows - steps)]) if one else d.np.integers(0, rows, size=(batch, steps))
    d.add([x, d.tensor(places.astype(models.I64))] + caches, interleaved=d.pick(None, 0, 1), num_heads=heads if part or d.chance(0.5) else None,
          rotary_embedding_dim=2 * half if part else None)


@microsoft("GroupQueryAttention")
def group_query_attention(d):
    batch, kv, size = d.int(1, 3), d.int(1, 2), d.pick(16, 32)
    heads = kv * d.int(1, 3)
    first = d.chance(0.4)
    several = d.chance(0.3)  # tokens after a past, of one sample
    batch = 1 if several and not first else batch
    steps = d.int(1, 5) if first or several else 1
    total = steps if first else steps + d.int(1, 6)
    held = d.pick(total, total + 2) if first else d.pick(total - steps, total, total + 3)
    lengths = np.full((batch,), total - 1)
    if not first and d.chance(0.5) and held >= total:
        lengths[1:] = d.np.integers(0, total, size=batch - 1)
    t = lambda *shape: d.operand(F32, shape, "small")
    packed = d.chance(0.3)
    inputs = [t(batch, steps, (heads + 2 * kv) * size), "", ""] if packed else [
        t(batch, steps, heads * size), t(batch, steps, kv * size), t(batch, steps, kv * size)]
    past = not first or d.chance(0.3)
    inputs += [t(batch, kv, held, size), t(batch, kv, held, size)] if past else ["", ""]
    inputs += [d.tensor(lengths.astype(I32)), d.constant(np.asarray(total), I32)]
    turn = d.chance(0.5)
    rows = total + d.int(0, 3)
    inputs += [d.operand(F32, (rows, size // 2), "unit") for _ in range(2)] if turn else ["", ""]
    begins = d.np.integers(0, rows - steps + 1, size=(batch, 1))
    inputs.append(d.tensor(begins + np.arange(steps)) if turn and d.chance(0.4) else "")
    inputs.append(t(d.pick(1, batch), d.pick(1, heads), steps, total) if d.chance(0.2) else "")
    inputs.append(t(heads) if d.chance(0.2) else "")
    causal = d.pick(None, 1, 1, 0)
    d.add(inputs, outputs=3, num_heads=heads, kv_num_heads=kv, do_rotary=1 if turn else d.pick(None, 0),
          rotary_interleaved=d.pick(None, 0, 1) if turn else None, scale=d.pick(None, d.float(0.1, 1)), softcap=d.pick(None, None, 2.0),
          local_window_size=d.pick(None, None, 1, 2, 3) if causal != 0 else None, causal=causal, smooth_softmax=d.pick(None, None, 0, 1))
