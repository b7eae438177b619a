#include "scheduler/service/stages/stage_runner.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/files/mapped_file.h"
#include "base/quantiles.h"
#include "base/status_macros.h"
#include "base/thread_priority.h"
#include "proto/access/channel.h"
#include "proto/access/module_seal.h"
#include "proto/chunks.h"
#include "proto/grpc_util.h"
#include "proto/message_rules.h"
#include "scheduler/ledger/why_waiting.h"
#include "scheduler/service/storage/stored_parts.h"

namespace heddle::scheduler {
namespace {

// Names of the chunks of modules.
constexpr char kModule[] = "module", kDefault[] = "default";
constexpr char kOther[] = "other", kOtherDefault[] = "other default";
constexpr size_t kMaxStateBytes = 64 << 20;  // a larger one is an error
constexpr size_t kMaxTransferSamplesBytes = 64 << 10;
constexpr size_t kMaxTransferModelBytes = 512 << 10;
constexpr int kMaxFeatures = 16;                       // limit of the SearchReport message
constexpr int64_t kMaxModuleBytes = int64_t{1} << 40;  // the disk ends before
// A stage gets this much longer for the parts of its model: 20 MB a second.
constexpr int64_t kSlowestBytesPerMs = 20'000;
// A gRPC message has at most 4 MiB; this leaves room for the lease and framing.
constexpr size_t kMaxStartBytes = (4 << 20) - (64 << 10);
// A candidate is begun again if its process may have been spoilt by an earlier one, which happens once.
constexpr int kMostBeginnings = 4;
// A call to a worker that cannot be reached costs no attempt. One that lasted this long before the connection broke
// may have done something.
constexpr absl::Duration kSurelyStarted = absl::Seconds(2);
constexpr absl::Duration kBeyondTimeLimit =
    absl::Seconds(30);  // the worker ends the stage itself; this is for a hung one

// The candidate that a stage is given with this input; 0: none.
int64_t CandidateOf(const v1::StageInput& input) {
  return input.has_build() ? input.build().candidate().id() : input.profile().candidate().id();
}

// Whether the order lacks what only the store has.
bool ReadsStore(const StageOrder& order) {
  const OrderReads& reads = order.reads;
  return order.transfer || reads.related || reads.warm || !reads.best.empty() || reads.experience;
}

// Whether the worker did not begin a stage that it has told nothing of. What a worker refuses it has not begun,
// however late the refusal: it may have been stopped meanwhile, or have waited for the slot. Of candidates a worker
// tells when it begins one, so a connection that breaks before that says nothing of them, however late it breaks.
bool NotTaken(v1::StageKind kind, grpc::StatusCode code, absl::Duration took) {
  const bool tells = kind == v1::STAGE_BUILD || kind == v1::STAGE_PROFILE;
  return code == grpc::StatusCode::RESOURCE_EXHAUSTED ||
         code == grpc::StatusCode::FAILED_PRECONDITION ||
         (code == grpc::StatusCode::UNAVAILABLE && (tells || took <= kSurelyStarted));
}

}  // namespace

// What the stage has sent so far. It is handed over as a whole at the end of the stage.
struct StageRunner::Results {
  bool answered = false;
  std::optional<v1::StageFinished> finished;
  std::optional<v1::ImportResult> imported;
  std::optional<v1::CandidateList> proposed;
  ChunkJoiner state{"state", kMaxStateBytes};
  v1::SearchReport report;
  v1::TransferSamples transfer_samples;
  std::optional<v1::TransferModel> transfer_model;
  std::vector<std::string> warnings;  // besides the worker's
  struct Module {
    std::unique_ptr<BlobStore::Writer> writer;
    std::string digest;  // once it is complete
  };
  std::map<std::string, Module> modules;  // by the names of their chunks
  std::optional<v1::CompareResult> compared;
  std::optional<v1::PlanResult> planned;
  bool interrupted = false;  // StageFinished.interrupted
  bool silent = false;       // StageFinished.silent
  std::string broken;        // why a result cannot be used; empty: none is broken
  std::string refused;       // why an event of the worker was refused; empty: none was
};

// The call to the worker. gRPC calls one of these functions at a time for each kind of them.
class StageRunner::Call final : public grpc::ClientBidiReactor<v1::StageInput, v1::StageEvent> {
 public:
  Call(StageRunner* runner, std::shared_ptr<grpc::Channel> to)
      : channel(std::move(to)), runner_(runner), stub_(v1::WorkerService::NewStub(channel)) {}

  void Start() {
    stub_->async()->RunStage(&context, this);
    AddHold();  // until the runner lets go
    StartRead(&event_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    RunCallbacksBeforeOthers();
    if (!ok) {
      runner_->took_ = MonotonicNow() - runner_->began_;
      // A connection that was there once and broke leaves the channel idle.
      const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/false);
      runner_->connected_ =
          state != GRPC_CHANNEL_TRANSIENT_FAILURE && state != GRPC_CHANNEL_CONNECTING;
      return runner_->EndReading();
    }
    if (!event_.has_chunk()) return Receive();
    runner_->environment_.pool->Add([this] { Receive(); });
  }
  void OnWriteDone(bool ok) override {
    RunCallbacksBeforeOthers();
    if (!ok) return runner_->EndWriting();
    if (runner_->WritesCandidates()) return runner_->WriteNext();
    runner_->WriteLater();
  }
  void OnWritesDoneDone(bool) override { runner_->EndWriting(); }
  void OnDone(const grpc::Status& status) override {
    RunCallbacksBeforeOthers();
    runner_->environment_.pool->Add([runner = runner_, status] { runner->Close(status); });
  }

  grpc::ClientContext context;
  const std::shared_ptr<grpc::Channel> channel;
  v1::StageInput input;  // that is being written

 private:
  void Receive() {
    runner_->Receive(event_);
    if (std::exchange(runner_->room_, true)) return StartRead(&event_);
    runner_->environment_.await_room([this] { StartRead(&event_); });
  }

  StageRunner* const runner_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  v1::StageEvent event_;
};

StageRunner::StageRunner(StageOrder order, Environment environment)
    : order_(std::move(order)),
      environment_(std::move(environment)),
      results_(std::make_unique<Results>()) {
  for (v1::StageInput& input : order_.inputs) {
    unanswered_[CandidateOf(input)] = 0;
    queue_.push_back(std::move(input));
  }
  order_.inputs.clear();
  closed_ = !order_.input_open;
  end_.attempt = order_.attempt;
  end_.started = false;
  (ReadsStore(order_) ? environment_.starters : environment_.pool)->Add([this] { Prepare(); });
}

StageRunner::~StageRunner() { over_.WaitForNotification(); }

void StageRunner::Feed(v1::StageInput input) {
  {
    absl::MutexLock lock(&mutex_);
    if (broken_) return;
    unanswered_[CandidateOf(input)] = 0;
    queue_.push_back(std::move(input));
    if (writer_ != Writer::kIdle) return;
    writer_ = Writer::kBusy;
  }
  WriteLater();
}

void StageRunner::CloseInput() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    if (broken_ || writer_ != Writer::kIdle) return;
    writer_ = Writer::kBusy;
  }
  WriteLater();
}

void StageRunner::Cancel() {
  absl::MutexLock lock(&mutex_);
  if (cancelled_.empty()) cancelled_ = "cancelled";
  if (context_ != nullptr) context_->TryCancel();
}

// ---- the steps of a stage ----

void StageRunner::Prepare() {
  {
    absl::MutexLock lock(&mutex_);
    if (!cancelled_.empty()) end_.fault = {v1::FAULT_INFRASTRUCTURE, cancelled_};
  }
  if (end_.fault.kind != v1::FAULT_NONE) return Conclude();
  // The best records are those without what was retracted just now.
  if (!order_.reads.best.empty()) environment_.flush();
  OrderInputs inputs = FetchInputs(environment_.store, order_.reads);
  if (order_.transfer) {
    fit_ = environment_.fits->Take(order_.transfer->made.id);
    inputs.fit_under_way = fit_ == nullptr;
  }
  CompleteOrder(inputs, &order_);
  if (fit_ != nullptr && !order_.learns_from_all) {
    fit_->Succeed();
    fit_.reset();
  }
  environment_.leases->Acquire(
      order_.slot, order_.purpose,
      [this] {
        absl::MutexLock lock(&mutex_);
        if (cancelled_.empty()) cancelled_ = "the lease was lost";
        lease_lost_ = true;
        if (context_ != nullptr) context_->TryCancel();
      },
      [this](absl::StatusOr<v1::Lease> lease) {
        (order_.learns_from_all ? environment_.starters : environment_.pool)
            ->Add([this, lease = std::move(lease)] { Begin(lease); });
      });
}

void StageRunner::Begin(absl::StatusOr<v1::Lease> lease) {
  if (!lease.ok()) {
    end_.fault = {v1::FAULT_INFRASTRUCTURE, absl::StrCat("no lease: ", lease.status().message())};
    return Conclude();
  }
  lease_ = lease->id();
  address_ = lease->address();
  fencing_token_ = lease->fencing_token();
  end_.fence = {order_.slot, fencing_token_};
  std::optional<FaultInfo> fault;
  if (absl::Status fenced = environment_.leased(order_.attempt, *lease); !fenced.ok()) {
    fault = {v1::FAULT_INFRASTRUCTURE, std::string(fenced.message())};
  } else {
    fault = Open();
  }
  if (!fault) return;  // the call goes on
  end_.fault = *std::move(fault);
  environment_.leases->AnnounceRelease(lease_);
  Conclude();
}

std::optional<FaultInfo> StageRunner::Open() {
  {
    absl::MutexLock lock(&mutex_);
    if (!cancelled_.empty()) return FaultInfo{v1::FAULT_INFRASTRUCTURE, cancelled_};
  }
  if (const absl::Status parts = AddParts(); !parts.ok()) {
    end_.started = true;
    return FaultInfo{v1::FAULT_USER, std::string(parts.message()), /*own=*/true};
  }
  if (order_.learns_from_all) AddSamplePages();
  // The worker's gRPC would refuse the message as if it were busy, and this would repeat for ever.
  if (const size_t bytes = order_.start.ByteSizeLong(); bytes > kMaxStartBytes) {
    end_.started = true;
    return FaultInfo{
        v1::FAULT_USER,
        absl::StrCat("the order of the stage has ", bytes >> 20,
                     " MiB, more than one message takes: the model has too many or too large "
                     "tasks"),
        /*own=*/true};
  }
  if (const absl::Status address = CheckAddress(address_, *environment_.credentials); !address.ok())
    return FaultInfo{v1::FAULT_INFRASTRUCTURE, std::string(address.message())};
  // Whoever serves at the announced address must prove to be the worker of the lease.
  call_ = std::make_unique<Call>(this, environment_.channels->Take(address_, order_.slot.worker));
  order_.start.set_lease_id(lease_);
  order_.start.set_fencing_token(fencing_token_);
  SetDeadline(&call_->context, absl::Milliseconds(order_.start.time_limit_ms()) + kBeyondTimeLimit);
  began_ = MonotonicNow();
  {
    absl::MutexLock lock(&mutex_);
    if (!cancelled_.empty()) return FaultInfo{v1::FAULT_INFRASTRUCTURE, cancelled_};
    context_ = &call_->context;
  }
  call_->Start();
  WriteNext();
  return std::nullopt;
}

void StageRunner::Close(const grpc::Status& status) {
  end_.fault = FaultOf(status);
  end_.interrupted = results_->interrupted;
  end_.silent = results_->silent;
  environment_.leases->AnnounceRelease(lease_);
  Conclude();
}

FaultInfo StageRunner::FaultOf(const grpc::Status& status) {
  const bool reached = results_->answered || connected_;
  if (status.ok()) environment_.channels->Keep(address_, order_.slot.worker, call_->channel);
  std::string cancelled, lost;
  {
    absl::MutexLock lock(&mutex_);
    context_ = nullptr;
    cancelled = cancelled_;
    lost = lost_;
    const bool aborted = status.error_code() == grpc::StatusCode::ABORTED;
    // A connection that ends by pings, or with the worker's process, does so before the lease is found lost.
    const bool cut = status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                     (results_->answered || took_ > kSurelyStarted);
    results_->silent = reached && (lease_lost_ || cut) && !aborted && !results_->finished;
    results_->interrupted = lease_lost_ || aborted || results_->silent;
  }
  end_.started =
      results_->answered || (reached && !NotTaken(order_.start.kind(), status.error_code(), took_));
  if (!results_->refused.empty()) return {v1::FAULT_INFRASTRUCTURE, results_->refused};
  if (results_->finished && results_->finished->fault().kind() == v1::FAULT_NONE &&
      results_->broken.empty()) {
    results_->broken = MissingResult();
    if (results_->broken.empty()) results_->broken = FalseModule();
  }
  if (results_->finished && results_->broken.empty())
    return {results_->finished->fault().kind(), results_->finished->fault().message()};
  if (!lost.empty()) {
    end_.started = true;
    return {v1::FAULT_USER, lost, /*own=*/true};
  }
  if (!results_->broken.empty()) return {v1::FAULT_INFRASTRUCTURE, results_->broken};
  if (!cancelled.empty()) return {v1::FAULT_INFRASTRUCTURE, cancelled};
  return {
      v1::FAULT_INFRASTRUCTURE,
      absl::StrCat("worker ", order_.slot.worker, " at ", address_, ": ",
                   status.ok() ? "the stream ended before the stage did" : status.error_message())};
}

void StageRunner::Conclude() {
  Results& results = *results_;
  if (end_.fault.kind == v1::FAULT_NONE) {
    std::optional<FittedModel> fitted;
    if (results.transfer_model && !results.transfer_model->model().empty() &&
        order_.transfer_model) {
      fitted = {order_.transfer_model->id, order_.transfer_model->model};
      fitted->model.set_model(std::move(*results.transfer_model->mutable_model()));
      fitted->model.set_version(results.transfer_model->version());
      fitted->model.set_tasks(results.transfer_model->tasks());
      fitted->model.set_samples(results.transfer_model->samples());
      // A worker that could not use the pages has learned from the others in the message.
      if (all_measured_ > 0 && fitted->model.tasks() > fitted->model.teachers_size()) {
        fitted->model.clear_teachers();
        fitted->model.set_measured(all_measured_);
        fit_->Succeed();
      }
    }
    if (order_.start.kind() == v1::STAGE_UPDATE) {
      end_.result = Updated{*results.state.Take(), std::move(results.report),
                            std::move(results.transfer_samples), std::move(fitted)};
    } else if (order_.start.kind() == v1::STAGE_COMPILE) {
      end_.result = Compiled{results.modules[kModule].digest,
                             results.modules[kDefault].digest,
                             results.modules[kOther].digest,
                             results.modules[kOtherDefault].digest,
                             order_.claims,
                             order_.chosen_ns};
    } else if (results.planned) {
      // The scheduler loop adds what the database knows of the tasks.
      end_.result = Planned{*std::move(results.planned)};
    } else if (results.compared) {
      std::vector<BrokenRecord> broken =
          FindBroken(*results.compared, order_.claimed, order_.start.job());
      end_.result = Compared{*std::move(results.compared), std::move(broken)};
    } else if (results.imported) {
      // The scheduler loop adds what the database knows of the tasks.
      end_.result = Imported{*std::move(results.imported)};
    } else if (results.proposed) {
      v1::CandidateList& proposed = *results.proposed;
      end_.result = Proposed{proposed.candidates_size(),
                             proposed.exhausted(),
                             {proposed.candidates().begin(), proposed.candidates().end()},
                             *results.state.Take(),
                             std::move(fitted)};
    }
  }
  if (results.finished) {
    end_.warnings.assign(results.finished->warnings().begin(), results.finished->warnings().end());
  }
  for (const auto* warnings : {&order_.warnings, &results.warnings})
    end_.warnings.insert(end_.warnings.end(), warnings->begin(), warnings->end());
  // What hung or failed because a person, a lease or a worker ended it says nothing of the fit. Where the connection
  // broke, the fit may have ended the worker.
  bool cancelled = false;
  {
    absl::MutexLock lock(&mutex_);
    cancelled = !cancelled_.empty();
  }
  if (fit_ != nullptr && (!end_.started || (end_.interrupted && !end_.silent) || cancelled))
    fit_->Succeed();
  fit_.reset();
  // Large members are freed here, so that the thread that destroys the runner has nothing to free.
  const AttemptId attempt = order_.attempt;
  call_.reset();
  value_.reset();
  results_.reset();
  order_ = {};
  std::deque<v1::StageInput> unsent;
  {
    absl::MutexLock lock(&mutex_);
    broken_ = true;
    unsent.swap(queue_);
  }
  unsent.clear();
  environment_.post(std::move(end_));
  // Meanwhile the dispatcher decides what runs there next.
  if (!lease_.empty()) environment_.leases->Release(lease_);
  environment_.ended(attempt);
  over_.Notify();
}

std::string StageRunner::MissingResult() const {
  const Results& results = *results_;
  const bool has_state = results.state.complete();
  switch (order_.start.kind()) {
    case v1::STAGE_IMPORT:
      return results.imported ? "" : "the worker sent no tasks";
    case v1::STAGE_PROPOSE:
      return results.proposed && has_state ? ""
                                           : "the worker sent no candidates or no search state";
    case v1::STAGE_UPDATE:
      return has_state ? "" : "the worker sent no search state";
    case v1::STAGE_COMPILE:
      for (const char* name : {kModule, kDefault, kOther, kOtherDefault}) {
        const auto sent = results.modules.find(name);
        const v1::CompileSpec& compile = order_.start.compile();
        const bool plain = name == kDefault || name == kOtherDefault;
        const bool other = name == kOther || name == kOtherDefault;
        const bool asked =
            (!plain || compile.with_default()) && (!other || !compile.other_plan().empty());
        if (asked && (sent == results.modules.end() || sent->second.digest.empty()))
          return absl::StrCat("the worker sent no module '", name, "'");
      }
      return "";
    case v1::STAGE_PLAN:
      return BadPlan();
    case v1::STAGE_COMPARE:
      if (!results.compared) return "the worker sent no comparison";
      return order_.start.compare().other_module().empty() || results.compared->has_other_gain()
                 ? ""
                 : "the worker did not compare the other plan";
    default:
      return "";
  }
}

std::string StageRunner::FalseModule() const {
  const Results& results = *results_;
  if (!environment_.credentials->tls) return "";
  for (const auto& [name, module] : results.modules) {
    const absl::StatusOr<SharedBytes> file = MapFile(environment_.blobs->PathOf(module.digest));
    const absl::StatusOr<ModuleMaker> maker =
        file.ok() ? MakerOfModule(*environment_.credentials->tls, **file, absl::Now())
                  : file.status();
    if (!maker.ok())
      return absl::StrCat("worker ", order_.slot.worker, ": ", maker.status().message());
    if (maker->worker.name != order_.slot.worker || maker->job != order_.start.job() ||
        maker->attempt != order_.attempt.value)
      return absl::StrCat("worker ", order_.slot.worker, " sent a module that ",
                          ToText(maker->worker), " made for ", maker->job, ", attempt ",
                          maker->attempt);
  }
  return "";
}

std::string StageRunner::BadPlan() const {
  if (!results_->planned || results_->planned->plan().empty()) return "the worker sent no plan";
  bool used = false;
  for (const v1::TaskInfo& task : results_->planned->tasks()) used |= task.weight() > 0;
  return used ? "" : "the worker's plan has no tasks";
}

absl::Status StageRunner::AddParts() {
  v1::BlobList parts;
  if (!order_.parts_digest.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(parts, ReadParts(order_.parts_digest, *environment_.blobs));
  }
  for (const std::string& module :
       std::set<std::string>(order_.modules.begin(), order_.modules.end())) {
    HEDDLE_ASSIGN_OR_RETURN(const auto reader, environment_.blobs->NewReader(module));
    v1::BlobRef& blob = *parts.add_blobs();
    blob.set_sha256(module);
    blob.set_bytes(reader->size_bytes());
  }
  int64_t bytes = 0;
  for (const v1::BlobRef& part : parts.blobs()) bytes += part.bytes();
  *order_.start.mutable_blobs() = std::move(*parts.mutable_blobs());
  order_.start.set_time_limit_ms(order_.start.time_limit_ms() + bytes / kSlowestBytesPerMs);
  return absl::OkStatus();
}

void StageRunner::AddSamplePages() {
  absl::StatusOr<SamplePages> made = MakeSamplePages(environment_.store, *order_.learns_from_all,
                                                     kMostPagedTasks, environment_.blobs);
  if (!made.ok()) {
    order_.warnings.push_back(
        absl::StrCat("a search begins without what all tasks learned: ", made.status().message()));
    return;
  }
  std::set<std::string> named;
  for (SamplePages::Page& page : made->pages) {
    if (named.insert(page.ref.sha256()).second) {
      v1::BlobRef& blob = *order_.start.add_blobs();
      blob.set_sha256(page.ref.sha256());
      blob.set_bytes(page.bytes);
    }
    *order_.start.mutable_propose()->mutable_search()->add_pages() = std::move(page.ref);
  }
  all_measured_ = made->measured;
}

// ---- writing ----

bool StageRunner::WritesCandidates() const {
  return value_ == nullptr && knows_values_ && values_.empty();
}

void StageRunner::WriteNext() {
  if (!started_) {
    started_ = true;
    *call_->input.mutable_start() = order_.start;
    return call_->StartWrite(&call_->input);
  }
  bool ended = false;
  {
    absl::MutexLock lock(&mutex_);
    ended = broken_;
  }
  if (ended) return EndWriting();
  if (!knows_values_ && !ListValues()) return;
  if (value_ == nullptr && !values_.empty()) {
    auto value = OpenValue(values_.front());
    if (!value.ok()) return Lose(value.status());
    values_.pop_front();
    value_ = *std::move(value);
  }
  if (value_ != nullptr) {
    absl::StatusOr<v1::Chunk> chunk = value_->Next();
    if (!chunk.ok()) return Lose(chunk.status());
    if (chunk->last()) value_.reset();
    *call_->input.mutable_chunk() = *std::move(chunk);
    return call_->StartWrite(&call_->input);
  }
  {
    absl::MutexLock lock(&mutex_);
    ended = broken_ || (queue_.empty() && closed_);
    if (!ended && queue_.empty()) {
      writer_ = Writer::kIdle;
      return;
    }
    if (!ended) {
      call_->input = std::move(queue_.front());
      queue_.pop_front();
    }
  }
  if (ended) return call_->StartWritesDone();
  call_->StartWrite(&call_->input);
}

bool StageRunner::ListValues() {
  if (!order_.start.blobs().empty()) {
    std::set<std::string> parts;
    for (const v1::BlobRef& part : order_.start.blobs()) parts.insert(part.sha256());
    absl::MutexLock lock(&mutex_);
    if (!wanted_ && !broken_) {
      writer_ = Writer::kIdle;
      return false;
    }
    if (wanted_) {
      for (const v1::BlobRef& blob : wanted_->blobs()) {
        if (parts.count(blob.sha256()) > 0) values_.push_back({blob.sha256(), blob.sha256()});
      }
    }
  }
  if (!order_.model_digest.empty()) values_.push_back({"model", order_.model_digest});
  if (!order_.search_state.empty()) values_.push_back({"state", ""});
  knows_values_ = true;
  return true;
}

absl::StatusOr<std::unique_ptr<ChunkCutter>> StageRunner::OpenValue(const Value& value) const {
  if (value.digest.empty()) return std::make_unique<ChunkCutter>(value.name, order_.search_state);
  auto opened = environment_.blobs->NewReader(value.digest);
  if (absl::IsNotFound(opened.status()))
    return absl::NotFoundError(
        absl::StrCat("blob ", value.digest, " of the model is lost; submit the model again"));
  if (!opened.ok()) return opened.status();
  const std::shared_ptr<BlobStore::Reader> reader = *std::move(opened);
  return std::make_unique<ChunkCutter>(value.name, value.digest,
                                       [reader](size_t limit) { return reader->Next(limit); });
}

void StageRunner::WriteLater() {
  environment_.pool->Add([this] { WriteNext(); });
}

void StageRunner::Lose(const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    lost_ = std::string(why.message());
  }
  Cancel();
  EndWriting();
}

void StageRunner::EndWriting() {
  bool over = false;
  {
    absl::MutexLock lock(&mutex_);
    writer_ = Writer::kOver;
    over = broken_;
  }
  if (over) call_->RemoveHold();
}

void StageRunner::EndReading() {
  bool over = false;
  {
    absl::MutexLock lock(&mutex_);
    broken_ = true;
    over = writer_ != Writer::kBusy;
  }
  if (over) call_->RemoveHold();
}

// ---- what the worker sends ----

void StageRunner::Post(Event event) { room_ = environment_.post(std::move(event)); }

void StageRunner::Receive(const v1::StageEvent& event) {
  results_->answered = true;
  if (!results_->refused.empty()) return;  // until the cancellation arrives
  if (const absl::Status checked = CheckTaken(event); !checked.ok()) {
    results_->refused =
        absl::StrCat("worker ", order_.slot.worker, " sent what it must not: ", checked.message());
    call_->context.TryCancel();
    return;
  }
  Take(event);
}

absl::Status StageRunner::CheckTaken(const v1::StageEvent& event) {
  HEDDLE_RETURN_IF_ERROR(CheckEvent(order_.start, event));
  if (results_->finished) return absl::InvalidArgumentError("an event after `finished`");
  const bool answer = event.has_built() || event.has_profiled();
  if (!answer && !event.has_candidate_started()) return absl::OkStatus();
  const int64_t candidate = event.has_built()      ? event.built().candidate()
                            : event.has_profiled() ? event.profiled().candidate()
                                                   : event.candidate_started().candidate();
  absl::MutexLock lock(&mutex_);
  const auto open = unanswered_.find(candidate);
  if (open == unanswered_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an answer about candidate ", candidate,
                     ", which it was not given or has answered before"));
  }
  if (answer) {
    unanswered_.erase(open);
  } else if (++open->second > kMostBeginnings) {
    return absl::InvalidArgumentError(
        absl::StrCat("candidate ", candidate, " begins more than ", kMostBeginnings, " times"));
  }
  return absl::OkStatus();
}

void StageRunner::Take(const v1::StageEvent& event) {
  Results* const results = results_.get();
  auto measured = [&](const v1::Measurement& measurement) {
    auto made = std::make_shared<Measured>(Measured{measurement, fencing_token_});
    made->measurement.mutable_evidence()->set_worker(order_.slot.worker);
    made->measurement.mutable_evidence()->set_slot(order_.slot.slot);
    return made;
  };
  switch (event.event_case()) {
    case v1::StageEvent::kWanted: {
      {
        absl::MutexLock lock(&mutex_);
        if (wanted_) break;
        wanted_ = event.wanted();
        if (writer_ != Writer::kIdle) break;
        writer_ = Writer::kBusy;
      }
      WriteLater();
      break;
    }
    case v1::StageEvent::kImport:
      results->imported = event.import();
      break;
    case v1::StageEvent::kCandidates:
      results->proposed = event.candidates();
      break;
    case v1::StageEvent::kChunk:
      TakeChunk(event.chunk());
      break;
    case v1::StageEvent::kReport:
      results->report = event.report();
      if (auto* features = results->report.mutable_features(); features->size() > kMaxFeatures)
        features->DeleteSubrange(kMaxFeatures, features->size() - kMaxFeatures);
      break;
    case v1::StageEvent::kTransferSamples:
      if (event.transfer_samples().samples().size() <= kMaxTransferSamplesBytes) {
        results->transfer_samples = event.transfer_samples();
      } else {
        results->warnings.push_back(
            absl::StrCat("the transfer samples that a worker made are over ",
                         kMaxTransferSamplesBytes, " bytes: other tasks do not learn from it"));
      }
      break;
    case v1::StageEvent::kTransferModel:
      if (event.transfer_model().model().size() <= kMaxTransferModelBytes) {
        results->transfer_model = event.transfer_model();
      } else {
        results->warnings.push_back(absl::StrCat("the model of other tasks that a worker made is ",
                                                 "over ", kMaxTransferModelBytes,
                                                 " bytes: every new task fits its own"));
      }
      break;
    case v1::StageEvent::kPlanned:
      results->planned = event.planned();
      // Tuned kernels say nothing of how long others take with their default schedules.
      if (order_.start.plan().last()) results->planned->clear_experience();
      break;
    case v1::StageEvent::kCompared:
      results->compared = event.compared();
      break;
    case v1::StageEvent::kFinished:
      results->finished = event.finished();
      break;
    case v1::StageEvent::kCandidateStarted:
      Post(CandidateStarted{order_.attempt, CandidateId{event.candidate_started().candidate()}});
      break;
    case v1::StageEvent::kBuilt: {
      const v1::BuildResult& built = event.built();
      CandidateBuilt out{order_.attempt, CandidateId{built.candidate()}, v1::OUTCOME_OK, ""};
      out.build_ns = built.build_ns();
      if (built.has_artifact()) {
        out.artifact = std::make_shared<v1::Artifact>(built.artifact());
        out.artifact_bytes = static_cast<int64_t>(built.artifact().ByteSizeLong());
      } else {
        out.measured = measured(built.failure());
        out.message = built.failure().message();
        out.outcome = built.failure().outcome();
      }
      Post(std::move(out));
      break;
    }
    case v1::StageEvent::kProfiled: {
      const v1::Measurement& measurement = event.profiled().measurement();
      const v1::Outcome outcome = measurement.outcome();
      const auto& samples = measurement.samples_ns();
      CandidateProfiled out{order_.attempt,
                            CandidateId{event.profiled().candidate()},
                            outcome,
                            measurement.message(),
                            0,
                            static_cast<double>(measurement.profile_ns()),
                            measured(measurement)};
      if (outcome == v1::OUTCOME_OK) out.median_ns = Median({samples.begin(), samples.end()});
      Post(std::move(out));
      break;
    }
    default:
      break;  // progress is not shown
  }
}

void StageRunner::TakeChunk(const v1::Chunk& chunk) {
  Results* const results = results_.get();
  auto fail = [&](const std::string& why) {
    if (results->broken.empty()) results->broken = why;
  };
  const bool compiles = order_.start.kind() == v1::STAGE_COMPILE;
  if (!compiles && chunk.name() == "state") {
    if (absl::Status added = results->state.Add(chunk); !added.ok())
      return fail(absl::StrCat("the worker's search ", added.message()));
  } else if (compiles && (chunk.name() == kModule || chunk.name() == kDefault ||
                          chunk.name() == kOther || chunk.name() == kOtherDefault)) {
    Results::Module& module = results->modules[chunk.name()];
    if (!module.digest.empty())
      return fail(absl::StrCat("the worker sent the module '", chunk.name(), "' twice"));
    if (module.writer == nullptr) {
      absl::StatusOr<std::unique_ptr<BlobStore::Writer>> writer = environment_.blobs->NewWriter();
      if (!writer.ok()) return fail(std::string(writer.status().message()));
      module.writer = *std::move(writer);
    }
    if (module.writer->size_bytes() + static_cast<int64_t>(chunk.data().size()) > kMaxModuleBytes) {
      return fail("the module is too large");
    }
    if (environment_.blobs->FreeBytes() < kDiskReserveBytes)
      return fail(absl::StrCat("the disk of the scheduler's data directory has less than ",
                               kDiskReserveBytes >> 20,
                               " MiB left, which are kept for the database; free some space"));
    if (absl::Status status = module.writer->Append(chunk.data()); !status.ok())
      return fail(std::string(status.message()));
    if (!chunk.last()) return;
    if (chunk.sha256().empty())
      return fail(absl::StrCat("the worker sent the module '", chunk.name(), "' without a digest"));
    absl::StatusOr<std::string> digest = module.writer->Commit(chunk.sha256());
    if (!digest.ok()) return fail(std::string(digest.status().message()));
    module.digest = *digest;
  } else {
    fail(absl::StrCat("the worker sent chunks named '", chunk.name(), "'"));
  }
}

}  // namespace heddle::scheduler
