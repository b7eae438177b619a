#include "scheduler/core/machines/stage_ends.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/core/machines/contest.h"
#include "scheduler/core/machines/trial_budget.h"

namespace heddle::scheduler {

bool StageEnds::IsConfirmed(Job& job, const LiveStage& stage, const FaultInfo& fault) {
  if (fault.own) return true;
  const auto [accuser, first] = job.accusers.emplace(AccuserKey(stage), stage.slot.worker);
  if (first) return false;
  return accuser->second != stage.slot.worker ||
         !slots_->AnotherWorker(SlotIndex::LaneOf(stage.kind, job), stage.slot.worker);
}

void StageEnds::Take(Job& job, const LiveStage& stage, const StageFinished& event) {
  // A job does not fail because its plan could not be improved or its module could not be compared.
  const bool may_fail = stage.kind == v1::STAGE_PLAN || stage.kind == v1::STAGE_COMPARE ||
                        (stage.kind == v1::STAGE_COMPILE && Judging(job));
  const bool accused = event.fault.kind == v1::FAULT_USER && !may_fail;
  if (event.fault.kind != v1::FAULT_NONE) {
    job.last_fault =
        absl::StrCat(StageName(stage.kind), " on ", stage.slot.worker, "/", stage.slot.slot, ": ",
                     event.fault.message, accused ? " (a second attempt has to confirm this)" : "");
  } else {
    job.accusers.erase(AccuserKey(stage));
  }
  if (accused && IsConfirmed(job, stage, event.fault))
    return rounds_->EndJob(job, Failed{event.fault});
  switch (stage.kind) {
    case v1::STAGE_IMPORT:
      return EndImport(job, event);
    case v1::STAGE_PLAN:
      return EndPlan(job, event);
    case v1::STAGE_PROPOSE:
      return EndPropose(job, *stage.task, event);
    case v1::STAGE_BUILD:
    case v1::STAGE_PROFILE:
      return EndMeasuring(job, stage, event);
    case v1::STAGE_UPDATE:
      return EndUpdate(job, stage, event);
    case v1::STAGE_COMPILE:
      return EndCompile(job, event);
    case v1::STAGE_COMPARE:
      return EndCompare(job, event);
    default:
      return;
  }
}

void StageEnds::EndImport(Job& job, const StageFinished& event) {
  const Imported* imported = std::get_if<Imported>(&event.result);
  if (event.fault.kind != v1::FAULT_NONE || imported == nullptr) {
    // An import is retried without limit: the infrastructure is at fault, not the job, and the
    // job's reason names the fault.
    (void)TryAgain(event, &job);
    return;
  }
  job.stage_failures = 0;
  job.phase = Tuning{};
  if (!imported->device_key.empty()) job.params.device_key = imported->device_key;
  if (!imported->model.surveyed()) job.settled = true;
  for (int i = 0; i < imported->model.tasks_size(); ++i) {
    Task& task =
        job.tasks.emplace_back(MakeTask(imported->model.tasks(i), {.known = imported->KnownOf(i)}));
    task.estimated_weight = task.weight;
  }
  sharing_->Join(job);
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    Task& task = job.tasks[i];
    const TaskIndex index{static_cast<int>(i)};
    task.unlearned.known = task.known.total > 0;
    task.budget = Allowance(job, task);
    job.queue.push_back(index);
    effects_->Emit(TaskChanged{job.id, index});
  }
  rounds_->FinishIdle(job);
  effects_->Emit(JobChanged{job.id});
}

void StageEnds::EndPlan(Job& job, const StageFinished& event) {
  const Planned* planned = std::get_if<Planned>(&event.result);
  const size_t first = job.tasks.size();
  const bool failed = event.fault.kind != v1::FAULT_NONE || planned == nullptr;
  if (failed && event.fault.kind != v1::FAULT_USER && TryAgain(event, &job)) return;
  const bool contended = Contending(job);
  Rounds::After after =
      Surveying(job) || contended ? Rounds::After::kTune : Rounds::After::kCompile;
  for (Task& task : job.tasks) task.rival_weight = 0;
  if (failed) {  // with the plan that it has, unless that was still to prove itself
    if (after == Rounds::After::kTune) TakeEstimatedPlan(&job);
    return rounds_->EndPlanning(job, first, after, false);
  }
  job.has_estimated_plan = false;
  const bool surveys = rounds_->SurveysFurther(job, planned->plan.survey());
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < first; ++i) {
    places[job.tasks[i].key] = i;
    job.tasks[i].weight = 0;
  }
  for (int i = 0; i < planned->plan.tasks_size(); ++i) {
    const v1::TaskInfo& info = planned->plan.tasks(i);
    // Nobody will measure it, and no module has it.
    if (info.weight() <= 0 && !surveys && !places.contains(info.key())) continue;
    const auto [place, added] = places.try_emplace(info.key(), job.tasks.size());
    if (added) {
      job.tasks.push_back(MakeTask(info, {.known = planned->KnownOf(i)}));
    } else {
      job.tasks[place->second].weight = std::max(0, info.weight());
    }
  }
  if (Surveying(job) && !surveys && job.stop.empty()) {
    Contend(job, *planned, std::move(places), first);
  } else if (contended && job.stop.empty() && job.params.compare && !HasEstimatedTasks(job)) {
    for (Task& task : job.tasks) task.rival_weight = task.estimated_weight;
    if (Contending(job)) after = Rounds::After::kJudge;
  }
  rounds_->EndPlanning(job, first, after, planned->plan.survey());
}

void StageEnds::Contend(Job& job, const Planned& planned, std::map<std::string, size_t> places,
                        size_t first) {
  const auto drop_from = [&](size_t task) {
    job.tasks.erase(job.tasks.begin() + static_cast<std::ptrdiff_t>(task), job.tasks.end());
  };
  const size_t rivals = job.tasks.size();
  for (int i = 0; i < planned.plan.tasks_size(); ++i) {
    const v1::TaskInfo& info = planned.plan.tasks(i);
    if (info.rival_weight() <= 0) continue;
    const auto [place, added] = places.try_emplace(info.key(), job.tasks.size());
    if (added) job.tasks.push_back(MakeTask(info, {.known = planned.KnownOf(i)}));
    job.tasks[place->second].rival_weight = info.rival_weight();
  }
  if (!Contending(job)) return;
  if (MayContend(job, *options_)) return;
  drop_from(rivals);
  for (Task& task : job.tasks) task.rival_weight = task.estimated_weight;
  if (MayContend(job, *options_)) return;
  drop_from(first);
  TakeEstimatedPlan(&job);
}

void StageEnds::EndPropose(Job& job, TaskIndex index, const StageFinished& event) {
  Task& task = job.tasks[index.value];
  if (!job.stop.empty()) return rounds_->Drain(job, index);
  const Proposed* proposed = std::get_if<Proposed>(&event.result);
  if (event.fault.kind != v1::FAULT_NONE || proposed == nullptr) {
    task.phase = WantsPropose{};
    (void)TryAgain(event, &task);
    return rounds_->Settle(job, index);
  }
  task.stage_failures = 0;
  task.exhausted = proposed->exhausted || (proposed->count == 0 && task.unproposed() > 0);
  const int count = std::min(proposed->count, task.unproposed());
  if (count <= 0) return rounds_->EndEmptyRound(job, index);
  const CandidateId first{job.next_candidate};
  for (int i = 0; i < count; ++i) task.open[CandidateId{job.next_candidate++}] = {0, Unbuilt{}};
  task.rounds.push_back({first, CandidateId{job.next_candidate}, count, count});
  task.budget = Allowance(job, task);
  task.phase = Measuring{};
  effects_->Emit(AddCandidates{job.id, index, first, count});
  effects_->Emit(TaskChanged{job.id, index});
  rounds_->Settle(job, index);
}

void StageEnds::EndMeasuring(Job& job, const LiveStage& stage, const StageFinished& event) {
  const TaskIndex index = *stage.task;
  Task& task = job.tasks[index.value];
  std::vector<std::pair<CandidateId, std::string>> used_up;  // with how often what happened
  // The rule of suspicions.h says who is charged an attempt, and who is interrupted.
  const std::set<CandidateId> nobody;
  const std::set<CandidateId>& begun_or_all =
      stage.in_progress.empty() ? stage.candidates : stage.in_progress;
  const std::set<CandidateId>& charged = event.silent       ? stage.in_progress
                                         : Blameless(event) ? nobody
                                                            : begun_or_all;
  const bool vanished =
      event.silent && !Suspicions::Sees(suspicions_->slots(), stage.slot.worker, stage.boot);
  const std::set<CandidateId>& interrupted = vanished            ? begun_or_all
                                             : event.interrupted ? stage.in_progress
                                                                 : nobody;
  for (CandidateId id : stage.candidates) {
    Candidate& candidate = task.open.at(id);
    if (stage.kind == v1::STAGE_BUILD) {
      candidate.where = Unbuilt{};
    } else {
      candidate.where = Built{};
    }
    if (stage.cancelled) continue;
    if (interrupted.count(id) && ++candidate.interruptions >= options_->max_interruptions) {
      used_up.emplace_back(id, absl::StrCat("interrupted ", candidate.interruptions, " times: "));
      continue;
    }
    if (!charged.count(id)) continue;
    ++candidate.attempts;
    effects_->Emit(SetAttempts{job.id, id, candidate.attempts});
    if (candidate.attempts >= options_->max_attempts) {
      used_up.emplace_back(id, absl::StrCat("lost ", options_->max_attempts, " times: "));
    } else if (event.silent) {
      suspicions_->Add({job.id, index, id, stage.slot.worker, stage.boot}, effects_->now());
    }
  }
  // What fell silent is counted with the candidates, and the task does not wait for it.
  if (!stage.candidates.empty() && !event.silent) (void)TryAgain(event, &task);
  const std::string why =
      event.fault.message.empty() ? "the stage ended without an answer" : event.fault.message;
  for (const auto& [id, what] : used_up) {
    rounds_->FinishTrial(job, index, id, stage.id, v1::OUTCOME_LOST, absl::StrCat(what, why), 0);
    if (job.final()) return;
  }
  flow_->Note(job.id, index);
}

void StageEnds::EndUpdate(Job& job, const LiveStage& stage, const StageFinished& event) {
  const TaskIndex index = *stage.task;
  Task& task = job.tasks[index.value];
  if (!job.stop.empty()) return rounds_->Drain(job, index);
  const bool then_propose = WillPropose(task.phase);
  if (event.fault.kind != v1::FAULT_NONE) {
    task.phase = WantsUpdate{then_propose};
    if (TryAgain(event, &task)) return;
    // The task proposes without having learned these results; its next update learns them.
    task.unlearned.own = true;
  } else {
    task.unlearned.own = task.unlearned.known = false;
    effects_->Emit(MarkLearned{job.id, index, stage.before});
  }
  task.stage_failures = 0;
  DropRounds(&task, stage.before);
  if (then_propose && task.unproposed() > 0) {
    task.phase = WantsPropose{};
  } else if (task.rounds.empty()) {
    return rounds_->Requeue(job, index);
  } else {
    task.phase = Measuring{};
  }
  effects_->Emit(TaskChanged{job.id, index});
  // With nothing left to measure, a further round begins first if it may: see Rounds::GoOn.
  if (!task.open.empty()) rounds_->Settle(job, index);
}

void StageEnds::EndCompile(Job& job, const StageFinished& event) {
  if (event.fault.kind != v1::FAULT_NONE) {
    if (Judging(job) && event.fault.kind == v1::FAULT_USER) return rounds_->EndJudging(job, false);
    if (!TryAgain(event, &job) && Judging(job)) rounds_->EndJudging(job, false);
    return;
  }
  if (const auto* compiled = std::get_if<Compiled>(&event.result)) TakeNextBest(job, *compiled);
  rounds_->EndCompiling(job);
}

void StageEnds::TakeNextBest(Job& job, const Compiled& compiled) {
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    Task& task = job.tasks[i];
    if (!task.replaced || task.keep_default) continue;
    const auto chosen = compiled.chosen_ns.find(task.key);
    task.best_ns = task.known.best_ns = chosen == compiled.chosen_ns.end() ? 0 : chosen->second;
    effects_->Emit(TaskChanged{job.id, TaskIndex{static_cast<int>(i)}});
  }
}

void StageEnds::EndCompare(Job& job, const StageFinished& event) {
  const Compared* compared = std::get_if<Compared>(&event.result);
  if (event.fault.kind != v1::FAULT_NONE || compared == nullptr) {
    if (TryAgain(event, &job)) return;
    if (Judging(job)) return rounds_->EndJudging(job, false);
    job.not_compared =
        absl::StrCat("it failed ", options_->max_attempts, " times: ", event.fault.message);
    return rounds_->EndJob(job, Done{});
  }
  job.stage_failures = 0;
  if (Judging(job)) return rounds_->EndJudging(job, KeepsPlan(compared->result));
  const bool first = job.compared++ == 0;
  bool again = false;
  std::set<std::string> broken;  // tasks
  for (const BrokenRecord& record : compared->broken)
    broken.insert(record.claim.claim().workload_key());
  for (Task& task : job.tasks) {
    if (!broken.contains(task.key) || task.keep_default) continue;
    again = task.replaced = true;
    // By now it has no imported record, so none of its records can be broken.
    task.keep_default |= job.compared > kTriesOfImports;
  }
  // Kernels that were faster once are not judged again; those of replaced records are new.
  for (const v1::CompareResult::Task& found : compared->result.tasks()) {
    if (IsFaster(found.gain()) || broken.contains(found.workload_key())) continue;
    for (Task& task : job.tasks) {
      // So each further comparison has a cause that cannot come again, whatever workers answer.
      if (task.key == found.workload_key() && (first || task.replaced) && !task.keep_default)
        again = task.keep_default = true;
    }
  }
  if (!again && compared->result.has_other_gain() && !KeepsPlan(compared->result)) {
    job.has_estimated_plan = true;
    for (size_t i = 0; i < job.tasks.size(); ++i) {
      Task& task = job.tasks[i];
      if (task.weight == task.estimated_weight) continue;
      task.weight = task.estimated_weight;
      task.budget = Allowance(job, task);
      effects_->Emit(TaskChanged{job.id, TaskIndex{static_cast<int>(i)}});
    }
  }
  if (!again) return rounds_->EndJob(job, Done{});
  job.phase = Compiling{};
  effects_->Emit(JobChanged{job.id});
}

}  // namespace heddle::scheduler
