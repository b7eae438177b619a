#include "compiler/codegen/cuda/cuda_backend.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <future>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/parallel_for.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "compiler/codegen/cuda/code_cache.h"
#include "compiler/codegen/cuda/emitter.h"
#include "compiler/codegen/cuda/gpu_arch.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/ir/text.h"
#include "compiler/machine/group_products.h"
#include "compiler/runtime/cubins.h"
#include "compiler/runtime/cuda/device.h"

namespace heddle::codegen {

namespace {

// A driver that answers at all does so within a second or two.
constexpr std::chrono::seconds kDriverLimit(10);
constexpr int kFirstWithGroups = 12;  // major version of the NVRTC that knows sm_90a

// The name of a program's launches. It is made of the program without its name, so the same program
// has the same code in a candidate and in a module, and the cache knows it.
std::string SymbolOf(const ir::Program& program) {
  ir::Program unnamed = program;
  unnamed.name = "p";
  return absl::StrCat("h_", Sha256Hex(ir::Print(unnamed)).substr(0, 16));
}

// The number directly before `word` in a line; -1 if there is none.
int64_t NumberBefore(const std::string& line, const std::string& word) {
  size_t end = line.find(word);
  if (end == std::string::npos) return -1;
  size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(line[begin - 1]))) --begin;
  int64_t number = 0;
  return absl::SimpleAtoi(line.substr(begin, end - begin), &number) ? number : -1;
}

// Reads the assembler's report (-v) into the launches. For each function, the report has a line
// that names it, then "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" and "Used 32
// registers, ..".
void ReadReport(const std::string& log, Artifact* artifact) {
  std::istringstream lines(log);
  std::string line;
  std::vector<runtime::GpuLaunch*> launches;  // of the function; several if programs are the same
  while (std::getline(lines, line)) {
    if (line.find("Compiling entry function '") != std::string::npos) {
      launches.clear();
      for (KernelInfo& kernel : artifact->kernels) {
        for (runtime::GpuLaunch& launch : kernel.launches) {
          if (line.find("'" + launch.symbol + "'") != std::string::npos)
            launches.push_back(&launch);
        }
      }
    }
    const int64_t registers = NumberBefore(line, " registers");
    const int64_t stack = NumberBefore(line, " bytes stack frame");
    const int64_t spilled = NumberBefore(line, " bytes spill stores");
    for (runtime::GpuLaunch* launch : launches) {
      if (registers >= 0) launch->registers = static_cast<int>(registers);
      // The functions that a launch calls are reported after it.
      if (stack >= 0) launch->local_bytes = std::max({launch->local_bytes, stack, spilled});
    }
  }
}

// The launches of one program or several, without the prelude.
struct Source {
  std::string text;
  bool groups = false;  // it has products of four warps
};

// NVRTC for one architecture, with the cache of what it compiled. Thread-safe.
class Compiler {
 public:
  Compiler(const Nvrtc& nvrtc, const std::string& arch)
      : nvrtc_(nvrtc), arch_(arch), cache_(CodeCache::Open()) {
    if (cache_) identity_ = nvrtc_.Identity();
    if (identity_.empty()) cache_.reset();
  }

  std::optional<Nvrtc::Result> Find(const Source& source) const {
    if (!cache_) return std::nullopt;
    std::optional<CodeCache::Code> code = cache_->Find(Key(source));
    if (!code) return std::nullopt;
    return Nvrtc::Result{std::move(code->cubin), std::move(code->log)};
  }
  bool Keeps() const { return cache_.has_value(); }
  // Compiles the source unless the cache has its code.
  absl::StatusOr<Nvrtc::Result> Compile(const Source& source) const {
    if (std::optional<Nvrtc::Result> found = Find(source)) return *std::move(found);
    HEDDLE_ASSIGN_OR_RETURN(Nvrtc::Result result,
                            nvrtc_.Compile(kCudaPrelude + source.text, Options(source)));
    if (cache_) cache_->Put(Key(source), {result.cubin, result.log});
    return result;
  }

 private:
  std::vector<std::string> Options(const Source& source) const {
    // What only sm_90a has runs on the same devices, but on no later ones.
    return {absl::StrCat("-arch=", arch_, source.groups ? "a" : ""), "-std=c++17", "-w",
            "--ptxas-options=-v", "-default-device"};
  }
  std::string Key(const Source& source) const {
    return absl::StrCat(identity_, "\n", absl::StrJoin(Options(source), " "), "\n", kCudaPrelude,
                        source.text);
  }

  const Nvrtc& nvrtc_;
  std::string arch_, identity_;
  std::optional<CodeCache> cache_;
};

// The CPUs that this thread may use.
int AllowedCpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  return sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? std::max(1, CPU_COUNT(&cpus)) : 1;
}

// Compiles the sources, of which no two have a function in common. What the cache has of them is
// taken from there. The others are compiled together, in as many parts as this thread may use CPUs.
// Only two that are kept are compiled apart anyway: they may be a candidate and what prepacks its
// constants, and a module looks for the candidate alone. The results are in the order of the
// sources, then of the parts; so is the error.
absl::StatusOr<std::vector<Nvrtc::Result>> CompileAll(const Compiler& compiler,
                                                      const std::vector<Source>& sources) {
  std::vector<Nvrtc::Result> results;
  std::vector<const Source*> missing;
  for (const Source& source : sources) {
    if (std::optional<Nvrtc::Result> found = compiler.Find(source)) {
      results.push_back(*std::move(found));
    } else {
      missing.push_back(&source);
    }
  }
  const int cpus = AllowedCpus();
  const bool apart = compiler.Keeps() && missing.size() == 2;
  std::vector<Source> parts(apart ? 2 : std::min(missing.size(), static_cast<size_t>(cpus)));
  for (size_t k = 0; k < missing.size(); ++k) {
    Source& part = parts[k % parts.size()];
    part.text += missing[k]->text;
    part.groups |= missing[k]->groups;
  }
  std::vector<absl::StatusOr<Nvrtc::Result>> compiled(parts.size());
  ParallelFor(static_cast<int>(parts.size()), cpus, [&](int k) {
    compiled[static_cast<size_t>(k)] = compiler.Compile(parts[static_cast<size_t>(k)]);
  });
  for (absl::StatusOr<Nvrtc::Result>& result : compiled) {
    HEDDLE_RETURN_IF_ERROR(result.status());
    results.push_back(*std::move(result));
  }
  return results;
}

}  // namespace

absl::StatusOr<Artifact> CompileCuda(const std::vector<ir::Program>& lowered, const Target& target,
                                     const CudaOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info, DescribeGpu(target));
  Artifact artifact;
  std::vector<Source> sources;  // of different programs
  std::set<std::string> symbols;
  const absl::StatusOr<const Nvrtc*> found = Nvrtc::Get();
  const bool may_group =
      machine::MakesGroupProducts(info) && (!found.ok() || (*found)->Major() >= kFirstWithGroups);
  for (const ir::Program& program : lowered) {
    const std::string symbol = SymbolOf(program);
    HEDDLE_ASSIGN_OR_RETURN(CudaKernel code, EmitCuda(program, symbol, may_group));
    Source source{std::move(code.source)};
    for (const GpuDemand& demand : code.demands) {
      HEDDLE_RETURN_IF_ERROR(CheckDemand(demand, info));
      source.groups |= demand.group_products;
    }
    if (symbols.insert(symbol).second) sources.push_back(std::move(source));
    KernelInfo& kernel = artifact.kernels.emplace_back();
    kernel.symbol = program.name;
    kernel.workspace_bytes = code.workspace_bytes;
    kernel.launches = std::move(code.launches);
    for (const auto* list : {&program.inputs, &program.outputs}) {
      for (const ir::BufferRef& buffer : *list)
        kernel.arguments.push_back({buffer->name, buffer->SizeBytes()});
    }
  }
  if (options.source) {
    *options.source = kCudaPrelude;
    for (const Source& source : sources) *options.source += source.text;
  }
  HEDDLE_ASSIGN_OR_RETURN(const Nvrtc* nvrtc, found);
  int number = 0;
  const std::vector<int> known = nvrtc->Architectures();
  if (!absl::SimpleAtoi(target.cpu.substr(3), &number) ||
      std::find(known.begin(), known.end(), number) == known.end()) {
    return absl::UnavailableError(
        absl::StrCat(nvrtc->Version(), " of this machine does not know ", target.cpu));
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Nvrtc::Result> results,
                          CompileAll(Compiler(*nvrtc, target.cpu), sources));
  std::vector<std::string> cubins;
  if (options.log) options.log->clear();
  for (const Nvrtc::Result& result : results) {
    if (options.log) *options.log += result.log;
    ReadReport(result.log, &artifact);
    cubins.push_back(result.cubin);
  }
  artifact.shared_object = runtime::JoinCubins(cubins);
  return artifact;
}

namespace {

// The architecture of this machine's first GPU. A driver that hangs is left to a thread of its own, which
// ends with the process.
absl::StatusOr<std::string> NativeArch() {
  using Info = absl::StatusOr<runtime::CudaInfo>;
  std::promise<Info> asked;
  std::future<Info> answer = asked.get_future();
  std::thread([asked = std::move(asked)]() mutable {
    asked.set_value(runtime::DescribeCudaDevice(0));
  }).detach();
  if (answer.wait_for(kDriverLimit) == std::future_status::ready) {
    const Info info = answer.get();
    if (info.ok()) return info->arch;
    return absl::InvalidArgumentError(
        absl::StrCat("target: -arch=native is this machine's GPU, and ", info.status().message(),
                     "; or name an architecture, such as -arch=sm_90"));
  }
  return absl::InvalidArgumentError(
      "target: -arch=native is this machine's GPU, whose driver does not answer; name an "
      "architecture, such as -arch=sm_90");
}

class Cuda final : public Backend {
  absl::StatusOr<Target> Resolve(const Target& target) const override {
    Target resolved = target;
    if (resolved.cpu == "native") {
      HEDDLE_ASSIGN_OR_RETURN(resolved.cpu, NativeArch());
    }
    HEDDLE_RETURN_IF_ERROR(DescribeGpu(resolved).status());
    return resolved;
  }
  absl::StatusOr<machine::TargetInfo> Describe(const Target& resolved) const override {
    return DescribeGpu(resolved);
  }
  bool RunsHere(const Target&) const override { return false; }
  std::vector<std::string> Features(const Target&) const override { return {}; }
  absl::StatusOr<Toolchain> FindToolchain() const override {
    HEDDLE_ASSIGN_OR_RETURN(const Nvrtc* nvrtc, Nvrtc::Get());
    return Toolchain{nvrtc->Version(), nvrtc->Complaint(), /*caches=*/true};
  }
  absl::Status CheckLimits(const ir::Program& lowered, const Target& resolved) const override {
    HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info, DescribeGpu(resolved));
    HEDDLE_ASSIGN_OR_RETURN(const CudaKernel code,
                            EmitCuda(lowered, "h", machine::MakesGroupProducts(info)));
    for (const GpuDemand& demand : code.demands) HEDDLE_RETURN_IF_ERROR(CheckDemand(demand, info));
    return absl::OkStatus();
  }
  absl::StatusOr<Artifact> Compile(const std::vector<ir::Program>& lowered,
                                   const Target& resolved) const override {
    return CompileCuda(lowered, resolved);
  }
};

}  // namespace

const Backend& CudaBackend() {
  static const Cuda backend;
  return backend;
}

}  // namespace heddle::codegen
