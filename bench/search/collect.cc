#include "bench/search/collect.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <span>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/quantiles.h"
#include "base/status_macros.h"
#include "bench/common/candidate_runner.h"
#include "compiler/ir/text.h"

namespace heddle::bench {
namespace {

constexpr int kBatch = 480;           // built together, before any of them is measured
constexpr size_t kBetween = 6;        // candidates between two measurements of the default schedule
constexpr double kRandomShare = 0.6;  // of the table; the rest are mutations
constexpr double kParents = 64;  // a mutation's parent is one of the best so many, mostly the first
constexpr int kMaxMutations = 3;  // steps from the parent
constexpr int kDraws = 400;       // per candidate, before the space counts as exhausted
constexpr int kAttempts = 3;
constexpr double kCalm = 0.1;
constexpr absl::Duration kLimit = absl::Seconds(20);
constexpr size_t kPortion = 32;  // candidates that are checked together
constexpr int kTurns = 5;
constexpr size_t kFirst =
    6;  // measurements of the default schedule for a new table, of which the fastest counts

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
  Collector(const Workload& workload, const machine::TargetInfo& target, const std::string& path,
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
    // Each batch has its own generator, so that a continued run draws new candidates.
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
    while (done.complete) {
      const std::vector<size_t> rows = Unchecked();
      if (rows.empty()) break;
      if (absl::Now() - begin >= options_.time) {
        done.complete = false;
        break;
      }
      HEDDLE_RETURN_IF_ERROR(Check(rows));
      HEDDLE_RETURN_IF_ERROR(WriteReplayTable(path_, table_));
      done.checked += static_cast<int>(rows.size());
      if (options_.progress) options_.progress(done.have, table_.BestFoundSeconds() * 1e9);
    }
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
          ToText(old.target.target) != ToText(target_.target) || table_.rows.empty()) {
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
    const std::vector<std::string> again(kFirst, default_trace_);
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

  // A time divided by the default schedule's around it, and the log ratio of these two.
  struct Turn {
    absl::StatusOr<double> ratio = absl::UnknownError("not measured");
    double drift = HUGE_VAL;
  };

  // Measures the candidates `which`. Those that do not build have no drift.
  absl::StatusOr<std::vector<Turn>> Measure(
      const std::vector<std::string>& traces,
      const std::vector<absl::StatusOr<std::string>>& artifacts, const std::vector<size_t>& which,
      const absl::StatusOr<std::string>& reference) {
    constexpr size_t kReference = SIZE_MAX;
    std::vector<size_t> order;  // the default schedule first, after every kBetween, and last
    for (size_t k = 0; k < which.size(); ++k) {
      if (k % kBetween == 0) order.push_back(kReference);
      order.push_back(which[k]);
    }
    order.push_back(kReference);
    std::vector<std::string> texts;
    std::vector<absl::StatusOr<std::string>> built;
    for (const size_t k : order) {
      texts.push_back(k == kReference ? default_trace_ : traces[k]);
      built.push_back(k == kReference ? reference : artifacts[k]);
    }
    const auto times = runner_.Measure(texts, built);
    std::vector<Turn> turns(traces.size());
    for (size_t begin = 0, end = 1; end < order.size(); begin = end++) {
      while (order[end] != kReference) ++end;
      if (!times[begin].ok()) return times[begin].status();
      if (!times[end].ok()) return times[end].status();
      for (size_t i = begin + 1; i < end; ++i) {
        Turn& turn = turns[order[i]];
        turn.drift = std::abs(std::log(*times[begin] / *times[end]));
        turn.ratio = times[i];
        if (turn.ratio.ok()) *turn.ratio /= std::sqrt(*times[begin] * *times[end]);
      }
    }
    return turns;
  }

  // Measures those again, a few times, around which the machine's speed changed.
  absl::Status Measure(std::vector<ReplayRow>& batch) {
    std::vector<std::string> traces;
    for (const ReplayRow& row : batch) traces.push_back(row.trace);
    traces.push_back(default_trace_);
    const auto artifacts = runner_.Build(traces);
    std::vector<size_t> which(batch.size());
    std::iota(which.begin(), which.end(), 0);
    std::vector<Turn> calmest(traces.size());
    for (int attempt = 0; attempt < kAttempts && !which.empty(); ++attempt) {
      HEDDLE_ASSIGN_OR_RETURN(const std::vector<Turn> turns,
                              Measure(traces, artifacts, which, artifacts.back()));
      for (const size_t k : which) {
        if (turns[k].drift < calmest[k].drift) calmest[k] = turns[k];
      }
      std::erase_if(which, [&](size_t k) { return calmest[k].drift <= kCalm; });
    }
    for (size_t k = 0; k < batch.size(); ++k) {
      const absl::StatusOr<double>& ratio = calmest[k].ratio;
      batch[k].seconds = ratio.ok() ? *ratio * table_.header.reference_ns * 1e-9 : 0;
      batch[k].error = ratio.ok() ? "" : std::string(ratio.status().message());
    }
    return absl::OkStatus();
  }

  // The first of the best that are not checked yet.
  std::vector<size_t> Unchecked() const {
    std::vector<size_t> best;
    for (size_t i = 1; i < table_.rows.size(); ++i) {
      if (table_.rows[i].seconds > 0) best.push_back(i);
    }
    std::stable_sort(best.begin(), best.end(), [&](size_t a, size_t b) {
      return table_.rows[a].seconds < table_.rows[b].seconds;
    });
    best.resize(std::min(best.size(), static_cast<size_t>(options_.check)));
    std::erase_if(best, [&](size_t i) { return table_.rows[i].checked; });
    best.resize(std::min(best.size(), kPortion));
    return best;
  }

  absl::Status Check(const std::vector<size_t>& rows) {
    std::vector<std::string> traces;
    for (const size_t i : rows) traces.push_back(table_.rows[i].trace);
    traces.push_back(default_trace_);
    const auto artifacts = runner_.Build(traces);
    std::vector<size_t> which(rows.size());
    std::iota(which.begin(), which.end(), 0);
    std::vector<std::vector<double>> calm(rows.size()), all(rows.size());
    schedule::Rng rng(options_.seed);
    for (int turn = 0; turn < kTurns; ++turn) {
      // The predecessor may matter, so the order differs in each turn.
      for (size_t i = which.size(); i > 1; --i) std::swap(which[i - 1], which[rng() % i]);
      HEDDLE_ASSIGN_OR_RETURN(const std::vector<Turn> turns,
                              Measure(traces, artifacts, which, artifacts.back()));
      for (const size_t k : which) {
        if (!turns[k].ratio.ok()) continue;
        all[k].push_back(*turns[k].ratio);
        if (turns[k].drift <= kCalm) calm[k].push_back(*turns[k].ratio);
      }
    }
    for (size_t k = 0; k < rows.size(); ++k) {
      ReplayRow& row = table_.rows[rows[k]];
      row.checked = true;
      const std::vector<double>& ratios = calm[k].empty() ? all[k] : calm[k];
      if (ratios.empty()) continue;  // it fails now; the earlier time stays
      row.seconds = Median(ratios) * table_.header.reference_ns * 1e-9;
    }
    return absl::OkStatus();
  }

  const Workload& workload_;
  const machine::TargetInfo& target_;
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

runtime::TimingOptions CollectTiming() {
  runtime::TimingOptions timing;
  timing.repeats = 3;
  timing.min_repeat = absl::Milliseconds(3);
  timing.limit = absl::Milliseconds(12);
  return timing;
}

absl::StatusOr<Collected> Collect(const Workload& workload, const machine::TargetInfo& target,
                                  const std::string& path, const CollectOptions& options) {
  return Collector(workload, target, path, options).Run();
}

}  // namespace heddle::bench
