#include "compiler/codegen/cuda/gpu_arch.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace heddle::codegen {

namespace {

struct Architecture {
  const char* name;
  int multiprocessors;  // those of A100, A10, L40S, H100, B200, RTX PRO 6000
  int shared_kib_per_block;
};

constexpr Architecture kArchitectures[] = {
    {"sm_80", 108, 163}, {"sm_86", 72, 99},    {"sm_89", 142, 99},
    {"sm_90", 132, 227}, {"sm_100", 148, 227}, {"sm_120", 188, 99},
};

// Largest extents of blocks and grids, by axis.
constexpr int64_t kMaxThreads[3] = {1024, 1024, 64};
constexpr int64_t kMaxBlocks[3] = {(int64_t{1} << 31) - 1, 65535, 65535};

}  // namespace

absl::StatusOr<machine::TargetInfo> DescribeGpu(const Target& target) {
  std::vector<std::string> known;
  for (const Architecture& a : kArchitectures) {
    known.emplace_back(a.name);
    if (target.cpu != a.name) continue;
    machine::TargetInfo info;
    info.target = target;
    info.execution = machine::Execution::kGrid;
    info.vector_bytes = 16;
    info.shared_bytes_per_block = int64_t{a.shared_kib_per_block} << 10;
    info.multiprocessors = a.multiprocessors;
    info.tensor_cores = true;
    return info;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "target: -arch=", target.cpu, " is not known; known are ", absl::StrJoin(known, ", ")));
}

absl::Status CheckDemand(const GpuDemand& demand, const machine::TargetInfo& info) {
  const auto exceeds = [&](int64_t asked, const char* what, int64_t allowed) {
    return absl::ResourceExhaustedError(absl::StrCat("exceeds the limits of ", info.target.cpu,
                                                     ": ", asked, " ", what, ", ", allowed,
                                                     " are allowed"));
  };
  if (demand.tensor_cores && !info.tensor_cores) {
    return absl::UnimplementedError(
        absl::StrCat(info.target.cpu, " has no tensor cores for f16, bf16 and tf32: sm_80 has"));
  }
  if (demand.threads_per_block > info.max_threads_per_block) {
    return exceeds(demand.threads_per_block, "threads in a block", info.max_threads_per_block);
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (demand.block[axis] > kMaxThreads[axis])
      return exceeds(demand.block[axis], "threads along one axis", kMaxThreads[axis]);
  }
  if (demand.shared_bytes > info.shared_bytes_per_block) {
    return exceeds(demand.shared_bytes, "bytes of shared memory in a block",
                   info.shared_bytes_per_block);
  }
  if (demand.register_words > info.max_registers_per_thread) {
    return exceeds(demand.register_words, "registers of local buffers in a thread",
                   info.max_registers_per_thread);
  }
  if (demand.register_words * demand.threads_per_block > info.registers_per_block) {
    return exceeds(demand.register_words * demand.threads_per_block,
                   "registers of local buffers in a block", info.registers_per_block);
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (demand.blocks[axis] > kMaxBlocks[axis])
      return exceeds(demand.blocks[axis], "blocks along one axis", kMaxBlocks[axis]);
  }
  return absl::OkStatus();
}

}  // namespace heddle::codegen
