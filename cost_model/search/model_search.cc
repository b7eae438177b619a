#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "cost_model/features/features.h"
#include "cost_model/features/roofline.h"
#include "cost_model/model/samples.h"
#include "cost_model/search/drafts.h"
#include "cost_model/search/methods.h"
#include "cost_model/search/pending.h"
#include "cost_model/search/strategies.h"
#include "cost_model/search/walk.h"
#include "cost_model/transfer/transfer.h"
#include "cost_model/transfer/transfer_samples.h"

namespace heddle::cost_model {
namespace {

using schedule::Point;
using schedule::Rng;

constexpr size_t kReported = 16;   // most features in a report
constexpr size_t kMinSamples = 8;  // fewer say nothing about a hundred features

constexpr std::string_view kTransferMagic = "HDLOTHERS";
constexpr uint32_t kTransferVersion = 1;

uint64_t HashOf(const std::vector<size_t>& columns) {
  return HashBytes(
      {reinterpret_cast<const char*>(columns.data()), columns.size() * sizeof(size_t)});
}

// The method, with the loop tokens of these feature columns.
Method Settle(Method method, const std::vector<size_t>& columns) {
  method.model.tokens = method.others.tokens = LoopTokens(columns);
  return method;
}

class ModelSearch final : public StrategySearch {
 public:
  ModelSearch(Task task, const Method& method, uint64_t seed)
      : StrategySearch(method.name, std::move(task), seed),
        method_(Settle(method, *ColumnsWithout(method.without))),
        origin_(method.relative ? candidates().DefaultFeatures()
                                : std::vector<float>(FeatureTable().size())),
        columns_(*ColumnsWithout(method.without)),
        transfer_(method.others, seed),
        model_(MakeModel(method.model, seed)) {
    learned_ = LearnFromOthers();
    fitted_others_ = learned_.ok() && transfer_.tasks() > 0;
  }

  absl::StatusOr<std::vector<Candidate>> Propose(int n) override;
  absl::Status Update(const std::vector<Result>& results) override;
  SearchReport Report() const override;
  std::string TransferSamples() const override;
  std::string TransferModel() const override;
  absl::Status BeginWith(std::string_view transfer_model) override;
  absl::Status LearnFrom(SamplePages* pages, const std::string& folder) override;

 protected:
  void SaveOwn(BlobWriter& writer) const override;
  absl::Status LoadOwn(BlobReader& reader, uint64_t seed) override;

 private:
  absl::Status ProposeByModel(int n, Rng& rng, std::vector<Candidate>& out);
  absl::Status ProposeByOthers(int n, Rng& rng, std::vector<Candidate>& out);
  absl::Status ProposeByRoofline(int n, Rng& rng, std::vector<Candidate>& out);
  using Scores = absl::StatusOr<std::vector<float>>;
  // Appends the n candidates among `drafts` with the best `score`, skipping visited ones.
  absl::Status ProposeBest(int n, const std::vector<Point>& drafts, std::string_view origin,
                           const std::function<Scores(const std::vector<Point>&)>& score,
                           std::vector<Candidate>& out);
  Scores Score(const std::vector<Point>& points);
  float Acquire(const Estimate& e) const;
  absl::Status LearnFromOthers();
  // Whether there is a model of this task, or a transfer model that still has weight.
  bool Knows() const { return model_->trained() || transfer_.TrustAt(samples_.all().size()) > 0; }
  // The transfer model's scores, times its weight. `seen`: features as the model sees them.
  absl::StatusOr<std::vector<float>> Priors(const std::vector<std::vector<float>>& seen) const;
  // Predictions: the model's scores plus the priors. `seen`: features as the model sees them.
  absl::StatusOr<std::vector<Estimate>> ScoresOf(const std::vector<std::vector<float>>& seen) const;
  // The number of candidates that the estimate picks in a batch of n.
  int Drafts(double n) const;
  // The columns that the model sees, minus origin_.
  std::vector<float> Seen(const std::vector<float>& features) const;
  std::vector<Sample> Training() const;
  // Sets the prediction of each candidate in the batch.
  absl::Status Predict(std::vector<Candidate>& batch);
  // Fits to the measurements, and validates the transfer model.
  absl::Status Fit();

  const Method method_;
  // Subtracted from all features: the default schedule's features, or zeros.
  const std::vector<float> origin_;
  const std::vector<size_t> columns_;  // indices of the features that the model sees
  Transfer transfer_;
  absl::Status learned_;        // status of fitting the transfer model
  bool fitted_others_ = false;  // this search fitted the model in transfer_ itself
  std::unique_ptr<Model> model_;
  SampleSet samples_;
  PendingPoints pending_;
  std::vector<Point> chains_;
};

absl::StatusOr<std::vector<Candidate>> ModelSearch::Propose(int n) {
  HEDDLE_RETURN_IF_ERROR(learned_);
  Rng rng = candidates().NextRng();
  std::vector<Candidate> out;
  if (n <= 0) return out;
  if (auto first = candidates().TakeDefault()) {
    if (auto point = candidates().DefaultPoint()) {
      pending_.Add({*std::move(point), HashBytes(first->trace), first->trace});
    }
    out.push_back(*std::move(first));
  }
  const int missing = n - static_cast<int>(out.size());
  if (!model_->trained())
    HEDDLE_RETURN_IF_ERROR(Fit());  // the model of a restored state may have been dropped
  if (Knows() && missing > 0) {
    // A random share of the batch, rounded at random so that small batches explore too.
    std::uniform_real_distribution<double> uniform(0, 1);
    const int random = static_cast<int>(method_.epsilon * missing + uniform(rng));
    const int drafts = model_->trained() ? 0 : Drafts(method_.hedge * missing);
    HEDDLE_RETURN_IF_ERROR(model_->trained()
                               ? ProposeByModel(n - random, rng, out)
                               : ProposeByOthers(missing - random - drafts, rng, out));
    HEDDLE_RETURN_IF_ERROR(ProposeByRoofline(drafts, rng, out));
  } else {
    HEDDLE_RETURN_IF_ERROR(ProposeByRoofline(Drafts(missing), rng, out));
  }
  for (const Drawn& d : FillWithRandom(n, rng, out)) pending_.Add(d);
  if (Knows()) HEDDLE_RETURN_IF_ERROR(Predict(out));
  candidates().ForgetEvaluations();
  return out;
}

absl::Status ModelSearch::ProposeByModel(int n, Rng& rng, std::vector<Candidate>& out) {
  const WalkContext context{
      method_,
      candidates(),
      [this](const std::vector<Point>& points) { return Score(points); },
      samples_.BestPoints(method_.chains / 2),
      [this](Rng& r) { return Draft(method_, candidates().space(), method_.beside_default, r); },
      chains_,
      rng};
  const size_t capacity = static_cast<size_t>(method_.shortlist) * static_cast<size_t>(n);
  const bool evolve = method_.walk == Walk::kEvolution;
  HEDDLE_ASSIGN_OR_RETURN(const Shortlist best,
                          evolve ? Evolve(context, capacity) : Anneal(context, capacity));
  for (const size_t i : best.DiverseOrder(method_.diversity)) {
    if (static_cast<int>(out.size()) >= n) break;
    std::optional<Drawn> drawn = candidates().Take(best.entries()[i].point);
    if (!drawn) continue;
    pending_.Add(*drawn);
    out.push_back({std::move(drawn->trace), evolve ? "evolution" : "annealing"});
  }
  return absl::OkStatus();
}

absl::Status ModelSearch::ProposeByOthers(int n, Rng& rng, std::vector<Candidate>& out) {
  const auto score = [this](const std::vector<Point>& points) { return Score(points); };
  // On a target without an estimate, some drafts are random. If too few are found beside the
  // default schedule, more drafts fill the batch.
  const double beside = Drafts(1) > 0 ? method_.others_beside : method_.beside_default;
  const size_t whole = out.size() + static_cast<size_t>(std::max(n, 0));
  for (const double share : {beside, method_.beside_default}) {
    const int missing = static_cast<int>(whole - out.size());
    HEDDLE_RETURN_IF_ERROR(ProposeBest(
        missing, MakeDrafts(method_, candidates(), missing, method_.others_drafts, share, rng),
        "others", score, out));
  }
  return absl::OkStatus();
}

absl::Status ModelSearch::ProposeByRoofline(int n, Rng& rng, std::vector<Candidate>& out) {
  const auto score = [this](const std::vector<Point>& points) -> Scores {
    std::vector<float> scores;
    for (const Point& p : points) {
      scores.push_back(RooflineScore(candidates().Evaluate(p)->features));
    }
    return scores;
  };
  return ProposeBest(
      n, MakeDrafts(method_, candidates(), n, method_.drafts, method_.beside_default, rng),
      "roofline", score, out);
}

absl::Status ModelSearch::ProposeBest(int n, const std::vector<Point>& drafts,
                                      std::string_view origin,
                                      const std::function<Scores(const std::vector<Point>&)>& score,
                                      std::vector<Candidate>& out) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<float> scores, score(drafts));
  Shortlist best(static_cast<size_t>(std::max(n, 0)));
  for (size_t i = 0; i < drafts.size(); ++i) {
    best.Offer(drafts[i], candidates().Evaluate(drafts[i])->hash, scores[i]);
  }
  for (const Shortlist::Entry& entry : best.entries()) {
    std::optional<Drawn> drawn = candidates().Take(entry.point);
    if (!drawn) continue;
    pending_.Add(*drawn);
    out.push_back({std::move(drawn->trace), std::string(origin)});
  }
  return absl::OkStatus();
}

// All points must be feasible.
ModelSearch::Scores ModelSearch::Score(const std::vector<Point>& points) {
  std::vector<std::vector<float>> features;
  features.reserve(points.size());
  for (const Point& p : points) features.push_back(Seen(candidates().Evaluate(p)->features));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Estimate> estimates, ScoresOf(features));
  std::vector<float> scores;
  scores.reserve(estimates.size());
  for (const Estimate& e : estimates) scores.push_back(Acquire(e));
  return scores;
}

// Scores are shares of the best measured throughput, so the best measured score is 1. The expected
// improvement is that of a normal distribution.
float ModelSearch::Acquire(const Estimate& e) const {
  if (method_.acquisition == Acquisition::kMean) return e.score;
  if (method_.acquisition == Acquisition::kUpperBound) return e.score + e.deviation;
  const double sigma = std::max(1e-6f, e.deviation), z = (e.score - 1) / sigma;
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
  const double improvement = sigma * (z * std::erfc(-z / M_SQRT2) / 2 + density);
  // If no improvement is expected, the order of the means decides.
  return static_cast<float>(std::log(std::max(improvement, 1e-30)) + 1e-3 * e.score);
}

absl::Status ModelSearch::Predict(std::vector<Candidate>& batch) {
  std::vector<std::vector<float>> features;
  for (const Candidate& c : batch) {
    HEDDLE_ASSIGN_OR_RETURN(const Evaluated evaluated, candidates().EvaluateTrace(c.trace));
    features.push_back(Seen(evaluated.features));
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Estimate> estimates, ScoresOf(features));
  for (size_t i = 0; i < batch.size(); ++i) {
    batch[i].prediction = {estimates[i].score, static_cast<int>(samples_.learned())};
  }
  return absl::OkStatus();
}

absl::Status ModelSearch::Update(const std::vector<Result>& results) {
  HEDDLE_RETURN_IF_ERROR(learned_);
  for (const Result& r : results) {
    if (r.valid && !(r.seconds > 0 && std::isfinite(r.seconds))) {
      return absl::InvalidArgumentError("a valid result of " + std::to_string(r.seconds) + " s");
    }
  }
  for (const Result& r : results) {
    // A trace of another version of the schedule language is skipped.
    absl::StatusOr<Evaluated> evaluated = candidates().EvaluateTrace(r.trace);
    if (!evaluated.ok()) continue;
    candidates().MarkVisited(evaluated->hash);
    Point point = pending_.Take(evaluated->hash);
    // A search that begins with results did not propose the default schedule itself. Chains may begin there all the same.
    if (point.empty() && candidates().IsDefault(evaluated->hash))
      point = candidates().DefaultPoint().value_or(Point());
    samples_.Add({evaluated->hash, std::move(point), std::move(evaluated->features),
                  r.valid ? r.seconds : 0});
  }
  return Fit();
}

std::vector<float> ModelSearch::Seen(const std::vector<float>& features) const {
  std::vector<float> seen;
  seen.reserve(columns_.size());
  for (const size_t k : columns_) seen.push_back(features[k] - origin_[k]);
  return seen;
}

std::vector<Sample> ModelSearch::Training() const {
  std::vector<Sample> training = samples_.Training(method_.score_levels, *ColumnsWithout({}));
  for (Sample& sample : training) sample.features = Seen(sample.features);
  return training;
}

absl::Status ModelSearch::LearnFromOthers() {
  if (candidates().others() == nullptr) return absl::OkStatus();
  std::vector<Sample> samples = Transfer::Choose(*candidates().others());
  for (Sample& s : samples) s.features = Pick(s.features, columns_);
  return transfer_.Learn(samples);
}

absl::StatusOr<std::vector<float>> ModelSearch::Priors(
    const std::vector<std::vector<float>>& seen) const {
  const double trust = transfer_.TrustAt(samples_.all().size());
  if (trust == 0) return std::vector<float>(seen.size());
  HEDDLE_ASSIGN_OR_RETURN(std::vector<float> priors, transfer_.Predict(seen));
  for (float& prior : priors) prior *= static_cast<float>(trust);
  return priors;
}

absl::StatusOr<std::vector<Estimate>> ModelSearch::ScoresOf(
    const std::vector<std::vector<float>>& seen) const {
  HEDDLE_ASSIGN_OR_RETURN(std::vector<Estimate> estimates, model_->Predict(seen));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<float> priors, Priors(seen));
  for (size_t i = 0; i < seen.size(); ++i) estimates[i].score += priors[i];
  return estimates;
}

int ModelSearch::Drafts(double n) const {
  if (candidates().target().execution == machine::Execution::kGrid) return 0;
  return static_cast<int>(std::lround(method_.cold_start * n));
}

absl::Status ModelSearch::Fit() {
  std::vector<Sample> training = Training();
  HEDDLE_RETURN_IF_ERROR(transfer_.Validate(training));
  if (training.size() < kMinSamples || !samples_.Rankable()) return absl::OkStatus();
  std::vector<std::vector<float>> seen;
  for (const Sample& s : training) seen.push_back(s.features);
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<float> priors, Priors(seen));
  for (size_t i = 0; i < seen.size(); ++i) training[i].prior = priors[i];
  return model_->Fit(training);
}

SearchReport ModelSearch::Report() const {
  SearchReport report;
  report.samples = static_cast<int>(samples_.all().size());
  const std::vector<double> importance =
      model_->trained() ? model_->Importance() : transfer_.Importance();
  // A model from a state may have been fitted to other columns; it predicts nothing then.
  for (size_t i = 0; i < std::min(importance.size(), columns_.size()); ++i) {
    const FeatureInfo& info = FeatureTable()[columns_[i]];
    if (importance[i] > 0) report.features.push_back({info.name, info.meaning, importance[i]});
  }
  std::stable_sort(report.features.begin(), report.features.end(),
                   [](const auto& a, const auto& b) { return a.importance > b.importance; });
  if (report.features.size() > kReported) report.features.resize(kReported);
  report.other_tasks = transfer_.tasks();
  report.other_samples = transfer_.samples();
  report.other_weight = transfer_.TrustAt(samples_.all().size());
  report.transfer_misleads = transfer_.misleads();
  return report;
}

std::string ModelSearch::TransferSamples() const {
  std::vector<Sample> samples = samples_.Training(kScoreLevels, *ColumnsWithout({}));
  for (Sample& sample : samples) {
    for (size_t k = 0; k < origin_.size(); ++k) sample.features[k] -= origin_[k];
  }
  return PackTransferSamples(samples);
}

std::string ModelSearch::TransferModel() const {
  if (!fitted_others_) return {};
  BlobWriter w;
  w.Unsigned(static_cast<uint64_t>(kFeatureVersion));
  w.Fixed64(HashOf(columns_));
  transfer_.Save(w);
  return Seal(kTransferMagic, kTransferVersion, std::move(w).Take());
}

absl::Status ModelSearch::BeginWith(std::string_view transfer_model) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view payload,
                          Unseal(kTransferMagic, kTransferVersion, transfer_model));
  BlobReader r(payload);
  const uint64_t features = r.Unsigned();
  if (features != static_cast<uint64_t>(kFeatureVersion) || r.Fixed64() != HashOf(columns_)) {
    return absl::DataLossError("model of others: of other features");
  }
  Transfer transfer(method_.others, candidates().seed());
  HEDDLE_RETURN_IF_ERROR(transfer.Load(r));
  if (!r.AtEnd()) return absl::DataLossError("model of others: malformed");
  transfer.ForgetValidation();
  transfer_ = std::move(transfer);
  fitted_others_ = false;
  return absl::OkStatus();
}

absl::Status ModelSearch::LearnFrom(SamplePages* pages, const std::string& folder) {
  const ModelSpec& spec = method_.others;
  if (spec.kind != ModelKind::kTrees || spec.objective != Objective::kRank || spec.members != 1)
    return Search::LearnFrom(pages, folder);
  Transfer transfer(spec, candidates().seed());
  PagedSamples samples(pages, columns_);
  HEDDLE_RETURN_IF_ERROR(transfer.Learn(&samples, folder));
  transfer_ = std::move(transfer);
  fitted_others_ = true;
  return absl::OkStatus();
}

void ModelSearch::SaveOwn(BlobWriter& w) const {
  w.Unsigned(columns_.size());
  w.Fixed64(HashOf(columns_));
  w.Bytes(model_->Serialize());
  samples_.Save(w);
  pending_.Save(w);
  transfer_.Save(w);
  w.Unsigned(chains_.size());
  for (const Point& p : chains_) SavePoint(p, w);
}

absl::Status ModelSearch::LoadOwn(BlobReader& r, uint64_t seed) {
  // Models that were fitted to other features are dropped. The next Propose fits one to the
  // samples.
  const size_t saved_columns = r.Unsigned();
  if (saved_columns > FeatureTable().size()) return absl::DataLossError("search state: malformed");
  const bool same_columns = r.Fixed64() == HashOf(columns_);
  const std::string_view bytes = r.Bytes();
  std::unique_ptr<Model> model = MakeModel(method_.model, seed);
  if (same_columns) {
    HEDDLE_ASSIGN_OR_RETURN(model, ParseModel(bytes, method_.model, seed));
  }
  SampleSet samples;
  HEDDLE_RETURN_IF_ERROR(samples.Load(r));
  PendingPoints pending = PendingPoints::Load(r);
  Transfer transfer(method_.others, seed);
  HEDDLE_RETURN_IF_ERROR(transfer.Load(r));
  if (!same_columns) transfer = Transfer(method_.others, seed);
  std::vector<Point> chains;
  for (size_t n = r.Count(); n > 0 && r.ok(); --n) chains.push_back(LoadPoint(r));
  if (!r.AtEnd()) return absl::DataLossError("search state: malformed");
  // Expanding and mutating rely on points of this space.
  const schedule::Space& space = candidates().space();
  bool own_space = pending.AllIn(space);
  for (const Point& p : chains) own_space &= InSpace(space, p);
  for (const Measured& m : samples.all()) own_space &= m.point.empty() || InSpace(space, m.point);
  if (!own_space) return absl::DataLossError("search state: made for another search space");
  model_ = std::move(model);
  samples_ = std::move(samples);
  pending_ = std::move(pending);
  transfer_ = std::move(transfer);
  fitted_others_ = false;
  chains_ = std::move(chains);
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Search> MakeModelSearch(Task task, const Method& method, uint64_t seed) {
  return std::make_unique<ModelSearch>(std::move(task), method, seed);
}

}  // namespace heddle::cost_model
