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

}  // namespace heddle::worker
