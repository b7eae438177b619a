#include "base/daemon/health_pages.h"

#include <utility>

#include "base/one_line.h"

namespace heddle {
namespace {

// Of a server for these pages alone: a few programs ask, every few seconds.
constexpr unsigned kMaxConnections = 64;

HttpResponse Plain(int status, const std::string& text) {
  HttpResponse response;
  response.status = status;
  response.content_type = "text/plain; charset=utf-8";
  response.body = text + "\n";
  return response;
}

HttpResponse Answer(const absl::Status& status) {
  if (status.ok()) return Plain(200, "ok");
  return Plain(503, OneLine(std::string(status.message())));
}

}  // namespace

std::optional<HttpResponse> AnswerHealth(const HealthPages& pages, const HttpRequest& request) {
  const bool metrics = request.path == "/metrics", live = request.path == "/healthz";
  if (!metrics && !live && request.path != "/readyz") return std::nullopt;
  if (request.method != "GET" && request.method != "HEAD")
    return Plain(405, "this page is only read");
  HttpResponse response = Plain(200, "");
  if (metrics) {
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = pages.metrics->Text();
  } else {
    response = Answer(live ? pages.live() : pages.ready());
  }
  response.headers.emplace_back("Cache-Control", "no-store");
  return response;
}

absl::StatusOr<std::unique_ptr<HttpServer>> ServeHealth(const std::string& address,
                                                        HealthPages pages) {
  HttpServerOptions options;
  options.address = address;
  options.threads = 1;
  options.max_connections = kMaxConnections;
  options.max_body_bytes = 0;  // these pages are only read
  return HttpServer::Start(std::move(options),
                           [pages = std::move(pages)](const HttpRequest& request) {
                             return AnswerHealth(pages, request)
                                 .value_or(Plain(404, "there are /metrics, /healthz and /readyz"));
                           });
}

}  // namespace heddle
