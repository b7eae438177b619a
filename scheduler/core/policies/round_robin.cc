// The thesis' algorithm. Jobs take turns: the one whose last turn began longest ago goes first, and
// new jobs go in start order. Turns are counted separately for CPU and device slots, so a job that
// waits for one loses nothing by using the other.
//
// A turn on the CPU lasts from the update of a round to the builds of the next. It ends when a
// build stage has taken the last unbuilt candidates of the round. If the turn passed on after each
// stage, jobs that work in strict order would fall into step: all would update, then all would
// build. The device would idle until the first build, and the CPU after the last. Imports and
// compiles are single stages that a user waits for, so they do not wait for the end of a turn.
#include <map>

#include "scheduler/core/job_state.h"
#include "scheduler/core/policy.h"

namespace heddle::scheduler {
namespace {

// Subtracted from the order key of work that goes before all turns to come: work of the job whose
// turn it is, and single stages.
constexpr double kTurns = 1e15;

class RoundRobin : public Policy {
 public:
  Rank RankOf(const WorkItem& work, const Job& job, const Wait&) override {
    auto it = jobs_.find(job.id);
    const Turns turns = it == jobs_.end() ? Turns{} : it->second;
    if (work.device) return Rank{.key = {turns.device, 0}};
    const bool first = turns.holds || !work.task;
    return Rank{.key = {turns.cpu - (first ? kTurns : 0), Order(work.kind)}};
  }
  void Started(const WorkItem& work, const Job& job, const LiveStage&) override {
    if (work.fetch) return;
    Turns& turns = jobs_[job.id];
    if (work.device) {
      turns.device = ++turn_;
      return;
    }
    if (!turns.holds) turns.cpu = ++turn_;
    turns.holds = work.task && (work.kind != v1::STAGE_BUILD ||
                                HasUnbuilt(job.tasks[static_cast<size_t>(work.task->value)]));
  }
  void Changed(const Job& job) override {
    if (job.final()) jobs_.erase(job.id);
  }

 private:
  struct Turns {
    double cpu = 0, device = 0;  // number of the last turn; exact up to 2^53
    bool holds = false;          // the turn on the CPU is not over
  };

  // The stage that ends a turn soonest goes first.
  static double Order(v1::StageKind kind) {
    return kind == v1::STAGE_BUILD ? 0 : kind == v1::STAGE_PROPOSE ? 1 : 2;
  }

  std::map<JobId, Turns> jobs_;
  double turn_ = 0;
};

}  // namespace

std::unique_ptr<Policy> MakeRoundRobin() { return std::make_unique<RoundRobin>(); }

}  // namespace heddle::scheduler
