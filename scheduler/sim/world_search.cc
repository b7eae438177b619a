// What import, propose and update give: tasks, candidates, and a search state in which everything
// that was learned has left its trace, so that a run which learned something else, or nothing, has
// other records.
#include <bit>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/workload_key.h"
#include "scheduler/sim/world.h"

namespace heddle::sim {

// As the scheduler's PlanTask.
TaskPlan World::Plan(const Process& process, JobId id, size_t index,
                     const std::string& device_key) const {
  const SimJob& job = scenario_.jobs[static_cast<size_t>(JobIndex(id))];
  const SimTask& task = job.tasks[index];
  const std::string key =
      !task.key.empty() ? task.key : WorkloadKey(absl::StrCat("job ", id.value, " task ", index));
  KnownRecords known;
  if (options_.durable && !job.force)
    known = *store_->Known({key, process.book.data(id).row.job.spec().target(), device_key});
  return {static_cast<int>(known.total),
          static_cast<int>(known.valid),
          known.best_ns,
          key,
          task.weight,
          task.flops,
          known.untuned_ns};
}

Imported World::Import(const Process& process, const StartStage& start) {
  const SimJob& job = scenario_.jobs[static_cast<size_t>(JobIndex(start.job))];
  Imported imported;
  std::vector<std::string> keys;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    imported.tasks.push_back(Plan(process, start.job, i, job.device_key));
    v1::TaskInfo& info = *imported.model.add_tasks();
    info.set_key(imported.tasks.back().key);
    info.set_workload("w");
    info.set_weight(job.tasks[i].weight);
    info.set_flops(job.tasks[i].flops);
    keys.push_back(info.key());
    if (options_.planted == Planted::kOverrun) imported.tasks.back().key.clear();
  }
  budgets_.Imported(start.job, std::move(keys));
  imported.model.add_inputs("x: f32[1]");
  return imported;
}

void World::AnswerFind(int process, const FindRecords& find) {
  RecordsFound found{find.job, find.device_key, {}};
  const SimJob& job = scenario_.jobs[static_cast<size_t>(JobIndex(find.job))];
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    found.tasks.push_back(
        Plan(processes_[static_cast<size_t>(process)], find.job, i, find.device_key));
  }
  Feed(process, std::move(found));
}

World::SearchState World::StateOf(const Process& process, const StartStage& start) const {
  SearchState state;
  const std::string& text =
      process.book.data(start.job).tasks[static_cast<size_t>(start.task->value)].search_state;
  const std::vector<std::string> parts = absl::StrSplit(text, ' ');
  if (parts.size() != 3) return state;
  (void)absl::SimpleAtoi(parts[0], &state.next);
  (void)absl::SimpleAtoi(parts[1], &state.learned);
  (void)absl::SimpleAtoi(parts[2], &state.hash);
  return state;
}

Proposed World::Propose(const Process& process, const StartStage& start) {
  Proposed out;
  SearchState state;
  if (options_.durable) {
    state = StateOf(process, start);
    if (options_.checks) CheckLearned(process, start, state);
  } else {
    state.next = proposed_[{start.job.value, start.task->value}];
  }
  const SimJob& job = scenario_.jobs[static_cast<size_t>(JobIndex(start.job))];
  const int found = job.tasks[static_cast<size_t>(start.task->value)].candidates;
  out.count = Chance(scenario_.faults.broken) ? dice_.Below(start.count + 1) : start.count;
  if (found > 0) out.count = std::min(out.count, std::max(0, found - state.next));
  for (int i = 0; i < out.count && options_.durable; ++i) {
    out.candidates.emplace_back().set_trace(
        absl::StrCat("t", start.task->value, ".", state.next + i, ".", state.hash));
  }
  state.next += out.count;
  out.search_state = absl::StrCat(state.next, " ", state.learned, " ", state.hash);
  out.exhausted = out.count < start.count || (found > 0 && state.next >= found) ||
                  Chance(scenario_.faults.broken);
  return out;
}

// As the scheduler's FillUpdate: everything known where the task's first update is due, else the
// results that were not learned yet.
decltype(StageFinished::result) World::Learn(const Process& process, const StartStage& start) {
  if (!options_.durable) return {};
  if (options_.planted == Planted::kSkipUpdate && ++planted_ == 2) return {};
  SearchState state = StateOf(process, start);
  const Task& task =
      process.dispatcher->FindJob(start.job)->tasks[static_cast<size_t>(start.task->value)];
  if (task.warm_pending) {
    state.learned = task.known + task.trials;
    state.hash = Mix({state.hash, static_cast<uint64_t>(state.learned)});
  } else {
    for (const auto& [id, candidate] : process.book.data(start.job).candidates) {
      if (id >= start.before && options_.planted != Planted::kLearnEarly) break;
      if (candidate.task != start.task->value || candidate.learned || !candidate.outcome) continue;
      ++state.learned;
      state.hash = Mix({state.hash, static_cast<uint64_t>(Ordinal(start.job, id)),
                        static_cast<uint64_t>(*candidate.outcome),
                        std::bit_cast<uint64_t>(candidate.median_ns)});
    }
  }
  return Updated{absl::StrCat(state.next, " ", state.learned, " ", state.hash)};
}

int World::Ordinal(JobId job, CandidateId candidate) const {
  if (!options_.durable) {
    auto it = ordinals_.find({job.value, candidate.value});
    return it == ordinals_.end() ? 0 : it->second;
  }
  const auto& book = processes_[static_cast<size_t>(ProcessOf(JobIndex(job)))].book;
  const auto& candidates = book.data(job).candidates;
  auto it = candidates.find(candidate);
  if (it == candidates.end()) return 0;
  const std::vector<std::string> parts = absl::StrSplit(it->second.trace, '.');
  int ordinal = 0;
  (void)absl::SimpleAtoi(parts.at(1), &ordinal);
  return ordinal;
}

}  // namespace heddle::sim
