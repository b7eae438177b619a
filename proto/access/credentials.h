// What a process shows to others: the certificate of a --tls-dir, which `heddle-ca issue` makes, or
// a person's token.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/access/identity.h"

namespace heddle {

// The files of a --tls-dir.
struct TlsFiles {
  std::string ca;           // ca.pem: whom to trust
  std::string certificate;  // cert.pem; empty: the process has no certificate, only a token
  std::string key;          // key.pem
  Identity identity;        // of the certificate
  std::string revoked;      // path of the list (revoked.h), which need not exist; empty: none
};

// Without any of the two, a process uses and serves nothing but this machine.
struct Credentials {
  std::optional<TlsFiles> tls;
  std::string token;  // sent with every call over TLS or a UNIX socket; empty: none
};

// Reads a --tls-dir and a --token-file; an empty path stands for nothing. InvalidArgument with the
// way out if a file is missing or malformed, others can read the key or the token, or the
// certificate has expired.
absl::StatusOr<Credentials> LoadCredentials(const std::string& tls_directory,
                                            const std::string& token_file);
// For a daemon: the same, and the certificate must have this role.
absl::StatusOr<Credentials> LoadDaemonCredentials(const std::string& tls_directory, Role role);

// The identity in a certificate's only heddle:// URI. InvalidArgument: there is none or several, or it
// has expired at `now`.
absl::StatusOr<Identity> IdentityOfCertificate(const std::string& pem, absl::Time now);

}  // namespace heddle
