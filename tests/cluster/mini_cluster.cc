#include "tests/cluster/mini_cluster.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace heddle {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(60);
constexpr absl::Duration kEndLimit = absl::Seconds(30);
constexpr absl::Duration kPoll = absl::Milliseconds(20);

// State letter and parent of a process; false if there is none.
bool ReadStat(const std::string& pid, char* state, pid_t* parent) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  return sscanf(line.c_str() + line.rfind(')') + 1, " %c %d", state, parent) == 2;
}

std::vector<int> Cores() {
  cpu_set_t set;
  std::vector<int> cores;
  sched_getaffinity(0, sizeof(set), &set);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

std::string Tail(const std::string& path, size_t bytes) {
  std::ifstream file(path);
  std::stringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  return text.size() <= bytes ? text : text.substr(text.size() - bytes);
}

}  // namespace

bool Alive(pid_t pid) {
  char state = 0;
  pid_t parent = 0;
  return ReadStat(std::to_string(pid), &state, &parent) && state != 'Z';
}

void Process::Start(const std::vector<std::string>& command, const std::string& log_file) {
  Kill();
  const pid_t test = getpid();
  pid_ = fork();
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != test) _exit(1);
  const int log = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(127);
}

bool Process::Running() {
  if (pid_ != 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
  return pid_ != 0;
}

std::vector<pid_t> Process::Children() const {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    char state = 0;
    pid_t parent = 0;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (ReadStat(name, &state, &parent) && parent == pid_ && state != 'Z')
      children.push_back(atoi(name.c_str()));
  }
  return children;
}

void Process::Kill() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

int Process::Terminate() {
  if (pid_ == 0) return -1;
  kill(pid_, SIGTERM);
  const absl::Time limit = absl::Now() + kEndLimit;
  while (absl::Now() < limit) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = 0;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    absl::SleepFor(kPoll);
  }
  return -1;
}

MiniCluster::MiniCluster() {
  std::string pattern = std::filesystem::temp_directory_path() / "heddle_cluster_XXXXXX";
  folder_ = mkdtemp(pattern.data());
}

MiniCluster::~MiniCluster() {
  scheduler.Kill();
  worker.Kill();
  tracker.Kill();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string MiniCluster::AddressFrom(const std::string& port_file, Process& process) const {
  const absl::Time limit = absl::Now() + kStartLimit;
  int port = 0;
  while (absl::Now() < limit && process.Running()) {
    std::ifstream file(port_file);
    if (file >> port) return "127.0.0.1:" + std::to_string(port);
    absl::SleepFor(kPoll);
  }
  return "";
}

void MiniCluster::StartTracker() {
  std::filesystem::remove(File("tracker.port"));
  tracker.Start({HEDDLE_BIN_DIR "/heddle-tracker", "--listen", tracker_address_, "--port-file",
                 File("tracker.port"), "--state", File("tracker.state")},
                File("tracker.log"));
  tracker_address_ = AddressFrom(File("tracker.port"), tracker);
}

void MiniCluster::StartWorker() {
  const std::vector<int> cores = Cores();
  worker.Start(
      {HEDDLE_BIN_DIR "/heddle-worker", "--tracker", tracker_address_, "--id", "w", "--cpu-slots",
       std::to_string(cores.front()), "--device-slots", std::to_string(cores.back()),
       "--blob-cache", File("cache"), "--machine", "table", "-v"},
      File("worker.log"));
}

void MiniCluster::StartScheduler() {
  std::filesystem::remove(File("scheduler.port"));
  scheduler.Start(
      {HEDDLE_BIN_DIR "/heddle-scheduler", "--listen", scheduler_address_, "--data", File("data"),
       "--tracker", tracker_address_, "--port-file", File("scheduler.port"), "-v"},
      File("scheduler.log"));
  scheduler_address_ = AddressFrom(File("scheduler.port"), scheduler);
}

std::string MiniCluster::Logs() const {
  std::string text;
  for (const char* name : {"tracker.log", "worker.log", "scheduler.log"}) {
    text += std::string("---- ") + name + "\n" + Tail(File(name), 6000) + "\n";
  }
  return text;
}

}  // namespace heddle
