// Who did what: one line of JSON for each call that changes something, and for each refused call, in
// two files that never grow beyond a limit. For people and their tools; no daemon reads it.
//
// A caller gets so many lines a minute for each method, so that nobody pushes the lines about others,
// or about his other calls, out of the files. What is left out is counted by a line of its own.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_interceptor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/access/identity.h"
#include "proto/access/tokens.h"

namespace heddle {

// Lines in NAME.jsonl of a folder. When the file is full, it becomes NAME.1.jsonl, that one
// NAME.2.jsonl and so on; the oldest is removed. Thread-safe.
class RotatingLog {
 public:
  struct Limits {
    int64_t file_bytes = 8 << 20;
    int files = 8;  // the current one included
  };
  // InvalidArgument: the file cannot be written.
  static absl::StatusOr<std::unique_ptr<RotatingLog>> Open(const std::string& folder,
                                                           const std::string& name, Limits limits);
  ~RotatingLog();

  // Adds the line with a newline. A line that cannot be written, because the disk is full, is lost, with a
  // warning in the daemon's own log.
  void Add(const std::string& line);
  // Lines that were lost so far.
  int64_t lost() const { return lost_; }

 private:
  RotatingLog(std::string folder, std::string name, Limits limits)
      : folder_(std::move(folder)), name_(std::move(name)), limits_(limits) {}
  std::string Path(int age) const;
  absl::Status Reopen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string folder_;
  const std::string name_;
  const Limits limits_;
  absl::Mutex mutex_;
  int file_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool warned_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int64_t> lost_{0};
};

class AuditLog {
 public:
  struct Options {
    RotatingLog::Limits files{};  // of each file
    int lines = 60;               // a minute, of one caller and method
    std::function<absl::Time()> now = [] { return absl::Now(); };
  };
  // Keeps calls.jsonl and refused.jsonl in the folder, which is made for its owner alone.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& folder);
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& folder, Options options);
  ~AuditLog();

  // {"time":"2026-01-31T12:00:00Z","role":"user","name":"ann","tenant":"vision",
  //  "method":"heddle.v1.JobService/CancelJob","job":"j3","result":"OK"}
  // `job` is left out where the call has none, `message` where the result is OK. `detail` is what an
  // action of the page, or a call of the tracker, was about besides: "priority 5", "w1/gpu0 for 30m"; empty: left out.
  void Call(const Identity& caller, std::string_view method, const std::string& job,
            const grpc::Status& result, const std::string& detail = "");
  void Refused(const Identity& caller, std::string_view method, const absl::Status& why);
  // After a minute with too many calls of a caller and method, with the first line that follows:
  // {"time":..,"role":..,"name":..,"tenant":..,"method":..,"left_out":1200}
  // Lines of both files that could not be written so far.
  int64_t lost() const { return calls_.log->lost() + refused_.log->lost(); }

  // For a server: notes each call of a method that the access table marks as audited, when it ends.
  // `tokens` are those of the listener. The log must outlive the server.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Interceptor(
      const TokenFile* tokens);

 private:
  // One of the two files, and what was written of the running minute.
  struct File {
    std::unique_ptr<RotatingLog> log;
    int64_t minute = 0;
    // By the beginning of the lines: caller and method.
    std::map<std::string, int64_t> calls{};
  };
  AuditLog(Options options, std::unique_ptr<RotatingLog> calls,
           std::unique_ptr<RotatingLog> refused)
      : options_(std::move(options)), calls_{std::move(calls)}, refused_{std::move(refused)} {}
  void Add(File* file, const Identity& caller, std::string_view method, const std::string& job,
           absl::StatusCode code, std::string_view message, const std::string& detail);
  void BeginMinute(File* file, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  absl::Mutex mutex_;  // of `minute` and `calls` of both files
  File calls_, refused_;
};

}  // namespace heddle
