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
#include <set>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "proto/access/channel.h"
#include "proto/chunks.h"
#include "proto/job_states.h"
#include "proto/jobs.grpc.pb.h"
#include "proto/leader_calls.h"
#include "proto/store.grpc.pb.h"

namespace heddle::client {
namespace {

constexpr int64_t kUnaryLimitMs = 30'000;
// A compile on demand may run for minutes before the first byte of the module arrives.
constexpr int64_t kTransferLimitMs = 20 * 60'000;
constexpr int64_t kRecordsLimitMs = 12 * 3'600'000;  // tens of millions of records take an hour
// Bytes that a transfer is sure to make in a second; large ones get more time.
constexpr int64_t kSlowestBytesPerSecond = 2'000'000;

// How long a call looks for the scheduler that leads, and the pause after all were tried. A take-over takes 15 s
// at most.
constexpr absl::Duration kFailOverPatience = absl::Seconds(20);
constexpr absl::Duration kFailOverPause = absl::Milliseconds(200);
// Schedulers that are known, given or told.
constexpr size_t kMaxSchedulers = 16;

// How long a submission is sent again to a service that has become unavailable, and how often.
constexpr absl::Duration kSubmitPatience = absl::Seconds(30);
constexpr auto kSubmitPause = std::chrono::milliseconds(200);

// 128 random bits in hexadecimal.
std::string RandomKey() {
  std::random_device random;
  const auto word = [&random] { return absl::Hex(random(), absl::kZeroPad8); };
  return absl::StrCat(word(), word(), word(), word());
}

void LimitTime(grpc::ClientContext& context, int64_t limit_ms) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(limit_ms));
}

// More for a transfer that is large.
int64_t TransferLimitMs(int64_t bytes) {
  return kTransferLimitMs + bytes / kSlowestBytesPerSecond * 1000;
}

// Whether there is a connection, after an attempt to make one if need be.
bool Connects(grpc::Channel& channel) {
  const auto limit = std::chrono::system_clock::now() + std::chrono::milliseconds(kUnaryLimitMs);
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
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::JobService::Stub> jobs;
  std::unique_ptr<v1::RecordService::Stub> records;
  std::unique_ptr<v1::StoreService::Stub> store;
};

// The schedulers of the service. Thread-safe.
struct ServiceClient::Schedulers {
  // Where a search for the scheduler that leads stands. The first try is at the one that led last.
  struct Search {
    absl::Time give_up = MonotonicNow() + kFailOverPatience;
    size_t tried = 0;  // in this round
    bool met = false;  // some scheduler of the service has answered
    // The schedulers that did not answer. A scheduler that hangs still accepts connections. So each of these is called again only
    // after it has sent something on a connection.
    std::set<const Stubs*> silent;
  };

  explicit Schedulers(const ServerAccess& server) {
    credentials = LoadCredentials(server.tls_directory, server.token_file);
    const std::vector<std::string> addresses =
        absl::StrSplit(server.address, ',', absl::SkipEmpty());
    several = addresses.size() > 1;
    for (const std::string& address : addresses) {
      if (credentials.ok() && unusable.ok()) unusable = CheckAddress(address, *credentials);
      all.push_back(Connect(address));
    }
    if (all.empty()) all.push_back(Connect(""));  // every call fails
    if (!credentials.ok()) unusable = credentials.status();
  }

  std::unique_ptr<Stubs> Connect(const std::string& address) const {
    auto stubs = std::make_unique<Stubs>();
    stubs->address = address;
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
    if (several) {
      const Pings pings = LeaderPings();
      const auto patience = static_cast<int>(absl::ToInt64Milliseconds(pings.patience));
      args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, patience);  // of a try to connect
      args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                  static_cast<int>(absl::ToInt64Milliseconds(pings.every)));
      args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, patience);
      args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    }
    // What the service refuses for want of a place is called again after a while, as it says
    // (grpc-retry-pushback-ms).
    args.SetServiceConfigJSON(
        R"({"methodConfig":[{"name":[{"service":"heddle.v1.JobService"},{"service":"heddle.v1.RecordService"}],)"
        R"("retryPolicy":{"maxAttempts":4,"initialBackoff":"0.2s","maxBackoff":"2s","backoffMultiplier":2,)"
        R"("retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]})");
    std::shared_ptr<grpc::ChannelCredentials> connection;  // null: every call fails at once
    if (credentials.ok())
      connection = ChannelCredentialsFor(address, PeerName(Role::kScheduler), *credentials, &args);
    stubs->channel = grpc::CreateCustomChannel(address, connection, args);
    stubs->jobs = v1::JobService::NewStub(stubs->channel);
    stubs->records = v1::RecordService::NewStub(stubs->channel);
    stubs->store = v1::StoreService::NewStub(stubs->channel);
    return stubs;
  }

  // The one that led last, as far as is known. The reference stays valid.
  const Stubs& Current() const {
    std::lock_guard lock(mutex);
    return *all[current];
  }

  // A call to the scheduler `failed` has ended with UNAVAILABLE. Chooses another scheduler for the next try, and waits a
  // little if all of them were tried, or until one of them says something. Returns false when the time for tries is over;
  // then the caller gets that error.
  bool MoveOn(const Stubs& failed, const grpc::ClientContext& context, Search* search) {
    const auto& metadata = context.GetServerTrailingMetadata();
    const auto told = metadata.find(kLeaderMetadata);
    const bool stands_by = told != metadata.end();
    bool pause = false;
    std::string leader;
    {
      std::lock_guard lock(mutex);
      if (stands_by) leader.assign(told->second.data(), told->second.size());
      if (!leader.empty() && all.size() < kMaxSchedulers && Find(leader) == all.size() &&
          CheckAddress(leader, *credentials).ok())
        all.push_back(Connect(leader));
      search->met |= stands_by || (all.size() > 1 && reached);
      if (all.size() == 1 && !stands_by) return false;
      pause = ++search->tried >= all.size();
      if (pause && (!search->met || MonotonicNow() > search->give_up)) return false;
      if (pause) search->tried = 0;
      if (!stands_by && failed.channel->GetState(false) != GRPC_CHANNEL_READY)
        search->silent.insert(&failed);
    }
    if (pause) Pause(kFailOverPause);
    while (!Choose(failed, leader, search->silent)) {
      if (MonotonicNow() > search->give_up) return false;
      Pause(kFailOverPause);
    }
    return true;
  }

  // Chooses who is called next: the one that leads, as `failed` told, or else the first after it that is not silent. False:
  // all are.
  bool Choose(const Stubs& failed, const std::string& leader,
              const std::set<const Stubs*>& silent) {
    std::lock_guard lock(mutex);
    if (all[current].get() != &failed && silent.count(all[current].get()) == 0)
      return true;  // another call has moved on by now
    std::vector<size_t> order;
    if (!leader.empty() && Find(leader) != current) order.push_back(Find(leader));
    for (size_t i = 1; i <= all.size(); ++i) order.push_back((current + i) % all.size());
    for (const size_t next : order) {
      if (next >= all.size()) continue;
      if (silent.count(all[next].get()) > 0 &&
          all[next]->channel->GetState(/*try_to_connect=*/true) != GRPC_CHANNEL_READY)
        continue;
      current = next;
      return true;
    }
    return false;
  }

  // Waits for so long within gRPC, for changes of the states of all. While no call waits, gRPC looks at its connections only every
  // five seconds, so a plain sleep would delay the next connection.
  void Pause(absl::Duration time) const {
    const auto until = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(time);
    (void)Current().channel->GetState(/*try_to_connect=*/true);
    grpc::CompletionQueue changes;
    const auto watch = [&](grpc::Channel* channel) {
      channel->NotifyOnStateChange(channel->GetState(false), until, &changes, channel);
    };
    size_t watched = 0;
    {
      std::lock_guard lock(mutex);
      for (const auto& one : all) watch(one->channel.get());
      watched = all.size();
    }
    void* channel = nullptr;
    bool changed = false;
    while (watched > 0 && changes.Next(&channel, &changed)) {
      if (changed)
        watch(static_cast<grpc::Channel*>(channel));
      else
        --watched;
    }
  }

  void Reached() {
    std::lock_guard lock(mutex);
    reached = true;
  }
  // Whether no other is known.
  bool OnlyOne() const {
    std::lock_guard lock(mutex);
    return all.size() == 1;
  }

  // Its index; the number of all if it is not known. With the mutex.
  size_t Find(const std::string& address) const {
    size_t i = 0;
    while (i < all.size() && all[i]->address != address) ++i;
    return i;
  }

  absl::StatusOr<Credentials> credentials = absl::UnknownError("not read");
  absl::Status unusable;
  bool several = false;  // were given
  mutable std::mutex mutex;
  std::vector<std::unique_ptr<Stubs>> all;  // only grows
  size_t current = 0;
  bool reached = false;  // some call was answered
};

ServiceClient::ServiceClient(const ServerAccess& server)
    : address_(server.address), schedulers_(std::make_unique<Schedulers>(server)) {
  unusable_ = schedulers_->unusable;
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
      schedulers_->Current().channel->GetState(false) != GRPC_CHANNEL_READY) {
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

grpc::Status ServiceClient::OfLeader(int64_t limit_ms, const OneCall& call) const {
  Schedulers::Search search;
  while (true) {
    const Stubs& stubs = schedulers_->Current();
    grpc::ClientContext context;
    if (limit_ms > 0) LimitTime(context, limit_ms);
    bool begun = false;
    const grpc::Status status = call(stubs, context, &begun);
    // A scheduler that begins to lead ends the calls that it got while it stood by as cancelled.
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE &&
        status.error_code() != grpc::StatusCode::CANCELLED) {
      if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) schedulers_->Reached();
      return status;
    }
    if (begun || !schedulers_->MoveOn(stubs, context, &search)) return status;
  }
}

absl::Status ServiceClient::WaitUntilServing(absl::Duration timeout) const {
  const absl::Time deadline = MonotonicNow() + timeout;
  absl::Status last = absl::UnavailableError("no answer from " + address_);
  do {
    const int64_t limit_ms =
        std::max<int64_t>(50, absl::ToInt64Milliseconds(deadline - MonotonicNow()));
    v1::ListJobsResponse response;
    const grpc::Status status =
        OfLeader(limit_ms, [&](const Stubs& stubs, grpc::ClientContext& context, bool*) {
          context.set_wait_for_ready(timeout > absl::Seconds(1) && schedulers_->OnlyOne());
          return stubs.jobs->ListJobs(&context, {}, &response);
        });
    if (status.ok()) return absl::OkStatus();
    last = Told(status);
    if (!unusable_.ok()) return last;
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      last = absl::UnavailableError("no scheduler answers at " + address_);
    }
    schedulers_->Pause(absl::Milliseconds(50));
  } while (MonotonicNow() < deadline);
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
    const grpc::Status status =
        OfLeader(kUnaryLimitMs, [&](const Stubs& stubs, grpc::ClientContext& context, bool*) {
          return stubs.jobs->FindMissingBlobs(&context, all, &missing);
        });
    if (!status.ok()) return Told(status);
  }
  Upload upload;
  upload.parts = missing.blobs_size();
  for (const v1::BlobRef& blob : missing.blobs()) upload.bytes += blob.bytes();
  if (progress) progress(upload);
  if (upload.parts == 0) return absl::OkStatus();
  absl::Status sent;
  const auto send = [&](const Stubs& stubs, grpc::ClientContext& context, bool* begun) {
    v1::BlobList stored;
    auto writer = stubs.jobs->UploadBlobs(&context, &stored);
    sent = absl::OkStatus();
    upload.sent_bytes = 0;
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
      *begun = true;
      context.TryCancel();
    }
    return writer->Finish();
  };
  const grpc::Status status = OfLeader(TransferLimitMs(upload.bytes), send);
  if (!sent.ok() && !absl::IsCancelled(sent)) return sent;
  return Told(status);
}

absl::StatusOr<std::string> ServiceClient::Submit(
    const v1::JobSpec& spec, std::string_view model, const std::vector<FilePart>& parts,
    const std::function<void(const Upload&)>& progress) const {
  const std::string submit_key = RandomKey();
  const absl::Time limit = MonotonicNow() + kSubmitPatience;
  const bool reached = Connects(*schedulers_->Current().channel);
  while (true) {
    const absl::StatusOr<std::string> job = SubmitOnce(spec, model, parts, submit_key, progress);
    if (!absl::IsUnavailable(job.status()) || !reached || MonotonicNow() > limit) return job;
    // Waits for the connection if it is broken, and otherwise gives the service some time.
    schedulers_->Current().channel->WaitForConnected(std::chrono::system_clock::now() +
                                                     kSubmitPause);
    std::this_thread::sleep_for(kSubmitPause);
  }
}

absl::StatusOr<std::string> ServiceClient::SubmitOnce(
    const v1::JobSpec& spec, std::string_view model, const std::vector<FilePart>& parts,
    const std::string& submit_key, const std::function<void(const Upload&)>& progress) const {
  if (!parts.empty()) {
    if (const absl::Status sent = SendParts(parts, progress); !sent.ok()) return sent;
  }
  v1::SubmitResponse response;
  const auto send = [&](const Stubs& stubs, grpc::ClientContext& context, bool*) {
    auto writer = stubs.jobs->Submit(&context, &response);
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
    return writer->Finish();
  };
  const grpc::Status status = OfLeader(kTransferLimitMs, send);
  if (!status.ok()) return Told(status);
  return response.job();
}

absl::StatusOr<std::vector<v1::Job>> ServiceClient::ListJobs(bool all, bool* more) const {
  v1::ListJobsRequest request;
  request.set_all(all);
  std::vector<v1::Job> jobs;
  v1::ListJobsResponse response;
  do {
    const grpc::Status status =
        OfLeader(kUnaryLimitMs, [&](const Stubs& stubs, grpc::ClientContext& context, bool*) {
          return stubs.jobs->ListJobs(&context, request, &response);
        });
    if (!status.ok()) return Told(status);
    for (v1::Job& job : *response.mutable_jobs()) jobs.push_back(std::move(job));
    if (!jobs.empty()) request.set_before(jobs.back().id());
  } while (response.more() && response.jobs_size() > 0 && jobs.size() < kMaxListedJobs);
  if (more != nullptr) *more = response.more();
  std::reverse(jobs.begin(), jobs.end());
  return jobs;
}

absl::StatusOr<v1::Job> ServiceClient::GetJob(const std::string& job) const {
  v1::GetJobRequest request;
  request.set_job(job);
  v1::Job response;
  const grpc::Status status =
      OfLeader(kUnaryLimitMs, [&](const Stubs& stubs, grpc::ClientContext& context, bool*) {
        return stubs.jobs->GetJob(&context, request, &response);
      });
  if (!status.ok()) return Told(status);
  return response;
}

absl::StatusOr<v1::Job> ServiceClient::CancelJob(const std::string& job,
                                                 const std::string& reason) const {
  v1::JobActionRequest request;
  request.set_job(job);
  request.set_reason(reason);
  v1::Job response;
  const grpc::Status status =
      OfLeader(kUnaryLimitMs, [&](const Stubs& stubs, grpc::ClientContext& context, bool*) {
        return stubs.jobs->CancelJob(&context, request, &response);
      });
  if (!status.ok()) return Told(status);
  return response;
}

absl::StatusOr<v1::Job> ServiceClient::PauseJob(const std::string& job) const {
  v1::JobActionRequest request;
  request.set_job(job);
  v1::Job response;
  const grpc::Status status =
      OfLeader(kUnaryLimitMs, [&](const Stubs& stubs, grpc::ClientContext& context, bool*) {
        return stubs.jobs->PauseJob(&context, request, &response);
      });
  if (!status.ok()) return Told(status);
  return response;
}

absl::StatusOr<v1::Job> ServiceClient::ResumeJob(const std::string& job) const {
  v1::JobActionRequest request;
  request.set_job(job);
  v1::Job response;
  const grpc::Status status =
      OfLeader(kUnaryLimitMs, [&](const Stubs& stubs, grpc::ClientContext& context, bool*) {
        return stubs.jobs->ResumeJob(&context, request, &response);
      });
  if (!status.ok()) return Told(status);
  return response;
}
absl::StatusOr<v1::Job> ServiceClient::PrioritizeJob(const std::string& job, int priority) const {
  v1::PrioritizeJobRequest request;
  request.set_job(job);
  request.set_priority(priority);
  v1::Job response;
  const grpc::Status status =
      OfLeader(kUnaryLimitMs, [&](const Stubs& stubs, grpc::ClientContext& context, bool*) {
        return stubs.jobs->PrioritizeJob(&context, request, &response);
      });
  if (!status.ok()) return Told(status);
  return response;
}

absl::StatusOr<v1::Timeline> ServiceClient::GetTimeline(const std::string& job) const {
  v1::GetJobRequest request;
  request.set_job(job);
  v1::Timeline response;
  const grpc::Status status =
      OfLeader(kUnaryLimitMs, [&](const Stubs& stubs, grpc::ClientContext& context, bool*) {
        return stubs.jobs->GetTimeline(&context, request, &response);
      });
  if (!status.ok()) return Told(status);
  return response;
}

absl::StatusOr<v1::TaskExplanation> ServiceClient::ExplainTask(const std::string& job,
                                                               const std::string& task) const {
  v1::ExplainTaskRequest request;
  request.set_job(job);
  request.set_task(task);
  v1::TaskExplanation response;
  const grpc::Status status =
      OfLeader(kUnaryLimitMs, [&](const Stubs& stubs, grpc::ClientContext& context, bool*) {
        return stubs.jobs->ExplainTask(&context, request, &response);
      });
  if (!status.ok()) return Told(status);
  return response;
}

absl::StatusOr<v1::ListWorkersResponse> ServiceClient::ListDevices() const {
  v1::ListWorkersResponse response;
  const grpc::Status status =
      OfLeader(kUnaryLimitMs, [&](const Stubs& stubs, grpc::ClientContext& context, bool*) {
        return stubs.jobs->ListDevices(&context, {}, &response);
      });
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
  // Of the call, which has ended.
  const grpc::ClientContext& context() const { return context_; }

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
  absl::Time last_contact = MonotonicNow();
  while (true) {
    const Stubs& stubs = schedulers_->Current();
    JobStream stream(*stubs.jobs, job);
    v1::Job update;
    JobStream::Event event;
    bool delivered = false;
    while ((event = stream.Next(&update)) != JobStream::Event::kEnded) {
      delivered |= event == JobStream::Event::kJob;
      if (!on_job(event == JobStream::Event::kJob ? &update : nullptr))
        return absl::CancelledError("detached");
      if (event == JobStream::Event::kJob && IsFinal(update.state())) return absl::OkStatus();
    }
    // A job may be quiet for long; its stream was a contact until it ended.
    if (delivered) last_contact = MonotonicNow();
    const grpc::Status status = stream.status();
    const bool may_come_back = status.ok() ||
                               status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                               status.error_code() == grpc::StatusCode::CANCELLED;
    if (!may_come_back || MonotonicNow() - last_contact > patience) {
      return status.ok()
                 ? absl::UnavailableError("the scheduler at " + address_ + " ended the watch")
                 : Told(status);
    }
    Schedulers::Search search;  // the watch has a patience of its own
    if (!status.ok()) schedulers_->MoveOn(stubs, stream.context(), &search);
    for (int i = 0; i < 3; ++i) {
      if (!on_job(nullptr)) return absl::CancelledError("detached");
      schedulers_->Pause(absl::Milliseconds(100));
    }
  }
}

absl::StatusOr<int64_t> ServiceClient::FetchModule(
    const std::string& job, v1::ScheduleChoice choice,
    const std::function<absl::Status(std::string_view)>& take) const {
  v1::FetchModuleRequest request;
  request.set_job(job);
  request.set_choice(choice);
  absl::Status taken;
  int64_t bytes = 0;
  Sha256 hash;
  bool complete = false;
  std::string expected;
  const auto fetch = [&](const Stubs& stubs, grpc::ClientContext& context, bool* begun) {
    auto reader = stubs.jobs->FetchModule(&context, request);
    v1::Chunk chunk;
    while (taken.ok() && !complete && reader->Read(&chunk)) {
      *begun = true;
      hash.Update(chunk.data());
      bytes += static_cast<int64_t>(chunk.data().size());
      complete = chunk.last();
      expected = chunk.sha256();
      taken = take(chunk.data());
    }
    if (!taken.ok()) context.TryCancel();
    while (taken.ok() && reader->Read(&chunk)) continue;  // there is nothing more
    return reader->Finish();
  };
  const grpc::Status status = OfLeader(kTransferLimitMs, fetch);
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
  const auto read = [&](const Stubs& stubs, grpc::ClientContext& context, bool* begun) {
    auto reader = stubs.records->QueryRecords(&context, query);
    v1::Record record;
    while (reader->Read(&record)) {
      *begun = true;
      if (on_record(record)) continue;
      context.TryCancel();
      (void)reader->Finish();
      return grpc::Status();
    }
    return reader->Finish();
  };
  return Told(OfLeader(kRecordsLimitMs, read));
}

absl::StatusOr<v1::ImportRecordsResponse> ServiceClient::ImportRecords(
    const std::function<absl::StatusOr<bool>(v1::Record*)>& next) const {
  v1::ImportRecordsResponse response;
  absl::Status given;
  v1::Record record;
  bool pending = false;  // `record` was given, and no scheduler has taken it
  const auto send = [&](const Stubs& stubs, grpc::ClientContext& context, bool* begun) {
    auto writer = stubs.records->ImportRecords(&context, &response);
    for (int64_t sent = 0;; ++sent) {
      if (!pending) {
        const absl::StatusOr<bool> more = next(&record);
        if (!more.ok()) {
          given = more.status();
          *begun = true;
          context.TryCancel();
          return writer->Finish();
        }
        if (!*more) break;
        pending = true;
      }
      *begun = sent > 0;  // records that went out cannot be asked for again
      if (!writer->Write(record)) break;
      pending = false;
      record.Clear();
    }
    writer->WritesDone();
    return writer->Finish();
  };
  const grpc::Status status = OfLeader(kRecordsLimitMs, send);
  if (!given.ok()) return given;
  if (!status.ok()) return Told(status);
  return response;
}

absl::StatusOr<int64_t> ServiceClient::RetractRecords(const v1::RecordQuery& query,
                                                      const std::string& reason) const {
  v1::RetractRecordsRequest request;
  *request.mutable_query() = query;
  request.set_reason(reason);
  v1::RetractRecordsResponse response;
  const grpc::Status status =
      OfLeader(kTransferLimitMs, [&](const Stubs& stubs, grpc::ClientContext& context, bool*) {
        return stubs.records->RetractRecords(&context, request, &response);
      });
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
  std::string expected;
  absl::Status taken;
  const auto fetch = [&](const Stubs& stubs, grpc::ClientContext& context, bool* begun) {
    const auto reader = stubs.store->BackUp(&context, {});
    v1::BackUpPart part;
    while (taken.ok() && reader->Read(&part)) {
      *begun = true;
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
    return reader->Finish();
  };
  const grpc::Status status = OfLeader(kTransferLimitMs, fetch);
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
  const auto fetch = [&](const Stubs& stubs, grpc::ClientContext& context, bool* begun) {
    const auto reader = stubs.store->FetchBlobs(&context, wanted);
    v1::Chunk chunk;
    while (taken.ok() && reader->Read(&chunk)) {
      *begun = true;
      taken = take(chunk);
    }
    if (!taken.ok()) context.TryCancel();
    return reader->Finish();
  };
  const grpc::Status status = OfLeader(TransferLimitMs(bytes), fetch);
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
  v1::CheckRequest request;
  request.set_read_blobs(read_blobs);
  bool go_on = true, silent = false;
  // A check reads all blobs, so it is limited by silence only.
  const auto check = [&](const Stubs& stubs, grpc::ClientContext& context, bool* begun) {
    const auto reader = stubs.store->Check(&context, request);
    v1::CheckProgress told;
    SilenceWatch watch(&context, silence);
    while (go_on && reader->Read(&told)) {
      *begun = true;
      watch.Note();
      go_on = on_progress(told);
    }
    if (!go_on) context.TryCancel();
    const grpc::Status ended = reader->Finish();
    silent = watch.End();
    *begun |= silent;
    return ended;
  };
  const grpc::Status status = OfLeader(0, check);
  if (!go_on) return absl::CancelledError("interrupted");
  if (silent) {
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
  std::optional<v1::CollectProgress::Total> total;
  bool go_on = true, silent = false;
  // A collection may take long, so it is limited by silence only.
  const auto collect = [&](const Stubs& stubs, grpc::ClientContext& context, bool* begun) {
    const auto reader = stubs.store->Collect(&context, request);
    v1::CollectProgress told;
    SilenceWatch watch(&context, silence);
    while (go_on && reader->Read(&told)) {
      *begun = true;
      watch.Note();
      if (told.has_total()) total = told.total();
      if (told.has_job()) go_on = on_job(told.job());  // neither: it still works
    }
    if (!go_on) context.TryCancel();
    const grpc::Status ended = reader->Finish();
    silent = watch.End();
    *begun |= silent;
    return ended;
  };
  const grpc::Status status = OfLeader(0, collect);
  if (!go_on) return absl::CancelledError("interrupted; what is collected stays so");
  if (silent) {
    return absl::DeadlineExceededError(absl::StrCat(
        "the scheduler at ", address_, " has said nothing of its collection for ",
        absl::FormatDuration(silence), "; what is collected stays so, collect again later"));
  }
  if (!status.ok()) return Told(status);
  if (!total) return absl::DataLossError("the service did not tell the total; try again");
  return *total;
}

}  // namespace heddle::client
