// What clients agree on with the schedulers and trackers of one service, so that calls find those in use.
#pragma once

#include "absl/time/time.h"
#include "proto/grpc_util.h"

namespace heddle {

// Trailing metadata of a call that a scheduler refused with UNAVAILABLE because it stands by: the address
// of the scheduler that leads, "HOST:PORT" or "unix:PATH"; empty: none leads now, try again soon.
inline constexpr char kLeaderMetadata[] = "heddle-leader";

// With these words a tracker refuses a call, with UNAVAILABLE, while it is not appointed.
inline constexpr char kTrackerStandsBy[] = "this tracker stands by";

// Between a client that knows several schedulers and one of them. One that hangs, or is cut off, is given up
// after 3 to 4.5 s, since another may lead by then (scheduler/service/leadership.h). Pings are well over a second
// apart, since earlier schedulers take no more.
inline Pings LeaderPings() {
  return {.every = absl::Milliseconds(1500),
          .patience = absl::Seconds(3),
          .least_apart = absl::Milliseconds(300)};
}

}  // namespace heddle
