// Values larger than a message, as the `chunk` of StageInput and StageEvent.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/sha256.h"
#include "worker/child/stage_child.h"

namespace heddle::worker {

// Reads the input to its end and joins the chunks of `name`; nullopt if there are none. DataLoss: a
// chunk is missing or the digest differs. InvalidArgument: other input, or more than 2 GiB.
absl::StatusOr<std::optional<std::string>> ReadChunks(StageIo& io, std::string_view name);

// Writes `bytes` as chunks of `name`.
void WriteChunks(StageIo& io, std::string_view name, std::string_view bytes);

// The same for bytes that come in pieces of any size. End writes the last chunk.
class ChunkWriter {
 public:
  ChunkWriter(StageIo& io, std::string_view name) : io_(io), name_(name) {}
  void Append(std::string_view bytes);
  void End();

 private:
  void Write(bool last);

  StageIo& io_;
  const std::string name_;
  std::string pending_;
  Sha256 hash_;
};

}  // namespace heddle::worker
