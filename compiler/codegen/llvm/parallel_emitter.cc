// Emits parallel loops: a function for the body, one that unpacks what the body needs, and the
// call.
#include "absl/strings/str_cat.h"
#include "compiler/codegen/llvm/loop_emitter.h"
#include "llvm/IR/Module.h"

namespace heddle::codegen {

using ir::BufferRef;
using ir::VarRef;
using llvm::Type;
using llvm::Value;

void LoopEmitter::EmitParallel(const ir::For& loop) {
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

// The function of type heddle_parallel_body that unpacks the closure.
llvm::Function* LoopEmitter::EmitTrampoline(const std::string& name, llvm::StructType* type,
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
  args.insert(args.end(), {workspace, field(fields - 1), function->getArg(1), function->getArg(2)});
  b.CreateCall(loops, args);
  b.CreateRetVoid();
  return function;
}

// Calls host->parallel_for. If there is nothing to share out, or the workspace is too small for so
// many workers, calls the body directly.
void LoopEmitter::EmitParallelCall(llvm::Function* body, Value* closure, int64_t extent,
                                   bool uses_slices) {
  llvm::LLVMContext& context = k_.module.getContext();
  auto* host_type = llvm::StructType::get(context, {b_.getInt32Ty(), b_.getPtrTy(), b_.getPtrTy()});
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

}  // namespace heddle::codegen
