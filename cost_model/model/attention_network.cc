#include "cost_model/model/attention_network.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace heddle::cost_model {
namespace {

constexpr float kScale = 0.25f;  // 1 / sqrt(kToken)
constexpr float kDecay = 1e-3f;  // weight decay, times the rate

float Dot(const float* a, const float* b, size_t n) {
  // Eight separate sums, because the compiler may not reorder a single one.
  float sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (size_t k = 0; k < 8; ++k) sums[k] += a[i + k] * b[i + k];
  }
  float sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (const float s : sums) sum += s;
  return sum;
}

void AddTo(float* to, float factor, const float* from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

}  // namespace

AttentionNetwork::Shape::Shape(size_t rest, size_t tokens, size_t each)
    : rest(rest), tokens(tokens), each(each) {
  const auto take = [&](size_t n) { return std::exchange(size, size + n); };
  wg = take(kHidden * rest);
  bg = take(kHidden);
  wt = take(kToken * each);
  place = take(kToken * tokens);
  wq = take(kToken * kHidden);
  bq = take(kToken);
  wh = take(kHidden * (kHidden + kToken));
  bh = take(kHidden);
  w = take(kHidden);
  v = take(rest);
}

void AttentionNetwork::Draw(std::mt19937_64& rng) {
  const auto fill = [&](size_t at, size_t n, size_t inputs) {
    std::normal_distribution<float> normal(
        0, std::sqrt(2.0f / static_cast<float>(std::max<size_t>(inputs, 1))));
    for (size_t i = 0; i < n; ++i) p_[at + i] = normal(rng);
  };
  fill(s_.wg, kHidden * s_.rest, s_.rest);
  fill(s_.wt, kToken * s_.each, s_.each);
  fill(s_.place, kToken * s_.tokens, kToken);
  fill(s_.wq, kToken * kHidden, kHidden);
  fill(s_.wh, kHidden * (kHidden + kToken), kHidden + kToken);
  fill(s_.w, kHidden, 4 * kHidden);
}

void AttentionNetwork::Forward(const float* x, Pass& pass) const {
  const float* p = p_.data();
  pass.g.assign(kHidden, 0);
  for (size_t i = 0; i < kHidden; ++i) {
    pass.g[i] = std::max(0.0f, p[s_.bg + i] + Dot(p + s_.wg + i * s_.rest, x, s_.rest));
  }
  pass.e.assign(kToken * s_.tokens, 0);
  for (size_t k = 0; k < s_.tokens; ++k) {
    const float* t = x + s_.rest + k * s_.each;
    for (size_t i = 0; i < kToken; ++i) {
      pass.e[k * kToken + i] =
          std::max(0.0f, p[s_.place + k * kToken + i] + Dot(p + s_.wt + i * s_.each, t, s_.each));
    }
  }
  pass.q.assign(kToken, 0);
  for (size_t i = 0; i < kToken; ++i) {
    pass.q[i] = p[s_.bq + i] + Dot(p + s_.wq + i * kHidden, pass.g.data(), kHidden);
  }
  pass.a.assign(s_.tokens, 0);
  float largest = 0, sum = 0;
  for (size_t k = 0; k < s_.tokens; ++k) {
    pass.a[k] = kScale * Dot(pass.e.data() + k * kToken, pass.q.data(), kToken);
    largest = k == 0 ? pass.a[k] : std::max(largest, pass.a[k]);
  }
  for (float& a : pass.a) sum += a = std::exp(a - largest);
  pass.joined = pass.g;
  pass.joined.resize(kHidden + kToken);
  for (size_t k = 0; k < s_.tokens; ++k) {
    pass.a[k] /= sum;
    AddTo(pass.joined.data() + kHidden, pass.a[k], pass.e.data() + k * kToken, kToken);
  }
  pass.h.assign(kHidden, 0);
  for (size_t i = 0; i < kHidden; ++i) {
    pass.h[i] = std::max(0.0f, p[s_.bh + i] + Dot(p + s_.wh + i * (kHidden + kToken),
                                                  pass.joined.data(), kHidden + kToken));
  }
  pass.score = Dot(p + s_.w, pass.h.data(), kHidden) + Dot(p + s_.v, x, s_.rest);
}

void AttentionNetwork::Backward(const float* x, const Pass& pass, float slope,
                                std::vector<float>& gradient) const {
  const float* p = p_.data();
  float* d = gradient.data();
  AddTo(d + s_.w, slope, pass.h.data(), kHidden);
  AddTo(d + s_.v, slope, x, s_.rest);
  std::vector<float> joined(kHidden + kToken);
  for (size_t i = 0; i < kHidden; ++i) {
    if (pass.h[i] <= 0) continue;
    const float own = slope * p[s_.w + i];
    d[s_.bh + i] += own;
    const size_t row = s_.wh + i * (kHidden + kToken);
    AddTo(d + row, own, pass.joined.data(), kHidden + kToken);
    AddTo(joined.data(), own, p + row, kHidden + kToken);
  }
  const float* z = joined.data() + kHidden;  // gradients of the pooled tokens
  std::vector<float> weights(s_.tokens), q(kToken);
  float mean = 0;
  for (size_t k = 0; k < s_.tokens; ++k) {
    weights[k] = Dot(z, pass.e.data() + k * kToken, kToken);
    mean += pass.a[k] * weights[k];
  }
  for (size_t k = 0; k < s_.tokens; ++k) {
    const float own = kScale * pass.a[k] * (weights[k] - mean);
    const float* token = pass.e.data() + k * kToken;
    AddTo(q.data(), own, token, kToken);
    const float* t = x + s_.rest + k * s_.each;
    for (size_t i = 0; i < kToken; ++i) {
      if (token[i] <= 0) continue;
      const float through = pass.a[k] * z[i] + own * pass.q[i];
      d[s_.place + k * kToken + i] += through;
      AddTo(d + s_.wt + i * s_.each, through, t, s_.each);
    }
  }
  for (size_t i = 0; i < kToken; ++i) {
    d[s_.bq + i] += q[i];
    AddTo(d + s_.wq + i * kHidden, q[i], pass.g.data(), kHidden);
    AddTo(joined.data(), q[i], p + s_.wq + i * kHidden, kHidden);
  }
  for (size_t i = 0; i < kHidden; ++i) {
    if (pass.g[i] <= 0) continue;
    d[s_.bg + i] += joined[i];
    AddTo(d + s_.wg + i * s_.rest, joined[i], x, s_.rest);
  }
}

void Adam::Step(float rate, const std::vector<float>& gradient, std::vector<float>& p) {
  constexpr float kMean = 0.9f, kSquare = 0.999f;
  fade_mean_ *= kMean;
  fade_square_ *= kSquare;
  for (size_t i = 0; i < p.size(); ++i) {
    mean_[i] = kMean * mean_[i] + (1 - kMean) * gradient[i];
    square_[i] = kSquare * square_[i] + (1 - kSquare) * gradient[i] * gradient[i];
    const float step =
        mean_[i] / (1 - fade_mean_) / (std::sqrt(square_[i] / (1 - fade_square_)) + 1e-8f);
    p[i] -= rate * (step + kDecay * p[i]);
  }
}
}  // namespace heddle::cost_model
