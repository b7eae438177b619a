#include "worker/process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/confine/policy.h"

namespace heddle::worker {
namespace {

// A group is more than every host offers, so a stage runs without one, too. The supervisor still ends its session.
void WarnWithoutGroup(const absl::Status& why) {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  spdlog::warn("stages run without a control group from now on where one cannot be had: {}",
               std::string(why.message()));
}

// Error messages use only the last line; a few more help when someone debugs the worker.
constexpr size_t kErrTailBytes = 4096;
constexpr size_t kMaxLineBytes = 300;

struct Pipe {
  int read = -1;
  int write = -1;
  bool Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
  static void Close(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  static int Take(int& fd) {
    const int taken = fd;
    fd = -1;
    return taken;
  }
  ~Pipe() {
    Close(read);
    Close(write);
  }
};

// Confines the calling thread to the child's cores during its start, so that not even the child's
// loader runs elsewhere.
class ThreadCores {
 public:
  explicit ThreadCores(const std::vector<int>& cores) {
    if (cores.empty()) return;
    if (sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    for (int core : cores) CPU_SET(core, &wanted);
    changed_ = ok_ = sched_setaffinity(0, sizeof(wanted), &wanted) == 0;
  }
  ~ThreadCores() {
    if (changed_) sched_setaffinity(0, sizeof(before_), &before_);
  }
  bool ok(const std::vector<int>& cores) const { return cores.empty() || ok_; }

 private:
  cpu_set_t before_;
  bool changed_ = false;
  bool ok_ = false;
};

// A path of a file that depends on the working directory, which the child has another one of, made
// independent of it. Names without folders and lists of folders stay.
std::string Independent(const std::string& value) {
  const bool path = value.find('/') != std::string::npos && value.find(':') == std::string::npos;
  if (!path || value.front() == '/') return value;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(value, error);
  return error ? value : absolute.string();
}

// Nothing of this process's own secrets. Limits OpenMP to the number of cores, and keeps waiting
// OpenMP threads from spinning on a core that measures.
std::vector<std::string> ChildEnvironment(const ChildOptions& options) {
  std::vector<std::string> result = options.environment;
  for (const std::string& name : confine::PassedVariables()) {
    const char* value = std::getenv(name.c_str());
    if (value != nullptr) result.push_back(absl::StrCat(name, "=", Independent(value)));
  }
  result.push_back("OMP_WAIT_POLICY=passive");
  if (!options.cores.empty())
    result.push_back(absl::StrCat("OMP_NUM_THREADS=", options.cores.size()));
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

int Spawn(const ChildOptions& options, const Pipe& in, const Pipe& out, const Pipe& err,
          pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  if (!options.folder.empty())
    posix_spawn_file_actions_addchdir_np(&actions, options.folder.c_str());
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A batch system that takes the machine away sends SIGTERM to all processes. The supervisor decides
  // what becomes of its stages, and ends them by SIGKILL.
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &blocked);
  posix_spawnattr_setsigdefault(&attributes, &all);
  std::vector<std::string> arguments = options.command;
  arguments.push_back(absl::StrCat(options.memory_limit_bytes));
  arguments.push_back(absl::StrCat(getpid()));
  arguments.push_back(confine::ToText(options.confinement));
  std::vector<std::string> environment = ChildEnvironment(options);
  const int error = posix_spawn(pid, arguments[0].c_str(), &actions, &attributes,
                                Pointers(arguments).data(), Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

std::string DescribeEnd(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const char* name = sigabbrev_np(WTERMSIG(wait_status));
    return name != nullptr ? absl::StrCat("killed by SIG", name)
                           : absl::StrCat("killed by signal ", WTERMSIG(wait_status));
  }
  return absl::StrCat("exit status ", WEXITSTATUS(wait_status));
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const ChildOptions& options) {
  Pipe in;
  Pipe out;
  Pipe err;
  if (!in.Open() || !out.Open() || !err.Open()) {
    return absl::UnavailableError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  }
  for (int fd : {in.write, out.read, err.read}) fcntl(fd, F_SETFL, O_NONBLOCK);
  ThreadCores confined(options.cores);
  if (!confined.ok(options.cores)) {
    return absl::UnavailableError(absl::StrCat(
        "cannot run on cores ", absl::StrJoin(options.cores, ","), ": ", std::strerror(errno)));
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot tell the cores of this process: ", std::strerror(errno)));
  }
  std::unique_ptr<StageCgroup> cgroup;
  if (options.confinement.cgroup) {
    // The supervisor tells a child by its looks that it has too many threads (child_watch.h). The kernel stops
    // what is faster.
    const int most = 2 * confine::MaxThreads(CPU_COUNT(&allowed));
    absl::StatusOr<std::unique_ptr<StageCgroup>> made = StageCgroup::Make(most);
    if (made.ok())
      cgroup = *std::move(made);
    else
      WarnWithoutGroup(made.status());
  }
  pid_t pid = 0;
  if (const int error = Spawn(options, in, out, err, &pid); error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot start ", options.command[0], ": ", std::strerror(error)));
  }
  std::unique_ptr<ChildProcess> child(new ChildProcess(pid, allowed, Pipe::Take(in.write),
                                                       Pipe::Take(out.read), Pipe::Take(err.read),
                                                       std::move(cgroup)));
  // It has not been told yet what to do, so it has started nothing that would stay outside.
  if (child->cgroup_ != nullptr) {
    if (const absl::Status added = child->cgroup_->Add(pid); !added.ok()) {
      WarnWithoutGroup(added);
      child->cgroup_.reset();
    }
  }
  return child;
}

ChildProcess::~ChildProcess() {
  if (pid_ != 0) End(absl::ZeroDuration());
  CloseIn();
  close(out_);
  close(err_);
}

void ChildProcess::CloseIn() { Pipe::Close(in_); }

bool ChildProcess::DrainErr() {
  char buffer[4096];
  // Bounded, so that a child that prints without end cannot hold the supervisor here.
  for (int round = 0; round < 16; ++round) {
    const ssize_t n = read(err_, buffer, sizeof(buffer));
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    err_tail_.append(buffer, n);
    if (err_tail_.size() > kErrTailBytes) err_tail_.erase(0, err_tail_.size() - kErrTailBytes);
  }
  return true;
}

std::string ChildProcess::LastErrLine() const {
  std::string text = err_tail_;
  for (char& c : text) {
    if (c != '\n' && !absl::ascii_isprint(static_cast<unsigned char>(c))) c = ' ';
  }
  const size_t end = text.find_last_not_of(" \n");
  if (end == std::string::npos) return "";
  const size_t begin = text.rfind('\n', end);
  const size_t first = begin == std::string::npos ? 0 : begin + 1;
  std::string line = text.substr(first, end + 1 - first);
  absl::StripAsciiWhitespace(&line);
  return line.substr(0, kMaxLineBytes);
}

bool ChildProcess::Exited() const {
  siginfo_t info{};
  // Checks without reaping: the id of the process group must not be reused before the group is
  // killed.
  return waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
}

bool ChildProcess::HasOutput() const {
  pollfd fd = {.fd = out_, .events = POLLIN, .revents = 0};
  return poll(&fd, 1, 0) > 0;
}

void ChildProcess::Kill() const {
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);  // in case it died before it had a group
  if (cgroup_ != nullptr) cgroup_->Kill();
}

ChildEnd ChildProcess::End(absl::Duration patience) {
  CloseIn();
  const absl::Time give_up = MonotonicNow() + patience;
  while (!Exited() && MonotonicNow() < give_up) absl::SleepFor(absl::Milliseconds(2));
  Kill();
  ChildEnd end;
  rusage usage{};
  while (wait4(pid_, &end.wait_status, 0, &usage) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  cgroup_.reset();
  DrainErr();
  end.cpu = absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
  end.peak_memory_bytes = static_cast<int64_t>(usage.ru_maxrss) * 1024;
  return end;
}

}  // namespace heddle::worker
