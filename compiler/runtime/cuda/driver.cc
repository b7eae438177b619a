#include "compiler/runtime/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace heddle::runtime {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

std::string LibraryName() {
  const char* other = std::getenv(kCudaDriverVariable);
  return other != nullptr && *other != '\0' ? other : kLibrary;
}

// Loads the driver, which is never unloaded because it has its own threads.
absl::StatusOr<const CudaApi*> LoadDriver() {
  const std::string name = LibraryName();
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* words = dlerror();
    const bool absent =
        std::string(words != nullptr ? words : "").find("No such file") != std::string::npos;
    return absl::FailedPreconditionError(absl::StrCat(
        "no CUDA driver on this host (", name, absent ? " not found" : " does not load",
        absent || words == nullptr ? "" : absl::StrCat(": ", words),
        "): run this on a machine with an NVIDIA GPU and its driver installed"));
  }
  static CudaApi api;
  const char* missing = nullptr;
#define HEDDLE_FIND(name, parameters)                                         \
  api.name = reinterpret_cast<CuResult(*) parameters>(dlsym(library, #name)); \
  if (api.name == nullptr && missing == nullptr) missing = #name;
  HEDDLE_CUDA_FUNCTIONS(HEDDLE_FIND)
#undef HEDDLE_FIND
  api.has_graphs = true;
#define HEDDLE_FIND(name, parameters)                                         \
  api.name = reinterpret_cast<CuResult(*) parameters>(dlsym(library, #name)); \
  api.has_graphs &= api.name != nullptr;
  HEDDLE_CUDA_GRAPH_FUNCTIONS(HEDDLE_FIND)
#undef HEDDLE_FIND
#define HEDDLE_FIND(name, parameters) \
  api.name = reinterpret_cast<CuResult(*) parameters>(dlsym(library, #name));
  HEDDLE_CUDA_MAP_FUNCTIONS(HEDDLE_FIND)
#undef HEDDLE_FIND
  if (missing != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the CUDA driver (", name, ") has no ", missing, ": install a newer one"));
  }
  const CuResult result = api.cuInit(0);
  if (result == kCuSuccess) return &api;
  return absl::FailedPreconditionError(CudaStatus(api, result, "start the CUDA driver").message());
}

// After these errors, the driver refuses all further work of the process.
bool IsSticky(CuResult result) {
  switch (result) {
    case kCuEccUncorrectable:
    case kCuNvlinkUncorrectable:
    case kCuContained:
    case kCuIllegalAddress:
    case kCuLaunchTimeout:
    case kCuContextIsDestroyed:
    case kCuAssert:
    case kCuUnknown:
      return true;
    default:
      return result >= kCuHardwareStackError && result <= kCuLaunchFailed;
  }
}

absl::StatusCode CodeOf(CuResult result) {
  if (IsSticky(result)) return absl::StatusCode::kAborted;
  switch (result) {
    case kCuOutOfMemory:
      return absl::StatusCode::kResourceExhausted;
    case kCuInvalidImage:
    case kCuNoBinaryForGpu:
    case kCuInvalidPtx:
    case kCuNotFound:
    case kCuLaunchOutOfResources:
      return absl::StatusCode::kInvalidArgument;
    case kCuStubLibrary:
    case kCuNoDevice:
    case kCuInvalidDevice:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

bool HasCudaDriver() { return dlopen(LibraryName().c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr; }

absl::StatusOr<const CudaApi*> CudaDriver() {
  static const auto& driver = *new absl::StatusOr<const CudaApi*>(LoadDriver());
  return driver;
}

std::string CudaDriverVersion() {
  const absl::StatusOr<const CudaApi*> api = CudaDriver();
  int version = 0;  // 1000 * major + 10 * minor
  if (!api.ok() || (*api)->cuDriverGetVersion(&version) != kCuSuccess) return "";
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

absl::Status CudaStatus(const CudaApi& api, CuResult result, const std::string& what) {
  if (result == kCuSuccess) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.cuGetErrorName(result, &name) != kCuSuccess) name = nullptr;
  if (api.cuGetErrorString(result, &text) != kCuSuccess) text = nullptr;
  return absl::Status(CodeOf(result),
                      absl::StrCat("CUDA: cannot ", what, ": ",
                                   name != nullptr ? name : absl::StrCat("error ", result),
                                   text != nullptr ? absl::StrCat(" (", text, ")") : ""));
}

}  // namespace heddle::runtime
