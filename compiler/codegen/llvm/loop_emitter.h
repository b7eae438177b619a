// Translates loops of lowered programs to LLVM functions. Private to this folder: includes LLVM.
#pragma once

#include <set>
#include <string>

#include "compiler/codegen/llvm/emit_context.h"
#include "compiler/codegen/llvm/expr_emitter.h"
#include "compiler/codegen/llvm/kernel_emitter.h"
#include "compiler/codegen/llvm/kernel_needs.h"

namespace heddle::codegen {

// What all functions of one kernel share.
struct Kernel {
  const ir::Program& program;
  const WorkspacePlan& plan;
  CpuLimits cpu;
  llvm::Module& module;
  // outputs that may take the memory of inputs, and these inputs
  std::set<const ir::Buffer*> overlapping = {};
  int parallel_loops = 0;
};

// Writes one function that holds loops. Its parameters are the needed buffers, slices, variables,
// workspace, host, begin and end.
class LoopEmitter {
 public:
  LoopEmitter(Kernel& kernel, const Needs& needs, const std::string& name);

  llvm::Function* function() { return c_.function; }
  // Writes the body of a kernel.
  void EmitBody(const ir::Stmt& body);
  // Writes iterations [begin, end) of a parallel loop.
  void EmitParallelBody(const ir::For& loop, const ir::Ranges& ranges);

 private:
  void Emit(const ir::Stmt& s);
  void EmitFor(const ir::For& loop);
  void EmitLoop(const ir::For& loop, llvm::Value* begin, llvm::Value* end);
  void MarkLoop(llvm::BranchInst* latch, bool is_tile);
  void EmitIf(const ir::If& branch);
  void EmitFirstLanes(int lanes, const ir::Stmt& s);
  void EmitAlloc(const ir::Alloc& alloc);

  void EmitVectorized(const ir::For& loop);
  void EmitLanes(const ir::For& loop, const ir::Stmt& s);
  void EmitVector(const ir::Var& var, int64_t lanes, const ir::Stmt& s);
  bool CanVectorize(const ir::Stmt& s, const ir::Var* lane);

  void EmitParallel(const ir::For& loop);
  llvm::Function* EmitTrampoline(const std::string& name, llvm::StructType* type,
                                 const Needs& needs, llvm::Function* loops);
  void EmitParallelCall(llvm::Function* body, llvm::Value* closure, int64_t extent,
                        bool uses_slices);

  Kernel& k_;
  EmitContext c_;
  ExprEmitter e_;
  llvm::IRBuilder<>& b_ = c_.builder;
  llvm::Value* workspace_ = nullptr;
  llvm::Value* host_ = nullptr;
  llvm::Value* begin_ = nullptr;
  llvm::Value* end_ = nullptr;
  bool in_parallel_ = false;
  int vector_statements_ = 0;  // emitted so far
};

}  // namespace heddle::codegen
