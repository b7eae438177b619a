#include "proto/chunks.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace heddle {

ChunkCutter::ChunkCutter(std::string_view name, std::string_view bytes)
    : name_(name), bytes_(bytes) {}

ChunkCutter::ChunkCutter(std::string_view name, std::string digest,
                         std::function<absl::StatusOr<std::string>(size_t)> next)
    : name_(name), digest_(std::move(digest)), next_(std::move(next)) {}

absl::StatusOr<v1::Chunk> ChunkCutter::Next() {
  v1::Chunk chunk;
  chunk.set_name(name_);
  if (next_ != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(std::string piece, next_(kChunkBytes));
    chunk.set_last(piece.empty());
    if (piece.empty()) chunk.set_sha256(digest_);
    chunk.set_data(std::move(piece));
    return chunk;
  }
  const std::string_view piece = bytes_.substr(0, kChunkBytes);
  bytes_.remove_prefix(piece.size());
  hash_.Update(piece);
  chunk.set_data(std::string(piece));
  chunk.set_last(bytes_.empty());
  if (bytes_.empty()) chunk.set_sha256(hash_.Hex());
  return chunk;
}

bool SendChunks(std::string_view name, std::string_view bytes, ChunkSink sink) {
  ChunkCutter cutter(name, bytes);
  for (bool last = false; !last;) {
    v1::Chunk chunk = *cutter.Next();
    last = chunk.last();
    if (!sink(std::move(chunk))) return false;
  }
  return true;
}

absl::Status SendChunks(std::string_view name, const std::string& digest,
                        absl::FunctionRef<absl::StatusOr<std::string>(size_t)> next,
                        ChunkSink sink) {
  ChunkCutter cutter(name, digest, [next](size_t limit) { return next(limit); });
  for (bool last = false; !last;) {
    HEDDLE_ASSIGN_OR_RETURN(v1::Chunk chunk, cutter.Next());
    last = chunk.last();
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
