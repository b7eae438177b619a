#include "proto/access/channel.h"

#include <grpcpp/security/credentials.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "proto/access/local_socket.h"

namespace heddle {
namespace {

// Adds the token to every call. gRPC calls it only on channels that nobody can listen to.
class BearerToken final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit BearerToken(const std::string& token) : value_("Bearer " + token) {}
  bool IsBlocking() const override { return false; }
  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<grpc::string, grpc::string>* metadata) override {
    metadata->emplace("authorization", value_);
    return grpc::Status::OK;
  }

 private:
  const std::string value_;
};

}  // namespace

absl::Status CheckAddress(const std::string& address, const Credentials& credentials) {
  // Neither a URL nor a port alone is a place to connect to.
  if (!IsUnixAddress(address) &&
      (!HasPort(address) || address.starts_with(':') || address.find('/') != std::string::npos)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", address,
                     "' is no address to connect to; write HOST:PORT with a port up to 65535, "
                     "such as 127.0.0.1:9190, or unix:PATH"));
  }
  if (credentials.tls || IsUnixAddress(address) || IsLoopbackAddress(address))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(address,
                   " is not on this machine (127.0.0.1, localhost), so it takes TLS: give "
                   "--tls-dir DIR, which `heddle-ca issue` makes"));
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(const std::string& address,
                                                                const std::string& peer,
                                                                const Credentials& credentials,
                                                                grpc::ChannelArguments* arguments) {
  if (!CheckAddress(address, credentials).ok()) return nullptr;
  std::shared_ptr<grpc::ChannelCredentials> connection;
  if (IsUnixAddress(address)) {
    connection = grpc::experimental::LocalCredentials(UDS);
  } else if (credentials.tls) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = credentials.tls->ca;
    options.pem_cert_chain = credentials.tls->certificate;
    options.pem_private_key = credentials.tls->key;
    connection = grpc::SslCredentials(options);
    // Certificates say who a process is, not where, so the other end must have this name in its own.
    arguments->SetSslTargetNameOverride(peer);
  } else {
    return grpc::InsecureChannelCredentials();
  }
  if (credentials.token.empty()) return connection;
  return grpc::CompositeChannelCredentials(
      connection,
      grpc::MetadataCredentialsFromPlugin(std::make_unique<BearerToken>(credentials.token)));
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const std::string& peer,
                                           const Credentials& credentials, const Pings& pings) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(pings.every)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(pings.patience)));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  // The list of thousands of workers has more than the usual 4 MiB.
  if (peer == PeerName(Role::kTracker)) arguments.SetMaxReceiveMessageSize(64 << 20);
  // How long one try to connect takes at most: to a machine that is gone, it would be 20 s.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10'000);
  // Every channel its own connection: a broken one must not be shared with its successor.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const std::shared_ptr<grpc::ChannelCredentials> connection =
      ChannelCredentialsFor(address, peer, credentials, &arguments);
  return grpc::CreateCustomChannel(address, connection, arguments);
}

}  // namespace heddle
