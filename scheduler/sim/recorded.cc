#include "scheduler/sim/recorded.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace heddle::sim {
namespace {

using Json = nlohmann::json;

constexpr int kDefaultBatch = 16;  // of the service; a trace leaves defaults out

int KindOf(const std::string& word) {
  for (int kind = 1; kind < kStageKinds; ++kind) {
    std::string name =
        v1::StageKind_Name(static_cast<v1::StageKind>(kind)).substr(sizeof("STAGE_") - 1);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    if (name == word) return kind;
  }
  return 0;
}

struct Span {
  int64_t begin = 0;
  double seconds = 0;
  int candidates = 0;
};

// Of one kind, in order of their begin, as a distribution.
StageTime TimeOf(int kind, std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  StageTime time;
  time.per_candidate = kind == v1::STAGE_BUILD || kind == v1::STAGE_PROFILE;
  time.seconds.kind = Distribution::kRecorded;
  for (const Span& span : spans) {
    const int pieces = time.per_candidate ? span.candidates : 1;
    for (int i = 0; i < pieces; ++i) time.seconds.recorded.push_back(span.seconds / pieces);
  }
  if (time.seconds.recorded.empty()) time.seconds.recorded.push_back(0);
  return time;
}

void AddSlots(const Json& workers, Scenario* scenario) {
  for (const Json& worker : workers) {
    for (const Json& status : worker.value("slots", Json::array())) {
      const Json& slot = status.at("slot");
      SimSlot made;
      made.info.id = {worker.value("worker", ""), slot.at("name").get<std::string>()};
      made.info.host = worker.value("host", made.info.id.worker);
      made.info.device = slot.at("kind") == "device";
      made.info.cores = slot.value("cores", std::vector<int>{});
      made.info.device_key = slot.value("device_key", "");
      made.info.target = slot.value("target", "");
      scenario->slots.push_back(std::move(made));
    }
  }
}

SimJob MakeJob(const Json& json, int64_t origin) {
  SimJob job;
  const Json& spec = json.at("spec");
  job.name = absl::StrCat(json.value("id", ""), " ", spec.value("name", ""));
  job.arrival = static_cast<double>(json.at("created_unix_ns").get<int64_t>() - origin) / 1e9;
  job.user = spec.value("user", "");
  job.priority = spec.value("priority", 0);
  job.batch = spec.value("batch", kDefaultBatch);
  job.pipeline_depth = spec.value("pipeline_depth", 0);
  job.max_devices = spec.value("max_devices", 0);
  job.device_key = spec.value("device_key", "");
  job.gradient = false;
  job.force = true;
  job.threads = 1;
  std::vector<std::string> words;
  for (const std::string& word :
       std::vector<std::string>(absl::StrSplit(spec.value("target", ""), ' '))) {
    if (word.rfind("-threads=", 0) == 0) {
      job.threads = std::stoi(word.substr(9));
    } else {
      words.push_back(word);
    }
  }
  for (const std::string& word : words)
    absl::StrAppend(&job.target, job.target.empty() ? "" : " ", word);
  std::map<std::pair<std::string, int>, std::vector<Span>> spans;
  for (const Json& stage : json.value("timeline", Json::array())) {
    const int64_t begin = stage.at("start_unix_ns").get<int64_t>(),
                  end = stage.value("end_unix_ns", begin);
    if (stage.contains("fault") || end <= begin) continue;
    spans[{stage.value("task", ""), KindOf(stage.at("kind").get<std::string>())}].push_back(
        {begin, static_cast<double>(end - begin) / 1e9, stage.value("candidates", 0)});
  }
  for (int kind : {v1::STAGE_IMPORT, v1::STAGE_COMPILE})
    job.times[static_cast<size_t>(kind)] = TimeOf(kind, spans[{"", kind}]);
  job.trials = 1;
  for (const Json& status : json.value("tasks", Json::array())) {
    const int trials = status.value("trials", 0);
    if (trials == 0) continue;
    const Json& info = status.at("info");
    SimTask task;
    task.key = info.at("key").get<std::string>();
    task.weight = std::max(1, info.value("weight", 1));
    task.flops = info.value("flops", 0.0);
    task.candidates = trials;
    for (int kind : {v1::STAGE_PROPOSE, v1::STAGE_BUILD, v1::STAGE_PROFILE, v1::STAGE_UPDATE})
      task.times[static_cast<size_t>(kind)] = TimeOf(kind, spans[{task.key, kind}]);
    job.trials = std::max(job.trials, trials);
    task.key.clear();  // what it shared with other jobs shows in its number of trials
    job.tasks.push_back(std::move(task));
  }
  return job;
}

}  // namespace

absl::StatusOr<Scenario> ReadRecorded(const std::string& path, double* makespan) {
  std::ifstream in(path);
  if (!in)
    return absl::NotFoundError(
        absl::StrCat(path, ": cannot be read; `heddle jobs trace JOB -o FILE` writes one"));
  Scenario scenario;
  scenario.name = absl::StrCat(std::filesystem::path(path).filename().string(), ", replayed");
  try {
    const Json json = Json::parse(in);
    int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
    for (const Json& job : json.at("jobs")) {
      first = std::min(first, job.at("created_unix_ns").get<int64_t>());
      last = std::max(last, job.at("finished_unix_ns").get<int64_t>());
    }
    AddSlots(json.at("workers"), &scenario);
    for (const Json& job : json.at("jobs")) scenario.jobs.push_back(MakeJob(job, first));
    *makespan = static_cast<double>(last - first) / 1e9;
  } catch (
      const std::exception& error) {  // of the JSON library: what is missing, or of a wrong type
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a trace of `heddle jobs trace`: ", error.what()));
  }
  if (scenario.jobs.empty() || scenario.slots.empty())
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": has no jobs or no slots; trace finished jobs while their workers are there"));
  return scenario;
}

}  // namespace heddle::sim
