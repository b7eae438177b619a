#include "base/daemon/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/files/open_files.h"
#include "base/status_macros.h"

namespace heddle {
namespace {

constexpr size_t kEventBlockBytes = 16 << 10;
constexpr size_t kFormBlockBytes = 64 << 10;  // of a file in a form
// Descriptors that the rest of the process needs beside the connections.
constexpr size_t kOtherFiles = 1024;

struct HostPort {
  std::string host;  // "127.0.0.1", "localhost" or "[::1]"
  int port = 0;
};

std::optional<HostPort> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  HostPort parts{address.substr(0, colon), 0};
  const std::string port = address.substr(colon + 1);
  if (port.empty() || !std::all_of(port.begin(), port.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(port, &parts.port) || parts.port > 65535)
    return std::nullopt;
  return parts;
}

bool IsThisMachine(const std::string& host) {
  return host == "127.0.0.1" || host == "localhost" || host == "[::1]";
}

// A socket that listens there.
absl::StatusOr<int> Listen(const HostPort& where, const std::string& named) {
  const bool ipv6 = where.host == "[::1]";
  const int socket =
      ::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return absl::InvalidArgumentError(absl::StrCat(named, ": ", strerror(errno)));
  absl::Cleanup close_socket = [socket] { close(socket); };
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  int bound = 0;
  if (ipv6) {
    sockaddr_in6 address = {};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    address.sin6_port = htons(static_cast<uint16_t>(where.port));
    bound = bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  } else {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(where.port));
    bound = bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  }
  if (bound != 0 || listen(socket, SOMAXCONN) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(named, " cannot be served: ", strerror(errno),
                                                   "; take another port, or 0 for a free one"));
  }
  std::move(close_socket).Cancel();
  return socket;
}

int PortOf(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

std::string Unescape(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && absl::ascii_isxdigit(text[i + 1]) &&
        absl::ascii_isxdigit(text[i + 2])) {
      const auto digit = [](char c) {
        return absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10;
      };
      plain += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      plain += text[i] == '+' ? ' ' : text[i];
    }
  }
  return plain;
}

}  // namespace

bool EventStream::Send(std::shared_ptr<const std::string> text) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return false;
  if (unread_.size() >= kMaxUnreadTexts) {
    closed_ = true;
    unread_.clear();
  } else if (!text->empty()) {
    unread_.push_back(std::move(text));
  }
  if (sleeping_ != nullptr) MHD_resume_connection(std::exchange(sleeping_, nullptr));
  return !closed_;
}

void EventStream::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  if (sleeping_ != nullptr) MHD_resume_connection(std::exchange(sleeping_, nullptr));
}

bool EventStream::closed() const {
  absl::MutexLock lock(&mutex_);
  return closed_;
}

int64_t EventStream::Take(MHD_Connection* connection, char* buffer, size_t size) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return -1;
  size_t copied = 0;
  while (!unread_.empty() && copied < size) {
    const std::string& text = *unread_.front();
    const size_t part = std::min(size - copied, text.size() - taken_);
    memcpy(buffer + copied, text.data() + taken_, part);
    copied += part;
    taken_ += part;
    if (taken_ == text.size()) {
      unread_.pop_front();
      taken_ = 0;
    }
  }
  if (copied == 0) {
    // Only here, on the connection's own thread, may it be put to sleep.
    MHD_suspend_connection(connection);
    sleeping_ = connection;
  }
  return static_cast<int64_t>(copied);
}

void EventStream::Detach() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  sleeping_ = nullptr;
  unread_.clear();
}

std::string EventText(std::string_view name, std::string_view data) {
  std::string text = absl::StrCat("event: ", std::string(name), "\n");
  while (true) {
    const size_t end = data.find('\n');
    text += "data: ";
    text += data.substr(0, end);
    text += '\n';
    if (end == std::string_view::npos) break;
    data.remove_prefix(end + 1);
  }
  text += '\n';
  return text;
}

std::map<std::string, std::string> ParseForm(std::string_view body) {
  std::map<std::string, std::string> fields;
  while (!body.empty()) {
    const std::string_view field = body.substr(0, body.find('&'));
    body.remove_prefix(std::min(body.size(), field.size() + 1));
    if (field.empty()) continue;
    const size_t equals = field.find('=');
    fields.emplace(Unescape(field.substr(0, equals)), equals == std::string_view::npos
                                                          ? std::string()
                                                          : Unescape(field.substr(equals + 1)));
  }
  return fields;
}

struct HttpServer::Callbacks {
  // A request on its way in.
  struct Incoming {
    HttpRequest request;
    // Of a form with a file.
    std::unique_ptr<FormUpload> upload;
    MHD_PostProcessor* parser = nullptr;
    absl::Status taken;
    // Of the body: so far, and at most.
    size_t bytes = 0, most = 0;

    ~Incoming() {
      if (parser != nullptr) MHD_destroy_post_processor(parser);
    }
  };

  static MHD_Result AddQuery(void* request, MHD_ValueKind, const char* key, const char* value) {
    static_cast<HttpRequest*>(request)->query.emplace(key, value == nullptr ? "" : value);
    return MHD_YES;
  }
  static MHD_Result AddHeader(void* request, MHD_ValueKind, const char* key, const char* value) {
    static_cast<HttpRequest*>(request)->headers.emplace(absl::AsciiStrToLower(key),
                                                        value == nullptr ? "" : value);
    return MHD_YES;
  }

  static MHD_Result TakePiece(void* incoming, MHD_ValueKind, const char* key, const char* file,
                              const char*, const char*, const char* data, uint64_t, size_t size) {
    auto* form = static_cast<Incoming*>(incoming);
    if (form->taken.ok()) {
      form->taken = form->upload->Take(key == nullptr ? "" : key, file == nullptr ? "" : file,
                                       std::string_view(data, size));
    }
    return MHD_YES;
  }

  static bool IsFormWithFile(const HttpRequest& request) {
    const auto type = request.headers.find("content-type");
    return request.method == "POST" && type != request.headers.end() &&
           absl::StartsWithIgnoreCase(type->second, "multipart/form-data");
  }

  // Why a request is refused that names another machine; empty: it does not.
  static std::string Stranger(const HttpRequest& request) {
    const auto host = request.headers.find("host");
    if (host == request.headers.end()) return "";
    const std::optional<HostPort> named = SplitAddress(host->second);
    if (IsThisMachine(named ? named->host : host->second)) return "";
    return "this address is for this machine alone: call it 127.0.0.1 or localhost";
  }

  static MHD_Result BeginUpload(HttpServer* server, MHD_Connection* connection,
                                Incoming* incoming) {
    if (const std::string why = Stranger(incoming->request); !why.empty())
      return Refuse(server, connection, 403, why);
    auto begun = server->uploads_(incoming->request);
    if (auto* refusal = std::get_if<HttpResponse>(&begun))
      return Answer(server, connection, std::move(*refusal));
    incoming->parser = MHD_create_post_processor(connection, kFormBlockBytes, &TakePiece, incoming);
    if (incoming->parser == nullptr)
      return Refuse(server, connection, 400, "the form has no boundary between its fields");
    incoming->upload = std::move(std::get<std::unique_ptr<FormUpload>>(begun));
    return MHD_YES;
  }

  static MHD_Result FinishUpload(HttpServer* server, MHD_Connection* connection,
                                 Incoming* incoming) {
    const bool whole =
        MHD_destroy_post_processor(std::exchange(incoming->parser, nullptr)) == MHD_YES;
    if (incoming->taken.ok() && !whole)
      incoming->taken = absl::InvalidArgumentError("the form ends before its last field does");
    return Answer(server, connection, incoming->upload->Finish(incoming->taken));
  }

  static ssize_t ReadEvents(void* reader, uint64_t, char* buffer, size_t size) {
    const auto* both = static_cast<Reader*>(reader);
    const int64_t taken = both->stream->Take(both->connection, buffer, size);
    return taken < 0 ? static_cast<ssize_t>(MHD_CONTENT_READER_END_OF_STREAM)
                     : static_cast<ssize_t>(taken);
  }
  static void FreeEvents(void* reader) {
    auto* both = static_cast<Reader*>(reader);
    both->stream->Detach();
    delete both;
  }
  struct Reader {
    std::shared_ptr<EventStream> stream;
    MHD_Connection* connection;
  };

  static void FreeBody(void* body) { delete static_cast<std::string*>(body); }

  static MHD_Result Answer(HttpServer* server, MHD_Connection* connection, HttpResponse answer) {
    MHD_Response* response = nullptr;
    if (answer.events != nullptr) {
      auto* reader = new Reader{answer.events, connection};
      response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, kEventBlockBytes, &ReadEvents,
                                                   reader, &FreeEvents);
      if (response == nullptr) {
        delete reader;
      } else {
        server->Adopt(answer.events);
      }
    } else {
      auto* body = new std::string(std::move(answer.body));
      response = MHD_create_response_from_buffer_with_free_callback_cls(body->size(), body->data(),
                                                                        &FreeBody, body);
      if (response == nullptr) delete body;
    }
    if (response == nullptr) return MHD_NO;
    MHD_add_response_header(response, "Content-Type",
                            answer.events ? "text/event-stream" : answer.content_type.c_str());
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : answer.headers)
      MHD_add_response_header(response, name.c_str(), value.c_str());
    const MHD_Result queued =
        MHD_queue_response(connection, static_cast<unsigned>(answer.status), response);
    MHD_destroy_response(response);
    return queued;
  }

  static MHD_Result Refuse(HttpServer* server, MHD_Connection* connection, int status,
                           std::string why) {
    return Answer(server, connection,
                  {.status = status, .content_type = "text/plain", .body = why + "\n"});
  }

  static MHD_Result Handle(void* cls, MHD_Connection* connection, const char* url,
                           const char* method, const char* /*version*/, const char* upload,
                           size_t* upload_bytes, void** state) {
    auto* server = static_cast<HttpServer*>(cls);
    auto* incoming = static_cast<Incoming*>(*state);
    if (incoming == nullptr) {  // the headers are here
      incoming = new Incoming;
      *state = incoming;
      HttpRequest& request = incoming->request;
      request.method = method;
      request.path = url;
      MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, &AddQuery, &request);
      MHD_get_connection_values(connection, MHD_HEADER_KIND, &AddHeader, &request);
      const bool form = server->uploads_ != nullptr && IsFormWithFile(request);
      incoming->most = form ? server->options_.max_upload_bytes : server->options_.max_body_bytes;
      uint64_t announced = 0;
      if (const auto length = request.headers.find("content-length");
          length != request.headers.end() && absl::SimpleAtoi(length->second, &announced) &&
          announced > incoming->most)
        return RefuseLarge(server, connection, incoming->most);
      return form ? BeginUpload(server, connection, incoming) : MHD_YES;
    }
    if (*upload_bytes > 0) {
      if (*upload_bytes > incoming->most - incoming->bytes)
        return MHD_NO;  // its length was not announced: the connection ends
      incoming->bytes += *upload_bytes;
      if (incoming->upload == nullptr) {
        incoming->request.body.append(upload, *upload_bytes);
      } else if (MHD_post_process(incoming->parser, upload, *upload_bytes) != MHD_YES &&
                 incoming->taken.ok()) {
        incoming->taken = absl::InvalidArgumentError("the form is malformed");
      }
      *upload_bytes = 0;
      return MHD_YES;
    }
    if (incoming->upload != nullptr) return FinishUpload(server, connection, incoming);
    const HttpRequest& request = incoming->request;
    if (request.method != "GET" && request.method != "HEAD" && request.method != "POST")
      return Refuse(server, connection, 405, "there are GET, HEAD and POST");
    if (const std::string why = Stranger(request); !why.empty())
      return Refuse(server, connection, 403, why);
    return Answer(server, connection, server->handler_(request));
  }

  static MHD_Result RefuseLarge(HttpServer* server, MHD_Connection* connection, size_t most) {
    return Refuse(server, connection, 413, absl::StrCat("a request has at most ", most, " bytes"));
  }

  static void Complete(void*, MHD_Connection*, void** state, MHD_RequestTerminationCode) {
    delete static_cast<Incoming*>(*state);
    *state = nullptr;
  }
};

HttpServer::HttpServer(HttpServerOptions options, Handler handler, Uploads uploads)
    : options_(std::move(options)), handler_(std::move(handler)), uploads_(std::move(uploads)) {}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpServerOptions options,
                                                              Handler handler, Uploads uploads) {
  const std::string named = absl::StrCat("--http ", options.address);
  const std::optional<HostPort> where = SplitAddress(options.address);
  if (!where) {
    return absl::InvalidArgumentError(
        absl::StrCat(named, ": wanted HOST:PORT, such as 127.0.0.1:8080"));
  }
  if (!IsThisMachine(where->host)) {
    // 0 is any free port, which is not known yet.
    const std::string port = where->port == 0 ? "PORT" : absl::StrCat(where->port);
    return absl::InvalidArgumentError(absl::StrCat(
        named, " is open to other machines, and pages are not encrypted: take 127.0.0.1:", port,
        ", and `ssh -L ", port, ":127.0.0.1:", port, " THIS_MACHINE` where you want to see it"));
  }
  RaiseOpenFiles(options.max_connections + kOtherFiles);
  HEDDLE_ASSIGN_OR_RETURN(const int socket, Listen(*where, named));
  std::unique_ptr<HttpServer> server(
      new HttpServer(std::move(options), std::move(handler), std::move(uploads)));
  server->port_ = PortOf(socket);
  const HttpServerOptions& o = server->options_;
  server->daemon_ = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, /*port=*/0, nullptr, nullptr,
      &Callbacks::Handle, server.get(), MHD_OPTION_LISTEN_SOCKET, socket,
      MHD_OPTION_THREAD_POOL_SIZE, o.threads, MHD_OPTION_CONNECTION_LIMIT, o.max_connections,
      MHD_OPTION_CONNECTION_TIMEOUT, o.idle_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      o.max_header_bytes, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED,
      &Callbacks::Complete, nullptr, MHD_OPTION_END);
  if (server->daemon_ == nullptr) {
    close(socket);
    return absl::InternalError(
        absl::StrCat(named, ": the server does not start: ", strerror(errno)));
  }
  return server;
}

HttpServer::~HttpServer() {
  if (daemon_ == nullptr) return;
  auto* daemon = static_cast<MHD_Daemon*>(daemon_);
  const int socket = MHD_quiesce_daemon(daemon);
  std::vector<std::weak_ptr<EventStream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    streams.swap(streams_);
  }
  // A daemon must not be stopped while connections sleep.
  for (const std::weak_ptr<EventStream>& weak : streams) {
    if (const std::shared_ptr<EventStream> stream = weak.lock()) stream->Close();
  }
  MHD_stop_daemon(daemon);
  if (socket != MHD_INVALID_SOCKET) close(socket);
}

std::string HttpServer::address() const {
  return absl::StrCat(SplitAddress(options_.address)->host, ":", port_);
}

void HttpServer::Adopt(const std::shared_ptr<EventStream>& stream) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) {
    stream->Close();
    return;
  }
  // Those that ended go first, so that the list stays as long as there are connections.
  std::erase_if(streams_, [](const std::weak_ptr<EventStream>& weak) { return weak.expired(); });
  streams_.push_back(stream);
}

}  // namespace heddle
