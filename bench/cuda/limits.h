// The physical limits of a GPU, measured: what every speed is to be compared with.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/device.h"

namespace heddle::bench {

struct GpuLimits {
  double gflops = 0;         // single-precision multiply-adds, no tensor cores
  double tensor_gflops = 0;  // of f16 with sums in f32, by mma.sync; some GPUs have faster ways
  double gbps = 0;           // reading memory much larger than the caches
};

// Errors as Backend::FindToolchain, and CudaStatus.
absl::StatusOr<GpuLimits> MeasureGpuLimits(runtime::CudaDevice& device);

// For the report: what that GPU ("cuda:0") is and how warm; its limits where they are to be
// measured, else zeros.
absl::StatusOr<nlohmann::json> DescribeGpu(const std::string& device, bool measure);

}  // namespace heddle::bench
