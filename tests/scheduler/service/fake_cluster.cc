#include "tests/scheduler/service/fake_cluster.h"

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/files/blob_store.h"
#include "base/sha256.h"
#include "base/vocabulary/default_schedule.h"
#include "base/vocabulary/workload_key.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {
namespace {

std::string PlanOf(const std::string& job) { return absl::StrCat("the plan of ", job); }
std::string ChosenPlanOf(const std::string& job) { return absl::StrCat("chosen for ", job); }

// How many tasks a module has a trace of, and how many keep the default schedule with a known time.
std::string BestText(const v1::CompileSpec& compile) {
  int kept = 0;
  for (const v1::BestTrace& best : compile.best())
    kept += best.trace() == kDefaultSchedule && best.median_ns() > 1000;
  return absl::StrCat(", best ", compile.best_size() - kept,
                      kept == 0 ? "" : absl::StrCat(", kept ", kept));
}

// Task `i` of a model; the ones after behaviour.tasks belong to other plans.
v1::TaskInfo TaskOf(int i, int weight) {
  v1::TaskInfo task;
  task.set_workload(absl::StrCat("workload ", i));
  task.set_key(WorkloadKey(task.workload()));
  task.set_weight(weight);
  return task;
}

}  // namespace

// ---- tracker ----

void FakeTracker::SetWorkers(v1::ListWorkersResponse workers) {
  absl::MutexLock lock(&mutex_);
  workers_ = std::move(workers);
  ++version_;
}

bool FakeTracker::Held(const std::string& slot) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, held] : leases_) {
    if (held.slot == slot) return true;
  }
  return false;
}

int FakeTracker::grants() const {
  absl::MutexLock lock(&mutex_);
  return grants_;
}

void FakeTracker::SetNextToken(uint64_t token) {
  absl::MutexLock lock(&mutex_);
  token_ = token - 1;
}

void FakeTracker::Revoke(const std::string& slot) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(leases_, [&slot](const auto& lease) { return lease.second.slot == slot; });
}

void FakeTracker::SetMutator(std::function<void(google::protobuf::Message*)> mutate) {
  absl::MutexLock lock(&mutating_);
  mutate_ = std::move(mutate);
}

void FakeTracker::Mutate(google::protobuf::Message* answer) {
  absl::MutexLock lock(&mutating_);
  if (mutate_) mutate_(answer);
}

void FakeTracker::DropExpired() {
  if (!real_leases) return;
  if (std::erase_if(leases_, [](const auto& lease) { return lease.second.expires < absl::Now(); }))
    ++version_;
}

v1::ListWorkersResponse FakeTracker::WithLeases() const {
  v1::ListWorkersResponse list = workers_;
  for (const auto& [id, held] : leases_) {
    for (v1::SlotStatus& slot : *list.mutable_workers(0)->mutable_slots()) {
      if (slot.slot().name() != held.slot) continue;
      slot.set_state(v1::SLOT_HELD);
      slot.set_holder(held.holder);
      slot.set_lease_id(id);
    }
  }
  return list;
}

grpc::Status FakeTracker::Acquire(grpc::ServerContext*, const v1::AcquireRequest* request,
                                  v1::Lease* lease) {
  absl::MutexLock lock(&mutex_);
  DropExpired();
  for (const auto& [id, held] : leases_) {
    if (held.slot == request->slot()) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "held"};
  }
  if (workers_.workers().empty()) return {grpc::StatusCode::NOT_FOUND, "no such slot"};
  lease->set_fencing_token(++token_);
  ++grants_;
  lease->set_id(absl::StrCat("lease", grants_));
  lease->set_worker(request->worker());
  lease->set_slot(request->slot());
  lease->set_duration_ms(request->duration_ms());
  lease->set_address(workers_.workers(0).address());
  const absl::Duration duration = absl::Milliseconds(request->duration_ms());
  leases_[lease->id()] = {request->slot(), request->holder(), duration, absl::Now() + duration};
  version_ += real_leases;
  if (lose_grants > 0) {
    --lose_grants;
    return {grpc::StatusCode::UNAVAILABLE, "the answer was lost"};
  }
  Mutate(lease);
  return grpc::Status::OK;
}

grpc::Status FakeTracker::RenewAll(grpc::ServerContext*, const v1::RenewAllRequest* request,
                                   v1::RenewAllResponse* response) {
  ++renewals;
  absl::MutexLock lock(&mutex_);
  DropExpired();
  for (const std::string& id : request->lease_ids()) {
    if (const auto lease = leases_.find(id); lease != leases_.end()) {
      lease->second.expires = absl::Now() + lease->second.duration;
      response->add_renewed()->set_id(id);
    } else {
      response->add_ended(id);
    }
  }
  Mutate(response);
  return grpc::Status::OK;
}

grpc::Status FakeTracker::Release(grpc::ServerContext*, const v1::ReleaseRequest* request,
                                  v1::ReleaseResponse*) {
  absl::MutexLock lock(&mutex_);
  if (lose_releases > 0) {
    --lose_releases;
    return {grpc::StatusCode::UNAVAILABLE, "the request was lost"};
  }
  leases_.erase(request->lease_id());
  version_ += real_leases;
  return grpc::Status::OK;
}

grpc::Status FakeTracker::ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                                      v1::ListWorkersResponse* response) {
  absl::MutexLock lock(&mutex_);
  DropExpired();
  *response = WithLeases();
  Mutate(response);
  return grpc::Status::OK;
}

grpc::Status FakeTracker::WatchWorkers(grpc::ServerContext* context, const v1::ListWorkersRequest*,
                                       grpc::ServerWriter<v1::ListWorkersResponse>* writer) {
  int seen = -1;
  std::set<std::string> told;  // workers that the caller knows
  while (!context->IsCancelled()) {
    v1::ListWorkersResponse list;
    bool changed = false;
    {
      absl::MutexLock lock(&mutex_);
      DropExpired();
      changed = version_ != seen;
      seen = version_;
      list = real_leases ? WithLeases() : workers_;
    }
    if (changed) {  // tells of all that are there as if each had changed
      std::set<std::string> gone;
      for (const v1::WorkerStatus& worker : list.workers()) gone.insert(worker.worker());
      gone.swap(told);
      for (const std::string& name : told) gone.erase(name);
      for (const std::string& name : gone) list.add_gone(name);
    }
    if (changed) Mutate(&list);
    if (changed && !writer->Write(list)) break;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return grpc::Status::OK;
}

// ---- worker ----

void FakeWorker::SetMutator(std::function<void(v1::StageEvent*)> mutate) {
  absl::MutexLock lock(&mutating_);
  mutate_ = std::move(mutate);
}

void FakeWorker::Write(Stream* stream, v1::StageEvent event) {
  {
    absl::MutexLock lock(&mutating_);
    if (mutate_) mutate_(&event);
  }
  stream->Write(event);
}

void FakeWorker::Finish(Stream* stream, v1::FaultKind kind, const std::string& message) {
  v1::StageEvent event;
  event.mutable_finished()->mutable_fault()->set_kind(kind);
  event.mutable_finished()->mutable_fault()->set_message(message);
  Write(stream, event);
}

void FakeWorker::LearnFromPages(Stream* stream, const v1::StageStart& start) {
  ++fits_to_all;
  v1::StageEvent event;
  v1::TransferModel& model = *event.mutable_transfer_model();
  model.set_model("of all");
  for (const v1::SamplePageRef& ref : start.propose().search().pages()) {
    absl::MutexLock lock(&mutex_);
    v1::SamplePage page;
    if (page.ParseFromString(blobs_[ref.sha256()]))
      model.set_tasks(model.tasks() + page.samples_size());
  }
  Write(stream, event);
}

void FakeWorker::SendBlob(Stream* stream, const std::string& name, const std::string& bytes) {
  v1::StageEvent event;
  event.mutable_chunk()->set_name(name);
  event.mutable_chunk()->set_data(bytes);
  event.mutable_chunk()->set_last(true);
  event.mutable_chunk()->set_sha256(Sha256Hex(bytes));
  Write(stream, event);
}

std::vector<int64_t> FakeWorker::TakeGaps() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(gaps_ns_, {});
}

std::vector<v1::CompileSpec> FakeWorker::Compiles() {
  absl::MutexLock lock(&mutex_);
  return compiles_;
}

std::set<std::string> FakeWorker::TakePeers() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(peers_, {});
}

grpc::Status FakeWorker::Build(Stream* stream) {
  v1::StageInput input;
  while (stream->Read(&input)) {
    const int64_t id = input.build().candidate().id();
    v1::StageEvent started, built;
    started.mutable_candidate_started()->set_candidate(id);
    Write(stream, started);
    absl::SleepFor(absl::Milliseconds(behaviour_->candidate_ms.load()));
    built.mutable_built()->set_candidate(id);
    built.mutable_built()->set_build_ns(1000);
    built.mutable_built()->mutable_artifact()->add_kernels()->set_symbol(
        input.build().candidate().trace());
    Write(stream, built);
  }
  Finish(stream);
  return grpc::Status::OK;
}

grpc::Status FakeWorker::Profile(grpc::ServerContext* context, const v1::StageStart& start,
                                 Stream* stream) {
  v1::StageInput input;
  int64_t done = 0;
  while (stream->Read(&input) && !context->IsCancelled()) {
    const v1::ProfileItem& item = input.profile();
    v1::StageEvent started, profiled;
    started.mutable_candidate_started()->set_candidate(item.candidate().id());
    Write(stream, started);
    if (done++ == 1 && behaviour_->break_profiles > 0) {
      --behaviour_->break_profiles;
      return {grpc::StatusCode::UNAVAILABLE, "broken in the middle"};
    }
    absl::SleepFor(absl::Milliseconds(behaviour_->candidate_ms.load()));
    v1::Measurement& measured = *profiled.mutable_profiled()->mutable_measurement();
    measured.mutable_evidence()->set_toolchain(absl::StrCat("token ", start.fencing_token()));
    profiled.mutable_profiled()->set_candidate(item.candidate().id());
    const bool good = !behaviour_->candidates_fail &&
                      item.artifact().kernels(0).symbol() == item.candidate().trace();
    measured.set_outcome(good ? v1::OUTCOME_OK : v1::OUTCOME_RUN_CRASH);
    if (good) {
      measured.add_samples_ns(1000.0 + static_cast<double>(item.candidate().id()));
    } else {
      measured.set_message("killed by signal 11");
    }
    ++trials;
    Write(stream, profiled);
  }
  Finish(stream);
  return grpc::Status::OK;
}

grpc::Status FakeWorker::RunStage(grpc::ServerContext* context, Stream* stream) {
  v1::StageInput input;
  if (!stream->Read(&input) || !input.has_start())
    return {grpc::StatusCode::INVALID_ARGUMENT, "no start"};
  const v1::StageStart start = input.start();
  if (behaviour_->refuse_stages > 0) {
    --behaviour_->refuse_stages;
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "busy"};
  }
  if (behaviour_->refuse_late > 0 &&
      (start.kind() == v1::STAGE_BUILD || start.kind() == v1::STAGE_PROFILE)) {
    const bool refused = behaviour_->refuse_late-- % 2 == 0;
    // Longer than a stage takes that has surely begun (StageRunner).
    absl::SleepFor(absl::Milliseconds(2200));
    return refused ? grpc::Status{grpc::StatusCode::FAILED_PRECONDITION,
                                  "the tracker knows of no such lease"}
                   : grpc::Status{grpc::StatusCode::UNAVAILABLE, "ping timeout"};
  }
  ++stages;
  {
    absl::MutexLock lock(&mutex_);
    peers_.insert(context->peer());
    if (start.kind() == v1::STAGE_IMPORT) machines_[start.job()] = start.machine();
    if (start.has_compile()) compiles_.push_back(start.compile());
    other_machines += start.machine() != machines_[start.job()];
  }
  // Like the real worker: a newer stage waits until one that was cancelled has gone. Waiting for
  // one that then ends of itself means that two stages were given the slot at once.
  {
    absl::MutexLock lock(&mutex_);
    auto free = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return busy_.count(start.slot()) == 0;
    };
    ++waiting_[start.slot()];
    if (!mutex_.AwaitWithTimeout(absl::Condition(&free), absl::Seconds(5))) ++overlapping;
    --waiting_[start.slot()];
    busy_.insert(start.slot());
    const auto ended = ended_.find(start.slot());
    if (ended != ended_.end())
      gaps_ns_.push_back(absl::ToInt64Nanoseconds(absl::Now() - ended->second));
  }
  struct Leave {
    FakeWorker* worker;
    grpc::ServerContext* context;
    std::string slot;
    ~Leave() {
      absl::MutexLock lock(&worker->mutex_);
      if (worker->waiting_[slot] > 0 && !context->IsCancelled()) ++worker->overlapping;
      worker->busy_.erase(slot);
      worker->ended_[slot] = absl::Now();
    }
  } leave{this, context, start.slot()};
  if (start.kind() == v1::STAGE_BUILD) return Build(stream);
  if (start.kind() == v1::STAGE_PROFILE) return Profile(context, start, stream);
  v1::StageEvent event;
  if (!start.blobs().empty()) {
    absl::MutexLock lock(&mutex_);
    event.mutable_wanted();
    for (const v1::BlobRef& blob : start.blobs()) {
      if (blobs_.count(blob.sha256()) == 0) *event.mutable_wanted()->add_blobs() = blob;
    }
    Write(stream, event);
    event.Clear();
  }
  std::string bytes;
  while (stream->Read(&input)) {
    const v1::Chunk& chunk = input.chunk();
    if (IsDigest(chunk.name())) {
      absl::MutexLock lock(&mutex_);
      blobs_[chunk.name()] += chunk.data();
      blob_bytes += static_cast<int64_t>(chunk.data().size());
    } else {
      bytes += chunk.data();
    }
  }
  switch (start.kind()) {
    case v1::STAGE_IMPORT:
      if (behaviour_->bad_model) {
        Finish(stream, v1::FAULT_USER, "not an ONNX file");
        return grpc::Status::OK;
      }
      for (int i = 0; i < behaviour_->tasks; ++i) {
        *event.mutable_import()->add_tasks() = TaskOf(i, 1);
      }
      event.mutable_import()->set_surveyed(start.import().survey());
      if (start.import().survey())
        *event.mutable_import()->add_tasks() = TaskOf(behaviour_->tasks, 0);
      event.mutable_import()->add_inputs("x: f32[1]");
      event.mutable_import()->set_plan(PlanOf(start.job()));
      event.mutable_import()->set_machine(start.machine());
      Write(stream, event);
      break;
    case v1::STAGE_PROPOSE:
      if (!start.propose().search().pages().empty()) LearnFromPages(stream, start);
      for (int i = 0; i < start.propose().count(); ++i) {
        v1::Candidate& candidate = *event.mutable_candidates()->add_candidates();
        candidate.set_trace(absl::StrCat("trace ", traces_++));
        candidate.set_origin(bytes.empty() && i == 0 ? "default" : "random");
      }
      Write(stream, event);
      SendBlob(stream, "state", bytes + "p");
      break;
    case v1::STAGE_UPDATE:
      warm_results += start.update().results_size();
      SendBlob(stream, "state", bytes + "u");
      break;
    // The plan keeps the first task, retires the others, takes the surveyed one and adds a new one.
    case v1::STAGE_PLAN: {
      ++plans;
      plan_times = start.plan().times_size();
      v1::PlanResult& result = *event.mutable_planned();
      result.set_plan(ChosenPlanOf(start.job()));
      if (!behaviour_->bad_plan) {
        *result.add_tasks() = TaskOf(0, 1);
        *result.add_tasks() = TaskOf(behaviour_->tasks, 2);
        *result.add_tasks() = TaskOf(behaviour_->tasks + 1, 1);
      }
      if (behaviour_->rival && !start.plan().last()) {
        for (int i = 1; i < behaviour_->tasks; ++i) *result.add_tasks() = TaskOf(i, 0);
        for (v1::TaskInfo& task : *result.mutable_tasks()) {
          for (int i = 0; i < behaviour_->tasks; ++i)
            if (task.key() == TaskOf(i, 1).key()) task.set_rival_weight(1);
        }
      }
      v1::PlanReport::Contender& contender = *result.mutable_report()->add_contenders();
      contender.set_name("estimated");
      contender.set_ns(1000);
      result.mutable_report()->set_experience_kernels(start.plan().experience_size());
      for (const auto& time : start.plan().times()) {
        v1::KernelFactor& factor = *result.add_experience();
        factor.set_workload_key(time.workload_key());
        factor.set_op("op");
        factor.set_log_factor(std::log(time.ns() / 1000));
      }
      Write(stream, event);
      break;
    }
    case v1::STAGE_COMPARE: {
      v1::CompareResult& result = *event.mutable_compared();
      const auto fill = [](double ratio, v1::Gain* gain) {
        gain->set_ratio(ratio);
        gain->set_low(ratio - 0.01);
        gain->set_high(ratio + 0.01);
        gain->set_rounds(7);
      };
      result.set_default_ns(3000);
      result.set_ns(2000);
      fill(1.5, result.mutable_gain());
      if (!start.compare().other_module().empty()) {
        result.set_other_ns(1000);
        fill(behaviour_->plan_slower ? 0.8 : 1.1, result.mutable_other_gain());
        fill(1.4, result.mutable_other_over_default());
      }
      ++comparisons;
      // The first comparison finds one task slower than with the default schedule.
      for (int i = 0; i < behaviour_->tasks && comparisons % 2 == 1; ++i) {
        v1::CompareResult::Task& task = *result.add_tasks();
        task.set_workload_key(WorkloadKey(absl::StrCat("workload ", i)));
        fill(i == 0 && behaviour_->one_task_slower ? 0.9 : 1.2, task.mutable_gain());
      }
      Write(stream, event);
      break;
    }
    default:
      if (start.compile().plan() != PlanOf(start.job()) &&
          start.compile().plan() != ChosenPlanOf(start.job())) {
        Finish(stream, v1::FAULT_USER, "compiled without the plan of its import");
        return grpc::Status::OK;
      }
      SendBlob(stream, "module",
               absl::StrCat("module of ", bytes, ", choice ", start.compile().choice(),
                            BestText(start.compile())));
      if (start.compile().with_default()) SendBlob(stream, "default", "the default module");
      if (!start.compile().other_plan().empty()) {
        SendBlob(stream, "other", absl::StrCat("by ", start.compile().other_plan()));
        if (start.compile().with_default())
          SendBlob(stream, "other default",
                   absl::StrCat("default by ", start.compile().other_plan()));
      }
  }
  Finish(stream);
  return grpc::Status::OK;
}

// ---- both ----

FakeCluster::FakeCluster() {
  auto serve = [](grpc::Service* service, std::string* address) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service);
    auto server = builder.BuildAndStart();
    *address = absl::StrCat("127.0.0.1:", port);
    return server;
  };
  worker_server_ = serve(&worker, &worker_address_);
  tracker_server_ = serve(&tracker, &tracker_address_);
  tracker.SetWorkers(DefaultWorkers());
}

FakeCluster::~FakeCluster() {
  const auto now = std::chrono::system_clock::now();
  tracker_server_->Shutdown(now);
  worker_server_->Shutdown(now);
}

v1::ListWorkersResponse FakeCluster::DefaultWorkers() const {
  v1::ListWorkersResponse list;
  v1::WorkerStatus& status = *list.add_workers();
  status.set_worker("w1");
  status.set_address(worker_address_);
  status.set_host("h1");
  for (const bool device : {false, true}) {
    v1::SlotStatus& slot = *status.add_slots();
    slot.set_state(v1::SLOT_FREE);
    slot.mutable_slot()->set_name(device ? "profile1" : "cpu0");
    slot.mutable_slot()->set_kind(device ? v1::SLOT_DEVICE : v1::SLOT_CPU);
    slot.mutable_slot()->add_cores(device ? 1 : 0);
    if (!device) continue;
    slot.mutable_slot()->set_device_key("key");
    slot.mutable_slot()->set_target("llvm -mcpu=x");
    slot.mutable_slot()->set_machine("a machine");
  }
  return list;
}

}  // namespace heddle::scheduler
