// A UNIX socket that lets in only processes of this process' own user (and root), by the credentials
// that the kernel gives for each connection (SO_PEERCRED).
#pragma once

#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace heddle {

class PeerDoor {
 public:
  // Listens at the path, which PrepareSocket has checked. Connections wait there until Start. When
  // this is destroyed, it removes the socket. InvalidArgument: it cannot listen there.
  static absl::StatusOr<std::unique_ptr<PeerDoor>> Open(
      const std::string& path,
      std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor);
  ~PeerDoor();
  // Hands connections to the acceptor from now on. The server must have started: an acceptor forgets
  // what comes before that, and the peer would wait for ever.
  void Start();
  PeerDoor(const PeerDoor&) = delete;
  PeerDoor& operator=(const PeerDoor&) = delete;

 private:
  PeerDoor(std::string path, int socket, int stop,
           std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor);
  void Run();

  const std::string path_;
  const int socket_;
  const int stop_;  // an eventfd
  const std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::thread thread_;
};

}  // namespace heddle
