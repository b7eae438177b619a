// Who makes a call: a role, a name and a tenant, as a certificate or a token says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace heddle {

enum class Role {
  kNobody,     // showed nothing that counts
  kUser,       // submits jobs, and sees those of its tenant
  kReadOnly,   // sees jobs of all tenants, and changes nothing
  kOperator,   // sees and ends jobs of all tenants
  kWorker,     // heddle-worker
  kScheduler,  // heddle-scheduler
  kTracker,    // heddle-tracker
  // A process of the same machine, over the daemon's private UNIX socket or over plain loopback. It
  // may do everything: over the socket it is the daemon's own user, and whoever starts a daemon on
  // plain loopback trusts the users of that machine.
  kLocal,
};

// A set of roles, as bits.
using Roles = uint32_t;
constexpr Roles Of(Role role) { return Roles{1} << static_cast<uint32_t>(role); }
constexpr bool Has(Roles roles, Role role) { return (roles & Of(role)) != 0; }

struct Identity {
  Role role = Role::kNobody;
  std::string name;    // of the person or the daemon; unique within the role
  std::string tenant;  // whose jobs it may see; empty: none

  bool operator==(const Identity&) const = default;
};

// "user", "read-only", "operator", "worker", "scheduler", "tracker", "local", "nobody".
const char* RoleName(Role role);
// One of the six roles that a certificate or a token may have. InvalidArgument lists them.
absl::StatusOr<Role> ParseRole(std::string_view name);
// Whether it can be the name of a person, a daemon or a tenant: 1 to 63 of a-z, 0-9, '-' and '.',
// beginning and ending with a letter or digit.
bool IsName(std::string_view text);

// "user/ann of vision", for messages.
std::string ToText(const Identity& identity);
// Reads the URI of a certificate: heddle://ROLE/NAME, and ?tenant=TENANT for people. Without a
// tenant a person's own name is the tenant; daemons have none. InvalidArgument if it is malformed.
absl::StatusOr<Identity> ParseIdentity(std::string_view uri);

// The host name by which a process that connects knows the other end; every certificate lists both
// forms (deploy/heddle-ca). "scheduler.heddle", "w1.worker.heddle".
std::string PeerName(Role role);
std::string PeerName(Role role, const std::string& name);

}  // namespace heddle
