#include "compiler/codegen/cuda/backend.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "compiler/codegen/cuda/emitter.h"
#include "compiler/codegen/cuda/gpu_arch.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/codegen/llvm/code_cache.h"

namespace heddle::codegen {

namespace {

std::string Symbol(const std::string& name) {
  std::string symbol = "h_";
  for (char c : name) symbol += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return symbol;
}

// The number right before `word` in a line, or -1.
int64_t NumberBefore(const std::string& line, const std::string& word) {
  size_t end = line.find(word);
  if (end == std::string::npos) return -1;
  size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(line[begin - 1]))) --begin;
  int64_t number = 0;
  return absl::SimpleAtoi(line.substr(begin, end - begin), &number) ? number : -1;
}

// The assembler's report (-v): per function a line that names it, then "0 bytes stack frame, 0
// bytes spill stores, 0 bytes spill loads" and "Used 32 registers, ..".
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
    // Functions that the launch calls are reported after it.
    if (stack >= 0) launch->local_bytes = std::max({launch->local_bytes, stack, spilled});
  }
}

// From the cache, if it is there.
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
  machine::TargetInfo info;
  info.target = target;
  HEDDLE_RETURN_IF_ERROR(DescribeGpu(&info));
  Artifact artifact;
  std::string source = kCudaPrelude;
  std::set<std::string> symbols;
  for (const ir::Program& program : lowered) {
    std::string symbol = Symbol(program.name);  // of two names perhaps the same
    while (!symbols.insert(symbol).second) symbol += '_';
    HEDDLE_ASSIGN_OR_RETURN(CudaKernel code, EmitCuda(program, symbol));
    for (const GpuDemand& demand : code.demands) HEDDLE_RETURN_IF_ERROR(CheckDemand(demand, info));
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
  HEDDLE_ASSIGN_OR_RETURN(const Nvrtc* nvrtc, Nvrtc::Get());
  int number = 0;
  const std::vector<int> known = nvrtc->Architectures();
  if (!absl::SimpleAtoi(target.cpu.substr(3), &number) ||
      std::find(known.begin(), known.end(), number) == known.end()) {
    return absl::UnavailableError(
        absl::StrCat(nvrtc->Version(), " of this machine does not know ", target.cpu));
  }
  HEDDLE_ASSIGN_OR_RETURN(Nvrtc::Result result,
                          Compiled(*nvrtc, source,
                                   {"-arch=" + target.cpu, "-std=c++17", "-w", "--ptxas-options=-v",
                                    "-default-device"}));
  if (options.log) *options.log = result.log;
  ReadReport(result.log, &artifact);
  artifact.shared_object = std::move(result.cubin);
  return artifact;
}

absl::Status FindNvrtc(std::string* version, std::string* complaint) {
  HEDDLE_ASSIGN_OR_RETURN(const Nvrtc* nvrtc, Nvrtc::Get());
  if (version != nullptr) *version = nvrtc->Version();
  if (complaint != nullptr) *complaint = nvrtc->Complaint();
  return absl::OkStatus();
}

}  // namespace heddle::codegen
