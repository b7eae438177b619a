// How a scheduler that stands by tells clients which one leads.
#pragma once

namespace heddle {

// Trailing metadata of a call that a scheduler refused with UNAVAILABLE because it stands by: the address
// of the scheduler that leads, "HOST:PORT" or "unix:PATH"; empty: none leads now, try again soon.
inline constexpr char kLeaderMetadata[] = "heddle-leader";

}  // namespace heddle
