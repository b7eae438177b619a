#include "scheduler/sim/world/stage_work.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "scheduler/sim/chance.h"
#include "scheduler/sim/decision_text.h"

namespace heddle::sim {

std::string SearchState::ToText() const { return absl::StrCat(next, " ", learned, " ", hash); }

SearchState SearchState::Parse(const std::string& text) {
  SearchState state;
  const std::vector<std::string> parts = absl::StrSplit(text, ' ');
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &state.next) ||
      !absl::SimpleAtoi(parts[1], &state.learned) || !absl::SimpleAtoi(parts[2], &state.hash))
    return {};
  return state;
}

std::string TraceOf(TaskIndex task, const SearchState& state, int ahead) {
  return absl::StrCat("t", task.value, ".", state.next + ahead, ".", state.hash);
}

int OrdinalOf(const std::string& trace) {
  const std::vector<std::string> parts = absl::StrSplit(trace, '.');
  int ordinal = 0;
  if (parts.size() == 3) (void)absl::SimpleAtoi(parts[1], &ordinal);
  return ordinal;
}

std::string CodeOf(const std::string& trace) { return "code of " + trace; }

namespace {

// Hash of what the order tells the search about other tasks; 0 if nothing.
uint64_t HashOfTransfer(const v1::SearchSpec& search) {
  uint64_t hash = 0;
  if (!search.transfer_model().empty()) return HashText(search.transfer_model(), 1);
  for (const v1::RelatedSamples& other : search.others()) hash = HashText(other.samples(), hash);
  return hash;
}

CandidateWork WorkOn(const v1::Candidate& candidate) {
  return {CandidateId{candidate.id()}, OrdinalOf(candidate.trace()), candidate.trace()};
}

}  // namespace

CandidateWork WorkOf(const v1::StageInput& input) {
  return WorkOn(input.has_build() ? input.build().candidate() : input.profile().candidate());
}

StageWork WorkOf(const StageOrder& order) {
  StageWork work;
  for (const v1::StageInput& input : order.inputs) work.inputs.push_back(WorkOf(input));
  work.count = order.start.propose().count();
  work.with_default = order.start.compile().with_default();
  work.with_other = !order.start.compile().other_plan().empty();
  work.compare = order.start.compare();
  work.plan = order.start.plan();
  return work;
}

void AddFetched(const StageOrder& order, StageWork* work) {
  const v1::StageStart& start = order.start;
  const v1::SearchSpec& search =
      start.has_update() ? start.update().search() : start.propose().search();
  work->search = SearchState::Parse(order.search_state);
  const uint64_t told = HashOfTransfer(search);
  work->transferred = order.search_state.empty() && told != 0;
  if (work->transferred) work->search.hash = Mix({work->search.hash, told});
  work->results.assign(start.update().results().begin(), start.update().results().end());
  work->best.assign(start.compile().best().begin(), start.compile().best().end());
  // Without samples there is nothing to fit a model to.
  if (search.others_size() > 0) work->fits = order.transfer_model;
}

void ProposedCounts::Added(const AddCandidates& add) {
  int& next = proposed_[{add.job, add.task}];
  for (int i = 0; i < add.count; ++i) ordinals_[{add.job.value, add.first.value + i}] = next++;
}

void ProposedCounts::Finished(const FinishCandidate& done) {
  ordinals_.erase({done.job.value, done.candidate.value});
}

StageWork ProposedCounts::WorkOf(const StartStage& start) const {
  StageWork work;
  for (CandidateId candidate : start.candidates)
    work.inputs.push_back(WorkOf(start.job, candidate));
  work.count = start.count;
  if (start.kind != v1::STAGE_PROPOSE) return work;
  const auto proposed = proposed_.find({start.job, *start.task});
  if (proposed != proposed_.end()) work.search.next = proposed->second;
  return work;
}

CandidateWork ProposedCounts::WorkOf(JobId job, CandidateId candidate) const {
  const auto ordinal = ordinals_.find({job.value, candidate.value});
  return {candidate, ordinal == ordinals_.end() ? 0 : ordinal->second};
}

}  // namespace heddle::sim
