#include "proto/protobuf_log.h"

#include <google/protobuf/stubs/logging.h>

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/one_line.h"

namespace heddle {
namespace {

constexpr size_t kLongestLine = 300;

class LimitedLog {
 public:
  void Begin(void (*log)(const std::string&), const LogLimit& limit) {
    absl::MutexLock lock(&mutex_);
    log_ = log;
    limit_ = limit;
    written_ = 0;
    left_out_ = 0;
    period_began_ = MonotonicNow();
  }
  void Write(const std::string& message) {
    absl::MutexLock lock(&mutex_);
    if (const absl::Time now = MonotonicNow(); now - period_began_ >= limit_.per) {
      period_began_ = now;
      written_ = 0;
    }
    if (written_ == limit_.lines) {
      ++left_out_;
      return;
    }
    ++written_;
    std::string line = absl::StrCat("protobuf: ", OneLine(message).substr(0, kLongestLine));
    if (left_out_ > 0) absl::StrAppend(&line, " (", left_out_, " more messages were left out)");
    left_out_ = 0;
    log_(line);
  }

 private:
  absl::Mutex mutex_;
  void (*log_)(const std::string&) ABSL_GUARDED_BY(mutex_) = nullptr;
  LogLimit limit_ ABSL_GUARDED_BY(mutex_);
  absl::Time period_began_ ABSL_GUARDED_BY(mutex_);
  int written_ ABSL_GUARDED_BY(mutex_) = 0;       // in this period
  int64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;  // since the last line
};

// The library keeps a function, so what that needs lives as long as the process.
LimitedLog& Log() {
  static LimitedLog& log = *new LimitedLog;
  return log;
}

}  // namespace

void RouteProtobufLog(void (*log)(const std::string& line), const LogLimit& limit) {
  Log().Begin(log, limit);
  google::protobuf::SetLogHandler([](google::protobuf::LogLevel, const char*, int,
                                     const std::string& message) { Log().Write(message); });
}

}  // namespace heddle
