// The analytic estimate, on features that are made here.
#include "cost_model/roofline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "cost_model/features.h"

namespace heddle::cost_model {
namespace {

// Of magnitudes by name; shares stand as they are.
float Score(const std::map<std::string, double>& values) {
  std::vector<float> features;
  size_t found = 0;
  for (const FeatureInfo& f : FeatureTable()) {
    const auto it = values.find(f.name);
    found += it != values.end();
    const double value = it == values.end() ? 0 : it->second;
    features.push_back(
        static_cast<float>(f.name == "main.parallel_use" ? value : std::log2(1 + value)));
  }
  EXPECT_EQ(found, values.size()) << "a feature that is not there";
  return RooflineScore(features);
}

TEST(Roofline, IsTheLongestOfWhatTakesTime) {
  std::map<std::string, double> v = {{"program.instructions", 2048}};
  EXPECT_NEAR(Score(v), -10, 1e-3);
  v["program.l1_bytes"] = 32 * 512;
  EXPECT_NEAR(Score(v), -10, 1e-3) << "hidden behind the instructions";
  v["program.l1_bytes"] = 32 * 2048;
  EXPECT_NEAR(Score(v), -11, 1e-3);
  v["program.l2_bytes"] = 8 * 4096;
  EXPECT_NEAR(Score(v), -12, 1e-3);
  v["main.parallel_extent"] = 8;
  v["program.threads"] = 4;
  v["main.parallel_use"] = 0.5;
  EXPECT_NEAR(Score(v), -11, 1e-3) << "half of four threads";
}

TEST(Roofline, TooManyRegistersCost) {
  std::map<std::string, double> v = {{"program.instructions", 2048}, {"main.register_use", 1}};
  EXPECT_NEAR(Score(v), -10, 1e-3);
  v["main.register_use"] = 2;
  EXPECT_NEAR(Score(v), -12, 1e-3) << "a load and a store for each further one";
}

}  // namespace
}  // namespace heddle::cost_model
