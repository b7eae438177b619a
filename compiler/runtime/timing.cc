#include "compiler/runtime/timing.h"

#include <algorithm>
#include <cmath>

#include "base/quantiles.h"
#include "compiler/runtime/clock.h"
#include "compiler/runtime/race.h"

namespace heddle::runtime {
namespace {

// Touches every cache line of `memory`, which evicts the earlier contents of the caches. memset is
// not used because it may bypass the caches.
void Flush(std::vector<char>& memory) {
  constexpr size_t kLine = 64;
  for (size_t i = 0; i < memory.size(); i += kLine) memory[i] = static_cast<char>(memory[i] + 1);
  asm volatile("" : : "r"(memory.data()) : "memory");
}

constexpr double kMostRepeated = 64;  // calls without flushing in between

// One sample of cold calls, each timed alone or with few repetitions: their median, which a process that interrupts a few of them
// does not move. It ends when the calls have taken `min_ns`, or when three times that has passed in total, because
// flushing takes longer than a short kernel.
double ColdSample(const std::function<void()>& call, double min_ns, const TimingOptions& options,
                  std::vector<char>& memory, Race& race, int64_t* calls) {
  const Clock::time_point begin = Clock::now();
  double sum = 0;
  std::vector<double> times;
  while (times.empty() || (sum < min_ns && NsSince(begin) < 3 * min_ns && !race.lost())) {
    if (options.evict) {
      options.evict();
    } else {
      Flush(memory);
    }
    if (options.warm) options.warm();
    const double repeated = times.empty() ? 1 : options.least_ns / std::max(times.back(), 1.0);
    const auto count = static_cast<int64_t>(std::clamp(repeated, 1.0, kMostRepeated));
    const Clock::time_point start = Clock::now();
    for (int64_t i = 0; i < count; ++i) call();
    const double ns = NsSince(start);
    sum += ns;
    times.push_back(ns / static_cast<double>(count));
    race.AddCall(times.back());
    *calls += count;
  }
  return Median(times);
}

// One sample of calls until `min_ns` have passed. Calls run in batches, so that the time to read
// the clock does not matter.
double Sample(const std::function<void()>& call, double min_ns, int64_t* calls) {
  // Limits a batch, so that one wrong estimate cannot run for long.
  constexpr int64_t kLargestBatch = 1 << 16;
  int64_t done = 0;
  int64_t batch = 1;
  const Clock::time_point start = Clock::now();
  while (true) {
    for (int64_t i = 0; i < batch; ++i) call();
    done += batch;
    const double elapsed = NsSince(start);
    if (elapsed >= min_ns) {
      *calls += done;
      return elapsed / static_cast<double>(done);
    }
    const double per_call = std::max(elapsed / static_cast<double>(done), 0.1);
    const double left = std::ceil((min_ns - elapsed) / per_call);
    batch = std::clamp<int64_t>(static_cast<int64_t>(std::min(left, 1e9)), 1,
                                std::min(kLargestBatch, 4 * done));
  }
}

}  // namespace

double Timing::MinNs() const { return PercentileNs(0); }

double Timing::MedianNs() const { return Median(samples_ns); }

double Timing::PercentileNs(double p) const { return Quantile(samples_ns, p / 100); }

Timing TimeCalls(const std::function<void()>& call, const TimingOptions& options) {
  Timing timing;
  const Clock::time_point start = Clock::now();
  const double limit_ns = absl::ToDoubleNanoseconds(options.limit);
  const double min_ns = absl::ToDoubleNanoseconds(options.min_repeat);
  for (int i = 0; i < options.warmup_calls && (i == 0 || NsSince(start) < limit_ns); ++i) {
    call();
    ++timing.calls;
  }
  // The thread keeps it: to make it anew takes longer than to touch it.
  thread_local std::vector<char> cold;
  if (!options.evict) cold.resize(static_cast<size_t>(std::max<int64_t>(options.flush_bytes, 0)));
  Race race(options.rival_ns);
  for (int i = 0; i < std::max(options.repeats, 1); ++i) {
    if (i > 0 && (NsSince(start) > limit_ns || race.lost())) break;
    timing.samples_ns.push_back(options.flush_bytes <= 0
                                    ? Sample(call, min_ns, &timing.calls)
                                    : ColdSample(call, min_ns, options, cold, race, &timing.calls));
    race.AddSample(timing.samples_ns.back());
  }
  return timing;
}

}  // namespace heddle::runtime
