#include "worker/confine/mechanisms.h"

#include <linux/seccomp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "worker/confine/drop_user.h"
#include "worker/confine/landlock.h"
#include "worker/confine/view.h"
#include "worker/process/child_watch.h"
#include "worker/process/stage_cgroup.h"

namespace heddle::worker::confine {
namespace {

constexpr char kUser[] = "user";
constexpr char kNamespaces[] = "namespaces";
constexpr char kLandlock[] = "landlock";
constexpr char kFilter[] = "filter";
constexpr char kCgroup[] = "cgroup";

// Performs `attempt` in a process of its own, and returns the line that it fails with; empty: none.
std::string Attempt(const std::function<absl::Status()>& attempt) {
  int ends[2];
  if (pipe(ends) != 0) return absl::StrCat("cannot make a pipe: ", std::strerror(errno));
  const pid_t pid = fork();
  if (pid == 0) {
    const absl::Status status = attempt();
    const std::string line = status.ok() ? "" : std::string(status.message());
    [[maybe_unused]] const ssize_t n = write(ends[1], line.data(), line.size());
    _exit(status.ok() ? 0 : 1);
  }
  close(ends[1]);
  std::string line;
  char buffer[512];
  if (pid > 0) {
    const ssize_t n = read(ends[0], buffer, sizeof(buffer));
    if (n > 0) line.assign(buffer, static_cast<size_t>(n));
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (line.empty() && status != 0) line = "the process that tried it was killed";
  } else {
    line = absl::StrCat("cannot start a process: ", std::strerror(errno));
  }
  close(ends[0]);
  return line;
}

// Whether the supervisor may see what a process of the user of stages uses, as it must to limit it. For
// a process of its own.
absl::Status WatchOtherUser(const Confinement& wanted) {
  const pid_t stage = fork();
  if (stage < 0) return absl::ErrnoToStatus(errno, "cannot start a process");
  if (stage == 0) {
    if (DropUser(wanted.uid, wanted.gid).ok()) raise(SIGSTOP);
    _exit(1);
  }
  int status = 0;
  const bool stopped = waitpid(stage, &status, WUNTRACED) == stage && WIFSTOPPED(status);
  const bool watched = stopped && WatchBytes(stage).has_value();
  if (stopped) {
    kill(stage, SIGKILL);
    waitpid(stage, &status, 0);
  }
  return watched
             ? absl::OkStatus()
             : absl::PermissionDeniedError("the worker may not see what another user's stages use");
}

Feature SwitchedOff(const std::string& name) {
  return {.name = name,
          .why = "it is switched off",
          .remedy = "start the worker without --confine",
          .required = name != kCgroup && (name != kUser || geteuid() == 0)};
}

Feature UserFeature(const Confinement& wanted) {
  Feature feature{.name = kUser};
  if (geteuid() != 0) {
    feature.why = "stages run as the worker's own user, since the worker is not root";
    feature.remedy = "start the worker as root, and it gives stages the user of --stage-user";
    feature.required = false;
    return feature;
  }
  const std::string missing = Attempt([&] { return DropUser(wanted.uid, wanted.gid); });
  const std::string unseen = missing.empty() ? Attempt([&] { return WatchOtherUser(wanted); }) : "";
  feature.available = missing.empty() && unseen.empty();
  feature.why = feature.available ? absl::StrCat("stages run as user ", wanted.uid)
                                  : absl::StrCat(missing, unseen);
  if (!feature.available) {
    feature.remedy = absl::StrCat("give the container the capabilit",
                                  missing.empty() ? "y SYS_PTRACE" : "ies SETUID and SETGID",
                                  ", or start the worker as another user");
  }
  return feature;
}

Feature NamespacesFeature() {
  Feature feature{.name = kNamespaces};
  // The place of the new root must exist. It stays empty: the mount is seen by the attempt alone.
  std::error_code error;
  std::string folder =
      absl::StrCat(std::filesystem::temp_directory_path(error).string(), "/heddle-view-XXXXXX");
  std::string missing;
  if (mkdtemp(folder.data()) == nullptr) {
    missing = absl::StrCat("cannot make ", folder, ": ", std::strerror(errno));
  } else {
    missing = Attempt([&] {
      return EnterView({{"/dev/null", Access::kDevice}, {"/proc/self", Access::kRead}}, folder,
                       "/");
    });
    rmdir(folder.c_str());
  }
  feature.available = missing.empty();
  feature.why = missing.empty() ? "stages see their own files only, and no network" : missing;
  if (!feature.available)
    feature.remedy =
        "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
        "kernel.apparmor_restrict_unprivileged_userns), or start the worker as root outside of a "
        "container";
  return feature;
}

Feature LandlockFeature() {
  Feature feature{.name = kLandlock};
  const int version = LandlockVersion();
  feature.available = version > 0;
  if (feature.available) {
    feature.why =
        absl::StrCat("version ", version,
                     version < 4   ? ", which knows files but neither connections nor signals"
                     : version < 6 ? ", which knows files and connections but not signals"
                                   : "");
  } else {
    feature.why = absl::StrCat("the kernel has no Landlock: ", std::strerror(errno));
    feature.remedy = "use a kernel from 5.13 on, and start it with landlock in its list lsm=";
  }
  return feature;
}

Feature FilterFeature() {
  Feature feature{.name = kFilter};
  const uint32_t action = SECCOMP_RET_ERRNO;
  feature.available = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
  feature.why = feature.available
                    ? "system calls outside of a list are refused"
                    : absl::StrCat("the kernel has no seccomp: ", std::strerror(errno));
  if (!feature.available) feature.remedy = "use a kernel from 4.14 on with CONFIG_SECCOMP_FILTER";
  return feature;
}

Feature CgroupFeature() {
  Feature feature{.name = kCgroup, .required = false};
  const absl::StatusOr<std::string> probed = StageCgroup::Probe();
  feature.available = probed.ok();
  feature.why = probed.ok() ? *probed : std::string(probed.status().message());
  if (!feature.available)
    feature.remedy =
        "run the worker under systemd with Delegate=pids, on a host with cgroup v2 (`systemd-run "
        "--user --scope -p Delegate=pids heddle-worker ..` needs no root)";
  return feature;
}

}  // namespace

std::string ToText(const Confinement& confinement) {
  std::vector<std::string> words;
  if (confinement.user)
    words.push_back(absl::StrCat(kUser, "=", confinement.uid, ":", confinement.gid));
  if (confinement.namespaces) words.push_back(kNamespaces);
  if (confinement.landlock) words.push_back(kLandlock);
  if (confinement.filter) words.push_back(kFilter);
  if (confinement.cgroup) words.push_back(kCgroup);
  return words.empty() ? "none" : absl::StrJoin(words, ",");
}

absl::StatusOr<Confinement> ParseConfinement(absl::string_view text) {
  Confinement result;
  if (text == "none") return result;
  if (text == "all") {
    result.user = result.namespaces = result.landlock = result.filter = result.cgroup = true;
    return result;
  }
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    if (word == kNamespaces) {
      result.namespaces = true;
    } else if (word == kLandlock) {
      result.landlock = true;
    } else if (word == kFilter) {
      result.filter = true;
    } else if (word == kCgroup) {
      result.cgroup = true;
    } else if (word == kUser) {
      result.user = true;
    } else {
      const std::vector<absl::string_view> parts = absl::StrSplit(word, absl::ByAnyChar("=:"));
      if (parts.size() != 3 || parts[0] != kUser || !absl::SimpleAtoi(parts[1], &result.uid) ||
          !absl::SimpleAtoi(parts[2], &result.gid)) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", word, "' confines nothing; give 'all', 'none', or some of ", kUser,
                         ",", kNamespaces, ",", kLandlock, ",", kFilter, ",", kCgroup));
      }
      result.user = true;
    }
  }
  return result;
}

std::vector<Feature> ProbeConfinement(const Confinement& wanted) {
  return {wanted.filter ? FilterFeature() : SwitchedOff(kFilter),
          wanted.landlock ? LandlockFeature() : SwitchedOff(kLandlock),
          wanted.namespaces ? NamespacesFeature() : SwitchedOff(kNamespaces),
          wanted.cgroup ? CgroupFeature() : SwitchedOff(kCgroup),
          wanted.user ? UserFeature(wanted) : SwitchedOff(kUser)};
}

Confinement Available(const Confinement& wanted, const std::vector<Feature>& features) {
  Confinement result = wanted;
  for (const Feature& feature : features) {
    if (feature.available) continue;
    if (feature.name == kUser) result.user = false;
    if (feature.name == kNamespaces) result.namespaces = false;
    if (feature.name == kLandlock) result.landlock = false;
    if (feature.name == kFilter) result.filter = false;
    if (feature.name == kCgroup) result.cgroup = false;
  }
  return result;
}

absl::Status RequireAll(const std::vector<Feature>& features) {
  for (const Feature& feature : features) {
    if (feature.required && !feature.available) {
      return absl::FailedPreconditionError(absl::StrCat(
          "stages cannot be confined by ", feature.name, ": ", feature.why, "; ", feature.remedy));
    }
  }
  return absl::OkStatus();
}

std::string Describe(const Feature& feature) {
  return absl::StrCat(feature.name, ": ", feature.available ? "yes, " : "no, ", feature.why,
                      feature.remedy.empty() ? "" : "; ", feature.remedy);
}

absl::Status SetStageUser(const std::string& name, Confinement* confinement) {
  uid_t uid = 0;
  if (absl::SimpleAtoi(name, &uid)) {
    confinement->uid = confinement->gid = uid;
    if (const passwd* entry = getpwuid(uid); entry != nullptr) confinement->gid = entry->pw_gid;
    return absl::OkStatus();
  }
  const passwd* entry = getpwnam(name.c_str());
  if (entry == nullptr)
    return absl::NotFoundError(
        absl::StrCat("there is no user '", name, "' for stages on this host"));
  confinement->uid = entry->pw_uid;
  confinement->gid = entry->pw_gid;
  return absl::OkStatus();
}

}  // namespace heddle::worker::confine
