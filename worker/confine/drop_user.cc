#include "worker/confine/drop_user.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace heddle::worker::confine {

absl::Status DropUser(uid_t uid, gid_t gid) {
  if (uid == 0 || gid == 0)
    return absl::InvalidArgumentError(
        "stages do not run as root; name another user by --stage-user");
  if (setgroups(0, nullptr) != 0 || setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot become user ", uid, ":", gid));
  if (setresuid(0, 0, 0) == 0) return absl::InternalError("the process can become root again");
  return absl::OkStatus();
}

absl::Status DropCapabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capset, &header, none) != 0)
    return absl::ErrnoToStatus(errno, "cannot give up capabilities");
  return absl::OkStatus();
}

}  // namespace heddle::worker::confine
