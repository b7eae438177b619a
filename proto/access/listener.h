// What a daemon listens on, and the check of every call that arrives there.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/access/credentials.h"
#include "proto/access/peer_door.h"
#include "proto/access/tokens.h"

namespace heddle {

struct ListenerOptions {
  std::string address;                // "HOST:PORT", port 0: a free one; or "unix:/path"
  Credentials credentials;            // without TLS, the address must be on this machine
  const TokenFile* tokens = nullptr;  // null: the daemon takes no tokens. Outlives the server
  // Called for each call that the access table refuses, from gRPC's threads; may be null.
  std::function<void(const Identity& caller, const std::string& method, const absl::Status& why)>
      refused;
};

// Adds the address to the server, which then refuses every call that the access table does not allow
// before its handler runs. Over TLS, the caller is whom its certificate or token names; over a UNIX
// socket and plain loopback, it is Role::kLocal. Whom the list of the --tls-dir revokes is refused
// (revoked.h). Plain loopback has no check: whoever asks for it
// opens the daemon to everybody on this machine.
// `port` is set when the server starts, and is 1 for a UNIX socket.
// Returns what listens at a UNIX socket, for StartServer and to be kept until the server is shut down;
// null for other addresses.
// InvalidArgument: the text is no address; the address is not on this machine and there are no certificates (the message says
// how to make them), or the socket cannot be there.
absl::StatusOr<std::unique_ptr<PeerDoor>> AddListener(const ListenerOptions& options,
                                                      grpc::ServerBuilder* builder, int* port);

// Starts the server, and then lets in who waits at its UNIX socket. `door` is what AddListener
// returned. Null: the server cannot listen at one of its addresses.
std::unique_ptr<grpc::Server> StartServer(grpc::ServerBuilder* builder, PeerDoor* door);

// One line for the log of a daemon that listens there without any check; empty: it checks.
std::string OpenAddressWarning(const std::string& address, const Credentials& credentials);

// Who makes a call that is being handled. `tokens` are those of the listener.
Identity CallerOf(const grpc::ServerContextBase& context, const TokenFile* tokens);

}  // namespace heddle
