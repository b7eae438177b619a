// The text that Prometheus reads.
#include "base/daemon/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

TEST(MetricsTest, ASeriesHasItsHelpItsKindAndItsValue) {
  Metrics metrics("heddle-test");
  metrics.AddCounter("heddle_a_total", "What a is.", {{"kind", "x"}}).Add(2);
  metrics.AddCounter("heddle_a_total", "What a is.", {{"kind", "y"}}).Add();
  metrics.AddGauge("heddle_b_bytes", "What b is.").Set(-1.5);
  metrics.AddHistogram("heddle_c_seconds", "What c is.", {0.1, 1}).Observe(0.5);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("# HELP heddle_a_total What a is.\n# TYPE heddle_a_total counter\n"));
  EXPECT_THAT(text, HasSubstr("heddle_a_total{kind=\"x\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("heddle_a_total{kind=\"y\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("heddle_b_bytes -1.5\n"));
  EXPECT_THAT(text, HasSubstr("heddle_c_seconds_bucket{le=\"0.1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("heddle_c_seconds_bucket{le=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("heddle_c_seconds_sum 0.5\n"));
  EXPECT_THAT(text, HasSubstr("heddle_build_info{program=\"heddle-test\",version=\""));
  EXPECT_THAT(text, HasSubstr("process_resident_memory_bytes "));
}

TEST(MetricsTest, TheSameNameAndLabelsAreTheSameSeries) {
  Metrics metrics("heddle-test");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) metrics.AddCounter("heddle_a_total", "a").Add();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(metrics.Text(), HasSubstr("heddle_a_total 4000\n"));
}

TEST(MetricsTest, ALabelFromOutsideCannotMakeALine) {
  Metrics metrics("heddle-test");
  metrics.AddGauge("heddle_a", "a", {{"pool", "x\"} 1\nheddle_b 2"}}).Set(3);
  EXPECT_THAT(metrics.Text(), HasSubstr("heddle_a{pool=\"x\\\"} 1\\nheddle_b 2\"} 3\n"));
}

TEST(MetricsTest, ATotalThatIsCountedElsewhereNeverFalls) {
  Metrics metrics("heddle-test");
  const Counter total = metrics.AddCounter("heddle_a_total", "a");
  total.RaiseTo(5);
  total.RaiseTo(3);
  EXPECT_THAT(metrics.Text(), HasSubstr("heddle_a_total 5\n"));
  total.RaiseTo(7);
  EXPECT_THAT(metrics.Text(), HasSubstr("heddle_a_total 7\n"));
}

TEST(MetricsTest, WhatIsReadIsReadForEachText) {
  Metrics metrics("heddle-test");
  int reads = 0;
  const Gauge gauge = metrics.AddGauge("heddle_reads", "reads");
  metrics.BeforeText([&] { gauge.Set(++reads); });
  EXPECT_THAT(metrics.Text(), HasSubstr("heddle_reads 1\n"));
  EXPECT_THAT(metrics.Text(), HasSubstr("heddle_reads 2\n"));
}

TEST(MetricsTest, TheLimitOfFilesIsThatOfNow) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  Metrics metrics("heddle-test");
  rlimit lower = before;
  lower.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  EXPECT_THAT(metrics.Text(), HasSubstr("process_max_fds 200\n"));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(MetricsTest, AHandleOfNothingCountsNothing) {
  Counter().Add();
  Counter().RaiseTo(1);
  Gauge().Set(1);
  Histogram().Observe(1);
}

TEST(FewNamesTest, MoreNamesThanALabelMayHaveAreOneName) {
  FewNames names;
  for (int i = 0; i < 100; ++i) names(absl::StrCat("device", i));
  EXPECT_EQ(names("device0"), "device0");
  EXPECT_EQ(names("device31"), "device31");
  EXPECT_EQ(names("device32"), "other");
  EXPECT_EQ(names("device0"), "device0") << "what was known stays known";
}

}  // namespace
}  // namespace heddle
