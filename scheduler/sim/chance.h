// Random numbers from seeds. A draw depends on what it is for, not on when it is made, so two
// policies that run the same scenario meet the same durations.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <random>

namespace heddle::sim {

// Applies the finalizer of splitmix64 to each word in turn.
inline uint64_t Mix(std::initializer_list<uint64_t> words) {
  uint64_t hash = 0;
  for (uint64_t word : words) {
    hash += word + 0x9e3779b97f4a7c15u;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    hash ^= hash >> 31;
  }
  return hash;
}

// Uniform in (0, 1).
inline double Unit(uint64_t key) { return (static_cast<double>(key >> 11) + 0.5) * 0x1.0p-53; }

// Standard normal (Box and Muller).
inline double Normal(uint64_t key) {
  return std::sqrt(-2 * std::log(Unit(key))) * std::cos(2 * std::numbers::pi * Unit(Mix({key, 1})));
}

// A sequence of random numbers, for faults that occur now and then. Unlike the functions above, it
// depends on the order of the draws.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  double Between(double low, double high) { return low + (high - low) * Unit(random_()); }
  bool Likely(double p) { return Unit(random_()) < p; }

 private:
  std::mt19937_64 random_;
};

}  // namespace heddle::sim
