// heddle-dispatch-bench: how fast the dispatcher decides. Drives it under virtual time with
// synthetic completions and times each Step alone. No worker runs. With --grow it measures three times,
// the second time with ten times as many of something, and tells how much longer a Step takes then.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>
#include <numeric>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/command_documents.h"
#include "base/quantiles.h"
#include "scheduler/core/dispatcher.h"

namespace heddle::scheduler {
namespace {

struct Flags {
  int jobs = 1000;
  int workers = 200;
  int tasks = 10;
  int trials = 64;
  int batch = 16;
  int models = 0;  // 0: as many as jobs
  int tenants = 10;
  int deadlines = 5;  // % of the jobs
  int64_t events = 1'000'000;
  std::string policy = kDefaultPolicy;
  uint64_t seed = 1;
  std::string grow;
  bool json = false;
};

constexpr int kTimes = 10;  // of --grow

// Times of the Steps after the submissions, in microseconds.
struct StepTimes {
  double mean = 0, median = 0, p99 = 0;
};

// One running stage, as a worker would run it.
struct Run {
  StartStage start;
  std::deque<CandidateId> inputs;
  bool closed = false, busy = false;
};

class Bench {
 public:
  explicit Bench(const Flags& flags)
      : flags_(flags), random_(flags.seed), dispatcher_(*MakePolicy(flags.policy)) {}

  void Go() {
    SlotsChanged slots;
    for (int w = 0; w < flags_.workers; ++w) AddWorker(w, &slots.slots);
    Feed(slots);
    for (int64_t id = 1; id <= flags_.jobs; ++id) {
      JobParams params;
      params.target = absl::StrCat("llvm -mcpu=", ModelOf(JobId{id}) % 4);
      params.record_target = params.target;
      params.trials_per_task = flags_.trials;
      params.batch = flags_.batch;
      params.pipeline_depth = 2;
      params.tenant = absl::StrCat("tenant", id % flags_.tenants);
      if (id * flags_.deadlines % 100 < flags_.deadlines)
        params.deadline = now_ + absl::Hours(1 + id % 7);
      Feed(JobSubmitted{JobId{id}, params});
    }
    submitted_ = ns_.size();
    while (steps() < flags_.events && !agenda_.empty()) {
      const auto [time, order, event] = agenda_.top();
      agenda_.pop();
      now_ = time;
      Feed(event);
    }
  }

  int64_t ModelOf(JobId job) const {
    return flags_.models > 0 ? job.value % flags_.models : job.value;
  }
  // After the submissions.
  int64_t steps() const { return static_cast<int64_t>(ns_.size() - submitted_); }

  StepTimes AfterSubmissions() const {
    std::vector<double> ns(ns_.begin() + static_cast<std::ptrdiff_t>(submitted_), ns_.end());
    std::sort(ns.begin(), ns.end());
    const double total = std::accumulate(ns.begin(), ns.end(), 0.0);
    return {total / static_cast<double>(ns.size()) / 1e3, QuantileOfSorted(ns, 0.5) / 1e3,
            QuantileOfSorted(ns, 0.99) / 1e3};
  }

  // Prints what was measured of all Steps. The memory is the most that this process had so far.
  void Print() {
    std::sort(ns_.begin(), ns_.end());
    double total = 0;
    for (double ns : ns_) total += ns;
    auto at = [&](double share) { return QuantileOfSorted(ns_, share) / 1e3; };
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const double mean = total / static_cast<double>(ns_.size());
    const double mib = static_cast<double>(usage.ru_maxrss) / 1024;
    if (flags_.json) {
      std::printf("%s\n",
                  nlohmann::json{{"schema_version", 1},
                                 {"policy", flags_.policy},
                                 {"jobs", flags_.jobs},
                                 {"models", flags_.models > 0 ? flags_.models : flags_.jobs},
                                 {"tenants", flags_.tenants},
                                 {"workers", flags_.workers},
                                 {"events", ns_.size()},
                                 {"events_per_s", 1e9 / mean},
                                 {"step_p50_us", at(0.5)},
                                 {"step_p99_us", at(0.99)},
                                 {"step_max_us", at(1)},
                                 {"peak_rss_mib", mib}}
                      .dump()
                      .c_str());
      return;
    }
    const std::string models =
        flags_.models > 0 ? absl::StrCat(" of ", flags_.models, " models") : "";
    std::printf("%s, %d jobs%s of %d tenants on %d workers, %zu events, %lld stages\n",
                flags_.policy.c_str(), flags_.jobs, models.c_str(), flags_.tenants, flags_.workers,
                ns_.size(), static_cast<long long>(stages_));
    std::printf("events/s %.0f   Step p50 %.1f us  p99 %.1f us  p99.9 %.1f us  max %.1f us\n",
                1e9 / mean, at(0.5), at(0.99), at(0.999), at(1));
    std::printf("peak memory %.0f MiB\n", mib);
  }

 private:
  using Due = std::tuple<absl::Time, int64_t, Event>;
  struct Later {
    bool operator()(const Due& a, const Due& b) const {
      return std::tie(std::get<0>(a), std::get<1>(a)) > std::tie(std::get<0>(b), std::get<1>(b));
    }
  };

  // Two CPU slots and two devices; on every fourth worker, one device overlaps a CPU slot.
  void AddWorker(int w, std::vector<SlotInfo>* slots) {
    for (int s = 0; s < 4; ++s) {
      SlotInfo slot;
      slot.id = {absl::StrCat("worker", w), absl::StrCat(s < 2 ? "cpu" : "device", s)};
      slot.host = absl::StrCat("host", w);
      slot.cores = {s == 3 && w % 4 == 0 ? 0 : s};
      slot.device = s >= 2;
      if (slot.device) {
        slot.target = absl::StrCat("llvm -mcpu=", w % 4);
        slot.device_key = absl::StrCat("key", w % 4);
      }
      slots->push_back(slot);
    }
  }

  void At(double mean_s, Event event) {
    const double seconds = mean_s * std::uniform_real_distribution<double>(0.5, 1.5)(random_);
    agenda_.emplace(now_ + absl::Seconds(seconds), ++order_, std::move(event));
  }

  void Feed(const Event& event) {
    const auto begin = std::chrono::steady_clock::now();
    const Decisions decisions = dispatcher_.Step(event, now_);
    const auto end = std::chrono::steady_clock::now();
    ns_.push_back(std::chrono::duration<double, std::nano>(end - begin).count());
    for (const Change& change : decisions.changes) Note(change);
    for (const Order& order : decisions.orders) Perform(order);
    if (const auto* built = std::get_if<CandidateBuilt>(&event)) Next(built->attempt);
    if (const auto* profiled = std::get_if<CandidateProfiled>(&event)) Next(profiled->attempt);
    if (const auto* done = std::get_if<StageFinished>(&event)) runs_.erase(done->attempt);
    const absl::Time wake = dispatcher_.NextWake(now_);
    if (wake != absl::InfiniteFuture() && wake != wake_)
      agenda_.emplace(wake_ = wake, ++order_, Tick{});
  }

  void Note(const Change& change) {
    if (const auto* find = std::get_if<FindRecords>(&change))
      agenda_.emplace(now_, ++order_, RecordsFound{find->job, find->device_key, {}});
  }

  void Perform(const Order& order) {
    if (const auto* feed = std::get_if<FeedProfile>(&order)) {
      Run& run = runs_.at(feed->attempt);
      run.inputs.push_back(feed->candidate);
      if (!run.busy) Work(feed->attempt, &run);
    } else if (const auto* close = std::get_if<CloseProfile>(&order)) {
      Run& run = runs_.at(close->attempt);
      run.closed = true;
      if (!run.busy && run.inputs.empty()) Work(close->attempt, &run);
    } else if (const auto* start = std::get_if<StartStage>(&order)) {
      ++stages_;
      Run& run = runs_[start->attempt];
      run.start = *start;
      run.inputs.assign(start->candidates.begin(), start->candidates.end());
      run.closed = start->kind == v1::STAGE_BUILD;
      Begin(start->attempt, &run);
    }
  }

  void Begin(AttemptId id, Run* run) {
    switch (run->start.kind) {
      case v1::STAGE_IMPORT: {
        Imported imported;
        for (int i = 0; i < flags_.tasks; ++i) {
          v1::TaskInfo& task = *imported.model.add_tasks();
          task.set_key(absl::StrCat(ModelOf(run->start.job), "/", i));
          task.set_weight(1);  // what the plan does not use is not tuned
        }
        return At(1, StageFinished{id, {}, true, imported});
      }
      case v1::STAGE_PROPOSE:
        return At(2, StageFinished{id, {}, true, Proposed{run->start.count, false}});
      case v1::STAGE_BUILD:
      case v1::STAGE_PROFILE:
        return Work(id, run);
      default:
        return At(2, StageFinished{id, {}, true, {}});
    }
  }

  void Work(AttemptId id, Run* run) {
    if (run->inputs.empty()) {
      if (run->closed) At(0.01, StageFinished{id, {}, true, {}}), run->busy = true;
      return;
    }
    const CandidateId candidate = run->inputs.front();
    run->inputs.pop_front();
    run->busy = true;
    if (run->start.kind == v1::STAGE_BUILD) {
      At(0.5, CandidateBuilt{id, candidate, v1::OUTCOME_OK, ""});
    } else {
      At(1, CandidateProfiled{id, candidate, v1::OUTCOME_OK, "", 1000});
    }
  }

  void Next(AttemptId id) {
    Run& run = runs_.at(id);
    run.busy = false;
    Work(id, &run);
  }

  const Flags flags_;
  std::mt19937_64 random_;
  Dispatcher dispatcher_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  absl::Time wake_;
  int64_t order_ = 0, stages_ = 0;
  std::priority_queue<Due, std::vector<Due>, Later> agenda_;
  std::map<AttemptId, Run> runs_;
  std::vector<double> ns_;
  size_t submitted_ = 0;  // so many of them came with the slots and the submissions
};

nlohmann::json ToJson(const StepTimes& times) {
  return {{"mean", times.mean}, {"p50", times.median}, {"p99", times.p99}};
}

// `few` was measured before and after `many`.
void PrintGrowth(const Flags& flags, const StepTimes (&few)[2], const StepTimes& many) {
  const auto ratio = [&](double StepTimes::*time) {
    return many.*time / ((few[0].*time + few[1].*time) / 2);
  };
  const StepTimes ratios = {ratio(&StepTimes::mean), ratio(&StepTimes::median),
                            ratio(&StepTimes::p99)};
  if (flags.json) {
    std::printf("%s\n", nlohmann::json{{"schema_version", 1},
                                       {"grow", flags.grow},
                                       {"times", kTimes},
                                       {"few_us", {ToJson(few[0]), ToJson(few[1])}},
                                       {"many_us", ToJson(many)},
                                       {"ratio", ToJson(ratios)}}
                            .dump()
                            .c_str());
    return;
  }
  std::printf("\n%-34s %12s %12s %12s\n", "a Step after the submissions", "mean", "median", "99 %");
  const auto line = [](const std::string& name, const StepTimes& times, const char* unit) {
    std::printf("%-34s %9.2f %-2s %9.2f %-2s %9.2f %-2s\n", name.c_str(), times.mean, unit,
                times.median, unit, times.p99, unit);
  };
  line("as asked", few[0], "us");
  line(absl::StrCat(kTimes, " times as many ", flags.grow), many, "us");
  line("as asked, again", few[1], "us");
  line("so many times as long", ratios, "");
}

}  // namespace
}  // namespace heddle::scheduler

int main(int argc, char** argv) {
  using namespace heddle::scheduler;
  Flags flags;
  CLI::App app("heddle-dispatch-bench: events per second and latency of the dispatcher");
  app.add_option("--jobs", flags.jobs, "submitted at once")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--workers", flags.workers, "each with two CPU slots and two devices")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--tasks", flags.tasks, "of a job")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--models", flags.models,
                 "jobs of one model share their tasks; 0: each job has a model of its own")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
  app.add_option("--trials", flags.trials, "of a task")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--tenants", flags.tenants, "that the jobs are of, in turn")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--deadlines", flags.deadlines, "% of the jobs that have one")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  app.add_option("--events", flags.events, "after the submissions, at most")
      ->check(CLI::Range(int64_t{1000}, int64_t{100'000'000}))
      ->capture_default_str();
  app.add_option("--policy", flags.policy)
      ->check(CLI::IsMember(PolicyNames()))
      ->capture_default_str();
  app.add_option("--seed", flags.seed)->capture_default_str();
  app.add_option(
         "--grow", flags.grow,
         "measure with ten times as many, too, and print how many times as long a Step takes "
         "then: 1 where it does not depend on them, 10 where it looks at all of them")
      ->check(CLI::IsMember({"jobs", "tenants", "workers"}));
  app.add_flag("--json", flags.json, "one JSON object a line");
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  const auto measure = [&] {
    Bench bench(flags);
    bench.Go();
    const StepTimes times = bench.AfterSubmissions();
    bench.Print();
    return times;
  };
  const StepTimes before = measure();
  if (flags.grow.empty()) return 0;
  int& grows = flags.grow == "jobs"      ? flags.jobs
               : flags.grow == "tenants" ? flags.tenants
                                         : flags.workers;
  grows *= kTimes;
  const StepTimes many = measure();
  grows /= kTimes;
  PrintGrowth(flags, {before, measure()}, many);
  return 0;
}
