#include "tests/hollow/hollow_workers.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/files/open_files.h"
#include "base/splitmix.h"
#include "proto/access/channel.h"
#include "proto/grpc_util.h"
#include "proto/tracker.grpc.pb.h"
#include "proto/worker.grpc.pb.h"
#include "tests/hollow/timers.h"

namespace heddle::hollow {
namespace {

constexpr int kMostWorkers = 4096;  // the tracker's limit
constexpr int kMostSlots = 64;      // of a worker
constexpr absl::Duration kBeatLimit = absl::Seconds(3);
// How long a stage waits until an earlier one on its slot is gone, and how often it looks.
constexpr absl::Duration kSlotPatience = absl::Seconds(5);
constexpr absl::Duration kLookAgain = absl::Milliseconds(5);
constexpr size_t kMostGaps = 1'000'000;  // kept for one call of TakeCounts
// About what a real worker says of its cores.
constexpr size_t kMachineBytes = 600;

class Fleet;

// One RunStage call. Lock order: a call's lock, then the fleet's.
class Call final : public grpc::ServerBidiReactor<v1::StageInput, v1::StageEvent> {
 public:
  explicit Call(Fleet* fleet) : fleet_(fleet) {}
  // Begins to read; `self` keeps the call until gRPC is done with it.
  void Begin(std::shared_ptr<Call> self);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  const v1::StageStart& start() const { return start_; }  // once it has been read
  // The fleet's answer to Admit.
  void Admitted(const grpc::Status& status);
  void Stop(const std::string& reason);

 private:
  void Proceed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void After(absl::Duration wait, std::function<void(Call*)> run);
  void Send(v1::StageEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndStage(v1::FaultKind kind, const std::string& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the call once nothing is being written. The first status counts.
  void End(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Fleet* const fleet_;
  std::shared_ptr<Call> self_;
  v1::StageInput incoming_;  // gRPC's until OnReadDone
  v1::StageStart start_;
  bool started_ = false;  // OnReadDone only

  absl::Mutex mutex_;
  std::deque<v1::StageInput> items_ ABSL_GUARDED_BY(mutex_);  // candidates to answer
  std::deque<v1::StageEvent> outbox_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool input_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool admitted_ ABSL_GUARDED_BY(mutex_) = false;
  bool working_ ABSL_GUARDED_BY(mutex_) = false;  // a timer runs
  bool over_ ABSL_GUARDED_BY(mutex_) = false;     // `end_` says how
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status end_ ABSL_GUARDED_BY(mutex_);
};

struct Slot {
  int worker = 0;
  bool device = false;
  std::shared_ptr<Call> call;  // whose stage runs
  int waiting = 0;             // stages that wait until that one has gone
  absl::Time began;
  absl::Time ended = absl::InfinitePast();
  uint64_t highest_token = 0;
};

struct Grant {
  std::string slot;
  uint64_t token = 0;
  absl::Time expires;  // monotonic
};

struct Worker {
  v1::SynchronizeRequest report;
  std::unique_ptr<v1::TrackerService::Stub> tracker;
  std::map<std::string, Grant> grants;  // by lease
  bool registered = false;
  bool calling = false;
  std::vector<std::function<void()>> waiting;  // for the answer to a call that is yet to begin
};

// What one call to the tracker needs while it is under way.
struct Beat {
  grpc::ClientContext context;
  v1::SynchronizeRequest request;
  v1::SynchronizeResponse response;
  absl::Time sent;
  std::vector<std::function<void()>> then;
};

class Fleet final : public HollowWorkers, public v1::WorkerService::CallbackService {
 public:
  explicit Fleet(const HollowOptions& options)
      : options_(options), script_(options.script), numbers_(options.script.seed) {}
  ~Fleet() override;
  absl::Status Listen();

  HollowCounts TakeCounts() override;
  int Registered() const override;

  grpc::ServerBidiReactor<v1::StageInput, v1::StageEvent>* RunStage(
      grpc::CallbackServerContext*) override {
    auto call = std::make_shared<Call>(this);
    Call* const raw = call.get();
    raw->Begin(std::move(call));
    return raw;
  }

  // For calls.
  const StageScript& script() const { return script_; }
  Timers& timers() { return timers_; }
  // Answers by Call::Admitted, from here or later.
  void Admit(const std::shared_ptr<Call>& call);
  enum class Outcome { kDone, kFault, kInterrupted };
  // The stage of the call has ended, if it had begun. Before the caller learns of it.
  void Leave(const Call* call, Outcome outcome);
  void CountTrial() {
    absl::MutexLock lock(&mutex_);
    ++counts_.trials;
  }

 private:
  // One call to the tracker now, or another one after that which is under way. `then` runs after it.
  void Synchronize(int worker, std::function<void()> then);
  void BeginBeat(int worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeatDone(int worker, const std::shared_ptr<Beat>& beat, bool ok);
  void KeepBeating(int worker);
  // Ends the stages of the worker whose lease is not valid any more.
  void StopInvalid(int worker);
  // Answers the call, at once or when the stage that still has its slot is gone. `waits`: it is counted
  // among those that wait.
  void Enter(const std::shared_ptr<Call>& call, absl::Time give_up, bool waits);
  bool Granted(const v1::StageStart& start) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const HollowOptions options_;
  const StageScript script_;
  Timers timers_;
  mutable absl::Mutex mutex_;
  std::vector<Worker> workers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Slot> slots_ ABSL_GUARDED_BY(mutex_);  // names are unique in the fleet
  SplitMix numbers_ ABSL_GUARDED_BY(mutex_);
  HollowCounts counts_ ABSL_GUARDED_BY(mutex_);
  absl::Duration beat_every_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(1);
  int beats_ ABSL_GUARDED_BY(mutex_) = 0;  // under way
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Server> server_;
};

// ---- a call ----

void Call::Begin(std::shared_ptr<Call> self) {
  self_ = std::move(self);
  StartRead(&incoming_);
}

void Call::OnReadDone(bool ok) {
  if (!started_) {
    started_ = true;
    if (!ok || !incoming_.has_start()) {
      absl::MutexLock lock(&mutex_);
      End({grpc::StatusCode::INVALID_ARGUMENT, "the first message must be `start`"});
      return;
    }
    {
      absl::MutexLock lock(&mutex_);  // OnCancel may come meanwhile
      start_ = incoming_.start();
      if (!start_.blobs().empty()) {  // it has them all
        v1::StageEvent none;
        none.mutable_wanted();
        Send(std::move(none));
      }
      if (over_) return;
      StartRead(&incoming_);
    }
    fleet_->Admit(self_);
    return;
  }
  absl::MutexLock lock(&mutex_);
  if (!ok) {
    input_ended_ = true;
  } else {
    if (over_) return;
    // Models and search states are dropped.
    if (incoming_.has_build() || incoming_.has_profile()) items_.push_back(std::move(incoming_));
    StartRead(&incoming_);
  }
  Proceed();
}

void Call::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  outbox_.pop_front();
  if (!ok) {
    outbox_.clear();
    End({grpc::StatusCode::CANCELLED, "the caller is gone"});
  }
  if (!outbox_.empty()) {
    writing_ = true;
    StartWrite(&outbox_.front());
  }
  FinishIfIdle();
}

void Call::OnCancel() {
  absl::MutexLock lock(&mutex_);
  End({grpc::StatusCode::CANCELLED, "cancelled"});
}

void Call::OnDone() {
  const std::shared_ptr<Call> last = std::move(self_);  // timers may still have others
}

void Call::Admitted(const grpc::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (over_) {  // cancelled meanwhile
    fleet_->Leave(this, Fleet::Outcome::kInterrupted);
    return;
  }
  if (!status.ok()) return End(status);
  admitted_ = true;
  Proceed();
}

void Call::Stop(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  End({grpc::StatusCode::ABORTED, reason});
}

void Call::Proceed() {
  if (!admitted_ || working_ || over_) return;
  const bool streams = start_.kind() == v1::STAGE_BUILD || start_.kind() == v1::STAGE_PROFILE;
  if (streams && items_.empty() && input_ended_) return EndStage(v1::FAULT_NONE, "");
  if (streams ? items_.empty() : !input_ended_) return;
  if (fleet_->script().Breaks(start_))
    return End({grpc::StatusCode::UNAVAILABLE, "a hollow break"});
  working_ = true;
  if (!streams) {
    After(fleet_->script().TimeOf(start_, 0), [](Call* call) {
      absl::MutexLock lock(&call->mutex_);
      call->working_ = false;
      if (call->over_) return;
      if (call->fleet_->script().Faulty(call->start_))
        return call->EndStage(v1::FAULT_INFRASTRUCTURE, "a hollow fault");
      std::vector<v1::StageEvent> results = call->fleet_->script().Results(call->start_);
      if (results.empty()) return call->EndStage(v1::FAULT_USER, "hollow workers choose no plans");
      for (v1::StageEvent& event : results) call->Send(std::move(event));
      call->EndStage(v1::FAULT_NONE, "");
    });
    return;
  }
  const v1::StageInput& item = items_.front();
  const int64_t id =
      item.has_build() ? item.build().candidate().id() : item.profile().candidate().id();
  v1::StageEvent started;
  started.mutable_candidate_started()->set_candidate(id);
  Send(std::move(started));
  After(fleet_->script().TimeOf(start_, id), [](Call* call) {
    absl::MutexLock lock(&call->mutex_);
    call->working_ = false;
    if (call->over_) return;
    if (call->fleet_->script().Faulty(call->start_))
      return call->EndStage(v1::FAULT_INFRASTRUCTURE, "a hollow fault");
    if (call->start_.kind() == v1::STAGE_PROFILE) call->fleet_->CountTrial();
    call->Send(call->fleet_->script().AnswerTo(call->start_, call->items_.front()));
    call->items_.pop_front();
    call->Proceed();
  });
}

void Call::After(absl::Duration wait, std::function<void(Call*)> run) {
  fleet_->timers().After(wait, [self = self_, run = std::move(run)] { run(self.get()); });
}

void Call::Send(v1::StageEvent event) {
  if (over_) return;
  outbox_.push_back(std::move(event));
  if (writing_) return;
  writing_ = true;
  StartWrite(&outbox_.front());
}

void Call::EndStage(v1::FaultKind kind, const std::string& message) {
  v1::StageEvent last;
  last.mutable_finished()->mutable_fault()->set_kind(kind);
  last.mutable_finished()->mutable_fault()->set_message(message);
  fleet_->Leave(this, kind == v1::FAULT_NONE ? Fleet::Outcome::kDone : Fleet::Outcome::kFault);
  Send(std::move(last));
  End(grpc::Status::OK);
}

void Call::End(const grpc::Status& status) {
  if (over_) return;
  over_ = true;
  end_ = status;
  fleet_->Leave(this, Fleet::Outcome::kInterrupted);  // if it has not left before
  if (!status.ok() && outbox_.size() > 1) outbox_.erase(outbox_.begin() + 1, outbox_.end());
  FinishIfIdle();
}

void Call::FinishIfIdle() {
  if (!over_ || finished_ || writing_) return;
  finished_ = true;
  Finish(end_);
}

// ---- the fleet ----

absl::Status Fleet::Listen() {
  if (options_.workers < 1 || options_.workers > kMostWorkers || options_.cpu_slots < 0 ||
      options_.device_slots < 0 || options_.cpu_slots + options_.device_slots < 1 ||
      options_.cpu_slots + options_.device_slots > kMostSlots) {
    return absl::InvalidArgumentError(absl::StrCat(
        "hollow workers: 1 to ", kMostWorkers, " of them, each with 1 to ", kMostSlots, " slots"));
  }
  if (const absl::Status address = CheckAddress(options_.tracker, Credentials{}); !address.ok())
    return address;
  RaiseOpenFiles(kFilesOfDaemon);
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // each port belongs to one worker
  UsePings(&builder);
  builder.RegisterService(this);
  std::vector<int> ports(static_cast<size_t>(options_.workers));
  for (int& port : ports)
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || std::count(ports.begin(), ports.end(), 0) > 0) {
    return absl::UnavailableError(
        absl::StrCat("hollow workers: cannot listen on ", ports.size(), " ports; see `ulimit -n`"));
  }
  {
    absl::MutexLock lock(&mutex_);
    for (int w = 0; w < options_.workers; ++w) {
      Worker& worker = workers_.emplace_back();
      worker.tracker = v1::TrackerService::NewStub(
          MakeChannel(options_.tracker, PeerName(Role::kTracker), Credentials{}));
      worker.report.set_worker(absl::StrCat(options_.name, "-", w));
      worker.report.set_boot_id(absl::StrCat(absl::Hex(numbers_.Next())));
      worker.report.set_address(absl::StrCat("127.0.0.1:", ports[static_cast<size_t>(w)]));
      worker.report.set_host(worker.report.worker());
      worker.report.set_version("hollow");
      for (int s = 0; s < options_.cpu_slots + options_.device_slots; ++s) {
        const bool device = s >= options_.cpu_slots;
        v1::Slot& slot = *worker.report.add_slots();
        slot.set_name(absl::StrCat(worker.report.worker(), device ? "-profile" : "-cpu", s));
        slot.set_kind(device ? v1::SLOT_DEVICE : v1::SLOT_CPU);
        slot.add_cores(s);
        if (device) {
          slot.set_device_key(options_.device_key);
          slot.set_target(options_.target);
          slot.set_machine(std::string(kMachineBytes, 'm'));
        } else {
          slot.add_builds("llvm");
        }
        Slot& known = slots_[slot.name()];
        known.worker = w;
        known.device = device;
      }
    }
  }
  // Not all at once.
  for (int w = 0; w < options_.workers; ++w)
    timers_.After(absl::Milliseconds(w), [this, w] { KeepBeating(w); });
  return absl::OkStatus();
}

Fleet::~Fleet() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  timers_.Stop();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  server_.reset();
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return beats_ == 0; };
  absl::MutexLock lock(&mutex_, absl::Condition(&none));  // each has a deadline
}

HollowCounts Fleet::TakeCounts() {
  absl::MutexLock lock(&mutex_);
  HollowCounts counts = counts_;
  counts_.gaps_us.clear();
  return counts;
}

int Fleet::Registered() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(std::count_if(workers_.begin(), workers_.end(),
                                        [](const Worker& worker) { return worker.registered; }));
}

void Fleet::KeepBeating(int worker) {
  Synchronize(worker, [this, worker] {
    absl::Duration wait;
    {
      absl::MutexLock lock(&mutex_);
      wait = (0.5 + 0.5 * numbers_.Unit()) * beat_every_;
    }
    timers_.After(wait, [this, worker] { KeepBeating(worker); });
  });
}

void Fleet::Synchronize(int worker, std::function<void()> then) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  Worker& of = workers_[static_cast<size_t>(worker)];
  of.waiting.push_back(std::move(then));
  if (!of.calling) BeginBeat(worker);
}

void Fleet::BeginBeat(int worker) {
  Worker& of = workers_[static_cast<size_t>(worker)];
  of.calling = true;
  ++beats_;
  const auto beat = std::make_shared<Beat>();
  beat->then = std::exchange(of.waiting, {});
  beat->request = of.report;
  for (const v1::Slot& slot : of.report.slots()) {
    if (const auto& call = slots_.at(slot.name()).call; call != nullptr)
      beat->request.add_running_leases(call->start().lease_id());
  }
  SetDeadline(&beat->context, kBeatLimit);
  beat->sent = MonotonicNow();
  of.tracker->async()->Synchronize(
      &beat->context, &beat->request, &beat->response,
      [this, worker, beat](const grpc::Status& status) { BeatDone(worker, beat, status.ok()); });
}

void Fleet::BeatDone(int worker, const std::shared_ptr<Beat>& beat, bool ok) {
  std::vector<std::function<void()>> then = std::move(beat->then);
  {
    absl::MutexLock lock(&mutex_);
    Worker& of = workers_[static_cast<size_t>(worker)];
    of.calling = false;
    if (ok) {
      of.registered = true;
      beat_every_ = absl::Milliseconds(beat->response.next_sync_ms());
      of.grants.clear();
      for (const v1::LeaseGrant& grant : beat->response.grants()) {
        of.grants[grant.lease_id()] = {grant.slot(), grant.fencing_token(),
                                       beat->sent + absl::Milliseconds(grant.remaining_ms())};
      }
    } else {
      ++counts_.missed_beats;
    }
    if (!of.waiting.empty() && !stopping_) BeginBeat(worker);
  }
  StopInvalid(worker);
  for (const auto& run : then) run();
  absl::MutexLock lock(&mutex_);
  --beats_;
}

bool Fleet::Granted(const v1::StageStart& start) const {
  const Worker& worker = workers_[static_cast<size_t>(slots_.at(start.slot()).worker)];
  const auto grant = worker.grants.find(start.lease_id());
  return grant != worker.grants.end() && grant->second.slot == start.slot() &&
         grant->second.token == start.fencing_token() && grant->second.expires > MonotonicNow();
}

void Fleet::StopInvalid(int worker) {
  std::vector<std::shared_ptr<Call>> invalid;
  {
    absl::MutexLock lock(&mutex_);
    for (const v1::Slot& slot : workers_[static_cast<size_t>(worker)].report.slots()) {
      const std::shared_ptr<Call>& call = slots_.at(slot.name()).call;
      if (call != nullptr && !Granted(call->start())) invalid.push_back(call);
    }
  }
  for (const std::shared_ptr<Call>& call : invalid) call->Stop("its lease is not valid any more");
}

void Fleet::Admit(const std::shared_ptr<Call>& call) {
  int worker = -1;
  bool granted = false;
  {
    absl::MutexLock lock(&mutex_);
    const auto slot = slots_.find(call->start().slot());
    if (slot != slots_.end()) {
      worker = slot->second.worker;
      granted = Granted(call->start());
    } else {
      ++counts_.refused;
    }
  }
  if (worker < 0) return call->Admitted({grpc::StatusCode::INVALID_ARGUMENT, "no such slot"});
  const absl::Time give_up = MonotonicNow() + kSlotPatience;
  if (granted) return Enter(call, give_up, false);
  // The lease may be newer than the last heartbeat.
  Synchronize(worker, [this, call, give_up] { Enter(call, give_up, false); });
}

void Fleet::Enter(const std::shared_ptr<Call>& call, absl::Time give_up, bool waits) {
  const v1::StageStart& start = call->start();
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    Slot& slot = slots_.at(start.slot());
    if (waits) --slot.waiting;
    const absl::Time now = MonotonicNow();
    if (slot.call != nullptr && now < give_up) {
      ++slot.waiting;
      timers_.After(kLookAgain, [this, call, give_up] { Enter(call, give_up, true); });
      return;
    }
    if (slot.call != nullptr) {
      status = {grpc::StatusCode::RESOURCE_EXHAUSTED, "the slot is still busy"};
    } else if (!Granted(start) || start.fencing_token() < slot.highest_token) {
      status = {grpc::StatusCode::FAILED_PRECONDITION, "the tracker knows of no such lease"};
    } else {
      if (slot.device && slot.ended != absl::InfinitePast() && counts_.gaps_us.size() < kMostGaps)
        counts_.gaps_us.push_back(absl::ToInt64Microseconds(now - slot.ended));
      slot.call = call;
      slot.began = now;
      slot.highest_token = start.fencing_token();
    }
    if (!status.ok()) ++counts_.refused;
  }
  call->Admitted(status);
}

void Fleet::Leave(const Call* call, Outcome outcome) {
  absl::MutexLock lock(&mutex_);
  const auto found = slots_.find(call->start().slot());
  if (found == slots_.end() || found->second.call.get() != call) return;
  Slot& slot = found->second;
  slot.call.reset();
  slot.ended = MonotonicNow();
  (slot.device ? counts_.device_seconds : counts_.cpu_seconds) +=
      absl::ToDoubleSeconds(slot.ended - slot.began);
  if (outcome == Outcome::kInterrupted) {
    ++counts_.interrupted;
    return;
  }
  ++(outcome == Outcome::kDone ? counts_.stages : counts_.faults);
  // It ended of itself while another one waited: two stages had the slot at a time.
  if (slot.waiting > 0) ++counts_.overlapping;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HollowWorkers>> HollowWorkers::Start(const HollowOptions& options) {
  auto fleet = std::make_unique<Fleet>(options);
  if (const absl::Status listening = fleet->Listen(); !listening.ok()) return listening;
  return std::unique_ptr<HollowWorkers>(std::move(fleet));
}

}  // namespace heddle::hollow
