// Program to bytecode. Deliberately uses none of the simplifier: the oracle must not share the bugs
// it is meant to find.
#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <unordered_map>

#include "absl/status/status.h"
#include "compiler/codegen/interpreter_bytecode.h"
#include "compiler/ir/fold.h"
#include "compiler/ir/status_macros.h"
#include "compiler/ir/visit.h"

namespace heddle::codegen {
namespace {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::Op;

// Level of a value that depends on memory: computed where it is used, never moved.
constexpr int kHere = INT32_MAX;
constexpr size_t kMaxBuffers = UINT16_MAX;  // what an instruction can name

struct Range {
  __int128 min = 0, max = 0;
};
constexpr __int128 kHuge = static_cast<__int128>(1) << 100;  // stands for "unknown"

// constant + sum of register * coefficient.
struct Affine {
  int64_t constant = 0;
  std::vector<std::pair<int, int64_t>> terms;

  void Add(const Affine& other, int64_t factor) {
    constant += other.constant * factor;
    for (const auto& [reg, c] : other.terms) {
      auto it = std::find_if(terms.begin(), terms.end(),
                             [r = reg](const auto& t) { return t.first == r; });
      if (it == terms.end()) {
        terms.emplace_back(reg, c * factor);
      } else if ((it->second += c * factor) == 0) {
        terms.erase(it);
      }
    }
  }
};

class Compiler {
 public:
  Compiler(const ir::Program& program, const InterpreterOptions& options)
      : program_(program), options_(options) {}

  absl::StatusOr<Bytecode> Run() {
    for (const auto& list : {program_.inputs, program_.outputs}) {
      for (const ir::BufferRef& buffer : list) AddBuffer(buffer);
    }
    num_inputs_ = program_.inputs.size();
    levels_.emplace_back();
    HEDDLE_RETURN_IF_ERROR(Visit(program_.body));
    if (out_.buffers.size() > kMaxBuffers)
      return absl::UnimplementedError("interpreter: too many buffers");
    out_.code = std::move(levels_[0].prologue);
    out_.code.insert(out_.code.end(), code_.begin(), code_.end());
    out_.code.push_back({Code::kHalt});
    return std::move(out_);
  }

 private:
  // One loop: instructions that run whenever it advances, before its body.
  struct LoopLevel {
    std::vector<Instruction> prologue;
  };
  struct Address {
    int base = 0, var = 0;
    int64_t coefficient = 0;
  };

  // ---- Registers and instructions ----

  int NewRegister(int level, Range range) {
    out_.initial.push_back(Register{0});
    level_of_.push_back(level);
    range_of_.push_back(range);
    return static_cast<int>(out_.initial.size()) - 1;
  }

  int Constant(Register value, Range range) {
    auto [it, is_new] = constants_.try_emplace(value.i, 0);
    if (is_new) {
      it->second = NewRegister(0, range);
      out_.initial.back() = value;
    }
    return it->second;
  }
  int IntConstant(int64_t value) { return Constant(Register{value}, {value, value}); }

  int CurrentLevel() const { return static_cast<int>(levels_.size()) - 1; }

  size_t Emit(Instruction instruction) {
    code_.push_back(instruction);
    return code_.size() - 1;
  }
  void PatchToHere(size_t at) {
    const auto distance = static_cast<int64_t>(code_.size() - at);
    if (code_[at].code == Code::kJumpIfNonZeroSum) {
      code_[at].dst = static_cast<int32_t>(distance);
    } else {
      code_[at].imm = distance;
    }
  }

  // A pure integer instruction, placed at the outermost level that knows its operands, and only
  // once.
  int Pure(Instruction instruction, std::initializer_list<int> operands, Range range) {
    int level = 0;
    for (int reg : operands) level = std::max(level, level_of_[reg]);
    const auto key =
        std::tuple(static_cast<int>(instruction.code), static_cast<int>(instruction.sub),
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

  Range RangeOf(const Affine& affine) const {
    Range sum{affine.constant, affine.constant};
    for (const auto& [reg, c] : affine.terms) {
      const Range r = range_of_[reg];
      if (r.max >= kHuge || r.min <= -kHuge) return {-kHuge, kHuge};
      sum.min += c > 0 ? r.min * c : r.max * c;
      sum.max += c > 0 ? r.max * c : r.min * c;
    }
    return sum;
  }

  absl::StatusOr<Affine> ToAffine(const Expr& e) {
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
        HEDDLE_ASSIGN_OR_RETURN(Affine other,
                                ToAffine(e->args[ir::IsConstInt(e->args[1]) ? 0 : 1]));
        if (factor != 0) result.Add(other, factor);
        return result;
      }
    }
    HEDDLE_ASSIGN_OR_RETURN(int reg, Value(e));
    result.terms.emplace_back(reg, 1);
    return result;
  }

  int Materialize(Affine affine) {
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

  absl::StatusOr<int> IntRegister(const Expr& e) {
    HEDDLE_ASSIGN_OR_RETURN(Affine affine, ToAffine(e));
    return Materialize(std::move(affine));
  }

  // Splits off the term of the innermost loop, which the access adds by itself.
  Address ToAddress(Affine affine) {
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

  // Arithmetic on loop variables that cannot fail, so that it may be computed earlier than written,
  // or in vain.
  static bool IsPure(const Expr& e) {
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

  static Code IntCode(Op op) {
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

  // Integer or bool operator whose operands may be evaluated eagerly.
  absl::StatusOr<int> IntOp(const Expr& e) {
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

  // ---- Values ----

  // Nodes that occur several times in one expression are computed once, as long as control flow
  // allows it.
  absl::StatusOr<int> Value(const Expr& e) {
    const bool shared = e.use_count() > 1 && !e->args.empty();
    if (shared) {
      for (const auto& [node, reg] : computed_) {
        if (node == e.get()) return reg;
      }
    }
    HEDDLE_ASSIGN_OR_RETURN(int reg, NewValue(e));
    if (shared) computed_.emplace_back(e.get(), reg);
    return reg;
  }

  absl::StatusOr<int> NewValue(const Expr& e) {
    switch (e->kind) {
      case ExprKind::kInt:
        return IntConstant(e->int_value);
      case ExprKind::kFloat: {
        Register value{0};
        if (e->dtype == DType::kF32) {
          value.f = static_cast<float>(e->float_value);
        } else {
          value.d = e->float_value;
        }
        return Constant(value, {-kHuge, kHuge});
      }
      case ExprKind::kVar:
        return IntRegister(e);
      case ExprKind::kLoad:
        return LoadValue(e);
      case ExprKind::kCast: {
        const DType from = e->args[0]->dtype;
        HEDDLE_ASSIGN_OR_RETURN(int operand, Value(e->args[0]));
        return Fresh({Code::kCast, static_cast<uint16_t>(from), 0, operand, 0,
                      static_cast<int64_t>(e->dtype)});
      }
      case ExprKind::kOp:
        break;
    }
    const bool lazy = e->op == Op::kSelect || e->op == Op::kAnd || e->op == Op::kOr;
    if (lazy && !IsPure(e)) return LazyValue(e);
    if (ir::IsFloat(e->args[0]->dtype)) return FloatOp(e);
    return IntOp(e);
  }

  int Fresh(Instruction instruction) {
    instruction.dst = NewRegister(kHere, {-kHuge, kHuge});
    Emit(instruction);
    return instruction.dst;
  }

  absl::StatusOr<int> FloatOp(const Expr& e) {
    int reg[2] = {0, 0};
    for (size_t i = 0; i < e->args.size(); ++i) {
      HEDDLE_ASSIGN_OR_RETURN(reg[i], Value(e->args[i]));
    }
    if (e->args.size() == 1) reg[1] = reg[0];
    const bool f32 = e->args[0]->dtype == DType::kF32;
    const auto pick = [&](Code a, Code b) {
      return Fresh({f32 ? a : b, static_cast<uint16_t>(e->op), 0, reg[0], reg[1]});
    };
    switch (e->op) {
      case Op::kAdd:
        return pick(Code::kAddF32, Code::kAddF64);
      case Op::kSub:
        return pick(Code::kSubF32, Code::kSubF64);
      case Op::kMul:
        return pick(Code::kMulF32, Code::kMulF64);
      case Op::kDiv:
        return pick(Code::kDivF32, Code::kDivF64);
      case Op::kMin:
        return pick(Code::kMinF32, Code::kMinF64);
      case Op::kMax:
        return pick(Code::kMaxF32, Code::kMaxF64);
      case Op::kLt:
        return pick(Code::kLtF32, Code::kLtF64);
      case Op::kLe:
        return pick(Code::kLeF32, Code::kLeF64);
      default:
        return e->dtype == DType::kBool ? pick(Code::kTestF32, Code::kTestF64)
                                        : pick(Code::kCallF32, Code::kCallF64);
    }
  }

  // A register copy: dst = 1 ? source : source keeps every kind of value intact.
  void Copy(int dst, int source) { Emit({Code::kSelect, 0, dst, IntConstant(1), source, source}); }

  absl::StatusOr<int> LazyValue(const Expr& e) {
    const int result = NewRegister(kHere, {-kHuge, kHuge});
    HEDDLE_ASSIGN_OR_RETURN(int condition, Value(e->args[0]));
    const size_t outer = computed_.size();
    if (e->op == Op::kSelect) {
      const size_t to_else = Emit({Code::kJumpIfZero, 0, 0, condition});
      HEDDLE_ASSIGN_OR_RETURN(int then_value, Value(e->args[1]));
      Copy(result, then_value);
      computed_.resize(outer);
      const size_t to_end = Emit({Code::kJump});
      PatchToHere(to_else);
      HEDDLE_ASSIGN_OR_RETURN(int else_value, Value(e->args[2]));
      Copy(result, else_value);
      PatchToHere(to_end);
    } else {
      Copy(result, condition);
      const int decides =
          e->op == Op::kAnd ? result : Pure({Code::kNot, 0, 0, result}, {result}, {0, 1});
      const size_t to_end = Emit({Code::kJumpIfZero, 0, 0, decides});
      HEDDLE_ASSIGN_OR_RETURN(int second, Value(e->args[1]));
      Copy(result, second);
      PatchToHere(to_end);
    }
    computed_.resize(outer);
    return result;
  }

  // ---- Memory ----

  int AddBuffer(const ir::BufferRef& buffer) {
    out_.buffers.push_back(buffer);
    const int id = static_cast<int>(out_.buffers.size()) - 1;
    buffer_ids_[buffer.get()] = id;
    return id;
  }

  // Row-major element number. Indices that loop ranges alone do not keep inside the shape are
  // checked as the program runs.
  absl::StatusOr<Affine> Element(const ir::Buffer& buffer, const std::vector<Expr>& indices) {
    Affine element;
    for (size_t k = 0; k < indices.size(); ++k) {
      HEDDLE_ASSIGN_OR_RETURN(Affine index, ToAffine(indices[k]));
      const Range range = RangeOf(index);
      if (range.min < 0 || range.max >= buffer.shape[k]) {
        Emit({Code::kCheckIndex, static_cast<uint16_t>(buffer_ids_.at(&buffer)), 0,
              Materialize(index), static_cast<int>(k), buffer.shape[k]});
      }
      Affine scaled;
      scaled.Add(element, buffer.shape[k]);
      scaled.Add(index, 1);
      element = std::move(scaled);
    }
    return element;
  }

  absl::StatusOr<int> LoadValue(const Expr& e) {
    HEDDLE_ASSIGN_OR_RETURN(Affine element, Element(*e->buffer, e->args));
    const int reg = LoadElement(*e->buffer, ToAddress(std::move(element)));
    switch (e->dtype) {
      case DType::kBool:
        range_of_[reg] = {0, 1};
        break;
      case DType::kI8:
        range_of_[reg] = {INT8_MIN, INT8_MAX};
        break;
      case DType::kU8:
        range_of_[reg] = {0, UINT8_MAX};
        break;
      case DType::kI32:
        range_of_[reg] = {INT32_MIN, INT32_MAX};
        break;
      default:
        break;
    }
    return reg;
  }

  int LoadElement(const ir::Buffer& buffer, const Address& address) {
    const int id = buffer_ids_.at(&buffer);
    const bool checked = options_.check_uninitialized && static_cast<size_t>(id) >= num_inputs_;
    Code code = Code::kLoadU8;
    switch (buffer.dtype) {
      case DType::kBool:
      case DType::kU8:
        code = Code::kLoadU8;
        break;
      case DType::kI8:
        code = Code::kLoadI8;
        break;
      case DType::kI32:
        code = Code::kLoadI32;
        break;
      case DType::kI64:
        code = Code::kLoadI64;
        break;
      case DType::kF32:
        code = Code::kLoadF32;
        break;
      case DType::kF64:
        code = Code::kLoadF64;
        break;
    }
    if (checked) code = buffer.dtype == DType::kF32 ? Code::kLoadCheckedF32 : Code::kLoadChecked;
    return Fresh(
        {code, static_cast<uint16_t>(id), 0, address.base, address.var, address.coefficient});
  }

  void StoreElement(const ir::Buffer& buffer, const Address& address, int value) {
    Code code = Code::kStoreI8;
    switch (buffer.dtype) {
      case DType::kI32:
        code = Code::kStoreI32;
        break;
      case DType::kI64:
        code = Code::kStoreI64;
        break;
      case DType::kF32:
        code = Code::kStoreF32;
        break;
      case DType::kF64:
        code = Code::kStoreF64;
        break;
      default:
        break;
    }
    Emit({code, static_cast<uint16_t>(buffer_ids_.at(&buffer)), value, address.base, address.var,
          address.coefficient});
  }

  // ---- Statements ----

  absl::Status Visit(const ir::Stmt& s) {
    if (const auto* loop = ir::As<ir::For>(s)) return VisitFor(*loop);
    if (const auto* block = ir::As<ir::Block>(s)) return VisitBlock(*block);
    if (const auto* store = ir::As<ir::Store>(s)) return VisitStore(*store);
    if (const auto* branch = ir::As<ir::If>(s)) {
      computed_.clear();
      HEDDLE_ASSIGN_OR_RETURN(int condition, Value(branch->condition));
      const size_t to_end = Emit({Code::kJumpIfZero, 0, 0, condition});
      HEDDLE_RETURN_IF_ERROR(Visit(branch->body));
      PatchToHere(to_end);
      return absl::OkStatus();
    }
    if (const auto* alloc = ir::As<ir::Alloc>(s)) {
      const int id = AddBuffer(alloc->buffer);
      if (options_.check_uninitialized) Emit({Code::kForget, static_cast<uint16_t>(id)});
      return Visit(alloc->body);
    }
    if (const auto* seq = ir::As<ir::Seq>(s)) {
      for (const ir::Stmt& child : seq->stmts) HEDDLE_RETURN_IF_ERROR(Visit(child));
      return absl::OkStatus();
    }
    if (ir::As<ir::Prefetch>(s)) return absl::OkStatus();
    return absl::UnimplementedError("interpreter: GPU programs with barriers are not supported");
  }

  absl::Status VisitFor(const ir::For& loop) {
    std::vector<Instruction> outer_code;
    outer_code.swap(code_);
    levels_.emplace_back();
    const int var = NewRegister(CurrentLevel(), {0, loop.extent - 1});
    vars_[loop.var.get()].terms.emplace_back(var, 1);
    HEDDLE_RETURN_IF_ERROR(Visit(loop.body));
    const bool down = options_.reverse_parallel && loop.kind == ir::LoopKind::kParallel;
    const std::vector<Instruction> prologue = std::move(levels_.back().prologue);
    levels_.pop_back();
    vars_.erase(loop.var.get());
    outer_code.push_back({Code::kLoopBegin, 0, var, 0, 0, down ? loop.extent - 1 : 0});
    outer_code.insert(outer_code.end(), prologue.begin(), prologue.end());
    outer_code.insert(outer_code.end(), code_.begin(), code_.end());
    const auto back = -static_cast<int32_t>(prologue.size() + code_.size());
    outer_code.push_back({down ? Code::kLoopDown : Code::kLoopUp, 0, var, back, 0, loop.extent});
    code_ = std::move(outer_code);
    return absl::OkStatus();
  }

  absl::Status VisitStore(const ir::Store& store) {
    computed_.clear();
    HEDDLE_ASSIGN_OR_RETURN(int value, Value(store.value));
    HEDDLE_ASSIGN_OR_RETURN(Affine element, Element(*store.buffer, store.indices));
    StoreElement(*store.buffer, ToAddress(std::move(element)), value);
    return absl::OkStatus();
  }

  absl::Status VisitBlock(const ir::Block& block) {
    computed_.clear();
    size_t to_end = 0;
    if (block.where) {
      HEDDLE_ASSIGN_OR_RETURN(int condition, Value(block.where));
      to_end = Emit({Code::kJumpIfZero, 0, 0, condition});
    }
    Affine reduce_sum;  // iterators are never negative, so they are all zero if and only if their
                        // sum is
    for (const ir::BlockIter& iter : block.iters) {
      HEDDLE_ASSIGN_OR_RETURN(Affine binding, ToAffine(iter.binding));
      if (iter.kind == ir::IterKind::kReduce) reduce_sum.Add(binding, 1);
      vars_[iter.var.get()] = std::move(binding);
    }
    computed_.clear();
    absl::Status status =
        block.reducer ? VisitReduction(block, std::move(reduce_sum)) : VisitStore(block.store);
    for (const ir::BlockIter& iter : block.iters) vars_.erase(iter.var.get());
    if (block.where) PatchToHere(to_end);
    return status;
  }

  absl::Status VisitReduction(const ir::Block& block, Affine reduce_sum) {
    const ir::Buffer& buffer = *block.store.buffer;
    HEDDLE_ASSIGN_OR_RETURN(Affine element, Element(buffer, block.store.indices));
    if (block.reducer->init) {
      const Address sum = ToAddress(std::move(reduce_sum));
      const size_t skip = Emit({Code::kJumpIfNonZeroSum, 0, 0, sum.base, sum.var, sum.coefficient});
      HEDDLE_ASSIGN_OR_RETURN(int init, Value(block.reducer->init));
      StoreElement(buffer, ToAddress(element), init);
      PatchToHere(skip);
      computed_.clear();
    }
    const Expr& value = block.store.value;
    const Op op = ir::CombineOp(block.reducer->op);
    if (op == Op::kAdd && buffer.dtype == DType::kF32) {
      const auto id = static_cast<uint16_t>(buffer_ids_.at(&buffer));
      if (value->kind == ExprKind::kOp && value->op == Op::kMul) {
        HEDDLE_ASSIGN_OR_RETURN(int x, Value(value->args[0]));
        HEDDLE_ASSIGN_OR_RETURN(int y, Value(value->args[1]));
        Emit({Code::kSumProductF32, id, x, Materialize(std::move(element)), 0, y});
        return absl::OkStatus();
      }
      HEDDLE_ASSIGN_OR_RETURN(int x, Value(value));
      const Address address = ToAddress(std::move(element));
      Emit({Code::kSumF32, id, x, address.base, address.var, address.coefficient});
      return absl::OkStatus();
    }
    HEDDLE_ASSIGN_OR_RETURN(int x, Value(value));
    const Address address = ToAddress(std::move(element));
    const int old = LoadElement(buffer, address);
    StoreElement(buffer, address, Combine(op, buffer.dtype, old, x));
    return absl::OkStatus();
  }

  int Combine(Op op, DType dtype, int a, int b) {
    const bool f32 = dtype == DType::kF32;
    if (!ir::IsFloat(dtype)) {
      return Fresh(
          {Code::kCallInt, static_cast<uint16_t>(op), 0, a, b, static_cast<int64_t>(dtype)});
    }
    switch (op) {
      case Op::kAdd:
        return Fresh({f32 ? Code::kAddF32 : Code::kAddF64, 0, 0, a, b});
      case Op::kMul:
        return Fresh({f32 ? Code::kMulF32 : Code::kMulF64, 0, 0, a, b});
      case Op::kMin:
        return Fresh({f32 ? Code::kMinF32 : Code::kMinF64, 0, 0, a, b});
      default:
        return Fresh({f32 ? Code::kMaxF32 : Code::kMaxF64, 0, 0, a, b});
    }
  }

  const ir::Program& program_;
  const InterpreterOptions& options_;
  Bytecode out_;
  size_t num_inputs_ = 0;
  std::vector<Instruction> code_;  // of the innermost open loop's body
  std::vector<LoopLevel> levels_;
  std::vector<int> level_of_;                   // by register
  std::vector<Range> range_of_;                 // by register, of integers
  std::unordered_map<int64_t, int> constants_;  // by bit pattern
  std::map<std::tuple<int, int, int32_t, int32_t, int64_t>, int> pure_;
  std::unordered_map<const ir::Var*, Affine> vars_;  // loop variables and iterators in scope
  std::unordered_map<const ir::Buffer*, int> buffer_ids_;
  std::vector<std::pair<const ir::ExprNode*, int>> computed_;
};

}  // namespace

absl::StatusOr<Bytecode> CompileToBytecode(const ir::Program& program,
                                           const InterpreterOptions& options) {
  return Compiler(program, options).Run();
}

}  // namespace heddle::codegen
