// Traces of jobs for OpenTelemetry: each job is a trace, and each stage that held a slot is a span of it. The
// root of the trace is the job itself, and is sent when the job ends.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "proto/jobs.pb.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/service/telemetry/span_exporter.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// Ids follow from what is stored, so a job has one trace, however often the scheduler is restarted.
// `service` tells this service's jobs from those of others.
std::string TraceIdOf(const std::string& service, const v1::Job& job);

// Belongs to the core thread of the scheduler loop.
class JobTraces {
 public:
  // `exporter` outlives this; null: nobody wants spans.
  JobTraces(SpanExporter* exporter, std::string service)
      : exporter_(exporter), service_(std::move(service)) {}

  // The jobs that the store had.
  void Begin(const Dispatcher& dispatcher);
  // After a step, which the ledger knows.
  void Observe(const Event& event, const Decisions& decisions, const Dispatcher& dispatcher,
               const JobLedger& ledger);
  // A stage that held a slot ended; `result` is that of SchedulerMetrics::StageEnded.
  void StageEnded(const StageRow& stage, const v1::Job& job, const std::string& result);

 private:
  void JobEnded(const v1::Job& job, const Job& end);

  SpanExporter* const exporter_;
  const std::string service_;
  std::set<JobId> unfinished_;
};

}  // namespace heddle::scheduler
