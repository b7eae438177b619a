#include "scheduler/sim/recorded.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "base/one_line.h"
#include "base/vocabulary/job_limits.h"
#include "base/vocabulary/target.h"
#include "scheduler/core/policy.h"
#include "scheduler/sim/json_reader.h"

namespace heddle::sim {
namespace {

int StageKindOf(const std::string& word) {
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

// The durations of stages of one kind, in order of their begin, as a distribution.
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

using Spans = std::map<std::pair<std::string, int>, std::vector<Span>>;  // by task and kind

int64_t EndOf(const Span& span) { return span.begin + static_cast<int64_t>(span.seconds * 1e9); }

// Removes from profile stages the time in which they waited for builds of their task. The corrected
// time is the sum of the measurements plus an overhead per candidate (process start, checks). The
// overhead is the median over the stages that did not wait, or, if all waited, the smallest over
// these.
void TakeOutWaiting(const Json& measured, Spans* spans) {
  struct Worked {
    Span* span;
    double seconds = 0;  // spent in measurements
  };
  std::vector<Worked> waited;
  std::vector<double> besides, besides_waited;  // overhead in seconds per candidate
  for (auto& [of, profiles] : *spans) {
    if (of.second != v1::STAGE_PROFILE) continue;
    for (Span& span : profiles) {
      Worked worked{&span};
      int records = 0;
      for (const Json& record : measured) {
        const int64_t created = record.at("created_unix_ns").get<int64_t>();
        if (record.at("task") != of.first || created < span.begin || created > EndOf(span))
          continue;
        worked.seconds += static_cast<double>(record.at("profile_ns").get<int64_t>()) / 1e9;
        ++records;
      }
      // Its records are not those of its candidates.
      if (records == 0 || records != span.candidates) continue;
      const std::vector<Span>& builds = (*spans)[{of.first, v1::STAGE_BUILD}];
      const bool overlaps = std::any_of(builds.begin(), builds.end(), [&](const Span& build) {
        return build.begin < EndOf(span) && EndOf(build) > span.begin;
      });
      const double rest = std::max(0.0, span.seconds - worked.seconds) / records;
      (overlaps ? besides_waited : besides).push_back(rest);
      if (overlaps) waited.push_back(worked);
    }
  }
  if (waited.empty()) return;
  std::sort(besides.begin(), besides.end());
  const double usual = besides.empty()
                           ? *std::min_element(besides_waited.begin(), besides_waited.end())
                           : besides[besides.size() / 2];
  for (const Worked& worked : waited)
    worked.span->seconds =
        std::min(worked.span->seconds, worked.seconds + usual * worked.span->candidates);
}

// Seconds between the end of a stage and the start of the next on its slot if work was waiting
// (answers, decision, lease). This is the lower quartile of all gaps, since in the longer ones no
// work was ready.
double GapOf(const Json& jobs) {
  std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> slots;
  for (const Json& job : jobs) {
    for (const Json& stage : job.value("timeline", Json::array())) {
      const int64_t begin = stage.at("start_unix_ns").get<int64_t>();
      slots[absl::StrCat(stage.value("worker", ""), "/", stage.value("slot", ""))].emplace_back(
          begin, stage.value("end_unix_ns", begin));
    }
  }
  std::vector<double> gaps;
  for (auto& [slot, stages] : slots) {
    std::sort(stages.begin(), stages.end());
    for (size_t i = 1; i < stages.size(); ++i)
      gaps.push_back(
          std::max(0.0, static_cast<double>(stages[i].first - stages[i - 1].second) / 1e9));
  }
  if (gaps.empty()) return 0;
  std::sort(gaps.begin(), gaps.end());
  return gaps[gaps.size() / 4];
}

// `gap` is added to each stage, in seconds.
SimJob MakeJob(const Json& json, int64_t origin, double gap) {
  SimJob job;
  const Json& spec = json.at("spec");
  job.name = absl::StrCat(json.value("id", ""), " ", spec.value("name", ""));
  job.arrival = static_cast<double>(json.at("created_unix_ns").get<int64_t>() - origin) / 1e9;
  job.user = spec.value("user", "");
  job.priority = spec.value("priority", 0);
  job.batch = spec.value("batch", kDefaultBatch);  // a trace leaves defaults out
  job.pipeline_depth = spec.value("pipeline_depth", 0);
  job.max_devices = spec.value("max_devices", 0);
  job.device_key = spec.value("device_key", "");
  job.gradient = false;
  job.force = true;
  const auto target = ParseTarget(spec.value("target", ""));
  if (!target.ok()) throw std::runtime_error(std::string(target.status().message()));
  const DeviceNeeds needs = NeedsOf(*target);
  job.target = needs.target;
  job.threads = needs.cores;
  Spans spans;
  for (const Json& stage : json.value("timeline", Json::array())) {
    const int64_t begin = stage.at("start_unix_ns").get<int64_t>(),
                  end = stage.value("end_unix_ns", begin);
    if (stage.contains("fault") || end <= begin) continue;
    spans[{stage.value("task", ""), StageKindOf(stage.at("kind").get<std::string>())}].push_back(
        {begin, static_cast<double>(end - begin) / 1e9, stage.value("candidates", 0)});
  }
  TakeOutWaiting(json.value("measured", Json::array()), &spans);
  int round = 0;  // the largest one: a small budget makes rounds smaller than the job's batch
  for (auto& [of, stages] : spans) {
    for (Span& span : stages) {
      if (of.second == v1::STAGE_PROPOSE) round = std::max(round, span.candidates);
      span.seconds += gap;
    }
  }
  if (round > 0) job.batch = std::min(job.batch, round);
  job.comparisons = std::min(2, static_cast<int>(spans[{"", v1::STAGE_COMPARE}].size()));
  job.plan = !spans[{"", v1::STAGE_PLAN}].empty();
  for (int kind : {v1::STAGE_IMPORT, v1::STAGE_PLAN, v1::STAGE_COMPILE, v1::STAGE_COMPARE})
    job.times[static_cast<size_t>(kind)] = TimeOf(kind, spans[{"", kind}]);
  job.trials = 1;
  for (const Json& status : json.value("tasks", Json::array())) {
    const int trials = status.value("trials", 0);
    if (trials == 0) continue;
    const Json& info = status.at("info");
    SimTask task;
    task.key = info.at("key").get<std::string>();
    task.weight = std::max(job.plan ? 0 : 1, info.value("weight", job.plan ? 0 : 1));
    task.flops = info.value("flops", 0.0);
    task.candidates = trials;
    for (int kind : {v1::STAGE_PROPOSE, v1::STAGE_BUILD, v1::STAGE_PROFILE, v1::STAGE_UPDATE})
      task.times[static_cast<size_t>(kind)] = TimeOf(kind, spans[{task.key, kind}]);
    job.trials = std::max(job.trials, trials);
    task.key.clear();  // trials shared with other jobs are already in its number of trials
    job.tasks.push_back(std::move(task));
  }
  return job;
}

}  // namespace

absl::StatusOr<Recorded> ReadRecorded(const std::string& path) {
  std::ifstream in(path);
  if (!in)
    return absl::NotFoundError(
        absl::StrCat(path, ": cannot be read; `heddle jobs trace JOB -o FILE` writes one"));
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored))
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, not a trace"));
  Recorded recorded;
  Scenario& scenario = recorded.scenario;
  scenario.name = absl::StrCat(std::filesystem::path(path).filename().string(), ", replayed");
  try {
    const Json json = Json::parse(in);
    scenario.policy = json.value("policy", scheduler::kDefaultPolicy);
    int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
    for (const Json& job : json.at("jobs")) {
      if (!job.contains("finished_unix_ns")) {
        const std::string id = OneLine(job.at("id").get<std::string>());
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": ", id, " had not ended when it was traced; `heddle wait ", id,
                         "`, then trace it again"));
      }
      first = std::min(first, job.at("created_unix_ns").get<int64_t>());
      last = std::max(last, job.at("finished_unix_ns").get<int64_t>());
    }
    AddSlots(json.at("workers"), &scenario);
    const double gap = GapOf(json.at("jobs"));
    for (const Json& job : json.at("jobs")) {
      scenario.jobs.push_back(MakeJob(job, first, gap));
      recorded.truncated |= job.value("truncated", false);
    }
    scenario.BuildEverywhere();
    recorded.makespan = static_cast<double>(last - first) / 1e9;
  } catch (
      // Thrown by the JSON library for a missing field or a wrong type.
      const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a trace of `heddle jobs trace JOB -o FILE`: ", Plain(error),
                     "; a scenario goes without --replay"));
  }
  if (scenario.jobs.empty() || scenario.slots.empty())
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": has no jobs or no slots; trace finished jobs (`heddle jobs trace JOB -o FILE`) while "
        "their workers are there"));
  return recorded;
}

}  // namespace heddle::sim
