// Whether a service answers where it is looked for, and has devices that measure.
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "client/doctor/checks.h"
#include "client/doctor/tls_files.h"
#include "client/views/terminal.h"
#include "proto/access/credentials.h"
#include "proto/access/local_socket.h"

namespace heddle::client::doctor {
namespace {

constexpr absl::Duration kSoon = absl::Hours(14 * 24);
constexpr absl::Duration kAnswerLimit = absl::Milliseconds(500);
constexpr int kConnectMs = 1000;

// Whether a process takes connections at HOST:PORT, of whatever program.
bool SomebodyListens(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (IsUnixAddress(address) || colon == std::string::npos) return false;
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) return false;
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  const int file = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (file < 0) return false;
  const absl::Cleanup close_file = [file] { close(file); };
  if (connect(file, found->ai_addr, found->ai_addrlen) == 0) return true;
  pollfd ready = {file, POLLOUT, 0};
  if (errno != EINPROGRESS || poll(&ready, 1, kConnectMs) <= 0) return false;
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(file, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

// Whether the scheduler answers. Where there is no socket, nobody waits for one.
absl::Status Serving(const DoctorOptions& options) {
  const std::string& address = options.server.address;
  std::error_code ignored;
  const bool several = address.find(',') != std::string::npos;
  if (!several && IsUnixAddress(address) && !std::filesystem::exists(SocketPath(address), ignored))
    return absl::UnavailableError(fmt::format("there is no socket at {}", address));
  return ServiceClient(options.server).WaitUntilServing(kAnswerLimit);
}

// The workers that the service knows; Unavailable if it does not answer, Internal if its tracker does not.
absl::StatusOr<v1::ListWorkersResponse> Workers(const DoctorOptions& options) {
  const absl::Status serving = Serving(options);
  if (!serving.ok()) return absl::UnavailableError(serving.message());
  absl::StatusOr<v1::ListWorkersResponse> workers = ServiceClient(options.server).ListDevices();
  if (!workers.ok()) return absl::InternalError(workers.status().message());
  return workers;
}

// For checks that need a service: what the check "service" says is not said again.
const char kNotAsked[] = "not asked, since no service answers";

}  // namespace

Verdict CheckCertificates(const DoctorOptions& options, const Surroundings& here) {
  const std::string& folder = options.server.tls_directory;
  if (folder.empty()) return Well("no --tls-dir is given");
  const absl::StatusOr<Credentials> credentials = LoadCredentials(folder, "");
  const char* again = "`heddle-ca issue` makes a working set; copy it as a whole";
  if (!credentials.ok()) return Problem(std::string(credentials.status().message()), again);
  const auto told = [&folder](const absl::Status& status) {
    return fmt::format("{}: {}", folder, std::string(status.message()));
  };
  if (const absl::Status now = CheckTlsFiles(*credentials->tls, here.now); !now.ok())
    return Problem(told(now), again);
  if (const absl::Status soon = CheckTlsFiles(*credentials->tls, here.now + kSoon); !soon.ok())
    return Warning(told(soon), "issue a new one in time: `heddle-ca issue`");
  return Well(folder + " fits together, and is valid for two weeks or more");
}

Verdict CheckToken(const DoctorOptions& options, const Surroundings&) {
  const std::string& file = options.server.token_file;
  if (file.empty()) return Well("no --token-file is given");
  const absl::StatusOr<Credentials> credentials = LoadCredentials("", file);
  if (credentials.ok()) return Well(file + " holds a token");
  return Problem(std::string(credentials.status().message()),
                 "write the line that `heddle-ca token` printed into the file, and chmod 600 it");
}

Verdict CheckService(const DoctorOptions& options, const Surroundings&) {
  const std::string& address = options.server.address;
  if (!LoadCredentials(options.server.tls_directory, options.server.token_file).ok())
    return Well("not asked, since the certificates or the token cannot be used");
  const absl::Status serving = Serving(options);
  if (serving.ok()) return Well(fmt::format("a scheduler answers at {}", address));
  if (!absl::IsUnavailable(serving)) {
    return Problem(std::string(serving.message()),
                   "show who you are: --tls-dir, --token-file (docs/operating.md)");
  }
  if (options.server_is_default) return Well("no service runs; heddle tune starts one");
  if (SomebodyListens(address) && options.server.tls_directory.empty()) {
    return Problem(fmt::format("something listens at {}, but it is no scheduler, or one that wants "
                               "TLS",
                               address),
                   "name the scheduler's own port with --server, or give --tls-dir");
  }
  return Problem(std::string(serving.message()),
                 "start it there, or name another with --server; without --server, heddle tune "
                 "starts its own");
}

Verdict CheckTracker(const DoctorOptions& options, const Surroundings&) {
  const absl::StatusOr<v1::ListWorkersResponse> workers = Workers(options);
  if (absl::IsUnavailable(workers.status())) return Well(kNotAsked);
  if (workers.ok()) return Well("the scheduler's tracker answers");
  return Problem(fmt::format("the scheduler does not reach its tracker: {}",
                             Printable(std::string(workers.status().message()))),
                 "start heddle-tracker where heddle-scheduler --tracker says");
}

Verdict CheckDevices(const DoctorOptions& options, const Surroundings&) {
  const absl::StatusOr<v1::ListWorkersResponse> workers = Workers(options);
  if (!workers.ok()) return Well(kNotAsked);
  if (workers->workers().empty()) {
    return Problem("no worker is registered, so jobs wait",
                   "start one: heddle-worker --tracker ADDRESS --cpu-slots 0 --device-slots 1");
  }
  std::set<std::string> targets;
  for (const v1::WorkerStatus& worker : workers->workers()) {
    for (const v1::SlotStatus& status : worker.slots()) {
      if (status.slot().kind() == v1::SLOT_DEVICE) targets.insert(status.slot().target());
    }
  }
  if (!targets.empty())
    return Well(fmt::format("there are devices for: {}",
                            Printable(fmt::format("{}", fmt::join(targets, "; ")))));
  return Problem("workers are registered, but none offers a device to measure on",
                 "start one with --device-slots or --profile");
}

Verdict CheckQuarantine(const DoctorOptions& options, const Surroundings&) {
  const absl::StatusOr<v1::ListWorkersResponse> workers = Workers(options);
  if (!workers.ok()) return Well(kNotAsked);
  for (const v1::WorkerStatus& worker : workers->workers()) {
    for (const v1::SlotStatus& status : worker.slots()) {
      if (status.state() != v1::SLOT_QUARANTINED) continue;
      return Warning(Printable(fmt::format("{}/{} is in quarantine: {}", worker.worker(),
                                           status.slot().name(), status.reason())),
                     "end what disturbs that machine; its worker tries again by itself");
    }
  }
  return Well("no slot is in quarantine");
}

}  // namespace heddle::client::doctor
