// Translation of the elementwise ONNX operators.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/narrow.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/operators/formulas.h"
#include "compiler/onnx/precision.h"

namespace heddle::graph {
namespace {

using ir::DType;

// ---- One operand ----

struct Simple {
  const char* onnx;
  OpKind kind;
  std::vector<const char*> floats = {};  // attributes
};

const std::vector<Simple>& SimpleOps() {
  static const auto* ops = new std::vector<Simple>{
      {"Abs", OpKind::kAbs},
      {"Neg", OpKind::kNeg},
      {"Sign", OpKind::kSign},
      {"Exp", OpKind::kExp},
      {"Log", OpKind::kLog},
      {"Sqrt", OpKind::kSqrt},
      {"Tanh", OpKind::kTanh},
      {"Erf", OpKind::kErf},
      {"Sin", OpKind::kSin},
      {"Cos", OpKind::kCos},
      {"Tan", OpKind::kTan},
      {"Asin", OpKind::kAsin},
      {"Acos", OpKind::kAcos},
      {"Atan", OpKind::kAtan},
      {"Sinh", OpKind::kSinh},
      {"Cosh", OpKind::kCosh},
      {"Asinh", OpKind::kAsinh},
      {"Acosh", OpKind::kAcosh},
      {"Atanh", OpKind::kAtanh},
      {"Floor", OpKind::kFloor},
      {"Ceil", OpKind::kCeil},
      {"Round", OpKind::kRound},
      {"IsNaN", OpKind::kIsnan},
      {"Not", OpKind::kNot},
      {"Reciprocal", OpKind::kReciprocal},
      {"Relu", OpKind::kRelu},
      {"Sigmoid", OpKind::kSigmoid},
      {"Softplus", OpKind::kSoftplus},
      {"Softsign", OpKind::kSoftsign},
      {"HardSwish", OpKind::kHardSwish},
      {"LeakyRelu", OpKind::kLeakyRelu, {"alpha"}},
      {"Elu", OpKind::kElu, {"alpha"}},
      {"Celu", OpKind::kCelu, {"alpha"}},
      {"Selu", OpKind::kSelu, {"alpha", "gamma"}},
      {"HardSigmoid", OpKind::kHardSigmoid, {"alpha", "beta"}},
      {"ThresholdedRelu", OpKind::kThresholdedRelu, {"alpha"}},
      {"Shrink", OpKind::kShrink, {"bias", "lambd"}},
  };
  return *ops;
}

void TranslateSimple(NodeImport& n) {
  for (const Simple& row : SimpleOps()) {
    if (n.proto().op_type() != row.onnx) continue;
    Attrs attrs;
    for (const char* name : row.floats) attrs[name] = n.Float(name);
    return n.Set(0, n.Emit(row.kind, {n.In(0)}, attrs));
  }
}

// ---- Activations that are formulas of other operators ----

// They are computed in f32 for 16-bit floats. SetRounded gives the result the operand's type.
void Swish(NodeImport& n) { SetRounded(n, SwishOf(n, Single(n, n.In(0)), n.Float("alpha"))); }

void SwiGlu(NodeImport& n) {
  const ValueId a = Single(n, n.In(0)), b = Single(n, n.In(1));
  if (n.ok() && n.ShapeOf(a) != n.ShapeOf(b)) return n.Fail("the operands differ in shape");
  SetRounded(n, n.Emit(OpKind::kMul, {SwishOf(n, a, n.Float("alpha")), b}));
}

void Mish(NodeImport& n) {
  const ValueId x = Single(n, n.In(0));
  const ValueId inner = n.Emit(OpKind::kTanh, {n.Emit(OpKind::kSoftplus, {x})});
  SetRounded(n, n.Emit(OpKind::kMul, {x, inner}));
}

void Gelu(NodeImport& n) {
  const bool with_tanh = n.OneOf("approximate", {"none", "tanh"}) == "tanh";
  SetRounded(n, GeluOf(n, Single(n, n.In(0)), with_tanh));
}

void IsInf(NodeImport& n) {
  n.Set(0, n.Emit(OpKind::kIsinf, {n.In(0)},
                  {{"detect_positive", n.Int("detect_positive")},
                   {"detect_negative", n.Int("detect_negative")}}));
}

void Clip(NodeImport& n) {
  ValueId x = n.In(0);
  Attrs attrs;
  if (n.opset() < 11) {
    for (const char* bound : {"min", "max"}) {
      if (n.HasAttr(bound)) attrs[bound] = n.Float(bound);
    }
    return n.Set(0, n.Emit(OpKind::kClip, {x}, attrs));
  }
  // Constant bounds become attributes of the operator; other bounds are operands. The maximum comes
  // last: it is the result if it is below the minimum.
  for (int i = 1; i <= 2; ++i) {
    if (!n.Has(i)) continue;
    const ValueId bound = n.In(i);
    const TensorData* known = n.ConstantData(bound);
    if (known != nullptr && NumElements(known->type) == 1) {
      attrs[i == 1 ? "min" : "max"] = ToAttr(*known);
      continue;
    }
    if (!attrs.empty()) x = n.Emit(OpKind::kClip, {x}, attrs);
    attrs.clear();
    x = n.Emit(i == 1 ? OpKind::kMax : OpKind::kMin, {x, bound});
  }
  n.Set(0, attrs.empty() ? x : n.Emit(OpKind::kClip, {x}, attrs));
}

void Cast(NodeImport& n) {
  n.Ignore({"round_mode"});  // it concerns float8e8m0
  int type = static_cast<int>(n.Int("to"));
  if (n.opset() < 6) {  // the type is a word
    onnx::TensorProto::DataType named;
    if (!onnx::TensorProto::DataType_Parse(n.String("to"), &named))
      return n.Fail(absl::StrCat("there is no type '", n.String("to"), "'"));
    type = named;
  }
  n.Set(0, CastToOnnx(n, n.In(0), type, n.Int("saturate", 1) != 0));
}

void CastLike(NodeImport& n) {
  n.Ignore({"round_mode"});
  const ValueId like = n.In(1);
  const ValueId y = HeldIn(n.OnnxType(1))
                        ? CastToOnnx(n, n.In(0), n.OnnxType(1), n.Int("saturate", 1) != 0)
                        : n.Cast(n.In(0), n.Type(like).dtype);
  n.Set(0, y);
}

// ---- Two operands ----

// The second operand of a binary operator. Before opset 7 it is broadcast only if the node says so,
// and `axis` may align it.
ValueId SecondOperand(NodeImport& n) {
  const ValueId a = n.In(0), b = n.In(1);
  const bool aligned = n.HasAttr("axis");
  if (n.opset() >= 7 || n.Int("broadcast") == 0 || !aligned || !n.ok()) return b;
  Shape shape(n.ShapeOf(b));
  const int64_t axis = n.Axis(n.Int("axis"), n.Rank(a));
  while (static_cast<int64_t>(shape.size()) + axis < n.Rank(a)) shape.push_back(1);
  return n.Reshape(b, shape);
}

struct Pair {
  const char* onnx;
  OpKind kind;
  bool swapped = false;
};

constexpr Pair kPairs[] = {
    {"Add", OpKind::kAdd},
    {"Sub", OpKind::kSub},
    {"Mul", OpKind::kMul},
    {"Div", OpKind::kDiv},
    {"And", OpKind::kAnd},
    {"Or", OpKind::kOr},
    {"Xor", OpKind::kXor},
    {"Equal", OpKind::kEqual},
    {"Less", OpKind::kLess},
    {"Greater", OpKind::kLess, true},
    {"LessOrEqual", OpKind::kLessEqual},
    {"GreaterOrEqual", OpKind::kLessEqual, true},
};

void TranslatePair(NodeImport& n) {
  for (const Pair& row : kPairs) {
    if (n.proto().op_type() != row.onnx) continue;
    const ValueId a = n.In(0), b = SecondOperand(n);
    return n.Set(0, row.swapped ? n.Emit(row.kind, {b, a}) : n.Emit(row.kind, {a, b}));
  }
}

void PRelu(NodeImport& n) {
  const ValueId x = n.In(0);
  ValueId slope = n.In(1);
  // Before opset 7, a slope per channel has no trailing dimensions.
  if (n.ok() && n.opset() < 7 && n.Rank(slope) == 1 && n.Rank(x) > 2)
    slope = n.AlongAxis(slope, 1, n.Rank(x));
  n.Set(0, n.Emit(OpKind::kPrelu, {x, slope}));
}

// The result has the type of the base. An integer base with a float exponent is computed in floats.
// Exporters write squares and cubes as powers; these become products.
void Pow(NodeImport& n) {
  const ValueId x = n.In(0), y = SecondOperand(n);
  const TensorData* known = n.ConstantData(y);
  if (known != nullptr && NumElements(known->type) == 1 && n.Rank(y) <= n.Rank(x)) {
    const double exponent = ToDoubles(*known)[0];
    if (exponent == 2) return n.Set(0, n.Emit(OpKind::kMul, {x, x}));
    if (exponent == 3) return n.Set(0, n.Emit(OpKind::kMul, {n.Emit(OpKind::kMul, {x, x}), x}));
    if (exponent == 1) return n.Set(0, x);
  }
  const DType base = n.Type(x).dtype, exponent = n.Type(y).dtype;
  if (!ir::IsFloat(base) && ir::IsFloat(exponent)) {
    return n.Set(0, n.Cast(n.Emit(OpKind::kPow, {n.Cast(x, exponent), y}), base));
  }
  n.Set(0, n.Emit(OpKind::kPow, {x, n.Cast(y, base)}));
}

// The remainder with the sign of the divisor, from the one with the sign of the dividend. A remainder
// of zero has the sign of the divisor, too.
ValueId FlooredMod(NodeImport& n, ValueId x, ValueId y) {
  const ValueId rest = n.Emit(OpKind::kTruncatedMod, {x, y});
  const ValueId zero = n.ScalarLike(0, y);
  const ValueId down = n.Emit(OpKind::kLess, {y, zero});
  const ValueId differs =
      n.Emit(OpKind::kXor, {n.Emit(OpKind::kLess, {rest, n.ScalarLike(0, rest)}), down});
  const ValueId whole = n.Emit(OpKind::kEqual, {rest, n.ScalarLike(0, rest)});
  const ValueId signed_zero = n.Emit(OpKind::kWhere, {down, n.ScalarLike(-0.0, y), zero});
  const ValueId moved = n.Emit(OpKind::kWhere, {differs, n.Emit(OpKind::kAdd, {rest, y}), rest});
  return n.Emit(OpKind::kWhere, {whole, signed_zero, moved});
}

void Mod(NodeImport& n) {
  const ValueId x = n.In(0), y = n.In(1);
  const bool truncated = n.Int("fmod") != 0;
  if (!truncated && ir::IsFloat(n.Type(x).dtype)) {
    constexpr int kFirstWithFloats = 28;
    if (n.opset() < kFirstWithFloats) return n.Fail("floats need fmod=1");
    return n.Set(0, n.Cast(FlooredMod(n, Single(n, x), Single(n, y)), n.Type(x).dtype));
  }
  n.Set(0, n.Emit(truncated ? OpKind::kTruncatedMod : OpKind::kFloorMod, {x, y}));
}

// ---- Any number of operands ----

void TranslateVariadic(NodeImport& n) {
  const std::string& type = n.proto().op_type();
  const OpKind kind = type == "Max" ? OpKind::kMax : type == "Min" ? OpKind::kMin : OpKind::kAdd;
  const DType dtype = n.Type(n.In(0)).dtype;
  const bool sum = kind == OpKind::kAdd && n.NumInputs() > 1;
  const auto operand = [&](int i) { return sum ? Single(n, n.In(i)) : n.In(i); };
  ValueId result = operand(0);
  for (int i = 1; i < n.NumInputs(); ++i) result = n.Emit(kind, {result, operand(i)});
  if (type == "Mean" && n.NumInputs() > 1)
    result = n.Emit(OpKind::kDiv, {result, n.ScalarLike(n.NumInputs(), result)});
  n.Set(0, sum ? n.Cast(result, dtype) : result);
}

void Where(NodeImport& n) { n.Set(0, n.Emit(OpKind::kWhere, {n.In(0), n.In(1), n.In(2)})); }

void Identity(NodeImport& n) { n.SetValue(0, n.Value(0)); }

}  // namespace

void SetRounded(NodeImport& n, ValueId y, int i) {
  if (n.ok()) n.Set(i, n.Cast(y, n.Type(n.In(0)).dtype));
}

ValueId SwishOf(NodeImport& n, ValueId x, double alpha) {
  const ValueId inner = alpha == 1 ? x : n.Emit(OpKind::kMul, {x, n.ScalarLike(alpha, x)});
  return n.Emit(OpKind::kMul, {x, n.Emit(OpKind::kSigmoid, {inner})});
}

ValueId GeluOf(NodeImport& n, ValueId x, bool with_tanh) {
  const auto times = [&](ValueId v, double by) {
    return n.Emit(OpKind::kMul, {v, n.ScalarLike(by, v)});
  };
  ValueId inner;
  if (with_tanh) {
    const ValueId cube = n.Emit(OpKind::kMul, {n.Emit(OpKind::kMul, {x, x}), x});
    const ValueId sum = n.Emit(OpKind::kAdd, {x, times(cube, 0.044715)});
    inner = n.Emit(OpKind::kTanh, {times(sum, std::sqrt(2 / M_PI))});
  } else {
    inner = n.Emit(OpKind::kErf, {times(x, std::sqrt(0.5))});
  }
  const ValueId share = n.Emit(OpKind::kAdd, {inner, n.ScalarLike(1, inner)});
  return n.Emit(OpKind::kMul, {times(x, 0.5), share});
}

void AddElementwiseTranslations(TranslationTable& table) {
  for (const Simple& row : SimpleOps()) table[row.onnx] = TranslateSimple;
  for (const Pair& row : kPairs) table[row.onnx] = TranslatePair;
  for (const char* name : {"Max", "Min", "Sum", "Mean"}) table[name] = TranslateVariadic;
  table["Swish"] = Swish;
  table["SwiGLU"] = SwiGlu;
  table["Mish"] = Mish;
  table["Gelu"] = Gelu;
  table["IsInf"] = IsInf;
  table["Clip"] = Clip;
  table["Cast"] = Cast;
  table["CastLike"] = CastLike;
  table["PRelu"] = PRelu;
  table["Pow"] = Pow;
  table["Mod"] = Mod;
  table["Where"] = Where;
  table["Identity"] = Identity;
}

}  // namespace heddle::graph
