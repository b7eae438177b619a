// What makes a record a record.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/vocabulary/workload_key.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

TEST(RecordTest, CheckNamesTheField) {
  v1::Record good;
  good.set_schema_version(1);
  good.set_workload("workload");
  good.set_workload_key(WorkloadKey(good.workload()));
  good.set_target("llvm -mcpu=x");
  good.set_device_key("dev");
  good.set_trace("trace");
  good.set_created_unix_ns(1000);
  good.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
  good.mutable_measurement()->add_samples_ns(100);
  EXPECT_TRUE(CheckRecord(good).ok());
  v1::Record bad = good;
  bad.clear_device_key();
  EXPECT_THAT(std::string(CheckRecord(bad).message()), HasSubstr("device_key"));
  bad = good;
  bad.mutable_measurement()->add_samples_ns(-1);
  EXPECT_THAT(std::string(CheckRecord(bad).message()), HasSubstr("measurement.samples_ns[1]"));
  bad = good;
  bad.set_median_ns(101);
  EXPECT_THAT(std::string(CheckRecord(bad).message()), HasSubstr("that of samples_ns is 100"));
  bad.set_median_ns(100);
  EXPECT_TRUE(CheckRecord(bad).ok());
  bad = good;
  bad.set_schema_version(2);
  EXPECT_THAT(std::string(CheckRecord(bad).message()), HasSubstr("schema_version"));
  bad = good;
  bad.set_workload("another workload");
  EXPECT_THAT(std::string(CheckRecord(bad).message()), HasSubstr("workload_key"));
}

TEST(RecordTest, Names) {
  EXPECT_EQ(ParseJobName(JobName(12)), 12);
  for (const char* name : {"", "j", "12", "j0", "j-1", "j1x"})
    EXPECT_EQ(ParseJobName(name), 0) << name;
}

}  // namespace
}  // namespace heddle::scheduler
