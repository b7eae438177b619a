#include "scheduler/service/embedded.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "proto/access/local_socket.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(20);  // for the tracker, on a busy machine
constexpr absl::Duration kEndLimit = absl::Seconds(5);     // from SIGTERM to SIGKILL
constexpr absl::Duration kPoll = absl::Milliseconds(50);
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(200);
constexpr absl::Duration kLastBackoff = absl::Seconds(10);

cpu_set_t CoreSet(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores) CPU_SET(core, &set);
  return set;
}

constexpr absl::Duration kHealthy =
    absl::Seconds(30);  // a child that ran this long starts with the first backoff again

// Starts a child that ends when this process ends, in whatever way. It may run on `cores`, or where
// this process may if that is empty.
pid_t Spawn(const std::vector<std::string>& command, const std::vector<int>& cores) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const cpu_set_t set = CoreSet(cores);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  // A Ctrl-C at the terminal must reach only the scheduler, which then ends its children in order.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  if (!cores.empty()) sched_setaffinity(0, sizeof(set), &set);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);  // stdout belongs to the scheduler's own answer
  execv(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace

std::vector<int> AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void ConfineToCpuSlots(const std::vector<int>& cores) {
  std::vector<int> ours;
  for (const std::string& core : PlanSlots(cores).cpu_slots) ours.push_back(std::stoi(core));
  const cpu_set_t set = CoreSet(ours);
  if (sched_setaffinity(0, sizeof(set), &set) != 0)
    spdlog::warn("cannot keep off the cores that measure: measurements may be noisy");
}

SlotPlan PlanSlots(const std::vector<int>& cores) {
  SlotPlan plan;
  if (cores.size() == 1) {
    plan.cpu_slots = plan.device_slots = {absl::StrCat(cores[0])};
    return plan;
  }
  for (size_t i = 0; i + 1 < cores.size(); ++i) plan.cpu_slots.push_back(absl::StrCat(cores[i]));
  plan.device_slots.push_back(absl::StrCat(cores.back()));
  if (cores.size() == 2) plan.device_slots.push_back(absl::StrCat(cores[0], "-", cores[1]));
  return plan;
}

absl::StatusOr<std::unique_ptr<EmbeddedCluster>> EmbeddedCluster::Start(Options options) {
  for (const char* name : {"heddle-tracker", "heddle-worker"}) {
    const std::string path = options.binary_directory + "/" + name;
    if (access(path.c_str(), X_OK) != 0)
      return absl::NotFoundError(absl::StrCat("--embedded needs ", path, ": build it"));
  }
  std::unique_ptr<EmbeddedCluster> cluster(new EmbeddedCluster(std::move(options)));
  HEDDLE_ASSIGN_OR_RETURN(cluster->socket_folder_, SocketFolder(cluster->options_.data_directory));
  HEDDLE_RETURN_IF_ERROR(cluster->CheckConfinement());
  HEDDLE_RETURN_IF_ERROR(cluster->StartTracker());
  cluster->StartWorker();
  EmbeddedCluster* self = cluster.get();
  // PR_SET_PDEATHSIG acts when the thread that forked ends. That is this thread, which outlives the
  // cluster, or the supervising thread, which ends the children before it ends itself.
  self->thread_ = std::thread([self] { self->Supervise(); });
  return cluster;
}

absl::Status EmbeddedCluster::CheckConfinement() const {
  if (!options_.require_confinement) return absl::OkStatus();
  const std::string worker = options_.binary_directory + "/heddle-worker";
  const pid_t pid = Spawn({worker, "--check"}, {});
  int status = 0;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("stages cannot be confined on this host; `",
                                                 worker, " --check` says what is missing"));
}

absl::Status EmbeddedCluster::StartTracker() {
  const std::string port_file = options_.data_directory + "/tracker.port";
  std::error_code ignored;
  std::filesystem::remove(port_file, ignored);
  tracker_address_ = absl::StrCat("unix:", socket_folder_, "/tracker");
  Child tracker{"heddle-tracker",
                {options_.binary_directory + "/heddle-tracker", "--listen", tracker_address_,
                 "--port-file", port_file, "--state", options_.data_directory + "/tracker.state",
                 "--audit", options_.data_directory + "/audit-tracker"},
                {},
                0,
                MonotonicNow(),
                absl::InfinitePast(),
                0};
  for (const std::string& flag : LogFlags(options_.log, "tracker")) tracker.command.push_back(flag);
  tracker.pid = Spawn(tracker.command, tracker.cores);
  const absl::Time limit = MonotonicNow() + kStartLimit;
  int port = 0;
  while (port == 0 && MonotonicNow() < limit) {
    std::ifstream file(port_file);
    if (!(file >> port)) port = 0;
    int status = 0;
    if (port == 0 && waitpid(tracker.pid, &status, WNOHANG) == tracker.pid) {
      return absl::InternalError("heddle-tracker ended at once; its own message is above");
    }
    if (port == 0) absl::SleepFor(kPoll);
  }
  if (port == 0) {
    kill(tracker.pid, SIGKILL);
    waitpid(tracker.pid, nullptr, 0);
    return absl::DeadlineExceededError("heddle-tracker did not start");
  }
  children_.push_back(std::move(tracker));
  return absl::OkStatus();
}

void EmbeddedCluster::StartWorker() {
  const SlotPlan plan = PlanSlots(options_.cores);
  Child worker{"heddle-worker",
               {options_.binary_directory + "/heddle-worker", "--tracker", tracker_address_,
                "--listen", absl::StrCat("unix:", socket_folder_, "/worker"), "--id", "local",
                "--blob-cache", options_.data_directory + "/worker-blobs", "--profile", "all"},
               {},
               0,
               MonotonicNow(),
               absl::InfinitePast(),
               0};
  for (const std::string& cores : plan.cpu_slots)
    worker.command.insert(worker.command.end(), {"--cpu-slots", cores});
  for (const std::string& cores : plan.device_slots)
    worker.command.insert(worker.command.end(), {"--device-slots", cores});
  for (const std::string& flag : LogFlags(options_.log, "worker")) worker.command.push_back(flag);
  if (options_.unguarded) worker.command.push_back("--unguarded");
  if (options_.require_confinement) worker.command.push_back("--require-confinement");
  spdlog::info("embedded: {}", absl::StrJoin(worker.command, " "));
  worker.cores =
      options_.cores;  // it confines itself, and gives its stages the cores of their slots
  worker.pid = Spawn(worker.command, worker.cores);
  children_.push_back(std::move(worker));
}

void EmbeddedCluster::Restart(Child* child, absl::Time now) {
  child->pid = Spawn(child->command, child->cores);
  child->started = now;
  spdlog::warn("{} is started again", child->name);
}

void EmbeddedCluster::Supervise() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&stop_), kPoll);
      if (stop_) break;
    }
    const absl::Time now = MonotonicNow();
    for (Child& child : children_) {
      int status = 0;
      if (child.pid > 0 && waitpid(child.pid, &status, WNOHANG) == child.pid) {
        child.pid = 0;
        if (now - child.started > kHealthy) child.failures = 0;
        child.not_before =
            now + std::min(kLastBackoff, kFirstBackoff * (1 << std::min(child.failures++, 10)));
        spdlog::warn("{} ended ({})", child.name,
                     WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                                         : absl::StrCat("exit status ", WEXITSTATUS(status)));
      }
      if (child.pid == 0 && child.not_before <= now) Restart(&child, now);
    }
  }
  EndChildren();
}

EmbeddedCluster::~EmbeddedCluster() {
  if (!thread_.joinable()) return;  // a start that failed leaves no children
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void EmbeddedCluster::EndChildren() {
  // The worker ends first, so that it can sign off at the tracker.
  for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
    if (child->pid <= 0) continue;
    kill(child->pid, SIGTERM);
    const absl::Time limit = MonotonicNow() + kEndLimit;
    while (waitpid(child->pid, nullptr, WNOHANG) == 0) {
      if (MonotonicNow() > limit) {
        kill(child->pid, SIGKILL);
        waitpid(child->pid, nullptr, 0);
        break;
      }
      absl::SleepFor(absl::Milliseconds(10));
    }
  }
  // What is left are dead sockets. The folder stays if the scheduler's own is in it.
  std::error_code ignored;
  for (const char* socket : {"/tracker", "/worker", ""})
    std::filesystem::remove(socket_folder_ + socket, ignored);
}

}  // namespace heddle::scheduler
