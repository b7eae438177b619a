// Values larger than a message, as the `chunk` of StageInput and StageEvent.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "worker/stage_child.h"

namespace heddle::worker {

// Reads the input to its end and joins the chunks of `name`; nullopt if there are none. DataLoss: a
// chunk is missing or the digest differs. InvalidArgument: other input, or more than 2 GiB.
absl::StatusOr<std::optional<std::string>> ReadChunks(StageIo& io, std::string_view name);

// Writes `bytes` as chunks of `name`.
void WriteChunks(StageIo& io, std::string_view name, std::string_view bytes);

}  // namespace heddle::worker
