#include "worker/child/guard.h"

#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"

namespace heddle::worker {
namespace {

// Fields of a "cpuN" line after its name, as proc(5) numbers them.
constexpr size_t kIdle = 3;
constexpr size_t kIoWait = 4;
constexpr size_t kSteal = 7;
constexpr size_t kFields = 8;  // the later fields are guest time, which the first two include

absl::Duration OwnCpu() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return absl::DurationFromTimespec(spent);
}

int64_t InvoluntarySwitches() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

std::string ReadProcFile(const char* path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// One round of the canary: sixteen chains of multiply-adds that fill the pipelines, then dependent
// updates spread over 256 KiB, which is more than a first-level cache and less than a second-level
// one.
double CanaryRound(std::vector<uint32_t>& memory) {
  constexpr int kLanes = 16;
  constexpr int kSteps = 30000;
  const auto begin = std::chrono::steady_clock::now();
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<float>(1 + i);
  for (int step = 0; step < kSteps; ++step) {
    for (float& lane : lanes) lane = lane * 0.999f + 0.5f;
    asm volatile("" : : "r"(lanes) : "memory");
  }
  uint32_t random = 1;
  for (size_t i = 0; i < memory.size(); ++i) {
    random = random * 1664525u + 1013904223u;
    memory[random >> 16] += random;
  }
  asm volatile("" : : "r"(memory.data()) : "memory");
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

// Keeps the calling thread on one core for its lifetime.
class ScopedCore {
 public:
  explicit ScopedCore(int core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    moved_ = sched_getaffinity(0, sizeof(before_), &before_) == 0 &&
             sched_setaffinity(0, sizeof(one), &one) == 0;
  }
  ~ScopedCore() {
    if (moved_) sched_setaffinity(0, sizeof(before_), &before_);
  }
  ScopedCore(const ScopedCore&) = delete;
  ScopedCore& operator=(const ScopedCore&) = delete;

 private:
  cpu_set_t before_;
  bool moved_ = false;
};

std::string Percent(double share) { return absl::StrFormat("%.0f %%", share * 100); }

// Ranks disturbed runs: grows with each kind of disturbance.
double Badness(const Quietness& q) {
  double off = 0;
  for (double ratio : {q.canary_before, q.canary_after}) {
    if (ratio > 0) off = std::max(off, std::abs(std::log(ratio)));
  }
  return q.steal_share + q.other_share + off;
}

// Waits while the disturbance lasts. False if another measurement is not worthwhile.
bool WaitForCalm(const GuardOptions& options) {
  Reading before = options.read();
  const int glances = options.resigned ? 1 : kMaxGlances;
  for (int glance = 0; glance < glances && before.at < options.repeat_before; ++glance) {
    options.sleep(kGlance);
    const Reading after = options.read();
    if (Judge(before, after, options.canary_usual_ns).disturbance.empty()) return true;
    before = after;
  }
  return !options.resigned && before.at < options.repeat_before;
}

}  // namespace

absl::StatusOr<CoreTimes> ParseCoreTimes(absl::string_view stat, const std::vector<int>& cores) {
  const int64_t ticks_per_second = std::max<int64_t>(1, sysconf(_SC_CLK_TCK));
  CoreTimes times;
  size_t found = 0;
  for (const absl::string_view line : absl::StrSplit(stat, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int core = -1;
    if (words.empty() || words[0].substr(0, 3) != "cpu" ||
        !absl::SimpleAtoi(words[0].substr(3), &core) ||
        std::find(cores.begin(), cores.end(), core) == cores.end())
      continue;
    if (words.size() <= kFields)
      return absl::InvalidArgumentError(absl::StrCat("/proc/stat: ", line));
    for (size_t field = 0; field < kFields; ++field) {
      int64_t ticks = 0;
      if (!absl::SimpleAtoi(words[field + 1], &ticks))
        return absl::InvalidArgumentError(absl::StrCat("/proc/stat: ", line));
      const absl::Duration time = absl::Seconds(ticks) / ticks_per_second;
      if (field == kSteal) {
        times.steal += time;
      } else if (field != kIdle && field != kIoWait) {
        times.busy += time;
      }
    }
    ++found;
  }
  if (found != cores.size()) return absl::NotFoundError("/proc/stat lacks some of the cores");
  return times;
}

double RunCanary() {
  std::vector<uint32_t> memory(size_t{1} << 16, 1);
  double rounds[3];
  for (double& round : rounds) round = CanaryRound(memory);
  std::sort(std::begin(rounds), std::end(rounds));
  return rounds[1];
}

Reading TakeReading(const std::vector<int>& cores) {
  Reading reading;
  reading.cores = std::max<int>(1, static_cast<int>(cores.size()));
  if (!cores.empty()) {
    const ScopedCore pin(cores.front());
    reading.canary_ns = RunCanary();
  }
  if (absl::StatusOr<CoreTimes> times = ParseCoreTimes(ReadProcFile("/proc/stat"), cores);
      times.ok())
    reading.times = *times;
  reading.own = OwnCpu();
  reading.switches = InvoluntarySwitches();
  reading.at = MonotonicNow();
  return reading;
}

Quietness Judge(const Reading& before, const Reading& after, double canary_usual_ns) {
  Quietness q;
  const absl::Duration window = std::max(absl::Nanoseconds(1), after.at - before.at);
  const absl::Duration capacity = window * after.cores;
  const absl::Duration slack = kTickSlack * after.cores;
  const absl::Duration steal = after.times.steal - before.times.steal;
  const absl::Duration other = (after.times.busy - before.times.busy) - (after.own - before.own);
  const auto share = [&](absl::Duration time) {
    return std::clamp(absl::FDivDuration(time, capacity), 0.0, 1.0);
  };
  q.steal_share = share(steal);
  q.other_share = share(other);
  q.switches = after.switches - before.switches;
  if (canary_usual_ns > 0) {
    q.canary_before = before.canary_ns / canary_usual_ns;
    q.canary_after = after.canary_ns / canary_usual_ns;
  }
  q.badness = Badness(q);

  const double switches_allowed =
      kSwitchSlack + kMaxSwitchesPerSecond * absl::ToDoubleSeconds(window) * after.cores;
  const double slowest = std::max(q.canary_before, q.canary_after);
  const double fastest = std::min(q.canary_before, q.canary_after);
  if (share(steal - slack) > kMaxStealShare) {
    q.disturbance =
        absl::StrCat("the hypervisor took ", Percent(q.steal_share), " of the cores' time");
  } else if (share(other - slack) > kMaxOtherShare) {
    q.disturbance =
        absl::StrCat("other processes took ", Percent(q.other_share), " of the cores' time");
  } else if (static_cast<double>(q.switches) > switches_allowed) {
    q.disturbance = absl::StrFormat("preempted %d times in %.0f ms", q.switches,
                                    absl::ToDoubleMilliseconds(window));
  } else if (slowest > kCanarySlow) {
    q.disturbance = absl::StrFormat("the canary took %.2f times its usual time", slowest);
  } else if (canary_usual_ns > 0 && fastest < kCanaryFast) {
    q.disturbance = absl::StrFormat("the canary took only %.2f times its usual time", fastest);
  }
  return q;
}

GuardedRun RunGuarded(const GuardOptions& options, const std::function<bool()>& measure) {
  GuardedRun run;
  while (true) {
    const Reading before = options.read();
    const bool conclusive = !measure();
    const Reading after = options.read();
    Quietness quietness = Judge(before, after, options.canary_usual_ns);
    const int index = run.times++;
    const bool quiet = quietness.disturbance.empty();
    if (index == 0 || conclusive || quiet || quietness.badness < run.quietness.badness) {
      run.quietness = std::move(quietness);
      run.kept = index;
    }
    if (conclusive || quiet || !options.repeat || run.times == kMaxTimes) return run;
    // Another run of the same length, with a wait for calm before it, must fit.
    if (after.at + (after.at - before.at) + kGlance * kMaxGlances > options.repeat_before ||
        !WaitForCalm(options))
      return run;
  }
}

void Describe(const GuardedRun& run, double canary_usual_ns, v1::Evidence* evidence) {
  evidence->set_involuntary_switches(run.quietness.switches);
  evidence->set_steal_share(run.quietness.steal_share);
  evidence->set_other_share(run.quietness.other_share);
  evidence->set_canary_before(run.quietness.canary_before);
  evidence->set_canary_after(run.quietness.canary_after);
  evidence->set_canary_usual_ns(canary_usual_ns);
  evidence->set_times_measured(run.times);
  evidence->set_disturbance(run.quietness.disturbance);
}

}  // namespace heddle::worker
