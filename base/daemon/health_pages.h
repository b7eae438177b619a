// The pages by which programs watch a daemon: /metrics, /healthz and /readyz.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/daemon/http_server.h"
#include "base/daemon/metrics.h"

namespace heddle {

// The functions are called from several threads at once, and must not block for long.
struct HealthPages {
  Metrics* metrics = nullptr;  // not owned
  // Not OK: the daemon hangs, and a restart is what helps.
  std::function<absl::Status()> live;
  // Not OK: the daemon cannot do its work now, for this reason, and is better not asked to. A restart
  // does not help.
  std::function<absl::Status()> ready;
};

// /metrics is the text of `metrics`. /healthz and /readyz are 200 with "ok", or 503 with the reason.
// nullopt: the request is for another page.
std::optional<HttpResponse> AnswerHealth(const HealthPages& pages, const HttpRequest& request);

// Serves these pages and nothing else, at an address of this machine. InvalidArgument: see
// HttpServer::Start.
absl::StatusOr<std::unique_ptr<HttpServer>> ServeHealth(const std::string& address,
                                                        HealthPages pages);

}  // namespace heddle
