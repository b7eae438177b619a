// The thesis' algorithm. Jobs take turns: the one whose last turn is the longest ago is first; new
// jobs in start order. Turns are counted apart for CPU and device slots, so that a job that waits
// for one loses nothing by using the other.
#include <map>

#include "scheduler/job_state.h"
#include "scheduler/policy.h"

namespace heddle::scheduler {
namespace {

class RoundRobin : public Policy {
 public:
  Rank RankOf(const WorkItem& work, const Job& job, const Wait&) override {
    auto it = last_turn_.find(job.id);
    const double turn = it == last_turn_.end() ? 0 : it->second[work.device];
    return Rank{0, {turn, 0}};
  }
  void Started(const WorkItem& work, const Job& job, const LiveStage&) override {
    last_turn_[job.id][work.device] = ++turn_;
  }
  void Changed(const Job& job) override {
    if (job.final()) last_turn_.erase(job.id);
  }

 private:
  std::map<JobId, std::array<double, 2>> last_turn_;  // for CPU, device
  double turn_ = 0;                                   // exact up to 2^53
};

}  // namespace

std::unique_ptr<Policy> MakeRoundRobin() { return std::make_unique<RoundRobin>(); }

}  // namespace heddle::scheduler
