// The state of one LLVM function while it is written. Private to this folder: includes LLVM.
#pragma once

#include <unordered_map>

#include "compiler/codegen/llvm/table_lookup.h"
#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/ir.h"
#include "llvm/IR/IRBuilder.h"

namespace heddle::codegen {

struct EmitContext {
  explicit EmitContext(llvm::LLVMContext& context) : builder(context) {
    // A multiply may be contracted with an add; no other fast-math rule applies (ir.h).
    llvm::FastMathFlags flags;
    flags.setAllowContract();
    builder.setFastMathFlags(flags);
  }

  llvm::IRBuilder<> builder;
  llvm::Function* function = nullptr;
  std::unordered_map<const ir::Var*, llvm::Value*> vars;  // i64
  std::unordered_map<const ir::Buffer*, llvm::Value*>
      buffers;        // address of element 0, 64-byte aligned
  ir::Ranges ranges;  // of all variables in scope
  // Of the innermost loop around, unless its iterations are vector lanes; null outside of loops.
  const ir::Var* loop_var = nullptr;

  // Inside a vectorized loop: the loop's variable, whose value is <0, 1, .., lanes - 1>, and the
  // mask of active vector lanes (null: all are active).
  const ir::Var* lane_var = nullptr;
  int lanes = 1;
  llvm::Value* mask = nullptr;

  bool masked_memory = false;  // masked loads and stores run at full speed on this CPU
  bool converts_f16 = false;   // this CPU has instructions between f16 and f32
  LookupUnit lookup;           // of this CPU
};

}  // namespace heddle::codegen
