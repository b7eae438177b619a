// heddle-tracker: parses flags and wires.
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/command_documents.h"
#include "base/daemon/health_pages.h"
#include "base/daemon/libraries.h"
#include "base/daemon/log.h"
#include "base/daemon/service_manager.h"
#include "base/files/open_files.h"
#include "base/files/output_file.h"
#include "proto/access/audit_log.h"
#include "proto/access/listener.h"
#include "proto/grpc_util.h"
#include "proto/protobuf_log.h"
#include "tracker/metrics.h"
#include "tracker/tracker_service.h"

namespace {

// Time for watchers of the health service to see NOT_SERVING before their stream ends.
constexpr absl::Duration kGoodbye = absl::Milliseconds(300);
// Of calls; many workers may call at once, for a moment each.
constexpr int kMaxThreads = 512;

// The port file of another run must not be mistaken for that of this one.
void ForgetPort(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) std::filesystem::remove(path, ignored);
}

}  // namespace

int main(int argc, char** argv) {
  heddle::SetUpLibraries();
  std::string listen = "127.0.0.1:9191";
  std::string port_file;
  std::string state;
  std::string audit_folder;
  int expiry_s = 10;
  std::string tls_directory;
  std::string http;
  heddle::LogOptions log;
  CLI::App app(
      "heddle-tracker: knows which workers are there, which slots are free and who holds them");
  app.add_option("--listen", listen, "HOST:PORT to serve on, port 0 takes a free one, or unix:PATH")
      ->capture_default_str();
  app.add_option("--tls-dir", tls_directory,
                 "Folder with ca.pem, cert.pem and key.pem, as `heddle-ca issue --role tracker` "
                 "makes it; necessary where other machines can reach --listen");
  app.add_option("--port-file", port_file, "Write the port number here once it is known");
  app.add_option("--state", state,
                 "Keep the last fencing token here, so that tokens grow over restarts");
  app.add_option(
      "--audit", audit_folder,
      "Folder that keeps who took and gave back slots (calls.jsonl), and who was refused "
      "(refused.jsonl)");
  bool appointed = false;
  app.add_flag("--appointed", appointed,
               "Serve only while a scheduler appoints this tracker, as it does where its --tracker "
               "names several: for each tracker of such a service");
  app.add_option("--expiry", expiry_s, "Seconds of silence after which a worker counts as gone")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  app.set_version_flag("--version", "heddle-tracker " HEDDLE_VERSION);
  heddle::AddManPageFlag(&app);
  app.add_option(
      "--http", http,
      "HOST:PORT of this machine to serve /metrics, /healthz and /readyz at (default: nowhere)");
  heddle::AddLogFlags(&app, &log);
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  if (const absl::Status logs = heddle::StartLog("heddle-tracker", log); !logs.ok()) {
    std::fprintf(stderr, "heddle-tracker: %s\n", std::string(logs.message()).c_str());
    return 2;
  }
  heddle::RouteProtobufLog([](const std::string& line) { spdlog::warn("{}", line); });

  // Block these signals before any thread exists, so that only sigwait below takes them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  heddle::RaiseOpenFiles(heddle::kFilesOfDaemon);  // each worker has a connection
  ForgetPort(port_file);
  auto tokens = heddle::tracker::FencingTokens::Open(state);
  if (!tokens.ok()) {
    spdlog::error("{}", std::string(tokens.status().message()));
    return 2;
  }
  const auto credentials = heddle::LoadDaemonCredentials(tls_directory, heddle::Role::kTracker);
  if (!credentials.ok()) {
    spdlog::error("{}", std::string(credentials.status().message()));
    return 2;
  }
  std::unique_ptr<heddle::AuditLog> audit;  // null: nobody wants one
  if (!audit_folder.empty()) {
    auto opened = heddle::AuditLog::Open(audit_folder);
    if (!opened.ok()) {
      spdlog::error("--audit: {}", std::string(opened.status().message()));
      return 2;
    }
    audit = *std::move(opened);
  }
  heddle::tracker::ServiceOptions options;
  options.audit = audit.get();
  options.appointed = appointed;
  options.pool.worker_expiry = absl::Seconds(expiry_s);
  // Three calls that are lost do not make a worker count as gone.
  options.pool.sync_interval = std::min(options.pool.sync_interval, options.pool.worker_expiry / 4);
  heddle::tracker::TrackerServiceImpl service(options, *std::move(tokens));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT,
                             0);  // a second tracker must not share the port silently
  heddle::UsePings(&builder);
  heddle::LimitServer(&builder, "heddle-tracker", {.threads = kMaxThreads});
  heddle::ListenerOptions listener;
  listener.address = listen;
  listener.credentials = *credentials;
  listener.refused = [&audit](const heddle::Identity& caller, const std::string& method,
                              const absl::Status& why) {
    if (audit != nullptr) audit->Refused(caller, method, why);
    spdlog::debug("{} is refused {}: {}", heddle::ToText(caller), method,
                  std::string(why.message()));
  };
  const auto door = heddle::AddListener(listener, &builder, &port);
  if (!door.ok()) {
    spdlog::error("{}", std::string(door.status().message()));
    return 2;
  }
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = heddle::StartServer(&builder, door->get());
  if (server == nullptr || port == 0) {
    spdlog::error(
        "cannot listen on {}: is another tracker running there? choose another with --listen",
        listen);
    return 2;
  }
  if (const std::string warning = heddle::OpenAddressWarning(listen, *credentials);
      !warning.empty())
    spdlog::warn("{}", warning);
  // Ends the server. Calls that would go on, such as watches, are told to end first.
  const auto stop = [&] {
    ForgetPort(port_file);
    server->GetHealthCheckService()->SetServingStatus(false);
    absl::SleepFor(kGoodbye);
    service.Stop();
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  };
  if (!port_file.empty()) {
    const absl::Status written = heddle::WriteFile(port_file, absl::StrCat(port, "\n"));
    if (!written.ok()) {
      spdlog::error("--port-file: {}", std::string(written.message()));
      stop();
      return 2;
    }
  }
  heddle::Metrics metrics("heddle-tracker");
  heddle::tracker::AddTrackerMetrics(&service, &metrics);
  std::atomic<bool> draining = false;
  std::unique_ptr<heddle::HttpServer> pages;
  if (!http.empty()) {
    auto served = heddle::ServeHealth(
        http, {.metrics = &metrics,
               .live = [&service] { return service.Live(); },
               .ready =
                   [&draining, &service] {
                     return draining ? absl::UnavailableError("the tracker is ending")
                                     : service.Ready();
                   }});
    if (!served.ok()) {
      spdlog::error("{}", std::string(served.status().message()));
      stop();
      return 2;
    }
    pages = *std::move(served);
    spdlog::info("metrics and health are at http://{}", pages->address());
  }
  spdlog::info("tracker listens on {} (port {})", listen, port);
  const int signal = heddle::ServeUntilSignal(signals, [&service] { return service.Live().ok(); });
  spdlog::info("{}: shutting down", sigdescr_np(signal));
  draining = true;
  stop();
  return 0;
}
