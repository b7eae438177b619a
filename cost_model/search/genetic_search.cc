#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "cost_model/search/pending.h"
#include "cost_model/search/strategies.h"

namespace heddle::cost_model {
namespace {

using schedule::Point;
using schedule::Rng;

// The constants of AutoTVM's baseline.
constexpr size_t kPopulation = 100;
constexpr size_t kElites = 3;
constexpr double kMutation = 0.1;  // per decision that has a choice
constexpr int kDraws = 64;         // tries for a feasible new child

struct Individual {
  Point point;
  double fitness = 0;  // 1 / seconds; 0 for failures
};

// Generations of measured candidates: parents are drawn by fitness, children mix them and mutate.
// No model.
class GeneticSearch final : public StrategySearch {
 public:
  GeneticSearch(Task task, uint64_t seed) : StrategySearch("genetic", std::move(task), seed) {}

  absl::StatusOr<std::vector<Candidate>> Propose(int n) override {
    Rng rng = candidates().NextRng();
    std::vector<Candidate> out;
    if (n <= 0) return out;
    if (auto first = candidates().TakeDefault()) out.push_back(*std::move(first));
    while (!parents_.empty() && static_cast<int>(out.size()) < n) {
      std::optional<Drawn> child;
      for (int draw = 0; draw < kDraws && !child; ++draw) child = candidates().Take(Child(rng));
      if (!child) break;
      pending_.Add(*child);
      out.push_back({std::move(child->trace), "genetic"});
    }
    for (const Drawn& d : FillWithRandom(n, rng, out)) pending_.Add(d);
    return out;
  }

  absl::Status Update(const std::vector<Result>& results) override {
    for (const Result& r : results) {
      if (r.valid && !(r.seconds > 0 && std::isfinite(r.seconds))) {
        return absl::InvalidArgumentError("a valid result of " + std::to_string(r.seconds) + " s");
      }
    }
    for (const Result& r : results) {
      const absl::StatusOr<schedule::Trace> trace = schedule::ParseTrace(r.trace);
      if (!trace.ok()) continue;
      const uint64_t hash = HashBytes(schedule::ToText(*trace));
      candidates().MarkVisited(hash);
      Point point = pending_.Take(hash);
      if (!point.empty()) generation_.push_back({std::move(point), r.valid ? 1 / r.seconds : 0});
    }
    if (generation_.size() < kPopulation) return absl::OkStatus();
    // The best individuals so far join the new generation.
    const auto fitter = [](const Individual& a, const Individual& b) {
      return a.fitness > b.fitness;
    };
    std::stable_sort(parents_.begin(), parents_.end(), fitter);
    parents_.resize(std::min(parents_.size(), kElites));
    for (Individual& i : generation_) parents_.push_back(std::move(i));
    generation_.clear();
    return absl::OkStatus();
  }

 protected:
  void SaveOwn(BlobWriter& w) const override {
    pending_.Save(w);
    for (const auto* individuals : {&generation_, &parents_}) {
      w.Unsigned(individuals->size());
      for (const Individual& i : *individuals) {
        SavePoint(i.point, w);
        w.Double(i.fitness);
      }
    }
  }

  absl::Status LoadOwn(BlobReader& r, uint64_t) override {
    PendingPoints pending = PendingPoints::Load(r);
    bool own_space = pending.AllIn(candidates().space());
    std::vector<Individual> loaded[2];
    for (std::vector<Individual>& individuals : loaded) {
      for (size_t n = r.Count(); n > 0 && r.ok(); --n) {
        Point point = LoadPoint(r);
        own_space &= InSpace(candidates().space(), point);
        individuals.push_back({std::move(point), r.Double()});
        if (!std::isfinite(individuals.back().fitness) || individuals.back().fitness < 0)
          r.Refuse();
      }
    }
    if (!r.AtEnd()) return absl::DataLossError("search state: malformed");
    if (!own_space) return absl::DataLossError("search state: made for another search space");
    pending_ = std::move(pending);
    generation_ = std::move(loaded[0]);
    parents_ = std::move(loaded[1]);
    return absl::OkStatus();
  }

 private:
  const Point& Parent(Rng& rng) const {
    double sum = 0;
    for (const Individual& i : parents_) sum += i.fitness;
    double left = std::uniform_real_distribution<double>(0, sum)(rng);
    for (const Individual& i : parents_) {
      left -= i.fitness;
      if (left < 0) return i.point;
    }
    return parents_.back().point;
  }

  Point Child(Rng& rng) const {
    const Point& first = Parent(rng);
    Point child = candidates().space().Cross(first, Parent(rng), rng);
    std::bernoulli_distribution mutate(kMutation);
    for (int d = 0; d < candidates().space().NumDecisions(); ++d) {
      if (candidates().space().Choices(d) > 1 && mutate(rng)) {
        child = candidates().space().Mutate(child, rng);
      }
    }
    return child;
  }

  PendingPoints pending_;
  std::vector<Individual> generation_;  // measured since the last generation was complete
  std::vector<Individual> parents_;     // elites, and the last complete generation
};

}  // namespace

std::unique_ptr<Search> MakeGeneticSearch(Task task, uint64_t seed) {
  return std::make_unique<GeneticSearch>(std::move(task), seed);
}

}  // namespace heddle::cost_model
