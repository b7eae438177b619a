// `heddle-scheduler copy-store`, which `heddle store copy` runs: the command line has no stores.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace heddle::scheduler {

// Copies one store to another (scheduler/store/copy_store.h). Each is the data folder of a scheduler, or
// postgresql://USER@HOST/DATABASE; no scheduler may use them meanwhile. Prints a line for each table.
// Blobs are copied from folder to folder; a database has none, and a line says where they are.
absl::Status RunCopyStore(const std::string& from, const std::string& to);

}  // namespace heddle::scheduler
