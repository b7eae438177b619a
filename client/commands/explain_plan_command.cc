// `heddle explain JOB`: why the job has its plan, and what other plans would cost.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "client/commands/commands.h"
#include "client/views/json.h"
#include "client/views/progress_view.h"
#include "client/views/terminal.h"
#include "compiler/plan/plan.h"

namespace heddle::client {
namespace {

using nlohmann::json;

// What a plan says, counted.
struct Summary {
  std::map<std::string, int> rules;    // substitutions by rule
  std::map<std::string, int> layouts;  // operators by layout; channels first is not listed
  int64_t block = 0;
  size_t cuts = 0;
  size_t columns = 0;
};

absl::StatusOr<Summary> SummaryOf(const std::string& text) {
  absl::StatusOr<plan::Plan> plan = plan::ParsePlan(text);
  if (!plan.ok()) return plan.status();
  Summary summary;
  for (const plan::Substitution& one : plan->substitutions) ++summary.rules[one.rule];
  if (plan->layouts.has_value()) {
    summary.block = plan->layouts->block;
    for (const auto& [node, layout] : plan->layouts->of)
      ++summary.layouts[std::string(graph::LayoutName(layout))];
  }
  summary.cuts = plan->separate.size();
  summary.columns = plan->columns.size();
  return summary;
}

void PrintPlan(const char* what, const std::string& text) {
  const absl::StatusOr<Summary> summary = SummaryOf(text);
  if (!summary.ok()) {
    fmt::print("{}: {}\n", what, std::string(summary.status().message()));
    return;
  }
  fmt::print("{}:", what);
  const char* separator = " ";
  for (const auto& [layout, count] : summary->layouts) {
    fmt::print("{}{} operators {}", separator, count, layout);
    if (layout == "channels_blocked") fmt::print(" of {}", summary->block);
    separator = ", ";
  }
  if (summary->layouts.empty()) {
    fmt::print("{}all operators channels first", separator);
    separator = ", ";
  }
  if (summary->cuts > 0) {
    fmt::print("{}{} values not fused", separator, summary->cuts);
    separator = ", ";
  }
  if (summary->columns > 0)
    fmt::print("{}{} matrices read by columns", separator, summary->columns);
  fmt::print("\n");
  for (const auto& [rule, count] : summary->rules)
    fmt::print("  {} {}: {}\n", count, count == 1 ? "place" : "places", rule);
}

void PrintJobPlan(const v1::Job& job, bool plain) {
  // A search that ended too early is among them.
  for (const std::string& warning : job.warnings()) fmt::print("warning: {}\n", Printable(warning));
  PrintPlan("plan", job.plan());
  if (!job.estimated_plan().empty()) PrintPlan("without a search", job.estimated_plan());
  const v1::PlanReport& report = job.plan_report();
  if (report.contenders().empty()) {
    fmt::print("{}\n", job.plan_settled()
                           ? "it was chosen by estimates for the target"
                           : "its kernels are being measured; nothing is chosen yet");
    return;
  }
  double first = 0;
  Table table({"plan", "kernels", "measured", "substitutions", "expected", "of the first", ""});
  for (const v1::PlanReport::Contender& one : report.contenders()) {
    if (first == 0) first = one.ns();
    const std::string expected =
        one.spread_ns() > 0 ? fmt::format("{} +- {}", FormatNs(one.ns()), FormatNs(one.spread_ns()))
                            : FormatNs(one.ns());
    table.Add({one.name(), fmt::format("{}", one.calls()),
               fmt::format("{} of {}", one.measured(), one.calls()),
               fmt::format("{}", one.substitutions()), expected,
               first > 0 ? fmt::format("{:.3f}", one.ns() / first) : "-",
               one.chosen() ? "chosen" : ""});
  }
  fmt::print("\nkernels one after the other, with the {} schedules:\n{}",
             report.tuned() ? "best" : "default", table.ToText(plain));
  if (report.error_kernels() > 0) {
    fmt::print(
        "kernels without a measurement are predicted; {} measured ones, each predicted from the "
        "others, were off by {:.0f} % in the median\n",
        report.error_kernels(), 100 * report.error());
  }
  if (report.experience_kernels() > 0) {
    fmt::print(
        "{} kernels, predicted from earlier jobs alone, were off by {:.0f} % in the median\n",
        report.experience_kernels(), 100 * report.experience_error());
  }
  const v1::Comparison& comparison = job.comparison();
  if (comparison.has_result() && comparison.result().has_other_gain()) {
    const v1::Gain& gain = comparison.result().other_gain();
    fmt::print(
        "timed in turns as whole modules: {:.3f}x ({:.3f} to {:.3f}) of the module by "
        "estimates{}\n",
        gain.ratio(), gain.low(), gain.high(),
        comparison.plan_taken_back()
            ? "; that is not surely faster, so the job has the plan by estimates"
            : "");
  }
  if (const std::string gain = ModelGain(job); !gain.empty()) fmt::print("{}\n", gain);
}

void PrintJobPlanJson(const v1::Job& job) {
  json object = ToJson(job.plan_report());
  object["schema_version"] = kJsonSchemaVersion;
  object["plan"] = job.plan();
  object["estimated_plan"] = job.estimated_plan();
  object["settled"] = job.plan_settled();
  object["warnings"] = json::array();
  for (const std::string& warning : job.warnings()) object["warnings"].push_back(warning);
  object["comparison"] = job.has_comparison() ? ToJson(job.comparison()) : json();
  fmt::print("{}\n", object.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

int ExplainPlan(const GlobalOptions& global, const std::string& id) {
  const absl::StatusOr<v1::Job> job = ServiceClient(global.server).GetJob(id);
  if (!job.ok()) return Fail(job.status());
  if (job->plan().empty()) {
    return Fail(absl::FailedPreconditionError(
        fmt::format("job {} has no plan yet: {}", id, job->reason())));
  }
  if (global.output.json) {
    PrintJobPlanJson(*job);
  } else {
    PrintJobPlan(*job, global.output.plain);
  }
  return kDone;
}

}  // namespace heddle::client
