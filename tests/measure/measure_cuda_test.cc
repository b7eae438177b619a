// Candidates measured on a GPU, with a driver without one in place (tests/runtime/fake_cuda.h):
// what a right kernel costs, and how wrong ones are found out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "compiler/measure/measure.h"
#include "compiler/runtime/cuda/driver.h"
#include "tests/runtime/fake_cuda.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

// y[i] = a[i] * b[i].
constexpr int kLength = 100;
constexpr char kWorkload[] = R"(program scale(a: f32[100], b: f32[100] const) -> (y: f32[100]) {
  for i in 100 {
    block y_block(vi < 100 spatial = i) {
      y[vi] = (a[vi] * b[vi])
    }
  }
}
)";

class MeasureCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv(runtime::kCudaDriverVariable, HEDDLE_FAKE_CUDA, 1);
    fake_ = &test::FakeCuda(HEDDLE_FAKE_CUDA);
    *fake_ = {};
    options_.device = "cuda:0";
    options_.timing.repeats = 3;
    options_.timing.min_repeat = absl::Microseconds(200);
    fake_->launch_ns = [](const test::FakeLaunch&) { return 20000.0; };
    fake_->on_launch = [this](const test::FakeLaunch& launch) { Compute(launch); };
  }
  void TearDown() override {
    bench_.reset();
    EXPECT_EQ(fake_->sticky == 0 ? fake_->Leaks() : "", "");
  }

  // "kernel_0" multiplies; "pack_0" negates b, which "packed_0" multiplies by negatively.
  void Compute(const test::FakeLaunch& launch) {
    const auto data = [&](int i) {
      return reinterpret_cast<float*>(*static_cast<runtime::CuPointer*>(launch.arguments[i]));
    };
    for (int i = 0; i < written_; ++i) {
      if (launch.symbol == "kernel_0") data(2)[i] = data(0)[i] * data(1)[i] + wrong_;
      if (launch.symbol == "pack_0") data(1)[i] = -data(0)[i];
      if (launch.symbol == "packed_0") data(2)[i] = data(0)[i] * -data(1)[i];
    }
  }

  absl::StatusOr<Measurement> Run(const codegen::Artifact& artifact) {
    if (bench_ == nullptr) {
      auto bench = WorkloadBench::Create(kWorkload, options_);
      if (!bench.ok()) return bench.status();
      bench_ = *std::move(bench);
    }
    return bench_->Run(artifact);
  }

  static codegen::KernelInfo Kernel(const std::string& symbol,
                                    const std::vector<std::string>& arguments) {
    codegen::KernelInfo info;
    info.symbol = symbol;
    runtime::GpuLaunch& launch = info.launches.emplace_back();
    launch.symbol = symbol + "_0";
    for (const std::string& name : arguments) {
      launch.arguments.push_back({static_cast<int>(info.arguments.size()), 0});
      info.arguments.push_back({name, kLength * 4});
    }
    return info;
  }
  static codegen::Artifact Plain() {
    codegen::Artifact artifact;
    artifact.shared_object = test::FakeCubin();
    artifact.kernels = {Kernel("kernel", {"a", "b", "y"})};
    return artifact;
  }

  test::FakeCudaState* fake_ = nullptr;
  MeasureOptions options_;
  std::unique_ptr<WorkloadBench> bench_;
  int written_ = kLength;
  float wrong_ = 0;
};

TEST_F(MeasureCudaTest, RightKernelsAreTimedColdAndLeaveNothing) {
  const auto first = Run(Plain());
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->timing.samples_ns.size(), 3u);
  for (const double ns : first->timing.samples_ns) EXPECT_NEAR(ns, 20000, 20);
  EXPECT_EQ(first->max_error, 0);
  EXPECT_GT(fake_->Count("cuMemsetD8Async"), 3);
  const int uploads = fake_->Count("cuMemcpyHtoDAsync_v2"),
            allocations = fake_->Count("cuMemAlloc_v2");
  ASSERT_TRUE(Run(Plain()).ok());
  EXPECT_EQ(fake_->Count("cuMemcpyHtoDAsync_v2") - uploads, 2) << "y alone, for each check";
  EXPECT_EQ(fake_->Count("cuMemAlloc_v2"), allocations) << "the pool has it all";
  EXPECT_EQ(fake_->modules, 0);
}

TEST_F(MeasureCudaTest, ConstantsArePrepackedOnTheDevice) {
  codegen::Artifact artifact = Plain();
  artifact.kernels = {Kernel("packed", {"a", "b.packed", "y"}), Kernel("pack", {"b", "b.packed"})};
  const auto result = Run(artifact);
  ASSERT_TRUE(result.ok()) << result.status();
}

TEST_F(MeasureCudaTest, ADeviceOfNoKindIsRefused) {
  options_.device = "nuda:0";
  const auto bench = WorkloadBench::Create(kWorkload, options_);
  EXPECT_TRUE(absl::IsInvalidArgument(bench.status())) << bench.status();
  EXPECT_THAT(std::string(bench.status().message()), HasSubstr("'nuda:0' is no device"));
}

TEST_F(MeasureCudaTest, WrongAndUnwrittenResultsAreFound) {
  wrong_ = 0.5f;
  EXPECT_THAT(std::string(Run(Plain()).status().message()), HasSubstr("wrong result: output 0"));
  wrong_ = 0;
  written_ = 99;
  EXPECT_THAT(std::string(Run(Plain()).status().message()), HasSubstr("[99] is not written"));
  written_ = kLength;
  EXPECT_TRUE(Run(Plain()).ok());
}

TEST_F(MeasureCudaTest, ArtifactsThatDoNotFitAreRefused) {
  const auto refused = [&](void (*spoil)(codegen::Artifact&)) {
    codegen::Artifact artifact = Plain();
    spoil(artifact);
    return absl::IsInvalidArgument(Run(artifact).status());
  };
  EXPECT_TRUE(refused([](codegen::Artifact& a) { a.shared_object = "no cubin"; }));
  EXPECT_TRUE(refused([](codegen::Artifact& a) { a.kernels.clear(); }));
  EXPECT_TRUE(refused([](codegen::Artifact& a) { a.kernels[0].arguments[0].name = "x"; }));
  EXPECT_TRUE(refused([](codegen::Artifact& a) { a.kernels[0].arguments[0].bytes = 4; }));
  EXPECT_TRUE(refused([](codegen::Artifact& a) { a.kernels[0].launches.clear(); }));
  EXPECT_TRUE(refused([](codegen::Artifact& a) { a.kernels[0].launches[0].symbol = "missing"; }));
}

TEST_F(MeasureCudaTest, AStickyErrorIsNobodysWrongResult) {
  fake_->failures["cuLaunchKernel"] = {4, 700};
  EXPECT_TRUE(absl::IsAborted(Run(Plain()).status()));
  EXPECT_TRUE(absl::IsAborted(Run(Plain()).status()));
}

TEST_F(MeasureCudaTest, TimesThatNoGpuReachesAreRefused) {
  fake_->launch_ns = [](const test::FakeLaunch&) { return 1e-6; };
  EXPECT_THAT(std::string(Run(Plain()).status().message()), HasSubstr("suspiciously fast"));
}

}  // namespace
}  // namespace heddle
