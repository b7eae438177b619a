// Who leads a pool of devices: the one scheduler that decides for it and writes to its store. The
// others stand by. The stores keep this; here is the rule by which they do.
//
// A leader has a lease and renews it. Each change of the leader has a new number, its epoch, and every
// write of a leader is checked against the epoch that is stored. So a leader that was stopped or cut
// off cannot write after another has taken over, whatever the clocks say. Whoever migrates the tables ends the epoch, too, so
// neither can one that goes on after a newer program has migrated them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace heddle::scheduler {

// The only pool for now. Several schedulers may come to lead one each.
inline constexpr char kDefaultPool[] = "default";

// The SQL by which a change of the tables' version ends the epoch of whoever leads, in the same transaction.
inline constexpr char kEndEpochs[] = "UPDATE leaders SET epoch=epoch+1;";

struct LeaderClaim {
  std::string pool = kDefaultPool;
  std::string scheduler;  // names one process: two starts of a scheduler have different names
  std::string address;    // where clients reach it
  absl::Duration lease;   // ends then, by the store's clock, unless it is renewed before
  // The caller knows that the leader which is stored has ended, so it need not wait for the lease.
  bool leader_has_ended = false;
};

struct Leader {
  std::string scheduler;
  std::string address;       // empty: nobody leads, or the leader has let go
  int64_t epoch = 0;         // grows by one with each change; 0: nobody has ever led
  absl::Duration remaining;  // until another may lead; zero: at once
};

// A leader as a store keeps it.
struct LeaderRow {
  std::string scheduler;
  std::string address;
  int64_t epoch = 0;
  absl::Time renewed = absl::InfinitePast();  // by the store's clock
  absl::Duration lease;                       // zero: it was let go
};

// What the row says at `now`, by the store's clock. A renewal in the future is of a clock that began
// anew since, with its host; it counts as over.
Leader LeaderAt(const LeaderRow& row, absl::Time now);
// The row after the claim: that of the caller if nobody else leads, and otherwise the same as before.
// Whoever leads already keeps its epoch, also after its lease has run out.
LeaderRow AfterClaim(const LeaderRow& row, const LeaderClaim& claim, absl::Time now);

}  // namespace heddle::scheduler
