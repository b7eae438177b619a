"""Random ONNX models for differential.py: one operator each, or graphs that grow operator by operator.

A generator is a function `make(d)` that draws operands and attributes from `d` (class Draw) and adds one node. OPERATORS maps
the name of each operator to its generator and the first opset for which it is meant. A new operator is one function with the
decorator `@operator`.
"""
import random

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

F32, F64, I8, U8, I32, I64, BOOL = (np.dtype(t) for t in ("f4", "f8", "i1", "u1", "i4", "i8", "?"))
DTYPES = {"tensor(float)": F32, "tensor(double)": F64, "tensor(int8)": I8, "tensor(uint8)": U8, "tensor(int32)": I32,
          "tensor(int64)": I64, "tensor(bool)": BOOL}
EXTENTS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17)
MOST_ELEMENTS = 3000  # of a tensor, so that naive loops stay fast

# Operators whose sums or products could overflow in one order of their terms, but not in another.
ORDERED = set("Conv ConvTranspose Gemm MatMul Einsum ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum "
              "AveragePool GlobalAveragePool LpPool GlobalLpPool CumSum CumProd LayerNormalization Sum Mean ScatterElements ScatterND".split())
# Operators for which the standard leaves NaN and infinities open, and in which they spread: through a state, a quantised
# number, or a weight of zero.
FINITE = set("RNN GRU LSTM GroupNormalization RMSNormalization RotaryEmbedding MaxRoiPool QuantizeLinear DynamicQuantizeLinear Resize Upsample GridSample".split())

OPERATORS = {}
OTHER_SCHEMAS = {}  # "domain.name" -> OpSchema, of operators that are not the standard's


class Rejected(Exception):
    """A draw that fits no operand; the caller draws again."""


def operator(*names, since=7, until=99, graph=True):
    """Declares the generator of these operators. `graph`: it may stand in a random graph."""

    def add(make):
        for name in names:
            OPERATORS[name] = (make, since, until, graph)
        return make

    return add


class Draw:
    """A model under construction: random operands, attributes, nodes."""

    def __init__(self, seed, opset, regime, grow=False):
        self.rng = random.Random(seed)
        self.np = np.random.default_rng(seed)
        self.opset, self.regime, self.grow = opset, regime, grow
        self.nodes, self.inputs, self.constants, self.outputs = [], {}, {}, []
        self.value = {}  # name -> array, of all tensors; in a growing graph of the results, too
        self.count = 0
        self.op = None

    # ---- Choices ----

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, *values):
        return self.rng.choice(values)

    def int(self, low, high):
        return self.rng.randint(low, high)

    def float(self, low, high):
        return float(np.float32(self.rng.uniform(low, high)))

    def shape(self, rank, most=MOST_ELEMENTS):
        while True:
            shape = tuple(self.rng.choice(EXTENTS) for _ in range(rank))
            if np.prod(shape, dtype=np.int64) <= most:
                return shape

    def schema(self):
        return OTHER_SCHEMAS.get(self.op) or defs.get_schema(self.op, self.opset, "")

    def types(self, index):
        """The element types that operand `index` may have, of those that we have."""
        schema = self.schema()
        operand = schema.inputs[min(index, len(schema.inputs) - 1)]
        allowed = [operand.type_str]
        for constraint in schema.type_constraints:
            if constraint.type_param_str == operand.type_str:
                allowed = constraint.allowed_type_strs
        return [DTYPES[t] for t in allowed if t in DTYPES]

    def dtype(self, index=0, among=None):
        types = [t for t in self.types(index) if among is None or t in among]
        if not types:
            raise Rejected
        if F32 in types and self.chance(0.6):
            return F32
        return self.rng.choice(types)

    # ---- Operands ----

    def values(self, dtype, shape, domain="plain"):
        """An array. Domains: plain, positive, unit (-1 to 1), small (no special values), nonzero."""
        n = self.np
        if dtype == BOOL:
            return n.random(shape) < 0.5
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            low, high = (1, 6) if domain in ("positive", "nonzero") else (max(info.min, -9), 9)
            if self.regime == "special" and domain == "plain" and dtype.itemsize == 1:
                low, high = info.min, info.max
            x = n.integers(low, high, size=shape, endpoint=True).astype(dtype)
            if domain == "nonzero" and dtype.kind == "i":
                x = (x * n.choice([-1, 1], size=shape)).astype(dtype)
            return x
        if self.regime == "integers":
            low, high = {"positive": (1, 5), "unit": (-1, 1)}.get(domain, (-4, 4))
            x = n.integers(low, high, size=shape, endpoint=True).astype(dtype)
            if domain == "nonzero":
                x = np.where(x == 0, 1, x)
            elif self.chance(0.3):
                x = x / 2
        else:
            low, high = {"positive": (0.1, 3), "unit": (-1, 1)}.get(domain, (-3, 3))
            x = n.uniform(low, high, size=shape)
            if domain == "nonzero":
                x = x + np.copysign(0.2, x)
        x = np.asarray(x, dtype=dtype)
        if self.regime == "special" and domain in ("plain", "positive", "unit") and self.op not in FINITE:
            odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 1e10, 1e30, -1e30, 3e38])
            if self.op in ORDERED:
                odd = odd[:7]
            if domain == "positive":
                odd = np.array([0.0, np.inf, 1e30, 1e-40])
            where = n.random(shape) < self.rng.choice([0.05, 0.3])
            x = np.where(where, n.choice(odd, size=shape), x).astype(dtype)
        return x

    def tensor(self, array, constant=None):
        """A new tensor, an input or a constant."""
        array = np.asarray(array)
        self.count += 1
        name = f"t{self.count}"
        if constant is None:
            constant = self.chance(0.25)
        (self.constants if constant else self.inputs)[name] = array
        self.value[name] = array
        return name

    def constant(self, values, dtype=I64):
        return self.tensor(np.asarray(values, dtype=dtype), constant=True)

    def operand(self, dtype, shape, domain="plain", constant=None):
        if self.grow and not constant and domain in ("plain", "small") and self.chance(0.7):
            fits = [k for k, v in self.value.items() if k not in self.constants and v.dtype == dtype and v.shape == tuple(shape)]
            if fits:
                return self.rng.choice(fits)
        return self.tensor(self.values(dtype, tuple(shape), domain), constant)

    def x(self, rank=(0, 5), index=0, among=None, domain="plain", shape=None, fits=None):
        """The operand that decides the shapes of the others."""
        types = self.types(index) if among is None else [t for t in self.types(index) if t in among]
        if self.grow and domain == "plain":
            found = [k for k, v in self.value.items() if k not in self.constants and v.dtype in types and
                     rank[0] <= v.ndim <= rank[1] and (shape is None or v.shape == tuple(shape)) and (fits is None or fits(v.shape))]
            if not found:
                raise Rejected
            recent = found[-4:]
            return self.rng.choice(recent if self.chance(0.7) else found)
        if shape is None:
            for _ in range(50):
                shape = self.shape(self.int(*rank))
                if fits is None or fits(shape):
                    break
            else:
                raise Rejected
        return self.operand(self.dtype(index, among), shape, domain, constant=self.chance(0.05))

    def of(self, name):
        return self.value[name]

    def broadcastable(self, shape, mutual=False):
        """A shape that broadcasts against this one. `mutual`: the result may be larger than both."""
        out = [1 if self.chance(0.25) else e for e in shape]
        if mutual and self.chance(0.4):
            more = [self.rng.choice(EXTENTS) if e == 1 else o for e, o in zip(shape, out)]
            if self.chance(0.3) and len(out) < 4:
                more = [self.rng.choice(EXTENTS)] + more
            if np.prod(np.broadcast_shapes(more, shape), dtype=np.int64) <= MOST_ELEMENTS:
                return tuple(more)
        return tuple(out[self.int(0, len(out)):] if self.chance(0.4) else out)

    def axis(self, rank):
        axis = self.int(0, rank - 1)
        return axis - rank if self.chance(0.3) else axis

    def axes(self, rank, least=1):
        axes = self.rng.sample(range(rank), self.int(least, rank))
        return [a - rank if self.chance(0.3) else a for a in axes]

    # ---- The node ----

    def add(self, inputs, outputs=1, **attrs):
        known = self.schema().attributes
        attrs = {k: v for k, v in attrs.items() if v is not None and k in known}
        while inputs and inputs[-1] == "":
            inputs = inputs[:-1]
        self.count += 1
        names = [f"y{self.count}_{i}" if wanted else "" for i, wanted in
                 enumerate(outputs if isinstance(outputs, list) else [True] * outputs)]
        domain, _, op = self.op.rpartition(".")
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain or None, **attrs))
        self.outputs += [n for n in names if n]


# ---- Elementwise ----

UNARY = ("Abs Neg Sign Exp Log Sqrt Tanh Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Floor Ceil Round IsNaN Not "
         "Reciprocal Relu Sigmoid Softplus Softsign HardSwish LeakyRelu Elu Celu Selu HardSigmoid ThresholdedRelu Shrink IsInf "
         "Identity").split()


@operator(*UNARY)
def unary(d):
    x = d.x()
    attrs = {}
    for name, a in d.schema().attributes.items():
        if a.type == defs.OpSchema.AttrType.FLOAT and d.chance(0.6):
            attrs[name] = d.float(0.1, 1.5) if d.op in ("Celu", "Shrink", "Selu") else d.float(-1, 2)
        elif a.type == defs.OpSchema.AttrType.INT and d.chance(0.6):
            attrs[name] = d.int(0, 1)
    d.add([x], **attrs)


@operator("Add", "Sub", "Mul", "And", "Or", "Xor", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "PRelu")
def binary(d):
    x = d.x()
    v = d.of(x)
    y = d.operand(v.dtype, d.broadcastable(v.shape, d.op != "PRelu"))
    d.add([x, y] if d.op == "PRelu" or d.chance(0.6) else [y, x])


@operator("Div")
def divide(d):
    x = d.x()
    v = d.of(x)
    integer = v.dtype.kind in "iu"
    y = d.operand(v.dtype, d.broadcastable(v.shape, True), "nonzero" if integer or d.grow else "plain")
    d.add([x, y])


@operator("Mod", since=10)
def modulo(d):
    x = d.x()
    v = d.of(x)
    y = d.operand(v.dtype, d.broadcastable(v.shape), "nonzero" if v.dtype.kind in "iu" or d.chance(0.7) else "plain")
    d.add([x, y], fmod=1 if v.dtype.kind == "f" or d.chance(0.4) else d.pick(None, 0))


@operator("Pow")
def power(d):
    x = d.x(domain="plain" if d.chance(0.5) and not d.grow else "positive")
    v = d.of(x)
    types = [t for t in d.types(1)] if d.opset >= 12 else [v.dtype]
    t = d.rng.choice(types) if d.chance(0.3) else (v.dtype if v.dtype in types else d.rng.choice(types))
    if d.chance(0.5):
        exponents = [0, 1, 2, 3] + ([0.5, -1, -0.5, 1.5] if t.kind == "f" and v.dtype.kind == "f" else [])
        y = d.tensor(np.full(d.pick((), (1,)), d.rng.choice(exponents), t), constant=d.chance(0.7))
    else:
        y = d.operand(t, d.broadcastable(v.shape), "plain" if t.kind == "f" and v.dtype.kind == "f" else "positive")
    d.add([x, y])


@operator("BitShift", since=11)
def shift(d):
    v = d.values(U8, d.shape(d.int(0, 3)))
    y = d.np.integers(0, 9, size=d.broadcastable(v.shape)).astype(U8)
    d.add([d.tensor(v), d.tensor(y)], direction=d.pick("LEFT", "RIGHT"))


@operator("Max", "Min", "Sum", "Mean")
def variadic(d):
    x = d.x()
    v = d.of(x)
    shape, parts = v.shape, [x]
    for _ in range(d.int(0, 3)):
        parts.append(d.operand(v.dtype, d.broadcastable(shape, True)))
        shape = np.broadcast_shapes(shape, d.of(parts[-1]).shape)
    d.add(parts)


@operator("Where", since=9)
def where(d):
    x = d.x(index=1)
    v = d.of(x)
    y = d.operand(v.dtype, d.broadcastable(v.shape, True))
    shape = np.broadcast_shapes(v.shape, d.of(y).shape)
    d.add([d.operand(BOOL, d.broadcastable(shape, True), "small"), x, y])


@operator("Clip")
def clip(d):
    x = d.x()
    v = d.of(x)
    if d.opset < 11:
        return d.add([x], min=d.pick(None, d.float(-2, 0)), max=d.pick(None, d.float(0, 2)))
    bounds = sorted(d.values(v.dtype, (2,), "small").tolist()) if d.chance(0.9) else [2, -1 if v.dtype.kind != "u" else 1]
    d.add([x] + [d.tensor(np.asarray(b, v.dtype), constant=d.chance(0.6)) if d.chance(0.7) else "" for b in bounds])


@operator("Cast")
def cast(d):
    x = d.x()
    to = d.rng.choice([t for t in (F32, F64, I8, U8, I32, I64, BOOL)])
    v = d.of(x)
    if v.dtype.kind == "f" and to.kind in "iu":  # the standard leaves out of range values open
        low = 0 if to.kind == "u" else -9
        with np.errstate(invalid="ignore"):
            if not d.grow and not np.all(np.isfinite(v) & (v >= low) & (v < 100)):
                fresh = np.clip(np.nan_to_num(v, nan=1.5), low, 99).astype(v.dtype)
                (d.constants if x in d.constants else d.inputs)[x] = d.value[x] = fresh
            elif d.grow and not np.all(v >= low):
                raise Rejected
    elif v.dtype.kind in "iu" and to.kind in "iu" and d.grow:
        raise Rejected
    d.add([x], to=helper.np_dtype_to_tensor_dtype(to))


@operator("CastLike", since=15)
def cast_like(d):
    x = d.x(among=[F32, F64, I32, I64])
    d.add([x, d.operand(d.pick(F32, F64), d.shape(d.int(0, 2)), "small")])


@operator("Dropout")
def dropout(d):
    x = d.x()
    more = []
    if d.opset >= 12 and d.chance(0.5):
        more = [d.tensor(np.asarray(d.float(0, 0.9), F32), constant=True)]
        if d.chance(0.5):
            more.append(d.tensor(np.asarray(False), constant=True))
    d.add([x] + more, outputs=1 if d.opset < 10 else d.pick(1, 2), ratio=0.3 if d.opset < 12 else None)


# ---- Reductions ----


@operator("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
          "ReduceLogSumExp", "ReduceSumSquare")
def reduce(d):
    x = d.x(domain="positive" if d.op == "ReduceLogSum" and not d.grow else "plain")
    rank = d.of(x).ndim
    axes = None if rank == 0 or d.chance(0.2) else d.axes(rank)
    keep = d.pick(None, 0, 1)
    if d.op == "ReduceSum" and d.opset >= 13 or d.opset >= 18:
        more = [] if axes is None else [d.constant(axes)]
        if axes is None and d.chance(0.3):
            more = [d.constant([])]
        return d.add([x] + more, keepdims=keep, noop_with_empty_axes=d.pick(None, 0, 1))
    d.add([x], axes=axes, keepdims=keep)


@operator("ArgMax", "ArgMin")
def arg(d):
    x = d.x(rank=(1, 5))
    d.add([x], axis=d.pick(None, d.axis(d.of(x).ndim)), keepdims=d.pick(None, 0, 1), select_last_index=d.pick(None, 0, 1))


@operator("CumSum", since=11)
def cumsum(d):
    x = d.x(rank=(1, 4))
    axis = d.tensor(np.asarray(d.axis(d.of(x).ndim), d.pick(I32, I64)), constant=True)
    d.add([x, axis], exclusive=d.pick(None, 0, 1), reverse=d.pick(None, 0, 1))


@operator("TopK")
def topk(d):
    x = d.x(rank=(1, 4))
    v = d.of(x)
    axis = d.axis(v.ndim)
    k = d.int(1, v.shape[axis])
    if d.opset < 10:
        return d.add([x], outputs=2, axis=axis, k=k)
    d.add([x, d.constant([k])], outputs=2, axis=d.pick(axis, axis if axis not in (-1, v.ndim - 1) else None),
          largest=d.pick(None, 0, 1), sorted=d.pick(None, 1))


@operator("Softmax", "LogSoftmax", "Hardmax")
def softmax(d):
    x = d.x(rank=(1, 4))
    rank = d.of(x).ndim
    axis = d.axis(rank) if d.opset >= 11 else d.int(0, rank - 1)
    d.add([x], axis=d.pick(axis, None) if rank > 1 else axis)


# ---- Movement ----


@operator("Reshape")
def reshape(d):
    x = d.x()
    v = d.of(x)
    shape, left = [], v.size
    for _ in range(d.int(0, 4)):
        divisors = [k for k in range(1, min(left, 40) + 1) if left % k == 0] or [1]
        shape.append(d.rng.choice(divisors))
        left //= max(shape[-1], 1)
    if left != 1 or not shape and v.ndim and d.chance(0.5):
        shape.append(left)
    for i, e in enumerate(shape):
        if i < v.ndim and e == v.shape[i] and d.chance(0.4):
            shape[i] = 0
    if shape and d.chance(0.4):
        shape[d.int(0, len(shape) - 1)] = -1
    d.add([x, d.constant(shape)], allowzero=d.pick(None, 0))


@operator("Flatten")
def flatten(d):
    x = d.x(rank=(1, 5))
    rank = d.of(x).ndim
    d.add([x], axis=d.pick(None, d.int(0 if d.opset < 11 else -rank, rank)))


@operator("Squeeze", "Unsqueeze")
def squeeze(d):
    x = d.x()
    v = d.of(x)
    if d.op == "Squeeze":
        ones = [i for i, e in enumerate(v.shape) if e == 1]
        axes = d.rng.sample(ones, d.int(0, len(ones))) or None
        rank = v.ndim
    else:
        rank = v.ndim + d.int(1, 2)
        axes = d.rng.sample(range(rank), rank - v.ndim)
    if axes and d.opset >= 11:
        axes = [a - rank if d.chance(0.3) else a for a in axes]
    if d.opset < 13:
        return d.add([x], axes=axes)
    d.add([x] if axes is None else [x, d.constant(axes)])


@operator("Shape", "Size", graph=False)
def shape_of(d):
    x = d.x()
    d.add([x], start=d.pick(None, d.int(-6, 6)), end=d.pick(None, d.int(-6, 6)))


@operator("Transpose")
def transpose(d):
    x = d.x()
    perm = list(range(d.of(x).ndim))
    d.rng.shuffle(perm)
    d.add([x], perm=d.pick(None, perm) if perm else None)


@operator("Concat")
def concat(d):
    x = d.x(rank=(1, 4))
    v = d.of(x)
    axis = d.axis(v.ndim) if d.opset >= 11 else d.int(0, v.ndim - 1)
    parts = [x]
    for _ in range(d.int(0, 3)):
        shape = list(v.shape)
        shape[axis] = d.rng.choice(EXTENTS)
        parts.append(d.operand(v.dtype, shape))
    d.rng.shuffle(parts)
    d.add(parts, axis=axis)


@operator("Split")
def split(d):
    x = d.x(rank=(1, 4))
    v = d.of(x)
    axis = d.axis(v.ndim) if d.opset >= 11 else d.int(0, v.ndim - 1)
    extent = v.shape[axis]
    parts = d.int(1, min(extent, 4))
    if extent % parts == 0 and d.chance(0.5):
        return d.add([x], outputs=parts, axis=axis)
    cuts = sorted(d.rng.sample(range(1, extent), parts - 1)) if parts > 1 else []
    sizes = [b - a for a, b in zip([0] + cuts, cuts + [extent])]
    if d.opset < 13:
        return d.add([x], outputs=parts, axis=axis, split=sizes)
    d.add([x, d.constant(sizes)], outputs=parts, axis=axis)


@operator("Slice")
def slicing(d):
    x = d.x(rank=(1, 4))
    v = d.of(x)
    axes = d.rng.sample(range(v.ndim), d.int(1, v.ndim))
    starts, ends, steps = [], [], []
    for a in axes:
        extent = v.shape[a]
        step = d.pick(1, 1, 2, 3, -1, -2) if d.opset >= 10 else 1
        low, high = sorted((d.int(0, extent), d.int(0, extent)))
        start, end = (low, high) if step > 0 else (high, low - 1)
        if step < 0 and end < 0:
            end = -extent - d.int(1, 5)
        elif end < extent and d.chance(0.3) and end > 0:
            end -= extent
        if d.chance(0.2):
            end = d.pick(2**31 - 1, 2**63 - 1) if step > 0 else -2**63
        starts.append(start - extent if d.chance(0.3) and 0 <= start < extent else start)
        ends.append(end)
        steps.append(step)
    if d.opset < 10:
        return d.add([x], starts=starts, ends=ends, axes=axes)
    if d.opset >= 10 and d.chance(0.3):
        axes = [a - v.ndim for a in axes] if d.opset >= 11 else axes
    whole = axes == list(range(len(axes))) and d.chance(0.7)
    t = I64 if any(abs(e) >= 2**31 - 1 for e in ends) else d.pick(I32, I64)
    more = [d.constant(starts, t), d.constant(ends, t), "" if whole else d.constant(axes, t)]
    if any(s != 1 for s in steps) or d.chance(0.5):
        more.append(d.constant(steps, t))
    d.add([x] + more)


@operator("Pad")
def pad(d):
    x = d.x(rank=(1, 4))
    v = d.of(x)
    mode = d.pick("constant", "reflect", "edge")
    most = [e - 1 if mode == "reflect" else 4 for e in v.shape] * 2
    least = [-(e - 1) // 3 if mode == "constant" or d.chance(0.1) else 0 for e in v.shape] * 2
    pads = [d.int(low, min(high, 4)) if d.chance(0.6) else 0 for low, high in zip(least, most)]
    if d.opset < 11:
        return d.add([x], pads=pads, mode=mode, value=d.pick(None, d.float(-2, 2)))
    more = []
    if mode == "constant" and d.chance(0.6):
        more = [d.tensor(d.values(v.dtype, (), "small"), constant=d.chance(0.5))]
    d.add([x, d.constant(pads)] + more, mode=d.pick(mode, mode if mode != "constant" else None))


@operator("Expand", since=8)
def expand(d):
    x = d.x(rank=(0, 4))
    v = d.of(x)
    shape = [d.pick(1, 2, 3) if e == 1 else d.pick(1, e) for e in v.shape]
    shape = [d.pick(1, 2, 3) for _ in range(d.int(0, 2))] + shape
    d.add([x, d.constant(shape if d.chance(0.8) or d.grow else shape[d.int(0, len(shape)):])])


@operator("Tile")
def tile(d):
    x = d.x(rank=(1, 4))
    d.add([x, d.constant([d.pick(1, 1, 2, 3) for _ in range(d.of(x).ndim)])])


@operator("Gather")
def gather(d):
    x = d.x(rank=(1, 4))
    v = d.of(x)
    axis = d.axis(v.ndim) if d.opset >= 11 else d.int(0, v.ndim - 1)
    low = -v.shape[axis] if d.opset >= 11 and d.chance(0.5) else 0
    i = d.np.integers(low, v.shape[axis], size=d.shape(d.int(0, 2), 40)).astype(d.pick(I32, I64))
    d.add([x, d.tensor(i)], axis=axis)


@operator("GatherElements", since=11)
def gather_elements(d):
    x = d.x(rank=(1, 4))
    v = d.of(x)
    axis = d.axis(v.ndim)
    shape = [d.int(1, e) for e in v.shape]
    shape[axis] = d.int(1, 6)
    i = d.np.integers(-v.shape[axis], v.shape[axis], size=shape).astype(d.pick(I32, I64))
    d.add([x, d.tensor(i)], axis=axis)


@operator("GatherND", since=11)
def gather_nd(d):
    x = d.x(rank=(1, 4))
    v = d.of(x)
    batch = d.int(0, min(v.ndim - 1, 1)) if d.opset >= 12 and d.chance(0.4) else 0
    depth = d.int(1, v.ndim - batch)
    lead = v.shape[:batch] + d.shape(d.int(0, 2), 12)
    i = np.stack([d.np.integers(-v.shape[batch + k], v.shape[batch + k], size=lead) for k in range(depth)], -1).astype(I64)
    d.add([x, d.tensor(i)], batch_dims=batch if batch else None)


@operator("OneHot", since=9)
def one_hot(d):
    depth = d.int(1, 7)
    t = d.pick(I32, I64, F32) if d.chance(0.4) else I64
    i = d.np.integers(-depth - 2, depth + 3, size=d.shape(d.int(0, 3), 60)).astype(t)
    values = d.values(d.pick(F32, I64, I32), (2,), "small")
    d.add([d.tensor(i), d.constant(d.pick(depth, [depth]), d.pick(I64, I64, F32)), d.tensor(values)],
          axis=d.pick(None, d.int(-i.ndim - 1, i.ndim)))


@operator("DepthToSpace", "SpaceToDepth")
def depth_to_space(d):
    b = d.int(1, 3)
    if d.op == "DepthToSpace":
        fits = lambda s: s[1] % (b * b) == 0
        shape = (d.int(1, 2), b * b * d.int(1, 3), d.int(1, 5), d.int(1, 5))
    else:
        fits = lambda s: s[2] % b == 0 and s[3] % b == 0
        shape = (d.int(1, 2), d.int(1, 5), b * d.int(1, 4), b * d.int(1, 4))
    x = d.x(rank=(4, 4), fits=fits, shape=None if d.grow else shape)
    d.add([x], blocksize=b, mode=d.pick(None, "DCR", "CRD") if d.op == "DepthToSpace" else None)


@operator("Trilu", since=14)
def trilu(d):
    x = d.x(rank=(2, 4))
    d.add([x] + ([d.constant(d.int(-9, 9))] if d.chance(0.6) else []), upper=d.pick(None, 0, 1))


@operator("ReverseSequence", since=10)
def reverse_sequence(d):
    x = d.x(rank=(2, 4))
    v = d.of(x)
    time = d.int(0, 1)
    lengths = d.np.integers(1, v.shape[time], size=(v.shape[1 - time],), endpoint=True).astype(I64)
    d.add([x, d.tensor(lengths)], time_axis=time, batch_axis=1 - time)


@operator("ScatterElements", "Scatter")
def scatter_elements(d):
    x = d.x(rank=(1, 3))
    v = d.of(x)
    axis = d.axis(v.ndim) if d.opset >= 11 else d.int(0, v.ndim - 1)
    reduction = d.pick(None, "none", "add", "mul", "max", "min")
    if reduction in ("max", "min") and d.opset < 18:
        reduction = "add"
    shape = [d.int(1, e) for e in v.shape]
    if reduction in (None, "none"):  # without duplicates, the order of which is open
        shape[axis] = d.int(1, v.shape[axis])
        i = d.np.permuted(np.broadcast_to(np.arange(v.shape[axis]), np.moveaxis(np.empty([e if k != axis % v.ndim else v.shape[axis]
                          for k, e in enumerate(shape)]), axis, -1).shape).copy(), axis=-1)[..., :shape[axis]]
        i = np.moveaxis(i, -1, axis)
    else:
        i = d.np.integers(-v.shape[axis], v.shape[axis], size=shape)
    if d.opset >= 11 and d.chance(0.4):
        i = np.where((d.np.random(i.shape) < 0.3) & (i >= 0), i - v.shape[axis], i)
    d.add([x, d.tensor(i.astype(d.pick(I32, I64))), d.operand(v.dtype, shape)], axis=axis, reduction=reduction)


@operator("ScatterND", since=11)
def scatter_nd(d):
    x = d.x(rank=(1, 3))
    v = d.of(x)
    depth = d.int(1, v.ndim)
    places = int(np.prod(v.shape[:depth]))
    flat = d.rng.sample(range(places), d.int(1, min(places, 6)))
    i = np.stack(np.unravel_index(flat, v.shape[:depth]), -1).astype(I64)
    if len(flat) % 2 == 0 and d.chance(0.4):
        i = i.reshape(2, -1, depth)
    reduction = d.pick(None, "none", "add", "mul")
    if reduction in ("add", "mul") and d.chance(0.5):
        i[..., 0] = i.reshape(-1, depth)[0, 0]
    d.add([x, d.tensor(i), d.operand(v.dtype, i.shape[:-1] + v.shape[depth:])], reduction=reduction)


# ---- Constants ----


@operator("Constant", graph=False)
def constant(d):
    if d.opset >= 12 and d.chance(0.6):
        return d.add([], **d.pick({"value_int": d.int(-9, 9)}, {"value_float": d.float(-3, 3)}, {"value_ints": [1, -2, 3]},
                                  {"value_floats": [0.5, -1.5]}))
    d.add([], value=numpy_helper.from_array(d.values(d.pick(F32, F64, I8, U8, I32, I64, BOOL), d.shape(d.int(0, 3)))))


@operator("ConstantOfShape", since=9, graph=False)
def constant_of_shape(d):
    value = d.pick(None, numpy_helper.from_array(d.values(d.pick(F32, F64, I8, U8, I32, I64, BOOL), (1,))))
    d.add([d.constant(d.shape(d.int(0, 4)))], value=value)


@operator("EyeLike", since=9, graph=False)
def eye_like(d):
    x = d.x(rank=(2, 2))
    d.add([x], k=d.pick(None, d.int(-4, 4)), dtype=d.pick(None, 1, 7, 11))


@operator("Range", since=11, graph=False)
def ranges(d):
    t = d.pick(F32, F64, I32, I64)
    start, step = d.int(-5, 5), d.pick(1, 2, -1, -3)
    limit = start + step * d.int(1, 8) + d.int(0, 1)
    if t.kind == "f" and d.chance(0.7):
        step = step * 0.3
    d.add([d.constant(np.asarray(v), t) for v in (start, limit, step)])


@operator("HannWindow", "HammingWindow", "BlackmanWindow", since=17, graph=False)
def window(d):
    d.add([d.constant(np.asarray(d.int(1, 20)), d.pick(I32, I64))], periodic=d.pick(None, 0, 1), output_datatype=d.pick(None, 1, 11))


# ---- Networks ----


def windows(d, dims, spatial, pads_below_kernel):
    """kernel and attributes of a window that fits."""
    kernel = [d.int(1, 4) for _ in range(dims)]
    attrs = {"strides": [d.int(1, 3) for _ in range(dims)] if d.chance(0.6) else None,
             "dilations": [d.pick(1, 1, 2, 3) for _ in range(dims)] if d.chance(0.4) else None}
    how = d.pick("pads", "pads", "none", "auto")
    if how == "pads":
        attrs["pads"] = [d.int(0, (k - 1) if pads_below_kernel else 3) for k in kernel * 2]
    if how == "auto":
        attrs["auto_pad"] = d.pick("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    return kernel, attrs


@operator("Conv")
def conv(d):
    x = d.x(rank=(3, 5), fits=lambda s: s[1] <= 16)
    v = d.of(x)
    dims = v.ndim - 2
    kernel, attrs = windows(d, dims, v.shape[2:], False)
    group = d.rng.choice([g for g in range(1, v.shape[1] + 1) if v.shape[1] % g == 0])
    w = d.operand(v.dtype, [group * d.int(1, 3), v.shape[1] // group] + kernel, "small" if d.grow else "plain", d.chance(0.6))
    out = d.of(w).shape[0]
    bias = [d.operand(v.dtype, [out], constant=True)] if d.chance(0.5) else []
    d.add([x, w] + bias, group=group if group > 1 or d.chance(0.5) else None, kernel_shape=d.pick(None, kernel), **attrs)


@operator("ConvTranspose")
def conv_transpose(d):
    x = d.x(rank=(3, 5), fits=lambda s: s[1] <= 8)
    v = d.of(x)
    dims = v.ndim - 2
    kernel, attrs = windows(d, dims, v.shape[2:], True)
    group = d.rng.choice([g for g in range(1, v.shape[1] + 1) if v.shape[1] % g == 0])
    w = d.operand(v.dtype, [v.shape[1], d.int(1, 3)] + kernel, "small", d.chance(0.6))
    bias = [d.operand(v.dtype, [d.of(w).shape[1] * group], constant=True)] if d.chance(0.5) else []
    strides = attrs["strides"] or [1] * dims
    if d.chance(0.3):
        attrs["output_padding"] = [d.int(0, s - 1) for s in strides]
    if d.chance(0.15) and "auto_pad" not in attrs:
        attrs.pop("pads", None)
        attrs["output_shape"] = [max(1, (e - 1) * s + k - d.int(0, 2)) for e, s, k in zip(v.shape[2:], strides, kernel)]
    d.add([x, w] + bias, group=group if group > 1 else None, kernel_shape=d.pick(None, kernel), **attrs)


@operator("MaxPool", "AveragePool", "LpPool")
def pool(d):
    x = d.x(rank=(3, 5))
    v = d.of(x)
    kernel, attrs = windows(d, v.ndim - 2, v.shape[2:], True)
    d.add([x], kernel_shape=kernel, ceil_mode=d.pick(None, 0, 1, 1), count_include_pad=d.pick(None, 0, 1), p=d.pick(None, 1, 2, 3),
          storage_order=d.pick(None, 0, 1), outputs=d.pick(1, 1, 2) if d.op == "MaxPool" and d.opset >= 8 and d.regime != "special" else 1,
          **attrs)


@operator("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def global_pool(d):
    d.add([d.x(rank=(3, 5))], p=d.pick(None, 1, 2, 3))


@operator("Gemm")
def gemm(d):
    x = d.x(rank=(2, 2))
    v = d.of(x)
    ta, tb = d.int(0, 1), d.int(0, 1)
    m, k = v.shape[::-1] if ta else v.shape
    n = d.rng.choice(EXTENTS)
    w = d.operand(v.dtype, (n, k) if tb else (k, n))
    c = [d.operand(v.dtype, d.broadcastable((m, n)))] if d.chance(0.6) or d.opset < 11 else []
    d.add([x, w] + c, transA=ta if ta or d.chance(0.5) else None, transB=tb if tb or d.chance(0.5) else None,
          alpha=d.pick(None, 1.0, 0.5, -1.5, 0.0), beta=d.pick(None, 1.0, 2.0, 0.0))


@operator("MatMul")
def matmul(d):
    x = d.x(rank=(1, 4))
    v = d.of(x)
    k, n = v.shape[-1], d.rng.choice(EXTENTS)
    shape = [k] if d.chance(0.15) else list(d.broadcastable(v.shape[:-2])) + [k, n]
    d.add([x, d.operand(v.dtype, shape)])


EQUATIONS = ("ij,jk->ik", "ij->ji", "ii->i", "ii", "ij->", "bij,bjk->bik", "i,i->", "i,j->ij", "bhid,bhjd->bhij", "...ij,...jk->...ik",
             "ij,kj", "...i->i", "i...->...i", "abc,cd->abd", "ab,ab->a", "...ii->...i", "ij, jk -> ki", "bij,jk->bik", "ij,jk,kl->il",
             "a...,b...->ab...", "ji->ij", "iji->j")


@operator("Einsum", since=12)
def einsum(d):
    equation = d.rng.choice(EQUATIONS)
    size = {c: d.int(1, 5) for c in "abcdhijkl"}
    hidden = d.shape(d.int(0, 2), 12)
    t = d.dtype()
    terms = equation.replace(" ", "").split("->")[0].split(",")
    inputs = []
    for term in terms:
        head, dots, tail = term.partition("...")
        inner = hidden[d.int(0, len(hidden)):] if d.chance(0.3) else hidden
        shape = [size[c] for c in head] + (list(inner) if dots else []) + [size[c] for c in tail]
        inputs.append(d.operand(t, shape))
    d.add(inputs, equation=equation)


@operator("BatchNormalization")
def batch_norm(d):
    x = d.x(rank=(2, 4))
    v = d.of(x)
    c = [v.shape[1]]
    # Sums in which huge numbers cancel depend on their order.
    by_batch = d.opset >= 14 and d.regime != "special" and v.size > 4 * v.shape[1] and d.chance(0.3)
    d.add([x] + [d.operand(v.dtype, c, "small", True) for _ in range(3)] + [d.operand(v.dtype, c, "positive", True)],
          outputs=3 if by_batch else 1, epsilon=d.pick(None, 1e-3, 0.1), training_mode=1 if by_batch else None,
          momentum=d.pick(None, 0.5) if by_batch else None)


@operator("InstanceNormalization")
def instance_norm(d):
    x = d.x(rank=(3, 4), fits=lambda s: np.prod(s[2:]) > 1)
    v = d.of(x)
    d.add([x] + [d.operand(v.dtype, [v.shape[1]], "small") for _ in range(2)], epsilon=d.pick(None, 1e-3, 0.1))


@operator("LayerNormalization", since=17)
def layer_norm(d):
    x = d.x(rank=(1, 4))
    v = d.of(x)
    axis = d.axis(v.ndim)
    shape = v.shape[axis % v.ndim:]
    d.add([x, d.operand(v.dtype, shape, "small")] + ([d.operand(v.dtype, shape, "small")] if d.chance(0.6) else []),
          outputs=d.pick(1, 1, 3), axis=axis, epsilon=d.pick(None, 1e-3, 0.1))


@operator("MeanVarianceNormalization", since=9)
def mvn(d):
    x = d.x(rank=(4, 4))
    d.add([x], axes=d.pick(None, d.axes(4)))


@operator("LRN")
def lrn(d):
    x = d.x(rank=(3, 4))
    d.add([x], size=d.pick(1, 3, 5) if d.chance(0.8) else d.pick(2, 4), alpha=d.pick(None, 0.1), beta=d.pick(None, 0.5), bias=d.pick(None, 2.0))


@operator("LpNormalization")
def lp_norm(d):
    x = d.x(rank=(1, 4))
    v = d.of(x)
    if not d.grow and d.chance(0.5) and x in d.inputs:
        d.inputs[x] = d.value[x] = np.where(d.np.random(v.shape[:-1] + (1,)) < 0.5, 0, v).astype(v.dtype)
    d.add([x], p=d.pick(None, 1, 2), axis=d.pick(None, d.axis(v.ndim)))


# ---- Images ----


@operator("Resize", since=10)
def resize(d):
    rank = d.pick(4, 4, 4, 3, 5, 2)
    x = d.x(rank=(rank, rank), among=[F32, F32, U8, I8, I32])
    v = d.of(x)
    mode = d.pick("nearest", "linear", "cubic") if d.opset >= 11 and v.ndim == 4 else d.pick("nearest", "linear")
    last = 2 if v.ndim >= 2 else v.ndim
    scales = [1.0] * (v.ndim - last) + [d.pick(1.0, 2.0, 0.5, 3.0, 1.5, d.float(0.4, 3)) for _ in range(last)]
    scales = [s if int(s * e) >= 1 else 1.0 for s, e in zip(scales, v.shape)]
    if d.opset < 11:
        return d.add([x, d.constant(scales, F32)], mode=mode)
    coordinates = d.pick(None, "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")
    if d.opset < 13 and mode == "nearest" and d.chance(0.2):
        coordinates = "tf_half_pixel_for_nn"
    if d.opset >= 19 and d.chance(0.3):
        coordinates = "half_pixel_symmetric"
    roi = d.constant([0.0] * v.ndim + [1.0] * v.ndim, F32) if coordinates == "tf_crop_and_resize" or d.opset < 13 else ""
    if coordinates == "tf_crop_and_resize" and d.chance(0.7):
        roi = d.constant([0.0] * (v.ndim - last) + [d.float(-0.2, 0.4) for _ in range(last)] +
                         [1.0] * (v.ndim - last) + [d.float(0.5, 1.2) for _ in range(last)], F32)
    more = [roi, d.constant(scales, F32)]
    if d.chance(0.4):
        sizes = [int(np.floor(s * e)) for s, e in zip(scales, v.shape)]
        more = [roi, d.constant([], F32) if d.opset < 13 else "", d.constant(sizes)]
    d.add([x] + more, mode=d.pick(mode, mode if mode != "nearest" else None), coordinate_transformation_mode=coordinates,
          nearest_mode=d.pick(None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil") if mode == "nearest" else None,
          cubic_coeff_a=d.pick(None, -0.5) if mode == "cubic" else None, exclude_outside=d.pick(None, 1) if mode == "cubic" else None,
          extrapolation_value=d.pick(None, 1.5) if coordinates == "tf_crop_and_resize" else None)


@operator("Upsample", until=9)
def upsample(d):
    x = d.x(rank=(4, 4), among=[F32, I32, U8])
    scales = [1.0, 1.0] + [d.pick(1.0, 2.0, 3.0, 1.5, d.float(1, 3)) for _ in range(2)]
    mode = d.pick(None, "nearest", "linear")
    if d.opset < 9:
        return d.add([x], scales=scales, mode=mode)
    d.add([x, d.constant(scales, F32)], mode=mode)


@operator("GridSample", since=16)
def grid_sample(d):
    x = d.x(rank=(4, 4 if d.opset < 20 else 5), among=[F32, F64])
    v = d.of(x)
    dims = v.ndim - 2
    grid = d.tensor(d.np.uniform(-2, 2, size=(v.shape[0],) + tuple(d.int(1, 5) for _ in range(dims)) + (dims,)).astype(v.dtype))
    prefix = "bi" if d.opset < 20 else ""
    mode = d.pick(None, (prefix or "") + "linear", "nearest", prefix + ("cubic" if dims == 2 else "linear"))
    d.add([x, grid], mode=mode, padding_mode=d.pick(None, "zeros", "border", "reflection"), align_corners=d.pick(None, 0, 1))


# ---- Operators that become several of ours ----


@operator("Gelu", "Mish", "Swish", since=18)
def activation(d):
    d.add([d.x()], approximate=d.pick(None, "none", "tanh"), alpha=d.pick(None, d.float(0.5, 2)))


@operator("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", since=18)
def bitwise(d):
    x = d.x(among=[I8, U8, I32, I64])
    v = d.of(x)
    d.add([x] if d.op == "BitwiseNot" else [x, d.operand(v.dtype, d.broadcastable(v.shape, True))])


@operator("CumProd", since=26)
def cumprod(d):
    cumsum(d)


@operator("GroupNormalization", since=18)
def group_norm(d):
    x = d.x(rank=(3, 5))
    v = d.of(x)
    groups = d.rng.choice([g for g in range(1, v.shape[1] + 1) if v.shape[1] % g == 0])
    count = v.shape[1] if d.opset >= 21 else groups
    d.add([x, d.operand(v.dtype, [count], "small"), d.operand(v.dtype, [count], "small")], num_groups=groups, epsilon=d.pick(None, 1e-2))


@operator("RMSNormalization", since=23)
def rms_norm(d):
    x = d.x(rank=(1, 4))
    v = d.of(x)
    axis = d.axis(v.ndim)
    d.add([x, d.operand(v.dtype, v.shape[axis % v.ndim:], "small")], axis=axis, epsilon=d.pick(None, 1e-2))


@operator("RotaryEmbedding", since=23)
def rotary(d):
    flat, batch, heads, steps, half = d.chance(0.5), d.int(1, 2), d.int(1, 3), d.int(1, 5), d.int(1, 4)
    part = d.chance(0.3)
    size = 2 * half + (2 * d.int(1, 2) if part else 0)
    x = d.operand(F32, (batch, steps, heads * size) if flat else (batch, heads, steps, size))
    ids = d.chance(0.6)
    caches = [d.operand(F32, (7, half) if ids else (batch, steps, half), "unit") for _ in range(2)]
    more = [d.tensor(d.np.integers(0, 7, size=(batch, steps)))] if ids else []
    d.add([x] + caches + more, interleaved=d.pick(None, 0, 1), num_heads=heads if flat or part else None,
          rotary_embedding_dim=2 * half if part else None)


@operator("Attention", since=23)
def attention(d):
    flat, batch, kv = d.chance(0.4), d.int(1, 2), d.int(1, 2)
    heads, queries, keys, size, out = kv * d.int(1, 3), d.int(1, 5), d.int(1, 5), d.int(1, 4), d.int(1, 4)
    past = d.int(1, 3) if d.chance(0.3) else 0

    def tensor(count, steps, width):
        return d.operand(F32, (batch, steps, count * width) if flat else (batch, count, steps, width), "small")

    inputs = [tensor(heads, queries, size), tensor(kv, keys, size), tensor(kv, keys, out)]
    shape = d.broadcastable((batch, heads, queries, past + keys)) if d.chance(0.3) else (queries, past + keys)
    mask = d.operand(d.pick(F32, BOOL), shape if len(shape) >= 2 else (queries, past + keys), "small") if d.chance(0.5) else ""
    inputs += [mask] + ([d.operand(F32, (batch, kv, past, w), "small") for w in (size, out)] if past else [])
    mode = d.pick(None, 0, 1, 2, 3) if d.chance(0.3) else None
    d.add(inputs, outputs=[True] + ([True, True] if past else []) + ([True] if mode is not None and past else []),
          is_causal=d.pick(None, 0, 1), scale=d.pick(None, d.float(0.1, 1)), softcap=d.pick(None, None, 2.0),
          q_num_heads=heads if flat else None, kv_num_heads=kv if flat else None, qk_matmul_output_mode=mode if past else None)


@operator("TensorScatter", since=24)
def tensor_scatter(d):
    shape = list(d.shape(d.int(3, 4), 600))
    axis = d.int(1, len(shape) - 1)
    length, circular = d.int(1, shape[axis]), d.chance(0.5)
    update = shape[:axis] + [length] + shape[axis + 1:]
    first = d.np.integers(0, shape[axis] if circular else shape[axis] - length, size=shape[0], endpoint=not circular)
    more = [d.tensor(first.astype(I64))] if d.chance(0.8) else []
    d.add([d.operand(F32, shape), d.operand(F32, update)] + more, axis=axis - len(shape) if d.chance(0.3) else axis,
          mode="circular" if circular else None)


@operator("CenterCropPad", since=18)
def center_crop_pad(d):
    x = d.x(rank=(1, 4), among=[F32, I32])
    rank = d.of(x).ndim
    axes = d.axes(rank) if d.chance(0.5) else None
    d.add([x, d.constant([d.int(1, 9) for _ in (axes or range(rank))])], axes=axes)


@operator("Col2Im", since=18)
def col2im(d):
    image, block = [d.int(4, 8) for _ in range(2)], [d.int(1, 3) for _ in range(2)]
    strides, dilations, pads = [d.int(1, 2) for _ in range(2)], [d.pick(1, 1, 2) for _ in range(2)], [d.int(0, 1) for _ in range(4)]
    count = 1
    for i in range(2):
        span = image[i] + pads[i] + pads[2 + i] - dilations[i] * (block[i] - 1) - 1
        if span < 0:
            raise Rejected
        count *= span // strides[i] + 1
    x = d.operand(F32, (d.int(1, 2), d.int(1, 3) * block[0] * block[1], count), "small")
    d.add([x, d.constant(image), d.constant(block)], strides=strides, dilations=dilations, pads=pads)


@operator("AffineGrid", since=20)
def affine_grid(d):
    dims = d.pick(2, 3)
    batch = d.int(1, 2)
    size = [batch, d.int(1, 2)] + [d.int(2, 5) for _ in range(dims)]
    d.add([d.operand(d.pick(F32, F64), (batch, dims, dims + 1), "small"), d.constant(size)], align_corners=d.pick(None, 0, 1))


@operator("DeformConv", since=19, graph=False)
def deform_conv(d):
    group, offsets = d.pick(1, 1, 2), d.pick(1, 1, 2)
    channels = 2 * d.int(1, 2)
    x = (d.int(1, 2), channels, d.int(4, 7), d.int(4, 7))
    kernel, strides, dilations = [d.int(1, 3) for _ in range(2)], [d.int(1, 2) for _ in range(2)], [d.pick(1, 1, 2) for _ in range(2)]
    pads = [d.int(0, 1) for _ in range(4)]
    out = [(x[2 + i] + pads[i] + pads[2 + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(2)]
    if min(out) < 1:
        raise Rejected
    taps, results = kernel[0] * kernel[1], group * d.int(1, 2)
    t = lambda *shape, domain="small": d.operand(F32, shape, domain)
    inputs = [t(*x), t(results, channels // group, *kernel), t(x[0], offsets * taps * 2, *out, domain="small")]
    if d.chance(0.5):
        inputs += [t(results) if d.chance(0.6) else "", t(x[0], offsets * taps, *out)]
    d.add(inputs, group=group, offset_group=offsets, strides=strides, dilations=dilations, pads=pads, kernel_shape=d.pick(None, kernel))


@operator("RoiAlign", since=10, graph=False)
def roi_align(d):
    x, count = (d.int(1, 2), d.int(1, 3), d.int(4, 9), d.int(4, 9)), d.int(1, 4)
    corner = d.np.uniform(-1, 5, size=(count, 2))
    rois = np.concatenate([corner, corner + d.np.uniform(0.5, 6, size=(count, 2))], axis=1).astype(F32)
    ratio = d.int(0, 3)
    d.add([d.operand(F32, x, "small"), d.tensor(rois, constant=ratio == 0 or d.chance(0.4)), d.tensor(d.np.integers(0, x[0], size=count))],
          mode=d.pick(None, "avg", "max"), output_height=d.int(1, 3), output_width=d.int(1, 3), sampling_ratio=ratio,
          spatial_scale=d.pick(None, 0.5), coordinate_transformation_mode=d.pick(None, "half_pixel", "output_half_pixel"))


@operator("MaxRoiPool", graph=False)
def max_roi_pool(d):
    x, count = (d.int(1, 2), d.int(1, 3), d.int(4, 9), d.int(4, 9)), d.int(1, 4)
    corner = d.np.integers(0, 5, size=(count, 2))
    rois = np.concatenate([d.np.integers(0, x[0], size=(count, 1)), corner, corner + d.np.integers(0, 6, size=(count, 2))], axis=1)
    d.add([d.operand(F32, x, "small"), d.tensor(rois.astype(F32))], pooled_shape=[d.int(1, 3), d.int(1, 3)], spatial_scale=d.pick(None, 0.5))


@operator("Det", since=11, graph=False)
def determinant(d):
    size = d.int(1, 4)
    d.add([d.operand(F32, d.shape(d.int(0, 2), 20) + (size, size), "small")])


@operator("DFT", since=17, graph=False)
def dft(d):
    shape = d.shape(d.int(2, 3), 300)
    axis, sides, inverse = d.int(0, len(shape) - 1), d.chance(0.4), d.chance(0.3)
    x = d.operand(F32, shape + (2 if inverse and not sides else 1 if sides else d.pick(1, 2),), "small")
    length = d.constant(np.asarray(d.int(1, shape[axis] + 3))) if d.chance(0.4) else ""
    more = [length] + ([d.constant(np.asarray(axis))] if d.opset >= 20 else [])
    d.add([x] + more, axis=axis, inverse=None if sides else int(inverse), onesided=int(sides))


@operator("STFT", since=17, graph=False)
def stft(d):
    length, frame = d.int(6, 20), d.int(2, 6)
    inputs = [d.operand(F32, (d.int(1, 2), length, 1), "small"), d.constant(np.asarray(d.int(1, 4)))]
    window = d.operand(F32, (frame,), "small") if d.chance(0.7) else ""
    d.add(inputs + [window, d.constant(np.asarray(frame)) if window == "" or d.chance(0.5) else ""], onesided=d.pick(None, 0, 1))


@operator("MelWeightMatrix", since=17, graph=False)
def mel(d):
    scalars = [d.int(2, 8), d.pick(16, 32, 64), 8000], [d.float(0, 100), d.float(1500, 4000)]
    d.add([d.constant(np.asarray(v)) for v in scalars[0]] + [d.constant(np.asarray(v), F32) for v in scalars[1]])


# ---- Structure ----


def body(d, inputs, nodes, outputs):
    """A subgraph; inputs are (name, dtype, shape)."""
    info = lambda name, t, shape: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(t)), shape)
    return helper.make_graph(nodes, f"body{d.count}", [info(*i) for i in inputs], [info(*o) for o in outputs])


@operator("If", since=11, graph=False)
def branch(d):
    x = d.operand(F32, d.shape(d.int(1, 3)), "small")
    v = d.of(x)
    d.count += 1
    same, out = d.chance(0.5), [f"b{d.count}_{i}" for i in range(2)]
    nodes = [helper.make_node(d.pick("Neg", "Exp", "Abs"), [x], [out[0]]),
             helper.make_node("Relu", [x], [out[1]]) if same else helper.make_node("Concat", [x, x], [out[1]], axis=0)]
    graphs = [body(d, [], [node], [(o, F32, [None] * v.ndim)]) for node, o in zip(nodes, out)]
    condition = d.tensor(np.asarray(d.chance(0.5)), constant=not same or d.chance(0.5))
    d.add([condition], then_branch=graphs[0], else_branch=graphs[1])


@operator("Loop", since=11, graph=False)
def loop(d):
    x = d.operand(F32, d.shape(d.int(1, 2), 60), "unit")
    shape = d.of(x).shape
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Cast", ["i"], ["f"], to=1),
             helper.make_node("Sub", ["s", "f"], ["u"]), helper.make_node(d.pick("Mul", "Add"), ["u", x], ["t"])]
    graph = body(d, [("i", I64, []), ("go", BOOL, []), ("s", F32, shape)], nodes,
                 [("on", BOOL, []), ("t", F32, shape), ("u", F32, shape)])
    d.add([d.constant(np.asarray(d.int(1, 4))), d.constant(np.asarray(True), BOOL) if d.chance(0.5) else "", x], outputs=2, body=graph)


@operator("Scan", since=9, graph=False)
def scan(d):
    x = d.operand(F32, d.shape(d.int(2, 3), 200), "unit")
    v = d.of(x)
    axis = d.int(0, v.ndim - 1)
    shape = v.shape[:axis] + v.shape[axis + 1:]
    graph = body(d, [("s", F32, shape), ("e", F32, shape)], [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Neg", ["t"], ["u"])],
                 [("t", F32, shape), ("u", F32, shape)])
    d.add([d.operand(F32, shape, "unit"), x], outputs=2, body=graph, num_scan_inputs=1, scan_input_axes=[axis],
          scan_input_directions=d.pick(None, [0], [1]), scan_output_axes=d.pick(None, [d.int(0, len(shape))]),
          scan_output_directions=d.pick(None, [1]))


# ---- Quantised ----


def quantisation(d, count, dtype, zero=None):
    """Scale and zero point, of one element or of `count`."""
    shape = () if count is None else (count,)
    scale = d.np.uniform(0.05, 0.3, size=shape).astype(F32)
    point = np.zeros(shape, dtype) if zero == 0 else d.np.integers(-20 if dtype == I8 else 100, 20 if dtype == I8 else 150, size=shape).astype(dtype)
    return d.tensor(scale, constant=d.chance(0.8)), d.tensor(point, constant=d.chance(0.8))


@operator("QuantizeLinear", "DequantizeLinear", since=10, graph=False)
def quantize(d):
    among = [F32] if d.op == "QuantizeLinear" else [U8, I8, I32]
    x = d.x(rank=(1, 4), among=among)
    v = d.of(x)
    t = d.pick(U8, I8) if d.op == "QuantizeLinear" else v.dtype
    axis = d.axis(v.ndim) if d.opset >= 13 and d.chance(0.5) else None
    scale, zero = quantisation(d, None if axis is None else v.shape[axis], t, zero=0 if t == I32 else None)
    more = [zero] if (t != U8 and d.op == "QuantizeLinear") or d.chance(0.7) else []
    d.add([x, scale] + more, axis=axis)


@operator("DynamicQuantizeLinear", since=11, graph=False)
def dynamic_quantize(d):
    d.add([d.x(rank=(1, 4))], outputs=3)


@operator("MatMulInteger", since=10, graph=False)
def matmul_integer(d):
    a = d.values(d.pick(U8, U8, I8), d.shape(d.int(2, 3), 300))
    b = d.values(d.pick(U8, I8), (a.shape[-1], d.rng.choice(EXTENTS)))
    more = []
    if d.chance(0.6):
        rows = d.chance(0.2)
        more.append(d.tensor(np.asarray(d.np.integers(0, 20, size=(a.shape[-2],) if rows else d.pick((), (1,)))).astype(a.dtype)))
        if d.chance(0.6):
            more.append(d.tensor(np.asarray(d.np.integers(0, 20, size=d.pick((), (b.shape[1],)))).astype(b.dtype)))
    d.add([d.tensor(a), d.tensor(b, d.chance(0.6))] + more)


@operator("QLinearMatMul", since=10, graph=False)
def qlinear_matmul(d):
    a = d.values(d.pick(U8, I8), d.shape(d.int(2, 3), 300))
    b = d.values(a.dtype if a.dtype == I8 else d.pick(U8, I8), (a.shape[-1], d.rng.choice(EXTENTS)))
    columns = b.shape[1] if d.chance(0.4) else None
    out = d.tensor(np.asarray(d.float(0.3, 2), F32), True), d.tensor(np.asarray(d.int(5, 90), a.dtype), True)
    d.add([d.tensor(a), *quantisation(d, None, a.dtype), d.tensor(b), *quantisation(d, columns, b.dtype), *out])


@operator("ConvInteger", "QLinearConv", since=10, graph=False)
def conv_integer(d):
    dims = d.pick(1, 2, 2)
    x = d.values(d.pick(U8, U8, I8), (d.int(1, 2), d.pick(1, 2, 4)) + tuple(d.int(4, 8) for _ in range(dims)))
    kernel, attrs = windows(d, dims, x.shape[2:], False)
    group = d.pick(1, 1, x.shape[1])
    t = x.dtype if x.dtype == I8 else d.pick(U8, I8)
    w = d.values(t, [group * d.int(1, 3), x.shape[1] // group] + kernel)
    if d.op == "ConvInteger":
        more = [d.tensor(np.asarray(d.int(0, 20), x.dtype))] if d.chance(0.7) else []
        if more and d.chance(0.5):
            more.append(d.tensor(np.asarray(d.int(0, 20), w.dtype), True))
        return d.add([d.tensor(x), d.tensor(w, d.chance(0.7))] + more, group=group, **attrs)
    per_channel = w.shape[0] if d.chance(0.4) else None
    out = d.tensor(np.asarray(d.float(0.3, 2), F32), True), d.tensor(np.asarray(d.int(5, 90), x.dtype), True)
    bias = [d.tensor(d.np.integers(-500, 500, size=w.shape[:1]).astype(I32), True)] if d.chance(0.5) else []
    d.add([d.tensor(x), *quantisation(d, None, x.dtype), d.tensor(w, True), *quantisation(d, per_channel, w.dtype, 0 if per_channel else None),
           *out] + bias, group=group, **attrs)


# ---- Recurrence and losses ----


@operator("RNN", "GRU", "LSTM")
def recurrent(d):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[d.op]
    x = d.x(rank=(3, 3), among=[F32], fits=lambda s: s[0] <= 6 and s[1] <= 6)
    v = d.of(x)
    layout = 1 if d.opset >= 14 and d.chance(0.1) else None
    steps, batch, size = (v.shape[1], v.shape[0], v.shape[2]) if layout else v.shape
    hidden, direction = d.int(1, 6), d.pick(None, "forward", "reverse", "bidirectional")
    n = 2 if direction == "bidirectional" else 1
    state = (batch, n, hidden) if layout else (n, batch, hidden)
    t = lambda *s: d.operand(F32, s, "unit" if d.regime != "special" else "small", True)
    lengths = d.tensor(d.np.integers(1, steps, size=batch, endpoint=True).astype(I32))
    inputs = [x, t(n, gates * hidden, size), t(n, gates * hidden, hidden), t(n, 2 * gates * hidden) if d.chance(0.7) else "",
              lengths if d.chance(0.3) else "", t(*state) if d.chance(0.5) else ""]
    if d.op == "LSTM":
        inputs += [t(*state) if d.chance(0.5) else "", t(n, 3 * hidden) if d.chance(0.3) else ""]
    functions, alphas, betas = None, None, None
    if d.chance(0.4):
        per_direction = {"RNN": 1, "GRU": 2, "LSTM": 3}[d.op]
        functions = [d.pick("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",
                            "Softsign", "Softplus") for _ in range(per_direction)] * n
        alphas = [d.float(0.1, 1) for f in functions if f in ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")]
        betas = [d.float(0.1, 1) for f in functions if f in ("Affine", "ScaledTanh", "HardSigmoid")]
    d.add(inputs, outputs=[True, True, True] if d.op == "LSTM" else [True, True], hidden_size=hidden, direction=direction, layout=layout,
          linear_before_reset=d.pick(None, 0, 1) if d.op == "GRU" else None, activations=functions, activation_alpha=alphas or None,
          activation_beta=betas or None, clip=d.pick(None, None, 0.7), input_forget=d.pick(None, None, None, 1) if d.op == "LSTM" else None)


@operator("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", since=12)
def loss(d):
    x = d.x(rank=(2, 4))
    v = d.of(x)
    classes = v.shape[1]
    ignore = d.int(0, classes - 1) if d.chance(0.3) else d.pick(None, -1)
    target = d.np.integers(0, classes, size=v.shape[:1] + v.shape[2:])
    if ignore == -1:
        target = np.where(d.np.random(target.shape) < 0.2, -1, target)
    more = [d.operand(v.dtype, [classes], "positive")] if d.chance(0.4) else []
    d.add([x, d.tensor(target.astype(d.pick(I32, I64)))] + more, ignore_index=ignore, reduction=d.pick(None, "none", "mean", "sum"),
          outputs=d.pick(1, 2) if d.op == "SoftmaxCrossEntropyLoss" else 1)


# ---- Whole models ----

def fits(name, opset):
    """Whether the operator is defined in this opset."""
    _, since, until, _ = OPERATORS[name]
    try:
        return since <= opset <= until and (name in OTHER_SCHEMAS or not defs.get_schema(name, opset, "").deprecated)
    except defs.SchemaError:
        return False


def model_of(nodes, inputs, constants, outputs, opset, types=None, ranks=None):
    """A ModelProto. `inputs` and `constants` are arrays by name. Outputs get types and open dimensions where these are known."""
    graph = helper.make_graph(
        nodes, "differential",
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in inputs.items()],
        [helper.make_empty_tensor_value_info(k) if types is None else
         helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(types[k]), [f"{k}_{i}" for i in range(ranks[k])])
         for k in outputs],
        [numpy_helper.from_array(v, k) for k, v in constants.items()])
    domains = sorted({n.domain for n in nodes if n.domain})
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains], ir_version=8)
