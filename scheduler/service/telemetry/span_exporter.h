// Sends spans to a collector of OpenTelemetry: OTLP 1.x over HTTP, as JSON, to ADDRESS/v1/traces
// (opentelemetry.io/docs/specs/otlp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace heddle::scheduler {

// A span of OTLP, whose kind is INTERNAL.
struct TraceSpan {
  std::string trace_id;   // 32 hexadecimal digits, in lower case
  std::string span_id;    // 16 of them
  std::string parent_id;  // empty: the root of the trace
  std::string name;
  int64_t start_unix_ns = 0, end_unix_ns = 0;
  std::vector<std::pair<std::string, std::variant<std::string, int64_t>>> attributes;
  bool failed = false;
  std::string message;  // of a failure
};

// The body of an export request with these spans.
std::string OtlpJson(const std::vector<TraceSpan>& spans);

// Thread-safe. A thread of its own sends what was added: once a second, or as soon as a request is full.
// A collector that does not answer, or is busy, is tried again, ever more rarely. Meanwhile spans wait, and
// those that find no room are dropped. Nobody who adds a span waits.
class SpanExporter {
 public:
  struct Options {
    std::string collector;                     // "http://127.0.0.1:4318"
    size_t most_waiting = 8192;                // spans, beside those of the request under way
    size_t most_in_request = 512;              // spans
    absl::Duration pause = absl::Seconds(1);   // between requests that are not full
    absl::Duration limit = absl::Seconds(10);  // of one request
    absl::Duration longest_pause = absl::Seconds(30);  // between tries
    absl::Duration goodbye = absl::Seconds(2);         // at the end, for what still waits
  };
  // InvalidArgument: the address is not http://HOST:PORT or https://HOST:PORT, with or without a path.
  static absl::StatusOr<std::unique_ptr<SpanExporter>> Start(Options options);
  // Sends what still waits, as far as the time allows.
  ~SpanExporter();

  void Add(TraceSpan span);

  struct Counts {
    int64_t sent = 0;     // that the collector took
    int64_t dropped = 0;  // that found no room, or did not leave in time at the end
    int64_t refused = 0;  // that the collector did not want
  };
  Counts counts() const;

 private:
  enum class Answer { kTaken, kRefused, kLater };
  struct Reply {
    Answer answer = Answer::kLater;
    int64_t rejected = 0;  // of the spans of a request that was taken
    std::string why;       // one line, of anything but kTaken without rejected ones
  };

  SpanExporter(Options options, std::string address);
  void Run();
  Reply Send(const std::vector<TraceSpan>& spans) const;
  // Whether the request under way should end.
  bool GivesUp() const;

  const Options options_;
  const std::string address_;  // with the path
  mutable absl::Mutex mutex_;
  std::deque<TraceSpan> waiting_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time give_up_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::thread thread_;
};

}  // namespace heddle::scheduler
