#include "scheduler/service/services.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/strategies.h"
#include "proto/chunks.h"
#include "proto/grpc_util.h"
#include "proto/job_states.h"
#include "scheduler/service/permit.h"
#include "scheduler/service/stored_parts.h"

namespace heddle::scheduler {
namespace {

constexpr int64_t kDiskReserveBytes = int64_t{64} << 20;  // kept free for the database
// Most spans in one timeline answer, which must stay under the 4 MiB of a message.
constexpr int64_t kMaxSpans = 20'000;
// What lists and watchers get: a plan is long and never changes while they look.
v1::Job WithoutPlan(v1::Job job) {
  job.clear_plan();
  job.clear_estimated_plan();
  job.clear_machine();
  return job;
}

constexpr absl::Duration kWatchInterval = absl::Milliseconds(100);
constexpr size_t kImportGroup = 500;  // records in one transaction
// A group that takes longer is refused; the client imports it again.
constexpr absl::Duration kImportLimit = absl::Seconds(30);

constexpr size_t kMaxSubmitKey = 64;  // characters

// Most parts of a model. Their list then fits into a message.
constexpr int kMaxParts = 32768;

// InvalidArgument, or the sum of the sizes.
absl::StatusOr<int64_t> BytesOf(const v1::BlobList& list) {
  if (list.blobs_size() > kMaxParts) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", list.blobs_size(),
                                                   " parts; at most ", kMaxParts, " are allowed"));
  }
  int64_t bytes = 0;
  for (const v1::BlobRef& blob : list.blobs()) {
    if (!IsDigest(blob.sha256()) || blob.bytes() < 0 || blob.bytes() > INT64_MAX - bytes)
      return absl::InvalidArgumentError("a blob has a malformed digest or an impossible size");
    bytes += blob.bytes();
  }
  return bytes;
}

// Finds a task by number, key, label, or at least 4 characters that its key begins with.
// InvalidArgument if several match, NotFound if none does; both list the tasks.
absl::StatusOr<int> FindTask(const v1::Job& job, const std::string& wanted) {
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

grpc::Status JobServiceImpl::Submit(grpc::ServerContext* context,
                                    grpc::ServerReader<v1::SubmitRequest>* reader,
                                    v1::SubmitResponse* response) {
  Permit permit(&uploads_, limits_.max_uploads);
  if (!permit.free())
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many uploads at a time; try again"};
  v1::SubmitRequest request;
  if (!reader->Read(&request) || !request.has_spec()) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "the first message must be the job's spec"};
  }
  const v1::JobSpec spec = request.spec();
  const std::string submit_key = request.submit_key();
  if (submit_key.size() > kMaxSubmitKey) {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            absl::StrCat("submit_key has ", submit_key.size(), " characters; at most ",
                         kMaxSubmitKey, " are allowed")};
  }
  if (absl::StatusOr<JobParams> params = JobLedger::ParamsFrom(spec, MonotonicNow(), absl::Now());
      !params.ok())
    return ToGrpc(params.status());
  v1::BlobList parts;
  int64_t part_bytes = 0;
  bool has_chunk = reader->Read(&request);
  if (has_chunk && request.has_parts()) {
    parts = request.parts();
    const absl::StatusOr<int64_t> bytes = BytesOf(parts);
    if (!bytes.ok()) return ToGrpc(bytes.status());
    part_bytes = *bytes;
    has_chunk = reader->Read(&request);
  }
  absl::StatusOr<std::unique_ptr<BlobStore::Writer>> blob = blobs_->NewWriter();
  if (!blob.ok()) return ToGrpc(blob.status());
  bool complete = false;
  std::string expected;
  for (; has_chunk; has_chunk = !complete && reader->Read(&request)) {
    if (!request.has_chunk() || request.chunk().data().size() > kChunkBytes) {
      return {grpc::StatusCode::INVALID_ARGUMENT,
              "after the spec and the parts come chunks of at most 1 MiB"};
    }
    const v1::Chunk& chunk = request.chunk();
    if (grpc::Status room = CheckRoom(part_bytes + (*blob)->size_bytes() +
                                      static_cast<int64_t>(chunk.data().size()));
        !room.ok())
      return room;
    if (absl::Status status = (*blob)->Append(chunk.data()); !status.ok()) return ToGrpc(status);
    complete = chunk.last();
    expected = chunk.sha256();
  }
  if (context->IsCancelled()) return grpc::Status::CANCELLED;
  if (!complete)
    return {grpc::StatusCode::DATA_LOSS, "the model ended before its last chunk; submit again"};
  if ((*blob)->size_bytes() == 0) return {grpc::StatusCode::INVALID_ARGUMENT, "the model is empty"};
  ModelDigests model;
  absl::StatusOr<std::string> digest = (*blob)->Commit(expected);
  if (!digest.ok()) return ToGrpc(digest.status());
  model.file = *digest;
  if (!parts.blobs().empty()) {
    int missing = 0;
    for (const v1::BlobRef& part : parts.blobs())
      missing += !blobs_->Has(part.sha256(), part.bytes());
    if (missing > 0) {
      return {grpc::StatusCode::FAILED_PRECONDITION,
              absl::StrCat(missing, " of the model's ", parts.blobs_size(),
                           " parts are not stored here; submit again")};
    }
    digest = StoreParts(parts, blobs_);
    if (!digest.ok()) return ToGrpc(digest.status());
    model.parts = *digest;
  }
  absl::StatusOr<std::string> job = loop_->Submit(spec, model, submit_key);
  if (!job.ok()) return ToGrpc(job.status());
  response->set_job(*job);
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::CheckRoom(int64_t model_bytes) const {
  if (model_bytes > limits_.max_model_bytes) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            absl::StrCat("the model is over this service's limit of ",
                         limits_.max_model_bytes >> 20, " MiB (heddle-scheduler --max-model-mib)")};
  }
  if (blobs_->FreeBytes() < kDiskReserveBytes) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            "the disk of the scheduler's data directory is full; free some space"};
  }
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::FindMissingBlobs(grpc::ServerContext*, const v1::BlobList* request,
                                              v1::BlobList* response) {
  const absl::StatusOr<int64_t> bytes = BytesOf(*request);
  if (!bytes.ok()) return ToGrpc(bytes.status());
  if (grpc::Status room = CheckRoom(*bytes); !room.ok()) return room;
  int64_t missing_bytes = 0;
  for (const v1::BlobRef& blob : request->blobs()) {
    if (blobs_->Has(blob.sha256(), blob.bytes())) continue;
    *response->add_blobs() = blob;
    missing_bytes += blob.bytes();
  }
  if (missing_bytes + kDiskReserveBytes > blobs_->FreeBytes()) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            absl::StrCat("the disk of the scheduler's data directory has no room for ",
                         missing_bytes >> 20, " MiB more; free some space")};
  }
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::UploadBlobs(grpc::ServerContext* context,
                                         grpc::ServerReader<v1::Chunk>* reader,
                                         v1::BlobList* response) {
  Permit permit(&uploads_, limits_.max_uploads);
  if (!permit.free())
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many uploads at a time; try again"};
  std::unique_ptr<BlobStore::Writer> blob;
  std::string name;
  int64_t total_bytes = 0;
  v1::Chunk chunk;
  while (!stopping_ && reader->Read(&chunk)) {
    if (chunk.data().size() > kChunkBytes || !IsDigest(chunk.name()) ||
        (blob != nullptr && chunk.name() != name)) {
      return {grpc::StatusCode::INVALID_ARGUMENT,
              "blobs come one after the other, in chunks of at most 1 MiB named by their digest"};
    }
    if (blob == nullptr) {
      absl::StatusOr<std::unique_ptr<BlobStore::Writer>> writer = blobs_->NewWriter();
      if (!writer.ok()) return ToGrpc(writer.status());
      blob = *std::move(writer);
      name = chunk.name();
    }
    total_bytes += static_cast<int64_t>(chunk.data().size());
    if (grpc::Status room = CheckRoom(total_bytes); !room.ok()) return room;
    if (absl::Status status = blob->Append(chunk.data()); !status.ok()) return ToGrpc(status);
    if (!chunk.last()) continue;
    v1::BlobRef& stored = *response->add_blobs();
    stored.set_bytes(blob->size_bytes());
    absl::StatusOr<std::string> digest = blob->Commit(name);
    if (!digest.ok()) return ToGrpc(digest.status());
    stored.set_sha256(*digest);
    blob.reset();
  }
  if (stopping_) return {grpc::StatusCode::UNAVAILABLE, "the scheduler is shutting down"};
  if (context->IsCancelled()) return grpc::Status::CANCELLED;
  if (blob != nullptr)
    return {grpc::StatusCode::DATA_LOSS, "a blob ended before its last chunk; submit again"};
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                      v1::ListJobsResponse* response) {
  // Drops the oldest jobs if the answer would come near the size limit of a message.
  constexpr size_t kMaxBytes = 3 << 20;
  const auto jobs = loop_->jobs().List(request->all(), kMaxBytes);
  if (!jobs.ok()) return ToGrpc(jobs.status());
  for (const std::shared_ptr<const v1::Job>& job : *jobs) *response->add_jobs() = WithoutPlan(*job);
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                    v1::Job* response) {
  absl::StatusOr<JobSnapshots::Snapshot> snapshot = loop_->jobs().Get(request->job());
  if (!snapshot.ok()) return ToGrpc(snapshot.status());
  *response = *snapshot->job;
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::WatchJob(grpc::ServerContext* context,
                                      const v1::GetJobRequest* request,
                                      grpc::ServerWriter<v1::Job>* writer) {
  Permit permit(&watchers_, limits_.max_watchers);
  if (!permit.free())
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            "too many watchers; ask with GetJob now and then"};
  int64_t version = -1;
  while (!context->IsCancelled()) {
    if (stopping_)
      return {grpc::StatusCode::UNAVAILABLE, "the scheduler is shutting down; watch again"};
    absl::StatusOr<JobSnapshots::Snapshot> snapshot =
        loop_->jobs().WaitForChange(request->job(), version, kWatchInterval * 2);
    if (!snapshot.ok()) return ToGrpc(snapshot.status());
    if (snapshot->version == version) continue;
    version = snapshot->version;
    if (!writer->Write(WithoutPlan(*snapshot->job))) return grpc::Status::CANCELLED;
    if (IsFinal(snapshot->job->state())) return grpc::Status::OK;
    absl::SleepFor(kWatchInterval);
  }
  return grpc::Status::CANCELLED;
}

grpc::Status JobServiceImpl::Act(SchedulerLoop::Action action, const v1::JobActionRequest& request,
                                 v1::Job* response) {
  absl::StatusOr<std::shared_ptr<const v1::Job>> job =
      loop_->Act(action, request.job(), request.reason());
  if (!job.ok()) return ToGrpc(job.status());
  *response = **job;
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::CancelJob(grpc::ServerContext*, const v1::JobActionRequest* request,
                                       v1::Job* response) {
  return Act(SchedulerLoop::Action::kCancel, *request, response);
}
grpc::Status JobServiceImpl::PauseJob(grpc::ServerContext*, const v1::JobActionRequest* request,
                                      v1::Job* response) {
  return Act(SchedulerLoop::Action::kPause, *request, response);
}
grpc::Status JobServiceImpl::ResumeJob(grpc::ServerContext*, const v1::JobActionRequest* request,
                                       v1::Job* response) {
  return Act(SchedulerLoop::Action::kResume, *request, response);
}

grpc::Status JobServiceImpl::FetchModule(grpc::ServerContext* context,
                                         const v1::FetchModuleRequest* request,
                                         grpc::ServerWriter<v1::Chunk>* writer) {
  Permit permit(&watchers_, limits_.max_watchers);
  if (!permit.free())
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls at a time; try again"};
  absl::StatusOr<std::string> digest = loop_->Module(request->job(), request->choice(), [&] {
    return context->IsCancelled() || stopping_.load();
  });
  if (!digest.ok()) return ToGrpc(digest.status());
  absl::StatusOr<std::unique_ptr<BlobStore::Reader>> reader = blobs_->NewReader(*digest);
  if (!reader.ok()) return ToGrpc(reader.status());
  return ToGrpc(SendChunks(
      "module", *digest, [&](size_t limit) { return (*reader)->Next(limit); },
      [&](const v1::Chunk& chunk) { return writer->Write(chunk); }));
}

grpc::Status JobServiceImpl::GetTimeline(grpc::ServerContext*, const v1::GetJobRequest* request,
                                         v1::Timeline* response) {
  if (absl::StatusOr<JobSnapshots::Snapshot> snapshot = loop_->jobs().Get(request->job());
      !snapshot.ok()) {
    return ToGrpc(snapshot.status());
  }
  loop_->Flush();  // stages that compiled a module on demand change no job
  absl::StatusOr<std::vector<v1::StageSpan>> spans =
      store_->Timeline(ParseJobName(request->job()), kMaxSpans);
  if (!spans.ok()) return ToGrpc(spans.status());
  for (v1::StageSpan& span : *spans) *response->add_spans() = std::move(span);
  response->set_policy(loop_->policy());
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::ExplainTask(grpc::ServerContext*,
                                         const v1::ExplainTaskRequest* request,
                                         v1::TaskExplanation* response) {
  absl::StatusOr<JobSnapshots::Snapshot> snapshot = loop_->jobs().Get(request->job());
  if (!snapshot.ok()) return ToGrpc(snapshot.status());
  absl::StatusOr<int> index = FindTask(*snapshot->job, request->task());
  if (!index.ok()) return ToGrpc(index.status());
  absl::StatusOr<std::optional<v1::SearchReport>> report =
      store_->Report(ParseJobName(request->job()), *index);
  if (!report.ok()) return ToGrpc(report.status());
  *response->mutable_task() = snapshot->job->tasks(*index);
  response->set_target(snapshot->job->spec().target());
  response->set_device_key(snapshot->job->spec().device_key());
  // The job's own records say where it measured. A job that reused all records has none of its own.
  v1::RecordQuery query;
  query.set_workload_key(response->task().info().key());
  query.set_target(response->target());
  query.set_job(request->job());
  query.set_limit(1);
  query.set_with_workload(true);
  absl::StatusOr<std::vector<v1::Record>> records = store_->Query(query);
  if (records.ok() && records->empty()) {
    query.clear_job();
    query.set_device_key(response->device_key());
    records = store_->Query(query);
  }
  if (!records.ok()) return ToGrpc(records.status());
  if (!records->empty()) {
    response->set_device_key(records->front().device_key());
    response->mutable_task()->mutable_info()->set_workload(records->front().workload());
  }
  if (*report) *response->mutable_search() = **std::move(report);
  const auto models = store_->AllTransferModels();
  if (!models.ok()) return ToGrpc(models.status());
  const auto model = models->find({response->target(), response->device_key(),
                                   StrategyOrDefault(snapshot->job->spec().strategy())});
  if (model != models->end()) {
    *response->mutable_transfer_model() = model->second;
    response->mutable_transfer_model()->clear_model();
  }
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::ListDevices(grpc::ServerContext*,
                                         const v1::ListWorkersRequest* request,
                                         v1::ListWorkersResponse* response) {
  grpc::ClientContext context;
  SetDeadline(&context, absl::Seconds(5));
  return loop_->tracker()->ListWorkers(&context, *request, response);
}

grpc::Status RecordServiceImpl::QueryRecords(grpc::ServerContext*, const v1::RecordQuery* request,
                                             grpc::ServerWriter<v1::Record>* writer) {
  absl::StatusOr<std::vector<v1::Record>> records = store_->Query(*request);
  if (!records.ok()) return ToGrpc(records.status());
  for (const v1::Record& record : *records) {
    if (!writer->Write(record)) return grpc::Status::CANCELLED;
  }
  return grpc::Status::OK;
}

grpc::Status RecordServiceImpl::ImportRecords(grpc::ServerContext*,
                                              grpc::ServerReader<v1::Record>* reader,
                                              v1::ImportRecordsResponse* response) {
  auto refuse = [&](const std::string& why) {
    response->set_rejected(response->rejected() + 1);
    if (response->first_error().empty()) response->set_first_error(why);
  };
  std::vector<v1::Record> group;
  auto write = [&]() -> absl::Status {
    HEDDLE_ASSIGN_OR_RETURN(std::vector<absl::Status> results,
                            loop_->writer()->Import(group, kImportLimit));
    for (const absl::Status& result : results) {
      if (result.ok()) {
        response->set_imported(response->imported() + 1);
      } else if (absl::IsAlreadyExists(result)) {
        response->set_skipped(response->skipped() + 1);
      } else {
        refuse(std::string(result.message()));
      }
    }
    group.clear();
    return absl::OkStatus();
  };
  v1::Record record;
  int64_t number = 0;
  while (reader->Read(&record)) {
    ++number;
    if (absl::Status status = CheckRecord(record); !status.ok()) {
      refuse(absl::StrCat("record ", number, ": ", status.message()));
      continue;
    }
    group.push_back(record);
    if (group.size() < kImportGroup) continue;
    if (absl::Status status = write(); !status.ok()) return ToGrpc(status);
  }
  if (absl::Status status = write(); !status.ok()) return ToGrpc(status);
  return grpc::Status::OK;
}

}  // namespace heddle::scheduler
