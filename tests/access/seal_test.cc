// Seals of artifacts: what a worker of the lab built for a candidate is measured, and nothing else.
#include "proto/access/seal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/files/trailer.h"
#include "base/sha256.h"
#include "proto/access/module_seal.h"
#include "tests/access/lab.h"
#include "worker/supervisor/sealed_caller.h"

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

std::string ModuleBy(const std::string& name, const std::string& content = "a module",
                     const std::string& job = "j1") {
  return content + ModuleTrailer(*Lab::Get().Of(name).tls, job, 40, Sha256Hex(content)).value();
}

TEST(ModuleSealTest, AModuleSaysWhichWorkerMadeItForWhat) {
  const TlsFiles ann = *Lab::Get().Of("ann").tls;
  const absl::StatusOr<ModuleMaker> maker = MakerOfModule(ann, ModuleBy("w1"), absl::Now());
  ASSERT_TRUE(maker.ok()) << maker.status();
  EXPECT_EQ(maker->worker.name, "w1");
  EXPECT_EQ(maker->job, "j1");
  EXPECT_EQ(maker->attempt, 40);
  EXPECT_TRUE(CheckMaker(ann, ModuleBy("w2"), "j1", absl::Now()).ok());
  EXPECT_THAT(WhyNot(CheckMaker(ann, ModuleBy("w1"), "j2", absl::Now())),
              HasSubstr("for job j1, not for j2"));
  EXPECT_THAT(WhyNot(CheckMaker(ann, "a module", "j1", absl::Now())), HasSubstr("not signed"));
  EXPECT_TRUE(absl::IsNotFound(MakerOfModule(ann, "a module", absl::Now()).status()));
}

TEST(ModuleSealTest, NothingElseIsAMadeModule) {
  const TlsFiles ann = *Lab::Get().Of("ann").tls;
  const auto why = [&](const std::string& file, absl::Duration later = absl::ZeroDuration()) {
    return WhyNot(MakerOfModule(ann, file, absl::Now() + later).status());
  };
  EXPECT_THAT(why(ModuleBy("scheduler")), HasSubstr("no worker"));
  EXPECT_THAT(why(ModuleBy("ann")), HasSubstr("no worker"));
  EXPECT_THAT(why(ModuleBy("stranger")), HasSubstr("not of this lab"));
  EXPECT_FALSE(why(ModuleBy("w1"), absl::Hours(24 * 366)).empty()) << "the certificate has expired";
  const std::string trailer = ModuleBy("w1").substr(std::string("a module").size());
  EXPECT_THAT(why("another module" + trailer), HasSubstr("something else"));
  EXPECT_THAT(why("a module" + TrailerOf("nonsense")), HasSubstr("not"));
  // An artifact's seal is of another statement.
  v1::Artifact artifact = SealedBy("w1");
  artifact.mutable_seal()->set_job("j1");
  EXPECT_THAT(why("a module" + TrailerOf(artifact.seal().SerializeAsString())),
              HasSubstr("something else"));
}

// A list of revoked names that is removed at the end.
class RevokedFile {
 public:
  explicit RevokedFile(const std::string& text)
      : path_(absl::StrCat(::testing::TempDir(), "/revoked", getpid())) {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), 0600);
  }
  ~RevokedFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(ModuleSealTest, WhatARevokedWorkerSignedIsRefused) {
  TlsFiles ann = *Lab::Get().Of("ann").tls;
  const RevokedFile list("# its disk was stolen\nworker/w1\nuser/w2\n");
  ann.revoked = list.path();
  const std::string why = WhyNot(MakerOfModule(ann, ModuleBy("w1"), absl::Now()).status());
  EXPECT_THAT(why, HasSubstr(absl::StrCat("its signer worker/w1 is revoked (", list.path(), ")")));
  EXPECT_THAT(why, HasSubstr("submit the model again"));
  EXPECT_TRUE(MakerOfModule(ann, ModuleBy("w2"), absl::Now()).ok()) << "that list names a user";
  ann.revoked = list.path() + ".none";
  EXPECT_TRUE(MakerOfModule(ann, ModuleBy("w1"), absl::Now()).ok()) << "there is no list";
}

TEST(ModuleSealTest, WithAListThatCannotBeUsedNobodyIsASigner) {
  TlsFiles ann = *Lab::Get().Of("ann").tls;
  const RevokedFile list("w1\n");
  ann.revoked = list.path();
  EXPECT_THAT(WhyNot(MakerOfModule(ann, ModuleBy("w2"), absl::Now()).status()),
              HasSubstr("line 1 is not ROLE/NAME"));
}

TEST(SealTest, AnArtifactOfARevokedWorkerIsNotMeasured) {
  TlsFiles w2 = *Lab::Get().Of("w2").tls;
  const RevokedFile list("worker/w1\n");
  w2.revoked = list.path();
  EXPECT_THAT(WhyNot(CheckSeal(w2, "j1", 5, SealedBy("w1"))),
              HasSubstr("candidate 5 of j1 is not measured: its signer worker/w1 is revoked"));
  EXPECT_TRUE(CheckSeal(w2, "j1", 5, SealedBy("w2")).ok());
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
  bool Write(const v1::StageEvent& event, const std::function<void()>&) override {
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
  ASSERT_TRUE(builder.Write(built, [] {}));
  v1::StageEvent progress;
  progress.mutable_progress()->set_done(1);
  ASSERT_TRUE(builder.Write(progress, [] {}));
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

// Modules come in chunks, several at a time; each is followed by who made it.
TEST(SealedCallerTest, AModuleIsSignedOnItsWay) {
  const TlsFiles w1 = *Lab::Get().Of("w1").tls;
  v1::StageStart start;
  start.set_job("j1");
  start.set_attempt_id(40);
  start.set_kind(v1::STAGE_COMPILE);
  Caller scheduler;
  StageSession session;
  SealedCaller compiler(&w1, &start, &scheduler, &session);
  const auto send = [&](const std::string& name, const std::string& data,
                        const std::string& whole) {
    v1::StageEvent event;
    event.mutable_chunk()->set_name(name);
    event.mutable_chunk()->set_data(data);
    event.mutable_chunk()->set_last(!whole.empty());
    if (!whole.empty()) event.mutable_chunk()->set_sha256(Sha256Hex(whole));
    ASSERT_TRUE(compiler.Write(event, [] {}));
  };
  send("module", "first, ", "");
  send("default", "default", "default");
  send("module", "second", "first, second");
  send("other", "false", "its digest is another's");
  std::map<std::string, std::string> files;
  std::map<std::string, int> ends;
  for (const v1::StageEvent& event : scheduler.events) {
    const v1::Chunk& chunk = event.chunk();
    files[chunk.name()] += chunk.data();
    if (!chunk.last()) continue;
    ++ends[chunk.name()];
    if (chunk.name() != "other") EXPECT_EQ(chunk.sha256(), Sha256Hex(files[chunk.name()]));
  }
  EXPECT_EQ(ends, (std::map<std::string, int>{{"module", 1}, {"default", 1}, {"other", 1}}));
  EXPECT_EQ(SplitTrailer(files["module"]).content, "first, second");
  EXPECT_EQ(SplitTrailer(files["default"]).content, "default");
  for (const char* name : {"module", "default"}) {
    const auto maker = MakerOfModule(w1, files[name], absl::Now());
    ASSERT_TRUE(maker.ok()) << maker.status();
    EXPECT_EQ(maker->worker.name, "w1");
    EXPECT_EQ(maker->attempt, 40);
  }
  EXPECT_EQ(files["other"], "false") << "not signed, and the caller refuses its digest";
  EXPECT_FALSE(session.stopped());
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
