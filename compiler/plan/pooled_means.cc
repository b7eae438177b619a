#include "compiler/plan/pooled_means.h"

#include <cmath>

namespace heddle::plan {
namespace {

constexpr double kWeights[] = {0.25, 0.5, 1, 2, 4, 8};

}  // namespace

void PooledMeans::Add(const Classes& classes, double value) {
  Value& added = values_.emplace_back();
  added.value = value;
  for (const std::string& name : classes) {
    const size_t index = index_.emplace(name, means_.size()).first->second;
    if (index == means_.size()) means_.emplace_back();
    means_[index].sum += value;
    ++means_[index].count;
    added.classes.push_back(index);
  }
}

double PooledMeans::MeanOf(const std::vector<size_t>& classes, const double* without) const {
  double result = 0;
  bool general = true;
  for (const size_t index : classes) {
    Mean mean = means_[index];
    if (without != nullptr) {
      mean.sum -= *without;
      --mean.count;
    }
    if (mean.count == 0) break;
    result =
        general ? mean.sum / mean.count : (mean.sum + weight_ * result) / (mean.count + weight_);
    general = false;
  }
  return result;
}

double PooledMeans::Of(const Classes& classes, const double* without) const {
  std::vector<size_t> known;
  for (const std::string& name : classes) {
    const auto found = index_.find(name);
    if (found == index_.end()) break;
    known.push_back(found->second);
  }
  return MeanOf(known, without);
}

std::vector<double> PooledMeans::Fit() {
  std::vector<double> best;
  double least = 0, chosen = weight_;
  const auto look = [&] {
    std::vector<double> errors;
    double squares = 0;
    for (const Value& known : values_) {
      errors.push_back(std::abs(MeanOf(known.classes, &known.value) - known.value));
      squares += errors.back() * errors.back();
    }
    if (!best.empty() && squares >= least) return;
    least = squares;
    best = std::move(errors);
    chosen = weight_;
  };
  if (values_.size() < kFewest) {
    look();
    return best;
  }
  for (const double weight : kWeights) {
    weight_ = weight;
    look();
  }
  weight_ = chosen;
  return best;
}

}  // namespace heddle::plan
