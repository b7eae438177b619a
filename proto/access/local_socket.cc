#include "proto/access/local_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_macros.h"

namespace heddle {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
// A process that was killed may take so long to be gone.
constexpr absl::Duration kLastBreath = absl::Seconds(1);
constexpr absl::Duration kPoll = absl::Milliseconds(20);
constexpr size_t kLongestName = sizeof("/scheduler") - 1;  // of the sockets in a folder

// Makes the folder for its owner alone, or checks that it is that.
absl::Status MakePrivateFolder(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(folder).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return absl::InvalidArgumentError(absl::StrCat(folder, ": ", std::strerror(errno)));
  struct stat info = {};
  if (lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(folder, ": is no folder for sockets"));
  if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder,
        ": others may enter it, and whoever reaches the socket may do everything; chmod 700 ",
        folder, ", or take another folder"));
  }
  return absl::OkStatus();
}

// Whether a process accepts connections there; a file that a dead one left does not.
bool SomebodyServes(const std::string& path) {
  const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (file < 0) return false;
  const absl::Cleanup close_file = [file] { close(file); };
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, kMaxPath);
  return connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
         errno == EAGAIN;
}

}  // namespace

bool IsUnixAddress(std::string_view address) { return address.starts_with(kUnix); }

std::string SocketPath(const std::string& unix_address) {
  return unix_address.substr(kUnix.size());
}

bool IsLoopbackAddress(std::string_view address) {
  const std::string_view host = address.substr(0, address.rfind(':'));
  return host == "127.0.0.1" || host == "localhost" || host == "[::1]";
}

bool HasPort(std::string_view address) {
  const size_t colon = address.rfind(':');
  const std::string_view port = colon == std::string_view::npos ? "" : address.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string_view::npos;
  return digits && std::stoi(std::string(port)) <= 65535;
}

absl::Status CheckListenAddress(std::string_view address) {
  if (IsUnixAddress(address) || HasPort(address)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--listen ", std::string(address),
      ": is no address to listen on; write HOST:PORT with a port from 0 to 65535, such "
      "as 127.0.0.1:9190, or unix:PATH"));
}

std::string DefaultDataDirectory() {
  if (const char* data = std::getenv("XDG_DATA_HOME"); data != nullptr && *data != '\0')
    return std::string(data) + "/heddle";
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : ".") + "/.local/share/heddle";
}

std::string SchedulerSocket(const std::string& data_directory) {
  return absl::StrCat(std::string(kUnix), data_directory, "/sockets/scheduler");
}

absl::Status PrepareSocket(const std::string& unix_address) {
  const std::string path = SocketPath(unix_address);
  if (path.empty() || path.size() > kMaxPath) {
    return absl::InvalidArgumentError(absl::StrCat(unix_address, ": the path of a socket has 1 to ",
                                                   kMaxPath, " bytes, and this one ", path.size(),
                                                   "; take a shorter folder, or a relative path"));
  }
  std::string folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  HEDDLE_RETURN_IF_ERROR(MakePrivateFolder(folder));
  const absl::Time limit = MonotonicNow() + kLastBreath;
  while (SomebodyServes(path)) {
    if (MonotonicNow() > limit) {
      return absl::InvalidArgumentError(absl::StrCat(
          unix_address, ": a process serves there already; stop it, or take another path"));
    }
    absl::SleepFor(kPoll);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> SocketFolder(const std::string& data_directory) {
  const std::string folder = data_directory + "/sockets";
  if (folder.size() + kLongestName <= kMaxPath) {
    HEDDLE_RETURN_IF_ERROR(MakePrivateFolder(folder));
    return folder;
  }
  std::string made = "/tmp/heddle-XXXXXX";
  if (mkdtemp(made.data()) == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(made, ": ", std::strerror(errno)));
  return made;
}

}  // namespace heddle
