#include "worker/supervisor/stage_runner.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files/blob_store.h"
#include "base/files/mapped_file.h"
#include "proto/check_message.h"
#include "proto/message_rules.h"
#include "worker/confine/policy.h"

namespace heddle::worker {
namespace {

// Candidates that the child has at a time: the current one and the next, so that the child never
// waits for the supervisor.
constexpr size_t kWindow = 2;
// Most candidates taken from the caller without an answer; flow control holds back the rest.
constexpr size_t kMaxItems = 32;
// No more input is taken while this many bytes wait for the child.
constexpr size_t kMaxOutbox = 1 << 20;
// How often it is checked what the child uses; also the longest sleep of the loop.
constexpr absl::Duration kTick = absl::Milliseconds(50);
// The loop, and the wait for a slow caller, look at the limits at least so often while this process runs.
constexpr absl::Duration kLongestPause = absl::Seconds(1);
// How often the folder of compiled code is checked, which has a thousand files.
constexpr absl::Duration kFolderTick = absl::Seconds(1);
// For a result that a child has begun to write when its time is over: a little more than a caller may take
// for what came before it (stage_call.cc).
constexpr absl::Duration kReadPatience = absl::Seconds(70);
// A child that has finished and does not exit within this time is killed; nothing is lost.
constexpr absl::Duration kExitPatience = absl::Seconds(2);
// After this many children in a row that fail between candidates, the stage itself is at fault.
constexpr int kMaxUnexplained = 3;
// How many times the size of a model's parts a child may map beyond its memory limit.
constexpr int64_t kMappings = 3;

// Whether the stage gets the model of its job.
bool HasModel(v1::StageKind kind) {
  return kind == v1::STAGE_IMPORT || kind == v1::STAGE_PLAN || kind == v1::STAGE_COMPILE;
}

// A model that crashes the importer or compiler, or keeps it busy for too long, would do so on any
// worker; the scheduler asks a second one. A kill from outside says nothing about the model.
v1::FaultKind BlameForCrash(v1::StageKind kind, bool from_outside) {
  return HasModel(kind) && !from_outside ? v1::FAULT_USER : v1::FAULT_INFRASTRUCTURE;
}

// A time limit of the caller's, or the worker's default, and at most what the worker allows.
int64_t LimitMs(int64_t asked_ms, absl::Duration otherwise, const RunnerOptions& options) {
  const absl::Duration limit = asked_ms > 0 ? absl::Milliseconds(asked_ms) : otherwise;
  return absl::ToInt64Milliseconds(std::min(limit, options.longest_stage));
}

// Sets the limits, and adds what the child must know about the slot and its past.
v1::StageStart WithSlot(v1::StageStart start, const RunnerOptions& options) {
  start.set_time_limit_ms(LimitMs(start.time_limit_ms(), options.stage_limit, options));
  start.set_candidate_time_limit_ms(
      LimitMs(start.candidate_time_limit_ms(), options.candidate_limit, options));
  start.set_memory_limit_bytes(start.memory_limit_bytes() > 0 ? std::min(start.memory_limit_bytes(),
                                                                         options.memory_limit_bytes)
                                                              : options.memory_limit_bytes);
  start.clear_blob_folder();
  if (start.kind() == v1::STAGE_COMPARE) start.mutable_compare()->set_device(options.gpu);
  if (start.kind() != v1::STAGE_PROFILE) return start;
  start.mutable_profile()->set_device(options.gpu);
  const SlotGuard* guard = options.guard;
  if (guard != nullptr) {
    start.mutable_profile()->set_canary_usual_ns(guard->CanaryUsualNs(start.slot()));
    start.mutable_profile()->set_unguarded(!guard->options().on);
  }
  return start;
}

// Where the folders of stages are: beside the blobs, which are linked into them.
std::string StageParent(const RunnerOptions& options) {
  if (options.blobs != nullptr) return options.blobs->folder();
  std::error_code error;
  return std::filesystem::temp_directory_path(error).string();
}

std::string Mebibytes(int64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

}  // namespace

StageRunner::StageRunner(const v1::StageStart& start, const RunnerOptions& options,
                         StageCaller& caller, StageSession& session)
    : start_(WithSlot(start, options)),
      options_(options),
      memory_limit_bytes_(start_.memory_limit_bytes()),
      candidate_limit_(absl::Milliseconds(start_.candidate_time_limit_ms())),
      caller_(caller),
      session_(session),
      pauses_(kLongestPause) {}

bool StageRunner::HasCandidates() const {
  return start_.kind() == v1::STAGE_BUILD || start_.kind() == v1::STAGE_PROFILE;
}

v1::StageFinished StageRunner::Run() {
  const absl::Time begin = MonotonicNow();
  ExcusePause();
  deadline_ = begin + absl::Milliseconds(start_.time_limit_ms());
  if (!start_.blobs().empty()) FetchBlobs();
  if (!over_ && start_.kind() == v1::STAGE_COMPARE) CheckModules();
  if (!over_) StartChild();
  while (!over_) {
    CheckLimits();
    if (!over_) TakeInput();
    if (!over_) Feed();
    if (!over_) Wait();
  }
  EndChild(finished_.fault().kind() == v1::FAULT_NONE ? kExitPatience : absl::ZeroDuration());
  finished_.set_wall_ns(absl::ToInt64Nanoseconds(MonotonicNow() - begin));
  finished_.set_cpu_ns(absl::ToInt64Nanoseconds(cpu_));
  finished_.set_peak_memory_bytes(peak_memory_bytes_);
  return finished_;
}

void StageRunner::FetchBlobs() {
  if (options_.blobs == nullptr)
    return Over(v1::FAULT_INFRASTRUCTURE, "this worker has no folder for the parts of models");
  absl::StatusOr<std::unique_ptr<BlobCache::Fetch>> fetch = options_.blobs->Begin(start_.blobs());
  if (!fetch.ok()) return Over(v1::FAULT_INFRASTRUCTURE, std::string(fetch.status().message()));
  fetch_ = *std::move(fetch);
  v1::StageEvent event;
  *event.mutable_wanted() = fetch_->wanted();
  Forward(event);
  while (!over_ && !fetch_->complete()) {
    CheckStage();
    v1::StageInput input;
    if (over_ || caller_.Read(&input)) {
      if (over_) return;
      if (const absl::Status checked = CheckMessage(input); !checked.ok())
        return Over(v1::FAULT_USER, std::string(checked.message()));
      const absl::Status taken = input.has_chunk()
                                     ? fetch_->Take(input.chunk())
                                     : absl::InvalidArgumentError("blobs come in chunks only");
      if (!taken.ok()) Over(v1::FAULT_INFRASTRUCTURE, std::string(taken.message()));
    } else if (caller_.InputEnded()) {
      Over(v1::FAULT_INFRASTRUCTURE, "the caller did not send all parts of the model");
    } else {
      pollfd fd = {.fd = session_.event_fd(), .events = POLLIN, .revents = 0};
      poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(kTick)));
      if (fd.revents != 0) session_.Clear();
    }
  }
}

void StageRunner::CheckModules() {
  if (options_.check_module == nullptr) return;
  for (const v1::BlobRef& blob : start_.blobs()) {
    const absl::StatusOr<SharedBytes> file =
        MapFile(BlobPath(options_.blobs->folder(), blob.sha256()));
    const absl::Status checked = file.ok() ? options_.check_module(**file) : file.status();
    if (!checked.ok())
      return Over(v1::FAULT_INFRASTRUCTURE,
                  absl::StrCat("a module is not timed: ", checked.message()));
  }
}

void StageRunner::StartChild() {
  (void)pauses_.Look(MonotonicNow());  // the end of the child before may have taken long
  absl::StatusOr<std::unique_ptr<confine::StageFolder>> folder =
      confine::StageFolder::Make(StageParent(options_), options_.confinement);
  if (!folder.ok()) return Over(v1::FAULT_INFRASTRUCTURE, std::string(folder.status().message()));
  folder_ = *std::move(folder);
  if (fetch_ != nullptr) {
    const absl::Status shown = folder_->ShowBlobs(options_.blobs->folder(), start_.blobs());
    if (!shown.ok()) return Over(v1::FAULT_INFRASTRUCTURE, std::string(shown.message()));
  }
  if (start_.kind() != v1::STAGE_PROFILE && start_.kind() != v1::STAGE_COMPARE) {
    code_folder_ = confine::JobCodeFolder(options_.code_cache, start_.job(),
                                          start_.job_created_unix_ns(), options_.confinement);
  }
  // Mapped parts take addresses: as they came, and as compiling rearranges them.
  int64_t mapped_bytes = 0;
  for (const v1::BlobRef& blob : start_.blobs()) mapped_bytes += kMappings * blob.bytes();
  absl::StatusOr<std::unique_ptr<ChildProcess>> child = ChildProcess::Start(
      {.command = options_.child_command,
       .cores = options_.cores,
       // A GPU driver reserves as many addresses as there is memory of any
       // kind, so only resident memory is limited.
       .memory_limit_bytes = options_.gpu.empty() ? memory_limit_bytes_ + mapped_bytes : 0,
       .confinement = options_.confinement,
       .folder = folder_->path(),
       .environment = confine::StageVariables(code_folder_)});
  if (!child.ok()) return Over(v1::FAULT_INFRASTRUCTURE, std::string(child.status().message()));
  child_ = *std::move(child);
  decoder_ = FrameDecoder();
  sent_ = 0;
  answered_here_ = 0;
  current_.reset();
  breach_.reset();
  next_check_ = MonotonicNow() + kTick;
  next_folder_check_ = MonotonicNow() + kFolderTick;
  v1::StageInput first;
  *first.mutable_start() = start_;
  if (fetch_ != nullptr) first.mutable_start()->set_blob_folder(confine::kBlobFolder);
  absl::StatusOr<std::string> frame = EncodeFrame(first);
  if (!frame.ok()) return Over(v1::FAULT_USER, std::string(frame.status().message()));
  outbox_ = *std::move(frame);
}

void StageRunner::ExcusePause() {
  const absl::Duration pause = pauses_.Look(MonotonicNow());
  deadline_ += pause;
  candidate_deadline_ += pause;
}

void StageRunner::CheckStage() {
  ExcusePause();
  if (caller_.Gone()) return Over(v1::FAULT_INFRASTRUCTURE, "the caller went away");
  if (session_.stopped()) return Over(v1::FAULT_INFRASTRUCTURE, session_.reason());
  if (MonotonicNow() >= deadline_) {
    // Until there is a child, the parts of the model are still on their way.
    return Over(BlameForCrash(start_.kind(), /*from_outside=*/child_ == nullptr),
                absl::StrCat("the stage took longer than its limit of ",
                             absl::FormatDuration(absl::Milliseconds(start_.time_limit_ms()))));
  }
}

void StageRunner::CheckLimits() {
  CheckStage();
  if (over_) return;
  const bool due = MonotonicNow() >= next_check_;
  if (const std::optional<Breach> breach = FindBreach(); breach.has_value())
    return ChildFailed(breach->failure, breach->what);
  if (!due) return;
  // A process that the child started may hold the pipes open, so that they never end. What they
  // contain is read; nothing more is waited for.
  if (child_->Exited() && !ReadChild() && !over_) HandleExit();
}

std::optional<StageRunner::Breach> StageRunner::FindBreach() {
  const absl::Time now = MonotonicNow();
  // A result that waits to be read is in time: it is the caller or this process that is slow. But a child
  // may also write without an end.
  const bool late = now >= candidate_deadline_ &&
                    (!child_->HasOutput() || now >= candidate_deadline_ + kReadPatience);
  if (current_.has_value() && late) {
    return Breach{Failure::kTimeout, absl::StrCat("took longer than its limit of ",
                                                  absl::FormatDuration(candidate_limit_))};
  }
  if (now < next_check_) return std::nullopt;
  next_check_ = now + kTick;
  const std::optional<BytesInUse> bytes = child_->Bytes();
  const std::optional<ThreadsInUse> threads =
      child_->Threads(confine::MaxThreads(child_->AllowedCores()));
  // A child that cannot be watched has no limits, so it has no leave to run either.
  if (!bytes.has_value() || !threads.has_value()) {
    if (child_->Exited()) return std::nullopt;
    return Breach{Failure::kUnwatched, "cannot be watched: the system does not tell what it uses"};
  }
  std::string excess = Excess(*bytes, *threads);
  if (excess.empty()) return std::nullopt;
  return Breach{Failure::kCrash, std::move(excess)};
}

void StageRunner::WatchChild() {
  ExcusePause();
  if (child_ == nullptr || breach_.has_value()) return;
  child_->DrainErr();  // or a child that says much waits, and is late
  breach_ = FindBreach();
  // A child whose stage is over its limit is killed here; CheckStage then tells the caller.
  if (breach_.has_value() || MonotonicNow() >= deadline_) child_->Kill();
}

std::string StageRunner::Excess(const BytesInUse& bytes, const ThreadsInUse& threads) {
  const int most_threads = confine::MaxThreads(child_->AllowedCores());
  if (bytes.memory > memory_limit_bytes_)
    return absl::StrCat("used more than its memory limit of ", Mebibytes(memory_limit_bytes_));
  if (threads.count > most_threads) return absl::StrCat("had more than ", most_threads, " threads");
  if (threads.elsewhere) return "had a thread on a core that is not its slot's";
  const int64_t most_bytes = confine::MaxFileBytes(start_);
  if (bytes.unnamed_files + folder_->PrivateBytes() > most_bytes)
    return absl::StrCat("filled more than ", Mebibytes(most_bytes), " with files");
  // Drivers of GPUs have such files, and so have stages with the parts of a model (shared_bytes.h).
  const bool keeps_weights = HasModel(start_.kind()) && !start_.blobs().empty();
  if (bytes.unseen_file && options_.gpu.empty() && !keeps_weights)
    return "hid a file: it has neither a name nor a descriptor";
  if (code_folder_.empty() || MonotonicNow() < next_folder_check_) return "";
  next_folder_check_ = MonotonicNow() + kFolderTick;
  // A code cache that is full may grow by a few files before it is noticed.
  if (confine::FolderBytes(code_folder_) > 2 * confine::kMaxCodeBytes)
    return absl::StrCat("filled more than ", Mebibytes(2 * confine::kMaxCodeBytes), " with code");
  return "";
}

void StageRunner::TakeInput() {
  v1::StageInput input;
  while (!over_ && outbox_.size() < kMaxOutbox && items_.size() < kMaxItems &&
         caller_.Read(&input)) {
    if (const absl::Status checked = CheckMessage(input); !checked.ok())
      return Over(v1::FAULT_USER, std::string(checked.message()));
    if (HasCandidates()) {
      AddItem(input);
    } else if (input.has_chunk()) {
      absl::StatusOr<std::string> frame = EncodeFrame(input);
      if (!frame.ok()) return Over(v1::FAULT_USER, std::string(frame.status().message()));
      outbox_ += *frame;
    } else {
      return Over(v1::FAULT_USER, "this kind of stage takes chunks only");
    }
  }
}

void StageRunner::AddItem(const v1::StageInput& input) {
  const bool fits = start_.kind() == v1::STAGE_BUILD ? input.has_build() : input.has_profile();
  if (!fits) return Over(v1::FAULT_USER, "this kind of stage takes its own candidates only");
  const int64_t id =
      input.has_build() ? input.build().candidate().id() : input.profile().candidate().id();
  const bool known = std::any_of(items_.begin(), items_.end(),
                                 [&](const Item& item) { return item.candidate == id; });
  if (known) return Over(v1::FAULT_USER, absl::StrCat("candidate ", id, " was sent twice"));
  absl::StatusOr<std::string> frame = EncodeFrame(input);
  if (!frame.ok()) return Over(v1::FAULT_USER, std::string(frame.status().message()));
  items_.push_back({.candidate = id, .frame = *std::move(frame)});
}

void StageRunner::Feed() {
  while (sent_ < items_.size() && sent_ < kWindow) outbox_ += items_[sent_++].frame;
  while (!outbox_.empty() && child_->in_open()) {
    const ssize_t n = write(child_->in_fd(), outbox_.data(), outbox_.size());
    if (n > 0) {
      outbox_.erase(0, n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else {
      break;  // full, or broken, which reading will notice
    }
  }
  if (outbox_.empty() && sent_ == items_.size() && caller_.InputEnded()) child_->CloseIn();
}

void StageRunner::Wait() {
  absl::Time wake = std::min(deadline_, MonotonicNow() + kTick);
  if (current_.has_value()) wake = std::min(wake, candidate_deadline_);
  const int64_t wait_ms =
      std::max<int64_t>(0, absl::ToInt64Milliseconds(wake - MonotonicNow()) + 1);
  pollfd fds[4] = {{.fd = session_.event_fd(), .events = POLLIN, .revents = 0},
                   {.fd = child_->out_fd(), .events = POLLIN, .revents = 0},
                   {.fd = child_->err_fd(), .events = POLLIN, .revents = 0},
                   {.fd = outbox_.empty() ? -1 : child_->in_fd(), .events = POLLOUT, .revents = 0}};
  const int ready = poll(fds, 4, static_cast<int>(wait_ms));
  ExcusePause();  // before a candidate gets a deadline from now on, to which the pause must not be added
  if (ready <= 0) return;
  if (fds[0].revents != 0) session_.Clear();
  if (fds[2].revents != 0) child_->DrainErr();
  if (fds[1].revents != 0) ReadChild();
}

bool StageRunner::ReadChild() {
  static constexpr size_t kBuffer = 64 << 10;
  char buffer[kBuffer];
  const ssize_t n = read(child_->out_fd(), buffer, kBuffer);
  if (n < 0) return false;  // nothing there, or interrupted
  if (n == 0) {
    HandleExit();
    return true;
  }
  decoder_.Append({buffer, static_cast<size_t>(n)});
  const ChildProcess* child = child_.get();
  v1::StageEvent event;
  while (!over_ && child_.get() == child) {
    const absl::StatusOr<bool> more = decoder_.Next(&event);
    if (!more.ok()) {
      ChildFailed(Failure::kCrash, absl::StrCat("wrote garbage: ", more.status().message()));
    } else if (*more) {
      HandleEvent(event);
    } else {
      break;
    }
  }
  return true;
}

void StageRunner::HandleEvent(v1::StageEvent& event) {
  // The child runs code that nobody has checked, so its answers are checked like those of a stranger.
  TrimLines(&event);
  if (const absl::Status checked = CheckEvent(start_, event); !checked.ok())
    return ChildFailed(Failure::kCrash, absl::StrCat("wrote garbage: ", checked.message()));
  if (event.has_finished()) {
    if (event.finished().fault().kind() == v1::FAULT_NONE &&
        (!items_.empty() || current_.has_value())) {
      return ChildFailed(Failure::kCrash, "ended before its candidates were done");
    }
    finished_ = event.finished();
    over_ = true;
    return;
  }
  const bool expected = HasCandidates() ? HandleResult(event) : !event.has_wanted();
  if (!expected) return ChildFailed(Failure::kCrash, "wrote garbage: a message out of turn");
  Forward(event);
  // The caller may have taken its time.
  if (!over_) CheckStage();
  if (over_ || !breach_.has_value()) return;
  const Breach breach = *std::move(breach_);
  ChildFailed(breach.failure, breach.what);
}

bool StageRunner::HandleResult(v1::StageEvent& event) {
  // The child takes candidates in the order in which it gets them.
  const bool has_item = sent_ > 0 && !items_.empty();
  if (event.has_candidate_started()) {
    if (current_.has_value() || !has_item ||
        items_.front().candidate != event.candidate_started().candidate())
      return false;
    current_ = items_.front().candidate;
    candidate_deadline_ = MonotonicNow() + candidate_limit_;
    return true;
  }
  if (!current_.has_value()) return false;
  v1::Evidence* evidence = nullptr;
  if (start_.kind() == v1::STAGE_BUILD && event.has_built() &&
      event.built().candidate() == *current_) {
    if (event.built().has_failure())
      evidence = event.mutable_built()->mutable_failure()->mutable_evidence();
  } else if (start_.kind() == v1::STAGE_PROFILE && event.has_profiled() &&
             event.profiled().candidate() == *current_) {
    evidence = event.mutable_profiled()->mutable_measurement()->mutable_evidence();
  } else {
    return false;
  }
  if (evidence != nullptr) {
    evidence->set_worker(options_.worker);
    evidence->set_slot(start_.slot());
    // The guard watches CPU cores only. The clock and temperature of a GPU are in its own evidence.
    if (options_.guard != nullptr && options_.gpu.empty() && event.has_profiled()) {
      options_.guard->Observe(start_.slot(), *evidence, MonotonicNow());
      options_.guard->KeepLimits(start_.slot(), start_.profile().threads(), evidence);
    }
  }
  items_.pop_front();
  --sent_;
  current_.reset();
  ++answered_here_;
  unexplained_ = 0;
  return true;
}

void StageRunner::HandleExit() {
  const int wait_status = EndChild(kExitPatience);
  const bool from_outside = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
  Recover(Failure::kCrash, DescribeEnd(wait_status), from_outside);
}

void StageRunner::ChildFailed(Failure failure, const std::string& what) {
  EndChild(absl::ZeroDuration());
  Recover(failure, what, /*from_outside=*/false);
}

void StageRunner::Recover(Failure failure, const std::string& what, bool from_outside) {
  std::string message = what;
  if (!last_words_.empty()) absl::StrAppend(&message, ": ", last_words_);
  if (failure == Failure::kUnwatched)
    return Over(v1::FAULT_INFRASTRUCTURE, absl::StrCat("the stage's process ", message));
  if (!HasCandidates()) {
    return Over(BlameForCrash(start_.kind(), from_outside),
                absl::StrCat("the stage's process failed: ", message));
  }
  if (current_.has_value()) {
    const int64_t candidate = *current_;
    const bool alone = answered_here_ == 0;
    // Earlier candidates in this process may have done the damage.
    const bool again =
        failure == Failure::kCrash && !alone && second_chance_.insert(candidate).second;
    if (!again) AnswerFailure(candidate, failure, message);
  } else if (++unexplained_ >= kMaxUnexplained) {
    return Over(v1::FAULT_INFRASTRUCTURE,
                absl::StrCat("the stage's process failed before a candidate ran: ", message));
  }
  if (over_) return;
  if (items_.empty() && caller_.InputEnded()) {
    over_ = true;
    return;
  }
  StartChild();
}

void StageRunner::AnswerFailure(int64_t candidate, Failure failure, const std::string& message) {
  v1::StageEvent event;
  v1::Measurement* measurement = nullptr;
  const bool timeout = failure == Failure::kTimeout;
  if (start_.kind() == v1::STAGE_BUILD) {
    event.mutable_built()->set_candidate(candidate);
    measurement = event.mutable_built()->mutable_failure();
    measurement->set_outcome(timeout ? v1::OUTCOME_BUILD_TIMEOUT : v1::OUTCOME_BUILD_ERROR);
  } else {
    event.mutable_profiled()->set_candidate(candidate);
    measurement = event.mutable_profiled()->mutable_measurement();
    measurement->set_outcome(timeout ? v1::OUTCOME_RUN_TIMEOUT : v1::OUTCOME_RUN_CRASH);
  }
  measurement->set_message(message);
  measurement->mutable_evidence()->set_worker(options_.worker);
  measurement->mutable_evidence()->set_slot(start_.slot());
  items_.pop_front();
  current_.reset();
  unexplained_ = 0;
  Forward(event);
}

void StageRunner::Forward(const v1::StageEvent& event) {
  if (!caller_.Write(event, [this] { WatchChild(); }))
    Over(v1::FAULT_INFRASTRUCTURE, "the caller went away");
}

int StageRunner::EndChild(absl::Duration patience) {
  last_words_.clear();
  if (child_ == nullptr) return 0;
  const ChildEnd end = child_->End(patience);
  last_words_ = child_->LastErrLine();
  cpu_ += end.cpu;
  peak_memory_bytes_ = std::max(peak_memory_bytes_, end.peak_memory_bytes);
  child_.reset();
  folder_.reset();
  return end.wait_status;
}

void StageRunner::Over(v1::FaultKind kind, const std::string& message) {
  if (over_) return;
  over_ = true;
  finished_.mutable_fault()->set_kind(kind);
  finished_.mutable_fault()->set_message(message);
}

}  // namespace heddle::worker
