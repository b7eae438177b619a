// Receives features. One code path emits names and values, so the table cannot disagree with the
// vector.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cost_model/features/features.h"

namespace heddle::cost_model {

class FeatureSink {
 public:
  explicit FeatureSink(std::vector<float>* values) : values_(values) {}
  explicit FeatureSink(std::vector<FeatureInfo>* table) : table_(table) {}

  void Begin(std::string_view group, std::string_view prefix) {
    group_ = group;
    prefix_ = prefix;
  }

  // A number of the given unit, kept as log2(1 + v).
  void Magnitude(std::string_view name, std::string_view unit, std::string_view meaning, double v) {
    if (values_ != nullptr) {
      values_->push_back(static_cast<float>(std::log2(1 + std::max(0.0, v))));
    } else {
      Describe(name, "log2(1 + " + std::string(unit) + ")", meaning);
    }
  }
  // A share in [0, 1] or a small code, kept as it is.
  void Plain(std::string_view name, std::string_view unit, std::string_view meaning, double v) {
    if (values_ != nullptr) {
      values_->push_back(static_cast<float>(v));
    } else {
      Describe(name, std::string(unit), meaning);
    }
  }

 private:
  void Describe(std::string_view name, std::string unit, std::string_view meaning) {
    table_->push_back({prefix_ + std::string(name), group_, std::move(unit), std::string(meaning)});
  }

  std::vector<float>* values_ = nullptr;
  std::vector<FeatureInfo>* table_ = nullptr;
  std::string group_, prefix_;
};

}  // namespace heddle::cost_model
