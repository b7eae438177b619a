#include "proto/access/peer_door.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace heddle {
namespace {

constexpr int kBacklog = 128;  // connections that wait to be let in
// Where this process has no descriptors left, it waits for some to be closed.
constexpr absl::Duration kRest = absl::Milliseconds(100);

bool IsOwn(int connection) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerDoor>> PeerDoor::Open(
    const std::string& path,
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  unlink(path.c_str());  // of an earlier life
  if (listener < 0 ||
      bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, kBacklog) != 0) {
    const absl::Status problem =
        absl::InvalidArgumentError(absl::StrCat("unix:", path, ": ", std::strerror(errno)));
    if (listener >= 0) close(listener);
    return problem;
  }
  const int stop = eventfd(0, EFD_CLOEXEC);
  return std::unique_ptr<PeerDoor>(new PeerDoor(path, listener, stop, std::move(acceptor)));
}

PeerDoor::PeerDoor(std::string path, int socket, int stop,
                   std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor)
    : path_(std::move(path)), socket_(socket), stop_(stop), acceptor_(std::move(acceptor)) {}

void PeerDoor::Start() {
  thread_ = std::thread([this] { Run(); });
}

PeerDoor::~PeerDoor() {
  const uint64_t one = 1;
  if (write(stop_, &one, sizeof(one)) != sizeof(one)) std::terminate();  // it cannot fail
  if (thread_.joinable()) thread_.join();
  close(socket_);
  close(stop_);
  unlink(path_.c_str());
}

void PeerDoor::Run() {
  pollfd events[] = {{socket_, POLLIN, 0}, {stop_, POLLIN, 0}};
  while (true) {
    if (poll(events, 2, -1) < 0 && errno != EINTR) return;
    if (events[1].revents != 0) return;
    const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        absl::SleepFor(kRest);
      continue;
    }
    if (!IsOwn(connection)) {
      close(connection);
      continue;
    }
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.listener_fd = socket_;
    parameters.fd = connection;
    acceptor_->HandleNewConnection(&parameters);
  }
}

}  // namespace heddle
