// Translates programs to bytecode. Like code_builder.h, this file uses no analysis of programs.
#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "compiler/interpreter/bytecode.h"
#include "compiler/interpreter/code_builder.h"
#include "compiler/ir/analysis/fetch.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/ir/ir.h"

namespace heddle::interpreter {
namespace {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::Op;

constexpr size_t kMaxBuffers = UINT16_MAX;  // the most that an instruction can address
constexpr int kThreadAxis = 3;              // threadIdx.x

// The race detector's number for the axis of the loop, or -1.
int GpuAxis(ir::LoopKind kind) {
  if (!ir::IsGpuBlock(kind) && !ir::IsGpuThread(kind)) return -1;
  return static_cast<int>(kind) - static_cast<int>(ir::LoopKind::kBlockX);
}

class BytecodeCompiler {
 public:
  BytecodeCompiler(const ir::Program& program, const InterpreterOptions& options)
      : program_(program), options_(options) {}

  absl::StatusOr<Bytecode> Run() {
    for (const auto& list : {program_.inputs, program_.outputs}) {
      for (const ir::BufferRef& buffer : list) AddBuffer(buffer);
    }
    HEDDLE_RETURN_IF_ERROR(Visit(program_.body));
    if (buffers_.size() > kMaxBuffers)
      return absl::UnimplementedError("interpreter: too many buffers");
    return std::move(build_).Finish(std::move(buffers_));
  }

 private:
  // ---- Values: each function returns the register of a value ----
  //
  // A node that occurs several times in an expression is computed once if control flow allows that.
  absl::StatusOr<int> Value(const Expr& e);
  absl::StatusOr<int> NewValue(const Expr& e);
  absl::StatusOr<int> FloatOp(const Expr& e);
  absl::StatusOr<int> LazyValue(const Expr& e);

  // ---- Integers ----
  absl::StatusOr<Affine> ToAffine(const Expr& e);
  absl::StatusOr<int> IntRegister(const Expr& e);
  // Whether this is arithmetic on loop variables that cannot fail. It may be computed early, even
  // if its value is not used.
  static bool IsPure(const Expr& e);
  static Code IntCode(Op op);
  // An operator on integers or bools whose operands may be evaluated eagerly.
  absl::StatusOr<int> IntOp(const Expr& e);

  // ---- Memory ----
  int AddBuffer(const ir::BufferRef& buffer);
  // The row-major index of an element. Emits a check for each index that the ranges of loops alone
  // do not keep within the shape.
  absl::StatusOr<Affine> Element(const ir::Buffer& buffer, const std::vector<Expr>& indices);
  absl::StatusOr<int> LoadValue(const Expr& e);
  int LoadElement(const ir::Buffer& buffer, const Address& address);
  void StoreElement(const ir::Buffer& buffer, const Address& address, int value);

  // ---- Statements ----
  absl::Status Visit(const ir::Stmt& s);
  absl::Status VisitAny(const ir::Stmt& s);
  absl::Status VisitFor(const ir::For& loop);
  absl::Status VisitStore(const ir::Store& store);
  absl::Status VisitBlock(const ir::Block& block);
  absl::Status VisitReduction(const ir::Block& block, Affine reduce_sum);
  int Combine(Op op, DType dtype, int a, int b);

  const ir::Program& program_;
  const InterpreterOptions& options_;
  CodeBuilder build_;
  std::vector<ir::BufferRef> buffers_;  // inputs, outputs, then allocations
  std::unordered_map<const ir::Buffer*, int> buffer_ids_;
  int gpu_loops_ = 0;       // GPU loops around the current statement
  int thread_ = -1;         // register of the enclosing threadIdx.x loop; -1: none
  bool in_tensor_ = false;  // inside a tensor loop
  bool in_fetch_ = false;   // inside a fetch
  std::unordered_map<const ir::Var*, Affine> vars_;  // loop variables and iterators in scope
  std::vector<std::pair<const ir::ExprNode*, int>> computed_;  // nodes of the current expression
};

// ---- Values ----

absl::StatusOr<int> BytecodeCompiler::Value(const Expr& e) {
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

absl::StatusOr<int> BytecodeCompiler::NewValue(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kInt:
      return build_.IntConstant(e->int_value);
    case ExprKind::kFloat: {
      Register value{0};
      if (e->dtype == DType::kF64) {
        value.d = e->float_value;
      } else {
        value.f = static_cast<float>(e->float_value);
      }
      return build_.Constant(value);
    }
    case ExprKind::kVar:
      return IntRegister(e);
    case ExprKind::kLoad:
      return LoadValue(e);
    case ExprKind::kCast: {
      const DType from = e->args[0]->dtype;
      HEDDLE_ASSIGN_OR_RETURN(int operand, Value(e->args[0]));
      return build_.Fresh({Code::kCast, static_cast<uint16_t>(from), 0, operand, 0,
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

absl::StatusOr<int> BytecodeCompiler::FloatOp(const Expr& e) {
  int reg[2] = {0, 0};
  for (size_t i = 0; i < e->args.size(); ++i) {
    HEDDLE_ASSIGN_OR_RETURN(reg[i], Value(e->args[i]));
  }
  if (e->args.size() == 1) reg[1] = reg[0];
  const bool f32 = e->args[0]->dtype == DType::kF32;
  const auto pick = [&](Code a, Code b) {
    return build_.Fresh({f32 ? a : b, static_cast<uint16_t>(e->op), 0, reg[0], reg[1]});
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

absl::StatusOr<int> BytecodeCompiler::LazyValue(const Expr& e) {
  const int result = build_.NewRegister();
  HEDDLE_ASSIGN_OR_RETURN(int condition, Value(e->args[0]));
  const size_t outer = computed_.size();
  if (e->op == Op::kSelect) {
    const size_t to_else = build_.Emit({Code::kJumpIfZero, 0, 0, condition});
    HEDDLE_ASSIGN_OR_RETURN(int then_value, Value(e->args[1]));
    build_.Copy(result, then_value);
    computed_.resize(outer);
    const size_t to_end = build_.Emit({Code::kJump});
    build_.PatchToHere(to_else);
    HEDDLE_ASSIGN_OR_RETURN(int else_value, Value(e->args[2]));
    build_.Copy(result, else_value);
    build_.PatchToHere(to_end);
  } else {
    build_.Copy(result, condition);
    const int decides =
        e->op == Op::kAnd ? result : build_.Pure({Code::kNot, 0, 0, result}, {result}, {0, 1});
    const size_t to_end = build_.Emit({Code::kJumpIfZero, 0, 0, decides});
    HEDDLE_ASSIGN_OR_RETURN(int second, Value(e->args[1]));
    build_.Copy(result, second);
    build_.PatchToHere(to_end);
  }
  computed_.resize(outer);
  return result;
}

// ---- Integers ----

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

absl::StatusOr<int> BytecodeCompiler::IntRegister(const Expr& e) {
  HEDDLE_ASSIGN_OR_RETURN(Affine affine, ToAffine(e));
  return build_.Materialize(std::move(affine));
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
  const Range a = build_.RangeOf(reg[0]), b = build_.RangeOf(reg[1]);
  const bool by_constant =
      dtype == DType::kI64 && e->args.size() == 2 && ir::IsConstInt(e->args[1], &k) && k > 0;
  if (by_constant && e->op == Op::kFloorDiv) {
    const bool known = a.min > -kHuge && a.max < kHuge;
    const auto div = [k](__int128 v) { return v >= 0 ? v / k : -((-v + k - 1) / k); };
    return build_.Pure({Code::kFloorDiv, 0, 0, reg[0], 0, k}, {reg[0]},
                       known ? Range{div(a.min), div(a.max)} : kAnything);
  }
  if (by_constant && e->op == Op::kFloorMod)
    return build_.Pure({Code::kFloorMod, 0, 0, reg[0], 0, k}, {reg[0]}, {0, k - 1});
  if (e->op == Op::kSelect) {
    return build_.Pure(
        {Code::kSelect, 0, 0, reg[0], reg[1], reg[2]}, {reg[0], reg[1], reg[2]},
        {std::min(b.min, build_.RangeOf(reg[2]).min), std::max(b.max, build_.RangeOf(reg[2]).max)});
  }
  const Code code = IntCode(e->op);
  const bool ordered = code == Code::kMin || code == Code::kMax || code == Code::kLt ||
                       code == Code::kLe;  // the codes compare as signed numbers
  if (code == Code::kHalt || (code == Code::kMul && dtype != DType::kI64) ||
      (ordered && dtype == DType::kU64)) {
    return build_.Fresh({Code::kCallInt, static_cast<uint16_t>(e->op), 0, reg[0],
                         e->args.size() > 1 ? reg[1] : reg[0], static_cast<int64_t>(dtype)});
  }
  Range range = kAnything;
  if (code == Code::kMin) range = {std::min(a.min, b.min), std::min(a.max, b.max)};
  if (code == Code::kMax) range = {std::max(a.min, b.min), std::max(a.max, b.max)};
  if (e->dtype == DType::kBool) range = {0, 1};
  if (e->args.size() == 1) return build_.Pure({code, 0, 0, reg[0]}, {reg[0]}, range);
  return build_.Pure({code, 0, 0, reg[0], reg[1]}, {reg[0], reg[1]}, range);
}

// ---- Memory ----

int BytecodeCompiler::AddBuffer(const ir::BufferRef& buffer) {
  buffers_.push_back(buffer);
  const int id = static_cast<int>(buffers_.size()) - 1;
  buffer_ids_[buffer.get()] = id;
  return id;
}

absl::StatusOr<Affine> BytecodeCompiler::Element(const ir::Buffer& buffer,
                                                 const std::vector<Expr>& indices) {
  Affine element;
  for (size_t k = 0; k < indices.size(); ++k) {
    HEDDLE_ASSIGN_OR_RETURN(Affine index, ToAffine(indices[k]));
    const Range range = build_.RangeOf(index);
    if (range.min < 0 || range.max >= buffer.shape[k]) {
      build_.Emit({Code::kCheckIndex, static_cast<uint16_t>(buffer_ids_.at(&buffer)), 0,
                   build_.Materialize(index), static_cast<int>(k), buffer.shape[k]});
    }
    Affine scaled;
    scaled.Add(element, buffer.shape[k]);
    scaled.Add(index, 1);
    element = std::move(scaled);
  }
  return element;
}

absl::StatusOr<int> BytecodeCompiler::LoadValue(const Expr& e) {
  HEDDLE_ASSIGN_OR_RETURN(Affine element, Element(*e->buffer, e->args));
  const int reg = LoadElement(*e->buffer, build_.ToAddress(std::move(element)));
  if (!ir::IsFloat(e->dtype) && ir::SizeOf(e->dtype) < 8)
    build_.SetRange(reg, {ir::LowestInt(e->dtype), ir::HighestInt(e->dtype)});
  return reg;
}

int BytecodeCompiler::LoadElement(const ir::Buffer& buffer, const Address& address) {
  const int id = buffer_ids_.at(&buffer);
  const bool checked =
      options_.check_uninitialized && static_cast<size_t>(id) >= program_.inputs.size();
  Code code = Code::kLoadU8;
  switch (buffer.dtype) {
    case DType::kBool:
    case DType::kU8:
      code = Code::kLoadU8;
      break;
    case DType::kI8:
      code = Code::kLoadI8;
      break;
    case DType::kI16:
      code = Code::kLoadI16;
      break;
    case DType::kU16:
      code = Code::kLoadU16;
      break;
    case DType::kI32:
      code = Code::kLoadI32;
      break;
    case DType::kU32:
      code = Code::kLoadU32;
      break;
    case DType::kI64:
    case DType::kU64:
      code = Code::kLoadI64;
      break;
    case DType::kF32:
      code = Code::kLoadF32;
      break;
    case DType::kF64:
      code = Code::kLoadF64;
      break;
    case DType::kF16:
      code = Code::kLoadF16;
      break;
    case DType::kBF16:
      code = Code::kLoadBF16;
      break;
  }
  if (checked) code = buffer.dtype == DType::kF32 ? Code::kLoadCheckedF32 : Code::kLoadChecked;
  // In a tensor product, the threads of a warp read each other's elements, so the load belongs to
  // no thread in particular.
  const bool others = in_tensor_ && thread_ >= 0 && buffer.scope != ir::Scope::kLocal;
  if (others) build_.Emit({Code::kSetAxis, kThreadAxis, 0, build_.IntConstant(-1)});
  const int reg = build_.Fresh(
      {code, static_cast<uint16_t>(id), 0, address.base, address.var, address.coefficient});
  if (others) build_.Emit({Code::kSetAxis, kThreadAxis, 0, thread_});
  return reg;
}

void BytecodeCompiler::StoreElement(const ir::Buffer& buffer, const Address& address, int value) {
  Code code = Code::kStoreI8;
  switch (buffer.dtype) {
    case DType::kI16:
    case DType::kU16:
      code = Code::kStoreI16;
      break;
    case DType::kI32:
    case DType::kU32:
      code = Code::kStoreI32;
      break;
    case DType::kI64:
    case DType::kU64:
      code = Code::kStoreI64;
      break;
    case DType::kF32:
      code = Code::kStoreF32;
      break;
    case DType::kF64:
      code = Code::kStoreF64;
      break;
    case DType::kF16:
      code = Code::kStoreF16;
      break;
    case DType::kBF16:
      code = Code::kStoreBF16;
      break;
    default:
      break;
  }
  build_.Emit({code, static_cast<uint16_t>(buffer_ids_.at(&buffer)), value, address.base,
               address.var, address.coefficient});
}

// ---- Statements ----

absl::Status BytecodeCompiler::Visit(const ir::Stmt& s) {
  if (!options_.check_races || in_fetch_ || !ir::IsFetch(s)) return VisitAny(s);
  in_fetch_ = true;
  HEDDLE_RETURN_IF_ERROR(VisitAny(s));
  in_fetch_ = false;
  build_.Emit({Code::kBarrier, 0, 0, 0, 0, 2});
  return absl::OkStatus();
}

absl::Status BytecodeCompiler::VisitAny(const ir::Stmt& s) {
  if (const auto* loop = ir::As<ir::For>(s)) return VisitFor(*loop);
  if (const auto* block = ir::As<ir::Block>(s)) return VisitBlock(*block);
  if (const auto* store = ir::As<ir::Store>(s)) return VisitStore(*store);
  if (const auto* branch = ir::As<ir::If>(s)) {
    computed_.clear();
    HEDDLE_ASSIGN_OR_RETURN(int condition, Value(branch->condition));
    const size_t to_end = build_.Emit({Code::kJumpIfZero, 0, 0, condition});
    HEDDLE_RETURN_IF_ERROR(Visit(branch->body));
    build_.PatchToHere(to_end);
    return absl::OkStatus();
  }
  if (const auto* alloc = ir::As<ir::Alloc>(s)) {
    const int id = AddBuffer(alloc->buffer);
    if (options_.check_uninitialized) build_.Emit({Code::kForget, static_cast<uint16_t>(id)});
    return Visit(alloc->body);
  }
  if (const auto* seq = ir::As<ir::Seq>(s)) {
    for (const ir::Stmt& child : seq->stmts) HEDDLE_RETURN_IF_ERROR(Visit(child));
    return absl::OkStatus();
  }
  const auto* barrier = ir::As<ir::Barrier>(s);
  if (barrier && options_.check_races) build_.Emit({Code::kBarrier, 0, barrier->late});
  return absl::OkStatus();  // a prefetch has no effect
}

absl::Status BytecodeCompiler::VisitFor(const ir::For& loop) {
  const int var = build_.BeginLoop(loop.extent);
  vars_[loop.var.get()].terms.emplace_back(var, 1);
  const int axis = options_.check_races ? GpuAxis(loop.kind) : -1;
  const bool launch = axis >= 0 && gpu_loops_++ == 0;
  // A loop of one thread needs no axis.
  const bool sets = axis >= 0 && (axis < 3 || loop.extent > 1);
  if (sets) build_.Emit({Code::kSetAxis, static_cast<uint16_t>(axis), 0, var});
  if (axis == kThreadAxis) thread_ = var;
  if (loop.kind == ir::LoopKind::kTensor) in_tensor_ = true;
  HEDDLE_RETURN_IF_ERROR(Visit(loop.body));
  if (axis == kThreadAxis) thread_ = -1;
  if (loop.kind == ir::LoopKind::kTensor) in_tensor_ = false;
  vars_.erase(loop.var.get());
  build_.EndLoop(var, loop.extent,
                 options_.reverse_parallel && loop.kind == ir::LoopKind::kParallel);
  // Code after a loop of blocks runs in the first block. Code after a loop of threads runs in no
  // thread in particular.
  if (sets)
    build_.Emit(
        {Code::kSetAxis, static_cast<uint16_t>(axis), 0, build_.IntConstant(axis < 3 ? 0 : -1)});
  if (launch) build_.Emit({Code::kBarrier, 0, 0, 0, 0, 1});
  if (axis >= 0) --gpu_loops_;
  return absl::OkStatus();
}

absl::Status BytecodeCompiler::VisitStore(const ir::Store& store) {
  computed_.clear();
  HEDDLE_ASSIGN_OR_RETURN(int value, Value(store.value));
  HEDDLE_ASSIGN_OR_RETURN(Affine element, Element(*store.buffer, store.indices));
  StoreElement(*store.buffer, build_.ToAddress(std::move(element)), value);
  return absl::OkStatus();
}

absl::Status BytecodeCompiler::VisitBlock(const ir::Block& block) {
  computed_.clear();
  size_t to_end = 0;
  if (block.where) {
    HEDDLE_ASSIGN_OR_RETURN(int condition, Value(block.where));
    to_end = build_.Emit({Code::kJumpIfZero, 0, 0, condition});
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
  if (block.where) build_.PatchToHere(to_end);
  return status;
}

absl::Status BytecodeCompiler::VisitReduction(const ir::Block& block, Affine reduce_sum) {
  const ir::Buffer& buffer = *block.store.buffer;
  HEDDLE_ASSIGN_OR_RETURN(Affine element, Element(buffer, block.store.indices));
  if (block.reducer->init) {
    const Address sum = build_.ToAddress(std::move(reduce_sum));
    const size_t skip =
        build_.Emit({Code::kJumpIfNonZeroSum, 0, 0, sum.base, sum.var, sum.coefficient});
    HEDDLE_ASSIGN_OR_RETURN(int init, Value(block.reducer->init));
    StoreElement(buffer, build_.ToAddress(element), init);
    build_.PatchToHere(skip);
    computed_.clear();
  }
  const Expr& value = block.store.value;
  const Op op = ir::CombineOp(block.reducer->op);
  if (op == Op::kAdd && buffer.dtype == DType::kF32) {
    const auto id = static_cast<uint16_t>(buffer_ids_.at(&buffer));
    if (value->kind == ExprKind::kOp && value->op == Op::kMul) {
      HEDDLE_ASSIGN_OR_RETURN(int x, Value(value->args[0]));
      HEDDLE_ASSIGN_OR_RETURN(int y, Value(value->args[1]));
      build_.Emit({Code::kSumProductF32, id, x, build_.Materialize(std::move(element)), 0, y});
      return absl::OkStatus();
    }
    HEDDLE_ASSIGN_OR_RETURN(int x, Value(value));
    const Address address = build_.ToAddress(std::move(element));
    build_.Emit({Code::kSumF32, id, x, address.base, address.var, address.coefficient});
    return absl::OkStatus();
  }
  HEDDLE_ASSIGN_OR_RETURN(int x, Value(value));
  const Address address = build_.ToAddress(std::move(element));
  const int old = LoadElement(buffer, address);
  StoreElement(buffer, address, Combine(op, buffer.dtype, old, x));
  return absl::OkStatus();
}

int BytecodeCompiler::Combine(Op op, DType dtype, int a, int b) {
  const bool f32 = dtype == DType::kF32;
  if (!ir::IsFloat(dtype)) {
    return build_.Fresh(
        {Code::kCallInt, static_cast<uint16_t>(op), 0, a, b, static_cast<int64_t>(dtype)});
  }
  switch (op) {
    case Op::kAdd:
      return build_.Fresh({f32 ? Code::kAddF32 : Code::kAddF64, 0, 0, a, b});
    case Op::kMul:
      return build_.Fresh({f32 ? Code::kMulF32 : Code::kMulF64, 0, 0, a, b});
    case Op::kMin:
      return build_.Fresh({f32 ? Code::kMinF32 : Code::kMinF64, 0, 0, a, b});
    default:
      return build_.Fresh({f32 ? Code::kMaxF32 : Code::kMaxF64, 0, 0, a, b});
  }
}

}  // namespace

absl::StatusOr<Bytecode> CompileToBytecode(const ir::Program& program,
                                           const InterpreterOptions& options) {
  return BytecodeCompiler(program, options).Run();
}

}  // namespace heddle::interpreter
