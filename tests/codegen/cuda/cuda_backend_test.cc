// The CUDA back end: what it makes of programs, and what it says of those it refuses. Nothing here
// runs on a GPU; without NVRTC the tests that compile skip.
#include <gtest/gtest.h>

#include <filesystem>

#include "bench/cuda/conformance.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/codegen/cuda/gpu_arch.h"
#include "compiler/driver/compile.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/insert_barriers.h"
#include "compiler/pass/lower.h"
#include "tests/codegen/cuda/gpu_testing.h"
#include "tests/schedule/workloads.h"

namespace heddle::testing {
namespace {

#define HEDDLE_NEEDS_NVRTC() \
  if (!HasNvrtc()) GTEST_SKIP() << codegen::CudaBackend().FindToolchain().status().message()

ir::Program Parsed(const std::string& text, ir::Level level = ir::Level::kLowered) {
  auto program = ir::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status() << text;
  EXPECT_TRUE(ir::Verify(*program, level).ok()) << ir::Verify(*program, level) << text;
  return *program;
}

Target Sm90() { return *ParseTarget("cuda -arch=sm_90"); }

int Barriers(const ir::Program& program) {
  int count = 0;
  ir::VisitStmt(program.body, [&](const ir::Stmt& s) {
    count += ir::As<ir::Barrier>(s) != nullptr;
    return true;
  });
  return count;
}

// Without the n-th barrier.
ir::Program WithoutBarrier(const ir::Program& program, int n) {
  int seen = 0;
  ir::Program result = program;
  result.body = ir::RewriteStmt(program.body, [&](const ir::Stmt& s) -> ir::Stmt {
    if (ir::As<ir::Barrier>(s) != nullptr && seen++ == n) return nullptr;
    return s;
  });
  return result;
}

// ---- Barriers

TEST(Barriers, EveryOneIsNeeded) {
  for (const char* name : {"8x8-32k3s1", "14x16-32k1s1"}) {
    const ir::Program naive = *schedule::MakeWorkload(name);
    const auto trace = schedule::DefaultTrace(naive, GpuTarget());
    ASSERT_TRUE(trace.ok()) << trace.status();
    const auto lowered = LowerForGpu(naive, *trace);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const absl::Status whole = CheckGpuProgram(naive, *lowered, 1);
    ASSERT_TRUE(whole.ok()) << whole;
    ASSERT_GT(Barriers(*lowered), 0) << ir::Print(*lowered);
    for (int n = 0; n < Barriers(*lowered); ++n) {
      const absl::Status status = CheckGpuProgram(naive, WithoutBarrier(*lowered, n), 1);
      EXPECT_NE(status.message().find("without a barrier"), absl::string_view::npos) << status;
    }
  }
}

// The conformance suite with race detection: as it is no case has one, without a barrier each has.
TEST(Barriers, ConformanceCasesNeedEveryOne) {
  int all = 0;
  for (const bench::ConformanceText& text : bench::ConformanceTexts()) {
    const ir::Program program = Parsed(text.text, ir::Level::kScheduled);
    const auto lowered = LowerForGpu(program, {});
    ASSERT_TRUE(lowered.ok()) << text.name << lowered.status();
    const absl::Status whole = CheckGpuProgram(program, *lowered, 1);
    EXPECT_TRUE(whole.ok()) << text.name << whole;
    for (int n = 0; n < Barriers(*lowered); ++n) {
      const absl::Status status = CheckGpuProgram(program, WithoutBarrier(*lowered, n), 1);
      EXPECT_NE(status.message().find("without a barrier"), absl::string_view::npos)
          << text.name << " without barrier " << n << status;
    }
    all += Barriers(*lowered);
  }
  EXPECT_GE(all, 4);
}

TEST(Barriers, OneAnIterationForTwoBuffers) {
  const char* const program = R"(program p(x: f32[5, 8]) -> (y: f32[4, 8]) {
    for b in 1 blockIdx.x { alloc s: f32[2, 8] shared {
      for t in 8 threadIdx.x { s[0, t] = x[0, t] }
      for k in 4 {
        for u in 8 threadIdx.x { s[((k + 1) % 2), u] = x[(k + 1), u] }
        for v in 8 threadIdx.x { y[k, v] = s[(k % 2), (7 - v)] }
      } } } })";
  const ir::Program placed = pass::InsertBarriers(Parsed(program));
  EXPECT_EQ(Barriers(placed), 1) << ir::Print(placed);
  EXPECT_TRUE(CheckGpuProgram(placed, placed, 1).ok()) << CheckGpuProgram(placed, placed, 1);
  EXPECT_FALSE(CheckGpuProgram(placed, WithoutBarrier(placed, 0), 1).ok());
}

// The barrier that the loop's own accesses want stands before that for y, which it makes needless;
// what the iteration then leaves behind wants another.
TEST(Barriers, OneThatMovesLeavesMoreBehind) {
  const ir::Program placed = pass::InsertBarriers(Parsed(R"(
  program p(x: f32[4, 8]) -> (out: f32[4, 8], out2: f32[4, 8]) {
    for b in 1 blockIdx.x { alloc u: f32[2, 8] shared { alloc y: f32[8] shared {
      alloc z: f32[2, 8] shared {
      for s in 8 threadIdx.x { u[1, s] = 0.0 z[1, s] = 0.0 }
      barrier
      for t in 8 threadIdx.x { y[t] = x[0, t] }
      for k in 4 {
        for t1 in 8 threadIdx.x { u[(k % 2), t1] = x[k, t1] }
        for t2 in 8 threadIdx.x {
          out2[k, t2] = u[((k + 1) % 2), (7 - t2)]
          z[(k % 2), t2] = x[k, t2] }
        for t3 in 8 threadIdx.x { out[k, t3] = (y[(7 - t3)] + z[((k + 1) % 2), (7 - t3)]) }
      } } } } } })"));
  const absl::Status status = CheckGpuProgram(placed, placed, 1);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(Barriers, NoneWhereNothingIsShared) {
  const ir::Program placed = pass::InsertBarriers(Parsed(R"(program p(x: f32[4, 8]) -> (y: f32[8]) {
    for b in 1 blockIdx.x { alloc r: f32[8] local {
      for t in 8 threadIdx.x { r[t] = 0.0 }
      for k in 4 { for u in 8 threadIdx.x { r[u] = (r[u] + x[k, u]) } }
      for v in 8 threadIdx.x { y[v] = r[v] } } } })"));
  EXPECT_EQ(Barriers(placed), 0) << ir::Print(placed);
  EXPECT_TRUE(CheckGpuProgram(placed, placed, 1).ok());
}

// ---- Compiling

TEST(Cuda, ConformanceCasesCompile) {
  HEDDLE_NEEDS_NVRTC();
  std::vector<ir::Program> programs;
  for (const bench::ConformanceText& text : bench::ConformanceTexts()) {
    auto lowered = LowerForGpu(Parsed(text.text, ir::Level::kScheduled), {});
    ASSERT_TRUE(lowered.ok()) << text.name << lowered.status();
    programs.push_back(*std::move(lowered));
  }
  for (const char* arch : {"sm_80", "sm_90"}) {
    const absl::Status status = CompileForGpu(programs, arch);
    EXPECT_TRUE(status.ok()) << status;
  }
}

// Of every type, and every conversion.
TEST(Cuda, OperatorsCompile) {
  HEDDLE_NEEDS_NVRTC();
  std::vector<ir::Program> programs;
  for (const ir::Program& program : bench::OperatorPrograms()) {
    auto lowered = LowerForGpu(program, {});
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    programs.push_back(*std::move(lowered));
  }
  EXPECT_GT(programs.size(), 200u);
  for (const char* arch : {"sm_80", "sm_90"}) {
    const absl::Status status = CompileForGpu(programs, arch);
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(Cuda, DefaultSchedulesOfRealOperatorsCompile) {
  HEDDLE_NEEDS_NVRTC();
  for (const char* name : {"C1", "C2", "C7", "C12", "D1", "D9", "M1", "M2", "MT", "S", "P", "E"}) {
    const std::string workload = ir::Print(*schedule::MakeWorkload(name));
    const auto artifact = BuildCandidate(workload, ScheduleChoice::kDefault, "", Sm90());
    ASSERT_TRUE(artifact.ok()) << name << artifact.status();
    for (const codegen::KernelInfo& kernel : artifact->kernels) {
      for (const runtime::GpuLaunch& launch : kernel.launches) {
        EXPECT_GT(launch.registers, 0) << name;
        EXPECT_EQ(launch.local_bytes, 0) << name << ": registers were spilled";
        EXPECT_GT(launch.block[0], 1) << name << " runs in single threads";
      }
    }
  }
}

TEST(Cuda, LaunchesFollowTheProgram) {
  HEDDLE_NEEDS_NVRTC();
  const ir::Program program = Parsed(R"(program p(x: f32[4, 8]) -> (y: f32[4, 8]) {
    alloc g: f32[4, 8] global {
      for b in 4 blockIdx.x { for t in 8 threadIdx.x { g[b, t] = (x[b, t] + 1.0) } }
      for c in 2 blockIdx.y { alloc s: f32[16] shared {
        for u in 16 threadIdx.x { s[u] = g[((c * 2) + (u // 8)), (u % 8)] }
        barrier
        for v in 16 threadIdx.x { y[((c * 2) + (v // 8)), (v % 8)] = s[(15 - v)] } } } } })");
  const auto artifact = codegen::CompileCuda({program}, Sm90());
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  const codegen::KernelInfo& kernel = artifact->kernels[0];
  EXPECT_EQ(kernel.symbol, "p");
  EXPECT_EQ(kernel.workspace_bytes, 256);
  ASSERT_EQ(kernel.launches.size(), 2u);
  const runtime::GpuLaunch &first = kernel.launches[0], &second = kernel.launches[1];
  EXPECT_EQ(first.grid, (std::array<int64_t, 3>{4, 1, 1}));
  EXPECT_EQ(second.grid, (std::array<int64_t, 3>{1, 2, 1}));
  EXPECT_EQ(second.block, (std::array<int64_t, 3>{16, 1, 1}));
  EXPECT_EQ(second.static_shared_bytes, 64);
  ASSERT_EQ(first.arguments.size(), 2u);
  EXPECT_EQ(first.arguments[0], (runtime::GpuArgument{-1, 0}));
  EXPECT_EQ(first.arguments[1], (runtime::GpuArgument{0, 0}));
  EXPECT_EQ(second.arguments[0], (runtime::GpuArgument{1, 0}));
}

// The CUDA C++, of a workload that of its default schedule; no NVRTC is needed for it.
std::string SourceOf(const ir::Program& lowered) {
  std::string source;
  (void)codegen::CompileCuda({lowered}, Sm90(), {.source = &source});
  return source.substr(std::min(source.find("__global__"), source.size()));
}
std::string SourceOf(const std::string& name) {
  const ir::Program naive = *schedule::MakeWorkload(name);
  const auto trace = schedule::DefaultTrace(naive, GpuTarget());
  EXPECT_TRUE(trace.ok()) << trace.status();
  const auto lowered = LowerForGpu(naive, *trace);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return SourceOf(*lowered);
}

// Models lay an output over an input that it may overwrite (pass/overwrite.h).
TEST(Cuda, OnlyWhatLiesAloneIsRestricted) {
  const std::string source = SourceOf(Parsed(R"(
  program p(x: f32[4, 8], r: f32[4, 8], c: f32[8]) -> (y: f32[4, 8]) {
    for b in 4 blockIdx.x { for t in 8 threadIdx.x {
      y[b, t] = max(((x[b, t] + r[b, t]) + c[t]), 0.0) } } })"));
  for (const char* alone : {"* _x", "* _r", "* _y", "* __restrict__ _c"})
    EXPECT_NE(source.find(alone), std::string::npos) << alone << "\n" << source;
}

TEST(Cuda, LocalsAreSpreadOnlyWhereEachThreadKeepsToItsOwn) {
  const auto spread = [](const std::string& body) {
    const auto artifact = codegen::CompileCuda(
        {Parsed("program p(x: f32[256]) -> (y: f32[256]) { for b in 1 blockIdx.x { "
                "alloc m: f32[256] local { " +
                body + " } } }")},
        Sm90());
    if (artifact.status().code() == absl::StatusCode::kUnimplemented) {
      EXPECT_NE(artifact.status().message().find("not spread evenly"), absl::string_view::npos);
      return false;
    }
    return true;
  };
  EXPECT_TRUE(spread(R"(for t in 32 threadIdx.x { for i in 4 { m[((t * 4) + i)] = x[t] } }
                        for u in 32 threadIdx.x { for j in 4 { y[u] = m[((u * 4) + (3 - j))] } })"));
  // Virtual threads lie above the threads.
  EXPECT_TRUE(spread(R"(for v in 2 vthread { for t in 32 threadIdx.x { for i in 4 {
                          m[((v * 128) + ((t * 4) + i))] = x[t] } } }
                        for u in 32 threadIdx.x { for j in 2 { y[u] = m[((j * 128) + (u * 4))] } })"));
  // Neighbours' elements.
  EXPECT_FALSE(spread(R"(for t in 32 threadIdx.x { for i in 4 { m[((t * 4) + i)] = x[t] } }
                         for u in 30 threadIdx.x { for j in 6 { y[u] = m[((u * 4) + j)] } })"));
  EXPECT_FALSE(spread(R"(for t in 32 threadIdx.x { for i in 4 { m[((t * 4) + i)] = x[t] } }
                         for u in 31 threadIdx.x { for j in 4 { y[u] = m[(((u * 4) + j) + 1)] } })"));
  // What the first thread has, and what several store.
  EXPECT_FALSE(spread("m[0] = x[3] for t in 32 threadIdx.x { y[t] = m[0] }"));
  EXPECT_FALSE(spread(R"(for t in 32 threadIdx.x { m[(t // 4)] = x[(t // 4)] }
                         for u in 32 threadIdx.x { y[u] = m[(u // 4)] })"));
}

// Other lanes have not what the first thread keeps for itself.
TEST(Cuda, WarpsAddWhatAllLanesHave) {
  const char* const program = R"(program p(x: f32[64]) -> (y: f32[1]) {
    for b in 1 blockIdx.x { alloc m: f32[1] local { alloc s: f32[1] local {
      for t in 32 threadIdx.x { alloc unused: f32[1] local { unused[0] = x[t] } }
      m[0] = x[5]
      s[0] = 0.0
      for k in 64 { s[0] = (s[0] + (x[k] - M)) }
      y[0] = s[0] } } } })";
  const auto with = [&](const std::string& m) {
    std::string text = program;
    text.replace(text.find("- M"), 3, "- " + m);
    return SourceOf(Parsed(text));
  };
  EXPECT_NE(with("x[5]").find("__shfl"), std::string::npos) << with("x[5]");
  EXPECT_EQ(with("m[0]").find("__shfl"), std::string::npos) << with("m[0]");
}

TEST(Cuda, CopiesAreAsynchronousOnlyOfWhatIsNotWritten) {
  const char* const program = R"(program p(x: f32[8]) -> (y: f32[8], z: f32[8]) {
    for b in 1 blockIdx.x { alloc s: f32[8] shared {
      for t in 8 threadIdx.x { y[t] = x[t] s[t] = FROM[t] y[t] = 0.0 }
      barrier
      for u in 8 threadIdx.x { z[u] = s[(7 - u)] } } } })";
  const auto from = [&](const std::string& buffer) {
    std::string text = program;
    text.replace(text.find("FROM"), 4, buffer);
    return SourceOf(Parsed(text));
  };
  EXPECT_NE(from("x").find("h_async4("), std::string::npos) << from("x");
  EXPECT_EQ(from("y").find("h_async4("), std::string::npos) << from("y");
}

TEST(Cuda, UsesWhatGpusHave) {
  const std::string convolution = SourceOf("C1");
  for (const char* word : {"__shared__", "h_async16(", "h_async_wait()", "__syncthreads()",
                           "#pragma unroll", "__launch_bounds__", "float4"}) {
    EXPECT_NE(convolution.find(word), std::string::npos) << word << "\n" << convolution;
  }
  const std::string softmax = SourceOf("S");
  EXPECT_NE(softmax.find("__shfl_xor_sync"), std::string::npos) << softmax;
}

// ---- Limits

TEST(Cuda, LimitsAreCheckedBeforeCompiling) {
  const auto refused = [](const std::string& text) {
    return codegen::CompileCuda({Parsed(text)}, Sm90()).status();
  };
  absl::Status status = refused(R"(program p(x: f32[64, 64]) -> (y: f32[64, 64]) {
    for b in 1 blockIdx.x { for t in 64 threadIdx.x { for u in 64 threadIdx.y {
      y[t, u] = x[t, u] } } } })");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "exceeds the limits of sm_90: 4096 threads in a block, 1024 are allowed");
  status = refused(R"(program p(x: f32[128]) -> (y: f32[128]) {
    for b in 1 blockIdx.x { for t in 128 threadIdx.z { y[t] = x[t] } } })");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "exceeds the limits of sm_90: 128 threads along one axis, 64 are allowed");
  status = refused(R"(program p(x: f32[65536]) -> (y: f32[65536]) {
    for b in 1 blockIdx.x { alloc s: f32[65536] shared { for t in 64 threadIdx.x { for u in 1024 {
      s[((t * 1024) + u)] = x[((t * 1024) + u)] } }
      for t2 in 64 threadIdx.x { for u2 in 1024 { y[((t2 * 1024) + u2)] = s[((t2 * 1024) + u2)] } }
    } } })");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "exceeds the limits of sm_90: 262144 bytes of shared memory in a "
            "block, 232448 are allowed");
  status = refused(R"(program p(x: f32[512]) -> (y: f32[512]) {
    for b in 1 blockIdx.x { for t in 1 threadIdx.x { alloc r: f32[512] local {
      for u in 512 { r[u] = x[u] } for v in 512 { y[v] = r[v] } } } } })");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(Cuda, UnknownArchitecture) {
  auto target = ParseTarget("cuda -arch=sm_12345");
  ASSERT_TRUE(target.ok());
  const std::string workload = ir::Print(*schedule::MakeWorkload("E"));
  const auto artifact = BuildCandidate(workload, ScheduleChoice::kDefault, "", *target);
  EXPECT_EQ(artifact.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(artifact.status().message(),
            "target: -arch=sm_12345 is not known; known are sm_80, sm_86, sm_89, sm_90, sm_100, "
            "sm_120");
}

// Run with HEDDLE_NVRTC naming nothing (CMakeLists.txt).
TEST(CudaAbsent, SaysWhereItLooked) {
  const char* file = std::getenv("HEDDLE_NVRTC");
  if (file == nullptr || std::filesystem::exists(file)) GTEST_SKIP() << "NVRTC is not hidden";
  const absl::Status status =
      BuildCandidate(ir::Print(*schedule::MakeWorkload("E")), ScheduleChoice::kDefault, "", Sm90())
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(file), absl::string_view::npos) << status;
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
}

// Run with a driver older than every NVRTC (CMakeLists.txt).
TEST(CudaOldDriver, IsTold) {
  HEDDLE_NEEDS_NVRTC();
  if (std::getenv("HEDDLE_FAKE_CUDA_VERSION") == nullptr) GTEST_SKIP() << "no old driver";
  const auto nvrtc = codegen::CudaBackend().FindToolchain();
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  EXPECT_EQ(
      nvrtc->warning.find("the driver here knows CUDA 9 and loads nothing that " + nvrtc->version),
      0u)
      << nvrtc->warning;
}

// Run once with a driver and once without any (CMakeLists.txt).
TEST(CudaNative, IsTheFirstGpuOfThisMachine) {
  const char* driver = std::getenv("HEDDLE_CUDA_DRIVER");
  if (driver == nullptr) GTEST_SKIP() << "what this machine has is not known here";
  const auto target = codegen::ResolveTarget(*ParseTarget("cuda -tf32=on"));
  if (std::filesystem::exists(driver)) {
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_EQ(ToText(*target), "cuda -arch=sm_90 -tf32=on");
    return;
  }
  EXPECT_EQ(target.status().code(), absl::StatusCode::kInvalidArgument);
  for (const char* part : {"-arch=native is this machine's GPU", "no CUDA driver", "-arch=sm_90"})
    EXPECT_NE(target.status().message().find(part), absl::string_view::npos) << target.status();
  EXPECT_EQ(target.status().message().find('\n'), absl::string_view::npos);
}

}  // namespace
}  // namespace heddle::testing
