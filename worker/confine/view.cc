#include "worker/confine/view.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace heddle::worker::confine {
namespace {

constexpr int kSpaces = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC;
// The new root holds folders and empty files on which others are mounted.
constexpr char kRootOptions[] = "size=1m,nr_inodes=4096,mode=755";

absl::Status Failed(absl::string_view what) {
  return absl::ErrnoToStatus(errno, absl::StrCat("namespaces: ", what));
}

absl::Status WriteFile(const char* path, absl::string_view text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return Failed(path);
  const ssize_t n = write(file, text.data(), text.size());
  const int error = errno;
  close(file);
  errno = error;
  return n == static_cast<ssize_t>(text.size()) ? absl::OkStatus() : Failed(path);
}

absl::Status EnterSpaces() {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  if (uid == 0) return unshare(kSpaces) == 0 ? absl::OkStatus() : Failed("root may not make them");
  if (unshare(CLONE_NEWUSER | kSpaces) != 0) return Failed("users may not make them");
  // The process stays who it is. Without groups of others, an unprivileged process may say so itself.
  HEDDLE_RETURN_IF_ERROR(WriteFile("/proc/self/setgroups", "deny"));
  HEDDLE_RETURN_IF_ERROR(WriteFile("/proc/self/uid_map", absl::StrCat(uid, " ", uid, " 1\n")));
  return WriteFile("/proc/self/gid_map", absl::StrCat(gid, " ", gid, " 1\n"));
}

// Makes the folders of `path` (all but the last part) below `root`. Those that are there stay.
absl::Status MakeParents(const std::string& root, const std::string& path) {
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    const std::string folder = root + path.substr(0, end);
    if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return Failed(folder);
  }
  return absl::OkStatus();
}

absl::Status MakePlace(const std::string& place, bool folder) {
  if (folder) {
    if (mkdir(place.c_str(), 0755) == 0 || errno == EEXIST) return absl::OkStatus();
    return Failed(place);
  }
  const int file = open(place.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  // A file that lies in a folder which is mounted already cannot be opened for writing, but is there.
  if (file < 0) return access(place.c_str(), F_OK) == 0 ? absl::OkStatus() : Failed(place);
  close(file);
  return absl::OkStatus();
}

absl::Status Show(const PathRule& rule, const std::string& root) {
  struct stat info;
  if (stat(rule.path.c_str(), &info) != 0) return absl::OkStatus();  // it does not exist
  const std::string place = root + rule.path;
  HEDDLE_RETURN_IF_ERROR(MakeParents(root, rule.path));
  HEDDLE_RETURN_IF_ERROR(MakePlace(place, S_ISDIR(info.st_mode)));
  if (mount(rule.path.c_str(), place.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return Failed(absl::StrCat("cannot show ", rule.path));
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_NOSUID;
  if (rule.access == Access::kRead) attributes.attr_set |= MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV;
  if (rule.access == Access::kWrite || rule.access == Access::kPrivate)
    attributes.attr_set |= MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  if (mount_setattr(AT_FDCWD, place.c_str(), AT_RECURSIVE, &attributes, sizeof(attributes)) != 0)
    return Failed(absl::StrCat("cannot protect ", rule.path));
  return absl::OkStatus();
}

}  // namespace

absl::Status EnterView(const std::vector<PathRule>& paths, const std::string& root,
                       const std::string& folder) {
  HEDDLE_RETURN_IF_ERROR(EnterSpaces());
  // The folders on the way to what is shown are for all to walk through.
  umask(S_IWGRP | S_IWOTH);
  // Mounts from here on are seen by this process alone.
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return Failed("/");
  if (mount("none", root.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, kRootOptions) != 0)
    return Failed(root);
  for (const PathRule& rule : paths) HEDDLE_RETURN_IF_ERROR(Show(rule, root));
  mount_attr read_only{};
  read_only.attr_set = MOUNT_ATTR_RDONLY;
  if (mount_setattr(AT_FDCWD, root.c_str(), 0, &read_only, sizeof(read_only)) != 0)
    return Failed(root);
  // The old root is put on top of the new one and taken off, which needs no folder for it.
  if (chdir(root.c_str()) != 0 || syscall(SYS_pivot_root, ".", ".") != 0 ||
      umount2(".", MNT_DETACH) != 0)
    return Failed("cannot change the root");
  if (chdir(folder.c_str()) != 0) return Failed(folder);
  return absl::OkStatus();
}

}  // namespace heddle::worker::confine
