#include "client/service_client.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "proto/access/channel.h"
#include "proto/chunks.h"
#include "proto/job_states.h"
#include "proto/jobs.grpc.pb.h"
#include "proto/store.grpc.pb.h"

namespace heddle::client {
namespace {

constexpr auto kUnaryLimit = std::chrono::seconds(30);
// A compile on demand may run for minutes before the first byte of the module arrives.
constexpr auto kTransferLimit = std::chrono::minutes(20);
constexpr auto kRecordsLimit = std::chrono::hours(12);  // tens of millions of records take an hour
// Bytes that a transfer is sure to make in a second; large ones get more time.
constexpr int64_t kSlowestBytesPerSecond = 2'000'000;

// How long a submission is sent again to a service that has become unavailable, and how often.
constexpr absl::Duration kSubmitPatience = absl::Seconds(30);
constexpr auto kSubmitPause = std::chrono::milliseconds(200);

// 128 random bits in hexadecimal.
std::string RandomKey() {
  std::random_device random;
  const auto word = [&random] { return absl::Hex(random(), absl::kZeroPad8); };
  return absl::StrCat(word(), word(), word(), word());
}

void LimitTime(grpc::ClientContext& context, std::chrono::milliseconds limit) {
  context.set_deadline(std::chrono::system_clock::now() + limit);
}

// Whether there is a connection, after an attempt to make one if need be.
bool Connects(grpc::Channel& channel) {
  const auto limit = std::chrono::system_clock::now() + kUnaryLimit;
  grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
  while (state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING) {
    if (!channel.WaitForStateChange(state, limit)) return false;
    state = channel.GetState(true);
  }
  return state == GRPC_CHANNEL_READY;
}

// Sends the part in chunks. Cancelled: the receiver ended the stream. DataLoss: the file is not what it
// was when its digest was computed.
absl::Status SendFilePart(const FilePart& part, ChunkSink sink) {
  const int file = open(part.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", part.path));
  const absl::Cleanup close_file = [file] { close(file); };
  const absl::Status changed =
      absl::DataLossError(absl::StrCat(part.path, " changed while it was sent; submit again"));
  Sha256 hash;
  int64_t done = 0;
  while (done < part.bytes) {
    std::string piece(std::min<size_t>(kChunkBytes, static_cast<size_t>(part.bytes - done)), '\0');
    const ssize_t got = pread(file, piece.data(), piece.size(), part.offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return changed;
    piece.resize(static_cast<size_t>(got));
    hash.Update(piece);
    done += got;
    v1::Chunk chunk;
    chunk.set_name(part.digest);
    chunk.set_data(std::move(piece));
    if (done == part.bytes) {
      if (hash.Hex() != part.digest) return changed;
      chunk.set_last(true);
      chunk.set_sha256(part.digest);
    }
    if (!sink(std::move(chunk))) return absl::CancelledError("the receiver ended the stream");
  }
  return absl::OkStatus();
}

}  // namespace

struct ServiceClient::Stubs {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::JobService::Stub> jobs;
  std::unique_ptr<v1::RecordService::Stub> records;
  std::unique_ptr<v1::StoreService::Stub> store;
};

ServiceClient::ServiceClient(const ServerAccess& server)
    : address_(server.address), stubs_(std::make_unique<Stubs>()) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // What the service refuses for want of a place is called again after a while, as it says
  // (grpc-retry-pushback-ms).
  args.SetServiceConfigJSON(
      R"({"methodConfig":[{"name":[{"service":"heddle.v1.JobService"},{"service":"heddle.v1.RecordService"}],)"
      R"("retryPolicy":{"maxAttempts":4,"initialBackoff":"0.2s","maxBackoff":"2s","backoffMultiplier":2,)"
      R"("retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]})");
  std::shared_ptr<grpc::ChannelCredentials> connection;  // null: every call fails at once
  const absl::StatusOr<Credentials> credentials =
      LoadCredentials(server.tls_directory, server.token_file);
  unusable_ = credentials.ok() ? CheckAddress(address_, *credentials) : credentials.status();
  if (unusable_.ok())
    connection = ChannelCredentialsFor(address_, PeerName(Role::kScheduler), *credentials, &args);
  stubs_->channel = grpc::CreateCustomChannel(address_, connection, args);
  stubs_->jobs = v1::JobService::NewStub(stubs_->channel);
  stubs_->records = v1::RecordService::NewStub(stubs_->channel);
  stubs_->store = v1::StoreService::NewStub(stubs_->channel);
}

ServiceClient::ServiceClient(const std::string& address)
    : ServiceClient(ServerAccess{address, "", ""}) {}

ServiceClient::~ServiceClient() = default;

absl::Status ServiceClient::Told(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  if (!unusable_.ok()) return unusable_;
  // A service that answers UNAVAILABLE gives the reason itself, such as a locked database. Only a
  // failed connection gets a message of ours.
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE &&
      stubs_->channel->GetState(false) != GRPC_CHANNEL_READY) {
    if (status.error_message().find("andshake") != std::string::npos) {
      return absl::UnavailableError(absl::StrCat(
          address_,
          " answers, but does not prove to be a scheduler of this lab, or does not take "
          "this certificate; --tls-dir must come from the same heddle-ca"));
    }
    return absl::UnavailableError(
        "no scheduler answers at " + address_ +
        " (start one with `heddle-scheduler --embedded`, or name another with --server)");
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

absl::Status ServiceClient::WaitUntilServing(absl::Duration timeout) const {
  const absl::Time deadline = absl::Now() + timeout;
  absl::Status last = absl::UnavailableError("no answer from " + address_);
  do {
    grpc::ClientContext context;
    LimitTime(context, std::chrono::milliseconds(std::max<int64_t>(
                           50, absl::ToInt64Milliseconds(deadline - absl::Now()))));
    context.set_wait_for_ready(timeout > absl::Seconds(1));
    v1::ListJobsResponse response;
    const grpc::Status status = stubs_->jobs->ListJobs(&context, {}, &response);
    if (status.ok()) return absl::OkStatus();
    last = Told(status);
    if (!unusable_.ok()) return last;
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      last = absl::UnavailableError("no scheduler answers at " + address_);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (absl::Now() < deadline);
  return last;
}

// Sends the parts that the service lacks.
absl::Status ServiceClient::SendParts(const std::vector<FilePart>& parts,
                                      const std::function<void(const Upload&)>& progress) const {
  v1::BlobList all, missing;
  std::map<std::string, const FilePart*> by_digest;
  for (const FilePart& part : parts) {
    v1::BlobRef& blob = *all.add_blobs();
    blob.set_sha256(part.digest);
    blob.set_bytes(part.bytes);
    by_digest[part.digest] = &part;
  }
  {
    grpc::ClientContext context;
    LimitTime(context, kUnaryLimit);
    const grpc::Status status = stubs_->jobs->FindMissingBlobs(&context, all, &missing);
    if (!status.ok()) return Told(status);
  }
  Upload upload;
  upload.parts = missing.blobs_size();
  for (const v1::BlobRef& blob : missing.blobs()) upload.bytes += blob.bytes();
  if (progress) progress(upload);
  if (upload.parts == 0) return absl::OkStatus();
  grpc::ClientContext context;
  LimitTime(context, kTransferLimit + std::chrono::seconds(upload.bytes / kSlowestBytesPerSecond));
  v1::BlobList stored;
  auto writer = stubs_->jobs->UploadBlobs(&context, &stored);
  absl::Status sent;
  for (const v1::BlobRef& blob : missing.blobs()) {
    const auto part = by_digest.find(blob.sha256());
    if (part == by_digest.end()) continue;
    sent = SendFilePart(*part->second, [&](v1::Chunk chunk) {
      upload.sent_bytes += static_cast<int64_t>(chunk.data().size());
      const bool open = writer->Write(chunk);
      if (progress) progress(upload);
      return open;
    });
    if (!sent.ok()) break;
  }
  if (sent.ok() || absl::IsCancelled(sent)) {  // a refusal ends the stream; Finish says why
    writer->WritesDone();
  } else {
    context.TryCancel();
  }
  const grpc::Status status = writer->Finish();
  if (!sent.ok() && !absl::IsCancelled(sent)) return sent;
  return Told(status);
}

absl::StatusOr<std::string> ServiceClient::Submit(
    const v1::JobSpec& spec, std::string_view model, const std::vector<FilePart>& parts,
    const std::function<void(const Upload&)>& progress) const {
  const std::string submit_key = RandomKey();
  const absl::Time limit = absl::Now() + kSubmitPatience;
  const bool reached = Connects(*stubs_->channel);
  while (true) {
    const absl::StatusOr<std::string> job = SubmitOnce(spec, model, parts, submit_key, progress);
    if (!absl::IsUnavailable(job.status()) || !reached || absl::Now() > limit) return job;
    // Waits for the connection if it is broken, and otherwise gives the service some time.
    stubs_->channel->WaitForConnected(std::chrono::system_clock::now() + kSubmitPause);
    std::this_thread::sleep_for(kSubmitPause);
  }
}

absl::StatusOr<std::string> ServiceClient::SubmitOnce(
    const v1::JobSpec& spec, std::string_view model, const std::vector<FilePart>& parts,
    const std::string& submit_key, const std::function<void(const Upload&)>& progress) const {
  if (!parts.empty()) {
    if (const absl::Status sent = SendParts(parts, progress); !sent.ok()) return sent;
  }
  grpc::ClientContext context;
  LimitTime(context, kTransferLimit);
  v1::SubmitResponse response;
  auto writer = stubs_->jobs->Submit(&context, &response);
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  request.set_submit_key(submit_key);
  // A refusal ends the stream; Finish says why.
  bool open = writer->Write(request);
  request.clear_submit_key();
  if (!parts.empty()) {
    for (const FilePart& part : parts) {
      v1::BlobRef& blob = *request.mutable_parts()->add_blobs();
      blob.set_sha256(part.digest);
      blob.set_bytes(part.bytes);
    }
    open = open && writer->Write(request);
  }
  if (open) {
    SendChunks("model", model, [&](v1::Chunk chunk) {
      *request.mutable_chunk() = std::move(chunk);
      return writer->Write(request);
    });
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (!status.ok()) return Told(status);
  return response.job();
}

absl::StatusOr<std::vector<v1::Job>> ServiceClient::ListJobs(bool all) const {
  v1::ListJobsRequest request;
  request.set_all(all);
  std::vector<v1::Job> jobs;
  v1::ListJobsResponse response;
  do {
    grpc::ClientContext context;
    LimitTime(context, kUnaryLimit);
    const grpc::Status status = stubs_->jobs->ListJobs(&context, request, &response);
    if (!status.ok()) return Told(status);
    for (v1::Job& job : *response.mutable_jobs()) jobs.push_back(std::move(job));
    if (!jobs.empty()) request.set_before(jobs.back().id());
  } while (response.more() && response.jobs_size() > 0 && jobs.size() < kMaxListedJobs);
  std::reverse(jobs.begin(), jobs.end());
  return jobs;
}

absl::StatusOr<v1::Job> ServiceClient::GetJob(const std::string& job) const {
  grpc::ClientContext context;
  LimitTime(context, kUnaryLimit);
  v1::GetJobRequest request;
  request.set_job(job);
  v1::Job response;
  const grpc::Status status = stubs_->jobs->GetJob(&context, request, &response);
  if (!status.ok()) return Told(status);
  return response;
}

namespace {

// The three calls that change the state of a job.
template <typename Method>
grpc::Status ActOnJob(v1::JobService::Stub& stub, Method method, const std::string& job,
                      const std::string& reason, v1::Job* response) {
  grpc::ClientContext context;
  LimitTime(context, kUnaryLimit);
  v1::JobActionRequest request;
  request.set_job(job);
  request.set_reason(reason);
  return (stub.*method)(&context, request, response);
}

}  // namespace

absl::StatusOr<v1::Job> ServiceClient::CancelJob(const std::string& job,
                                                 const std::string& reason) const {
  v1::Job response;
  const grpc::Status status =
      ActOnJob(*stubs_->jobs, &v1::JobService::Stub::CancelJob, job, reason, &response);
  if (!status.ok()) return Told(status);
  return response;
}
absl::StatusOr<v1::Job> ServiceClient::PauseJob(const std::string& job) const {
  v1::Job response;
  const grpc::Status status =
      ActOnJob(*stubs_->jobs, &v1::JobService::Stub::PauseJob, job, "", &response);
  if (!status.ok()) return Told(status);
  return response;
}
absl::StatusOr<v1::Job> ServiceClient::ResumeJob(const std::string& job) const {
  v1::Job response;
  const grpc::Status status =
      ActOnJob(*stubs_->jobs, &v1::JobService::Stub::ResumeJob, job, "", &response);
  if (!status.ok()) return Told(status);
  return response;
}

absl::StatusOr<v1::Timeline> ServiceClient::GetTimeline(const std::string& job) const {
  grpc::ClientContext context;
  LimitTime(context, kUnaryLimit);
  v1::GetJobRequest request;
  request.set_job(job);
  v1::Timeline response;
  const grpc::Status status = stubs_->jobs->GetTimeline(&context, request, &response);
  if (!status.ok()) return Told(status);
  return response;
}

absl::StatusOr<v1::TaskExplanation> ServiceClient::ExplainTask(const std::string& job,
                                                               const std::string& task) const {
  grpc::ClientContext context;
  LimitTime(context, kUnaryLimit);
  v1::ExplainTaskRequest request;
  request.set_job(job);
  request.set_task(task);
  v1::TaskExplanation response;
  const grpc::Status status = stubs_->jobs->ExplainTask(&context, request, &response);
  if (!status.ok()) return Told(status);
  return response;
}

absl::StatusOr<v1::ListWorkersResponse> ServiceClient::ListDevices() const {
  grpc::ClientContext context;
  LimitTime(context, kUnaryLimit);
  v1::ListWorkersResponse response;
  const grpc::Status status = stubs_->jobs->ListDevices(&context, {}, &response);
  if (!status.ok()) return Told(status);
  return response;
}

namespace {

constexpr int kMaxTasks = 1'000'000;  // of a job, so that a wrong number takes no memory

// Brings the watched job up to date with a message of WatchJob that holds changes only.
void TakeChanges(v1::Job* job, v1::Job update, bool first) {
  if (!first) {
    google::protobuf::RepeatedPtrField<v1::TaskStatus> changed;
    changed.Swap(update.mutable_tasks());
    update.mutable_tasks()->Swap(job->mutable_tasks());
    for (int i = 0; i < changed.size() && i < update.changed_tasks_size(); ++i) {
      const int number = update.changed_tasks(i);
      if (number < 0 || number >= kMaxTasks) continue;
      while (update.tasks_size() <= number) update.add_tasks();
      *update.mutable_tasks(number) = std::move(changed[i]);
    }
    update.clear_changed_tasks();
  }
  job->Swap(&update);
}

// One WatchJob stream, read on its own thread so that the caller never blocks on it.
class JobStream {
 public:
  JobStream(v1::JobService::Stub& stub, const std::string& job) {
    v1::WatchJobRequest request;
    request.set_job(job);
    request.set_changes(true);
    reader_ = stub.WatchJob(&context_, request);
    thread_ = std::jthread([this] {
      v1::Job update;
      for (bool first = true; reader_->Read(&update); first = false) {
        std::lock_guard lock(mutex_);
        TakeChanges(&latest_, std::move(update), first);
        fresh_ = true;
        changed_.notify_one();
      }
      std::lock_guard lock(mutex_);
      status_ = reader_->Finish();
      ended_ = true;
      changed_.notify_one();
    });
  }
  ~JobStream() { context_.TryCancel(); }

  enum class Event { kJob, kNothing, kEnded };
  Event Next(v1::Job* job) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(100), [this] { return fresh_ || ended_; });
    if (fresh_) {
      fresh_ = false;
      *job = latest_;  // earlier states are superseded
      return Event::kJob;
    }
    return ended_ ? Event::kEnded : Event::kNothing;
  }
  grpc::Status status() {
    std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Job>> reader_;
  std::mutex mutex_;
  std::condition_variable changed_;
  v1::Job latest_;
  bool fresh_ = false;
  bool ended_ = false;
  grpc::Status status_;
  std::jthread thread_;  // last: joined first
};

}  // namespace

absl::Status ServiceClient::WatchJob(const std::string& job, absl::Duration patience,
                                     const std::function<bool(const v1::Job*)>& on_job) const {
  absl::Time last_contact = absl::Now();
  while (true) {
    JobStream stream(*stubs_->jobs, job);
    v1::Job update;
    JobStream::Event event;
    while ((event = stream.Next(&update)) != JobStream::Event::kEnded) {
      if (event == JobStream::Event::kJob) last_contact = absl::Now();
      if (!on_job(event == JobStream::Event::kJob ? &update : nullptr))
        return absl::CancelledError("detached");
      if (event == JobStream::Event::kJob && IsFinal(update.state())) return absl::OkStatus();
    }
    const grpc::Status status = stream.status();
    const bool may_come_back = status.ok() ||
                               status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                               status.error_code() == grpc::StatusCode::CANCELLED;
    if (!may_come_back || absl::Now() - last_contact > patience) {
      return status.ok()
                 ? absl::UnavailableError("the scheduler at " + address_ + " ended the watch")
                 : Told(status);
    }
    for (int i = 0; i < 3; ++i) {
      if (!on_job(nullptr)) return absl::CancelledError("detached");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

absl::StatusOr<int64_t> ServiceClient::FetchModule(
    const std::string& job, v1::ScheduleChoice choice,
    const std::function<absl::Status(std::string_view)>& take) const {
  grpc::ClientContext context;
  LimitTime(context, kTransferLimit);
  v1::FetchModuleRequest request;
  request.set_job(job);
  request.set_choice(choice);
  auto reader = stubs_->jobs->FetchModule(&context, request);
  absl::Status taken;
  int64_t bytes = 0;
  Sha256 hash;
  bool complete = false;
  std::string expected;
  v1::Chunk chunk;
  while (taken.ok() && !complete && reader->Read(&chunk)) {
    hash.Update(chunk.data());
    bytes += static_cast<int64_t>(chunk.data().size());
    complete = chunk.last();
    expected = chunk.sha256();
    taken = take(chunk.data());
  }
  if (!taken.ok()) context.TryCancel();
  while (taken.ok() && reader->Read(&chunk)) continue;  // there is nothing more
  const grpc::Status status = reader->Finish();
  if (!taken.ok()) return taken;
  if (!status.ok()) return Told(status);
  if (!complete) return absl::DataLossError("module was cut short on the way; fetch it again");
  if (hash.Hex() != expected)
    return absl::DataLossError("module was damaged on the way: its digest differs; fetch it again");
  return bytes;
}

absl::StatusOr<std::string> ServiceClient::FetchModule(const std::string& job,
                                                       v1::ScheduleChoice choice) const {
  std::string module;
  const absl::StatusOr<int64_t> fetched =
      FetchModule(job, choice, [&module](std::string_view bytes) {
        module += bytes;
        return absl::OkStatus();
      });
  if (!fetched.ok()) return fetched.status();
  return module;
}

absl::Status ServiceClient::QueryRecords(
    const v1::RecordQuery& query, const std::function<bool(const v1::Record&)>& on_record) const {
  grpc::ClientContext context;
  LimitTime(context, kRecordsLimit);
  auto reader = stubs_->records->QueryRecords(&context, query);
  v1::Record record;
  while (reader->Read(&record)) {
    if (!on_record(record)) {
      context.TryCancel();
      (void)reader->Finish();
      return absl::OkStatus();
    }
  }
  return Told(reader->Finish());
}

absl::StatusOr<v1::ImportRecordsResponse> ServiceClient::ImportRecords(
    const std::function<absl::StatusOr<bool>(v1::Record*)>& next) const {
  grpc::ClientContext context;
  LimitTime(context, kRecordsLimit);
  v1::ImportRecordsResponse response;
  auto writer = stubs_->records->ImportRecords(&context, &response);
  v1::Record record;
  while (true) {
    const absl::StatusOr<bool> more = next(&record);
    if (!more.ok()) {
      context.TryCancel();
      (void)writer->Finish();
      return more.status();
    }
    if (!*more || !writer->Write(record)) break;
    record.Clear();
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (!status.ok()) return Told(status);
  return response;
}

absl::StatusOr<int64_t> ServiceClient::RetractRecords(const v1::RecordQuery& query,
                                                      const std::string& reason) const {
  grpc::ClientContext context;
  LimitTime(context, kTransferLimit);
  v1::RetractRecordsRequest request;
  *request.mutable_query() = query;
  request.set_reason(reason);
  v1::RetractRecordsResponse response;
  const grpc::Status status = stubs_->records->RetractRecords(&context, request, &response);
  if (!status.ok()) return Told(status);
  return response.retracted();
}

namespace {

constexpr int kBlobsAtATime = 1000;                  // of one call
constexpr int64_t kBytesAtATime = int64_t{1} << 30;  // likewise, if it has more than one blob

absl::Status Stopped() { return absl::CancelledError("interrupted; what is there is kept"); }

// Puts a stored blob where the database of a data directory is.
absl::Status PlaceDatabase(const std::string& directory, const std::string& digest) {
  const std::string from = BlobPath(directory + "/blobs", digest), to = directory + "/heddle.db";
  if (rename(from.c_str(), to.c_str()) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", to));
  const int folder = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = folder >= 0 && fsync(folder) == 0;
  if (folder >= 0) close(folder);
  return synced ? absl::OkStatus()
                : absl::ErrnoToStatus(errno, absl::StrCat("cannot sync ", directory));
}

}  // namespace

absl::StatusOr<std::string> ServiceClient::FetchDatabase(
    BlobStore* blobs, v1::BlobList* needed, Backup* backup,
    const std::function<bool(const Backup&)>& progress) const {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<BlobStore::Writer> writer, blobs->NewWriter());
  grpc::ClientContext context;
  LimitTime(context, kTransferLimit);
  const auto reader = stubs_->store->BackUp(&context, {});
  std::string expected;
  absl::Status taken;
  v1::BackUpPart part;
  while (taken.ok() && reader->Read(&part)) {
    if (part.has_database()) {
      taken = writer->Append(part.database().data());
      backup->database_bytes = writer->size_bytes();
      expected = part.database().sha256();
      if (taken.ok() && !progress(*backup)) taken = Stopped();
    } else if (part.has_blobs()) {
      needed->MergeFrom(part.blobs());
    } else {
      backup->missing += part.missing().blobs_size();
    }
  }
  backup->blobs = needed->blobs_size();
  if (!taken.ok()) context.TryCancel();
  const grpc::Status status = reader->Finish();
  HEDDLE_RETURN_IF_ERROR(taken);
  if (!status.ok()) return Told(status);
  if (expected.empty()) return absl::DataLossError("the database was cut short; back up again");
  return writer->Commit(expected);
}

absl::Status ServiceClient::FetchBlobs(const v1::BlobList& wanted, BlobStore* blobs, Backup* backup,
                                       const std::function<bool(const Backup&)>& progress) const {
  if (wanted.blobs().empty()) return absl::OkStatus();
  int64_t bytes = 0;
  for (const v1::BlobRef& blob : wanted.blobs()) bytes += blob.bytes();
  grpc::ClientContext context;
  LimitTime(context, kTransferLimit + std::chrono::seconds(bytes / kSlowestBytesPerSecond));
  const auto reader = stubs_->store->FetchBlobs(&context, wanted);
  std::unique_ptr<BlobStore::Writer> writer;
  std::string name;
  const auto take = [&](const v1::Chunk& chunk) -> absl::Status {
    if (!IsDigest(chunk.name())) return absl::DataLossError("the service sent a malformed chunk");
    if (writer == nullptr || chunk.name() != name) {
      HEDDLE_ASSIGN_OR_RETURN(writer, blobs->NewWriter());
      name = chunk.name();
    }
    HEDDLE_RETURN_IF_ERROR(writer->Append(chunk.data()));
    backup->fetched_bytes += static_cast<int64_t>(chunk.data().size());
    if (!progress(*backup)) return Stopped();
    if (!chunk.last()) return absl::OkStatus();
    HEDDLE_RETURN_IF_ERROR(writer->Commit(name).status());
    writer.reset();
    ++backup->fetched;
    return absl::OkStatus();
  };
  absl::Status taken;
  v1::Chunk chunk;
  while (taken.ok() && reader->Read(&chunk)) taken = take(chunk);
  if (!taken.ok()) context.TryCancel();
  const grpc::Status status = reader->Finish();
  HEDDLE_RETURN_IF_ERROR(taken);
  if (!status.ok()) return Told(status);
  for (const v1::BlobRef& blob : wanted.blobs())
    backup->missing += !blobs->Has(blob.sha256(), blob.bytes());
  return absl::OkStatus();
}

absl::StatusOr<Backup> ServiceClient::BackUp(
    const std::string& directory, const std::function<bool(const Backup&)>& progress) const {
  for (const char* used : {"/lock", "/heddle.db-wal"}) {
    std::error_code error;
    if (std::filesystem::exists(directory + used, error)) {
      return absl::FailedPreconditionError(absl::StrCat(
          directory, " is the data directory of a scheduler; take another one for the backup"));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<BlobStore> blobs,
                          BlobStore::Open(directory + "/blobs"));
  Backup backup;
  v1::BlobList needed, wanted;
  HEDDLE_ASSIGN_OR_RETURN(const std::string database,
                          FetchDatabase(blobs.get(), &needed, &backup, progress));
  int64_t bytes = 0;
  for (const v1::BlobRef& blob : needed.blobs()) {
    if (blobs->Has(blob.sha256(), blob.bytes())) continue;
    if (wanted.blobs_size() == kBlobsAtATime ||
        (bytes > 0 && bytes + blob.bytes() > kBytesAtATime)) {
      HEDDLE_RETURN_IF_ERROR(FetchBlobs(wanted, blobs.get(), &backup, progress));
      wanted.Clear();
      bytes = 0;
    }
    *wanted.add_blobs() = blob;
    bytes += blob.bytes();
  }
  HEDDLE_RETURN_IF_ERROR(FetchBlobs(wanted, blobs.get(), &backup, progress));
  HEDDLE_RETURN_IF_ERROR(PlaceDatabase(directory, database));
  return backup;
}

namespace {

// Cancels a call whose peer says nothing for a time.
class SilenceWatch {
 public:
  SilenceWatch(grpc::ClientContext* context, absl::Duration limit)
      : limit_(absl::ToChronoMilliseconds(limit)), thread_([this, context] { Watch(context); }) {}
  ~SilenceWatch() { End(); }
  // The peer said something.
  void Note() {
    std::lock_guard lock(mutex_);
    ++words_;
    changed_.notify_one();
  }
  // Ends the watch. Returns whether it has cancelled the call.
  bool End() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
    return silent_;
  }

 private:
  void Watch(grpc::ClientContext* context) {
    std::unique_lock lock(mutex_);
    while (!ended_) {
      const int64_t heard = words_;
      if (changed_.wait_for(lock, limit_, [&] { return ended_ || words_ != heard; })) continue;
      silent_ = true;
      context->TryCancel();
      return;
    }
  }

  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t words_ = 0;
  bool ended_ = false;
  bool silent_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

absl::Status ServiceClient::CheckStore(
    bool read_blobs, const std::function<bool(const v1::CheckProgress&)>& on_progress,
    absl::Duration silence) const {
  grpc::ClientContext context;  // a check reads all blobs, so it is limited by silence only
  v1::CheckRequest request;
  request.set_read_blobs(read_blobs);
  const auto reader = stubs_->store->Check(&context, request);
  v1::CheckProgress told;
  bool go_on = true;
  SilenceWatch watch(&context, silence);
  while (go_on && reader->Read(&told)) {
    watch.Note();
    go_on = on_progress(told);
  }
  if (!go_on) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!go_on) return absl::CancelledError("interrupted");
  if (watch.End()) {
    return absl::DeadlineExceededError(
        absl::StrCat("the scheduler at ", address_, " has said nothing of its check for ",
                     absl::FormatDuration(silence), "; see whether it still works (heddle jobs)"));
  }
  return Told(status);
}

absl::StatusOr<v1::CollectProgress::Total> ServiceClient::Collect(
    const v1::CollectRequest& request,
    const std::function<bool(const v1::CollectProgress::Job&)>& on_job,
    absl::Duration silence) const {
  grpc::ClientContext context;  // a collection may take long, so it is limited by silence only
  const auto reader = stubs_->store->Collect(&context, request);
  std::optional<v1::CollectProgress::Total> total;
  bool go_on = true;
  v1::CollectProgress told;
  SilenceWatch watch(&context, silence);
  while (go_on && reader->Read(&told)) {
    watch.Note();
    if (told.has_total()) total = told.total();
    if (told.has_job()) go_on = on_job(told.job());  // neither: it still works
  }
  if (!go_on) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!go_on) return absl::CancelledError("interrupted; what is collected stays so");
  if (watch.End()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "the scheduler at ", address_, " has said nothing of its collection for ",
        absl::FormatDuration(silence), "; what is collected stays so, collect again later"));
  }
  if (!status.ok()) return Told(status);
  if (!total) return absl::DataLossError("the service did not tell the total; try again");
  return *total;
}

}  // namespace heddle::client
