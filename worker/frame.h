// Messages between the supervisor and its child: a length of four bytes, little endian, then the
// serialised protobuf.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message_lite.h"

namespace heddle::worker {

// gRPC's own limit for one message; what is larger travels in chunks.
inline constexpr size_t kMaxFrameBytes = 4 << 20;

// InvalidArgument: the message is larger than a frame may be.
absl::StatusOr<std::string> EncodeFrame(const google::protobuf::MessageLite& message);

// Cuts a byte stream into frames. Made for bytes nobody vouches for: memory is bounded by one frame
// and what one Append adds.
class FrameDecoder {
 public:
  void Append(std::string_view bytes);
  // True: *message is the next one. False: more bytes are needed. DataLoss: the stream is no
  // sequence of such frames; it cannot be used any further.
  absl::StatusOr<bool> Next(google::protobuf::MessageLite* message);

 private:
  std::string buffer_;
  size_t start_ = 0;  // of the first byte not handed out
};

// Blocking, for the child's side. ReadFrame: false at a clean end of the stream. Both: DataLoss or
// the error of the descriptor.
absl::Status WriteFrame(int fd, const google::protobuf::MessageLite& message);
absl::StatusOr<bool> ReadFrame(int fd, google::protobuf::MessageLite* message);

}  // namespace heddle::worker
