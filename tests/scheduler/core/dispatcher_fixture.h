// A dispatcher that is fed by hand, and short words for doing so.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/core/dispatcher.h"
#include "scheduler/ledger/why_waiting.h"

namespace heddle::scheduler {

inline constexpr char kTarget[] = "llvm -mcpu=x";

inline SlotInfo CpuSlot(const std::string& name, std::vector<int> cores,
                        const std::string& worker = "w") {
  SlotInfo slot;
  slot.id = {worker, name};
  slot.host = "host-" + worker;
  slot.cores = std::move(cores);
  slot.builds = {"llvm", "cuda"};
  return slot;
}
inline SlotInfo DeviceSlot(const std::string& name, std::vector<int> cores,
                           const std::string& worker = "w", const std::string& target = kTarget) {
  SlotInfo slot = CpuSlot(name, std::move(cores), worker);
  slot.device = true;
  slot.builds.clear();
  slot.target = target;
  slot.device_key = "key";
  return slot;
}

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
inline Imported ImportOf(const std::vector<FoundTask>& tasks, const std::string& device_key) {
  Imported imported;
  imported.device_key = device_key;
  imported.model.set_surveyed(true);
  for (const FoundTask& task : tasks) {
    v1::TaskInfo& info = *imported.model.add_tasks();
    info.set_key(task.key);
    info.set_weight(task.weight);
    imported.known.push_back(task.known);
  }
  return imported;
}

class DispatcherTest : public ::testing::Test {
 protected:
  explicit DispatcherTest(std::string_view policy = "round_robin")
      : dispatcher_(*MakePolicy(policy)) {}
  // Every decision of the step, and of the answers to what it asks; the started stages in order in
  // `started_`, dropped code in `dropped_`.
  Decisions Step(const Event& event) {
    Decisions decisions = dispatcher_.Step(event, now_);
    for (size_t i = 0; i < decisions.changes.size(); ++i) {
      const auto* find = std::get_if<FindRecords>(&decisions.changes[i]);
      if (find == nullptr || !answer_finds_) continue;
      const Decisions more = dispatcher_.Step(RecordsFound{find->job, find->device_key, {}}, now_);
      decisions.changes.insert(decisions.changes.end(), more.changes.begin(), more.changes.end());
      decisions.orders.insert(decisions.orders.end(), more.orders.begin(), more.orders.end());
    }
    for (const StartStage& start : All<StartStage>(decisions)) started_.push_back(start);
    for (const DropArtifacts& drop : All<DropArtifacts>(decisions))
      dropped_.insert(dropped_.end(), drop.candidates.begin(), drop.candidates.end());
    return decisions;
  }
  void TwoCores() {
    Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("p1", {1}), DeviceSlot("p0-1", {0, 1})},
                      ""});
  }
  void Submit(int64_t id, int trials = 8, int batch = 4, int threads = 1, int depth = 0) {
    JobParams params;
    params.target = kTarget;
    params.threads = threads;
    params.trials_per_task = trials;
    params.batch = batch;
    params.pipeline_depth = depth;
    params.allocation = Allocation::kUniform;
    Step(JobSubmitted{JobId{id}, params});
  }
  // The latest started stage of that kind, which must be live.
  StartStage Live(v1::StageKind kind) {
    for (auto it = started_.rbegin(); it != started_.rend(); ++it) {
      if (it->kind == kind && dispatcher_.live().count(it->attempt)) return *it;
    }
    ADD_FAILURE() << "no live " << v1::StageKind_Name(kind);
    return {};
  }
  bool IsLive(v1::StageKind kind) {
    for (const auto& [id, stage] : dispatcher_.live()) {
      if (stage.kind == kind) return true;
    }
    return false;
  }
  Decisions End(v1::StageKind kind, decltype(StageFinished::result) result = {}) {
    return Step(StageFinished{Live(kind).attempt, {}, true, std::move(result)});
  }
  Decisions Break(v1::StageKind kind, bool started = true) {
    return Step(
        StageFinished{Live(kind).attempt, {v1::FAULT_INFRASTRUCTURE, "it broke"}, started, {}});
  }
  void Import(int tasks, int known = 0, int known_valid = 0) {
    const FoundTask task{"", 1, {known, known_valid}};
    End(v1::STAGE_IMPORT, ImportOf(std::vector<FoundTask>(static_cast<size_t>(tasks), task), ""));
  }
  Decisions Built(CandidateId id, v1::Outcome outcome = v1::OUTCOME_OK) {
    return Step(CandidateBuilt{Live(v1::STAGE_BUILD).attempt, id, outcome,
                               outcome == v1::OUTCOME_OK ? "" : "no"});
  }
  Decisions Profiled(CandidateId id, v1::Outcome outcome = v1::OUTCOME_OK) {
    return Step(CandidateProfiled{Live(v1::STAGE_PROFILE).attempt, id, outcome,
                                  outcome == v1::OUTCOME_OK ? "" : "no"});
  }
  void Wait(absl::Duration duration) {
    now_ += duration;
    Step(Tick{});
  }
  const Job& job(int64_t id = 1) { return *dispatcher_.FindJob(JobId{id}); }
  // Builds and profiles the running round.
  void Round(v1::Outcome outcome = v1::OUTCOME_OK) {
    const StartStage build = Live(v1::STAGE_BUILD);
    for (CandidateId id : build.candidates) Built(id);
    Step(StageFinished{build.attempt, {}, true, {}});
    for (CandidateId id : build.candidates) Profiled(id, outcome);
    End(v1::STAGE_PROFILE);
  }

  Dispatcher dispatcher_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::vector<StartStage> started_;
  std::vector<CandidateId> dropped_;  // candidates whose code was dropped
  bool answer_finds_ = true;
};

// Jobs whose rounds are gone through as a whole, one at a time.
class RoundsTest : public DispatcherTest {
 protected:
  static JobParams Params(int trials = 8, int batch = 4) {
    JobParams params;
    params.target = params.record_target = kTarget;
    params.trials_per_task = trials;
    params.batch = batch;
    params.pipeline_depth = 1;
    params.strategy = "annealing";
    return params;
  }
  void Start(int64_t id, const JobParams& params, const std::vector<FoundTask>& tasks) {
    Step(JobSubmitted{JobId{id}, params});
    End(v1::STAGE_IMPORT, ImportOf(tasks, "key"));
  }
  // A round of whatever is live: propose, build, profile, and the update if there is one. Each
  // trial's time comes from `ns`.
  template <typename F>
  TaskIndex RoundOf(F ns) {
    if (IsLive(v1::STAGE_UPDATE)) End(v1::STAGE_UPDATE);
    const StartStage propose = Live(v1::STAGE_PROPOSE);
    End(v1::STAGE_PROPOSE, Proposed{propose.count, false});
    const StartStage build = Live(v1::STAGE_BUILD);
    for (CandidateId id : build.candidates) Built(id);
    Step(StageFinished{build.attempt, {}, true, {}});
    for (CandidateId id : build.candidates) {
      Step(CandidateProfiled{Live(v1::STAGE_PROFILE).attempt, id, v1::OUTCOME_OK, "",
                             ns(*propose.task), 1e8});
    }
    End(v1::STAGE_PROFILE);
    if (IsLive(v1::STAGE_UPDATE)) End(v1::STAGE_UPDATE);
    return *propose.task;
  }
  TaskIndex RoundAt(double ns) {
    return RoundOf([ns](TaskIndex) { return ns; });
  }
  bool Compiling(int64_t id = 1) {
    return std::holds_alternative<heddle::scheduler::Compiling>(job(id).phase);
  }
};

}  // namespace heddle::scheduler
