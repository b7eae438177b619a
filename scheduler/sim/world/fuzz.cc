#include "scheduler/sim/world/fuzz.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/vocabulary/target.h"
#include "scheduler/sim/chance.h"

namespace heddle::sim {
namespace {

const char* const kTargets[] = {"llvm -mcpu=a", "llvm -mcpu=b"};
constexpr char kGpuTarget[] = "cuda -arch=sm_90";

void AddHost(int host, Dice* dice, Scenario* scenario) {
  const std::string worker = absl::StrCat("w", host), name = absl::StrCat("h", host);
  const int shape = dice->Below(6);
  const bool gpu = shape == 5;
  const bool compiler = gpu || dice->Likely(0.5);  // its CPU slots can build for GPUs
  const std::string target = gpu ? kGpuTarget : kTargets[host == 0 ? 0 : dice->Below(2)];
  const double speed = dice->Likely(0.3) ? dice->Between(0.5, 2) : 1;
  auto slot = [&](const std::string& id, bool device, std::vector<int> cores) {
    SimSlot made;
    made.info.id = {worker, id};
    made.info.host = name;
    made.info.device = device;
    made.info.cores = std::move(cores);
    made.info.device_key = device ? absl::StrCat("key-", target) : "";
    made.info.target = device ? target : "";
    if (compiler && !device) made.info.builds.emplace_back(KindOf(kGpuTarget));
    made.speed = speed;
    scenario->slots.push_back(std::move(made));
  };
  switch (shape) {
    case 0:  // one core for both slots
      slot("cpu0", false, {0});
      slot("profile0", true, {0});
      break;
    case 1:  // two cores, and a device slot on both
      slot("cpu0", false, {0});
      slot("profile1", true, {1});
      slot("profile0-1", true, {0, 1});
      break;
    case 2:  // two devices with cores of their own
      slot("cpu0", false, {0});
      slot("profile1", true, {1});
      slot("profile2", true, {2});
      break;
    case 3:  // two devices, and one on the cores of both
      slot("cpu0", false, {0});
      slot("profile1", true, {1});
      slot("profile2", true, {2});
      slot("profile1-2", true, {1, 2});
      break;
    case 5:  // a GPU, which has no cores
      slot("cpu0", false, {0});
      slot("cpu1", false, {1});
      slot("cuda0", true, {});
      break;
    default:
      for (int c = 0; c < 3; ++c) slot(absl::StrCat("cpu", c), false, {c});
      slot("profile3", true, {3});
      slot("profile2-3", true, {2, 3});
  }
}

Distribution Uniform(double low, double high) { return {Distribution::kUniform, low, high, {}}; }

SimJob RandomJob(int index, bool faults, Dice* dice, const Scenario& scenario) {
  const SlotInfo* device = nullptr;
  while (device == nullptr || !device->device)
    device =
        &scenario.slots[static_cast<size_t>(dice->Below(static_cast<int>(scenario.slots.size())))]
             .info;
  SimJob job;
  job.name = absl::StrCat("job", index + 1);
  job.arrival = dice->Between(0, 300);
  job.target = device->target;
  job.threads = static_cast<int>(device->cores.size());
  if (dice->Likely(0.3)) job.device_key = device->device_key;
  job.trials = 1 + dice->Below(40);
  job.batch = 1 + dice->Below(16);
  job.pipeline_depth = dice->Below(4);
  job.force = dice->Likely(0.2);
  job.user = absl::StrCat("user", dice->Below(3));
  job.priority = dice->Likely(0.3) ? dice->Below(21) - 10 : 0;
  if (dice->Likely(0.3)) job.deadline = dice->Between(10, 3000);
  if (dice->Likely(0.2)) job.max_devices = 1 + dice->Below(2);
  job.gradient = dice->Likely(0.6);
  if (dice->Likely(0.2)) job.plateau = 1 + dice->Below(20);
  if (dice->Likely(0.2)) job.time_limit = dice->Between(0.1, 400);
  job.failures = dice->Likely(0.15) ? 1 : 0.1;  // 1: every candidate fails
  job.user_error = faults && dice->Likely(0.03);
  if (dice->Likely(0.5)) job.comparisons = SimJob::kAsFound;
  job.plan = job.random_plan = dice->Likely(0.5);
  StageTime simple{Uniform(0.05, 8), false, 1};
  job.times.fill(simple);
  StageTime candidate{Uniform(0.1, 4), true, 1};
  StageTime batch{Uniform(1, 40), false, 1};
  const bool by_candidate = dice->Likely(0.8);
  job.times[v1::STAGE_BUILD] = by_candidate ? candidate : batch;
  job.times[v1::STAGE_PROFILE] = by_candidate ? candidate : batch;
  const int tasks = dice->Below(5), first_key = dice->Below(8);
  for (int i = 0; i < tasks; ++i) {
    SimTask task;
    task.times = job.times;
    task.weight = 1 + dice->Below(4);
    if (dice->Likely(0.2)) task.candidates = 1 + dice->Below(60);
    // The tasks of a plan are told apart by their keys.
    const int key = dice->Below(8);
    task.key = absl::StrCat("00000000000000", 10 + (job.plan ? (first_key + i) % 8 : key));
    job.tasks.push_back(std::move(task));
  }
  if (job.plan && !job.tasks.empty()) {
    const int others = dice->Below(4), late = dice->Below(3);
    for (int i = 0; i < others + late; ++i) {
      SimTask task = job.tasks.front();
      task.weight = 0;
      task.late = i >= others;
      // Distinct within the job, and shared with other jobs' plans.
      task.key = absl::StrCat("10000000000000", 10 + i);
      job.tasks.push_back(std::move(task));
    }
  }
  return job;
}

Faults RandomFaults() {
  Faults faults;
  faults.until = 1200;
  faults.every = {1, 90};
  for (const std::string& kind : ChaosKinds()) {
    if (kind == "fail_over") continue;  // FuzzSeed puts it into the place of "restart"
    faults.chaos[kind] = kind == "kill_worker" || kind == "old_lease" ? 4 : 2;
  }
  faults.chaos["cancel"] = 1;
  faults.refused = 0.02;
  faults.broken = 0.01;
  faults.hung = 0.01;
  faults.duplicated = 0.05;
  faults.lost = 0.01;
  faults.poison = 41;
  faults.slow_messages = true;
  return faults;
}

}  // namespace

Scenario RandomScenario(uint64_t seed, bool faults) {
  Dice dice(Mix({seed, 1}));
  Scenario scenario;
  scenario.name = absl::StrCat("seed ", seed);
  scenario.seed = seed;
  const int hosts = 1 + dice.Below(3);
  for (int h = 0; h < hosts; ++h) AddHost(h, &dice, &scenario);
  const int jobs = 1 + dice.Below(4);
  for (int i = 0; i < jobs; ++i) scenario.jobs.push_back(RandomJob(i, faults, &dice, scenario));
  if (seed % 3 == 1) scenario.code_room = 1 + Dice(Mix({seed, 3})).Below(12);
  if (!faults) return scenario;
  scenario.faults = RandomFaults();
  if (seed % 2 == 0) scenario.faults.liar = scenario.slots.front().info.id.worker;
  return scenario;
}

absl::StatusOr<WorldResult> FuzzSeed(uint64_t seed, const std::string& policy, bool faults,
                                     Planted planted, bool fail_over) {
  WorldOptions options;
  options.durable = true;
  options.checks = true;
  options.planted = planted;
  Scenario scenario = RandomScenario(seed, faults);
  if (fail_over || NeedsFailOver(planted)) {
    std::map<std::string, int>& chaos = scenario.faults.chaos;
    chaos["fail_over"] = std::exchange(chaos["restart"], 0);
  }
  return RunWorld(scenario, policy, options);
}

namespace {

// A random world in which what is measured does not depend on the timing of jobs.
Scenario Steady(uint64_t seed) {
  Scenario scenario = RandomScenario(seed, false);
  for (SimJob& job : scenario.jobs) {
    job.time_limit = 0;
    // What the database knows at a job's start depends on which job was first, and so does what
    // other tasks have taught by then. So every task is its own.
    for (SimTask& task : job.tasks) task.key = "";
    job.device_key = "";
    job.transfer = false;
  }
  return scenario;
}

struct Resumed {
  WorldResult plain, killed;
};

// Runs the world undisturbed, and with its scheduler killed again and again.
absl::StatusOr<Resumed> RunBoth(Scenario scenario, const std::string& policy) {
  WorldOptions options;
  options.durable = true;
  options.checks = true;
  HEDDLE_ASSIGN_OR_RETURN(const WorldResult plain, RunWorld(scenario, policy, options));
  scenario.faults.until = 1200;
  scenario.faults.every = {1, 30};
  scenario.faults.chaos["restart"] = 1;
  scenario.faults.slow_messages = true;
  HEDDLE_ASSIGN_OR_RETURN(const WorldResult killed, RunWorld(scenario, policy, options));
  return Resumed{plain, killed};
}

// The number of records, by job.
std::map<std::string, int> Counts(const WorldResult& result) {
  std::map<std::string, int> counts;
  for (const std::string& record : result.records) ++counts[record.substr(0, record.find(' '))];
  return counts;
}

}  // namespace

absl::StatusOr<std::string> CheckResume(uint64_t seed, const std::string& policy) {
  Scenario scenario = Steady(seed);
  for (SimJob& job : scenario.jobs) {
    // With several rounds in flight, timing would decide which task gets the next trials and what a
    // model knows when its task proposes.
    if (job.gradient) job.pipeline_depth = 1;
    if (job.pipeline_depth > 1) job.pipeline_depth = 0;
  }
  HEDDLE_ASSIGN_OR_RETURN(const Resumed both, RunBoth(std::move(scenario), policy));
  const auto& [plain, killed] = both;
  for (const WorldResult* result : {&plain, &killed}) {
    if (!result->violation.empty()) return result->violation;
  }
  if (plain.records == killed.records) return std::string();
  std::vector<std::string> missing, extra;
  std::set_difference(plain.records.begin(), plain.records.end(), killed.records.begin(),
                      killed.records.end(), std::back_inserter(missing));
  std::set_difference(killed.records.begin(), killed.records.end(), plain.records.begin(),
                      plain.records.end(), std::back_inserter(extra));
  return absl::StrCat("seed ", seed, ": after ", killed.restarts, " restarts ", missing.size(),
                      " records are missing (", missing.empty() ? "" : missing.front(), ") and ",
                      extra.size(), " are extra (", extra.empty() ? "" : extra.front(), ")");
}

absl::StatusOr<std::string> CheckPipelinedResume(uint64_t seed, const std::string& policy) {
  Scenario scenario = Steady(seed);
  for (SimJob& job : scenario.jobs) {
    job.pipeline_depth = std::max(2, job.pipeline_depth);
    // With these, what was measured decides when a task ends early.
    job.plateau = 0;
    job.failures = std::min(job.failures, 0.1);
    // It also decides the plan after a contest.
    if (job.random_plan) job.gradient = false;
  }
  HEDDLE_ASSIGN_OR_RETURN(const Resumed both, RunBoth(std::move(scenario), policy));
  const auto& [plain, killed] = both;
  for (const WorldResult* result : {&plain, &killed}) {
    if (!result->violation.empty()) return result->violation;
  }
  const std::map<std::string, int> before = Counts(plain), after = Counts(killed);
  if (before == after) return std::string();
  std::string differ;
  for (const auto& [job, count] : before) {
    const auto other = after.find(job);
    const int now = other == after.end() ? 0 : other->second;
    if (now != count) absl::StrAppend(&differ, " ", job, " has ", now, " for ", count);
  }
  return absl::StrCat("seed ", seed, ": after ", killed.restarts, " restarts, records:", differ);
}

absl::StatusOr<FuzzTotals> Fuzz(uint64_t first, uint64_t count, const std::string& policy,
                                Planted planted, int threads,
                                const std::function<void(const FuzzTotals&)>& progress) {
  std::mutex mutex;  // guards totals, status, running
  std::condition_variable ended;
  FuzzTotals totals;
  absl::Status status;
  int running = threads;
  // Worlds with faults also heal the loss of a decision, as they heal a lost message. So most bugs are
  // planted in worlds without faults.
  const bool faults = planted == Planted::kNone || NeedsFaults(planted);
  std::atomic<uint64_t> next{first};
  std::atomic<bool> stop{false};
  auto work = [&] {
    for (;;) {
      const uint64_t seed = next++;
      if (stop || seed >= first + count) break;
      const absl::StatusOr<WorldResult> result =
          FuzzSeed(seed, policy, faults, planted, faults && seed % 2 == 1);
      std::string violation = result.ok() ? result->violation : "";
      if (result.ok() && violation.empty() && seed % 4 == 0) {
        for (const auto check : {CheckResume, CheckPipelinedResume}) {
          const absl::StatusOr<std::string> resumed = check(seed, policy);
          if (resumed.ok() && violation.empty()) violation = *resumed;
        }
      }
      std::lock_guard lock(mutex);
      if (!result.ok()) {
        status = result.status();
        stop = true;
        break;
      }
      ++totals.seeds;
      totals.steps += result->steps;
      totals.trials += result->trials;
      totals.restarts += result->restarts;
      totals.faults += result->infrastructure_faults;
      totals.lost += result->lost;
      totals.done_jobs += result->done_jobs;
      totals.stale += result->stale_answers;
      totals.orders += result->orders;
      totals.warm_orders += result->warm_orders;
      totals.transfer_orders += result->transfer_orders;
      totals.contests += result->contests;
      totals.fail_overs += result->fail_overs;
      totals.dropped += result->dropped;
      totals.late_writes += result->late_writes;
      totals.judged += result->judged;
      totals.relieved += result->relieved;
      if (!violation.empty() && (totals.violation.empty() || seed < totals.seed)) {
        totals.violation = violation;
        totals.seed = seed;
        stop = true;
      }
    }
    std::lock_guard lock(mutex);
    --running;
    ended.notify_all();
  };
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i) pool.emplace_back(work);
  {
    std::unique_lock lock(mutex);
    while (running > 0) {
      ended.wait_for(lock, std::chrono::milliseconds(500));
      if (progress) progress(totals);
    }
  }
  for (std::thread& thread : pool) thread.join();
  if (!status.ok()) return status;
  return totals;
}

}  // namespace heddle::sim
