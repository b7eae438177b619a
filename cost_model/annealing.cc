#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "absl/status/status.h"
#include "compiler/ir/status_macros.h"
#include "cost_model/model.h"
#include "cost_model/samples.h"
#include "cost_model/shortlist.h"
#include "cost_model/strategies.h"

namespace heddle::cost_model {
namespace {

using schedule::Point;
using schedule::Rng;

// Chains and steps bound what one Propose costs: an evaluation (expand, replay, features) takes
// some tenths of a millisecond, and a stage that proposes 16 candidates should not take longer than
// measuring them. AutoTVM's 128 chains of 500 steps assume a cheaper evaluation; chains that go on
// from batch to batch make up for it.
constexpr size_t kChains = 64;
constexpr int kSteps = 24;
constexpr int kMaxEvaluations = 1536;
constexpr int kPatience = 10;       // steps without a new best candidate before the chains stop
constexpr size_t kEliteChains = 4;  // chains that start beside the best measured points
// Redraws for the start of a chain; it is left out when all are infeasible.
constexpr int kStartDraws = 16;
constexpr double kEpsilon = 0.05;  // share of a batch that is random
constexpr size_t kMinSamples = 8;  // fewer say nothing about a hundred features
// Candidates proposed and not yet measured; one that is forgotten only loses its point.
constexpr size_t kMaxPending = 4096;

struct Chain {
  Point point;
  float score = 0;
};

class AnnealingSearch final : public StrategySearch {
 public:
  AnnealingSearch(Task task, uint64_t seed)
      : StrategySearch("annealing", std::move(task), seed), model_(MakeXgboostRankModel(seed)) {}

  absl::StatusOr<std::vector<Candidate>> Propose(int n) override;
  absl::Status Update(const std::vector<Result>& results) override;

 protected:
  void SaveOwn(BlobWriter& writer) const override;
  absl::Status LoadOwn(BlobReader& reader, uint64_t seed) override;

 private:
  struct Pending {
    uint64_t hash;
    Point point;
  };

  absl::StatusOr<Shortlist> Anneal(size_t want, Rng& rng);
  std::vector<Chain> StartChains(Rng& rng);
  bool Feasible(const Point& point) { return candidates().Evaluate(point) != nullptr; }
  // Model scores of feasible points.
  absl::StatusOr<std::vector<float>> Score(const std::vector<Point>& points);
  void Remember(const Drawn& drawn);

  std::unique_ptr<Model> model_;
  SampleSet samples_;
  std::deque<Pending> pending_;  // oldest first
  std::vector<Point> chains_;
};

absl::StatusOr<std::vector<Candidate>> AnnealingSearch::Propose(int n) {
  Rng rng = candidates().NextRng();
  std::vector<Candidate> out;
  if (n <= 0) return out;
  if (auto first = candidates().TakeDefault()) out.push_back(*std::move(first));
  const int missing = n - static_cast<int>(out.size());
  if (model_->trained() && missing > 0) {
    // A share of a batch, rounded at random so that small batches explore too.
    std::uniform_real_distribution<double> uniform(0, 1);
    const int random = static_cast<int>(kEpsilon * missing + uniform(rng));
    HEDDLE_ASSIGN_OR_RETURN(const Shortlist best, Anneal(static_cast<size_t>(missing), rng));
    for (size_t i : best.DiverseOrder()) {
      if (static_cast<int>(out.size()) >= n - random) break;
      std::optional<Drawn> drawn = candidates().Take(best.entries()[i].point);
      if (!drawn) continue;
      Remember(*drawn);
      out.push_back({std::move(drawn->trace), "annealing"});
    }
  }
  for (const Drawn& d : FillWithRandom(n, rng, out)) Remember(d);
  candidates().ForgetEvaluations();
  return out;
}

void AnnealingSearch::Remember(const Drawn& drawn) {
  pending_.push_back({drawn.hash, drawn.point});
  if (pending_.size() > kMaxPending) pending_.pop_front();
}

// Beside the best measured points, where earlier calls ended, and at random.
std::vector<Chain> AnnealingSearch::StartChains(Rng& rng) {
  std::vector<Chain> chains;
  const auto start = [&](const auto& draw) {
    for (int i = 0; i < kStartDraws; ++i) {
      Point point = draw();
      if (!Feasible(point)) continue;
      chains.push_back({std::move(point), 0});
      return;
    }
  };
  const std::vector<Point> best = samples_.BestPoints(kEliteChains);
  for (const Point& p : best) start([&] { return candidates().space().Mutate(p, rng); });
  for (const Point& p : chains_) {
    if (chains.size() >= kChains) break;
    if (Feasible(p)) chains.push_back({p, 0});
  }
  for (size_t missing = kChains - std::min(kChains, chains.size()); missing > 0; --missing) {
    start([&] { return candidates().space().Random(rng); });
  }
  return chains;
}

absl::StatusOr<std::vector<float>> AnnealingSearch::Score(const std::vector<Point>& points) {
  std::vector<std::vector<float>> features;
  features.reserve(points.size());
  for (const Point& p : points) features.push_back(candidates().Evaluate(p)->features);
  return model_->Predict(features);
}

absl::StatusOr<Shortlist> AnnealingSearch::Anneal(size_t want, Rng& rng) {
  Shortlist best(2 * want);
  std::vector<Chain> chains = StartChains(rng);
  if (chains.empty()) return best;
  const auto offer = [&](const Point& p, float score) {
    const uint64_t hash = candidates().Evaluate(p)->hash;
    return !candidates().Visited(hash) && best.Offer(p, hash, score);
  };
  std::vector<Point> points;
  for (const Chain& c : chains) points.push_back(c.point);
  HEDDLE_ASSIGN_OR_RETURN(std::vector<float> scores, Score(points));
  for (size_t i = 0; i < chains.size(); ++i) {
    chains[i].score = scores[i];
    offer(chains[i].point, scores[i]);
  }
  // Scores of a rank model have no unit: temperature is measured in their spread.
  const double unit = Spread(scores);
  std::uniform_real_distribution<double> uniform(0, 1);
  int idle = 0;
  for (int step = 0; step < kSteps && idle < kPatience; ++step) {
    if (candidates().fresh_evaluations() >= kMaxEvaluations) break;
    std::vector<size_t> movers;
    points.clear();
    for (size_t i = 0; i < chains.size(); ++i) {
      Point next = candidates().space().Mutate(chains[i].point, rng);
      if (!Feasible(next)) continue;
      movers.push_back(i);
      points.push_back(std::move(next));
    }
    HEDDLE_ASSIGN_OR_RETURN(scores, Score(points));
    const double temperature = unit * (1 - static_cast<double>(step) / kSteps);
    bool changed = false;
    for (size_t m = 0; m < movers.size(); ++m) {
      Chain& chain = chains[movers[m]];
      changed |= offer(points[m], scores[m]);
      const double gain = static_cast<double>(scores[m]) - chain.score;
      if (uniform(rng) < std::exp(gain / temperature)) chain = {std::move(points[m]), scores[m]};
    }
    idle = changed ? 0 : idle + 1;
  }
  chains_.clear();
  for (Chain& c : chains) chains_.push_back(std::move(c.point));
  return best;
}

absl::Status AnnealingSearch::Update(const std::vector<Result>& results) {
  for (const Result& r : results) {
    if (r.valid && !(r.seconds > 0 && std::isfinite(r.seconds))) {
      return absl::InvalidArgumentError("a valid result of " + std::to_string(r.seconds) + " s");
    }
  }
  for (const Result& r : results) {
    // A record of another version of the schedule language teaches nothing here; it must not stop
    // those that do.
    absl::StatusOr<Evaluated> evaluated = candidates().EvaluateTrace(r.trace);
    if (!evaluated.ok()) continue;
    candidates().MarkVisited(evaluated->hash);
    Measured m{evaluated->hash, {}, std::move(evaluated->features), r.valid ? r.seconds : 0};
    const auto it = std::find_if(pending_.begin(), pending_.end(),
                                 [&](const Pending& p) { return p.hash == m.hash; });
    if (it != pending_.end()) {
      m.point = std::move(it->point);
      pending_.erase(it);
    }
    samples_.Add(std::move(m));
  }
  if (samples_.all().size() < kMinSamples || !samples_.Rankable()) return absl::OkStatus();
  return model_->Fit(samples_.Training());
}

void AnnealingSearch::SaveOwn(BlobWriter& w) const {
  w.Bytes(model_->Serialize());
  samples_.Save(w);
  w.Unsigned(pending_.size());
  for (const Pending& p : pending_) {
    w.Fixed64(p.hash);
    SavePoint(p.point, w);
  }
  w.Unsigned(chains_.size());
  for (const Point& p : chains_) SavePoint(p, w);
}

absl::Status AnnealingSearch::LoadOwn(BlobReader& r, uint64_t seed) {
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, ParseXgboostRankModel(r.Bytes(), seed));
  SampleSet samples;
  HEDDLE_RETURN_IF_ERROR(samples.Load(r));
  std::deque<Pending> pending;
  for (size_t n = r.Count(); n > 0 && r.ok(); --n) {
    const uint64_t hash = r.Fixed64();
    pending.push_back({hash, LoadPoint(r)});
  }
  std::vector<Point> chains;
  for (size_t n = r.Count(); n > 0 && r.ok(); --n) chains.push_back(LoadPoint(r));
  if (!r.AtEnd()) return absl::DataLossError("search state: malformed");
  // What expands or mutates a point relies on it being one of the space.
  const auto foreign = [&](const Point& p) { return !InSpace(candidates().space(), p); };
  bool other_space = std::any_of(chains.begin(), chains.end(), foreign);
  for (const Pending& p : pending) other_space |= foreign(p.point);
  for (const Measured& m : samples.all()) other_space |= !m.point.empty() && foreign(m.point);
  if (other_space) return absl::DataLossError("search state: made for another search space");
  model_ = std::move(model);
  samples_ = std::move(samples);
  pending_ = std::move(pending);
  chains_ = std::move(chains);
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Search> MakeAnnealingSearch(Task task, uint64_t seed) {
  return std::make_unique<AnnealingSearch>(std::move(task), seed);
}

}  // namespace heddle::cost_model
