#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier_rules.h"

namespace heddle::ir {

absl::Status RuleBroken(const char* rule, const std::string& message, const std::string& where) {
  constexpr size_t kLongest =
      240;  // enough to recognise the statement; a fused epilogue can be far longer
  std::string at;
  for (char c : where.substr(0, kLongest)) {  // on one line
    const bool blank = c == '\n' || c == ' ';
    if (!blank) at += c;
    if (blank && !at.empty() && at.back() != ' ') at += ' ';
  }
  while (!at.empty() && at.back() == ' ') at.pop_back();
  if (where.size() > kLongest) at += "...";
  return absl::FailedPreconditionError(std::string(rule) + ": " + message + ", in: " + at);
}

namespace {

enum class Operands { kNumbers, kIntegers, kFloats, kSingles, kBools, kAny };

// What an operator takes; all operands have one type.
Operands OperandsOf(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kPow:
    case Op::kNeg:
    case Op::kAbs:
    case Op::kSign:
      return Operands::kNumbers;
    case Op::kMin:
    case Op::kMax:
    case Op::kLt:
    case Op::kLe:
    case Op::kEq:
    case Op::kNe:
      return Operands::kAny;
    case Op::kFloorDiv:
    case Op::kFloorMod:
      return Operands::kIntegers;
    case Op::kAnd:
    case Op::kOr:
    case Op::kNot:
      return Operands::kBools;
    case Op::kTf32:
      return Operands::kSingles;
    default:
      return Operands::kFloats;
  }
}

bool Fits(Operands operands, DType dtype) {
  switch (operands) {
    case Operands::kNumbers:
      return dtype != DType::kBool && !IsHalf(dtype);
    case Operands::kIntegers:
      return IsInteger(dtype);
    case Operands::kFloats:
      return IsFloat(dtype) && !IsHalf(dtype);
    case Operands::kSingles:
      return dtype == DType::kF32;
    case Operands::kBools:
      return dtype == DType::kBool;
    case Operands::kAny:
      return !IsHalf(dtype);
  }
  return false;
}

bool GivesBool(Op op) {
  return (op >= Op::kLt && op <= Op::kNot) || op == Op::kIsNan || op == Op::kIsInf;
}

absl::Status CheckOp(const Expr& e) {
  const auto& args = e->args;
  if (static_cast<int>(args.size()) != Arity(e->op)) {
    return RuleBroken("type", "wrong number of operands of " + std::string(Name(e->op)), Print(e));
  }
  if (e->op == Op::kSelect) {
    const bool good = args[0]->dtype == DType::kBool && args[1]->dtype == args[2]->dtype &&
                      e->dtype == args[1]->dtype;
    return good ? absl::OkStatus()
                : RuleBroken("type", "select wants a bool and two values of one type", Print(e));
  }
  for (const Expr& a : args) {
    if (a->dtype != args[0]->dtype)
      return RuleBroken("type", "operands of different types", Print(e));
  }
  if (!Fits(OperandsOf(e->op), args[0]->dtype)) {
    return RuleBroken("type", std::string(Name(e->op)) + " of " + std::string(Name(args[0]->dtype)),
                      Print(e));
  }
  if (e->dtype != (GivesBool(e->op) ? DType::kBool : args[0]->dtype)) {
    return RuleBroken("type", "result type is not the operator's", Print(e));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNodeType(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kInt:
      return IsFloat(e->dtype) ? RuleBroken("type", "integer literal of a float type", Print(e))
                               : absl::OkStatus();
    case ExprKind::kFloat:
      return IsFloat(e->dtype) ? absl::OkStatus()
                               : RuleBroken("type", "float literal of an integer type", Print(e));
    case ExprKind::kVar:
      return e->dtype == DType::kI64 ? absl::OkStatus()
                                     : RuleBroken("type", "variables are i64", Print(e));
    case ExprKind::kCast:
      return e->args.size() == 1 ? absl::OkStatus()
                                 : RuleBroken("type", "a cast has one operand", Print(e));
    case ExprKind::kLoad:
      if (e->dtype != e->buffer->dtype)
        return RuleBroken("type", "load of another type than the buffer's", Print(e));
      return absl::OkStatus();
    case ExprKind::kOp:
      return CheckOp(e);
  }
  return absl::OkStatus();
}

}  // namespace heddle::ir
