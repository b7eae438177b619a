#include "compiler/runtime/cuda/timing.h"

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "compiler/runtime/clock.h"
#include "compiler/runtime/race.h"

namespace heddle::runtime {
namespace {

constexpr int64_t kLargestBatch = 256;                  // calls between two readings of the clock
constexpr int64_t kFlushOfUnknown = int64_t{64} << 20;  // if the GPU does not report its cache size
// While a batch is enqueued, fills keep the device busy. These are their size and their largest
// number.
constexpr int64_t kCoverBytes = int64_t{128} << 20;
constexpr int64_t kMostCovers = 256;
constexpr double kLeastFillNs = 10000;  // a fill is never faster
constexpr double kCoverFactor = 2;  // fills last this many times as long as enqueueing the batch

class Sampler {
 public:
  Sampler(CudaDevice& device, const std::function<absl::Status()>& call, Race& race)
      : device_(device), call_(call), race_(race) {}

  // Call before the first sample.
  absl::Status Prepare(bool cold) {
    const int64_t cache = device_.info().l2_bytes;
    const int64_t flush = cache > 0 ? 2 * cache : kFlushOfUnknown;
    HEDDLE_ASSIGN_OR_RETURN(DeviceMemory memory, device_.Allocate(cold ? flush : kCoverBytes));
    fill_ = std::move(memory);
    cold_ = cold;
    return absl::OkStatus();
  }

  // The mean time of one call, over enough calls to fill `min_ns`.
  absl::StatusOr<double> Sample(double min_ns, int64_t* calls) {
    const Clock::time_point begin = Clock::now();
    double sum = 0;
    int64_t done = 0, batch = 1;
    // The limit on the total time is for short kernels, before which flushing takes longer than the
    // kernel.
    while (done == 0 || (sum < min_ns && NsSince(begin) < 3 * min_ns && !race_.lost())) {
      HEDDLE_ASSIGN_OR_RETURN(const double ns, cold_ ? ColdBatch(batch) : WarmBatch(batch, calls));
      sum += ns;
      done += batch;
      const double per_call = std::max(sum / static_cast<double>(done), 10.0);
      const int64_t largest =
          done < kFewCalls ? kFewCalls - done : std::min(kLargestBatch, 4 * done);
      batch = std::clamp<int64_t>(std::llround(std::ceil((min_ns - sum) / per_call)), 1, largest);
    }
    *calls += done;
    return sum / static_cast<double>(done);
  }

 private:
  absl::Status Fill() { return device_.Fill(fill_.address(), ++pattern_, fill_.size()); }

  // The device time of `count` calls, each timed alone.
  absl::StatusOr<double> ColdBatch(int64_t count) {
    size_t events = 0;
    for (int64_t i = 0; i < count; ++i) {
      absl::Status s = Fill();
      if (s.ok()) s = device_.Record(events++);
      if (s.ok()) s = call_();
      if (s.ok()) s = device_.Record(events++);
      if (!s.ok()) return s;
    }
    HEDDLE_RETURN_IF_ERROR(device_.Synchronize());
    double sum = 0;
    for (size_t i = 0; i < events; i += 2) {
      HEDDLE_ASSIGN_OR_RETURN(const double ns, device_.ElapsedNs(i, i + 1));
      race_.AddCall(ns);
      sum += ns;
    }
    return sum;
  }

  // The device time of `count` consecutive calls. `calls` also counts the warm-up call.
  absl::StatusOr<double> WarmBatch(int64_t count, int64_t* calls) {
    const double wanted = kCoverFactor * give_ns_ * static_cast<double>(count + 1) / fill_ns_;
    const int64_t covers = std::clamp<int64_t>(std::llround(wanted) + 1, 1, kMostCovers);
    absl::Status s = device_.Record(0);
    for (int64_t i = 0; i < covers && s.ok(); ++i) s = Fill();
    if (s.ok()) s = device_.Record(1);
    const Clock::time_point begin = Clock::now();
    if (s.ok()) s = call_();
    if (s.ok()) s = device_.Record(2);
    for (int64_t i = 0; i < count && s.ok(); ++i) s = call_();
    if (s.ok()) s = device_.Record(3);
    // If the queue was full, this is an overestimate. The device was busy then, so it does no harm.
    give_ns_ = NsSince(begin) / static_cast<double>(count + 1);
    if (s.ok()) s = device_.Synchronize();
    if (!s.ok()) return s;
    ++*calls;
    HEDDLE_ASSIGN_OR_RETURN(const double covered, device_.ElapsedNs(0, 1));
    fill_ns_ = std::max(covered / static_cast<double>(covers), kLeastFillNs);
    return device_.ElapsedNs(2, 3);
  }

  CudaDevice& device_;
  const std::function<absl::Status()>& call_;
  Race& race_;
  DeviceMemory fill_;
  bool cold_ = false;
  uint8_t pattern_ = 0;
  double give_ns_ = 5000;          // host time to enqueue a call, from the last batch
  double fill_ns_ = kLeastFillNs;  // device time of a fill, from the last batch
};

}  // namespace

absl::StatusOr<Timing> TimeOnDevice(CudaDevice& device, const std::function<absl::Status()>& call,
                                    const TimingOptions& options) {
  Timing timing;
  const Clock::time_point start = Clock::now();
  const double limit_ns = absl::ToDoubleNanoseconds(options.limit);
  const double min_ns = absl::ToDoubleNanoseconds(options.min_repeat);
  for (int i = 0; i < options.warmup_calls && (i == 0 || NsSince(start) < limit_ns); ++i) {
    absl::Status s = call();
    if (s.ok()) s = device.Synchronize();
    if (!s.ok()) return s;
    ++timing.calls;
  }
  Race race(options.rival_ns);
  Sampler sampler(device, call, race);
  HEDDLE_RETURN_IF_ERROR(sampler.Prepare(options.flush_bytes > 0));
  for (int i = 0; i < std::max(options.repeats, 1); ++i) {
    if (i > 0 && (NsSince(start) > limit_ns || race.lost())) break;
    HEDDLE_ASSIGN_OR_RETURN(const double sample, sampler.Sample(min_ns, &timing.calls));
    timing.samples_ns.push_back(sample);
    race.AddSample(sample);
  }
  return timing;
}

}  // namespace heddle::runtime
