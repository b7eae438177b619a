// `heddle report`: a job as one HTML file, with the contents of the scheduler's page.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "base/choose_trials.h"
#include "base/output_file.h"
#include "base/status_macros.h"
#include "client/commands/commands.h"
#include "client/views/explain.h"
#include "views/html.h"
#include "views/pages.h"

namespace heddle::client {
namespace {

constexpr int64_t kMostTrials = 100'000;  // that are read of a task: the newest
constexpr int64_t kTrialsShown = 300;     // of these, beside those that were the fastest so far
constexpr int kMostTasks = 100;  // with charts; the table of tasks has more (views/pages.cc)

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
  std::vector<v1::Record> records;
  HEDDLE_RETURN_IF_ERROR(client.QueryRecords(query, [&](const v1::Record& record) {
    if (record.measurement().outcome() != v1::OUTCOME_LOST) records.push_back(record);
    return !Interrupted();
  }));
  std::reverse(records.begin(), records.end());
  details.workload = place.task().info().workload();
  const size_t latest = std::min(records.size(), static_cast<size_t>(views::kMostPredicted));
  details.predicted = PredictedOf(absl::MakeConstSpan(records).last(latest));
  std::vector<double> medians;
  for (const v1::Record& record : records) medians.push_back(record.median_ns());
  details.all_trials = static_cast<int64_t>(records.size());
  const v1::Record* best = nullptr;
  const v1::Record* untuned = nullptr;
  for (const v1::Record& record : records) {
    if (record.origin() == "default" && record.median_ns() > 0 &&
        (untuned == nullptr || record.median_ns() < untuned->median_ns()))
      untuned = &record;
  }
  for (const ChosenTrial& chosen : ChooseTrials(medians, kTrialsShown)) {
    const v1::Record& record = records[chosen.index];
    details.trials.push_back({static_cast<int64_t>(chosen.index) + 1, record.created_unix_ns(),
                              record.median_ns(), record.origin(), record.job(),
                              chosen.fastest_so_far});
    if (chosen.fastest_so_far) best = &record;
  }
  if (best != nullptr) {
    details.best_trace = best->trace();
    details.best_ns = best->median_ns();
    const v1::Evidence& evidence = best->measurement().evidence();
    details.limits = {evidence.peak_gflops(), evidence.memory_gbps()};
  }
  if (untuned != nullptr) {
    details.default_trace = untuned->trace();
    details.default_ns = untuned->median_ns();
  }
  return details;
}

}  // namespace

int ReportJob(const GlobalOptions& global, const std::string& id, const std::string& output) {
  const ServiceClient client(global.server);
  absl::StatusOr<v1::Job> job = client.GetJob(id);
  if (!job.ok()) return Fail(job.status());
  absl::StatusOr<v1::Timeline> timeline = client.GetTimeline(id);
  if (!timeline.ok()) return Fail(timeline.status());
  views::JobDetails details;
  details.job = *job;
  details.links = false;
  details.now_unix_ns = absl::GetCurrentTimeNanos();
  for (v1::StageSpan& span : *timeline->mutable_spans()) details.spans.push_back(std::move(span));
  views::Html content = views::JobPage(details);
  int shown = 0;
  for (int i = 0; i < job->tasks_size(); ++i) {
    if (job->tasks(i).info().weight() == 0 || ++shown > kMostTasks) continue;
    const absl::StatusOr<views::TaskDetails> task = TaskOf(client, *job, i);
    if (Interrupted()) return kInterrupted;
    if (!task.ok()) return Fail(task.status());
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
