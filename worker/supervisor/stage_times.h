// How long stages took on this worker, from which it judges whether one that runs can end in time.
// Pure, not thread-safe.
#pragma once

#include <deque>
#include <map>

#include "absl/time/time.h"
#include "proto/worker.pb.h"

namespace heddle::worker {

class StageTimes {
 public:
  // A stage ended by itself. The latest 64 of each kind are remembered.
  void Note(v1::StageKind kind, absl::Duration took);
  // Whether a stage that has run for `age` will end within `left`, if it takes the median of those that
  // took longer than `age`. True if there was none: nothing is known of it.
  bool CanEnd(v1::StageKind kind, absl::Duration age, absl::Duration left) const;

 private:
  std::map<v1::StageKind, std::deque<absl::Duration>> took_;
};

}  // namespace heddle::worker
