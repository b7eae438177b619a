#include "bench/collect.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/candidate_runner.h"
#include "compiler/ir/status_macros.h"
#include "compiler/ir/text.h"

namespace heddle::bench {
namespace {

constexpr int kBatch = 480;    // built together, before any of them is measured
constexpr size_t kSlice = 60;  // of a batch, measured together; 64 with the default schedule
constexpr size_t kReferences =
    2;  // measurements of the default schedule at either end; the faster counts
constexpr double kRandomShare = 0.6;  // of the table; the rest are mutations
constexpr double kParents = 64;  // a mutation's parent is one of the best so many, mostly the first
constexpr int kMaxMutations = 3;  // steps from the parent
constexpr int kDraws = 400;       // per candidate, before the space counts as exhausted
constexpr int kAttempts = 3;
constexpr double kCalm = 0.1;
constexpr absl::Duration kLimit = absl::Seconds(20);

runtime::TimingOptions CollectTiming() {
  runtime::TimingOptions timing;
  timing.repeats = 3;
  timing.min_repeat = absl::Milliseconds(3);
  timing.limit = absl::Milliseconds(12);
  return timing;
}

absl::StatusOr<double> Fastest(std::span<const absl::StatusOr<double>> times) {
  double fastest = HUGE_VAL;
  for (const absl::StatusOr<double>& time : times) {
    if (!time.ok()) return time.status();
    fastest = std::min(fastest, *time);
  }
  return fastest;
}

class Collector {
 public:
  Collector(const Workload& workload, const ir::TargetInfo& target, const std::string& path,
            const CollectOptions& options)
      : workload_(workload),
        target_(target),
        path_(path),
        options_(options),
        runner_(workload.text, target,
                {options.cpus, options.build_cpus, CollectTiming(), kLimit}) {}

  absl::StatusOr<Collected> Run() {
    const absl::Time begin = absl::Now();
    HEDDLE_ASSIGN_OR_RETURN(naive_, ir::Parse(workload_.text));
    HEDDLE_ASSIGN_OR_RETURN(space_, schedule::MakeSpace(naive_, target_));
    HEDDLE_RETURN_IF_ERROR(Open());
    // Each batch has a generator of its own, so that going on draws what has not been drawn.
    Collected done;
    done.have = static_cast<int>(table_.rows.size());
    while (done.have < options_.candidates && absl::Now() - begin < options_.time) {
      schedule::Rng rng(options_.seed * 1000003 + table_.rows.size());
      std::vector<ReplayRow> batch = Draw(std::min(kBatch, options_.candidates - done.have), rng);
      if (batch.empty()) {
        done.complete = true;
        break;
      }
      HEDDLE_RETURN_IF_ERROR(Measure(batch));
      HEDDLE_RETURN_IF_ERROR(AppendRows(path_, batch));
      for (ReplayRow& row : batch) table_.rows.push_back(std::move(row));
      done.fresh += static_cast<int>(table_.rows.size()) - done.have;
      done.have = static_cast<int>(table_.rows.size());
      if (options_.progress) options_.progress(done.have, table_.BestSeconds() * 1e9);
    }
    done.complete |= done.have >= options_.candidates;
    done.seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    return done;
  }

 private:
  absl::Status Open() {
    ReplayHeader header{workload_.name,   workload_.text,  target_, options_.device_key,
                        options_.command, workload_.flops, {}};
    for (int d = 0; d < space_->NumDecisions(); ++d) {
      header.decisions.push_back({space_->Describe(d), space_->Choices(d)});
    }
    if (std::filesystem::exists(path_)) {
      HEDDLE_ASSIGN_OR_RETURN(table_, ReadReplayTable(path_));
      const ReplayHeader& old = table_.header;
      if (old.workload != header.workload || old.decisions != header.decisions ||
          ir::ToText(old.target.target) != ir::ToText(target_.target) || table_.rows.empty()) {
        return absl::FailedPreconditionError(
            path_ + ": of another workload, target or search space; remove it to make it again");
      }
      for (const ReplayRow& row : table_.rows) known_.insert(row.trace);
      default_trace_ = table_.rows[0].trace;
      return absl::OkStatus();
    }
    ReplayRow first;
    first.point = space_->Preferred();
    first.origin = ReplayOrigin::kDefault;
    HEDDLE_ASSIGN_OR_RETURN(const schedule::Trace trace, space_->Expand(first.point));
    first.trace = default_trace_ = schedule::ToText(trace);
    const std::vector<std::string> again(3 * kReferences, default_trace_);
    const auto times = runner_.Measure(again, runner_.Build(again));
    HEDDLE_ASSIGN_OR_RETURN(header.reference_ns, Fastest(times));
    first.seconds = header.reference_ns * 1e-9;
    known_.insert(first.trace);
    HEDDLE_RETURN_IF_ERROR(StartReplayTable(path_, header));
    HEDDLE_RETURN_IF_ERROR(AppendRows(path_, {first}));
    table_.header = std::move(header);
    table_.rows.push_back(std::move(first));
    return absl::OkStatus();
  }

  std::vector<ReplayRow> Draw(int n, schedule::Rng& rng) {
    std::vector<const ReplayRow*> best;
    for (const ReplayRow& row : table_.rows) {
      if (row.seconds > 0) best.push_back(&row);
    }
    std::stable_sort(best.begin(), best.end(), [](const ReplayRow* a, const ReplayRow* b) {
      return a->seconds < b->seconds;
    });
    const bool random =
        static_cast<double>(table_.rows.size()) < kRandomShare * options_.candidates ||
        best.empty();
    std::vector<ReplayRow> batch;
    for (int draw = 0; draw < kDraws * n && static_cast<int>(batch.size()) < n; ++draw) {
      ReplayRow row;
      if (random) {
        row.point = space_->Random(rng);
      } else {
        const double u = std::uniform_real_distribution<double>(0, 1)(rng);
        const auto rank = static_cast<size_t>(u * u * kParents);
        row.point = best[std::min(rank, best.size() - 1)]->point;
        row.origin = ReplayOrigin::kMutation;
        for (int k = std::uniform_int_distribution<int>(1, kMaxMutations)(rng); k > 0; --k) {
          row.point = space_->Mutate(row.point, rng);
        }
      }
      const absl::StatusOr<schedule::Trace> trace = space_->Expand(row.point);
      if (!trace.ok() || !schedule::Replay(naive_, *trace).ok()) continue;
      row.trace = schedule::ToText(*trace);
      if (known_.insert(row.trace).second) batch.push_back(std::move(row));
    }
    return batch;
  }

  absl::Status Measure(std::vector<ReplayRow>& batch) {
    std::vector<std::string> traces{default_trace_};
    for (const ReplayRow& row : batch) traces.push_back(row.trace);
    const auto artifacts = runner_.Build(traces);
    for (size_t begin = 0; begin < batch.size(); begin += kSlice) {
      const size_t n = std::min(kSlice, batch.size() - begin);
      HEDDLE_RETURN_IF_ERROR(MeasureSlice(std::span(batch).subspan(begin, n),
                                          std::span(artifacts).subspan(begin + 1, n),
                                          artifacts[0]));
    }
    return absl::OkStatus();
  }

  absl::Status MeasureSlice(std::span<ReplayRow> rows,
                            std::span<const absl::StatusOr<std::string>> built,
                            const absl::StatusOr<std::string>& reference) {
    std::vector<std::string> traces(kReferences, default_trace_);
    std::vector<absl::StatusOr<std::string>> artifacts(kReferences, reference);
    for (const ReplayRow& row : rows) traces.push_back(row.trace);
    artifacts.insert(artifacts.end(), built.begin(), built.end());
    traces.insert(traces.end(), kReferences, default_trace_);
    artifacts.insert(artifacts.end(), kReferences, reference);
    double calmest = HUGE_VAL;
    for (int attempt = 0; attempt < kAttempts && calmest > kCalm; ++attempt) {
      const auto times = runner_.Measure(traces, artifacts);
      const std::span<const absl::StatusOr<double>> all = times;
      HEDDLE_ASSIGN_OR_RETURN(const double before, Fastest(all.first(kReferences)));
      HEDDLE_ASSIGN_OR_RETURN(const double after, Fastest(all.last(kReferences)));
      const double drift = std::abs(std::log(before / after));
      if (drift >= calmest) continue;
      calmest = drift;
      const double unit = table_.header.reference_ns / std::sqrt(before * after) * 1e-9;
      for (size_t i = 0; i < rows.size(); ++i) {
        const absl::StatusOr<double>& time = times[i + kReferences];
        rows[i].seconds = time.ok() ? *time * unit : 0;
        rows[i].error = time.ok() ? "" : std::string(time.status().message());
      }
    }
    return absl::OkStatus();
  }

  const Workload& workload_;
  const ir::TargetInfo& target_;
  const std::string path_;
  const CollectOptions& options_;
  const CandidateRunner runner_;
  ir::Program naive_;
  std::unique_ptr<schedule::Space> space_;
  ReplayTable table_;
  std::string default_trace_;
  std::unordered_set<std::string> known_;  // traces of the table
};

}  // namespace

absl::StatusOr<Collected> Collect(const Workload& workload, const ir::TargetInfo& target,
                                  const std::string& path, const CollectOptions& options) {
  return Collector(workload, target, path, options).Run();
}

}  // namespace heddle::bench
