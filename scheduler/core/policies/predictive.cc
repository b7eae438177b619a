// Chooses by predicted durations (forecast.h). In this order:
//
//  1. Nobody starves: what other stages passed more often than kPatience allows goes first, the one
//     waiting longest before the others.
//  2. Tenants get equal shares of the slots: the one that was served least (slot seconds over
//     slots) first. Who comes (again) starts where the least served is, and nobody
//     falls back by more than kLag for slots that others had no use for.
//  3. Within a tenant: priority.
//  4. Jobs that have a deadline and can still meet it, the earliest first, as long as their slack
//     is not ample. Where the first of them that is short of time has just enough of it when it is
//     alone, later and other jobs of its tenant start nothing on the last slots it could use: a
//     stage is never interrupted, and would stand in its way.
//     Then turns that have begun (see round_robin.cc), then jobs that would make everything end
//     later if they waited longer (alone they take nearly as long as all that is left takes
//     together, and cannot keep the slots busy by themselves), least slack first. After faults,
//     those that would be such if faults held them up get a part of the slots.
//  5. A profile stage is not started while its builds are so far behind that it would hold its
//     device idle: as late as it can without ending later.
//     Where the CPU is the bottleneck and is about to run dry, devices go to jobs that need the CPU
//     more than the device; where a device is the bottleneck and is about to run dry: the CPU stage
//     whose end soonest gives it work (build, then propose, then update); of several such lanes,
//     the one with the most left to do first, which is where lost time makes all end later.
//  6. The job with the least work left, which is what makes the mean completion short.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "absl/container/node_hash_map.h"
#include "scheduler/core/forecast.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/policies/deadline_watch.h"
#include "scheduler/core/policies/predictive_group.h"
#include "scheduler/core/policy.h"
#include "scheduler/core/ready_index.h"
#include "scheduler/core/slot_index.h"

namespace heddle::scheduler {
namespace {

// Stages that may pass a waiting one: some, and a few of every job there is.
constexpr int64_t kPatience = 40, kPatiencePerJob = 6;
constexpr double kLag = 300;  // s
constexpr absl::Duration kAgain = absl::Seconds(1);
// A deadline presses when less is left than so many times what the job, and all others with
// deadlines, would take.
constexpr double kAmple = 10;
// A job that alone would leave the busiest slot idle for some time must not wait once no more is
// left of the horizon than it takes alone, and so many times that idle time: stages of others that
// are not interrupted, and stages that take longer than predicted, delay it.
constexpr double kGaps = 1.1;
// Faults hold up a job that is alone, where others would go on: it takes longer by so many times
// the share of slot seconds that builds and measurements had which ended with candidates
// unanswered, up to twice as long. What would be critical if it took that long shares the slots
// with the shorter jobs; going before them, it would cost them too much.
constexpr double kTrouble = 40, kMostTrouble = 1;
// Of such jobs in a lane, the part of its slot seconds that they are of the running jobs, or at
// most so much; what they got too much or too little is remembered up to so many seconds.
constexpr double kMostShared = 0.9, kMostOwed = 60;
// The share is that of about the latest kMemory seconds of each slot; kNoTrouble seconds of each
// without a fault are taken to have gone before. Jobs are ranked anew when they are taken to be by
// so many times longer or shorter.
constexpr double kMemory = 250, kNoTrouble = 25, kTroubleStep = 1.1;
// CPU stages whose urgency is alike: first imports and compiles, then those for the lane with the
// most to do if it is about to run dry, by their Path, then for other such lanes, then the rest.
constexpr int64_t kOtherLane = 4, kNotHungry = 8, kLevels = 16;
static_assert(kUpdate < kOtherLane && kOtherLane + kUpdate < kNotHungry && kNotHungry < kLevels);
// Work that is held back is not looked at again sooner.
constexpr absl::Duration kLeastHold = absl::Milliseconds(10);
// Candidates built or being built for every device slot before the lane counts as fed.
constexpr int kSupply = 2;

class Predictive : public Policy {
 public:
  Rank RankOf(const WorkItem& work, const Job& job, const Wait& wait) override {
    const PlannedJob& known = jobs_[job.id.value];
    const int64_t patience = kPatience + kPatiencePerJob * static_cast<int64_t>(running_);
    Group group{work.fetch ? 0 : known.tenant, PriorityOf(job), kOrdinary, job.lane,
                PathOf(work.kind, known.load)};
    if (wait.passed >= patience) {
      group.tenant = group.priority = group.lane = group.path = 0;
      group.urgency = kOverdue;
      return Rank{group.Pack(), {absl::ToDoubleSeconds(wait.since - absl::UnixEpoch()), 0}};
    }
    Rank rank;
    if (work.device && wait.now < (rank.until = StartOf(job, *work.task, wait.now))) {
      rank.until = std::max(rank.until, wait.now + kLeastHold);
      rank.waits = true;
      return rank;
    }
    rank.until = absl::InfiniteFuture();
    rank.patience = patience;
    const Forecast::Load* load = known.load;
    const absl::Time latest_start =
        Urgent(job, load == nullptr ? Forecast::Load() : *load, wait.now, &group, &rank.until);
    // A turn that has begun goes on: see round_robin.cc.
    const bool turn =
        known.turn && (work.kind == v1::STAGE_PROPOSE || work.kind == v1::STAGE_BUILD);
    PutShared(group.urgency == kShared, &jobs_[job.id.value]);
    if (turn && group.urgency >= kShared) group.urgency = kCriticalPath;
    rank.key[0] = turn && group.urgency > kLaterDeadline ? 0 : 1;
    if (group.urgency != kOrdinary) {
      rank.key[1] = absl::ToDoubleSeconds(latest_start - absl::UnixEpoch());
      if (!work.device) group.lane = group.path = 0;
    } else {
      rank.key[1] = load == nullptr || work.fetch ? 0 : WorkLeft(*load);
    }
    rank.group = group.Pack();
    return rank;
  }

  GroupRank RankOfGroup(int64_t packed) const override {
    const Group group = Group::Unpack(packed);
    if (group.urgency == kOverdue) return {-1, 0, 0};
    if (InTheWay(group)) return kHeldBack;
    const double served = tenants_.at(static_cast<size_t>(group.tenant)).served;
    double urgency = static_cast<double>(group.urgency * kLevels);
    if (group.urgency == kShared) {
      const auto owed = owed_.find(static_cast<int>(group.lane));
      if (owed != owed_.end() && owed->second < 0) urgency = (kOrdinary + 1) * kLevels;
    }
    if (group.urgency == kOrdinary) {
      const int lane = static_cast<int>(group.lane);
      if (group.path >= kCpuHeavy) {
        urgency += CpuHungry(lane) ? static_cast<double>(group.path) : 0;
      } else if (group.path != kUser) {
        const int64_t level = Longest(lane) ? group.path : kOtherLane + group.path;
        urgency += static_cast<double>(Hungry(lane) ? level : kNotHungry);
      }
    }
    return {std::max(0.0, served), static_cast<double>(group.priority), urgency};
  }

  void Changed(const Job& job) override {
    PlannedJob& known = jobs_[job.id.value];
    const bool runs = !job.final() && !job.paused;
    known.load = view_.forecast->Of(job.id);
    if (!known.runs && runs) {
      known.tenant = TenantOf(job);
      Tenant& tenant = tenants_[static_cast<size_t>(known.tenant)];
      if (tenant.running == 0) tenant.served = std::max(tenant.served, Floor());
      ++tenant.running;
      ++running_;
    } else if (known.runs && !runs) {
      --tenants_[static_cast<size_t>(known.tenant)].running;
      --running_;
    }
    if (job.params.deadline != absl::InfiniteFuture()) {
      known.lane = job.lane;
      if (runs && !known.runs) {
        known.params = job.params;
        known.priority = PriorityOf(job);
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
      Serve(known.tenant, stage.kind == v1::STAGE_PROFILE ? lane : SlotIndex::kCpuLane,
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
    double served = 0;  // seconds of all slots of a lane
    int running = 0;    // jobs
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
    // Candidates without an answer: something broke. What breaks of other stages counts as work.
    (stage.candidates.empty() ? worked_ : lost_) += absl::ToDoubleSeconds(now - stage.started);
    const double slots = std::max(1, view_.slots->slots());
    if (worked_ + lost_ > kMemory * slots) worked_ /= 2, lost_ /= 2;
    const double share = lost_ / (worked_ + lost_ + kNoTrouble * slots);
    const double alone = 1 + std::min(kMostTrouble, kTrouble * share);
    if (alone < alone_ * kTroubleStep && alone > alone_ / kTroubleStep) return;
    alone_ = alone < kTroubleStep ? 1 : alone;
    for (const auto& [id, job] : jobs_) {
      if (job.runs) stale_.push_back(JobId{id});
    }
  }

  static int64_t PriorityOf(const Job& job) {
    return 31 - std::clamp(job.params.priority, -32, 31);
  }

  // Whether the group's work would take the last slots from a job that has no time to wait. Only
  // while that job runs, which an event ends.
  bool InTheWay(const Group& group) const {
    if (!deadlines_.tight() || group.urgency <= kDeadline) return false;
    const PlannedJob& tight = deadlines_.tight_job();
    const Forecast::Load* load = tight.load;
    if (load == nullptr || tight.live == 0 || group.tenant != tight.tenant ||
        group.priority < tight.priority)
      return false;
    const bool device = group.path >= kCpuHeavy;
    if (device && group.lane != tight.lane) return false;
    // As many as it has candidates for; the CPU also compiles and learns.
    int needs = std::min(PipelineDepth(tight.params, view_.slots->Count(tight.lane)),
                         std::max(device ? 0 : 1, load->most_ready));
    if (device && tight.params.max_devices > 0) needs = std::min(needs, tight.params.max_devices);
    return view_.slots->Free(device ? tight.lane : SlotIndex::kCpuLane) <= needs;
  }

  static Path PathOf(v1::StageKind kind, const Forecast::Load* load) {
    switch (kind) {
      case v1::STAGE_PROFILE:
        return load != nullptr && load->cpu_s > load->device_s ? kCpuHeavy : kDeviceHeavy;
      case v1::STAGE_BUILD:
        return kBuild;
      case v1::STAGE_PROPOSE:
        return kPropose;
      case v1::STAGE_UPDATE:
        return kUpdate;
      default:
        return kUser;  // import, compile
    }
  }

  // Sets the urgency of the group and until when it holds; returns by when the job must go on.
  absl::Time Urgent(const Job& job, const Forecast::Load& load, absl::Time now, Group* group,
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
        // The tight one keeps its place until another is: others make way for it as long.
        *until = now < lost ? lost : absl::InfiniteFuture();
        group->urgency = tight && std::pair(deadline, job.id) > *tight ? kLaterDeadline : kDeadline;
        return deadline;
      }
    }
    const absl::Time end = now + absl::Seconds(view_.forecast->Horizon());
    const double gaps = kGaps * (span - load.share_s);
    const absl::Time critical = end - absl::Seconds(span + gaps);
    const absl::Time shared = end - absl::Seconds(alone_ * span + gaps);
    if (critical <= now) {
      group->urgency = kCriticalPath;
    } else {
      if (shared <= now) group->urgency = kShared;
      // Not at once again: until something happens the horizon keeps its distance.
      *until = std::min(*until, std::max(shared <= now ? critical : shared, now + kAgain));
    }
    return end - absl::Seconds(span);
  }

  // When a profile stage of the task should start: with no wait for builds after that, by what is
  // known of both. At once where nothing is being built. Time passes from when what is being built
  // was begun, so that the answer is the same until something happens.
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

  // The lane's devices are what everything waits for, and they are about to have nothing to do.
  bool Hungry(int lane) const {
    if (lane == SlotIndex::kCpuLane) return false;
    auto builds = builds_.find(lane);
    const int supply = view_.ready->Count(lane) + (builds == builds_.end() ? 0 : builds->second);
    return supply < kSupply * view_.slots->Count(lane) &&
           view_.forecast->LaneSeconds(lane) >=
               0.9 * view_.forecast->LaneSeconds(SlotIndex::kCpuLane);
  }

  // No lane has more left to do.
  bool Longest(int lane) const {
    return view_.forecast->LaneSeconds(lane) >= view_.forecast->Horizon();
  }

  // The same for the CPU slots, of jobs whose devices are in this lane.
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

  // The least served of the tenants with work.
  double Floor() const {
    double floor = HUGE_VAL;
    for (const Tenant& tenant : tenants_) {
      if (tenant.running > 0) floor = std::min(floor, tenant.served);
    }
    return floor == HUGE_VAL ? 0 : floor;
  }

  void Serve(int64_t number, int lane, double seconds) {
    if (tenants_.size() < 3) return;  // nobody to share with
    Tenant& tenant = tenants_[static_cast<size_t>(number)];
    tenant.served += seconds / std::max(1, view_.slots->Count(lane));
    tenant.served = std::min(tenant.served, Floor() + kLag);
  }

  absl::node_hash_map<int64_t, PlannedJob> jobs_;  // unfinished, or with running stages
  std::map<std::string, int64_t> tenant_numbers_;
  std::vector<Tenant> tenants_{1};  // the first: users who wait for a module
  std::map<int, int> builds_;       // running ones, by the lane they feed
  std::map<AttemptId, std::pair<int, double>> charged_;
  int running_ = 0;
  int shared_ = 0;                // running jobs in kShared
  std::map<int, double> owed_;    // to these, by lane, slot seconds
  double worked_ = 0, lost_ = 0;  // slot seconds: see kTrouble
  double alone_ = 1;              // by how much faults lengthen what a job takes that is alone
  DeadlineWatch deadlines_;       // of running jobs
  std::vector<JobId> stale_;
};

}  // namespace

std::unique_ptr<Policy> MakePredictive() { return std::make_unique<Predictive>(); }

}  // namespace heddle::scheduler
