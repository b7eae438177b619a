#include "worker/confine/filter.h"

#include <asm/ioctls.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace heddle::worker::confine {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "worker/confine/filter.cc: add the AUDIT_ARCH of this machine"
#endif

// Calls that may be made with any arguments.
constexpr int kAllowed[] = {
    // Files. Users, namespaces and Landlock decide which files a stage may open.
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_lseek,
    SYS_close,
    SYS_dup,
    SYS_dup3,
    SYS_openat,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_getcwd,
    SYS_mkdirat,
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_fsync,
    SYS_fdatasync,
    SYS_flock,
    SYS_fadvise64,
    SYS_statfs,
    SYS_fstatfs,
    SYS_umask,
    SYS_memfd_create,
#if defined(__x86_64__)
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_mkdir,
    SYS_rmdir,
    SYS_unlink,
    SYS_rename,
    SYS_dup2,
#endif
    // Memory.
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_msync,
    SYS_mincore,
    SYS_membarrier,
    // Threads.
    SYS_futex,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_set_tid_address,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_getcpu,
    SYS_exit,
    SYS_exit_group,
    // What the process is and what it used.
    SYS_getpid,
    SYS_gettid,
    SYS_getppid,
    SYS_getpgid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getrusage,
    SYS_times,
    SYS_uname,
    SYS_sysinfo,
    SYS_getrandom,
#if defined(__x86_64__)
    SYS_getpgrp,
    SYS_getrlimit,
    SYS_arch_prctl,
#endif
    // Time.
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
#if defined(__x86_64__)
    SYS_time,
#endif
    // Its own signals, and waiting.
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigpending,
    SYS_rt_sigtimedwait,
    SYS_rt_sigsuspend,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_ppoll,
    SYS_pselect6,
#if defined(__x86_64__)
    SYS_poll,
    SYS_select,
    SYS_pause,
#endif
};

// What the driver of a GPU calls besides: its threads wait on descriptors, and it shares memory between
// processes by a UNIX socket of its own, to which nobody connects here.
constexpr int kAllowedForGpus[] = {
    SYS_eventfd2,       SYS_pipe2,           SYS_epoll_create1, SYS_epoll_ctl,     SYS_epoll_pwait,
    SYS_timerfd_create, SYS_timerfd_settime, SYS_bind,          SYS_listen,        SYS_accept4,
    SYS_getsockname,    SYS_getsockopt,      SYS_setsockopt,    SYS_shutdown,      SYS_mlock,
    SYS_munlock,        SYS_mbind,           SYS_get_mempolicy, SYS_set_mempolicy, SYS_readahead,
    SYS_capget,         SYS_getpriority,     SYS_sched_getattr, SYS_preadv,        SYS_pwritev,
    SYS_fchmod,
#if defined(__x86_64__)
    SYS_pipe,           SYS_epoll_wait,
#endif
};

// What one argument of a call must be: after `mask`, one of `values`, or none of them.
struct Condition {
  int argument = 0;
  std::vector<uint32_t> values;
  uint32_t mask = 0xffffffff;
  bool upper_half = false;  // of the 64 bits; the kernel itself ignores it in arguments of 32 bits
  bool none_of = false;
};

constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;

class Program {
 public:
  // Another kind of machine's calls have other numbers, so that process ends.
  Program() {
    Add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
    Jump(BPF_JEQ, kArchitecture, 1, 0);
    Return(SECCOMP_RET_KILL_PROCESS);
    Add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    constexpr uint32_t kX32 = 0x40000000;  // the second set of calls of x86-64
    Jump(BPF_JGE, kX32, 0, 1);
    Return(kRefuse);
#endif
  }
  // From here on until the end, the accumulator holds the number of the call.
  void Answer(int call, uint32_t answer) {
    Jump(BPF_JEQ, static_cast<uint32_t>(call), 0, 1);
    Return(answer);
  }
  void Allow(int call) { Answer(call, SECCOMP_RET_ALLOW); }
  void AllowIf(int call, const std::vector<Condition>& conditions) {
    size_t length = 1;
    for (const Condition& condition : conditions) length += LengthOf(condition);
    Jump(BPF_JEQ, static_cast<uint32_t>(call), 0, static_cast<uint8_t>(length));
    for (const Condition& condition : conditions) Check(condition);
    Return(SECCOMP_RET_ALLOW);
  }
  std::vector<sock_filter> Finish() {
    Return(kRefuse);
    return std::move(code_);
  }

 private:
  void Add(uint16_t code, uint32_t value, uint8_t if_true = 0, uint8_t if_false = 0) {
    code_.push_back({code, if_true, if_false, value});
  }
  void Jump(uint16_t test, uint32_t value, uint8_t if_true, uint8_t if_false) {
    Add(BPF_JMP | BPF_K | test, value, if_true, if_false);
  }
  void Return(uint32_t answer) { Add(BPF_RET | BPF_K, answer); }
  static size_t LengthOf(const Condition& condition) { return condition.values.size() + 3; }
  // Goes on after its last instruction, which refuses, if the condition holds. LengthOf(condition)
  // instructions: load, mask, one comparison for each value, refuse.
  void Check(const Condition& condition) {
    Add(BPF_LD | BPF_W | BPF_ABS,
        static_cast<uint32_t>(offsetof(seccomp_data, args) +
                              sizeof(uint64_t) * static_cast<size_t>(condition.argument) +
                              (condition.upper_half ? 4 : 0)));  // both machines are little-endian
    Add(BPF_ALU | BPF_AND | BPF_K, condition.mask);
    const size_t count = condition.values.size();
    for (size_t i = 0; i < count; ++i) {
      const auto to_end = static_cast<uint8_t>(count - 1 - i);  // where the call is refused
      const bool last = i + 1 == count;
      if (condition.none_of) {
        Jump(BPF_JEQ, condition.values[i], to_end, last ? 1 : 0);
      } else {
        Jump(BPF_JEQ, condition.values[i], static_cast<uint8_t>(to_end + 1), 0);
      }
    }
    Return(kRefuse);
  }

  std::vector<sock_filter> code_;
};

std::vector<sock_filter> Assemble(bool gpu) {
  const auto own = static_cast<uint32_t>(getpid());
  constexpr uint32_t kNewSpaces = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                                  CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP;
  constexpr uint32_t kNameOfMemory = 0x53564d41;  // PR_SET_VMA, which the C library calls
  Program program;
  for (const int call : kAllowed) program.Allow(call);
  // Threads, not processes. The C library falls back to `clone`, whose flags can be looked at. All threads
  // share their descriptors, so that the supervisor sees all of those (child_watch.h).
  program.Answer(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
  program.AllowIf(SYS_clone, {{.argument = 0,
                               .values = {CLONE_THREAD | CLONE_FILES},
                               .mask = CLONE_THREAD | CLONE_FILES | kNewSpaces}});
  program.AllowIf(SYS_close_range, {{.argument = 2, .values = {0, CLOSE_RANGE_CLOEXEC}}});
  // Signals to itself, as abort() sends them.
  program.AllowIf(SYS_tgkill, {{.argument = 0, .values = {own}}});
  program.AllowIf(SYS_kill, {{.argument = 0, .values = {own}}});
  // A thread chooses its own cores. Whether they are the slot's is for the supervisor to watch
  // (child_watch.h), since a filter cannot look behind pointers.
  program.AllowIf(SYS_sched_setaffinity, {{.argument = 0, .values = {0}}});
  // Limits are read, not set.
  program.AllowIf(SYS_prlimit64, {{.argument = 0, .values = {0, own}},
                                  {.argument = 2, .values = {0}},
                                  {.argument = 2, .values = {0}, .upper_half = true}});
  // Not F_SETOWN and F_SETSIG, by which the kernel sends a signal on the process's behalf.
  program.AllowIf(
      SYS_fcntl, {{.argument = 1,
                   .values = {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK,
                              F_SETLK, F_SETLKW, F_ADD_SEALS, F_GET_SEALS}}});
  // Not PR_SET_PDEATHSIG, by which the process would outlive the worker.
  program.AllowIf(
      SYS_prctl,
      {{.argument = 0, .values = {PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, kNameOfMemory}}});
  if (gpu) {
    for (const int call : kAllowedForGpus) program.Allow(call);
    // All that drivers define, and nothing that types into terminals or makes signals.
    program.AllowIf(SYS_ioctl, {{.argument = 1,
                                 .values = {TIOCSTI, TIOCLINUX, TIOCSCTTY, TIOCSETD, TIOCSPGRP,
                                            FIOSETOWN, SIOCSPGRP, FIOASYNC},
                                 .none_of = true}});
    program.AllowIf(SYS_socket, {{.argument = 0, .values = {AF_UNIX}}});
  } else {
    program.AllowIf(SYS_ioctl, {{.argument = 1, .values = {TCGETS, FIONREAD}}});
  }
  return program.Finish();
}

}  // namespace

absl::Status ApplyFilter(bool gpu) {
  std::vector<sock_filter> code = Assemble(gpu);
  const sock_fprog program{.len = static_cast<unsigned short>(code.size()), .filter = code.data()};
  for (const unsigned flags : {static_cast<unsigned>(SECCOMP_FILTER_FLAG_SPEC_ALLOW), 0u}) {
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0)
      return absl::OkStatus();
    if (errno != EINVAL) break;  // kernels before 4.17 do not know the flag
  }
  return absl::ErrnoToStatus(errno, "filter: cannot be applied");
}

}  // namespace heddle::worker::confine
