#include "cost_model/search/walk.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "base/status_macros.h"

namespace heddle::cost_model {
namespace {

using schedule::Point;

// Most draws for the start of a chain. The chain is left out if all are infeasible.
constexpr int kStartDraws = 16;
// Evolution: share of the children that also mutate, and number of contenders for each parent.
constexpr double kMutationChance = 0.8;
constexpr int kTournament = 3;

bool Feasible(const WalkContext& c, const Point& point) {
  return c.candidates.Evaluate(point) != nullptr;
}

// The points at which chains start: mutations of the best measured points, the ends of the last
// walk, and drafts.
std::vector<Point> Starts(const WalkContext& c) {
  std::vector<Point> starts;
  const auto start = [&](const auto& draw) {
    for (int i = 0; i < kStartDraws; ++i) {
      Point point = draw();
      if (!Feasible(c, point)) continue;
      starts.push_back(std::move(point));
      return;
    }
  };
  const schedule::Space& space = c.candidates.space();
  for (size_t i = 0; i < std::min(c.method.elites, c.best.size()); ++i) {
    start([&] { return space.Mutate(c.best[i], c.rng); });
  }
  for (const Point& p : c.chains) {
    if (starts.size() >= c.method.chains) break;
    if (Feasible(c, p)) starts.push_back(p);
  }
  const size_t missing = c.method.chains - std::min(c.method.chains, starts.size());
  for (size_t i = 0; i < missing; ++i) {
    start([&] { return c.draft(c.rng); });
  }
  return starts;
}

bool Offer(const WalkContext& c, const Point& point, float score, Shortlist& best) {
  const uint64_t hash = c.candidates.Evaluate(point)->hash;
  return !c.candidates.Visited(hash) && best.Offer(point, hash, score);
}

double Uniform(schedule::Rng& rng) { return std::uniform_real_distribution<double>(0, 1)(rng); }

}  // namespace

absl::StatusOr<Shortlist> Anneal(const WalkContext& c, size_t capacity) {
  Shortlist best(capacity);
  std::vector<Point> chains = Starts(c);
  if (chains.empty()) return best;
  HEDDLE_ASSIGN_OR_RETURN(std::vector<float> scores, c.score(chains));
  for (size_t i = 0; i < chains.size(); ++i) Offer(c, chains[i], scores[i], best);
  const double unit = c.method.relative_temperature ? Spread(scores) : 1;
  int idle = 0;
  for (int step = 0; step < c.method.steps && idle < c.method.patience; ++step) {
    if (c.candidates.fresh_evaluations() >= c.method.evaluations) break;
    std::vector<size_t> movers;
    std::vector<Point> points;
    for (size_t i = 0; i < chains.size(); ++i) {
      Point next = c.candidates.space().Mutate(chains[i], c.rng);
      if (!Feasible(c, next)) continue;
      movers.push_back(i);
      points.push_back(std::move(next));
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<float> found, c.score(points));
    const double temperature = unit * (1 - static_cast<double>(step) / c.method.steps);
    bool changed = false;
    for (size_t m = 0; m < movers.size(); ++m) {
      changed |= Offer(c, points[m], found[m], best);
      const double gain = static_cast<double>(found[m]) - scores[movers[m]];
      if (Uniform(c.rng) >= std::exp(gain / temperature)) continue;
      chains[movers[m]] = std::move(points[m]);
      scores[movers[m]] = found[m];
    }
    idle = changed ? 0 : idle + 1;
  }
  c.chains = std::move(chains);
  return best;
}

absl::StatusOr<Shortlist> Evolve(const WalkContext& c, size_t capacity) {
  Shortlist best(capacity);
  std::vector<Point> population = Starts(c);
  // Measured points may be parents, though they cannot be proposed again.
  for (const Point& p : c.best) {
    if (Feasible(c, p)) population.push_back(p);
  }
  if (population.empty()) return best;
  HEDDLE_ASSIGN_OR_RETURN(std::vector<float> scores, c.score(population));
  for (size_t i = 0; i < population.size(); ++i) Offer(c, population[i], scores[i], best);
  const auto parent = [&]() -> const Point& {
    std::uniform_int_distribution<size_t> any(0, population.size() - 1);
    size_t winner = any(c.rng);
    for (int k = 1; k < kTournament; ++k) {
      const size_t other = any(c.rng);
      if (scores[other] > scores[winner]) winner = other;
    }
    return population[winner];
  };
  int idle = 0;
  for (int generation = 0; generation < c.method.steps && idle < c.method.patience; ++generation) {
    if (c.candidates.fresh_evaluations() >= c.method.evaluations) break;
    std::vector<Point> children;
    for (size_t i = 0; i < c.method.chains; ++i) {
      const Point& first = parent();
      Point child = c.candidates.space().Cross(first, parent(), c.rng);
      if (child == first || Uniform(c.rng) < kMutationChance) {
        child = c.candidates.space().Mutate(child, c.rng);
      }
      if (Feasible(c, child)) children.push_back(std::move(child));
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<float> found, c.score(children));
    bool changed = false;
    for (size_t i = 0; i < children.size(); ++i) {
      changed |= Offer(c, children[i], found[i], best);
      population.push_back(std::move(children[i]));
      scores.push_back(found[i]);
    }
    idle = changed ? 0 : idle + 1;
    // The best candidates survive, one for each trace.
    std::vector<size_t> order(population.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    std::vector<Point> kept;
    std::vector<float> kept_scores;
    std::unordered_set<uint64_t> hashes;
    for (size_t i : order) {
      if (kept.size() >= c.method.chains) break;
      if (!hashes.insert(c.candidates.Evaluate(population[i])->hash).second) continue;
      kept.push_back(std::move(population[i]));
      kept_scores.push_back(scores[i]);
    }
    population = std::move(kept);
    scores = std::move(kept_scores);
  }
  c.chains = std::move(population);
  return best;
}

}  // namespace heddle::cost_model
