// What a running child uses, as the kernel tells the supervisor: for the limits that no rlimit sets.
//
// The child may be hostile, so what may not be looked at is told apart from what is not there.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace heddle::worker {

struct ThreadsInUse {
  int count = 0;
  // A thread may run on a core that is not among the allowed ones.
  bool elsewhere = false;
};
// Counts at most `limit` + 1 threads, and asks each of them for its cores. Null: this process may not
// know. `pid` has not been reaped.
std::optional<ThreadsInUse> WatchThreads(pid_t pid, const cpu_set_t& allowed, int limit);

struct BytesInUse {
  // Resident memory, without pages of mapped files: the system may drop those at any time.
  int64_t memory = 0;
  // Disk space, or memory, of files without a name that the process has open or mapped (O_TMPFILE,
  // memfd_create, files that were removed, shared memory).
  int64_t unnamed_files = 0;
  // It has mapped a file without a name and closed it, and this process may not ask for the size of
  // that, which takes the capability CHECKPOINT_RESTORE or SYS_ADMIN. What is mapped is counted.
  bool unseen_file = false;
};
// Nothing, if the process is about to end and holds nothing any more. Null: this process may not know.
// `pid` has not been reaped, and its threads share their descriptors (confine/filter.cc).
std::optional<BytesInUse> WatchBytes(pid_t pid);

}  // namespace heddle::worker
