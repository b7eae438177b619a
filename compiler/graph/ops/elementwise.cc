// Elementwise operators: one row each, with what it computes of its operands.
#include <cmath>

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
Expr Max(const Expr& a, const Expr& b) { return Make(Op::kMax, {a, b}); }
Expr Min(const Expr& a, const Expr& b) { return Make(Op::kMin, {a, b}); }
Expr Div(const Expr& a, const Expr& b) { return Make(Op::kDiv, {a, b}); }
Expr Exp(const Expr& a) { return Make(Op::kExp, {a}); }
Expr Clamp01(const Expr& a) { return Max(Num(0, a), Min(Num(1, a), a)); }

// ---- One operand
// ----------------------------------------------------------------------------------------------------

struct Unary {
  std::string_view name;
  Takes takes;
  Gives gives;
  Expr (*value)(const Expr& x, const Attrs& attrs);
};

Expr IsInf(const Expr& x, const Attrs& attrs) {
  const bool positive = IntAttr(attrs, "detect_positive", 1) != 0;
  const bool negative = IntAttr(attrs, "detect_negative", 1) != 0;
  Expr inf = Make(Op::kIsInf, {x});
  if (positive && negative) return inf;
  if (positive) return ir::And(inf, ir::Lt(Num(0, x), x));
  if (negative) return ir::And(inf, ir::Lt(x, Num(0, x)));
  return Make(Op::kNe, {x, x});
}

Expr Clip(const Expr& x, const Attrs& attrs) {
  Expr y = x;
  if (HasAttr(attrs, "min")) y = Max(y, NumberAttr(attrs, "min", x->dtype));
  if (HasAttr(attrs, "max")) y = Min(y, NumberAttr(attrs, "max", x->dtype));
  return y;
}

Expr Selu(const Expr& x, const Attrs& attrs) {
  Expr alpha = Num(FloatAttr(attrs, "alpha"), x), gamma = Num(FloatAttr(attrs, "gamma"), x);
  return gamma * Select(ir::Lt(Num(0, x), x), x, alpha * (Exp(x) - Num(1, x)));
}

// log(1 + e^x) without overflow for large x.
Expr Softplus(const Expr& x, const Attrs&) {
  Expr small = Exp(Make(Op::kNeg, {Make(Op::kAbs, {x})}));
  return Max(x, Num(0, x)) + Make(Op::kLog, {Num(1, x) + small});
}

Expr Shrink(const Expr& x, const Attrs& attrs) {
  Expr bias = Num(FloatAttr(attrs, "bias"), x), lambda = Num(FloatAttr(attrs, "lambd"), x);
  return Select(ir::Lt(x, Num(-FloatAttr(attrs, "lambd"), x)), x + bias,
                Select(ir::Lt(lambda, x), x - bias, Num(0, x)));
}

template <Op op>
Expr Direct(const Expr& x, const Attrs&) {
  return Make(op, {x});
}

const Unary kUnary[] = {
    {"neg", Takes::kNumber, Gives::kSame, Direct<Op::kNeg>},
    {"abs", Takes::kNumber, Gives::kSame, Direct<Op::kAbs>},
    {"sign", Takes::kNumber, Gives::kSame, Direct<Op::kSign>},
    {"exp", Takes::kFloat, Gives::kSame, Direct<Op::kExp>},
    {"log", Takes::kFloat, Gives::kSame, Direct<Op::kLog>},
    {"sqrt", Takes::kFloat, Gives::kSame, Direct<Op::kSqrt>},
    {"tanh", Takes::kFloat, Gives::kSame, Direct<Op::kTanh>},
    {"erf", Takes::kFloat, Gives::kSame, Direct<Op::kErf>},
    {"sin", Takes::kFloat, Gives::kSame, Direct<Op::kSin>},
    {"cos", Takes::kFloat, Gives::kSame, Direct<Op::kCos>},
    {"tan", Takes::kFloat, Gives::kSame, Direct<Op::kTan>},
    {"asin", Takes::kFloat, Gives::kSame, Direct<Op::kAsin>},
    {"acos", Takes::kFloat, Gives::kSame, Direct<Op::kAcos>},
    {"atan", Takes::kFloat, Gives::kSame, Direct<Op::kAtan>},
    {"sinh", Takes::kFloat, Gives::kSame, Direct<Op::kSinh>},
    {"cosh", Takes::kFloat, Gives::kSame, Direct<Op::kCosh>},
    {"asinh", Takes::kFloat, Gives::kSame, Direct<Op::kAsinh>},
    {"acosh", Takes::kFloat, Gives::kSame, Direct<Op::kAcosh>},
    {"atanh", Takes::kFloat, Gives::kSame, Direct<Op::kAtanh>},
    {"floor", Takes::kFloat, Gives::kSame, Direct<Op::kFloor>},
    {"ceil", Takes::kFloat, Gives::kSame, Direct<Op::kCeil>},
    {"round", Takes::kFloat, Gives::kSame, Direct<Op::kRound>},
    {"isnan", Takes::kFloat, Gives::kBool, Direct<Op::kIsNan>},
    {"isinf", Takes::kFloat, Gives::kBool, IsInf},
    {"not", Takes::kBool, Gives::kBool, Direct<Op::kNot>},
    {"identity", Takes::kAny, Gives::kSame, [](const Expr& x, const Attrs&) { return x; }},
    {"reciprocal", Takes::kFloat, Gives::kSame,
     [](const Expr& x, const Attrs&) { return Div(Num(1, x), x); }},
    {"relu", Takes::kNumber, Gives::kSame,
     [](const Expr& x, const Attrs&) { return Max(x, Num(0, x)); }},
    {"sigmoid", Takes::kFloat, Gives::kSame,
     [](const Expr& x, const Attrs&) {
       return Div(Num(1, x), Num(1, x) + Exp(Make(Op::kNeg, {x})));
     }},
    {"softplus", Takes::kFloat, Gives::kSame, Softplus},
    {"softsign", Takes::kFloat, Gives::kSame,
     [](const Expr& x, const Attrs&) { return Div(x, Num(1, x) + Make(Op::kAbs, {x})); }},
    {"leaky_relu", Takes::kFloat, Gives::kSame,
     [](const Expr& x, const Attrs& a) {
       return Select(ir::Lt(x, Num(0, x)), Num(FloatAttr(a, "alpha"), x) * x, x);
     }},
    {"elu", Takes::kFloat, Gives::kSame,
     [](const Expr& x, const Attrs& a) {
       return Select(ir::Lt(x, Num(0, x)), Num(FloatAttr(a, "alpha"), x) * (Exp(x) - Num(1, x)), x);
     }},
    {"selu", Takes::kFloat, Gives::kSame, Selu},
    {"celu", Takes::kFloat, Gives::kSame,
     [](const Expr& x, const Attrs& a) {
       Expr alpha = Num(FloatAttr(a, "alpha"), x);
       return Max(x, Num(0, x)) + Min(Num(0, x), alpha * (Exp(Div(x, alpha)) - Num(1, x)));
     }},
    {"hard_sigmoid", Takes::kFloat, Gives::kSame,
     [](const Expr& x, const Attrs& a) {
       return Clamp01(Num(FloatAttr(a, "alpha"), x) * x + Num(FloatAttr(a, "beta"), x));
     }},
    {"hard_swish", Takes::kFloat, Gives::kSame,
     [](const Expr& x, const Attrs&) { return x * Clamp01(x * Num(1.0 / 6, x) + Num(0.5, x)); }},
    {"thresholded_relu", Takes::kFloat, Gives::kSame,
     [](const Expr& x, const Attrs& a) {
       return Select(ir::Lt(Num(FloatAttr(a, "alpha"), x), x), x, Num(0, x));
     }},
    {"shrink", Takes::kNumber, Gives::kSame, Shrink},
    {"clip", Takes::kNumber, Gives::kSame, Clip},
};

OpDef UnaryOp(const Unary& row) {
  OpDef op{row.name, FusionClass::kInjective, true};
  op.infer = [row](Types in, const Attrs&) -> absl::StatusOr<std::vector<TensorType>> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
    HEDDLE_RETURN_IF_ERROR(CheckTakes(row.takes, in[0].dtype));
    return std::vector{
        TensorType{row.gives == Gives::kBool ? DType::kBool : in[0].dtype, in[0].shape}};
  };
  op.express = [row](tensor::Builder& b, Tensors in,
                     const Attrs& attrs) -> absl::StatusOr<std::vector<tensor::Tensor>> {
    return std::vector{b.Compute(std::string(row.name), in[0].shape(), [&](tensor::Iters s) {
      return row.value(in[0].At({s.begin(), s.end()}), attrs);
    })};
  };
  return op;
}

// ---- Two operands, broadcast
// ---------------------------------------------------------------------------------------

struct Binary {
  std::string_view name;
  Takes takes;
  Gives gives;
  Expr (*value)(const Expr& x, const Expr& y);
};

template <Op op>
Expr Direct2(const Expr& x, const Expr& y) {
  return Make(op, {x, y});
}

// The remainder with the sign of the dividend, as C's fmod and %.
Expr TruncatedMod(const Expr& x, const Expr& y) {
  if (!ir::IsFloat(x->dtype)) return x - Div(x, y) * y;
  const Expr quotient = Div(x, y);
  const Expr whole = Select(ir::Lt(quotient, Num(0, x)), Make(Op::kCeil, {quotient}),
                            Make(Op::kFloor, {quotient}));
  return x - whole * y;
}

const Binary kBinary[] = {
    {"add", Takes::kNumber, Gives::kSame, Direct2<Op::kAdd>},
    {"sub", Takes::kNumber, Gives::kSame, Direct2<Op::kSub>},
    {"mul", Takes::kNumber, Gives::kSame, Direct2<Op::kMul>},
    {"div", Takes::kNumber, Gives::kSame, Direct2<Op::kDiv>},
    {"floor_div", Takes::kNumber, Gives::kSame, Direct2<Op::kFloorDiv>},
    {"floor_mod", Takes::kNumber, Gives::kSame, Direct2<Op::kFloorMod>},
    {"truncated_mod", Takes::kNumber, Gives::kSame, TruncatedMod},
    {"min", Takes::kNumber, Gives::kSame, Direct2<Op::kMin>},
    {"max", Takes::kNumber, Gives::kSame, Direct2<Op::kMax>},
    {"pow", Takes::kNumber, Gives::kSame, Direct2<Op::kPow>},
    {"less", Takes::kNumber, Gives::kBool, Direct2<Op::kLt>},
    {"less_equal", Takes::kNumber, Gives::kBool, Direct2<Op::kLe>},
    {"equal", Takes::kAny, Gives::kBool, Direct2<Op::kEq>},
    {"and", Takes::kBool, Gives::kBool, Direct2<Op::kAnd>},
    {"or", Takes::kBool, Gives::kBool, Direct2<Op::kOr>},
    {"xor", Takes::kBool, Gives::kBool, Direct2<Op::kNe>},
    {"prelu", Takes::kNumber, Gives::kSame,
     [](const Expr& x, const Expr& slope) { return Select(ir::Lt(x, Num(0, x)), x * slope, x); }},
};

OpDef BinaryOp(const Binary& row) {
  OpDef op{row.name, FusionClass::kInjective, true};
  op.infer = [row](Types in, const Attrs&) -> absl::StatusOr<std::vector<TensorType>> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 2, 2));
    HEDDLE_RETURN_IF_ERROR(CheckTakes(row.takes, in[0].dtype));
    if (in[0].dtype != in[1].dtype) {
      return BadInput(
          absl::StrCat("operands differ in type: ", ToText(in[0]), " and ", ToText(in[1])));
    }
    HEDDLE_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(in[0].shape, in[1].shape));
    return std::vector{TensorType{row.gives == Gives::kBool ? DType::kBool : in[0].dtype, shape}};
  };
  op.express = [row](tensor::Builder& b, Tensors in,
                     const Attrs&) -> absl::StatusOr<std::vector<tensor::Tensor>> {
    HEDDLE_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(in[0].shape(), in[1].shape()));
    return std::vector{b.Compute(std::string(row.name), shape, [&](tensor::Iters s) {
      return row.value(in[0].At(BroadcastIndex(s, shape, in[0].shape())),
                       in[1].At(BroadcastIndex(s, shape, in[1].shape())));
    })};
  };
  return op;
}

// ---- Others
// ---------------------------------------------------------------------------------------------------------

absl::StatusOr<Shape> WhereShape(const Shape& c, const Shape& x, const Shape& y) {
  HEDDLE_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(c, x));
  return BroadcastShapes(shape, y);
}

OpDef WhereOp() {
  OpDef op{"where", FusionClass::kInjective, true};
  op.infer = [](Types in, const Attrs&) -> absl::StatusOr<std::vector<TensorType>> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 3, 3));
    if (in[0].dtype != DType::kBool || in[1].dtype != in[2].dtype) {
      return BadInput("needs a bool condition and two operands of one type");
    }
    HEDDLE_ASSIGN_OR_RETURN(Shape shape, WhereShape(in[0].shape, in[1].shape, in[2].shape));
    return std::vector{TensorType{in[1].dtype, shape}};
  };
  op.express = [](tensor::Builder& b, Tensors in,
                  const Attrs&) -> absl::StatusOr<std::vector<tensor::Tensor>> {
    HEDDLE_ASSIGN_OR_RETURN(Shape shape, WhereShape(in[0].shape(), in[1].shape(), in[2].shape()));
    return std::vector{b.Compute("where", shape, [&](tensor::Iters s) {
      return Select(in[0].At(BroadcastIndex(s, shape, in[0].shape())),
                    in[1].At(BroadcastIndex(s, shape, in[1].shape())),
                    in[2].At(BroadcastIndex(s, shape, in[2].shape())));
    })};
  };
  return op;
}

OpDef CastOp() {
  OpDef op{"cast", FusionClass::kInjective, true};
  op.infer = [](Types in, const Attrs& attrs) -> absl::StatusOr<std::vector<TensorType>> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
    const std::string to = StringAttr(attrs, "to");
    auto dtype = ir::DTypeFromName(to);
    if (!dtype) return BadInput(absl::StrCat("casts to unknown type '", to, "'"));
    return std::vector{TensorType{*dtype, in[0].shape}};
  };
  op.express = [](tensor::Builder& b, Tensors in,
                  const Attrs& attrs) -> absl::StatusOr<std::vector<tensor::Tensor>> {
    const DType to = *ir::DTypeFromName(StringAttr(attrs, "to"));
    return std::vector{b.Compute("cast", in[0].shape(), [&](tensor::Iters s) {
      Expr x = in[0].At({s.begin(), s.end()});
      if (to == DType::kBool && x->dtype != DType::kBool) {
        return Make(Op::kNe, {x, ir::Zero(x->dtype)});
      }
      if (x->dtype == DType::kBool && to != DType::kBool) {
        return Select(x, Number(1, to), Number(0, to));
      }
      return x->dtype == to ? x : ir::Cast(to, x);
    })};
  };
  return op;
}

// (x - mean) / sqrt(var + epsilon) * scale + bias along dimension `axis`; operands x, scale, bias,
// mean, var.
OpDef BatchNormOp() {
  OpDef op{"batch_norm", FusionClass::kInjective, true};
  op.infer = [](Types in, const Attrs& attrs) -> absl::StatusOr<std::vector<TensorType>> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 5, 5));
    HEDDLE_RETURN_IF_ERROR(CheckTakes(Takes::kFloat, in[0].dtype));
    const int rank = static_cast<int>(in[0].shape.size());
    HEDDLE_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(IntAttr(attrs, "axis", 1), rank));
    for (const TensorType& t : in.subspan(1)) {
      if (t.shape != Shape{in[0].shape[axis]} || t.dtype != in[0].dtype) {
        return BadInput(absl::StrCat("statistics ", ToText(t), " do not fit ", ToText(in[0])));
      }
    }
    return std::vector{in[0]};
  };
  op.express = [](tensor::Builder& b, Tensors in,
                  const Attrs& attrs) -> absl::StatusOr<std::vector<tensor::Tensor>> {
    const int64_t axis = IntAttr(attrs, "axis", 1);
    return std::vector{b.Compute("batch_norm", in[0].shape(), [&](tensor::Iters s) {
      const Expr c = s[axis];
      Expr eps = Number(FloatAttr(attrs, "epsilon", 1e-5), in[0].dtype());
      Expr scale = Div(in[1](c), Make(Op::kSqrt, {in[4](c) + eps}));
      return (in[0].At({s.begin(), s.end()}) - in[3](c)) * scale + in[2](c);
    })};
  };
  return op;
}

}  // namespace

void AppendElementwiseOps(std::vector<OpDef>& ops) {
  for (const Unary& row : kUnary) ops.push_back(UnaryOp(row));
  for (const Binary& row : kBinary) ops.push_back(BinaryOp(row));
  ops.push_back(WhereOp());
  ops.push_back(CastOp());
  ops.push_back(BatchNormOp());
}

}  // namespace heddle::graph
