#include "cost_model/model/attention_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "cost_model/blob.h"
#include "cost_model/features/features.h"
#include "cost_model/model/attention_network.h"

namespace heddle::cost_model {
namespace {

constexpr std::string_view kAttentionMagic = "HDLATTEN";
constexpr uint32_t kAttentionVersion = 1;
constexpr size_t kPairs = 32;   // pairs, or samples in a regression, of one step
constexpr float kRate = 4e-3f;  // learning rate of the first step
constexpr float kLeastDeviation = 0.05f;
// Even with few samples, because the first steps only find the scale.
constexpr size_t kLeastSteps = 200;
constexpr size_t kMostSteps = 6000;

class AttentionModel final : public Model {
 public:
  AttentionModel(const ModelSpec& spec, uint64_t seed) : spec_(spec), seed_(seed) {}

  absl::Status Fit(std::span<const Sample> samples) override {
    if (samples.empty()) return absl::InvalidArgumentError("no samples to fit");
    const size_t columns = samples[0].features.size();
    for (const Sample& s : samples) {
      if (s.features.size() != columns || columns == 0) {
        return absl::InvalidArgumentError("samples have different numbers of features");
      }
    }
    Arrange(columns);
    Standardise(samples);
    std::vector<std::vector<float>> inputs;
    for (const Sample& s : samples) inputs.push_back(Input(s.features));
    network_ = std::make_unique<AttentionNetwork>(NetworkShape());
    std::mt19937_64 rng(seed_);
    network_->Draw(rng);
    Train(samples, inputs, rng);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Estimate>> Predict(
      std::span<const std::vector<float>> features) const override {
    std::vector<Estimate> estimates(features.size());
    if (!trained()) return estimates;
    AttentionNetwork::Pass pass;
    for (size_t i = 0; i < features.size(); ++i) {
      if (features[i].size() != mean_.size()) {
        return absl::InvalidArgumentError("the model was fitted to another number of features");
      }
      network_->Forward(Input(features[i]).data(), pass);
      estimates[i].score = pass.score;
    }
    return estimates;
  }

  bool trained() const override { return network_ != nullptr; }
  // The importance of a feature is the effect of one standard deviation, according to the weights
  // of the first layer.
  std::vector<double> Importance() const override {
    if (!trained()) return {};
    const AttentionNetwork::Shape shape = NetworkShape();
    constexpr size_t kHidden = AttentionNetwork::kHidden, kToken = AttentionNetwork::kToken;
    const std::vector<float>& p = network_->parameters();
    std::vector<double> importance(mean_.size());
    double sum = 0;
    for (size_t i = 0; i < order_.size(); ++i) {
      double squares = 0;
      if (i < shape.rest) {
        for (size_t h = 0; h < kHidden; ++h) {
          const float weight = p[shape.wg + h * shape.rest + i];
          squares += static_cast<double>(weight) * weight;
        }
      } else {
        for (size_t h = 0; h < kToken; ++h) {
          const float weight = p[shape.wt + h * shape.each + (i - shape.rest) % shape.each];
          squares += static_cast<double>(weight) * weight;
        }
      }
      // A constant feature has no information.
      importance[order_[i]] = deviation_[order_[i]] > kLeastDeviation ? squares : 0;
      sum += importance[order_[i]];
    }
    for (double& v : importance) v = sum > 0 ? v / sum : 0;
    return importance;
  }

  std::string Serialize() const override {
    BlobWriter w;
    w.Unsigned(static_cast<uint64_t>(kFeatureVersion));
    w.Unsigned(trained());
    w.Unsigned(mean_.size());
    for (const float v : mean_) w.Float(v);
    for (const float v : deviation_) w.Float(v);
    if (trained()) {
      for (const float v : network_->parameters()) w.Float(v);
    }
    return Seal(kAttentionMagic, kAttentionVersion, std::move(w).Take());
  }

  absl::Status Load(std::string_view bytes) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string_view payload,
                            Unseal(kAttentionMagic, kAttentionVersion, bytes));
    BlobReader r(payload);
    const bool current = r.Unsigned() == static_cast<uint64_t>(kFeatureVersion);
    const bool trained = r.Unsigned() != 0;
    const size_t columns = r.Count();
    if (!r.ok() || !current) return absl::DataLossError("model blob: of other features");
    mean_.assign(columns, 0);
    deviation_.assign(columns, 1);
    for (float& v : mean_) v = r.Float();
    for (float& v : deviation_) v = r.Float();
    Arrange(columns);
    network_ = nullptr;
    if (trained) {
      network_ = std::make_unique<AttentionNetwork>(NetworkShape());
      for (float& v : network_->parameters()) v = r.Float();
    }
    if (!r.AtEnd()) return absl::DataLossError("model blob: malformed");
    return absl::OkStatus();
  }

 private:
  // The internal order of features: those outside tokens, then token by token. Tokens with missing
  // features are left out.
  void Arrange(size_t columns) {
    std::set<size_t> taken;
    tokens_ = 0;
    each_ = spec_.tokens.empty() ? 0 : spec_.tokens[0].size();
    order_.clear();
    std::vector<size_t> of_tokens;
    for (const std::vector<size_t>& token : spec_.tokens) {
      const bool fits = token.size() == each_ && std::all_of(token.begin(), token.end(),
                                                             [&](size_t c) { return c < columns; });
      if (!fits) continue;
      ++tokens_;
      of_tokens.insert(of_tokens.end(), token.begin(), token.end());
      taken.insert(token.begin(), token.end());
    }
    for (size_t c = 0; c < columns; ++c) {
      if (!taken.contains(c)) order_.push_back(c);
    }
    rest_ = order_.size();
    order_.insert(order_.end(), of_tokens.begin(), of_tokens.end());
  }

  AttentionNetwork::Shape NetworkShape() const { return {rest_, tokens_, each_}; }

  void Standardise(std::span<const Sample> samples) {
    const size_t columns = samples[0].features.size();
    const auto n = static_cast<double>(samples.size());
    std::vector<double> sum(columns), squares(columns);
    for (const Sample& s : samples) {
      for (size_t c = 0; c < columns; ++c) {
        sum[c] += s.features[c];
        squares[c] += static_cast<double>(s.features[c]) * s.features[c];
      }
    }
    mean_.resize(columns);
    deviation_.resize(columns);
    for (size_t c = 0; c < columns; ++c) {
      const double mean = sum[c] / n;
      mean_[c] = static_cast<float>(mean);
      deviation_[c] =
          std::max(kLeastDeviation,
                   static_cast<float>(std::sqrt(std::max(0.0, squares[c] / n - mean * mean))));
    }
  }

  std::vector<float> Input(const std::vector<float>& features) const {
    // Standard deviations at which features are clipped to the range that was learned.
    constexpr float kFar = 4;
    std::vector<float> input;
    input.reserve(order_.size());
    for (const size_t c : order_) {
      input.push_back(std::clamp((features[c] - mean_[c]) / deviation_[c], -kFar, kFar));
    }
    return input;
  }

  void Train(std::span<const Sample> samples, const std::vector<std::vector<float>>& inputs,
             std::mt19937_64& rng) {
    std::map<int, std::vector<size_t>> groups;
    for (size_t i = 0; i < samples.size(); ++i) groups[samples[i].group].push_back(i);
    const size_t steps = std::clamp(samples.size() * static_cast<size_t>(spec_.rounds) / kPairs,
                                    kLeastSteps, kMostSteps);
    std::vector<size_t> order(samples.size());
    std::iota(order.begin(), order.end(), 0);
    size_t next = order.size();
    Adam adam(network_->parameters().size());
    std::vector<float> gradient(network_->parameters().size());
    AttentionNetwork::Pass one, two;
    for (size_t step = 0; step < steps; ++step) {
      std::fill(gradient.begin(), gradient.end(), 0.0f);
      for (size_t k = 0; k < kPairs; ++k) {
        if (next == order.size()) {
          for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng() % i]);
          next = 0;
        }
        const size_t i = order[next++];
        const Sample& s = samples[i];
        const float share = s.weight / kPairs;
        network_->Forward(inputs[i].data(), one);
        if (spec_.objective == Objective::kRegression) {
          const float error = one.score + s.prior - s.score;
          network_->Backward(inputs[i].data(), one, share * error, gradient);
          continue;
        }
        const std::vector<size_t>& group = groups[s.group];
        const size_t j = group[rng() % group.size()];
        const Sample& t = samples[j];
        if (t.score == s.score) continue;
        network_->Forward(inputs[j].data(), two);
        const float sign = s.score > t.score ? 1.0f : -1.0f;
        const float d = sign * (one.score + s.prior - two.score - t.prior);
        const float slope = -sign * share / (1 + std::exp(d));
        network_->Backward(inputs[i].data(), one, slope, gradient);
        network_->Backward(inputs[j].data(), two, -slope, gradient);
      }
      const float rate = kRate * (1 - static_cast<float>(step) / static_cast<float>(steps));
      adam.Step(rate, gradient, network_->parameters());
    }
  }

  const ModelSpec spec_;
  const uint64_t seed_;
  std::vector<float> mean_, deviation_;  // of the features that it was fitted to
  std::vector<size_t> order_;
  size_t rest_ = 0, tokens_ = 0, each_ = 0;
  std::unique_ptr<AttentionNetwork> network_;  // null before the first Fit
};

}  // namespace

std::unique_ptr<Model> MakeAttentionModel(const ModelSpec& spec, uint64_t seed) {
  return std::make_unique<AttentionModel>(spec, seed);
}

absl::StatusOr<std::unique_ptr<Model>> ParseAttentionModel(std::string_view bytes,
                                                           const ModelSpec& spec, uint64_t seed) {
  auto model = std::make_unique<AttentionModel>(spec, seed);
  HEDDLE_RETURN_IF_ERROR(model->Load(bytes));
  return model;
}

}  // namespace heddle::cost_model
