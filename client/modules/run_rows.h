// Runs a module on any number of rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/modules/npy.h"
#include "compiler/runtime/executor.h"

namespace heddle::client {

// The inputs of a module as files give them.
struct GivenInputs {
  // By input: its elements. If rows are independent, those of `rows` rows; otherwise as many as the module takes.
  std::vector<std::string> bytes;
  int64_t rows = 0;  // 0: rows are not independent
};

// Runs the module once, or, if its rows are independent, on all of them (Executor::RunRows). Returns the results of the
// model for the given rows. Cancelled: the user pressed Ctrl-C; large tables are run in pieces, and it stops between two of them.
absl::StatusOr<std::vector<NpyArray>> RunRows(const GivenInputs& inputs,
                                              runtime::Executor& executor);

}  // namespace heddle::client
