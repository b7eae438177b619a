// Predicts a value from others that are of the same classes.
//
// The classes of a value contain each other, from the most general one on. The mean of a class is drawn
// towards the mean of the class that contains it, the more the fewer values the class has (partial
// pooling; Gelman and Hill, "Data Analysis Using Regression and Multilevel/Hierarchical Models", 2007,
// chapter 12). How much it is drawn is what predicts the known values best when each is left out in turn.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace heddle::plan {

class PooledMeans {
 public:
  using Classes = std::vector<std::string>;  // names, from the most general class on

  void Add(const Classes& classes, double value);
  // Chooses how much the means are drawn. Returns for each value, in the order in which they were added,
  // how far it is from its prediction by all others. Values that were added later change the means only.
  // Fewer than kFewest values choose nothing.
  std::vector<double> Fit();
  // The mean of the most special known class; 0 where none is known. `without`, if not null, is a value of
  // these classes that is left out.
  double Of(const Classes& classes, const double* without = nullptr) const;
  size_t size() const { return values_.size(); }

  static constexpr size_t kFewest = 3;

 private:
  struct Mean {
    double sum = 0;
    int count = 0;
  };
  struct Value {
    std::vector<size_t> classes;  // indices of means_
    double value;
  };
  double MeanOf(const std::vector<size_t>& classes, const double* without) const;

  std::map<std::string, size_t> index_;  // of means_, by class
  std::vector<Mean> means_;
  std::vector<Value> values_;
  double weight_ = 1;  // of the containing class, in values
};

}  // namespace heddle::plan
