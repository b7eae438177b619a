// What a worker remembers of its device slots over stages: the canary's usual time, and whether a
// slot can be trusted. A slot that cannot is in quarantine: the tracker is told, and leases it to
// nobody until a canary passes.
//
// Thread-safe; time is an argument.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/common.pb.h"
#include "worker/guard.h"

namespace heddle::worker {

struct SlotGuardOptions {
  // false: nothing is repeated or put in quarantine, evidence is taken all the same. Only to show
  // what the guard is good for.
  bool on = true;
  // So many measurements in a row that stayed disturbed, over so long: each was made up to
  // kMaxTimes, so the search is being fed noise. Shorter disturbances pass by themselves.
  int disturbed_in_a_row = 20;
  absl::Duration disturbed_for = absl::Seconds(30);
  // The canary this much slower or faster than when the worker began: no frequency step, throttling
  // or neighbour does that; a broken clock or a stopped host does.
  double canary_off = 3;
  // A slot that others keep busy rests so long, twice as long each time in a row; after that a
  // canary of the usual speed is enough. Measurements that say that they were disturbed are better
  // than none at all.
  absl::Duration first_rest = absl::Seconds(1);
  absl::Duration longest_rest = absl::Minutes(1);
  // How often a canary is tried on a slot in quarantine, and how long it looks.
  absl::Duration check_every = absl::Seconds(1);
  absl::Duration check_for = absl::Milliseconds(250);
};

class SlotGuard {
 public:
  explicit SlotGuard(const SlotGuardOptions& options = {}) : options_(options) {}

  const SlotGuardOptions& options() const { return options_; }
  // Median of the last canaries on the slot: it follows the host's slower and faster hours. 0
  // before the first.
  double CanaryUsualNs(const std::string& slot) const;

  // What came with a measurement on the slot. Believed only as far as it makes sense: a child said
  // it.
  void Observe(const std::string& slot, const v1::Evidence& evidence, absl::Time now);
  // Remembers the best of the limits that came with measurements with so many threads, and fills
  // them in: a slot can do what it did once, and a busy moment does not stay.
  void KeepLimits(const std::string& slot, int threads, v1::Evidence* evidence);
  // A canary on a slot in quarantine; lifts it if nothing was wrong, or the slot has rested.
  void Check(const std::string& slot, const Reading& before, const Reading& after);

  // Slots in quarantine, with the reason.
  std::map<std::string, std::string> Troubles() const;

 private:
  struct Limits {
    double peak_gflops = 0, memory_gbps = 0;  // see Evidence; 0: not known yet
  };
  struct Slot {
    std::deque<double> canaries_ns;  // the newest kHistory
    std::deque<double> quiet_ns;     // the first that nothing disturbed: they make the reference
    std::map<int, Limits> limits;    // by threads
    double reference_ns = 0;         // the usual time when the worker began; 0: not known yet
    int disturbed = 0;               // measurements in a row
    absl::Time disturbed_since;
    std::string trouble;  // empty: none
    absl::Time troubled_since;
    int rests = 0;  // quarantines since the last measurement that was not disturbed
  };
  void AddCanary(Slot& slot, double ns);
  static double Usual(const Slot& slot);
  static double Median(const std::deque<double>& times);  // 0 of none
  absl::Duration RestOf(const Slot& slot) const;
  // Empty if the canary's usual time is not far from the reference.
  std::string CanaryOff(const Slot& slot) const;

  const SlotGuardOptions options_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Slot> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace heddle::worker
