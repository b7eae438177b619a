// The physical limits of a GPU, measured. Speeds are compared with them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/device.h"

namespace heddle::bench {

struct GpuLimits {
  double gflops = 0;  // single-precision multiply-adds, no tensor cores
  double tensor_gflops =
      0;            // f16 with sums in f32, by mma.sync; some GPUs have faster instructions
  double gbps = 0;  // reading memory much larger than the caches
};

// Errors as Backend::FindToolchain, and CudaStatus.
absl::StatusOr<GpuLimits> MeasureGpuLimits(runtime::CudaDevice& device);

// For the report: name and temperature of the GPU ("cuda:0"), and its limits if they are to be
// measured, otherwise zeros.
absl::StatusOr<nlohmann::json> DescribeGpu(const std::string& device, bool measure);

}  // namespace heddle::bench
