#include "scheduler/store/leader.h"

#include <algorithm>

namespace heddle::scheduler {

Leader LeaderAt(const LeaderRow& row, absl::Time now) {
  const bool valid = row.epoch > 0 && row.renewed <= now;
  return {
      row.scheduler, row.address, row.epoch,
      valid ? std::max(absl::ZeroDuration(), row.renewed + row.lease - now) : absl::ZeroDuration()};
}

LeaderRow AfterClaim(const LeaderRow& row, const LeaderClaim& claim, absl::Time now) {
  const bool leads = row.epoch > 0 && row.scheduler == claim.scheduler;
  const bool free = claim.leader_has_ended || LeaderAt(row, now).remaining == absl::ZeroDuration();
  if (!leads && !free) return row;
  return {claim.scheduler, claim.address, leads ? row.epoch : row.epoch + 1, now, claim.lease};
}

}  // namespace heddle::scheduler
