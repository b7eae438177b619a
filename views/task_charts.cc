#include "views/task_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/vocabulary/workload_bytes.h"
#include "views/accuracy.h"
#include "views/charts.h"
#include "views/format.h"
#include "views/parts.h"
#include "views/roofline.h"

namespace heddle::views {
namespace {

constexpr size_t kMostBatches = 20;        // rows of the table
constexpr size_t kMostRoofTrials = 200;    // points under the roof
constexpr size_t kMostLoopBytes = 20'000;  // of the workload's text
constexpr size_t kMostKernelLines = 500;   // of a kernel's machine code

// "predicted by a model of 32 measurements, j1"
std::string ModelOf(const BatchAccuracy& batch) {
  const std::string learned =
      batch.samples == 0 ? "other tasks only" : fmt::format("{} measurements", batch.samples);
  return batch.job.empty() ? learned : fmt::format("{}, {}", learned, batch.job);
}

std::string RoofLine(const char* what, double ns, double flops, int64_t bytes,
                     const Limits& limits) {
  const Roofline roofline = RooflineOf(ns, flops, bytes, limits);
  if (roofline.share <= 0) return "";
  std::string line = fmt::format("{}: {}, {} GFLOP/s, {:.1f} GB/s", what, FormatNs(ns),
                                 FormatGflops(flops, ns), static_cast<double>(bytes) / ns);
  if (roofline.share > 1 && roofline.memory) return line + "; its data came from a nearer cache";
  return line + fmt::format("; {:.0f} % of what {} allows", 100 * roofline.share,
                            roofline.memory ? "memory" : "arithmetic");
}

}  // namespace

Html PredictionPart(const TaskDetails& details) {
  const std::vector<BatchAccuracy> batches = RankAccuracy(details.predicted);
  std::vector<PlotPoint> points;
  HtmlTable table(batches.size() > kMostBatches
                      ? fmt::format("The latest {} of {} batches, each predicted by one model",
                                    kMostBatches, batches.size())
                      : "Batches, each predicted by one model",
                  {{"the model knew"},
                   {"trials", true},
                   {"rank correlation", true},
                   {"pairs in order", true},
                   {"fastest was ranked", true}});
  for (size_t i = batches.size(); i-- > 0;) {
    const BatchAccuracy& batch = batches[i];
    for (const BatchAccuracy::Place& place : batch.places) {
      points.push_back(
          {100 * place.predicted, 100 * place.measured, place.failed ? "failed" : "measured", ""});
    }
    if (batches.size() - i > kMostBatches) continue;
    table.Add({Text(ModelOf(batch)), Text(fmt::format("{}", batch.trials)),
               Text(batch.correlation ? fmt::format("{:.2f}", *batch.correlation) : "-"),
               Text(batch.pairs ? fmt::format("{:.0f} %", 100 * *batch.pairs) : "-"),
               Text(fmt::format("{} of {}", batch.rank_of_best, batch.trials))});
  }
  if (batches.empty()) return Faint("No model has predicted any of the latest trials.");
  const std::optional<double> correlation = MeanOf(batches, &BatchAccuracy::correlation);
  Html html;
  if (!points.empty()) {
    html += Element(
        "figure",
        Html{ScatterPlot(
            fmt::format("Predicted against measured place in the batch{}",
                        correlation ? fmt::format("; rank correlation {:.2f}", *correlation) : ""),
            "predicted place, 100 is the fastest of its batch", "measured place", points, {},
            SvgUse::kPage)});
  }
  html +=
      Faint(fmt::format("The latest {} trials that a model chose. A prediction has no unit, so "
                        "only places in one batch "
                        "are compared. Points on the diagonal were predicted rightly. A "
                        "correlation of 1 is a perfect "
                        "order, 0 is chance.",
                        details.predicted.size()));
  return html + table.ToHtml("");
}

Html RooflinePart(const TaskDetails& details) {
  const v1::TaskInfo& info = details.job.tasks(details.task).info();
  const int64_t bytes = BytesOfWorkload(details.workload);
  const Limits& limits = details.limits;
  if (info.flops() <= 0) return Faint("The task has no arithmetic, so it has no roofline.");
  if (bytes == 0) return Faint("The size of the task's data is not known, so it has no roofline.");
  if (limits.gflops <= 0 || limits.gbps <= 0)
    return Faint("The limits of the slot were not measured, so there is no roofline.");
  const double intensity = info.flops() / static_cast<double>(bytes);
  std::vector<const Trial*> valid;
  for (const Trial& trial : details.trials) {
    if (trial.median_ns > 0) valid.push_back(&trial);
  }
  std::vector<PlotPoint> points;
  const size_t shown = std::min(valid.size(), kMostRoofTrials);
  for (size_t i = 0; i < shown; ++i) {
    const Trial& trial = *valid[i * valid.size() / shown];
    points.push_back({intensity, info.flops() / trial.median_ns, "trials", ""});
  }
  for (const auto& [group, ns] :
       {std::pair{"default", details.default_ns}, std::pair{"best", details.best_ns}}) {
    if (ns > 0)
      points.push_back(
          {intensity, info.flops() / ns, group, fmt::format("{}: {}", group, FormatNs(ns))});
  }
  Html html = Element(
      "figure",
      Html{RooflineChart(fmt::format("Roofline; the task does {:.3g} FLOP per byte", intensity),
                         limits.gflops, limits.gbps, points, SvgUse::kPage)});
  for (const auto& [what, ns] :
       {std::pair{"best", details.best_ns}, std::pair{"default", details.default_ns}}) {
    const std::string line = RoofLine(what, ns, info.flops(), bytes, limits);
    if (!line.empty()) html += Element("p", Text(line));
  }
  return html +
         Faint(fmt::format(
             "The limits are the highest that the worker had measured on the slot's cores when it "
             "measured the best trial: {:.0f} GFLOP/s of single-precision multiply-adds, {:.1f} "
             "GB/s "
             "from main memory. Inputs and outputs are {}, each counted once.",
             limits.gflops, limits.gbps, FormatBytes(bytes)));
}

Html KernelPart(const TaskDetails& details) {
  const Html heading = Element(details.links ? "h2" : "h3", Text("Machine code"));
  if (details.links) {
    if (details.best_ns <= 0) return {};
    return heading +
           Element("p", Element("code", Text(fmt::format("heddle explain {} {} --assembly",
                                                         details.job.id(), details.task + 1))) +
                            Text(" lists the instructions of the kernel as they stand in the "
                                 "job's module. This page does not: the scheduler opens no code."));
  }
  if (!details.kernel_missing.empty()) return heading + Faint(details.kernel_missing);
  if (details.kernel.empty()) return {};
  const size_t all = details.kernel.size(), shown = std::min(all, kMostKernelLines);
  std::string lines;
  for (size_t i = 0; i < shown; ++i) lines += details.kernel[i] + "\n";
  Html html = Element("summary", Text(fmt::format("The kernel in the module, by its {} schedule",
                                                  details.kernel_schedule)));
  html += Element("pre", Text(lines), {{"tabindex", "0"}});
  if (shown < all) {
    html += Faint(
        fmt::format("showing {} of {} lines; `heddle explain {} {} --assembly --lines 0` lists all",
                    shown, all, details.job.id(), details.task + 1));
  }
  return heading + Element("details", html);
}

Html LoopsPart(const TaskDetails& details) {
  if (details.workload.empty()) return {};
  Html html = Element("summary", Text("The loops that every schedule begins from"));
  html += Element("pre", Text(details.workload.substr(0, kMostLoopBytes)), {{"tabindex", "0"}});
  if (details.workload.size() > kMostLoopBytes) {
    html += Faint(fmt::format("showing {} of {} bytes", kMostLoopBytes, details.workload.size()));
  }
  return Element("details", html);
}

}  // namespace heddle::views
