// build and profile for a GPU in this process, with a compiler, a driver and a management library
// without a GPU in place (tests/codegen/cuda/fake_nvrtc.cc, tests/runtime/fake_cuda.h,
// fake_nvml.cc): what is built is run, on this CPU, and checked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "compiler/runtime/cuda/driver.h"
#include "tests/codegen/cuda/host_code.h"
#include "tests/worker/fake_io.h"
#include "worker/stages/stages.h"

namespace heddle::worker {
namespace {

using ::testing::HasSubstr;

constexpr char kWorkload[] = R"(program scale(a: f32[4096], b: f32[4096] const) -> (y: f32[4096]) {
  for i in 4096 {
    block y_block(vi < 4096 spatial = i) {
      y[vi] = (a[vi] * b[vi])
    }
  }
}
)";
constexpr char kThreads[] = "split i 16 256\nbind i.0 blockIdx.x\nbind i.1 threadIdx.x\n";
constexpr char kTooManyThreads[] =
    "split i 1 64 64\nbind i.0 blockIdx.x\nbind i.1 threadIdx.x\nbind i.2 threadIdx.y\n";

TEST(GpuStages, WhatIsBuiltRunsAndIsMeasured) {
  if (!heddle::testing::HasHostCompiler()) GTEST_SKIP() << "the C++ compiler of the build is gone";
  setenv("HEDDLE_NVRTC", HEDDLE_LIB_DIR "/libheddle_fake_nvrtc.so", 1);
  setenv("HEDDLE_NVML", HEDDLE_LIB_DIR "/libheddle_fake_nvml.so", 1);
  setenv(runtime::kCudaDriverVariable, HEDDLE_LIB_DIR "/libheddle_fake_cuda.so", 1);
  v1::StageStart build;
  build.set_kind(v1::STAGE_BUILD);
  build.set_target("cuda -arch=sm_90");
  build.mutable_build()->set_workload(kWorkload);
  FakeIo building;
  for (const char* trace : {kThreads, kTooManyThreads}) {
    v1::Candidate* candidate = building.inputs.emplace_back().mutable_build()->mutable_candidate();
    candidate->set_id(static_cast<int64_t>(building.inputs.size()));
    candidate->set_trace(trace);
  }
  ASSERT_EQ(RunStage(build, building), absl::OkStatus());

  v1::StageStart profile;
  profile.set_kind(v1::STAGE_PROFILE);
  profile.set_target("cuda -arch=sm_90");
  profile.mutable_profile()->set_workload(kWorkload);
  profile.mutable_profile()->set_repeats(3);
  profile.mutable_profile()->set_min_repeat_us(10);
  profile.mutable_profile()->set_device("cuda:0");
  FakeIo profiling;
  for (const v1::StageEvent& event : building.events) {
    if (!event.has_built()) continue;
    if (event.built().candidate() == 2) {
      EXPECT_EQ(event.built().failure().outcome(), v1::OUTCOME_EXCEEDS_LIMITS);
      EXPECT_EQ(event.built().failure().message(),
                "exceeds the limits of sm_90: 4096 threads in a block, 1024 are allowed");
      continue;
    }
    ASSERT_TRUE(event.built().has_artifact()) << event.built().failure().message();
    v1::ProfileItem* item = profiling.inputs.emplace_back().mutable_profile();
    item->mutable_candidate()->set_id(1);
    *item->mutable_artifact() = event.built().artifact();
  }
  ASSERT_EQ(profiling.inputs.size(), 1u);
  ASSERT_EQ(RunStage(profile, profiling), absl::OkStatus());
  v1::Measurement measured;
  for (const v1::StageEvent& event : profiling.events) {
    if (event.has_profiled()) measured = event.profiled().measurement();
  }
  EXPECT_EQ(measured.outcome(), v1::OUTCOME_OK) << measured.message();
  EXPECT_EQ(measured.samples_ns_size(), 3);
  const v1::Evidence& evidence = measured.evidence();
  EXPECT_EQ(evidence.max_error(), 0);
  EXPECT_EQ(evidence.gpu_mhz(), 1500);
  EXPECT_EQ(evidence.gpu_memory_mhz(), 2600);
  EXPECT_EQ(evidence.temperature_celsius(), 61);
  EXPECT_EQ(evidence.driver(), "CUDA 13.0");
  EXPECT_THAT(evidence.disturbance(), HasSubstr("power cap"));
}

}  // namespace
}  // namespace heddle::worker
