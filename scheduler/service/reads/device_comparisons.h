// Comparisons of two devices, each read once for all who ask for it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "scheduler/page/source.h"

namespace heddle::scheduler {

// Who asks for a pair of devices that is being read waits for that read and gets its answer. Other
// pairs do not wait for it. Thread-safe.
class DeviceComparisons {
 public:
  // A table is kept so long after its read began. Errors are not kept, nor are empty tables: they
  // take no time to find, and may soon be something.
  static constexpr absl::Duration kKept = absl::Seconds(30);
  static constexpr size_t kMostKept = 4;  // tables; one has up to ten thousand rows
  static constexpr size_t kMostReads =
      4;  // at the same time, so that the store has time for others

  using Answer = absl::StatusOr<std::shared_ptr<const PageSource::DeviceTable>>;
  using Read = std::function<Answer(const std::string& device_a, const std::string& device_b)>;

  // `read` is called by several threads at once, with different pairs.
  explicit DeviceComparisons(Read read, std::function<absl::Time()> now = MonotonicNow)
      : read_(std::move(read)), now_(std::move(now)) {}

  // ResourceExhausted: so many other pairs are being read.
  Answer Find(const std::string& device_a, const std::string& device_b);

  // Callers that wait for the read of another.
  size_t waiting() const {
    absl::MutexLock lock(&mutex_);
    return waiting_;
  }

 private:
  using Pair = std::pair<std::string, std::string>;
  struct Entry {
    absl::Time began;
    bool done = false;
    Answer answer = absl::UnavailableError("not read yet");
  };

  // Makes room for so many more tables.
  void Drop(size_t room) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Read read_;
  const std::function<absl::Time()> now_;
  mutable absl::Mutex mutex_;  // guards the entries, too; not held by reads
  std::map<Pair, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  size_t reading_ ABSL_GUARDED_BY(mutex_) = 0;  // entries that are not done
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::scheduler
