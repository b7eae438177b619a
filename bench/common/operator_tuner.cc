#include "bench/common/operator_tuner.h"

#include <algorithm>
#include <memory>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "bench/common/candidate_runner.h"
#include "cost_model/search.h"
#include "cost_model/search/methods.h"

namespace heddle::bench {
namespace {

// Short: what is slow needs no exact time, and the finalists are measured again.
runtime::TimingOptions TrialTiming() {
  runtime::TimingOptions timing;
  timing.repeats = 5;
  timing.min_repeat = absl::Milliseconds(4);
  timing.limit = absl::Milliseconds(200);
  return timing;
}

class Tuner {
 public:
  Tuner(const std::string& workload, const machine::TargetInfo& target, const TuneOptions& options)
      : workload_(workload),
        target_(target),
        options_(options),
        runner_(workload, target,
                {.cpus = options.cpus,
                 .build_cpus = options.build_cpus,
                 .timing = TrialTiming(),
                 .device = options.device,
                 .deadline = options.device.empty() ? absl::InfiniteFuture() : options.deadline}) {}

  absl::StatusOr<Tuned> Run() {
    const cost_model::Method& method = cost_model::Methods()[0];
    HEDDLE_ASSIGN_OR_RETURN(
        const std::unique_ptr<cost_model::Search> search,
        cost_model::MakeSearch(workload_, target_, {std::string(method.name), options_.seed}));
    std::vector<cost_model::Result> known;
    for (const Finalist& f : options_.known) known.push_back({f.trace, true, f.median_ns * 1e-9});
    if (!known.empty()) HEDDLE_RETURN_IF_ERROR(search->Update(known));
    for (int done = 0; done < options_.trials && absl::Now() < options_.deadline;) {
      HEDDLE_ASSIGN_OR_RETURN(
          const std::vector<cost_model::Candidate> batch,
          search->Propose(std::min(BatchSize(method, done), options_.trials - done)));
      if (batch.empty()) break;
      const std::vector<cost_model::Result> results = Measure(batch);
      if (results.empty()) break;  // no time was left for any
      HEDDLE_RETURN_IF_ERROR(search->Update(results));
      done += static_cast<int>(batch.size());
      if (options_.progress) {
        options_.progress(done, tuned_.finalists.empty() ? 0 : tuned_.finalists[0].median_ns);
      }
    }
    return std::move(tuned_);
  }

 private:
  std::vector<cost_model::Result> Measure(const std::vector<cost_model::Candidate>& batch) {
    std::vector<std::string> traces;
    for (const cost_model::Candidate& c : batch) traces.push_back(c.trace);
    const std::vector<absl::StatusOr<double>> times =
        runner_.Measure(traces, runner_.Build(traces));
    std::vector<cost_model::Result> results;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (!absl::IsCancelled(times[i].status())) results.push_back(Take(traces[i], times[i]));
    }
    return results;
  }

  cost_model::Result Take(const std::string& trace, const absl::StatusOr<double>& time) {
    tuned_.log.push_back({trace, time});
    if (!time.ok()) {
      ++tuned_.failed;
      if (tuned_.first_error.empty()) tuned_.first_error = time.status().ToString();
      return {trace, false, 0};
    }
    const double ns = *time;
    ++tuned_.measured;
    std::vector<Finalist>& best = tuned_.finalists;
    const auto slower = [&](const Finalist& other) { return other.median_ns > ns; };
    best.insert(std::find_if(best.begin(), best.end(), slower), {trace, ns});
    if (static_cast<int>(best.size()) > options_.finalists) best.pop_back();
    return {trace, true, ns * 1e-9};
  }

  const std::string& workload_;
  const machine::TargetInfo& target_;
  const TuneOptions& options_;
  const CandidateRunner runner_;
  Tuned tuned_;
};

}  // namespace

absl::StatusOr<Tuned> Tune(const std::string& workload, const machine::TargetInfo& target,
                           const TuneOptions& options) {
  return Tuner(workload, target, options).Run();
}

}  // namespace heddle::bench
