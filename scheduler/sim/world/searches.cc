#include "scheduler/sim/world/searches.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/vocabulary/default_schedule.h"
#include "base/vocabulary/workload_key.h"
#include "scheduler/sim/decision_text.h"

namespace heddle::sim {
namespace {

// The model that a stage fits to the samples it was told of.
std::optional<FittedModel> Fit(const StageWork& work) {
  if (!work.fits) return std::nullopt;
  FittedModel fitted{work.fits->id, work.fits->model};
  fitted.model.set_model(absl::StrCat("model ", work.search.hash));
  fitted.model.set_version(1);
  fitted.model.set_tasks(fitted.model.teachers_size());
  return fitted;
}

}  // namespace

v1::ImportResult Searches::Import(JobId id) const {
  const SimJob& job = JobOf(id);
  v1::ImportResult model;
  std::string plan = "estimated";
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    if (job.tasks[i].late) continue;
    *model.add_tasks() = InfoOf(id, i);
    absl::StrAppend(&plan, " ", job.tasks[i].weight);
  }
  model.add_inputs("x: f32[1]");
  model.set_plan(plan);
  // Some models have nothing to choose by measurement.
  model.set_surveyed(job.plan &&
                     (!job.random_plan || Mix({HashText(job.name, scenario_.seed), 6}) % 4 != 0));
  return model;
}

v1::TaskInfo Searches::InfoOf(JobId id, size_t index) const {
  const SimTask& task = JobOf(id).tasks[index];
  v1::TaskInfo info;
  info.set_key(!task.key.empty() ? task.key
                                 : WorkloadKey(absl::StrCat("job ", id.value, " task ", index)));
  info.set_workload("w");
  info.set_weight(task.weight);
  info.set_flops(task.flops);
  return info;
}

// The text of a plan says which weights it gives, so that nobody can lose them unseen. A late task has a
// weight if one after it has, so that late tasks come to the job in their order. Random plans that may be followed
// by tuning have a rival now and then, the plan of the import or another one.
Planned Searches::Plan(JobId id, const StageWork& work) const {
  const SimJob& job = JobOf(id);
  Planned out;
  uint64_t told = work.plan.last();
  for (const auto& time : work.plan.times())
    told = Mix({told, HashText(time.workload_key(), 0), std::bit_cast<uint64_t>(time.ns())});
  bool used = false;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    v1::TaskInfo& info = *out.plan.add_tasks();
    info = InfoOf(id, i);
    if (job.random_plan) info.set_weight(static_cast<int>(Mix({told, scenario_.seed, i, 3}) % 3));
    used |= info.weight() > 0;
  }
  if (!used && !job.tasks.empty()) out.plan.mutable_tasks(0)->set_weight(1);
  std::vector<int> rivals(job.tasks.size());  // weights
  if (job.random_plan && !work.plan.last() && Mix({told, scenario_.seed, 7}) % 4 != 0) {
    const bool imported = Mix({told, scenario_.seed, 9}) % 2 == 0;
    for (size_t i = 0; i < rivals.size(); ++i) {
      rivals[i] = !imported           ? static_cast<int>(Mix({told, scenario_.seed, i, 8}) % 3)
                  : job.tasks[i].late ? 0
                                      : job.tasks[i].weight;
    }
  }
  bool later = false, later_rival = false;
  for (size_t i = job.tasks.size(); i-- > 0 && job.tasks[i].late;) {
    v1::TaskInfo& info = *out.plan.mutable_tasks(static_cast<int>(i));
    if (later && info.weight() == 0) info.set_weight(1);
    later |= info.weight() > 0;
    if (later_rival && info.weight() == 0 && rivals[i] == 0) rivals[i] = 1;
    later_rival |= rivals[i] > 0;
  }
  std::vector<std::string> weights;
  for (const v1::TaskInfo& info : out.plan.tasks()) weights.push_back(absl::StrCat(info.weight()));
  out.plan.set_plan(absl::StrJoin(weights, " "));
  for (size_t i = 0; i < rivals.size(); ++i)
    out.plan.mutable_tasks(static_cast<int>(i))->set_rival_weight(rivals[i]);
  out.plan.set_survey(job.random_plan && Mix({told, scenario_.seed, 4}) % 2 == 0);
  return out;
}

Proposed Searches::Propose(JobId job, TaskIndex task, const StageWork& work) {
  Proposed out;
  SearchState state = work.search;
  const int found = TaskOf(job, task).candidates;
  out.count = Broken() ? dice_->Below(work.count + 1) : work.count;
  if (found > 0) out.count = std::min(out.count, std::max(0, found - state.next));
  for (int i = 0; i < out.count && durable_; ++i)
    out.candidates.emplace_back().set_trace(TraceOf(task, state, i));
  state.next += out.count;
  out.exhausted = out.count < work.count || (found > 0 && state.next >= found) || Broken();
  if (!durable_) return out;
  out.search_state = state.ToText();
  out.fitted = Fit(work);
  return out;
}

Updated Searches::Learn(const StageWork& work) const {
  if (!durable_) return {};
  SearchState state = work.search;
  // A search that begins with results has no default schedule to propose.
  if (!work.results.empty()) state.next = std::max(state.next, 1);
  for (const v1::SearchResult& result : work.results) {
    ++state.learned;
    state.hash = Mix({state.hash, HashText(result.trace(), 0), result.valid(),
                      std::bit_cast<uint64_t>(result.median_ns())});
  }
  Updated out{state.ToText()};
  out.report.set_samples(state.learned);
  out.transfer_samples.set_samples(absl::StrCat("samples ", state.hash));
  out.transfer_samples.set_measured(state.learned);
  out.transfer_samples.set_version(1);
  out.fitted = Fit(work);
  return out;
}

Compiled Searches::Compile(const StageWork& work) const {
  // The digest of a module tells which tasks it has tuned.
  std::vector<std::string> tuned;
  for (const v1::BestTrace& best : work.best) {
    if (best.trace() == kDefaultSchedule) continue;
    tuned.push_back(absl::StrCat(best.workload_key(), "=", HashText(best.trace(), 0)));
  }
  const std::string digest = absl::StrCat("digest ", absl::StrJoin(tuned, " "));
  Compiled out{digest, work.with_default ? "digest " : "", "", ""};
  if (!work.with_other) return out;
  out.other_digest = absl::StrCat("other ", absl::StrJoin(tuned, " "));
  out.other_default_digest = work.with_default ? "other " : "";
  return out;
}

Compared Searches::Compare(JobId job, const StageWork& work) {
  Compared out;
  if (const int comparisons = JobOf(job).comparisons; comparisons != SimJob::kAsFound) {
    out.result.mutable_gain()->set_ratio(2);
    if (!work.compare.other_module().empty()) {
      *out.result.mutable_other_gain() = out.result.gain();
      *out.result.mutable_other_over_default() = out.result.gain();
    }
    if (++compared_[job] >= comparisons) return out;
    v1::CompareResult::Task& slower = *out.result.add_tasks();  // its gain is not over 1
    slower.set_workload_key(Import(job).tasks(0).key());
    return out;
  }
  auto gain = [&](const std::string& what) {
    const double ratio = 0.8 + Unit(Mix({HashText(what, scenario_.seed), 5}));
    v1::Gain made;
    made.set_ratio(ratio);
    made.set_low(ratio * 0.95);
    made.set_high(ratio * 1.05);
    made.set_rounds(7);
    return made;
  };
  const std::string& module = work.compare.module();
  *out.result.mutable_gain() = gain(absl::StrCat(job.value, module));
  if (const std::string& other = work.compare.other_module(); !other.empty()) {
    *out.result.mutable_other_gain() = gain(absl::StrCat(job.value, module, other));
    *out.result.mutable_other_over_default() = gain(absl::StrCat(job.value, other));
  }
  const std::vector<std::string> parts = absl::StrSplit(module, ' ', absl::SkipEmpty());
  for (size_t i = 1; i < parts.size(); ++i) {  // behind "digest"
    v1::CompareResult::Task& found = *out.result.add_tasks();
    found.set_workload_key(parts[i].substr(0, parts[i].find('=')));
    *found.mutable_gain() = gain(absl::StrCat(job.value, found.workload_key()));
  }
  return out;
}

double Searches::TrueMedian(JobId job, TaskIndex task, int ordinal) const {
  const Curve& curve = TaskOf(job, task).curve;
  const double typical =
      curve.floor_ns + (curve.start_ns - curve.floor_ns) * std::exp(-ordinal / curve.trials);
  const uint64_t key = Mix(
      {scenario_.seed, static_cast<uint64_t>(job.value), static_cast<uint64_t>(task.value), 77});
  return curve.noise <= 0 ? typical
                          : Distribution{Distribution::kLognormal, typical, curve.noise, {}}.Draw(
                                key, static_cast<uint64_t>(ordinal));
}

Searches::Flaw Searches::FlawOf(JobId job, TaskIndex task, int ordinal) const {
  const uint64_t key = Mix({scenario_.seed, static_cast<uint64_t>(job.value),
                            static_cast<uint64_t>(task.value), static_cast<uint64_t>(ordinal), 99});
  if (Unit(key) >= JobOf(job).failures) return Flaw::kNone;
  return (key & 1) != 0 ? Flaw::kBuild : Flaw::kRun;
}

}  // namespace heddle::sim
