// What the end of a stage means, for each kind: results taken in, faults counted, work queued
// again.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/core/dispatcher.h"

namespace heddle::scheduler {

void Dispatcher::On(const StageFinished& event) {
  auto found = live_.find(event.attempt);
  if (found == live_.end()) return;
  const LiveStage stage = std::move(found->second);
  live_.erase(found);
  SlotTrouble& trouble = trouble_[stage.slot];
  if (!Blameless(event)) {
    trouble = {};
  } else if (!stage.cancelled) {
    trouble.refusal = event.fault.message;
    trouble.not_before = now_ + Backoff(options_.slot_backoff, trouble.failures++);
  }
  if (stage.fetch) return EndFetchStage(stage, event);
  Job& job = jobs_.at(stage.job);
  if (stage.task) job.tasks[stage.task->value].profiles.erase(stage.id);
  if (job.live == stage.id) job.live.reset();
  if (job.final()) return;
  if (event.fault.kind != v1::FAULT_NONE) {
    job.last_fault = absl::StrCat(StageName(stage.kind), " on ", stage.slot.worker, "/",
                                  stage.slot.slot, ": ", event.fault.message);
  }
  if (event.fault.kind == v1::FAULT_USER) return Fail(job, event.fault);
  switch (stage.kind) {
    case v1::STAGE_IMPORT:
      return EndImport(job, event);
    case v1::STAGE_PROPOSE:
      return EndPropose(job, *stage.task, event);
    case v1::STAGE_BUILD:
    case v1::STAGE_PROFILE:
      return EndMeasuring(job, stage, event);
    case v1::STAGE_UPDATE:
      return EndUpdate(job, stage, event);
    case v1::STAGE_COMPILE:
      return EndCompile(job, event);
    default:
      return;
  }
}

absl::Duration Dispatcher::Backoff(absl::Duration first, int failures) const {
  // 2^20 first waits are over any maximum; the bound keeps the shift defined.
  return std::min(options_.max_backoff, first * (int64_t{1} << std::min(failures, 20)));
}

bool Dispatcher::Retry(const StageFinished& event, int* failures, absl::Time* not_before) const {
  if (Blameless(event)) return true;  // the slot backs off, not the job
  *not_before = now_ + Backoff(options_.retry_backoff, (*failures)++);
  return *failures < options_.max_attempts;
}

void Dispatcher::EndImport(Job& job, const StageFinished& event) {
  const Imported* imported = std::get_if<Imported>(&event.result);
  if (event.fault.kind != v1::FAULT_NONE || imported == nullptr) {
    // For as long as it takes: the machinery is at fault, not the job, and its reason says which.
    (void)Retry(event, &job.stage_failures, &job.not_before);
    return;
  }
  job.stage_failures = 0;
  job.phase = Tuning{};
  if (!imported->device_key.empty()) job.params.device_key = imported->device_key;
  for (size_t i = 0; i < imported->tasks.size(); ++i) {
    const TaskPlan& plan = imported->tasks[i];
    Task task;
    task.known = plan.known;
    task.known_valid = plan.known_valid;
    task.key = plan.key;
    task.weight = plan.weight;
    task.flops = plan.flops;
    task.best_ns = task.known_best_ns = plan.known_best_ns;
    job.tasks.push_back(std::move(task));
  }
  JoinGroups(job);
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    Task& task = job.tasks[i];
    const TaskIndex index{static_cast<int>(i)};
    task.warm_pending = task.known > 0;
    if (task.known_best_ns > 0) task.curve = {{task.known, task.known_best_ns}};
    task.budget = Allowance(job, task);
    job.queue.push_back(index);
    Emit(TaskChanged{job.id, index});
  }
  FinishIdle(job);
  Emit(JobChanged{job.id});
}

void Dispatcher::EndPropose(Job& job, TaskIndex index, const StageFinished& event) {
  Task& task = job.tasks[index.value];
  if (!job.stop.empty()) return Drain(job, index);
  const Proposed* proposed = std::get_if<Proposed>(&event.result);
  if (event.fault.kind != v1::FAULT_NONE || proposed == nullptr) {
    task.phase = WantsPropose{};
    (void)Retry(event, &task.stage_failures, &task.not_before);
    return EndRounds(job, index);
  }
  task.stage_failures = 0;
  task.exhausted = proposed->exhausted || proposed->count == 0;
  const int count = std::min(proposed->count, task.unproposed());
  if (count <= 0) return Drain(job, index);
  const CandidateId first{job.next_candidate};
  for (int i = 0; i < count; ++i) task.open[CandidateId{job.next_candidate++}] = {0, Unbuilt{}};
  task.rounds.push_back({first, CandidateId{job.next_candidate}, count, count});
  task.budget = Allowance(job, task);
  task.phase = Measuring{};
  Emit(AddCandidates{job.id, index, first, count});
  Emit(TaskChanged{job.id, index});
  EndRounds(job, index);
}

void Dispatcher::EndMeasuring(Job& job, const LiveStage& stage, const StageFinished& event) {
  Task& task = job.tasks[stage.task->value];
  std::vector<CandidateId> used_up;
  // Whoever was being worked on is suspected; where nobody was, all are. Attempts are counted only
  // for those.
  const std::set<CandidateId>& suspects =
      stage.in_progress.empty() ? stage.candidates : stage.in_progress;
  for (CandidateId id : stage.candidates) {
    Candidate& candidate = task.open.at(id);
    if (stage.kind == v1::STAGE_BUILD) {
      candidate.where = Unbuilt{};
    } else {
      candidate.where = Built{};
    }
    if (Blameless(event) || stage.cancelled || !suspects.count(id)) continue;
    ++candidate.attempts;
    Emit(SetAttempts{job.id, id, candidate.attempts});
    if (candidate.attempts >= options_.max_attempts) used_up.push_back(id);
  }
  if (!stage.candidates.empty() && !Blameless(event)) {
    task.not_before = now_ + Backoff(options_.retry_backoff, task.stage_failures++);
  }
  const std::string why =
      event.fault.message.empty() ? "the stage ended without an answer" : event.fault.message;
  for (CandidateId id : used_up) {
    FinishTrial(job, *stage.task, id, stage.id, v1::OUTCOME_LOST,
                absl::StrCat("lost ", options_.max_attempts, " times: ", why), 0);
    if (job.final()) return;
  }
  feeding_.insert({job.id, *stage.task});
}

void Dispatcher::EndUpdate(Job& job, const LiveStage& stage, const StageFinished& event) {
  const TaskIndex index = *stage.task;
  Task& task = job.tasks[index.value];
  if (!job.stop.empty()) return Drain(job, index);
  if (event.fault.kind != v1::FAULT_NONE) {
    task.phase = WantsUpdate{};
    if (Retry(event, &task.stage_failures, &task.not_before)) return;
    // A search that has not learned still proposes; the next update brings these results again.
    task.unlearned = true;
  } else {
    task.unlearned = false;
    Emit(MarkLearned{job.id, index, stage.before});
  }
  task.stage_failures = 0;
  task.warm_pending = false;
  DropRounds(&task, stage.before);
  if (std::exchange(task.update_first, false) && task.unproposed() > 0) {
    task.phase = WantsPropose{};
  } else if (task.rounds.empty()) {
    return Requeue(job, index);
  } else {
    task.phase = Measuring{};
  }
  Emit(TaskChanged{job.id, index});
  // With nothing left to measure a further round begins first, if it may: see Activate.
  if (!task.open.empty()) EndRounds(job, index);
}

void Dispatcher::EndCompile(Job& job, const StageFinished& event) {
  if (event.fault.kind == v1::FAULT_NONE) return EndJob(job, Done{});
  (void)Retry(event, &job.stage_failures, &job.not_before);
}

void Dispatcher::EndFetchStage(const LiveStage& stage, const StageFinished& event) {
  auto it = fetches_.find(*stage.fetch);
  if (it == fetches_.end()) return;
  Fetch& fetch = it->second;
  fetch.live.reset();
  const bool over = event.fault.kind == v1::FAULT_NONE || event.fault.kind == v1::FAULT_USER ||
                    !Retry(event, &fetch.failures, &fetch.not_before);
  if (!over) return;
  Emit(EndFetch{fetch.id, event.fault});
  fetches_.erase(it);
}

}  // namespace heddle::scheduler
