#include "scheduler/service/reads/page_data.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/access/access_table.h"
#include "proto/grpc_util.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kTrackerLimit = absl::Seconds(1);
constexpr std::string_view kListJobs = "heddle.v1.JobService/ListJobs";
constexpr std::string_view kGetJob = "heddle.v1.JobService/GetJob";

struct ActionOf {
  SchedulerLoop::Action action;
  std::string_view method;
};
ActionOf ActionFor(PageSource::Action action) {
  switch (action) {
    case PageSource::Action::kPause:
      return {SchedulerLoop::Action::kPause, "heddle.v1.JobService/PauseJob"};
    case PageSource::Action::kResume:
      return {SchedulerLoop::Action::kResume, "heddle.v1.JobService/ResumeJob"};
    case PageSource::Action::kCancel:
      break;
  }
  return {SchedulerLoop::Action::kCancel, "heddle.v1.JobService/CancelJob"};
}

}  // namespace

CallerReads PageData::ReadsOf(const Identity& caller) const {
  return {loop_, store_, caller, caller.role == Role::kLocal ? "local" : ToText(caller)};
}

PageSource::JobList PageData::Unfinished(const Identity& caller) {
  JobList jobs = loop_->jobs().Unfinished();
  std::erase_if(jobs, [&](const std::shared_ptr<const v1::Job>& job) {
    return !MayUse(caller, kListJobs, job->spec().user());
  });
  return jobs;
}

absl::StatusOr<PageSource::JobPart> PageData::ListJobs(const Identity& caller,
                                                       const std::string& before, size_t limit) {
  JobSnapshots::ListOptions options{.finished_too = true, .max_jobs = limit, .shown = nullptr};
  if (!before.empty()) options.before = JobId{ParseJobName(before)};
  if (options.before == JobId{})
    return absl::InvalidArgumentError(
        absl::StrCat("before: \"", before, "\" is no job's name, such as j12"));
  HEDDLE_ASSIGN_OR_RETURN(JobSnapshots::Page page, ReadsOf(caller).ListJobs(options));
  return JobPart{std::move(page.jobs), page.more};
}

absl::StatusOr<std::shared_ptr<const v1::Job>> PageData::GetJob(const Identity& caller,
                                                                const std::string& job) {
  HEDDLE_ASSIGN_OR_RETURN(JobSnapshots::Snapshot snapshot, ReadsOf(caller).GetJob(kGetJob, job));
  return std::move(snapshot.job);
}

absl::StatusOr<v1::Timeline> PageData::GetTimeline(const Identity& caller, const std::string& job) {
  return ReadsOf(caller).GetTimeline(job);
}

absl::StatusOr<std::string> PageData::DeviceOf(const Identity& caller, const std::string& job,
                                               int task) {
  return ReadsOf(caller).DeviceOf(job, task);
}

absl::StatusOr<TrialSample> PageData::SampleTrials(const Identity& caller, const WorkloadId& id,
                                                   int64_t most) {
  return ReadsOf(caller).SampleTrials(id, most);
}

absl::StatusOr<std::vector<v1::StageSpan>> PageData::LatestStages(const Identity& caller,
                                                                  int64_t since_unix_ns,
                                                                  int64_t limit) {
  return ReadsOf(caller).LatestStages(since_unix_ns, limit);
}

absl::StatusOr<RecordPage> PageData::QueryRecords(const Identity& caller,
                                                  const v1::RecordQuery& query,
                                                  const std::optional<RecordPlace>& after,
                                                  int64_t limit) {
  return ReadsOf(caller).QueryRecords(query, after, limit);
}

absl::StatusOr<std::vector<WorkloadName>> PageData::FindWorkloads(const std::string& text,
                                                                  const std::string& after,
                                                                  int64_t limit) {
  return store_->FindWorkloads(text, after, limit);
}

absl::StatusOr<v1::ListWorkersResponse> PageData::ListWorkers() {
  return ReadsOf(Identity{}).ListWorkers(kTrackerLimit);
}

absl::Status PageData::Act(const Identity& caller, Action action, const std::string& job,
                           const std::string& reason) {
  const auto [act, method] = ActionFor(action);
  absl::Status status = CheckMethod(caller, method);
  if (!status.ok()) {
    if (audit_ != nullptr) audit_->Refused(caller, method, status);
    return status;
  }
  status = ReadsOf(caller).GetJob(method, job).status();
  if (status.ok()) status = loop_->Act(act, job, reason).status();
  if (audit_ != nullptr) audit_->Call(caller, method, job, ToGrpc(status));
  return status;
}

}  // namespace heddle::scheduler
