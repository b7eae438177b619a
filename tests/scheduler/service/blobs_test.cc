// The parts of models: uploaded by digest, stored once, sent to workers, and removed when no job
// refers to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>

#include "base/sha256.h"
#include "scheduler/service/storage/blob_sweeper.h"
#include "tests/scheduler/service/service_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

class BlobsTest : public ServiceTest {
 protected:
  static v1::BlobList List(const std::vector<std::string>& blobs) {
    v1::BlobList list;
    for (const std::string& bytes : blobs) {
      list.add_blobs()->set_sha256(Sha256Hex(bytes));
      list.mutable_blobs()->rbegin()->set_bytes(static_cast<int64_t>(bytes.size()));
    }
    return list;
  }
  grpc::Status FindMissing(const v1::BlobList& list, v1::BlobList* missing) {
    grpc::ClientContext context;
    missing->Clear();
    return jobs_->FindMissingBlobs(&context, list, missing);
  }
  int CountMissing(const std::vector<std::string>& blobs) {
    v1::BlobList missing;
    const grpc::Status status = FindMissing(List(blobs), &missing);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return missing.blobs_size();
  }
  // `cut`: the last chunk does not arrive.
  grpc::Status Upload(const std::vector<std::string>& blobs, bool cut = false,
                      const std::string& name = "") {
    grpc::ClientContext context;
    v1::BlobList stored;
    auto writer = jobs_->UploadBlobs(&context, &stored);
    for (size_t k = 0; k < blobs.size(); ++k) {
      v1::Chunk chunk;
      chunk.set_name(name.empty() ? Sha256Hex(blobs[k]) : name);
      const size_t half = blobs[k].size() / 2;
      chunk.set_data(blobs[k].substr(0, half));
      writer->Write(chunk);
      if (cut && k + 1 == blobs.size()) break;
      chunk.set_data(blobs[k].substr(half));
      chunk.set_last(true);
      writer->Write(chunk);
    }
    writer->WritesDone();
    return writer->Finish();
  }
  grpc::Status SubmitWith(const v1::BlobList& parts, std::string* job,
                          const std::string& model = "a model") {
    grpc::ClientContext context;
    v1::SubmitResponse response;
    auto writer = jobs_->Submit(&context, &response);
    v1::SubmitRequest request;
    *request.mutable_spec() = Spec();
    request.mutable_spec()->set_no_comparison(true);  // its modules would travel as blobs, too
    writer->Write(request);
    *request.mutable_parts() = parts;
    writer->Write(request);
    request.mutable_chunk()->set_name("model");
    request.mutable_chunk()->set_data(model);
    request.mutable_chunk()->set_last(true);
    writer->Write(request);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    *job = response.job();
    return status;
  }
  std::string PathOf(const std::string& blob) {
    return BlobPath(directory_ + "/blobs", Sha256Hex(blob));
  }
  void MakeOld() {
    for (const BlobStore::Entry& entry : blobs_->List()) {
      std::filesystem::last_write_time(
          BlobPath(directory_ + "/blobs", entry.digest),
          std::filesystem::file_time_type::clock::now() - std::chrono::hours(25));
    }
  }

  const std::string a_ = std::string(100'000, 'a'), b_ = std::string(200'000, 'b');
};

TEST_F(BlobsTest, OnlyWhatIsMissingTravels) {
  EXPECT_EQ(CountMissing({a_, b_}), 2);
  EXPECT_TRUE(Upload({a_}).ok());
  v1::BlobList missing;
  ASSERT_TRUE(FindMissing(List({a_, b_}), &missing).ok());
  ASSERT_EQ(missing.blobs_size(), 1);
  EXPECT_EQ(missing.blobs(0).sha256(), Sha256Hex(b_));
  std::string job;
  const grpc::Status early = SubmitWith(List({a_, b_}), &job);
  EXPECT_EQ(early.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(early.error_message(), HasSubstr("1 of the model's 2 parts"));
  EXPECT_TRUE(Upload({b_}).ok());
  const grpc::Status status = SubmitWith(List({a_, b_}), &job);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(WaitFinal(job).state(), v1::JOB_DONE);
  EXPECT_EQ(cluster_.worker.blob_bytes, 300'000)
      << "import and compile need them; they travel once";
  ASSERT_TRUE(SubmitWith(List({a_, b_}), &job).ok());
  EXPECT_EQ(WaitFinal(job).state(), v1::JOB_DONE);
  EXPECT_EQ(cluster_.worker.blob_bytes, 300'000);
}

TEST_F(BlobsTest, ABrokenUploadKeepsWhatIsComplete) {
  EXPECT_EQ(Upload({a_, b_}, /*cut=*/true).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(CountMissing({a_, b_}), 1);
  Stop();
  Start();
  EXPECT_EQ(CountMissing({a_, b_}), 1) << "also after a restart";
  EXPECT_TRUE(std::filesystem::is_empty(directory_ + "/blobs/incoming"));
}

TEST_F(BlobsTest, JobsKeepTheirPartsOverARestart) {
  ASSERT_TRUE(Upload({a_}).ok());
  cluster_.behaviour.candidate_ms = 50;
  std::string job;
  ASSERT_TRUE(SubmitWith(List({a_}), &job).ok());
  Wait(job, [](const v1::Job& now) { return now.trials() > 0; });
  Stop();
  Start();
  const v1::Job done = WaitFinal(job);
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  EXPECT_FALSE(done.parts_digest().empty());
}

TEST_F(BlobsTest, WrongBytesAreNotStored) {
  EXPECT_EQ(Upload({a_}, false, Sha256Hex(b_)).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(Upload({a_}, false, "../../x").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CountMissing({a_, b_}), 2);
  v1::BlobList bad = List({a_}), missing;
  bad.mutable_blobs(0)->set_bytes(-1);
  EXPECT_EQ(FindMissing(bad, &missing).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  bad = List({a_});
  bad.mutable_blobs(0)->set_sha256("../../etc/passwd");
  EXPECT_EQ(FindMissing(bad, &missing).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  std::string job;
  EXPECT_EQ(SubmitWith(bad, &job).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// The fixture's service takes models of 2 MiB.
TEST_F(BlobsTest, TheLimitIsThatOfAllPartsTogether) {
  std::vector<std::string> blobs;
  for (char c : {'a', 'b', 'c'}) blobs.push_back(std::string(800'000, c));
  v1::BlobList missing;
  for (const grpc::Status& status : {FindMissing(List(blobs), &missing), Upload(blobs)}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("2 MiB (heddle-scheduler --max-model-mib)"));
  }
  blobs.pop_back();
  ASSERT_TRUE(Upload(blobs).ok());
  std::string job;
  EXPECT_EQ(SubmitWith(List(blobs), &job, std::string(600'000, 'm')).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(BlobsTest, WhatIsThereIsNotWrittenAgain) {
  ASSERT_TRUE(Upload({a_}).ok());
  struct stat before, after;
  ASSERT_EQ(stat(PathOf(a_).c_str(), &before), 0);
  ASSERT_TRUE(Upload({a_}).ok());
  ASSERT_EQ(stat(PathOf(a_).c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

TEST_F(BlobsTest, AnUploadHasSoManyBlobsAndNoEmptyOnes) {
  EXPECT_EQ(Upload({""}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_TRUE(Upload(std::vector<std::string>(100, "x")).ok());
  const grpc::Status status = Upload(std::vector<std::string>(32769, "x"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("32768 blobs"));
}

// The limit is twice that of a model.
TEST_F(BlobsTest, UploadsThatNoJobRefersToHaveALimit) {
  std::vector<std::string> blobs;
  for (char c : {'a', 'b', 'c'}) blobs.push_back(std::string(1'500'000, c));
  ASSERT_TRUE(Upload({blobs[0]}).ok());
  ASSERT_TRUE(Upload({blobs[0]}).ok()) << "it counts once";
  ASSERT_TRUE(Upload({blobs[1]}).ok());
  const grpc::Status status = Upload({blobs[2]});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("twice heddle-scheduler --max-model-mib"));
  EXPECT_THAT(status.error_message(), HasSubstr("submit what they are for"));
  std::string job;
  ASSERT_TRUE(SubmitWith(List({blobs[0]}), &job).ok());
  ASSERT_TRUE(Upload({blobs[2]}).ok()) << "the job's part counts no more";
  const std::string more(1'500'000, 'd');
  EXPECT_FALSE(Upload({more}).ok());
  WaitFinal(job);
  MakeOld();
  ASSERT_TRUE(SweepBlobs(store_.get(), {}, absl::Now(), blobs_.get()).ok());
  EXPECT_TRUE(Upload({more}).ok()) << "nor does what is gone";
}

// The limit is eight times that of a model.
TEST_F(BlobsTest, UploadsOfADayHaveALimitWhateverJobsReferToThem) {
  const auto blob = [](char c) { return std::string(1'900'000, c); };
  grpc::Status refused;
  char next = 'a';
  for (; next < 'z' && refused.ok(); ++next) {
    refused = Upload({blob(next)});
    if (!refused.ok()) continue;
    EXPECT_TRUE(next != 'a' || Upload({blob(next)}).ok()) << "it counts once";
    std::string job;
    EXPECT_TRUE(SubmitWith(List({blob(next)}), &job).ok());
  }
  EXPECT_EQ(next - 'a', 9) << "eight were taken";
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("within a day; try again after"));
  EXPECT_EQ(CountMissing({blob('a')}), 0) << "jobs keep theirs";
}

TEST_F(BlobsTest, ADamagedPartFailsTheJobAndIsSentAgain) {
  ASSERT_TRUE(Upload({a_}).ok());
  std::string damaged = a_;
  damaged[1000] = 'b';
  std::ofstream(PathOf(a_), std::ios::binary) << damaged;
  std::string job;
  ASSERT_TRUE(SubmitWith(List({a_}), &job).ok());
  const v1::Job failed = WaitFinal(job);
  EXPECT_EQ(failed.state(), v1::JOB_FAILED);
  EXPECT_EQ(failed.fault().kind(), v1::FAULT_USER);
  EXPECT_THAT(failed.reason(), HasSubstr("damaged on disk; submit the model again"));
  EXPECT_EQ(CountMissing({a_}), 1);
  ASSERT_TRUE(Upload({a_}).ok());
  EXPECT_EQ(CountMissing({a_}), 0);
}

TEST_F(BlobsTest, ALostPartFailsTheJob) {
  ASSERT_TRUE(Upload({a_}).ok());
  std::string job;
  ASSERT_TRUE(SubmitWith(List({a_}), &job).ok());
  WaitFinal(job);
  std::filesystem::remove(PathOf(a_));
  EXPECT_EQ(SubmitWith(List({a_}), &job).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(BlobsTest, WhatNoJobRefersToIsRemovedAfterADay) {
  ASSERT_TRUE(Upload({a_, b_}).ok());
  std::string job;
  ASSERT_TRUE(SubmitWith(List({a_}), &job).ok());
  const v1::Job done = WaitFinal(job);
  const auto sweep = [&] {
    return SweepBlobs(store_.get(), loop_->KeptModules(), absl::Now(), blobs_.get());
  };
  EXPECT_EQ(*sweep(), 0) << "too young";
  MakeOld();
  EXPECT_EQ(*sweep(), 200'000);
  EXPECT_EQ(CountMissing({a_, b_}), 1);
  MakeOld();
  EXPECT_EQ(*sweep(), 0);
  std::string module;
  EXPECT_TRUE(Fetch(job, v1::SCHEDULE_BEST, &module).ok());
  EXPECT_TRUE(Fetch(job, v1::SCHEDULE_NAIVE, &module).ok()) << "the model is still there";
  MakeOld();
  EXPECT_EQ(*sweep(), 0) << "modules made on demand are kept while they may be asked for";
}

}  // namespace
}  // namespace heddle::scheduler
