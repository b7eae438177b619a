// A control group (cgroup v2) for the processes of one stage: all of them end with it, also those that have
// left the stage's process group, and the kernel lets them have only so many threads, where the supervisor
// only looks now and then (child_watch.h).
//
// Groups are made beside the worker's own processes: in its control group if that was given to it (systemd's
// Delegate=), or in the topmost one that it sees, as root or in a container.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heddle::worker {

// Where a process is, from /proc/self/cgroup and /proc/self/mountinfo.
struct OwnCgroup {
  std::string folder;    // of its group; empty: there is no cgroup v2
  bool topmost = false;  // there is none above it that it sees
};
OwnCgroup FindOwnCgroup(absl::string_view cgroup, absl::string_view mountinfo);

// The folder in which a worker in that group makes groups: its own group, or the one above if the worker was put, or has put
// itself (LimitThreads), into a group below the one that was given to it. `given`: whether a group was given to whoever
// runs in it. Unavailable, with one line, if there is none.
absl::StatusOr<std::string> PlaceOfGroups(
    const OwnCgroup& own, const std::function<bool(const std::string& folder)>& given);
// Whether the process can have the kernel count threads in groups made in the folder. It cannot in the topmost group of
// the machine, nor where another process is in the folder's group itself.
bool CanLimitThreads(const std::string& folder, pid_t process);
// Whether the group was given to the processes that run in it, which systemd marks. A group with a service manager in it,
// such as `user@1000.service`, belongs to that manager and not to a worker in it.
bool IsGiven(const std::string& folder);
// Whether a group of this name belongs to a stage of a worker that is gone: one of another process, or an earlier one with
// the number of the calling process.
bool IsLeft(absl::string_view group);
// The limits of threads of all stages with a group in the folder, by their files. The kernel drops the limits when they
// are turned off above, and LimitAgain sets them.
std::map<std::string, std::string> ThreadLimits(const std::string& folder);
void LimitAgain(const std::map<std::string, std::string>& limits);
// Turns the limits of threads in the folder on again if they are off, and sets those of the caller's stages that the kernel
// has dropped, by their files. A worker that ends while it starts in the same group leaves them off. Until then the supervisor's
// own looks limit threads. They stay off while a process is in the folder's group itself.
void RestoreLimits(const std::string& folder, const std::map<std::string, std::string>& limits);

class StageCgroup {
 public:
  // Makes a group without processes. Threads are limited only if LimitThreads was done, or somebody else has
  // turned the limit on. Where LimitThreads has turned it on, this restores limits that others have turned off (RestoreLimits). Unavailable,
  // with one line, if no group can be made.
  static absl::StatusOr<std::unique_ptr<StageCgroup>> Make(int max_threads);
  // Ends what is in the group, waits for that, and removes the group.
  ~StageCgroup();
  StageCgroup(const StageCgroup&) = delete;
  StageCgroup& operator=(const StageCgroup&) = delete;

  // Moves the process into the group. Those that it starts from then on are in it, too. Waits for up to 200 ms if another
  // worker starts in the group above just now.
  absl::Status Add(pid_t pid);
  // Kills all processes of the group.
  void Kill() const;
  bool limits_threads() const { return limits_threads_; }

  // PlaceOfGroups for the calling process.
  static absl::StatusOr<std::string> Place();
  // Turns the limit of threads on for groups made later. For that, the calling process moves into a group
  // of its own beside them, since one with limited groups has no processes itself. Stages of another worker there keep their
  // limits, but for the moment of that move. Also removes groups that ended workers have left. Call once, before Probe and before there are stages; without effect where there are no groups.
  static void LimitThreads();
  // Tries a group, with a process of its own in it. One line says what groups can do here, or could after LimitThreads.
  // Unavailable says what is missing.
  static absl::StatusOr<std::string> Probe();

 private:
  StageCgroup(std::string folder, bool limits_threads)
      : folder_(std::move(folder)), limits_threads_(limits_threads) {}

  const std::string folder_;
  const bool limits_threads_;
};

}  // namespace heddle::worker
