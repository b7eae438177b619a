// The supervisor against real child processes that do the worst they can.
#include "worker/supervisor/stage_runner.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "tests/places.h"
#include "worker/slots.h"

namespace heddle::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Live processes (zombies included) whose parent is this one.
std::set<pid_t> Children() {
  std::set<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    if (!std::getline(stat, line)) continue;
    pid_t parent = 0;
    if (sscanf(line.c_str() + line.rfind(')') + 1, " %*c %d", &parent) == 1 && parent == getpid()) {
      children.insert(atoi(entry.path().filename().c_str()));
    }
  }
  return children;
}

bool Alive(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  return std::getline(stat, line) && line.find(") Z") == std::string::npos;
}

class FakeCaller final : public StageCaller {
 public:
  bool Read(v1::StageInput* input) override {
    if (next_ == inputs.size()) return false;
    *input = inputs[next_++];
    return true;
  }
  bool InputEnded() override { return half_closes && next_ == inputs.size(); }
  bool Gone() override { return gone; }
  bool Write(const v1::StageEvent& event, const std::function<void()>& meanwhile) override {
    events.push_back(event);
    if (on_event) on_event(event);
    const absl::Time give_up = MonotonicNow() + slowness;
    while (MonotonicNow() < give_up && !taken()) {
      absl::SleepFor(absl::Milliseconds(10));
      meanwhile();
    }
    return !gone;
  }

  std::vector<v1::StageInput> inputs;
  bool half_closes = true;
  std::atomic<bool> gone{false};
  std::vector<v1::StageEvent> events;
  std::function<void(const v1::StageEvent&)> on_event;
  // How long each event takes at most, and when it is taken before.
  absl::Duration slowness;
  std::function<bool()> taken = [] { return false; };

 private:
  size_t next_ = 0;
};

class StageRunnerTest : public ::testing::Test {
 protected:
  StageRunnerTest() {
    signal(SIGPIPE, SIG_IGN);
    options_.child_command = {std::string(HEDDLE_BIN_DIR) + "/heddle-fake-child", kChildFlag};
    options_.cores = {UsableCores().front()};
    options_.worker = "w";
    options_.confinement = Offered();
  }
  // All that this host has to confine a child by.
  static const confine::Confinement& Offered() {
    static const auto* const offered = [] {
      const confine::Confinement all = confine::ParseConfinement("all").value();
      return new confine::Confinement(confine::Available(all, confine::ProbeConfinement(all)));
    }();
    return *offered;
  }
  void TearDown() override { EXPECT_THAT(Children(), IsEmpty()) << "processes were left behind"; }

  static v1::StageStart Profile(const std::string& workload = "w") {
    v1::StageStart start;
    start.set_kind(v1::STAGE_PROFILE);
    start.set_slot("profile1");
    start.mutable_profile()->set_workload(workload);
    start.set_candidate_time_limit_ms(60000);
    return start;
  }
  static v1::StageStart Build() {
    v1::StageStart start;
    start.set_kind(v1::STAGE_BUILD);
    start.set_slot("cpu0");
    start.mutable_build()->set_workload("w");
    start.set_candidate_time_limit_ms(60000);
    return start;
  }
  static v1::StageStart Propose(const std::string& strategy) {
    v1::StageStart start;
    start.set_kind(v1::STAGE_PROPOSE);
    start.mutable_propose()->mutable_search()->set_strategy(strategy);
    return start;
  }
  void Add(const v1::StageStart& start, const std::vector<std::string>& traces) {
    for (const std::string& trace : traces) {
      v1::StageInput input;
      v1::Candidate* candidate = start.kind() == v1::STAGE_BUILD
                                     ? input.mutable_build()->mutable_candidate()
                                     : input.mutable_profile()->mutable_candidate();
      candidate->set_id(100 + static_cast<int64_t>(caller_.inputs.size()));
      candidate->set_trace(trace);
      caller_.inputs.push_back(input);
    }
  }
  void AddChunk(const std::string& data) {
    v1::StageInput input;
    input.mutable_chunk()->set_data(data);
    caller_.inputs.push_back(input);
  }
  v1::StageFinished Run(const v1::StageStart& start) {
    return StageRunner(start, options_, caller_, session_).Run();
  }

  // By position in the input; exactly one result each, in order.
  std::vector<v1::Measurement> Profiled() {
    std::vector<v1::Measurement> results;
    for (const v1::StageEvent& event : caller_.events) {
      if (!event.has_profiled()) continue;
      EXPECT_EQ(event.profiled().candidate(), 100 + static_cast<int64_t>(results.size()));
      results.push_back(event.profiled().measurement());
    }
    return results;
  }

  static constexpr char kChildFlag[] = "--stage-child";
  RunnerOptions options_;
  FakeCaller caller_;
  StageSession session_;
};

TEST_F(StageRunnerTest, HealthyCandidatesShareOneChild) {
  const v1::StageStart start = Profile();
  Add(start, std::vector<std::string>(50, "ok"));
  const v1::StageFinished finished = Run(start);
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_NONE) << finished.fault().message();
  const auto results = Profiled();
  ASSERT_EQ(results.size(), 50u);
  for (const v1::Measurement& result : results) {
    EXPECT_EQ(result.outcome(), v1::OUTCOME_OK);
    EXPECT_EQ(result.samples_ns(0), results[0].samples_ns(0)) << "another process";
    EXPECT_EQ(result.evidence().worker(), "w");
    EXPECT_EQ(result.evidence().slot(), "profile1");
  }
  EXPECT_GT(finished.cpu_ns(), 0);
  EXPECT_GT(finished.wall_ns(), 0);
  EXPECT_GT(finished.peak_memory_bytes(), 0);
}

TEST_F(StageRunnerTest, ACrashCostsItsCandidateAlone) {
  const v1::StageStart start = Profile();
  Add(start, {"ok", "segv", "ok", "abort", "exit", "ok"});
  EXPECT_EQ(Run(start).fault().kind(), v1::FAULT_NONE);
  const auto results = Profiled();
  ASSERT_EQ(results.size(), 6u);
  for (int good : {0, 2, 5}) EXPECT_EQ(results[good].outcome(), v1::OUTCOME_OK) << good;
  for (int bad : {1, 3, 4}) EXPECT_EQ(results[bad].outcome(), v1::OUTCOME_RUN_CRASH) << bad;
  EXPECT_EQ(results[1].message(), "killed by SIGSEGV: about to crash");
  EXPECT_EQ(results[3].message(), "killed by SIGABRT");
  EXPECT_EQ(results[4].message(), "exit status 7");
  EXPECT_EQ(results[1].evidence().worker(), "w");
  EXPECT_NE(results[0].samples_ns(0), results[2].samples_ns(0))
      << "a fresh process after the crash";
}

TEST_F(StageRunnerTest, AnInnocentAfterAPoisonerIsAcquitted) {
  const v1::StageStart start = Profile();
  Add(start, {"poison", "ok", "ok"});
  EXPECT_EQ(Run(start).fault().kind(), v1::FAULT_NONE);
  const auto results = Profiled();
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[1].outcome(), v1::OUTCOME_OK) << results[1].message();
  EXPECT_EQ(results[2].outcome(), v1::OUTCOME_OK) << results[2].message();
}

TEST_F(StageRunnerTest, AHangEndsAtTheCandidatesLimit) {
  v1::StageStart start = Profile();
  start.set_candidate_time_limit_ms(1000);
  Add(start, {"ok", "hang", "ok", "hang"});
  const v1::StageFinished finished = Run(start);
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_NONE) << finished.fault().message();
  const auto results = Profiled();
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[1].outcome(), v1::OUTCOME_RUN_TIMEOUT);
  EXPECT_THAT(results[1].message(), HasSubstr("limit of 1s"));
  EXPECT_EQ(results[2].outcome(), v1::OUTCOME_OK);
  EXPECT_EQ(results[3].outcome(), v1::OUTCOME_RUN_TIMEOUT);
  EXPECT_GE(finished.wall_ns(), 2'000'000'000);
}

TEST_F(StageRunnerTest, MemoryIsLimited) {
  v1::StageStart start = Profile();
  start.set_memory_limit_bytes(256 << 20);
  Add(start, {"ok", "eat", "ok"});
  const v1::StageFinished finished = Run(start);
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_NONE) << finished.fault().message();
  const auto results = Profiled();
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[1].outcome(), v1::OUTCOME_RUN_CRASH);
  EXPECT_THAT(results[1].message(), HasSubstr("memory limit of 256 MiB"));
  EXPECT_EQ(results[2].outcome(), v1::OUTCOME_OK);
  EXPECT_LT(finished.peak_memory_bytes(), int64_t{3} << 30);
}

TEST_F(StageRunnerTest, ACallerCannotRaiseTheWorkersLimits) {
  options_.memory_limit_bytes = 256 << 20;
  options_.longest_stage = absl::Seconds(20);
  v1::StageStart start = Profile();
  start.set_memory_limit_bytes(int64_t{1} << 40);
  start.set_candidate_time_limit_ms(absl::ToInt64Milliseconds(absl::Hours(1)));
  Add(start, {"eat"});
  Run(start);
  ASSERT_EQ(Profiled().size(), 1u);
  EXPECT_THAT(Profiled()[0].message(), HasSubstr("memory limit of 256 MiB"));
  options_.longest_stage = absl::Milliseconds(200);
  start = Propose("hang");
  EXPECT_THAT(Run(start).fault().message(), HasSubstr("limit of 200ms")) << "the default, too";
  start.set_time_limit_ms(absl::ToInt64Milliseconds(absl::Hours(1)));
  EXPECT_THAT(Run(start).fault().message(), HasSubstr("limit of 200ms"));
}

// A caller may take a minute to take an event. The child is watched meanwhile.
TEST_F(StageRunnerTest, LimitsHoldWhileTheCallerIsSlow) {
  constexpr absl::Duration kSlow = absl::Seconds(30);
  caller_.on_event = [&](const v1::StageEvent& event) {
    caller_.slowness = event.has_candidate_started() ? kSlow : absl::ZeroDuration();
  };
  caller_.taken = [] {
    const std::set<pid_t> children = Children();
    return std::none_of(children.begin(), children.end(), Alive);
  };
  v1::StageStart start = Profile();
  start.set_memory_limit_bytes(256 << 20);
  Add(start, {"eat"});
  Run(start);
  ASSERT_EQ(Profiled().size(), 1u);
  EXPECT_THAT(Profiled()[0].message(), HasSubstr("memory limit of 256 MiB"));

  start = Profile();
  start.set_candidate_time_limit_ms(300);
  Add(start, {"hang"});
  v1::StageFinished finished = Run(start);
  ASSERT_EQ(Profiled().size(), 2u);
  EXPECT_EQ(Profiled()[1].outcome(), v1::OUTCOME_RUN_TIMEOUT);
  EXPECT_LT(absl::Nanoseconds(finished.wall_ns()), kSlow);

  start = Profile();
  start.set_time_limit_ms(300);
  Add(start, {"hang"});
  finished = Run(start);
  EXPECT_THAT(finished.fault().message(), HasSubstr("limit of 300ms"));
  EXPECT_LT(absl::Nanoseconds(finished.wall_ns()), kSlow);
}

TEST_F(StageRunnerTest, ASlowCallerIsNoCandidatesFault) {
  caller_.slowness = absl::Seconds(4);
  v1::StageStart start = Profile();
  start.set_candidate_time_limit_ms(2000);
  Add(start, {"ok"});
  EXPECT_EQ(Run(start).fault().kind(), v1::FAULT_NONE);
  ASSERT_EQ(Profiled().size(), 1u);
  EXPECT_EQ(Profiled()[0].outcome(), v1::OUTCOME_OK) << Profiled()[0].message();
}

// As if this process were stopped for longer than the stage may take.
TEST_F(StageRunnerTest, APauseOfTheWorkerIsNoStagesFault) {
  caller_.on_event = [](const v1::StageEvent& event) {
    if (event.has_candidate_started()) absl::SleepFor(absl::Seconds(4));
  };
  v1::StageStart start = Profile();
  start.set_time_limit_ms(3000);
  Add(start, {"ok"});
  EXPECT_EQ(Run(start).fault().message(), "");
  ASSERT_EQ(Profiled().size(), 1u);
  EXPECT_EQ(Profiled()[0].outcome(), v1::OUTCOME_OK) << Profiled()[0].message();
}

TEST_F(StageRunnerTest, GarbageIsACrash) {
  const v1::StageStart start = Profile();
  Add(start, {"garbage", "ok", "other id", "ok", "print"});
  EXPECT_EQ(Run(start).fault().kind(), v1::FAULT_NONE);
  const auto results = Profiled();
  ASSERT_EQ(results.size(), 5u);
  EXPECT_EQ(results[0].outcome(), v1::OUTCOME_RUN_CRASH);
  EXPECT_THAT(results[0].message(), HasSubstr("wrote garbage"));
  EXPECT_EQ(results[2].outcome(), v1::OUTCOME_RUN_CRASH)
      << "answered for a candidate it was not asked for";
  EXPECT_EQ(results[4].outcome(), v1::OUTCOME_OK) << "prints must not disturb the frames";
}

TEST_F(StageRunnerTest, NonsenseIsForwardedAsSuch) {
  const v1::StageStart start = Profile();
  Add(start, {"wrong"});
  Run(start);
  const v1::Measurement wrong = Profiled().at(0);
  EXPECT_EQ(wrong.outcome(), v1::OUTCOME_WRONG_RESULT);
  EXPECT_THAT(wrong.message(), ::testing::StartsWith(" [2Ja line and xxx"));
  EXPECT_EQ(wrong.message().size(), 4096u) << "a long message is no reason to drop the answer";
}

TEST_F(StageRunnerTest, AnAnswerThatNoWorkerMaySendIsACrashOfItsCandidate) {
  const v1::StageStart start = Profile();
  Add(start, {"ok", "nan", "ok"});
  EXPECT_EQ(Run(start).fault().kind(), v1::FAULT_NONE);
  const auto results = Profiled();
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[1].outcome(), v1::OUTCOME_RUN_CRASH);
  EXPECT_THAT(results[1].message(),
              HasSubstr("wrote garbage: profiled.measurement.samples_ns[0] is nan"));
  EXPECT_EQ(results[2].outcome(), v1::OUTCOME_OK);
}

TEST_F(StageRunnerTest, BuildFailuresAreTyped) {
  v1::StageStart start = Build();
  start.set_candidate_time_limit_ms(1000);
  Add(start, {"segv", "hang", "fine"});
  EXPECT_EQ(Run(start).fault().kind(), v1::FAULT_NONE);
  std::vector<v1::BuildResult> results;
  for (const v1::StageEvent& event : caller_.events) {
    if (event.has_built()) results.push_back(event.built());
  }
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].failure().outcome(), v1::OUTCOME_BUILD_ERROR);
  EXPECT_THAT(results[0].failure().message(), HasSubstr("SIGSEGV"));
  EXPECT_EQ(results[1].failure().outcome(), v1::OUTCOME_BUILD_TIMEOUT);
  EXPECT_FALSE(results[2].has_failure());
  EXPECT_EQ(results[2].artifact().shared_object(), "fine");
}

TEST_F(StageRunnerTest, GrandchildrenGoToo) {
  const std::string file =
      std::filesystem::temp_directory_path() / ("heddle_pid_" + std::to_string(getpid()));
  options_.confinement = {};  // which would forbid the grandchild in the first place
  const v1::StageStart start = Profile();
  Add(start, {"grandchild " + file, "ok"});
  EXPECT_EQ(Run(start).fault().kind(), v1::FAULT_NONE);
  ASSERT_EQ(Profiled().size(), 2u);
  pid_t pid = 0;
  std::ifstream(file) >> pid;
  std::filesystem::remove(file);
  ASSERT_GT(pid, 1);
  const absl::Time limit = MonotonicNow() + absl::Seconds(20);
  while (Alive(pid) && MonotonicNow() < limit) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_FALSE(Alive(pid));
}

TEST_F(StageRunnerTest, TheStageHasALimitToo) {
  v1::StageStart start = Profile();
  start.set_time_limit_ms(300);
  Add(start, {"ok", "hang", "ok"});
  const v1::StageFinished finished = Run(start);
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_INFRASTRUCTURE);
  EXPECT_THAT(finished.fault().message(), HasSubstr("limit of 300ms"));
  EXPECT_EQ(Profiled().size(), 1u) << "no blame for the others";
}

TEST_F(StageRunnerTest, StopAndDepartureKillTheChild) {
  for (const bool depart : {false, true}) {
    FakeCaller caller;
    StageSession session;
    const v1::StageStart start = Profile();
    v1::StageInput input;
    input.mutable_profile()->mutable_candidate()->set_id(1);
    input.mutable_profile()->mutable_candidate()->set_trace("hang");
    caller.inputs.push_back(input);
    std::thread later;
    caller.on_event = [&](const v1::StageEvent&) {
      later = std::thread([&] {
        if (depart) {
          caller.gone = true;
          session.Notify();
        } else {
          session.Stop("lease L1 is not valid any more");
        }
      });
    };
    const v1::StageFinished finished = StageRunner(start, options_, caller, session).Run();
    later.join();
    EXPECT_EQ(finished.fault().kind(), v1::FAULT_INFRASTRUCTURE);
    EXPECT_EQ(finished.fault().message(),
              depart ? "the caller went away" : "lease L1 is not valid any more");
    EXPECT_THAT(Children(), IsEmpty());
  }
}

TEST_F(StageRunnerTest, AStageThatCannotBeginIsAFaultOfItsOwn) {
  const v1::StageStart crash = Profile("crash at start");
  Add(crash, {"ok"});
  v1::StageFinished finished = Run(crash);
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_INFRASTRUCTURE);
  EXPECT_THAT(finished.fault().message(), HasSubstr("SIGSEGV"));
  EXPECT_TRUE(Profiled().empty());

  FakeCaller caller;
  finished = StageRunner(Profile("malformed"), options_, caller, session_).Run();
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_USER);
  EXPECT_EQ(finished.fault().message(), "malformed workload") << "one line";

  options_.child_command[0] = "/no/such/program";
  finished = Run(Profile());
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_INFRASTRUCTURE);
  EXPECT_THAT(finished.fault().message(), HasSubstr("/no/such/program"));
}

TEST_F(StageRunnerTest, AChildThatSkipsItsWorkIsNotBelieved) {
  const v1::StageStart start = Profile("lazy");
  Add(start, {"ok"});
  EXPECT_EQ(Run(start).fault().kind(), v1::FAULT_INFRASTRUCTURE);
}

TEST_F(StageRunnerTest, ChunksPassInOrder) {
  std::string sent;
  for (int k = 0; k < 20; ++k) {
    AddChunk(std::string(700'000, static_cast<char>('a' + k)));
    sent += caller_.inputs.back().chunk().data();
  }
  const v1::StageFinished finished = Run(Propose("echo"));
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_NONE) << finished.fault().message();
  std::string received;
  for (const v1::StageEvent& event : caller_.events) received += event.chunk().data();
  EXPECT_TRUE(received == sent) << received.size() << " of " << sent.size();
}

// The parts of a model come before everything else, and the child starts when they are there.
TEST_F(StageRunnerTest, BlobsAreFetchedFirst) {
  const std::string folder = ::testing::TempDir() + "/stage_blobs" + std::to_string(getpid());
  std::filesystem::remove_all(folder);
  const auto cache = BlobCache::Open(folder, 1 << 20);
  ASSERT_TRUE(cache.ok()) << cache.status();
  v1::StageStart start = Propose("echo");
  v1::BlobRef& blob = *start.add_blobs();
  blob.set_sha256("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  blob.set_bytes(3);
  EXPECT_EQ(Run(start).fault().kind(), v1::FAULT_INFRASTRUCTURE) << "it has no folder for them";
  options_.blobs = cache->get();
  v1::StageFinished finished = Run(start);
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_INFRASTRUCTURE);
  EXPECT_THAT(finished.fault().message(), HasSubstr("did not send all parts"));
  ASSERT_EQ(caller_.events.size(), 1u);
  EXPECT_EQ(caller_.events[0].wanted().blobs(0).sha256(), blob.sha256());
  AddChunk("abc");
  caller_.inputs.back().mutable_chunk()->set_name(blob.sha256());
  caller_.inputs.back().mutable_chunk()->set_last(true);
  AddChunk("the rest");
  caller_.events.clear();
  finished = Run(start);
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_NONE) << finished.fault().message();
  ASSERT_EQ(caller_.events.size(), 2u);
  EXPECT_EQ(caller_.events[0].wanted().blobs_size(), 1);
  EXPECT_EQ(caller_.events[1].chunk().data(), "the rest") << "the child gets nothing else";
  AddChunk("again");
  caller_.events.clear();
  EXPECT_EQ(Run(start).fault().kind(), v1::FAULT_NONE);
  EXPECT_EQ(caller_.events[0].wanted().blobs_size(), 0) << "it is kept";
  // Damaged on the way.
  start.mutable_blobs(0)->set_sha256(std::string(64, '0'));
  AddChunk("xyz");
  caller_.inputs.back().mutable_chunk()->set_name(std::string(64, '0'));
  caller_.inputs.back().mutable_chunk()->set_last(true);
  EXPECT_THAT(Run(start).fault().message(), HasSubstr("digest"));
  // A chunk that is larger than chunks are is refused before it is stored.
  AddChunk(std::string((1 << 20) + 1, 'x'));
  caller_.inputs.back().mutable_chunk()->set_name(std::string(64, '0'));
  EXPECT_THAT(Run(start).fault().message(), HasSubstr("chunk.data has 1048577 bytes"));
  std::filesystem::remove_all(folder);
}

// A module that comes back to be timed is code that the worker is about to run.
TEST_F(StageRunnerTest, ModulesAreCheckedBeforeTheyAreTimed) {
  const std::string folder = ::testing::TempDir() + "/stage_modules" + std::to_string(getpid());
  std::filesystem::remove_all(folder);
  const auto cache = BlobCache::Open(folder, 1 << 20);
  ASSERT_TRUE(cache.ok()) << cache.status();
  options_.blobs = cache->get();
  v1::StageStart start = Propose("echo");
  start.set_kind(v1::STAGE_COMPARE);
  v1::BlobRef& blob = *start.add_blobs();
  blob.set_sha256("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  blob.set_bytes(3);
  AddChunk("abc");
  caller_.inputs.back().mutable_chunk()->set_name(blob.sha256());
  caller_.inputs.back().mutable_chunk()->set_last(true);
  std::vector<std::string> asked;
  options_.check_module = [&](std::string_view file) {
    asked.emplace_back(file);
    return absl::PermissionDeniedError("nobody signed it");
  };
  const v1::StageFinished finished = Run(start);
  EXPECT_EQ(asked, std::vector<std::string>{"abc"});
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_INFRASTRUCTURE);
  EXPECT_EQ(finished.fault().message(), "a module is not timed: nobody signed it");
  EXPECT_EQ(finished.cpu_ns(), 0) << "no child has run";
  asked.clear();
  EXPECT_EQ(Run(Propose("echo")).fault().kind(), v1::FAULT_NONE);
  EXPECT_TRUE(asked.empty()) << "other stages bring no modules";
  std::filesystem::remove_all(folder);
}

// What is confined is tested by escape_test.cc.
TEST_F(StageRunnerTest, TheChildIsConfined) {
  const v1::StageFinished finished = Run(Propose("confined"));
  ASSERT_EQ(finished.warnings_size(), 1) << finished.fault().message();
  EXPECT_EQ(finished.warnings(0),
            "cores " + std::to_string(options_.cores[0]) + ", no core dumps, own group");
}

TEST_F(StageRunnerTest, FaultsOfStagesWithoutCandidates) {
  v1::StageFinished finished = Run(Propose("fault"));
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_INFRASTRUCTURE);
  EXPECT_EQ(finished.fault().message(), "no luck today");
  finished = Run(Propose("segv"));
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_INFRASTRUCTURE);
  EXPECT_THAT(finished.fault().message(), HasSubstr("killed by SIGSEGV: about to crash"));
  v1::StageStart import;
  import.set_kind(v1::STAGE_IMPORT);
  import.mutable_import();
  import.set_target("segv");
  finished = Run(import);
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_USER)
      << "a model that takes the importer down is the user's to change";
  import.set_target("hang");
  import.set_time_limit_ms(300);
  finished = Run(import);
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_USER) << "so is one that it never gets through";
  EXPECT_THAT(finished.fault().message(), HasSubstr("limit of 300ms"));
}

TEST_F(StageRunnerTest, WrongInputIsTheCallersFault) {
  const v1::StageStart start = Profile();
  AddChunk("x");
  EXPECT_EQ(Run(start).fault().kind(), v1::FAULT_USER);
}

// Any mixture of candidates: every one gets exactly one answer, of the kind it deserves.
TEST_F(StageRunnerTest, MixturesGetExactlyOneAnswerEach) {
  const std::map<std::string, v1::Outcome> deserved = {{"ok", v1::OUTCOME_OK},
                                                       {"segv", v1::OUTCOME_RUN_CRASH},
                                                       {"exit", v1::OUTCOME_RUN_CRASH},
                                                       {"garbage", v1::OUTCOME_RUN_CRASH},
                                                       {"hang", v1::OUTCOME_RUN_TIMEOUT},
                                                       {"print", v1::OUTCOME_OK},
                                                       {"poison", v1::OUTCOME_OK},
                                                       {"wrong", v1::OUTCOME_WRONG_RESULT}};
  std::vector<std::string> kinds;
  for (const auto& [trace, outcome] : deserved) kinds.push_back(trace);
  std::mt19937_64 rng(11);
  v1::StageStart start = Profile();
  start.set_candidate_time_limit_ms(700);
  std::vector<std::string> traces;
  for (int k = 0; k < 40; ++k) traces.push_back(kinds[rng() % kinds.size()]);
  Add(start, traces);
  const v1::StageFinished finished = Run(start);
  EXPECT_EQ(finished.fault().kind(), v1::FAULT_NONE) << finished.fault().message();
  const auto results = Profiled();
  ASSERT_EQ(results.size(), traces.size());
  for (size_t k = 0; k < traces.size(); ++k) {
    EXPECT_EQ(results[k].outcome(), deserved.at(traces[k]))
        << k << " " << traces[k] << ": " << results[k].message();
  }
}

}  // namespace
}  // namespace heddle::worker
