// What a running child uses, as the kernel tells the supervisor: for the limits that no rlimit sets.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstdint>

namespace heddle::worker {

struct ThreadsInUse {
  int count = 0;
  // A thread may run on a core that is not among the allowed ones.
  bool elsewhere = false;
};
// Counts at most `limit` + 1 threads, and asks each of them for its cores. None if the process is gone.
ThreadsInUse WatchThreads(pid_t pid, const cpu_set_t& allowed, int limit);

// Disk space, or memory, of files without a name that the process holds open (O_TMPFILE, memfd_create).
// 0 if the process is gone, or may not be looked at.
int64_t UnnamedFileBytes(pid_t pid);

}  // namespace heddle::worker
