// When a timing may end early. Internal to the runtime.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "compiler/runtime/timing.h"

namespace heddle::runtime {

// Watches whether a function is surely slower than its rival.
class Race {
 public:
  explicit Race(double rival_ns) : rival_ns_(rival_ns) {}
  void AddCall(double ns) {
    ++calls_;
    fastest_call_ = std::min(fastest_call_, ns);
  }
  void AddSample(double ns) {
    ++samples_;
    fastest_sample_ = std::min(fastest_sample_, ns);
  }
  bool lost() const {
    return rival_ns_ > 0 && ((calls_ >= kFewCalls && fastest_call_ > kFarSlower * rival_ns_) ||
                             (samples_ >= kFewSamples && fastest_sample_ > kSlower * rival_ns_));
  }

 private:
  const double rival_ns_;
  int64_t calls_ = 0, samples_ = 0;
  double fastest_call_ = std::numeric_limits<double>::infinity();
  double fastest_sample_ = std::numeric_limits<double>::infinity();
};

}  // namespace heddle::runtime
