// Where the allocations of a lowered program lie on a CPU.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/alignment.h"
#include "compiler/ir/ir.h"

namespace heddle::codegen {

// Limits on one stack buffer and on all of them; further allocations go to the workspace. Threads
// have stacks of at least 512 KiB, and a kernel takes at most half.
inline constexpr int64_t kMaxStackBuffer = 32 << 10;
inline constexpr int64_t kMaxStackTotal = 256 << 10;

enum class Place {
  kStack,               // on the stack of the function that holds the allocation
  kWorkspace,           // workspace + offset
  kWorkspacePerWorker,  // workspace + offset + worker * padded size
};

struct Placement {
  Place place = Place::kStack;
  int64_t offset = 0;  // bytes
};

struct WorkspacePlan {
  std::unordered_map<const ir::Buffer*, Placement> placements;
  int64_t bytes = 0;
};

// Bytes of a buffer, rounded up to kBufferAlignment.
int64_t PaddedSize(const ir::Buffer& buffer);

// Small `local` allocations, and small ones inside parallel loops, go to the stack. Larger ones
// inside parallel loops get a slice of the workspace for each of `threads` workers. All others get
// a fixed place in the workspace. Places never overlap, so code may treat every buffer as
// `noalias`.
WorkspacePlan PlanWorkspace(const ir::Program& program, int threads);

}  // namespace heddle::codegen
