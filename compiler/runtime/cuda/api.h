// The part of the CUDA driver's C interface that we use. It is declared here so that building needs
// nothing from NVIDIA. libcuda.so.1 is loaded when a GPU is first used (driver.h). Names are the
// exported ones, including their version; their meaning is that of NVIDIA's "CUDA Driver API".
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::runtime {

using CuResult = int;        // CUresult: 0 is success
using CuDevice = int;        // CUdevice: an ordinal
using CuPointer = uint64_t;  // CUdeviceptr: an address on the device
using CuContext = struct CuContextTag*;
using CuModule = struct CuModuleTag*;
using CuFunction = struct CuFunctionTag*;
using CuStream = struct CuStreamTag*;
using CuEvent = struct CuEventTag*;
using CuGraph = struct CuGraphTag*;
using CuGraphExec = struct CuGraphExecTag*;

// CUresult: the values that driver.cc distinguishes.
inline constexpr CuResult kCuSuccess = 0;
inline constexpr CuResult kCuOutOfMemory = 2;
inline constexpr CuResult kCuStubLibrary = 34;
inline constexpr CuResult kCuNoDevice = 100;
inline constexpr CuResult kCuInvalidDevice = 101;
inline constexpr CuResult kCuInvalidImage = 200;
inline constexpr CuResult kCuNoBinaryForGpu = 209;
inline constexpr CuResult kCuEccUncorrectable = 214;
inline constexpr CuResult kCuInvalidPtx = 218;
inline constexpr CuResult kCuNvlinkUncorrectable = 220;
inline constexpr CuResult kCuContained = 226;
inline constexpr CuResult kCuNotFound = 500;
inline constexpr CuResult kCuIllegalAddress = 700;
inline constexpr CuResult kCuLaunchOutOfResources = 701;
inline constexpr CuResult kCuLaunchTimeout = 702;
inline constexpr CuResult kCuContextIsDestroyed = 709;
inline constexpr CuResult kCuAssert = 710;
inline constexpr CuResult kCuHardwareStackError = 714;
inline constexpr CuResult kCuLaunchFailed = 719;  // 714 .. 719 are errors of kernels
inline constexpr CuResult kCuUnknown = 999;

// CUdevice_attribute.
inline constexpr int kCuMaxThreadsPerBlock = 1;
inline constexpr int kCuClockKhz = 13;
inline constexpr int kCuMultiprocessors = 16;
inline constexpr int kCuMemoryClockKhz = 36;
inline constexpr int kCuMemoryBusBits = 37;
inline constexpr int kCuL2Bytes = 38;
inline constexpr int kCuCapabilityMajor = 75;
inline constexpr int kCuCapabilityMinor = 76;
inline constexpr int kCuSharedBytesPerBlockOptin = 97;

// CUtensorMap: a matrix as the GPU's copy engine knows it. Opaque.
struct alignas(128) CuTensorMap {
  uint64_t words[16];
};
// CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
// CUtensorMapFloatOOBfill.
inline constexpr int kCuUint16 = 1;
inline constexpr int kCuNoInterleave = 0;
inline constexpr int kCuSwizzle128 = 3;
inline constexpr int kCuPromote256 = 3;
inline constexpr int kCuFillZeros = 0;

// CUfunction_attribute.
inline constexpr int kCuMaxDynamicSharedBytes = 8;

inline constexpr unsigned kCuStreamNonBlocking = 1;  // CUstream_flags
inline constexpr int kCuCaptureThreadLocal = 1;      // CUstreamCaptureMode

// X(name, parameters): every function returns a CuResult.
#define HEDDLE_CUDA_FUNCTIONS(X)                                                                  \
  X(cuInit, (unsigned flags))                                                                     \
  X(cuDriverGetVersion, (int* version))                                                           \
  X(cuGetErrorName, (CuResult error, const char** text))                                          \
  X(cuGetErrorString, (CuResult error, const char** text))                                        \
  X(cuDeviceGetCount, (int* count))                                                               \
  X(cuDeviceGet, (CuDevice * device, int ordinal))                                                \
  X(cuDeviceGetName, (char* name, int size, CuDevice device))                                     \
  X(cuDeviceGetAttribute, (int* value, int attribute, CuDevice device))                           \
  X(cuDeviceTotalMem_v2, (size_t * bytes, CuDevice device))                                       \
  X(cuDeviceGetPCIBusId, (char* id, int size, CuDevice device))                                   \
  X(cuDevicePrimaryCtxRetain, (CuContext * context, CuDevice device))                             \
  X(cuDevicePrimaryCtxRelease_v2, (CuDevice device))                                              \
  X(cuCtxSetCurrent, (CuContext context))                                                         \
  X(cuModuleLoadData, (CuModule * module, const void* image))                                     \
  X(cuModuleUnload, (CuModule module))                                                            \
  X(cuModuleGetFunction, (CuFunction * function, CuModule module, const char* name))              \
  X(cuModuleGetGlobal_v2,                                                                         \
    (CuPointer * address, size_t * bytes, CuModule module, const char* name))                     \
  X(cuFuncSetAttribute, (CuFunction function, int attribute, int value))                          \
  X(cuMemAlloc_v2, (CuPointer * address, size_t bytes))                                           \
  X(cuMemFree_v2, (CuPointer address))                                                            \
  X(cuMemAllocHost_v2, (void** address, size_t bytes))                                            \
  X(cuMemFreeHost, (void* address))                                                               \
  X(cuMemcpyHtoDAsync_v2, (CuPointer to, const void* from, size_t bytes, CuStream stream))        \
  X(cuMemcpyDtoHAsync_v2, (void* to, CuPointer from, size_t bytes, CuStream stream))              \
  X(cuMemsetD8Async, (CuPointer to, unsigned char value, size_t count, CuStream stream))          \
  X(cuStreamCreate, (CuStream * stream, unsigned flags))                                          \
  X(cuStreamDestroy_v2, (CuStream stream))                                                        \
  X(cuStreamSynchronize, (CuStream stream))                                                       \
  X(cuEventCreate, (CuEvent * event, unsigned flags))                                             \
  X(cuEventDestroy_v2, (CuEvent event))                                                           \
  X(cuEventRecord, (CuEvent event, CuStream stream))                                              \
  X(cuEventElapsedTime, (float* milliseconds, CuEvent start, CuEvent end))                        \
  X(cuLaunchKernel, (CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,      \
                     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, \
                     CuStream stream, void** arguments, void** extra))

// These are null in drivers older than CUDA 11.4.
#define HEDDLE_CUDA_GRAPH_FUNCTIONS(X)                                                          \
  X(cuStreamBeginCapture_v2, (CuStream stream, int mode))                                       \
  X(cuStreamEndCapture, (CuStream stream, CuGraph * graph))                                     \
  X(cuGraphInstantiateWithFlags, (CuGraphExec * exec, CuGraph graph, unsigned long long flags)) \
  X(cuGraphLaunch, (CuGraphExec exec, CuStream stream))                                         \
  X(cuGraphExecDestroy, (CuGraphExec exec))                                                     \
  X(cuGraphDestroy, (CuGraph graph))

// This is null in drivers older than CUDA 12.
#define HEDDLE_CUDA_MAP_FUNCTIONS(X)                                                      \
  X(cuTensorMapEncodeTiled,                                                               \
    (CuTensorMap * map, int type, uint32_t rank, void* address, const uint64_t* extents,  \
     const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave, \
     int swizzle, int promotion, int fill))

struct CudaApi {
#define HEDDLE_DECLARE(name, parameters) CuResult(*name) parameters = nullptr;
  HEDDLE_CUDA_FUNCTIONS(HEDDLE_DECLARE)
  HEDDLE_CUDA_GRAPH_FUNCTIONS(HEDDLE_DECLARE)
  HEDDLE_CUDA_MAP_FUNCTIONS(HEDDLE_DECLARE)
#undef HEDDLE_DECLARE
  bool has_graphs = false;  // all functions of graphs are there
};

}  // namespace heddle::runtime
