#include "compiler/interpreter/code_builder.h"

#include <algorithm>

namespace heddle::interpreter {

void Affine::Add(const Affine& other, int64_t factor) {
  constant += other.constant * factor;
  for (const auto& [reg, c] : other.terms) {
    auto it =
        std::find_if(terms.begin(), terms.end(), [r = reg](const auto& t) { return t.first == r; });
    if (it == terms.end()) {
      terms.emplace_back(reg, c * factor);
    } else if ((it->second += c * factor) == 0) {
      terms.erase(it);
    }
  }
}

int CodeBuilder::NewRegister(int level, Range range) {
  initial_.push_back(Register{0});
  level_of_.push_back(level);
  range_of_.push_back(range);
  return static_cast<int>(initial_.size()) - 1;
}

int CodeBuilder::Constant(Register value, Range range) {
  auto [it, is_new] = constants_.try_emplace(value.i, 0);
  if (is_new) {
    it->second = NewRegister(0, range);
    initial_.back() = value;
  }
  return it->second;
}

Range CodeBuilder::RangeOf(const Affine& affine) const {
  Range sum{affine.constant, affine.constant};
  for (const auto& [reg, c] : affine.terms) {
    const Range r = range_of_[reg];
    if (r.max >= kHuge || r.min <= -kHuge) return kAnything;
    sum.min += c > 0 ? r.min * c : r.max * c;
    sum.max += c > 0 ? r.max * c : r.min * c;
  }
  return sum;
}

size_t CodeBuilder::Emit(Instruction instruction) {
  code_.push_back(instruction);
  return code_.size() - 1;
}

void CodeBuilder::PatchToHere(size_t at) {
  const auto distance = static_cast<int64_t>(code_.size() - at);
  if (code_[at].code == Code::kJumpIfNonZeroSum) {
    code_[at].dst = static_cast<int32_t>(distance);
  } else {
    code_[at].imm = distance;
  }
}

int CodeBuilder::Fresh(Instruction instruction) {
  instruction.dst = NewRegister();
  Emit(instruction);
  return instruction.dst;
}

int CodeBuilder::Pure(Instruction instruction, std::initializer_list<int> operands, Range range) {
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

int CodeBuilder::Materialize(Affine affine) {
  if (affine.constant == 0 && affine.terms.size() == 1 && affine.terms[0].second == 1)
    return affine.terms[0].first;
  // Outer loops come first, so that each prefix of the sum is computed as far out as possible.
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

Address CodeBuilder::ToAddress(Affine affine) {
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

int CodeBuilder::BeginLoop(int64_t extent) {
  levels_.push_back({{}, std::exchange(code_, {})});
  return NewRegister(static_cast<int>(levels_.size()) - 1, {0, extent - 1});
}

void CodeBuilder::EndLoop(int var, int64_t extent, bool down) {
  const Level level = std::move(levels_.back());
  levels_.pop_back();
  const std::vector<Instruction> body = std::exchange(code_, level.outside);
  code_.push_back({Code::kLoopBegin, 0, var, 0, 0, down ? extent - 1 : 0});
  code_.insert(code_.end(), level.prologue.begin(), level.prologue.end());
  code_.insert(code_.end(), body.begin(), body.end());
  const auto back = -static_cast<int32_t>(level.prologue.size() + body.size());
  code_.push_back({down ? Code::kLoopDown : Code::kLoopUp, 0, var, back, 0, extent});
}

Bytecode CodeBuilder::Finish(std::vector<ir::BufferRef> buffers) && {
  Bytecode out{std::move(levels_[0].prologue), std::move(initial_), std::move(buffers)};
  out.code.insert(out.code.end(), code_.begin(), code_.end());
  out.code.push_back({Code::kHalt});
  return out;
}

}  // namespace heddle::interpreter
