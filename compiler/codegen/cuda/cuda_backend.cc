#include "compiler/codegen/cuda/cuda_backend.h"

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
#include "base/status_macros.h"
#include "compiler/codegen/cuda/code_cache.h"
#include "compiler/codegen/cuda/emitter.h"
#include "compiler/codegen/cuda/gpu_arch.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/machine/group_products.h"
#include "compiler/runtime/cuda/device.h"

namespace heddle::codegen {

namespace {

// A driver that answers at all does so within a second or two.
constexpr std::chrono::seconds kDriverLimit(10);
constexpr int kFirstWithGroups = 12;  // major version of the NVRTC that knows sm_90a

std::string Symbol(const std::string& name) {
  std::string symbol = "h_";
  for (char c : name) symbol += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return symbol;
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
  runtime::GpuLaunch* launch = nullptr;
  while (std::getline(lines, line)) {
    const bool names = line.find("Compiling entry function '") != std::string::npos;
    for (KernelInfo& kernel : artifact->kernels) {
      for (runtime::GpuLaunch& candidate : kernel.launches) {
        if (names && line.find("'" + candidate.symbol + "'") != std::string::npos)
          launch = &candidate;
      }
    }
    if (launch == nullptr) continue;
    if (const int64_t n = NumberBefore(line, " registers"); n >= 0)
      launch->registers = static_cast<int>(n);
    const int64_t stack = NumberBefore(line, " bytes stack frame");
    const int64_t spilled = NumberBefore(line, " bytes spill stores");
    // The functions that a launch calls are reported after it.
    if (stack >= 0) launch->local_bytes = std::max({launch->local_bytes, stack, spilled});
  }
}

// Compiles the source unless the cache has its code.
absl::StatusOr<Nvrtc::Result> Compiled(const Nvrtc& nvrtc, const std::string& source,
                                       const std::vector<std::string>& options) {
  const std::optional<CodeCache> cache = CodeCache::Open();
  const std::string compiler = cache ? nvrtc.Identity() : "";
  if (compiler.empty()) return nvrtc.Compile(source, options);
  const std::string key = absl::StrCat(compiler, "\n", absl::StrJoin(options, " "), "\n", source);
  if (std::optional<CodeCache::Code> code = cache->Find(key))
    return Nvrtc::Result{std::move(code->cubin), std::move(code->log)};
  HEDDLE_ASSIGN_OR_RETURN(Nvrtc::Result result, nvrtc.Compile(source, options));
  cache->Put(key, {result.cubin, result.log});
  return result;
}

}  // namespace

absl::StatusOr<Artifact> CompileCuda(const std::vector<ir::Program>& lowered, const Target& target,
                                     const CudaOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info, DescribeGpu(target));
  Artifact artifact;
  std::string source = kCudaPrelude;
  std::set<std::string> symbols;
  const absl::StatusOr<const Nvrtc*> found = Nvrtc::Get();
  const bool may_group =
      machine::MakesGroupProducts(info) && (!found.ok() || (*found)->Major() >= kFirstWithGroups);
  bool groups = false;
  for (const ir::Program& program : lowered) {
    std::string symbol = Symbol(program.name);  // two names may give the same symbol
    while (!symbols.insert(symbol).second) symbol += '_';
    HEDDLE_ASSIGN_OR_RETURN(CudaKernel code, EmitCuda(program, symbol, may_group));
    for (const GpuDemand& demand : code.demands) {
      HEDDLE_RETURN_IF_ERROR(CheckDemand(demand, info));
      groups |= demand.group_products;
    }
    source += code.source;
    KernelInfo& kernel = artifact.kernels.emplace_back();
    kernel.symbol = program.name;
    kernel.workspace_bytes = code.workspace_bytes;
    kernel.launches = std::move(code.launches);
    for (const auto* list : {&program.inputs, &program.outputs}) {
      for (const ir::BufferRef& buffer : *list)
        kernel.arguments.push_back({buffer->name, buffer->SizeBytes()});
    }
  }
  if (options.source) *options.source = source;
  HEDDLE_ASSIGN_OR_RETURN(const Nvrtc* nvrtc, found);
  int number = 0;
  const std::vector<int> known = nvrtc->Architectures();
  if (!absl::SimpleAtoi(target.cpu.substr(3), &number) ||
      std::find(known.begin(), known.end(), number) == known.end()) {
    return absl::UnavailableError(
        absl::StrCat(nvrtc->Version(), " of this machine does not know ", target.cpu));
  }
  // What only sm_90a has runs on the same devices, but on no later ones.
  const std::string arch = absl::StrCat("-arch=", target.cpu, groups ? "a" : "");
  HEDDLE_ASSIGN_OR_RETURN(
      Nvrtc::Result result,
      Compiled(*nvrtc, source,
               {arch, "-std=c++17", "-w", "--ptxas-options=-v", "-default-device"}));
  if (options.log) *options.log = result.log;
  ReadReport(result.log, &artifact);
  artifact.shared_object = std::move(result.cubin);
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
    HEDDLE_ASSIGN_OR_RETURN(const CudaKernel code, EmitCuda(lowered, Symbol(lowered.name),
                                                            machine::MakesGroupProducts(info)));
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
