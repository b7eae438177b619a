// What a child of this process prints. The child may hang, crash or print without end.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/process/child_process.h"

namespace heddle::worker {

// Starts the child, gives it `input` on its stdin and returns all that it prints until it ends with
// status 0. Unavailable: it could not be started, failed (with the last line of its stderr), printed
// more than `most_bytes`, or took longer than `limit`; then it is killed. Signals of broken pipes must
// be off (SIGPIPE) if there is input.
absl::StatusOr<std::string> TextOfChild(const ChildOptions& options, absl::string_view input,
                                        absl::Duration limit, size_t most_bytes);

}  // namespace heddle::worker
