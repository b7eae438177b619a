// Stages that open pages ask for again and again: those of a job, or the latest of all jobs. There are
// thousands, so only the first look reads them all; later ones read those that began or ran since.
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

// Lists of stages, each in some order: by start, or by attempt. A stage has a place in it, a number that never
// changes. Thread-safe.
class KeptStages {
 public:
  // After this time a list is read anew as a whole: old stages may have been removed, and a clock may have
  // been set back.
  static constexpr absl::Duration kKept = absl::Minutes(1);
  static constexpr size_t kMostKept = 100'000;  // stages of all lists, some 25 MB

  using Spans = std::vector<v1::StageSpan>;
  struct Options {
    // The latest stages of the list from that place on, in order. Called by several threads at once.
    std::function<absl::StatusOr<Spans>(const std::string& list, int64_t from)> read;
    std::function<int64_t(const v1::StageSpan&)> place;
    // A stage may be stored after one whose place is this much further on.
    int64_t late = 0;
    // From this place on a stage may be stored at any time, whatever there is behind it. Asked before each read. Null:
    // only `late` tells.
    std::function<int64_t()> first_open = nullptr;
    size_t most = 0;  // stages of a list; as many as `read` gives at most
    std::function<absl::Time()> now = MonotonicNow;
  };

  explicit KeptStages(Options options);

  // The latest stages of the list, in order. Errors of the read.
  absl::StatusOr<Spans> Latest(const std::string& list);

 private:
  struct Kept {
    Spans spans;
    int64_t from = 0;  // what is there or further on may still change
    absl::Time read_all = absl::InfinitePast();
    int64_t asked = 0;  // of all that were, the larger the later
  };

  // What is kept of the list, which is nobody else's until it is kept again.
  Kept Take(const std::string& list);
  void Keep(const std::string& list, Kept kept);
  // The first place whose stage may still change.
  int64_t FirstThatMayChange(const Spans& spans) const;

  const Options options_;
  absl::Mutex mutex_;
  std::map<std::string, Kept> kept_ ABSL_GUARDED_BY(mutex_);
  size_t spans_ ABSL_GUARDED_BY(mutex_) = 0;  // of all that is kept
  int64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::scheduler
