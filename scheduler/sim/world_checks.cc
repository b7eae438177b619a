// What must hold after every event, whatever goes wrong.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/sim/world.h"

namespace heddle::sim {

bool World::Held(const SlotId& id) const {
  return std::any_of(stages_.begin(), stages_.end(),
                     [&](const auto& entry) { return entry.second.start.slot == id; });
}

bool World::Share(const SlotInfo& a, const SlotInfo& b) {
  return a.host == b.host && std::any_of(a.cores.begin(), a.cores.end(), [&](int core) {
           return std::find(b.cores.begin(), b.cores.end(), core) != b.cores.end();
         });
}

bool World::Free(const SlotInfo& slot) const {
  auto blocked = blocked_.find(slot.id);
  if (blocked != blocked_.end() && blocked->second > now_) return false;
  for (const auto& [id, stage] : stages_) {
    if (Share(scenario_.slots[static_cast<size_t>(stage.slot)].info, slot)) return false;
  }
  const std::vector<SlotInfo>& slots = processes_.front().dispatcher->slots();
  return std::none_of(slots.begin(), slots.end(),
                      [&](const SlotInfo& other) { return other.foreign && Share(other, slot); });
}

// One live lease per slot, and per core.
void World::CheckStart(const Process& process, const StartStage& start, const SlotInfo& slot) {
  if (slot.device != (start.kind == v1::STAGE_PROFILE))
    Violation("a stage on a slot of the wrong kind");
  if (stages_.count(start.attempt)) Violation("an attempt was started twice");
  for (const auto& [id, stage] : stages_) {
    if (Share(scenario_.slots[static_cast<size_t>(stage.slot)].info, slot))
      Violation("two live stages on one core");
  }
  if (start.kind != v1::STAGE_PROFILE) return;
  const Job& job = *process.dispatcher->FindJob(start.job);
  if (slot.target != job.params.target ||
      (job.params.threads != 0 && static_cast<int>(slot.cores.size()) != job.params.threads)) {
    Violation("profile on a device that does not suit");
  }
  for (CandidateId id : start.candidates) CheckArtifact(0, start.job, id);
}

void World::CheckArtifact(int process, JobId job, CandidateId candidate) {
  if (!options_.durable || !options_.checks) return;
  if (processes_[static_cast<size_t>(process)].book.data(job).candidates.at(candidate).artifact ==
      nullptr)
    Violation("profile of a candidate that is not built");
}

// One final record a candidate, made under the lease that holds the slot now.
void World::CheckRecord(const FinishCandidate& done, const Payload& payload) {
  if (!recorded_.insert({done.job.value, done.candidate.value}).second)
    Violation("a candidate got a second final record");
  if (done.outcome == v1::OUTCOME_LOST) return;
  auto stage = stages_.find(done.stage);
  if (stage == stages_.end() || stage->second.token != payload.fencing_token)
    Violation("an answer under an old lease was recorded");
}

void World::Check(const Process& process) {
  for (const auto& [id, job] : process.dispatcher->jobs()) {
    int in_flight = 0;
    for (const Task& task : job.tasks) {
      in_flight += InFlight(task);
      for (const auto& [candidate, state] : task.round) {
        if (recorded_.count({id.value, candidate.value}))
          Violation("a finished candidate is measured again");
      }
    }
    if (!job.final() && job.params.pipeline_depth > 0 && in_flight > job.params.pipeline_depth)
      Violation("more tasks in flight than allowed");
  }
  for (const auto& [id, stage] : process.dispatcher->live()) {
    if (!stages_.count(id)) Violation("the dispatcher thinks that an ended stage lives");
  }
  CheckNoIdleSlot(process);
  CheckNobodyStarves(process);
}

// A free slot means that no work that suits it waits, unless its cores are kept for work whose
// turn comes first.
void World::CheckNoIdleSlot(const Process& process) {
  if (tracker_down_) return;
  std::vector<const SlotInfo*> kept;
  for (const WorkItem& work : process.dispatcher->ReadyWork()) {
    for (const SlotInfo& slot : process.dispatcher->slots()) {
      if (!process.dispatcher->Suits(slot, work) || !slot.usable) continue;
      if (Free(slot) && std::none_of(kept.begin(), kept.end(),
                                     [&](const SlotInfo* other) { return Share(*other, slot); })) {
        Violation(absl::StrCat("slot ", slot.id.worker, "/", slot.id.slot, " is free and ",
                               v1::StageKind_Name(work.kind), " of j", work.job.value, " waits"));
      }
    }
    for (const SlotInfo& slot : process.dispatcher->slots()) {
      if (process.dispatcher->Suits(slot, work) && slot.usable && !Held(slot.id))
        kept.push_back(&slot);
    }
  }
}

void World::CountPassedOver(const Process& process, const StartStage& start, const SlotInfo& slot) {
  passed_over_[{start.job, slot.device}] = 0;  // its turn
  for (auto& [waiter, passed] : passed_over_) {
    if (waiter.first == start.job || waiter.second != slot.device) continue;
    const WorkItem work{waiter.first, waiter.second ? v1::STAGE_PROFILE : v1::STAGE_BUILD,
                        TaskIndex{0}, std::nullopt, waiter.second};
    passed += process.dispatcher->Suits(slot, work);
  }
}

// Work that is ready is not passed over for ever while slots that suit it serve others.
void World::CheckNobodyStarves(const Process& process) {
  if (policy_ == "sequential") return;  // one job after another is what it promises
  const int jobs = static_cast<int>(scenario_.jobs.size());
  const int patience = policy_ == "round_robin" ? 12 + 4 * jobs : 60 + 12 * jobs;
  std::map<std::pair<JobId, bool>, int> waiting;
  for (const WorkItem& work : process.dispatcher->ReadyWork()) {
    if (work.fetch) continue;
    auto before = passed_over_.find({work.job, work.device});
    const int passed = before == passed_over_.end() ? 0 : before->second;
    waiting[{work.job, work.device}] = passed;
    if (passed > patience) {
      Violation(absl::StrCat(v1::StageKind_Name(work.kind), " of j", work.job.value,
                             " starves: ", passed, " stages of others went before it"));
    }
  }
  passed_over_ = std::move(waiting);
}

// No trial lost, none counted twice, everything came to an end.
void World::CheckEnd() {
  for (Process& process : processes_) Flush(&process);
  std::set<int64_t> there;
  const Dispatcher& dispatcher = *processes_.front().dispatcher;
  auto jobs = store_->LoadJobs();
  for (const StoredJob& job : *jobs) {
    const v1::JobState state = job.row.job.state();
    there.insert(job.row.id);
    const Job& live = *dispatcher.FindJob(JobId{job.row.id});
    if (!live.final()) return Violation(absl::StrCat("job j", job.row.id, " never ended"));
    if (state == v1::JOB_FAILED && job.row.job.fault().kind() == v1::FAULT_NONE)
      Violation("failed without a reason");
    if (state != v1::JOB_DONE) continue;
    std::vector<int> trials(job.tasks.size());
    for (const CandidateRow& candidate : job.candidates) {
      if (!candidate.outcome)
        return Violation(absl::StrCat("a trial of j", job.row.id, " is lost"));
      ++trials[static_cast<size_t>(candidate.task)];
    }
    for (size_t i = 0; i < job.tasks.size(); ++i) {
      if (live.tasks[i].trials != trials[i]) Violation("a trial is counted twice");
    }
    const std::string unused = budgets_.End(live);
    if (!unused.empty()) Violation(unused);
  }
  for (int64_t id : acknowledged_) {
    if (!there.count(id)) Violation("an acknowledged job is lost");
  }
  if (!dispatcher.live().empty()) Violation("a stage never ended");
}

}  // namespace heddle::sim
