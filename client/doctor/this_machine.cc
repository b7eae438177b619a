// The machine that this program runs on, as `heddle doctor` sees it.
#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/doctor/doctor.h"
#include "client/zoo/zoo.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/measure/in_turns.h"
#include "compiler/runtime/executor.h"
#include "compiler/runtime/timing.h"

namespace heddle::client {
namespace {

// A tick is 10 ms, so this tells shares of 2 % on one core.
constexpr absl::Duration kBetweenReadings = absl::Milliseconds(500);
constexpr int kSamples = 20;
constexpr absl::Duration kSample = absl::Milliseconds(5);

// File systems on which a database is not safe, by statfs(2).
const std::map<int64_t, std::string>& UnsafeKinds() {
  static const std::map<int64_t, std::string> kinds = {
      {0x6969, "nfs"},       {0x517B, "smb"},       {0xFF534D42, "cifs"}, {0xFE534D42, "smb2"},
      {0x01021997, "9p"},    {0x00C36400, "ceph"},  {0x5346414F, "afs"},  {0x0BD00BD0, "lustre"},
      {0x01021994, "tmpfs"}, {0x858458F6, "ramfs"}, {0x65735546, "fuse"},
  };
  return kinds;
}

absl::StatusOr<DiskFacts> DiskOf(const std::string& path) {
  struct statvfs space = {};
  struct statfs kind = {};
  if (statvfs(path.c_str(), &space) != 0 || statfs(path.c_str(), &kind) != 0)
    return absl::InvalidArgumentError(fmt::format("{}: {}", path, std::strerror(errno)));
  DiskFacts facts;
  facts.free_bytes = static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
  const auto unsafe = UnsafeKinds().find(static_cast<int64_t>(static_cast<uint32_t>(kind.f_type)));
  if (unsafe != UnsafeKinds().end()) facts.kind = unsafe->second;
  return facts;
}

absl::StatusOr<KernelFacts> BuildAndRun(const Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string onnx, zoo::MakeZooModel("mlp", 0));
  CompileOptions options;
  options.choice = ScheduleChoice::kDefault;
  options.model_name = "mlp";
  const absl::Time begin = MonotonicNow();
  HEDDLE_ASSIGN_OR_RETURN(const std::string bytes, CompileModel(onnx, {}, target, {}, options));
  KernelFacts facts;
  facts.build = MonotonicNow() - begin;
  HEDDLE_ASSIGN_OR_RETURN(runtime::Module module, runtime::ParseModule(bytes));
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Executor> executor,
                          runtime::Executor::Create(std::move(module)));
  const std::string input = RandomTensor(executor->manifest().inputs[0], 0);
  std::memcpy(executor->InputData(0), input.data(), input.size());
  HEDDLE_RETURN_IF_ERROR(executor->Run());
  runtime::TimingOptions timing;
  timing.repeats = kSamples;
  timing.min_repeat = kSample;
  facts.samples_ns = runtime::TimeCalls([&] { executor->Run().IgnoreError(); }, timing).samples_ns;
  HEDDLE_RETURN_IF_ERROR(executor->status());
  return facts;
}

std::vector<int> UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

}  // namespace

Surroundings ThisMachine() {
  Surroundings here;
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  here.programs = self.parent_path();
  const char* temporary = std::getenv("TMPDIR");
  here.temporary = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
  here.cores = UsableCores();
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    here.open_files = files.rlim_cur == RLIM_INFINITY ? std::numeric_limits<int64_t>::max()
                                                      : static_cast<int64_t>(files.rlim_cur);
  }
  here.now = absl::Now();
  here.wait = [] { absl::SleepFor(kBetweenReadings); };
  here.disk = DiskOf;
  here.toolchain = [](TargetKind kind) {
    return codegen::BackendOf({.kind = kind}).FindToolchain().status();
  };
  here.kernel = BuildAndRun;
  return here;
}

}  // namespace heddle::client
