#include "compiler/codegen/llvm/kernel_emitter.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/codegen/llvm/kernel_needs.h"
#include "compiler/codegen/llvm/loop_emitter.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/overwrite.h"
#include "llvm/IR/Module.h"

namespace heddle::codegen {

using ir::As;
using ir::Stmt;
using llvm::Value;

namespace {

// Emits the exported function, heddle_kernel of runtime/abi.h.
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
  HEDDLE_RETURN_IF_ERROR(CheckSupported(program));
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
