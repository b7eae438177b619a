#include "tests/codegen/cuda/cuda_on_host.h"

#include <dlfcn.h>

#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/codegen/cuda/emitter.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/machine/group_products.h"
#include "tests/codegen/cuda/gpu_testing.h"
#include "tests/codegen/cuda/host_code.h"

namespace heddle::testing {

CudaOnHost::~CudaOnHost() {
  if (library_ != nullptr) dlclose(library_);
}

absl::StatusOr<std::unique_ptr<CudaOnHost>> CudaOnHost::Compile(
    const std::vector<ir::Program>& lowered, const std::string& arch) {
  const bool groups = machine::MakesGroupProducts(GpuTarget(arch));
  if (!HasHostCompiler()) return absl::UnavailableError("the C++ compiler of the build is gone");
  auto host = std::make_unique<CudaOnHost>();
  std::string source = codegen::kCudaPrelude;
  for (const ir::Program& program : lowered) {
    HEDDLE_ASSIGN_OR_RETURN(const codegen::CudaKernel code,
                            codegen::EmitCuda(program, "h_" + program.name, groups));
    absl::StrAppend(&source, code.source);
    host->kernels_.push_back({code.launches, code.workspace_bytes});
  }
  std::string log;
  const std::string code = CompileForHost(source, &log);
  if (code.empty()) return absl::InternalError(absl::StrCat(log, source));
  host->library_ = LoadHostCode(code);
  if (host->library_ == nullptr) return absl::InternalError(dlerror());
  return host;
}

absl::Status CudaOnHost::Run(size_t k, const std::vector<HostTensor>& inputs,
                             std::vector<HostTensor>& outputs) const {
  const Kernel& kernel = kernels_[k];
  std::vector<void*> parameters;
  for (const HostTensor& tensor : inputs) parameters.push_back(tensor.ref().data);
  for (const HostTensor& tensor : outputs) parameters.push_back(tensor.ref().data);
  const ir::Buffer scratch{
      "workspace", ir::DType::kI8, {std::max<int64_t>(1, kernel.workspace_bytes)}, {}};
  HostTensor workspace(scratch);
  for (const runtime::GpuLaunch& launch : kernel.launches) {
    std::vector<void*> values, arguments;
    for (const runtime::GpuArgument& argument : launch.arguments) {
      values.push_back(argument.buffer >= 0 ? parameters[static_cast<size_t>(argument.buffer)]
                                            : workspace.data() + argument.workspace_offset);
    }
    for (void*& value : values) arguments.push_back(&value);
    const HostVariable table = FindHostVariable(library_, launch.symbol + "_boxes");
    using Row = std::array<int32_t, 4>;  // parameter, width, height, rows
    std::vector<HostMap> maps(table.bytes / sizeof(Row));
    for (size_t m = 0; m < maps.size(); ++m) {
      const Row& row = static_cast<const Row*>(table.address)[m];
      const auto parameter = static_cast<size_t>(row[0]);
      maps[m] = {reinterpret_cast<uint64_t>(values[parameter]), static_cast<uint64_t>(row[1]),
                 static_cast<uint64_t>(row[2]), static_cast<uint64_t>(row[3])};
      arguments[parameter] = &maps[m];
    }
    std::vector<unsigned> dims;
    for (const auto* part : {&launch.grid, &launch.block}) {
      for (const int64_t extent : *part) dims.push_back(static_cast<unsigned>(extent));
    }
    const HostKernel run = FindHostKernel(library_, launch.symbol);
    if (run == nullptr) return absl::InternalError("no " + launch.symbol);
    if (const int count = run(arguments.data(), dims.data()); count != 0)
      return absl::InternalError(absl::StrCat(launch.symbol, ": ", count, " misaligned accesses"));
  }
  for (const HostTensor& tensor : outputs) {
    if (!tensor.GuardIntact()) return absl::InternalError("it wrote past the end of a buffer");
  }
  return absl::OkStatus();
}

}  // namespace heddle::testing
