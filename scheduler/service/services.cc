#include "scheduler/service/services.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "proto/access/access_table.h"
#include "proto/access/listener.h"
#include "proto/check_message.h"
#include "proto/chunks.h"
#include "proto/grpc_util.h"
#include "proto/job_states.h"
#include "proto/message_rules.h"
#include "scheduler/service/reads/caller_reads.h"
#include "scheduler/service/storage/stored_parts.h"

namespace heddle::scheduler {
namespace {

// What lists and watchers get: a plan is long and never changes while they look.
v1::Job WithoutPlan(v1::Job job) {
  job.clear_plan();
  job.clear_estimated_plan();
  job.clear_machine();
  return job;
}

// The job with only those tasks that changed after `version`; with all, if it was dropped since (JobSnapshots.Drop).
v1::Job ChangesSince(int64_t version, const JobSnapshots::Snapshot& snapshot) {
  v1::Job job = *snapshot.job;
  google::protobuf::RepeatedPtrField<v1::TaskStatus> tasks;
  tasks.Swap(job.mutable_tasks());
  for (int i = 0; i < tasks.size(); ++i) {
    if (snapshot.task_versions != nullptr && (*snapshot.task_versions)[i] <= version) continue;
    job.add_changed_tasks(i);
    *job.add_tasks() = std::move(tasks[i]);
  }
  return job;
}

constexpr absl::Duration kTrackerPatience = absl::Seconds(5);
constexpr absl::Duration kWatchInterval = absl::Milliseconds(100);
// A query reads so many records at a time, the next page when the peer's connection has taken the one before. Small pages take
// a millisecond or two to read; they are for the beginning of an answer (answer_pace.h), so that little is read for a peer
// that does not. The others are up to a few MiB and take some ten milliseconds.
constexpr int64_t kSmallPageRecords = 100, kPageRecords = 2000;
constexpr absl::Duration kLook = absl::Milliseconds(100);  // for a peer that has left
// So much a peer has to take in the time that CallLimits gives it, so that a slow line is none that stands still.
constexpr size_t kTakenAtATime = size_t{64} << 10;
// Of one upload: as many as a BlobList may name.
constexpr int kMaxBlobs = 32768;
constexpr size_t kImportGroup = 500;              // records in one transaction
constexpr size_t kImportBytes = size_t{8} << 20;  // likewise, about
// A group that takes longer is refused; the client imports it again.
constexpr absl::Duration kImportLimit = absl::Seconds(30);

// Whether the request holds what its fields may hold.
grpc::Status Check(const google::protobuf::Message& request) {
  return ToGrpc(CheckMessage(request));
}

// Who calls, for what is kept of it: its identity, or on this machine where the call comes from.
std::string CallerName(const grpc::ServerContext& context, const TokenFile* tokens) {
  const Identity caller = CallerOf(context, tokens);
  if (caller.role != Role::kLocal) return ToText(caller);
  const std::string peer = context.peer();  // "ipv4:127.0.0.1:54321", "unix:"
  return peer.starts_with("unix:") ? "local" : peer.substr(0, peer.rfind(':'));
}

// InvalidArgument, or the sum of the sizes.
absl::StatusOr<int64_t> BytesOfList(const v1::BlobList& list) {
  int64_t bytes = 0;
  for (const v1::BlobRef& blob : list.blobs()) {
    if (!IsDigest(blob.sha256()) || blob.bytes() < 0 || blob.bytes() > INT64_MAX - bytes)
      return absl::InvalidArgumentError("a blob has a malformed digest or an impossible size");
    bytes += blob.bytes();
  }
  return bytes;
}

// Waits; no longer than until the peer has left.
void Rest(const grpc::ServerContext& context, absl::Duration time) {
  const absl::Time end = MonotonicNow() + time;
  while (time > absl::ZeroDuration() && !context.IsCancelled()) {
    absl::SleepFor(std::min(time, kLook));
    time = end - MonotonicNow();
  }
}

// "heddle.v1.JobService/GetJob" for "GetJob".
std::string MethodName(std::string_view method) {
  return absl::StrCat(v1::JobService::service_full_name(), "/", std::string(method));
}

}  // namespace

grpc::Status JobServiceImpl::Submit(grpc::ServerContext* context,
                                    grpc::ServerReader<v1::SubmitRequest>* reader,
                                    v1::SubmitResponse* response) {
  CallLimits::Call call(calls_, CallLimits::kUploads, context, CallerOf(*context, tokens_));
  if (!call.ok()) return call.status();
  v1::SubmitRequest request;
  const auto read = [&] { return call.WithPeer([&] { return reader->Read(&request); }); };
  if (!read() || !request.has_spec()) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "the first message must be the job's spec"};
  }
  if (grpc::Status checked = Check(request); !checked.ok()) return checked;
  const Identity caller = CallerOf(*context, tokens_);
  v1::JobSpec spec = request.spec();
  const std::string submit_key = request.submit_key();
  const absl::StatusOr<std::shared_ptr<void>> place = intake_.Admit(caller, submit_key, &spec);
  if (!place.ok()) return ToGrpc(place.status());
  v1::BlobList parts;
  int64_t part_bytes = 0;
  bool has_chunk = read();
  if (has_chunk && request.has_parts()) {
    if (grpc::Status checked = Check(request); !checked.ok()) return checked;
    parts = request.parts();
    const absl::StatusOr<int64_t> bytes = BytesOfList(parts);
    if (!bytes.ok()) return ToGrpc(bytes.status());
    part_bytes = *bytes;
    has_chunk = read();
  }
  absl::StatusOr<std::unique_ptr<BlobStore::Writer>> blob = blobs_->NewWriter();
  if (!blob.ok()) return ToGrpc(blob.status());
  UploadQuota::Upload upload(intake_.uploads(), caller.tenant);
  bool complete = false;
  std::string expected;
  for (; has_chunk; has_chunk = !complete && read()) {
    if (!request.has_chunk())
      return {grpc::StatusCode::INVALID_ARGUMENT, "after the spec and the parts come chunks"};
    if (grpc::Status checked = Check(request); !checked.ok()) return checked;
    const v1::Chunk& chunk = request.chunk();
    if (grpc::Status room = CheckRoom(part_bytes + (*blob)->size_bytes() +
                                      static_cast<int64_t>(chunk.data().size()));
        !room.ok())
      return room;
    if (absl::Status grown = upload.Grow(static_cast<int64_t>(chunk.data().size())); !grown.ok())
      return ToGrpc(grown);
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
  upload.Stored(model.file, (*blob)->known());
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
  intake_.Submitted(caller, *place != nullptr, model, parts);
  response->set_job(*job);
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::CheckOwner(const grpc::ServerContext& context, std::string_view method,
                                        const std::string& job) const {
  return ToGrpc(ReadsOf(context).CheckJob(MethodName(method), job));
}

CallerReads JobServiceImpl::ReadsOf(const grpc::ServerContext& context) const {
  return {loop_, store_, CallerOf(context, tokens_), CallerName(context, tokens_)};
}

grpc::Status JobServiceImpl::CheckRoom(int64_t model_bytes) const {
  return ToGrpc(intake_.CheckRoom(model_bytes));
}

grpc::Status JobServiceImpl::FindMissingBlobs(grpc::ServerContext*, const v1::BlobList* request,
                                              v1::BlobList* response) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  const absl::StatusOr<int64_t> bytes = BytesOfList(*request);
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
                         missing_bytes >> 20, " MiB more: ", blobs_->FreeBytes() >> 20,
                         " are left, and the last ", kDiskReserveBytes >> 20,
                         " are kept for the database; free some space")};
  }
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::UploadBlobs(grpc::ServerContext* context,
                                         grpc::ServerReader<v1::Chunk>* reader,
                                         v1::BlobList* response) {
  CallLimits::Call call(calls_, CallLimits::kUploads, context, CallerOf(*context, tokens_));
  if (!call.ok()) return call.status();
  std::unique_ptr<BlobStore::Writer> blob;
  std::optional<UploadQuota::Upload> upload;  // of `blob`
  const std::string tenant = CallerOf(*context, tokens_).tenant;
  std::string name;
  int64_t total_bytes = 0;
  v1::Chunk chunk;
  while (!stopping_ && call.WithPeer([&] { return reader->Read(&chunk); })) {
    if (grpc::Status checked = Check(chunk); !checked.ok()) return checked;
    if (!IsDigest(chunk.name()) || (blob != nullptr && chunk.name() != name)) {
      return {grpc::StatusCode::INVALID_ARGUMENT,
              "blobs come one after the other, in chunks named by their digest"};
    }
    if (blob == nullptr) {
      if (response->blobs_size() == kMaxBlobs) {
        return {grpc::StatusCode::RESOURCE_EXHAUSTED,
                absl::StrCat("a call takes ", kMaxBlobs, " blobs; send the others by another one")};
      }
      absl::StatusOr<std::unique_ptr<BlobStore::Writer>> writer = blobs_->NewWriter();
      if (!writer.ok()) return ToGrpc(writer.status());
      blob = *std::move(writer);
      upload.emplace(intake_.uploads(), tenant);
      name = chunk.name();
    }
    total_bytes += static_cast<int64_t>(chunk.data().size());
    if (grpc::Status room = CheckRoom(total_bytes); !room.ok()) return room;
    if (absl::Status grown = upload->Grow(static_cast<int64_t>(chunk.data().size())); !grown.ok())
      return ToGrpc(grown);
    if (absl::Status status = blob->Append(chunk.data()); !status.ok()) return ToGrpc(status);
    if (!chunk.last()) continue;
    if (blob->size_bytes() == 0) return {grpc::StatusCode::INVALID_ARGUMENT, "a blob is empty"};
    if (!blobs_->Has(name, blob->size_bytes())) {  // if it is there, nothing has to be synced
      absl::StatusOr<std::string> digest = blob->Commit(name);
      if (!digest.ok()) return ToGrpc(digest.status());
      upload->Stored(name, blob->known());
    }
    v1::BlobRef& stored = *response->add_blobs();
    stored.set_bytes(blob->size_bytes());
    stored.set_sha256(name);
    blob.reset();
    upload.reset();
  }
  if (stopping_) return {grpc::StatusCode::UNAVAILABLE, "the scheduler is shutting down"};
  if (context->IsCancelled()) return grpc::Status::CANCELLED;
  if (blob != nullptr)
    return {grpc::StatusCode::DATA_LOSS, "a blob ended before its last chunk; submit again"};
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::ListJobs(grpc::ServerContext* context,
                                      const v1::ListJobsRequest* request,
                                      v1::ListJobsResponse* response) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  JobSnapshots::ListOptions options{.finished_too = request->all()};
  if (!request->before().empty()) options.before = JobId{ParseJobName(request->before())};
  if (options.before == JobId{}) {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            absl::StrCat("before: \"", request->before(), "\" is no job's name, such as j12")};
  }
  const absl::StatusOr<JobSnapshots::Page> page = ReadsOf(*context).ListJobs(options);
  if (!page.ok()) return ToGrpc(page.status());
  for (const std::shared_ptr<const v1::Job>& job : page->jobs)
    *response->add_jobs() = WithoutPlan(*job);
  response->set_more(page->more);
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                                    v1::Job* response) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  if (grpc::Status owner = CheckOwner(*context, "GetJob", request->job()); !owner.ok())
    return owner;
  absl::StatusOr<JobSnapshots::Snapshot> snapshot = loop_->jobs().Get(request->job());
  if (!snapshot.ok()) return ToGrpc(snapshot.status());
  *response = *snapshot->job;
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::WatchJob(grpc::ServerContext* context,
                                      const v1::WatchJobRequest* request,
                                      grpc::ServerWriter<v1::Job>* writer) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  if (grpc::Status owner = CheckOwner(*context, "WatchJob", request->job()); !owner.ok())
    return owner;
  CallLimits::Call call(calls_, CallLimits::kWatches, context, CallerOf(*context, tokens_));
  if (!call.ok()) return call.status();
  int64_t version = -1;
  while (!context->IsCancelled()) {
    if (stopping_)
      return {grpc::StatusCode::UNAVAILABLE, "the scheduler is shutting down; watch again"};
    if (!loop_->leads())
      return {grpc::StatusCode::UNAVAILABLE, "another scheduler may lead; watch again"};
    absl::StatusOr<JobSnapshots::Snapshot> snapshot =
        loop_->jobs().WaitForChange(request->job(), version, kWatchInterval * 2);
    if (!snapshot.ok()) return ToGrpc(snapshot.status());
    if (snapshot->version == version) continue;
    const v1::Job update = request->changes() && version >= 0
                               ? WithoutPlan(ChangesSince(version, *snapshot))
                               : WithoutPlan(*snapshot->job);
    version = snapshot->version;
    if (!call.WithPeer([&] { return writer->Write(update); })) return grpc::Status::CANCELLED;
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

grpc::Status JobServiceImpl::CancelJob(grpc::ServerContext* context,
                                       const v1::JobActionRequest* request, v1::Job* response) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  if (grpc::Status owner = CheckOwner(*context, "CancelJob", request->job()); !owner.ok())
    return owner;
  return Act(SchedulerLoop::Action::kCancel, *request, response);
}
grpc::Status JobServiceImpl::PauseJob(grpc::ServerContext* context,
                                      const v1::JobActionRequest* request, v1::Job* response) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  if (grpc::Status owner = CheckOwner(*context, "PauseJob", request->job()); !owner.ok())
    return owner;
  return Act(SchedulerLoop::Action::kPause, *request, response);
}
grpc::Status JobServiceImpl::ResumeJob(grpc::ServerContext* context,
                                       const v1::JobActionRequest* request, v1::Job* response) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  if (grpc::Status owner = CheckOwner(*context, "ResumeJob", request->job()); !owner.ok())
    return owner;
  return Act(SchedulerLoop::Action::kResume, *request, response);
}
grpc::Status JobServiceImpl::PrioritizeJob(grpc::ServerContext* context,
                                           const v1::PrioritizeJobRequest* request,
                                           v1::Job* response) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  if (grpc::Status owner = CheckOwner(*context, "PrioritizeJob", request->job()); !owner.ok())
    return owner;
  absl::StatusOr<std::shared_ptr<const v1::Job>> job =
      loop_->SetPriority(request->job(), request->priority());
  if (!job.ok()) return ToGrpc(job.status());
  *response = **job;
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::FetchModule(grpc::ServerContext* context,
                                         const v1::FetchModuleRequest* request,
                                         grpc::ServerWriter<v1::Chunk>* writer) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  if (grpc::Status owner = CheckOwner(*context, "FetchModule", request->job()); !owner.ok())
    return owner;
  CallLimits::Call call(calls_, CallLimits::kTransfers, context, CallerOf(*context, tokens_));
  if (!call.ok()) return call.status();
  absl::StatusOr<std::string> digest = loop_->Module(request->job(), request->choice(), [&] {
    return context->IsCancelled() || stopping_.load();
  });
  if (!digest.ok()) return ToGrpc(digest.status());
  absl::StatusOr<std::unique_ptr<BlobStore::Reader>> reader = blobs_->NewReader(*digest);
  if (!reader.ok()) return ToGrpc(reader.status());
  return ToGrpc(SendChunks(
      "module", *digest, [&](size_t limit) { return (*reader)->Next(limit); },
      [&](const v1::Chunk& chunk) { return call.WithPeer([&] { return writer->Write(chunk); }); }));
}

grpc::Status JobServiceImpl::GetTimeline(grpc::ServerContext* context,
                                         const v1::GetJobRequest* request, v1::Timeline* response) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  if (grpc::Status owner = CheckOwner(*context, "GetTimeline", request->job()); !owner.ok())
    return owner;
  loop_->Flush();  // stages that compiled a module on demand change no job
  absl::StatusOr<v1::Timeline> timeline = ReadsOf(*context).GetTimeline(request->job());
  if (!timeline.ok()) return ToGrpc(timeline.status());
  *response = *std::move(timeline);
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::ExplainTask(grpc::ServerContext* context,
                                         const v1::ExplainTaskRequest* request,
                                         v1::TaskExplanation* response) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  absl::StatusOr<v1::TaskExplanation> found =
      ReadsOf(*context).ExplainTask(request->job(), request->task());
  if (!found.ok()) return ToGrpc(found.status());
  *response = *std::move(found);
  return grpc::Status::OK;
}

grpc::Status JobServiceImpl::ListDevices(grpc::ServerContext* context,
                                         const v1::ListWorkersRequest* request,
                                         v1::ListWorkersResponse* response) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  absl::StatusOr<v1::ListWorkersResponse> found = ReadsOf(*context).ListWorkers(kTrackerPatience);
  if (!found.ok()) return ToGrpc(found.status());
  *response = *std::move(found);
  return grpc::Status::OK;
}

absl::StatusOr<RecordPage> RecordServiceImpl::ReadLater(const v1::RecordQuery& query,
                                                        const std::optional<RecordPlace>& after,
                                                        int64_t limit) {
  absl::StatusOr<RecordPage> page;
  absl::Notification read;
  later_pages_.Read([&](RecordStore* store) {
    page = store->QueryPage(query, after, limit);
    read.Notify();
  });
  read.WaitForNotification();
  return page;
}

grpc::Status RecordServiceImpl::QueryRecords(grpc::ServerContext* context,
                                             const v1::RecordQuery* request,
                                             grpc::ServerWriter<v1::Record>* writer) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  const Identity caller = CallerOf(*context, tokens_);
  std::optional<CallLimits::Call> call(std::in_place, calls_, CallLimits::kQueries, context,
                                       caller);
  if (!call->ok()) return call->status();
  CallerReads reads(loop_, store_, caller, CallerName(*context, tokens_));
  // Pages take no more memory however many there are.
  int64_t left = request->limit() > 0 ? request->limit() : QueryLimit(*request);
  std::optional<AnswerPace::Answer> answer;  // once it turns out to be long
  std::optional<RecordPlace> place;
  for (bool more = true; more;) {
    const int64_t page_records = answer && !answer->begins() ? kPageRecords : kSmallPageRecords;
    const auto later = [this](const auto&... what) { return ReadLater(what...); };
    absl::StatusOr<RecordPage> page = reads.QueryRecords(
        *request, place, std::min(left, page_records), place ? ReadPage(later) : nullptr);
    if (!page.ok()) return ToGrpc(page.status());
    left -= static_cast<int64_t>(page->records.size());
    more = page->last.has_value() && left > 0;
    if (!place) {
      // Long answers have places of their own, so that no short one waits for them. If there is none, the peer calls again;
      // that is why nothing was sent yet.
      if (more) call.emplace(calls_, CallLimits::kLongQueries, context, caller);
      if (!call->ok()) return call->status();
      if (more) answer.emplace(&pace_);
      // A message that may be buffered must not carry them: it would wait for them, and they for it.
      call->WithPeer([&] {
        writer->SendInitialMetadata();
        return true;
      });
    }
    int64_t page_bytes = 0;
    for (auto next = page->records.begin(); next != page->records.end();) {
      const auto write_some = [&] {
        size_t bytes = 0;
        while (next != page->records.end() && bytes < kTakenAtATime) {
          const v1::Record& record = *next++;
          // Small records gather until they fill a packet. None is kept back while the next page is read.
          grpc::WriteOptions options;
          if (!more || next != page->records.end()) options.set_buffer_hint();
          if (!writer->Write(record, options)) return false;
          bytes += record.ByteSizeLong();
        }
        page_bytes += static_cast<int64_t>(bytes);
        return true;
      };
      if (!call->WithPeer(write_some)) return grpc::Status::CANCELLED;
    }
    place = page->last;
    if (more) Rest(*context, answer->Take(page_bytes, MonotonicNow()));
    if (context->IsCancelled()) return grpc::Status::CANCELLED;  // pages may be empty
  }
  return grpc::Status::OK;
}

grpc::Status RecordServiceImpl::ImportRecords(grpc::ServerContext* context,
                                              grpc::ServerReader<v1::Record>* reader,
                                              v1::ImportRecordsResponse* response) {
  CallLimits::Call call(calls_, CallLimits::kUploads, context, CallerOf(*context, tokens_));
  if (!call.ok()) return call.status();
  auto refuse = [&](const std::string& why) {
    response->set_rejected(response->rejected() + 1);
    if (response->first_error().empty()) response->set_first_error(why);
  };
  const Identity identity = CallerOf(*context, tokens_);
  std::vector<v1::Record> group;
  size_t group_bytes = 0;
  // Known records take nothing of what the tenant may import.
  auto check = [&]() -> absl::Status {
    if (identity.role == Role::kOperator) return absl::OkStatus();
    const absl::Status status = imports_a_day_.Check(
        identity.tenant, static_cast<int64_t>(group_bytes), MonotonicNow(),
        absl::StrCat("imported ", imports_a_day_.a_day() >> 20, " MiB of records"));
    if (status.ok()) return status;
    return {status.code(),
            absl::StrCat(status.message(), " (", response->imported(),
                         " records of this call are imported, and known ones are skipped), or let "
                         "an operator import them")};
  };
  auto write = [&]() -> absl::Status {
    HEDDLE_RETURN_IF_ERROR(check());
    HEDDLE_ASSIGN_OR_RETURN(std::vector<absl::Status> results,
                            loop_->writer()->Import(group, kImportLimit));
    for (size_t i = 0; i < results.size(); ++i) {
      const absl::Status& result = results[i];
      if (result.ok()) {
        response->set_imported(response->imported() + 1);
        if (identity.role == Role::kOperator) continue;
        imports_a_day_.Take(identity.tenant, static_cast<int64_t>(group[i].ByteSizeLong()),
                            MonotonicNow());
      } else if (absl::IsAlreadyExists(result)) {
        response->set_skipped(response->skipped() + 1);
      } else {
        refuse(std::string(result.message()));
      }
    }
    group.clear();
    group_bytes = 0;
    return absl::OkStatus();
  };
  const std::string caller = CallerName(*context, tokens_);
  v1::Record record;
  int64_t number = 0;
  while (call.WithPeer([&] { return reader->Read(&record); })) {
    ++number;
    if (absl::Status status = CheckRecord(record); !status.ok()) {
      refuse(absl::StrCat("record ", number, ": ", status.message()));
      continue;
    }
    if (record.has_retraction()) {
      refuse(absl::StrCat("record ", number, ": it was retracted where it comes from: ",
                          record.retraction().reason()));
      continue;
    }
    record.set_imported_by(caller);
    record.mutable_measurement()->clear_loops();  // no worker of this service has seen them
    group.push_back(record);
    group_bytes += group.back().ByteSizeLong();
    if (group.size() < kImportGroup && group_bytes < kImportBytes) continue;
    if (absl::Status status = write(); !status.ok()) return ToGrpc(status);
  }
  if (absl::Status status = write(); !status.ok()) return ToGrpc(status);
  return grpc::Status::OK;
}

grpc::Status RecordServiceImpl::RetractRecords(grpc::ServerContext* context,
                                               const v1::RetractRecordsRequest* request,
                                               v1::RetractRecordsResponse* response) {
  if (grpc::Status checked = Check(*request); !checked.ok()) return checked;
  const v1::RecordQuery& query = request->query();
  if (request->reason().empty())
    return {grpc::StatusCode::INVALID_ARGUMENT, "say why the records do not hold (--reason)"};
  // An empty query would retract everything.
  if (query.id() == 0 && query.job().empty() && query.worker().empty() &&
      query.imported_by().empty() && query.workload_key().empty() && query.target().empty() &&
      query.device_key().empty()) {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            "say which records: by id, job, worker, who imported them, task, target or device"};
  }
  CallLimits::Call call(calls_, CallLimits::kLongQueries, context, CallerOf(*context, tokens_));
  if (!call.ok()) return call.status();
  v1::Retraction retraction;
  retraction.set_reason(request->reason());
  retraction.set_by(CallerName(*context, tokens_));
  retraction.set_unix_ns(absl::GetCurrentTimeNanos());
  const absl::StatusOr<int64_t> count = loop_->Retract(
      query, retraction, [this](const auto&... what) { return ReadLater(what...); },
      [context] { return context->IsCancelled(); });
  if (!count.ok()) return ToGrpc(count.status());
  response->set_retracted(*count);
  return grpc::Status::OK;
}

}  // namespace heddle::scheduler
