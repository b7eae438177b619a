// Channels to the other processes of the service.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/access/credentials.h"
#include "proto/grpc_util.h"

namespace heddle {

// How to reach a process that must be `peer` (PeerName): over TLS with the process's certificate,
// the other end proving that it is `peer`; over a UNIX socket; or plain on loopback where there is
// no --tls-dir. The token goes along over the first two. Adds to `arguments` what that needs. Null
// if CheckAddress refuses the address: every call on such a channel fails at once.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(const std::string& address,
                                                                const std::string& peer,
                                                                const Credentials& credentials,
                                                                grpc::ChannelArguments* arguments);

// InvalidArgument if the text is neither "unix:PATH" nor "HOST:PORT", or if the address is on
// another machine and there is no --tls-dir: nothing is sent in the clear.
absl::Status CheckAddress(const std::string& address, const Credentials& credentials);

// A channel between daemons. It notices a dead peer, and reconnects within two seconds of its
// return.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const std::string& peer,
                                           const Credentials& credentials, const Pings& pings = {});

}  // namespace heddle
