#include "scheduler/service/reads/caller_reads.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/vocabulary/strategies.h"
#include "proto/access/access_table.h"
#include "proto/grpc_util.h"
#include "scheduler/page/methods.h"

namespace heddle::scheduler {
namespace {

// Finds a task by number, key, label, or at least 4 characters that its key begins with.
// InvalidArgument if several match, NotFound if none does; both list the tasks.
absl::StatusOr<int> TaskNamed(const v1::Job& job, const std::string& wanted) {
  std::vector<int> found;
  std::string names;
  for (int i = 0; i < job.tasks_size(); ++i) {
    const v1::TaskInfo& info = job.tasks(i).info();
    if (wanted == absl::StrCat(i + 1) || wanted == info.key()) return i;
    if (info.label() == wanted || (wanted.size() >= 4 && info.key().starts_with(wanted)))
      found.push_back(i);
    absl::StrAppend(&names, i == 0 ? "" : ", ", i + 1, " ", info.label());
  }
  if (found.size() == 1) return found[0];
  if (found.empty())
    return absl::NotFoundError(
        absl::StrCat("job ", job.id(), " has no task \"", wanted, "\"; ",
                     names.empty() ? "it is not imported yet"
                                   : absl::StrCat("name it by its number, label, key or at least 4 "
                                                  "characters of that; it has ",
                                                  names)));
  return absl::InvalidArgumentError(
      absl::StrCat(found.size(), " tasks are \"", wanted, "\"; take a number: ", names));
}

}  // namespace

absl::Status CallerReads::CheckJob(std::string_view method, const std::string& job) const {
  HEDDLE_ASSIGN_OR_RETURN(const std::string owner, loop_->jobs().Owner(job));
  if (!MayUse(caller_, method, owner)) return NoSuchJob(job);  // as if there were none
  return absl::OkStatus();
}

absl::StatusOr<JobSnapshots::Snapshot> CallerReads::GetJob(std::string_view method,
                                                           const std::string& job) const {
  HEDDLE_RETURN_IF_ERROR(CheckJob(method, job));
  return loop_->jobs().Get(job);
}

absl::StatusOr<JobSnapshots::Page> CallerReads::ListJobs(JobSnapshots::ListOptions options) const {
  options.shown = [this](const std::string& user) { return MayUse(caller_, kListJobs, user); };
  return loop_->jobs().List(options);
}

absl::StatusOr<v1::Timeline> CallerReads::GetTimeline(const std::string& job) const {
  HEDDLE_RETURN_IF_ERROR(CheckJob(kGetTimeline, job));
  HEDDLE_ASSIGN_OR_RETURN(std::vector<v1::StageSpan> spans,
                          store_->Timeline(ParseJobName(job), 0, kMaxSpans));
  v1::Timeline timeline;
  for (v1::StageSpan& span : spans) *timeline.add_spans() = std::move(span);
  timeline.set_policy(loop_->policy());
  return timeline;
}

absl::StatusOr<v1::TaskExplanation> CallerReads::FindTask(const std::string& job,
                                                          const std::string& task) const {
  HEDDLE_ASSIGN_OR_RETURN(JobSnapshots::Snapshot snapshot, GetJob(kExplainTask, job));
  HEDDLE_ASSIGN_OR_RETURN(FoundTask found, FindTask(std::move(snapshot), task));
  return std::move(found.explanation);
}

absl::StatusOr<CallerReads::FoundTask> CallerReads::FindTask(JobSnapshots::Snapshot snapshot,
                                                             const std::string& task) const {
  HEDDLE_ASSIGN_OR_RETURN(const int index, TaskNamed(*snapshot.job, task));
  v1::TaskExplanation found;
  *found.mutable_task() = snapshot.job->tasks(index);
  found.set_target(snapshot.job->spec().target());
  found.set_device_key(snapshot.job->spec().device_key());
  // The job's own records say where it measured. A job that reused all records has none of its own.
  v1::RecordQuery query;
  query.set_workload_key(found.task().info().key());
  query.set_target(found.target());
  query.set_job(snapshot.job->id());
  query.set_limit(1);
  query.set_with_workload(true);
  HEDDLE_ASSIGN_OR_RETURN(std::vector<v1::Record> records, store_->Query(query));
  if (records.empty()) {
    query.clear_job();
    query.set_device_key(found.device_key());
    HEDDLE_ASSIGN_OR_RETURN(records, store_->Query(query));
  }
  if (!records.empty()) {
    found.set_device_key(records.front().device_key());
    found.mutable_task()->mutable_info()->set_workload(records.front().workload());
  }
  return FoundTask{std::move(found), std::move(snapshot), index};
}

absl::StatusOr<std::string> CallerReads::DeviceOf(const std::string& job, int task) const {
  HEDDLE_ASSIGN_OR_RETURN(JobSnapshots::Snapshot snapshot, GetJob(kExplainTask, job));
  const std::string number = absl::StrCat(task);
  HEDDLE_ASSIGN_OR_RETURN(const int index, TaskNamed(*snapshot.job, number));
  const v1::JobSpec& spec = snapshot.job->spec();
  if (!spec.device_key().empty()) return spec.device_key();
  v1::RecordQuery query;
  query.set_workload_key(snapshot.job->tasks(index).info().key());
  query.set_target(spec.target());
  query.set_best_only(true);  // one record for each device key
  HEDDLE_ASSIGN_OR_RETURN(const RecordPage devices,
                          store_->QueryPage(query, std::nullopt, /*limit=*/2));
  if (devices.records.size() == 1) return devices.records.front().device_key();
  HEDDLE_ASSIGN_OR_RETURN(const FoundTask found, FindTask(std::move(snapshot), number));
  return found.explanation.device_key();
}

absl::StatusOr<v1::TaskExplanation> CallerReads::ExplainTask(const std::string& job,
                                                             const std::string& task) const {
  HEDDLE_ASSIGN_OR_RETURN(JobSnapshots::Snapshot snapshot, GetJob(kExplainTask, job));
  HEDDLE_ASSIGN_OR_RETURN(FoundTask found, FindTask(std::move(snapshot), task));
  v1::TaskExplanation& explanation = found.explanation;
  HEDDLE_ASSIGN_OR_RETURN(std::optional<v1::SearchReport> report,
                          store_->Report(ParseJobName(job), found.index));
  if (report) *explanation.mutable_search() = *std::move(report);
  HEDDLE_ASSIGN_OR_RETURN(const auto models, store_->AllTransferModels());
  const auto model = models.find({explanation.target(), explanation.device_key(),
                                  StrategyOrDefault(found.snapshot.job->spec().strategy())});
  if (model != models.end()) {
    *explanation.mutable_transfer_model() = model->second;
    explanation.mutable_transfer_model()->clear_model();
  }
  return std::move(found.explanation);
}

absl::StatusOr<RecordPage> CallerReads::QueryRecords(const v1::RecordQuery& query,
                                                     const std::optional<RecordPlace>& after,
                                                     int64_t limit, const ReadPage& read) {
  // Measurements are shared, but which job made one is told only to those who may see the job.
  const bool sees_all = SeesAllRecords();
  const bool asks_for_others = !query.imported_by().empty() && query.imported_by() != name_;
  if (asks_for_others && !sees_all) return RecordPage();
  if (!query.job().empty() && !MaySee(query.job(), kQueryRecords)) return RecordPage();
  HEDDLE_ASSIGN_OR_RETURN(
      RecordPage page, read ? read(query, after, limit) : store_->QueryPage(query, after, limit));
  if (sees_all) return page;
  for (v1::Record& record : page.records) {
    // An imported record names a job of the service that it came from.
    const bool shows_job = record.imported_by().empty() ? MaySee(record.job(), kQueryRecords)
                                                        : record.imported_by() == name_;
    if (!record.job().empty() && !shows_job) {
      record.clear_job();
      record.clear_candidate();
      record.clear_attempt();
    }
    // Nor who of another tenant brought it or took it back.
    if (record.imported_by() != name_) record.clear_imported_by();
    if (record.has_retraction()) record.mutable_retraction()->clear_by();
  }
  return page;
}

absl::StatusOr<TrialSample> CallerReads::SampleTrials(const WorkloadId& id, int64_t most) {
  HEDDLE_ASSIGN_OR_RETURN(TrialSample sample, store_->SampleTrials(id, most));
  for (TrialPoint& point : sample.points) {
    if (!MaySee(point.job, kQueryRecords)) point.job.clear();
  }
  return sample;
}

std::vector<v1::StageSpan> CallerReads::NoOthers(std::vector<v1::StageSpan> spans) {
  for (v1::StageSpan& span : spans) {
    if (MaySee(span.job(), kGetTimeline)) continue;
    // That a slot was busy is no secret.
    span.clear_job();
    span.clear_task();
    span.clear_fault();
  }
  return spans;
}

absl::StatusOr<v1::ListWorkersResponse> CallerReads::ListWorkers(absl::Duration limit) const {
  grpc::ClientContext context;
  SetDeadline(&context, limit);
  v1::ListWorkersResponse response;
  absl::Status asked = FromGrpc(loop_->tracker()->ListWorkers(&context, {}, &response));
  if (absl::IsUnavailable(asked) || absl::IsDeadlineExceeded(asked)) {
    // gRPC's own text names neither the tracker nor what to do.
    asked = absl::Status(asked.code(),
                         absl::StrCat("the tracker at ", loop_->tracker_address(),
                                      " is not to be reached; is heddle-tracker running?"));
  }
  HEDDLE_RETURN_IF_ERROR(asked);
  return response;
}

bool CallerReads::SeesAllRecords() const { return MayUse(caller_, kQueryRecords, /*tenant=*/""); }

bool CallerReads::MaySee(const std::string& job, std::string_view method) {
  if (MayUse(caller_, method, /*tenant=*/"")) return true;
  const auto [entry, added] = may_see_.try_emplace(job);  // asked once for each
  if (added) {
    const absl::StatusOr<std::string> owner = loop_->jobs().Owner(job);
    entry->second = MayUse(caller_, method, owner.ok() ? *owner : "");
  }
  return entry->second;
}

}  // namespace heddle::scheduler
