#include "tests/cluster/mini_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/places.h"

namespace heddle {
namespace {

// How long a process may neither do what is waited for nor use the CPU. One that gets little of it,
// on a busy machine, may take longer.
constexpr absl::Duration kStartLimit = absl::Seconds(60);
constexpr absl::Duration kEndLimit = absl::Seconds(30);
constexpr int kMostLimits = 10;  // that a process may take by using the CPU
constexpr absl::Duration kPoll = absl::Milliseconds(20);

// State letter and parent of a process; false if there is none.
bool ReadStat(const std::string& pid, char* state, pid_t* parent) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  return sscanf(line.c_str() + line.rfind(')') + 1, " %c %d", state, parent) == 2;
}

// The CPU time of all threads of a process, in ticks of the kernel's clock; 0 if it is gone.
int64_t CpuTicks(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  int64_t user = 0, system = 0;
  if (!std::getline(file, line)) return 0;
  // The 14th and 15th fields, after the name in brackets; see proc(5).
  const int read =
      sscanf(line.c_str() + line.rfind(')') + 1,
             " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNd64 " %" SCNd64, &user, &system);
  return read == 2 ? user + system : 0;
}

// Tells when there is no use in waiting for a process any more.
class Patience {
 public:
  Patience(pid_t pid, absl::Duration limit)
      : pid_(pid), limit_(limit), began_(absl::Now()), used_cpu_(began_) {}
  bool IsOver() {
    const absl::Time now = absl::Now();
    if (const int64_t ticks = CpuTicks(pid_); ticks != ticks_) {
      ticks_ = ticks;
      used_cpu_ = now;
    }
    return now > used_cpu_ + limit_ || now > began_ + kMostLimits * limit_;
  }

 private:
  const pid_t pid_;
  const absl::Duration limit_;
  const absl::Time began_;
  absl::Time used_cpu_;
  int64_t ticks_ = 0;
};

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

int PortOf(const std::string& address) { return atoi(address.c_str() + address.rfind(':') + 1); }

// A port that nobody listens on now.
int FreePort() {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound = bind(file, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(file, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(file);
  return bound ? ntohs(address.sin_port) : 0;
}

}  // namespace

bool Alive(pid_t pid) {
  char state = 0;
  pid_t parent = 0;
  return ReadStat(std::to_string(pid), &state, &parent) && state != 'Z';
}

void Process::Start(const std::vector<std::string>& command, const std::string& log_file,
                    const std::vector<std::string>& environment) {
  Kill();
  const pid_t test = getpid();
  pid_ = fork();
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != test) _exit(1);
  const int log = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
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

void Process::Stop() {
  if (pid_ != 0) kill(pid_, SIGSTOP);
}

void Process::Continue() {
  if (pid_ != 0) kill(pid_, SIGCONT);
}

int Process::Terminate() {
  if (pid_ != 0) kill(pid_, SIGTERM);
  return WaitForEnd();
}

int Process::WaitForEnd() {
  if (pid_ == 0) return -1;
  Patience patience(pid_, kEndLimit);
  while (!patience.IsOver()) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = 0;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    absl::SleepFor(kPoll);
  }
  return -1;
}

MiniCluster::MiniCluster(Options options)
    : options_(std::move(options)), links_(options_.links ? std::make_unique<Links>() : nullptr) {
  std::string pattern = std::filesystem::temp_directory_path() / "heddle_cluster_XXXXXX";
  folder_ = mkdtemp(pattern.data());
  if (!options_.tracker_address.empty()) tracker_address_ = options_.tracker_address;
}

MiniCluster::~MiniCluster() {
  second.Kill();
  scheduler.Kill();
  worker.Kill();
  tracker.Kill();
  second_tracker.Kill();
  std::error_code ignored;
  if (!keep_) std::filesystem::remove_all(folder_, ignored);
}

std::string MiniCluster::AddressFrom(const std::string& port_file, Process& process) const {
  Patience patience(process.pid(), kStartLimit);
  int port = 0;
  while (!patience.IsOver() && process.Running()) {
    std::ifstream file(port_file);
    if (file >> port) return "127.0.0.1:" + std::to_string(port);
    absl::SleepFor(kPoll);
  }
  return "";
}

void MiniCluster::StartTracker() {
  StartTrackerAs("tracker", &tracker, &tracker_address_);
  if (!links_) return;
  links_->worker_to_tracker.SetTarget(PortOf(tracker_address_));
  links_->scheduler_to_tracker.SetTarget(PortOf(tracker_address_));
}

void MiniCluster::StartSecondTracker() {
  StartTrackerAs("second_tracker", &second_tracker, &second_tracker_address_);
  if (!links_) return;
  links_->worker_to_second_tracker.SetTarget(PortOf(second_tracker_address_));
  links_->scheduler_to_second_tracker.SetTarget(PortOf(second_tracker_address_));
}

void MiniCluster::StartTrackerAs(const std::string& name, Process* process, std::string* address) {
  std::filesystem::remove(File(name + ".port"));
  std::vector<std::string> command = {HEDDLE_BIN_DIR "/heddle-tracker",
                                      "--listen",
                                      *address,
                                      "--port-file",
                                      File(name + ".port"),
                                      "--state",
                                      File(name + ".state")};
  if (options_.expiry_s > 0)
    command.insert(command.end(), {"--expiry", std::to_string(options_.expiry_s)});
  if (options_.two_trackers) command.emplace_back("--appointed");
  process->Start(command, File(name + ".log"), options_.environment);
  *address = AddressFrom(File(name + ".port"), *process);
}

std::string MiniCluster::TrackersFor(TcpProxy Links::*first, TcpProxy Links::*second) const {
  const auto address = [this](TcpProxy Links::*link, const std::string& direct) {
    return links_ ? (links_.get()->*link).address() : direct;
  };
  const std::string one = address(first, tracker_address_);
  return options_.two_trackers ? one + "," + address(second, second_tracker_address_) : one;
}

void MiniCluster::StartWorker() {
  const std::vector<int> cores = Cores();
  std::vector<std::string> command = {
      HEDDLE_BIN_DIR "/heddle-worker",
      "--tracker",
      TrackersFor(&Links::worker_to_tracker, &Links::worker_to_second_tracker),
      "--id",
      "w",
      "--cpu-slots",
      std::to_string(cores.front()),
      "--device-slots",
      std::to_string(cores.back()),
      "--blob-cache",
      File("cache"),
      "--machine",
      "table",
      "-v"};
  if (links_) {
    if (worker_port_ == 0) {
      worker_port_ = FreePort();
      links_->scheduler_to_worker.SetTarget(worker_port_);
    }
    command.insert(command.end(), {"--listen", "127.0.0.1:" + std::to_string(worker_port_),
                                   "--advertise", links_->scheduler_to_worker.address()});
  }
  worker.Start(command, File("worker.log"), options_.environment);
}

void MiniCluster::StartScheduler() {
  StartSchedulerAs("scheduler", options_.store, &scheduler, &scheduler_address_);
  if (links_) links_->client_to_scheduler.SetTarget(PortOf(scheduler_address_));
}

void MiniCluster::StartSecond() {
  StartSchedulerAs("second", options_.second_store, &second, &second_address_);
}

void MiniCluster::StartSchedulerAs(const std::string& name, const std::string& store,
                                   Process* process, std::string* address) {
  std::filesystem::remove(File(name + ".port"));
  std::vector<std::string> command = {
      options_.scheduler.empty() ? HEDDLE_BIN_DIR "/heddle-scheduler" : options_.scheduler,
      "--listen",
      *address,
      "--data",
      File("data"),
      "--tracker",
      TrackersFor(&Links::scheduler_to_tracker, &Links::scheduler_to_second_tracker),
      "--port-file",
      File(name + ".port"),
      "-v"};
  if (options_.lease_s > 0)
    command.insert(command.end(), {"--lease", std::to_string(options_.lease_s)});
  if (!store.empty()) command.insert(command.end(), {"--store", store});
  if (options_.standby) command.emplace_back("--standby");
  process->Start(command, File(name + ".log"), options_.environment);
  *address = AddressFrom(File(name + ".port"), *process);
}

const std::string& MiniCluster::Keep() {
  keep_ = true;
  return folder_;
}

std::string MiniCluster::Logs() const {
  std::string text;
  for (const char* name :
       {"tracker.log", "second_tracker.log", "worker.log", "scheduler.log", "second.log"}) {
    if (!std::filesystem::exists(File(name))) continue;
    text += std::string("---- ") + name + "\n" + Tail(File(name), 6000) + "\n";
  }
  return text;
}

}  // namespace heddle
