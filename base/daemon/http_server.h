// A small HTTP/1.1 server for pages and metrics, on this machine only. It has no TLS: whoever wants the
// page from another machine forwards a port over SSH.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

struct MHD_Connection;

namespace heddle {

// Server-sent events to one reader. Whoever sends keeps a shared pointer, and so does the connection.
// While there is nothing to send, a stream costs no thread. Thread-safe.
class EventStream {
 public:
  // Texts that may wait for a slow reader. With more, its connection is closed; a browser opens the stream
  // again by itself.
  static constexpr size_t kMaxUnreadTexts = 8;

  // Queues one or more whole events (EventText); many streams may share one text. Never blocks. False
  // if the stream is closed, or has just been for being too far behind.
  bool Send(std::shared_ptr<const std::string> text);
  // The reader gets no more.
  void Close();
  // Whether the reader is gone, was too slow, or Close was called. A reader that went away is noticed
  // by the first Send that fails, so a stream wants a line from time to time (kEventBeat).
  bool closed() const;

 private:
  friend class HttpServer;
  // Takes up to `size` bytes of what is queued. 0: nothing, and the connection sleeps until Send.
  // -1: the stream is closed.
  int64_t Take(MHD_Connection* connection, char* buffer, size_t size);
  void Detach();

  mutable absl::Mutex mutex_;
  std::deque<std::shared_ptr<const std::string>> unread_ ABSL_GUARDED_BY(mutex_);
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;                    // bytes of the first unread text
  MHD_Connection* sleeping_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: it is awake, or gone
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// One event in the format of `text/event-stream`. The data may have several lines, the name may not.
std::string EventText(std::string_view name, std::string_view data);
// A line that readers skip.
inline constexpr std::string_view kEventBeat = ":\n\n";

struct HttpRequest {
  std::string method;  // "GET", "HEAD" or "POST"
  std::string path;    // "/jobs/j1", decoded
  // Decoded. Of a name that is given several times, the first.
  std::map<std::string, std::string> query;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // at most HttpServerOptions::max_body_bytes
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/html; charset=utf-8";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};  // more of them
  // Set: the body is ignored, and the connection stays open for events.
  std::shared_ptr<EventStream> events{};
};

// A form with a file (multipart/form-data), taken while it arrives: a file may be larger than memory. Used
// by one thread at a time. Destroyed without Finish, the connection has ended early.
class FormUpload {
 public:
  virtual ~FormUpload() = default;
  // A piece of the value of a field; the pieces of a field come one after the other. `file` is the name
  // of the file that the field is, empty for other fields. Not called again once it has failed; what
  // still arrives is thrown away.
  virtual absl::Status Take(const std::string& field, const std::string& file,
                            std::string_view piece) = 0;
  // The form has ended. `taken`: the failure of Take, or InvalidArgument if the form is malformed.
  virtual HttpResponse Finish(const absl::Status& taken) = 0;
};

// The fields of a form, as POST sends them (application/x-www-form-urlencoded). Of a name that is given
// several times, the first counts.
std::map<std::string, std::string> ParseForm(std::string_view body);

struct HttpServerOptions {
  std::string address;   // "127.0.0.1:PORT", "localhost:PORT" or "[::1]:PORT"; 0: a free one
  unsigned threads = 4;  // each handles one request at a time
  unsigned max_connections = 2048;     // more wait until one ends
  size_t max_header_bytes = 32 << 10;  // of all headers of a request; more is answered with 431
  size_t max_body_bytes = 1 << 20;     // of a request; more is answered with 413
  size_t max_upload_bytes = 0;         // the same of a form with a file
  unsigned idle_s = 30;                // a connection on which nothing moves ends
};

class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  // Decides about a form with a file before its body is taken: who takes it, or the refusal.
  using Uploads =
      std::function<std::variant<std::unique_ptr<FormUpload>, HttpResponse>(const HttpRequest&)>;

  // Serves until it is destroyed. The handler is called from several threads at once; what it takes,
  // the other requests of that thread wait for. Requests whose Host header names another machine are
  // refused, since they come from a page of a stranger whose name was turned to this machine. Raises
  // this process' soft limit of open files where max_connections needs it. Without `uploads`, a form
  // with a file is a request like any other.
  // InvalidArgument if the address is malformed, is in use, or is not one of this machine's.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpServerOptions options,
                                                           Handler handler,
                                                           Uploads uploads = nullptr);
  // Closes all streams and waits for the handlers that run.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  // "127.0.0.1:8080", with the port that is served.
  std::string address() const;

 private:
  struct Callbacks;  // what the library calls
  HttpServer(HttpServerOptions options, Handler handler, Uploads uploads);
  // Keeps the stream so that it can be woken at the end. Closes it at once if that has come.
  void Adopt(const std::shared_ptr<EventStream>& stream);

  const HttpServerOptions options_;
  const Handler handler_;
  const Uploads uploads_;
  int port_ = 0;
  void* daemon_ = nullptr;
  absl::Mutex mutex_;
  std::vector<std::weak_ptr<EventStream>> streams_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace heddle
