// The mechanisms that keep the process of a stage from harming its host, and which of them this
// host offers. What each of them stops is in docs/operating.md; the order in which the process applies
// the first four is in confine.h.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heddle::worker::confine {

// How the process of a stage is confined. Nothing by default.
struct Confinement {
  // The process runs as `uid` and `gid`, which own no files of the worker. Needs a worker that is root.
  bool user = false;
  // The process sees only the files that it needs, and a network without interfaces: mount, network
  // and IPC namespaces, within a user namespace if the worker is not root.
  bool namespaces = false;
  // The kernel checks each opened file, connection and signal against rules (Landlock).
  bool landlock = false;
  // The kernel refuses all system calls but those of a list (seccomp).
  bool filter = false;
  // The supervisor puts the process into a control group, which ends as a whole (stage_cgroup.h).
  bool cgroup = false;
  uid_t uid = 65534;
  gid_t gid = 65534;

  // Whether the process has any to apply.
  bool any() const { return user || namespaces || landlock || filter; }
  friend bool operator==(const Confinement&, const Confinement&) = default;
};

// "user=65534:65534,namespaces,landlock,filter,cgroup"; "none".
std::string ToText(const Confinement& confinement);
// The opposite. "all" stands for all mechanisms, and "user" without numbers keeps the default
// ones. InvalidArgument names a word that is none of these.
absl::StatusOr<Confinement> ParseConfinement(absl::string_view text);

// One thing that a host may offer.
struct Feature {
  std::string name;  // "landlock"
  bool available = false;
  std::string why{};     // one line: what was found, or what is missing
  std::string remedy{};  // one line: what to do about it; empty if it is available
  // Whether --require-confinement insists on it.
  bool required = true;
};

// Tries each mechanism, in processes of its own, which takes some milliseconds. What `wanted` leaves out
// is not available; it also says which user stages get. Call it before the process has threads.
std::vector<Feature> ProbeConfinement(const Confinement& wanted);

// `wanted` without what is not available.
Confinement Available(const Confinement& wanted, const std::vector<Feature>& features);

// FailedPrecondition names the first required feature that is missing, and its remedy.
absl::Status RequireAll(const std::vector<Feature>& features);

// The line that tells people about a feature: "landlock: yes, version 7".
std::string Describe(const Feature& feature);

// The user and group called `name`, or whose numbers `name` is ("65534"). NotFound.
absl::Status SetStageUser(const std::string& name, Confinement* confinement);

}  // namespace heddle::worker::confine
