#include "bench/search/live.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "cost_model/search.h"
#include "cost_model/search/candidate_space.h"

namespace heddle::bench {
namespace {

// Adds the seconds of its lifetime.
class Stopwatch {
 public:
  explicit Stopwatch(double* sum) : sum_(sum) {}
  ~Stopwatch() { *sum_ += absl::ToDoubleSeconds(absl::Now() - begin_); }

 private:
  double* sum_;
  absl::Time begin_ = absl::Now();
};

}  // namespace

absl::StatusOr<LiveRun> RunLive(const Workload& workload, const machine::TargetInfo& target,
                                const CandidateRunner::Options& machine,
                                const RunOptions& options) {
  const CandidateRunner runner(workload.text, target, machine);
  HEDDLE_ASSIGN_OR_RETURN(cost_model::Task task, cost_model::MakeTask(workload.text, target));
  const std::string reference = schedule::ToText(task.default_trace);
  task.others = options.others;
  HEDDLE_ASSIGN_OR_RETURN(const auto search, MakeSearchFor(std::move(task), options));
  LiveRun run;
  double unit = 0, best = 0;  // of the default schedule when the run began
  while (static_cast<int>(run.best_ns.size()) < options.trials) {
    const int done = static_cast<int>(run.best_ns.size());
    std::vector<cost_model::Candidate> batch;
    {
      const Stopwatch watch(&run.propose_s);
      const int size = std::min(BatchSizeOf(options, done), options.trials - done);
      HEDDLE_ASSIGN_OR_RETURN(batch, search->Propose(size));
    }
    if (batch.empty()) break;
    std::vector<std::string> traces{reference};
    for (const cost_model::Candidate& c : batch) traces.push_back(c.trace);
    std::vector<absl::StatusOr<std::string>> artifacts;
    {
      const Stopwatch watch(&run.build_s);
      artifacts = runner.Build(traces);
    }
    traces.push_back(reference);
    artifacts.push_back(artifacts[0]);
    std::vector<absl::StatusOr<double>> times;
    {
      const Stopwatch watch(&run.measure_s);
      times = runner.Measure(traces, artifacts);
    }
    if (!times.front().ok()) return times.front().status();
    if (!times.back().ok()) return times.back().status();
    const double now = std::sqrt(*times.front() * *times.back());
    if (unit == 0) run.untuned_ns = unit = now;
    std::vector<cost_model::Result> results;
    for (size_t i = 0; i < batch.size(); ++i) {
      const absl::StatusOr<double>& time = times[i + 1];
      const double ns = time.ok() ? *time * unit / now : 0;
      results.push_back({batch[i].trace, time.ok(), ns * 1e-9});
      const bool counts = time.ok() && batch[i].origin != "default";
      if (counts && (best == 0 || ns < best)) best = ns;
      run.best_ns.push_back(best);
    }
    const Stopwatch watch(&run.update_s);
    HEDDLE_RETURN_IF_ERROR(search->Update(results));
  }
  return run;
}

}  // namespace heddle::bench
