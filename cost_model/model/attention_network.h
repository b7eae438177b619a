// The network of attention_model.h: parameters, forward pass and backward pass.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace heddle::cost_model {

class AttentionNetwork {
 public:
  static constexpr size_t kHidden = 32;
  static constexpr size_t kToken = 16;  // width of a token's embedding

  // Offsets of the parameters, which lie one after another. They depend on the numbers of features.
  struct Shape {
    // The numbers of features outside tokens, of tokens, and of features of each token.
    size_t rest = 0;
    size_t tokens = 0;
    size_t each = 0;
    size_t wg = 0, bg = 0, wt = 0, place = 0, wq = 0, bq = 0, wh = 0, bh = 0, w = 0, v = 0;
    size_t size = 0;
    Shape(size_t rest, size_t tokens, size_t each);
    size_t inputs() const { return rest + tokens * each; }
  };

  // The activations of a forward pass, kept for the backward pass.
  struct Pass {
    std::vector<float> g, e, a, q, joined, h;  // joined: g and the pooled tokens
    float score = 0;
  };

  // All parameters are zero.
  explicit AttentionNetwork(const Shape& shape) : s_(shape), p_(shape.size) {}

  std::vector<float>& parameters() { return p_; }
  const std::vector<float>& parameters() const { return p_; }
  void Draw(std::mt19937_64& rng);

  // x: the features outside tokens, then those of each token.
  void Forward(const float* x, Pass& pass) const;
  // Adds the gradient of slope * score to `gradient`. `pass` must be the forward pass of x.
  void Backward(const float* x, const Pass& pass, float slope, std::vector<float>& gradient) const;

 private:
  Shape s_;
  std::vector<float> p_;
};

// Adam with its usual constants and weight decay.
class Adam {
 public:
  explicit Adam(size_t n) : mean_(n), square_(n) {}
  void Step(float rate, const std::vector<float>& gradient, std::vector<float>& p);

 private:
  std::vector<float> mean_, square_;
  float fade_mean_ = 1, fade_square_ = 1;
};

}  // namespace heddle::cost_model
