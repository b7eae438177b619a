// The stages of jobs that somebody looks at. An open page asks for them again and again, and a job of
// many trials has thousands, so only the first look reads them all: later ones read those that began or
// ran since.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "proto/jobs.pb.h"

namespace heddle::scheduler {

// Thread-safe.
class JobStages {
 public:
  // After this time all stages of a job are read again: old ones may have been removed, and a clock may
  // have been set back.
  static constexpr absl::Duration kKept = absl::Minutes(1);
  static constexpr size_t kMostKept = 100'000;  // stages of all jobs, some 25 MB

  using Spans = std::vector<v1::StageSpan>;
  // The latest stages of the job that began at that time or later, by start (RecordStore.Timeline).
  using Read = std::function<absl::StatusOr<Spans>(const std::string& job, int64_t since_unix_ns)>;

  // `read` is called by several threads at once. `most_spans`: as many of a job as it gives at most.
  JobStages(Read read, size_t most_spans, std::function<absl::Time()> now = MonotonicNow);

  // The latest stages of the job, by start. Errors of the read.
  absl::StatusOr<Spans> Latest(const std::string& job);

 private:
  struct Kept {
    Spans spans;
    int64_t since_unix_ns = 0;  // what begins then or later may still change
    absl::Time read_all = absl::InfinitePast();
    int64_t asked = 0;  // of all that were, the larger the later
  };

  // What is kept of the job, which is nobody else's until it is kept again.
  Kept Take(const std::string& job);
  void Keep(const std::string& job, Kept kept);

  const Read read_;
  const size_t most_spans_;
  const std::function<absl::Time()> now_;
  absl::Mutex mutex_;
  std::map<std::string, Kept> kept_ ABSL_GUARDED_BY(mutex_);
  size_t spans_ ABSL_GUARDED_BY(mutex_) = 0;  // of all that is kept
  int64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::scheduler
