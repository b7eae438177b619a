#include "scheduler/sim/world/searches.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/workload_key.h"
#include "scheduler/ledger/known_records.h"
#include "scheduler/ledger/stage_order.h"

namespace heddle::sim {

std::string Searches::KeyOf(JobId id, size_t index) const {
  const std::string& key = JobOf(id).tasks[index].key;
  return !key.empty() ? key : WorkloadKey(absl::StrCat("job ", id.value, " task ", index));
}

std::vector<KnownRecords> Searches::Known(JobId id, const std::string& device_key,
                                          const JobLedger& book) const {
  std::vector<KnownRecords> known;
  if (store_ == nullptr || JobOf(id).force) return known;
  const std::string& target = book.data(id).row.job.spec().target();
  std::vector<WorkloadId> tasks;
  for (size_t i = 0; i < JobOf(id).tasks.size(); ++i)
    tasks.push_back({KeyOf(id, i), target, device_key});
  (void)FindKnown(store_, tasks, &known);
  return known;
}

Imported Searches::Import(JobId id, const JobLedger& book) const {
  const SimJob& job = JobOf(id);
  Imported imported;
  imported.known = Known(id, job.device_key, book);
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    v1::TaskInfo& info = *imported.model.add_tasks();
    info.set_key(KeyOf(id, i));
    info.set_workload("w");
    info.set_weight(job.tasks[i].weight);
    info.set_flops(job.tasks[i].flops);
  }
  imported.model.add_inputs("x: f32[1]");
  return imported;
}

RecordsFound Searches::Find(const FindRecords& find, const JobLedger& book) const {
  return {find.job, find.device_key, Known(find.job, find.device_key, book)};
}

std::string Searches::State::ToText() const { return absl::StrCat(next, " ", learned, " ", hash); }

Searches::State Searches::StateOf(const StartStage& start, const JobLedger& book) const {
  State state;
  const std::string& text =
      book.data(start.job).tasks[static_cast<size_t>(start.task->value)].search_state;
  const std::vector<std::string> parts = absl::StrSplit(text, ' ');
  if (parts.size() != 3) return state;
  (void)absl::SimpleAtoi(parts[0], &state.next);
  (void)absl::SimpleAtoi(parts[1], &state.learned);
  (void)absl::SimpleAtoi(parts[2], &state.hash);
  return state;
}

Proposed Searches::Propose(const StartStage& start, const JobLedger& book) {
  Proposed out;
  State state;
  if (store_ != nullptr) {
    state = StateOf(start, book);
  } else {
    state.next = proposed_[{start.job.value, start.task->value}];
  }
  const int found = JobOf(start.job).tasks[static_cast<size_t>(start.task->value)].candidates;
  out.count = Broken() ? dice_->Below(start.count + 1) : start.count;
  if (found > 0) out.count = std::min(out.count, std::max(0, found - state.next));
  for (int i = 0; i < out.count && store_ != nullptr; ++i) {
    out.candidates.emplace_back().set_trace(
        absl::StrCat("t", start.task->value, ".", state.next + i, ".", state.hash));
  }
  state.next += out.count;
  out.search_state = state.ToText();
  out.exhausted = out.count < start.count || (found > 0 && state.next >= found) || Broken();
  return out;
}

// Everything known if the task's first update is due, else the results that a worker is sent.
decltype(StageFinished::result) Searches::Learn(const StartStage& start, const Task& task,
                                                const JobLedger& book) {
  if (store_ == nullptr) return {};
  if (plant_->Is(Planted::kSkipUpdate) && plant_->Nth(2)) return {};
  State state = StateOf(start, book);
  if (task.unlearned.known) {
    state.learned = task.known.total + task.trials;
    state.hash = Mix({state.hash, static_cast<uint64_t>(state.learned)});
  } else {
    const bool early = plant_->Is(Planted::kLearnEarly);
    const CandidateId before =
        early ? CandidateId{std::numeric_limits<int64_t>::max()} : start.before;
    const JobLedger::JobData& data = book.data(start.job);
    for (CandidateId id : ResultsToLearn(data, *start.task, before)) {
      const CandidateRow& candidate = data.candidates.at(id);
      ++state.learned;
      state.hash = Mix({state.hash, static_cast<uint64_t>(Ordinal(start.job, id, book)),
                        static_cast<uint64_t>(*candidate.outcome),
                        std::bit_cast<uint64_t>(candidate.median_ns)});
    }
  }
  return Updated{state.ToText()};
}

void Searches::Added(const AddCandidates& add) {
  if (store_ != nullptr) return;
  int& next = proposed_[{add.job.value, add.task.value}];
  for (int i = 0; i < add.count; ++i) ordinals_[{add.job.value, add.first.value + i}] = next++;
}

void Searches::Finished(const FinishCandidate& done) {
  ordinals_.erase({done.job.value, done.candidate.value});
}

int Searches::Ordinal(JobId job, CandidateId candidate, const JobLedger& book) const {
  if (store_ == nullptr) {
    auto it = ordinals_.find({job.value, candidate.value});
    return it == ordinals_.end() ? 0 : it->second;
  }
  const auto& candidates = book.data(job).candidates;
  auto it = candidates.find(candidate);
  if (it == candidates.end()) return 0;
  const std::vector<std::string> parts = absl::StrSplit(it->second.trace, '.');
  int ordinal = 0;
  (void)absl::SimpleAtoi(parts.at(1), &ordinal);
  return ordinal;
}

double Searches::TrueMedian(JobId job, int task, int ordinal) const {
  const Curve& curve = JobOf(job).tasks[static_cast<size_t>(task)].curve;
  const double typical =
      curve.floor_ns + (curve.start_ns - curve.floor_ns) * std::exp(-ordinal / curve.trials);
  const uint64_t key =
      Mix({scenario_.seed, static_cast<uint64_t>(job.value), static_cast<uint64_t>(task), 77});
  return curve.noise <= 0 ? typical
                          : Distribution{Distribution::kLognormal, typical, curve.noise, {}}.Draw(
                                key, static_cast<uint64_t>(ordinal));
}

}  // namespace heddle::sim
