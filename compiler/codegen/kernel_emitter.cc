#include "compiler/codegen/kernel_emitter.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/emit_context.h"
#include "compiler/codegen/expr_emitter.h"
#include "compiler/codegen/index.h"
#include "compiler/codegen/kernel_needs.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/overwrite.h"
#include "llvm/IR/Module.h"

namespace heddle::codegen {

namespace {

using ir::As;
using ir::BufferRef;
using ir::Stmt;
using ir::VarRef;
using llvm::Type;
using llvm::Value;

// Lanes beyond this are a plain loop, which LLVM may vectorise by itself.
constexpr int64_t kMaxLanes = 256;
// A loop over this many vector statements is a register tile already; LLVM is told not to unroll it
// further.
constexpr int kTileStatements = 4;

// What all functions of one kernel share.
struct Kernel {
  const ir::Program& program;
  const WorkspacePlan& plan;
  CpuLimits cpu;
  llvm::Module& module;
  std::set<const ir::Buffer*> overlapping = {};  // outputs, and inputs that may lie in them
  int parallel_loops = 0;
};

// Writes one function that holds loops. Parameters: needed buffers, slices, variables, workspace,
// host, begin, end.
class LoopEmitter {
 public:
  LoopEmitter(Kernel& kernel, const Needs& needs, const std::string& name)
      : k_(kernel), c_(kernel.module.getContext()), e_(c_) {
    c_.masked_memory = k_.cpu.masked_memory;
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

  llvm::Function* function() { return c_.function; }

  // The body of a kernel.
  void EmitBody(const Stmt& body) {
    Emit(body);
    b_.CreateRetVoid();
  }

  // Iterations [begin, end) of a parallel loop.
  void EmitParallelBody(const ir::For& loop, const ir::Ranges& ranges) {
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

 private:
  void Emit(const Stmt& s) {
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

  void EmitFor(const ir::For& loop) {
    if (loop.kind == ir::LoopKind::kParallel && !in_parallel_ && !c_.lane_var)
      return EmitParallel(loop);
    if (loop.kind == ir::LoopKind::kVectorized && !c_.lane_var && loop.extent <= kMaxLanes)
      return EmitVectorized(loop);
    EmitLoop(loop, b_.getInt64(0), b_.getInt64(static_cast<uint64_t>(loop.extent)));
  }

  // begin < end holds.
  void EmitLoop(const ir::For& loop, Value* begin, Value* end) {
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
    Emit(loop.body);
    Value* next = b_.CreateAdd(i, b_.getInt64(1), "", true, true);
    i->addIncoming(next, b_.GetInsertBlock());
    llvm::BranchInst* branch = b_.CreateCondBr(b_.CreateICmpSLT(next, end), body, after);
    MarkLoop(branch, vector_statements_ - vector_statements >= kTileStatements);
    b_.SetInsertPoint(after);
  }

  void MarkLoop(llvm::BranchInst* latch, bool is_tile) {
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

  void EmitIf(const ir::If& branch) {
    Value* condition = e_.Emit(branch.condition);
    if (condition->getType()->isVectorTy()) {
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

  void EmitAlloc(const ir::Alloc& alloc) {
    const ir::Buffer& buffer = *alloc.buffer;
    if (k_.plan.placements.at(&buffer).place != Place::kStack)
      return Emit(alloc.body);  // a parameter
    llvm::IRBuilder<> entry(&c_.function->getEntryBlock(), c_.function->getEntryBlock().begin());
    auto* type = llvm::ArrayType::get(entry.getInt8Ty(), static_cast<uint64_t>(PaddedSize(buffer)));
    llvm::AllocaInst* memory = entry.CreateAlloca(type, nullptr, buffer.name);
    memory->setAlignment(llvm::Align(kBufferAlignment));
    c_.buffers[&buffer] = memory;
    // The contents are undefined at every entry of the body: so no value travels around an
    // enclosing loop.
    b_.CreateLifetimeStart(memory, b_.getInt64(static_cast<uint64_t>(PaddedSize(buffer))));
    Emit(alloc.body);
    b_.CreateLifetimeEnd(memory, b_.getInt64(static_cast<uint64_t>(PaddedSize(buffer))));
  }

  // ---- Vectorized loops

  // Iterations are independent, so each statement of the body may run for all lanes before the next
  // one starts.
  void EmitVectorized(const ir::For& loop) {
    if (auto* seq = As<ir::Seq>(loop.body)) {
      for (const Stmt& child : seq->stmts) EmitLanes(loop, child);
    } else {
      EmitLanes(loop, loop.body);
    }
  }

  // Lanes beyond one register go register by register, so that all accesses of a buffer in
  // registers have one width. Not around inner loops, which would be repeated: there LLVM splits
  // the vectors, if they fill registers evenly.
  void EmitLanes(const ir::For& loop, const Stmt& s) {
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

  void EmitVector(const ir::Var& var, int64_t lanes, const Stmt& s) {
    c_.ranges[&var] = {0, lanes - 1};
    // One lane is a scalar.
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

  // Bytes of the largest element some store under `s` writes.
  static int64_t WidestStore(const Stmt& s) {
    int64_t widest = 1;
    VisitStmt(s, [&](const Stmt& x) {
      if (auto* store = As<ir::Store>(x)) widest = std::max(widest, SizeOf(store->buffer->dtype));
      return true;
    });
    return widest;
  }

  static bool HasLoop(const Stmt& s) {
    bool has = false;
    VisitStmt(s, [&](const Stmt& x) {
      has = has || As<ir::For>(x);
      return !has;
    });
    return has;
  }

  // Every store writes another element in every lane, and nothing inside needs lanes of its own.
  bool CanVectorize(const Stmt& s, const ir::Var* lane) {
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

  // ---- Parallel loops

  void EmitParallel(const ir::For& loop) {
    Needs needs = CollectNeeds(ir::MakeStmt(loop), k_.plan);
    const std::string name = absl::StrCat(k_.program.name, ".parallel", k_.parallel_loops++);
    LoopEmitter inner(k_, needs, name + ".loops");
    inner.EmitParallelBody(loop, c_.ranges);

    std::vector<Value*> captured;
    for (const BufferRef& buffer : needs.buffers) captured.push_back(c_.buffers.at(buffer.get()));
    for (const VarRef& var : needs.vars) captured.push_back(c_.vars.at(var.get()));
    captured.push_back(workspace_);
    captured.push_back(host_);
    std::vector<Type*> fields;
    for (Value* value : captured) fields.push_back(value->getType());
    auto* type = llvm::StructType::get(k_.module.getContext(), fields);
    llvm::Function* body = EmitTrampoline(name, type, needs, inner.function());

    llvm::IRBuilder<> entry(&c_.function->getEntryBlock(), c_.function->getEntryBlock().begin());
    Value* closure = entry.CreateAlloca(type, nullptr, "closure");
    for (unsigned i = 0; i < captured.size(); ++i)
      b_.CreateStore(captured[i], b_.CreateStructGEP(type, closure, i));
    EmitParallelCall(body, closure, loop.extent, !needs.slices.empty());
  }

  // The heddle_parallel_body that unpacks the closure.
  llvm::Function* EmitTrampoline(const std::string& name, llvm::StructType* type,
                                 const Needs& needs, llvm::Function* loops) {
    llvm::LLVMContext& context = k_.module.getContext();
    llvm::IRBuilder<> b(context);
    auto* signature = llvm::FunctionType::get(
        b.getVoidTy(), {b.getPtrTy(), b.getInt64Ty(), b.getInt64Ty(), b.getInt32Ty()}, false);
    auto* function =
        llvm::Function::Create(signature, llvm::Function::InternalLinkage, name, k_.module);
    b.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function));
    auto field = [&](unsigned i) {
      return b.CreateLoad(type->getElementType(i), b.CreateStructGEP(type, function->getArg(0), i));
    };
    const unsigned fields = type->getNumElements();
    Value* workspace = field(fields - 2);
    Value* worker = b.CreateZExt(function->getArg(3), b.getInt64Ty());
    std::vector<Value*> args;
    unsigned next = 0;
    while (next < needs.buffers.size()) args.push_back(field(next++));
    for (const BufferRef& slice : needs.slices) {
      Value* offset = b.CreateMul(worker, b.getInt64(static_cast<uint64_t>(PaddedSize(*slice))));
      offset = b.CreateAdd(
          offset, b.getInt64(static_cast<uint64_t>(k_.plan.placements.at(slice.get()).offset)));
      args.push_back(b.CreateInBoundsGEP(b.getInt8Ty(), workspace, offset));
    }
    while (next < fields - 2) args.push_back(field(next++));
    args.insert(args.end(),
                {workspace, field(fields - 1), function->getArg(1), function->getArg(2)});
    b.CreateCall(loops, args);
    b.CreateRetVoid();
    return function;
  }

  // host->parallel_for, or a direct call where there is nothing to share out (or no memory for that
  // many workers).
  void EmitParallelCall(llvm::Function* body, Value* closure, int64_t extent, bool uses_slices) {
    llvm::LLVMContext& context = k_.module.getContext();
    auto* host_type =
        llvm::StructType::get(context, {b_.getInt32Ty(), b_.getPtrTy(), b_.getPtrTy()});
    auto* serial = llvm::BasicBlock::Create(context, "serial", c_.function);
    auto* parallel = llvm::BasicBlock::Create(context, "parallel", c_.function);
    auto* after = llvm::BasicBlock::Create(context, "joined", c_.function);
    Value* workers = b_.CreateLoad(b_.getInt32Ty(), b_.CreateStructGEP(host_type, host_, 0));
    Value* alone = b_.CreateICmpSLE(workers, b_.getInt32(1));
    if (uses_slices) {
      alone = b_.CreateOr(
          alone, b_.CreateICmpSGT(workers, b_.getInt32(static_cast<uint32_t>(k_.cpu.threads))));
    }
    if (extent == 1) alone = b_.getTrue();
    Value* n = b_.getInt64(static_cast<uint64_t>(extent));
    b_.CreateCondBr(alone, serial, parallel);
    b_.SetInsertPoint(serial);
    b_.CreateCall(body, {closure, b_.getInt64(0), n, b_.getInt32(0)});
    b_.CreateBr(after);
    b_.SetInsertPoint(parallel);
    Value* parallel_for = b_.CreateLoad(b_.getPtrTy(), b_.CreateStructGEP(host_type, host_, 1));
    auto* signature = llvm::FunctionType::get(
        b_.getVoidTy(), {b_.getPtrTy(), b_.getInt64Ty(), b_.getPtrTy(), b_.getPtrTy()}, false);
    b_.CreateCall(signature, parallel_for, {host_, n, body, closure});
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  Kernel& k_;
  EmitContext c_;
  ExprEmitter e_;
  llvm::IRBuilder<>& b_ = c_.builder;
  Value* workspace_ = nullptr;
  Value* host_ = nullptr;
  Value* begin_ = nullptr;
  Value* end_ = nullptr;
  bool in_parallel_ = false;
  int vector_statements_ = 0;  // emitted so far
};

// The exported function: heddle_kernel of runtime/abi.h.
void EmitEntry(Kernel& kernel, const Needs& needs, llvm::Function* body) {
  llvm::LLVMContext& context = kernel.module.getContext();
  llvm::IRBuilder<> b(context);
  auto* signature =
      llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy(), b.getPtrTy(), b.getPtrTy()}, false);
  auto* function = llvm::Function::Create(signature, llvm::Function::ExternalLinkage,
                                          kernel.program.name, kernel.module);
  b.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function));
  const size_t params = kernel.program.inputs.size() + kernel.program.outputs.size();
  std::vector<Value*> args;
  for (size_t i = 0; i < needs.buffers.size(); ++i) {
    if (i < params) {
      args.push_back(b.CreateLoad(
          b.getPtrTy(), b.CreateConstInBoundsGEP1_64(b.getPtrTy(), function->getArg(0), i)));
    } else {
      auto offset = static_cast<uint64_t>(kernel.plan.placements.at(needs.buffers[i].get()).offset);
      args.push_back(b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), function->getArg(1), offset));
    }
  }
  args.insert(args.end(), {function->getArg(1), function->getArg(2), b.getInt64(0), b.getInt64(0)});
  b.CreateCall(body, args);
  b.CreateRetVoid();
}

}  // namespace

absl::Status EmitKernel(const ir::Program& program, const WorkspacePlan& plan, const CpuLimits& cpu,
                        llvm::Module& module) {
  if (absl::Status status = CheckSupported(program); !status.ok()) return status;
  if (module.getFunction(program.name)) {
    return absl::InvalidArgumentError(absl::StrCat("two programs are named ", program.name));
  }
  Kernel kernel{.program = program, .plan = plan, .cpu = cpu, .module = module};
  for (const pass::Overwrite& pair : pass::FindOverwrites(program)) {
    kernel.overlapping.insert(program.outputs[static_cast<size_t>(pair.output)].get());
    kernel.overlapping.insert(program.inputs[static_cast<size_t>(pair.input)].get());
  }
  Needs needs;
  needs.buffers = program.inputs;
  needs.buffers.insert(needs.buffers.end(), program.outputs.begin(), program.outputs.end());
  VisitStmt(program.body, [&](const Stmt& s) {
    auto* alloc = As<ir::Alloc>(s);
    if (alloc && plan.placements.at(alloc->buffer.get()).place == Place::kWorkspace)
      needs.buffers.push_back(alloc->buffer);
    return true;
  });
  LoopEmitter body(kernel, needs, program.name + ".loops");
  body.EmitBody(program.body);
  EmitEntry(kernel, needs, body.function());
  return absl::OkStatus();
}

}  // namespace heddle::codegen
