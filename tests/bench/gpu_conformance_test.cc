// What `bench/run.sh cuda` checks before it measures, with a compiler and a driver without a GPU in
// place (tests/codegen/fake_nvrtc.cc, tests/runtime/fake_cuda.h): code for this CPU, run in
// children.
#include "bench/gpu_conformance.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "bench/line_server.h"
#include "compiler/codegen/target_info.h"
#include "compiler/ir/text.h"
#include "compiler/runtime/cuda_driver.h"
#include "tests/codegen/host_code.h"
#include "tests/runtime/fake_cuda.h"

namespace heddle::bench {
namespace {

class GpuConformance : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!heddle::testing::HasHostCompiler())
      GTEST_SKIP() << "the C++ compiler of the build is gone";
    setenv("HEDDLE_NVRTC", HEDDLE_LIB_DIR "/libheddle_fake_nvrtc.so", 1);
    setenv(runtime::kCudaDriverVariable, HEDDLE_LIB_DIR "/libheddle_fake_cuda.so", 1);
    fake_ = &test::FakeCuda(HEDDLE_LIB_DIR "/libheddle_fake_cuda.so");
    *fake_ = {};
  }

  static ir::Target Sm90() { return *ir::ParseTarget("cuda -arch=sm_90"); }
  // Of one launch each.
  static std::vector<ir::Program> Few() {
    std::vector<ir::Program> all = OperatorPrograms();
    return {all.begin(), all.begin() + 3};
  }

  test::FakeCudaState* fake_ = nullptr;  // children have its copy
};

TEST_F(GpuConformance, EveryCaseAndOperator) {
  const auto programs = ConformancePrograms();
  ASSERT_TRUE(programs.ok()) << programs.status();
  EXPECT_GT(ConformanceTexts().size(), 30u);
  EXPECT_GT(programs->size(), ConformanceTexts().size() + 200);
  const auto statuses = CheckConformance(*programs, Sm90(), "cuda:0", AllowedCpus());
  ASSERT_EQ(statuses.size(), programs->size());
  for (size_t k = 0; k < statuses.size(); ++k)
    EXPECT_TRUE(statuses[k].ok()) << statuses[k] << ir::Print((*programs)[k]);
}

TEST_F(GpuConformance, AWrongElementIsSeen) {
  std::vector<ir::Program> product;
  const std::vector<ir::Program> all = *ConformancePrograms();
  for (const ir::Program& program : all) {
    if (program.name == "matmul_naive") product.push_back(program);
  }
  ASSERT_EQ(product.size(), 1u);
  const absl::Status right = CheckConformance(product, Sm90(), "cuda:0", {0})[0];
  EXPECT_TRUE(right.ok()) << right;
  fake_->on_launch = [](const test::FakeLaunch& launch) {  // what is written comes first
    reinterpret_cast<float*>(*static_cast<runtime::CuPointer*>(launch.arguments[0]))[7] += 0.5f;
  };
  const absl::Status status = CheckConformance(product, Sm90(), "cuda:0", {0})[0];
  EXPECT_FALSE(status.ok());
}

// The second of three launches spoils its process's use of the GPU.
TEST_F(GpuConformance, AnErrorCostsItsProgramAlone) {
  fake_->failures["cuLaunchKernel"] = {2, 700};
  const auto statuses = CheckConformance(Few(), Sm90(), "cuda:0", {0});
  ASSERT_EQ(statuses.size(), 3u);
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  EXPECT_TRUE(absl::IsAborted(statuses[1])) << statuses[1];
  EXPECT_TRUE(statuses[2].ok()) << statuses[2];
}

TEST_F(GpuConformance, SchedulesOfAnOperator) {
  const auto info = codegen::DescribeTarget(Sm90());
  ASSERT_TRUE(info.ok());
  const auto checked =
      CheckSchedules(FindWorkloads("32x16x32f16")->at(0), *info, "cuda:0", AllowedCpus());
  EXPECT_GE(checked.size(), 2u);
  for (const auto& [trace, status] : checked) EXPECT_TRUE(status.ok()) << status << "\n" << trace;
}

}  // namespace
}  // namespace heddle::bench
