// Emits serial and vectorized loops. Parallel loops are in parallel_emitter.cc.
#include "compiler/codegen/llvm/loop_emitter.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/analysis/index.h"
#include "compiler/ir/visit.h"
#include "llvm/IR/Module.h"

namespace heddle::codegen {

using ir::As;
using ir::BufferRef;
using ir::Stmt;
using ir::VarRef;
using llvm::Type;
using llvm::Value;

namespace {

// Vectorized loops with more vector lanes than this become plain loops, which LLVM may vectorize by
// itself.
constexpr int64_t kMaxLanes = 256;
// A loop over at least this many vector statements is a register tile, so LLVM is told not to
// unroll it further.
constexpr int kTileStatements = 4;

// The number n if the mask is known to be true exactly for its first n lanes, else 0.
int FirstLanes(Value* mask) {
  auto* known = llvm::dyn_cast<llvm::Constant>(mask);
  if (!known) return 0;
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(mask->getType())->getNumElements();
  unsigned first = 0;
  const auto is_true = [&](unsigned lane) {
    const llvm::Constant* bit = known->getAggregateElement(lane);
    return bit && bit->isOneValue();
  };
  while (first < lanes && is_true(first)) ++first;
  for (unsigned lane = first; lane < lanes; ++lane) {
    const llvm::Constant* bit = known->getAggregateElement(lane);
    if (!bit || !bit->isNullValue()) return 0;
  }
  return static_cast<int>(first);
}

// The size in bytes of the largest element that a store under `s` writes. A 16-bit float that is
// not just copied counts as the f32 that it was computed as.
int64_t WidestStore(const Stmt& s) {
  int64_t widest = 1;
  VisitStmt(s, [&](const Stmt& x) {
    if (auto* store = As<ir::Store>(x)) {
      const bool rounded =
          IsHalf(store->buffer->dtype) && store->value->kind != ir::ExprKind::kLoad;
      widest = std::max(widest, SizeOf(rounded ? ir::DType::kF32 : store->buffer->dtype));
    }
    return true;
  });
  return widest;
}

bool HasLoop(const Stmt& s) {
  bool has = false;
  VisitStmt(s, [&](const Stmt& x) {
    has = has || As<ir::For>(x);
    return !has;
  });
  return has;
}

}  // namespace

LoopEmitter::LoopEmitter(Kernel& kernel, const Needs& needs, const std::string& name)
    : k_(kernel), c_(kernel.module.getContext()), e_(c_) {
  c_.masked_memory = k_.cpu.masked_memory;
  c_.converts_f16 = k_.cpu.converts_f16;
  c_.lookup = k_.cpu.lookup;
  llvm::LLVMContext& context = k_.module.getContext();
  std::vector<Type*> params;
  for (size_t i = 0; i < needs.buffers.size() + needs.slices.size(); ++i)
    params.push_back(b_.getPtrTy());
  for (size_t i = 0; i < needs.vars.size(); ++i) params.push_back(b_.getInt64Ty());
  params.insert(params.end(), {b_.getPtrTy(), b_.getPtrTy(), b_.getInt64Ty(), b_.getInt64Ty()});
  c_.function = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), params, false),
                                       llvm::Function::InternalLinkage, name, k_.module);
  c_.function->addFnAttr(llvm::Attribute::NoInline);
  unsigned n = 0;
  auto bind_buffer = [&](const BufferRef& buffer) {
    llvm::Argument* arg = c_.function->getArg(n);
    arg->setName(buffer->name);
    if (k_.overlapping.count(buffer.get()) == 0) arg->addAttr(llvm::Attribute::NoAlias);
    arg->addAttr(llvm::Attribute::getWithAlignment(context, llvm::Align(kBufferAlignment)));
    arg->addAttr(llvm::Attribute::getWithDereferenceableBytes(
        context, static_cast<uint64_t>(buffer->SizeBytes())));
    c_.buffers[buffer.get()] = arg;
    ++n;
  };
  for (const BufferRef& buffer : needs.buffers) bind_buffer(buffer);
  for (const BufferRef& buffer : needs.slices) bind_buffer(buffer);
  for (const VarRef& var : needs.vars) {
    c_.function->getArg(n)->setName(var->name);
    c_.vars[var.get()] = c_.function->getArg(n++);
  }
  workspace_ = c_.function->getArg(n++);
  host_ = c_.function->getArg(n++);
  begin_ = c_.function->getArg(n++);
  end_ = c_.function->getArg(n++);
  b_.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", c_.function));
}

void LoopEmitter::EmitBody(const Stmt& body) {
  Emit(body);
  b_.CreateRetVoid();
}

void LoopEmitter::EmitParallelBody(const ir::For& loop, const ir::Ranges& ranges) {
  c_.ranges = ranges;
  in_parallel_ = true;
  llvm::LLVMContext& context = k_.module.getContext();
  auto* some = llvm::BasicBlock::Create(context, "some", c_.function);
  auto* done = llvm::BasicBlock::Create(context, "done", c_.function);
  b_.CreateCondBr(b_.CreateICmpSLT(begin_, end_), some, done);
  b_.SetInsertPoint(some);
  EmitLoop(loop, begin_, end_);
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
  b_.CreateRetVoid();
}

void LoopEmitter::Emit(const Stmt& s) {
  if (auto* seq = As<ir::Seq>(s)) {
    for (const Stmt& child : seq->stmts) Emit(child);
  } else if (auto* loop = As<ir::For>(s)) {
    EmitFor(*loop);
  } else if (auto* store = As<ir::Store>(s)) {
    vector_statements_ += c_.lane_var != nullptr;
    e_.EmitStore(*store);
  } else if (auto* branch = As<ir::If>(s)) {
    EmitIf(*branch);
  } else if (auto* alloc = As<ir::Alloc>(s)) {
    EmitAlloc(*alloc);
  } else if (auto* prefetch = As<ir::Prefetch>(s)) {
    e_.EmitPrefetch(*prefetch);
  }
}

void LoopEmitter::EmitFor(const ir::For& loop) {
  if (loop.kind == ir::LoopKind::kParallel && !in_parallel_ && !c_.lane_var)
    return EmitParallel(loop);
  if (loop.kind == ir::LoopKind::kVectorized && !c_.lane_var && loop.extent <= kMaxLanes)
    return EmitVectorized(loop);
  EmitLoop(loop, b_.getInt64(0), b_.getInt64(static_cast<uint64_t>(loop.extent)));
}

// Precondition: begin < end.
void LoopEmitter::EmitLoop(const ir::For& loop, Value* begin, Value* end) {
  llvm::LLVMContext& context = k_.module.getContext();
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* body = llvm::BasicBlock::Create(context, loop.var->name, c_.function);
  auto* after = llvm::BasicBlock::Create(context, loop.var->name + ".end", c_.function);
  b_.CreateBr(body);
  b_.SetInsertPoint(body);
  llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2, loop.var->name);
  i->addIncoming(begin, before);
  c_.vars[loop.var.get()] = i;
  c_.ranges[loop.var.get()] = {0, loop.extent - 1};
  const int vector_statements = vector_statements_;
  const ir::Var* outer = std::exchange(c_.loop_var, loop.var.get());
  Emit(loop.body);
  c_.loop_var = outer;
  Value* next = b_.CreateAdd(i, b_.getInt64(1), "", true, true);
  i->addIncoming(next, b_.GetInsertBlock());
  llvm::BranchInst* branch = b_.CreateCondBr(b_.CreateICmpSLT(next, end), body, after);
  MarkLoop(branch, vector_statements_ - vector_statements >= kTileStatements);
  b_.SetInsertPoint(after);
}

void LoopEmitter::MarkLoop(llvm::BranchInst* latch, bool is_tile) {
  llvm::LLVMContext& context = k_.module.getContext();
  auto flag = [&](const char* name) {
    return llvm::MDNode::get(context, llvm::MDString::get(context, name));
  };
  std::vector<llvm::Metadata*> properties = {nullptr, flag("llvm.loop.mustprogress")};
  if (is_tile) properties.push_back(flag("llvm.loop.unroll.disable"));
  llvm::MDNode* id = llvm::MDNode::getDistinct(context, properties);
  id->replaceOperandWith(0, id);
  latch->setMetadata(llvm::LLVMContext::MD_loop, id);
}

void LoopEmitter::EmitIf(const ir::If& branch) {
  Value* condition = e_.Emit(branch.condition);
  if (condition->getType()->isVectorTy()) {
    if (const int first = FirstLanes(condition); first > 1 && !c_.mask) {
      return EmitFirstLanes(first, branch.body);
    }
    Value* saved = c_.mask;
    c_.mask = e_.Restrict(condition);
    Emit(branch.body);
    c_.mask = saved;
    return;
  }
  auto* then = llvm::BasicBlock::Create(k_.module.getContext(), "if", c_.function);
  auto* after = llvm::BasicBlock::Create(k_.module.getContext(), "endif", c_.function);
  b_.CreateCondBr(condition, then, after);
  b_.SetInsertPoint(then);
  Emit(branch.body);
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

// Emits `s` with a narrower vector instead of a mask, so that accumulators need no blending.
void LoopEmitter::EmitFirstLanes(int lanes, const Stmt& s) {
  const int all = std::exchange(c_.lanes, lanes);
  const ir::Interval range = std::exchange(c_.ranges[c_.lane_var], {0, lanes - 1});
  Emit(s);
  c_.lanes = all;
  c_.ranges[c_.lane_var] = range;
}

void LoopEmitter::EmitAlloc(const ir::Alloc& alloc) {
  const ir::Buffer& buffer = *alloc.buffer;
  if (k_.plan.placements.at(&buffer).place != Place::kStack)
    return Emit(alloc.body);  // a parameter
  llvm::IRBuilder<> entry(&c_.function->getEntryBlock(), c_.function->getEntryBlock().begin());
  auto* type = llvm::ArrayType::get(entry.getInt8Ty(), static_cast<uint64_t>(PaddedSize(buffer)));
  llvm::AllocaInst* memory = entry.CreateAlloca(type, nullptr, buffer.name);
  memory->setAlignment(llvm::Align(kBufferAlignment));
  c_.buffers[&buffer] = memory;
  // Tells LLVM that the contents are undefined at every entry of the body, so no value is carried
  // from one iteration of an enclosing loop to the next.
  b_.CreateLifetimeStart(memory, b_.getInt64(static_cast<uint64_t>(PaddedSize(buffer))));
  Emit(alloc.body);
  b_.CreateLifetimeEnd(memory, b_.getInt64(static_cast<uint64_t>(PaddedSize(buffer))));
}

// ---- Vectorized loops ----

// Iterations are independent, so each statement of the body may run for all vector lanes before the
// next statement starts.
void LoopEmitter::EmitVectorized(const ir::For& loop) {
  if (auto* seq = As<ir::Seq>(loop.body)) {
    for (const Stmt& child : seq->stmts) EmitLanes(loop, child);
  } else {
    EmitLanes(loop, loop.body);
  }
}

// Splits loops with more vector lanes than a register has, so that all accesses to a buffer in
// registers have one width. A statement with inner loops is not split if the lanes fill registers
// evenly, since the inner loops would be repeated; there LLVM splits the vectors.
void LoopEmitter::EmitLanes(const ir::For& loop, const Stmt& s) {
  c_.ranges[loop.var.get()] = {0, loop.extent - 1};
  if (!CanVectorize(s, loop.var.get())) {
    ir::For scalar{loop.var, loop.extent, ir::LoopKind::kSerial, s};
    return EmitLoop(scalar, b_.getInt64(0), b_.getInt64(static_cast<uint64_t>(loop.extent)));
  }
  const int64_t lanes = k_.cpu.vector_bytes / WidestStore(s);
  if (loop.extent <= lanes || (HasLoop(s) && loop.extent % lanes == 0))
    return EmitVector(*loop.var, loop.extent, s);
  for (int64_t done = 0; done < loop.extent; done += lanes) {
    Stmt part =
        done == 0 ? s : Substitute(s, {{loop.var.get(), VarExpr(loop.var) + ir::Int(done)}});
    EmitVector(*loop.var, std::min(lanes, loop.extent - done), part);
  }
}

void LoopEmitter::EmitVector(const ir::Var& var, int64_t lanes, const Stmt& s) {
  c_.ranges[&var] = {0, lanes - 1};
  // A vector of one lane is a scalar.
  if (lanes == 1) {
    c_.vars[&var] = b_.getInt64(0);
    return Emit(s);
  }
  c_.lane_var = &var;
  c_.lanes = static_cast<int>(lanes);
  Emit(s);
  c_.lane_var = nullptr;
  c_.lanes = 1;
}

// True if every store writes a different element in every vector lane, and nothing inside needs
// memory or a parallel or vectorized loop of its own.
bool LoopEmitter::CanVectorize(const Stmt& s, const ir::Var* lane) {
  bool can = true;
  VisitStmt(s, [&](const Stmt& x) {
    if (As<ir::Alloc>(x)) can = false;
    if (auto* loop = As<ir::For>(x)) {
      can = can && loop->kind == ir::LoopKind::kSerial;
      c_.ranges[loop->var.get()] = {0, loop->extent - 1};
    }
    if (auto* store = As<ir::Store>(x);
        store && !DependsOn(LinearIndex(*store->buffer, store->indices, c_.ranges), lane))
      can = false;
    return can;
  });
  return can;
}

}  // namespace heddle::codegen
