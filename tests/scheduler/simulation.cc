#include "tests/scheduler/simulation.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <set>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "scheduler/dispatcher.h"
#include "scheduler/job_book.h"
#include "scheduler/memory_record_store.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kFaultsEnd =
    absl::Minutes(20);  // then the world heals, and everything must come to its end
constexpr absl::Duration kLimit = absl::Hours(48);
constexpr int64_t kMaxSteps = 400'000;
const char* const kTargets[] = {"llvm -mcpu=a", "llvm -mcpu=b"};

// One running stage, as a worker would run it.
struct Stage {
  StartStage start;
  bool open = true;    // StageFinished is not posted yet
  bool taken = false;  // the worker has answered
  bool input_closed = false;
  bool busy = false;
  std::deque<CandidateId> inputs;
};

class World {
 public:
  explicit World(const SimulationOptions& options)
      : options_(options), random_(options.seed), store_(MakeMemoryRecordStore()) {
    MakeWorkers();
    Boot();
    const int jobs = 1 + Below(4);
    for (int i = 0; i < jobs; ++i) At(Seconds(0, 300), [this] { SubmitJob(); });
    if (options_.faults) At(Seconds(1, 60), [this] { Chaos(); });
  }

  SimulationResult Run() {
    while (result_.violation.empty() && !agenda_.empty()) {
      auto [time, order] = agenda_.begin()->first;
      std::function<void()> action = std::move(agenda_.begin()->second);
      agenda_.erase(agenda_.begin());
      now_ = std::max(now_, time);
      if (now_ - start_ > kLimit || result_.steps > kMaxSteps) break;
      action();
    }
    if (result_.violation.empty()) CheckEnd();
    return result_;
  }

 private:
  // ---- chance ----
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool Chance(double p) { return options_.faults && Likely(p); }
  bool Likely(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }
  absl::Duration Seconds(double low, double high) {
    return absl::Seconds(std::uniform_real_distribution<double>(low, high)(random_));
  }
  void At(absl::Duration after, std::function<void()> action) {
    agenda_[{now_ + after, ++order_}] = std::move(action);
  }
  void Violation(const std::string& what) {
    if (result_.violation.empty()) {
      result_.violation = absl::StrCat("seed ", options_.seed, " step ", result_.steps,
                                       " t=", absl::FormatDuration(now_ - start_), ": ", what);
    }
  }

  // ---- machines ----
  void MakeWorkers() {
    const int hosts = 1 + Below(3);
    for (int h = 0; h < hosts; ++h) {
      const std::string worker = absl::StrCat("w", h), host = absl::StrCat("h", h);
      const std::string target = kTargets[h == 0 ? 0 : Below(2)];
      auto slot = [&](const std::string& name, bool device, std::vector<int> cores) {
        SlotInfo info;
        info.id = {worker, name};
        info.host = host;
        info.device = device;
        info.cores = std::move(cores);
        info.device_key = device ? absl::StrCat("key-", target) : "";
        info.target = device ? target : "";
        all_slots_.push_back(info);
      };
      switch (Below(3)) {
        case 0:  // one core
          slot("cpu0", false, {0});
          slot("profile0", true, {0});
          break;
        case 1:  // two
          slot("cpu0", false, {0});
          slot("profile1", true, {1});
          slot("profile0-1", true, {0, 1});
          break;
        default:
          for (int c = 0; c < 3; ++c) slot(absl::StrCat("cpu", c), false, {c});
          slot("profile3", true, {3});
          slot("profile2-3", true, {2, 3});
      }
    }
  }

  void SendSlots() {
    SlotsChanged event;
    if (tracker_down_) event.problem = "the tracker is gone";
    for (SlotInfo slot : all_slots_) {
      if (dead_.count(slot.id.worker)) continue;
      if (foreign_.count(slot.id))
        slot.foreign = true, slot.usable = false, slot.why_not = "held by ann";
      event.slots.push_back(slot);
    }
    Feed(event, {});
  }

  // ---- users ----
  void SubmitJob() {
    v1::JobSpec spec;
    const SlotInfo* device = nullptr;
    while (device == nullptr || !device->device)
      device = &all_slots_[static_cast<size_t>(Below(static_cast<int>(all_slots_.size())))];
    spec.set_target(absl::StrCat(device->target, " -threads=", device->cores.size()));
    if (Likely(0.3)) spec.set_device_key(device->device_key);
    spec.set_trials_per_task(1 + Below(40));
    spec.set_batch(1 + Below(16));
    spec.set_pipeline_depth(1 + Below(3));
    spec.set_force(Likely(0.2));
    JobRow row;
    row.id = ++last_job_;
    row.job.set_id(JobName(row.id));
    *row.job.mutable_spec() = spec;
    row.job.set_state(v1::JOB_IMPORTING);
    Payload payload;
    payload.submitted = row;
    Feed(JobSubmitted{JobId{row.id}, *JobBook::ParamsFrom(spec, now_, now_)}, std::move(payload));
    Flush();  // the user has his answer only now
    acknowledged_.insert(row.id);
  }

  void Chaos() {
    if (now_ - start_ > kFaultsEnd) return Heal();
    const JobId job{1 + Below(static_cast<int>(std::max<int64_t>(1, last_job_)))};
    switch (Below(10)) {
      case 0:
      case 1:
        KillWorker(absl::StrCat("w", Below(3)));
        break;
      case 2:
        Restart();
        break;
      case 3:
        LoseLease();
        break;
      case 4: {
        const SlotId slot =
            all_slots_[static_cast<size_t>(Below(static_cast<int>(all_slots_.size())))].id;
        if (!Held(slot)) {
          foreign_.insert(slot);
          At(Seconds(1, 60), [this, slot] {
            foreign_.erase(slot);
            SendSlots();
          });
          if (Likely(0.5)) SendSlots();  // else the dispatcher finds out by a refused lease
        }
        break;
      }
      case 5:
        tracker_down_ = true;
        SendSlots();
        At(Seconds(1, 30), [this] {
          tracker_down_ = false;
          SendSlots();
        });
        break;
      case 6:
        Feed(PauseRequested{job, "lunch"}, {});
        At(Seconds(1, 60), [this, job] { Feed(ResumeRequested{job}, {}); });
        break;
      case 7:
        if (Likely(0.15)) Feed(CancelRequested{job, "changed my mind"}, {});
        break;
      case 8:
        if (dispatcher_->FindJob(job) != nullptr)
          Feed(FetchRequested{FetchId{++last_fetch_}, job}, {});
        if (Likely(0.5))
          At(Seconds(0, 20), [this, f = last_fetch_] { Feed(FetchAbandoned{FetchId{f}}, {}); });
        break;
      default:
        Feed(StoreBlocked{"the disk is full"}, {});
        At(Seconds(1, 20), [this] { Feed(StoreBlocked{""}, {}); });
    }
    At(Seconds(1, 90), [this] { Chaos(); });
  }

  void Heal() {
    dead_.clear();
    foreign_.clear();
    tracker_down_ = false;
    SendSlots();
    Feed(StoreBlocked{""}, {});
    for (int64_t id = 1; id <= last_job_; ++id) Feed(ResumeRequested{JobId{id}}, {});
  }

  void KillWorker(const std::string& worker) {
    if (dead_.count(worker)) return;
    dead_.insert(worker);
    std::vector<AttemptId> victims;
    for (auto& [id, stage] : stages_) {
      if (stage.open && stage.start.slot.worker == worker) victims.push_back(id);
    }
    // The streams break at once; the tracker notices later.
    for (AttemptId id : victims) Finish(id, {v1::FAULT_INFRASTRUCTURE, "the stream broke"});
    At(Seconds(0, 10), [this] { SendSlots(); });
    At(Seconds(1, 120), [this, worker] {
      dead_.erase(worker);
      SendSlots();
    });
  }

  void LoseLease() {
    std::vector<AttemptId> open;
    for (auto& [id, stage] : stages_) {
      if (stage.open) open.push_back(id);
    }
    if (open.empty()) return;
    Finish(open[static_cast<size_t>(Below(static_cast<int>(open.size())))],
           {v1::FAULT_INFRASTRUCTURE, "the lease was lost"});
  }

  // ---- the scheduler's process ----
  void Boot() {
    dispatcher_ = std::make_unique<Dispatcher>(std::make_unique<RoundRobin>());
    book_ = JobBook();
    stages_.clear();
    finished_.clear();
    blocked_.clear();
    auto jobs = store_->LoadJobs();
    for (const StoredJob& job : *jobs) {
      for (const CandidateRow& candidate : job.candidates) {
        if (candidate.outcome) finished_.insert({job.row.id, candidate.id});
      }
      dispatcher_->Restore(book_.Load(job, now_, now_));
    }
    dispatcher_->SetNextAttempt(AttemptId{next_attempt_});
    SendSlots();
  }

  void Restart() {
    ++result_.restarts;
    ++epoch_;  // what the old process would still have heard is heard by nobody
    // Some of what was not durable yet is, some is not; order is kept.
    const size_t kept =
        pending_.empty() ? 0 : static_cast<size_t>(Below(static_cast<int>(pending_.size()) + 1));
    pending_.resize(kept);
    Flush();
    Boot();
  }

  void Flush() {
    if (pending_.empty()) return;
    auto results = store_->Apply(pending_);
    for (const absl::Status& status : *results) {
      if (!status.ok()) Violation(absl::StrCat("the store refused: ", status.message()));
    }
    pending_.clear();
  }

  void Feed(const Event& event, Payload payload) {
    if (!result_.violation.empty()) return;
    ++result_.steps;
    std::vector<Decision> decisions = dispatcher_->Step(event, now_);
    Mutate(&decisions);
    Batch batch = book_.Absorb(*dispatcher_, event, payload, decisions, now_, now_);
    if (!batch.empty()) pending_.push_back(std::move(batch));
    if (Likely(0.3)) Flush();
    for (const Decision& decision : decisions) Perform(decision);
    Check();
    const absl::Time wake = dispatcher_->NextWake(now_);
    if (wake != absl::InfiniteFuture() && wake != wake_) {
      wake_ = wake;
      Later(wake - now_, [this] { Feed(Tick{}, {}); });
    }
  }

  // An action of this process; a restart takes it along.
  void Later(absl::Duration after, std::function<void()> action) {
    At(after, [this, epoch = epoch_, action = std::move(action)] {
      if (epoch == epoch_) action();
    });
  }

  // ---- performing ----
  void Mutate(std::vector<Decision>* decisions) {
    for (size_t i = 0; i < decisions->size(); ++i) {
      Decision& decision = (*decisions)[i];
      const auto* start = std::get_if<StartStage>(&decision);
      const bool drop =
          (options_.planted == Planted::kDropClose &&
           std::holds_alternative<CloseProfile>(decision)) ||
          (options_.planted == Planted::kDropFeed && std::holds_alternative<FeedProfile>(decision));
      if (drop && ++planted_ == 3) {
        decisions->erase(decisions->begin() + static_cast<int64_t>(i));
        return;
      }
      const bool twice = (options_.planted == Planted::kRecordTwice &&
                          std::holds_alternative<FinishCandidate>(decision)) ||
                         (options_.planted == Planted::kStartTwice && start != nullptr);
      if (twice && ++planted_ == 5) {
        decisions->push_back(Decision(decision));
        return;
      }
      if (options_.planted == Planted::kWrongSlot && start != nullptr && !stages_.empty()) {
        for (const auto& [id, stage] : stages_) {
          if (!stage.open || stage.start.slot == start->slot) continue;
          StartStage wrong = *start;
          wrong.slot = stage.start.slot;
          decision.emplace<StartStage>(std::move(wrong));
          return;
        }
      }
    }
  }

  const SlotInfo* FindSlot(const SlotId& id) const {
    for (const SlotInfo& slot : all_slots_) {
      if (slot.id == id) return &slot;
    }
    return nullptr;
  }
  bool Held(const SlotId& id) const {
    return std::any_of(stages_.begin(), stages_.end(), [&](const auto& entry) {
      return entry.second.open && entry.second.start.slot == id;
    });
  }
  static bool Share(const SlotInfo& a, const SlotInfo& b) {
    return a.host == b.host && std::any_of(a.cores.begin(), a.cores.end(), [&](int core) {
             return std::find(b.cores.begin(), b.cores.end(), core) != b.cores.end();
           });
  }

  void Perform(const Decision& decision) {
    result_.fingerprint = absl::HashOf(result_.fingerprint, decision.index()) * 31;
    if (const auto* start = std::get_if<StartStage>(&decision)) {
      Begin(*start);
    } else if (const auto* feed = std::get_if<FeedProfile>(&decision)) {
      CheckArtifact(feed->job, feed->candidate);
      Stage& stage = stages_.at(feed->attempt);
      if (stage.input_closed) Violation("fed a profile stage whose input is closed");
      stage.inputs.push_back(feed->candidate);
      Work(feed->attempt);
    } else if (const auto* close = std::get_if<CloseProfile>(&decision)) {
      stages_.at(close->attempt).input_closed = true;
      Work(close->attempt);
    } else if (const auto* cancel = std::get_if<CancelStage>(&decision)) {
      Later(Seconds(0, 1), [this, id = cancel->attempt] {
        Finish(id, {v1::FAULT_INFRASTRUCTURE, "cancelled"});
      });
    } else if (std::holds_alternative<SetAttempts>(decision)) {
      if (!options_.faults) Violation("an attempt is counted in a world without faults");
    } else if (const auto* done = std::get_if<FinishCandidate>(&decision)) {
      ++result_.trials;
      result_.lost += done->outcome == v1::OUTCOME_LOST;
      if (!finished_.insert({done->job.value, done->candidate.value}).second)
        Violation("a candidate got a second final record");
    }
  }

  void CheckArtifact(JobId job, CandidateId candidate) {
    if (book_.data(job).candidates.at(candidate).artifact == nullptr)
      Violation("profile of a candidate that is not built");
  }

  void Begin(const StartStage& start) {
    result_.fingerprint = absl::HashOf(result_.fingerprint, start.attempt.value, start.slot.worker,
                                       start.slot.slot, start.kind);
    next_attempt_ = std::max(next_attempt_, start.attempt.value + 1);
    const SlotInfo* slot = FindSlot(start.slot);
    if (slot->device != (start.kind == v1::STAGE_PROFILE))
      Violation("a stage on a slot of the wrong kind");
    for (const auto& [id, stage] : stages_) {
      if (!stage.open) continue;
      if (id == start.attempt) Violation("an attempt was started twice");
      if (Share(*FindSlot(stage.start.slot), *slot)) Violation("two live stages on one core");
    }
    if (start.task) {
      const Job& job = *dispatcher_->FindJob(start.job);
      if (start.kind == v1::STAGE_PROFILE) {
        if (slot->target != job.params.target ||
            static_cast<int>(slot->cores.size()) != job.params.threads) {
          Violation("profile on a device that does not suit");
        }
        for (CandidateId id : start.candidates) CheckArtifact(start.job, id);
      }
    }
    Stage stage;
    stage.start = start;
    stage.inputs.assign(start.candidates.begin(), start.candidates.end());
    stage.input_closed = start.kind != v1::STAGE_PROFILE;
    stages_[start.attempt] = std::move(stage);
    const bool refused = foreign_.count(start.slot) || tracker_down_ ||
                         dead_.count(start.slot.worker) || Chance(0.02);
    Later(Seconds(0.001, 0.1), [this, id = start.attempt, refused] {
      auto it = stages_.find(id);
      if (it == stages_.end() || !it->second.open) return;
      if (refused) return Refuse(id);
      it->second.taken = true;
      Work(id);
    });
  }

  void Refuse(AttemptId id) {
    blocked_[stages_.at(id).start.slot] = now_ + absl::Seconds(11);
    Stage& stage = stages_.at(id);
    stage.open = false;
    Feed(StageFinished{id, {v1::FAULT_INFRASTRUCTURE, "no lease"}, false, {}}, {});
  }

  void Finish(AttemptId id, FaultInfo fault, decltype(StageFinished::result) result = {},
              Payload payload = {}) {
    auto it = stages_.find(id);
    if (it == stages_.end() || !it->second.open) return;
    it->second.open = false;
    const auto live = dispatcher_->live().find(id);
    const bool cancelled = live != dispatcher_->live().end() && live->second.cancelled;
    if (fault.kind == v1::FAULT_INFRASTRUCTURE && !cancelled) ++result_.infrastructure_faults;
    const bool started = it->second.taken;
    if (!started) blocked_[it->second.start.slot] = now_ + absl::Seconds(11);
    StageFinished end{id, fault, started, std::move(result)};
    Feed(end, payload);
    if (Chance(0.05)) Later(Seconds(0, 5), [this, end] { Feed(end, {}); });  // twice
  }

  // What the worker does next in this stage.
  void Work(AttemptId id) {
    Stage& stage = stages_.at(id);
    if (!stage.open || !stage.taken || stage.busy) return;
    switch (stage.start.kind) {
      case v1::STAGE_BUILD:
      case v1::STAGE_PROFILE:
        return WorkOnCandidate(id);
      default:
        stage.busy = true;
        Later(Seconds(0.05, 8), [this, id] { EndSimple(id); });
    }
  }

  void EndSimple(AttemptId id) {
    if (!stages_.at(id).open) return;
    const StartStage start = stages_.at(id).start;
    if (Chance(0.03)) return Finish(id, {v1::FAULT_INFRASTRUCTURE, "out of memory"});
    Payload payload;
    switch (start.kind) {
      case v1::STAGE_IMPORT: {
        if (Chance(0.03)) return Finish(id, {v1::FAULT_USER, "not a model"});
        Imported imported;
        const int tasks = Below(5);
        for (int i = 0; i < tasks; ++i) {
          v1::TaskInfo& info = *payload.imported.add_tasks();
          info.set_key(absl::StrCat("00000000000000", 10 + Below(20)));
          info.set_workload("w");
          info.set_weight(1);
          const v1::JobSpec& spec = book_.data(start.job).row.job.spec();
          KnownRecords known = *store_->Known({info.key(), spec.target(), spec.device_key()});
          payload.known.push_back(known);
          imported.tasks.push_back({static_cast<int>(known.total), static_cast<int>(known.valid)});
        }
        payload.imported.add_inputs("x: f32[1]");
        return Finish(id, {}, std::move(imported), std::move(payload));
      }
      case v1::STAGE_PROPOSE: {
        const int count = Chance(0.05) ? Below(start.count + 1) : start.count;
        for (int i = 0; i < count; ++i) {
          payload.proposed.emplace_back();
          payload.proposed.back().set_trace(absl::StrCat("t", ++traces_));
        }
        payload.search_state = "proposed";
        return Finish(id, {}, Proposed{count, count < start.count || Chance(0.02)},
                      std::move(payload));
      }
      case v1::STAGE_UPDATE:
        payload.search_state = "updated";
        break;
      default:
        payload.module_digest = "digest";
        break;
    }
    Finish(id, {}, {}, std::move(payload));
  }

  void WorkOnCandidate(AttemptId id) {
    Stage& stage = stages_.at(id);
    if (stage.inputs.empty()) {
      if (stage.input_closed) Later(Seconds(0, 0.2), [this, id] { Finish(id, {}); });
      return;
    }
    const CandidateId candidate = stage.inputs.front();
    stage.inputs.pop_front();
    stage.busy = true;
    Feed(CandidateStarted{id, candidate}, {});
    Later(Seconds(0.1, 4), [this, id, candidate] { EndCandidate(id, candidate); });
  }

  void EndCandidate(AttemptId id, CandidateId candidate) {
    if (!stages_.at(id).open) return;
    const bool poison = options_.faults && candidate.value % 41 == 7;
    if (poison || Chance(0.01)) {
      return Finish(id, {v1::FAULT_INFRASTRUCTURE, "the worker broke down"});
    }
    const bool build = stages_.at(id).start.kind == v1::STAGE_BUILD;
    const bool hopeless =
        stages_.at(id).start.job.value % 4 == 3;  // a job whose candidates all fail
    Payload payload;
    payload.fencing_token = static_cast<uint64_t>(id.value);
    payload.measurement.mutable_evidence()->set_worker(stages_.at(id).start.slot.worker);
    payload.measurement.mutable_evidence()->set_slot(stages_.at(id).start.slot.slot);
    const bool good = !hopeless && Likely(0.9);
    Event event;
    if (build) {
      const bool built = hopeless ? Likely(0.5) : good;
      if (built) payload.artifact = std::make_shared<v1::Artifact>();
      event = CandidateBuilt{id, candidate, built ? v1::OUTCOME_OK : v1::OUTCOME_BUILD_ERROR,
                             built ? "" : "refused"};
    } else {
      if (good) payload.measurement.add_samples_ns(100 + Below(1000));
      event = CandidateProfiled{id, candidate, good ? v1::OUTCOME_OK : v1::OUTCOME_RUN_CRASH,
                                good ? "" : "signal 11"};
    }
    stages_.at(id).busy = false;
    Feed(event, payload);
    if (Chance(0.05))
      Later(Seconds(0, 10), [this, event, payload] { Feed(event, payload); });  // late and twice
    if (stages_.count(id) && stages_.at(id).open) Work(id);
  }

  // ---- promises ----
  void Check() {
    for (const auto& [id, job] : dispatcher_->jobs()) {
      int in_flight = 0;
      for (const Task& task : job.tasks) {
        in_flight += InFlight(task);
        const int reused = job.params.force ? 0 : task.known;
        if (task.budget != std::max(0, job.params.trials_per_task - reused)) {
          Violation("a budget that was not asked for");
        }
        if (task.trials + static_cast<int>(task.round.size()) > task.budget)
          Violation("a budget is exceeded");
        for (const auto& [candidate, state] : task.round) {
          if (finished_.count({id.value, candidate.value}))
            Violation("a finished candidate is measured again");
        }
      }
      if (!job.final() && in_flight > std::max(1, job.params.pipeline_depth))
        Violation("more tasks in flight than allowed");
    }
    for (const auto& [id, stage] : dispatcher_->live()) {
      auto it = stages_.find(id);
      if (it == stages_.end() || !it->second.open)
        Violation("the dispatcher thinks that an ended stage lives");
    }
    CheckNoIdleSlot();
  }

  // A free slot means that no work that suits it waits, unless its cores are kept for work whose
  // turn comes first.
  void CheckNoIdleSlot() {
    if (tracker_down_) return;
    std::vector<const SlotInfo*> kept;
    for (const WorkItem& work : dispatcher_->ReadyWork(now_)) {
      for (const SlotInfo& slot : dispatcher_->slots()) {
        if (!dispatcher_->Suits(slot, work) || !slot.usable) continue;
        if (Free(slot) && std::none_of(kept.begin(), kept.end(), [&](const SlotInfo* other) {
              return Share(*other, slot);
            })) {
          Violation(absl::StrCat("slot ", slot.id.worker, "/", slot.id.slot, " is free and ",
                                 v1::StageKind_Name(work.kind), " of j", work.job.value, " waits"));
        }
      }
      for (const SlotInfo& slot : dispatcher_->slots()) {
        if (dispatcher_->Suits(slot, work) && slot.usable && !Held(slot.id)) kept.push_back(&slot);
      }
    }
  }

  bool Free(const SlotInfo& slot) const {
    auto blocked = blocked_.find(slot.id);
    if (blocked != blocked_.end() && blocked->second > now_) return false;
    for (const auto& [id, stage] : stages_) {
      if (stage.open && Share(*FindSlot(stage.start.slot), slot)) return false;
    }
    return std::none_of(dispatcher_->slots().begin(), dispatcher_->slots().end(),
                        [&](const SlotInfo& other) { return other.foreign && Share(other, slot); });
  }

  void CheckEnd() {
    Flush();
    auto jobs = store_->LoadJobs();
    std::set<int64_t> there;
    for (const StoredJob& job : *jobs) {
      const v1::JobState state = job.row.job.state();
      there.insert(job.row.id);
      const Job& live = *dispatcher_->FindJob(JobId{job.row.id});
      if (!live.final()) return Violation(absl::StrCat("job j", job.row.id, " never ended"));
      if (state == v1::JOB_FAILED && job.row.job.fault().kind() == v1::FAULT_NONE)
        Violation("failed without a reason");
      if (state != v1::JOB_DONE) continue;
      ++result_.done_jobs;
      std::vector<int> trials(job.tasks.size());
      for (const CandidateRow& candidate : job.candidates) {
        if (!candidate.outcome)
          return Violation(absl::StrCat("a trial of j", job.row.id, " is lost"));
        ++trials[static_cast<size_t>(candidate.task)];
      }
      for (size_t i = 0; i < job.tasks.size(); ++i) {
        const Task& task = live.tasks[i];
        const bool given_up = task.valid() == 0 && task.trials >= 16;
        if (task.trials != trials[i]) Violation("a trial is counted twice");
        if (trials[i] != task.budget && !task.exhausted && !given_up)
          Violation("a budget is not used up");
      }
    }
    for (int64_t id : acknowledged_) {
      if (!there.count(id)) Violation("an acknowledged job is lost");
    }
    if (!dispatcher_->live().empty()) Violation("a stage never ended");
  }

  const SimulationOptions options_;
  std::mt19937_64 random_;
  SimulationResult result_;
  absl::Time start_ = absl::FromUnixSeconds(1'000'000);
  absl::Time now_ = start_;
  absl::Time wake_;
  int64_t order_ = 0;
  std::map<std::pair<absl::Time, int64_t>, std::function<void()>> agenda_;

  std::unique_ptr<RecordStore> store_;
  std::vector<Batch> pending_;  // written, not durable yet
  std::unique_ptr<Dispatcher> dispatcher_;
  JobBook book_;
  int64_t epoch_ = 0;
  int64_t next_attempt_ = 1;
  int64_t last_job_ = 0;
  int64_t last_fetch_ = 0;
  int64_t traces_ = 0;
  int planted_ = 0;
  std::set<int64_t> acknowledged_;
  std::set<std::pair<int64_t, int64_t>> finished_;

  std::vector<SlotInfo> all_slots_;
  std::set<std::string> dead_;
  std::set<SlotId> foreign_;
  bool tracker_down_ = false;
  std::map<AttemptId, Stage> stages_;
  std::map<SlotId, absl::Time> blocked_;  // the dispatcher may hold these back for a while
};

}  // namespace

SimulationResult Simulate(const SimulationOptions& options) { return World(options).Run(); }

}  // namespace heddle::scheduler
