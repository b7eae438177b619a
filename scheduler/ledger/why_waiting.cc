#include "scheduler/ledger/why_waiting.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/vocabulary/target.h"

namespace heddle::scheduler {
namespace {

std::string Threads(int threads) {
  return absl::StrCat(threads, threads == 1 ? " thread" : " threads");
}

// How badly a device slot fits what the job needs; 0: it fits. A wrong target weighs most.
int Distance(const SlotInfo& slot, const JobParams& needs) {
  int distance = 0;
  if (slot.target != needs.target) distance += 4;
  if (!needs.device_key.empty() && slot.device_key != needs.device_key) distance += 2;
  if (needs.threads != 0 && static_cast<int>(slot.cores.size()) != needs.threads) distance += 1;
  return distance;
}

std::string MissingDevice(const Dispatcher& dispatcher, const JobParams& needs) {
  if (needs.threads == 0) {  // a GPU; naming the nearest other device would not help
    return absl::StrCat(
        "waiting: no device of key ", needs.device_key.empty() ? needs.target : needs.device_key,
        "; start heddle-worker --profile ", std::string(KindOf(needs.target)), ":0 on such a host");
  }
  std::string text = absl::StrCat("no device with target ", needs.target);
  if (needs.threads != 0) absl::StrAppend(&text, ", ", Threads(needs.threads));
  if (!needs.device_key.empty()) absl::StrAppend(&text, ", device key ", needs.device_key);
  const SlotInfo* nearest = nullptr;
  for (const SlotInfo& slot : dispatcher.slots()) {
    if (!slot.device) continue;
    if (nearest == nullptr || Distance(slot, needs) < Distance(*nearest, needs)) nearest = &slot;
  }
  if (nearest == nullptr) {
    return absl::StrCat(
        text, "; no worker offers any device (start one: heddle-worker --device-slots ..)");
  }
  return absl::StrCat(text, "; nearest: worker ", nearest->id.worker, " has ", nearest->target,
                      ", ", Threads(static_cast<int>(nearest->cores.size())), ", device key ",
                      nearest->device_key);
}

// Which constraint keeps `work` from a slot.
std::string WhyWaiting(const Dispatcher& dispatcher, const Job& job, const WorkItem& work) {
  if (!dispatcher.store_problem().empty()) return dispatcher.store_problem();
  if (!dispatcher.tracker_problem().empty()) return dispatcher.tracker_problem();
  if (dispatcher.slots().empty()) return "no worker is registered at the tracker";
  const Dispatcher::SuitingSlots suiting = dispatcher.SlotsFor(work);
  if (suiting.free) {
    if (work.kind == v1::STAGE_BUILD && dispatcher.LacksRoom(job)) {
      return absl::StrCat("waiting: ", dispatcher.artifact_bytes() >> 20,
                          " MiB of built code wait for a device; builds go on when they are "
                          "measured");
    }
    return "waiting for its turn: other jobs go first";
  }
  const std::string need = work.device ? "a device slot" : "a cpu slot";
  if (const SlotInfo* const slot = suiting.one; slot != nullptr) {
    const std::string name = absl::StrCat(slot->id.worker, "/", slot->id.slot);
    if (!slot->usable) return absl::StrCat("waiting for ", need, ": ", name, ": ", slot->why_not);
    if (const LiveStage* const stage = dispatcher.StageOn(slot->id))
      return absl::StrCat("waiting for ", need, ": ", name, " runs ", StageName(stage->kind),
                          " of j", stage->job.value);
    const std::string refusal = dispatcher.Refusal(slot->id);
    if (refusal.empty()) return absl::StrCat("waiting for ", need);
    return absl::StrCat("waiting for ", need, ": ", name, " was refused: ", refusal);
  }
  if (work.device) return MissingDevice(dispatcher, job.params);
  const bool any = std::any_of(dispatcher.slots().begin(), dispatcher.slots().end(),
                               [](const SlotInfo& slot) { return !slot.device; });
  if (!any) return "no worker offers a cpu slot";
  return absl::StrCat(
      "waiting: no worker has a compiler for ", job.params.target,
      "; start heddle-worker --cpu-slots .. where it finds one (the log of a worker "
      "says why it has no builds for ",
      std::string(KindOf(job.params.target)), " targets)");
}

std::string DescribeRound(const Dispatcher& dispatcher, const Job& job, const Task& task,
                          TaskIndex index) {
  int size = 0;
  for (const Round& round : task.rounds) size += round.size;
  const int done = size - static_cast<int>(task.open.size());
  if (!task.profiles.empty()) return absl::StrCat("profile ", done, "/", size);
  int building = 0, built = 0;
  for (const auto& [id, candidate] : task.open) {
    building += Is<Building>(candidate.where);
    built += Is<Built>(candidate.where);
  }
  const WorkItem profile{job.id, v1::STAGE_PROFILE, index, std::nullopt, true};
  const WorkItem build{job.id, v1::STAGE_BUILD, index, std::nullopt, false};
  if (building > 0) return absl::StrCat("build ", size - building, "/", size);
  return WhyWaiting(dispatcher, job, built > 0 ? profile : build);
}

}  // namespace

std::string DescribeEstimate(const Job& job, const DeadlineEstimate& estimate, absl::Time now,
                             absl::Time wall) {
  if (!estimate.late) return "";
  auto text = [&](absl::Time time) {
    return absl::FormatTime("%Y-%m-%d %H:%M", wall + (time - now), absl::LocalTimeZone());
  };
  if (estimate.finish == absl::InfiniteFuture())
    return absl::StrCat(kDeadlineWarning, text(job.params.deadline),
                        job.paused ? " is missed: the job is paused; resume it"
                                   : " cannot be met: there is no device for the job");
  const absl::Duration late = estimate.finish - job.params.deadline;
  return absl::StrCat(kDeadlineWarning, text(job.params.deadline),
                      " cannot be met: expected to end ", text(estimate.finish), ", ",
                      absl::FormatDuration(absl::Ceil(late, absl::Seconds(1))),
                      " late; fewer trials or more workers would help");
}

std::string DescribeTask(const Dispatcher& dispatcher, const Job& job, TaskIndex index,
                         absl::Time now) {
  const Task& task = job.tasks[index.value];
  if (Is<Finished>(task.phase)) {
    if (task.trials == 0 && task.known.total > 0)
      return absl::StrCat("reused ", task.known.total, " records");
    if (task.trials > 0 && task.valid() == 0 && task.known.valid == 0)
      return "given up: every trial failed";
    if (task.exhausted && task.remaining() > 0) return "done: nothing left to try";
    return Plateaued(job.params, task) ? "done: plateau" : "done";
  }
  if (job.final()) return "stopped";
  if (job.paused && task.profiles.empty()) return "paused";
  if (task.not_before > now) {
    return absl::StrCat(
        "trying again in ",
        absl::FormatDuration(absl::Ceil(task.not_before - now, absl::Milliseconds(100))),
        " after: ", job.last_fault);
  }
  if (Is<Proposing>(task.phase)) return "propose";
  if (Is<Updating>(task.phase)) return "update";
  if (!task.open.empty()) return DescribeRound(dispatcher, job, task, index);
  const WorkItem cpu{job.id, v1::STAGE_PROPOSE, index, std::nullopt, false};
  if (Is<Waiting>(task.phase)) {
    const WorkItem profile{job.id, v1::STAGE_PROFILE, index, std::nullopt, true};
    return dispatcher.SlotsFor(profile).one != nullptr ? "waiting for its turn"
                                                       : WhyWaiting(dispatcher, job, profile);
  }
  return WhyWaiting(dispatcher, job, cpu);
}

std::string DescribeJob(const Dispatcher& dispatcher, const Job& job, absl::Time now) {
  if (const auto* failed = std::get_if<Failed>(&job.phase)) return failed->fault.message;
  if (const auto* cancelled = std::get_if<Cancelled>(&job.phase)) {
    return cancelled->reason.empty() ? "cancelled" : absl::StrCat("cancelled: ", cancelled->reason);
  }
  if (Is<Done>(job.phase)) {
    int tasks = 0, reused = 0, records = 0, trials = 0, untuned = 0;
    for (const Task& task : job.tasks) {
      trials += task.trials;
      if (task.weight == 0) continue;  // of another plan
      ++tasks;
      if (task.trials == 0 && task.known.total > 0) ++reused, records += task.known.total;
      if (task.valid() == 0 && task.known.valid == 0) ++untuned;
    }
    std::string text = "done";
    if (reused > 0) {
      absl::StrAppend(&text, ": reused ", records, " records for ", reused, " of ", tasks, " tasks",
                      trials == 0 ? ", no new trials" : "");
    }
    if (untuned > 0)
      absl::StrAppend(&text, reused > 0 ? "; " : ": ", untuned, " of ", tasks,
                      " tasks are untuned");
    if (!job.stop.empty()) absl::StrAppend(&text, text == "done" ? ": " : "; ", job.stop);
    return text;
  }
  if (job.paused) return job.paused->empty() ? "paused" : absl::StrCat("paused: ", *job.paused);
  if (!dispatcher.store_problem().empty()) return dispatcher.store_problem();
  if (!Is<Tuning>(job.phase)) {
    const v1::StageKind kind = StageOf(job.phase);
    if (job.live) return StageName(kind);
    if (job.not_before > now)
      return absl::StrCat(StageName(kind), " is tried again after: ", job.last_fault);
    return absl::StrCat(
        StageName(kind), ": ",
        WhyWaiting(dispatcher, job, {job.id, kind, std::nullopt, std::nullopt, NeedsDevice(kind)}));
  }
  std::map<v1::StageKind, int> running;
  for (const AttemptId id : job.stages) ++running[dispatcher.live().at(id).kind];
  if (!running.empty()) {
    return absl::StrJoin(running, ", ", [](std::string* out, const auto& entry) {
      absl::StrAppend(out, StageName(entry.first));
      if (entry.second > 1) absl::StrAppend(out, " x", entry.second);
    });
  }
  if (job.finding) return "looking up what is on record for the device";
  for (TaskIndex index : job.in_flight) return DescribeTask(dispatcher, job, index, now);
  for (TaskIndex index : job.queue) return DescribeTask(dispatcher, job, index, now);
  return "tuning";
}

}  // namespace heddle::scheduler
