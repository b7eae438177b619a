// The job with the fewest trials left goes first: what is nearly done gets done. Imports, compiles
// and modules asked for on demand have none left. So that large jobs do not starve under a stream
// of small ones, what others have passed more often than kPatience allows goes before all that has
// not, the one that waits longest first.
//
// Trials left are those of the latest rank: a result alone does not rank a job again, the end of
// its measurement does.
#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/trial_budget.h"
#include "scheduler/core/policy.h"

namespace heddle::scheduler {
namespace {

constexpr int64_t kPatience = 40;  // stages that may pass a waiting one
constexpr double kOverdue = -1, kNoTrials = 0;

class Fewest : public Policy {
 public:
  Rank RankOf(const WorkItem& work, const Job& job, const Wait& wait) override {
    Rank rank;
    if (wait.passed >= kPatience) {
      rank.key = {kOverdue, absl::ToDoubleSeconds(wait.since - absl::UnixEpoch())};
    } else {
      rank.key = {work.task ? TrialsLeft(job) : kNoTrials, 0};
      rank.patience = kPatience;
    }
    return rank;
  }

 private:
  static double TrialsLeft(const Job& job) {
    int left = TrialBudget(job);
    for (const Task& task : job.tasks) left -= task.trials;
    return left;
  }
};

}  // namespace

std::unique_ptr<Policy> MakeFewest() { return std::make_unique<Fewest>(); }

}  // namespace heddle::scheduler
