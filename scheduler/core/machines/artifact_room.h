// Bounds the code that is built and not measured yet. The ledger keeps it in memory, and builds would
// go on whatever devices there are.
//
// Code that waits counts by its size, and a candidate that is being built by the mean size of late. At
// DispatcherOptions.max_artifact_bytes no build starts until a quarter of them is free again. An active
// job, one whose code could be measured now, may build one candidate all the same if it has no code. So
// every job makes progress, however long the code of others waits.
//
// Idle jobs are paused or have no usable device. They build only while less than half of the room is
// used, and when the room is full, their code is dropped and built again later. So code that nobody can
// measure now never keeps others from building. To be dropped a second time, it needs other jobs that
// build as much as half of the room meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

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
  explicit ArtifactRoom(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Counts the candidates of the job anew. Call when they have changed, or whether it is idle.
  void Count(const Job& job, bool idle);
  // A candidate was built.
  void Observe(int64_t bytes);
  BuildRoom For(bool idle) const;
  // Whether the answers of For have changed since the last call of TakeChange, or code is to be dropped. Adds the
  // jobs to `jobs` that may build more or less than before.
  bool TakeChange(std::vector<JobId>* jobs);
  // The job whose code is to be dropped next: the newest idle one that has any, while the room is full.
  std::optional<JobId> ToDrop() const;
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
    // Whether it is in the set of this name.
    bool droppable = false, idle_builds = false, further_builds = false;
    friend bool operator==(const Counted&, const Counted&) = default;
  };
  // A limit that was reached counts until the sum is below three quarters of it. Otherwise each measured
  // candidate would have all jobs looked at.
  static int64_t Resume(int64_t limit) { return limit / 4 * 3; }
  void SetLevel();

  const int64_t max_bytes_;
  int64_t mean_bytes_ = int64_t{128} << 10;  // until something is built
  int64_t built_bytes_ = 0, building_ = 0;   // the sums of counted_
  std::map<JobId, Counted> counted_;         // jobs with any, or in any of the sets
  std::set<JobId> droppable_;                // idle jobs with code that no stage measures
  std::set<JobId> idle_builds_;              // idle jobs with candidates to build
  std::set<JobId>
      further_builds_;  // active jobs with candidates to build, of which others are built or being built
  Level level_ = kRoom, told_ = kRoom;
};

// Forgets that the newest candidates of the job which no stage measures are built, until that makes
// `bytes` or there are no more. Returns them.
std::vector<CandidateId> DropBuilt(Job& job, int64_t bytes);

}  // namespace heddle::scheduler
