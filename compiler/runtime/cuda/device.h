// One GPU as this process uses it: its context, one stream, pooled memory, and events for timing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/api.h"

namespace heddle::runtime {

// The description of a GPU.
struct CudaInfo {
  int ordinal = 0;
  std::string name;    // "NVIDIA H200"
  std::string arch;    // "sm_90"
  std::string driver;  // the newest CUDA that it supports: "13.0"
  std::string pci;     // "0000:1b:00.0", for NVML
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int multiprocessors = 0;
  int64_t clock_khz = 0;         // the highest; 0 if the driver does not report it
  int64_t memory_clock_khz = 0;  // the same
  int memory_bus_bits = 0;

  // The name of the class of identical devices: "nvidia-h200-sm_90".
  std::string DeviceKey() const;
};

// Errors as CudaDriver. FailedPrecondition with the number of GPUs: there is no such device.
absl::StatusOr<CudaInfo> DescribeCudaDevice(int ordinal);
absl::StatusOr<int> CountCudaDevices();

class CudaDevice;

// A block of the pool. The destructor returns it to the pool.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();
  CuPointer address() const { return address_; }
  int64_t size() const { return size_; }

 private:
  friend class CudaDevice;
  DeviceMemory(CudaDevice* device, CuPointer address, int64_t size, int64_t block)
      : device_(device), address_(address), size_(size), block_(block) {}
  CudaDevice* device_ = nullptr;
  CuPointer address_ = 0;
  int64_t size_ = 0;   // size that was requested
  int64_t block_ = 0;  // size of the block from the pool
};

// Page-locked host memory. Copies to and from the device need no staging buffer.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory();
  char* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  friend class CudaDevice;
  CudaDevice* device_ = nullptr;
  char* data_ = nullptr;
  int64_t size_ = 0;
};

// A launch's parameter that maps a matrix of 16-bit numbers. With it, the GPU's copy engine copies
// boxes of 64 columns into shared memory, in the 128-byte swizzle (docs/gpu.md). An earlier
// parameter is the matrix's address, so a launch shows which of its parameters are maps.
struct CudaBox {
  size_t parameter = 0;
  int64_t width = 0, height = 0;  // of the matrix, whose rows follow each other
  int64_t rows = 0;               // of a box
};

inline constexpr size_t kMaxBoxes = 16;  // that a launch takes

// Loaded code: the cubins of an artifact or a module (runtime/cubins.h).
class CudaModule {
 public:
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  // Finds a kernel and allows it `shared_bytes` of dynamic shared memory. InvalidArgument: there is
  // no such kernel, or the GPU has less shared memory.
  absl::StatusOr<CuFunction> Find(const std::string& symbol, int64_t shared_bytes) const;
  // The parameters of the kernel that are maps. The code says so itself, in a table that has the
  // kernel's name and "_boxes". InvalidArgument: the table makes no sense.
  absl::StatusOr<std::vector<CudaBox>> Boxes(const std::string& symbol) const;
  // The map of the matrix at an address. FailedPrecondition: the driver is too old. InvalidArgument:
  // no such matrix is possible there.
  absl::StatusOr<CuTensorMap> Map(const CudaBox& box, CuPointer address) const;

 private:
  friend class CudaDevice;
  explicit CudaModule(CudaDevice* device) : device_(device) {}
  CudaDevice* device_;
  std::vector<CuModule> modules_;  // one for each cubin
};

// One launch of one function.
struct CudaLaunch {
  CuFunction function = nullptr;
  std::array<unsigned, 3> grid = {1, 1, 1};
  std::array<unsigned, 3> block = {1, 1, 1};
  unsigned shared_bytes = 0;   // dynamic
  void** arguments = nullptr;  // one pointer to each argument's value
};

// Work that was recorded once and is enqueued as a whole, without a gap between its kernels.
class CudaGraph {
 public:
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;

 private:
  friend class CudaDevice;
  CudaGraph(CudaDevice* device, CuGraphExec graph) : device_(device), graph_(graph) {}
  CudaDevice* device_;
  CuGraphExec graph_;
};

// Thread-compatible. Must outlive everything it makes. Work is asynchronous and runs in order.
// Errors of kernels are reported by a later call, at the latest by Synchronize. All errors are
// those of CudaStatus.
class CudaDevice {
 public:
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(int ordinal);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;

  const CudaInfo& info() const { return info_; }
  // Makes this device current for the calling thread. Each thread must call this before anything
  // else.
  absl::Status Enter() const;

  // Allocates uninitialised memory at a 512-byte boundary; zero bytes give a valid block. Returned
  // blocks are kept for requests of about their size, and go back to the driver when memory is
  // short.
  absl::StatusOr<DeviceMemory> Allocate(int64_t bytes);
  absl::StatusOr<HostMemory> AllocateHost(int64_t bytes);
  // Loads the code of an artifact or a module, which the driver copies. InvalidArgument: it is no
  // such code (SplitCubins, CheckElf), or not for this GPU.
  absl::StatusOr<std::unique_ptr<CudaModule>> Load(std::string_view image);

  // The host memory must live until Synchronize.
  absl::Status Upload(CuPointer to, const void* from, int64_t bytes);
  absl::Status Download(void* to, CuPointer from, int64_t bytes);
  absl::Status Fill(CuPointer to, uint8_t value, int64_t bytes);
  absl::Status Launch(const CudaLaunch& launch);
  absl::Status Synchronize();

  // Records what `enqueue` enqueues on this device, which runs when the result is launched. It may copy,
  // fill and launch, and nothing else; addresses and arguments are those of now. Unimplemented: the
  // driver has no graphs.
  absl::StatusOr<std::unique_ptr<CudaGraph>> Capture(const std::function<absl::Status()>& enqueue);
  absl::Status Launch(const CudaGraph& graph);

  // For libraries whose work must run in the same order.
  CuStream stream() const { return stream_; }

  // Marks a point in the stream. One event for each `index` is created and reused.
  absl::Status Record(size_t index);
  // The time between two marks. Call Synchronize first.
  absl::StatusOr<double> ElapsedNs(size_t begin, size_t end);

  // Bytes obtained from the driver, and how many of them are free.
  int64_t reserved_bytes() const { return reserved_; }
  int64_t free_bytes() const;

 private:
  friend class DeviceMemory;
  friend class HostMemory;
  friend class CudaModule;
  friend class CudaGraph;
  explicit CudaDevice(const CudaApi& api) : api_(api) {}
  void GiveBack(CuPointer address, int64_t block);
  absl::Status Trim();
  absl::Status Check(CuResult result, const char* what) const;

  const CudaApi& api_;
  CudaInfo info_;
  CuDevice device_ = 0;
  CuContext context_ = nullptr;
  CuStream stream_ = nullptr;
  std::vector<CuEvent> events_;
  std::multimap<int64_t, CuPointer> free_;  // by size
  int64_t reserved_ = 0;
};

}  // namespace heddle::runtime
