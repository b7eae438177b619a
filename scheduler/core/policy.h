// A policy ranks ready work. The dispatcher knows what could run and on which slots; the policy
// says what goes first.
//
// The dispatcher keeps ready work in order and asks for new ranks of a job only after an event of
// that job (a single result of a running stage is none), when a rank expires (Rank::until, Rank::patience), and when the policy names the job in
// TakeStale. Nothing else is sorted again, so a rank must not depend on anything that changes
// without one of these. What does change all the time belongs in RankOfTier, which is asked for
// whenever a slot is assigned. Items with the same Rank::tier form a tier; keep the tiers few. Within a
// tier, the share that a tenant has had comes before all else. There may be many tenants, so the policy
// names those whose share has changed (TakeMoved).
//
// To add a policy, write one file in policies/, and its declaration and row in policies/registry.cc. Policies are
// as pure as the dispatcher: no clock, thread, I/O or randomness.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/core/job_state.h"

namespace heddle::scheduler {

class Forecast;
class ReadyIndex;
class SlotIndex;

// A stage that waits for a slot.
struct WorkItem : StageWork {
  bool device = false;  // needs a device slot
  friend auto operator<=>(const WorkItem&, const WorkItem&) = default;
};

// The order of an item: first by the RankOfTier of its tier and tenant, then by `key`, both smaller
// first. Ties go by job, then by the order in which a job's own stages should run (profile, build, update,
// propose).
struct Rank {
  int64_t tier = 0, tenant = 0;
  std::array<double, 2> key{};
  bool waits = false;  // it must not start before it is ranked again
  // The rank expires at `until`, or when `patience` stages have started from the item's lane since
  // it became ready.
  absl::Time until = absl::InfiniteFuture();
  int64_t patience = std::numeric_limits<int64_t>::max();
};
// How long an item has been ready.
struct Wait {
  absl::Time since, now;
  int64_t passed = 0;  // stages started from its lane since then
};
using TierRank = std::array<double, 3>;
// Rank of a tier that may not start now. Only an event may lift it.
inline constexpr TierRank kHeldBack = {std::numeric_limits<double>::infinity(), 0, 0};

// What a policy may look at. All of it outlives the policy.
struct PolicyView {
  const Forecast* forecast = nullptr;
  const ReadyIndex* ready = nullptr;
  const SlotIndex* slots = nullptr;
  const std::map<AttemptId, LiveStage>* live = nullptr;  // LiveStages in job_state.h
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual void Attach(const PolicyView& view) { view_ = view; }

  virtual Rank RankOf(const WorkItem& work, const Job& job, const Wait& wait) = 0;
  // Of the tenants of a tier that may start now, one with a larger share never ranks before one with a smaller share,
  // and those with equal shares rank equal.
  virtual TierRank RankOfTier(int64_t /*tier*/, int64_t /*tenant*/) const { return {}; }
  // Whether an item may not start now though its tier may. Then none of its tenant's items behind it in the tier may, either.
  // Only an event may lift it. This is asked for with RankOfTier.
  virtual bool HoldsBack(int64_t /*tier*/, int64_t /*tenant*/, const std::array<double, 2>& /*key*/,
                         JobId /*job*/) const {
    return false;
  }
  virtual double ShareOf(int64_t /*tenant*/) const { return 0; }
  // Returns the tenants whose share has changed since the last call. Called before slots are assigned.
  virtual std::vector<int64_t> TakeMoved() { return {}; }

  // Notifications, which come before ranks are asked for. Changed: something happened to the job,
  // for example it was submitted, restored, resumed, paused or ended. Ended: a stage has ended, and
  // its effects on the job are complete.
  virtual void Changed(const Job& /*job*/) {}
  virtual void Started(const WorkItem& /*work*/, const Job& /*job*/, const LiveStage& /*stage*/) {}
  virtual void Ended(const LiveStage& /*stage*/, const Job& /*job*/, absl::Time /*now*/) {}
  // Returns the jobs whose ranks have changed although nothing happened to them, each once. Called
  // once per Step, after all notifications of that step.
  virtual std::vector<JobId> TakeStale(absl::Time /*now*/) { return {}; }
  // Whether jobs with earlier deadlines go first; estimates of completion times use this.
  virtual bool HonoursDeadlines() const { return false; }

 protected:
  PolicyView view_;
};

inline constexpr char kDefaultPolicy[] = "predictive";
// Makes a policy by its name. InvalidArgument lists the known names.
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name);
std::vector<std::string> PolicyNames();

}  // namespace heddle::scheduler
