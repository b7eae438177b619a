// Copies all that one store holds to another, from SQLite to PostgreSQL, back, or between two of a kind. It
// is here, and not in the command line, because only the store knows its tables.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::scheduler {

struct CopiedTable {
  std::string name;
  int64_t rows = 0;    // that both stores have now
  int64_t copied = 0;  // of these, by this call
};

// Copies table by table in the order of the primary keys, in constant memory. `from` and `to` are addresses
// (open_store.h); nobody else may use either meanwhile. `progress` is told the rows copied of a table
// now and then. At the end, row counts and SHA-256 digests of all tables are compared.
//
// If a call does not end, `to` opens as no store. The same call again goes on where it stopped.
// FailedPrecondition: `to` has data that is no unfinished copy, or one of them is in use or newer
// than this program. DataLoss: the stores differ at the end. Errors name the store.
absl::StatusOr<std::vector<CopiedTable>> CopyStore(
    const std::string& from, const std::string& to,
    const std::function<void(const std::string& table, int64_t copied)>& progress);

}  // namespace heddle::scheduler
