
#include "scheduler/sim/world/promises.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace heddle::sim {
namespace {

// A little more than the idle_code_grace of a dispatcher, for schedulers whose decisions take time.
constexpr absl::Duration kLongestGrace = absl::Seconds(60);
// A little more than the longest backoff of a dispatcher (its max_backoff).
constexpr absl::Duration kLongestBackoff = absl::Seconds(11);

// A job that was to compare its module has done so or says why not. If kernels were taken back, it has
// compared the module without them as well. What the job ends with is known to be no slower.
std::string BadComparison(const StoredJob& stored, const Job& live) {
  const v1::Job& job = stored.row.job;
  const bool tuned = std::any_of(live.tasks.begin(), live.tasks.end(),
                                 [](const Task& task) { return task.best_ns > 0; });
  const v1::Comparison& comparison = job.comparison();
  const std::string name = JobName(stored.row.id);
  if (live.params.compare != job.has_comparison() && tuned)
    return name + (live.params.compare ? " is done and was not compared" : " was compared");
  if (!job.has_comparison() || !comparison.missing().empty()) return "";
  if (comparison.made() != (comparison.taken_back().empty() ? 1 : 2))
    return absl::StrCat(name, " was compared ", comparison.made(), " times");
  if (comparison.made() > 1) {
    for (const v1::CompareResult::Task& task : comparison.result().tasks()) {
      for (const v1::CompareResult::Task& back : comparison.taken_back()) {
        if (task.workload_key() == back.workload_key())
          return name + " has a kernel that was taken back";
      }
    }
  }
  if (comparison.module_is_default() != IsSlower(comparison.result().gain()))
    return name + " does not have the faster module";
  if (!job.default_digest().empty()) return name + " keeps its default module";
  return "";
}

// A job's tasks have the weights that its plan gives them (Searches::Plan), in the store and here. A task
// that the job has not has the weight 0.
std::string BadPlan(const StoredJob& stored, const Job& live) {
  const v1::Job& job = stored.row.job;
  const std::string name = JobName(stored.row.id);
  for (size_t i = 0; i < live.tasks.size(); ++i) {
    if (stored.tasks[i].info.weight() != live.tasks[i].weight)
      return absl::StrCat(name, " task ", i, " has weight ", live.tasks[i].weight, ", stored is ",
                          stored.tasks[i].info.weight());
  }
  if (!live.settled) return name + " is done and its plan is not settled";
  if (Contending(live)) return name + " is done and plans still contend";
  absl::string_view plan = job.plan();
  const bool estimated = absl::ConsumePrefix(&plan, "estimated");
  if (live.params.plan && job.surveys() == 0 && !estimated && !plan.empty())
    return name + " has a plan that no stage chose";
  if (job.comparison().plan_taken_back() && !estimated)
    return name + " keeps a plan that was taken back";
  std::vector<std::string> wanted = absl::StrSplit(plan, ' ', absl::SkipEmpty()), weights;
  for (const Task& task : live.tasks) weights.push_back(absl::StrCat(task.weight));
  const size_t tasks = std::max(wanted.size(), weights.size());
  wanted.resize(tasks, "0");
  weights.resize(tasks, "0");
  if (weights == wanted) return "";
  return absl::StrCat(name, " has weights ", absl::StrJoin(weights, " "), ", its plan says ",
                      job.plan());
}

}  // namespace

void Promises::BeginLife() {
  recorded_.clear();
  blocked_.clear();
  passed_over_.clear();
  accusers_.clear();
  crashed_.clear();
  charges_.clear();
  idle_code_.clear();
  orders_.BeginLife();
}

void Promises::Loaded(const StoredJob& job) {
  for (const CandidateRow& candidate : job.candidates) {
    if (candidate.outcome) recorded_.insert({job.row.id, candidate.id});
  }
  orders_.Loaded(job);
}

void Promises::Refused(const SlotId& slot) { blocked_[slot] = now() + kLongestBackoff; }

void Promises::AfterStep(const Dispatcher& dispatcher, const std::vector<Change>& changes,
                         const Event& event) {
  ViolationIf(budgets_.After(dispatcher, changes, event));
  orders_.AfterStep(event, changes);
  CheckCharges(changes, event);
  for (const Change& change : changes) {
    if (const auto* changed = std::get_if<JobChanged>(&change))
      CheckConfirmed(dispatcher, *dispatcher.FindJob(changed->job));
  }
}

void Promises::Ended(const StartStage& stage, v1::FaultKind fault) {
  if (stage.fetch) return;
  std::vector<std::string>& accusers = accusers_[stage.job][AccuserKey(stage)];
  if (fault == v1::FAULT_NONE) accusers.clear();
  if (fault == v1::FAULT_USER) accusers.push_back(stage.slot.worker);
}

// Two workers have told the user fault that failed the job, or one has told it twice and no other
// could be asked.
void Promises::CheckConfirmed(const Dispatcher& dispatcher, const Job& job) {
  const auto* failed = std::get_if<Failed>(&job.phase);
  if (failed == nullptr || failed->fault.kind != v1::FAULT_USER) return;
  for (const auto& [stage, accusers] : accusers_[job.id]) {
    if (accusers.size() < 2) continue;
    const auto another = [&](const std::string& worker) { return worker != accusers.front(); };
    const bool two = std::any_of(accusers.begin(), accusers.end(), another);
    const std::vector<SlotInfo>& slots = dispatcher.slots();
    const v1::StageKind kind = stage.first;
    const bool could_ask = std::any_of(slots.begin(), slots.end(), [&](const SlotInfo& slot) {
      return slot.usable && another(slot.id.worker) && SlotIndex::Suits(slot, kind, job.params);
    });
    if (two || !could_ask) return;
  }
  Violation(absl::StrCat("j", job.id.value, " failed by a user fault that nobody confirmed"));
}

// A trial whose worker's process died stays charged for that (scheduler/core/machines/suspicions.h).
void Promises::CheckCharges(const std::vector<Change>& changes, const Event& event) {
  const auto* end = std::get_if<StageFinished>(&event);
  const bool crashed = end != nullptr && crashed_.erase(end->attempt) > 0;
  for (const Change& change : changes) {
    const auto* set = std::get_if<SetAttempts>(&change);
    if (set == nullptr) continue;
    Charges& charges = charges_[{set->job.value, set->candidate.value}];
    charges.crashes += crashed && set->attempts > charges.attempts;
    charges.attempts = set->attempts;
    if (charges.attempts < charges.crashes)
      Violation("a trial got the attempt back whose machine it may have ended");
  }
}

bool Promises::Held(const SlotId& id) const {
  return std::any_of(stages_.begin(), stages_.end(),
                     [&](const auto& entry) { return entry.second.start.slot == id; });
}

bool Promises::Free(const Dispatcher& dispatcher, const SlotInfo& slot) const {
  auto blocked = blocked_.find(slot.id);
  if (blocked != blocked_.end() && blocked->second > now()) return false;
  return CoresFree(dispatcher, slot);
}

// A slot and a core have at most one live stage.
void Promises::CheckStart(const Dispatcher& dispatcher, const StartStage& start) {
  const SlotInfo& slot = machines_.info(machines_.IndexOf(start.slot));
  if (slot.device != NeedsDevice(start.kind)) Violation("a stage on a slot of the wrong kind");
  if (stages_.count(start.attempt)) Violation("an attempt was started twice");
  for (const auto& [id, stage] : stages_) {
    if (Machines::Share(machines_.info(stage.slot), slot)) Violation("two live stages on one core");
  }
  CountPassedOver(dispatcher, start, slot);
  if (!NeedsDevice(start.kind)) return;
  const Job& job = *dispatcher.FindJob(start.job);
  if (slot.target != job.params.target ||
      (job.params.threads != 0 && static_cast<int>(slot.cores.size()) != job.params.threads)) {
    Violation("a stage on a device that does not suit");
  }
}

void Promises::CheckOrder(const Dispatcher& dispatcher, const StartStage& start,
                          const StageOrder& order) {
  ViolationIf(orders_.Made(dispatcher, start, order));
  if (start.kind == v1::STAGE_PROPOSE)
    CheckLearned(dispatcher, start, SearchState::Parse(order.search_state).learned);
}

void Promises::CheckCompleted(const StageOrder& made, const StageOrder& completed,
                              RecordStore* store) {
  ViolationIf(orders_.Completed(made, completed, store));
}

void Promises::CheckFed(const FeedProfile& feed, const v1::StageInput& input) {
  ViolationIf(orders_.Fed(feed.job, feed.candidate, input));
}

// A candidate gets one final record, and that under the lease that holds the slot now.
void Promises::CheckRecord(const FinishCandidate& done, const Event& event) {
  if (!recorded_.insert({done.job.value, done.candidate.value}).second)
    Violation("a candidate got a second final record");
  if (done.outcome == v1::OUTCOME_LOST) return;
  const auto stage = stages_.find(done.stage);
  const uint64_t token = std::visit(
      [](const auto& e) -> uint64_t {
        if constexpr (requires { e.measured; })
          return e.measured == nullptr ? 0 : e.measured->fencing_token;
        return 0;
      },
      event);
  if (stage == stages_.end() || stage->second.token != token)
    Violation("an answer under an old lease was recorded");
}

void Promises::CheckStep(const Dispatcher& dispatcher) {
  for (const auto& [id, job] : dispatcher.jobs()) {
    for (const Task& task : job.tasks) {
      for (const auto& [candidate, state] : task.open) {
        if (recorded_.count({id.value, candidate.value}))
          Violation("a finished candidate is measured again");
      }
    }
    if (!job.final() && job.params.pipeline_depth > 0 &&
        RoundsInFlight(job) > job.params.pipeline_depth)
      Violation("more rounds in flight than allowed");
  }
  for (const auto& [id, stage] : dispatcher.live()) {
    if (!stages_.count(id)) Violation("the dispatcher thinks that an ended stage lives");
  }
  const std::vector<WorkItem> ready = dispatcher.ReadyWork();
  CheckNoIdleSlot(dispatcher, ready);
  CheckNobodyStarves(dispatcher, ready);
  CheckIdleCode(dispatcher);
}

// While jobs whose code could be measured wait for room, no other job's code takes any for long.
void Promises::CheckIdleCode(const Dispatcher& dispatcher) {
  bool waits = false;
  std::map<JobId, absl::Time> idle_code;
  for (const auto& [id, job] : dispatcher.jobs()) {
    if (job.final()) continue;
    const bool idle = dispatcher.IsIdle(job);
    waits |= !idle && dispatcher.LacksRoom(job);
    const auto built = [](const Task& task) { return CountWhere<Built>(task) > 0; };
    if (!idle || std::none_of(job.tasks.begin(), job.tasks.end(), built)) continue;
    const auto known = idle_code_.find(id);
    idle_code[id] = known == idle_code_.end() ? now() : known->second;
  }
  if (!waits || !dispatcher.store_problem().empty()) idle_code.clear();
  idle_code_ = std::move(idle_code);
  for (const auto& [id, since] : idle_code_) {
    if (now() - since > kLongestGrace)
      Violation("code that nobody can measure keeps others from building");
  }
}

// Whether the dispatcher avoids the slot for now. It may do so only after a refusal.
bool Promises::BacksOff(const Dispatcher& dispatcher, const SlotInfo& slot) {
  const absl::Time until = dispatcher.BacksOffUntil(slot.id);
  if (until <= now()) return false;
  auto blocked = blocked_.find(slot.id);
  if (blocked == blocked_.end() || until > blocked->second)
    Violation(absl::StrCat("slot ", slot.id.worker, "/", slot.id.slot,
                           " is left alone without a refusal, or for too long"));
  return true;
}

// Whether nobody holds the slot or any of its cores.
bool Promises::CoresFree(const Dispatcher& dispatcher, const SlotInfo& slot) const {
  for (const auto& [id, stage] : stages_) {
    if (Machines::Share(machines_.info(stage.slot), slot)) return false;
  }
  const std::vector<SlotInfo>& slots = dispatcher.slots();
  return std::none_of(slots.begin(), slots.end(), [&](const SlotInfo& other) {
    return other.foreign && Machines::Share(other, slot);
  });
}

// If a slot is free, no work that suits it waits. There is one exception. Work may wait for a slot
// that nobody holds, but some of whose cores are in use. Such work reserves one slot, the first that
// suits it, and work after it must not take that slot's cores.
void Promises::CheckNoIdleSlot(const Dispatcher& dispatcher, const std::vector<WorkItem>& ready) {
  if (machines_.tracker_down) return;
  // The tracker is back, but a scheduler whose decisions take time has not heard of it yet.
  if (scenario_.schedulers.decision > 0 && !dispatcher.tracker_problem().empty()) return;
  // What does not depend on the work is asked once for each slot, and only if some work suits it.
  enum class State { kUnknown, kUnfit, kPartly, kFree };
  const std::vector<SlotInfo>& slots = dispatcher.slots();
  std::vector<State> states(slots.size(), State::kUnknown);
  const auto state_of = [&](size_t i) {
    if (states[i] != State::kUnknown) return states[i];
    if (Held(slots[i].id) || BacksOff(dispatcher, slots[i])) return states[i] = State::kUnfit;
    return states[i] = CoresFree(dispatcher, slots[i]) ? State::kFree : State::kPartly;
  };
  std::vector<const SlotInfo*> kept;
  for (const WorkItem& work : ready) {
    const SlotInfo* keeps = nullptr;
    for (size_t i = 0; i < slots.size(); ++i) {
      const SlotInfo& slot = slots[i];
      if (!slot.usable || states[i] == State::kUnfit || !dispatcher.Suits(slot, work) ||
          state_of(i) == State::kUnfit ||
          std::any_of(kept.begin(), kept.end(),
                      [&](const SlotInfo* other) { return Machines::Share(*other, slot); })) {
        continue;
      }
      if (states[i] == State::kFree) {
        Violation(absl::StrCat("slot ", slot.id.worker, "/", slot.id.slot, " is free and ",
                               v1::StageKind_Name(work.kind), " of j", work.job.value, " waits"));
      }
      if (keeps == nullptr) keeps = &slot;
    }
    if (keeps != nullptr) kept.push_back(keeps);
  }
  CheckHeldBack(dispatcher, ready);
}

// Whether another job with a deadline may keep this job's work off device slots. The other job has
// to be running, of the same tenant and of no lower priority, and able to use every free slot that
// suits it.
bool Promises::MayGiveWay(const Dispatcher& dispatcher, const Job& job) const {
  for (const auto& [id, stage] : dispatcher.live()) {
    const Job& first = *dispatcher.FindJob(stage.job);
    const absl::Time deadline = first.params.deadline;
    if (deadline == absl::InfiniteFuture() || first.final() || first.paused || first.id == job.id ||
        first.params.tenant != job.params.tenant || first.params.priority < job.params.priority ||
        first.lane != job.lane)
      continue;
    const WorkItem profile{first.id, v1::STAGE_PROFILE, TaskIndex{0}, std::nullopt, true};
    int count = 0, free_slots = 0;
    for (const SlotInfo& slot : dispatcher.slots()) {
      if (!dispatcher.Suits(slot, profile)) continue;
      ++count;
      free_slots += dispatcher.SlotFree(slot);
    }
    if (free_slots <= PipelineDepth(first.params, count)) return true;
  }
  return false;
}

// A policy may hold a profile stage back only while a build stage of its task runs. `predictive` may
// also do so for a job with a deadline, and `sequential` while it is another job's turn.
void Promises::CheckHeldBack(const Dispatcher& dispatcher, const std::vector<WorkItem>& ready) {
  if (policy_ == "sequential" || !dispatcher.store_problem().empty()) return;
  for (const auto& [id, job] : dispatcher.jobs()) {
    if (job.paused || job.final() || !std::holds_alternative<Tuning>(job.phase)) continue;
    if (job.finding) continue;  // waits for RecordsFound
    size_t held = 0;
    for (const Task& task : job.tasks) held += task.profiles.size();
    if (job.params.max_devices > 0 && held >= static_cast<size_t>(job.params.max_devices)) continue;
    for (TaskIndex index : job.in_flight) {
      const Task& task = job.tasks[static_cast<size_t>(index.value)];
      bool built = false, building = false;
      for (const auto& [candidate, state] : task.open)
        built |= std::holds_alternative<Built>(state.where);
      for (const auto& [attempt, stage] : dispatcher.live())
        building |= stage.kind == v1::STAGE_BUILD && stage.job == id && stage.task == index;
      if (!built || building || task.not_before > now()) continue;
      const WorkItem profile{id, v1::STAGE_PROFILE, index, std::nullopt, true};
      if (std::find(ready.begin(), ready.end(), profile) == ready.end() &&
          !(policy_ == "predictive" && MayGiveWay(dispatcher, job)))
        Violation(
            absl::StrCat("profile of j", id.value, " is held back, and nothing is being built"));
    }
  }
}

// When a search proposes, it has learned each result of its task once, except those of rounds in
// flight. There are fewer of these than the pipeline is deep. If an update was given up after faults,
// its results may be missing until the next one. Tasks with known records are not checked: what their
// searches learn also comes from other jobs.
void Promises::CheckLearned(const Dispatcher& dispatcher, const StartStage& start, int learned) {
  const Job& job = *dispatcher.FindJob(start.job);
  const Task& task = job.tasks[static_cast<size_t>(start.task->value)];
  if (task.rounds.size() > static_cast<size_t>(std::max(0, job.params.pipeline_depth - 1)))
    Violation(absl::StrCat("task ", start.task->value, " of j", start.job.value, " proposes ",
                           task.rounds.size(), " rounds ahead of its model"));
  if (task.known.total > 0) return;
  const int learnable = orders_.Learnable(job, *start.task);
  if (learned > learnable) Violation("a result was learned twice, or before its round");
  if (learned < learnable && !unlucky_.count(start.job))
    Violation(absl::StrCat("task ", start.task->value, " of j", start.job.value,
                           " proposes and has learned ", learned, " of ", learnable, " results"));
}

void Promises::CountPassedOver(const Dispatcher& dispatcher, const StartStage& start,
                               const SlotInfo& slot) {
  passed_over_[{start.job, slot.device}] = 0;  // its turn
  if (policy_ == "round_robin" && GoesOnWithRound(dispatcher, start)) return;
  for (auto& [waiter, passed] : passed_over_) {
    if (waiter.first == start.job || waiter.second != slot.device) continue;
    const WorkItem work{waiter.first, waiter.second ? v1::STAGE_PROFILE : v1::STAGE_BUILD,
                        TaskIndex{0}, std::nullopt, waiter.second};
    passed += dispatcher.Suits(slot, work);
  }
}

// Whether a build stage leaves out the first candidate of its round, which an earlier one took.
bool Promises::GoesOnWithRound(const Dispatcher& dispatcher, const StartStage& start) {
  if (start.kind != v1::STAGE_BUILD) return false;
  const Task& task = dispatcher.FindJob(start.job)->tasks[static_cast<size_t>(start.task->value)];
  const CandidateId first = start.candidates.front();
  return std::none_of(task.rounds.begin(), task.rounds.end(),
                      [first](const Round& round) { return round.first == first; });
}

// Ready work is not passed over for ever while slots that suit it serve other jobs.
void Promises::CheckNobodyStarves(const Dispatcher& dispatcher,
                                  const std::vector<WorkItem>& ready) {
  if (policy_ == "sequential") return;  // passes jobs over by design
  const int jobs = static_cast<int>(scenario_.jobs.size());
  // round_robin: in one turn each job may start an update, a propose, builds, and an import or a
  // module. The builds of a round count once, since with little room for code (artifact_room.h) there
  // is one for each candidate, and with several slots one for each slot. 12 more are for stages that
  // faults repeat. The most seen, with all builds: 17 with 2 jobs, 16 with 3, in 4,000 seeds.
  // predictive: a stage is overdue once 40 stages, and 6 for each job, have passed it
  // (predictive.cc). Then overdue stages that have waited for longer come first, and with more jobs
  // there are more of these. The most seen: 42 with 2 jobs, 58 with 3, 69 with 4, in 2,000 seeds.
  const int patience = policy_ == "round_robin" ? 12 + 4 * jobs : 60 + 12 * jobs;
  std::map<std::pair<JobId, bool>, int> waiting;
  for (const WorkItem& work : ready) {
    if (work.fetch) continue;
    // What has to run on another worker than before waits for that one.
    if (!dispatcher.FindJob(work.job)->accusers.empty()) continue;
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

// No trial is lost or counted twice, and every job has ended.
void Promises::CheckEnd(const Dispatcher& dispatcher, RecordStore* store) {
  std::set<int64_t> there;
  auto jobs = store->LoadJobs();
  for (const StoredJob& job : *jobs) {
    const v1::JobState state = job.row.job.state();
    const Job* found = dispatcher.FindJob(JobId{job.row.id});
    if (found == nullptr) continue;  // another scheduler's
    there.insert(job.row.id);
    const Job& live = *found;
    if (!live.final()) return Violation(absl::StrCat("job j", job.row.id, " never ended"));
    if (state == v1::JOB_FAILED && job.row.job.fault().kind() == v1::FAULT_NONE)
      Violation("failed without a reason");
    if (state != v1::JOB_DONE) continue;
    ViolationIf(BadComparison(job, live));
    ViolationIf(BadPlan(job, live));
    std::vector<int> trials(job.tasks.size());
    for (const CandidateRow& candidate : job.candidates) {
      if (!candidate.outcome)
        return Violation(absl::StrCat("a trial of j", job.row.id, " is lost"));
      ++trials[static_cast<size_t>(candidate.task)];
    }
    for (size_t i = 0; i < job.tasks.size(); ++i) {
      if (live.tasks[i].trials != trials[i]) Violation("a trial is counted twice");
    }
    ViolationIf(budgets_.End(live));
  }
  for (int64_t id : acknowledged_) {
    if (!there.count(id)) Violation("an acknowledged job is lost");
  }
  if (!dispatcher.live().empty()) Violation("a stage never ended");
}

}  // namespace heddle::sim
