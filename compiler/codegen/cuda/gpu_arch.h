// The limits of NVIDIA's architectures, from the table of compute capabilities in the CUDA C++
// programming guide. Needs no driver and no toolkit. Private to this folder.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/vocabulary/target.h"
#include "compiler/machine/target_info.h"

namespace heddle::codegen {

// Backend::Describe of a GPU. InvalidArgument: the architecture is unknown; the message names the
// known ones.
absl::StatusOr<machine::TargetInfo> DescribeGpu(const Target& target);

// What one launch of a lowered program needs, known before it is compiled.
struct GpuDemand {
  int64_t threads_per_block = 1;
  int64_t block[3] = {1, 1, 1};  // threads by axis
  int64_t shared_bytes = 0;      // of a block
  int64_t register_words = 0;    // 32-bit words in the local buffers of a thread
  int64_t blocks[3] = {1, 1, 1};
  bool tensor_cores = false;
  bool group_products = false;  // of four warps, which only code for sm_90a has
};

// Checks whether the architecture can run the launch. ResourceExhausted: it exceeds a limit, for
// instance "exceeds the limits of sm_90: 2048 threads in a block, 1024 are allowed". Such a
// candidate is not compiled at all, and nothing else in BuildCandidate gives this code.
// Unimplemented: the launch needs tensor cores for 16-bit floats or tf32, and the architecture has
// none.
absl::Status CheckDemand(const GpuDemand& demand, const machine::TargetInfo& info);

}  // namespace heddle::codegen
