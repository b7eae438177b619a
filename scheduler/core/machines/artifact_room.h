// Bounds the code that is built and not measured yet. The ledger keeps it in memory, and builds would
// go on whatever devices there are.
//
// Code that waits counts by its size, and a candidate that is being built by the mean size of late. At
// DispatcherOptions.max_artifact_bytes no build starts until a quarter of them is free again. An active
// job, one whose code could be measured now, may build one candidate all the same if it has no code. So
// every job makes progress, however long the code of others waits.
//
// Idle jobs are paused or have no usable device. They build only while less than half of the room is
// used, and when the room is full, the code of those that have been idle for a while
// (DispatcherOptions.idle_code_grace) is dropped and built again later. So code that nobody can measure
// keeps others from building for no longer than that, and a device that is away for moments, as while its
// worker starts anew, costs no code. To be dropped a second time, it needs other jobs that build as much as
// half of the room meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/core/job_state.h"

namespace heddle::scheduler {

// What a job may build now.
enum class BuildRoom {
  kMany,
  kOne,   // a candidate, if the job has no code that is built or being built
  kNone,  // nothing
};

class ArtifactRoom {
 public:
  ArtifactRoom(int64_t max_bytes, absl::Duration idle_code_grace)
      : max_bytes_(max_bytes), grace_(idle_code_grace) {}

  // Counts the candidates of the job anew. Call when they have changed, or whether it is idle.
  void Count(const Job& job, bool idle, absl::Time now);
  // A candidate was built.
  void Observe(int64_t bytes);
  BuildRoom For(bool idle) const;
  // Whether the answers of For have changed since the last call of TakeChange, or code is to be dropped. Adds the
  // jobs to `jobs` that may build more or less than before.
  bool TakeChange(absl::Time now, std::vector<JobId>* jobs);
  // The job whose code is to be dropped next, while the room is full: the one that has been idle for the longest, and
  // for longer than the grace. Of several, the newest.
  std::optional<JobId> ToDrop(absl::Time now) const;
  // When there will be one if nothing changes; InfiniteFuture: never.
  absl::Time NextDrop() const;
  // So many bytes are to be dropped.
  int64_t Excess() const { return bytes() - Resume(max_bytes_) + 1; }
  // Whether idle jobs may not build.
  bool Tight() const { return level_ != kRoom; }
  // How many of `wanted` candidates a build stage that starts now may take: at least one.
  size_t Share(size_t wanted, bool idle) const;
  // Counted now.
  int64_t bytes() const { return built_bytes_ + building_ * mean_bytes_; }

 private:
  enum Level { kRoom, kHalf, kFull };
  struct Counted {
    int64_t built_bytes = 0;
    int64_t building = 0;  // candidates
    // Since when it was found idle, with code that no stage measures; InfiniteFuture: it is not.
    absl::Time idle_since = absl::InfiniteFuture();
    // Whether it is in the set of this name.
    bool idle_builds = false, further_builds = false;
    friend bool operator==(const Counted&, const Counted&) = default;
  };
  // A limit that was reached counts until the sum is below three quarters of it. Otherwise each measured
  // candidate would have all jobs looked at.
  static int64_t Resume(int64_t limit) { return limit / 4 * 3; }
  void SetLevel();

  const int64_t max_bytes_;
  const absl::Duration grace_;
  int64_t mean_bytes_ = int64_t{128} << 10;     // until something is built
  int64_t built_bytes_ = 0, building_ = 0;      // the sums of counted_
  std::map<JobId, Counted> counted_;            // jobs with any, or in any of the sets
  std::map<absl::Time, std::set<JobId>> idle_;  // those with an idle_since, by it
  std::set<JobId> idle_builds_;                 // idle jobs with candidates to build
  // Active jobs with candidates to build, of which others are built or being built.
  std::set<JobId> further_builds_;
  Level level_ = kRoom, told_ = kRoom;
};

// Forgets that the newest candidates of the job which no stage measures are built, until that makes
// `bytes` or there are no more. Returns them.
std::vector<CandidateId> DropBuilt(Job& job, int64_t bytes);

}  // namespace heddle::scheduler
