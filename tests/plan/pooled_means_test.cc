// Means of nested classes, against a direct computation.
#include "compiler/plan/pooled_means.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"

namespace heddle::plan {
namespace {

struct Value {
  PooledMeans::Classes classes;
  double value;
};

// By the definition: the mean of each class, drawn towards that of the class before it.
double Direct(const std::vector<Value>& values, const PooledMeans::Classes& classes, double weight,
              size_t without) {
  double result = 0;
  for (size_t level = 0; level < classes.size(); ++level) {
    double sum = 0;
    int count = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i == without || values[i].classes[level] != classes[level]) continue;
      sum += values[i].value;
      ++count;
    }
    if (count == 0) break;
    result = level == 0 ? sum / count : (sum + weight * result) / (count + weight);
  }
  return result;
}

std::vector<Value> RandomValues(std::mt19937* random, int count) {
  std::vector<Value> values;
  for (int i = 0; i < count; ++i) {
    Value& made = values.emplace_back();
    std::string name;
    for (int level = 0; level < 4; ++level) {
      if (level > 0) absl::StrAppend(&name, " ", (*random)() % 3);
      made.classes.push_back(name);
    }
    made.value = std::uniform_real_distribution<double>(-2, 2)(*random);
  }
  return values;
}

constexpr size_t kNone = std::numeric_limits<size_t>::max();

TEST(PooledMeans, AreWhatTheirDefinitionSays) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const std::vector<Value> values = RandomValues(&random, static_cast<int>(random() % 40));
    PooledMeans means;
    for (const Value& value : values) means.Add(value.classes, value.value);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(means.Of(values[i].classes, &values[i].value),
                  Direct(values, values[i].classes, 1, i), 1e-9);
    }
    for (const Value& other : RandomValues(&random, 10))
      EXPECT_NEAR(means.Of(other.classes), Direct(values, other.classes, 1, kNone), 1e-9) << seed;
  }
}

TEST(PooledMeans, AreDrawnSoThatWhatIsLeftOutIsPredictedBest) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const std::vector<Value> values = RandomValues(&random, 3 + static_cast<int>(random() % 40));
    PooledMeans means;
    for (const Value& value : values) means.Add(value.classes, value.value);
    const std::vector<double> errors = means.Fit();
    ASSERT_EQ(errors.size(), values.size());
    double squares = 0, least = std::numeric_limits<double>::infinity(), chosen = 0;
    for (const double error : errors) squares += error * error;
    for (const double weight : {0.25, 0.5, 1.0, 2.0, 4.0, 8.0}) {
      double sum = 0;
      for (size_t i = 0; i < values.size(); ++i)
        sum += std::pow(Direct(values, values[i].classes, weight, i) - values[i].value, 2);
      if (sum < least) chosen = weight;
      least = std::min(least, sum);
    }
    EXPECT_NEAR(squares, least, 1e-9) << seed;
    for (const Value& other : RandomValues(&random, 10))
      EXPECT_NEAR(means.Of(other.classes), Direct(values, other.classes, chosen, kNone), 1e-9);
  }
}

TEST(PooledMeans, OfNothingAreZero) {
  PooledMeans means;
  EXPECT_EQ(means.Of({"", "a"}), 0);
  EXPECT_TRUE(means.Fit().empty());
  means.Add({"", "a"}, 3);
  EXPECT_EQ(means.Of({"", "b"}), 3);
  const double value = 3;
  EXPECT_EQ(means.Of({"", "a"}, &value), 0);
}

}  // namespace
}  // namespace heddle::plan
