// Seals of artifacts: what a worker of the lab built for a candidate is measured, and nothing else.
#include "proto/access/seal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/access/lab.h"
#include "worker/sealed_caller.h"

namespace heddle::worker {
namespace {

using ::testing::HasSubstr;

v1::Artifact Built() {
  v1::Artifact artifact;
  artifact.set_shared_object(std::string(10'000, 'x'));
  artifact.add_kernels()->set_symbol("kernel");
  artifact.mutable_numerics()->set_sum_terms(7);
  return artifact;
}

v1::Artifact SealedBy(const std::string& name) {
  v1::Artifact artifact = Built();
  EXPECT_TRUE(Seal(*Lab::Get().Of(name).tls, "j1", 5, 40, &artifact).ok());
  return artifact;
}

absl::Status CheckAtW2(const v1::Artifact& artifact, const std::string& job = "j1",
                       int64_t candidate = 5) {
  return CheckSeal(*Lab::Get().Of("w2").tls, job, candidate, artifact);
}

std::string WhyNot(const absl::Status& status) {
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  return std::string(status.message());
}

TEST(SealTest, WhatAWorkerBuiltForTheCandidateIsMeasured) {
  EXPECT_TRUE(CheckAtW2(SealedBy("w1")).ok());
  EXPECT_TRUE(CheckAtW2(SealedBy("w2")).ok());
}

TEST(SealTest, NothingElseIs) {
  EXPECT_THAT(WhyNot(CheckAtW2(Built())), HasSubstr("not signed"));
  EXPECT_THAT(WhyNot(CheckAtW2(SealedBy("scheduler"))), HasSubstr("no worker"));
  EXPECT_THAT(WhyNot(CheckAtW2(SealedBy("ann"))), HasSubstr("no worker"));
  EXPECT_THAT(WhyNot(CheckAtW2(SealedBy("stranger"))), HasSubstr("not of this lab"));
  const v1::Artifact sealed = SealedBy("w1");
  EXPECT_THAT(WhyNot(CheckAtW2(sealed, "j2")), HasSubstr("something else"));
  EXPECT_THAT(WhyNot(CheckAtW2(sealed, "j1", 6)), HasSubstr("candidate 6 of j1"));
  v1::Artifact other = sealed;
  other.mutable_seal()->set_attempt_id(41);
  EXPECT_FALSE(CheckAtW2(other).ok());
  other = sealed;
  other.mutable_numerics()->set_sum_terms(8);
  EXPECT_FALSE(CheckAtW2(other).ok());
  other = sealed;
  other.mutable_seal()->set_certificate(Lab::Get().Of("w2").tls->certificate);
  EXPECT_FALSE(CheckAtW2(other).ok()) << "a certificate without its key";
}

// Whatever byte of a sealed artifact changes, it is refused or is the same artifact.
TEST(SealTest, NoByteCanBeChanged) {
  const std::string bytes = SealedBy("w1").SerializeAsString();
  std::mt19937_64 random(11);
  for (int i = 0; i < 500; ++i) {
    std::string changed = bytes;
    changed[random() % changed.size()] ^= static_cast<char>(1 + random() % 255);
    v1::Artifact artifact;
    if (!artifact.ParseFromString(changed)) continue;
    if (!CheckAtW2(artifact).ok()) continue;
    // A certificate has bytes around its text that say nothing; the artifact is what counts.
    artifact.clear_seal();
    ASSERT_EQ(artifact.SerializeAsString(), Built().SerializeAsString()) << i;
  }
}

TEST(SealTest, ACertificateSealsNothingAfterItsEnd) {
  const TlsFiles w1 = *Lab::Get().Of("w1").tls;
  const std::string signature = Sign(w1, "a statement").value();
  EXPECT_EQ(SignerOf(w1, w1.certificate, signature, "a statement", absl::Now())->name, "w1");
  EXPECT_FALSE(
      SignerOf(w1, w1.certificate, signature, "a statement", absl::Now() + absl::Hours(24 * 366))
          .ok());
  EXPECT_FALSE(SignerOf(w1, w1.certificate, signature, "another", absl::Now()).ok());
  EXPECT_FALSE(SignerOf(w1, w1.certificate, "", "a statement", absl::Now()).ok());
}

class Caller final : public StageCaller {
 public:
  bool Read(v1::StageInput* input) override {
    if (inputs.empty()) return false;
    *input = inputs.front();
    inputs.pop_front();
    return true;
  }
  bool InputEnded() override { return inputs.empty(); }
  bool Gone() override { return false; }
  bool Write(const v1::StageEvent& event) override {
    events.push_back(event);
    return true;
  }
  std::deque<v1::StageInput> inputs;
  std::vector<v1::StageEvent> events;
};

TEST(SealedCallerTest, ABuildIsSealedAndAProfileChecked) {
  const TlsFiles w1 = *Lab::Get().Of("w1").tls, w2 = *Lab::Get().Of("w2").tls;
  v1::StageStart start;
  start.set_job("j1");
  start.set_attempt_id(40);
  Caller scheduler;
  StageSession building, profiling;
  SealedCaller builder(&w1, &start, &scheduler, &building);
  v1::StageEvent built;
  built.mutable_built()->set_candidate(5);
  *built.mutable_built()->mutable_artifact() = Built();
  ASSERT_TRUE(builder.Write(built));
  v1::StageEvent progress;
  progress.mutable_progress()->set_done(1);
  ASSERT_TRUE(builder.Write(progress));
  ASSERT_EQ(scheduler.events.size(), 2u);

  v1::StageInput chunk, good, bad;
  chunk.mutable_chunk()->set_name("x");
  good.mutable_profile()->mutable_candidate()->set_id(5);
  *good.mutable_profile()->mutable_artifact() = scheduler.events[0].built().artifact();
  bad = good;
  bad.mutable_profile()->mutable_candidate()->set_id(6);
  scheduler.inputs = {chunk, good, bad, good};
  SealedCaller profiler(&w2, &start, &scheduler, &profiling);
  v1::StageInput input;
  ASSERT_TRUE(profiler.Read(&input));
  EXPECT_TRUE(input.has_chunk());
  ASSERT_TRUE(profiler.Read(&input));
  EXPECT_EQ(input.profile().artifact().SerializeAsString(), Built().SerializeAsString());
  EXPECT_FALSE(profiling.stopped());
  EXPECT_FALSE(profiler.Read(&input));
  EXPECT_TRUE(profiling.stopped());
  EXPECT_THAT(profiling.reason(), HasSubstr("candidate 6"));
}

// The limits of fields hold before a certificate is parsed, however good the seal is besides.
TEST(SealedCallerTest, AMessageBeyondItsLimitsIsNotRead) {
  const TlsFiles w2 = *Lab::Get().Of("w2").tls;
  v1::StageStart start;
  start.set_job("j1");
  Caller scheduler;
  v1::StageInput input;
  input.mutable_profile()->mutable_candidate()->set_id(5);
  v1::Artifact& artifact = *input.mutable_profile()->mutable_artifact();
  artifact = SealedBy("w1");
  artifact.mutable_seal()->mutable_certificate()->append(100'000, '\n');
  ASSERT_TRUE(CheckAtW2(artifact).ok());
  scheduler.inputs = {input};
  StageSession profiling;
  SealedCaller profiler(&w2, &start, &scheduler, &profiling);
  EXPECT_FALSE(profiler.Read(&input));
  EXPECT_TRUE(profiling.stopped());
  EXPECT_THAT(profiling.reason(), HasSubstr("profile.artifact.seal.certificate has"));
}

}  // namespace
}  // namespace heddle::worker
