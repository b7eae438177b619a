#include "tests/cluster/tcp_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <vector>

namespace heddle {
namespace {

constexpr size_t kMaxBuffered = size_t{64} << 10;
constexpr int kTickMs = 5;  // a change of mode is seen this late

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// One direction of a connection.
struct Pipe {
  int from = -1;
  int to = -1;
  std::string buffer;
  bool ended = false;  // `from` will send no more

  bool wants_input() const { return !ended && buffer.size() < kMaxBuffered; }
  // False if the connection is broken.
  bool Read() {
    char bytes[16384];
    const ssize_t n = read(from, bytes, sizeof(bytes));
    if (n > 0) buffer.append(bytes, static_cast<size_t>(n));
    if (n == 0) ended = true;
    return n >= 0 || errno == EAGAIN || errno == EINTR;
  }
  bool Write(std::atomic<int64_t>* passed) {
    const ssize_t n = send(to, buffer.data(), buffer.size(), MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    buffer.erase(0, static_cast<size_t>(n));
    *passed += n;
    return true;
  }
};

struct Connection {
  Pipe up;    // from the caller
  Pipe down;  // to it
  bool broken = false;
  ~Connection() {
    if (up.from >= 0) close(up.from);
    if (up.to >= 0) close(up.to);
  }
};

}  // namespace

TcpProxy::TcpProxy(int target_port) : TcpProxy("") { target_ = target_port; }

TcpProxy::TcpProxy(const std::string& target_socket) : target_socket_(target_socket), target_(0) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      listen(listener_, 64) == 0 &&
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

TcpProxy::~TcpProxy() {
  stop_ = true;
  thread_.join();
  close(listener_);
}

int TcpProxy::ConnectToTarget() const {
  if (target_socket_.empty() && target_ == 0) return -1;
  const bool local = !target_socket_.empty();
  const sockaddr_in port = Loopback(target_);
  sockaddr_un path{};
  path.sun_family = AF_UNIX;
  target_socket_.copy(path.sun_path, sizeof(path.sun_path) - 1);
  const auto* address =
      local ? reinterpret_cast<const sockaddr*>(&path) : reinterpret_cast<const sockaddr*>(&port);
  const int callee = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(callee, address, local ? sizeof(path) : sizeof(port)) == 0) return callee;
  close(callee);
  return -1;
}

void TcpProxy::Run() {
  std::list<Connection> connections;
  while (!stop_) {
    const Mode mode = mode_;
    if (mode == Mode::kCut) connections.clear();
    std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
    struct Interest {
      Connection* connection;
      Pipe* pipe;
      bool reads;
    };
    std::vector<Interest> interests = {{nullptr, nullptr, false}};
    for (Connection& connection : connections) {
      for (Pipe* pipe : {&connection.up, &connection.down}) {
        if (mode == Mode::kHeld || (mode == Mode::kDeaf && pipe == &connection.down)) continue;
        if (pipe->wants_input()) {
          polled.push_back({pipe->from, POLLIN, 0});
          interests.push_back({&connection, pipe, true});
        }
        if (!pipe->buffer.empty()) {
          polled.push_back({pipe->to, POLLOUT, 0});
          interests.push_back({&connection, pipe, false});
        }
      }
    }
    if (poll(polled.data(), polled.size(), kTickMs) <= 0) continue;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      const Interest& interest = interests[i];
      const bool fine = interest.reads ? interest.pipe->Read() : interest.pipe->Write(&bytes_);
      interest.connection->broken |= !fine;
    }
    connections.remove_if([](const Connection& connection) {
      return connection.broken || (connection.up.ended && connection.up.buffer.empty()) ||
             (connection.down.ended && connection.down.buffer.empty());
    });
    if ((polled[0].revents & POLLIN) == 0) continue;
    const int caller = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (caller < 0) continue;
    const int callee = mode == Mode::kCut ? -1 : ConnectToTarget();
    if (callee < 0) {
      close(caller);
      continue;
    }
    fcntl(callee, F_SETFL, O_NONBLOCK);
    Connection& connection = connections.emplace_back();
    connection.up = {caller, callee, "", false};
    connection.down = {callee, caller, "", false};
  }
}

}  // namespace heddle
