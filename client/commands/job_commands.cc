#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/files/output_file.h"
#include "base/status_macros.h"
#include "client/commands/commands.h"
#include "client/modules/module_signature.h"
#include "client/views/json.h"
#include "client/views/progress_view.h"
#include "client/views/timeline_view.h"
#include "compiler/machine/measured_machine.h"
#include "views/noise.h"

namespace heddle::client {
namespace {

// How long a watch waits for a service that is being restarted.
constexpr absl::Duration kWatchPatience = absl::Seconds(60);
constexpr absl::Duration kSilence = absl::Seconds(2);  // until who waits is told for what
constexpr size_t kNameColumns = 40;                    // of a job's name in the list
constexpr size_t kReasonColumns = 80;                  // of its reason there; `show` has all

// The job with what follows from it: the time of one inference now and with the default schedules (0: not
// known), and the gain, as compared if that is done.
nlohmann::json JobJson(const v1::Job& job) {
  nlohmann::json object = ToJson(job);
  object["schema_version"] = kJsonSchemaVersion;
  const double ns = ModelNs(job);
  const double untuned = job.comparison().has_result() ? job.comparison().result().default_ns()
                                                       : EstimatedModelNs(job, true);
  object["model_ns"] = ns;
  object["default_model_ns"] = untuned;
  // The median of the rounds' ratios is not the ratio of the medians.
  const bool measured = job.comparison().has_result() && !job.comparison().module_is_default();
  object["gain"] = measured ? job.comparison().result().gain().ratio() : ns > 0 ? untuned / ns : 0;
  return object;
}

// Why the best known schedules are the default ones; empty: they are not.
std::string WhyDefault(const v1::Job& job) {
  const bool tuned = std::any_of(
      job.tasks().begin(), job.tasks().end(),
      [](const v1::TaskStatus& task) { return task.best_ns() > 0 || task.known_records() > 0; });
  if (!tuned) return "no trial of the job was measured";
  if (job.comparison().module_is_default()) return "with the tuned kernels the model was slower";
  return KeepsAllDefaults(job) ? "no tuned kernel was surely faster" : "";
}

void PrintJson(const nlohmann::json& object) {
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// Says once that the scheduler has not answered yet, to who would otherwise wait before a silent terminal.
class FirstAnswer {
 public:
  FirstAnswer(std::string job, absl::Duration patience)
      : job_(std::move(job)), patience_(patience) {}
  // To be called about ten times a second; `heard`: the job is known.
  void Check(bool heard) {
    if (told_ || heard || MonotonicNow() - start_ < kSilence) return;
    told_ = true;
    fmt::print(stderr, "no scheduler has told of {} yet; waiting up to {} for one that starts\n",
               Printable(job_), HumanDuration(patience_));
  }

 private:
  const std::string job_;
  const absl::Duration patience_;
  const absl::Time start_ = MonotonicNow();
  bool told_ = false;
};

// "cancelled: by its user", with what the state is called.
std::string WithReason(const std::string& state, const v1::Job& job) {
  const std::string reason = ReasonBeyondState(job);
  return reason.empty() ? state : state + ": " + reason;
}

void PrintJob(const v1::Job& job, const OutputOptions& output) {
  fmt::print("job      {}  {}\nstate    {}\ntarget   {}\ntrials   {} of {}\ncreated  {}\n",
             job.id(), Printable(job.spec().name()), Printable(WithReason(ShownState(job), job)),
             Printable(job.spec().target()), job.trials(), job.trials_budget(),
             FormatWallTime(job.created_unix_ns()));
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
  bool more = false;
  const absl::StatusOr<std::vector<v1::Job>> jobs = client.ListJobs(all, &more);
  if (!jobs.ok()) return Fail(jobs.status());
  if (more) fmt::print(stderr, "showing the newest {} jobs; there are more\n", jobs->size());
  if (global.output.json) {
    for (const v1::Job& job : *jobs) PrintJson(JobJson(job));
    return kDone;
  }
  Table table({"job", "name", "state", "trials", "ETA", "model", "created", "reason"});
  for (const v1::Job& job : *jobs) {
    const std::string& name = job.spec().name();
    table.Add({job.id(), global.output.plain ? name : Clip(name, kNameColumns), ShownState(job),
               fmt::format("{}/{}", job.trials(), job.trials_budget()),
               job.eta_ms() > 0 ? HumanDuration(absl::Milliseconds(job.eta_ms())) : "-",
               global.output.plain ? FormatNs(ModelNs(job)) : ModelTime(job),
               FormatWallTime(job.created_unix_ns()),
               global.output.plain ? job.reason() : Clip(job.reason(), kReasonColumns)});
  }
  if (jobs->empty()) {
    fmt::print(stderr, "{}\n",
               all ? "no jobs; `heddle submit MODEL` makes one"
                   : "no unfinished jobs; -a shows finished ones");
    return kDone;
  }
  fmt::print("{}", table.ToText(global.output.plain));
  if (!global.output.plain && std::any_of(jobs->begin(), jobs->end(), IsSum))
    fmt::print(stderr, "{}\n", kSumMeans);
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
      nlohmann::json object = JobJson(*job);
      object["timeline"] = ToJson(*timeline).at("spans");
      PrintJson(object);
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
  FirstAnswer answer(job, kWatchPatience);
  const absl::Status status = client.WatchJob(job, kWatchPatience, [&](const v1::Job* update) {
    if (update != nullptr) {
      *last = *update;
      if (output.json) {
        PrintJson(JobJson(*update));
        std::fflush(stdout);
      }
    }
    if (!last->id().empty()) view.Show(*last, absl::Now());
    answer.Check(!last->id().empty());
    if (service_alive) alive = service_alive();
    return alive.ok() && !Interrupted();
  });
  view.Finish();
  if (!alive.ok()) return Fail(alive);
  if (absl::IsCancelled(status) && Interrupted()) return kInterrupted;
  if (!status.ok()) return Fail(status);
  const int code = ExitCodeOf(*last);
  if (code != kDone) {
    const std::string word = StateWord(last->state()), &fault = last->fault().message();
    return Fail(code, fmt::format("job {} {}", job,
                                  fault.empty() ? WithReason(word, *last) : word + ": " + fault));
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

namespace {

int WaitForJob(const GlobalOptions& global, const ServiceClient& client, const std::string& id,
               const std::string& what, absl::Time deadline) {
  v1::Job last;
  bool reached = false;
  bool timed_out = false;
  FirstAnswer answer(id, std::min(kWatchPatience, deadline - MonotonicNow()));
  const absl::Status status = client.WatchJob(id, kWatchPatience, [&](const v1::Job* update) {
    if (update != nullptr) {
      last = *update;
      reached = what == "first-valid" &&
                std::any_of(last.tasks().begin(), last.tasks().end(),
                            [](const v1::TaskStatus& t) { return t.best_ns() > 0; });
    }
    answer.Check(!last.id().empty());
    timed_out = MonotonicNow() >= deadline;
    return !reached && !timed_out && !Interrupted();
  });
  if (Interrupted()) return kInterrupted;
  if (global.output.json && !last.id().empty()) PrintJson(JobJson(last));
  if (reached) return kDone;
  if (timed_out && !status.ok() && last.id().empty()) {
    return Fail(absl::DeadlineExceededError(
        fmt::format("no scheduler told of job {} in that time; is there one at {}?", id,
                    global.server.address)));
  }
  if (timed_out && !status.ok()) {
    return Fail(absl::DeadlineExceededError(
        fmt::format("job {} is still {}: {}", id, StateWord(last.state()), last.reason())));
  }
  if (!status.ok()) return Fail(status);
  const int code = ExitCodeOf(last);
  if (code == kDone) return code;
  return Fail(code, fmt::format("job {} {}", id, WithReason(StateWord(last.state()), last)));
}

int ActOnJob(const GlobalOptions& global, const ServiceClient& client, JobAction action,
             const std::string& id) {
  const absl::StatusOr<v1::Job> job = action == JobAction::kCancel
                                          ? client.CancelJob(id, "by its user")
                                      : action == JobAction::kPause ? client.PauseJob(id)
                                                                    : client.ResumeJob(id);
  if (!job.ok()) return Fail(job.status());
  if (global.output.json) {
    PrintJson(JobJson(*job));
  } else {
    fmt::print(stderr, "{} is {}\n", id, Printable(WithReason(StateWord(job->state()), *job)));
  }
  return kDone;
}

}  // namespace

int WaitForJobs(const GlobalOptions& global, const std::vector<std::string>& ids,
                const std::string& what, const std::string& timeout) {
  const absl::StatusOr<absl::Duration> span = ParseTimeout(timeout);
  if (!span.ok()) return Fail(span.status());
  const ServiceClient client(global.server);
  const absl::Time deadline = MonotonicNow() + *span;
  int first = kDone;
  for (const std::string& id : ids) {
    const int code = WaitForJob(global, client, id, what, deadline);
    if (first == kDone) first = code;
    if (code == kInterrupted) return code;
  }
  return first;
}

int ActOnJobs(const GlobalOptions& global, JobAction action, const std::vector<std::string>& ids) {
  const ServiceClient client(global.server);
  int first = kDone;
  for (const std::string& id : ids) {
    const int code = ActOnJob(global, client, action, id);
    if (first == kDone) first = code;
  }
  return first;
}

int PrioritizeJob(const GlobalOptions& global, const std::string& id, int priority) {
  const ServiceClient client(global.server);
  const absl::StatusOr<v1::Job> job = client.PrioritizeJob(id, priority);
  if (!job.ok()) return Fail(job.status());
  if (global.output.json) {
    PrintJson(JobJson(*job));
  } else {
    fmt::print(stderr, "{} has priority {} now\n", id, job->spec().priority());
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
  std::string told = schedules;
  if (const absl::StatusOr<v1::Job> job = client.GetJob(id);
      job.ok() && choice == v1::SCHEDULE_BEST) {
    if (const std::string why = WhyDefault(*job); !why.empty()) told = "default: " + why;
  }
  const absl::StatusOr<std::string> signer = SignerOfFetched(global, id, output);
  if (!signer.ok()) return Fail(signer.status());
  if (global.output.json) {
    const nlohmann::json object = {{"schema_version", kJsonSchemaVersion},
                                   {"job", id},
                                   {"file", output},
                                   {"bytes", *module},
                                   {"schedules", told},
                                   {"signed_by", *signer}};
    fmt::print("{}\n", object.dump());
  } else {
    fmt::print(stderr, "{}: {} (schedules: {}{})\n", output, FormatBytes(*module), told,
               signer->empty() ? "" : ", signed by " + *signer);
  }
  return kDone;
}

int ListDevices(const GlobalOptions& global) {
  const ServiceClient client(global.server);
  const absl::StatusOr<v1::ListWorkersResponse> response = client.ListDevices();
  if (!response.ok()) return Fail(response.status());
  // What the service measured last says how quiet each slot is. Without it the rest is still useful.
  std::vector<v1::Record> records;
  v1::RecordQuery query;
  query.set_limit(kNoiseRecords);
  (void)client.QueryRecords(query, [&records](const v1::Record& record) {
    records.push_back(record);
    return true;
  });
  const auto noises = NoiseOf(records);
  if (global.output.json) {
    nlohmann::json object = ToJson(*response);
    object["schema_version"] = kJsonSchemaVersion;
    object["noise"] = nlohmann::json::array();
    for (const auto& [slot, noise] : noises) {
      object["noise"].push_back({{"worker", slot.first},
                                 {"slot", slot.second},
                                 {"trials", noise.trials},
                                 {"spread", noise.spread},
                                 {"repeated", noise.repeated},
                                 {"other_share", noise.other_share}});
    }
    PrintJson(object);
    return kDone;
  }
  if (response->workers().empty()) {
    fmt::print(stderr,
               "no worker is registered; start one with `heddle-worker --tracker ADDRESS`\n");
    return kDone;
  }
  std::map<std::string, std::string> machines;  // by device key
  Table table(
      {"worker", "host", "slot", "kind", "cores", "device", "target", "state", "noise", "reason"});
  for (const v1::WorkerStatus& worker : response->workers()) {
    for (const v1::SlotStatus& status : worker.slots()) {
      const v1::Slot& slot = status.slot();
      const bool device = slot.kind() == v1::SLOT_DEVICE;
      const auto noise = noises.find({worker.worker(), slot.name()});
      if (!slot.machine().empty()) machines.emplace(slot.device_key(), slot.machine());
      table.Add({worker.worker(), worker.host(), slot.name(), device ? "device" : "cpu",
                 fmt::format("{}", fmt::join(slot.cores(), ",")), device ? slot.device_key() : "-",
                 device ? slot.target() : "-", SlotStateWord(status.state()),
                 noise == noises.end() ? "-" : NoiseText(noise->second), status.reason()});
    }
  }
  fmt::print("{}", table.ToText(global.output.plain));
  if (!noises.empty()) {
    fmt::print(
        stderr,
        "noise: how far repeated times of a kernel lie apart, and trials that were disturbed, of "
        "the last {} records\n",
        records.size());
  }
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
