#include "worker/stages/chunks.h"

#include <utility>

#include "base/status_macros.h"
#include "proto/chunks.h"

namespace heddle::worker {
namespace {

constexpr size_t kMaxBytes = size_t{2} << 30;  // the size limit of Protobuf and so of ONNX

}  // namespace

absl::StatusOr<std::optional<std::string>> ReadChunks(StageIo& io, std::string_view name) {
  ChunkJoiner value(std::string(name), kMaxBytes);
  v1::StageInput input;
  while (io.Read(&input)) HEDDLE_RETURN_IF_ERROR(value.Add(input.chunk()));
  if (!value.begun()) return std::nullopt;
  return value.Take();
}

void WriteChunks(StageIo& io, std::string_view name, std::string_view bytes) {
  SendChunks(name, bytes, [&io](v1::Chunk chunk) {
    v1::StageEvent event;
    *event.mutable_chunk() = std::move(chunk);
    io.Write(event);
    return true;
  });
}

void ChunkWriter::Append(std::string_view bytes) {
  hash_.Update(bytes);
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kChunkBytes - pending_.size());
    pending_ += piece;
    bytes.remove_prefix(piece.size());
    if (pending_.size() == kChunkBytes) Write(/*last=*/false);
  }
}

void ChunkWriter::End() { Write(/*last=*/true); }

void ChunkWriter::Write(bool last) {
  v1::StageEvent event;
  v1::Chunk& chunk = *event.mutable_chunk();
  chunk.set_name(name_);
  chunk.set_data(std::exchange(pending_, {}));
  if (last) {
    chunk.set_last(true);
    chunk.set_sha256(hash_.Hex());
  }
  io_.Write(event);
}

}  // namespace heddle::worker
