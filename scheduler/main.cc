// heddle-scheduler: flags, and nothing else.
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/command_documents.h"
#include "base/daemon/libraries.h"
#include "base/daemon/log.h"
#include "base/files/open_files.h"
#include "proto/access/local_socket.h"
#include "proto/protobuf_log.h"
#include "scheduler/core/policy.h"
#include "scheduler/service/server.h"
#include "scheduler/service/storage/copy_command.h"
#include "scheduler/whatif/simulate_queue.h"

int main(int argc, char** argv) {
  heddle::SetUpLibraries();
  heddle::scheduler::ServerOptions options;
  options.data_directory = heddle::DefaultDataDirectory();
  options.binary_directory = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  CLI::App app("heddle-scheduler: interleaves the stages of tuning jobs over shared workers");
  app.add_option("--listen", options.listen,
                 "HOST:PORT to serve, port 0 picks a free one, or unix:PATH (default: "
                 "unix:DATA/sockets/scheduler, for this user alone)");
  app.add_flag(
         "--standby", options.standby,
         "while another scheduler leads on the same data, wait until it is gone, and take over "
         "then (default: do not start)")
      ->needs("--listen");
  app.add_option("--advertise", options.advertise,
                 "HOST:PORT at which clients reach this scheduler, told by one that stands by "
                 "(default: --listen)");
  app.add_option("--tls-dir", options.tls_directory,
                 "Folder with ca.pem, cert.pem and key.pem, as `heddle-ca issue --role scheduler` "
                 "makes it; necessary where other machines can reach --listen");
  app.add_option("--tokens", options.token_file,
                 "File with the hashes of people's tokens, as `heddle-ca token` makes it (default: "
                 "DATA/tokens)");
  app.add_option("--http", options.http,
                 "HOST:PORT of this machine to serve the page, metrics and health at, such as "
                 "127.0.0.1:8080; port 0 picks a free one (default: none of them)");
  app.add_option("--otlp", options.otlp,
                 "Address of an OpenTelemetry collector that takes OTLP over HTTP, such as "
                 "http://127.0.0.1:4318: each job is sent as a trace (default: none)");
  app.add_option("--data", options.data_directory,
                 "directory of database (but see --store), models and modules")
      ->capture_default_str();
  app.add_option(
      "--store", options.store,
      "postgresql://USER@HOST/DATABASE to keep jobs and records in, instead of a file in "
      "--data; see docs/operating.md");
  app.add_option("--tracker", options.tracker_address,
                 "HOST:PORT of heddle-tracker; of several, separated by commas, which were started "
                 "with --appointed, one is in use")
      ->capture_default_str();
  app.add_option("--port-file", options.port_file, "file to write the served port to");
  app.add_option("--max-model-mib", options.max_model_mib,
                 "largest model taken, MiB, with its weights")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--max-jobs-a-day", options.max_jobs_a_day,
                 "jobs that a tenant may submit within a day; 0: any number. Callers without a "
                 "tenant, as all are on a socket of this machine, count as one")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--built-code-mib", options.built_code_mib,
                 "memory for code that is built and waits to be measured, MiB")
      ->check(CLI::Range(16, 1 << 20))
      ->capture_default_str();
  app.add_option("--lease", options.lease_s,
                 "seconds that a slot stays held after this scheduler was last heard of")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  app.add_option("--keep-days", options.keep_days,
                 "collect jobs that ended so many days ago: their models, modules and raw "
                 "measurements go, as with `heddle gc`; 0: never")
      ->check(CLI::Range(0, 36500))
      ->capture_default_str();
  app.add_option("--keep-jobs", options.keep_jobs,
                 "with --keep-days: the jobs that ended last and keep everything, however old")
      ->check(CLI::Range(0, 1'000'000'000))
      ->needs("--keep-days")
      ->capture_default_str();
  app.add_option("--policy", options.policy, "whose turn it is; see docs/simulator.md")
      ->check(CLI::IsMember(heddle::scheduler::PolicyNames()))
      ->capture_default_str();
  app.add_flag("--embedded", options.embedded, "run tracker and worker on this machine, too")
      ->excludes("--standby");
  app.add_flag("--unguarded", options.unguarded,
               "with --embedded: repeat no disturbed measurement, to see what the guard is for")
      ->needs("--embedded");
  app.add_flag("--require-confinement", options.require_confinement,
               "with --embedded: do not start where the stages of jobs cannot be confined")
      ->needs("--embedded");
  heddle::AddLogFlags(&app, &options.log);
  std::string copy_from, copy_to;
  CLI::App* copy_app = app.add_subcommand(
      "copy-store", "copy jobs and records from one store to another, which no scheduler uses");
  const char* const place = "a scheduler's data folder, or postgresql://USER@HOST/DATABASE";
  copy_app->add_option("from", copy_from, place)->required();
  copy_app->add_option("to", copy_to, place)->required();
  app.set_version_flag("--version", "heddle-scheduler " HEDDLE_VERSION);
  heddle::AddManPageFlag(&app);
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  options.what_if = heddle::scheduler::SimulateQueue;
  umask(077);                                      // models and modules are this user's alone
  heddle::RaiseOpenFiles(heddle::kFilesOfDaemon);  // each running stage has a connection
  absl::Status status = heddle::StartLog("heddle-scheduler", options.log);
  heddle::RouteProtobufLog([](const std::string& line) { spdlog::warn("{}", line); });
  if (status.ok()) {
    status = copy_app->parsed() ? heddle::scheduler::RunCopyStore(copy_from, copy_to)
                                : heddle::scheduler::RunServer(options);
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "heddle-scheduler: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ? 2 : 1;
}
