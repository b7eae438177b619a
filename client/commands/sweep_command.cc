#include "client/commands/sweep_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "absl/strings/str_split.h"
#include "base/files/output_file.h"
#include "base/status_macros.h"
#include "client/embedded_service.h"
#include "client/modules/csv.h"
#include "client/modules/npy.h"
#include "client/views/json.h"
#include "proto/job_states.h"
#include "views/charts.h"

namespace heddle::client {
namespace {

using nlohmann::json;

// A limit, so that a typing error does not start days of work.
constexpr size_t kMaxCombinations = 1000;
constexpr auto kPollJobs = std::chrono::milliseconds(200);
constexpr int kMostMissedPolls = 150;    // a restarted service is back within seconds
constexpr char kUnderWay[] = "running";  // state of a row that has no results yet

constexpr std::pair<v1::StageKind, const char*> kStages[] = {
    {v1::STAGE_IMPORT, "import"},   {v1::STAGE_PROPOSE, "propose"}, {v1::STAGE_BUILD, "build"},
    {v1::STAGE_PROFILE, "profile"}, {v1::STAGE_UPDATE, "update"},   {v1::STAGE_COMPILE, "compile"}};

struct Combination {
  json parameters;  // by name, in the order given
  v1::JobSpec spec;
};

struct Running {
  size_t combination;
  std::string job;
  int missed_polls = 0;
  bool over = false;
};

class SweepRun {
 public:
  SweepRun(const GlobalOptions& global, const SweepOptions& options)
      : global_(global), options_(options) {}

  int Run();

 private:
  absl::Status MakeCombinations();
  absl::Status MakeCombination(const std::vector<size_t>& choice);
  // Reads the rows of an earlier run.
  absl::Status Load();
  absl::Status Save() const;
  absl::Status RunAll(const ServiceClient& client);
  absl::StatusOr<std::string> Begin(const ServiceClient& client, size_t combination) const;
  absl::Status Poll(const ServiceClient& client, Running* running);
  json RowOf(const ServiceClient& client, const v1::Job& job) const;
  json Document() const;
  std::string ToCsv() const;
  std::string ToSvg() const;
  std::string PathOf(const char* file) const { return options_.directory + "/" + file; }
  bool Done(size_t combination) const {
    return !rows_[combination].is_null() && rows_[combination]["state"] == "done";
  }
  size_t CountDone() const {
    size_t done = 0;
    for (size_t i = 0; i < combinations_.size(); ++i) done += Done(i) ? 1 : 0;
    return done;
  }

  const GlobalOptions& global_;
  const SweepOptions& options_;
  std::optional<ModelFile> model_;
  std::vector<Combination> combinations_;
  std::vector<json> rows_;  // one for each combination; null: not run yet
  std::unique_ptr<CommandService> service_;
};

absl::Status SweepRun::MakeCombination(const std::vector<size_t>& choice) {
  Combination combination;
  combination.parameters = json::object();
  std::vector<std::string> words = {options_.model};
  for (size_t p = 0; p < choice.size(); ++p) {
    const SweepParameter& parameter = options_.parameters[p];
    const std::string& value = parameter.values[choice[p]];
    combination.parameters[parameter.name] = value;
    if (parameter.flag && value == "off") continue;
    words.push_back("--" + parameter.name);
    if (!parameter.flag) words.push_back(value);
  }
  HEDDLE_ASSIGN_OR_RETURN(SubmitOptions submit, options_.parse(words));
  if (!model_) {
    HEDDLE_ASSIGN_OR_RETURN(model_, OpenModelShown(submit.model, CanAnimate(global_.output)));
  }
  // Otherwise the second combination would reuse the measurements of the first.
  submit.force = true;
  HEDDLE_ASSIGN_OR_RETURN(v1::JobSpec spec, MakeJobSpec(submit, *model_));
  combination.spec = std::move(spec);
  combinations_.push_back(std::move(combination));
  return absl::OkStatus();
}

absl::Status SweepRun::MakeCombinations() {
  double count = 1;
  for (const SweepParameter& parameter : options_.parameters)
    count *= static_cast<double>(parameter.values.size());
  if (count > kMaxCombinations) {
    return absl::InvalidArgumentError(
        fmt::format("{:.0f} combinations are too many; {} is the most: give fewer values", count,
                    kMaxCombinations));
  }
  std::vector<size_t> choice(options_.parameters.size(), 0);
  while (true) {
    HEDDLE_RETURN_IF_ERROR(MakeCombination(choice));
    size_t p = choice.size();  // the last parameter changes fastest
    while (p > 0 && ++choice[p - 1] == options_.parameters[p - 1].values.size()) choice[--p] = 0;
    if (p == 0) break;
  }
  rows_.resize(combinations_.size());
  return absl::OkStatus();
}

absl::Status SweepRun::Load() {
  std::error_code error;
  std::filesystem::create_directories(options_.directory, error);
  if (error) {
    return absl::InvalidArgumentError(
        fmt::format("cannot make '{}': {}", options_.directory, error.message()));
  }
  const std::string path = PathOf("sweep.json");
  if (!std::filesystem::exists(path)) return absl::OkStatus();
  HEDDLE_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("rows") || !document["rows"].is_array() ||
      !document.contains("model")) {
    return absl::InvalidArgumentError(fmt::format(
        "'{}' was not written by a sweep; move it away or choose another directory", path));
  }
  if (document["model"] != options_.model) {
    return absl::InvalidArgumentError(fmt::format(
        "'{}' belongs to a sweep of {}; choose another directory", path, document["model"].dump()));
  }
  for (const json& row : document["rows"]) {
    for (size_t i = 0; i < combinations_.size(); ++i) {
      if (row.is_object() && row.contains("state") &&
          row.value("parameters", json()) == combinations_[i].parameters)
        rows_[i] = row;
    }
  }
  return absl::OkStatus();
}

json SweepRun::RowOf(const ServiceClient& client, const v1::Job& job) const {
  json row = {{"job", job.id()},
              {"state", job.state() == v1::JOB_DONE ? "done" : "failed"},
              {"error", job.state() == v1::JOB_DONE ? "" : job.fault().message()},
              {"wall_s", static_cast<double>(job.running_ms()) / 1e3},  // while stages ran
              {"measured", job.trials()}};
  // Only its own measurements count, whereas the best times of the job's tasks include records of
  // other jobs. A task without a valid trial of its own counts with its best known time.
  std::map<std::string, double> best_ns;
  v1::RecordQuery query;
  query.set_job(job.id());
  query.set_valid_only(true);
  query.set_limit(kAllRecords);
  const absl::Status records = client.QueryRecords(query, [&](const v1::Record& record) {
    double& best = best_ns[record.workload_key()];
    if (best == 0 || record.median_ns() < best) best = record.median_ns();
    return true;
  });
  double latency_ns = 0;
  bool complete = records.ok() && job.tasks_size() > 0;
  for (const v1::TaskStatus& task : job.tasks()) {
    const double own_ns = best_ns[task.info().key()];
    const double ns = own_ns > 0 ? own_ns : task.best_ns();
    latency_ns += ns * task.info().weight();
    complete = complete && ns > 0;
  }
  row["latency_ms"] = complete ? json(latency_ns / 1e6) : json(nullptr);
  json stages = json::object();
  for (const auto& [kind, name] : kStages) stages[name] = 0.0;
  if (const absl::StatusOr<v1::Timeline> timeline = client.GetTimeline(job.id()); timeline.ok()) {
    for (const v1::StageSpan& span : timeline->spans()) {
      if (span.end_unix_ns() == 0) continue;
      for (const auto& [kind, name] : kStages) {
        if (span.kind() == kind)
          stages[name] = stages[name].get<double>() +
                         static_cast<double>(span.end_unix_ns() - span.start_unix_ns()) / 1e9;
      }
    }
  }
  row["stage_s"] = stages;
  return row;
}

json SweepRun::Document() const {
  json rows = json::array();
  for (const json& row : rows_) {
    if (!row.is_null()) rows.push_back(row);
  }
  return {{"schema_version", kJsonSchemaVersion},
          {"model", options_.model},
          {"combinations", combinations_.size()},
          {"rows", rows}};
}

std::string CellText(const json& value) {
  if (value.is_null()) return "";
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string SweepRun::ToCsv() const {
  std::vector<std::string> cells;
  for (const SweepParameter& parameter : options_.parameters) cells.push_back(parameter.name);
  cells.insert(cells.end(), {"state", "wall_s", "measured", "latency_ms"});
  for (const auto& [kind, name] : kStages) cells.push_back(fmt::format("{}_s", name));
  cells.insert(cells.end(), {"job", "error"});
  std::string csv = CsvRecord(cells);
  for (const json& row : rows_) {
    if (row.is_null()) continue;
    cells.clear();
    for (const SweepParameter& parameter : options_.parameters)
      cells.push_back(CellText(row["parameters"][parameter.name]));
    for (const char* key : {"state", "wall_s", "measured", "latency_ms"})
      cells.push_back(CellText(row.value(key, json())));
    for (const auto& [kind, name] : kStages)
      cells.push_back(CellText(row.value("stage_s", json::object()).value(name, json())));
    for (const char* key : {"job", "error"}) cells.push_back(CellText(row.value(key, json())));
    csv += CsvRecord(cells);
  }
  return csv;
}

std::string SweepRun::ToSvg() const {
  // The colour shows the first parameter with several values.
  std::string by;
  for (const SweepParameter& parameter : options_.parameters) {
    if (by.empty() && parameter.values.size() > 1) by = parameter.name;
  }
  std::vector<views::PlotPoint> points;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (!Done(i) || !rows_[i]["latency_ms"].is_number()) continue;
    const json& parameters = rows_[i]["parameters"];
    points.push_back({.x = rows_[i]["wall_s"].get<double>(),
                      .y = rows_[i]["latency_ms"].get<double>(),
                      .group = by.empty() ? "all" : by + " " + parameters[by].get<std::string>(),
                      .label = parameters.dump()});
  }
  return views::ScatterPlot(
      std::filesystem::path(options_.model).filename().string() + ": latency over tuning time",
      "tuning time (s)", "latency, tasks added up (ms)", points);
}

absl::Status SweepRun::Save() const {
  HEDDLE_RETURN_IF_ERROR(WriteFile(PathOf("sweep.csv"), ToCsv()));
  HEDDLE_RETURN_IF_ERROR(WriteFile(PathOf("sweep.svg"), ToSvg()));
  return WriteFile(PathOf("sweep.json"), Document().dump(1) + "\n");
}

absl::Status SweepRun::Poll(const ServiceClient& client, Running* running) {
  const absl::StatusOr<v1::Job> job = client.GetJob(running->job);
  if (!job.ok()) {
    return absl::IsUnavailable(job.status()) && ++running->missed_polls <= kMostMissedPolls
               ? absl::OkStatus()
               : job.status();
  }
  running->missed_polls = 0;
  if (!IsFinal(job->state())) return absl::OkStatus();
  running->over = true;
  const Combination& combination = combinations_[running->combination];
  json& row = rows_[running->combination];
  row = RowOf(client, *job);
  row["parameters"] = combination.parameters;
  fmt::print(
      stderr, "{}/{} {}: {}\n", CountDone(), combinations_.size(), combination.parameters.dump(),
      row["state"] == "done"
          ? fmt::format(
                "{} in {:.1f} s",
                FormatNs(row["latency_ms"].is_number() ? row["latency_ms"].get<double>() * 1e6 : 0),
                row["wall_s"].get<double>())
          : fmt::format("failed: {}", row["error"].get<std::string>()));
  return Save();
}

// The job that an interrupted run left behind, or a new one. Job numbers of another service may
// coincide, so the specification is compared.
absl::StatusOr<std::string> SweepRun::Begin(const ServiceClient& client, size_t combination) const {
  v1::JobSpec spec = combinations_[combination].spec;
  const json& row = rows_[combination];
  if (!row.is_null() && row["state"] == kUnderWay) {
    const absl::StatusOr<v1::Job> job = client.GetJob(row.value("job", ""));
    if (!job.ok() && !absl::IsNotFound(job.status()))
      return job.status();  // the job may still be running
    v1::JobSpec theirs = job.ok() ? job->spec() : v1::JobSpec();
    theirs.set_deadline_unix_ns(spec.deadline_unix_ns());  // "2h" now means another moment
    const bool ended = !job.ok() || (IsFinal(job->state()) && job->state() != v1::JOB_DONE);
    if (!ended && theirs.SerializeAsString() == spec.SerializeAsString()) return job->id();
  }
  return client.Submit(spec, model_->onnx, model_->parts);
}

absl::Status SweepRun::RunAll(const ServiceClient& client) {
  std::deque<size_t> waiting;
  for (size_t i = 0; i < combinations_.size(); ++i) {
    if (!Done(i)) waiting.push_back(i);
  }
  std::vector<Running> running;
  absl::Status status;
  while (status.ok() && (!waiting.empty() || !running.empty()) && !Interrupted()) {
    while (status.ok() && !waiting.empty() &&
           running.size() < static_cast<size_t>(options_.parallel)) {
      const size_t next = waiting.front();
      waiting.pop_front();
      const absl::StatusOr<std::string> job = Begin(client, next);
      status = job.status();
      if (!status.ok()) break;
      running.push_back({.combination = next, .job = *job});
      rows_[next] = {
          {"parameters", combinations_[next].parameters}, {"state", kUnderWay}, {"job", *job}};
      status = Save();
    }
    std::this_thread::sleep_for(kPollJobs);
    if (status.ok()) status = service_->CheckAlive();
    for (Running& one : running) {
      if (status.ok()) status = Poll(client, &one);
    }
    std::erase_if(running, [](const Running& one) { return one.over; });
  }
  for (const Running& left : running) {
    if (client.CancelJob(left.job, "the sweep ended").ok()) rows_[left.combination] = json();
  }
  return status;
}

int SweepRun::Run() {
  if (absl::Status status = MakeCombinations(); !status.ok()) return Fail(status);
  if (absl::Status status = Load(); !status.ok()) return Fail(status);
  const size_t known = CountDone();
  fmt::print(stderr, "{} combinations{}\n", combinations_.size(),
             known > 0 ? fmt::format(", {} of them done already", known) : "");
  if (known < combinations_.size()) {
    absl::StatusOr<std::unique_ptr<CommandService>> found =
        CommandService::Find(global_.server, options_.data);
    if (!found.ok()) return Fail(found.status());
    service_ = *std::move(found);
    if (absl::Status status = RunAll(ServiceClient(service_->server())); !status.ok())
      return Fail(status);
  }
  if (absl::Status status = Save(); !status.ok()) return Fail(status);
  if (global_.output.json) fmt::print("{}\n", Document().dump());
  if (Interrupted()) {
    fmt::print(stderr, "stopped; the same command does what is left\n");
    return kInterrupted;
  }
  if (!global_.output.json) fmt::print("{}", ToCsv());
  fmt::print(stderr, "written: sweep.csv, sweep.json and sweep.svg in {}\n", options_.directory);
  const size_t done = CountDone();
  if (done == combinations_.size()) return kDone;
  fmt::print(stderr, "heddle: {} of {} combinations failed; the same command tries them again\n",
             combinations_.size() - done, combinations_.size());
  return done == 0 ? kNothingValid : kInternal;
}

}  // namespace

absl::StatusOr<SweepParameter> ParseSweepParameter(const std::string& name, bool flag,
                                                   const std::string& text) {
  SweepParameter parameter{.name = name, .flag = flag, .values = absl::StrSplit(text, ',')};
  for (const std::string& value : parameter.values) {
    if (value.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("--{} '{}' has an empty value; give a list like 8,16", name, text));
    }
    if (std::count(parameter.values.begin(), parameter.values.end(), value) > 1)
      return absl::InvalidArgumentError(fmt::format("--{} '{}' has {} twice", name, text, value));
    if (flag && value != "on" && value != "off") {
      return absl::InvalidArgumentError(
          fmt::format("--{} '{}': a flag's values are on and off", name, text));
    }
  }
  return parameter;
}

int Sweep(const GlobalOptions& global, const SweepOptions& options) {
  return SweepRun(global, options).Run();
}

}  // namespace heddle::client
