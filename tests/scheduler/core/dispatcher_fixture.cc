#include "tests/scheduler/core/dispatcher_fixture.h"

#include <utility>

namespace heddle::scheduler {

SlotInfo CpuSlot(const std::string& name, std::vector<int> cores, const std::string& worker) {
  SlotInfo slot;
  slot.id = {worker, name};
  slot.host = "host-" + worker;
  slot.cores = std::move(cores);
  slot.builds = {"llvm", "cuda"};
  return slot;
}

SlotInfo DeviceSlot(const std::string& name, std::vector<int> cores, const std::string& worker,
                    const std::string& target) {
  SlotInfo slot = CpuSlot(name, std::move(cores), worker);
  slot.device = true;
  slot.builds.clear();
  slot.target = target;
  slot.device_key = "key";
  return slot;
}

Imported ImportOf(const std::vector<FoundTask>& tasks, const std::string& device_key) {
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

DispatcherTest::DispatcherTest(std::string_view policy) : dispatcher_(*MakePolicy(policy)) {}

DispatcherTest::~DispatcherTest() = default;

Decisions DispatcherTest::Step(const Event& event) {
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

void DispatcherTest::TwoCores() {
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("p1", {1}), DeviceSlot("p0-1", {0, 1})}, ""});
}

void DispatcherTest::Submit(int64_t id, int trials, int batch, int threads, int depth) {
  JobParams params;
  params.target = kTarget;
  params.threads = threads;
  params.trials_per_task = trials;
  params.batch = batch;
  params.pipeline_depth = depth;
  params.allocation = Allocation::kUniform;
  Step(JobSubmitted{JobId{id}, params});
}

StartStage DispatcherTest::Live(v1::StageKind kind) {
  for (auto it = started_.rbegin(); it != started_.rend(); ++it) {
    if (it->kind == kind && dispatcher_.live().count(it->attempt)) return *it;
  }
  ADD_FAILURE() << "no live " << v1::StageKind_Name(kind);
  return {};
}

bool DispatcherTest::IsLive(v1::StageKind kind) {
  for (const auto& [id, stage] : dispatcher_.live()) {
    if (stage.kind == kind) return true;
  }
  return false;
}

Decisions DispatcherTest::End(v1::StageKind kind, decltype(StageFinished::result) result) {
  return Step(StageFinished{Live(kind).attempt, {}, true, std::move(result)});
}

Decisions DispatcherTest::Break(v1::StageKind kind, bool started) {
  return Step(
      StageFinished{Live(kind).attempt, {v1::FAULT_INFRASTRUCTURE, "it broke"}, started, {}});
}

void DispatcherTest::Import(int tasks, int known, int known_valid) {
  const FoundTask task{"", 1, {known, known_valid}};
  End(v1::STAGE_IMPORT, ImportOf(std::vector<FoundTask>(static_cast<size_t>(tasks), task), ""));
}

Decisions DispatcherTest::Built(CandidateId id, v1::Outcome outcome) {
  return Step(CandidateBuilt{Live(v1::STAGE_BUILD).attempt, id, outcome,
                             outcome == v1::OUTCOME_OK ? "" : "no"});
}

Decisions DispatcherTest::Profiled(CandidateId id, v1::Outcome outcome) {
  return Step(CandidateProfiled{Live(v1::STAGE_PROFILE).attempt, id, outcome,
                                outcome == v1::OUTCOME_OK ? "" : "no"});
}

void DispatcherTest::Wait(absl::Duration duration) {
  now_ += duration;
  Step(Tick{});
}

void DispatcherTest::Round(v1::Outcome outcome) {
  const StartStage build = Live(v1::STAGE_BUILD);
  for (CandidateId id : build.candidates) Built(id);
  Step(StageFinished{build.attempt, {}, true, {}});
  for (CandidateId id : build.candidates) Profiled(id, outcome);
  End(v1::STAGE_PROFILE);
}

JobParams RoundsTest::Params(int trials, int batch) {
  JobParams params;
  params.target = params.record_target = kTarget;
  params.trials_per_task = trials;
  params.batch = batch;
  params.pipeline_depth = 1;
  params.strategy = "annealing";
  return params;
}

void RoundsTest::Start(int64_t id, const JobParams& params, const std::vector<FoundTask>& tasks) {
  Step(JobSubmitted{JobId{id}, params});
  End(v1::STAGE_IMPORT, ImportOf(tasks, "key"));
}

TaskIndex RoundsTest::RoundOf(absl::FunctionRef<double(TaskIndex)> ns) {
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

}  // namespace heddle::scheduler
