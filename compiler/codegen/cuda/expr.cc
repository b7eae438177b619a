#include "compiler/codegen/cuda/expr.h"

#include <cctype>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "compiler/ir/analysis/group_product.h"
#include "compiler/ir/arithmetic.h"

namespace heddle::codegen {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::Op;

namespace {

constexpr int64_t kIntMax = (int64_t{1} << 31) - 1;

// The C++ name of a function on doubles; CUDA's function on floats has an f at the end.
const char* MathName(Op op) {
  switch (op) {
    case Op::kPow:
      return "pow";
    case Op::kAbs:
      return "fabs";
    case Op::kExp:
      return "exp";
    case Op::kLog:
      return "log";
    case Op::kSqrt:
      return "sqrt";
    case Op::kTanh:
      return "tanh";
    case Op::kErf:
      return "erf";
    case Op::kSin:
      return "sin";
    case Op::kCos:
      return "cos";
    case Op::kTan:
      return "tan";
    case Op::kAsin:
      return "asin";
    case Op::kAcos:
      return "acos";
    case Op::kAtan:
      return "atan";
    case Op::kSinh:
      return "sinh";
    case Op::kCosh:
      return "cosh";
    case Op::kAsinh:
      return "asinh";
    case Op::kAcosh:
      return "acosh";
    case Op::kAtanh:
      return "atanh";
    case Op::kFloor:
      return "floor";
    case Op::kCeil:
      return "ceil";
    case Op::kRound:
      return "rint";
    default:
      return nullptr;
  }
}

// The prelude's function for integers of any width.
const char* IntegerName(Op op) {
  switch (op) {
    case Op::kAdd:
      return "h_add";
    case Op::kSub:
      return "h_sub";
    case Op::kMul:
      return "h_mul";
    case Op::kDiv:
      return "h_div";
    case Op::kFloorDiv:
      return "h_floordiv";
    case Op::kFloorMod:
      return "h_floormod";
    case Op::kMin:
      return "h_min";
    case Op::kMax:
      return "h_max";
    case Op::kPow:
      return "h_powi";
    case Op::kNeg:
      return "h_neg";
    case Op::kAbs:
      return "h_absi";
    case Op::kSign:
      return "h_sign";
    default:
      return nullptr;
  }
}

const char* Comparison(Op op) {
  switch (op) {
    case Op::kLt:
      return "<";
    case Op::kLe:
      return "<=";
    case Op::kEq:
      return "==";
    case Op::kNe:
      return "!=";
    case Op::kAnd:
      return "&&";
    case Op::kOr:
      return "||";
    default:
      return nullptr;
  }
}

// The type of a value in a register.
std::string ValueType(DType dtype) { return dtype == DType::kBool ? "bool" : CudaType(dtype); }

std::string Infix(const std::string& a, const char* op, const std::string& b) {
  return absl::StrCat("(", a, " ", op, " ", b, ")");
}

}  // namespace

std::string CudaType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return "unsigned char";
    case DType::kI8:
      return "signed char";
    case DType::kI16:
      return "short";
    case DType::kU16:
      return "unsigned short";
    case DType::kI32:
      return "int";
    case DType::kU32:
      return "unsigned";
    case DType::kI64:
      return "i64";
    case DType::kU64:
      return "u64";
    case DType::kF32:
      return "float";
    case DType::kF64:
      return "double";
    case DType::kF16:
      return "h_f16";
    case DType::kBF16:
      return "h_bf16";
  }
  return "";
}

std::string CudaExpressions::Declare(const std::string& name) {
  std::string word = "_";  // never a C++ keyword or a name of the prelude
  for (char c : name) word += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  const int count = used_[word]++;
  // Names that differ only in the replaced characters get numbers. Two underscores keep these apart
  // from names that end in a number.
  return count == 0 ? word : absl::StrCat(word, "__", count);
}

void CudaExpressions::Bind(const ir::Var* var, std::string name, int64_t extent) {
  vars_[var] = std::move(name);
  analyzer_.Bind(var, {0, extent - 1});
}

bool CudaExpressions::FitsInt(const Expr& e) {
  if (e->dtype != DType::kI64) return false;
  if (e->kind == ExprKind::kInt) return e->int_value >= -kIntMax && e->int_value <= kIntMax;
  if (e->kind == ExprKind::kVar) {
    const auto bounds = analyzer_.Bounds(e);
    return bounds && bounds->max <= kIntMax;
  }
  if (e->kind != ExprKind::kOp || e->op == Op::kSelect || e->op == Op::kPow) return false;
  if (auto it = fits_.find(e.get()); it != fits_.end()) return it->second;
  const auto bounds = analyzer_.Bounds(e);
  bool fits = bounds && bounds->min >= -kIntMax && bounds->max <= kIntMax;
  for (const Expr& arg : e->args) fits = fits && FitsInt(arg);
  kept_.push_back(e);
  return fits_[e.get()] = fits;
}

std::string CudaExpressions::Wide(const Expr& e) { return absl::StrCat("(i64)", Int64(e)); }

std::string CudaExpressions::Int64(const Expr& e) {
  if (e->kind == ExprKind::kInt) {
    const bool is_int = e->int_value >= -kIntMax && e->int_value <= kIntMax;
    if (e->int_value == INT64_MIN) return "((i64)0x8000000000000000ULL)";
    return absl::StrCat(e->int_value < 0 ? "(" : "", e->int_value, is_int ? "" : "LL",
                        e->int_value < 0 ? ")" : "");
  }
  if (e->kind == ExprKind::kVar) return vars_.at(e->var.get());
  if (e->kind != ExprKind::kOp || e->op == Op::kSelect) return Value(e);
  if (!FitsInt(e)) {
    std::string args;
    for (const Expr& arg : e->args) absl::StrAppend(&args, args.empty() ? "" : ", ", Wide(arg));
    return absl::StrCat(IntegerName(e->op), "<i64>(", args, ")");
  }
  const std::string a = Int64(e->args[0]);
  if (e->args.size() == 1) return absl::StrCat(IntegerName(e->op), "<int>(", a, ")");
  const std::string b = Int64(e->args[1]);
  int64_t divisor = 0;
  switch (e->op) {
    case Op::kAdd:
      return Infix(a, "+", b);
    case Op::kSub:
      return Infix(a, "-", b);
    case Op::kMul:
      return Infix(a, "*", b);
    case Op::kFloorDiv:
    case Op::kFloorMod: {
      const auto dividend = analyzer_.Bounds(e->args[0]);
      if (!ir::IsConstInt(e->args[1], &divisor) || divisor <= 0 || dividend->min < 0) break;
      const char* op = e->op == Op::kFloorDiv ? "/" : "%";
      return absl::StrCat("(int)((unsigned)", a, " ", op, " ", divisor, "u)");
    }
    default:
      break;
  }
  return absl::StrCat(IntegerName(e->op), "<int>(", a, ", ", b, ")");
}

std::string CudaExpressions::Float(double value, DType dtype) {
  if (ir::IsHalf(dtype)) {
    return absl::StrCat(CudaType(dtype), "{", ir::HalfBits(static_cast<float>(value), dtype), "}");
  }
  const bool single = dtype == DType::kF32;
  if (std::isnan(value))
    return single ? "__int_as_float(0x7fc00000)" : "__longlong_as_double(0x7ff8000000000000LL)";
  if (std::isinf(value)) {
    const char* sign = value < 0 ? "-" : "";
    return absl::StrCat(
        "(", sign,
        single ? "__int_as_float(0x7f800000)" : "__longlong_as_double(0x7ff0000000000000LL)", ")");
  }
  char text[64];
  std::snprintf(text, sizeof text, single ? "%.9g" : "%.17g",
                single ? static_cast<double>(static_cast<float>(value)) : value);
  std::string digits = text;
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  if (single) digits += "f";
  return std::signbit(value) ? absl::StrCat("(", digits, ")") : digits;
}

std::string CudaExpressions::Value(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kInt:
      if (e->dtype == DType::kBool) return e->int_value ? "true" : "false";
      if (e->dtype == DType::kI32 && e->int_value == -kIntMax - 1) return "((int)0x80000000)";
      if (e->dtype == DType::kU64)
        return absl::StrCat("((u64)", static_cast<uint64_t>(e->int_value), "ULL)");
      return e->dtype == DType::kI64
                 ? Int64(e)
                 : absl::StrCat("((", ValueType(e->dtype), ")", e->int_value, ")");
    case ExprKind::kFloat:
      return Float(e->float_value, e->dtype);
    case ExprKind::kVar:
      return vars_.at(e->var.get());
    case ExprKind::kLoad: {
      if (auto it = replaced_.find(e.get()); it != replaced_.end()) return it->second;
      const std::string element = Access(*e->buffer, e->args);
      return e->dtype == DType::kBool ? absl::StrCat("(", element, " != 0)") : element;
    }
    case ExprKind::kCast:
      return Conversion(e);
    case ExprKind::kOp:
      return Operator(e);
  }
  return "";
}

std::string CudaExpressions::Operator(const Expr& e) {
  const DType operand = e->args[0]->dtype;
  if (e->op == Op::kSelect) {
    const std::string condition = Value(e->args[0]);
    const auto position = analyzer_.Mark();
    analyzer_.Assume(e->args[0]);
    std::string then_value = Value(e->args[1]);
    analyzer_.Restore(position);
    std::string else_value = Value(e->args[2]);
    if (e->dtype == DType::kI64) {
      then_value = "(i64)" + then_value;
      else_value = "(i64)" + else_value;
    }
    return absl::StrCat("(", condition, " ? ", then_value, " : ", else_value, ")");
  }
  if (const char* op = Comparison(e->op)) return Infix(Value(e->args[0]), op, Value(e->args[1]));
  if (e->op == Op::kNot) return absl::StrCat("(!", Value(e->args[0]), ")");
  if (operand == DType::kI64) return Int64(e);
  return ir::IsFloat(operand) ? FloatOperator(e) : IntegerOperator(e);
}

std::string CudaExpressions::FloatOperator(const Expr& e) {
  const std::string a = Value(e->args[0]);
  const std::string b = e->args.size() > 1 ? Value(e->args[1]) : "";
  const std::string type = CudaType(e->args[0]->dtype);
  switch (e->op) {
    case Op::kAdd:
      return Infix(a, "+", b);
    case Op::kSub:
      return Infix(a, "-", b);
    case Op::kMul:
      return Infix(a, "*", b);
    case Op::kDiv:
      return Infix(a, "/", b);
    case Op::kNeg:
      return absl::StrCat("(-", a, ")");
    case Op::kMin:
      return absl::StrCat("h_min<", type, ">(", a, ", ", b, ")");
    case Op::kMax:
      return absl::StrCat("h_max<", type, ">(", a, ", ", b, ")");
    case Op::kSign:
      return absl::StrCat("h_sign<", type, ">(", a, ")");
    case Op::kIsNan:
      return absl::StrCat("(bool)isnan(", a, ")");
    case Op::kIsInf:
      return absl::StrCat("(bool)isinf(", a, ")");
    case Op::kTf32:
      return absl::StrCat("__uint_as_float(h_tf32(__float_as_uint(", a, ")))");
    default:
      break;
  }
  return absl::StrCat(MathName(e->op), e->args[0]->dtype == DType::kF32 ? "f(" : "(", a,
                      b.empty() ? "" : ", ", b, ")");
}

std::string CudaExpressions::IntegerOperator(const Expr& e) {
  std::string args;
  for (const Expr& arg : e->args) absl::StrAppend(&args, args.empty() ? "" : ", ", Value(arg));
  return absl::StrCat(IntegerName(e->op), "<", ValueType(e->dtype), ">(", args, ")");
}

std::string CudaExpressions::Conversion(const Expr& e) {
  const DType from = e->args[0]->dtype;
  std::string a = Value(e->args[0]);
  if (ir::IsHalf(from)) {
    if (e->dtype == from) return a;
    a = absl::StrCat("h_single(", a, ")");
  }
  if (ir::IsHalf(e->dtype)) {
    return absl::StrCat(e->dtype == DType::kF16 ? "h_tof16" : "h_tobf16", "((float)", a, ")");
  }
  if (e->dtype == DType::kBool) return absl::StrCat("(", a, " != 0)");
  if (!ir::IsFloat(e->args[0]->dtype) || ir::IsFloat(e->dtype))
    return absl::StrCat("((", ValueType(e->dtype), ")", a, ")");
  switch (e->dtype) {
    case DType::kI8:
      return absl::StrCat("h_toi8(", a, ")");
    case DType::kU8:
      return absl::StrCat("h_tou8(", a, ")");
    case DType::kI16:
      return absl::StrCat("h_toi16(", a, ")");
    case DType::kU16:
      return absl::StrCat("h_tou16(", a, ")");
    case DType::kI32:
      return absl::StrCat("h_toi32(", a, ")");
    case DType::kU32:
      return absl::StrCat("h_tou32(", a, ")");
    case DType::kU64:
      return absl::StrCat("h_f2u64(", a, ")");
    default:
      return absl::StrCat("h_f2i64(", a, ")");
  }
}

Expr CudaExpressions::Element(const ir::Buffer& buffer, const std::vector<Expr>& indices) {
  Expr element = ir::Int(0);
  for (size_t d = 0; d < indices.size(); ++d)
    element = element * ir::Int(buffer.shape[d]) + indices[d];
  return analyzer_.Simplify(element);
}

std::string CudaExpressions::Access(const ir::Buffer& buffer, const std::vector<Expr>& indices) {
  const std::string& name = buffers_.at(&buffer);
  if (!UsesPanels(&buffer)) return absl::StrCat(name, "[", Int64(Element(buffer, indices)), "]");
  const Expr element = analyzer_.Simplify(ir::PanelElement(buffer, indices));
  return absl::StrCat(name, "[h_swapped(", Int64(element), ")]");
}

}  // namespace heddle::codegen
