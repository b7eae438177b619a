#include "proto/access/identity.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace heddle {
namespace {

constexpr std::string_view kScheme = "heddle://";
constexpr std::string_view kTenant = "tenant=";
constexpr size_t kMaxName = 63;

constexpr Role kGiven[] = {Role::kUser,   Role::kReadOnly,  Role::kOperator,
                           Role::kWorker, Role::kScheduler, Role::kTracker};

bool IsPerson(Role role) {
  return role == Role::kUser || role == Role::kReadOnly || role == Role::kOperator;
}

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

}  // namespace

const char* RoleName(Role role) {
  switch (role) {
    case Role::kNobody:
      return "nobody";
    case Role::kUser:
      return "user";
    case Role::kReadOnly:
      return "read-only";
    case Role::kOperator:
      return "operator";
    case Role::kWorker:
      return "worker";
    case Role::kScheduler:
      return "scheduler";
    case Role::kTracker:
      return "tracker";
    case Role::kLocal:
      return "local";
  }
  return "nobody";
}

absl::StatusOr<Role> ParseRole(std::string_view name) {
  std::string all;
  for (const Role role : kGiven) {
    if (name == RoleName(role)) return role;
    absl::StrAppend(&all, all.empty() ? "" : ", ", RoleName(role));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("role \"", std::string(name), "\": the roles are ", all));
}

bool IsName(std::string_view text) {
  if (text.empty() || text.size() > kMaxName) return false;
  for (const char c : text) {
    if (!IsLetterOrDigit(c) && c != '-' && c != '.') return false;
  }
  return IsLetterOrDigit(text.front()) && IsLetterOrDigit(text.back());
}

std::string ToText(const Identity& identity) {
  std::string text(RoleName(identity.role));
  if (!identity.name.empty()) absl::StrAppend(&text, "/", identity.name);
  if (!identity.tenant.empty() && identity.tenant != identity.name)
    absl::StrAppend(&text, " of ", identity.tenant);
  return text;
}

absl::StatusOr<Identity> ParseIdentity(std::string_view uri) {
  const absl::Status malformed = absl::InvalidArgumentError(absl::StrCat(
      "\"", std::string(uri),
      "\" is no identity; one is heddle://ROLE/NAME or heddle://ROLE/NAME?tenant=TENANT"));
  std::string_view rest = uri;
  if (!rest.starts_with(kScheme)) return malformed;
  rest.remove_prefix(kScheme.size());
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return malformed;
  Identity identity;
  HEDDLE_ASSIGN_OR_RETURN(identity.role, ParseRole(rest.substr(0, slash)));
  rest.remove_prefix(slash + 1);
  const size_t question = rest.find('?');
  identity.name = std::string(rest.substr(0, question));
  if (!IsName(identity.name)) return malformed;
  if (IsPerson(identity.role)) identity.tenant = identity.name;
  if (question == std::string_view::npos) return identity;
  rest.remove_prefix(question + 1);
  if (!IsPerson(identity.role) || !rest.starts_with(kTenant)) return malformed;
  rest.remove_prefix(kTenant.size());
  if (!IsName(rest)) return malformed;
  identity.tenant = std::string(rest);
  return identity;
}

std::string PeerName(Role role) { return absl::StrCat(RoleName(role), ".heddle"); }

std::string PeerName(Role role, const std::string& name) {
  return absl::StrCat(name, ".", PeerName(role));
}

}  // namespace heddle
