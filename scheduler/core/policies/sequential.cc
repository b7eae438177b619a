// The baseline with dedicated machines: one job after the other, in start order. No stage of a job
// runs beside a stage of another, so the time that slots idle here is what another policy can win.
// If a job is paused, the next job goes on as soon as the stages of the paused one have ended, and
// the paused one goes on when that next job is over. The same holds for a job whose open tasks are
// all in flight in other jobs. A module that is fetched on demand is not part of tuning, and its
// compile starts at once.
#include <map>
#include <set>

#include "scheduler/core/job_state.h"
#include "scheduler/core/policy.h"

namespace heddle::scheduler {
namespace {

class Sequential : public Policy {
 public:
  Rank RankOf(const WorkItem& work, const Job& job, const Wait&) override {
    Rank rank;
    rank.waits = !work.fetch && current_ != job.id;
    return rank;
  }
  void Changed(const Job& job) override {
    const bool follows = std::holds_alternative<Tuning>(job.phase) && job.in_flight.empty();
    if (job.final() || job.paused || follows) {
      waiting_.erase(job.id);
    } else {
      waiting_.insert(job.id);
    }
    Choose();
  }
  void Started(const WorkItem& work, const Job& job, const LiveStage&) override {
    if (!work.fetch) ++live_[job.id];
  }
  void Ended(const LiveStage& stage, const Job& job, absl::Time) override {
    if (!stage.fetch && --live_[job.id] == 0) live_.erase(job.id);
    Choose();
  }
  std::vector<JobId> TakeStale(absl::Time /*now*/) override { return std::exchange(stale_, {}); }

 private:
  void Choose() {
    if (current_ && (waiting_.count(*current_) || live_.count(*current_))) return;
    const std::optional<JobId> before = current_;
    current_.reset();
    if (!waiting_.empty()) current_ = *waiting_.begin();
    if (current_ && current_ != before) stale_.push_back(*current_);
    if (before && current_ != before) stale_.push_back(*before);
  }

  std::set<JobId> waiting_;    // jobs that can go on
  std::map<JobId, int> live_;  // running stages; jobs without any are left out
  std::optional<JobId> current_;
  std::vector<JobId> stale_;
};

}  // namespace

std::unique_ptr<Policy> MakeSequential() { return std::make_unique<Sequential>(); }

}  // namespace heddle::scheduler
