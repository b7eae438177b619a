// heddle-worker: parses flags and wires. The same program is its own children (stage_child.h).
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <sched.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "base/command_documents.h"
#include "base/daemon/health_pages.h"
#include "base/daemon/libraries.h"
#include "base/daemon/log.h"
#include "base/daemon/service_manager.h"
#include "base/files/open_files.h"
#include "base/vocabulary/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/machine/measured_machine.h"
#include "compiler/runtime/device_kind.h"
#include "proto/protobuf_log.h"
#include "worker/child/stage_child.h"
#include "worker/confine/mechanisms.h"
#include "worker/confine/stage_folder.h"
#include "worker/process/stage_cgroup.h"
#include "worker/slots.h"
#include "worker/stages/gpus.h"
#include "worker/stages/measure_child.h"
#include "worker/stages/stages.h"
#include "worker/supervisor/device_machine.h"
#include "worker/supervisor/worker_server.h"

namespace {

using heddle::runtime::ClockLock;

constexpr absl::Duration kLongestNotice = absl::Hours(24);

// Keeps the supervisor's own threads off the cores that measure. Returns the cores they run on.
std::vector<int> ConfineToOwnCores(const std::vector<heddle::worker::SlotConfig>& slots) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int core : heddle::worker::SupervisorCores(slots, heddle::worker::UsableCores()))
    CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof(cores), &cores);
  return heddle::worker::UsableCores();
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "worker";
}

// A folder in this user's cache directory; `otherwise` if there is none.
std::string CacheFolder(const std::string& name, const std::string& otherwise) {
  const char* caches = std::getenv("XDG_CACHE_HOME");
  if (caches != nullptr && *caches != '\0') return std::string(caches) + "/heddle/" + name;
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? std::string(home) + "/.cache/heddle/" + name
                                          : otherwise;
}

// Makes the folder in which the children that compile keep code, each job in one of its own. Empty:
// nothing is kept.
std::string OpenCodeCache(const std::string& folder) {
  if (folder == "off" || folder.empty()) return "";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::filesystem::path absolute = std::filesystem::absolute(folder, error);
  if (std::filesystem::is_directory(absolute, error)) return absolute.string();
  spdlog::warn("--code-cache {}: no such folder can be made; compiled GPU code is not kept",
               folder);
  return "";
}

// Tells what cannot be had on this host, one line each, and confines stages by the rest.
// FailedPrecondition: something is missing, and `required` is set.
absl::Status ChooseConfinement(const heddle::worker::confine::Confinement& wanted, bool required,
                               heddle::worker::RunnerOptions* runner) {
  namespace confine = heddle::worker::confine;
  if (wanted.cgroup) heddle::worker::StageCgroup::LimitThreads();
  const std::vector<confine::Feature> features = confine::ProbeConfinement(wanted);
  runner->confinement = confine::Available(wanted, features);
  if (required) {
    const absl::Status all = confine::RequireAll(features);
    if (!all.ok()) return all;
  }
  for (const confine::Feature& feature : features) {
    if (feature.available) continue;
    spdlog::log(feature.required ? spdlog::level::warn : spdlog::level::info,
                "confinement of stages: {}", confine::Describe(feature));
  }
  spdlog::info("stages are confined by: {}", confine::ToText(runner->confinement));
  return absl::OkStatus();
}

// Prints what this host offers. The exit status: 0 if stages can be confined as they should be.
int CheckConfinement(const heddle::worker::confine::Confinement& wanted) {
  namespace confine = heddle::worker::confine;
  const std::vector<confine::Feature> features = confine::ProbeConfinement(wanted);
  for (const confine::Feature& feature : features)
    std::printf("%s\n", confine::Describe(feature).c_str());
  return confine::RequireAll(features).ok() ? 0 : 1;
}

// Runs a small kernel on each GPU as a stage would, and tells what came of it, a line for each GPU. The
// exit status: 0 if all work, also where there is none.
int CheckGpus(const heddle::worker::confine::Confinement& wanted) {
  namespace confine = heddle::worker::confine;
  signal(SIGPIPE, SIG_IGN);  // a child that has ended is no reason to end
  const auto gpus = heddle::worker::FindGpus({"/proc/self/exe", heddle::worker::kGpusFlag});
  if (!gpus.ok()) {
    std::printf("driver: %s\n", std::string(gpus.status().message()).c_str());
    return 1;
  }
  if (gpus->empty()) {
    std::printf("no GPU: this machine has no driver for one, or the driver sees none\n");
    return 0;
  }
  heddle::worker::GpuTrialOptions options;
  options.stage_command = {"/proc/self/exe", heddle::worker::kStageChildFlag};
  options.confinement = confine::Available(wanted, confine::ProbeConfinement(wanted));
  std::error_code error;
  options.folder = std::filesystem::temp_directory_path(error).string();
  int status = 0;
  for (const heddle::worker::Gpu& gpu : *gpus) {
    auto tried = heddle::worker::TryGpu(gpu, options);
    std::string line = tried.ok() ? *tried : std::string(tried.status().message());
    if (!tried.ok()) status = 1;
    if (!tried.ok() && options.confinement.any()) {
      heddle::worker::GpuTrialOptions unconfined = options;
      unconfined.confinement = {};
      if (heddle::worker::TryGpu(gpu, unconfined).ok())
        line = "works, but not in a confined stage (" + confine::ToText(options.confinement) +
               "): " + line;
    }
    std::printf("%s: %s, %s: %s: %s\n", gpu.name.c_str(), gpu.info.name.c_str(),
                gpu.info.driver.c_str(), tried.ok() ? "ok" : "problem", line.c_str());
  }
  return status;
}

// The names of all GPUs of this machine. If a driver does not work, a line in the log says why there are
// none.
std::vector<std::string> NamesOfAllGpus() {
  std::vector<std::string> names;
  const auto gpus = heddle::worker::FindGpus({"/proc/self/exe", heddle::worker::kGpusFlag});
  if (!gpus.ok()) {
    spdlog::warn("no GPU is offered: {}", std::string(gpus.status().message()));
    return names;
  }
  for (const heddle::worker::Gpu& gpu : *gpus) names.push_back(gpu.name);
  if (names.empty()) spdlog::info("no GPU is offered: there is no driver, or it sees none");
  return names;
}

// What the widest slot that measures on cores reaches; empty, with a line in the log, if nothing can
// be measured. The cores are free: no slot is offered yet.
std::string MachineText(const heddle::worker::WorkerOptions& options, bool again) {
  heddle::worker::DeviceMachineOptions device;
  for (const heddle::worker::SlotConfig& slot : options.slots) {
    if (slot.device && slot.cores.size() > device.cores.size()) device.cores = slot.cores;
  }
  if (device.cores.empty()) return "";
  device.folder = CacheFolder("machines", "heddle-machines");
  device.device_key = options.device_key;
  device.target = options.target;
  device.version = heddle::machine::kMeasuredVersion;
  device.command = {"/proc/self/exe", heddle::worker::kMeasureFlag};
  device.check = [](const std::string& text) {
    return heddle::machine::ParseMeasuredMachine(text).status();
  };
  device.again = again;
  const auto found = heddle::worker::MachineOfDevice(device);
  if (!found.ok()) {
    spdlog::warn("this host's cores are not measured, what is usual for a {} must do: {}",
                 options.device_key, std::string(found.status().message()));
    return "";
  }
  spdlog::info("{}: {}{}", options.device_key,
               heddle::machine::Summary(*heddle::machine::ParseMeasuredMachine(found->text)),
               found->took > absl::ZeroDuration()
                   ? fmt::format(" (measured in {:.1f} s)", absl::ToDoubleSeconds(found->took))
                   : "");
  return found->text;
}

// Waits for a signal; false if `limit_s` passes first.
bool WaitForSignal(const sigset_t& signals, int limit_s) {
  const timespec limit{.tv_sec = limit_s, .tv_nsec = 0};
  return sigtimedwait(&signals, nullptr, &limit) > 0;
}

}  // namespace

int main(int argc, char** argv) {
  heddle::SetUpLibraries();
  if (argc > 1 && std::strcmp(argv[1], heddle::worker::kStageChildFlag) == 0) {
    return heddle::worker::StageChildMain(argc, argv, heddle::worker::RunStage);
  }
  if (argc > 1 && std::strcmp(argv[1], heddle::worker::kMeasureFlag) == 0)
    return heddle::worker::MeasureChildMain(argc, argv);
  if (argc > 1 && std::strcmp(argv[1], heddle::worker::kGpusFlag) == 0)
    return heddle::worker::GpusChildMain(argc, argv);
  heddle::worker::WorkerOptions options;
  options.version = HEDDLE_VERSION;
  options.tracker = "127.0.0.1:9191";
  std::vector<std::string> cpu_slots;
  std::vector<std::string> device_slots;
  std::vector<std::string> gpus;
  int gpu_clock_mhz = 0;
  std::string machine = "measure";
  std::string tls_directory;
  std::string code_cache = CacheFolder("code", "off");
  std::string blob_cache = CacheFolder("blobs", "heddle-blobs");
  int64_t blob_cache_mib = 32768;
  std::string notice_text = "8s";
  std::string http;
  heddle::LogOptions log;
  std::string confined_by = "all";
  std::string stage_user;
  bool require_confinement = false;
  bool check = false;
  bool check_gpus = false;
  int64_t longest_stage_s = absl::ToInt64Seconds(options.runner.longest_stage);
  CLI::App app("heddle-worker: runs leased stages, each in a process of its own");
  app.footer(
      "Only measure the cores that this process may run on: heddle-worker --measure-machine");
  app.add_option(
         "--tracker", options.tracker,
         "Address of heddle-tracker; several, separated by commas, as the scheduler has them")
      ->capture_default_str();
  app.add_option("--listen", options.listen,
                 "HOST:PORT to serve on, port 0 takes a free one, or unix:PATH")
      ->capture_default_str();
  app.add_option("--tls-dir", tls_directory,
                 "Folder with ca.pem, cert.pem and key.pem, as `heddle-ca issue --role worker` "
                 "makes it; necessary where other machines can reach --listen");
  app.add_option("--advertise", options.advertise,
                 "HOST or HOST:PORT that others reach this worker at; default: that of --listen");
  app.add_option("--id", options.id,
                 "Name of this worker, stable over restarts (default: that in its certificate, or "
                 "the host's name)");
  app.add_option("--cpu-slots", cpu_slots,
                 "Slots for everything but profiling and comparing: cores joined by '-', slots by "
                 "','; 'auto': every core that this may run on");
  app.add_option("--device-slots", device_slots,
                 "Slots for profiling and comparing, likewise; where both are 'auto', the last "
                 "half of the cores");
  app.add_option("--profile", gpus,
                 "GPUs to profile on, each a slot of its own: cuda:0, several by ','; 'all': those "
                 "of this machine, if it has any");
  app.add_option("--gpu-clock", gpu_clock_mhz,
                 "Hold the GPUs' clock at so many MHz while this runs (needs the right to)");
  app.add_option("--code-cache", code_cache, "Folder that keeps compiled GPU code; 'off': none")
      ->envname("HEDDLE_CODE_CACHE")
      ->capture_default_str();
  app.add_option("--blob-cache", blob_cache, "Folder that keeps the large tensors of models")
      ->capture_default_str();
  app.add_option("--blob-cache-mib", blob_cache_mib, "Most that this folder may hold, MiB")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--machine", machine,
                 "How fast this host's cores are: 'measure' does so once and keeps it, 'again' "
                 "measures anew, 'table' takes what is usual for the CPU")
      ->envname("HEDDLE_MACHINE")
      ->check(CLI::IsMember({"measure", "again", "table"}))
      ->capture_default_str();
  app.add_option("--device-key", options.device_key,
                 "Class of identical devices this one is of; default: the CPU's name");
  app.add_option("--memory-limit", options.runner.memory_limit_bytes, "Bytes a stage may use")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--stage-limit", longest_stage_s,
                 "Seconds a stage may take, whatever its caller allows")
      ->check(CLI::Range(1, 24 * 3600))
      ->capture_default_str();
  app.add_option("--confine", confined_by,
                 "What keeps stages in: 'all' that this host offers, 'none', or some of "
                 "user,namespaces,landlock,filter,cgroup")
      ->capture_default_str();
  app.add_option("--stage-user", stage_user,
                 "User that stages run as, if the worker is root; default: nobody");
  app.add_flag("--require-confinement", require_confinement,
               "Do not start where stages cannot be confined");
  app.add_flag("--check", check, "Only tell what this host offers to confine stages");
  app.add_flag("--check-gpus", check_gpus,
               "Only run a small kernel on each GPU as a stage would, and tell whether that works");
  app.add_flag(
      "--unguarded{false}", options.guard.on,
      "Repeat no disturbed measurement and trust every slot: to see what the guard is for");
  app.add_option(
         "--notice", notice_text,
         "Time from SIGTERM until this machine may be gone: what a batch system grants, less "
         "a second or two. Running stages get all but three seconds of it; those that cannot "
         "end by then are handed back at once")
      ->capture_default_str();
  app.set_version_flag("--version", "heddle-worker " HEDDLE_VERSION);
  heddle::AddManPageFlag(&app);
  app.add_option(
      "--http", http,
      "HOST:PORT of this machine to serve /metrics, /healthz and /readyz at (default: nowhere)");
  heddle::AddLogFlags(&app, &log);
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  if (const absl::Status logs = heddle::StartLog("heddle-worker", log); !logs.ok()) {
    std::fprintf(stderr, "heddle-worker: %s\n", std::string(logs.message()).c_str());
    return 2;
  }
  heddle::RouteProtobufLog([](const std::string& line) { spdlog::warn("{}", line); });

  auto confinement = heddle::worker::confine::ParseConfinement(confined_by);
  absl::Status known = confinement.status();
  if (known.ok() && !stage_user.empty())
    known = heddle::worker::confine::SetStageUser(stage_user, &*confinement);
  if (!known.ok()) {
    spdlog::error("{}", std::string(known.message()));
    return 2;
  }
  if (check) return CheckConfinement(*confinement);
  if (check_gpus) return CheckGpus(*confinement);
  const absl::Status confined =
      ChooseConfinement(*confinement, require_confinement, &options.runner);
  if (!confined.ok()) {
    spdlog::error("{}", std::string(confined.message()));
    return 2;
  }
  options.runner.longest_stage = absl::Seconds(longest_stage_s);
  absl::Duration notice;
  if (!absl::ParseDuration(notice_text, &notice) || notice <= absl::ZeroDuration() ||
      notice > kLongestNotice) {
    spdlog::error("--notice {}: it must be a time of up to 24h, such as 30s", notice_text);
    return 2;
  }
  umask(077);  // the weights and kernels that it keeps are this user's alone
  const auto credentials = heddle::LoadDaemonCredentials(tls_directory, heddle::Role::kWorker);
  if (!credentials.ok()) {
    spdlog::error("{}", std::string(credentials.status().message()));
    return 2;
  }
  options.credentials = *credentials;
  if (options.id.empty())
    options.id = credentials->tls ? credentials->tls->identity.name : HostName();

  auto slots = heddle::worker::ParseSlots(cpu_slots, device_slots, heddle::worker::UsableCores());
  if (gpus == std::vector<std::string>{"all"}) gpus = NamesOfAllGpus();
  auto gpu_slots = heddle::worker::ParseGpuSlots(gpus);
  for (const absl::Status& status : {slots.status(), gpu_slots.status()}) {
    if (status.ok()) continue;
    spdlog::error("{}", std::string(status.message()));
    return 2;
  }
  options.slots = *slots;
  if (slots->empty() && gpu_slots->empty()) {
    spdlog::error("no slots: give --cpu-slots, --device-slots, --profile, or several of them");
    return 2;
  }
  const auto target = heddle::codegen::ResolveTarget(heddle::Target{});
  if (!target.ok()) {
    spdlog::error("{}", std::string(target.status().message()));
    return 2;
  }
  options.target = heddle::ToText(*target);
  if (options.device_key.empty()) options.device_key = target->cpu;
  bool caches = false;
  for (const heddle::TargetKind kind : heddle::TargetKinds()) {
    const std::string& name = heddle::KindName(kind);
    const auto toolchain = heddle::codegen::BackendOf({.kind = kind}).FindToolchain();
    if (toolchain.ok()) {
      options.builds.push_back(name);
      caches |= toolchain->caches;
      spdlog::debug("builds for {} targets with {}", name, toolchain->version);
      if (!toolchain->warning.empty()) spdlog::warn("{}", toolchain->warning);
    } else if (!cpu_slots.empty()) {
      spdlog::info("no builds for {} targets: {}", name, std::string(toolchain.status().message()));
    }
  }
  if (caches) options.runner.code_cache = OpenCodeCache(code_cache);
  const auto blobs = heddle::worker::BlobCache::Open(blob_cache, blob_cache_mib << 20);
  if (blobs.ok()) {
    options.runner.blobs = blobs->get();
    heddle::worker::confine::StageFolder::RemoveLeftovers((*blobs)->folder());
  } else {
    spdlog::warn("--blob-cache {}: {}; models with large tensors are refused", blob_cache,
                 std::string(blobs.status().message()));
  }
  if (machine != "table") options.machine = MachineText(options, machine == "again");
  options.runner.child_command = {"/proc/self/exe", heddle::worker::kStageChildFlag};

  // Do both before any other thread exists, so that all threads inherit them.
  options.own_cores = ConfineToOwnCores(options.slots);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // Each stage has a connection, and is watched through files. Children set a limit of their own.
  heddle::RaiseOpenFiles(heddle::kFilesOfDaemon);

  // GPU drivers start threads, so this comes after the above.
  const auto clocks = std::make_shared<std::vector<std::unique_ptr<ClockLock>>>();
  for (heddle::worker::SlotConfig& slot : *gpu_slots) {
    const auto device = heddle::runtime::ParseDevice(slot.gpu);
    const auto gpu = device.ok() ? device->kind->Describe(device->ordinal) : device.status();
    if (!gpu.ok()) {
      spdlog::error("--profile {}: {}", slot.gpu, std::string(gpu.status().message()));
      return 2;
    }
    slot.device_key = gpu->key;
    slot.target = gpu->target;
    spdlog::info("{}: {}, {}, {}; device key {}", slot.gpu, gpu->name, gpu->target, gpu->driver,
                 slot.device_key);
    clocks->push_back(device->kind->LockClock(*gpu, gpu_clock_mhz));
    if (!clocks->back()->status().ok())
      spdlog::warn("{}: {}", slot.gpu, std::string(clocks->back()->status().message()));
    options.slots.push_back(std::move(slot));
  }

  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto worker = heddle::worker::WorkerServer::Start(options);
  if (!worker.ok()) {
    spdlog::error("{}", std::string(worker.status().message()));
    return 2;
  }
  std::unique_ptr<heddle::HttpServer> pages;
  if (!http.empty()) {
    auto served =
        heddle::ServeHealth(http, {.metrics = (*worker)->metrics(),
                                   .live = [server = worker->get()] { return server->Live(); },
                                   .ready = [server = worker->get()] { return server->Ready(); }});
    if (!served.ok()) {
      spdlog::error("{}", std::string(served.status().message()));
      return 2;
    }
    pages = *std::move(served);
    spdlog::info("metrics and health are at http://{}", pages->address());
  }
  spdlog::info("worker {} serves {} slots on port {}; device key {}, target {}", options.id,
               options.slots.size(), (*worker)->port(), options.device_key, options.target);
  const int signal =
      heddle::ServeUntilSignal(signals, [&worker] { return (*worker)->Live().ok(); });
  spdlog::info("{}: draining", sigdescr_np(signal));
  const auto unlock = [clocks] {
    for (const std::unique_ptr<ClockLock>& clock : *clocks) clock->Unlock();
  };
  std::thread second([signals, notice, unlock] {
    if (!WaitForSignal(signals, static_cast<int>(absl::ToInt64Seconds(notice)) + 5)) return;
    unlock();
    _exit(1);  // the second signal ends the process and its children at once
  });
  second.detach();
  (*worker)->Drain(notice);
  pages.reset();  // it asks the worker
  worker->reset();
  unlock();
  return 0;
}
