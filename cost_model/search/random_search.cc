#include <utility>

#include "cost_model/search/strategies.h"

namespace heddle::cost_model {
namespace {

class RandomSearch final : public StrategySearch {
 public:
  RandomSearch(Task task, uint64_t seed) : StrategySearch("random", std::move(task), seed) {}

  absl::StatusOr<std::vector<Candidate>> Propose(int n) override {
    schedule::Rng rng = candidates().NextRng();
    std::vector<Candidate> out;
    if (n <= 0) return out;
    if (auto first = candidates().TakeDefault()) out.push_back(*std::move(first));
    FillWithRandom(n, rng, out);
    return out;
  }

  absl::Status Update(const std::vector<Result>& results) override {
    MarkMeasured(results);
    return absl::OkStatus();
  }

 protected:
  void SaveOwn(BlobWriter&) const override {}
  absl::Status LoadOwn(BlobReader&, uint64_t) override { return absl::OkStatus(); }
};

}  // namespace

std::unique_ptr<Search> MakeRandomSearch(Task task, uint64_t seed) {
  return std::make_unique<RandomSearch>(std::move(task), seed);
}

}  // namespace heddle::cost_model
