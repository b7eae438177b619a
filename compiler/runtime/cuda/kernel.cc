#include "compiler/runtime/cuda/kernel.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace heddle::runtime {
namespace {

// Limits of every architecture since compute capability 3.0.
constexpr int64_t kMaxGrid[] = {(int64_t{1} << 31) - 1, 65535, 65535};
constexpr int64_t kMaxBlock[] = {1024, 1024, 64};
constexpr int64_t kMaxBlockThreads = 1024;
constexpr int64_t kMaxSharedBytes = 1 << 20;
constexpr size_t kMaxParameterBytes = 4 << 10;
constexpr size_t kMaxArguments = kMaxParameterBytes / sizeof(CuPointer);
constexpr int64_t kWorkspaceAlignment = 256;

// The numbers of the parameters that are maps of matrices. Such a parameter names memory that an
// earlier parameter names, too. Every other parameter is an address.
std::vector<size_t> MapParameters(const std::vector<GpuArgument>& arguments) {
  std::vector<size_t> maps;
  for (size_t k = 0; k < arguments.size(); ++k) {
    const auto own = arguments.begin() + static_cast<std::ptrdiff_t>(k);
    if (std::find(arguments.begin(), own, *own) != own) maps.push_back(k);
  }
  return maps;
}

// Of addresses, then maps, which are aligned to their size.
size_t ParameterBytes(size_t addresses, size_t maps) {
  const size_t bytes = addresses * sizeof(CuPointer), map = sizeof(CuTensorMap);
  return maps == 0 ? bytes : (bytes + map - 1) / map * map + maps * map;
}

}  // namespace

absl::Status CheckLaunches(const std::vector<GpuLaunch>& launches, size_t buffers,
                           int64_t workspace_bytes) {
  if (launches.empty()) return absl::InvalidArgumentError("a GPU kernel launches nothing");
  for (const GpuLaunch& launch : launches) {
    const auto bad = [&launch](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrCat("launch of '", launch.symbol, "': ", what));
    };
    if (launch.symbol.empty()) return bad("it has no name");
    int64_t threads = 1;
    for (size_t axis = 0; axis < 3; ++axis) {
      if (launch.grid[axis] < 1 || launch.grid[axis] > kMaxGrid[axis]) {
        return bad(absl::StrCat(launch.grid[axis], " blocks"));
      }
      if (launch.block[axis] < 1 || launch.block[axis] > kMaxBlock[axis]) {
        return bad(absl::StrCat(launch.block[axis], " threads"));
      }
      threads *= launch.block[axis];
    }
    if (threads > kMaxBlockThreads) return bad(absl::StrCat(threads, " threads in a block"));
    if (launch.dynamic_shared_bytes < 0 || launch.dynamic_shared_bytes > kMaxSharedBytes) {
      return bad(absl::StrCat(launch.dynamic_shared_bytes, " bytes of shared memory"));
    }
    if (launch.arguments.size() > kMaxArguments) {
      return bad(absl::StrCat(launch.arguments.size(), " arguments"));
    }
    const size_t maps = MapParameters(launch.arguments).size();
    const size_t bytes = ParameterBytes(launch.arguments.size() - maps, maps);
    if (bytes > kMaxParameterBytes) return bad(absl::StrCat(bytes, " bytes of parameters"));
    for (const GpuArgument& argument : launch.arguments) {
      const bool in_workspace = argument.buffer == -1;
      if (!in_workspace &&
          (argument.buffer < 0 || static_cast<size_t>(argument.buffer) >= buffers)) {
        return bad(absl::StrCat("buffer ", argument.buffer, " of ", buffers));
      }
      if (in_workspace &&
          (argument.workspace_offset < 0 || argument.workspace_offset > workspace_bytes ||
           argument.workspace_offset % kWorkspaceAlignment != 0)) {
        return bad(absl::StrCat("byte ", argument.workspace_offset, " of a workspace of ",
                                workspace_bytes));
      }
    }
  }
  return absl::OkStatus();
}

struct CudaKernel::Values {
  std::vector<CuPointer> addresses;
  std::vector<CuTensorMap> maps;
  std::vector<void*> pointers;  // to the addresses and maps, by parameter
};

absl::StatusOr<CudaKernel> CudaKernel::Bind(const CudaModule& module,
                                            const std::vector<GpuLaunch>& launches,
                                            const std::vector<CuPointer>& buffers,
                                            CuPointer workspace, int64_t workspace_bytes) {
  HEDDLE_RETURN_IF_ERROR(CheckLaunches(launches, buffers.size(), workspace_bytes));
  CudaKernel kernel;
  auto values = std::make_shared<Values>();
  for (const GpuLaunch& launch : launches) {
    for (const GpuArgument& argument : launch.arguments) {
      values->addresses.push_back(
          argument.buffer >= 0 ? buffers[static_cast<size_t>(argument.buffer)]
                               : workspace + static_cast<CuPointer>(argument.workspace_offset));
    }
  }
  for (CuPointer& address : values->addresses) values->pointers.push_back(&address);
  std::vector<size_t> mapped;  // parameters that get the maps
  size_t first = 0;            // parameter of the launch
  for (const GpuLaunch& launch : launches) {
    const absl::StatusOr<std::vector<CudaBox>> boxes = module.Boxes(launch.symbol);
    if (!boxes.ok()) return boxes.status();
    std::vector<size_t> listed;
    for (const CudaBox& box : *boxes) listed.push_back(box.parameter);
    const std::vector<size_t> expected = MapParameters(launch.arguments);
    if (listed != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "launch of '", launch.symbol, "': maps among its arguments: ", expected.size(),
          ", in the table of its code: ", listed.size(),
          listed.size() == expected.size() ? " others" : ""));
    }
    for (const CudaBox& box : *boxes) {
      mapped.push_back(first + box.parameter);
      HEDDLE_ASSIGN_OR_RETURN(values->maps.emplace_back(),
                              module.Map(box, values->addresses[mapped.back()]));
    }
    first += launch.arguments.size();
  }
  for (size_t k = 0; k < mapped.size(); ++k) values->pointers[mapped[k]] = &values->maps[k];
  void** arguments = values->pointers.data();
  for (const GpuLaunch& launch : launches) {
    const absl::StatusOr<CuFunction> function =
        module.Find(launch.symbol, launch.dynamic_shared_bytes);
    if (!function.ok()) return function.status();
    CudaLaunch& bound = kernel.launches_.emplace_back();
    bound.function = *function;
    for (size_t axis = 0; axis < 3; ++axis) {
      bound.grid[axis] = static_cast<unsigned>(launch.grid[axis]);
      bound.block[axis] = static_cast<unsigned>(launch.block[axis]);
    }
    bound.shared_bytes = static_cast<unsigned>(launch.dynamic_shared_bytes);
    bound.arguments = arguments;
    arguments += launch.arguments.size();
  }
  kernel.values_ = std::move(values);
  return kernel;
}

absl::Status CudaKernel::Launch(CudaDevice& device) const {
  for (const CudaLaunch& launch : launches_) {
    HEDDLE_RETURN_IF_ERROR(device.Launch(launch));
  }
  return absl::OkStatus();
}

}  // namespace heddle::runtime
