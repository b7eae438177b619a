// The default policy. It ranks ready work by predicted durations (forecast.h). Tenants get equal
// shares and deadlines are met where possible; beyond that it wants a short makespan and a short
// mean completion time.
//
// The rules apply in this order. A later rule decides only among items that the earlier rules rank
// equal.
//
//  1. No starvation. An item goes first once its patience is used up: after kPatience stages, plus
//     kPatiencePerJob for each running job, have started from its lane while it was ready. Of
//     several such items, the one that has waited longest goes first.
//  2. Fair shares. The tenant that was served least goes first. Service is measured in slot-seconds
//     divided by the slots of the lane. A tenant that arrives or returns starts level with the
//     least served one, so absence earns no credit. A tenant's service never exceeds that of the
//     least served one by more than kLag, so using slots that nobody else wanted costs it little.
//  3. Priority, within a tenant.
//  4. Urgency:
//     - Jobs with a deadline, earliest first. A deadline counts only while its slack is not ample
//       (kAmple) and the job can still meet it (kHopeful). The tight job is the first of them that
//       is short of time (deadline_watch.h). It has about enough time if it runs alone, and stages
//       are never interrupted. Other work of its tenant, unless it has higher priority or an
//       earlier deadline, therefore does not start on the last slots that the tight job could use.
//     - Turns on the CPU that have begun (see round_robin.cc).
//     - Critical jobs: those that would prolong the makespan if they waited any longer. A lower
//       bound on the makespan is the horizon: the time in which the busiest lane finishes all its
//       work without idling (Forecast::Horizon). A job is critical if its own span (its time with
//       all slots to itself, idle gaps included) comes close to the horizon. Least slack first.
//     - Jobs that would be critical if faults delayed them (kTrouble). They get a share of the
//       slots.
//     - All other jobs.
//  5. Among the other jobs, supply of the bottleneck. If CPU slots are the bottleneck and are about
//     to run out of work, devices prefer jobs that need the CPU more than the device. If a device
//     lane is the bottleneck and is about to run out of work, CPU slots prefer the stage that
//     leads to device work soonest: build, then propose, then update. Of several such lanes, the
//     one with the most work left comes first, because time lost there prolongs the makespan.
//  6. The job with the least work left, which makes the mean completion time short.
//
// Besides, a profile stage starts as late as it can without ending later (StartOf). Started
// earlier, it would hold its device idle while it waits for builds.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "absl/container/node_hash_map.h"
#include "scheduler/core/forecast.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/policies/deadline_watch.h"
#include "scheduler/core/policies/predictive_tier.h"
#include "scheduler/core/policy.h"
#include "scheduler/core/ready_index.h"
#include "scheduler/core/slot_index.h"

namespace heddle::scheduler {
namespace {

// An item's patience: the number of stages that may start from its lane while it waits. It is
// kPatience, plus kPatiencePerJob for each running job.
constexpr int64_t kPatience = 40, kPatiencePerJob = 6;
constexpr double kLag = 300;  // seconds
constexpr absl::Duration kAgain = absl::Seconds(1);
// A deadline counts as pressing when the time left is less than this many times the sum of what the
// job and what all jobs with deadlines need.
constexpr double kAmple = 10;
// Margin for a critical job, as a multiple of the idle time that it would leave on the busiest slot
// if it ran alone. During these gaps others may start stages, which are not interrupted and delay
// it; its own stages may also take longer than predicted.
constexpr double kGaps = 1.1;
// A fault delays a job that runs alone, because no other job can use the time until the retry. The
// predicted span of a job is therefore multiplied by 1 + min(kMostTrouble, kTrouble x the lost
// share). The lost share is the share of slot-seconds spent in build and profile stages that ended
// with unanswered candidates. Jobs that are critical only by this longer span share the slots with
// the shorter jobs: if they went first, they would delay these too much.
constexpr double kTrouble = 40, kMostTrouble = 1;
// Such jobs get a share of a lane's slot-seconds equal to their share of the running jobs, but at
// most kMostShared. What they got above or below that is carried over, up to kMostOwed seconds.
constexpr double kMostShared = 0.9, kMostOwed = 60;
// The lost share covers about the last kMemory seconds of each slot, preceded by an assumed
// kNoTrouble seconds without a fault. Jobs are ranked again only when the factor on the span has
// changed by kTroubleStep.
constexpr double kMemory = 250, kNoTrouble = 25, kTroubleStep = 1.1;
// Levels of ordinary CPU stages, smallest first: imports and compiles (0); stages for the hungry
// device lane with the most work, by their Path; stages for other hungry lanes, from kOtherLane on,
// by their Path; all others (kNotHungry). A lane is hungry if it is about to run out of work.
constexpr int64_t kOtherLane = 4, kNotHungry = 8, kLevels = 16;
static_assert(kUpdate < kOtherLane && kOtherLane + kUpdate < kNotHungry && kNotHungry < kLevels);
// Shortest time for which a profile stage is held back.
constexpr absl::Duration kLeastHold = absl::Milliseconds(10);
// A lane is about to run out of work if it has fewer ready items than this per slot. For a device
// lane, the running builds that feed it count as well.
constexpr int kSupply = 2;

class Predictive : public Policy {
 public:
  Rank RankOf(const WorkItem& work, const Job& job, const Wait& wait) override {
    const PlannedJob& known = jobs_[job.id.value];
    const int64_t patience = kPatience + kPatiencePerJob * static_cast<int64_t>(running_);
    Tier tier{PriorityOf(job), kOrdinary, job.lane, PathOf(work.kind, known.load)};
    if (wait.passed >= patience) {
      tier.priority = tier.lane = tier.path = 0;
      tier.urgency = kOverdue;
      return Rank{.tier = tier.Pack(),
                  .key = {absl::ToDoubleSeconds(wait.since - absl::UnixEpoch()), 0}};
    }
    Rank rank;
    rank.tenant = work.fetch ? 0 : known.tenant;
    if (work.device && work.task && wait.now < (rank.until = StartOf(job, *work.task, wait.now))) {
      rank.until = std::max(rank.until, wait.now + kLeastHold);
      rank.waits = true;
      return rank;
    }
    rank.until = absl::InfiniteFuture();
    rank.patience = patience;
    const Forecast::Load* load = known.load;
    const absl::Time latest_start =
        Urgent(job, load == nullptr ? Forecast::Load() : *load, wait.now, &tier, &rank.until);
    // A turn that has begun goes on; see round_robin.cc.
    const bool turn =
        known.turn && (work.kind == v1::STAGE_PROPOSE || work.kind == v1::STAGE_BUILD);
    PutShared(tier.urgency == kShared, &jobs_[job.id.value]);
    if (turn && tier.urgency >= kShared) tier.urgency = kCriticalPath;
    rank.key[0] = turn && tier.urgency > kDeadline ? 0 : 1;
    if (tier.urgency != kOrdinary) {
      rank.key[1] = KeyOf(latest_start);
      if (!work.device) tier.lane = tier.path = 0;
    } else {
      rank.key[1] = load == nullptr || work.fetch ? 0 : WorkLeft(*load);
    }
    rank.tier = tier.Pack();
    return rank;
  }

  TierRank RankOfTier(int64_t packed, int64_t tenant) const override {
    const Tier tier = Tier::Unpack(packed);
    if (tier.urgency == kOverdue) return {-1, 0, 0};
    if (InTheWay(tier, tenant)) return kHeldBack;
    double urgency = static_cast<double>(tier.urgency * kLevels);
    if (tier.urgency == kShared) {
      const auto owed = owed_.find(static_cast<int>(tier.lane));
      if (owed != owed_.end() && owed->second < 0) urgency = (kOrdinary + 1) * kLevels;
    }
    if (tier.urgency == kOrdinary) {
      const int lane = static_cast<int>(tier.lane);
      if (tier.path >= kCpuHeavy) {
        urgency += CpuHungry(lane) ? static_cast<double>(tier.path) : 0;
      } else if (tier.path != kUser) {
        const int64_t level = Longest(lane) ? tier.path : kOtherLane + tier.path;
        urgency += static_cast<double>(Hungry(lane) ? level : kNotHungry);
      }
    }
    return {ShareOf(tenant), static_cast<double>(tier.priority), urgency};
  }

  // Jobs with later deadlines than the tight one. They are behind it in their tier (rank.key), so that none of them has to be ranked
  // again when another job is tight.
  bool HoldsBack(int64_t packed, int64_t tenant, const std::array<double, 2>& key,
                 JobId job) const override {
    const std::optional<DeadlineWatch::Due>& tight = deadlines_.tight();
    if (!tight) return false;
    const Tier tier = Tier::Unpack(packed);
    return tier.urgency == kDeadline &&
           std::pair(key[1], job) > std::pair(KeyOf(tight->first), tight->second) &&
           TakesLastSlots(tier, tenant);
  }

  double ShareOf(int64_t tenant) const override {
    return std::max(0.0, tenants_.at(static_cast<size_t>(tenant)).served);
  }

  std::vector<int64_t> TakeMoved() override { return std::exchange(moved_, {}); }

  void Changed(const Job& job) override {
    PlannedJob& known = jobs_[job.id.value];
    const bool runs = !job.final() && !job.paused;
    known.load = view_.forecast->Of(job.id);
    if (!known.runs && runs) {
      known.tenant = TenantOf(job);
      Tenant& tenant = tenants_[static_cast<size_t>(known.tenant)];
      if (tenant.running++ == 0) {
        if (Floor() > tenant.served) {
          tenant.served = Floor();
          moved_.push_back(known.tenant);
        }
        running_served_.insert(tenant.served);
      }
      ++running_;
    } else if (known.runs && !runs) {
      Tenant& tenant = tenants_[static_cast<size_t>(known.tenant)];
      if (--tenant.running == 0) running_served_.erase(running_served_.find(tenant.served));
      --running_;
    }
    if (job.params.deadline != absl::InfiniteFuture()) {
      known.lane = job.lane;
      known.priority = PriorityOf(job);
      if (runs && !known.runs) {
        known.params = job.params;
        deadlines_.Add({job.params.deadline, job.id}, &known);
      } else if (!runs) {
        deadlines_.Remove({job.params.deadline, job.id});
      }
      deadlines_.Look();
    }
    known.runs = runs;
    if (!runs) PutShared(false, &known);
    if (job.final() && known.live == 0) jobs_.erase(job.id.value);
  }

  void Started(const WorkItem& work, const Job& job, const LiveStage& stage) override {
    PlannedJob& known = jobs_[job.id.value];
    ++known.live;
    if (work.kind == v1::STAGE_BUILD) ++builds_[job.lane];
    if (!work.device && work.task)
      known.turn = work.kind != v1::STAGE_BUILD ||
                   HasUnbuilt(job.tasks[static_cast<size_t>(work.task->value)]);
    const int units = static_cast<int>(stage.candidates.size());
    const double seconds =
        absl::ToDoubleSeconds(view_.forecast->Stage(job, work.kind, work.task, units));
    charged_[stage.id] = {job.lane, seconds};
    const int lane = work.device ? job.lane : SlotIndex::kCpuLane;
    Serve(known.tenant, lane, seconds);
    CountShared(known.shared, lane, seconds);
  }

  void Ended(const LiveStage& stage, const Job& job, absl::Time now) override {
    PlannedJob& known = jobs_[job.id.value];
    --known.live;
    if (!stage.cancelled) CountTrouble(stage, now);
    if (stage.kind == v1::STAGE_PROFILE && !known.measured) {
      known.measured = true;
      deadlines_.Look();
    }
    auto charged = charged_.find(stage.id);
    if (charged != charged_.end()) {
      const auto [lane, seconds] = charged->second;
      if (stage.kind == v1::STAGE_BUILD && --builds_[lane] == 0) builds_.erase(lane);
      Serve(known.tenant, NeedsDevice(stage.kind) ? lane : SlotIndex::kCpuLane,
            absl::ToDoubleSeconds(now - stage.started) - seconds);
      charged_.erase(charged);
    }
    if (!known.runs && job.final() && known.live == 0) jobs_.erase(job.id.value);
  }

  std::vector<JobId> TakeStale(absl::Time now) override {
    deadlines_.Find(view_, now, &stale_);
    return std::exchange(stale_, {});
  }

  bool HonoursDeadlines() const override { return true; }

 private:
  struct Tenant {
    double served = 0;  // slot-seconds divided by the slots of the lane, summed over lanes
    int running = 0;    // running jobs
  };

  void PutShared(bool shared, PlannedJob* job) {
    if (shared != job->shared) shared_ += shared ? 1 : -1;
    job->shared = shared;
  }

  void CountShared(bool shared, int lane, double seconds) {
    if (shared_ == 0 || shared_ >= running_) return owed_.clear();
    const double part = std::min(kMostShared, static_cast<double>(shared_) / running_);
    double& owed = owed_[lane];
    owed = std::clamp(owed + (shared ? part - 1 : part) * seconds, -kMostOwed, kMostOwed);
  }

  void CountTrouble(const LiveStage& stage, absl::Time now) {
    // Unanswered candidates mean that something broke. A fault of any other stage counts as work.
    (stage.candidates.empty() ? worked_ : lost_) += absl::ToDoubleSeconds(now - stage.started);
    const double slots = std::max(1, view_.slots->slots());
    if (worked_ + lost_ > kMemory * slots) worked_ /= 2, lost_ /= 2;
    const double share = lost_ / (worked_ + lost_ + kNoTrouble * slots);
    const double alone = 1 + std::min(kMostTrouble, kTrouble * share);
    if (alone < alone_ * kTroubleStep && alone > alone_ / kTroubleStep) return;
    alone_ = alone < kTroubleStep ? 1 : alone;
    // Each job's items follow one another.
    std::optional<JobId> before;
    view_.ready->ForEach([&](const WorkItem& work, absl::Time) {
      if (before == work.job) return;
      before = work.job;
      if (jobs_[work.job.value].runs) stale_.push_back(work.job);
    });
  }

  static int64_t PriorityOf(const Job& job) {
    return 31 - std::clamp(job.params.priority, -32, 31);
  }

  static double KeyOf(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

  bool InTheWay(const Tier& tier, int64_t tenant) const {
    return tier.urgency > kDeadline && TakesLastSlots(tier, tenant);
  }

  // Whether work of this tier would take the last slots from the tight job. True only while the
  // tight job has running stages: their end is an event, so held-back work is looked at again.
  bool TakesLastSlots(const Tier& tier, int64_t tenant) const {
    if (!deadlines_.tight()) return false;
    const PlannedJob& tight = deadlines_.tight_job();
    const Forecast::Load* load = tight.load;
    if (load == nullptr || tight.live == 0 || tenant != tight.tenant ||
        tier.priority < tight.priority)
      return false;
    const bool device = tier.path >= kCpuHeavy;
    if (device && tier.lane != tight.lane) return false;
    // The slots that the tight job can use: at most one per round of its pipeline depth, and one
    // per candidate that it may have ready. It always needs a CPU slot, to compile and update.
    int needs = std::min(PipelineDepth(tight.params, view_.slots->Count(tight.lane)),
                         std::max(device ? 0 : 1, load->most_ready));
    if (device && tight.params.max_devices > 0) needs = std::min(needs, tight.params.max_devices);
    return view_.slots->Free(device ? tight.lane : SlotIndex::kCpuLane) <= needs;
  }

  static Path PathOf(v1::StageKind kind, const Forecast::Load* load) {
    switch (kind) {
      case v1::STAGE_PROFILE:
      case v1::STAGE_COMPARE:
        return load != nullptr && load->cpu_s > load->device_s ? kCpuHeavy : kDeviceHeavy;
      case v1::STAGE_BUILD:
        return kBuild;
      case v1::STAGE_PROPOSE:
        return kPropose;
      case v1::STAGE_UPDATE:
        return kUpdate;
      default:
        return kUser;  // import, plan, compile
    }
  }

  // Sets the urgency of the tier and the time until which it holds. Returns the time by which the
  // job must go on.
  absl::Time Urgent(const Job& job, const Forecast::Load& load, absl::Time now, Tier* tier,
                    absl::Time* until) const {
    const double span = load.span_s;
    const absl::Time deadline = job.params.deadline;
    const std::optional<DeadlineWatch::Due>& tight = deadlines_.tight();
    if (deadline != absl::InfiniteFuture()) {
      const double ample = kAmple * (span + view_.forecast->DeadlineSeconds());
      const absl::Time presses = deadline - absl::Seconds(ample);
      const absl::Time lost = deadline - absl::Seconds(kHopeful * span);
      if (now < presses) {
        *until = presses;
      } else if (now < lost || (tight && tight->second == job.id)) {
        // The tight job stays urgent until another job is tight, because the others make way for it
        // until then.
        *until = now < lost ? lost : absl::InfiniteFuture();
        tier->urgency = kDeadline;
        return deadline;
      }
    }
    const absl::Time end = now + absl::Seconds(view_.forecast->Horizon());
    const double gaps = kGaps * (span - load.share_s);
    const absl::Time critical = end - absl::Seconds(span + gaps);
    const absl::Time shared = end - absl::Seconds(alone_ * span + gaps);
    if (critical <= now) {
      tier->urgency = kCriticalPath;
    } else {
      if (shared <= now) tier->urgency = kShared;
      // Ask again after kAgain at the earliest. Unless something happens, the end of the horizon
      // moves on with `now`, so the job does not come closer to being critical.
      *until = std::min(*until, std::max(shared <= now ? critical : shared, now + kAgain));
    }
    return end - absl::Seconds(span);
  }

  // When a profile stage of the task should start so that it never waits for a build, as predicted.
  // Returns `now` if nothing is being built. The estimate counts from the start of the running
  // builds, so it stays the same until something happens.
  absl::Time StartOf(const Job& job, TaskIndex index, absl::Time now) const {
    std::map<AttemptId, absl::Duration> builds;  // how long the unit at hand has taken
    int unbuilt = 0, all = 0;
    for (const auto& [id, candidate] : job.tasks[static_cast<size_t>(index.value)].open) {
      const auto* building = std::get_if<Building>(&candidate.where);
      if (building != nullptr)
        builds[building->attempt] = now - view_.live->at(building->attempt).unit_since;
      unbuilt += building != nullptr || std::holds_alternative<Unbuilt>(candidate.where);
      ++all;
    }
    if (builds.empty()) return now;
    const absl::Duration build = view_.forecast->Stage(job, v1::STAGE_BUILD, index, 1);
    const absl::Duration profile = view_.forecast->Stage(job, v1::STAGE_PROFILE, index, 1);
    absl::Duration left = unbuilt * build;
    for (const auto& [attempt, taken] : builds) left -= taken;
    return now + left / static_cast<int64_t>(builds.size()) - all * profile;
  }

  double WorkLeft(const Forecast::Load& load) const {
    return load.cpu_s / std::max(1, view_.slots->Count(SlotIndex::kCpuLane)) +
           load.device_s / std::max(1, view_.slots->Count(load.lane));
  }

  // Whether the device lane is the bottleneck and is about to run out of work.
  bool Hungry(int lane) const {
    if (lane == SlotIndex::kCpuLane) return false;
    auto builds = builds_.find(lane);
    const int supply = view_.ready->Count(lane) + (builds == builds_.end() ? 0 : builds->second);
    return supply < kSupply * view_.slots->Count(lane) &&
           view_.forecast->LaneSeconds(lane) >=
               0.9 * view_.forecast->LaneSeconds(SlotIndex::kCpuLane);
  }

  // Whether no lane has more work left.
  bool Longest(int lane) const {
    return view_.forecast->LaneSeconds(lane) >= view_.forecast->Horizon();
  }

  // Whether CPU slots are the bottleneck, compared with this device lane, and are about to run out
  // of work.
  bool CpuHungry(int lane) const {
    const int cpu = SlotIndex::kCpuLane;
    return view_.ready->Count(cpu) < kSupply * view_.slots->Count(cpu) &&
           view_.forecast->LaneSeconds(cpu) >= view_.forecast->LaneSeconds(lane);
  }

  int64_t TenantOf(const Job& job) {
    auto [it, fresh] =
        tenant_numbers_.emplace(job.params.tenant, static_cast<int64_t>(tenants_.size()));
    if (fresh) tenants_.emplace_back();
    return it->second;
  }

  // Service of the least served tenant with running jobs; 0 without any.
  double Floor() const { return running_served_.empty() ? 0 : *running_served_.begin(); }

  void SetServed(int64_t number, double served) {
    Tenant& tenant = tenants_[static_cast<size_t>(number)];
    if (tenant.running > 0) {
      running_served_.erase(running_served_.find(tenant.served));
      running_served_.insert(served);
    }
    tenant.served = served;
    moved_.push_back(number);
  }

  void Serve(int64_t number, int lane, double seconds) {
    if (tenants_.size() < 3) return;  // only one tenant besides the one for fetches
    const Tenant& tenant = tenants_[static_cast<size_t>(number)];
    SetServed(number, tenant.served + seconds / std::max(1, view_.slots->Count(lane)));
    if (const double most = Floor() + kLag; tenant.served > most) SetServed(number, most);
  }

  absl::node_hash_map<int64_t, PlannedJob> jobs_;  // unfinished, or with live stages
  std::map<std::string, int64_t> tenant_numbers_;
  std::vector<Tenant> tenants_{1};  // the first one stands for fetches, which go before all others
  std::multiset<double> running_served_;  // Tenant::served of those with running jobs
  std::vector<int64_t> moved_;            // see TakeMoved
  std::map<int, int> builds_;             // running builds, by the device lane they feed
  std::map<AttemptId, std::pair<int, double>> charged_;
  int running_ = 0;
  int shared_ = 0;              // running jobs of urgency kShared
  std::map<int, double> owed_;  // slot-seconds still due to kShared jobs, by lane; may be negative
  double worked_ = 0, lost_ = 0;  // slot-seconds, see kTrouble
  double alone_ = 1;              // factor by which faults prolong a job that runs alone
  DeadlineWatch deadlines_;       // of running jobs
  std::vector<JobId> stale_;
};

}  // namespace

std::unique_ptr<Policy> MakePredictive() { return std::make_unique<Predictive>(); }

}  // namespace heddle::scheduler
