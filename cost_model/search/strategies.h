// The strategies behind search.h. Tests construct them for tasks with their own spaces.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "cost_model/search.h"
#include "cost_model/search/candidate_space.h"

namespace heddle::cost_model {

// Saves and restores every strategy in one format: a sealed blob that holds the shared state and
// then the strategy's own state.
class StrategySearch : public Search {
 public:
  StrategySearch(std::string_view name, Task task, uint64_t seed)
      : name_(name), candidates_(std::move(task), seed) {}

  std::string Save() const final;
  absl::Status Restore(std::string_view blob) final;

 protected:
  virtual void SaveOwn(BlobWriter& writer) const = 0;
  // `seed` is the seed of the saved search. Changes nothing on failure.
  virtual absl::Status LoadOwn(BlobReader& reader, uint64_t seed) = 0;

  CandidateSpace& candidates() { return candidates_; }
  const CandidateSpace& candidates() const { return candidates_; }

  // Measured candidates are not proposed again. Traces that do not parse are skipped.
  void MarkMeasured(const std::vector<Result>& results);
  // Appends random candidates until there are n, or no more are found; returns what was drawn.
  std::vector<Drawn> FillWithRandom(int n, schedule::Rng& rng, std::vector<Candidate>& out);

 private:
  std::string_view name_;
  CandidateSpace candidates_;
};

// Draws uniformly from the feasible points, each once.
std::unique_ptr<Search> MakeRandomSearch(Task task, uint64_t seed);

// Generations of measured candidates, without a model.
std::unique_ptr<Search> MakeGeneticSearch(Task task, uint64_t seed);

// Every point in order.
std::unique_ptr<Search> MakeGridSearch(Task task, uint64_t seed);

// MakeModelSearch (methods.h) makes the methods with a model.

// Any strategy, by name. InvalidArgument lists the strategies.
absl::StatusOr<std::unique_ptr<Search>> MakeSearchOf(Task task, std::string_view strategy,
                                                     uint64_t seed);

}  // namespace heddle::cost_model
