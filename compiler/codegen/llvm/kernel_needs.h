// Finds what the code of a kernel needs, before any code is written. Includes no LLVM.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "compiler/codegen/workspace.h"
#include "compiler/ir/ir.h"

namespace heddle::codegen {

// What the loops of a function need from outside.
struct Needs {
  std::vector<ir::BufferRef> buffers;
  std::vector<ir::VarRef> vars;
  std::vector<ir::BufferRef>
      slices;  // allocations inside that have one slice of the workspace for each worker
};

// The needs of the loops of `s`, in order of first appearance.
Needs CollectNeeds(const ir::Stmt& s, const WorkspacePlan& plan);

// Whether a CPU can run the program. Unimplemented: it has GPU loops, barriers, shared memory or
// 16-bit floats. FailedPrecondition: it has blocks.
absl::Status CheckSupported(const ir::Program& program);

}  // namespace heddle::codegen
