#include "compiler/machine/cpu_family.h"

#include <algorithm>

namespace heddle::machine {
namespace {

constexpr int64_t kKiB = 1 << 10;

}  // namespace

// From the optimization manuals of Intel, AMD (for each Zen generation) and Arm (for each core). Of
// Intel's 64-byte units, the table has those of the larger server models: smaller ones have one
// instead of two. With 64-byte vectors, Zen 4 needs two cycles for what Zen 5 does in one.
const std::vector<CpuFamily>& CpuFamilies() {
  static const auto& families = *new std::vector<CpuFamily>{
      {{"haswell", "core-avx2", "broadwell"}, 32 * kKiB, 256 * kKiB, 64, 64, 32, 2, 5},
      {{"skylake"}, 32 * kKiB, 256 * kKiB, 64, 64, 32, 2, 4},
      {{"skylake-avx512", "skx", "cascadelake", "cooperlake"},
       32 * kKiB,
       1024 * kKiB,
       128,
       128,
       64,
       2,
       4},
      {{"icelake-client", "tigerlake", "rocketlake"}, 48 * kKiB, 512 * kKiB, 64, 128, 64, 2, 4},
      {{"icelake-server"}, 48 * kKiB, 1280 * kKiB, 128, 128, 64, 2, 4},
      {{"alderlake", "raptorlake"}, 48 * kKiB, 1280 * kKiB, 64, 96, 64, 3, 4},
      {{"sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"},
       48 * kKiB,
       2048 * kKiB,
       128,
       128,
       64,
       2,
       4},
      {{"znver1"}, 32 * kKiB, 512 * kKiB, 32, 32, 16, 2, 5},
      {{"znver2"}, 32 * kKiB, 512 * kKiB, 64, 64, 32, 2, 5},
      {{"znver3"}, 32 * kKiB, 512 * kKiB, 64, 64, 32, 2, 4},
      {{"znver4"}, 32 * kKiB, 1024 * kKiB, 64, 64, 32, 2, 4},
      {{"znver5"}, 48 * kKiB, 1024 * kKiB, 128, 128, 64, 2, 4},
      {{"neoverse-n1", "cortex-a76"}, 64 * kKiB, 512 * kKiB, 32, 32, 16, 2, 4},
      {{"neoverse-n2"}, 64 * kKiB, 512 * kKiB, 32, 48, 32, 3, 4},
      {{"neoverse-v1"}, 64 * kKiB, 1024 * kKiB, 64, 48, 32, 4, 4},
      {{"neoverse-v2"}, 64 * kKiB, 1024 * kKiB, 64, 48, 32, 4, 4},
  };
  return families;
}

const CpuFamily* FindCpuFamily(std::string_view cpu) {
  for (const CpuFamily& family : CpuFamilies()) {
    if (std::find(family.names.begin(), family.names.end(), cpu) != family.names.end())
      return &family;
  }
  return nullptr;
}

void PutFamily(const CpuFamily& family, TargetInfo* info) {
  const double vector = info->vector_bytes;
  const GraphSpeed reference;
  const CoreSpeed typical;
  CoreSpeed& core = info->core;
  info->l1_bytes = family.l1_bytes;
  info->l2_bytes = family.l2_bytes;
  const auto per_cycle = [&](int bytes) {
    return std::min<double>(bytes / vector, family.operations);
  };
  core.operations_per_cycle = per_cycle(family.fma_bytes);
  core.loads_per_cycle = per_cycle(family.load_bytes);
  core.stores_per_cycle = per_cycle(family.store_bytes);
  core.multiply_add_cycles = family.multiply_add_cycles;
  GraphSpeed& graph = info->graph_speed;
  graph.peak_gflops = reference.peak_gflops * core.operations_per_cycle * vector /
                      (typical.operations_per_cycle * static_cast<double>(reference.vector_bytes));
  graph.vector_bytes = info->vector_bytes;
  graph.l2_bytes = family.l2_bytes;
}

}  // namespace heddle::machine
