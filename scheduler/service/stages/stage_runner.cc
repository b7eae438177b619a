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

using Stream = grpc::ClientReaderWriterInterface<v1::StageInput, v1::StageEvent>;

auto WriteChunk(Stream* stream) {
  return [stream](v1::Chunk chunk) {
    v1::StageInput input;
    *input.mutable_chunk() = std::move(chunk);
    return stream->Write(input);
  };
}

// The candidate that a stage is given with this input; 0: none.
int64_t CandidateOf(const v1::StageInput& input) {
  return input.has_build() ? input.build().candidate().id() : input.profile().candidate().id();
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

StageRunner::StageRunner(StageOrder order, Environment environment)
    : order_(std::move(order)), environment_(std::move(environment)) {
  for (v1::StageInput& input : order_.inputs) {
    unanswered_[CandidateOf(input)] = 0;
    queue_.push_back(std::move(input));
  }
  order_.inputs.clear();
  closed_ = !order_.input_open;
  thread_ = std::thread([this] { Run(); });
}

StageRunner::~StageRunner() { thread_.join(); }

void StageRunner::Feed(v1::StageInput input) {
  absl::MutexLock lock(&mutex_);
  if (broken_) return;
  unanswered_[CandidateOf(input)] = 0;
  queue_.push_back(std::move(input));
}

void StageRunner::CloseInput() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

void StageRunner::Cancel() {
  absl::MutexLock lock(&mutex_);
  if (cancelled_.empty()) cancelled_ = "cancelled";
  if (context_ != nullptr) context_->TryCancel();
}

void StageRunner::Run() {
  StageFinished end;
  end.attempt = order_.attempt;
  end.started = false;
  Results results;
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
  absl::StatusOr<v1::Lease> lease =
      environment_.leases->Acquire(order_.slot, order_.purpose, [this] {
        absl::MutexLock lock(&mutex_);
        if (cancelled_.empty()) cancelled_ = "the lease was lost";
        lease_lost_ = true;
        if (context_ != nullptr) context_->TryCancel();
      });
  if (!lease.ok()) {
    end.fault = {v1::FAULT_INFRASTRUCTURE, absl::StrCat("no lease: ", lease.status().message())};
  } else {
    fencing_token_ = lease->fencing_token();
    end.fence = {order_.slot, fencing_token_};
    if (absl::Status fenced = environment_.leased(order_.attempt, *lease); !fenced.ok()) {
      end.fault = {v1::FAULT_INFRASTRUCTURE, std::string(fenced.message())};
    } else {
      end.fault = Perform(*lease, &results, &end.started);
    }
    end.interrupted = results.interrupted;
    end.silent = results.silent;
    environment_.leases->AnnounceRelease(lease->id());
  }
  if (end.fault.kind == v1::FAULT_NONE) {
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
      end.result = Updated{*results.state.Take(), std::move(results.report),
                           std::move(results.transfer_samples), std::move(fitted)};
    } else if (order_.start.kind() == v1::STAGE_COMPILE) {
      end.result = Compiled{results.modules[kModule].digest,
                            results.modules[kDefault].digest,
                            results.modules[kOther].digest,
                            results.modules[kOtherDefault].digest,
                            order_.claims,
                            order_.chosen_ns};
    } else if (results.planned) {
      // The scheduler loop adds what the database knows of the tasks.
      end.result = Planned{*std::move(results.planned)};
    } else if (results.compared) {
      std::vector<BrokenRecord> broken =
          FindBroken(*results.compared, order_.claimed, order_.start.job());
      end.result = Compared{*std::move(results.compared), std::move(broken)};
    } else if (results.imported) {
      // The scheduler loop adds what the database knows of the tasks.
      end.result = Imported{*std::move(results.imported)};
    } else if (results.proposed) {
      v1::CandidateList& proposed = *results.proposed;
      end.result = Proposed{proposed.candidates_size(),
                            proposed.exhausted(),
                            {proposed.candidates().begin(), proposed.candidates().end()},
                            *results.state.Take(),
                            std::move(fitted)};
    }
  }
  if (results.finished) {
    end.warnings.assign(results.finished->warnings().begin(), results.finished->warnings().end());
  }
  for (const auto* warnings : {&order_.warnings, &results.warnings})
    end.warnings.insert(end.warnings.end(), warnings->begin(), warnings->end());
  // What hung or failed because a person, a lease or a worker ended it says nothing of the fit. Where the connection
  // broke, the fit may have ended the worker.
  bool cancelled = false;
  {
    absl::MutexLock lock(&mutex_);
    cancelled = !cancelled_.empty();
  }
  if (fit_ != nullptr && (!end.started || (end.interrupted && !end.silent) || cancelled))
    fit_->Succeed();
  fit_.reset();
  environment_.post(std::move(end));
  // Meanwhile the dispatcher decides what runs there next.
  if (lease.ok()) environment_.leases->Release(lease->id());
  environment_.ended(order_.attempt);
}

FaultInfo StageRunner::Perform(const v1::Lease& lease, Results* results, bool* started) {
  if (const absl::Status parts = AddParts(); !parts.ok()) {
    *started = true;
    return {v1::FAULT_USER, std::string(parts.message()), /*own=*/true};
  }
  if (order_.learns_from_all) AddSamplePages();
  grpc::ClientContext context;
  SetDeadline(&context, absl::Milliseconds(order_.start.time_limit_ms()) + kBeyondTimeLimit);
  {
    absl::MutexLock lock(&mutex_);
    if (!cancelled_.empty()) return {v1::FAULT_INFRASTRUCTURE, cancelled_};
    context_ = &context;
  }
  // The worker's gRPC would refuse the message as if it were busy, and this would repeat for ever.
  if (const size_t bytes = order_.start.ByteSizeLong(); bytes > kMaxStartBytes) {
    *started = true;
    absl::MutexLock lock(&mutex_);
    context_ = nullptr;
    return {v1::FAULT_USER,
            absl::StrCat("the order of the stage has ", bytes >> 20,
                         " MiB, more than one message takes: the model has too many or too large "
                         "tasks"),
            /*own=*/true};
  }
  const absl::Time began = MonotonicNow();
  if (const absl::Status address = CheckAddress(lease.address(), *environment_.credentials);
      !address.ok()) {
    absl::MutexLock lock(&mutex_);
    context_ = nullptr;
    return {v1::FAULT_INFRASTRUCTURE, std::string(address.message())};
  }
  // Whoever serves at the announced address must prove to be the worker of the lease.
  const std::shared_ptr<grpc::Channel> channel =
      environment_.channels->Take(lease.address(), order_.slot.worker);
  std::unique_ptr<v1::WorkerService::Stub> stub = v1::WorkerService::NewStub(channel);
  order_.start.set_lease_id(lease.id());
  order_.start.set_fencing_token(lease.fencing_token());
  std::unique_ptr<Stream> stream = stub->RunStage(&context);
  std::thread writer([&] { WriteAll(stream.get()); });
  v1::StageEvent event;
  while (stream->Read(&event)) {
    results->answered = true;
    if (!results->refused.empty()) continue;  // until the cancellation arrives
    if (const absl::Status checked = CheckTaken(event, *results); !checked.ok()) {
      results->refused = absl::StrCat("worker ", order_.slot.worker,
                                      " sent what it must not: ", checked.message());
      context.TryCancel();
      continue;
    }
    Take(event, results);
  }
  {
    absl::MutexLock lock(&mutex_);
    broken_ = true;
  }
  writer.join();
  const grpc::Status status = stream->Finish();
  const absl::Duration took = MonotonicNow() - began;
  if (status.ok()) environment_.channels->Keep(lease.address(), order_.slot.worker, channel);
  std::string cancelled, lost;
  {
    absl::MutexLock lock(&mutex_);
    context_ = nullptr;
    cancelled = cancelled_;
    lost = lost_;
    const bool aborted = status.error_code() == grpc::StatusCode::ABORTED;
    // A connection that ends by pings, or with the worker's process, does so before the lease is found lost.
    const bool cut = status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                     (results->answered || took > kSurelyStarted);
    results->silent = (lease_lost_ || cut) && !aborted && !results->finished;
    results->interrupted = lease_lost_ || aborted || results->silent;
  }
  *started = results->answered || !NotTaken(order_.start.kind(), status.error_code(), took);
  if (!results->refused.empty()) return {v1::FAULT_INFRASTRUCTURE, results->refused};
  if (results->finished && results->finished->fault().kind() == v1::FAULT_NONE &&
      results->broken.empty()) {
    results->broken = MissingResult(*results);
    if (results->broken.empty()) results->broken = FalseModule(*results);
  }
  if (results->finished && results->broken.empty()) {
    return {results->finished->fault().kind(), results->finished->fault().message()};
  }
  if (!lost.empty()) {
    *started = true;
    return {v1::FAULT_USER, lost, /*own=*/true};
  }
  if (!results->broken.empty()) return {v1::FAULT_INFRASTRUCTURE, results->broken};
  if (!cancelled.empty()) return {v1::FAULT_INFRASTRUCTURE, cancelled};
  return {
      v1::FAULT_INFRASTRUCTURE,
      absl::StrCat("worker ", order_.slot.worker, " at ", lease.address(), ": ",
                   status.ok() ? "the stream ended before the stage did" : status.error_message())};
}

std::string StageRunner::MissingResult(const Results& results) const {
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
      return BadPlan(results);
    case v1::STAGE_COMPARE:
      if (!results.compared) return "the worker sent no comparison";
      return order_.start.compare().other_module().empty() || results.compared->has_other_gain()
                 ? ""
                 : "the worker did not compare the other plan";
    default:
      return "";
  }
}

std::string StageRunner::FalseModule(const Results& results) const {
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

std::string StageRunner::BadPlan(const Results& results) {
  if (!results.planned || results.planned->plan().empty()) return "the worker sent no plan";
  bool used = false;
  for (const v1::TaskInfo& task : results.planned->tasks()) used |= task.weight() > 0;
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

bool StageRunner::WriteBlob(Stream* stream, const std::string& name, const std::string& digest) {
  absl::StatusOr<std::unique_ptr<BlobStore::Reader>> reader = environment_.blobs->NewReader(digest);
  const absl::Status sent =
      !reader.ok() ? reader.status()
                   : SendChunks(
                         name, digest, [&](size_t limit) { return (*reader)->Next(limit); },
                         WriteChunk(stream));
  if (sent.ok() || absl::IsCancelled(sent)) return sent.ok();
  {
    absl::MutexLock lock(&mutex_);
    lost_ = absl::IsNotFound(sent)
                ? absl::StrCat("blob ", digest, " of the model is lost; submit the model again")
                : std::string(sent.message());
  }
  Cancel();
  return false;
}

bool StageRunner::WriteWanted(Stream* stream) {
  v1::BlobList wanted;
  {
    auto told = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return wanted_ || broken_; };
    absl::MutexLock lock(&mutex_, absl::Condition(&told));
    if (!wanted_) return false;
    wanted = *wanted_;
  }
  std::set<std::string> parts;
  for (const v1::BlobRef& part : order_.start.blobs()) parts.insert(part.sha256());
  for (const v1::BlobRef& blob : wanted.blobs()) {
    if (parts.count(blob.sha256()) && !WriteBlob(stream, blob.sha256(), blob.sha256()))
      return false;
  }
  return true;
}

void StageRunner::WriteAll(Stream* stream) {
  v1::StageInput first;
  *first.mutable_start() = order_.start;
  if (!stream->Write(first)) return;
  if (!order_.start.blobs().empty() && !WriteWanted(stream)) return;
  if (!order_.model_digest.empty() && !WriteBlob(stream, "model", order_.model_digest)) return;
  if (!order_.search_state.empty() &&
      !SendChunks("state", order_.search_state, WriteChunk(stream))) {
    return;
  }
  while (true) {
    v1::StageInput input;
    {
      auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !queue_.empty() || closed_ || broken_;
      };
      absl::MutexLock lock(&mutex_, absl::Condition(&ready));
      if (broken_) return;
      if (queue_.empty()) break;
      input = std::move(queue_.front());
      queue_.pop_front();
    }
    if (!stream->Write(input)) return;
  }
  stream->WritesDone();
}

absl::Status StageRunner::CheckTaken(const v1::StageEvent& event, const Results& results) {
  HEDDLE_RETURN_IF_ERROR(CheckEvent(order_.start, event));
  if (results.finished) return absl::InvalidArgumentError("an event after `finished`");
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

void StageRunner::Take(const v1::StageEvent& event, Results* results) {
  auto measured = [&](const v1::Measurement& measurement) {
    auto made = std::make_shared<Measured>(Measured{measurement, fencing_token_});
    made->measurement.mutable_evidence()->set_worker(order_.slot.worker);
    made->measurement.mutable_evidence()->set_slot(order_.slot.slot);
    return made;
  };
  switch (event.event_case()) {
    case v1::StageEvent::kWanted: {
      absl::MutexLock lock(&mutex_);
      if (!wanted_) wanted_ = event.wanted();
      break;
    }
    case v1::StageEvent::kImport:
      results->imported = event.import();
      break;
    case v1::StageEvent::kCandidates:
      results->proposed = event.candidates();
      break;
    case v1::StageEvent::kChunk:
      TakeChunk(event.chunk(), results);
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
      environment_.post(
          CandidateStarted{order_.attempt, CandidateId{event.candidate_started().candidate()}});
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
      environment_.post(std::move(out));
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
      environment_.post(std::move(out));
      break;
    }
    default:
      break;  // progress is not shown
  }
}

void StageRunner::TakeChunk(const v1::Chunk& chunk, Results* results) {
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
