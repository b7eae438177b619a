// Program to bytecode: values, memory and statements.
#include <algorithm>
#include <bit>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "compiler/interpreter/compiler.h"
#include "compiler/ir/analysis/fetch.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/ir/visit.h"

namespace heddle::interpreter {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::Op;

namespace {

constexpr size_t kMaxBuffers = UINT16_MAX;  // what an instruction can name
constexpr int kThreadAxis = 3;              // threadIdx.x

// The race detector's number of the loop's axis, or -1.
int GpuAxis(ir::LoopKind kind) {
  if (!ir::IsGpuBlock(kind) && !ir::IsGpuThread(kind)) return -1;
  return static_cast<int>(kind) - static_cast<int>(ir::LoopKind::kBlockX);
}

}  // namespace

absl::StatusOr<Bytecode> BytecodeCompiler::Run() {
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
      return IntConstant(e->int_value);
    case ExprKind::kFloat: {
      Register value{0};
      if (e->dtype == DType::kF64) {
        value.d = e->float_value;
      } else {
        value.f = static_cast<float>(e->float_value);
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

int BytecodeCompiler::Fresh(Instruction instruction) {
  instruction.dst = NewRegister(kHere, {-kHuge, kHuge});
  Emit(instruction);
  return instruction.dst;
}

absl::StatusOr<int> BytecodeCompiler::FloatOp(const Expr& e) {
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

absl::StatusOr<int> BytecodeCompiler::LazyValue(const Expr& e) {
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

int BytecodeCompiler::AddBuffer(const ir::BufferRef& buffer) {
  out_.buffers.push_back(buffer);
  const int id = static_cast<int>(out_.buffers.size()) - 1;
  buffer_ids_[buffer.get()] = id;
  return id;
}

absl::StatusOr<Affine> BytecodeCompiler::Element(const ir::Buffer& buffer,
                                                 const std::vector<Expr>& indices) {
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

absl::StatusOr<int> BytecodeCompiler::LoadValue(const Expr& e) {
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

int BytecodeCompiler::LoadElement(const ir::Buffer& buffer, const Address& address) {
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
    case DType::kF16:
      code = Code::kLoadF16;
      break;
    case DType::kBF16:
      code = Code::kLoadBF16;
      break;
  }
  if (checked) code = buffer.dtype == DType::kF32 ? Code::kLoadCheckedF32 : Code::kLoadChecked;
  // The threads of a warp read each other's elements of a tensor product.
  const bool others = in_tensor_ && thread_ >= 0 && buffer.scope != ir::Scope::kLocal;
  if (others) Emit({Code::kSetAxis, kThreadAxis, 0, IntConstant(-1)});
  const int reg =
      Fresh({code, static_cast<uint16_t>(id), 0, address.base, address.var, address.coefficient});
  if (others) Emit({Code::kSetAxis, kThreadAxis, 0, thread_});
  return reg;
}

void BytecodeCompiler::StoreElement(const ir::Buffer& buffer, const Address& address, int value) {
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
    case DType::kF16:
      code = Code::kStoreF16;
      break;
    case DType::kBF16:
      code = Code::kStoreBF16;
      break;
    default:
      break;
  }
  Emit({code, static_cast<uint16_t>(buffer_ids_.at(&buffer)), value, address.base, address.var,
        address.coefficient});
}

// ---- Statements ----

absl::Status BytecodeCompiler::Visit(const ir::Stmt& s) {
  if (!options_.check_races || in_fetch_ || !ir::IsFetch(s)) return VisitAny(s);
  in_fetch_ = true;
  HEDDLE_RETURN_IF_ERROR(VisitAny(s));
  in_fetch_ = false;
  Emit({Code::kBarrier, 0, 0, 0, 0, 2});
  return absl::OkStatus();
}

absl::Status BytecodeCompiler::VisitAny(const ir::Stmt& s) {
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
  const auto* barrier = ir::As<ir::Barrier>(s);
  if (barrier && options_.check_races) Emit({Code::kBarrier, 0, barrier->late});
  return absl::OkStatus();  // a prefetch has no effect
}

absl::Status BytecodeCompiler::VisitFor(const ir::For& loop) {
  std::vector<Instruction> outer_code;
  outer_code.swap(code_);
  levels_.emplace_back();
  const int var = NewRegister(CurrentLevel(), {0, loop.extent - 1});
  vars_[loop.var.get()].terms.emplace_back(var, 1);
  const int axis = options_.check_races ? GpuAxis(loop.kind) : -1;
  const bool launch = axis >= 0 && gpu_loops_++ == 0;
  // A loop of one thread is as good as none.
  const bool sets = axis >= 0 && (axis < 3 || loop.extent > 1);
  if (sets) Emit({Code::kSetAxis, static_cast<uint16_t>(axis), 0, var});
  if (axis == kThreadAxis) thread_ = var;
  if (loop.kind == ir::LoopKind::kTensor) in_tensor_ = true;
  HEDDLE_RETURN_IF_ERROR(Visit(loop.body));
  if (axis == kThreadAxis) thread_ = -1;
  if (loop.kind == ir::LoopKind::kTensor) in_tensor_ = false;
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
  // After a loop of blocks the first runs, after one of threads none in particular.
  if (sets) Emit({Code::kSetAxis, static_cast<uint16_t>(axis), 0, IntConstant(axis < 3 ? 0 : -1)});
  if (launch) Emit({Code::kBarrier, 0, 0, 0, 0, 1});
  if (axis >= 0) --gpu_loops_;
  return absl::OkStatus();
}

absl::Status BytecodeCompiler::VisitStore(const ir::Store& store) {
  computed_.clear();
  HEDDLE_ASSIGN_OR_RETURN(int value, Value(store.value));
  HEDDLE_ASSIGN_OR_RETURN(Affine element, Element(*store.buffer, store.indices));
  StoreElement(*store.buffer, ToAddress(std::move(element)), value);
  return absl::OkStatus();
}

absl::Status BytecodeCompiler::VisitBlock(const ir::Block& block) {
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

absl::Status BytecodeCompiler::VisitReduction(const ir::Block& block, Affine reduce_sum) {
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

int BytecodeCompiler::Combine(Op op, DType dtype, int a, int b) {
  const bool f32 = dtype == DType::kF32;
  if (!ir::IsFloat(dtype)) {
    return Fresh({Code::kCallInt, static_cast<uint16_t>(op), 0, a, b, static_cast<int64_t>(dtype)});
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

absl::StatusOr<Bytecode> CompileToBytecode(const ir::Program& program,
                                           const InterpreterOptions& options) {
  return BytecodeCompiler(program, options).Run();
}

}  // namespace heddle::interpreter
