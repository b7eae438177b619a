// gpu-show WORKLOAD [ARCH] [SEED|POINT] [CUBIN]: the decisions of a schedule, the default one (a
// random one with a seed, that of a point with its choices, 0,2,1,..), its GPU program, its CUDA
// C++ and what its launches take, by hand; its machine code into a file. M1024 is a product of that
// size, H1024 one of f16.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/ir/text.h"
#include "compiler/schedule/trace.h"
#include "tests/codegen/cuda/gpu_testing.h"
#include "tests/schedule/workloads.h"

namespace heddle::testing {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "gpu-show: %s\n", std::string(status.message()).c_str());
  return 1;
}

absl::StatusOr<ir::Program> Workload(const std::string& name) {
  int n = 0;
  const bool half = name[0] == 'H';
  if (std::sscanf(name.c_str() + (half || name[0] == 'M'), "%d", &n) != 1 || n < 16 ||
      (!half && name[0] != 'M')) {
    return schedule::MakeWorkload(name);
  }
  if (half) {
    return ir::Parse(absl::StrCat(
        "program p(a: f16[", n, ", ", n, "], b: f16[", n, ", ", n, "]) -> (y: f32[", n, ", ", n,
        "]) { for i in ", n, " { for j in ", n, " { for r in ", n, " { block dot(x < ", n,
        " spatial = i, z < ", n, " spatial = j, q < ", n,
        " reduce = r) sum init 0.0 { y[x, z] = (f32(a[x, q]) * f32(b[q, z])) } } } } }"));
  }
  return ir::Parse(
      absl::StrCat("program p(a: f32[", n, ", ", n, "], b: f32[", n, ", ", n, "]) -> (y: f32[", n,
                   ", ", n, "]) { for i in ", n, " { for j in ", n, " { for r in ", n,
                   " { block dot(x < ", n, " spatial = i, z < ", n, " spatial = j, q < ", n,
                   " reduce = r) sum init 0.0 { y[x, z] = (a[x, q] * b[q, z]) } } } } }"));
}

int Main(int argc, char** argv) {
  if (argc < 2) return Fail(absl::InvalidArgumentError("name a workload"));
  const std::string arch = argc > 2 ? argv[2] : "sm_90";
  const auto naive = Workload(argv[1]);
  if (!naive.ok()) return Fail(naive.status());
  const auto space = schedule::MakeSpace(*naive, GpuTarget(arch));
  if (!space.ok()) return Fail(space.status());
  schedule::Point point = (*space)->Preferred();
  if (argc > 3 && std::strchr(argv[3], ',') != nullptr) {
    point.clear();
    for (const absl::string_view choice : absl::StrSplit(argv[3], ','))
      point.push_back(std::atoi(std::string(choice).c_str()));
  } else if (argc > 3) {
    schedule::Rng rng(std::strtoull(argv[3], nullptr, 10));
    do {
      point = (*space)->Random(rng);
    } while (!(*space)->Expand(point).ok());
  }
  const auto trace = (*space)->Expand(point);
  if (!trace.ok()) return Fail(trace.status());
  for (int k = 0; k < (*space)->NumDecisions(); ++k)
    std::printf("%s: %d of %d\n", (*space)->Describe(k).c_str(), point[k], (*space)->Choices(k));
  std::printf("%s", schedule::ToText(*trace).c_str());
  const auto lowered = LowerForGpu(*naive, *trace);
  if (!lowered.ok()) return Fail(lowered.status());
  std::printf("%s\n", ir::Print(*lowered).c_str());
  std::string source;
  const auto artifact =
      codegen::CompileCuda({*lowered}, *ParseTarget("cuda -arch=" + arch), {.source = &source});
  std::printf("%s\n", source.c_str());
  if (!artifact.ok()) return Fail(artifact.status());
  if (argc > 4) std::ofstream(argv[4], std::ios::binary) << artifact->shared_object;
  for (const runtime::GpuLaunch& launch : artifact->kernels[0].launches) {
    std::printf("%s: %ld blocks of %ld threads, %ld bytes shared, %d registers, %ld spilled\n",
                launch.symbol.c_str(), launch.grid[0], launch.block[0],
                launch.static_shared_bytes + launch.dynamic_shared_bytes, launch.registers,
                launch.local_bytes);
  }
  return 0;
}

}  // namespace
}  // namespace heddle::testing

int main(int argc, char** argv) { return heddle::testing::Main(argc, argv); }
