// `heddle report`: a job as one HTML file, with the contents of the scheduler's page.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "base/files/output_file.h"
#include "base/status_macros.h"
#include "base/vocabulary/choose_trials.h"
#include "client/commands/commands.h"
#include "client/modules/kernel_code.h"
#include "client/views/explain.h"
#include "compiler/ir/text.h"
#include "compiler/schedule/trace.h"
#include "views/html.h"
#include "views/pages.h"

namespace heddle::client {
namespace {

// Trials that are read of a task: the newest, as many as the service sends.
constexpr int64_t kMostTrials = 1'000'000;
constexpr int64_t kTrialsShown = 300;  // of these, beside those that were the fastest so far
constexpr int kMostTasks = 100;        // with charts; the table of tasks has more (views/pages.cc)

// The task's loops after the schedule; empty if one of the two is of a version that this client cannot read.
std::string LoopsOf(const std::string& workload, const std::string& trace) {
  const absl::StatusOr<ir::Program> naive = ir::Parse(workload);
  const absl::StatusOr<schedule::Trace> steps = schedule::ParseTrace(trace);
  if (!naive.ok() || !steps.ok()) return "";
  const absl::StatusOr<ir::Program> scheduled = schedule::Replay(*naive, *steps);
  return scheduled.ok() ? ir::Print(*scheduled) : "";
}

absl::StatusOr<views::TaskDetails> TaskOf(const ServiceClient& client, const v1::Job& job,
                                          int index) {
  views::TaskDetails details;
  details.job = job;
  details.task = index;
  details.links = false;
  HEDDLE_ASSIGN_OR_RETURN(const v1::TaskExplanation place,
                          client.ExplainTask(job.id(), fmt::format("{}", index + 1)));
  details.device_key = place.device_key();
  v1::RecordQuery query;
  query.set_workload_key(place.task().info().key());
  query.set_target(place.target());
  query.set_device_key(place.device_key());
  query.set_limit(kMostTrials);
  // Of each only what a chart needs: a million whole records take gigabytes.
  std::vector<views::Trial> trials;
  std::vector<double> medians;
  v1::Record best, untuned;
  std::vector<v1::Record> latest;  // whose predictions are shown
  const auto improve = [](const v1::Record& record, v1::Record* least) {
    // They come with the newest first; of equals the oldest counts.
    const bool better = least->median_ns() == 0 || record.median_ns() <= least->median_ns();
    if (record.median_ns() > 0 && better) *least = record;
  };
  int64_t read = 0;
  HEDDLE_RETURN_IF_ERROR(client.QueryRecords(query, [&](const v1::Record& record) {
    ++read;
    if (record.measurement().outcome() == v1::OUTCOME_LOST) return !Interrupted();
    trials.push_back({0, record.created_unix_ns(), record.median_ns(), record.origin(),
                      record.job(), /*fastest_so_far=*/false});
    if (latest.size() < views::kMostPredicted) latest.push_back(record);
    improve(record, &best);
    if (record.origin() == "default") improve(record, &untuned);
    return !Interrupted();
  }));
  std::reverse(trials.begin(), trials.end());
  std::reverse(latest.begin(), latest.end());
  details.workload = place.task().info().workload();
  details.predicted = PredictedOf(latest);
  for (const views::Trial& trial : trials) medians.push_back(trial.median_ns);
  details.all_trials = static_cast<int64_t>(trials.size());
  details.older_left_out = read == kMostTrials;
  for (const ChosenTrial& chosen : ChooseTrials(medians, kTrialsShown)) {
    views::Trial trial = trials[chosen.index];
    trial.number = static_cast<int64_t>(chosen.index) + 1;
    trial.fastest_so_far = chosen.fastest_so_far;
    details.trials.push_back(std::move(trial));
  }
  details.best_trace = best.trace();
  details.best_ns = best.median_ns();
  const v1::Evidence& evidence = best.measurement().evidence();
  details.limits = {evidence.peak_gflops(), evidence.memory_gbps()};
  details.default_trace = untuned.trace();
  details.default_ns = untuned.median_ns();
  details.best_loops = LoopsOf(details.workload, details.best_trace);
  details.default_loops = LoopsOf(details.workload, details.default_trace);
  return details;
}

}  // namespace

int ReportJob(const GlobalOptions& global, const std::string& id, const std::string& output,
              bool assembly) {
  const ServiceClient client(global.server);
  absl::StatusOr<v1::Job> job = client.GetJob(id);
  if (!job.ok()) return Fail(job.status());
  absl::StatusOr<v1::Timeline> timeline = client.GetTimeline(id);
  if (!timeline.ok()) return Fail(timeline.status());
  views::JobDetails details;
  details.job = *job;
  details.links = false;
  details.now_unix_ns = absl::GetCurrentTimeNanos();
  std::optional<JobCode> code;
  if (assembly) {
    absl::StatusOr<JobCode> fetched = JobCode::Fetch(client, id);
    if (!fetched.ok()) return Fail(fetched.status());
    code = *std::move(fetched);
  }
  for (v1::StageSpan& span : *timeline->mutable_spans()) details.spans.push_back(std::move(span));
  views::Html content = views::JobPage(details);
  int shown = 0;
  for (int i = 0; i < job->tasks_size(); ++i) {
    if (job->tasks(i).info().weight() == 0 || ++shown > kMostTasks) continue;
    absl::StatusOr<views::TaskDetails> task = TaskOf(client, *job, i);
    if (Interrupted()) return kInterrupted;
    if (!task.ok()) return Fail(task.status());
    if (code) {
      absl::StatusOr<KernelListing> listing = code->Of(job->tasks(i).info().key());
      task->kernel_missing = std::string(listing.status().message());
      if (listing.ok()) {
        task->kernel_schedule = listing->schedule;
        task->kernel = std::move(listing->lines);
      }
    }
    content += views::TaskPage(*task);
  }
  if (shown > kMostTasks) {
    content += views::Element(
        "p", views::Text(fmt::format("showing charts of {} of {} tasks", kMostTasks, shown)));
  }
  const std::string document =
      views::Document({.title = fmt::format("{} {}", id, job->spec().name()),
                       .path = {},
                       .caller = {},
                       .content = std::move(content)});
  if (const absl::Status status = WriteFile(output, document); !status.ok()) return Fail(status);
  fmt::print(stderr, "{} of {} and {} of its tasks\n",
             FormatBytes(static_cast<int64_t>(document.size())), id, std::min(shown, kMostTasks));
  return kDone;
}

}  // namespace heddle::client
