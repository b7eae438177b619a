#include "scheduler/service/telemetry/job_log.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/daemon/log.h"
#include "scheduler/service/telemetry/metrics.h"

namespace heddle::scheduler {

void JobLog::Begin(const Dispatcher& dispatcher) {
  const absl::Time now = MonotonicNow();
  for (const auto& [id, job] : dispatcher.jobs()) {
    if (!job.final()) unfinished_[id] = {StateText(job), now};
  }
  if (unfinished_.empty()) return;
  Log(LogLevel::kInfo, "the unfinished jobs go on",
      {{"jobs", static_cast<int64_t>(unfinished_.size())}});
}

void JobLog::Observe(const Event& event, const Decisions& decisions, const Dispatcher& dispatcher,
                     absl::Time now) {
  if (const auto* submitted = std::get_if<JobSubmitted>(&event)) {
    unfinished_[submitted->job] = {"importing", now};
    const v1::JobSpec& spec = submitted->description.spec();
    Log(LogLevel::kInfo, "job submitted",
        {{"job", JobName(submitted->job.value)},
         {"name", spec.name()},
         {"user", spec.user()},
         {"target", spec.target()}});
  }
  for (const Change& change : decisions.changes) {
    const auto* changed = std::get_if<JobChanged>(&change);
    const Job* job = changed == nullptr ? nullptr : dispatcher.FindJob(changed->job);
    if (job != nullptr) Note(*job, now);
  }
}

void JobLog::Note(const Job& job, absl::Time now) {
  const auto known = unfinished_.find(job.id);
  if (known == unfinished_.end()) return;
  const std::string state = StateText(job);
  if (state == known->second.state) return;
  known->second.state = state;
  std::vector<LogField> fields = {{"job", JobName(job.id.value)}};
  LogLevel level = LogLevel::kInfo;
  if (const auto* failed = std::get_if<Failed>(&job.phase)) {
    level = LogLevel::kWarning;
    fields.push_back({"reason", failed->fault.message});
  } else if (const auto* cancelled = std::get_if<Cancelled>(&job.phase)) {
    fields.push_back({"reason", cancelled->reason});
  } else if (job.paused) {
    fields.push_back({"reason", *job.paused});
  }
  if (job.final()) {
    int64_t trials = 0, failed_trials = 0;
    for (const Task& task : job.tasks) {
      trials += task.trials;
      failed_trials += task.failed;
    }
    fields.push_back({"tasks", static_cast<int64_t>(job.tasks.size())});
    fields.push_back({"trials", trials});
    fields.push_back({"failed_trials", failed_trials});
    fields.push_back({"seconds", absl::ToDoubleSeconds(now - known->second.since)});
    unfinished_.erase(known);
  }
  Log(level, absl::StrCat("job ", state), fields);
}

void JobLog::StageEnded(const StageRow& stage, const StageFinished& end,
                        const std::string& result) {
  const bool well = result == "ok";
  // That a worker drains, or that somebody else took the slot first, is no fault.
  const bool fault = result == "infrastructure" || result == "user" || result == "candidate";
  const v1::StageSpan& span = stage.span;
  std::vector<LogField> fields = {{"job", span.job()},
                                  {"stage", StageName(span.kind())},
                                  {"attempt", span.attempt_id()},
                                  {"worker", span.worker()},
                                  {"slot", span.slot()},
                                  {"result", result}};
  if (!span.task().empty()) fields.push_back({"task", span.task()});
  if (span.start_unix_ns() != 0) {
    const int64_t held = absl::GetCurrentTimeNanos() - span.start_unix_ns();
    fields.push_back({"seconds", static_cast<double>(std::max<int64_t>(0, held)) * 1e-9});
  }
  if (!well) fields.push_back({"reason", end.fault.message});
  const LogLevel level = fault ? LogLevel::kWarning : well ? LogLevel::kDebug : LogLevel::kInfo;
  Log(level, fault ? "stage failed" : "stage ended", fields);
}

}  // namespace heddle::scheduler
