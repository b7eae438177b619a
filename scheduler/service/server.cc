#include "scheduler/service/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/daemon/health_pages.h"
#include "base/daemon/http_server.h"
#include "base/daemon/service_manager.h"
#include "base/files/output_file.h"
#include "base/status_macros.h"
#include "proto/access/audit_log.h"
#include "proto/access/channel.h"
#include "proto/access/listener.h"
#include "proto/access/local_socket.h"
#include "proto/access/revoked.h"
#include "proto/grpc_util.h"
#include "proto/leader_calls.h"
#include "scheduler/page/page.h"
#include "scheduler/service/embedded.h"
#include "scheduler/service/lead_check.h"
#include "scheduler/service/leadership.h"
#include "scheduler/service/reads/page_data.h"
#include "scheduler/service/scheduler_loop.h"
#include "scheduler/service/services.h"
#include "scheduler/service/standby_server.h"
#include "scheduler/service/storage/blob_sweeper.h"
#include "scheduler/service/storage/collector.h"
#include "scheduler/service/storage/data_folder.h"
#include "scheduler/service/storage/store_service.h"
#include "scheduler/service/telemetry/call_metrics.h"
#include "scheduler/service/telemetry/metrics.h"
#include "scheduler/service/telemetry/span_exporter.h"
#include "scheduler/store/open_store.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kDrain = absl::Seconds(3);  // for calls in progress at shutdown
// Time for watchers of the health service to see NOT_SERVING before their stream ends.
constexpr absl::Duration kGoodbye = absl::Milliseconds(300);
constexpr int kMaxPollers = 16;
constexpr size_t kMaxFormBytes = 16 << 10;           // of the page
constexpr size_t kMaxUploadBytes = size_t{2} << 30;  // of the page: ONNX files are no larger
constexpr size_t kMaxRefusedPath = 100;              // in the audit log

// Of a scheduler that does not stand by: for the lease of one that has ended on another host.
constexpr absl::Duration kWaitForLease = absl::Seconds(10);

std::string WithPort(const std::string& address, int port) {
  if (IsUnixAddress(address)) return address;
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

// The holder name at the tracker, by which the scheduler that leads recognises the leases of the one that led
// before: that of the store they share.
std::string HolderName(const std::string& identity) {
  return absl::StrCat("scheduler of ", identity.substr(0, 16));
}

// A name for all schedulers that ever use this data directory of this host, one after the other.
std::string HomeName(const std::string& directory) {
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  std::error_code error;
  const auto path = std::filesystem::canonical(directory, error);
  return absl::StrCat(host, ":", error ? directory : path.string(), "#");
}

// A name for this process, which no other has: not even the next one with the same process id.
std::string ProcessName(const std::string& home) {
  std::random_device random;
  return absl::StrCat(home, getpid(), "-", absl::Hex(random(), absl::kZeroPad8));
}

// Whether there is a process with this id that can still do something.
bool Runs(pid_t process) {
  if (kill(process, 0) != 0) return errno != ESRCH;
  std::ifstream file(absl::StrCat("/proc/", process, "/stat"));
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');  // the state follows: Z if it only waits for its parent
  return name_end == std::string::npos || line.compare(name_end, 3, ") Z") != 0;
}

// Whether the process of that name, whose home is this process' own, has ended for sure. One with the process id
// of this one has: it had another name.
bool HasEnded(const std::string& name, const std::string& home) {
  if (!name.starts_with(home)) return false;
  const pid_t process = std::atoi(name.c_str() + home.size());
  return process > 0 && (process == getpid() || !Runs(process));
}

// Asks once for the leadership; null: another leads. `locked`: this process has the lock of its data directory.
// That alone does not tell that the scheduler which leads has ended: it may have taken over from one that was
// stopped and had the lock until now.
absl::StatusOr<std::unique_ptr<Leadership>> AskToLead(RecordStore* store, const std::string& home,
                                                      bool locked, Leadership::Options options,
                                                      Leader* leader) {
  HEDDLE_ASSIGN_OR_RETURN(*leader, store->LeaderOf(options.claim.pool));
  options.claim.leader_has_ended = locked && HasEnded(leader->scheduler, home);
  // The answer to an earlier claim may have been lost.
  const bool ours = leader->scheduler == options.claim.scheduler;
  // No write while another leads: see ConnectReader in scheduler/store/sqlite_session.h.
  if (!ours && leader->remaining > absl::ZeroDuration() && !options.claim.leader_has_ended)
    return nullptr;
  auto taken = Leadership::Take(store, std::move(options), leader);
  if (absl::IsAborted(taken.status())) return nullptr;  // another was faster
  return taken;
}

absl::Status AnotherLeads(const Leader& leader) {
  return absl::InvalidArgumentError(
      absl::StrCat("another heddle-scheduler leads on the same database, at ", leader.address,
                   "; stop it, or start this one with --standby and a --listen of its own"));
}

absl::Status WritePort(const std::string& file, int port) {
  return file.empty() ? absl::OkStatus() : WriteFile(file, absl::StrCat(port, "\n"));
}

// Whose tokens the page asks for; null: it takes everybody on this machine at their word. That is so
// only where the service knows no identities at all.
const TokenFile* PageTokens(const ServerOptions& options, const Credentials& credentials,
                            const TokenFile* tokens) {
  std::error_code error;
  const bool given = !options.token_file.empty() ||
                     std::filesystem::exists(options.data_directory + "/tokens", error);
  return credentials.tls || given ? tokens : nullptr;
}

// Ends the process because the store is damaged, the disk fails, or another scheduler leads. What was
// acknowledged is safe, but nothing more may be promised.
void EndAtOnce(const std::string& reason) {
  std::fprintf(stderr, "heddle-scheduler: %s; ending, nothing acknowledged is lost\n",
               reason.c_str());
  std::fflush(stderr);
  _exit(1);
}

}  // namespace

absl::Status RunServer(const ServerOptions& options) {
  // Block these signals before any thread starts, so that all threads leave them to the sigwait
  // below.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<DirectoryLock> directory,
                          DirectoryLock::Open("--data ", options.data_directory));
  const bool in_use = !directory->Take();
  if (in_use && !options.standby) {
    return absl::InvalidArgumentError(absl::StrCat("--data ", options.data_directory,
                                                   ": another heddle-scheduler uses it; stop it, "
                                                   "give another directory, or start this one with "
                                                   "--standby and a --listen of its own"));
  }
  HEDDLE_ASSIGN_OR_RETURN(const Credentials credentials,
                          LoadDaemonCredentials(options.tls_directory, Role::kScheduler));
  const TokenFile tokens(options.token_file.empty() ? options.data_directory + "/tokens"
                                                    : options.token_file);
  const std::string database =
      options.store.empty() ? DatabaseOf(options.data_directory) : options.store;
  if (!options.store.empty() && !IsPostgres(options.store)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--store ", options.store,
                     ": is no postgresql://USER@HOST/DATABASE; without it, the database is ",
                     DatabaseOf(options.data_directory)));
  }
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<RecordStore> store, OpenRecordStore(database, in_use));
  HEDDLE_ASSIGN_OR_RETURN(const std::string identity, store->Identity());

  // The port file of an earlier run must not be mistaken for that of this one.
  auto forget_port = [&options] {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(options.port_file, ignored))
      std::filesystem::remove(options.port_file, ignored);
  };
  forget_port();

  std::string listen =
      options.listen.empty() ? SchedulerSocket(options.data_directory) : options.listen;
  std::string http_listen = options.http;
  const std::string home = HomeName(options.data_directory);
  Leadership::Options lead_options;
  lead_options.claim.scheduler = ProcessName(home);
  lead_options.claim.address = options.advertise.empty() ? listen : options.advertise;
  lead_options.lost = EndAtOnce;
  // Whoever took over from a process that was stopped gets the lock when that ends.
  lead_options.renewed = [&directory] { directory->Take(); };
  // Gives the leadership back after everything below has ended.
  std::unique_ptr<Leadership> leadership;
  Leader leader;
  const auto ask = [&] {
    return AskToLead(store.get(), home, directory->Take(), lead_options, &leader);
  };
  HEDDLE_ASSIGN_OR_RETURN(leadership, ask());
  std::unique_ptr<StandbyServer> standby;
  if (leadership == nullptr && options.standby) {
    HEDDLE_ASSIGN_OR_RETURN(standby,
                            StandbyServer::Start(listen, credentials, &tokens, options.http));
    listen = WithPort(listen, standby->port());
    if (options.advertise.empty()) lead_options.claim.address = listen;
    HEDDLE_RETURN_IF_ERROR(WritePort(options.port_file, standby->port()));
    http_listen = standby->http_address();
    std::printf("standing by on %s\n", listen.c_str());
    std::fflush(stdout);
    absl::Status problem;  // the latest
    const auto turn = [&] {
      absl::StatusOr<std::unique_ptr<Leadership>> asked = ask();
      if (asked.status() != problem && !asked.ok())
        spdlog::warn("cannot ask who leads: {}", std::string(asked.status().message()));
      problem = asked.status();
      if (asked.ok()) leadership = *std::move(asked);
      standby->SetLeader(leadership == nullptr ? leader.address : "");
      return leadership != nullptr;
    };
    const auto poll_ms = static_cast<int>(absl::ToInt64Milliseconds(lead_options.times.ask_every));
    if (const int signal_number = StandByForTurn(signals, poll_ms, turn); signal_number != 0) {
      spdlog::info("signal {}: ending, it stood by", signal_number);
      forget_port();
      return absl::OkStatus();
    }
    spdlog::info("leads now, in epoch {}", leader.epoch);
  }
  for (const absl::Time limit = MonotonicNow() + kWaitForLease; leadership == nullptr;) {
    if (MonotonicNow() > limit) return AnotherLeads(leader);
    absl::SleepFor(lead_options.times.ask_every);
    HEDDLE_ASSIGN_OR_RETURN(leadership, ask());
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<AuditLog> audit,
                          AuditLog::Open(options.data_directory + "/audit"));
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<BlobStore> blobs,
                          BlobStore::Open(options.data_directory + "/blobs"));
  std::unique_ptr<SpanExporter> spans;
  if (!options.otlp.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(spans, SpanExporter::Start({.collector = options.otlp}));
  }
  std::unique_ptr<EmbeddedCluster> cluster;
  SchedulerLoop::Options loop_options;
  loop_options.spans = spans.get();
  loop_options.tracker_address = options.tracker_address;
  loop_options.credentials = credentials;
  loop_options.holder = HolderName(identity);
  loop_options.epoch = leader.epoch;
  loop_options.leads = [&leadership] { return leadership->Holds(); };
  loop_options.fatal = EndAtOnce;
  loop_options.policy = options.policy;
  loop_options.max_artifact_bytes = options.built_code_mib << 20;
  loop_options.lease = absl::Seconds(options.lease_s);
  if (options.embedded) {
    const std::vector<int> cores = AvailableCores();
    ConfineToCpuSlots(cores);
    HEDDLE_ASSIGN_OR_RETURN(
        std::unique_ptr<EmbeddedCluster> started,
        EmbeddedCluster::Start({options.binary_directory, options.data_directory, cores,
                                options.unguarded, options.require_confinement, options.log}));
    cluster = std::move(started);
    loop_options.tracker_address = cluster->tracker_address();
  }
  for (const absl::string_view tracker : absl::StrSplit(loop_options.tracker_address, ','))
    HEDDLE_RETURN_IF_ERROR(CheckAddress(std::string(tracker), credentials));
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<SchedulerLoop> loop,
                          SchedulerLoop::Load(loop_options, store.get(), blobs.get()));

  ServiceLimits limits;
  limits.max_model_bytes = options.max_model_mib << 20;
  limits.max_jobs_a_day = options.max_jobs_a_day;
  const RefusedCalls refusals(loop->metrics());
  CallLimits calls{
      {.refused = [&refusals](CallLimits::Refusal refusal) { refusals.Count(refusal); }}};
  JobServiceImpl jobs(loop.get(), store.get(), blobs.get(), &calls, limits, &tokens);
  RecordServiceImpl records(loop.get(), store.get(), &calls, limits, &tokens);
  Collector collector(loop.get(), store.get(), blobs.get());
  StoreServiceImpl care(database, blobs.get(), &collector, &calls);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  standby.reset();  // this process serves at the same address from here on
  HEDDLE_ASSIGN_OR_RETURN(
      const std::unique_ptr<PeerDoor> door,
      AddListener({.address = listen,
                   .credentials = credentials,
                   .tokens = &tokens,
                   .refused =
                       [&audit, &refusals](const Identity& caller, const std::string& method,
                                           const absl::Status& why) {
                         audit->Refused(caller, method, why);
                         refusals.Count(why);
                       }},
                  &builder, &port));
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(MakeLeadCheck([&leadership] { return leadership->Check(); }));
  interceptors.push_back(audit->Interceptor(&tokens));
  interceptors.push_back(MakeCallMetrics(loop->metrics()));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  UsePings(&builder, LeaderPings());
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, kMaxPollers);
  // A call over the limit of threads is refused with RESOURCE_EXHAUSTED; long calls have limits of
  // their own well below it (CallLimits).
  LimitServer(&builder, "heddle-scheduler");
  builder.RegisterService(&jobs);
  builder.RegisterService(&records);
  builder.RegisterService(&care);
  std::unique_ptr<grpc::Server> server = StartServer(&builder, door.get());
  if (server == nullptr || port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", listen, ": cannot listen there (in use?)"));
  }
  if (options.advertise.empty()) leadership->SetAddress(WithPort(listen, port));
  if (const std::string warning = OpenAddressWarning(listen, credentials); !warning.empty())
    spdlog::warn("{}", warning);
  AddServiceMetrics({.database = database,
                     .blobs = blobs.get(),
                     .leases = [&loop] { return loop->leases(); },
                     .lost_audit_lines = [&audit] { return audit->lost(); },
                     .store_problem = [&loop] { return loop->writer()->problem(); },
                     .spans = spans.get()},
                    loop->metrics());
  std::atomic<bool> draining = false;
  const HealthPages health{.metrics = loop->metrics(),
                           .live = [&loop] { return loop->Live(); },
                           .ready =
                               [&loop, &draining, &leadership] {
                                 if (draining)
                                   return absl::UnavailableError("the scheduler is ending");
                                 const absl::Status leads = leadership->Check();
                                 return leads.ok() ? loop->Ready() : leads;
                               }};
  // Ends the server. Calls that would go on, such as watches, are told to end first.
  const auto stop = [&] {
    forget_port();
    server->GetHealthCheckService()->SetServingStatus(false);
    absl::SleepFor(kGoodbye);
    jobs.Stop();
    care.Stop();
    server->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kDrain));
    server->Wait();
  };
  MachineDrains drains(loop->tracker(), {});
  PageData page_data(
      loop.get(), store.get(),
      {.intake = jobs.intake(), .blobs = blobs.get(), .drains = &drains, .audit = audit.get()},
      options.what_if);
  std::unique_ptr<RevokedList> revoked;  // null: there are no certificates
  if (credentials.tls) revoked = std::make_unique<RevokedList>(credentials.tls->revoked);
  std::unique_ptr<Page> page;
  std::unique_ptr<HttpServer> http;
  if (!options.http.empty()) {
    PageOptions page_options;
    page_options.tokens = PageTokens(options, credentials, &tokens);
    page_options.revoked = revoked.get();
    page_options.refused = [&audit](const std::string& path, const absl::Status& why) {
      audit->Refused(Identity{}, absl::StrCat("page ", path.substr(0, kMaxRefusedPath)), why);
    };
    page = std::make_unique<Page>(page_options, &page_data);
    page_data.ReadAhead();
    // Programs that watch the daemon need no token for what tells nothing of jobs.
    const auto handle = [&page, health](const HttpRequest& request) {
      std::optional<HttpResponse> answer = AnswerHealth(health, request);
      return answer ? *std::move(answer) : page->Handle(request);
    };
    auto served = HttpServer::Start(
        {.address = http_listen,
         .max_body_bytes = kMaxFormBytes,
         .max_upload_bytes = kMaxUploadBytes},
        handle, [&page](const HttpRequest& request) { return page->BeginUpload(request); });
    if (!served.ok()) {
      stop();
      return served.status();
    }
    http = *std::move(served);
    spdlog::info("the page, metrics and health are at http://{}", http->address());
    if (page_options.tokens == nullptr) {
      spdlog::warn("http://{} asks for no token: everybody on this machine may do everything there",
                   http->address());
    }
  }
  std::optional<KeepRule> rule;
  if (options.keep_days > 0)
    rule = KeepRule{absl::Hours(24) * options.keep_days, options.keep_jobs};
  const BlobSweeper sweeper(loop.get(), store.get(), blobs.get(), &collector, rule);
  loop->Begin();  // jobs go on only once users can reach the scheduler
  if (http == nullptr && options.embedded)
    spdlog::info("there is no page for a browser; --http 127.0.0.1:8080 serves one");
  // Whoever waits for the port finds the page's address there (client/embedded_service.cc).
  if (http != nullptr) {
    std::printf("page at http://%s/\n", http->address().c_str());
    std::fflush(stdout);
  }
  if (const absl::Status written = WritePort(options.port_file, port); !written.ok()) {
    stop();
    return written;
  }
  std::printf("listening on %s\n", WithPort(listen, port).c_str());
  std::fflush(stdout);

  const int signal_number = ServeUntilSignal(signals, [&loop] { return loop->Live().ok(); });
  spdlog::info("signal {}: ending", signal_number);
  draining = true;
  stop();
  return absl::OkStatus();
}

}  // namespace heddle::scheduler
