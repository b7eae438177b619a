// A dispatcher that is fed by hand, and short words for doing so.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/ledger/why_waiting.h"

namespace heddle::scheduler {

inline constexpr char kTarget[] = "llvm -mcpu=x";

SlotInfo CpuSlot(const std::string& name, std::vector<int> cores, const std::string& worker = "w");
SlotInfo DeviceSlot(const std::string& name, std::vector<int> cores,
                    const std::string& worker = "w", const std::string& target = kTarget);

// The decisions of one kind.
template <typename T>
std::vector<T> All(const Decisions& decisions) {
  std::vector<T> all;
  auto add = [&](const auto& list) {
    for (const auto& one : list) {
      if (const auto* found = std::get_if<T>(&one)) all.push_back(*found);
    }
  };
  if constexpr (kIsOneOf<T, Change>) {
    add(decisions.changes);
  } else {
    add(decisions.orders);
  }
  return all;
}
template <typename T>
int Count(const Decisions& decisions) {
  return static_cast<int>(All<T>(decisions).size());
}

// A task that an import finds, and what the database knows of it.
struct FoundTask {
  std::string key{};
  int weight = 1;
  KnownRecords known{};
};
Imported ImportOf(const std::vector<FoundTask>& tasks, const std::string& device_key);

class DispatcherTest : public ::testing::Test {
 protected:
  explicit DispatcherTest(std::string_view policy = "round_robin");
  ~DispatcherTest() override;
  // Every decision of the step, and of the answers to what it asks; the started stages in order in
  // `started_`, dropped code in `dropped_`.
  Decisions Step(const Event& event);
  void TwoCores();
  void Submit(int64_t id, int trials = 8, int batch = 4, int threads = 1, int depth = 0);
  // The latest started stage of that kind, which must be live.
  StartStage Live(v1::StageKind kind);
  bool IsLive(v1::StageKind kind);
  Decisions End(v1::StageKind kind, decltype(StageFinished::result) result = {});
  Decisions Break(v1::StageKind kind, bool started = true);
  void Import(int tasks, int known = 0, int known_valid = 0);
  Decisions Built(CandidateId id, v1::Outcome outcome = v1::OUTCOME_OK);
  Decisions Profiled(CandidateId id, v1::Outcome outcome = v1::OUTCOME_OK);
  void Wait(absl::Duration duration);
  const Job& job(int64_t id = 1) { return *dispatcher_.FindJob(JobId{id}); }
  // Builds and profiles the running round.
  void Round(v1::Outcome outcome = v1::OUTCOME_OK);

  Dispatcher dispatcher_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::vector<StartStage> started_;
  std::vector<CandidateId> dropped_;  // candidates whose code was dropped
  bool answer_finds_ = true;
};

// Jobs whose rounds are gone through as a whole, one at a time.
class RoundsTest : public DispatcherTest {
 protected:
  static JobParams Params(int trials = 8, int batch = 4);
  void Start(int64_t id, const JobParams& params, const std::vector<FoundTask>& tasks);
  // A round of whatever is live: propose, build, profile, and the update if there is one. Each
  // trial's time comes from `ns`.
  TaskIndex RoundOf(absl::FunctionRef<double(TaskIndex)> ns);
  TaskIndex RoundAt(double ns) {
    return RoundOf([ns](TaskIndex) { return ns; });
  }
  bool Compiling(int64_t id = 1) {
    return std::holds_alternative<heddle::scheduler::Compiling>(job(id).phase);
  }
};

}  // namespace heddle::scheduler
