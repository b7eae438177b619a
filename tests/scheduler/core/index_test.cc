// The dispatcher's indexes against the plain definitions: over random events, what it says is ready
// and free is what looking at every job, slot and running stage gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/core/max_tree.h"
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

template <typename Phase>
int PlainCount(const Task& task) {
  return static_cast<int>(std::count_if(task.open.begin(), task.open.end(), [](const auto& entry) {
    return std::holds_alternative<Phase>(entry.second.where);
  }));
}

// Bytes of code of each candidate: what the dispatcher assumes until something is built.
constexpr int64_t kCode = int64_t{128} << 10;

// Whether the job may build, where the dispatcher says whether there is room for many.
bool PlainMayBuild(const Dispatcher& dispatcher, const Job& job) {
  if (!dispatcher.LacksRoom(job)) return true;
  return !dispatcher.IsIdle(job) &&
         std::all_of(job.tasks.begin(), job.tasks.end(), [](const Task& task) {
           return PlainCount<Unbuilt>(task) == static_cast<int>(task.open.size());
         });
}

// What the test knows of a module asked for on demand.
struct AskedFor {
  JobId job;
  std::optional<AttemptId> live;
  int failures = 0;
  absl::Time not_before = absl::InfinitePast();
};

std::set<WorkItem> PlainReady(const Dispatcher& dispatcher,
                              const std::map<FetchId, AskedFor>& fetches, absl::Time now) {
  std::set<WorkItem> ready;
  if (!dispatcher.store_problem().empty()) return ready;
  for (const auto& [id, fetch] : fetches) {
    if (!fetch.live && fetch.not_before <= now)
      ready.insert(WorkItem{fetch.job, v1::STAGE_COMPILE, std::nullopt, id, false});
  }
  for (const auto& [id, job] : dispatcher.jobs()) {
    if (job.paused || job.final()) continue;
    if (!std::holds_alternative<Tuning>(job.phase)) {
      const auto kind =
          std::holds_alternative<Importing>(job.phase) ? v1::STAGE_IMPORT : v1::STAGE_COMPILE;
      if (!job.live && job.not_before <= now)
        ready.insert(WorkItem{id, kind, std::nullopt, std::nullopt, false});
      continue;
    }
    int devices = 0;
    for (const auto& [attempt, stage] : dispatcher.live())
      devices += stage.job == id && stage.kind == v1::STAGE_PROFILE;
    const bool more =
        !job.finding && (job.params.max_devices == 0 || devices < job.params.max_devices);
    for (TaskIndex index : job.in_flight) {
      const Task& task = job.tasks[static_cast<size_t>(index.value)];
      if (task.not_before > now) continue;
      auto add = [&](bool is, v1::StageKind kind) {
        if (is) ready.insert(WorkItem{id, kind, index, std::nullopt, kind == v1::STAGE_PROFILE});
      };
      add(more && PlainCount<Built>(task) > 0, v1::STAGE_PROFILE);
      add(PlainCount<Unbuilt>(task) > 0 && PlainMayBuild(dispatcher, job), v1::STAGE_BUILD);
      add(std::holds_alternative<WantsUpdate>(task.phase), v1::STAGE_UPDATE);
      add(std::holds_alternative<WantsPropose>(task.phase), v1::STAGE_PROPOSE);
    }
  }
  return ready;
}

bool PlainFree(const Dispatcher& dispatcher, const SlotInfo& slot, absl::Time now) {
  if (!dispatcher.tracker_problem().empty() || !slot.usable) return false;
  if (dispatcher.BacksOffUntil(slot.id) > now) return false;
  auto shares = [&](const std::string& host, const std::vector<int>& cores) {
    return host == slot.host && std::any_of(slot.cores.begin(), slot.cores.end(), [&](int core) {
             return std::count(cores.begin(), cores.end(), core) > 0;
           });
  };
  for (const auto& [id, stage] : dispatcher.live()) {
    if (stage.slot == slot.id || shares(stage.host, stage.cores)) return false;
  }
  return std::none_of(
      dispatcher.slots().begin(), dispatcher.slots().end(),
      [&](const SlotInfo& other) { return other.foreign && shares(other.host, other.cores); });
}

class Course {
  using Kinds = std::vector<std::string>;

 public:
  Course(uint64_t seed, const std::string& policy)
      : random_(seed), policy_(policy), dispatcher_(*MakePolicy(policy), OptionsOf(seed)) {}

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      now_ += absl::Milliseconds(Below(800));
      const Event event = i == 0                             ? Event(Slots())
                          : !finds_.empty() && Below(3) == 0 ? Answer()
                                                             : Any();
      NoteEnd(event);
      const Decisions decisions = dispatcher_.Step(event, now_);
      Note(decisions);
      if (const auto* asked = std::get_if<FetchRequested>(&event); asked && !refused_)
        fetches_[asked->fetch].job = asked->job;
      if (const auto* left = std::get_if<FetchAbandoned>(&event)) fetches_.erase(left->fetch);
      // What a request starts at once is known to be asked for only now.
      for (const StartStage& start : All<StartStage>(decisions)) {
        CheckSlot(start);
        NoteFetchStart(start);
      }
      Compare(i);
    }
    EXPECT_GT(started_, steps / 20) << "nothing happened";
    EXPECT_GT(busy_, steps / 20);
  }
  int lacked() const { return lacked_; }
  int shared() const { return shared_; }
  int fetched() const { return fetched_; }

 private:
  void Note(const Decisions& decisions) {
    started_ += Count<StartStage>(decisions);
    for (const FindRecords& find : All<FindRecords>(decisions)) finds_.push_back(find);
    for (const FinishCandidate& done : All<FinishCandidate>(decisions)) {
      for (const auto& [id, job] : dispatcher_.jobs()) {
        for (const Task& task : job.tasks) shared_ += id != done.job && task.known.total > 0;
      }
    }
    for (const EndFetch& end : All<EndFetch>(decisions))
      refused_ = fetches_.erase(end.fetch) == 0;  // at once: it was never waiting
  }
  void CheckSlot(const StartStage& start) const {
    for (const SlotInfo& slot : dispatcher_.slots()) {
      if (slot.id != start.slot) continue;
      const bool device = start.kind == v1::STAGE_PROFILE;
      EXPECT_TRUE(
          dispatcher_.Suits(slot, {start.job, start.kind, start.task, start.fetch, device}));
    }
  }
  void NoteFetchStart(const StartStage& start) {
    if (!start.fetch) return;
    ++fetched_;
    fetches_.at(*start.fetch).live = start.attempt;
  }
  // A stage made for a fetch ends: the fetch is over, or waits a while.
  void NoteEnd(const Event& event) {
    refused_ = false;
    const auto* end = std::get_if<StageFinished>(&event);
    if (end == nullptr) return;
    for (auto& [id, fetch] : fetches_) {
      if (fetch.live != end->attempt) continue;
      fetch.live.reset();
      if (!end->started || end->interrupted) continue;
      fetch.not_before = now_ + std::min(absl::Seconds(10), absl::Milliseconds(500) *
                                                                (int64_t{1} << fetch.failures++));
    }
  }

  // Every other course has little room for code.
  static DispatcherOptions OptionsOf(uint64_t seed) {
    DispatcherOptions options;
    if (seed % 2 == 0) options.max_artifact_bytes = kCode * static_cast<int64_t>(2 + seed * 5 % 41);
    return options;
  }

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  SlotsChanged Slots() {
    SlotsChanged event;
    if (Below(12) == 0) event.problem = "gone";
    for (int w = 0; w < 4; ++w) {
      if (Below(6) == 0) continue;
      for (int s = 0; s < 5; ++s) {
        SlotInfo slot;
        slot.id = {absl::StrCat("w", w), absl::StrCat("s", s)};
        slot.host = absl::StrCat("h", w / 2);  // two workers may share a host
        slot.device = s >= 2;
        slot.cores = s == 4 ? std::vector<int>{w % 2 * 8, w % 2 * 8 + 1}
                            : std::vector<int>{w % 2 * 8 + s % 3};
        slot.target = slot.device ? absl::StrCat("t", w % 2) : "";
        slot.device_key = slot.device ? absl::StrCat("k", w % 2) : "";
        if (!slot.device) slot.builds = w == 0 ? Kinds{"t0"} : Kinds{"t0", "t1"};
        slot.foreign = Below(15) == 0;
        slot.usable = !slot.foreign && Below(10) != 0;
        event.slots.push_back(slot);
      }
    }
    std::shuffle(event.slots.begin(), event.slots.end(), random_);
    return event;
  }

  Event Any() {
    const JobId job{1 + Below(std::max(1, jobs_))};
    switch (Below(40)) {
      case 0:
      case 1:
      case 2: {
        JobParams params;
        params.target = absl::StrCat("t", Below(2));
        params.record_target = params.target;
        params.force = Below(4) == 0;
        params.threads = Below(3);
        params.trials_per_task = 1 + Below(24);
        params.batch = 1 + Below(8);
        params.pipeline_depth = Below(4);
        params.max_devices = Below(3);
        params.tenant = absl::StrCat("u", Below(3));
        params.priority = Below(3) - 1;
        if (Below(2) == 0) params.deadline = now_ + absl::Minutes(Below(20));
        return jobs_ < 12 ? Event(JobSubmitted{JobId{++jobs_}, params}) : Event(Tick{});
      }
      case 3:
        return Slots();
      case 4:
        return PauseRequested{job, ""};
      case 5:
      case 6:
        return ResumeRequested{job};
      case 7:
        if (Below(6) == 0) return CancelRequested{job, ""};
        return PriorityRequested{job, Below(3) - 1};
      case 8:
        return StoreBlocked{Below(4) == 0 ? "full" : ""};
      case 9:
        now_ += absl::Seconds(Below(12));
        return Tick{};
      case 10:
      case 11:
        return jobs_ > 0 ? Event(FetchRequested{FetchId{++asked_}, job}) : Event(Tick{});
      case 12:
        return FetchAbandoned{FetchId{1 + Below(std::max(1, asked_))}};
      default:
        return OfStage();
    }
  }

  Event Answer() {
    const FindRecords find = finds_.back();
    finds_.pop_back();
    std::vector<KnownRecords> known(dispatcher_.FindJob(find.job)->tasks.size());
    for (KnownRecords& task : known) task.total = task.valid = Below(3);
    return RecordsFound{find.job, find.device_key, std::move(known)};
  }

  Event OfStage() {
    const auto& live = dispatcher_.live();
    if (live.empty()) return Tick{};
    const LiveStage& stage = std::next(live.begin(), Below(static_cast<int>(live.size())))->second;
    const bool streams = stage.kind == v1::STAGE_BUILD || stage.kind == v1::STAGE_PROFILE;
    if (streams && !stage.candidates.empty() && Below(8) != 0) {
      const CandidateId candidate = *stage.candidates.begin();
      const v1::Outcome outcome = Below(6) == 0 ? v1::OUTCOME_BUILD_ERROR : v1::OUTCOME_OK;
      if (stage.kind == v1::STAGE_BUILD) {
        CandidateBuilt built{stage.id, candidate, outcome, ""};
        if (outcome == v1::OUTCOME_OK) built.artifact_bytes = kCode;
        return built;
      }
      return CandidateProfiled{stage.id, candidate, outcome, "", 5};
    }
    if (streams && Below(3) == 0 && !stage.candidates.empty())
      return CandidateStarted{stage.id, *stage.candidates.begin()};
    if (Below(8) == 0 || (streams && !stage.candidates.empty())) {
      // A user fault ends a fetch at once, which is not what is tested here.
      const bool user = !stage.fetch && Below(6) == 0;
      return StageFinished{stage.id,
                           {user ? v1::FAULT_USER : v1::FAULT_INFRASTRUCTURE, "broke"},
                           Below(2) == 0,
                           {},
                           Below(4) == 0};
    }
    StageFinished end{stage.id, {}, true, {}};
    if (stage.kind == v1::STAGE_IMPORT) {
      std::vector<FoundTask> tasks(static_cast<size_t>(Below(4)));
      for (FoundTask& task : tasks) task.key = Below(3) == 0 ? "" : absl::StrCat("w", Below(6));
      end.result = ImportOf(tasks, "");
    }
    if (stage.kind == v1::STAGE_PROPOSE) end.result = Proposed{Below(8), Below(12) == 0};
    return end;
  }

  // Whether a job with a deadline may keep this work off the CPU slots: it runs, of the same
  // tenant, no lower in priority, and could use all that are free.
  bool GivesWay(const WorkItem& work) const {
    if (work.fetch) return false;
    const Job& job = *dispatcher_.FindJob(work.job);
    int free_slots = 0;
    for (const SlotInfo& slot : dispatcher_.slots())
      free_slots += !slot.device && dispatcher_.SlotFree(slot);
    for (const auto& [id, stage] : dispatcher_.live()) {
      const Job& first = *dispatcher_.FindJob(stage.job);
      const absl::Time deadline = first.params.deadline;
      if (deadline == absl::InfiniteFuture() || first.final() || first.paused ||
          first.id == job.id || first.params.tenant != job.params.tenant ||
          first.params.priority < job.params.priority)
        continue;
      const WorkItem profile{first.id, v1::STAGE_PROFILE, TaskIndex{0}, std::nullopt, true};
      const int devices = static_cast<int>(
          std::count_if(dispatcher_.slots().begin(), dispatcher_.slots().end(),
                        [&](const SlotInfo& slot) { return dispatcher_.Suits(slot, profile); }));
      if (free_slots <= PipelineDepth(first.params, devices)) return true;
    }
    return false;
  }

  // What people are told of slots (why_waiting.h).
  void CompareSlots(int step) {
    for (const SlotInfo& slot : dispatcher_.slots()) {
      const LiveStage* found = nullptr;
      for (const auto& [attempt, stage] : dispatcher_.live()) {
        if (stage.slot == slot.id) found = &stage;
      }
      ASSERT_EQ(dispatcher_.StageOn(slot.id), found) << "step " << step;
    }
    dispatcher_.ForEachWaiting([&](const WorkItem& work, absl::Time) {
      bool free = false, suits = false, usable = false;
      for (const SlotInfo& slot : dispatcher_.slots()) {
        if (!dispatcher_.Suits(slot, work)) continue;
        suits = true;
        usable |= slot.usable;
        free |= dispatcher_.SlotFree(slot);
      }
      const Dispatcher::SuitingSlots found = dispatcher_.SlotsFor(work);
      ASSERT_EQ(found.free, free) << "step " << step;
      ASSERT_EQ(found.one != nullptr, suits) << "step " << step;
      if (!suits) return;
      ASSERT_TRUE(dispatcher_.Suits(*found.one, work)) << "step " << step;
      ASSERT_EQ(found.one->usable, usable) << "step " << step;
    });
  }

  // What is counted as things happen is what a look at everything gives.
  void CompareCounts(int step) {
    std::map<JobId, std::set<AttemptId>> stages;
    for (const auto& [attempt, stage] : dispatcher_.live()) {
      if (!stage.fetch) stages[stage.job].insert(attempt);
    }
    for (const auto& [id, job] : dispatcher_.jobs())
      ASSERT_EQ(job.stages, stages[id]) << "of j" << id.value << ", step " << step;
    CompareSlots(step);
    double horizon = 0;
    for (int lane = 0; lane < 40; ++lane)
      horizon = std::max(horizon, dispatcher_.forecast().LaneSeconds(lane));
    ASSERT_EQ(dispatcher_.forecast().Horizon(), horizon) << "step " << step;
    busy_ += horizon > 0;
  }

  // Between a limit and three quarters of it, what was before decides.
  void CompareRoom(int step) {
    int64_t bytes = 0;
    for (const auto& [id, job] : dispatcher_.jobs()) {
      if (job.final()) continue;
      for (const Task& task : job.tasks)
        bytes += kCode * (static_cast<int64_t>(task.open.size()) - PlainCount<Unbuilt>(task));
    }
    ASSERT_EQ(dispatcher_.artifact_bytes(), bytes) << "step " << step;
    for (const auto& [id, job] : dispatcher_.jobs()) {
      if (job.final()) continue;
      const bool lacks = dispatcher_.LacksRoom(job);
      const int64_t limit =
          dispatcher_.options().max_artifact_bytes / (dispatcher_.IsIdle(job) ? 2 : 1);
      ASSERT_TRUE(lacks ? bytes >= limit / 4 * 3 : bytes < limit) << "step " << step;
      lacked_ += lacks;
    }
  }

  void Compare(int step) {
    CompareCounts(step);
    CompareRoom(step);
    const std::vector<WorkItem> order = dispatcher_.ReadyWork();
    const std::set<WorkItem> indexed(order.begin(), order.end());
    ASSERT_EQ(indexed.size(), order.size()) << "twice, step " << step;
    const std::set<WorkItem> plain = PlainReady(dispatcher_, fetches_, now_);
    ASSERT_TRUE(std::includes(plain.begin(), plain.end(), indexed.begin(), indexed.end()))
        << "step " << step;
    std::optional<JobId> turn;  // sequential: the one job whose work is ready
    for (const WorkItem& work : indexed) {
      if (work.fetch || policy_ != "sequential") continue;
      ASSERT_EQ(turn.value_or(work.job), work.job) << "two jobs at a time, step " << step;
      turn = work.job;
    }
    for (const WorkItem& work : plain) {
      // Predictive holds back work on devices, and what is in the way of a deadline; sequential
      // that of other jobs.
      const bool may_wait = policy_ == "predictive"   ? work.device || GivesWay(work)
                            : policy_ == "sequential" ? !work.fetch && work.job != turn
                                                      : false;
      ASSERT_TRUE(may_wait || indexed.count(work)) << "step " << step;
    }
    for (const SlotInfo& slot : dispatcher_.slots()) {
      ASSERT_EQ(dispatcher_.SlotFree(slot), PlainFree(dispatcher_, slot, now_))
          << "step " << step << " " << slot.id.worker << "/" << slot.id.slot;
    }
  }

  std::mt19937_64 random_;
  const std::string policy_;
  Dispatcher dispatcher_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  int busy_ = 0;    // steps after which there was work left
  int lacked_ = 0;  // how often a job lacked room for code
  int jobs_ = 0, started_ = 0, asked_ = 0, fetched_ = 0, shared_ = 0;
  bool refused_ = false;  // the fetch of this event was
  std::vector<FindRecords> finds_;
  std::map<FetchId, AskedFor> fetches_;
};

// Ranks at random, and keeps the ranks. Several tiers have the same rank, work of one tier is held back, and so is that
// of one tenant in another tier, and the last items of some tenants in a third. The shares of tenants change now and then, and many are equal.
class RandomRanks : public Policy {
 public:
  explicit RandomRanks(uint64_t seed) : random_(seed) {}
  Rank RankOf(const WorkItem& work, const Job&, const Wait&) override {
    Rank& rank = ranks[work] = {};
    rank.tier = Below(9);
    rank.tenant = Below(6);
    rank.key = {static_cast<double>(Below(3)), static_cast<double>(Below(3))};
    rank.waits = Below(10) == 0;
    return rank;
  }
  TierRank RankOfTier(int64_t tier, int64_t tenant) const override {
    if (tier == 3 || (tier == 4 && tenant == 2)) return kHeldBack;
    return {ShareOf(tenant), static_cast<double>(tier * 5 % 4), 0};
  }
  bool HoldsBack(int64_t tier, int64_t tenant, const std::array<double, 2>& key,
                 JobId job) const override {
    return tier == 5 && tenant < 4 && std::pair(key[0], job) > std::pair(1.0, JobId{20});
  }
  double ShareOf(int64_t tenant) const override { return shares_[static_cast<size_t>(tenant)]; }
  std::vector<int64_t> TakeMoved() override { return std::exchange(moved_, {}); }
  void MoveOne() {
    moved_.push_back(Below(6));
    shares_[static_cast<size_t>(moved_.back())] = Below(3);
  }
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  std::map<WorkItem, Rank> ranks;  // as told last

 private:
  std::mt19937_64 random_;
  std::array<double, 6> shares_{};
  std::vector<int64_t> moved_;
};

TEST(ReadyIndexTest, ACursorGivesTheOrderOfASort) {
  using Place = std::tuple<TierRank, std::array<double, 2>, JobId, int>;
  size_t compared = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    RandomRanks policy(seed);
    ReadyIndex index;
    std::vector<Job> jobs(static_cast<size_t>(1 + policy.Below(60)));
    for (size_t i = 0; i < jobs.size(); ++i) jobs[i].id = JobId{static_cast<int64_t>(i) + 1};
    std::map<JobId, std::vector<ReadyIndex::Item>> ready;
    for (int step = 0; step < 200; ++step) {
      const Job& job = jobs[static_cast<size_t>(policy.Below(static_cast<int>(jobs.size())))];
      std::vector<ReadyIndex::Item> items;
      for (int i = policy.Below(5); i > 0; --i) {
        const WorkItem work{{job.id, v1::STAGE_BUILD, TaskIndex{i}, std::nullopt}, false};
        items.push_back({work, policy.Below(2)});
      }
      index.Set(job, items, /*rank_again=*/policy.Below(2) == 0, &policy, absl::UnixEpoch());
      ready[job.id] = items;
      if (policy.Below(4) == 0) policy.MoveOne();
      if (policy.Below(6) == 0) index.TakeShares(&policy);
    }
    index.TakeShares(&policy);
    std::array<std::vector<Place>, 2> expected;
    for (const auto& [job, items] : ready) {
      for (size_t i = 0; i < items.size(); ++i) {
        const Rank& rank = policy.ranks.at(items[i].work);
        const TierRank tier = policy.RankOfTier(rank.tier, rank.tenant);
        if (rank.waits || tier == kHeldBack ||
            policy.HoldsBack(rank.tier, rank.tenant, rank.key, job))
          continue;
        expected[static_cast<size_t>(items[i].lane)].push_back(
            {tier, rank.key, job, static_cast<int>(i)});
      }
    }
    for (int lane = 0; lane < index.lanes(); ++lane) {
      std::vector<Place>& wanted = expected[static_cast<size_t>(lane)];
      std::sort(wanted.begin(), wanted.end());
      std::vector<Place> found;
      for (ReadyIndex::Cursor cursor(index, policy, lane); !cursor.done(); cursor.Next())
        found.push_back(
            {cursor.tier(), cursor.node().key, cursor.node().job, cursor.node().position});
      ASSERT_EQ(found, wanted) << "seed " << seed;
      compared += found.size();
    }
  }
  EXPECT_GT(compared, 1000u);
}

// Figures of lanes that were there before a list of slots, and of lanes that came after it.
TEST(SlotIndexTest, FiguresOfLanesAreThoseOfALookAtEachSlot) {
  std::mt19937_64 random(1);
  auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  SlotIndex index;
  std::vector<SlotInfo> slots;
  int unusable_first = 0;
  for (int round = 0; round < 60; ++round) {
    slots.clear();
    for (int i = 0; i < 30; ++i) {
      SlotInfo& slot = slots.emplace_back();
      slot.id = {absl::StrCat("w", i / 10), absl::StrCat("s", i % 10)};
      slot.host = absl::StrCat("h", below(3));
      for (int core = below(4); core < 4; ++core) slot.cores.push_back(core);
      slot.device = below(2) == 0;
      if (slot.device) slot.target = absl::StrCat("t", below(2));
      if (slot.device) slot.device_key = absl::StrCat("k", below(2));
      slot.usable = below(3) != 0;
    }
    index.Reset(slots);
    for (int i = 0; i < 6; ++i) {
      JobParams needs;
      needs.target = absl::StrCat("t", below(2));
      if (below(2) == 0) needs.device_key = absl::StrCat("k", below(2));
      needs.threads = below(4);
      const int lane = index.DeviceLane(needs);
      int count = 0, usable = 0, displaced = 0;
      const SlotInfo* first = nullptr;
      for (const SlotInfo& slot : slots) {
        if (!SlotIndex::Suits(slot, v1::STAGE_PROFILE, needs)) continue;
        ++count;
        usable += slot.usable;
        if (first == nullptr || (slot.usable && !first->usable)) first = &slot;
        for (const SlotInfo& other : slots) {
          displaced += !other.device && other.host == slot.host &&
                       std::any_of(slot.cores.begin(), slot.cores.end(), [&](int core) {
                         return std::count(other.cores.begin(), other.cores.end(), core) > 0;
                       });
        }
      }
      ASSERT_EQ(index.Count(lane), count);
      ASSERT_EQ(index.Usable(lane), usable);
      ASSERT_EQ(index.First(lane), first);
      for (const char* worker : {"w0", "w1", "w2", "w9"}) {
        ASSERT_EQ(index.AnotherWorker(lane, worker),
                  std::any_of(slots.begin(), slots.end(), [&](const SlotInfo& slot) {
                    return slot.usable && slot.id.worker != worker &&
                           SlotIndex::Suits(slot, v1::STAGE_PROFILE, needs);
                  }));
      }
      ASSERT_EQ(index.Displaced(lane), count > 0 ? 1.0 * displaced / count : 0);
      unusable_first += first != nullptr && !first->usable;
    }
  }
  EXPECT_GT(unusable_first, 0);
}

TEST(MaxTreeTest, TheLargestIsThatOfALookAtAll) {
  std::mt19937_64 random(1);
  MaxTree tree;
  EXPECT_EQ(tree.Max(), 0);
  std::vector<double> all(70);
  for (int i = 0; i < 2000; ++i) {
    const size_t at = random() % static_cast<size_t>(1 + i / 20 % 70);
    all[at] = static_cast<double>(random() % 100);
    tree.Set(at, all[at]);
    ASSERT_EQ(tree.Max(), *std::max_element(all.begin(), all.end())) << i;
  }
}

TEST(IndexTest, AnswersAreThoseOfThePlainDefinition) {
  int shared = 0, fetched = 0, lacked = 0;
  for (uint64_t seed = 1; seed <= 20 && !HasFailure(); ++seed) {
    for (const char* policy : {"round_robin", "predictive", "sequential"}) {
      SCOPED_TRACE(absl::StrCat(policy, " seed ", seed));
      Course course(seed, policy);
      course.Run(600);
      shared += course.shared();
      fetched += course.fetched();
      lacked += course.lacked();
    }
  }
  EXPECT_GT(shared, 100);
  EXPECT_GT(fetched, 100);
  EXPECT_GT(lacked, 1000);
}

}  // namespace
}  // namespace heddle::scheduler
