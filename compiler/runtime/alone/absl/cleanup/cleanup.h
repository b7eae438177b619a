// The part of Abseil's Cleanup that the runtime uses; see README.md of compiler/runtime/alone.
#pragma once

#include <utility>

namespace absl {
inline namespace heddle_alone {

// Calls `then` at the end of its scope.
template <typename Then>
class [[nodiscard]] Cleanup {
 public:
  Cleanup(Then then) : then_(std::move(then)) {}
  ~Cleanup() { then_(); }
  Cleanup(const Cleanup&) = delete;
  Cleanup& operator=(const Cleanup&) = delete;

 private:
  Then then_;
};

}  // namespace heddle_alone
}  // namespace absl
