// `heddle jobs trace`: exports a run for Perfetto to show, and for heddle-sim to replay. Both read the
// same file, and each ignores the members of the other. Perfetto also shows jobs that go on.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "base/files/output_file.h"
#include "client/commands/commands.h"
#include "client/views/json.h"
#include "client/views/trace_events.h"

namespace heddle::client {

int TraceJobs(const GlobalOptions& global, const std::vector<std::string>& ids,
              const std::string& output) {
  const ServiceClient client(global.server);
  nlohmann::json trace = {{"schema_version", kJsonSchemaVersion}};
  size_t stages = 0;
  std::string unfinished;  // the jobs that go on
  std::vector<std::pair<v1::Job, v1::Timeline>> shown;
  for (const std::string& id : ids) {
    const absl::StatusOr<v1::Job> job = client.GetJob(id);
    if (!job.ok()) return Fail(job.status());
    if (job->finished_unix_ns() == 0) unfinished += (unfinished.empty() ? "" : " ") + job->id();
    const absl::StatusOr<v1::Timeline> timeline = client.GetTimeline(id);
    if (!timeline.ok()) return Fail(timeline.status());
    const bool whole =
        timeline->spans().empty() ||
        std::any_of(timeline->spans().begin(), timeline->spans().end(),
                    [](const v1::StageSpan& span) { return span.kind() == v1::STAGE_IMPORT; });
    nlohmann::json object = ToFileJson(*job);
    if (!whole) {
      object["truncated"] = true;
      fmt::print(stderr, "{} had more stages than a trace holds; the first are left out\n",
                 job->id());
    }
    object["timeline"] = ToFileJson(*timeline).value("spans", nlohmann::json::array());
    // The time of each candidate, since a profile stage also waits for builds.
    nlohmann::json measured = nlohmann::json::array();
    v1::RecordQuery query;
    query.set_job(job->id());
    query.set_limit(kAllRecords);
    const absl::Status queried = client.QueryRecords(query, [&](const v1::Record& record) {
      measured.push_back({{"task", record.workload_key()},
                          {"created_unix_ns", record.created_unix_ns()},
                          {"profile_ns", record.measurement().profile_ns()}});
      return true;
    });
    if (!queried.ok()) return Fail(queried);
    object["measured"] = std::move(measured);
    trace["policy"] = timeline->policy();
    trace["jobs"].push_back(std::move(object));
    stages += static_cast<size_t>(timeline->spans_size());
    shown.emplace_back(*job, *timeline);
  }
  const absl::StatusOr<v1::ListWorkersResponse> devices = client.ListDevices();
  if (!devices.ok()) return Fail(devices.status());
  trace["workers"] = ToFileJson(*devices).value("workers", nlohmann::json::array());
  // Perfetto reads no further than the first member that it does not know.
  nlohmann::ordered_json file = {{"traceEvents", TraceEvents(shown, absl::GetCurrentTimeNanos())}};
  for (const auto& [name, value] : trace.items()) file[name] = value;
  const std::string text =
      file.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (const absl::Status status = WriteFile(output, text); !status.ok()) return Fail(status);
  const std::string replay =
      unfinished.empty()
          ? fmt::format("`heddle-sim --replay {}` replays them", output)
          : fmt::format(
                "what goes on ends now there; to replay it, `heddle wait {}` and trace again",
                unfinished);
  fmt::print(stderr, "{} stages of {} jobs; https://ui.perfetto.dev shows them, and {}\n", stages,
             ids.size(), replay);
  return kDone;
}

}  // namespace heddle::client
