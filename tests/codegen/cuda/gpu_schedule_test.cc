// Random programs x random points of their GPU spaces: interpreted with race detection on small
// shapes against the naive program, and compiled to sm_90 where NVRTC is there.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/ir/text.h"
#include "compiler/schedule/trace.h"
#include "tests/codegen/cuda/gpu_testing.h"
#include "tests/codegen/typed_programs.h"
#include "tests/schedule/random_programs.h"
#include "tests/schedule/workloads.h"

namespace heddle::testing {
namespace {

constexpr int kSchedules = 520;
constexpr size_t kBatch = 16;  // programs compiled together

ir::Program Product(int64_t m, int64_t n, int64_t k, bool transposed) {
  auto program = ir::Parse(absl::StrCat(
      "program p(a: f32[", m, ", ", k, "], b: f32[", transposed ? n : k, ", ", transposed ? k : n,
      "] const, c: f32[", n, "]) -> (y: f32[", m, ", ", n, "]) {\n", "alloc s: f32[", m, ", ", n,
      "] global {\n for i in ", m, " { for j in ", n, " { for r in ", k, " { block dot(x < ", m,
      " spatial = i, z < ", n, " spatial = j, q < ", k,
      " reduce = r) sum init 0.0 { s[x, z] = (a[x, q] * b[", transposed ? "z, q" : "q, z",
      "]) } } } }\n for i2 in ", m, " { for j2 in ", n, " { block add(x2 < ", m,
      " spatial = i2, z2 < ", n,
      " spatial = j2) { y[x2, z2] = max((s[x2, z2] + c[z2]), 0.0) } } } } }"));
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

ir::Program RowSums(int64_t rows, int64_t columns) {
  auto program = ir::Parse(absl::StrCat("program p(a: f32[", rows, ", ", columns, "]) -> (y: f32[",
                                        rows, "]) { for i in ", rows, " { for r in ", columns,
                                        " { block total(x < ", rows, " spatial = i, q < ", columns,
                                        " reduce = r) sum init 0.0 { y[x] = a[x, q] } } } }"));
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

ir::Program Draw(int kind, schedule::Rng& rng) {
  const auto among = [&](std::initializer_list<int64_t> values) {
    return values.begin()[rng() % values.size()];
  };
  switch (kind) {
    case 0:
      if (rng() % 3 == 0) return Product(1, among({256, 320}), among({32, 64}), false);
      return Product(among({16, 33, 64}), among({32, 48, 64}), among({16, 40, 72}), rng() % 2);
    case 1: {
      const char* const names[] = {"8x8-16k3s1", "9x6-32k3s2", "14x16-8k1s1", "7x4-24k3s1"};
      return *schedule::MakeWorkload(names[rng() % std::size(names)]);
    }
    case 2: {
      const char* const names[] = {"14x8-0k3s1", "9x16-0k3s2"};
      return *schedule::MakeWorkload(names[rng() % std::size(names)]);
    }
    case 3:
      return RowSums(among({1, 5, 12}), among({64, 96, 512}));
    case 4: {
      bool any_order = false;
      return *RandomTypedProgram(rng, &any_order);
    }
    default:
      return *schedule::RandomProgram(rng);
  }
}

// All results in one block: the fetch's threads then write within the period of its steps, and
// virtual threads lie around them.
TEST(GpuSchedule, OneBlockWithVirtualThreads) {
  const ir::Program naive = Product(1, 256, 32, false);
  for (const int v : {1, 2, 4}) {
    const auto trace = schedule::ParseTrace(absl::StrCat(
        "set_scope dot local\nsplit j 1 ", v, " 64 ", 4 / v,
        "\nsplit r 4 8\nreorder i j.0 r.0 j.2 r.1 j.1 j.3\nfuse i j.0\n"
        "reverse_compute_at add i*j.0\ncache_read dot b shared\ncompute_at b.shared r.0\n"
        "fuse b.shared@r.0.0 b.shared@r.0.1\n"
        "split b.shared@r.0.0*b.shared@r.0.1 16 64 2\n"
        "reorder b.shared@r.0.0*b.shared@r.0.1.1 b.shared@r.0.0*b.shared@r.0.1.0\n"
        "bind b.shared@r.0.0*b.shared@r.0.1.1 threadIdx.x\n"
        "vectorize b.shared@r.0.0*b.shared@r.0.1.2\nbind i*j.0 blockIdx.x\n"
        "bind j.2 threadIdx.x\nbind add@i*j.0.0 threadIdx.x\nbind j.1 vthread\n"
        "unroll j.3\ndecompose_reduction dot r.0\n"));
    ASSERT_TRUE(trace.ok()) << trace.status();
    const auto lowered = LowerForGpu(naive, *trace);
    ASSERT_TRUE(lowered.ok()) << v << " virtual threads: " << lowered.status();
    const absl::Status status = CheckGpuProgram(naive, *lowered, 1);
    EXPECT_TRUE(status.ok()) << status;
  }
}

// HEDDLE_SEED=n checks that one only.
TEST(GpuSchedule, ComputesWithoutRacesAndCompiles) {
  const char* one = std::getenv("HEDDLE_SEED");
  const machine::TargetInfo target = GpuTarget();
  std::map<std::string, int> infeasible;
  std::vector<ir::Program> batch;
  int checked = 0, bound = 0;
  for (uint64_t seed = one ? std::strtoull(one, nullptr, 10) : 1; checked < kSchedules; ++seed) {
    ASSERT_LT(seed, 20 * kSchedules) << "hardly a point of the spaces is feasible";
    schedule::Rng rng(seed);
    const ir::Program naive = Draw(static_cast<int>(seed % 6), rng);
    const auto space = schedule::MakeSpace(naive, target);
    ASSERT_TRUE(space.ok()) << space.status();
    const schedule::Point point = seed % 7 == 0 ? (*space)->Preferred() : (*space)->Random(rng);
    const auto trace = (*space)->Expand(point);
    if (!trace.ok()) {
      ++infeasible[absl::IsResourceExhausted(trace.status()) ? "exceeds the limits" : "refused"];
      ASSERT_NE(seed % 7, 0) << trace.status();
      ASSERT_TRUE(absl::IsFailedPrecondition(trace.status()) ||
                  absl::IsResourceExhausted(trace.status()))
          << trace.status();
      continue;
    }
    const std::string about =
        absl::StrCat("seed ", seed, "\n", ir::Print(naive), schedule::ToText(*trace));
    auto lowered = LowerForGpu(naive, *trace);
    ASSERT_TRUE(lowered.ok()) << lowered.status() << about;
    const absl::Status status = CheckGpuProgram(naive, *lowered, seed);
    ASSERT_TRUE(status.ok()) << status << about;
    bound += ir::Print(*lowered).find("blockIdx") != std::string::npos;
    lowered->name = absl::StrCat("s", seed);
    batch.push_back(*std::move(lowered));
    ++checked;
    if (batch.size() == kBatch || checked == kSchedules || one) {
      const absl::Status compiled = CompileForGpu(batch, "sm_90");
      ASSERT_TRUE(compiled.ok()) << compiled << about;
      batch.clear();
    }
    if (one) break;
  }
  std::printf("%d schedules without a race or a wrong result%s\n", checked,
              HasNvrtc() ? ", compiled to sm_90" : "; no NVRTC: not compiled");
  for (const auto& [why, times] : infeasible) std::printf("%5d x %s\n", times, why.c_str());
  // Hardly any program is without loops to bind.
  if (one == nullptr) {
    EXPECT_GT(bound, checked * 9 / 10);
    int refused = 0;
    for (const auto& [why, times] : infeasible) refused += times;
    EXPECT_LT(refused, checked / 10) << "random points are drawn within the limits";
  }
  if (!HasNvrtc())
    GTEST_SKIP() << checked << " schedules are right, none is compiled: "
                 << codegen::CudaBackend().FindToolchain().status().message();
}

}  // namespace
}  // namespace heddle::testing
