// Registers and integer expressions of the bytecode: indices are sums of loop variables, computed
// at the outermost loop that knows them.
#include <algorithm>
#include <bit>

#include "base/status_macros.h"
#include "compiler/interpreter/compiler.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/ir/visit.h"

namespace heddle::interpreter {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::Op;

// ---- Registers and instructions ----

int BytecodeCompiler::NewRegister(int level, Range range) {
  out_.initial.push_back(Register{0});
  level_of_.push_back(level);
  range_of_.push_back(range);
  return static_cast<int>(out_.initial.size()) - 1;
}

int BytecodeCompiler::Constant(Register value, Range range) {
  auto [it, is_new] = constants_.try_emplace(value.i, 0);
  if (is_new) {
    it->second = NewRegister(0, range);
    out_.initial.back() = value;
  }
  return it->second;
}

size_t BytecodeCompiler::Emit(Instruction instruction) {
  code_.push_back(instruction);
  return code_.size() - 1;
}

void BytecodeCompiler::PatchToHere(size_t at) {
  const auto distance = static_cast<int64_t>(code_.size() - at);
  if (code_[at].code == Code::kJumpIfNonZeroSum) {
    code_[at].dst = static_cast<int32_t>(distance);
  } else {
    code_[at].imm = distance;
  }
}

int BytecodeCompiler::Pure(Instruction instruction, std::initializer_list<int> operands,
                           Range range) {
  int level = 0;
  for (int reg : operands) level = std::max(level, level_of_[reg]);
  const auto key = std::tuple(static_cast<int>(instruction.code), static_cast<int>(instruction.sub),
                              instruction.a, instruction.b, instruction.imm);
  if (level != kHere) {
    if (auto it = pure_.find(key); it != pure_.end()) return it->second;
  }
  instruction.dst = NewRegister(level, range);
  if (level == kHere) {
    Emit(instruction);
  } else {
    levels_[level].prologue.push_back(instruction);
    pure_[key] = instruction.dst;
  }
  return instruction.dst;
}

// ---- Integer expressions ----

Range BytecodeCompiler::RangeOf(const Affine& affine) const {
  Range sum{affine.constant, affine.constant};
  for (const auto& [reg, c] : affine.terms) {
    const Range r = range_of_[reg];
    if (r.max >= kHuge || r.min <= -kHuge) return {-kHuge, kHuge};
    sum.min += c > 0 ? r.min * c : r.max * c;
    sum.max += c > 0 ? r.max * c : r.min * c;
  }
  return sum;
}

absl::StatusOr<Affine> BytecodeCompiler::ToAffine(const Expr& e) {
  Affine result;
  if (e->kind == ExprKind::kInt) {
    result.constant = e->int_value;
    return result;
  }
  if (e->kind == ExprKind::kVar) {
    auto it = vars_.find(e->var.get());
    if (it == vars_.end())
      return absl::InternalError("interpreter: variable " + e->var->name + " is not visible");
    return it->second;
  }
  if (e->kind == ExprKind::kOp && e->dtype == DType::kI64) {
    int64_t factor = 0;
    if (e->op == Op::kAdd || e->op == Op::kSub) {
      HEDDLE_ASSIGN_OR_RETURN(result, ToAffine(e->args[0]));
      HEDDLE_ASSIGN_OR_RETURN(Affine other, ToAffine(e->args[1]));
      result.Add(other, e->op == Op::kAdd ? 1 : -1);
      return result;
    }
    if (e->op == Op::kMul &&
        (ir::IsConstInt(e->args[1], &factor) || ir::IsConstInt(e->args[0], &factor))) {
      HEDDLE_ASSIGN_OR_RETURN(Affine other, ToAffine(e->args[ir::IsConstInt(e->args[1]) ? 0 : 1]));
      if (factor != 0) result.Add(other, factor);
      return result;
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(int reg, Value(e));
  result.terms.emplace_back(reg, 1);
  return result;
}

int BytecodeCompiler::Materialize(Affine affine) {
  if (affine.constant == 0 && affine.terms.size() == 1 && affine.terms[0].second == 1)
    return affine.terms[0].first;
  // Outer loops first: each prefix is then computed as far out as it can be.
  std::sort(affine.terms.begin(), affine.terms.end(), [&](const auto& a, const auto& b) {
    return std::pair(level_of_[a.first], a.first) < std::pair(level_of_[b.first], b.first);
  });
  int sum = IntConstant(affine.constant);
  Affine prefix;
  prefix.constant = affine.constant;
  for (const auto& [reg, c] : affine.terms) {
    prefix.terms.emplace_back(reg, c);
    sum = Pure({Code::kMulAdd, 0, 0, sum, reg, c}, {sum, reg}, RangeOf(prefix));
  }
  return sum;
}

absl::StatusOr<int> BytecodeCompiler::IntRegister(const Expr& e) {
  HEDDLE_ASSIGN_OR_RETURN(Affine affine, ToAffine(e));
  return Materialize(std::move(affine));
}

BytecodeCompiler::Address BytecodeCompiler::ToAddress(Affine affine) {
  Address address;
  auto inner = std::max_element(
      affine.terms.begin(), affine.terms.end(),
      [&](const auto& a, const auto& b) { return level_of_[a.first] < level_of_[b.first]; });
  if (inner != affine.terms.end()) {
    address.var = inner->first;
    address.coefficient = inner->second;
    affine.terms.erase(inner);
  }
  address.base = Materialize(std::move(affine));
  return address;
}

bool BytecodeCompiler::IsPure(const Expr& e) {
  if (e->kind == ExprKind::kInt || e->kind == ExprKind::kVar) return true;
  if (e->kind != ExprKind::kOp || (e->dtype != DType::kI64 && e->dtype != DType::kBool))
    return false;
  switch (e->op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kMin:
    case Op::kMax:
    case Op::kLt:
    case Op::kLe:
    case Op::kEq:
    case Op::kNe:
    case Op::kAnd:
    case Op::kOr:
    case Op::kNot:
    case Op::kSelect:
      break;
    case Op::kFloorDiv:
    case Op::kFloorMod:
      if (e->args[1]->kind != ExprKind::kInt || e->args[1]->int_value <= 0) return false;
      break;
    default:
      return false;
  }
  return std::all_of(e->args.begin(), e->args.end(), IsPure);
}

Code BytecodeCompiler::IntCode(Op op) {
  switch (op) {
    case Op::kMul:
      return Code::kMul;
    case Op::kMin:
      return Code::kMin;
    case Op::kMax:
      return Code::kMax;
    case Op::kLt:
      return Code::kLt;
    case Op::kLe:
      return Code::kLe;
    case Op::kEq:
      return Code::kEq;
    case Op::kNe:
      return Code::kNe;
    case Op::kAnd:
      return Code::kAnd;
    case Op::kOr:
      return Code::kOr;
    case Op::kNot:
      return Code::kNot;
    default:
      return Code::kHalt;
  }
}

absl::StatusOr<int> BytecodeCompiler::IntOp(const Expr& e) {
  const DType dtype = e->args[0]->dtype;
  if (e->dtype == DType::kI64 && (e->op == Op::kAdd || e->op == Op::kSub)) return IntRegister(e);
  int reg[3] = {0, 0, 0};
  for (size_t i = 0; i < e->args.size(); ++i) {
    HEDDLE_ASSIGN_OR_RETURN(reg[i], dtype == DType::kI64 && e->args[i]->dtype == DType::kI64
                                        ? IntRegister(e->args[i])
                                        : Value(e->args[i]));
  }
  int64_t k = 0;
  const Range a = range_of_[reg[0]], b = range_of_[reg[1]];
  const bool by_constant =
      dtype == DType::kI64 && e->args.size() == 2 && ir::IsConstInt(e->args[1], &k) && k > 0;
  if (by_constant && e->op == Op::kFloorDiv) {
    const bool known = a.min > -kHuge && a.max < kHuge;
    const auto div = [k](__int128 v) { return v >= 0 ? v / k : -((-v + k - 1) / k); };
    return Pure({Code::kFloorDiv, 0, 0, reg[0], 0, k}, {reg[0]},
                known ? Range{div(a.min), div(a.max)} : Range{-kHuge, kHuge});
  }
  if (by_constant && e->op == Op::kFloorMod)
    return Pure({Code::kFloorMod, 0, 0, reg[0], 0, k}, {reg[0]}, {0, k - 1});
  if (e->op == Op::kSelect) {
    return Pure({Code::kSelect, 0, 0, reg[0], reg[1], reg[2]}, {reg[0], reg[1], reg[2]},
                {std::min(b.min, range_of_[reg[2]].min), std::max(b.max, range_of_[reg[2]].max)});
  }
  const Code code = IntCode(e->op);
  if (code == Code::kHalt || (code == Code::kMul && dtype != DType::kI64)) {
    Instruction call{
        Code::kCallInt, static_cast<uint16_t>(e->op),         NewRegister(kHere, {-kHuge, kHuge}),
        reg[0],         e->args.size() > 1 ? reg[1] : reg[0], static_cast<int64_t>(dtype)};
    Emit(call);
    return call.dst;
  }
  Range range{-kHuge, kHuge};
  if (code == Code::kMin) range = {std::min(a.min, b.min), std::min(a.max, b.max)};
  if (code == Code::kMax) range = {std::max(a.min, b.min), std::max(a.max, b.max)};
  if (e->dtype == DType::kBool) range = {0, 1};
  if (e->args.size() == 1) return Pure({code, 0, 0, reg[0]}, {reg[0]}, range);
  return Pure({code, 0, 0, reg[0], reg[1]}, {reg[0], reg[1]}, range);
}

}  // namespace heddle::interpreter
