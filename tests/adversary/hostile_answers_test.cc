// A tracker whose answers are no good, against a whole scheduler over its database.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/time/clock.h"
#include "proto/job_states.h"
#include "proto/tracker.pb.h"
#include "tests/adversary/hostile_service_test.h"
#include "tests/adversary/mutate.h"

namespace heddle::scheduler {
namespace {

class HostileAnswersTest : public HostileServiceTest {};

// Jobs come and go while every third answer of the tracker is mutated: leases, renewals and lists. Once the tracker behaves, a
// job is tuned as ever, and nothing in the store is what a record may not be.
TEST_F(HostileAnswersTest, MutatedAnswersOfTheTrackerLeaveTheStoreWhole) {
  const int wanted = Mutations(150);
  Mutator mutator(11);
  int mutated = 0;  // the tracker holds a lock while it mutates
  std::atomic<int> so_far{0};
  cluster_.tracker.SetMutator([&](google::protobuf::Message* answer) {
    if (mutator.Below(3) != 0) return;
    auto* lease = dynamic_cast<v1::Lease*>(answer);
    const uint64_t token = lease == nullptr ? 0 : lease->fencing_token();
    mutator.Mutate(answer);
    // Whoever holds the greatest token of all has the slot for ever; that is what tokens are for.
    if (lease != nullptr) lease->set_fencing_token(token);
    so_far = ++mutated;
  });
  const absl::Time limit = absl::Now() + kServiceLimit + absl::Milliseconds(200) * wanted;
  std::string job;
  while (so_far < wanted && absl::Now() < limit) {
    if (job.empty() || IsFinal(Get(job).state())) {
      v1::JobSpec spec = Spec(4);
      spec.set_force(true);
      job = MustSubmit(spec);
    }
    // A lease whose name was mutated cannot be given back, and a list that was mutated stays until the next one.
    for (const char* slot : {"cpu0", "profile1"}) cluster_.tracker.Revoke(slot);
    cluster_.tracker.SetWorkers(cluster_.DefaultWorkers());
    grpc::ClientContext context;
    v1::ListWorkersResponse devices;
    (void)jobs_->ListDevices(&context, {}, &devices);
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_GE(so_far.load(), wanted) << "not all mutations were made in time";
  cluster_.tracker.SetMutator(nullptr);
  for (const char* slot : {"cpu0", "profile1"}) cluster_.tracker.Revoke(slot);
  cluster_.tracker.SetWorkers(cluster_.DefaultWorkers());
  Cancel(job);
  ExpectAllIsWell();
}

}  // namespace
}  // namespace heddle::scheduler
