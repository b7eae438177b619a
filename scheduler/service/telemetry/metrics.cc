#include "scheduler/service/telemetry/metrics.h"

#include <algorithm>
#include <array>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/quantiles.h"
#include "base/vocabulary/target.h"
#include "scheduler/core/slot_index.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/store/maintenance.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kGaugesEvery = absl::Seconds(1);
// Finding the size of all blobs looks at each file.
constexpr absl::Duration kMeasureBlobs = absl::Minutes(5);
// Fewer samples say nothing of how they scatter.
constexpr int kLeastSamples = 4;
constexpr char kCpuPool[] = "cpu";
// Of work that any device will do, and of slots that the tracker has forgotten.
constexpr char kAnyPool[] = "any";

constexpr std::array<const char*, 6> kJobStates = {"importing", "tuning",    "planning",
                                                   "compiling", "comparing", "paused"};
constexpr std::array<const char*, 5> kSlotStates = {"free", "busy", "blocked", "foreign",
                                                    "unusable"};
const std::vector<double> kNoiseRatios = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1};

// "OUTCOME_RUN_CRASH" becomes "run_crash".
std::string EnumText(const std::string& name, const char* prefix) {
  return absl::AsciiStrToLower(absl::StripPrefix(name, prefix));
}

Counter StageCounter(Metrics* metrics, v1::StageKind kind, const std::string& result) {
  return metrics->AddCounter("heddle_stages_total",
                             "Attempts of stages that have ended, by kind and result.",
                             {{"stage", StageName(kind)}, {"result", result}});
}

Histogram StageSeconds(Metrics* metrics, v1::StageKind kind) {
  return metrics->AddHistogram("heddle_stage_duration_seconds", "How long stages held their slots.",
                               kSlowSeconds, {{"stage", StageName(kind)}});
}

Counter TrialCounter(Metrics* metrics, v1::Outcome outcome) {
  return metrics->AddCounter("heddle_trials_total", "Candidates with a final result, by outcome.",
                             {{"outcome", EnumText(v1::Outcome_Name(outcome), "OUTCOME_")}});
}

Counter EndedJobs(Metrics* metrics, const std::string& state) {
  return metrics->AddCounter("heddle_jobs_finished_total", "Jobs that have ended, by how.",
                             {{"state", state}});
}

Gauge JobsGauge(Metrics* metrics, const std::string& state) {
  return metrics->AddGauge("heddle_jobs", "Unfinished jobs, by state.", {{"state", state}});
}

Gauge QueueDepth(Metrics* metrics, const std::string& pool) {
  return metrics->AddGauge("heddle_queue_depth", "Stages that are ready and wait for a slot.",
                           {{"pool", pool}});
}

Gauge QueueAge(Metrics* metrics, const std::string& pool) {
  return metrics->AddGauge("heddle_queue_oldest_seconds",
                           "How long the stage has waited that has waited longest.",
                           {{"pool", pool}});
}

Gauge SlotsGauge(Metrics* metrics, const std::string& pool, const std::string& state) {
  return metrics->AddGauge("heddle_workers",
                           "Slots of workers, by state: free, busy for this scheduler, blocked by "
                           "stages on the same cores or by a pause after faults, foreign (held by "
                           "another scheduler), unusable (draining or in quarantine).",
                           {{"pool", pool}, {"state", state}});
}

Counter RefusalCounter(Metrics* metrics, const std::string& reason) {
  return metrics->AddCounter("heddle_calls_refused_total", "gRPC calls that were refused or cut.",
                             {{"reason", reason}});
}

// The spread of the middle half of the samples, relative to their median.
double NoiseRatio(const std::vector<double>& samples) {
  const double median = Median(samples);
  return median > 0 ? (Quantile(samples, 0.75) - Quantile(samples, 0.25)) / median : 0;
}

std::string ResultText(const StageFinished& end, bool cancelled) {
  if (end.fault.kind == v1::FAULT_NONE) return "ok";
  if (cancelled) return "cancelled";
  if (!end.started) return "not_started";
  if (end.interrupted) return "interrupted";
  return EnumText(v1::FaultKind_Name(end.fault.kind), "FAULT_");
}

}  // namespace

std::string StateText(const Job& job) {
  if (job.paused && !job.final()) return "paused";
  return EnumText(v1::JobState_Name(StateOf(job)), "JOB_");
}

SchedulerMetrics::SchedulerMetrics()
    : registry_("heddle-scheduler"),
      commit_seconds_(registry_.AddHistogram("heddle_db_commit_duration_seconds",
                                             "How long transactions of the database took.",
                                             kFastSeconds)),
      refused_records_(registry_.AddCounter(
          "heddle_stale_records_total",
          "Records that the database refused, since their slot was leased again meanwhile.")),
      step_seconds_(registry_.AddHistogram("heddle_decision_duration_seconds",
                                           "How long the scheduler took for one event.",
                                           kFastSeconds)),
      submitted_(registry_.AddCounter("heddle_jobs_submitted_total", "Jobs that were submitted.")),
      tracker_up_(registry_.AddGauge("heddle_tracker_connected",
                                     "1 while the tracker answers this scheduler, else 0.")),
      tracker_losses_(registry_.AddCounter("heddle_tracker_disconnects_total",
                                           "How often the tracker stopped answering.")) {
  // A series that is 0 from the start shows its first increase as a rate.
  for (const char* state : {"done", "failed", "cancelled"}) EndedJobs(&registry_, state);
  for (int outcome = v1::OUTCOME_OK; outcome <= v1::Outcome_MAX; ++outcome)
    TrialCounter(&registry_, static_cast<v1::Outcome>(outcome));
  for (int kind = v1::STAGE_IMPORT; kind <= v1::StageKind_MAX; ++kind) {
    for (const char* result :
         {"ok", "cancelled", "not_started", "interrupted", "infrastructure", "user"})
      StageCounter(&registry_, static_cast<v1::StageKind>(kind), result);
    StageSeconds(&registry_, static_cast<v1::StageKind>(kind));
  }
  for (const char* state : kJobStates) JobsGauge(&registry_, state);
  queues_.insert(kCpuPool);
  slot_pools_.insert(kCpuPool);
  BusySeconds(kCpuPool);
  QueueWait(kCpuPool);
}

Counter SchedulerMetrics::BusySeconds(const std::string& pool) {
  return registry_.AddCounter("heddle_worker_busy_seconds_total",
                              "Time that slots were busy for this scheduler, all together.",
                              {{"pool", pool}});
}

Histogram SchedulerMetrics::QueueWait(const std::string& pool) {
  return registry_.AddHistogram("heddle_queue_wait_seconds",
                                "How long stages had been ready when they got a slot.",
                                kSlowSeconds, {{"pool", pool}});
}

void SchedulerMetrics::Begin(const Dispatcher& dispatcher) {
  for (const auto& [id, job] : dispatcher.jobs()) {
    if (!job.final()) unfinished_.insert(id);
  }
}

std::string SchedulerMetrics::PoolOf(const StageWork& work, const Dispatcher& dispatcher) {
  if (!NeedsDevice(work.kind)) return kCpuPool;
  const Job* job = dispatcher.FindJob(work.job);
  return job == nullptr ? kAnyPool : DevicePoolOf(job->params);
}

std::string SchedulerMetrics::DevicePoolOf(const JobParams& params) {
  if (params.device_key.empty()) {
    const std::string kind(KindOf(params.target));
    return kind == "llvm" ? kAnyPool : wanted_(absl::StrCat(kAnyPool, "-", kind));
  }
  // A key that no slot has yet has its own series as well, since workers may be started for it. Users name device keys, too, so these
  // are few, and take no place of those that slots have.
  const std::string& key = params.device_key;
  return slot_pools_.contains(key) ? key : wanted_(key);
}

void SchedulerMetrics::PassTime(absl::Time now) {
  if (passed_ != absl::InfinitePast() && now > passed_) {
    const double seconds = absl::ToDoubleSeconds(now - passed_);
    for (const auto& [pool, stages] : busy_) {
      if (stages > 0) BusySeconds(pool).Add(seconds * stages);
    }
  }
  passed_ = now;
}

void SchedulerMetrics::Started(const StartStage& start, absl::Time now) {
  PassTime(now);
  const auto known = pools_.find(start.slot);
  const std::string pool = known == pools_.end() ? kAnyPool : known->second;
  running_[start.attempt] = {pool, start.slot, false};
  ++busy_[pool];
  QueueWait(pool).Observe(
      absl::ToDoubleSeconds(std::max(absl::ZeroDuration(), now - start.ready_since)));
}

std::string SchedulerMetrics::StageEnded(const StageRow& stage, const StageFinished& end,
                                         absl::Time now) {
  const auto running = running_.find(end.attempt);
  const std::string result =
      ResultText(end, running != running_.end() && running->second.cancelled);
  if (running == running_.end()) return result;
  PassTime(now);
  --busy_[running->second.pool];
  running_.erase(running);
  const v1::StageKind kind = stage.span.kind();
  StageCounter(&registry_, kind, result).Add();
  if (stage.span.start_unix_ns() == 0) return result;  // it got no lease
  const auto held = absl::Nanoseconds(absl::GetCurrentTimeNanos() - stage.span.start_unix_ns());
  StageSeconds(&registry_, kind)
      .Observe(absl::ToDoubleSeconds(std::max(absl::ZeroDuration(), held)));
  return result;
}

void SchedulerMetrics::CountMeasurement(const CandidateProfiled& event) {
  const auto running = running_.find(event.attempt);
  if (running == running_.end() || event.measured == nullptr) return;
  const v1::Measurement& measurement = event.measured->measurement;
  if (measurement.samples_ns_size() < kLeastSamples) return;
  registry_
      .AddHistogram("heddle_measurement_noise_ratio",
                    "How measurements scatter: the spread of the middle half of the samples, "
                    "relative to their median.",
                    kNoiseRatios, {{"pool", running->second.pool}})
      .Observe(NoiseRatio({measurement.samples_ns().begin(), measurement.samples_ns().end()}));
  const Counter disturbed =
      registry_.AddCounter("heddle_disturbed_measurements_total",
                           "Measurements that stayed disturbed, however often they were repeated.",
                           {{"pool", running->second.pool}});
  if (!measurement.evidence().disturbance().empty()) disturbed.Add();
}

void SchedulerMetrics::CountSlots(const SlotsChanged& event) {
  const bool reached = event.problem.empty();
  if (tracker_reached_ && !reached) tracker_losses_.Add();
  tracker_reached_ = reached;
  tracker_up_.Set(reached ? 1 : 0);
  pools_.clear();
  for (const SlotInfo& slot : event.slots)
    pools_[slot.id] = slot.device ? few_(slot.device_key) : kCpuPool;
}

void SchedulerMetrics::Observe(const Event& event, const Decisions& decisions,
                               const Dispatcher& dispatcher, absl::Duration took, absl::Time now) {
  step_seconds_.Observe(absl::ToDoubleSeconds(took));
  if (const auto* slots = std::get_if<SlotsChanged>(&event)) CountSlots(*slots);
  if (const auto* profiled = std::get_if<CandidateProfiled>(&event)) CountMeasurement(*profiled);
  if (const auto* submitted = std::get_if<JobSubmitted>(&event)) {
    submitted_.Add();
    unfinished_.insert(submitted->job);
  }
  for (const Change& change : decisions.changes) {
    if (const auto* done = std::get_if<FinishCandidate>(&change)) {
      TrialCounter(&registry_, done->outcome).Add();
    } else if (const auto* changed = std::get_if<JobChanged>(&change)) {
      const Job* job = dispatcher.FindJob(changed->job);
      if (job != nullptr && job->final() && unfinished_.erase(job->id) > 0)
        EndedJobs(&registry_, StateText(*job)).Add();
    }
  }
  for (const Order& order : decisions.orders) {
    if (const auto* start = std::get_if<StartStage>(&order)) Started(*start, now);
    const auto* cancel = std::get_if<CancelStage>(&order);
    const auto running = cancel == nullptr ? running_.end() : running_.find(cancel->attempt);
    if (running != running_.end()) running->second.cancelled = true;
  }
}

void SchedulerMetrics::Refresh(const Dispatcher& dispatcher, absl::Time now) {
  if (now < refreshed_ + kGaugesEvery) return;
  refreshed_ = now;
  PassTime(now);
  std::map<std::string, int> jobs;
  for (const JobId id : unfinished_) {
    if (const Job* job = dispatcher.FindJob(id)) ++jobs[StateText(*job)];
  }
  for (const char* state : kJobStates) JobsGauge(&registry_, state).Set(jobs[state]);

  std::set<SlotId> busy;
  for (const auto& [attempt, running] : running_) busy.insert(running.slot);
  std::map<std::string, std::map<std::string, int>> slots;
  for (const std::string& pool : slot_pools_) slots[pool];
  for (const SlotInfo& slot : dispatcher.slots()) {
    const std::string state = busy.contains(slot.id)      ? "busy"
                              : slot.foreign              ? "foreign"
                              : !slot.usable              ? "unusable"
                              : dispatcher.SlotFree(slot) ? "free"
                                                          : "blocked";
    ++slots[slot.device ? few_(slot.device_key) : kCpuPool][state];
  }
  for (auto& [pool, states] : slots) {
    slot_pools_.insert(pool);
    for (const char* state : kSlotStates) SlotsGauge(&registry_, pool, state).Set(states[state]);
  }

  struct Queue {
    int depth = 0;
    absl::Duration age;
  };
  std::map<std::string, Queue> queues;
  for (const std::string& pool : queues_) queues[pool];
  dispatcher.ForEachWaiting([&](const WorkItem& work, absl::Time since) {
    Queue& queue = queues[PoolOf(work, dispatcher)];
    ++queue.depth;
    queue.age = std::max(queue.age, now - since);
  });
  // The dispatcher begins nothing for a job that no device fits, so that no stage of it waits. The job itself does.
  std::map<std::tuple<std::string, std::string, int>, bool> fits;
  std::map<JobId, absl::Time> lacking;
  for (const JobId id : unfinished_) {
    const Job* job = dispatcher.FindJob(id);
    if (job == nullptr || job->final() || job->paused) continue;
    const JobParams& needs = job->params;
    const auto [found, fresh] =
        fits.try_emplace({needs.target, needs.device_key, needs.threads}, false);
    if (fresh) {
      found->second = std::any_of(
          dispatcher.slots().begin(), dispatcher.slots().end(),
          [&](const SlotInfo& slot) { return SlotIndex::Suits(slot, v1::STAGE_PROFILE, needs); });
    }
    if (found->second) continue;
    const auto before = lacking_.find(id);
    const absl::Time since = before == lacking_.end() ? now : before->second;
    lacking[id] = since;
    Queue& queue = queues[DevicePoolOf(needs)];
    ++queue.depth;
    queue.age = std::max(queue.age, now - since);
  }
  lacking_ = std::move(lacking);
  for (const auto& [pool, queue] : queues) {
    queues_.insert(pool);
    QueueDepth(&registry_, pool).Set(queue.depth);
    QueueAge(&registry_, pool).Set(absl::ToDoubleSeconds(queue.age));
  }
}

void AddServiceMetrics(ServiceSources sources, Metrics* metrics) {
  const Gauge held = metrics->AddGauge("heddle_leases", "Leases that this scheduler holds.");
  const auto lease_counter = [&](const char* result) {
    return metrics->AddCounter("heddle_lease_requests_total",
                               "Requests of this scheduler for a lease, by result.",
                               {{"result", result}});
  };
  const Counter granted = lease_counter("granted"), refused = lease_counter("refused");
  const Counter lost = metrics->AddCounter("heddle_leases_lost_total",
                                           "Leases that ended while their stage was running.");
  const Counter audit = metrics->AddCounter("heddle_audit_lost_lines_total",
                                            "Lines of the audit log that could not be written.");
  const auto bytes = [&](const char* what) {
    return metrics->AddGauge("heddle_store_bytes", "What the data folder holds.", {{"what", what}});
  };
  const Gauge database_bytes = bytes("database"), blob_bytes = bytes("blobs");
  const Gauge free_bytes =
      metrics->AddGauge("heddle_disk_free_bytes", "Free space on the disk of the data folder.");
  const Gauge writable = metrics->AddGauge(
      "heddle_store_writable",
      "1 while the database takes writes, else 0 (the disk is full, or it is away).");
  Counter sent, dropped, unwanted;  // count nothing without a collector
  if (sources.spans != nullptr) {
    const auto spans = [&](const char* result) {
      return metrics->AddCounter(
          "heddle_otlp_spans_total",
          "Spans for the collector of OpenTelemetry, by what became of them.",
          {{"result", result}});
    };
    sent = spans("sent"), dropped = spans("dropped"), unwanted = spans("refused");
  }
  // `refresh` runs on one thread at a time.
  const auto measured = std::make_shared<absl::Time>(absl::InfinitePast());
  metrics->BeforeText([=, sources = std::move(sources)] {
    const LeaseKeeper::Counts leases = sources.leases();
    held.Set(static_cast<double>(leases.held));
    granted.RaiseTo(static_cast<double>(leases.granted));
    refused.RaiseTo(static_cast<double>(leases.refused));
    lost.RaiseTo(static_cast<double>(leases.lost));
    audit.RaiseTo(static_cast<double>(sources.lost_audit_lines()));
    writable.Set(sources.store_problem().ok() ? 1 : 0);
    if (sources.spans != nullptr) {
      const SpanExporter::Counts spans = sources.spans->counts();
      sent.RaiseTo(static_cast<double>(spans.sent));
      dropped.RaiseTo(static_cast<double>(spans.dropped));
      unwanted.RaiseTo(static_cast<double>(spans.refused));
    }
    free_bytes.Set(static_cast<double>(sources.blobs->FreeBytes()));
    const absl::Time now = MonotonicNow();
    if (now < *measured + kMeasureBlobs) return;
    *measured = now;
    database_bytes.Set(static_cast<double>(BytesOfDatabase(sources.database)));
    int64_t sum = 0;
    for (const BlobStore::Entry& blob : sources.blobs->List()) sum += blob.size_bytes;
    blob_bytes.Set(static_cast<double>(sum));
  });
}

RefusedCalls::RefusedCalls(Metrics* metrics)
    : caller_full_(RefusalCounter(metrics, "caller_limit")),
      service_full_(RefusalCounter(metrics, "service_limit")),
      slow_peer_(RefusalCounter(metrics, "slow_peer")),
      unauthenticated_(RefusalCounter(metrics, "unauthenticated")),
      denied_(RefusalCounter(metrics, "permission_denied")) {}

void RefusedCalls::Count(CallLimits::Refusal refusal) const {
  switch (refusal) {
    case CallLimits::Refusal::kCallerFull:
      return caller_full_.Add();
    case CallLimits::Refusal::kServiceFull:
      return service_full_.Add();
    case CallLimits::Refusal::kSlowPeer:
      return slow_peer_.Add();
  }
}

void RefusedCalls::Count(const absl::Status& why) const {
  (absl::IsUnauthenticated(why) ? unauthenticated_ : denied_).Add();
}

}  // namespace heddle::scheduler
