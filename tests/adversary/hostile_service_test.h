// The services of a scheduler whose cluster is hostile for a while.
#pragma once

#include <gtest/gtest.h>

#include "tests/adversary/store_checks.h"
#include "tests/scheduler/service/service_fixture.h"

namespace heddle::scheduler {

class HostileServiceTest : public ServiceTest {
 protected:
  void Cancel(const std::string& job) {
    v1::Job ended;
    (void)Act(&v1::JobService::Stub::CancelJob, job, &ended);
  }
  // The end of a test. The cluster behaves again: a job is tuned as ever, also after a start from what is in
  // the store, and nothing there is what a record may not be.
  void ExpectAllIsWell() {
    v1::JobSpec spec = Spec();
    spec.set_force(true);
    EXPECT_EQ(WaitFinal(MustSubmit(spec)).state(), v1::JOB_DONE);
    Stop();
    ExpectWholeStore(directory_ + "/heddle.db");
    Start();
    spec.set_force(false);
    EXPECT_EQ(WaitFinal(MustSubmit(spec)).state(), v1::JOB_DONE);
  }
};

}  // namespace heddle::scheduler
