// The limits of NVIDIA's architectures, as the CUDA C++ programming guide's table of compute
// capabilities has them. No driver and no toolkit is asked.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::codegen {

// Fills the GPU fields of `info` for info->target. InvalidArgument naming the known ones.
absl::Status DescribeGpu(machine::TargetInfo* info);

// "sm_80", .. in ascending order.
std::vector<std::string> KnownGpus();

// What one launch of a lowered GPU program asks of the machine, known before it is compiled.
struct GpuDemand {
  int64_t threads_per_block = 1;
  int64_t block[3] = {1, 1, 1};  // threads by axis
  int64_t shared_bytes = 0;      // of a block
  int64_t register_words = 0;    // of a thread: what its local buffers hold, 32-bit
  int64_t blocks[3] = {1, 1, 1};
  bool tensor_cores = false;
};

// ResourceExhausted "exceeds the limits of sm_90: 2048 threads in a block, 1024 are allowed": the
// code of every candidate that no compiler needs to see. Nothing else of BuildCandidate has this
// code. Unimplemented where the architecture has no tensor cores for 16-bit floats and tf32.
absl::Status CheckDemand(const GpuDemand& demand, const machine::TargetInfo& info);

}  // namespace heddle::codegen
