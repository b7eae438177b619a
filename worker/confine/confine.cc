#include "worker/confine/confine.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/confine/drop_user.h"
#include "worker/confine/filter.h"
#include "worker/confine/landlock.h"
#include "worker/confine/view.h"

namespace heddle::worker::confine {
namespace {

// Landlock and the filter reach the calling thread only, so one that was started earlier would go free.
absl::Status CheckOneThread() {
  std::error_code error;
  int threads = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    static_cast<void>(thread);
    ++threads;
  }
  if (error) return absl::UnavailableError("cannot read /proc/self/task");
  if (threads == 1) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a stage with ", threads, " threads cannot be confined"));
}

}  // namespace

absl::Status Confine(const Policy& policy, const Confinement& how) {
  if (!how.any()) return absl::OkStatus();
  HEDDLE_RETURN_IF_ERROR(CheckOneThread());
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return absl::ErrnoToStatus(errno, "cannot forbid new privileges");
  const pid_t parent = getppid();
  if (how.namespaces) {
    HEDDLE_RETURN_IF_ERROR(
        EnterView(policy.paths, absl::StrCat(policy.folder, "/", kRootFolder), policy.folder));
  }
  // The paths are looked up before the user loses the right to, and as the view has them.
  std::unique_ptr<LandlockRules> rules;
  if (how.landlock) {
    HEDDLE_ASSIGN_OR_RETURN(rules, LandlockRules::Make(policy.paths));
  }
  if (how.user) HEDDLE_RETURN_IF_ERROR(DropUser(how.uid, how.gid));
  HEDDLE_RETURN_IF_ERROR(DropCapabilities());
  // A change of the user has undone this.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) return absl::AbortedError("the worker ended");
  if (rules != nullptr) HEDDLE_RETURN_IF_ERROR(rules->Apply());
  if (how.filter) HEDDLE_RETURN_IF_ERROR(ApplyFilter(policy.gpu));
  return absl::OkStatus();
}

}  // namespace heddle::worker::confine
