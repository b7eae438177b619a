#include "client/modules/streams.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "compiler/runtime/executor.h"

namespace heddle::client {
namespace {

using runtime::Executor;

constexpr absl::Duration kLook = absl::Milliseconds(100);  // between two questions whether to stop
// With several modules: how long one runs at a time. The first inferences of a part find colder caches,
// which must not weigh.
constexpr absl::Duration kPart = absl::Seconds(1);

// One module with an executor for each stream.
struct Served {
  size_t block = 0;
  std::vector<std::unique_ptr<Executor>> executors;
};

absl::StatusOr<Served> Load(const Contestant& contestant, int streams) {
  Served served;
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<TimedBlock> blocks, BlocksOf(contestant));
  served.block = blocks.front().block;
  for (int i = 0; i < streams; ++i) {
    HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor,
                            Executor::Create(*contestant.module, contestant.options));
    for (size_t k = 0; k < contestant.inputs.size(); ++k) {
      const std::string& bytes = contestant.inputs[k];
      const int input = static_cast<int>(k);
      if (executor->InputBytes(input) >= bytes.size())
        std::memcpy(executor->InputData(input), bytes.data(), bytes.size());
    }
    HEDDLE_RETURN_IF_ERROR(executor->Run(served.block));
    served.executors.push_back(std::move(executor));
  }
  return served;
}

// Runs all streams for a while, and adds what they took.
absl::Status RunFor(const Served& served, absl::Duration duration,
                    const std::function<bool()>& stop, StreamTiming* timing) {
  std::atomic<bool> ended = false;
  std::vector<LatencyHistogram> latencies(served.executors.size());
  const absl::Time begin = MonotonicNow();
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < served.executors.size(); ++i) {
      threads.emplace_back([&served, &ended, &latencies, i] {
        Executor& executor = *served.executors[i];
        LatencyHistogram own;  // not beside that of another thread
        absl::Time before = MonotonicNow();
        // An error stays in the executor's status.
        while (!ended.load(std::memory_order_relaxed) && executor.Run(served.block).ok()) {
          const absl::Time after = MonotonicNow();
          own.Add(absl::ToInt64Nanoseconds(after - before));
          before = after;
        }
        latencies[i] = std::move(own);
      });
    }
    for (absl::Time now = begin; now < begin + duration && !(stop && stop()); now = MonotonicNow())
      absl::SleepFor(std::min(kLook, begin + duration - now));
    ended = true;
  }
  timing->ran += MonotonicNow() - begin;
  for (size_t i = 0; i < served.executors.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(served.executors[i]->status());
    timing->latencies.Merge(latencies[i]);
  }
  return absl::OkStatus();
}

}  // namespace

double StreamTiming::Throughput() const {
  const double seconds = absl::ToDoubleSeconds(ran);
  return seconds <= 0 ? 0 : static_cast<double>(latencies.count()) / seconds;
}

absl::StatusOr<std::vector<StreamTiming>> TimeStreams(const std::vector<Contestant>& contestants,
                                                      const StreamOptions& options) {
  std::vector<Served> modules;
  for (const Contestant& contestant : contestants) {
    HEDDLE_ASSIGN_OR_RETURN(Served served, Load(contestant, options.streams));
    modules.push_back(std::move(served));
  }
  std::vector<StreamTiming> timings(contestants.size());
  const auto stopped = [&options] { return options.stop && options.stop(); };
  const absl::Duration part =
      contestants.size() == 1 ? options.duration : std::min(kPart, options.duration);
  for (absl::Duration done; done < options.duration && !stopped(); done += part) {
    for (size_t m = 0; m < modules.size() && !stopped(); ++m) {
      HEDDLE_RETURN_IF_ERROR(
          RunFor(modules[m], std::min(part, options.duration - done), options.stop, &timings[m]));
    }
  }
  return timings;
}

}  // namespace heddle::client
