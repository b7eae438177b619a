#include "tests/codegen/cuda_on_host.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda_emitter.h"
#include "compiler/codegen/cuda_prelude.h"
#include "compiler/ir/fold.h"
#include "compiler/ir/status_macros.h"

namespace heddle::testing {

namespace {

float HalfValue(unsigned short bits, int bfloat) {
  return ir::HalfValue(bits, bfloat ? ir::DType::kBF16 : ir::DType::kF16);
}
unsigned short HalfBits(float value, int bfloat) {
  return ir::HalfBits(value, bfloat ? ir::DType::kBF16 : ir::DType::kF16);
}

// The prelude up to its first PTX: plain C++.
std::string PlainPrelude() {
  const std::string prelude = codegen::kCudaPrelude;
  return prelude.substr(0, prelude.find("// Copies from global"));
}

}  // namespace

CudaOnHost::~CudaOnHost() {
  if (library_ != nullptr) dlclose(library_);
}

absl::StatusOr<std::unique_ptr<CudaOnHost>> CudaOnHost::Compile(
    const std::vector<ir::Program>& lowered) {
  auto host = std::make_unique<CudaOnHost>();
  std::string source = absl::StrCat(
      "#include <cmath>\nusing namespace std;\n#define __device__\n#define __forceinline__ "
      "inline\n",
      PlainPrelude(), "#include \"", HEDDLE_SOURCE_DIR, "/tests/codegen/cuda_host_shim.h\"\n");
  std::string table;
  for (const ir::Program& program : lowered) {
    HEDDLE_ASSIGN_OR_RETURN(const codegen::CudaKernel code,
                            codegen::EmitCuda(program, "h_" + program.name));
    absl::StrAppend(&source, code.source);
    for (const runtime::GpuLaunch& launch : code.launches) {
      if (launch.dynamic_shared_bytes > 0)
        return absl::UnimplementedError(launch.symbol + ": too much shared memory to run here");
      const auto dim = [](const std::array<int64_t, 3>& d) {
        return absl::StrCat("{", d[0], ", ", d[1], ", ", d[2], "}");
      };
      absl::StrAppend(&table, "extern \"C\" int run_", launch.symbol,
                      "(void* const* arguments) {\n  h_misaligned = 0;\n  h_launch(", launch.symbol,
                      ", arguments, ", dim(launch.grid), ", ", dim(launch.block),
                      ");\n  return h_misaligned;\n}\n");
    }
    host->kernels_.push_back({code.launches, code.workspace_bytes});
  }
  absl::StrAppend(
      &source, table,
      "extern \"C\" void set_halves(float (*value)(unsigned short, int), unsigned short "
      "(*bits)(float, int)) {\n  h_half_value = value;\n  h_half_bits = bits;\n}\n");
  std::string folder = std::filesystem::temp_directory_path() / "heddle-cuda-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no temporary folder");
  std::ofstream(folder + "/kernels.cc") << source;
  const std::string command =
      absl::StrCat(HEDDLE_CXX, " -std=c++20 -O1 -w -pthread -fPIC -shared -ffp-contract=off -o ",
                   folder, "/kernels.so ", folder, "/kernels.cc 2> ", folder, "/log");
  const int result = std::system(command.c_str());
  std::string log;
  std::getline(std::ifstream(folder + "/log"), log, '\0');
  host->library_ = result == 0 ? dlopen((folder + "/kernels.so").c_str(), RTLD_NOW) : nullptr;
  std::filesystem::remove_all(folder);
  if (host->library_ == nullptr) {
    return absl::Status(log.find("not found") != std::string::npos ? absl::StatusCode::kUnavailable
                                                                   : absl::StatusCode::kInternal,
                        absl::StrCat(log, result == 0 ? dlerror() : "", source));
  }
  using SetHalves = void (*)(float (*)(unsigned short, int), unsigned short (*)(float, int));
  reinterpret_cast<SetHalves>(dlsym(host->library_, "set_halves"))(HalfValue, HalfBits);
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
    std::vector<void*> arguments;
    for (const runtime::GpuArgument& argument : launch.arguments) {
      arguments.push_back(argument.buffer >= 0 ? parameters[static_cast<size_t>(argument.buffer)]
                                               : workspace.data() + argument.workspace_offset);
    }
    auto run = reinterpret_cast<int (*)(void* const*)>(
        dlsym(library_, absl::StrCat("run_", launch.symbol).c_str()));
    if (run == nullptr) return absl::InternalError("no " + launch.symbol);
    if (const int count = run(arguments.data()); count != 0)
      return absl::InternalError(absl::StrCat(launch.symbol, ": ", count, " misaligned accesses"));
  }
  for (const HostTensor& tensor : outputs) {
    if (!tensor.GuardIntact()) return absl::InternalError("it wrote past the end of a buffer");
  }
  return absl::OkStatus();
}

}  // namespace heddle::testing
