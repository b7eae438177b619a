#include "worker/frame.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace heddle::worker {
namespace {

constexpr size_t kHeader = 4;

size_t DecodeLength(const char* bytes) {
  const auto* b = reinterpret_cast<const unsigned char*>(bytes);
  return b[0] | b[1] << 8 | b[2] << 16 | static_cast<size_t>(b[3]) << 24;
}

// Reads exactly `count` bytes; fewer only at the end of the stream.
absl::StatusOr<size_t> ReadFully(int fd, char* data, size_t count) {
  size_t done = 0;
  while (done < count) {
    const ssize_t n = read(fd, data + done, count - done);
    if (n == 0) break;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "reading a frame");
    done += n;
  }
  return done;
}

}  // namespace

absl::StatusOr<std::string> EncodeFrame(const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  if (size > kMaxFrameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", size, " bytes is over the limit of ", kMaxFrameBytes));
  }
  std::string frame(kHeader, '\0');
  for (size_t k = 0; k < kHeader; ++k) frame[k] = static_cast<char>(size >> (8 * k));
  if (!message.AppendToString(&frame))
    return absl::InvalidArgumentError("a message does not serialise");
  return frame;
}

void FrameDecoder::Append(std::string_view bytes) {
  if (start_ > 0) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  buffer_.append(bytes);
}

absl::StatusOr<bool> FrameDecoder::Next(google::protobuf::MessageLite* message) {
  const size_t available = buffer_.size() - start_;
  if (available < kHeader) return false;
  const size_t size = DecodeLength(buffer_.data() + start_);
  if (size > kMaxFrameBytes)
    return absl::DataLossError(absl::StrCat("a frame claims ", size, " bytes"));
  if (available < kHeader + size) return false;
  if (!message->ParseFromArray(buffer_.data() + start_ + kHeader, static_cast<int>(size))) {
    return absl::DataLossError("a frame is no message");
  }
  start_ += kHeader + size;
  return true;
}

absl::Status WriteFrame(int fd, const google::protobuf::MessageLite& message) {
  HEDDLE_ASSIGN_OR_RETURN(std::string frame, EncodeFrame(message));
  size_t done = 0;
  while (done < frame.size()) {
    const ssize_t n = write(fd, frame.data() + done, frame.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "writing a frame");
    done += n;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ReadFrame(int fd, google::protobuf::MessageLite* message) {
  char header[kHeader];
  HEDDLE_ASSIGN_OR_RETURN(size_t got, ReadFully(fd, header, kHeader));
  if (got == 0) return false;
  const size_t size = got == kHeader ? DecodeLength(header) : kMaxFrameBytes + 1;
  if (size > kMaxFrameBytes) return absl::DataLossError("a frame is cut short or too large");
  std::string body(size, '\0');
  HEDDLE_ASSIGN_OR_RETURN(got, ReadFully(fd, body.data(), size));
  if (got != size || !message->ParseFromString(body))
    return absl::DataLossError("a frame is cut short or no message");
  return true;
}

}  // namespace heddle::worker
