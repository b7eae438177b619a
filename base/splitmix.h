// The splitmix64 generator: any seed gives a good sequence, and it is the same on every machine.
#pragma once

#include <cstdint>

namespace heddle {

// The number that follows state `x`; the state after it is x + kSplitMixStep.
inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15;
inline uint64_t SplitMix64(uint64_t x) {
  x += kSplitMixStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    const uint64_t number = SplitMix64(state_);
    state_ += kSplitMixStep;
    return number;
  }
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }  // in [0, 1)

 private:
  uint64_t state_;
};

}  // namespace heddle
