// What the worker finds out about GPUs in processes of their own, with a driver and a compiler without a
// GPU in place (tests/runtime/fake_cuda.h, tests/codegen/cuda/fake_nvrtc.cc): stages are confined as
// those of jobs are.
#include "worker/stages/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/codegen/cuda/host_code.h"
#include "tests/places.h"
#include "worker/child/stage_child.h"

namespace heddle::worker {
namespace {

using ::testing::HasSubstr;

constexpr char kWorker[] = HEDDLE_BIN_DIR "/heddle-worker";

class GpusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    setenv("HEDDLE_CUDA_DRIVER", HEDDLE_LIB_DIR "/libheddle_fake_cuda.so", 1);
    setenv("HEDDLE_NVRTC", HEDDLE_LIB_DIR "/libheddle_fake_nvrtc.so", 1);
    setenv("HEDDLE_NVML", HEDDLE_LIB_DIR "/libheddle_fake_nvml.so", 1);
    unsetenv("HEDDLE_FAKE_CUDA_FAIL");
  }
  static absl::StatusOr<std::vector<Gpu>> Find() { return FindGpus({kWorker, kGpusFlag}); }
  // What `heddle-worker --check-gpus` prints, and its exit status.
  static std::string Check(int* status) {
    std::string text;
    FILE* pipe = popen(HEDDLE_BIN_DIR "/heddle-worker --check-gpus 2>&1", "r");
    char buffer[512];
    while (pipe != nullptr && fgets(buffer, sizeof(buffer), pipe) != nullptr) text += buffer;
    *status = pipe == nullptr ? -1 : WEXITSTATUS(pclose(pipe));
    return text;
  }
};

TEST_F(GpusTest, AreFoundWithTheirDescription) {
  const auto gpus = Find();
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_EQ(gpus->size(), 1u);
  EXPECT_EQ(gpus->front().name, "cuda:0");
  EXPECT_EQ(gpus->front().info.target, "cuda -arch=sm_90");
  EXPECT_EQ(gpus->front().info.key, "fake-gpu-12-gb-sm_90");
  EXPECT_EQ(gpus->front().info.name, "Fake GPU (12 GB)");
  EXPECT_EQ(gpus->front().info.driver, "CUDA 13.0");
  EXPECT_EQ(gpus->front().info.address, "0000:00:00.0");
}

TEST_F(GpusTest, NoDriverIsNoGpuAndABrokenOneIsTold) {
  setenv("HEDDLE_CUDA_DRIVER", "/nowhere/libcuda.so.1", 1);
  auto gpus = Find();
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  EXPECT_TRUE(gpus->empty());
  int status = -1;
  EXPECT_THAT(Check(&status), HasSubstr("no GPU: "));
  EXPECT_EQ(status, 0);
  setenv("HEDDLE_CUDA_DRIVER", HEDDLE_LIB_DIR "/libheddle_fake_cuda.so", 1);
  setenv("HEDDLE_FAKE_CUDA_FAIL", "cuInit:1:304", 1);
  gpus = Find();
  EXPECT_TRUE(absl::IsUnavailable(gpus.status()));
  EXPECT_THAT(std::string(gpus.status().message()), HasSubstr("CUDA_ERROR_OPERATING_SYSTEM"));
  EXPECT_THAT(Check(&status), HasSubstr("driver: "));
  EXPECT_EQ(status, 1);
}

// A driver that hangs: here, any program that does.
TEST_F(GpusTest, ADriverThatHangsIsGivenUp) {
  const auto gpus = FindGpus({"/bin/sh", "-c", "sleep 100"});
  EXPECT_TRUE(absl::IsUnavailable(gpus.status()));
  EXPECT_THAT(std::string(gpus.status().message()), HasSubstr("too long"));
}

TEST_F(GpusTest, ASmallKernelRunsInAConfinedStage) {
  if (!heddle::testing::HasHostCompiler()) GTEST_SKIP() << "the C++ compiler of the build is gone";
  const auto gpus = Find();
  ASSERT_TRUE(gpus.ok() && gpus->size() == 1) << gpus.status();
  GpuTrialOptions options;
  options.stage_command = {kWorker, kStageChildFlag};
  options.folder = ::testing::TempDir();
  const confine::Confinement all = confine::ParseConfinement("all").value();
  const confine::Confinement here = confine::Available(all, confine::ProbeConfinement(all));
  for (const confine::Confinement& how : {here, confine::Confinement()}) {
    options.confinement = how;
    const auto tried = TryGpu(gpus->front(), options);
    ASSERT_TRUE(tried.ok()) << confine::ToText(how) << ": " << tried.status();
    EXPECT_THAT(*tried, HasSubstr("a small kernel takes "));
  }
  int status = -1;
  EXPECT_THAT(Check(&status), HasSubstr("cuda:0: Fake GPU (12 GB), CUDA 13.0: ok: a small kernel"));
  EXPECT_EQ(status, 0);
  // The stage's process meets the error, and the one that lists the GPUs does not.
  setenv("HEDDLE_FAKE_CUDA_FAIL", "cuLaunchKernel:1:700", 1);
  const std::string said = Check(&status);
  EXPECT_THAT(said, HasSubstr(": problem: "));
  EXPECT_THAT(said, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_EQ(status, 1);
}

}  // namespace
}  // namespace heddle::worker
