// Whose turn it is. The dispatcher knows what could run and where; a policy ranks it.
//
// The dispatcher keeps ready work in order and asks for ranks of what has changed only: of a job
// after an event of its own, when a rank's time is over, and when the policy says so (TakeStale).
// Nothing else is ever sorted again, so a rank must not depend on anything that changes silently;
// what does (a tenant's share, a hungry device) belongs in the rank of a group, which is asked for
// at every choice. Keep the groups few.
//
// Adding a policy: one file in policies/ and one line in policies/registry.cc. Policies are as pure
// as the dispatcher: no clock, thread, I/O or randomness.
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

// Where an item stands: groups by GroupRank, then items by `key`, smaller first; then by job, then
// in the order a job's own stages should run (profile, build, update, propose).
struct Rank {
  int64_t group = 0;
  std::array<double, 2> key{};
  bool waits = false;  // it may not start before it is ranked again
  // When to ask again though nothing happened: at a time, or once so many stages have been started
  // from the item's lane since it became ready.
  absl::Time until = absl::InfiniteFuture();
  int64_t patience = std::numeric_limits<int64_t>::max();
};
// How long an item has been ready.
struct Wait {
  absl::Time since, now;
  int64_t passed = 0;  // stages started from its lane meanwhile
};
using GroupRank = std::array<double, 3>;
// Of a group none of whose work may start now; what lifts it must come with an event.
inline constexpr GroupRank kHeldBack = {std::numeric_limits<double>::infinity(), 0, 0};

// What a policy may look at. Outlives the policy.
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
  virtual GroupRank RankOfGroup(int64_t /*group*/) const { return {}; }

  // What happens, told before ranks are asked for. Changed: the job was submitted, restored, went
  // on, was paused or ended. Ended comes after the stage's effects on the job.
  virtual void Changed(const Job& /*job*/) {}
  virtual void Started(const WorkItem& /*work*/, const Job& /*job*/, const LiveStage& /*stage*/) {}
  virtual void Ended(const LiveStage& /*stage*/, const Job& /*job*/, absl::Time /*now*/) {}
  // Jobs whose ranks have changed though nothing happened to them; each is told once. Asked once a
  // Step, when all that it changed was told.
  virtual std::vector<JobId> TakeStale(absl::Time /*now*/) { return {}; }
  // Whether a job with an earlier deadline goes first, for estimates.
  virtual bool HonoursDeadlines() const { return false; }

 protected:
  PolicyView view_;
};

// What a scheduler runs by unless it is told otherwise.
inline constexpr char kDefaultPolicy[] = "predictive";
// By name; see policies/registry.cc. InvalidArgument names the policies there are.
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name);
// The names, in the order of the registry.
std::vector<std::string> PolicyNames();

}  // namespace heddle::scheduler
