#include "client/embedded_service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/files/output_file.h"
#include "base/status_macros.h"
#include "proto/access/local_socket.h"

namespace heddle::client {
namespace {

constexpr auto kStartLimit = std::chrono::seconds(30);
// Workers end their stages within five seconds of a stop request.
constexpr auto kStopLimit = std::chrono::seconds(10);
constexpr absl::Duration kServingLimit = absl::Milliseconds(500);
constexpr absl::Duration kAgain = absl::Milliseconds(200);
constexpr size_t kLongestSocket = 107;    // bytes of a socket's path
constexpr char kPageLine[] = "page at ";  // begins what the service says of its page

// The last line that begins so.
std::string LastLine(const std::string& path, const std::string& beginning = "") {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty() && line.starts_with(beginning)) last = line;
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

std::string DataDirectory(const std::string& data) {
  return data.empty() ? DefaultDataDirectory() : data;
}

// The file that holds the process id of a scheduler which a command has started on the data.
std::string MarkerOf(const std::string& data_directory) {
  return data_directory + "/sockets/private";
}

// Whether the process runs. One that has ended may be listed until its parent asks for it.
bool Runs(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line.compare(name_end, 3, ") Z") != 0;
}

// The scheduler that another command started on the data, and that still runs; 0: there is none.
pid_t LenderOf(const std::string& data_directory) {
  pid_t pid = 0;
  if (!(std::ifstream(MarkerOf(data_directory)) >> pid) || pid <= 0) return 0;
  return Runs(pid) ? pid : 0;
}

}  // namespace

std::string SiblingBinary(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path sibling = self.parent_path() / name;
  return !error && std::filesystem::exists(sibling) ? sibling.string() : name;
}

absl::StatusOr<std::unique_ptr<EmbeddedService>> EmbeddedService::Start(const std::string& data,
                                                                        const std::string& http) {
  const char* temporary = std::getenv("TMPDIR");
  std::string directory = temporary == nullptr || *temporary == '\0' ? "/tmp" : temporary;
  directory += "/heddle-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    return absl::UnavailableError(
        fmt::format("cannot make a temporary directory {}: {}; set TMPDIR to a folder that you may "
                    "write to",
                    directory, std::strerror(errno)));
  }
  const std::string shared = SchedulerSocket(DataDirectory(data));
  const bool found_by_others = SocketPath(shared).size() <= kLongestSocket;
  // Only this user can enter the temporary directory.
  const std::string address = found_by_others ? shared : "unix:" + directory + "/scheduler";
  const std::string port_file = directory + "/port";
  const std::string log_file = directory + "/log";
  std::vector<std::string> words = {SiblingBinary("heddle-scheduler"),
                                    "--embedded",
                                    "--listen",
                                    address,
                                    "--port-file",
                                    port_file};
  if (!data.empty()) words.insert(words.end(), {"--data", data});
  if (!http.empty()) words.insert(words.end(), {"--http", http});
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
      if (ServiceClient(service->address_).WaitUntilServing(absl::Seconds(5)).ok()) {
        if (!found_by_others) return service;
        const std::string marker = MarkerOf(DataDirectory(data));
        // Without it, others take the service for one that stays.
        if (WriteFile(marker, fmt::format("{}\n", pid)).ok()) service->marker_ = marker;
        return service;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return absl::UnavailableError(
      fmt::format("the embedded service did not come up: {}", LastLine(log_file)));
}

std::string EmbeddedService::Page() const { return LastLine(directory_ + "/log", kPageLine); }

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
  // Only now: who finds the socket and no marker takes the service for one that stays.
  std::error_code ignored;
  if (!marker_.empty()) std::filesystem::remove(marker_, ignored);
  if (keep_directory_) return;
  std::filesystem::remove_all(directory_, ignored);
}

bool MayStartService(const ServerAccess& server, const absl::Status& serving) {
  const bool several = server.address.find(',') != std::string::npos;
  return absl::IsUnavailable(serving) && server.tls_directory.empty() &&
         server.token_file.empty() && !several;
}

absl::StatusOr<std::unique_ptr<CommandService>> CommandService::Find(const ServerAccess& server,
                                                                     const std::string& data,
                                                                     const std::string& http) {
  std::unique_ptr<CommandService> service(new CommandService(server, DataDirectory(data), http));
  const absl::Status serving = ServiceClient(server).WaitUntilServing(kServingLimit);
  if (serving.ok()) {
    if (server.address == SchedulerSocket(service->data_))
      service->lender_ = LenderOf(service->data_);
    service->TellMissingPage();
    return service;
  }
  if (!MayStartService(server, serving)) return serving;
  HEDDLE_RETURN_IF_ERROR(service->BorrowOrStart());
  return service;
}

absl::Status CommandService::BorrowOrStart() {
  const ServerAccess shared = {SchedulerSocket(data_), "", ""};
  own_.reset();
  lender_ = 0;
  const absl::Time deadline = MonotonicNow() + absl::FromChrono(kStartLimit);
  absl::Status last;
  bool told = false;
  do {
    std::error_code ignored;
    if (std::filesystem::exists(SocketPath(shared.address), ignored) &&
        ServiceClient(shared).WaitUntilServing(kServingLimit).ok()) {
      if (server_.address != shared.address) {
        fmt::print(stderr, "no scheduler answers at {}; using the one that runs on {}\n",
                   server_.address, data_);
      }
      server_ = shared;
      lender_ = LenderOf(data_);
      TellMissingPage();
      return absl::OkStatus();
    }
    if (!told) {
      fmt::print(stderr, "no scheduler answers at {}; starting one for this command\n",
                 server_.address);
    }
    told = true;
    absl::StatusOr<std::unique_ptr<EmbeddedService>> started = EmbeddedService::Start(data_, http_);
    if (started.ok()) {
      own_ = *std::move(started);
      server_ = {own_->address(), "", ""};
      if (const std::string page = own_->Page(); !page.empty())
        fmt::print(stderr, "{}, until this command ends\n", page);
      return absl::OkStatus();
    }
    last = started.status();
    // Another command may be about to start it. One that has just ended is done in a moment, too.
    if (!absl::IsFailedPrecondition(last) ||
        last.message().find("another heddle-scheduler") == absl::string_view::npos)
      return last;
    absl::SleepFor(kAgain);
  } while (MonotonicNow() < deadline);
  return last;
}

void CommandService::TellMissingPage() const {
  if (http_.empty()) return;
  fmt::print(stderr,
             "no page at {}: --http is for a service that this command starts, and one answers at "
             "{}\n",
             http_, server_.address);
}

absl::Status CommandService::CheckAlive() {
  if (own_ != nullptr) return own_->CheckAlive();
  if (lender_ == 0 || Runs(lender_)) return absl::OkStatus();
  fmt::print(stderr,
             "the command that had started the service has ended; this one goes on with it\n");
  return BorrowOrStart();
}

}  // namespace heddle::client
