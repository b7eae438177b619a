#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/output_file.h"
#include "base/status_macros.h"
#include "client/commands/commands.h"
#include "client/modules/module_signature.h"
#include "client/views/json.h"
#include "client/views/progress_view.h"
#include "client/views/timeline_view.h"
#include "compiler/machine/measured_machine.h"

namespace heddle::client {
namespace {

// How long a watch waits for a service that is being restarted.
constexpr absl::Duration kWatchPatience = absl::Seconds(60);

std::string SlotStateWord(v1::SlotState state) {
  switch (state) {
    case v1::SLOT_FREE:
      return "free";
    case v1::SLOT_HELD:
      return "held";
    case v1::SLOT_BLOCKED:
      return "blocked";
    case v1::SLOT_DRAINING:
      return "draining";
    case v1::SLOT_QUARANTINED:
      return "quarantined";
    default:
      return "unknown";
  }
}

void PrintJob(const v1::Job& job, const OutputOptions& output) {
  fmt::print("job      {}  {}\nstate    {}: {}\ntarget   {}\ntrials   {} of {}\ncreated  {}\n",
             job.id(), Printable(job.spec().name()), StateWord(job.state()),
             Printable(job.reason()), Printable(job.spec().target()), job.trials(),
             job.trials_budget(), FormatWallTime(job.created_unix_ns()));
  if (const std::string deadline = DeadlineText(job, absl::Now()); !deadline.empty())
    fmt::print("deadline {}\n", deadline);
  if (const std::string gain = ModelGain(job); !gain.empty()) fmt::print("gain     {}\n", gain);
  if (!job.comparison().missing().empty())
    fmt::print("         not compared with the default schedules: {}\n",
               job.comparison().missing());
  int tasks = 0, back = 0;
  for (const v1::TaskStatus& task : job.tasks()) {
    if (task.info().weight() == 0) continue;  // of another plan
    ++tasks;
    back += task.keeps_default();
  }
  if (back > 0)
    fmt::print("         {} of {} tasks keep{} the default kernel: tuned, {} not faster there\n",
               back, tasks, back == 1 ? "s" : "", back == 1 ? "it was" : "they were");
  for (const std::string& warning : job.warnings()) fmt::print("warning  {}\n", Printable(warning));
  if (job.tasks_size() > 0) fmt::print("\n{}", TaskTable(job, output.plain));
  for (const v1::TaskStatus& task : job.tasks()) {
    if (!task.first_error().empty() && (output.verbosity > 0 || task.failed() == task.trials())) {
      fmt::print("first error of {}: {}\n", Printable(task.info().label()),
                 Printable(task.first_error()));
    }
  }
}

// Who signed a module that was fetched for the job. Empty: nobody did, or there is no lab to know
// signers by. A module with a signature that does not hold is removed again.
absl::StatusOr<std::string> SignerOfFetched(const GlobalOptions& global, const std::string& id,
                                            const std::string& path) {
  std::error_code ignored;
  if (global.server.tls_directory.empty() || !std::filesystem::is_regular_file(path, ignored))
    return "";
  absl::StatusOr<ModuleMaker> maker = MakerOfFile(global.server.tls_directory, path);
  if (absl::IsNotFound(maker.status())) return "";
  if (maker.ok() && maker->job != id)
    maker = absl::PermissionDeniedError(
        fmt::format("{}: the module was made for job {}, not for {}", path, maker->job, id));
  if (maker.ok()) return ToText(maker->worker);
  std::filesystem::remove(path, ignored);
  return maker.status();
}

}  // namespace

int ExitCodeOf(const v1::Job& job) {
  switch (job.state()) {
    case v1::JOB_DONE:
      return kDone;
    case v1::JOB_CANCELLED:
      return kCancelled;
    case v1::JOB_FAILED:
      if (job.fault().kind() == v1::FAULT_USER) return kUsage;
      return job.fault().kind() == v1::FAULT_CANDIDATE ? kNothingValid : kInternal;
    default:
      return kInternal;
  }
}

int ListJobs(const GlobalOptions& global, bool all) {
  const ServiceClient client(global.server);
  const absl::StatusOr<std::vector<v1::Job>> jobs = client.ListJobs(all);
  if (!jobs.ok()) return Fail(jobs.status());
  if (global.output.json) {
    for (const v1::Job& job : *jobs) fmt::print("{}\n", ToJsonLine(job));
    return kDone;
  }
  Table table({"job", "name", "state", "trials", "ETA", "model", "created", "reason"});
  for (const v1::Job& job : *jobs) {
    table.Add({job.id(), job.spec().name(), StateWord(job.state()),
               fmt::format("{}/{}", job.trials(), job.trials_budget()),
               job.eta_ms() > 0 ? HumanDuration(absl::Milliseconds(job.eta_ms())) : "-",
               FormatNs(ModelNs(job)), FormatWallTime(job.created_unix_ns()), job.reason()});
  }
  if (jobs->empty()) {
    fmt::print(stderr, "{}\n",
               all ? "no jobs; `heddle submit MODEL` makes one"
                   : "no unfinished jobs; -a shows finished ones");
    return kDone;
  }
  fmt::print("{}", table.ToText(global.output.plain));
  return kDone;
}

int ShowJobs(const GlobalOptions& global, const std::vector<std::string>& ids, bool stages) {
  const ServiceClient client(global.server);
  std::vector<v1::StageSpan> spans;
  for (size_t i = 0; i < ids.size(); ++i) {
    const absl::StatusOr<v1::Job> job = client.GetJob(ids[i]);
    if (!job.ok()) return Fail(job.status());
    const absl::StatusOr<v1::Timeline> timeline = client.GetTimeline(ids[i]);
    if (!timeline.ok()) return Fail(timeline.status());
    spans.insert(spans.end(), timeline->spans().begin(), timeline->spans().end());
    if (global.output.json) {
      nlohmann::json object = ToJson(*job);
      object["schema_version"] = kJsonSchemaVersion;
      object["timeline"] = ToJson(*timeline).value("spans", nlohmann::json::array());
      fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      continue;
    }
    if (i > 0) fmt::print("\n");
    PrintJob(*job, global.output);
  }
  if (global.output.json) return kDone;
  fmt::print("\n{}", DrawTimeline(spans, std::clamp(TerminalWidth() - 40, 40, 120)));
  fmt::print("\n{}", StageTimes(spans, global.output.plain));
  if (ids.size() == 1) fmt::print("{}", Throughput(spans));
  if (stages) fmt::print("\n{}", ListTimeline(spans, global.output.plain));
  return kDone;
}

int FollowJob(const ServiceClient& client, const std::string& job, const OutputOptions& output,
              v1::Job* last, const std::function<absl::Status()>& service_alive) {
  ProgressView view(output);
  absl::Status alive;
  const absl::Status status = client.WatchJob(job, kWatchPatience, [&](const v1::Job* update) {
    if (update != nullptr) {
      *last = *update;
      if (output.json) {
        fmt::print("{}\n", ToJsonLine(*update));
        std::fflush(stdout);
      }
    }
    if (!last->id().empty()) view.Show(*last, absl::Now());
    if (service_alive) alive = service_alive();
    return alive.ok() && !Interrupted();
  });
  view.Finish();
  if (!alive.ok()) return Fail(alive);
  if (absl::IsCancelled(status) && Interrupted()) return kInterrupted;
  if (!status.ok()) return Fail(status);
  const int code = ExitCodeOf(*last);
  if (code != kDone) {
    const std::string why =
        last->fault().message().empty() ? last->reason() : last->fault().message();
    fmt::print(stderr, "heddle: job {} {}: {}\n", job, StateWord(last->state()), why);
  }
  return code;
}

int WatchJob(const GlobalOptions& global, const std::string& id) {
  const ServiceClient client(global.server);
  v1::Job last;
  const int code = FollowJob(client, id, global.output, &last);
  if (code == kInterrupted) {
    fmt::print(
        stderr,
        "detached; the job goes on. `heddle watch {}` comes back, `heddle cancel {}` ends it.\n",
        id, id);
  }
  if (code == kDone)
    fmt::print(stderr, "next: heddle fetch {} -o {}.heddle\n", id, Printable(last.spec().name()));
  return code;
}

int WaitForJob(const GlobalOptions& global, const std::string& id, const std::string& what,
               absl::Duration timeout) {
  const ServiceClient client(global.server);
  const absl::Time deadline = absl::Now() + timeout;
  v1::Job last;
  bool reached = false;
  bool timed_out = false;
  const absl::Status status = client.WatchJob(id, kWatchPatience, [&](const v1::Job* update) {
    if (update != nullptr) {
      last = *update;
      reached = what == "first-valid" &&
                std::any_of(last.tasks().begin(), last.tasks().end(),
                            [](const v1::TaskStatus& t) { return t.best_ns() > 0; });
    }
    timed_out = absl::Now() >= deadline;
    return !reached && !timed_out && !Interrupted();
  });
  if (Interrupted()) return kInterrupted;
  if (global.output.json && !last.id().empty()) fmt::print("{}\n", ToJsonLine(last));
  if (reached) return kDone;
  if (timed_out && !status.ok()) {
    return Fail(absl::DeadlineExceededError(
        fmt::format("job {} is still {}: {}", id, StateWord(last.state()), last.reason())));
  }
  if (!status.ok()) return Fail(status);
  const int code = ExitCodeOf(last);
  if (code != kDone)
    fmt::print(stderr, "heddle: job {} {}: {}\n", id, StateWord(last.state()), last.reason());
  return code;
}

int ActOnJob(const GlobalOptions& global, JobAction action, const std::string& id) {
  const ServiceClient client(global.server);
  const absl::StatusOr<v1::Job> job = action == JobAction::kCancel
                                          ? client.CancelJob(id, "cancelled by its user")
                                      : action == JobAction::kPause ? client.PauseJob(id)
                                                                    : client.ResumeJob(id);
  if (!job.ok()) return Fail(job.status());
  if (global.output.json) {
    fmt::print("{}\n", ToJsonLine(*job));
  } else {
    fmt::print(stderr, "{} is {}: {}\n", id, StateWord(job->state()), job->reason());
  }
  return kDone;
}

absl::StatusOr<int64_t> FetchModuleFile(const ServiceClient& client, const std::string& job,
                                        v1::ScheduleChoice choice, const std::string& path) {
  std::optional<OutputFile> file;  // opened when the module arrives
  HEDDLE_ASSIGN_OR_RETURN(
      const int64_t bytes,
      client.FetchModule(job, choice, [&](std::string_view piece) -> absl::Status {
        if (!file) {
          absl::StatusOr<OutputFile> opened = OutputFile::Open(path);
          if (!opened.ok()) return opened.status();
          file.emplace(*std::move(opened));
        }
        return file->Append(piece);
      }));
  if (file) HEDDLE_RETURN_IF_ERROR(file->Commit());
  return bytes;
}

int FetchModule(const GlobalOptions& global, const std::string& id, const std::string& output,
                const std::string& schedules) {
  const ServiceClient client(global.server);
  const v1::ScheduleChoice choice = schedules == "naive"     ? v1::SCHEDULE_NAIVE
                                    : schedules == "default" ? v1::SCHEDULE_DEFAULT
                                                             : v1::SCHEDULE_BEST;
  const absl::StatusOr<int64_t> module = FetchModuleFile(client, id, choice, output);
  if (!module.ok()) return Fail(module.status());
  const absl::StatusOr<std::string> signer = SignerOfFetched(global, id, output);
  if (!signer.ok()) return Fail(signer.status());
  if (global.output.json) {
    const nlohmann::json object = {{"schema_version", kJsonSchemaVersion},
                                   {"job", id},
                                   {"file", output},
                                   {"bytes", *module},
                                   {"signed_by", *signer}};
    fmt::print("{}\n", object.dump());
  } else {
    fmt::print(stderr, "{}: {} (schedules: {}{})\n", output, FormatBytes(*module), schedules,
               signer->empty() ? "" : ", signed by " + *signer);
  }
  return kDone;
}

int ListDevices(const GlobalOptions& global) {
  const ServiceClient client(global.server);
  const absl::StatusOr<v1::ListWorkersResponse> response = client.ListDevices();
  if (!response.ok()) return Fail(response.status());
  if (global.output.json) {
    fmt::print("{}\n", ToJsonLine(*response));
    return kDone;
  }
  if (response->workers().empty()) {
    fmt::print(stderr,
               "no worker is registered; start one with `heddle-worker --tracker ADDRESS`\n");
    return kDone;
  }
  std::map<std::string, std::string> machines;  // by device key
  Table table({"worker", "host", "slot", "kind", "cores", "device", "target", "state", "reason"});
  for (const v1::WorkerStatus& worker : response->workers()) {
    for (const v1::SlotStatus& status : worker.slots()) {
      const v1::Slot& slot = status.slot();
      const bool device = slot.kind() == v1::SLOT_DEVICE;
      if (!slot.machine().empty()) machines.emplace(slot.device_key(), slot.machine());
      table.Add({worker.worker(), worker.host(), slot.name(), device ? "device" : "cpu",
                 fmt::format("{}", fmt::join(slot.cores(), ",")), device ? slot.device_key() : "-",
                 device ? slot.target() : "-", SlotStateWord(status.state()), status.reason()});
    }
  }
  fmt::print("{}", table.ToText(global.output.plain));
  if (global.output.verbosity == 0) return kDone;
  for (const auto& [key, text] : machines) {
    const absl::StatusOr<machine::MeasuredMachine> measured = machine::ParseMeasuredMachine(text);
    fmt::print("{}: {}\n", key,
               measured.ok() ? machine::Summary(*measured)
                             : fmt::format("not readable by this client: {}",
                                           std::string(measured.status().message())));
  }
  return kDone;
}

}  // namespace heddle::client
