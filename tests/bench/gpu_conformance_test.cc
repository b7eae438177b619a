// What `bench/run.sh cuda` checks before it measures, with a compiler and a driver without a GPU in
// place (tests/codegen/cuda/fake_nvrtc.cc, tests/runtime/fake_cuda.h): code for this CPU, run in
// children.
#include "bench/cuda/conformance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"
#include "bench/common/line_server.h"
#include "bench/cuda/model.h"
#include "bench/cuda/report.h"
#include "compiler/codegen/backend.h"
#include "compiler/ir/text.h"
#include "compiler/runtime/cuda/driver.h"
#include "tests/codegen/cuda/host_code.h"
#include "tests/runtime/fake_cuda.h"

namespace heddle::bench {
namespace {

using ::testing::HasSubstr;

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

  static Target Sm90() { return *ParseTarget("cuda -arch=sm_90"); }
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
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
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

TEST_F(GpuConformance, WhatThereIsNoTimeForIsLeftOut) {
  for (const absl::Status& status : CheckConformance(Few(), Sm90(), "cuda:0", {0}, absl::Now()))
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

TEST_F(GpuConformance, AModelOnTheGpuThatIsAskedFor) {
  std::string code = std::filesystem::temp_directory_path() / "heddle-code-XXXXXX";
  ASSERT_NE(mkdtemp(code.data()), nullptr);
  setenv("HEDDLE_CODE_CACHE", code.c_str(), 1);  // compiled once
  const auto times = TimeModel("mlp", Sm90(), "cuda:0", {});
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_LE(times->relative_error, times->tolerance);
  EXPECT_GT(times->tolerance, 0);
  EXPECT_GT(times->tuned_us, 0);
  const auto other = TimeModel("mlp", Sm90(), "cuda:1", {});
  EXPECT_FALSE(other.ok()) << "there is one GPU";
  fake_->on_launch = [](const test::FakeLaunch& launch) {  // what is written comes first
    reinterpret_cast<float*>(*static_cast<runtime::CuPointer*>(launch.arguments[0]))[0] += 10.0f;
  };
  const auto wrong = TimeModel("mlp", Sm90(), "cuda:0", {});
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  EXPECT_GT(wrong->relative_error, wrong->tolerance);
  unsetenv("HEDDLE_CODE_CACHE");
  std::filesystem::remove_all(code);
}

// As it is after each step; and no half of it in its place.
TEST(GpuReport, IsKept) {
  std::string folder = std::filesystem::temp_directory_path() / "heddle-report-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  GpuReport report(folder + "/x.json");
  for (const int step : {1, 2}) {
    report.fields()["step"] = step;
    ASSERT_TRUE(report.Save().ok());
    std::ifstream file(folder + "/x.json");
    EXPECT_EQ(nlohmann::json::parse(file).at("step"), step);
  }
  EXPECT_FALSE(std::filesystem::exists(folder + "/x.json.tmp"));
  const absl::Status nowhere = GpuReport(folder + "/no/x.json").Save();
  EXPECT_THAT(std::string(nowhere.message()), HasSubstr("no/x.json"));
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(GpuReport("").Save().ok()) << "of no file";
}

}  // namespace
}  // namespace heddle::bench
