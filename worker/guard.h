// Watches the slot's cores while they measure: whose time it was, and how fast the cores were. What
// was disturbed is measured again.
//
// Two kinds of evidence, each blind where the other sees. /proc/stat tells whose the cores' time
// was, in ticks of 10 ms; involuntary switches tell the same without ticks. The canary, a small
// fixed kernel before and after, tells how fast a core is while it is ours: a busy hyperthread
// sibling, a lowered clock, a neighbour in the caches.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/common.pb.h"

namespace heddle::worker {

// Shares of the cores' time beyond which samples are not trusted. A quiet host stays below 1 % of
// either; 5 % taken evenly moves a median by as much, more than candidates close to the best differ
// by.
inline constexpr double kMaxStealShare = 0.05;
inline constexpr double kMaxOtherShare = 0.05;
// /proc/stat counts in ticks of 10 ms, and user and system time are each rounded down at either
// end: so much per core may be rounding.
inline constexpr absl::Duration kTickSlack = absl::Milliseconds(20);
// A process that competes for a core takes turns of about 3 ms with ours, 150 switches a second;
// what a quiet host does in the background makes fewer than 10. Short measurements may meet a few
// of these by chance.
inline constexpr double kMaxSwitchesPerSecond = 40;
inline constexpr int64_t kSwitchSlack = 3;
// Canary times over the usual one. Undisturbed, they scatter by 5 to 10 %; a busy hyperthread
// sibling makes 1.5 and more; a clock that lies makes less than 1.
inline constexpr double kCanarySlow = 1.25;
inline constexpr double kCanaryFast = 0.8;
// A disturbed measurement is made up to this often; three in a row that are all hit by passing
// disturbances are rare, and against lasting ones no number helps.
inline constexpr int kMaxTimes = 3;
// Before the next time the guard looks this long at a time whether the disturbance lasts, and gives
// up waiting after so many looks: half a second outlasts a compiler's child or a cron job's start.
inline constexpr absl::Duration kGlance = absl::Milliseconds(50);
inline constexpr int kMaxGlances = 10;

// Summed over some cores since the host's start.
struct CoreTimes {
  absl::Duration busy;  // whoever ran
  absl::Duration steal;
};
// From the text of /proc/stat. NotFound names a core without a line; InvalidArgument: the line is
// malformed.
absl::StatusOr<CoreTimes> ParseCoreTimes(absl::string_view stat, const std::vector<int>& cores);

// One look at the cores.
struct Reading {
  absl::Time at;  // monotonic
  int cores = 1;
  CoreTimes times;       // zero where the host does not tell
  absl::Duration own;    // CPU time of this process, of all its threads
  int64_t switches = 0;  // involuntary ones of this process
  double canary_ns = 0;
};
// Runs the canary on the first of the cores, 1 to 2 ms. The calling thread must be allowed there.
Reading TakeReading(const std::vector<int>& cores);
// The canary alone, on whichever core the thread is: the median of three rounds.
double RunCanary();

// What happened between two readings.
struct Quietness {
  double steal_share = 0;
  double other_share = 0;
  int64_t switches = 0;
  double canary_before = 0;  // over the usual time; 0 where that is not known
  double canary_after = 0;
  std::string disturbance;  // one line; empty: nothing
  double badness = 0;       // to choose the quietest among disturbed ones by; 0 is best
};
Quietness Judge(const Reading& before, const Reading& after, double canary_usual_ns);

struct GuardOptions {
  double canary_usual_ns = 0;
  bool repeat = true;        // what was disturbed
  absl::Time repeat_before;  // no repetition that would end later, judged by the last one
  // The measurement before stayed disturbed: look only once whether that lasts, and if so, repeat
  // nothing. Else lasting disturbance would cost each candidate all of the above.
  bool resigned = false;
  std::function<Reading()> read;
  std::function<void(absl::Duration)> sleep;
};
struct GuardedRun {
  Quietness quietness;  // of the run that is kept
  int times = 0;
  int kept = 0;  // 0: the first
};
// Calls `measure` once, and again while it was disturbed, within the limits above. `measure`
// returns false if another run can tell nothing new; that run is kept.
GuardedRun RunGuarded(const GuardOptions& options, const std::function<bool()>& measure);

// The fields of the evidence that this file knows of.
void Describe(const GuardedRun& run, double canary_usual_ns, v1::Evidence* evidence);

}  // namespace heddle::worker
