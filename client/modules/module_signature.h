// Who made a module, by the signature in its file.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/access/module_seal.h"

namespace heddle::client {

// `tls_directory` is of somebody of the lab (--tls-dir). InvalidArgument: there is none. Otherwise errors as
// MakerOfModule, and those of reading the file; each names the file.
absl::StatusOr<ModuleMaker> MakerOfFile(const std::string& tls_directory, const std::string& path);

// The same in a few words: "worker/w1 for j5, attempt 40", "nobody: ..".
std::string SignatureText(const std::string& tls_directory, const std::string& path);

}  // namespace heddle::client
