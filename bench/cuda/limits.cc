#include "bench/cuda/limits.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/runtime/cuda/nvml.h"
#include "compiler/runtime/cuda/timing.h"
#include "compiler/runtime/device_kind.h"

namespace heddle::bench {
namespace {

using runtime::CudaLaunch;

// Sixteen independent chains of multiply-adds a thread hide their latency; sums are stored under a
// condition that never holds, so that nothing is left out.
constexpr char kSource[] = R"(
extern "C" __global__ void fma_peak(float* out, int n) {
  float a[16];
  for (int k = 0; k < 16; ++k) a[k] = threadIdx.x + k;
  for (int i = 0; i < n; ++i) {
    #pragma unroll
    for (int k = 0; k < 16; ++k) a[k] = fmaf(a[k], 0.999f, 0.001f);
  }
  float sum = 0;
  for (int k = 0; k < 16; ++k) sum += a[k];
  if (sum == -1.0f) out[threadIdx.x] = sum;
}
// Eight independent tiles of 16 x 8 a warp. The numbers multiplied are ordinary ones, about 0.1:
// zeros would draw less power and keep the clock up.
extern "C" __global__ void tensor_peak(float* out, int n) {
  float c[8][4];
  const unsigned a = 0x2e662e66u + threadIdx.x * 0x00010001u;
  for (int k = 0; k < 32; ++k) c[k / 4][k % 4] = threadIdx.x;
  for (int i = 0; i < n; ++i) {
    #pragma unroll
    for (int k = 0; k < 8; ++k)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                   "{%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};"
                   : "+f"(c[k][0]), "+f"(c[k][1]), "+f"(c[k][2]), "+f"(c[k][3]) : "r"(a));
  }
  float sum = 0;
  for (int k = 0; k < 32; ++k) sum += c[k / 4][k % 4];
  if (sum == -1.0f) out[threadIdx.x] = sum;
}
extern "C" __global__ void read_all(float* out, const float4* in, long long n) {
  float sum = 0;
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const float4 v = in[i];
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == -1.0f) out[threadIdx.x] = sum;
}
)";
constexpr int kSteps = 4096;
constexpr int kChains = 16;
constexpr int kTiles = 8;
constexpr int64_t kTileFlops = 2 * 16 * 8 * 16;
constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksEach = 8;  // of a multiprocessor: all its threads
constexpr int64_t kBytes = int64_t{2} << 30;

}  // namespace

absl::StatusOr<GpuLimits> MeasureGpuLimits(runtime::CudaDevice& device) {
  HEDDLE_ASSIGN_OR_RETURN(const codegen::Nvrtc* nvrtc, codegen::Nvrtc::Get());
  HEDDLE_ASSIGN_OR_RETURN(
      const codegen::Nvrtc::Result code,
      nvrtc->Compile(kSource, {absl::StrCat("--gpu-architecture=", device.info().arch)}));
  HEDDLE_ASSIGN_OR_RETURN(const auto module, device.Load(code.cubin));
  const int64_t bytes = std::min(kBytes, device.info().memory_bytes / 4);
  HEDDLE_ASSIGN_OR_RETURN(const runtime::DeviceMemory out, device.Allocate(kThreads * 4));
  HEDDLE_ASSIGN_OR_RETURN(const runtime::DeviceMemory in, device.Allocate(bytes));
  HEDDLE_RETURN_IF_ERROR(device.Fill(in.address(), 1, bytes));

  runtime::CuPointer out_address = out.address(), in_address = in.address();
  int steps = kSteps;
  long long count = bytes / 16;
  void* fma_arguments[] = {&out_address, &steps};
  void* read_arguments[] = {&out_address, &in_address, &count};
  const unsigned blocks = kBlocksEach * static_cast<unsigned>(device.info().multiprocessors);
  CudaLaunch fma, tensor, read;
  fma.grid = tensor.grid = read.grid = {blocks, 1, 1};
  fma.block = tensor.block = read.block = {kThreads, 1, 1};
  fma.arguments = tensor.arguments = fma_arguments;
  read.arguments = read_arguments;
  HEDDLE_ASSIGN_OR_RETURN(fma.function, module->Find("fma_peak", 0));
  HEDDLE_ASSIGN_OR_RETURN(tensor.function, module->Find("tensor_peak", 0));
  HEDDLE_ASSIGN_OR_RETURN(read.function, module->Find("read_all", 0));
  runtime::TimingOptions options;
  options.min_repeat = absl::Milliseconds(30);
  HEDDLE_ASSIGN_OR_RETURN(const runtime::Timing fma_time,
                          runtime::TimeOnDevice(
                              device, [&] { return device.Launch(fma); }, options));
  HEDDLE_ASSIGN_OR_RETURN(const runtime::Timing tensor_time,
                          runtime::TimeOnDevice(
                              device, [&] { return device.Launch(tensor); }, options));
  HEDDLE_ASSIGN_OR_RETURN(const runtime::Timing read_time,
                          runtime::TimeOnDevice(
                              device, [&] { return device.Launch(read); }, options));
  GpuLimits limits;
  limits.gflops = 2.0 * kChains * kSteps * kThreads * blocks / fma_time.MinNs();
  limits.tensor_gflops = static_cast<double>(kTileFlops) * kTiles * kSteps * (kThreads / 32) *
                         blocks / tensor_time.MinNs();
  limits.gbps = static_cast<double>(bytes) / read_time.MinNs();
  return limits;
}

absl::StatusOr<nlohmann::json> DescribeGpu(const std::string& device, bool measure) {
  HEDDLE_ASSIGN_OR_RETURN(const runtime::DeviceName name, runtime::ParseDevice(device));
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::CudaDevice> gpu,
                          runtime::CudaDevice::Open(name.ordinal));
  GpuLimits limits;
  if (measure) {
    HEDDLE_ASSIGN_OR_RETURN(limits, MeasureGpuLimits(*gpu));
  }
  const runtime::CudaInfo& info = gpu->info();
  const runtime::DeviceClimate climate = runtime::ReadGpuClimate(info.pci);
  return nlohmann::json{{"name", info.name},
                        {"arch", info.arch},
                        {"device_key", info.DeviceKey()},
                        {"driver", info.driver},
                        {"multiprocessors", info.multiprocessors},
                        {"l2_bytes", info.l2_bytes},
                        {"peak_gflops", limits.gflops},
                        {"tensor_peak_gflops", limits.tensor_gflops},
                        {"memory_gbps", limits.gbps},
                        {"sm_mhz", climate.mhz},
                        {"celsius", climate.celsius}};
}

}  // namespace heddle::bench
