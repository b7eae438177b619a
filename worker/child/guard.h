// Watches the slot's cores during a measurement: who used their time, and how fast they were. A
// disturbed measurement is repeated.
//
// Two kinds of evidence complement each other. /proc/stat shows who used the cores, in ticks of 10
// ms; involuntary switches show the same without ticks. The canary, a small fixed kernel run before
// and after, shows how fast a core is while we have it: it finds a busy hyperthread sibling, a
// lowered clock, or a neighbour in the caches.
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

// Samples are not trusted beyond these shares of the cores' time. A quiet host stays below 1 % of
// each. 5 % taken evenly shifts a median by as much, which is more than the difference between the
// best candidates.
inline constexpr double kMaxStealShare = 0.05;
inline constexpr double kMaxOtherShare = 0.05;
// /proc/stat counts in ticks of 10 ms, and rounds user and system time down at both ends. This much
// per core may be rounding.
inline constexpr absl::Duration kTickSlack = absl::Milliseconds(20);
// A competing process alternates with ours in slices of about 3 ms, which gives 150 switches a
// second. The background of a quiet host gives fewer than 10. Short measurements may meet a few of
// these by chance.
inline constexpr double kMaxSwitchesPerSecond = 40;
inline constexpr int64_t kSwitchSlack = 3;
// Canary times relative to the usual one. Undisturbed they vary by 5 to 10 %. A busy hyperthread
// sibling gives 1.5 and more; a wrong clock gives less than 1.
inline constexpr double kCanarySlow = 1.25;
inline constexpr double kCanaryFast = 0.8;
// Most times a measurement is made. Three short disturbances in a row are rare, and against lasting
// ones no number helps.
inline constexpr int kMaxTimes = 3;
// Before a repetition the guard watches for this long whether the disturbance lasts, at most this
// many times. Half a second outlasts a short compiler run or the start of a cron job.
inline constexpr absl::Duration kGlance = absl::Milliseconds(50);
inline constexpr int kMaxGlances = 10;

// Sums over some cores since the host started.
struct CoreTimes {
  absl::Duration busy;  // time of all processes
  absl::Duration steal;
};
// Parses the text of /proc/stat. NotFound names a core without a line. InvalidArgument if a line is
// malformed.
absl::StatusOr<CoreTimes> ParseCoreTimes(absl::string_view stat, const std::vector<int>& cores);

// One reading of the cores.
struct Reading {
  absl::Time at;  // monotonic
  int cores = 1;
  CoreTimes times;       // zero if the host does not provide them
  absl::Duration own;    // CPU time of all threads of this process
  int64_t switches = 0;  // involuntary switches of this process
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
  double canary_before = 0;  // relative to the usual time; 0 if that is unknown
  double canary_after = 0;
  std::string disturbance;  // one line; empty if undisturbed
  double badness = 0;       // ranks disturbed measurements; 0 is best
};
Quietness Judge(const Reading& before, const Reading& after, double canary_usual_ns);

struct GuardOptions {
  double canary_usual_ns = 0;
  bool repeat = true;        // disturbed measurements
  absl::Time repeat_before;  // no repetition that is expected to end later
  // The previous measurement stayed disturbed. Then the guard checks only once whether this lasts,
  // and if so repeats nothing, so that a lasting disturbance does not cost every candidate the full
  // wait.
  bool resigned = false;
  std::function<Reading()> read;
  std::function<void(absl::Duration)> sleep;
};
struct GuardedRun {
  Quietness quietness;  // of the kept run
  int times = 0;
  int kept = 0;  // index of the kept run
};
// Calls `measure`, and again while it was disturbed, within the limits above. `measure` returns
// false if another run cannot add anything; that run is kept.
GuardedRun RunGuarded(const GuardOptions& options, const std::function<bool()>& measure);

// Fills in the fields of the evidence that come from the guard.
void Describe(const GuardedRun& run, double canary_usual_ns, v1::Evidence* evidence);

}  // namespace heddle::worker
