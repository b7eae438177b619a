// Whether our declarations of the driver's interface (compiler/runtime/cuda/api.h) are NVIDIA's: built where the
// CUDA Toolkit is installed.
#define __CUDA_API_VERSION_INTERNAL  // every function under its exported name
#include <cuda.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "compiler/runtime/cuda/api.h"

namespace heddle::runtime {
namespace {

// Same number of parameters, and each passed alike: of one size, pointers and integers not mixed
// but for handles.
template <typename Ours, typename Theirs>
constexpr bool kAlike =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
    !std::is_floating_point_v<Ours> && !std::is_floating_point_v<Theirs>;

template <typename... Ours, typename Result, typename... Theirs>
constexpr bool Matches(CuResult (*)(Ours...), Result (*)(Theirs...)) {
  static_assert(sizeof(Result) == sizeof(CuResult));
  if constexpr (sizeof...(Ours) == sizeof...(Theirs)) {
    return (kAlike<Ours, Theirs> && ...);
  } else {
    return false;
  }
}

#define HEDDLE_MATCH(name, parameters) \
  static_assert(Matches(decltype(CudaApi::name)(), decltype (&::name)()), #name);
HEDDLE_CUDA_FUNCTIONS(HEDDLE_MATCH)
#if CUDA_VERSION >= 12000
HEDDLE_CUDA_MAP_FUNCTIONS(HEDDLE_MATCH)
static_assert(sizeof(CuTensorMap) == sizeof(CUtensorMap) &&
              alignof(CuTensorMap) >= alignof(CUtensorMap));
static_assert(kCuUint16 == CU_TENSOR_MAP_DATA_TYPE_UINT16 &&
              kCuNoInterleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
              kCuSwizzle128 == CU_TENSOR_MAP_SWIZZLE_128B &&
              kCuPromote256 == CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
              kCuFillZeros == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
#endif
#undef HEDDLE_MATCH

static_assert(kCuSuccess == CUDA_SUCCESS && kCuOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kCuStubLibrary == CUDA_ERROR_STUB_LIBRARY && kCuNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kCuInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kCuInvalidImage == CUDA_ERROR_INVALID_IMAGE &&
              kCuInvalidPtx == CUDA_ERROR_INVALID_PTX);
static_assert(kCuNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(kCuEccUncorrectable == CUDA_ERROR_ECC_UNCORRECTABLE);
static_assert(kCuNvlinkUncorrectable == CUDA_ERROR_NVLINK_UNCORRECTABLE);
static_assert(kCuContained == 226 && kCuNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kCuIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(kCuLaunchOutOfResources == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
static_assert(kCuLaunchTimeout == CUDA_ERROR_LAUNCH_TIMEOUT);
static_assert(kCuContextIsDestroyed == CUDA_ERROR_CONTEXT_IS_DESTROYED);
static_assert(kCuAssert == CUDA_ERROR_ASSERT && kCuUnknown == CUDA_ERROR_UNKNOWN);
static_assert(kCuHardwareStackError == CUDA_ERROR_HARDWARE_STACK_ERROR);
static_assert(kCuLaunchFailed == CUDA_ERROR_LAUNCH_FAILED);
static_assert(kCuMaxThreadsPerBlock == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
static_assert(kCuClockKhz == CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
static_assert(kCuMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kCuMemoryClockKhz == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
static_assert(kCuMemoryBusBits == CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
static_assert(kCuL2Bytes == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
static_assert(kCuCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kCuCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kCuSharedBytesPerBlockOptin == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(kCuMaxDynamicSharedBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kCuStreamNonBlocking == CU_STREAM_NON_BLOCKING);

TEST(CudaHeaderTest, OurDeclarationsAreNvidias) { SUCCEED() << "checked when this was compiled"; }

}  // namespace
}  // namespace heddle::runtime
