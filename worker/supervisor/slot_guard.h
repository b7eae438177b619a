// What a worker remembers of its device slots across stages: the usual time of the canary, and
// whether a slot can be trusted. A slot that cannot is in quarantine: the tracker is told, and does
// not lease it until a canary passes.
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
#include "worker/child/guard.h"

namespace heddle::worker {

struct SlotGuardOptions {
  // false: nothing is repeated or quarantined, but evidence is still recorded. Only for showing
  // what the guard gains.
  bool on = true;
  // Quarantine after this many measurements in a row that stayed disturbed, over at least this
  // time. Each was made up to kMaxTimes times, so the search is getting noise. Shorter disturbances
  // pass by themselves.
  int disturbed_in_a_row = 20;
  absl::Duration disturbed_for = absl::Seconds(30);
  // Quarantine if the canary is this much slower or faster than when the worker began. No frequency
  // step, throttling or neighbour does that, but a broken clock or a stopped host does.
  double canary_off = 3;
  // A slot that others keep busy rests this long, and twice as long each further time in a row.
  // After that a canary of usual speed suffices: measurements that are marked as disturbed are
  // better than none.
  absl::Duration first_rest = absl::Seconds(1);
  absl::Duration longest_rest = absl::Minutes(1);
  // Interval and duration of the canaries on a slot in quarantine.
  absl::Duration check_every = absl::Seconds(1);
  absl::Duration check_for = absl::Milliseconds(250);
};

class SlotGuard {
 public:
  explicit SlotGuard(const SlotGuardOptions& options = {}) : options_(options) {}

  const SlotGuardOptions& options() const { return options_; }
  // Median of the last canaries on the slot, which follows slower and faster hours of the host. 0
  // before the first.
  double CanaryUsualNs(const std::string& slot) const;

  // Takes the evidence of a measurement on the slot. It comes from a child, so implausible values
  // are ignored.
  void Observe(const std::string& slot, const v1::Evidence& evidence, absl::Time now);
  // Keeps the best machine limits seen with this many threads and fills them in: what a slot
  // reached once it can reach again, whereas a busy moment passes.
  void KeepLimits(const std::string& slot, int threads, v1::Evidence* evidence);
  // Takes a canary of a slot in quarantine, and lifts the quarantine if nothing was wrong or the
  // slot has rested.
  void Check(const std::string& slot, const Reading& before, const Reading& after);

  // Slots in quarantine, with the reason.
  std::map<std::string, std::string> Troubles() const;

 private:
  struct Limits {
    double peak_gflops = 0, memory_gbps = 0;  // see Evidence; 0: not known yet
  };
  struct Slot {
    std::deque<double> canaries_ns;  // the newest kHistory
    std::deque<double> quiet_ns;     // the first undisturbed ones, which give the reference
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
  absl::Duration RestOf(const Slot& slot) const;
  // Empty if the canary's usual time is not far from the reference.
  std::string CanaryOff(const Slot& slot) const;

  const SlotGuardOptions options_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Slot> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace heddle::worker
