#include "scheduler/sim/world/workers.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace heddle::sim {
namespace {

// A hung stage ends by its time limit, this long after it began.
constexpr absl::Duration kTimeLimit = absl::Seconds(60);

// A liar (Faults::liar) blames the user in so many of the stages whose user fault can fail a job.
constexpr double kLies = 1.0 / 3;

bool IsAccusing(v1::StageKind kind) {
  return kind == v1::STAGE_IMPORT || kind == v1::STAGE_PROPOSE || kind == v1::STAGE_UPDATE ||
         kind == v1::STAGE_COMPILE;
}

bool HasCandidates(v1::StageKind kind) {
  return kind == v1::STAGE_BUILD || kind == v1::STAGE_PROFILE;
}

FaultInfo Infrastructure(const std::string& message) { return {v1::FAULT_INFRASTRUCTURE, message}; }

}  // namespace

const StageTime& Workers::TimeOf(const StartStage& start) const {
  const SimJob& job = JobOf(start);
  const auto kind = static_cast<size_t>(start.kind);
  return start.task ? job.tasks[static_cast<size_t>(start.task->value)].times[kind]
                    : job.times[kind];
}

// Names a stream of draws that is the same under every policy.
uint64_t Workers::KeyOf(const StartStage& start, uint64_t what) const {
  return Mix({scenario_.seed, static_cast<uint64_t>(start.job.value),
              static_cast<uint64_t>(start.task ? start.task->value + 1 : 0),
              static_cast<uint64_t>(start.kind), what});
}

bool Workers::Holds(const SlotId& slot) const {
  return std::any_of(stages_.begin(), stages_.end(),
                     [&](const auto& entry) { return entry.second.start.slot == slot; });
}

RunningStage* Workers::Find(AttemptId id) {
  const auto it = stages_.find(id);
  return it == stages_.end() || it->second.over ? nullptr : &it->second;
}

void Workers::Later(AttemptId id, absl::Duration after, Agenda::Action action) {
  agenda_.AtInThisLife(stages_.at(id).process, after, std::move(action));
}

void Workers::Order(AttemptId id, Agenda::Action action) {
  if (!scenario_.network.any()) return action();
  RunningStage& stage = stages_.at(id);
  const double takes = scenario_.network.orders.Draw(Mix({scenario_.seed, 6}), ++messages_);
  stage.last_order = std::max(stage.last_order, now() + absl::Seconds(takes));
  Later(id, stage.last_order - now(), std::move(action));
}

void Workers::Tell(RunningStage* stage, Event event) {
  const int process = stage->process;
  if (!scenario_.network.any()) return hooks_.tell(process, std::move(event));
  const double takes = scenario_.network.answers.Draw(Mix({scenario_.seed, 7}), ++messages_);
  stage->last_answer = std::max(stage->last_answer, now() + absl::Seconds(takes));
  agenda_.AtInThisLife(process, stage->last_answer - now(),
                       [this, process, event = std::move(event)] { hooks_.tell(process, event); });
}

// ---- orders ----

void Workers::Begin(int process, const StartStage& start, StageWork work, Fetch fetch) {
  RunningStage stage;
  stage.start = start;
  stage.work = std::move(work);
  stage.process = process;
  stage.slot = machines_.IndexOf(start.slot);
  stage.token = ++last_token_;
  stage.closing = stage.input_closed = start.kind != v1::STAGE_PROFILE;
  stage.began = stage.last_order = stage.last_answer = now();
  stage.candidates = start.kind == v1::STAGE_PROPOSE ? start.count : 0;
  const int64_t number =
      started_[{start.job.value * 4096 + (start.task ? start.task->value + 1 : 0), start.kind}]++;
  const StageTime& time = TimeOf(start);
  if (!time.per_candidate)
    stage.factor = time.seconds.Draw(KeyOf(start, 0), static_cast<uint64_t>(number));
  stages_[start.attempt] = std::move(stage);
  if (options_.durable) of_job_[start.job].insert(start.attempt);
  const bool refused = Chance(scenario_.faults.refused);
  const bool hung =
      Unit(Mix({KeyOf(start, 3), static_cast<uint64_t>(number)})) < scenario_.faults.hung;
  const AttemptId id = start.attempt;
  Order(id, [this, id, refused, hung, fetch = std::move(fetch)] {
    if (Find(id) == nullptr) return;
    Later(id, scenario_.faults.slow_messages ? Between(0.001, 0.1) : absl::ZeroDuration(),
          [this, id, refused, hung, fetch] {
            if (Find(id) != nullptr) Take(id, refused, hung, fetch);
          });
  });
}

void Workers::Take(AttemptId id, bool refused, bool hung, const Fetch& fetch) {
  RunningStage& stage = stages_.at(id);
  if (fetch) fetch(&stage.work);
  if (refused || machines_.Refuses(stage.start.slot)) return Refuse(id);
  stage.taken = true;
  stage.hung = hung;
  if (!hung) return Work(id);
  Later(id, kTimeLimit, [this, id] { Finish(id, Infrastructure("over its time limit")); });
}

bool Workers::Feed(AttemptId id, CandidateWork candidate) {
  auto found = stages_.find(id);
  if (found == stages_.end() || found->second.closing) return false;
  Order(id, [this, id, candidate = std::move(candidate)] {
    RunningStage* stage = Find(id);
    if (stage == nullptr) return;
    stage->work.inputs.push_back(candidate);
    // Not at once, because what the same step starts has not begun yet.
    Later(id, absl::ZeroDuration(), [this, id] { Work(id); });
  });
  return true;
}

void Workers::CloseInput(AttemptId id) {
  auto found = stages_.find(id);
  if (found == stages_.end()) return;
  found->second.closing = true;
  Order(id, [this, id] {
    RunningStage* stage = Find(id);
    if (stage == nullptr) return;
    stage->input_closed = true;
    Work(id);
  });
}

void Workers::Cancel(AttemptId id) {
  auto found = stages_.find(id);
  if (found == stages_.end()) return;
  found->second.cancelled = true;
  Order(id, [this, id] {
    if (Find(id) == nullptr) return;
    Later(id, scenario_.faults.any() ? Between(0, 1) : absl::ZeroDuration(),
          [this, id] { Finish(id, Infrastructure("cancelled")); });
  });
}

// ---- work ----

// Begins the next piece of the stage, if it can have one now.
void Workers::Work(AttemptId id) {
  const RunningStage* found = Find(id);
  if (found == nullptr || !found->taken || found->busy || found->hung) return;
  const RunningStage& stage = *found;
  if (HasCandidates(stage.start.kind)) return WorkOnCandidates(id);
  const StageTime& time = TimeOf(stage.start);
  double seconds = stage.factor;
  if (time.per_candidate) {
    seconds = 0;
    for (int i = 0; i < std::max(1, stage.candidates); ++i)
      seconds += time.seconds.Draw(KeyOf(stage.start, 1),
                                   static_cast<uint64_t>(stage.start.attempt.value + i));
  }
  StartPiece(id, seconds);
}

void Workers::WorkOnCandidates(AttemptId id) {
  RunningStage& stage = stages_.at(id);
  std::deque<CandidateWork>& inputs = stage.work.inputs;
  if (inputs.empty()) {
    if (!stage.input_closed) return;
    stage.busy = true;  // it only has to say that it has ended
    stage.left = 0;
    Later(id, scenario_.faults.slow_messages ? Between(0, 0.2) : absl::ZeroDuration(),
          [this, id] { Finish(id, {}); });
    return;
  }
  const StageTime& time = TimeOf(stage.start);
  const int batch = JobOf(stage.start).batch;
  const size_t take =
      !time.per_candidate && stage.start.kind == v1::STAGE_BUILD ? inputs.size() : 1;
  double seconds = 0;
  stage.working.clear();
  for (size_t i = 0; i < take; ++i) {
    CandidateWork candidate = std::move(inputs.front());
    inputs.pop_front();
    if (stage.job_over) candidate.ordinal = 0;
    seconds += time.per_candidate ? time.seconds.Draw(KeyOf(stage.start, 2),
                                                      static_cast<uint64_t>(candidate.ordinal))
                                  : stage.factor / batch;
    stage.working.push_back(std::move(candidate));
  }
  const CandidateId first = stage.working.front().id;
  StartPiece(id, seconds);
  Tell(&stage, CandidateStarted{id, first});
}

void Workers::StartPiece(AttemptId id, double seconds) {
  RunningStage& stage = stages_.at(id);
  stage.busy = true;
  stage.left = std::max(1e-9, seconds / scenario_.slots[static_cast<size_t>(stage.slot)].speed);
  stage.alone = stage.left;
  stage.stretched = 0;
  stage.disturbed_piece = false;
  stage.rate = 1;
  stage.sharers = 1;
  stage.since = now();
  if (options_.share_cores) return Rebalance(stage.slot);
  PlanEndOfPiece(id);
}

// Replaces the plan that was made before, if any.
void Workers::PlanEndOfPiece(AttemptId id) {
  RunningStage& stage = stages_.at(id);
  Later(id, absl::Seconds(stage.left / stage.rate), [this, id, piece = ++stage.piece] {
    const RunningStage* at_work = Find(id);
    if (at_work != nullptr && at_work->piece == piece) EndPiece(id);
  });
}

// Stages that overlap on the cores of the slot go on at the rate that is left to each: in
// proportion, if together they want more than there is.
void Workers::Rebalance(int slot) {
  if (!options_.share_cores) return;
  const std::vector<int>& near = machines_.NeighboursOf(slot);
  double load = 0;
  std::vector<AttemptId> sharing;
  for (auto& [id, stage] : stages_) {
    if (!stage.busy || stage.left <= 0 || !std::binary_search(near.begin(), near.end(), stage.slot))
      continue;
    load += TimeOf(stage.start).load;
    sharing.push_back(id);
  }
  for (AttemptId id : sharing) {
    RunningStage& stage = stages_.at(id);
    const double passed = absl::ToDoubleSeconds(now() - stage.since);
    stage.left = std::max(1e-9, stage.left - passed * stage.rate);
    stage.stretched += passed;
    result_.busy[static_cast<size_t>(stage.slot)] += passed / stage.sharers;
    stage.sharers = static_cast<double>(sharing.size());
    stage.since = now();
    stage.rate = 1 / std::max(1.0, load);
    if (sharing.size() > 1) stage.disturbed_piece = stage.disturbed = true;
    PlanEndOfPiece(id);
  }
}

void Workers::EndPiece(AttemptId id) {
  RunningStage& stage = stages_.at(id);
  const double passed = absl::ToDoubleSeconds(now() - stage.since);
  stage.stretched += passed;
  result_.busy[static_cast<size_t>(stage.slot)] += passed / stage.sharers;
  stage.left = 0;
  stage.busy = false;
  Rebalance(stage.slot);
  if (HasCandidates(stage.start.kind)) return EndCandidates(id);
  EndSimple(id);
}

// ---- answers ----

void Workers::EndSimple(AttemptId id) {
  const RunningStage& stage = stages_.at(id);
  const StartStage& start = stage.start;
  if (Chance(scenario_.faults.broken)) return Finish(id, Infrastructure("out of memory"));
  if (start.slot.worker == scenario_.faults.liar && IsAccusing(start.kind) &&
      Unit(Mix({KeyOf(start, 4), static_cast<uint64_t>(start.attempt.value)})) < kLies)
    return Finish(id, {v1::FAULT_USER, "I do not like this model"});
  switch (start.kind) {
    case v1::STAGE_IMPORT: {
      if (JobOf(start).user_error) return Finish(id, {v1::FAULT_USER, "not a model"});
      Imported imported;
      imported.model = searches_.Import(start.job);
      std::vector<std::string> keys;
      const Planned all = searches_.Plan(start.job, {});
      for (const v1::TaskInfo& task : all.plan.tasks()) keys.push_back(task.key());
      promises_of_(stage.process).HasTasks(start.job, std::move(keys));
      return Finish(id, {}, std::move(imported));
    }
    case v1::STAGE_PROPOSE: {
      StageWork work = stage.work;
      if (stage.job_over) work.search = {};
      return Finish(id, {}, searches_.Propose(start.job, *start.task, work));
    }
    case v1::STAGE_UPDATE:
      return Finish(id, {}, searches_.Learn(stage.work));
    case v1::STAGE_PLAN:
      return Finish(id, {}, searches_.Plan(start.job, stage.work));
    case v1::STAGE_COMPARE:
      return Finish(id, {}, searches_.Compare(start.job, stage.work));
    default:
      return Finish(id, {}, searches_.Compile(stage.work));
  }
}

void Workers::EndCandidates(AttemptId id) {
  const std::vector<CandidateWork> working = stages_.at(id).working;
  for (const CandidateWork& candidate : working) {
    if (Find(id) == nullptr) return;
    Answer(id, candidate);
  }
  Work(id);
}

void Workers::Answer(AttemptId id, const CandidateWork& answered) {
  const Faults& faults = scenario_.faults;
  RunningStage& stage = stages_.at(id);
  const bool poison = faults.poison > 0 && answered.id.value % faults.poison == 7;
  if (poison || Chance(faults.broken)) return Finish(id, Infrastructure("the worker broke down"));
  CandidateWork candidate = answered;
  if (stage.job_over) candidate.ordinal = 0;
  const Event event = stage.start.kind == v1::STAGE_BUILD ? BuildAnswer(id, candidate)
                                                          : ProfileAnswer(id, candidate);
  const int process = stage.process;
  ++stage.candidates;
  if (Chance(faults.lost)) return;
  Tell(&stage, event);
  if (Chance(faults.duplicated)) {
    agenda_.AtInThisLife(process, Between(0, 10),
                         [this, process, event] { hooks_.tell(process, event); });
  }
}

namespace {

std::shared_ptr<Measured> MeasuredBy(const RunningStage& stage, bool durable) {
  auto measured = std::make_shared<Measured>();
  measured->fencing_token = stage.token;
  if (durable) {
    measured->measurement.mutable_evidence()->set_worker(stage.start.slot.worker);
    measured->measurement.mutable_evidence()->set_slot(stage.start.slot.slot);
  }
  return measured;
}

std::shared_ptr<const v1::Artifact> ArtifactOf(const CandidateWork& candidate) {
  auto artifact = std::make_shared<v1::Artifact>();
  artifact->set_shared_object(CodeOf(candidate.trace));
  return artifact;
}

}  // namespace

Event Workers::BuildAnswer(AttemptId id, const CandidateWork& candidate) const {
  const RunningStage& stage = stages_.at(id);
  const bool bad = searches_.FlawOf(stage.start.job, *stage.start.task, candidate.ordinal) ==
                   Searches::Flaw::kBuild;
  CandidateBuilt built{id, candidate.id, bad ? v1::OUTCOME_BUILD_ERROR : v1::OUTCOME_OK,
                       bad ? "refused" : ""};
  if (options_.durable && !bad) built.artifact = ArtifactOf(candidate);
  if (scenario_.code_room > 0 && !bad) built.artifact_bytes = kCodeBytes;
  built.measured = MeasuredBy(stage, options_.durable);
  return built;
}

Event Workers::ProfileAnswer(AttemptId id, const CandidateWork& candidate) {
  const RunningStage& stage = stages_.at(id);
  const JobId job = stage.start.job;
  const TaskIndex task = *stage.start.task;
  const bool bad = searches_.FlawOf(job, task, candidate.ordinal) != Searches::Flaw::kNone;
  double median = searches_.TrueMedian(job, task, candidate.ordinal);
  if (stage.disturbed_piece) median *= std::max(1.0, stage.stretched / stage.alone);
  if (machines_.lying.count(stage.start.slot)) {
    median /= 100;
    hooks_.lied(stage.start.slot);
  }
  auto measured = MeasuredBy(stage, options_.durable);
  if (options_.durable && !bad) measured->measurement.add_samples_ns(median);
  ++result_.measurements;
  result_.disturbed += stage.disturbed_piece;
  return CandidateProfiled{id,
                           candidate.id,
                           bad ? v1::OUTCOME_RUN_CRASH : v1::OUTCOME_OK,
                           bad ? "signal 11" : "",
                           bad ? 0 : median,
                           0,
                           std::move(measured)};
}

// ---- ends ----

void Workers::Refuse(AttemptId id) {
  RunningStage& stage = stages_.at(id);
  stage.over = true;
  promises_of_(stage.process).Refused(stage.start.slot);
  Tell(&stage, StageFinished{id, Infrastructure("no lease"), false, {}});
}

void Workers::Finish(AttemptId id, FaultInfo fault, Result result, Ending ending) {
  RunningStage* const found = Find(id);
  if (found == nullptr) return;
  RunningStage& stage = *found;
  stage.over = true;
  if (stage.busy && stage.left > 0) {
    result_.busy[static_cast<size_t>(stage.slot)] +=
        absl::ToDoubleSeconds(now() - stage.since) / stage.sharers;
    stage.busy = false;
    Rebalance(stage.slot);
  }
  const double held = absl::ToDoubleSeconds(now() - stage.began);
  const auto job = static_cast<size_t>(stage.start.job.value - 1);
  result_.held[static_cast<size_t>(stage.slot)] += held;
  result_.jobs[job].service += held;
  if (options_.spans) {
    result_.stages.push_back({stage.slot, static_cast<int>(job),
                              stage.start.task ? stage.start.task->value : -1, stage.start.kind,
                              agenda_.Since(stage.began), agenda_.Since(now()), stage.candidates,
                              stage.disturbed, fault.kind != v1::FAULT_NONE});
  }
  if (fault.kind == v1::FAULT_INFRASTRUCTURE && !stage.cancelled) ++result_.infrastructure_faults;
  Promises& promises = promises_of_(stage.process);
  promises.Ended(stage.start, fault.kind);
  if (stage.start.kind == v1::STAGE_UPDATE && fault.kind != v1::FAULT_NONE)
    promises.UpdateFailed(stage.start.job);
  const bool interrupted = ending != Ending::kFault;
  if (!stage.taken || interrupted) promises.Refused(stage.start.slot);
  if (ending == Ending::kCrashed) promises.Crashed(id);
  StageFinished end{id, std::move(fault), stage.taken, std::move(result), interrupted};
  end.silent = ending == Ending::kSilent || ending == Ending::kCrashed;
  end.fence = {stage.start.slot, stage.token};
  const int process = stage.process;
  Tell(&stage, end);
  if (Chance(scenario_.faults.duplicated)) {
    agenda_.AtInThisLife(process, Between(0, 5),
                         [this, process, end] { hooks_.tell(process, end); });
  }
}

void Workers::Release(AttemptId id) {
  const auto found = stages_.find(id);
  if (found == stages_.end() || !found->second.over) return;
  Forget(found->second.start);
  stages_.erase(found);
}

void Workers::Break(AttemptId id, const std::string& message, Ending ending) {
  Finish(id, Infrastructure(message), {}, ending);
}

void Workers::LeaveGhost(AttemptId id) {
  const RunningStage& stage = stages_.at(id);
  if (stage.over || !stage.taken || !HasCandidates(stage.start.kind)) return;
  std::vector<CandidateWork> candidates = stage.working;
  candidates.insert(candidates.end(), stage.work.inputs.begin(), stage.work.inputs.end());
  double after = 0;
  for (const CandidateWork& candidate : candidates) {
    after += dice_.Between(0, 6);
    Event event;
    if (stage.start.kind == v1::STAGE_BUILD) {
      event = CandidateBuilt{id, candidate.id, v1::OUTCOME_OK, "", ArtifactOf(candidate)};
    } else {
      auto measured = MeasuredBy(stage, true);
      measured->measurement.add_samples_ns(1);
      event = CandidateProfiled{id, candidate.id, v1::OUTCOME_OK, "", 1, 0, std::move(measured)};
    }
    agenda_.At(absl::Seconds(after), [this, process = stage.process, start = stage.start, event] {
      hooks_.tell_late(process, start, event);
    });
  }
}

void Workers::EndLife(int process) {
  for (const auto& [id, stage] : stages_) {
    if (stage.process == process && stage.taken && dice_.Likely(0.3)) LeaveGhost(id);
  }
  std::erase_if(stages_, [&](const auto& entry) {
    const bool ends = entry.second.process == process;
    if (ends) Forget(entry.second.start);
    return ends;
  });
}

void Workers::Forget(const StartStage& start) {
  const auto of_job = of_job_.find(start.job);
  if (of_job == of_job_.end()) return;
  of_job->second.erase(start.attempt);
  if (of_job->second.empty()) of_job_.erase(of_job);
}

void Workers::JobOver(JobId job) {
  const auto of_job = of_job_.find(job);
  if (of_job == of_job_.end()) return;
  for (AttemptId id : of_job->second) stages_.at(id).job_over = true;
}

}  // namespace heddle::sim
