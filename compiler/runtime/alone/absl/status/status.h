// The part of Abseil's Status that the runtime uses; see README.md of compiler/runtime/alone.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace absl {
inline namespace heddle_alone {

// The numbers are those of gRPC.
enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// A code and, unless it is kOk, a message.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string_view message) : code_(code) {
    if (code != StatusCode::kOk) message_ = message;
  }
  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  std::string_view message() const { return message_; }
  // Keeps the first error.
  void Update(const Status& other) {
    if (ok()) *this = other;
  }
  void IgnoreError() const {}

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return {}; }
inline Status InvalidArgumentError(std::string_view message) {
  return {StatusCode::kInvalidArgument, message};
}
inline Status NotFoundError(std::string_view message) { return {StatusCode::kNotFound, message}; }
inline Status PermissionDeniedError(std::string_view message) {
  return {StatusCode::kPermissionDenied, message};
}
inline Status ResourceExhaustedError(std::string_view message) {
  return {StatusCode::kResourceExhausted, message};
}
inline Status FailedPreconditionError(std::string_view message) {
  return {StatusCode::kFailedPrecondition, message};
}
inline Status OutOfRangeError(std::string_view message) {
  return {StatusCode::kOutOfRange, message};
}
inline Status UnimplementedError(std::string_view message) {
  return {StatusCode::kUnimplemented, message};
}
inline Status DataLossError(std::string_view message) { return {StatusCode::kDataLoss, message}; }

// "MESSAGE: what the system says of the number", with the code that stands for it. Numbers that
// opening, reading and mapping a file do not give are kUnknown.
inline Status ErrnoToStatus(int number, std::string_view message) {
  const auto code = [number] {
    switch (number) {
      case 0:
        return StatusCode::kOk;
      case EINVAL:
      case ENAMETOOLONG:
        return StatusCode::kInvalidArgument;
      case ENOENT:
        return StatusCode::kNotFound;
      case EPERM:
      case EACCES:
      case EROFS:
        return StatusCode::kPermissionDenied;
      case ENOTDIR:
      case EISDIR:
      case EBADF:
        return StatusCode::kFailedPrecondition;
      case EMFILE:
      case ENFILE:
      case ENOMEM:
      case ENOSPC:
        return StatusCode::kResourceExhausted;
      case EAGAIN:
        return StatusCode::kUnavailable;
      default:
        return StatusCode::kUnknown;
    }
  };
  char text[128];
  // GNU's function: the text need not be in `text`.
  const char* said = strerror_r(number, text, sizeof(text));
  return {code(), std::string(message) + ": " + said};
}

}  // namespace heddle_alone
}  // namespace absl
