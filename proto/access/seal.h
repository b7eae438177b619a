// Signatures by the key of a certificate: who made something, shown to others of the lab by way of a
// third process.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/access/credentials.h"

namespace heddle {

// The signature of a statement (ECDSA over SHA-256, as DER). InvalidArgument: the key cannot sign.
// A statement begins with what it is for, so that one cannot be taken for another.
absl::StatusOr<std::string> Sign(const TlsFiles& signer, std::string_view statement);

// Who signed the statement. PermissionDenied: the signature is not of this statement and certificate,
// or the certificate is not of the lab whose authority `lab` trusts, or has expired at `now`, or the list
// `lab.revoked` has its name. That list is read in each call, which takes a fraction of what checking a
// signature does unless it has thousands of names. While it cannot be used, nobody counts as a signer.
absl::StatusOr<Identity> SignerOf(const TlsFiles& lab, const std::string& certificate_pem,
                                  std::string_view signature, std::string_view statement,
                                  absl::Time now);

}  // namespace heddle
