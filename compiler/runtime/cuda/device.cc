#include "compiler/runtime/cuda/device.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/runtime/cubins.h"
#include "compiler/runtime/cuda/driver.h"
#include "compiler/runtime/elf_check.h"

namespace heddle::runtime {
namespace {

constexpr int64_t kGranularity = 512;  // alignment of blocks; no load of a kernel needs more
// A free block serves requests of at least 1 / kWaste of its size.
constexpr int64_t kWaste = 2;

int64_t Granules(int64_t bytes) {
  return std::max<int64_t>(1, (bytes + kGranularity - 1) / kGranularity) * kGranularity;
}

int64_t Attribute(const CudaApi& api, CuDevice device, int attribute) {
  int value = 0;
  return api.cuDeviceGetAttribute(&value, attribute, device) == kCuSuccess ? value : 0;
}

}  // namespace

std::string CudaInfo::DeviceKey() const {
  std::string key;
  for (const char c : absl::StrCat(name, "-", arch)) {
    const unsigned char byte = static_cast<unsigned char>(c);
    const bool plain = std::isalnum(byte) || c == '_' || c == '.';
    if (plain) key += static_cast<char>(std::tolower(byte));
    if (!plain && !key.empty() && key.back() != '-') key += '-';
  }
  return key;
}

absl::StatusOr<int> CountCudaDevices() {
  HEDDLE_ASSIGN_OR_RETURN(const CudaApi* api, CudaDriver());
  int count = 0;
  const CuResult result = api->cuDeviceGetCount(&count);
  if (result != kCuSuccess) return CudaStatus(*api, result, "count the GPUs");
  return count;
}

absl::StatusOr<CudaInfo> DescribeCudaDevice(int ordinal) {
  HEDDLE_ASSIGN_OR_RETURN(const int count, CountCudaDevices());
  if (ordinal < 0 || ordinal >= count) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no cuda:", ordinal, ": the driver shows ", count,
                     count == 1 ? " GPU" : " GPUs", " (CUDA_VISIBLE_DEVICES may hide some)"));
  }
  const CudaApi& api = **CudaDriver();
  CuDevice device = 0;
  char name[256] = {}, pci[32] = {};
  size_t memory = 0;
  CuResult result = api.cuDeviceGet(&device, ordinal);
  if (result == kCuSuccess) result = api.cuDeviceGetName(name, sizeof(name) - 1, device);
  if (result == kCuSuccess) result = api.cuDeviceTotalMem_v2(&memory, device);
  if (result != kCuSuccess) return CudaStatus(api, result, "ask a GPU for its name");
  if (api.cuDeviceGetPCIBusId(pci, sizeof(pci) - 1, device) != kCuSuccess) pci[0] = '\0';
  CudaInfo info;
  info.ordinal = ordinal;
  info.name = name;
  info.arch = absl::StrCat("sm_", Attribute(api, device, kCuCapabilityMajor),
                           Attribute(api, device, kCuCapabilityMinor));
  info.driver = CudaDriverVersion();
  info.pci = pci;
  info.memory_bytes = static_cast<int64_t>(memory);
  info.l2_bytes = Attribute(api, device, kCuL2Bytes);
  info.multiprocessors = static_cast<int>(Attribute(api, device, kCuMultiprocessors));
  info.clock_khz = Attribute(api, device, kCuClockKhz);
  info.memory_clock_khz = Attribute(api, device, kCuMemoryClockKhz);
  info.memory_bus_bits = static_cast<int>(Attribute(api, device, kCuMemoryBusBits));
  return info;
}

// ---- Objects of a device ----

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(address_, other.address_);
  std::swap(size_, other.size_);
  std::swap(block_, other.block_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (device_ != nullptr) device_->GiveBack(address_, block_);
}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

// Destructors first make the device current, because another thread may run them. After a sticky
// error they may fail; then the end of the process cleans up.
HostMemory::~HostMemory() {
  if (device_ != nullptr && device_->Enter().ok()) device_->api_.cuMemFreeHost(data_);
}

CudaModule::~CudaModule() {
  if (!device_->Enter().ok()) return;
  for (CuModule module : modules_) device_->api_.cuModuleUnload(module);
}

CudaGraph::~CudaGraph() {
  if (device_->Enter().ok()) device_->api_.cuGraphExecDestroy(graph_);
}

absl::StatusOr<CuFunction> CudaModule::Find(const std::string& symbol, int64_t shared_bytes) const {
  const CudaApi& api = device_->api_;
  CuFunction function = nullptr;
  CuResult result = kCuNotFound;
  for (CuModule module : modules_) {
    result = api.cuModuleGetFunction(&function, module, symbol.c_str());
    if (result != kCuNotFound) break;
  }
  if (result != kCuSuccess) return CudaStatus(api, result, absl::StrCat("find kernel ", symbol));
  constexpr int64_t kAlways = 48 << 10;  // available to a kernel without a request
  if (shared_bytes <= kAlways) return function;
  const int64_t limit = Attribute(api, device_->device_, kCuSharedBytesPerBlockOptin);
  if (shared_bytes > limit) {
    return absl::InvalidArgumentError(absl::StrCat("kernel ", symbol, " wants ", shared_bytes,
                                                   " bytes of shared memory; ", device_->info_.name,
                                                   " has ", limit));
  }
  result =
      api.cuFuncSetAttribute(function, kCuMaxDynamicSharedBytes, static_cast<int>(shared_bytes));
  if (result != kCuSuccess) return CudaStatus(api, result, absl::StrCat("prepare ", symbol));
  return function;
}

absl::StatusOr<std::vector<CudaBox>> CudaModule::Boxes(const std::string& symbol) const {
  const std::string name = symbol + "_boxes";
  CuPointer address = 0;
  size_t bytes = 0;
  CuResult result = kCuNotFound;
  for (CuModule module : modules_) {
    result = device_->api_.cuModuleGetGlobal_v2(&address, &bytes, module, name.c_str());
    if (result != kCuNotFound) break;
  }
  if (result == kCuNotFound) return std::vector<CudaBox>{};
  HEDDLE_RETURN_IF_ERROR(device_->Check(result, "find the maps of a kernel"));
  using Row = std::array<int32_t, 4>;  // parameter, width, height, rows
  if (bytes % sizeof(Row) != 0 || bytes > kMaxBoxes * sizeof(Row))
    return absl::InvalidArgumentError(absl::StrCat(name, " has ", bytes, " bytes"));
  std::vector<Row> rows(bytes / sizeof(Row));
  HEDDLE_RETURN_IF_ERROR(device_->Download(rows.data(), address, static_cast<int64_t>(bytes)));
  HEDDLE_RETURN_IF_ERROR(device_->Synchronize());
  std::vector<CudaBox> boxes;
  for (const auto& [parameter, width, height, box_rows] : rows) {
    if (parameter < 0 || width < 1 || height < 1 || box_rows < 1)
      return absl::InvalidArgumentError(absl::StrCat(name, " has a matrix that cannot be"));
    boxes.push_back({static_cast<size_t>(parameter), width, height, box_rows});
  }
  return boxes;
}

absl::StatusOr<CuTensorMap> CudaModule::Map(const CudaBox& box, CuPointer address) const {
  if (device_->api_.cuTensorMapEncodeTiled == nullptr) {
    return absl::FailedPreconditionError(
        "the CUDA driver has no cuTensorMapEncodeTiled: install a newer one");
  }
  constexpr uint32_t kColumns = 64, kBytes = 2;
  const uint64_t extents[] = {static_cast<uint64_t>(box.width), static_cast<uint64_t>(box.height)};
  const uint64_t strides[] = {extents[0] * kBytes};  // of rows
  const uint32_t sizes[] = {kColumns, static_cast<uint32_t>(box.rows)}, steps[] = {1, 1};
  CuTensorMap map{};
  const CuResult result = device_->api_.cuTensorMapEncodeTiled(
      &map, kCuUint16, 2, reinterpret_cast<void*>(address), extents, strides, sizes, steps,
      kCuNoInterleave, kCuSwizzle128, kCuPromote256, kCuFillZeros);
  if (result == kCuSuccess) return map;
  return absl::InvalidArgumentError(
      absl::StrCat("no map of ", box.height, " x ", box.width, " numbers in boxes of ", box.rows,
                   " rows: ", CudaStatus(device_->api_, result, "make it").message()));
}

// ---- The device ----

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(int ordinal) {
  HEDDLE_ASSIGN_OR_RETURN(CudaInfo info, DescribeCudaDevice(ordinal));
  std::unique_ptr<CudaDevice> device(new CudaDevice(**CudaDriver()));
  const CudaApi& api = device->api_;
  device->info_ = std::move(info);
  absl::Status status = device->Check(api.cuDeviceGet(&device->device_, ordinal), "choose a GPU");
  if (status.ok()) {
    status = device->Check(api.cuDevicePrimaryCtxRetain(&device->context_, device->device_),
                           "make a context");
  }
  if (status.ok()) status = device->Enter();
  if (status.ok()) {
    status =
        device->Check(api.cuStreamCreate(&device->stream_, kCuStreamNonBlocking), "make a stream");
  }
  if (!status.ok()) return status;
  return device;
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  if (Enter().ok()) {
    if (stream_ != nullptr) api_.cuStreamSynchronize(stream_);
    Trim().IgnoreError();
    for (CuEvent event : events_) api_.cuEventDestroy_v2(event);
    if (stream_ != nullptr) api_.cuStreamDestroy_v2(stream_);
  }
  api_.cuDevicePrimaryCtxRelease_v2(device_);
}

absl::Status CudaDevice::Check(CuResult result, const char* what) const {
  return result == kCuSuccess ? absl::OkStatus() : CudaStatus(api_, result, what);
}

absl::Status CudaDevice::Enter() const {
  return Check(api_.cuCtxSetCurrent(context_), "enter a context");
}

absl::StatusOr<DeviceMemory> CudaDevice::Allocate(int64_t bytes) {
  const int64_t block = Granules(bytes);
  const auto found = free_.lower_bound(block);
  if (found != free_.end() && found->first <= kWaste * block) {
    DeviceMemory memory(this, found->second, bytes, found->first);
    free_.erase(found);
    return memory;
  }
  CuPointer address = 0;
  CuResult result = api_.cuMemAlloc_v2(&address, static_cast<size_t>(block));
  if (result == kCuOutOfMemory && !free_.empty()) {
    HEDDLE_RETURN_IF_ERROR(Trim());
    result = api_.cuMemAlloc_v2(&address, static_cast<size_t>(block));
  }
  if (result != kCuSuccess) {
    return CudaStatus(api_, result, absl::StrCat("allocate ", block, " bytes on ", info_.name));
  }
  reserved_ += block;
  return DeviceMemory(this, address, bytes, block);
}

// Work on the block may still be running. The next user's work follows it in the same stream.
void CudaDevice::GiveBack(CuPointer address, int64_t block) { free_.emplace(block, address); }

absl::Status CudaDevice::Trim() {
  HEDDLE_RETURN_IF_ERROR(Synchronize());
  for (const auto& [block, address] : free_) {
    HEDDLE_RETURN_IF_ERROR(Check(api_.cuMemFree_v2(address), "free memory"));
    reserved_ -= block;
  }
  free_.clear();
  return absl::OkStatus();
}

int64_t CudaDevice::free_bytes() const {
  int64_t bytes = 0;
  for (const auto& [block, address] : free_) bytes += block;
  return bytes;
}

absl::StatusOr<HostMemory> CudaDevice::AllocateHost(int64_t bytes) {
  void* data = nullptr;
  const CuResult result =
      api_.cuMemAllocHost_v2(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (result != kCuSuccess) {
    return CudaStatus(api_, result, absl::StrCat("allocate ", bytes, " bytes of locked memory"));
  }
  HostMemory memory;
  memory.device_ = this;
  memory.data_ = static_cast<char*>(data);
  memory.size_ = bytes;
  return memory;
}

absl::StatusOr<std::unique_ptr<CudaModule>> CudaDevice::Load(std::string_view image) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<std::string_view> cubins, SplitCubins(image));
  // This check is needed because the driver trusts the sizes in a cubin.
  for (std::string_view cubin : cubins)
    HEDDLE_RETURN_IF_ERROR(CheckElf(cubin, kElfMachineCuda, /*type=*/0));
  std::unique_ptr<CudaModule> loaded(new CudaModule(this));
  for (std::string_view cubin : cubins) {
    CuModule module = nullptr;
    HEDDLE_RETURN_IF_ERROR(Check(api_.cuModuleLoadData(&module, cubin.data()), "load code"));
    loaded->modules_.push_back(module);
  }
  return loaded;
}

absl::Status CudaDevice::Upload(CuPointer to, const void* from, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return Check(api_.cuMemcpyHtoDAsync_v2(to, from, static_cast<size_t>(bytes), stream_),
               "copy to the GPU");
}

absl::Status CudaDevice::Download(void* to, CuPointer from, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return Check(api_.cuMemcpyDtoHAsync_v2(to, from, static_cast<size_t>(bytes), stream_),
               "copy from the GPU");
}

absl::Status CudaDevice::Fill(CuPointer to, uint8_t value, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return Check(api_.cuMemsetD8Async(to, value, static_cast<size_t>(bytes), stream_), "fill memory");
}

absl::Status CudaDevice::Launch(const CudaLaunch& launch) {
  return Check(api_.cuLaunchKernel(launch.function, launch.grid[0], launch.grid[1], launch.grid[2],
                                   launch.block[0], launch.block[1], launch.block[2],
                                   launch.shared_bytes, stream_, launch.arguments, nullptr),
               "launch a kernel");
}

absl::Status CudaDevice::Synchronize() {
  return Check(api_.cuStreamSynchronize(stream_), "finish the work");
}

absl::StatusOr<std::unique_ptr<CudaGraph>> CudaDevice::Capture(
    const std::function<absl::Status()>& enqueue) {
  if (!api_.has_graphs) return absl::UnimplementedError("CUDA: the driver has no graphs");
  HEDDLE_RETURN_IF_ERROR(
      Check(api_.cuStreamBeginCapture_v2(stream_, kCuCaptureThreadLocal), "record work"));
  absl::Status status = enqueue();
  CuGraph recorded = nullptr;
  // This ends the recording even if it fails.
  const CuResult ended = api_.cuStreamEndCapture(stream_, &recorded);
  if (status.ok()) status = Check(ended, "record work");
  CuGraphExec graph = nullptr;
  if (status.ok())
    status = Check(api_.cuGraphInstantiateWithFlags(&graph, recorded, 0), "prepare recorded work");
  if (recorded != nullptr) api_.cuGraphDestroy(recorded);
  if (!status.ok()) return status;
  return std::unique_ptr<CudaGraph>(new CudaGraph(this, graph));
}

absl::Status CudaDevice::Launch(const CudaGraph& graph) {
  return Check(api_.cuGraphLaunch(graph.graph_, stream_), "launch recorded work");
}

absl::Status CudaDevice::Record(size_t index) {
  while (events_.size() <= index) {
    CuEvent event = nullptr;
    HEDDLE_RETURN_IF_ERROR(Check(api_.cuEventCreate(&event, 0), "make an event"));
    events_.push_back(event);
  }
  return Check(api_.cuEventRecord(events_[index], stream_), "record an event");
}

absl::StatusOr<double> CudaDevice::ElapsedNs(size_t begin, size_t end) {
  float milliseconds = 0;
  HEDDLE_RETURN_IF_ERROR(
      Check(api_.cuEventElapsedTime(&milliseconds, events_[begin], events_[end]), "read an event"));
  return static_cast<double>(milliseconds) * 1e6;
}

}  // namespace heddle::runtime
