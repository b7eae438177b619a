// Messages between the supervisor and its child: four bytes of length, little endian, then the
// serialised protobuf.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message_lite.h"

namespace heddle::worker {

// gRPC's limit for one message. Larger data travels in chunks.
inline constexpr size_t kMaxFrameBytes = 4 << 20;

// InvalidArgument if the message is larger than a frame may be.
absl::StatusOr<std::string> EncodeFrame(const google::protobuf::MessageLite& message);

// Cuts an untrusted byte stream into frames. Memory is bounded by one frame plus one Append.
class FrameDecoder {
 public:
  void Append(std::string_view bytes);
  // True: *message is the next one. False: more bytes are needed. DataLoss: the stream is not a
  // sequence of frames, and cannot be used any further.
  absl::StatusOr<bool> Next(google::protobuf::MessageLite* message);

 private:
  std::string buffer_;
  size_t start_ = 0;  // offset of the first byte that was not handed out
};

// Blocking, for the child. ReadFrame returns false at a clean end of the stream. Errors: DataLoss,
// or the error of the descriptor.
absl::Status WriteFrame(int fd, const google::protobuf::MessageLite& message);
absl::StatusOr<bool> ReadFrame(int fd, google::protobuf::MessageLite* message);

}  // namespace heddle::worker
