// Reads scenarios from JSON.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/vocabulary/job_limits.h"
#include "scheduler/sim/json_reader.h"
#include "scheduler/sim/scenario.h"

namespace heddle::sim {
namespace {

constexpr int kMaxSlots = 20'000;
constexpr int kMaxJobs = 100'000;
constexpr int kMaxTasks = 10'000;
constexpr int kMaxBases = 8;  // longest chain of `base` files
constexpr int kMaxSchedulers = 1'000;
constexpr double kMaxSeconds = 1e9;
const char* const kDefaultTarget = "llvm -mcpu=any";

const std::pair<const char*, int> kStages[] = {
    {"import", v1::STAGE_IMPORT},   {"propose", v1::STAGE_PROPOSE}, {"build", v1::STAGE_BUILD},
    {"profile", v1::STAGE_PROFILE}, {"update", v1::STAGE_UPDATE},   {"compile", v1::STAGE_COMPILE},
    {"compare", v1::STAGE_COMPARE}, {"plan", v1::STAGE_PLAN}};

bool AllPositive(const Json& json) {
  return std::all_of(json.begin(), json.end(),
                     [](const Json& x) { return x.is_number() && x.get<double>() >= 0; });
}

// `fields`: what else the object may have.
void ReadSeconds(const Reader& read, const Json& json, const std::string& path,
                 const std::set<std::string>& fields, Distribution* seconds) {
  if (json.is_number()) {
    if (json.get<double>() < 0) return read.Wrong(path, "must not be negative");
    *seconds = {Distribution::kConstant, json.get<double>(), 0, {}};
    return;
  }
  if (!json.is_object()) {
    return read.Wrong(
        path,
        "must be a number of seconds, or an object with constant, uniform, lognormal or recorded");
  }
  std::set<std::string> known = {"constant", "uniform", "lognormal", "recorded"};
  known.insert(fields.begin(), fields.end());
  read.Known(json, path, known);
  if (json.contains("constant")) {
    seconds->kind = Distribution::kConstant;
    read.Number(json, path, "constant", 0, kMaxSeconds, &seconds->a);
  } else if (json.contains("uniform")) {
    const Json& ends = json.at("uniform");
    if (!ends.is_array() || ends.size() != 2 || !AllPositive(ends) || ends[0] > ends[1])
      return read.Wrong(path + ".uniform", "must be [low, high], seconds");
    *seconds = {Distribution::kUniform, ends[0].get<double>(), ends[1].get<double>(), {}};
  } else if (json.contains("lognormal")) {
    const Json& given = json.at("lognormal");
    const std::string at = path + ".lognormal";
    read.Known(given, at, {"mean", "cv"});
    seconds->kind = Distribution::kLognormal;
    seconds->b = 0.3;
    read.Number(given, at, "mean", 1e-9, kMaxSeconds, &seconds->a);
    read.Number(given, at, "cv", 0, 100, &seconds->b);
  } else if (json.contains("recorded")) {
    const Json& given = json.at("recorded");
    if (!given.is_array() || given.empty() || !AllPositive(given))
      return read.Wrong(path + ".recorded", "must be a list of seconds, at least one");
    seconds->kind = Distribution::kRecorded;
    seconds->recorded = given.get<std::vector<double>>();
  }
}

void ReadField(const Reader& read, const Json& json, const std::string& path, const char* field,
               Distribution* seconds) {
  if (json.contains(field)) ReadSeconds(read, json.at(field), Reader::At(path, field), {}, seconds);
}

void ReadTime(const Reader& read, const Json& json, const std::string& path, StageTime* time) {
  ReadSeconds(read, json, path, {"per", "load"}, &time->seconds);
  if (!json.is_object()) return;
  read.Number(json, path, "load", 0.01, 1, &time->load);
  std::string per = time->per_candidate ? "candidate" : "batch";
  read.Text(json, path, "per", &per);
  if (per != "candidate" && per != "batch")
    read.Wrong(path + ".per", "must be \"candidate\" or \"batch\"");
  time->per_candidate = per == "candidate";
}

void ReadTimes(const Reader& read, const Json& json, const std::string& path, StageTimes* times) {
  if (!json.contains("times")) return;
  const std::string at = Reader::At(path, "times");
  const Json& given = json.at("times");
  read.Known(given, at, {"import", "propose", "build", "profile", "update", "compile"});
  if (!read.ok()) return;
  for (const auto& [name, kind] : kStages) {
    if (given.contains(name))
      ReadTime(read, given.at(name), Reader::At(at, name), &(*times)[static_cast<size_t>(kind)]);
  }
}

void ReadCurve(const Reader& read, const Json& json, const std::string& path, Curve* curve) {
  if (!json.contains("curve")) return;
  const std::string at = Reader::At(path, "curve");
  const Json& given = json.at("curve");
  read.Known(given, at, {"start_us", "floor_us", "trials", "noise"});
  double start_us = curve->start_ns / 1e3, floor_us = curve->floor_ns / 1e3;
  read.Number(given, at, "start_us", 1e-3, 1e12, &start_us);
  read.Number(given, at, "floor_us", 1e-3, 1e12, &floor_us);
  read.Number(given, at, "trials", 1e-3, 1e9, &curve->trials);
  read.Number(given, at, "noise", 0, 100, &curve->noise);
  curve->start_ns = start_us * 1e3;
  curve->floor_ns = floor_us * 1e3;
}

void ReadTasks(const Reader& read, const Json& json, const std::string& path, const SimTask& base,
               SimJob* job) {
  int number = 1;
  if (!json.contains("tasks") || json.at("tasks").is_number()) {
    read.Integer(json, path, "tasks", 0, kMaxTasks, &number);
    job->tasks.assign(static_cast<size_t>(number), base);
    return;
  }
  const Json& list = json.at("tasks");
  if (!list.is_array()) return read.Wrong(path + ".tasks", "must be a number, or a list of tasks");
  for (size_t i = 0; i < list.size() && read.ok(); ++i) {
    const std::string at = absl::StrCat(path, ".tasks[", i, "]");
    read.Known(list[i], at, {"count", "weight", "flops", "candidates", "key", "times", "curve"});
    if (!read.ok()) return;
    SimTask task = base;
    int count = 1;
    read.Integer(list[i], at, "count", 1, kMaxTasks, &count);
    read.Integer(list[i], at, "weight", 1, 1'000'000, &task.weight);
    read.Number(list[i], at, "flops", 0, 1e18, &task.flops);
    read.Integer(list[i], at, "candidates", 0, 1'000'000'000, &task.candidates);
    read.Text(list[i], at, "key", &task.key);
    ReadTimes(read, list[i], at, &task.times);
    ReadCurve(read, list[i], at, &task.curve);
    if (job->tasks.size() + static_cast<size_t>(count) > kMaxTasks)
      return read.Wrong(at, absl::StrCat("makes more than ", kMaxTasks, " tasks of one job"));
    job->tasks.insert(job->tasks.end(), static_cast<size_t>(count), task);
  }
}

// Reads one entry of `jobs`, merged over `defaults`. `count` and `every` make several jobs of it.
void ReadJob(const Reader& read, const Json& json, const std::string& path, const StageTimes& times,
             Scenario* scenario) {
  read.Known(json, path,
             {"name",           "count",       "every",    "arrival",     "user",       "priority",
              "deadline",       "time_limit",  "plateau",  "allocation",  "trials",     "batch",
              "pipeline_depth", "max_devices", "threads",  "target",      "device_key", "tasks",
              "times",          "curve",       "failures", "comparisons", "plan"});
  if (!read.ok()) return;
  SimJob job;
  job.target = kDefaultTarget;
  job.name = absl::StrCat("job", scenario->jobs.size() + 1);
  std::string allocation = "gradient";
  int count = 1;
  double every = 0;
  read.Integer(json, path, "count", 0, kMaxJobs, &count);
  read.Number(json, path, "every", 0, kMaxSeconds, &every);
  read.Text(json, path, "name", &job.name);
  read.Number(json, path, "arrival", 0, kMaxSeconds, &job.arrival);
  read.Text(json, path, "user", &job.user);
  read.Integer(json, path, "priority", kMinPriority, kMaxPriority, &job.priority);
  read.Number(json, path, "deadline", 0, kMaxSeconds, &job.deadline);
  read.Number(json, path, "time_limit", 0, kMaxSeconds, &job.time_limit);
  read.Integer(json, path, "plateau", 0, kMaxTrialsPerTask, &job.plateau);
  read.Text(json, path, "allocation", &allocation);
  if (allocation != "gradient" && allocation != "uniform")
    read.Wrong(path + ".allocation", "must be \"gradient\" or \"uniform\"");
  job.gradient = allocation == "gradient";
  read.Integer(json, path, "trials", 1, kMaxTrialsPerTask, &job.trials);
  read.Integer(json, path, "batch", 1, kMaxBatch, &job.batch);
  read.Integer(json, path, "pipeline_depth", 0, kMaxPipelineDepth, &job.pipeline_depth);
  read.Integer(json, path, "max_devices", 0, kMaxJobDevices, &job.max_devices);
  read.Integer(json, path, "threads", 0, 4096, &job.threads);
  read.Text(json, path, "target", &job.target);
  read.Text(json, path, "device_key", &job.device_key);
  read.Number(json, path, "failures", 0, 1, &job.failures);
  read.Integer(json, path, "comparisons", 0, 2, &job.comparisons);
  read.Flag(json, path, "plan", &job.plan);
  job.times = times;
  ReadTimes(read, json, path, &job.times);
  SimTask task;
  task.times = job.times;
  ReadCurve(read, json, path, &task.curve);
  if (read.ok()) ReadTasks(read, json, path, task, &job);
  if (scenario->jobs.size() + static_cast<size_t>(count) > kMaxJobs)
    return read.Wrong(path + ".count", absl::StrCat("makes more than ", kMaxJobs, " jobs"));
  const std::string name = job.name;
  for (int i = 0; i < count && read.ok(); ++i) {
    if (count > 1) job.name = absl::StrCat(name, "-", i + 1);
    scenario->jobs.push_back(job);
    job.arrival += every;
  }
}

void ReadBatch(const Reader& read, const Json& json, const std::string& path, BatchClass made,
               Scenario* scenario) {
  if (!json.contains("batch")) return;
  const std::string at = path + ".batch";
  const Json& given = json.at("batch");
  read.Known(given, at, {"min", "queue", "wait", "idle", "every", "most_at_once"});
  if (!read.ok()) return;
  read.Integer(given, at, "min", 0, static_cast<int>(made.workers.size()), &made.min);
  ReadField(read, given, at, "queue", &made.queue);
  read.Number(given, at, "wait", 0, kMaxSeconds, &made.wait);
  read.Number(given, at, "idle", 0, kMaxSeconds, &made.idle);
  read.Number(given, at, "every", 1, 3600, &made.every);
  read.Integer(given, at, "most_at_once", 1, 10'000, &made.most_at_once);
  scenario->batches.push_back(std::move(made));
}

void ReadWorker(const Reader& read, const Json& json, const std::string& path, Scenario* scenario) {
  read.Known(json, path,
             {"name", "count", "cpu_slots", "device_slots", "device_threads", "shared_cores", "key",
              "target", "speed", "batch"});
  if (!read.ok()) return;
  int count = 1, cpu = 0, devices = 0, threads = 1;
  bool shared = false;
  double speed = 1;
  std::string name = "worker", target = kDefaultTarget, key = "any";
  read.Text(json, path, "name", &name);
  read.Integer(json, path, "count", 1, 10'000, &count);
  read.Integer(json, path, "cpu_slots", 0, 4096, &cpu);
  read.Integer(json, path, "device_slots", 0, 4096, &devices);
  read.Integer(json, path, "device_threads", 1, 4096, &threads);
  read.Flag(json, path, "shared_cores", &shared);
  read.Text(json, path, "key", &key);
  read.Text(json, path, "target", &target);
  read.Number(json, path, "speed", 1e-3, 1e3, &speed);
  if (cpu + devices == 0) read.Wrong(path, "offers nothing; write cpu_slots or device_slots");
  if (scenario->slots.size() + static_cast<size_t>(count) * static_cast<size_t>(cpu + devices) >
      kMaxSlots)
    read.Wrong(path, absl::StrCat("makes more than ", kMaxSlots, " slots"));
  BatchClass batch;
  batch.slots = cpu + devices;
  batch.cpu = cpu > 0;
  batch.devices = devices > 0;
  batch.target = target;
  batch.key = key;
  for (int w = 0; w < count && read.ok(); ++w) {
    const std::string worker = count == 1 ? name : absl::StrCat(name, "-", w + 1);
    batch.workers.push_back(worker);
    int core = 0;
    auto slot = [&](const std::string& id, bool device, int cores) {
      SimSlot made;
      made.info.id = {worker, id};
      made.info.host = worker;
      made.info.device = device;
      for (int c = 0; c < cores; ++c) made.info.cores.push_back(core++);
      if (device) made.info.device_key = key, made.info.target = target;
      made.speed = speed;
      scenario->slots.push_back(std::move(made));
    };
    for (int i = 0; i < cpu; ++i) slot(absl::StrCat("cpu", i), false, 1);
    if (shared) core = 0;
    for (int i = 0; i < devices; ++i) slot(absl::StrCat("device", i), true, threads);
  }
  if (read.ok()) ReadBatch(read, json, path, std::move(batch), scenario);
}

void ReadSchedulers(const Reader& read, const Json& json, Scenario* scenario) {
  if (!json.contains("schedulers")) return;
  const Json& given = json.at("schedulers");
  const std::string path = "schedulers";
  read.Known(given, path, {"count", "pools", "fail_at", "gap", "decision"});
  if (!read.ok()) return;
  Schedulers& all = scenario->schedulers;
  read.Integer(given, path, "count", 1, kMaxSchedulers, &all.count);
  read.Flag(given, path, "pools", &all.pools);
  read.Number(given, path, "gap", 0, kMaxSeconds, &all.gap);
  read.Number(given, path, "decision", 0, 10, &all.decision);
  std::set<std::string> workers;
  for (const SimSlot& slot : scenario->slots) workers.insert(slot.info.id.worker);
  if (read.ok() && all.pools && static_cast<size_t>(all.count) > workers.size())
    read.Wrong("schedulers.count", absl::StrCat("is ", all.count, ", and there are ",
                                                workers.size(), " workers to divide; take fewer"));
  if (!given.contains("fail_at")) return;
  const Json& times = given.at("fail_at");
  if (!times.is_array() || !AllPositive(times))
    return read.Wrong("schedulers.fail_at", "must be a list of seconds");
  all.fail_at = times.get<std::vector<double>>();
  if (all.fail_at.size() >= static_cast<size_t>(all.count))
    read.Wrong("schedulers.fail_at",
               absl::StrCat("ends ", all.fail_at.size(), " schedulers, and there are ", all.count,
                            "; one has to stay: name fewer times, or set count higher"));
}

void ReadNetwork(const Reader& read, const Json& json, Scenario* scenario) {
  if (!json.contains("network")) return;
  const Json& given = json.at("network");
  read.Known(given, "network", {"orders", "answers"});
  if (!read.ok()) return;
  ReadField(read, given, "network", "orders", &scenario->network.orders);
  ReadField(read, given, "network", "answers", &scenario->network.answers);
}

void ReadPreemption(const Reader& read, const Json& json, Scenario* scenario) {
  if (!json.contains("preemption")) return;
  const Json& given = json.at("preemption");
  const std::string path = "preemption";
  read.Known(given, path, {"rate", "notice", "back"});
  if (!read.ok()) return;
  read.Number(given, path, "rate", 0, 1000, &scenario->preemption.rate);
  read.Number(given, path, "notice", 0, kMaxSeconds, &scenario->preemption.notice);
  ReadField(read, given, path, "back", &scenario->preemption.back);
}

void ReadFaults(const Reader& read, const Json& json, Scenario* scenario) {
  if (!json.contains("faults")) return;
  const Json& given = json.at("faults");
  const std::string path = "faults";
  read.Known(given, path,
             {"until", "every", "chaos", "refused", "broken", "hung", "duplicated", "lost",
              "poison", "liar", "slow_messages", "take_over"});
  if (!read.ok()) return;
  Faults& faults = scenario->faults;
  read.Number(given, path, "until", 0, kMaxSeconds, &faults.until);
  const std::pair<const char*, double*> chances[] = {{"refused", &faults.refused},
                                                     {"broken", &faults.broken},
                                                     {"hung", &faults.hung},
                                                     {"duplicated", &faults.duplicated},
                                                     {"lost", &faults.lost}};
  for (const auto& [name, value] : chances) read.Number(given, path, name, 0, 0.5, value);
  read.Integer(given, path, "poison", 0, 1'000'000, &faults.poison);
  read.Text(given, path, "liar", &faults.liar);
  read.Flag(given, path, "slow_messages", &faults.slow_messages);
  const std::pair<const char*, std::array<double, 2>*> spans[] = {{"every", &faults.every},
                                                                  {"take_over", &faults.take_over}};
  for (const auto& [name, span] : spans) {
    if (!given.contains(name)) continue;
    const Json& ends = given.at(name);
    if (!ends.is_array() || ends.size() != 2 || !AllPositive(ends) || ends[0] > ends[1] ||
        ends[1] <= 0)
      return read.Wrong(absl::StrCat("faults.", name), "must be [low, high], seconds");
    *span = {ends[0].get<double>(), ends[1].get<double>()};
  }
  if (!given.contains("chaos")) return;
  const std::vector<std::string>& kinds = ChaosKinds();
  read.Known(given.at("chaos"), "faults.chaos", {kinds.begin(), kinds.end()});
  if (!read.ok()) return;
  for (const std::string& kind : kinds) {
    int weight = 0;
    read.Integer(given.at("chaos"), "faults.chaos", kind.c_str(), 0, 1000, &weight);
    if (weight > 0) faults.chaos[kind] = weight;
  }
}

absl::StatusOr<Json> Load(const std::string& text, const std::string& file,
                          const std::string& directory, int depth) {
  Json json;
  try {
    json = Json::parse(text, nullptr, true, /*ignore_comments=*/true);
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": not JSON: ", Plain(error)));
  }
  if (!json.is_object())
    return absl::InvalidArgumentError(absl::StrCat(file, ": must be an object {..}"));
  if (!json.contains("base")) return json;
  if (!json.at("base").is_string() || depth >= kMaxBases)
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": base: must be a file name, at most ", kMaxBases, " deep"));
  const std::filesystem::path path =
      std::filesystem::path(directory) / json.at("base").get<std::string>();
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat(file, ": base: cannot read ", path.string()));
  std::ostringstream base_text;
  base_text << in.rdbuf();
  HEDDLE_ASSIGN_OR_RETURN(
      Json base, Load(base_text.str(), path.string(), path.parent_path().string(), depth + 1));
  json.erase("base");
  base.merge_patch(json);
  return base;
}

}  // namespace

absl::StatusOr<Scenario> ParseScenario(const std::string& text, const std::string& file,
                                       const std::string& directory) {
  HEDDLE_ASSIGN_OR_RETURN(Json loaded, Load(text, file, directory, 0));
  const Json& json = loaded;
  absl::Status status;
  const Reader read(file, &status);
  Scenario scenario;
  scenario.name = std::filesystem::path(file).stem().string();
  read.Known(json, "",
             {"base", "name", "seed", "policy", "workers", "times", "curve", "defaults", "jobs",
              "faults", "schedulers", "network", "preemption"});
  if (!status.ok()) return status;
  read.Text(json, "", "name", &scenario.name);
  double seed = 1;
  read.Number(json, "", "seed", 0, 9e15, &seed);
  scenario.seed = static_cast<uint64_t>(seed);
  read.Text(json, "", "policy", &scenario.policy);
  StageTimes times;
  for (const auto& [name, kind] : kStages) times[static_cast<size_t>(kind)].seconds.a = 1;
  ReadTimes(read, json, "", &times);
  for (const char* list : {"workers", "jobs"}) {
    if (!json.contains(list) || !json.at(list).is_array() || json.at(list).empty())
      read.Wrong(list, "must be a list with at least one entry");
  }
  if (!status.ok()) return status;
  for (size_t i = 0; i < json.at("workers").size() && status.ok(); ++i)
    ReadWorker(read, json.at("workers")[i], absl::StrCat("workers[", i, "]"), &scenario);
  std::set<scheduler::SlotId> ids;
  for (const SimSlot& slot : scenario.slots) {
    if (!ids.insert(slot.info.id).second)
      read.Wrong("workers", absl::StrCat("two are named \"", slot.info.id.worker,
                                         "\"; give each a name of its own"));
  }
  for (size_t i = 0; i < json.at("jobs").size() && status.ok(); ++i) {
    Json job = json.value("defaults", Json::object());
    if (!job.is_object() || !json.at("jobs")[i].is_object()) {
      read.Wrong(absl::StrCat("jobs[", i, "]"), "must be an object {..}, as must defaults");
      break;
    }
    if (json.contains("curve") && !job.contains("curve")) job["curve"] = json.at("curve");
    job.merge_patch(json.at("jobs")[i]);
    ReadJob(read, job, absl::StrCat("jobs[", i, "]"), times, &scenario);
  }
  ReadFaults(read, json, &scenario);
  ReadSchedulers(read, json, &scenario);
  ReadNetwork(read, json, &scenario);
  ReadPreemption(read, json, &scenario);
  if (!status.ok()) return status;
  scenario.BuildEverywhere();
  return scenario;
}

absl::StatusOr<Scenario> ReadScenario(const std::string& path) {
  std::ifstream in(path);
  if (!in)
    return absl::NotFoundError(
        absl::StrCat(path, ": cannot be read; scenarios are in scheduler/sim/scenarios"));
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored))
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": is a directory; name one scenario file, such as those in scheduler/sim/scenarios"));
  std::ostringstream text;
  text << in.rdbuf();
  return ParseScenario(text.str(), path, std::filesystem::path(path).parent_path().string());
}

}  // namespace heddle::sim
