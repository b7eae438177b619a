#include "scheduler/service/telemetry/job_traces.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "scheduler/service/telemetry/metrics.h"

namespace heddle::scheduler {
namespace {

constexpr size_t kMaxMessage = 500;  // of a failure

std::string SpanIdOf(const std::string& trace_id, const std::string& what) {
  return Sha256Hex(absl::StrCat(trace_id, "/", what)).substr(0, 16);
}
std::string RootOf(const std::string& trace_id) { return SpanIdOf(trace_id, "job"); }

}  // namespace

std::string TraceIdOf(const std::string& service, const v1::Job& job) {
  return Sha256Hex(absl::StrCat(service, "\n", job.id(), "\n", job.created_unix_ns()))
      .substr(0, 32);
}

void JobTraces::Begin(const Dispatcher& dispatcher) {
  if (exporter_ == nullptr) return;
  for (const auto& [id, job] : dispatcher.jobs()) {
    if (!job.final()) unfinished_.insert(id);
  }
}

void JobTraces::Observe(const Event& event, const Decisions& decisions,
                        const Dispatcher& dispatcher, const JobLedger& ledger) {
  if (exporter_ == nullptr) return;
  if (const auto* submitted = std::get_if<JobSubmitted>(&event)) unfinished_.insert(submitted->job);
  for (const Change& change : decisions.changes) {
    const auto* changed = std::get_if<JobChanged>(&change);
    const Job* job = changed == nullptr ? nullptr : dispatcher.FindJob(changed->job);
    if (job == nullptr || !job->final() || unfinished_.erase(job->id) == 0) continue;
    if (ledger.Has(job->id)) JobEnded(ledger.data(job->id).row.job, *job);
  }
}

void JobTraces::JobEnded(const v1::Job& job, const Job& end) {
  TraceSpan span;
  span.trace_id = TraceIdOf(service_, job);
  span.span_id = RootOf(span.trace_id);
  span.name = "job";
  span.start_unix_ns = job.created_unix_ns();
  span.end_unix_ns = std::max(job.created_unix_ns(), job.finished_unix_ns());
  int64_t trials = 0;
  for (const Task& task : end.tasks) trials += task.trials;
  span.attributes = {{"heddle.job", job.id()},
                     {"heddle.job.name", job.spec().name()},
                     {"heddle.job.state", StateText(end)},
                     {"heddle.user", job.spec().user()},
                     {"heddle.target", job.spec().target()},
                     {"heddle.tasks", static_cast<int64_t>(end.tasks.size())},
                     {"heddle.trials", trials}};
  if (const auto* failed = std::get_if<Failed>(&end.phase)) {
    span.failed = true;
    span.message = failed->fault.message.substr(0, kMaxMessage);
  }
  exporter_->Add(std::move(span));
}

void JobTraces::StageEnded(const StageRow& stage, const v1::Job& job, const std::string& result) {
  if (exporter_ == nullptr) return;
  const v1::StageSpan& ran = stage.span;
  TraceSpan span;
  span.trace_id = TraceIdOf(service_, job);
  span.span_id = SpanIdOf(span.trace_id, absl::StrCat(ran.attempt_id()));
  span.parent_id = RootOf(span.trace_id);
  span.name = StageName(ran.kind());
  span.start_unix_ns = ran.start_unix_ns();
  span.end_unix_ns = std::max(ran.start_unix_ns(), ran.end_unix_ns());
  span.attributes = {{"heddle.job", ran.job()},
                     {"heddle.worker", ran.worker()},
                     {"heddle.slot", ran.slot()},
                     {"heddle.attempt", ran.attempt_id()},
                     {"heddle.result", result}};
  if (!ran.task().empty()) span.attributes.emplace_back("heddle.task", ran.task());
  if (ran.candidates() > 0)
    span.attributes.emplace_back("heddle.candidates", int64_t{ran.candidates()});
  // That somebody cancels a job, or a worker drains, is no failure.
  span.failed = result == "infrastructure" || result == "user" || result == "candidate";
  if (span.failed) span.message = ran.fault().message().substr(0, kMaxMessage);
  exporter_->Add(std::move(span));
}

}  // namespace heddle::scheduler
