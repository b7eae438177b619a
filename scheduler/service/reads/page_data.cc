#include "scheduler/service/reads/page_data.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "proto/access/access_table.h"
#include "proto/check_message.h"
#include "proto/grpc_util.h"
#include "scheduler/page/methods.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kTrackerLimit = absl::Seconds(1);
// A simulation asks for the latest stages of all jobs, and the latest records of so many jobs.
constexpr int64_t kStagesAsked = 2000;
constexpr size_t kJobsAsked = 100;
constexpr int64_t kRecordsAsked = 64;
constexpr int64_t kLateNs = 1'000'000'000;  // that a clock may be set back by at once
constexpr int64_t kMostWorkloads = 10'000;  // that are looked at to compare two devices
constexpr int kReadAhead = 100;             // jobs

// A person's name, for others to see.
std::string NameOf(const Identity& caller) {
  return caller.role == Role::kLocal ? "local" : caller.name;
}

absl::Status Perform(SchedulerLoop* loop, const std::string& job, const PageSource::Order& order) {
  using Action = SchedulerLoop::Action;
  switch (order.what.action) {
    case JobAction::kPause:
      return loop->Act(Action::kPause, job, order.reason).status();
    case JobAction::kResume:
      return loop->Act(Action::kResume, job, order.reason).status();
    case JobAction::kPrioritize:
      return loop->SetPriority(job, order.priority).status();
    case JobAction::kCancel:
      break;
  }
  return loop->Act(Action::kCancel, job, order.reason).status();
}

}  // namespace

PageData::PageData(SchedulerLoop* loop, RecordStore* store, const Actions& actions,
                   WhatIfSimulator simulator)
    : loop_(loop),
      store_(store),
      actions_(actions),
      comparisons_([this](const std::string& a, const std::string& b) { return Compare(a, b); }),
      job_stages_({.read =
                       [this](const std::string& job, int64_t since_unix_ns) {
                         return store_->Timeline(ParseJobName(job), since_unix_ns, kMaxSpans);
                       },
                   .place = [](const v1::StageSpan& span) { return span.start_unix_ns(); },
                   .late = kLateNs,
                   .most = kMaxSpans}),
      latest_stages_({.read =
                          [this](const std::string&, int64_t first_attempt) {
                            return store_->LatestStages(first_attempt, kLatestStages);
                          },
                      .place = [](const v1::StageSpan& span) { return span.attempt_id(); },
                      // A stage is stored when it has its lease, perhaps long after later ones.
                      .first_open = [this] { return loop_->FirstOpenAttempt(); },
                      .most = kLatestStages}) {
  if (simulator != nullptr) {
    what_if_ = std::make_unique<WhatIfKeeper>([this] { return Question(); }, std::move(simulator));
  }
}

void PageData::ReadAhead() {
  read_ahead_ = std::thread([this] {
    // One by one, so that this can end between two.
    JobSnapshots::ListOptions next{
        .finished_too = true, .max_jobs = 1, .shown = [](const std::string&) { return true; }};
    for (int i = 0; i < kReadAhead && !stop_; ++i) {
      const absl::StatusOr<JobSnapshots::Page> page = loop_->jobs().List(next);
      if (!page.ok() || page->jobs.empty()) return;
      next.before = JobId{ParseJobName(page->jobs.front()->id())};
    }
  });
}

PageData::~PageData() {
  stop_ = true;
  if (read_ahead_.joinable()) read_ahead_.join();
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
  HEDDLE_RETURN_IF_ERROR(ReadsOf(caller).CheckJob(kGetTimeline, job));
  HEDDLE_ASSIGN_OR_RETURN(std::vector<v1::StageSpan> spans, job_stages_.Latest(job));
  v1::Timeline timeline;
  for (v1::StageSpan& span : spans) *timeline.add_spans() = std::move(span);
  timeline.set_policy(loop_->policy());
  return timeline;
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
                                                                  int64_t since_unix_ns) {
  HEDDLE_ASSIGN_OR_RETURN(std::vector<v1::StageSpan> spans, latest_stages_.Latest(""));
  std::erase_if(spans, [&](const v1::StageSpan& span) {
    return span.end_unix_ns() != 0 && span.end_unix_ns() <= since_unix_ns;
  });
  return ReadsOf(caller).NoOthers(std::move(spans));
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

absl::StatusOr<std::shared_ptr<const PageSource::DeviceTable>> PageData::CompareDevices(
    const Identity& caller, const std::string& device_a, const std::string& device_b) {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kQueryRecords));  // measurements are shared
  return comparisons_.Find(device_a, device_b);
}

DeviceComparisons::Answer PageData::Compare(const std::string& device_a,
                                            const std::string& device_b) {
  auto table = std::make_shared<DeviceTable>();
  HEDDLE_ASSIGN_OR_RETURN(table->pairs, store_->CompareDevices(device_a, device_b, kMostWorkloads));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<WorkloadName> tasks,
                          store_->FindWorkloads("", "", kMostWorkloads + 1));
  if (static_cast<int64_t>(tasks.size()) > kMostWorkloads) table->looked_at = kMostWorkloads;
  return std::shared_ptr<const DeviceTable>(std::move(table));
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

absl::Status PageData::Allow(const Identity& caller, std::string_view method) const {
  const absl::Status status = CheckMethod(caller, method);
  if (!status.ok() && actions_.audit != nullptr) actions_.audit->Refused(caller, method, status);
  return status;
}

absl::Status PageData::Tell(const Identity& caller, std::string_view method, const std::string& job,
                            const absl::Status& status, const std::string& detail) const {
  if (actions_.audit != nullptr) actions_.audit->Call(caller, method, job, ToGrpc(status), detail);
  return status;
}

absl::Status PageData::Act(const Identity& caller, const std::string& job, const Order& order) {
  const std::string_view method = order.what.method;
  HEDDLE_RETURN_IF_ERROR(Allow(caller, method));
  absl::Status status = ReadsOf(caller).CheckJob(method, job);
  if (status.ok()) status = Perform(loop_, job, order);
  return Tell(
      caller, method, job, status,
      order.what.action == JobAction::kPrioritize ? absl::StrCat("priority ", order.priority) : "");
}

// Tells the audit log of its end, however it ends.
class PageData::FormSubmission final : public PageSource::Submission {
 public:
  FormSubmission(const PageData* data, Identity caller, v1::JobSpec spec, std::string submit_key,
                 std::shared_ptr<void> place, std::unique_ptr<BlobStore::Writer> blob)
      : data_(data),
        caller_(std::move(caller)),
        spec_(std::move(spec)),
        submit_key_(std::move(submit_key)),
        place_(std::move(place)),
        upload_(data->actions_.intake->uploads(), caller_.tenant),
        blob_(std::move(blob)) {}
  ~FormSubmission() override {
    if (blob_ != nullptr)
      Tell("", failed_.ok() ? absl::CancelledError("the form ended early") : failed_);
  }
  absl::Status Append(std::string_view bytes) override {
    const auto size = static_cast<int64_t>(bytes.size());
    failed_ = data_->actions_.intake->CheckRoom(blob_->size_bytes() + size);
    if (failed_.ok()) failed_ = upload_.Grow(size);
    if (failed_.ok()) failed_ = blob_->Append(bytes);
    return failed_;
  }
  absl::StatusOr<std::string> Finish() override {
    const std::unique_ptr<BlobStore::Writer> blob = std::move(blob_);
    const absl::StatusOr<std::string> job = Submit(blob.get());
    Tell(job.ok() ? *job : "", job.status());
    return job;
  }

 private:
  absl::StatusOr<std::string> Submit(BlobStore::Writer* blob) {
    if (blob->size_bytes() == 0) return absl::InvalidArgumentError("the model is empty");
    ModelDigests model;
    HEDDLE_ASSIGN_OR_RETURN(model.file, blob->Commit(/*expected=*/""));
    upload_.Stored(model.file, blob->known());
    const absl::StatusOr<std::string> job = data_->loop_->Submit(spec_, model, submit_key_);
    if (job.ok())
      data_->actions_.intake->Submitted(caller_, place_ != nullptr, model, /*parts=*/{});
    return job;
  }
  void Tell(const std::string& job, const absl::Status& status) {
    (void)data_->Tell(caller_, kSubmit, job, status);
  }

  const PageData* const data_;
  const Identity caller_;
  const v1::JobSpec spec_;
  const std::string submit_key_;
  const std::shared_ptr<void> place_;
  UploadQuota::Upload upload_;
  std::unique_ptr<BlobStore::Writer> blob_;  // null: Finish was called
  absl::Status failed_;
};

absl::StatusOr<std::unique_ptr<PageSource::Submission>> PageData::BeginSubmit(
    const Identity& caller, const v1::JobSpec& spec, const std::string& submit_key) {
  HEDDLE_RETURN_IF_ERROR(Allow(caller, kSubmit));
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  request.set_submit_key(submit_key);
  const auto begin = [&]() -> absl::StatusOr<std::unique_ptr<Submission>> {
    HEDDLE_RETURN_IF_ERROR(CheckMessage(request));
    HEDDLE_ASSIGN_OR_RETURN(std::shared_ptr<void> place,
                            actions_.intake->Admit(caller, submit_key, request.mutable_spec()));
    HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<BlobStore::Writer> blob, actions_.blobs->NewWriter());
    return std::make_unique<FormSubmission>(this, caller, request.spec(), submit_key,
                                            std::move(place), std::move(blob));
  };
  absl::StatusOr<std::unique_ptr<Submission>> begun = begin();
  if (!begun.ok()) return Tell(caller, kSubmit, "", begun.status());
  return begun;
}

absl::Status PageData::Drain(const Identity& caller, const std::string& machine,
                             absl::Duration duration) {
  HEDDLE_RETURN_IF_ERROR(Allow(caller, kAcquire));
  return Tell(caller, kAcquire, "", actions_.drains->Begin(machine, NameOf(caller), duration),
              absl::StrCat(machine, " for ", absl::FormatDuration(duration)));
}

absl::Status PageData::Resume(const Identity& caller, const std::string& machine) {
  HEDDLE_RETURN_IF_ERROR(Allow(caller, kRelease));
  return Tell(caller, kRelease, "", actions_.drains->End(machine), machine);
}

}  // namespace heddle::scheduler
