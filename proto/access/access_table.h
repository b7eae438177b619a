// Who may call what: the one table of all methods. What has no row is refused, and a method of a
// service in proto/ without a row fails the build (access_table_check.cc).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/access/identity.h"

namespace heddle {

struct AccessRow {
  std::string_view method;  // "heddle.v1.JobService/GetJob"; "page/NAME": no method of a service
  Roles own = 0;            // may call it, for jobs of their own tenant only
  Roles any = 0;            // may call it, for jobs of every tenant
  bool audited =
      false;  // the scheduler's audit log keeps its calls; the tracker keeps those of people by itself
};

std::span<const AccessRow> AccessTable();
// Null if there is no such row.
const AccessRow* FindAccessRow(std::string_view method);

// Whether the caller may call the method at all. Unauthenticated for nobody, else PermissionDenied;
// both name the caller and the roles that may.
absl::Status CheckMethod(const Identity& caller, std::string_view method);
// Whether it may do so for jobs of this tenant.
bool MayUse(const Identity& caller, std::string_view method, std::string_view tenant);

}  // namespace heddle
