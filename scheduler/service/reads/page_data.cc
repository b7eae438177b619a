#include "scheduler/service/reads/page_data.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "proto/access/access_table.h"
#include "proto/grpc_util.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kTrackerLimit = absl::Seconds(1);
constexpr std::string_view kListJobs = "heddle.v1.JobService/ListJobs";
constexpr std::string_view kQueryRecords = "heddle.v1.RecordService/QueryRecords";
// A simulation asks for the latest stages of all jobs, and the latest records of so many jobs.
constexpr int64_t kStagesAsked = 2000;
constexpr size_t kJobsAsked = 100;
constexpr int64_t kRecordsAsked = 64;
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

PageData::PageData(SchedulerLoop* loop, RecordStore* store, AuditLog* audit,
                   WhatIfSimulator simulator)
    : loop_(loop), store_(store), audit_(audit) {
  if (simulator != nullptr) {
    what_if_ = std::make_unique<WhatIfKeeper>([this] { return Question(); }, std::move(simulator));
  }
}

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

absl::StatusOr<std::vector<DevicePair>> PageData::CompareDevices(const Identity& caller,
                                                                 const std::string& device_a,
                                                                 const std::string& device_b,
                                                                 int64_t limit) {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kQueryRecords));  // measurements are shared
  return store_->CompareDevices(device_a, device_b, limit);
}

absl::StatusOr<WhatIfQuestion> PageData::Question() {
  WhatIfQuestion question;
  question.unfinished = loop_->jobs().Unfinished();
  question.policy = loop_->policy();
  question.now_unix_ns = absl::GetCurrentTimeNanos();
  HEDDLE_ASSIGN_OR_RETURN(question.machines, ListWorkers());
  HEDDLE_ASSIGN_OR_RETURN(question.stages, store_->LatestStages(0, kStagesAsked));
  size_t jobs = 0;
  for (const std::shared_ptr<const v1::Job>& job : question.unfinished) {
    if (++jobs > kJobsAsked) break;
    v1::RecordQuery query;
    query.set_job(job->id());
    HEDDLE_ASSIGN_OR_RETURN(RecordPage page, store_->QueryPage(query, std::nullopt, kRecordsAsked));
    for (v1::Record& record : page.records) question.records.push_back(std::move(record));
  }
  return question;
}

absl::StatusOr<std::shared_ptr<const views::WhatIf>> PageData::WhatIf(const Identity& caller) {
  if (what_if_ == nullptr) return absl::UnimplementedError("this scheduler cannot simulate");
  const std::shared_ptr<const views::WhatIf> latest = what_if_->Latest();
  if (latest == nullptr || MayUse(caller, kListJobs, /*tenant=*/"")) return latest;
  auto shown = std::make_shared<views::WhatIf>(*latest);
  std::erase_if(shown->jobs, [&](const views::WhatIf::Job& job) {
    return !MayUse(caller, kListJobs, job.user);
  });
  return std::shared_ptr<const views::WhatIf>(std::move(shown));
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
