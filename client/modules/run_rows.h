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

// Runs the module once, or, if its rows are independent, in blocks of as many as it takes. The last block is filled with the
// last row. Returns what each result of the model has for the given rows. Cancelled: Ctrl-C came between two blocks.
absl::StatusOr<std::vector<NpyArray>> RunRows(const GivenInputs& inputs,
                                              runtime::Executor& executor);

}  // namespace heddle::client
