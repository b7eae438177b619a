// `heddle explain`: how the search of one task went, and what it found.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files/output_file.h"
#include "base/status_macros.h"
#include "base/vocabulary/job_limits.h"
#include "base/vocabulary/workload_bytes.h"
#include "client/commands/commands.h"
#include "client/modules/profile.h"
#include "client/views/explain.h"
#include "client/views/json.h"
#include "client/views/timeline_view.h"
#include "views/charts.h"

namespace heddle::client {
namespace {

constexpr int kCurveRows = 8;
constexpr size_t kShownFeatures = 8;

struct Explained {
  v1::TaskExplanation task;
  std::vector<v1::Record> trials;  // the task's on its device, oldest first
  const v1::Record* best = nullptr;
  const v1::Record* untuned = nullptr;  // the default schedule
  std::vector<v1::StageSpan> stages;    // of this job and task
};

KernelProfile ProfileOf(const Explained& e, const v1::Record& trial) {
  KernelProfile kernel;
  kernel.ns = trial.median_ns();
  kernel.flops = e.task.task().info().flops();
  kernel.bytes = BytesOfWorkload(e.task.task().info().workload());
  return kernel;
}

MachineLimits LimitsOf(const v1::Record& trial) {
  return {trial.measurement().evidence().peak_gflops(),
          trial.measurement().evidence().memory_gbps()};
}

// GFLOP/s; for a task without arithmetic, runs a second.
double SpeedOf(const Explained& e, double ns) {
  const double flops = e.task.task().info().flops();
  return ns <= 0 ? 0 : flops > 0 ? flops / ns : 1e9 / ns;
}
const char* UnitOf(const Explained& e) {
  return e.task.task().info().flops() > 0 ? "GFLOP/s" : "runs/s";
}

absl::StatusOr<Explained> CollectExplained(const ServiceClient& client, const std::string& job,
                                           const std::string& task) {
  Explained e;
  HEDDLE_ASSIGN_OR_RETURN(v1::TaskExplanation explanation, client.ExplainTask(job, task));
  e.task = std::move(explanation);
  v1::RecordQuery query;
  query.set_workload_key(e.task.task().info().key());
  query.set_target(e.task.target());
  query.set_device_key(e.task.device_key());
  query.set_limit(kMaxTrialsPerTask);
  const absl::Status status = client.QueryRecords(query, [&](const v1::Record& record) {
    if (record.measurement().outcome() != v1::OUTCOME_LOST) e.trials.push_back(record);
    return !Interrupted();
  });
  if (!status.ok()) return status;
  std::reverse(e.trials.begin(), e.trials.end());
  absl::StatusOr<v1::Timeline> timeline = client.GetTimeline(job);
  if (timeline.ok()) {  // without a timeline the rest is still useful
    for (v1::StageSpan& span : *timeline->mutable_spans()) {
      if (span.task() == e.task.task().info().key()) e.stages.push_back(std::move(span));
    }
  }
  for (const v1::Record& trial : e.trials) {
    if (trial.median_ns() <= 0) continue;
    if (e.best == nullptr || trial.median_ns() < e.best->median_ns()) e.best = &trial;
    const bool faster = e.untuned == nullptr || trial.median_ns() < e.untuned->median_ns();
    if (trial.origin() == "default" && faster) e.untuned = &trial;
  }
  return e;
}

void PrintRanks(const std::vector<BatchAccuracy>& batches, bool plain) {
  Table table({"predicted by a model of", "trials", "pairs in order", "fastest was ranked"});
  for (const BatchAccuracy& b : batches) {
    table.Add({fmt::format("{} measurements, {}", b.samples, b.job), fmt::format("{}", b.trials),
               b.pairs ? fmt::format("{:.0f} %", 100 * *b.pairs) : "-",
               fmt::format("{} of {}", b.rank_of_best, b.trials)});
  }
  fmt::print("\npredicted before measuring, by batch (chance alone orders 50 % of the pairs):\n{}",
             table.ToText(plain));
  const std::optional<double> pairs = views::MeanOf(batches, &BatchAccuracy::pairs);
  const std::optional<double> correlation = views::MeanOf(batches, &BatchAccuracy::correlation);
  if (pairs) {
    fmt::print("all batches: {:.0f} % of the pairs in order{}\n", 100 * *pairs,
               correlation ? fmt::format(", rank correlation {:.2f}", *correlation) : "");
  }
}

void PrintSearch(const v1::SearchReport& search, bool plain) {
  if (search.other_tasks() > 0) {
    fmt::print("\nfrom other tasks: {} samples of {}, {}\n", search.other_samples(),
               search.other_tasks() == 1 ? "1 task" : fmt::format("{} tasks", search.other_tasks()),
               search.transfer_misleads() ? "no longer used: they misled"
               : search.other_weight() > 0
                   ? fmt::format("their weight is {:.2f} of the initial one", search.other_weight())
                   : "outweighed by its own samples");
  }
  if (search.features().empty()) return;
  Table table({"importance", "feature", "meaning"});
  for (int i = 0; i < std::min(search.features_size(), static_cast<int>(kShownFeatures)); ++i) {
    const auto& feature = search.features(i);
    // The rest of the text tells how a test checks the feature.
    const std::string meaning = feature.meaning().substr(0, feature.meaning().find_first_of(";:"));
    table.Add({fmt::format("{:.1f} %", 100 * feature.importance()), feature.name(), meaning});
  }
  fmt::print("\nfeatures that the model of {} samples uses:\n{}", search.samples(),
             table.ToText(plain));
}

std::string Counted(int64_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

// The transfer models that new tasks may start from.
void PrintTransferModel(const v1::TransferModel& model) {
  fmt::print(
      "\nkept for new tasks on this target and device: a model of {} of {}, fitted {}, {} ago\n",
      Counted(model.samples(), "sample"), Counted(model.tasks(), "task"),
      FormatWallTime(model.made_unix_ns()), Counted(model.since(), "trial"));
}

void PrintBound(const Explained& e, const v1::Record& trial, const char* what) {
  const KernelProfile kernel = ProfileOf(e, trial);
  const MachineLimits limits = LimitsOf(trial);
  const double gflops = kernel.flops / kernel.ns;
  const double gbps = static_cast<double>(kernel.bytes) / kernel.ns;
  fmt::print("{}: {}", what, FormatNs(kernel.ns));
  if (kernel.flops > 0) fmt::print(", {} GFLOP/s", FormatGflops(kernel.flops, kernel.ns));
  if (kernel.flops > 0 && limits.gflops > 0)
    fmt::print(" ({:.0f} % of the peak)", 100 * gflops / limits.gflops);
  if (kernel.bytes > 0) fmt::print(", {:.1f} GB/s", gbps);
  if (kernel.bytes > 0 && limits.gbps > 0)
    fmt::print(" ({:.0f} % of memory bandwidth)", 100 * gbps / limits.gbps);
  const Roofline roofline = RooflineOf(kernel, limits);
  if (roofline.share > 1 && roofline.memory) {
    fmt::print("; not bound by main memory: its data came from a nearer cache");
  } else if (roofline.share > 0) {
    fmt::print("; bound by {}, {:.0f} % of that bound", roofline.memory ? "memory" : "arithmetic",
               100 * roofline.share);
  }
  fmt::print("\n");
}

void PrintExplained(const Explained& e, const std::string& job, const OutputOptions& output) {
  const v1::TaskStatus& task = e.task.task();
  const auto own = std::count_if(e.trials.begin(), e.trials.end(), [&](const v1::Record& t) {
    return t.job() == job && t.imported_by().empty();
  });
  fmt::print("task     {}  {}\ndevice   {}  {}\ntrials   {}, {} of them by {}\n",
             task.info().label(), task.info().key(),
             e.task.device_key().empty() ? "(none yet)" : e.task.device_key(), e.task.target(),
             e.trials.size(), own, job);
  if (e.best == nullptr) {
    fmt::print("nothing valid was measured yet\n");
    return;
  }
  std::vector<double> speeds = BestSoFar(e.trials);
  for (double& ns : speeds) ns = SpeedOf(e, ns);
  fmt::print("\nbest so far:\n{}", DrawCurve(speeds, UnitOf(e), std::max(20, TerminalWidth() - 14),
                                             kCurveRows, output.plain));
  const auto found = static_cast<int>(e.best - e.trials.data()) + 1;
  fmt::print("best: {} at trial {}, by {}\n", FormatNs(e.best->median_ns()), found,
             e.best->origin().empty() ? "an imported record" : e.best->origin());
  if (const auto batches = RankAccuracy(e.trials); !batches.empty()) {
    PrintRanks(batches, output.plain);
  } else {
    fmt::print("\nno model has predicted any of these trials\n");
  }
  PrintSearch(e.task.search(), output.plain);
  if (e.task.has_transfer_model()) PrintTransferModel(e.task.transfer_model());
  if (const std::string times = StageTimes(e.stages, output.plain); !times.empty())
    fmt::print("\nits stages in {}:\n{}", job, times);
  fmt::print("\n");
  PrintBound(e, *e.best, "best");
  if (e.untuned != nullptr && e.untuned != e.best) PrintBound(e, *e.untuned, "default");
  if (task.has_compared()) {
    const v1::CompareResult::Task& in_model = task.compared();
    fmt::print("these times are of the kernel alone, with cold caches\n");
    fmt::print(
        "in the model: {} in all, {} with the default schedule: {:.2f}x ({:.3f} to {:.3f}){}\n",
        FormatNs(in_model.ns()), FormatNs(in_model.default_ns()), in_model.gain().ratio(),
        in_model.gain().low(), in_model.gain().high(),
        task.keeps_default() ? "; the module has the default kernel" : "");
  }
  if (LimitsOf(*e.best).gflops > 0)
    fmt::print(
        "limits of the slot: {:.0f} GFLOP/s, {:.1f} GB/s from main memory, the highest measured "
        "until then\n",
        LimitsOf(*e.best).gflops, LimitsOf(*e.best).gbps);
  if (e.untuned == nullptr) {
    fmt::print("\nthe default schedule was not measured; the best one:\n{}\n", e.best->trace());
  } else if (e.untuned == e.best) {
    fmt::print("\nthe default schedule is the best one:\n{}\n", e.best->trace());
  } else {
    fmt::print(
        "\n{}",
        SideBySide(fmt::format("DEFAULT {}", FormatNs(e.untuned->median_ns())), e.untuned->trace(),
                   fmt::format("BEST {} ({})", FormatNs(e.best->median_ns()),
                               FormatRatio(e.untuned->median_ns() / e.best->median_ns())),
                   e.best->trace(), TerminalWidth(), output.plain));
  }
}

void PrintExplainedJson(const Explained& e) {
  nlohmann::json object = ToJson(e.task);
  object["schema_version"] = kJsonSchemaVersion;
  object["best_ns"] = BestSoFar(e.trials);
  object["batches"] = nlohmann::json::array();
  for (const BatchAccuracy& b : RankAccuracy(e.trials)) {
    nlohmann::json batch = {{"job", b.job},
                            {"samples", b.samples},
                            {"trials", b.trials},
                            {"rank_of_best", b.rank_of_best},
                            {"pairs_in_order", nullptr},
                            {"rank_correlation", nullptr}};
    if (b.pairs) batch["pairs_in_order"] = *b.pairs;
    if (b.correlation) batch["rank_correlation"] = *b.correlation;
    object["batches"].push_back(std::move(batch));
  }
  for (const char* key : {"best", "roofline", "default"}) object[key] = nullptr;
  if (e.best != nullptr) {
    const KernelProfile kernel = ProfileOf(e, *e.best);
    const MachineLimits limits = LimitsOf(*e.best);
    const Roofline roofline = RooflineOf(kernel, limits);
    object["best"] = ToJson(*e.best);
    object["roofline"] = {{"flops", kernel.flops},
                          {"bytes", kernel.bytes},
                          {"peak_gflops", limits.gflops},
                          {"memory_gbps", limits.gbps},
                          {"bound", roofline.memory ? "memory" : "compute"},
                          {"share_of_bound", roofline.share}};
  }
  if (e.untuned != nullptr) object["default"] = ToJson(*e.untuned);
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

absl::Status Plot(const Explained& e, const std::string& path) {
  std::vector<views::PlotPoint> points, line;
  const std::vector<double> best = BestSoFar(e.trials);
  for (size_t i = 0; i < e.trials.size(); ++i) {
    const v1::Record& trial = e.trials[i];
    const double x = static_cast<double>(i + 1);
    line.push_back({x, SpeedOf(e, best[i]), "best so far", ""});
    std::string label = fmt::format("{} {}", trial.job(), FormatNs(trial.median_ns()));
    if (trial.has_prediction())
      label += fmt::format(", predicted {:.3f}", trial.prediction().score());
    points.push_back({x, SpeedOf(e, trial.median_ns()),
                      trial.origin().empty() ? "imported" : trial.origin(), std::move(label)});
  }
  const v1::TaskInfo& info = e.task.task().info();
  return WriteFile(
      path, views::ScatterPlot(fmt::format("{} on {}", info.label(), e.task.device_key()), "trial",
                               UnitOf(e), points, line));
}

}  // namespace

int ExplainTask(const GlobalOptions& global, const std::string& job, const std::string& task,
                const std::string& plot) {
  const ServiceClient client(global.server);
  const absl::StatusOr<Explained> explained = CollectExplained(client, job, task);
  if (!explained.ok()) return Fail(explained.status());
  if (Interrupted()) return kInterrupted;
  if (!plot.empty()) {
    if (const absl::Status status = Plot(*explained, plot); !status.ok()) return Fail(status);
  }
  if (global.output.json) {
    PrintExplainedJson(*explained);
  } else {
    PrintExplained(*explained, job, global.output);
  }
  return kDone;
}

}  // namespace heddle::client
