// A model with external data through real processes: submitted twice, with kills and damage between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"
#include "client/modules/model_file.h"
#include "client/service_client.h"
#include "client/zoo/zoo.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/onnx/format/onnx_format.pb.h"
#include "compiler/runtime/executor.h"
#include "proto/job_states.h"
#include "tests/cluster/mini_cluster.h"
#include "tests/driver/run_model.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using client::ModelFile;
using client::ServiceClient;
using client::Upload;
using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(180);

class LargeModelTest : public ::testing::Test {
 protected:
  LargeModelTest() : limit_(absl::Now() + kLimit) {
    cluster_.StartTracker();
    cluster_.StartWorker();
    StartScheduler();
    // The zoo's model with all its weights in a file beside it.
    onnx::ModelProto m;
    EXPECT_TRUE(m.ParseFromString(zoo::MakeZooModel("mlp", 1).value()));
    fs::create_directories(cluster_.File("model"));
    std::ofstream data(cluster_.File("model/weights.bin"), std::ios::binary);
    for (onnx::TensorProto& t : *m.mutable_graph()->mutable_initializer()) {
      const std::pair<const char*, std::string> entries[] = {
          {"location", "weights.bin"},
          {"offset", std::to_string(data.tellp())},
          {"length", std::to_string(t.raw_data().size())}};
      data << t.raw_data();
      for (const auto& [key, value] : entries) {
        t.add_external_data()->set_key(key);
        t.mutable_external_data()->rbegin()->set_value(value);
      }
      t.set_data_location(onnx::TensorProto::EXTERNAL);
      t.clear_raw_data();
    }
    data.close();
    std::ofstream(path(), std::ios::binary) << m.SerializeAsString();
    auto model = client::OpenModel(path());
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    EXPECT_GT(model_.parts.size(), 1u);
  }
  void TearDown() override {
    if (HasFailure()) std::cerr << cluster_.Logs();
  }

  std::string path() const { return cluster_.File("model/model.onnx"); }
  void StartScheduler() {
    cluster_.StartScheduler();
    client_ = std::make_unique<ServiceClient>(cluster_.scheduler_address());
    const absl::Status serving = client_->WaitUntilServing(absl::Seconds(60));
    EXPECT_TRUE(serving.ok()) << serving;
  }
  static v1::JobSpec Spec() {
    v1::JobSpec spec;
    spec.set_name("mlp");
    spec.set_target(ToText(codegen::ResolveTarget(Target{}).value()));
    spec.set_trials_per_task(2);
    spec.set_batch(2);
    spec.set_strategy("random");
    return spec;
  }
  std::string Submit(const ModelFile& model, Upload* upload) {
    const auto job = client_->Submit(Spec(), model.onnx, model.parts,
                                     [upload](const Upload& now) { *upload = now; });
    EXPECT_TRUE(job.ok()) << job.status();
    return job.value_or("");
  }
  v1::Job WaitFinal(const std::string& id) {
    v1::Job job;
    while (absl::Now() < limit_ && !IsFinal(job.state())) {
      const auto now = client_->GetJob(id);
      if (now.ok()) job = *now;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return job;
  }
  void CheckModule(const std::string& job) {
    const auto bytes = client_->FetchModule(job, v1::SCHEDULE_BEST);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_LT(static_cast<int64_t>(bytes->size()), 2 * model_.part_bytes)
        << "weights are there once";
    auto module = runtime::ParseModule(*bytes);
    ASSERT_TRUE(module.ok()) << module.status();
    const std::vector<std::string> inputs = RandomInputs(module->manifest, 3);
    ModelOptions options;
    options.import.external = model_.Loader();
    const auto expected = InterpretModel(model_.onnx, options, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto found = RunModule(*std::move(module), inputs);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_LT(RelativeError((*found)[0], (*expected)[0]), 1e-4);
  }

  const absl::Time limit_;
  MiniCluster cluster_;
  std::unique_ptr<ServiceClient> client_;
  ModelFile model_;
};

TEST_F(LargeModelTest, OnlyWhatIsNewTravels) {
  Upload upload;
  const std::string first = Submit(model_, &upload);
  EXPECT_EQ(upload.sent_bytes, model_.part_bytes);
  const v1::Job done = WaitFinal(first);
  ASSERT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  CheckModule(first);

  // Nothing travels, also to a scheduler that was killed.
  cluster_.scheduler.Kill();
  StartScheduler();
  const std::string second = Submit(model_, &upload);
  EXPECT_EQ(upload.parts, 0);
  EXPECT_EQ(upload.sent_bytes, 0);
  EXPECT_EQ(WaitFinal(second).state(), v1::JOB_DONE);

  // One changed weight: its part travels.
  {
    std::fstream data(cluster_.File("model/weights.bin"), std::ios::in | std::ios::out);
    data.seekp(model_.parts[0].offset);
    data.write("\0\0\0\0", 4);
  }
  const auto changed = client::OpenModel(path());
  ASSERT_TRUE(changed.ok()) << changed.status();
  const std::string third = Submit(*changed, &upload);
  EXPECT_EQ(upload.parts, 1);
  EXPECT_EQ(upload.sent_bytes, model_.parts[0].bytes);
  EXPECT_EQ(WaitFinal(third).state(), v1::JOB_DONE);
  // The digests of `model_` are no longer those of its file.
  fs::remove_all(cluster_.File("data/blobs/" + model_.parts[0].digest.substr(0, 2)));
  EXPECT_TRUE(absl::IsDataLoss(client_->Submit(Spec(), model_.onnx, model_.parts).status()));
}

TEST_F(LargeModelTest, AKilledUploadGoesOn) {
  // The scheduler ends when the second part begins.
  bool killed = false;
  const auto broken = client_->Submit(Spec(), model_.onnx, model_.parts, [&](const Upload& now) {
    if (killed || now.sent_bytes <= model_.parts[0].bytes) return;
    // The first one is stored before the scheduler takes the second.
    const std::string& digest = model_.parts[0].digest;
    const std::string stored = cluster_.File("data/blobs/" + digest.substr(0, 2) + "/" + digest);
    while (!fs::exists(stored) && absl::Now() < limit_) absl::SleepFor(absl::Milliseconds(1));
    cluster_.scheduler.Kill();
    killed = true;
  });
  ASSERT_TRUE(killed);
  EXPECT_TRUE(absl::IsUnavailable(broken.status())) << broken.status();
  StartScheduler();
  Upload upload;
  const std::string job = Submit(model_, &upload);
  EXPECT_LT(upload.parts, static_cast<int>(model_.parts.size()));
  EXPECT_EQ(WaitFinal(job).state(), v1::JOB_DONE);
}

TEST_F(LargeModelTest, ADamagedPartIsNamedAndHeals) {
  Upload upload;
  cluster_.worker.Kill();
  const std::string job = Submit(model_, &upload);
  const std::string& digest = model_.parts[0].digest;
  {
    std::fstream blob(cluster_.File("data/blobs/" + digest.substr(0, 2) + "/" + digest),
                      std::ios::in | std::ios::out);
    blob.seekp(100);
    blob.write("damage", 6);
  }
  cluster_.StartWorker();
  const v1::Job failed = WaitFinal(job);
  EXPECT_EQ(failed.state(), v1::JOB_FAILED);
  EXPECT_THAT(failed.reason(), HasSubstr("damaged on disk; submit the model again"));
  const std::string again = Submit(model_, &upload);
  EXPECT_EQ(upload.parts, 1);
  const v1::Job done = WaitFinal(again);
  ASSERT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  CheckModule(again);
}

}  // namespace
}  // namespace heddle
