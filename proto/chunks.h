// Values larger than a message, as streams of Chunk (proto/common.proto has the contract).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sha256.h"
#include "proto/common.pb.h"

namespace heddle {

// The most bytes that one chunk carries.
inline constexpr size_t kChunkBytes = size_t{1} << 20;

// Cuts a value into chunks, one after the other. Not thread-safe.
class ChunkCutter {
 public:
  // Of bytes that stay where they are. The last chunk has the digest. An empty value is one empty chunk.
  ChunkCutter(std::string_view name, std::string_view bytes);
  // Of a value that is read piece by piece and whose digest is known. `next` returns up to so many bytes, none at the end;
  // the last chunk is empty.
  ChunkCutter(std::string_view name, std::string digest,
              std::function<absl::StatusOr<std::string>(size_t)> next);

  // The next one. Errors are those of `next`. Call it no more after an error, nor after the last chunk.
  absl::StatusOr<v1::Chunk> Next();

 private:
  const std::string name_;
  std::string_view bytes_;                                         // what is left of them
  Sha256 hash_;                                                    // of those that were cut
  const std::string digest_;                                       // of what `next_` reads
  const std::function<absl::StatusOr<std::string>(size_t)> next_;  // null: of bytes
};

// Takes one chunk; false ends the stream.
using ChunkSink = absl::FunctionRef<bool(v1::Chunk)>;

// Cuts `bytes` into chunks of that name, the last one with the digest. An empty value is one empty
// chunk. False: the sink ended the stream.
bool SendChunks(std::string_view name, std::string_view bytes, ChunkSink sink);

// The same for a value that is read piece by piece and whose digest is known. `next` returns up to
// so many bytes, none at the end. Cancelled: the sink ended the stream; else the error of `next`.
absl::Status SendChunks(std::string_view name, const std::string& digest,
                        absl::FunctionRef<absl::StatusOr<std::string>(size_t)> next,
                        ChunkSink sink);

// Joins the chunks of one value. Not thread-safe.
class ChunkJoiner {
 public:
  ChunkJoiner(std::string name, size_t max_bytes) : name_(std::move(name)), max_bytes_(max_bytes) {}

  // InvalidArgument: a chunk of another name, one after the last, or more than `max_bytes` in all.
  // DataLoss: the digest of the whole differs.
  absl::Status Add(const v1::Chunk& chunk);
  bool begun() const { return begun_; }        // a chunk came
  bool complete() const { return complete_; }  // so did the last one, and the digest is right
  size_t size() const { return bytes_.size(); }
  // The value, once. DataLoss: its last chunk did not come.
  absl::StatusOr<std::string> Take();

 private:
  const std::string name_;
  const size_t max_bytes_;
  std::string bytes_;
  Sha256 hash_;
  bool begun_ = false;
  bool complete_ = false;
};

}  // namespace heddle
