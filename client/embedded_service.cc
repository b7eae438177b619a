#include "client/embedded_service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace heddle::client {
namespace {

constexpr auto kStartLimit = std::chrono::seconds(30);
// Workers end their stages within five seconds of a stop request.
constexpr auto kStopLimit = std::chrono::seconds(10);

std::string SiblingBinary(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path sibling = self.parent_path() / name;
  return !error && std::filesystem::exists(sibling) ? sibling.string() : name;
}

std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

// Between fork and exec only system calls are safe in a process with threads.
[[noreturn]] void RunService(char* const* argv, int log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  setpgid(0,
          0);  // Ctrl-C goes to the client only, which decides what happens to the service
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execvp(argv[0], argv);
  _exit(127);
}

}  // namespace

bool MayStartService(const ServerAccess& server, const absl::Status& serving) {
  return absl::IsUnavailable(serving) && server.tls_directory.empty() && server.token_file.empty();
}

absl::StatusOr<std::unique_ptr<EmbeddedService>> EmbeddedService::Start(const std::string& data) {
  std::string directory = (std::filesystem::temp_directory_path() / "heddle-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) {
    return absl::UnavailableError(
        fmt::format("cannot make a temporary directory: {}", std::strerror(errno)));
  }
  // Only this user can enter the temporary directory.
  const std::string address = "unix:" + directory + "/scheduler";
  const std::string port_file = directory + "/port";
  const std::string log_file = directory + "/log";
  std::vector<std::string> words = {SiblingBinary("heddle-scheduler"),
                                    "--embedded",
                                    "--listen",
                                    address,
                                    "--port-file",
                                    port_file};
  if (!data.empty()) words.insert(words.end(), {"--data", data});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int log = open(log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) RunService(argv.data(), log, parent);
  close(log);
  if (pid < 0)
    return absl::UnavailableError(
        fmt::format("cannot start {}: {}", words[0], std::strerror(errno)));
  std::unique_ptr<EmbeddedService> service(new EmbeddedService(pid, directory));
  const auto deadline = std::chrono::steady_clock::now() + kStartLimit;
  while (std::chrono::steady_clock::now() < deadline) {
    int wait_status = 0;
    if (waitpid(pid, &wait_status, WNOHANG) == pid) {
      service->pid_ = -1;
      const std::string words_of = LastLine(log_file);
      return absl::FailedPreconditionError(fmt::format(
          "the embedded service ended at once: {}",
          words_of.empty() ? "is heddle-scheduler beside heddle or on PATH?" : words_of));
    }
    int port = 0;
    if (std::ifstream(port_file) >> port && port > 0) {
      service->address_ = address;
      if (ServiceClient(service->address_).WaitUntilServing(absl::Seconds(5)).ok()) return service;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return absl::UnavailableError(
      fmt::format("the embedded service did not come up: {}", LastLine(log_file)));
}

absl::Status EmbeddedService::CheckAlive() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0) return absl::OkStatus();
  pid_ = -1;
  const std::string log = directory_ + "/log";
  keep_directory_ = true;
  return absl::UnavailableError(
      fmt::format("the embedded service has ended: {} (its log: {}; the same command goes on "
                  "with the measurements made so far)",
                  LastLine(log), log));
}

EmbeddedService::~EmbeddedService() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    const auto deadline = std::chrono::steady_clock::now() + kStopLimit;
    while (waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  if (keep_directory_) return;
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

}  // namespace heddle::client
