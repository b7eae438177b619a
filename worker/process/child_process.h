// One child process in its own process group, confined to some cores, connected by pipes. Not
// thread-safe. The thread that starts a child must outlive it, since the kernel kills the child
// when that thread ends (PR_SET_PDEATHSIG).
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/confine/mechanisms.h"
#include "worker/process/child_watch.h"
#include "worker/process/stage_cgroup.h"

namespace heddle::worker {

struct ChildOptions {
  std::vector<std::string>
      command;                     // program and first arguments; the limits follow (stage_child.h)
  std::vector<int> cores;          // empty: any
  int64_t memory_limit_bytes = 0;  // of address space (stage_child.h); 0: none
  // Which the child applies to itself (stage_child.h), but for its control group.
  confine::Confinement confinement{};
  std::string folder{};                    // working directory; empty: that of this process
  std::vector<std::string> environment{};  // "NAME=value", besides confine::PassedVariables
};

struct ChildEnd {
  int wait_status = 0;
  absl::Duration cpu;
  int64_t peak_memory_bytes = 0;
};

// "killed by SIGSEGV", "exit status 3".
std::string DescribeEnd(int wait_status);

class ChildProcess {
 public:
  // Unavailable if the process or its pipes cannot be created, or the cores cannot be used. The
  // child inherits only descriptors 0 to 2, and of the environment what a stage needs.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildOptions& options);
  ~ChildProcess();  // kills and reaps, if End was not called

  // Non-blocking ends of the pipes.
  int in_fd() const { return in_; }
  int out_fd() const { return out_; }
  int err_fd() const { return err_; }
  bool in_open() const { return in_ >= 0; }
  void CloseIn();
  // Reads the available bytes and keeps only the tail. False once the pipe is closed.
  bool DrainErr();
  // The last line that is not blank, reduced to printable characters.
  std::string LastErrLine() const;

  // See child_watch.h.
  std::optional<ThreadsInUse> Threads(int limit) const {
    return WatchThreads(pid_, allowed_, limit);
  }
  std::optional<BytesInUse> Bytes() const { return WatchBytes(pid_); }
  int AllowedCores() const { return CPU_COUNT(&allowed_); }
  bool Exited() const;  // other processes of its group may still run
  // Whether out_fd can be read without waiting: there are bytes, or it has ended.
  bool HasOutput() const;
  pid_t pid() const { return pid_; }

  // Kills its whole group, and its control group if it has one. End is still to be called.
  void Kill() const;
  // Waits up to `patience` for the child to end by itself, kills its groups as Kill does and reaps it.
  // Afterwards no process of them is left.
  ChildEnd End(absl::Duration patience);

 private:
  ChildProcess(pid_t pid, const cpu_set_t& allowed, int in, int out, int err,
               std::unique_ptr<StageCgroup> cgroup)
      : allowed_(allowed), pid_(pid), in_(in), out_(out), err_(err), cgroup_(std::move(cgroup)) {}

  const cpu_set_t allowed_;  // the cores on which it was started
  pid_t pid_;                // 0 once reaped
  int in_;
  int out_;
  int err_;
  std::unique_ptr<StageCgroup> cgroup_;  // null: it has none
  std::string err_tail_;
};

}  // namespace heddle::worker
