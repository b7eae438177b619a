#include "proto/access/listener.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/server_credentials.h>
#include <unistd.h>

#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "proto/access/access_table.h"
#include "proto/access/local_socket.h"
#include "proto/access/revoked.h"
#include "proto/grpc_util.h"

namespace heddle {
namespace {

constexpr std::string_view kBearer = "Bearer ";
using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

std::string_view ViewOf(grpc::string_ref text) { return {text.data(), text.size()}; }

// The only value of a property of the connection; empty if there is none, or more than one.
std::string OnlyValue(const grpc::AuthContext& connection, const std::string& property) {
  const std::vector<grpc::string_ref> values = connection.FindPropertyValues(property);
  return values.size() == 1 ? std::string(ViewOf(values.front())) : "";
}

// Unauthenticated if the call shows something that does not count.
absl::StatusOr<Identity> Identify(const grpc::AuthContext* connection, const Metadata& metadata,
                                  const TokenFile* tokens) {
  const std::string transport =
      connection == nullptr ? ""
                            : OnlyValue(*connection, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  const bool tls = transport == GRPC_SSL_TRANSPORT_SECURITY_TYPE;
  const auto [first, last] = metadata.equal_range("authorization");
  // Plain loopback has no identities, so a token changes nothing there.
  if (first != last && (tls || transport == "local")) {
    std::string_view token = ViewOf(first->second);
    if (std::next(first) != last || !token.starts_with(kBearer) || tokens == nullptr)
      return absl::UnauthenticatedError("this daemon takes one bearer token, or none, with a call");
    return tokens->Find(token.substr(kBearer.size()), absl::Now());
  }
  if (transport.empty() || transport == "insecure" || transport == "local")
    return Identity{Role::kLocal, absl::StrCat("uid ", geteuid()), ""};
  if (!tls) return Identity{};
  const std::string uri = OnlyValue(*connection, GRPC_PEER_URI_PROPERTY_NAME);
  if (uri.empty()) return Identity{};
  absl::StatusOr<Identity> identity = ParseIdentity(uri);
  if (!identity.ok()) return absl::UnauthenticatedError(identity.status().message());
  return identity;
}

// Refuses calls before their handlers run.
class Doorkeeper final : public grpc::AuthMetadataProcessor {
 public:
  explicit Doorkeeper(const ListenerOptions& options)
      : tokens_(options.tokens),
        revoked_(options.credentials.tls
                     ? std::make_unique<RevokedList>(options.credentials.tls->revoked)
                     : nullptr),
        refused_(options.refused) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* connection,
                       OutputMetadata*, OutputMetadata*) override {
    const auto path = metadata.find(":path");
    std::string_view method = path == metadata.end() ? "" : ViewOf(path->second);
    if (method.starts_with('/')) method.remove_prefix(1);
    absl::StatusOr<Identity> caller = Identify(connection, metadata, tokens_);
    absl::Status allowed = caller.status();
    if (allowed.ok() && revoked_ != nullptr) allowed = revoked_->Check(*caller);
    if (allowed.ok()) allowed = CheckMethod(*caller, method);
    if (!allowed.ok() && refused_)
      refused_(caller.value_or(Identity{}), std::string(method), allowed);
    return ToGrpc(allowed);
  }

 private:
  const TokenFile* const tokens_;
  const std::unique_ptr<RevokedList> revoked_;  // null: there are no certificates
  const std::function<void(const Identity&, const std::string&, const absl::Status&)> refused_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PeerDoor>> AddListener(const ListenerOptions& options,
                                                      grpc::ServerBuilder* builder, int* port) {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  const std::string& address = options.address;
  HEDDLE_RETURN_IF_ERROR(CheckListenAddress(address));
  if (IsUnixAddress(address)) {
    HEDDLE_RETURN_IF_ERROR(PrepareSocket(address));
    credentials = grpc::experimental::LocalServerCredentials(UDS);
    credentials->SetAuthMetadataProcessor(std::make_shared<Doorkeeper>(options));
    *port = 1;
    using Experimental = grpc::ServerBuilder::experimental_type;
    return PeerDoor::Open(SocketPath(address),
                          builder->experimental().AddExternalConnectionAcceptor(
                              Experimental::ExternalConnectionType::FROM_FD, credentials));
  } else if (options.credentials.tls && !options.credentials.tls->certificate.empty()) {
    const TlsFiles& tls = *options.credentials.tls;
    // Whoever has only a token shows no certificate.
    grpc::SslServerCredentialsOptions ssl(
        options.tokens == nullptr ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                  : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
    ssl.pem_root_certs = tls.ca;
    ssl.pem_key_cert_pairs.push_back({tls.key, tls.certificate});
    credentials = grpc::SslServerCredentials(ssl);
  } else if (IsLoopbackAddress(address)) {
    builder->AddListeningPort(address, grpc::InsecureServerCredentials(), port);
    return nullptr;
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen ", address,
        " is open to other machines, so it takes certificates: `heddle-ca init CA_DIR` and "
        "`heddle-ca issue CA_DIR --role ROLE --name NAME` make them; then give --tls-dir "
        "CA_DIR/NAME"));
  }
  credentials->SetAuthMetadataProcessor(std::make_shared<Doorkeeper>(options));
  builder->AddListeningPort(address, credentials, port);
  return nullptr;
}

std::unique_ptr<grpc::Server> StartServer(grpc::ServerBuilder* builder, PeerDoor* door) {
  std::unique_ptr<grpc::Server> server = builder->BuildAndStart();
  if (server != nullptr && door != nullptr) door->Start();
  return server;
}

std::string OpenAddressWarning(const std::string& address, const Credentials& credentials) {
  if (credentials.tls || IsUnixAddress(address)) return "";
  return absl::StrCat(
      address,
      " has no TLS: everybody on this machine may do everything there (--tls-dir, or "
      "--listen unix:PATH)");
}

Identity CallerOf(const grpc::ServerContextBase& context, const TokenFile* tokens) {
  return Identify(context.auth_context().get(), context.client_metadata(), tokens)
      .value_or(Identity{});
}

}  // namespace heddle
