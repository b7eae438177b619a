#include "views/noise.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

v1::Record Measured(const std::string& worker, std::vector<double> samples, int times = 1) {
  v1::Record record;
  record.set_median_ns(samples[samples.size() / 2]);
  v1::Measurement* measurement = record.mutable_measurement();
  for (const double ns : samples) measurement->add_samples_ns(ns);
  v1::Evidence* evidence = measurement->mutable_evidence();
  evidence->set_worker(worker);
  evidence->set_slot("profile0");
  evidence->set_times_measured(times);
  evidence->set_other_share(0.01);
  return record;
}

TEST(Noise, IsToldForEachSlot) {
  v1::Record imported = Measured("w1", {100, 900});
  imported.set_imported_by("ann");
  const auto noises =
      NoiseOf({Measured("w1", {99, 100, 101}), Measured("w1", {98, 100, 102}, 3),
               Measured("w1", {100, 100, 150}), Measured("w2", {10, 10}), imported, v1::Record()});
  ASSERT_EQ(noises.size(), 2u);
  const Noise& first = noises.at({"w1", "profile0"});
  EXPECT_EQ(first.trials, 3);
  EXPECT_NEAR(first.spread, 0.04, 1e-9);
  EXPECT_NEAR(first.repeated, 1.0 / 3, 1e-9);
  EXPECT_NEAR(first.other_share, 0.01, 1e-9);
  EXPECT_EQ(NoiseText(first), "4.0 %, 33 % repeated");
  EXPECT_EQ(noises.at({"w2", "profile0"}).spread, 0);
  EXPECT_EQ(NoiseText(Noise()), "-");
}

}  // namespace
}  // namespace heddle
