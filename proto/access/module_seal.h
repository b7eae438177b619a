// Signatures of modules. A worker of a lab signs each module that it compiles, for one attempt of one job,
// and the signature travels in the module's file (base/files/trailer.h): through the scheduler to the worker
// that times the module, and to whoever fetches and runs it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/access/credentials.h"
#include "proto/access/identity.h"

namespace heddle {

struct ModuleMaker {
  Identity worker;
  std::string job;
  int64_t attempt = 0;  // of its compile stage
};

// The trailer for a module with this digest (SHA-256 of its content, in hexadecimal). InvalidArgument: the
// key cannot sign.
absl::StatusOr<std::string> ModuleTrailer(const TlsFiles& maker, const std::string& job,
                                          int64_t attempt, const std::string& content_sha256);

// Which worker of the lab made the module in this file. NotFound: it is not signed. PermissionDenied, in
// one line: no worker of the lab signed it as it is, or its certificate has expired at `now`, or the
// worker is revoked (seal.h).
absl::StatusOr<ModuleMaker> MakerOfModule(const TlsFiles& lab, std::string_view file,
                                          absl::Time now);

// OK if a worker of the lab made the module for this job; otherwise PermissionDenied in one line.
absl::Status CheckMaker(const TlsFiles& lab, std::string_view file, const std::string& job,
                        absl::Time now);

}  // namespace heddle
