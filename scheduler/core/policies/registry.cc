// Every policy there is, one line each.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/core/policy.h"

namespace heddle::scheduler {

std::unique_ptr<Policy> MakeSequential();  // sequential.cc
std::unique_ptr<Policy> MakeRoundRobin();  // round_robin.cc
std::unique_ptr<Policy> MakePredictive();  // predictive.cc
std::unique_ptr<Policy> MakeFewest();      // fewest.cc

namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};
constexpr Entry kPolicies[] = {
    {"sequential", MakeSequential},
    {"round_robin", MakeRoundRobin},
    {"predictive", MakePredictive},
    {"fewest", MakeFewest},
};

}  // namespace

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kPolicies) names.emplace_back(entry.name);
  return names;
}

absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name) {
  for (const Entry& entry : kPolicies) {
    if (entry.name == name) return entry.make();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown policy \"", std::string(name), "\"; known: ", absl::StrJoin(PolicyNames(), ", ")));
}

}  // namespace heddle::scheduler
