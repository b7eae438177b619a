#include "proto/chunks.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace heddle {

bool SendChunks(std::string_view name, std::string_view bytes, ChunkSink sink) {
  size_t offset = 0;
  do {
    const std::string_view piece = bytes.substr(offset, kChunkBytes);
    offset += piece.size();
    v1::Chunk chunk;
    chunk.set_name(std::string(name));
    chunk.set_data(std::string(piece));
    if (offset == bytes.size()) {
      chunk.set_last(true);
      chunk.set_sha256(Sha256Hex(bytes));
    }
    if (!sink(std::move(chunk))) return false;
  } while (offset < bytes.size());
  return true;
}

absl::Status SendChunks(std::string_view name, const std::string& digest,
                        absl::FunctionRef<absl::StatusOr<std::string>(size_t)> next,
                        ChunkSink sink) {
  for (bool last = false; !last;) {
    HEDDLE_ASSIGN_OR_RETURN(std::string piece, next(kChunkBytes));
    last = piece.empty();
    v1::Chunk chunk;
    chunk.set_name(std::string(name));
    chunk.set_data(std::move(piece));
    if (last) {
      chunk.set_last(true);
      chunk.set_sha256(digest);
    }
    if (!sink(std::move(chunk))) return absl::CancelledError("the receiver ended the stream");
  }
  return absl::OkStatus();
}

absl::Status ChunkJoiner::Add(const v1::Chunk& chunk) {
  if (chunk.name() != name_ || complete_) {
    return absl::InvalidArgumentError(absl::StrCat("expected one value in chunks named ", name_));
  }
  begun_ = true;
  if (bytes_.size() + chunk.data().size() > max_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, " is larger than ", max_bytes_ >> 20, " MiB"));
  }
  bytes_ += chunk.data();
  hash_.Update(chunk.data());
  if (!chunk.last()) return absl::OkStatus();
  if (hash_.Hex() != chunk.sha256()) {
    return absl::DataLossError(absl::StrCat(name_, " was damaged on the way: its digest differs"));
  }
  complete_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::string> ChunkJoiner::Take() {
  if (!complete_) return absl::DataLossError(absl::StrCat(name_, " was cut short on the way"));
  return std::move(bytes_);
}

}  // namespace heddle
