#include "scheduler/whatif/simulate_queue.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/core/policy.h"
#include "scheduler/sim/world/world.h"
#include "scheduler/whatif/queue_scenario.h"

namespace heddle::scheduler {
namespace {

constexpr size_t kMostKeys = 3;  // of device keys that get a slot
// Of one world. The largest queue takes about a tenth.
constexpr int64_t kMaxSteps = 1'000'000;

struct Variant {
  std::string name;
  sim::Scenario scenario;
};

// The scenario with one more slot like this one.
Variant OneMore(const std::string& name, const sim::Scenario& scenario, sim::SimSlot slot) {
  slot.info.id.worker = "one more worker";
  slot.info.host = "one more host";
  Variant variant{name, scenario};
  variant.scenario.slots.push_back(std::move(slot));
  return variant;
}

std::vector<Variant> VariantsOf(const sim::Scenario& scenario) {
  std::vector<Variant> variants = {{"as it is", scenario}};
  const std::vector<bool> useful = scenario.Useful();
  std::set<std::string> keys;
  for (size_t i = 0; i < scenario.slots.size() && keys.size() < kMostKeys; ++i) {
    const sim::SimSlot& slot = scenario.slots[i];
    if (!slot.info.device || !useful[i] || !keys.insert(slot.info.device_key).second) continue;
    variants.push_back(
        OneMore(absl::StrCat("one more device slot, ", slot.info.device_key), scenario, slot));
  }
  const auto cpu = std::find_if(scenario.slots.begin(), scenario.slots.end(),
                                [](const sim::SimSlot& slot) { return !slot.info.device; });
  if (cpu != scenario.slots.end()) variants.push_back(OneMore("one more CPU slot", scenario, *cpu));
  for (const std::string& policy : PolicyNames()) {
    if (policy == scenario.policy) continue;
    Variant& variant = variants.emplace_back(Variant{absl::StrCat("policy ", policy), scenario});
    variant.scenario.policy = policy;
  }
  return variants;
}

}  // namespace

absl::StatusOr<views::WhatIf> SimulateQueue(const WhatIfQuestion& question,
                                            const std::function<bool()>& go_on) {
  HEDDLE_ASSIGN_OR_RETURN(const QueueScenario queue, ScenarioOf(question));
  views::WhatIf answer;
  answer.left_out = queue.left_out;
  answer.trials_as_one = queue.trials_as_one;
  answer.simulated = static_cast<int64_t>(queue.jobs.size());
  for (const std::shared_ptr<const v1::Job>& job : queue.jobs) {
    views::WhatIf::Job& row = answer.jobs.emplace_back();
    row.id = job->id();
    row.name = job->spec().name();
    row.user = job->spec().user();
    row.eta_s = static_cast<double>(job->eta_ms()) / 1e3;
  }
  for (const Variant& variant : VariantsOf(queue.scenario)) {
    if (!go_on()) return absl::CancelledError("the scheduler is ending");
    sim::WorldOptions options;
    options.max_steps = kMaxSteps;
    HEDDLE_ASSIGN_OR_RETURN(const sim::WorldResult result,
                            sim::RunWorld(variant.scenario, variant.scenario.policy, options));
    views::WhatIf::World& world = answer.worlds.emplace_back();
    world.name = variant.name;
    for (size_t i = 0; i < answer.jobs.size(); ++i) {
      const double end = result.jobs[i].end;
      answer.jobs[i].end_s.push_back(end);
      world.mean_s += end / static_cast<double>(answer.jobs.size());
      world.all_s = std::max(world.all_s, end);
    }
  }
  return answer;
}

}  // namespace heddle::scheduler
