// What workers do with the stages they are given, and how long it takes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/sim/world/world.h"

namespace heddle::sim {
namespace {

constexpr double kTimeLimit = 60;  // a hung stage ends so many seconds after it was to end

}  // namespace

void World::Note(int index, const Event& event, const Change& change) {
  if (const auto* add = std::get_if<AddCandidates>(&change)) {
    searches_.Added(*add);
  } else if (std::holds_alternative<SetAttempts>(change)) {
    if (!scenario_.faults.any()) Violation("an attempt is counted in a world without faults");
  } else if (const auto* done = std::get_if<FinishCandidate>(&change)) {
    ++result_.trials;
    ++result_.jobs[static_cast<size_t>(JobIndex(done->job))].trials;
    result_.lost += done->outcome == v1::OUTCOME_LOST;
    searches_.Finished(*done);
    if (options_.checks) promises_.CheckRecord(*done, event);
  } else if (std::holds_alternative<JobChanged>(change)) {
    NoteEnds(index);
  }
}

void World::Perform(int index, const Order& order) {
  if (const auto* start = std::get_if<StartStage>(&order)) {
    Begin(index, *start);
  } else if (const auto* feed = std::get_if<FeedProfile>(&order)) {
    if (options_.durable && options_.checks) {
      promises_.CheckArtifact(processes_[static_cast<size_t>(index)].book, feed->job,
                              feed->candidate);
    }
    auto stage = stages_.find(feed->attempt);
    if (stage == stages_.end() || stage->second.input_closed)
      return Violation("fed a profile stage whose input is closed");
    stage->second.inputs.push_back(feed->candidate);
    // Not at once: what this step starts has not begun yet.
    Later(absl::ZeroDuration(), [this, id = feed->attempt] {
      if (stages_.count(id)) Work(id);
    });
  } else if (const auto* close = std::get_if<CloseProfile>(&order)) {
    auto stage = stages_.find(close->attempt);
    if (stage == stages_.end()) return;
    stage->second.input_closed = true;
    Work(close->attempt);
  } else if (const auto* cancel = std::get_if<CancelStage>(&order)) {
    Later(scenario_.faults.any() ? Between(0, 1) : absl::ZeroDuration(),
          [this, id = cancel->attempt] {
            Finish(id, {v1::FAULT_INFRASTRUCTURE, "cancelled"});
          });
  }
}

const StageTime& World::TimeOf(const StartStage& start) const {
  const SimJob& job = scenario_.jobs[static_cast<size_t>(JobIndex(start.job))];
  const auto kind = static_cast<size_t>(start.kind);
  return start.task ? job.tasks[static_cast<size_t>(start.task->value)].times[kind]
                    : job.times[kind];
}

// Of a stream of draws: the same for every policy.
uint64_t World::KeyOf(const StartStage& start, uint64_t what) const {
  return Mix({scenario_.seed, static_cast<uint64_t>(start.job.value),
              static_cast<uint64_t>(start.task ? start.task->value + 1 : 0),
              static_cast<uint64_t>(start.kind), what});
}

void World::Begin(int index, const StartStage& start) {
  Process& process = processes_[static_cast<size_t>(index)];
  process.next_attempt = std::max(process.next_attempt, start.attempt.value + 1);
  RunningStage stage;
  stage.slot = machines_.IndexOf(start.slot);
  const SimSlot& slot = scenario_.slots[static_cast<size_t>(stage.slot)];
  if (options_.checks) {
    promises_.CheckStart(*process.dispatcher, process.book, start);
    promises_.CountPassedOver(*process.dispatcher, start, slot.info);
  }
  if (!result_.violation.empty()) return;
  stage.start = start;
  stage.process = index;
  stage.token = ++last_token_;
  stage.inputs.assign(start.candidates.begin(), start.candidates.end());
  stage.input_closed = start.kind != v1::STAGE_PROFILE;
  stage.began = now();
  stage.candidates = start.kind == v1::STAGE_PROPOSE ? start.count : 0;
  const int64_t number =
      started_[{start.job.value * 4096 + (start.task ? start.task->value + 1 : 0), start.kind}]++;
  const StageTime& time = TimeOf(start);
  if (!time.per_candidate)
    stage.factor = time.seconds.Draw(KeyOf(start, 0), static_cast<uint64_t>(number));
  stages_[start.attempt] = std::move(stage);
  const bool refused = machines_.Refuses(start.slot) || Chance(scenario_.faults.refused);
  const bool hung =
      Unit(Mix({KeyOf(start, 3), static_cast<uint64_t>(number)})) < scenario_.faults.hung;
  Later(scenario_.faults.slow_messages ? Between(0.001, 0.1) : absl::ZeroDuration(),
        [this, id = start.attempt, refused, hung] {
          auto it = stages_.find(id);
          if (it == stages_.end()) return;
          if (refused) return Refuse(id);
          it->second.taken = true;
          if (hung) {
            it->second.hung = true;
            Later(absl::Seconds(kTimeLimit), [this, id] {
              Finish(id, {v1::FAULT_INFRASTRUCTURE, "over its time limit"});
            });
            return;
          }
          Work(id);
        });
}

void World::Refuse(AttemptId id) {
  auto it = stages_.find(id);
  const RunningStage stage = std::move(it->second);
  stages_.erase(it);
  promises_.Refused(stage.start.slot);
  Feed(stage.process, StageFinished{id, {v1::FAULT_INFRASTRUCTURE, "no lease"}, false, {}});
}

void World::Finish(AttemptId id, FaultInfo fault, decltype(StageFinished::result) result,
                   bool interrupted) {
  auto it = stages_.find(id);
  if (it == stages_.end()) return;
  const RunningStage stage = std::move(it->second);
  stages_.erase(it);
  if (stage.busy && stage.left > 0) {
    result_.busy[static_cast<size_t>(stage.slot)] +=
        absl::ToDoubleSeconds(now() - stage.since) / stage.sharers;
    Rebalance(stage.slot);
  }
  const double held = absl::ToDoubleSeconds(now() - stage.began);
  result_.held[static_cast<size_t>(stage.slot)] += held;
  result_.jobs[static_cast<size_t>(JobIndex(stage.start.job))].service += held;
  if (options_.spans) {
    result_.stages.push_back({stage.slot, JobIndex(stage.start.job),
                              stage.start.task ? stage.start.task->value : -1, stage.start.kind,
                              agenda_.Since(stage.began), agenda_.Since(now()), stage.candidates,
                              stage.disturbed, fault.kind != v1::FAULT_NONE});
  }
  const Dispatcher& dispatcher = *processes_[static_cast<size_t>(stage.process)].dispatcher;
  const auto live = dispatcher.live().find(id);
  const bool cancelled = live != dispatcher.live().end() && live->second.cancelled;
  if (fault.kind == v1::FAULT_INFRASTRUCTURE && !cancelled) ++result_.infrastructure_faults;
  if (stage.start.kind == v1::STAGE_UPDATE && fault.kind != v1::FAULT_NONE)
    promises_.UpdateFailed(stage.start.job);
  if (!stage.taken || interrupted) promises_.Refused(stage.start.slot);
  StageFinished end{id, fault, stage.taken, std::move(result), interrupted};
  end.fence = {stage.start.slot, stage.token};
  Feed(stage.process, end);
  if (Chance(scenario_.faults.duplicated))
    Later(Between(0, 5), [this, process = stage.process, end] { Feed(process, end); });
}

// What the worker does next in this stage.
void World::Work(AttemptId id) {
  auto it = stages_.find(id);
  if (it == stages_.end() || !it->second.taken || it->second.busy || it->second.hung) return;
  RunningStage& stage = it->second;
  if (stage.start.kind == v1::STAGE_BUILD || stage.start.kind == v1::STAGE_PROFILE)
    return WorkOnCandidates(id);
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

// Builds that are timed by the batch are one piece; everything else goes candidate by candidate.
void World::WorkOnCandidates(AttemptId id) {
  RunningStage& stage = stages_.at(id);
  if (stage.inputs.empty()) {
    if (!stage.input_closed) return;
    stage.busy = true;  // nothing more but to say so
    stage.left = 0;
    Later(scenario_.faults.slow_messages ? Between(0, 0.2) : absl::ZeroDuration(),
          [this, id] { Finish(id, {}); });
    return;
  }
  const StageTime& time = TimeOf(stage.start);
  const int batch = scenario_.jobs[static_cast<size_t>(JobIndex(stage.start.job))].batch;
  const size_t take =
      !time.per_candidate && stage.start.kind == v1::STAGE_BUILD ? stage.inputs.size() : 1;
  const JobLedger& book = processes_[static_cast<size_t>(stage.process)].book;
  double seconds = 0;
  stage.working.clear();
  for (size_t i = 0; i < take; ++i) {
    const CandidateId candidate = stage.inputs.front();
    stage.inputs.pop_front();
    stage.working.push_back(candidate);
    seconds += time.per_candidate
                   ? time.seconds.Draw(
                         KeyOf(stage.start, 2),
                         static_cast<uint64_t>(searches_.Ordinal(stage.start.job, candidate, book)))
                   : stage.factor / batch;
  }
  StartPiece(id, seconds);
  const int process = stages_.at(id).process;
  const CandidateId first = stages_.at(id).working.front();
  Feed(process, CandidateStarted{id, first});
}

void World::StartPiece(AttemptId id, double seconds) {
  RunningStage& stage = stages_.at(id);
  stage.busy = true;
  stage.left = std::max(1e-9, seconds / scenario_.slots[static_cast<size_t>(stage.slot)].speed);
  stage.alone = stage.left;
  stage.stretched = 0;
  stage.disturbed_piece = false;
  stage.rate = 1;
  stage.sharers = 1;
  stage.since = now();
  ++stage.piece;
  if (processes_.size() > 1) return Rebalance(stage.slot);
  Later(absl::Seconds(stage.left), [this, id, piece = stage.piece] {
    auto it = stages_.find(id);
    if (it != stages_.end() && it->second.piece == piece) EndPiece(id);
  });
}

// Stages that overlap on cores of one machine go on at the rate that is left to each: in
// proportion, when together they want more than there is.
void World::Rebalance(int slot) {
  if (processes_.size() == 1) return;
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
    ++stage.piece;
    Later(absl::Seconds(stage.left / stage.rate), [this, id, piece = stage.piece] {
      auto it = stages_.find(id);
      if (it != stages_.end() && it->second.piece == piece) EndPiece(id);
    });
  }
}

void World::EndPiece(AttemptId id) {
  RunningStage& stage = stages_.at(id);
  const double passed = absl::ToDoubleSeconds(now() - stage.since);
  stage.stretched += passed;
  result_.busy[static_cast<size_t>(stage.slot)] += passed / stage.sharers;
  stage.left = 0;
  stage.busy = false;
  Rebalance(stage.slot);
  if (stage.start.kind == v1::STAGE_BUILD || stage.start.kind == v1::STAGE_PROFILE)
    return EndCandidates(id);
  EndSimple(id);
}

void World::EndSimple(AttemptId id) {
  const RunningStage& stage = stages_.at(id);
  const StartStage start = stage.start;
  const Process& process = processes_[static_cast<size_t>(stage.process)];
  if (Chance(scenario_.faults.broken))
    return Finish(id, {v1::FAULT_INFRASTRUCTURE, "out of memory"});
  if (!start.fetch && start.kind == v1::STAGE_IMPORT) {
    if (scenario_.jobs[static_cast<size_t>(JobIndex(start.job))].user_error)
      return Finish(id, {v1::FAULT_USER, "not a model"});
    Imported imported = searches_.Import(start.job, process.book);
    std::vector<std::string> keys;
    for (const v1::TaskInfo& task : imported.model.tasks()) keys.push_back(task.key());
    promises_.HasTasks(start.job, std::move(keys));
    if (plant_.Is(Planted::kOverrun)) {
      for (v1::TaskInfo& task : *imported.model.mutable_tasks()) task.clear_key();
    }
    return Finish(id, {}, std::move(imported));
  }
  if (start.kind == v1::STAGE_PROPOSE) {
    if (options_.durable && options_.checks) {
      promises_.CheckLearned(*process.dispatcher, start, searches_.Learned(start, process.book));
    }
    return Finish(id, {}, searches_.Propose(start, process.book));
  }
  if (start.kind == v1::STAGE_UPDATE) {
    const Job& job = *process.dispatcher->FindJob(start.job);
    return Finish(
        id, {},
        searches_.Learn(start, job.tasks[static_cast<size_t>(start.task->value)], process.book));
  }
  Finish(id, {}, Compiled{"digest"});
}

void World::EndCandidates(AttemptId id) {
  const std::vector<CandidateId> working = stages_.at(id).working;
  for (CandidateId candidate : working) {
    if (!stages_.count(id)) return;
    Answer(id, candidate);
  }
  Work(id);
}

void World::Answer(AttemptId id, CandidateId candidate) {
  RunningStage& stage = stages_.at(id);
  const Faults& faults = scenario_.faults;
  const bool poison = faults.poison > 0 && candidate.value % faults.poison == 7;
  if (poison || Chance(faults.broken))
    return Finish(id, {v1::FAULT_INFRASTRUCTURE, "the worker broke down"});
  const bool build = stage.start.kind == v1::STAGE_BUILD;
  const JobId job = stage.start.job;
  const int task = stage.start.task->value,
            ordinal = searches_.Ordinal(job, candidate,
                                        processes_[static_cast<size_t>(stage.process)].book);
  // Whether a candidate is at fault, and where, is a property of it.
  const double failures = scenario_.jobs[static_cast<size_t>(JobIndex(job))].failures;
  const uint64_t key = Mix({scenario_.seed, static_cast<uint64_t>(job.value),
                            static_cast<uint64_t>(task), static_cast<uint64_t>(ordinal), 99});
  const bool bad = Unit(key) < failures;
  const bool bad_build = bad && (key & 1) != 0;
  auto measured = std::make_shared<Measured>();
  measured->fencing_token = stage.token;
  if (options_.durable) {
    measured->measurement.mutable_evidence()->set_worker(stage.start.slot.worker);
    measured->measurement.mutable_evidence()->set_slot(stage.start.slot.slot);
  }
  Event event;
  if (build) {
    CandidateBuilt built{id, candidate, bad_build ? v1::OUTCOME_BUILD_ERROR : v1::OUTCOME_OK,
                         bad_build ? "refused" : ""};
    if (options_.durable && !bad_build) built.artifact = std::make_shared<v1::Artifact>();
    built.measured = std::move(measured);
    event = std::move(built);
  } else {
    double median = searches_.TrueMedian(job, task, ordinal);
    if (stage.disturbed_piece) median *= std::max(1.0, stage.stretched / stage.alone);
    if (machines_.lying.count(stage.start.slot)) {
      median /= 100;
      if (++machines_.lies[stage.start.slot] >= 5) {  // the tracker has seen enough
        const SlotId slot = stage.start.slot;
        machines_.lies.erase(slot);
        Later(absl::ZeroDuration(), [this, slot] {
          if (!machines_.lying.erase(slot)) return;
          machines_.quarantined.insert(slot);
          SendSlots();
          agenda_.At(Between(30, 120), [this, slot] {  // its canary passes again
            machines_.quarantined.erase(slot);
            SendSlots();
          });
        });
      }
    }
    if (options_.durable && !bad) measured->measurement.add_samples_ns(median);
    ++result_.measurements;
    result_.disturbed += stage.disturbed_piece;
    event = CandidateProfiled{id,
                              candidate,
                              bad ? v1::OUTCOME_RUN_CRASH : v1::OUTCOME_OK,
                              bad ? "signal 11" : "",
                              bad ? 0 : median,
                              0,
                              std::move(measured)};
  }
  const int process = stage.process;
  ++stage.candidates;
  if (Chance(faults.lost)) return;
  Feed(process, event);
  if (Chance(faults.duplicated))
    Later(Between(0, 10), [this, process, event] { Feed(process, event); });  // late and twice
}

void World::AnswerFind(int process, const FindRecords& find) {
  Feed(process, searches_.Find(find, processes_[static_cast<size_t>(process)].book));
}

}  // namespace heddle::sim
