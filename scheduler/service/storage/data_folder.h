// The scheduler's data folder: whose it is, and where its database lies.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace heddle::scheduler {

// Makes the folder, and allows one program at a time to use it. The lock ends with the process.
// InvalidArgument: it cannot be written, or another program uses it. `flag` is what the user gave it with.
absl::Status LockDirectory(const std::string& flag, const std::string& directory);

// The SQLite file of a scheduler without --store.
std::string DatabaseOf(const std::string& directory);

}  // namespace heddle::scheduler
