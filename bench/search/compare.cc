#include "bench/search/compare.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/quantiles.h"
#include "base/rank_correlation.h"
#include "base/status_macros.h"
#include "bench/common/usage.h"
#include "cost_model/features/features.h"
#include "cost_model/features/roofline.h"
#include "cost_model/search/strategies.h"
#include "cost_model/transfer/transfer_samples.h"

namespace heddle::bench {
namespace {

constexpr double kDiffers = 1.03;
constexpr size_t kTop = 64;
constexpr size_t kFirstMeasured = 16;
constexpr double kGood = 0.95;
constexpr int kPlainBatch = 50;  // without a model the size does not matter

double SecondsSince(absl::Time begin) { return absl::ToDoubleSeconds(absl::Now() - begin); }

// Rows of a table in an order that depends on the seed.
std::vector<size_t> Shuffled(const ReplayProblem& problem, uint64_t seed) {
  std::vector<size_t> rows(problem.table().rows.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::mt19937_64 rng(seed);
  for (size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[rng() % i]);
  return rows;
}

// The features of a row that the model sees.
std::vector<float> SeenOf(const ReplayProblem& problem, size_t row,
                          const std::vector<size_t>& columns, bool relative) {
  std::vector<float> seen = cost_model::Pick(problem.FeaturesOf(row), columns);
  if (!relative) return seen;
  const std::vector<float>& origin = problem.FeaturesOf(0);
  for (size_t k = 0; k < columns.size(); ++k) seen[k] -= origin[columns[k]];
  return seen;
}

bool OneTask(const ReplayProblem& a, const ReplayProblem& b) {
  const ReplayHeader &x = a.table().header, &y = b.table().header;
  return x.workload == y.workload && ToText(x.target.target) == ToText(y.target.target);
}

// The weight of a sample of another table, as in scheduler/ledger/stage_order.cc.
float WeightOf(const ReplayHeader& source, const ReplayHeader& target) {
  if (source.device_key != target.device_key) return 0.25f;
  return ToText(source.target.target) == ToText(target.target.target) ? 1 : 0.5f;
}

// The first `n` of the rows as samples of one group.
void AddSamples(const ReplayProblem& problem, const std::vector<size_t>& rows, size_t n, int group,
                int levels, const std::vector<size_t>& columns, bool relative,
                std::vector<cost_model::Sample>& samples) {
  n = std::min(n, rows.size());
  double best = 0;
  for (size_t i = 0; i < n; ++i) {
    const double seconds = problem.table().rows[rows[i]].seconds;
    if (seconds > 0 && (best == 0 || seconds < best)) best = seconds;
  }
  for (size_t i = 0; i < n; ++i) {
    const double seconds = problem.table().rows[rows[i]].seconds;
    const double share = seconds > 0 ? best / seconds : 0;
    samples.push_back({SeenOf(problem, rows[i], columns, relative),
                       static_cast<float>(levels > 0 ? std::round(share * levels) / levels : share),
                       group});
  }
}

RankQuality QualityOf(const ReplayProblem& problem, const std::vector<size_t>& rows,
                      const std::vector<float>& scores) {
  const auto speed = [&](size_t i) {
    const double seconds = problem.table().rows[rows[i]].seconds;
    return seconds > 0 ? 1 / seconds : 0;
  };
  double right = 0, all = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < rows.size(); ++j) {
      if (speed(i) <= speed(j) * kDiffers) continue;  // i is the faster one
      all += 1;
      right += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  const size_t top = std::min(kTop, rows.size() / 4 + 1);
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  const auto first = [&](const auto& value) {
    std::vector<size_t> sorted = order;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](size_t a, size_t b) { return value(a) > value(b); });
    return std::set<size_t>(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(top));
  };
  const std::set<size_t> truly = first(speed), thought = first([&](size_t i) { return scores[i]; });
  double found = 0;
  for (const size_t i : truly) found += thought.contains(i);
  std::vector<size_t> by_thought = order;
  std::stable_sort(by_thought.begin(), by_thought.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  // The default schedule, row 0, is found without any model.
  double best = 0, tried = 0;
  for (const size_t i : order) best = rows[i] == 0 ? best : std::max(best, speed(i));
  for (const size_t i : by_thought) {
    tried += rows[i] == 0 ? 0 : 1;
    if (rows[i] != 0 && speed(i) >= kGood * best) break;
  }
  double chosen = 0;
  size_t taken = 0;
  for (const size_t i : by_thought) {
    if (rows[i] == 0) continue;
    if (++taken > kFirstMeasured) break;
    chosen = std::max(chosen, speed(i));
  }
  std::vector<double> speeds, thoughts(scores.begin(), scores.end());
  for (const size_t i : order) speeds.push_back(speed(i));
  return {all > 0 ? right / all : 1, found / static_cast<double>(top), tried,
          best > 0 ? std::max(0.0, 1 - chosen / best) : 0,
          RankCorrelation(RanksOf(thoughts), RanksOf(speeds)).value_or(0)};
}

absl::StatusOr<RankQuality> EvaluateModel(const ReplayProblem& problem,
                                          const std::vector<size_t>& rows,
                                          const std::vector<cost_model::Sample>& samples,
                                          const std::vector<size_t>& columns,
                                          const RankOptions& options) {
  std::vector<float> scores;
  if (options.roofline) {
    for (const size_t i : rows) scores.push_back(cost_model::RooflineScore(problem.FeaturesOf(i)));
    return QualityOf(problem, rows, scores);
  }
  cost_model::ModelSpec spec = options.model;
  spec.tokens = cost_model::LoopTokens(columns);
  const auto model = cost_model::MakeModel(spec, options.seed);
  HEDDLE_RETURN_IF_ERROR(model->Fit(samples));
  std::vector<std::vector<float>> features;
  for (const size_t i : rows) features.push_back(SeenOf(problem, i, columns, options.relative));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<cost_model::Estimate> found, model->Predict(features));
  for (const cost_model::Estimate& e : found) scores.push_back(e.score);
  return QualityOf(problem, rows, scores);
}

}  // namespace

std::shared_ptr<const cost_model::OtherTasks> TakeOthers(
    const std::vector<std::unique_ptr<ReplayProblem>>& sources, const ReplayProblem& target,
    int each, uint64_t seed, bool relative) {
  auto others = std::make_shared<cost_model::OtherTasks>();
  for (size_t p = 0; p < sources.size(); ++p) {
    if (OneTask(*sources[p], target)) continue;
    const size_t before = others->size();
    AddSamples(*sources[p], Shuffled(*sources[p], seed), static_cast<size_t>(each),
               static_cast<int>(p) + 1, cost_model::kScoreLevels, *cost_model::ColumnsWithout({}),
               relative, *others);
    const float weight = WeightOf(sources[p]->table().header, target.table().header);
    for (size_t i = before; i < others->size(); ++i) (*others)[i].weight = weight;
  }
  return others;
}

absl::StatusOr<std::unique_ptr<cost_model::Search>> MakeSearchFor(cost_model::Task task,
                                                                  const RunOptions& options) {
  if (options.method != nullptr) {
    return cost_model::MakeModelSearch(std::move(task), *options.method, options.seed);
  }
  return cost_model::MakeSearchOf(std::move(task), options.strategy, options.seed);
}

int BatchSizeOf(const RunOptions& options, int measured) {
  const cost_model::Method* method =
      options.method != nullptr ? options.method : cost_model::FindMethod(options.strategy);
  return method != nullptr ? cost_model::BatchSize(*method, measured) : kPlainBatch;
}

absl::StatusOr<SearchRun> RunSearch(const ReplayProblem& problem, const RunOptions& options) {
  cost_model::Task task = problem.MakeTask();
  task.others = options.others;
  HEDDLE_ASSIGN_OR_RETURN(const auto search, MakeSearchFor(std::move(task), options));
  const double best_known = problem.table().BestFoundSeconds();
  SearchRun run;
  std::deque<std::vector<cost_model::Result>> measured;  // measured, not yet learned
  double best = 0;
  while (static_cast<int>(run.best.size()) < options.trials) {
    const absl::Time proposing = absl::Now();
    const int done = static_cast<int>(run.best.size());
    const int size = std::min(BatchSizeOf(options, done), options.trials - done);
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<cost_model::Candidate> batch, search->Propose(size));
    run.propose_s += SecondsSince(proposing);
    if (batch.empty()) break;
    std::vector<cost_model::Result> results;
    for (const cost_model::Candidate& c : batch) {
      HEDDLE_ASSIGN_OR_RETURN(const double seconds, problem.Seconds(c.trace));
      results.push_back({c.trace, seconds > 0, seconds});
      if (c.origin == "default") {
        run.untuned = seconds > 0 ? best_known / seconds : 0;
      } else if (seconds > 0 && (best == 0 || seconds < best)) {
        best = seconds;
      }
      run.best.push_back(best > 0 ? best_known / best : 0);
    }
    measured.push_back(std::move(results));
    if (measured.size() < static_cast<size_t>(options.depth)) continue;
    const absl::Time updating = absl::Now();
    HEDDLE_RETURN_IF_ERROR(search->Update(measured.front()));
    measured.pop_front();
    run.update_s += SecondsSince(updating);
  }
  return run;
}

absl::StatusOr<SearchTime> TimeSearch(const std::string& workload,
                                      const machine::TargetInfo& target,
                                      const cost_model::Method& method, int records, int batch) {
  constexpr int kPoints = 2000, kBatches = 3;
  SearchTime time;
  HEDDLE_ASSIGN_OR_RETURN(cost_model::Task task, cost_model::MakeTask(workload, target));
  cost_model::CandidateSpace points(std::move(task), 1);
  schedule::Rng rng = points.NextRng();
  std::unordered_set<uint64_t> feasible;
  const absl::Time extracting = absl::Now();
  for (int i = 0; i < kPoints; ++i) {
    const cost_model::Evaluated* found = points.Evaluate(points.space().Random(rng));
    if (found != nullptr) feasible.insert(found->hash);
  }
  time.candidates_per_s = static_cast<double>(feasible.size()) / SecondsSince(extracting);
  // Artificial times that depend on the program, with some noise.
  const auto measure = [&](const std::vector<cost_model::Candidate>& candidates)
      -> absl::StatusOr<std::vector<cost_model::Result>> {
    std::vector<cost_model::Result> results;
    for (const cost_model::Candidate& candidate : candidates) {
      HEDDLE_ASSIGN_OR_RETURN(const cost_model::Evaluated found,
                              points.EvaluateTrace(candidate.trace));
      const double noise = 1 + static_cast<double>(found.hash % 1000) * 1e-4;
      results.push_back({candidate.trace, true,
                         1e-9 * noise * std::exp2(-cost_model::RooflineScore(found.features))});
    }
    return results;
  };
  HEDDLE_ASSIGN_OR_RETURN(task, cost_model::MakeTask(workload, target));
  const auto random = cost_model::MakeRandomSearch(std::move(task), 1);
  HEDDLE_ASSIGN_OR_RETURN(std::vector<cost_model::Candidate> known, random->Propose(records));
  HEDDLE_ASSIGN_OR_RETURN(std::vector<cost_model::Result> results, measure(known));
  // As in worker/stages/stages_search.cc, without sending the state.
  std::string state;
  const auto stage =
      [&](const std::function<absl::Status(cost_model::Search&)>& work) -> absl::StatusOr<double> {
    const absl::Time begin = absl::Now();
    HEDDLE_ASSIGN_OR_RETURN(cost_model::Task own, cost_model::MakeTask(workload, target));
    const auto search = cost_model::MakeModelSearch(std::move(own), method, 1);
    if (!state.empty()) HEDDLE_RETURN_IF_ERROR(search->Restore(state));
    HEDDLE_RETURN_IF_ERROR(work(*search));
    state = search->Save();
    return SecondsSince(begin);
  };
  const auto learn = [&](cost_model::Search& search) { return search.Update(results); };
  const auto ask = [&](cost_model::Search& search) -> absl::Status {
    HEDDLE_ASSIGN_OR_RETURN(known, search.Propose(batch));
    return absl::OkStatus();
  };
  HEDDLE_RETURN_IF_ERROR(stage(learn).status());
  std::vector<double> propose, update;
  for (int i = 0; i < kBatches; ++i) {
    HEDDLE_ASSIGN_OR_RETURN(propose.emplace_back(), stage(ask));
    HEDDLE_ASSIGN_OR_RETURN(results, measure(known));
    HEDDLE_ASSIGN_OR_RETURN(update.emplace_back(), stage(learn));
  }
  time.propose_s = Median(propose);
  time.update_s = Median(update);
  return time;
}

namespace {

// The tables as groups, one a block.
class TableSource final : public cost_model::SampleSource {
 public:
  TableSource(std::vector<const ReplayProblem*> tables, const FitOptions& options,
              const ReplayHeader& target, const std::vector<size_t>& columns)
      : tables_(std::move(tables)), options_(options), target_(target), columns_(columns) {}

  absl::Status Rewind() override {
    next_ = 0;
    return absl::OkStatus();
  }
  absl::Status Next(std::vector<cost_model::Sample>* block) override {
    block->clear();
    const size_t copies = static_cast<size_t>(options_.copies);
    if (next_ == tables_.size() * copies) return absl::OkStatus();
    const ReplayProblem& table = *tables_[next_ / copies];
    AddSamples(table, Shuffled(table, options_.seed),
               options_.each == 0 ? table.table().rows.size() : options_.each,
               static_cast<int>(next_), cost_model::kScoreLevels, columns_, /*relative=*/true,
               *block);
    for (cost_model::Sample& sample : *block)
      sample.weight = WeightOf(table.table().header, target_);
    ++next_;
    return absl::OkStatus();
  }

 private:
  const std::vector<const ReplayProblem*> tables_;
  const FitOptions options_;
  const ReplayHeader& target_;
  const std::vector<size_t>& columns_;
  size_t next_ = 0;
};

// The tables as pages of packed samples, as the service sends them. They are packed beforehand, as an update stage packs
// those of its task.
class TablePages final : public cost_model::SamplePages {
 public:
  TablePages(const std::vector<const ReplayProblem*>& tables, const FitOptions& options,
             const ReplayHeader& target) {
    const std::vector<size_t> columns = *cost_model::ColumnsWithout({});
    for (const ReplayProblem* table : tables) {
      std::vector<cost_model::Sample> samples;
      AddSamples(*table, Shuffled(*table, options.seed),
                 options.each == 0 ? table->table().rows.size() : options.each, 0,
                 cost_model::kScoreLevels, columns, /*relative=*/true, samples);
      const double weight = WeightOf(table->table().header, target);
      for (size_t begin = 0; begin < samples.size(); begin += cost_model::kMaxTransferSamples) {
        const size_t end = std::min(samples.size(), begin + cost_model::kMaxTransferSamples);
        const auto at = [&](size_t i) { return samples.begin() + static_cast<std::ptrdiff_t>(i); };
        tasks_.push_back({cost_model::PackTransferSamples({at(begin), at(end)}), weight});
      }
    }
  }

  absl::Status Rewind() override {
    next_ = 0;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<cost_model::RelatedSamples>> Next() override {
    constexpr size_t kTasks = 64;  // of a page, as in worker/stages/stages_search.cc
    std::vector<cost_model::RelatedSamples> page;
    while (next_ < tasks_.size() && page.size() < kTasks) page.push_back(tasks_[next_++]);
    return page;
  }

 private:
  std::vector<cost_model::RelatedSamples> tasks_;
  size_t next_ = 0;
};

// The folder for the features of a fit, removed with it.
class FitFolder {
 public:
  FitFolder()
      : path_(std::filesystem::temp_directory_path() /
              absl::StrCat("heddle-search-bench-", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~FitFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  const std::filesystem::path path_;
};

// The model, with the number of samples in `fitted`.
absl::StatusOr<std::unique_ptr<cost_model::Model>> FitTo(
    const std::vector<const ReplayProblem*>& tables, const ReplayHeader& target,
    const FitOptions& options, const std::vector<size_t>& columns, Fitted* fitted) {
  const size_t window = options.window > 0 ? options.window : tables.size();
  std::unique_ptr<cost_model::Model> model;
  for (size_t begin = 0; begin < tables.size(); begin += window) {
    const size_t end = std::min(tables.size(), begin + window);
    TableSource source({tables.begin() + static_cast<std::ptrdiff_t>(begin),
                        tables.begin() + static_cast<std::ptrdiff_t>(end)},
                       options, target, columns);
    std::vector<cost_model::Sample> block, all;
    do {
      HEDDLE_RETURN_IF_ERROR(source.Next(&block));
      fitted->samples += static_cast<int64_t>(block.size());
      if (!options.streamed && options.window == 0)
        std::move(block.begin(), block.end(), std::back_inserter(all));
    } while (!block.empty());
    if (!options.streamed && options.window == 0) {
      model = cost_model::MakeModel(options.model, options.seed);
      HEDDLE_RETURN_IF_ERROR(model->Fit(all));
      return model;
    }
    const FitFolder folder;
    HEDDLE_ASSIGN_OR_RETURN(model, cost_model::FitToSource(options.model, options.seed, &source,
                                                           folder.path(), model.get()));
  }
  return model;
}

// The same from pages.
absl::StatusOr<std::unique_ptr<cost_model::Model>> FitToPages(TablePages* pages,
                                                              const FitOptions& options,
                                                              const std::vector<size_t>& columns,
                                                              Fitted* fitted) {
  cost_model::PagedSamples samples(pages, columns);
  const FitFolder folder;
  HEDDLE_ASSIGN_OR_RETURN(
      std::unique_ptr<cost_model::Model> model,
      cost_model::FitToSource(options.model, options.seed, &samples, folder.path()));
  fitted->samples = samples.samples();
  return model;
}

}  // namespace

absl::StatusOr<Fitted> FitAndRank(const std::vector<std::unique_ptr<ReplayProblem>>& sources,
                                  const ReplayProblem& problem, const FitOptions& asked) {
  FitOptions options = asked;
  const ReplayHeader& target = problem.table().header;
  std::vector<const ReplayProblem*> tables;
  for (const auto& source : sources) {
    if (source->table().header.workload != target.workload) tables.push_back(source.get());
  }
  std::mt19937_64 rng(options.seed);
  for (size_t i = tables.size(); i > 1; --i) std::swap(tables[i - 1], tables[rng() % i]);
  if (options.tasks > 0 && tables.size() > options.tasks) tables.resize(options.tasks);
  if (tables.empty()) return absl::InvalidArgumentError("one table alone has no others");
  if (options.records > 0) options.each = (options.records + tables.size() - 1) / tables.size();
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<size_t> columns,
                          cost_model::ColumnsWithout(cost_model::Methods()[0].without));
  Fitted fitted;
  fitted.tasks = static_cast<int>(tables.size());
  std::optional<TablePages> pages;
  if (options.paged) pages.emplace(tables, options, target);
  malloc_trim(0);  // what an earlier fit has freed must not hide what this one takes
  ForgetPeak(getpid());
  const double before = MemoryMib(getpid(), "VmRSS");
  const absl::Time begin = absl::Now();
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<cost_model::Model> model,
                          pages ? FitToPages(&*pages, options, columns, &fitted)
                                : FitTo(tables, target, options, columns, &fitted));
  fitted.seconds = SecondsSince(begin);
  fitted.peak_mib = MemoryMib(getpid(), "VmHWM") - before;
  const std::vector<size_t> rows = Shuffled(problem, options.seed);
  std::vector<std::vector<float>> features;
  for (const size_t i : rows) features.push_back(SeenOf(problem, i, columns, /*relative=*/true));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<cost_model::Estimate> found, model->Predict(features));
  std::vector<float> scores;
  for (const cost_model::Estimate& e : found) scores.push_back(e.score);
  fitted.quality = QualityOf(problem, rows, scores);
  return fitted;
}

absl::StatusOr<RankQuality> RankWithin(const ReplayProblem& problem, const RankOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<size_t> columns,
                          cost_model::ColumnsWithout(options.without));
  const std::vector<size_t> rows = Shuffled(problem, options.seed);
  // At least a fifth is left for evaluation.
  const size_t n = std::min(static_cast<size_t>(options.records), rows.size() * 4 / 5);
  std::vector<cost_model::Sample> samples;
  AddSamples(problem, rows, n, 0, options.score_levels, columns, options.relative, samples);
  const std::vector<size_t> others(rows.begin() + static_cast<std::ptrdiff_t>(n), rows.end());
  return EvaluateModel(problem, others, samples, columns, options);
}

absl::StatusOr<RankQuality> RankAcross(const std::vector<std::unique_ptr<ReplayProblem>>& sources,
                                       const ReplayProblem& problem, const RankOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<size_t> columns,
                          cost_model::ColumnsWithout(options.without));
  std::vector<const ReplayProblem*> others;
  for (const auto& source : sources) {
    if (!OneTask(*source, problem)) others.push_back(source.get());
  }
  if (others.empty()) return absl::InvalidArgumentError("one table alone has no others");
  const size_t each = static_cast<size_t>(options.records) / others.size() + 1;
  std::vector<cost_model::Sample> samples;
  for (size_t p = 0; p < others.size(); ++p) {
    AddSamples(*others[p], Shuffled(*others[p], options.seed), each, static_cast<int>(p),
               options.score_levels, columns, options.relative, samples);
  }
  return EvaluateModel(problem, Shuffled(problem, options.seed), samples, columns, options);
}

}  // namespace heddle::bench
