// A job for a GPU that nobody has, with build workers only: its tasks are there, their candidates
// are built, and it says what it waits for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/time/clock.h"
#include "client/service_client.h"
#include "client/zoo/zoo.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/runtime/cuda/driver.h"
#include "tests/cluster/mini_cluster.h"
#include "tests/places.h"

namespace heddle {
namespace {

using client::ServiceClient;
using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(120);
constexpr char kTarget[] = "cuda -arch=sm_90";

class GpuJobTest : public ::testing::Test {
 protected:
  GpuJobTest() : limit_(absl::Now() + kLimit) {
    setenv("HEDDLE_CODE_CACHE", cluster_.File("code").c_str(), 1);
    cluster_.StartTracker();
    cluster_.StartWorker();
    cluster_.StartScheduler();
    client_ = std::make_unique<ServiceClient>(cluster_.scheduler_address());
    const absl::Status serving = client_->WaitUntilServing(absl::Seconds(60));
    EXPECT_TRUE(serving.ok()) << serving;
  }
  void TearDown() override {
    if (HasFailure()) std::cerr << cluster_.Logs();
  }

  std::string Submit() {
    v1::JobSpec spec;
    spec.set_name("mlp");
    spec.set_target(kTarget);
    spec.set_trials_per_task(8);
    spec.set_batch(4);
    spec.set_strategy("random");
    spec.set_seed(1);
    const auto job = client_->Submit(spec, zoo::MakeZooModel("mlp", 1).value());
    EXPECT_TRUE(job.ok()) << job.status();
    return job.value_or("");
  }

  // The job once its reason contains `text`, or as it is at the end of patience.
  v1::Job WaitFor(const std::string& id, const std::string& text) {
    v1::Job job;
    while (absl::Now() < limit_) {
      const auto now = client_->GetJob(id);
      if (now.ok()) job = *now;
      if (job.reason().find(text) != std::string::npos) break;
      absl::SleepFor(absl::Milliseconds(100));
    }
    return job;
  }

  static std::string Contents(const std::string& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  MiniCluster cluster_;
  std::unique_ptr<ServiceClient> client_;
  const absl::Time limit_;
};

TEST_F(GpuJobTest, BuildsAndSaysThatNoDeviceIsThere) {
  const auto nvrtc = codegen::CudaBackend().FindToolchain();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status();
  const std::string id = Submit();
  const v1::Job job = WaitFor(id, "no device");
  EXPECT_EQ(job.reason(), std::string("waiting: no device of key ") + kTarget +
                              "; start heddle-worker --profile cuda:0 on such a host");
  EXPECT_EQ(job.state(), v1::JOB_TUNING);
  ASSERT_GT(job.tasks_size(), 0);
  for (const v1::TaskStatus& task : job.tasks()) {
    EXPECT_EQ(task.first_error(), "") << "a candidate did not build";
    EXPECT_THAT(task.doing(), HasSubstr("no device of key"));
  }
  EXPECT_FALSE(std::filesystem::is_empty(cluster_.File("code"))) << "the worker keeps its code";
  // Then somebody brings a GPU: one that answers every launch with an error that ends the process
  // (tests/runtime/fake_cuda.h). What was built goes there; candidates fail, each in a child of its
  // own, and the worker stays. It holds the GPU's clock until it ends.
  setenv(runtime::kCudaDriverVariable, HEDDLE_BIN_DIR "/../lib/libheddle_fake_cuda.so", 1);
  setenv("HEDDLE_FAKE_CUDA_FAIL", "cuLaunchKernel:1:700", 1);
  setenv("HEDDLE_NVML", HEDDLE_BIN_DIR "/../lib/libheddle_fake_nvml.so", 1);
  const std::string clocks = cluster_.File("clocks.log");
  setenv("HEDDLE_FAKE_NVML_LOG", clocks.c_str(), 1);
  Process gpu;
  gpu.Start({HEDDLE_BIN_DIR "/heddle-worker", "--tracker", cluster_.tracker_address(), "--id", "g",
             "--profile", "cuda:0", "--gpu-clock", "1200"},
            cluster_.File("worker.log"));
  v1::Job tried;
  while (absl::Now() < limit_ && tried.trials() <= job.trials() + 1) {
    absl::SleepFor(absl::Milliseconds(100));
    if (const auto now = client_->GetJob(id); now.ok()) tried = *now;
  }
  EXPECT_GT(tried.trials(), job.trials() + 1);
  for (const v1::TaskStatus& task : tried.tasks()) {
    EXPECT_EQ(task.failed(), task.trials());
    if (task.trials() == 0) continue;
    // Its process gave up: the same process would say the same of every later launch.
    EXPECT_THAT(task.first_error(), HasSubstr("exit status 4"));
    EXPECT_THAT(task.first_error(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  }
  EXPECT_TRUE(gpu.Running());
  EXPECT_EQ(Contents(clocks), "lock 1200 1200\n");
  EXPECT_EQ(gpu.Terminate(), 0);
  EXPECT_EQ(Contents(clocks), "lock 1200 1200\nunlock\n");
}

// Nobody has to name the GPU of a machine that does everything itself.
TEST(EmbeddedGpuTest, TheServiceOfOneMachineOffersItsGpu) {
  std::string folder = ::testing::TempDir() + "/embedded-gpu-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  Process scheduler;
  scheduler.Start({HEDDLE_BIN_DIR "/heddle-scheduler", "--embedded", "--listen",
                   "unix:" + folder + "/socket", "--data", folder + "/data"},
                  folder + "/log",
                  {"HEDDLE_CUDA_DRIVER=" HEDDLE_BIN_DIR "/../lib/libheddle_fake_cuda.so",
                   "HEDDLE_NVML=" HEDDLE_BIN_DIR "/../lib/libheddle_fake_nvml.so",
                   "HEDDLE_FAKE_CUDA_FAIL=", "HEDDLE_MACHINE=table"});
  const ServiceClient client("unix:" + folder + "/socket");
  const absl::Time limit = absl::Now() + absl::Seconds(60);
  std::string targets;
  while (absl::Now() < limit && targets.find("cuda") == std::string::npos) {
    absl::SleepFor(absl::Milliseconds(100));
    const auto devices = client.ListDevices();
    if (!devices.ok()) continue;
    targets.clear();
    for (const v1::WorkerStatus& worker : devices->workers()) {
      for (const v1::SlotStatus& slot : worker.slots())
        targets += slot.slot().target() + " " + slot.slot().device_key() + "\n";
    }
  }
  EXPECT_THAT(targets, HasSubstr("cuda -arch=sm_90 fake-gpu-12-gb-sm_90\n"));
  scheduler.Terminate();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace heddle
