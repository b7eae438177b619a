#include "client/views/trace_events.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace heddle::client {
namespace {

using Json = nlohmann::json;

// Of the process that stands for the jobs; workers follow.
constexpr int kJobsProcess = 1;

double Micros(int64_t ns) { return static_cast<double>(ns) / 1000; }

Json NameEvent(const char* what, int process, int thread, const std::string& name) {
  return {
      {"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

// `end_ns`: 0: it goes on at `now_ns`.
Json Slice(const std::string& name, const std::string& category, int process, int thread,
           int64_t first_ns, int64_t begin_ns, int64_t end_ns, int64_t now_ns, Json arguments) {
  if (end_ns == 0) arguments["running"] = true;
  const int64_t until_ns = end_ns == 0 ? now_ns : end_ns;
  return {{"ph", "X"},
          {"name", name},
          {"cat", category},
          {"pid", process},
          {"tid", thread},
          {"ts", Micros(begin_ns - first_ns)},
          {"dur", Micros(std::max<int64_t>(0, until_ns - begin_ns))},
          {"args", std::move(arguments)}};
}

}  // namespace

Json TraceEvents(const std::vector<std::pair<v1::Job, v1::Timeline>>& jobs, int64_t now_unix_ns) {
  int64_t first_ns = std::numeric_limits<int64_t>::max();
  for (const auto& [job, timeline] : jobs) {
    if (job.created_unix_ns() != 0) first_ns = std::min(first_ns, job.created_unix_ns());
    for (const v1::StageSpan& span : timeline.spans())
      first_ns = std::min(first_ns, span.start_unix_ns());
  }
  Json events = Json::array();
  events.push_back(NameEvent("process_name", kJobsProcess, 0, "jobs"));
  std::map<std::string, int> processes;                        // by worker
  std::map<std::pair<std::string, std::string>, int> threads;  // by worker and slot
  int job_thread = 0;
  for (const auto& [job, timeline] : jobs) {
    ++job_thread;
    events.push_back(NameEvent("thread_name", kJobsProcess, job_thread, job.id()));
    events.push_back(Slice(job.id() + " " + job.spec().name(), "job", kJobsProcess, job_thread,
                           first_ns, job.created_unix_ns(), job.finished_unix_ns(), now_unix_ns,
                           {{"reason", job.reason()}}));
    std::map<std::string, std::string> labels;  // of tasks
    for (const v1::TaskStatus& task : job.tasks()) labels[task.info().key()] = task.info().label();
    for (const v1::StageSpan& span : timeline.spans()) {
      const auto [process, new_process] = processes.try_emplace(
          span.worker(), kJobsProcess + 1 + static_cast<int>(processes.size()));
      if (new_process)
        events.push_back(NameEvent("process_name", process->second, 0, "worker " + span.worker()));
      const auto [thread, new_thread] =
          threads.try_emplace({span.worker(), span.slot()}, static_cast<int>(threads.size()) + 1);
      if (new_thread)
        events.push_back(NameEvent("thread_name", process->second, thread->second, span.slot()));
      Json arguments = {{"job", span.job()}, {"attempt", span.attempt_id()}};
      if (!span.task().empty()) {
        arguments["task"] = span.task();
        arguments["label"] = labels[span.task()];
      }
      if (span.candidates() > 0) arguments["candidates"] = span.candidates();
      if (span.fault().kind() != v1::FAULT_NONE) arguments["fault"] = span.fault().message();
      const std::string kind =
          absl::AsciiStrToLower(absl::StripPrefix(v1::StageKind_Name(span.kind()), "STAGE_"));
      // A stage whose end nobody noted went on no longer than its job.
      const int64_t end_ns = span.end_unix_ns() != 0 ? span.end_unix_ns() : job.finished_unix_ns();
      events.push_back(Slice(kind + " " + span.job(), kind, process->second, thread->second,
                             first_ns, span.start_unix_ns(), end_ns, now_unix_ns,
                             std::move(arguments)));
    }
  }
  return events;
}

}  // namespace heddle::client
