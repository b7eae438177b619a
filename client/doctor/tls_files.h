// What the files of a --tls-dir say about each other.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/access/credentials.h"

namespace heddle::client {

// Whether the key belongs to the certificate, whether the authority signed it, and whether both are
// still valid at `until`. Files without a certificate are only asked for the authority's date.
// InvalidArgument: one line that names the file.
absl::Status CheckTlsFiles(const TlsFiles& files, absl::Time until);

}  // namespace heddle::client
