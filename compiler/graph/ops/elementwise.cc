// Elementwise operators. Most are one row of a table that gives the value of an element of the
// result.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

using ir::DType;
using ir::Expr;
using ir::Make;
using ir::Op;
using ir::Select;

enum class Takes { kFloat, kNumber, kBool, kAny };
enum class Gives { kSame, kBool };

absl::Status CheckTakes(Takes takes, DType dtype) {
  const bool ok = takes == Takes::kAny || (takes == Takes::kFloat && ir::IsFloat(dtype)) ||
                  (takes == Takes::kNumber && dtype != DType::kBool) ||
                  (takes == Takes::kBool && dtype == DType::kBool);
  if (ok) return absl::OkStatus();
  return BadInput(absl::StrCat("is not defined on ",
                               absl::string_view(Name(dtype).data(), Name(dtype).size())));
}

Expr Num(double v, const Expr& like) { return Number(v, like->dtype); }
Expr IsNan(const Expr& a) { return Make(Op::kIsNan, {a}); }
// The order of the operands lets a NaN through (ir.h).
Expr Clamp01(const Expr& a) { return Min(Max(a, Num(0, a)), Num(1, a)); }

// ---- One operand ----

struct Unary {
  OpKind kind;
  Takes takes;
  Gives gives;
  Expr (*value)(const Expr& x, const OpAttrs& attrs);
  std::vector<AttrSpec> attrs = {};
};

Expr IsInf(const Expr& x, const OpAttrs& attrs) {
  const bool positive = attrs.Flag("detect_positive");
  const bool negative = attrs.Flag("detect_negative");
  Expr inf = Make(Op::kIsInf, {x});
  if (positive && negative) return inf;
  if (positive) return ir::And(inf, ir::Lt(Num(0, x), x));
  if (negative) return ir::And(inf, ir::Lt(x, Num(0, x)));
  return ir::And(inf, Make(Op::kNot, {inf}));  // of nothing that is looked for
}

Expr Clip(const Expr& x, const OpAttrs& attrs) {
  Expr y = x;
  if (attrs.Has("min")) y = Max(y, NumberAttr(attrs, "min", x->dtype));
  if (attrs.Has("max")) y = Min(y, NumberAttr(attrs, "max", x->dtype));
  return y;
}

Expr Selu(const Expr& x, const OpAttrs& attrs) {
  Expr alpha = Num(attrs.Float("alpha"), x), gamma = Num(attrs.Float("gamma"), x);
  return gamma * Select(ir::Lt(Num(0, x), x), x, alpha * (Exp(x) - Num(1, x)));
}

// log(1 + e^x) without overflow for large x.
Expr Softplus(const Expr& x, const OpAttrs&) {
  Expr small = Exp(Make(Op::kNeg, {Make(Op::kAbs, {x})}));
  return Max(x, Num(0, x)) + Make(Op::kLog, {Num(1, x) + small});
}

// Integers are computed in floats, because bias and threshold may have fractions.
Expr Shrink(const Expr& x, const OpAttrs& attrs) {
  if (!ir::IsFloat(x->dtype)) return ir::Cast(x->dtype, Shrink(ir::Cast(DType::kF64, x), attrs));
  Expr bias = Num(attrs.Float("bias"), x), lambda = Num(attrs.Float("lambd"), x);
  return Select(ir::Lt(x, Num(-attrs.Float("lambd"), x)), x + bias,
                Select(ir::Lt(lambda, x), x - bias, Num(0, x)));
}

// The sign of a NaN is NaN.
Expr Sign(const Expr& x, const OpAttrs&) {
  Expr sign = Make(Op::kSign, {x});
  return ir::IsFloat(x->dtype) ? Select(IsNan(x), x, sign) : sign;
}

template <Op op>
Expr Direct(const Expr& x, const OpAttrs&) {
  return Make(op, {x});
}

AttrSpec Float(std::string_view name) { return {.name = name, .fallback = 0.0, .required = true}; }
AttrSpec Bound(std::string_view name) { return {name, 0.0, AttrRole::kPlain, true}; }

const std::vector<Unary>& UnaryOps() {
  static const auto* ops = new std::vector<Unary>{
      {OpKind::kNeg, Takes::kNumber, Gives::kSame, Direct<Op::kNeg>},
      {OpKind::kAbs, Takes::kNumber, Gives::kSame, Direct<Op::kAbs>},
      {OpKind::kSign, Takes::kNumber, Gives::kSame, Sign},
      {OpKind::kExp, Takes::kFloat, Gives::kSame, Direct<Op::kExp>},
      {OpKind::kLog, Takes::kFloat, Gives::kSame, Direct<Op::kLog>},
      {OpKind::kSqrt, Takes::kFloat, Gives::kSame, Direct<Op::kSqrt>},
      {OpKind::kTanh, Takes::kFloat, Gives::kSame, Direct<Op::kTanh>},
      {OpKind::kErf, Takes::kFloat, Gives::kSame, Direct<Op::kErf>},
      {OpKind::kSin, Takes::kFloat, Gives::kSame, Direct<Op::kSin>},
      {OpKind::kCos, Takes::kFloat, Gives::kSame, Direct<Op::kCos>},
      {OpKind::kTan, Takes::kFloat, Gives::kSame, Direct<Op::kTan>},
      {OpKind::kAsin, Takes::kFloat, Gives::kSame, Direct<Op::kAsin>},
      {OpKind::kAcos, Takes::kFloat, Gives::kSame, Direct<Op::kAcos>},
      {OpKind::kAtan, Takes::kFloat, Gives::kSame, Direct<Op::kAtan>},
      {OpKind::kSinh, Takes::kFloat, Gives::kSame, Direct<Op::kSinh>},
      {OpKind::kCosh, Takes::kFloat, Gives::kSame, Direct<Op::kCosh>},
      {OpKind::kAsinh, Takes::kFloat, Gives::kSame, Direct<Op::kAsinh>},
      {OpKind::kAcosh, Takes::kFloat, Gives::kSame, Direct<Op::kAcosh>},
      {OpKind::kAtanh, Takes::kFloat, Gives::kSame, Direct<Op::kAtanh>},
      {OpKind::kFloor, Takes::kFloat, Gives::kSame, Direct<Op::kFloor>},
      {OpKind::kCeil, Takes::kFloat, Gives::kSame, Direct<Op::kCeil>},
      {OpKind::kRound, Takes::kFloat, Gives::kSame, Direct<Op::kRound>},
      {OpKind::kIsnan, Takes::kFloat, Gives::kBool, Direct<Op::kIsNan>},
      {OpKind::kIsinf,
       Takes::kFloat,
       Gives::kBool,
       IsInf,
       {{"detect_positive", int64_t{1}}, {"detect_negative", int64_t{1}}}},
      {OpKind::kNot, Takes::kBool, Gives::kBool, Direct<Op::kNot>},
      {OpKind::kReciprocal, Takes::kFloat, Gives::kSame,
       [](const Expr& x, const OpAttrs&) { return Div(Num(1, x), x); }},
      {OpKind::kRelu, Takes::kNumber, Gives::kSame,
       [](const Expr& x, const OpAttrs&) { return Max(x, Num(0, x)); }},
      {OpKind::kSigmoid, Takes::kFloat, Gives::kSame,
       [](const Expr& x, const OpAttrs&) {
         return Div(Num(1, x), Num(1, x) + Exp(Make(Op::kNeg, {x})));
       }},
      {OpKind::kSoftplus, Takes::kFloat, Gives::kSame, Softplus},
      {OpKind::kSoftsign, Takes::kFloat, Gives::kSame,
       [](const Expr& x, const OpAttrs&) { return Div(x, Num(1, x) + Make(Op::kAbs, {x})); }},
      {OpKind::kLeakyRelu,
       Takes::kFloat,
       Gives::kSame,
       [](const Expr& x, const OpAttrs& a) {
         return Select(ir::Lt(x, Num(0, x)), Num(a.Float("alpha"), x) * x, x);
       },
       {Float("alpha")}},
      {OpKind::kElu,
       Takes::kFloat,
       Gives::kSame,
       [](const Expr& x, const OpAttrs& a) {
         return Select(ir::Lt(x, Num(0, x)), Num(a.Float("alpha"), x) * (Exp(x) - Num(1, x)), x);
       },
       {Float("alpha")}},
      {OpKind::kSelu, Takes::kFloat, Gives::kSame, Selu, {Float("alpha"), Float("gamma")}},
      {OpKind::kCelu,
       Takes::kFloat,
       Gives::kSame,
       [](const Expr& x, const OpAttrs& a) {
         Expr alpha = Num(a.Float("alpha"), x);
         return Max(x, Num(0, x)) + Min(Num(0, x), alpha * (Exp(Div(x, alpha)) - Num(1, x)));
       },
       {Float("alpha")}},
      {OpKind::kHardSigmoid,
       Takes::kFloat,
       Gives::kSame,
       [](const Expr& x, const OpAttrs& a) {
         return Clamp01(Num(a.Float("alpha"), x) * x + Num(a.Float("beta"), x));
       },
       {Float("alpha"), Float("beta")}},
      {OpKind::kHardSwish, Takes::kFloat, Gives::kSame,
       [](const Expr& x, const OpAttrs&) {
         return x * Clamp01(x * Num(1.0 / 6, x) + Num(0.5, x));
       }},
      {OpKind::kThresholdedRelu,
       Takes::kFloat,
       Gives::kSame,
       [](const Expr& x, const OpAttrs& a) {
         return Select(ir::Lt(Num(a.Float("alpha"), x), x), x, Num(0, x));
       },
       {Float("alpha")}},
      {OpKind::kShrink, Takes::kNumber, Gives::kSame, Shrink, {Float("bias"), Float("lambd")}},
      {OpKind::kClip, Takes::kNumber, Gives::kSame, Clip, {Bound("min"), Bound("max")}},
  };
  return *ops;
}

// A definition with the parts that all elementwise operators share.
OpDef ElementwiseOp(OpKind kind, std::vector<AttrSpec> attrs = {}) {
  OpDef op{kind, FusionClass::kInjective, true};
  op.attrs = std::move(attrs);
  op.layout = AlignedLayout();
  return op;
}

OpDef UnaryOp(const Unary& row) {
  OpDef op = ElementwiseOp(row.kind, row.attrs);
  op.infer = [row](Types in, const OpAttrs&) -> absl::StatusOr<TensorType> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
    HEDDLE_RETURN_IF_ERROR(CheckTakes(row.takes, in[0].dtype));
    return TensorType{row.gives == Gives::kBool ? DType::kBool : in[0].dtype, in[0].shape};
  };
  op.express = [row](tensor::Builder& b, Tensors in,
                     const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    return b.Compute(NameOf(row.kind), in[0].shape(), [&](tensor::Iters s) {
      return row.value(in[0].At({s.begin(), s.end()}), attrs);
    });
  };
  return op;
}

OpDef IdentityOp() {
  OpDef op = UnaryOp({OpKind::kIdentity, Takes::kAny, Gives::kSame,
                      [](const Expr& x, const OpAttrs&) { return x; }});
  op.relabels = true;
  op.laws.copies = [](const OpAttrs&) { return true; };
  return op;
}

// ---- Two operands, broadcast ----

struct Binary {
  OpKind kind;
  Takes takes;
  Gives gives;
  Expr (*value)(const Expr& x, const Expr& y);
};

template <Op op>
Expr Direct2(const Expr& x, const Expr& y) {
  return Make(op, {x, y});
}

// The extreme of two numbers. A NaN among them is the result.
template <Op op>
Expr Extreme(const Expr& x, const Expr& y) {
  Expr extreme = Make(op, {x, y});  // NaN if x is (ir.h)
  return ir::IsFloat(x->dtype) ? Select(IsNan(y), y, extreme) : extreme;
}

// The remainder with the sign of the dividend, like C's fmod and %. The remainder of floats is
// exact, but x / y is not: in double precision, quotients of single precision below 2^29 have the
// right whole part, and its product with y is exact. So multiples of y times powers of 2^29 are
// taken off first. Quotients beyond 2^145 are not reduced. Doubles have no wider type: their
// remainder is off by up to the spacing of x.
Expr TruncatedMod(const Expr& x, const Expr& y) {
  if (!ir::IsFloat(x->dtype)) return x - Div(x, y) * y;
  const Expr divisor = ir::Cast(DType::kF64, y);
  Expr rest = ir::Cast(DType::kF64, x);
  if (x->dtype == DType::kF64) {
    const Expr quotient = Div(x, y);
    rest = x - Select(ir::Lt(quotient, Num(0, x)), Make(Op::kCeil, {quotient}),
                      Make(Op::kFloor, {quotient})) *
                   y;
  }
  for (int power = 4 * 29; power >= 0 && x->dtype != DType::kF64; power -= 29) {
    // A cast truncates, and has the quotient only once.
    const Expr multiple = divisor * ir::Float(std::ldexp(1, power), DType::kF64);
    const Expr whole = ir::Cast(DType::kF64, ir::Cast(DType::kI64, Div(rest, multiple)));
    rest = rest - whole * multiple;
  }
  const Expr nan = Num(std::numeric_limits<double>::quiet_NaN(), x);
  const Expr none = Make(
      Op::kOr, {Make(Op::kOr, {IsNan(y), Make(Op::kIsInf, {x})}), Make(Op::kEq, {y, Num(0, y)})});
  return Select(none, nan, Select(Make(Op::kIsInf, {y}), x, ir::Cast(x->dtype, rest)));
}

const Binary kBinary[] = {
    {OpKind::kAdd, Takes::kNumber, Gives::kSame, Direct2<Op::kAdd>},
    {OpKind::kSub, Takes::kNumber, Gives::kSame, Direct2<Op::kSub>},
    {OpKind::kMul, Takes::kNumber, Gives::kSame, Direct2<Op::kMul>},
    {OpKind::kDiv, Takes::kNumber, Gives::kSame, Direct2<Op::kDiv>},
    {OpKind::kFloorDiv, Takes::kNumber, Gives::kSame, Direct2<Op::kFloorDiv>},
    {OpKind::kFloorMod, Takes::kNumber, Gives::kSame, Direct2<Op::kFloorMod>},
    {OpKind::kTruncatedMod, Takes::kNumber, Gives::kSame, TruncatedMod},
    {OpKind::kMin, Takes::kNumber, Gives::kSame, Extreme<Op::kMin>},
    {OpKind::kMax, Takes::kNumber, Gives::kSame, Extreme<Op::kMax>},
    {OpKind::kPow, Takes::kNumber, Gives::kSame, Direct2<Op::kPow>},
    {OpKind::kLess, Takes::kNumber, Gives::kBool, Direct2<Op::kLt>},
    {OpKind::kLessEqual, Takes::kNumber, Gives::kBool, Direct2<Op::kLe>},
    {OpKind::kEqual, Takes::kAny, Gives::kBool, Direct2<Op::kEq>},
    {OpKind::kAnd, Takes::kBool, Gives::kBool, Direct2<Op::kAnd>},
    {OpKind::kOr, Takes::kBool, Gives::kBool, Direct2<Op::kOr>},
    {OpKind::kXor, Takes::kBool, Gives::kBool, Direct2<Op::kNe>},
    {OpKind::kPrelu, Takes::kNumber, Gives::kSame,
     [](const Expr& x, const Expr& slope) { return Select(ir::Lt(x, Num(0, x)), x * slope, x); }},
};

OpDef BinaryOp(const Binary& row) {
  OpDef op = ElementwiseOp(row.kind);
  op.infer = [row](Types in, const OpAttrs&) -> absl::StatusOr<TensorType> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 2, 2));
    HEDDLE_RETURN_IF_ERROR(CheckTakes(row.takes, in[0].dtype));
    if (in[0].dtype != in[1].dtype) {
      return BadInput(
          absl::StrCat("operands differ in type: ", ToText(in[0]), " and ", ToText(in[1])));
    }
    HEDDLE_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(in[0].shape, in[1].shape));
    return TensorType{row.gives == Gives::kBool ? DType::kBool : in[0].dtype, shape};
  };
  op.express = [row](tensor::Builder& b, Tensors in,
                     const OpAttrs&) -> absl::StatusOr<tensor::Tensor> {
    HEDDLE_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(in[0].shape(), in[1].shape()));
    return b.Compute(NameOf(row.kind), shape, [&](tensor::Iters s) {
      return row.value(in[0].At(BroadcastIndex(s, shape, in[0].shape())),
                       in[1].At(BroadcastIndex(s, shape, in[1].shape())));
    });
  };
  return op;
}

// ---- Others ----

absl::StatusOr<Shape> WhereShape(const Shape& c, const Shape& x, const Shape& y) {
  HEDDLE_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(c, x));
  return BroadcastShapes(shape, y);
}

OpDef WhereOp() {
  OpDef op = ElementwiseOp(OpKind::kWhere);
  op.infer = [](Types in, const OpAttrs&) -> absl::StatusOr<TensorType> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 3, 3));
    if (in[0].dtype != DType::kBool || in[1].dtype != in[2].dtype) {
      return BadInput("needs a bool condition and two operands of one type");
    }
    HEDDLE_ASSIGN_OR_RETURN(Shape shape, WhereShape(in[0].shape, in[1].shape, in[2].shape));
    return TensorType{in[1].dtype, shape};
  };
  op.express = [](tensor::Builder& b, Tensors in,
                  const OpAttrs&) -> absl::StatusOr<tensor::Tensor> {
    HEDDLE_ASSIGN_OR_RETURN(Shape shape, WhereShape(in[0].shape(), in[1].shape(), in[2].shape()));
    return b.Compute("where", shape, [&](tensor::Iters s) {
      return Select(in[0].At(BroadcastIndex(s, shape, in[0].shape())),
                    in[1].At(BroadcastIndex(s, shape, in[1].shape())),
                    in[2].At(BroadcastIndex(s, shape, in[2].shape())));
    });
  };
  return op;
}

OpDef CastOp() {
  OpDef op = ElementwiseOp(OpKind::kCast,
                           {AttrSpec{.name = "to", .fallback = std::string(), .required = true}});
  op.laws.copies = [](const OpAttrs&) { return true; };
  op.infer = [](Types in, const OpAttrs& attrs) -> absl::StatusOr<TensorType> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
    const std::string to = attrs.Text("to");
    auto dtype = ir::DTypeFromName(to);
    if (!dtype) return BadInput(absl::StrCat("casts to unknown type '", to, "'"));
    return TensorType{*dtype, in[0].shape};
  };
  op.express = [](tensor::Builder& b, Tensors in,
                  const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    const DType to = *ir::DTypeFromName(attrs.Text("to"));
    return b.Compute("cast", in[0].shape(), [&](tensor::Iters s) {
      Expr x = in[0].At({s.begin(), s.end()});
      if (to == DType::kBool && x->dtype != DType::kBool) {
        return Make(Op::kNe, {x, ir::Zero(x->dtype)});
      }
      if (x->dtype == DType::kBool && to != DType::kBool) {
        return Select(x, Number(1, to), Number(0, to));
      }
      return x->dtype == to ? x : ir::Cast(to, x);
    });
  };
  return op;
}

// (x - mean) / sqrt(var + epsilon) * scale + bias along dimension `axis`. The operands are x,
// scale, bias, mean, var.
OpDef BatchNormOp() {
  OpDef op =
      ElementwiseOp(OpKind::kBatchNorm, {{"axis", int64_t{1}, AttrRole::kAxis}, {"epsilon", 1e-5}});
  op.layout.operands = LayoutRule::Operands::kFirst;  // the statistics are vectors in every layout
  op.layout.blocked = nullptr;
  op.infer = [](Types in, const OpAttrs& attrs) -> absl::StatusOr<TensorType> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 5, 5));
    HEDDLE_RETURN_IF_ERROR(CheckTakes(Takes::kFloat, in[0].dtype));
    const int rank = static_cast<int>(in[0].shape.size());
    HEDDLE_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis"), rank));
    for (const TensorType& t : in.subspan(1)) {
      if (t.shape != Shape{in[0].shape[axis]} || t.dtype != in[0].dtype) {
        return BadInput(absl::StrCat("statistics ", ToText(t), " do not fit ", ToText(in[0])));
      }
    }
    return in[0];
  };
  op.express = [](tensor::Builder& b, Tensors in,
                  const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    const int64_t axis = attrs.Int("axis");
    return b.Compute("batch_norm", in[0].shape(), [&](tensor::Iters s) {
      const Expr c = s[axis];
      Expr eps = Number(attrs.Float("epsilon"), in[0].dtype());
      Expr scale = Div(in[1](c), Make(Op::kSqrt, {in[4](c) + eps}));
      return (in[0].At({s.begin(), s.end()}) - in[3](c)) * scale + in[2](c);
    });
  };
  return op;
}

}  // namespace

void AppendElementwiseOps(std::vector<OpDef>& ops) {
  for (const Unary& row : UnaryOps()) ops.push_back(UnaryOp(row));
  for (const Binary& row : kBinary) ops.push_back(BinaryOp(row));
  ops.push_back(IdentityOp());
  ops.push_back(WhereOp());
  ops.push_back(CastOp());
  ops.push_back(BatchNormOp());
}

}  // namespace heddle::graph
