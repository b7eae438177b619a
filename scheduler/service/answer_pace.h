// Bounds what long answers cost that nobody reads. A connection takes a part of an answer even if its peer never looks at it:
// 64 KiB, and up to some MiB if they come fast. Only a peer that has taken more than that is known to read. Until then an answer
// is at its beginning. A few beginnings at a time have no limit; where there are more, they share a rate. An answer that is past
// its beginning has none: once its peer stops reading, it stands still, and CallLimits ends it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace heddle::scheduler {

// Thread-safe.
class AnswerPace {
 public:
  struct Options {
    // How long a beginning is.
    int64_t beginning_bytes = int64_t{4} << 20;
    // So many beginnings at a time have no limit. Those that stand still count.
    int few = 2;
    // Of all beginnings together, if they are more. Even of the smallest records, of which a byte costs the most, this takes
    // about a tenth of a core.
    int64_t bytes_per_second = int64_t{1} << 20;
  };
  explicit AnswerPace(const Options& options) : options_(options) {}

  // One answer. For one thread. `pace` outlives it.
  class Answer {
   public:
    explicit Answer(AnswerPace* pace) : pace_(pace) {
      absl::MutexLock lock(&pace_->mutex_);
      ++pace_->beginnings_;
    }
    ~Answer() {
      absl::MutexLock lock(&pace_->mutex_);
      if (begins_) --pace_->beginnings_;
    }
    Answer(const Answer&) = delete;
    Answer& operator=(const Answer&) = delete;

    // Whether it is at its beginning.
    bool begins() const { return begins_; }
    // Notes that the peer has taken so many bytes more by `now`. Returns how long the answer has to wait before it goes on.
    // Answers that wait at the same time go on about in the order of their calls.
    absl::Duration Take(int64_t bytes, absl::Time now) {
      if (!begins_) return absl::ZeroDuration();
      taken_bytes_ += bytes;
      const Options& options = pace_->options_;
      absl::MutexLock lock(&pace_->mutex_);
      begins_ = taken_bytes_ < options.beginning_bytes;
      if (!begins_) --pace_->beginnings_;
      if (!begins_ || pace_->beginnings_ <= options.few) return absl::ZeroDuration();
      const auto time_of = [&](int64_t taken) {
        return absl::Seconds(1) * taken / options.bytes_per_second;
      };
      // Answers that ended while they waited have left their time behind.
      const absl::Time last = now + time_of(pace_->beginnings_ * options.beginning_bytes);
      pace_->next_ = std::min(std::max(pace_->next_, now) + time_of(bytes), last);
      return pace_->next_ - now;
    }

   private:
    AnswerPace* const pace_;
    int64_t taken_bytes_ = 0;
    bool begins_ = true;
  };

 private:
  const Options options_;
  absl::Mutex mutex_;
  int beginnings_ ABSL_GUARDED_BY(mutex_) = 0;  // answers at their beginning
  // When the latest one that waits goes on.
  absl::Time next_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace heddle::scheduler
