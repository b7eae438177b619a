// A record store in one SQLite file. With WAL and synchronous=FULL, what Apply acknowledged
// survives a power cut.
#pragma once

#include <memory>
#include <string>

#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// Errors are one line that names the file and a remedy: Unavailable (another program holds it),
// DataLoss (corrupt or no database), ResourceExhausted (disk full), FailedPrecondition (made by a
// newer version, or of an older one and `in_use` by a scheduler that leads), Internal.
absl::StatusOr<std::unique_ptr<RecordStore>> OpenSqliteRecordStore(const std::string& path,
                                                                   bool in_use = false);

}  // namespace heddle::scheduler
