#include <utility>

#include "absl/status/status.h"
#include "cost_model/search/strategies.h"

namespace heddle::cost_model {
namespace {

// Most points tried for one proposal. A call that meets only infeasible points gives up.
constexpr int kStepsPerCandidate = 64;
constexpr int kStepsPerCall = 256;

// Proposes every point in order; the last decision changes fastest. For spaces that are small
// enough to be measured completely.
class GridSearch final : public StrategySearch {
 public:
  GridSearch(Task task, uint64_t seed)
      : StrategySearch("grid", std::move(task), seed),
        point_(static_cast<size_t>(candidates().space().NumDecisions()), 0) {}

  absl::StatusOr<std::vector<Candidate>> Propose(int n) override {
    std::vector<Candidate> out;
    if (n <= 0) return out;
    if (auto first = candidates().TakeDefault()) out.push_back(*std::move(first));
    const int64_t steps = kStepsPerCall + int64_t{kStepsPerCandidate} * n;
    for (int64_t i = 0; i < steps && static_cast<int>(out.size()) < n && !done_; ++i) {
      if (auto drawn = candidates().Take(point_)) out.push_back({std::move(drawn->trace), "grid"});
      done_ = !candidates().space().Next(point_);
    }
    return out;
  }

  absl::Status Update(const std::vector<Result>& results) override {
    MarkMeasured(results);
    return absl::OkStatus();
  }

 protected:
  void SaveOwn(BlobWriter& w) const override {
    SavePoint(point_, w);
    w.Unsigned(done_);
  }

  absl::Status LoadOwn(BlobReader& r, uint64_t) override {
    schedule::Point point = LoadPoint(r);
    const bool done = r.Unsigned() != 0;
    if (!r.AtEnd()) return absl::DataLossError("search state: malformed");
    if (!InSpace(candidates().space(), point)) {
      return absl::DataLossError("search state: made for another search space");
    }
    point_ = std::move(point);
    done_ = done;
    return absl::OkStatus();
  }

 private:
  schedule::Point point_;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<Search> MakeGridSearch(Task task, uint64_t seed) {
  return std::make_unique<GridSearch>(std::move(task), seed);
}

}  // namespace heddle::cost_model
