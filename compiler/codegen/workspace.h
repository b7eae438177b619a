// Where the allocations of a lowered program live on a CPU.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/alignment.h"
#include "compiler/ir/ir.h"

namespace heddle::codegen {

// Larger allocations go to the workspace. Threads have stacks of at least 512 KiB, of which a
// kernel takes at most half.
inline constexpr int64_t kMaxStackBuffer = 32 << 10;
inline constexpr int64_t kMaxStackTotal = 256 << 10;

enum class Place {
  kStack,               // of the function that holds the allocation
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
// a fixed place in the workspace. Places never overlap, so that code may take every buffer as
// `noalias`.
WorkspacePlan PlanWorkspace(const ir::Program& program, int threads);

}  // namespace heddle::codegen
