#include "compiler/runtime/cuda_timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace heddle::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLargestBatch = 256;                  // calls between two looks at the clock
constexpr int64_t kFlushOfUnknown = int64_t{64} << 20;  // where a GPU does not tell its cache

double NsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

class Sampler {
 public:
  Sampler(CudaDevice& device, const std::function<absl::Status()>& call)
      : device_(device), call_(call) {}

  absl::Status PrepareFlush() {
    const int64_t cache = device_.info().l2_bytes;
    absl::StatusOr<DeviceMemory> memory = device_.Allocate(cache > 0 ? 2 * cache : kFlushOfUnknown);
    if (!memory.ok()) return memory.status();
    flush_ = *std::move(memory);
    return absl::OkStatus();
  }

  // The mean of one call: of as many as fill `min_ns`.
  absl::StatusOr<double> Sample(double min_ns, int64_t* calls) {
    const Clock::time_point begin = Clock::now();
    double sum = 0;
    int64_t done = 0, batch = 1;
    // Flushing before a short kernel takes longer than the kernel.
    while (done == 0 || (sum < min_ns && NsSince(begin) < 3 * min_ns)) {
      const absl::StatusOr<double> ns = Batch(batch);
      if (!ns.ok()) return ns.status();
      sum += *ns;
      done += batch;
      const double per_call = std::max(sum / static_cast<double>(done), 10.0);
      batch = std::clamp<int64_t>(std::llround(std::ceil((min_ns - sum) / per_call)), 1,
                                  std::min(kLargestBatch, 4 * done));
    }
    *calls += done;
    return sum / static_cast<double>(done);
  }

 private:
  // Time of `count` calls on the device.
  absl::StatusOr<double> Batch(int64_t count) {
    const bool cold = flush_.size() > 0;
    size_t events = 0;
    if (!cold) {
      if (absl::Status s = device_.Record(events++); !s.ok()) return s;
    }
    for (int64_t i = 0; i < count; ++i) {
      if (cold) {
        absl::Status s = device_.Fill(flush_.address(), ++pattern_, flush_.size());
        if (s.ok()) s = device_.Record(events++);
        if (!s.ok()) return s;
      }
      if (absl::Status s = call_(); !s.ok()) return s;
      if (cold) {
        if (absl::Status s = device_.Record(events++); !s.ok()) return s;
      }
    }
    if (!cold) {
      if (absl::Status s = device_.Record(events++); !s.ok()) return s;
    }
    if (absl::Status s = device_.Synchronize(); !s.ok()) return s;
    double sum = 0;
    for (size_t i = 0; i < events; i += 2) {
      const absl::StatusOr<double> ns = device_.ElapsedNs(i, i + 1);
      if (!ns.ok()) return ns.status();
      sum += *ns;
    }
    return sum;
  }

  CudaDevice& device_;
  const std::function<absl::Status()>& call_;
  DeviceMemory flush_;
  uint8_t pattern_ = 0;
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
  Sampler sampler(device, call);
  if (options.flush_bytes > 0) {
    if (absl::Status s = sampler.PrepareFlush(); !s.ok()) return s;
  }
  for (int i = 0; i < std::max(options.repeats, 1); ++i) {
    if (i > 0 && NsSince(start) > limit_ns) break;
    const absl::StatusOr<double> sample = sampler.Sample(min_ns, &timing.calls);
    if (!sample.ok()) return sample.status();
    timing.samples_ns.push_back(*sample);
  }
  return timing;
}

}  // namespace heddle::runtime
