// Runs a short program and reads what it prints.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace heddle::client {

struct ProgramResult {
  int status = 0;      // exit status; 128 and the signal's number if a signal ended it
  std::string output;  // the first 64 KiB of standard output; standard error is dropped
};

// `words[0]` is the program: a path, or a name that is looked up in PATH. NotFound: it cannot be
// started. DeadlineExceeded: it was still running after `limit`, and was killed.
absl::StatusOr<ProgramResult> RunProgram(const std::vector<std::string>& words,
                                         absl::Duration limit);

}  // namespace heddle::client
