#include "cost_model/model/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "cost_model/features/features.h"
#include "cost_model/search/candidate_space.h"

namespace heddle::cost_model {
namespace {

constexpr float kPerFeatureUnit = 256;  // features come in steps of 2^-8 (candidate_space.cc)
constexpr int64_t kLargestFeature = int64_t{1} << 40;  // of a feature, far more than there are
constexpr int64_t kMostLearned = int64_t{1} << 30;     // measurements of one task

bool Better(const Measured& a, const Measured& b) {
  if ((a.seconds > 0) != (b.seconds > 0)) return a.seconds > 0;
  return a.seconds < b.seconds;
}

std::vector<size_t> BestFirst(const std::vector<Measured>& samples) {
  std::vector<size_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return Better(samples[a], samples[b]); });
  return order;
}

}  // namespace

void FeatureCoder::Save(const std::vector<float>& features, BlobWriter& w) {
  for (size_t k = 0; k < last_.size(); ++k) {
    const int64_t v = std::lround(features[k] * kPerFeatureUnit);
    w.Signed(v - last_[k]);
    last_[k] = v;
  }
}

std::vector<float> FeatureCoder::Load(BlobReader& r) {
  std::vector<float> features;
  features.reserve(last_.size());
  for (int64_t& v : last_) {
    v = static_cast<int64_t>(static_cast<uint64_t>(v) + static_cast<uint64_t>(r.Signed()));
    if (v < -kLargestFeature || v > kLargestFeature) {
      r.Refuse();
      v = 0;
    }
    features.push_back(static_cast<float>(v) / kPerFeatureUnit);
  }
  return features;
}

void SampleSet::Add(Measured m) {
  ++learned_;
  for (Measured& old : samples_) {
    if (old.hash != m.hash) continue;
    if (Better(m, old)) old.seconds = m.seconds;
    return;
  }
  samples_.push_back(std::move(m));
  if (samples_.size() > kMaxBest + kMaxRecent) Trim();
}

// Drops the oldest sample that is not among the kMaxBest best.
void SampleSet::Trim() {
  std::vector<size_t> order = BestFirst(samples_);
  const auto worst = std::min_element(order.begin() + kMaxBest, order.end());
  samples_.erase(samples_.begin() + static_cast<std::ptrdiff_t>(*worst));
}

std::vector<Sample> SampleSet::Training(int levels, const std::vector<size_t>& columns) const {
  double best = 0;
  for (const Measured& m : samples_) {
    if (m.seconds > 0 && (best == 0 || m.seconds < best)) best = m.seconds;
  }
  std::vector<Sample> training;
  training.reserve(samples_.size());
  for (const Measured& m : samples_) {
    const double share = m.seconds > 0 ? best / m.seconds : 0;
    const double score = levels > 0 ? std::round(share * levels) / levels : share;
    Sample& sample = training.emplace_back();
    sample.score = static_cast<float>(score);
    sample.features = Pick(m.features, columns);
  }
  return training;
}

bool SampleSet::Rankable() const {
  return std::any_of(samples_.begin(), samples_.end(),
                     [&](const Measured& m) { return m.seconds != samples_[0].seconds; });
}

std::vector<schedule::Point> SampleSet::BestPoints(size_t n) const {
  std::vector<schedule::Point> points;
  for (size_t i : BestFirst(samples_)) {
    if (points.size() >= n || samples_[i].seconds <= 0) break;
    if (!samples_[i].point.empty()) points.push_back(samples_[i].point);
  }
  return points;
}

void SampleSet::Save(BlobWriter& w) const {
  w.Unsigned(static_cast<uint64_t>(learned_));
  w.Unsigned(samples_.size());
  FeatureCoder coder(FeatureTable().size());
  for (const Measured& m : samples_) {
    w.Fixed64(m.hash);
    w.Double(m.seconds);
    SavePoint(m.point, w);
    coder.Save(m.features, w);
  }
}

absl::Status SampleSet::Load(BlobReader& r) {
  const auto learned = static_cast<int64_t>(r.Unsigned());
  const size_t count = r.Count();
  if (count > kMaxBest + kMaxRecent || learned < 0 || learned > kMostLearned)
    return absl::DataLossError("search state: too many samples");
  std::vector<Measured> samples(count);
  FeatureCoder coder(FeatureTable().size());
  for (Measured& m : samples) {
    if (!r.ok()) break;
    m.hash = r.Fixed64();
    m.seconds = r.Double();
    m.point = LoadPoint(r);
    m.features = coder.Load(r);
    if (!std::isfinite(m.seconds) || m.seconds < 0) r.Refuse();
  }
  if (!r.ok()) return absl::DataLossError("search state: malformed samples");
  samples_ = std::move(samples);
  learned_ = learned;
  return absl::OkStatus();
}

}  // namespace heddle::cost_model
