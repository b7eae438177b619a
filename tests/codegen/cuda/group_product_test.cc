// Products of four warps (wgmma): schedules that make them against the plain program, by the
// interpreter and by the CUDA C++ that the back end writes, run on this CPU with shared memory read
// as the descriptors say; what the compiler makes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/codegen/cuda/emitter.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"
#include "compiler/machine/group_products.h"
#include "compiler/schedule/trace.h"
#include "tests/codegen/cuda/cuda_on_host.h"
#include "tests/codegen/cuda/gpu_testing.h"
#include "tests/codegen/cuda/tensor_programs.h"

namespace heddle::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;
using ::testing::Not;

// Random decisions, but those whose description ends with one of these words are given.
using Given = std::vector<std::pair<std::string, int>>;
schedule::Point Draw(const schedule::Space& space, schedule::Rng& rng, const Given& given) {
  schedule::Point point = space.Random(rng);
  for (int k = 0; k < space.NumDecisions(); ++k) {
    if (space.Describe(k) == "form") point[k] = 1;
    for (const auto& [what, choice] : given) {
      if (space.Describe(k).find(what) != std::string::npos)
        point[k] = choice < 0 ? space.Choices(k) - 1 : choice;
    }
  }
  return point;
}

const Given kFourWarps = {{"four warps together", 1}, {"step ", -1}};

// A random schedule with products of four warps.
schedule::Trace GroupTrace(const ir::Program& naive, schedule::Rng& rng, Given given = {}) {
  given.insert(given.end(), kFourWarps.begin(), kFourWarps.end());
  const auto space = schedule::MakeSpace(naive, GpuTarget());
  EXPECT_TRUE(space.ok()) << space.status();
  absl::StatusOr<schedule::Trace> trace;
  for (int tries = 0; tries < 3000; ++tries) {
    trace = (*space)->Expand(Draw(**space, rng, given));
    if (trace.ok()) return *trace;
  }
  ADD_FAILURE() << trace.status() << ir::Print(naive);
  return {};
}

std::string SourceOf(const ir::Program& lowered, const std::string& arch = "sm_90") {
  const auto kernel = codegen::EmitCuda(lowered, "k", machine::MakesGroupProducts(GpuTarget(arch)));
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  return kernel.ok() ? kernel->source : "";
}

// Two products, one for each b, without an epilogue.
ir::Program Batch() {
  auto program = ir::Parse(
      "program p(a: f16[2, 128, 320], b: f16[2, 320, 64]) -> (y: f32[2, 128, 64]) {\n"
      " for g in 2 { for i in 128 { for j in 64 { for r in 320 { block dot(h < 2 spatial = g, "
      "x < 128 spatial = i, z < 64 spatial = j, q < 320 reduce = r) sum init 0.0 { y[h, x, z] = "
      "(f32(a[h, x, q]) * f32(b[h, q, z])) } } } } } }");
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

// HEDDLE_SEED=n draws other points.
TEST(GroupProduct, ComputesTheSame) {
  const char* seed = std::getenv("HEDDLE_SEED");
  schedule::Rng rng(seed ? std::strtoull(seed, nullptr, 10) : 1);
  std::vector<ir::Program> naive;
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (int way = 0; way < 4; ++way) {
      const bool a_transposed = way % 2 == 1, b_transposed = way / 2 == 1;
      // Terms: one step, two parts, four parts.
      naive.push_back(Product({type, 64, 64, 64, a_transposed, b_transposed}));
      naive.push_back(Product({type, 128, 64, 128, a_transposed, b_transposed, true}));
      naive.push_back(Product({type, 64, 128, 320, a_transposed, b_transposed}));
    }
  }
  naive.push_back(Product({DType::kF16, 64, 24, 320, false, true}));  // half a panel of columns
  naive.push_back(Batch());
  std::vector<ir::Program> lowered;
  std::vector<std::string> about;
  int late = 0, boxes = 0, both = 0;
  for (size_t k = 0; k < naive.size(); ++k) {
    // Where there are 128 columns, they lie in two panels, and one product has them all.
    const bool wide = naive[k].outputs[0]->shape.back() == 128;
    const schedule::Trace trace =
        GroupTrace(naive[k], rng, wide ? Given{{"tiles j", -1}} : Given{});
    about.push_back(absl::StrCat(ir::Print(naive[k]), schedule::ToText(trace)));
    auto result = LowerForGpu(naive[k], trace);
    ASSERT_TRUE(result.ok()) << result.status() << about[k];
    if (k % 5 == 2) {  // takes long
      const absl::Status status = CheckGpuProgram(naive[k], *result, k);
      ASSERT_TRUE(status.ok()) << status << about[k];
    }
    const std::string source = SourceOf(*result);
    ASSERT_THAT(source, HasSubstr("h_group<")) << about[k] << ir::Print(*result);
    ASSERT_THAT(source, Not(HasSubstr("h_product_"))) << about[k];
    ASSERT_THAT(SourceOf(*result, "sm_80"), Not(HasSubstr("h_group")));
    late += source.find("h_group_wait<1>") != std::string::npos;
    boxes += source.find("h_box(") != std::string::npos;
    both +=
        source.find("h_box(") != std::string::npos && source.find("h_async") == std::string::npos;
    result->name = absl::StrCat("p", k);
    lowered.push_back(*std::move(result));
  }
  EXPECT_GT(late, 4) << "products hardly ever overlap with the fetches of the next step";
  EXPECT_GT(boxes, 12) << "tiles are hardly ever copied as boxes";
  EXPECT_GT(both, 8);
  for (const char* arch : {"sm_80", "sm_90"}) {
    const absl::Status compiled = CompileForGpu(lowered, arch);
    EXPECT_TRUE(compiled.ok()) << compiled;
    const auto host = CudaOnHost::Compile(lowered, arch);
    if (absl::IsUnavailable(host.status())) GTEST_SKIP() << host.status().message();
    ASSERT_TRUE(host.ok()) << host.status();
    for (size_t k = 0; k < lowered.size(); ++k) {
      if (arch == std::string("sm_80") && k % 7 != 1) continue;
      const std::vector<HostTensor> inputs = MakeInputs(naive[k], k);
      std::vector<HostTensor> expected = MakeOutputs(naive[k]), found = MakeOutputs(naive[k]);
      ASSERT_TRUE(RunInterpreter(naive[k], inputs, expected).ok());
      absl::Status status = (*host)->Run(k, inputs, found);
      if (status.ok()) status = Compare(naive[k], expected, found);
      EXPECT_TRUE(status.ok()) << arch << ": " << status << "\n"
                               << about[k] << ir::Print(lowered[k]);
    }
  }
}

TEST(GroupProduct, IsWhatADefaultScheduleMakes) {
  for (const int64_t n : {1024, 4096}) {
    const std::string source = SourceOf(Default({DType::kF16, n, n, n}));
    EXPECT_THAT(source, HasSubstr(n == 4096 ? "h_group<256, h_f16, 0, 1>" : "h_group<")) << source;
    EXPECT_THAT(source, HasSubstr("h_group_wait<1>();")) << source;
    // One thread fetches, and nothing else stores where the tensor cores read.
    EXPECT_THAT(source, HasSubstr("h_box(")) << source;
    EXPECT_THAT(source, Not(HasSubstr("h_async"))) << source;
    EXPECT_THAT(source, Not(HasSubstr("h_group_publish"))) << source;
  }
  // Other architectures have no such products, and where rows or terms do not fit, sm_90 has none.
  const ir::Program naive = Product({DType::kF16, 1024, 1024, 1024});
  const auto trace = schedule::DefaultTrace(naive, GpuTarget("sm_80"));
  ASSERT_TRUE(trace.ok());
  EXPECT_THAT(SourceOf(*LowerForGpu(naive, *trace, "sm_80"), "sm_80"), Not(HasSubstr("h_group")));
  EXPECT_THAT(SourceOf(Default({DType::kF16, 48, 64, 64})), Not(HasSubstr("h_group")));
  EXPECT_THAT(SourceOf(Default({DType::kF16, 64, 64, 96})), Not(HasSubstr("h_group")));
  EXPECT_THAT(SourceOf(Default({DType::kF32, 64, 64, 64})), Not(HasSubstr("h_group")));
}

// The parameters after the buffers are maps, and the code says of which matrices and boxes.
TEST(GroupProduct, TakesMapsOfItsOperands) {
  const auto kernel = codegen::EmitCuda(Default({DType::kF16, 4096, 4096, 4096}), "k", true);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const std::vector<runtime::GpuArgument>& arguments = kernel->launches[0].arguments;
  ASSERT_EQ(arguments.size(), 6u);                        // y, b, a, c
  EXPECT_EQ(arguments[4], (runtime::GpuArgument{1, 0}));  // b: boxes of a step's 64 terms
  EXPECT_EQ(arguments[5], (runtime::GpuArgument{0, 0}));  // a: of a block's 128 rows
  EXPECT_THAT(kernel->source,
              HasSubstr("int k_0_boxes[] = {4, 4096, 4096, 64, 5, 4096, 4096, 128};"));
  EXPECT_THAT(kernel->source, HasSubstr("const __grid_constant__ h_map _b_shared_buf_map, "
                                        "const __grid_constant__ h_map _a_shared_buf_map)"));
}

// A part that is filled twice before it is read, or never, would be waited for in vain.
TEST(GroupProduct, WhatIsNotFilledOnceForEachStepIsNoBox) {
  schedule::Rng rng(1);
  const ir::Program naive = Product({DType::kF16, 64, 64, 512});
  const auto lowered = LowerForGpu(naive, GroupTrace(naive, rng, {{"parts of the sums", 0}}));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const std::string text = ir::Print(*lowered);
  ASSERT_THAT(SourceOf(*lowered), HasSubstr("h_box(")) << text;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    EXPECT_NE(changed.find(from), std::string::npos) << from << text;
    for (size_t k = 0; (k = changed.find(from, k)) != std::string::npos; k += to.size())
      changed.replace(k, from.size(), to);
    const auto program = ir::Parse(changed);
    EXPECT_TRUE(program.ok()) << program.status() << changed;
    return program.ok() ? SourceOf(*program) : "";
  };
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"+ 2) % 4)", "+ 1) % 4)"},  // not the part of that step
      {"+ 2) < 8)", "+ 2) < 7)"},  // not in all steps
      {"+ 2) < 8)", "+ 1) < 8)"}};
  for (const auto& [from, to] : changes) {
    const std::string source = with(from, to);
    EXPECT_THAT(source, Not(HasSubstr("h_box("))) << from << to << source;
    EXPECT_THAT(source, HasSubstr("h_async")) << from << to << source;
    EXPECT_THAT(source, HasSubstr("h_group_publish();")) << from << to << source;
  }
}

// With a product that runs during the next step, a fetch goes where neither of the two reads.
TEST(GroupProduct, NoFetchComesEarlier) {
  schedule::Rng rng(1);
  const ir::Program naive = Product({DType::kF16, 64, 64, 512});
  const auto lowered = LowerForGpu(naive, GroupTrace(naive, rng, {{"parts of the sums", 0}}));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ASSERT_THAT(SourceOf(*lowered), HasSubstr("h_group_wait<1>();")) << ir::Print(*lowered);
  // Each fetch of the loop stores into part (k + 2) % 4: with + 3, the last product still reads that.
  std::string text = ir::Print(*lowered);
  const size_t at = text.find("+ 2) % 4)");
  ASSERT_NE(at, std::string::npos) << text;
  for (size_t k = at; k != std::string::npos; k = text.find("+ 2) % 4)", k)) text[k + 2] = '3';
  const auto early = ir::Parse(text);
  ASSERT_TRUE(early.ok()) << early.status();
  const std::string source = SourceOf(*early);
  EXPECT_THAT(source, HasSubstr("h_group<"));
  EXPECT_THAT(source, Not(HasSubstr("h_group_wait<1>();")));
}

TEST(GroupProduct, CompilesWithoutSpillsOrSerialisation) {
  if (!HasNvrtc()) GTEST_SKIP() << codegen::CudaBackend().FindToolchain().status().message();
  for (const int way : {0, 1, 2, 3}) {
    const ir::Program lowered =
        Default({DType::kF16, 4096, 4096, 4096, way % 2 == 1, way / 2 == 1, way == 3});
    std::string source, log;
    const auto artifact = codegen::CompileCuda({lowered}, *ParseTarget("cuda -arch=sm_90"),
                                               {.source = &source, .log = &log});
    ASSERT_TRUE(artifact.ok()) << artifact.status() << source;
    EXPECT_THAT(source, HasSubstr("h_group<256, ")) << source;
    // The runtime needs the table, which no code uses.
    const bool boxes = source.find("h_box(&") != std::string::npos;
    EXPECT_TRUE(boxes || way != 0) << source;
    EXPECT_EQ(artifact->shared_object.find("_boxes") != std::string::npos, boxes) << source;
    // The assembler says so where it lets products wait for each other, or adds waits.
    EXPECT_THAT(log, Not(HasSubstr("serialized"))) << source;
    EXPECT_THAT(log, Not(HasSubstr("injected"))) << source;
    for (const runtime::GpuLaunch& launch : artifact->kernels[0].launches) {
      EXPECT_GT(launch.registers, 128);
      EXPECT_EQ(launch.local_bytes, 0) << source;
    }
  }
}

}  // namespace
}  // namespace heddle::testing
