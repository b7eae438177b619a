#include "tests/runtime/fake_cuda.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "compiler/runtime/cuda/api.h"
#include "tests/codegen/cuda/host_code.h"

namespace {

using heddle::runtime::CuContext;
using heddle::runtime::CuDevice;
using heddle::runtime::CuEvent;
using heddle::runtime::CuFunction;
using heddle::runtime::CuGraph;
using heddle::runtime::CuGraphExec;
using heddle::runtime::CuModule;
using heddle::runtime::CuPointer;
using heddle::runtime::CuResult;
using heddle::runtime::CuStream;
using heddle::runtime::CuTensorMap;
using heddle::test::FakeCudaState;

struct Function {
  std::string symbol;
  int shared_bytes = 48 << 10;
  heddle::testing::HostKernel run = nullptr;
};
struct Module {
  std::map<std::string, Function> functions;
  void* code = nullptr;
};
constexpr CuResult kMisalignedAddress = 716;
constexpr CuResult kOperatingSystem = 304;
constexpr CuResult kCaptureUnsupported = 900;
constexpr CuResult kCaptureInvalidated = 901;
struct Event {
  double ns = -1;
};
using Work = std::function<CuResult()>;
struct Graph {
  std::vector<Work> work;
};
// What is being recorded; null: nothing is.
struct Capture {
  CuStream stream;
  std::vector<Work> work;
  bool broken = false;
};
Capture* capture = nullptr;

std::set<void*> live;  // modules, streams, events
thread_local CuContext current = nullptr;
int context_object = 0;

[[noreturn]] void Misuse(const char* call, const char* what) {
  std::fprintf(stderr, "fake CUDA: %s: %s\n", call, what);
  abort();
}

FakeCudaState& State() {
  static FakeCudaState& state = *[] {
    auto* fresh = new FakeCudaState;
    const char* fail = std::getenv("HEDDLE_FAKE_CUDA_FAIL");
    char name[64] = {};
    int nth = 0, error = 0;
    if (fail != nullptr && std::sscanf(fail, "%63[^:]:%d:%d", name, &nth, &error) == 3)
      fresh->failures[name] = {nth, error};
    return fresh;
  }();
  return state;
}

bool Sticky(int error) {
  const bool of_recordings = error >= 900 && error < 999;
  return error >= 700 && error != 701 && !of_recordings;
}

CuResult Enter(const char* call, bool needs_context) {
  FakeCudaState& state = State();
  state.calls.emplace_back(call);
  if (state.sticky != 0) return state.sticky;
  if (needs_context && current == nullptr) Misuse(call, "no current context");
  const auto failure = state.failures.find(call);
  if (failure == state.failures.end() || --failure->second.nth > 0) return 0;
  const int error = failure->second.error;
  state.failures.erase(failure);
  if (Sticky(error)) state.sticky = error;
  return error;
}

std::map<CuPointer, size_t> variables;  // of modules, and their sizes

void CheckRange(const char* call, CuPointer address, size_t bytes) {
  if (const auto own = variables.find(address); own != variables.end() && bytes <= own->second)
    return;
  const auto& memory = State().device_memory;
  auto block = memory.upper_bound(address);
  if (block == memory.begin()) Misuse(call, "memory of nobody");
  --block;
  if (address - block->first + bytes > block->second) Misuse(call, "beyond the block");
}

void CheckLive(const char* call, void* handle) {
  if (live.count(handle) == 0) Misuse(call, "a handle that does not live");
}

// Does the work of a stream, or records it.
CuResult Enqueue(CuStream stream, Work work) {
  if (capture == nullptr || capture->stream != stream) return work();
  capture->work.push_back(std::move(work));
  return 0;
}

// A call that no recording may contain.
bool BreaksCapture() {
  if (capture != nullptr) capture->broken = true;
  return capture != nullptr;
}

// Gives a thread of its own a name, as a real driver does. This writes a file of /proc/self/task.
bool NamesItsThreads() {
  std::atomic<bool> end{false};
  std::thread other([&end] {
    while (!end) std::this_thread::yield();
  });
  const bool named = pthread_setname_np(other.native_handle(), "fake-cuda") == 0;
  end = true;
  other.join();
  return named;
}

}  // namespace

#define ENTER(needs_context) \
  if (const CuResult error = Enter(__func__, needs_context)) return error

extern "C" {

FakeCudaState* fake_cuda_state() { return &State(); }

CuResult cuInit(unsigned) {
  ENTER(false);
  return NamesItsThreads() ? 0 : kOperatingSystem;
}
CuResult cuDriverGetVersion(int* version) {
  const char* other = std::getenv("HEDDLE_FAKE_CUDA_VERSION");
  *version = other != nullptr ? std::atoi(other) : 13000;
  return 0;
}
CuResult cuGetErrorName(CuResult error, const char** text) {
  *text = error == 700   ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == 702 ? "CUDA_ERROR_LAUNCH_TIMEOUT"
          : error == 2   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
          : error == 304 ? "CUDA_ERROR_OPERATING_SYSTEM"
                         : "CUDA_ERROR_OTHER";
  return 0;
}
CuResult cuGetErrorString(CuResult, const char** text) {
  *text = "made up by a test";
  return 0;
}
CuResult cuDeviceGetCount(int* count) {
  ENTER(false);
  *count = State().devices;
  return 0;
}
CuResult cuDeviceGet(CuDevice* device, int ordinal) {
  ENTER(false);
  *device = ordinal;
  return 0;
}
CuResult cuDeviceGetName(char* name, int size, CuDevice) {
  std::snprintf(name, static_cast<size_t>(size), "Fake GPU (12 GB)");
  return 0;
}
CuResult cuDeviceGetAttribute(int* value, int attribute, CuDevice) {
  const std::map<int, int> values = {{1, 1024},     {13, 1000000},       {16, 4},
                                     {36, 2000000}, {37, 256},           {38, 1 << 20},
                                     {75, 9},       {76, State().minor}, {97, 232448}};
  const auto found = values.find(attribute);
  if (found == values.end()) return 1;
  *value = found->second;
  return 0;
}
CuResult cuDeviceTotalMem_v2(size_t* bytes, CuDevice) {
  *bytes = static_cast<size_t>(State().memory_limit);
  return 0;
}
CuResult cuDeviceGetPCIBusId(char* id, int size, CuDevice) {
  std::snprintf(id, static_cast<size_t>(size), "0000:00:00.0");
  return 0;
}
CuResult cuDevicePrimaryCtxRetain(CuContext* context, CuDevice) {
  ENTER(false);
  *context = reinterpret_cast<CuContext>(&context_object);
  ++State().contexts;
  return 0;
}
CuResult cuDevicePrimaryCtxRelease_v2(CuDevice) {
  --State().contexts;
  State().calls.emplace_back(__func__);
  current = nullptr;
  return 0;
}
CuResult cuCtxSetCurrent(CuContext context) {
  ENTER(false);
  if (State().contexts == 0) Misuse(__func__, "no context");
  current = context;
  return 0;
}
CuResult cuModuleLoadData(CuModule* module, const void* image) {
  ENTER(true);
  auto* loaded = new Module;
  const char* bytes = static_cast<const char*>(image);
  if (bytes[heddle::test::kHasCode] != 0) {
    uint64_t size = 0;
    std::memcpy(&size, bytes + 64, sizeof size);
    loaded->code = heddle::testing::LoadHostCode({bytes + 64 + sizeof size, size});
    if (loaded->code == nullptr) Misuse(__func__, dlerror());
  }
  *module = reinterpret_cast<CuModule>(loaded);
  live.insert(*module);
  ++State().modules;
  return 0;
}
CuResult cuModuleUnload(CuModule module) {
  ENTER(true);
  CheckLive(__func__, module);
  live.erase(module);
  if (void* code = reinterpret_cast<Module*>(module)->code; code != nullptr) dlclose(code);
  delete reinterpret_cast<Module*>(module);
  --State().modules;
  return 0;
}
CuResult cuModuleGetFunction(CuFunction* function, CuModule module, const char* name) {
  ENTER(true);
  CheckLive(__func__, module);
  if (std::strcmp(name, "missing") == 0) return 500;
  auto* owner = reinterpret_cast<Module*>(module);
  Function& entry = owner->functions[name];
  entry.symbol = name;
  if (owner->code != nullptr) entry.run = heddle::testing::FindHostKernel(owner->code, name);
  if (owner->code != nullptr && entry.run == nullptr) return 500;
  *function = reinterpret_cast<CuFunction>(&entry);
  return 0;
}
CuResult cuModuleGetGlobal_v2(CuPointer* address, size_t* bytes, CuModule module,
                              const char* name) {
  ENTER(true);
  CheckLive(__func__, module);
  void* code = reinterpret_cast<Module*>(module)->code;
  const heddle::testing::HostVariable found = code == nullptr
                                                  ? heddle::testing::HostVariable{}
                                                  : heddle::testing::FindHostVariable(code, name);
  const auto planted = State().variables.find(name);
  if (planted != State().variables.end()) {
    *address = reinterpret_cast<CuPointer>(planted->second.data());
    *bytes = planted->second.size() * sizeof(int32_t);
  } else if (found.address != nullptr) {
    *address = reinterpret_cast<CuPointer>(found.address);
    *bytes = found.bytes;
  } else {
    return 500;
  }
  variables[*address] = *bytes;
  return 0;
}
// Matrices of 16-bit numbers in boxes of 64 columns, as the host's kernels know them.
CuResult cuTensorMapEncodeTiled(CuTensorMap* map, int type, uint32_t rank, void* address,
                                const uint64_t* extents, const uint64_t* strides,
                                const uint32_t* box, const uint32_t* steps, int interleave,
                                int swizzle, int, int) {
  ENTER(true);
  const bool known = type == 1 && rank == 2 && interleave == 0 && swizzle == 3 && box[0] == 64 &&
                     steps[0] == 1 && steps[1] == 1 && strides[0] == 2 * extents[0];
  const auto at = reinterpret_cast<CuPointer>(address);
  if (!known || at % 16 != 0 || strides[0] % 16 != 0 || box[1] > 256 || box[1] == 0) return 1;
  if (reinterpret_cast<uintptr_t>(map) % 128 != 0) Misuse(__func__, "a map that is not aligned");
  CheckRange(__func__, at, 2 * extents[0] * extents[1]);
  const heddle::testing::HostMap host{at, extents[0], extents[1], box[1]};
  static_assert(sizeof host == sizeof *map);
  std::memcpy(map, &host, sizeof host);
  return 0;
}
CuResult cuFuncSetAttribute(CuFunction function, int attribute, int value) {
  ENTER(true);
  if (attribute != 8) return 1;
  reinterpret_cast<Function*>(function)->shared_bytes = value;
  return 0;
}
CuResult cuMemAlloc_v2(CuPointer* address, size_t bytes) {
  ENTER(true);
  FakeCudaState& state = State();
  size_t used = bytes;
  for (const auto& [at, size] : state.device_memory) used += size;
  if (used > static_cast<size_t>(state.memory_limit)) return 2;
  void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(memory, 0xcd, bytes);
  *address = reinterpret_cast<CuPointer>(memory);
  state.device_memory[*address] = bytes;
  return 0;
}
CuResult cuMemFree_v2(CuPointer address) {
  ENTER(true);
  if (State().device_memory.erase(address) == 0) Misuse(__func__, "memory of nobody");
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
CuResult cuMemAllocHost_v2(void** address, size_t bytes) {
  ENTER(true);
  *address = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  State().host_memory[*address] = bytes;
  return 0;
}
CuResult cuMemFreeHost(void* address) {
  ENTER(true);
  if (State().host_memory.erase(address) == 0) Misuse(__func__, "memory of nobody");
  std::free(address);
  return 0;
}
CuResult cuMemcpyHtoDAsync_v2(CuPointer to, const void* from, size_t bytes, CuStream stream) {
  ENTER(true);
  CheckLive(__func__, stream);
  CheckRange(__func__, to, bytes);
  return Enqueue(stream, [=] {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return 0;
  });
}
CuResult cuMemcpyDtoHAsync_v2(void* to, CuPointer from, size_t bytes, CuStream stream) {
  ENTER(true);
  CheckLive(__func__, stream);
  CheckRange(__func__, from, bytes);
  return Enqueue(stream, [=] {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return 0;
  });
}
CuResult cuMemsetD8Async(CuPointer to, unsigned char value, size_t count, CuStream stream) {
  ENTER(true);
  CheckLive(__func__, stream);
  CheckRange(__func__, to, count);
  return Enqueue(stream, [=] {
    std::memset(reinterpret_cast<void*>(to), value, count);
    State().now_ns += static_cast<double>(count) / 1000;
    return 0;
  });
}
CuResult cuStreamCreate(CuStream* stream, unsigned) {
  ENTER(true);
  *stream = reinterpret_cast<CuStream>(new int(0));
  live.insert(*stream);
  ++State().streams;
  return 0;
}
CuResult cuStreamDestroy_v2(CuStream stream) {
  ENTER(true);
  CheckLive(__func__, stream);
  live.erase(stream);
  delete reinterpret_cast<int*>(stream);
  --State().streams;
  return 0;
}
CuResult cuStreamSynchronize(CuStream stream) {
  ENTER(true);
  CheckLive(__func__, stream);
  return BreaksCapture() ? kCaptureUnsupported : 0;
}
CuResult cuEventCreate(CuEvent* event, unsigned) {
  ENTER(true);
  *event = reinterpret_cast<CuEvent>(new Event);
  live.insert(*event);
  ++State().events;
  return 0;
}
CuResult cuEventDestroy_v2(CuEvent event) {
  ENTER(true);
  CheckLive(__func__, event);
  live.erase(event);
  delete reinterpret_cast<Event*>(event);
  --State().events;
  return 0;
}
CuResult cuEventRecord(CuEvent event, CuStream stream) {
  ENTER(true);
  CheckLive(__func__, event);
  CheckLive(__func__, stream);
  if (BreaksCapture()) return kCaptureUnsupported;
  reinterpret_cast<Event*>(event)->ns = State().now_ns;
  return 0;
}
CuResult cuEventElapsedTime(float* milliseconds, CuEvent start, CuEvent end) {
  ENTER(true);
  const Event *a = reinterpret_cast<Event*>(start), *b = reinterpret_cast<Event*>(end);
  if (a->ns < 0 || b->ns < 0) Misuse(__func__, "an event that was not recorded");
  *milliseconds = static_cast<float>((b->ns - a->ns) / 1e6);
  return 0;
}
CuResult cuLaunchKernel(CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CuStream stream, void** arguments, void**) {
  ENTER(true);
  CheckLive(__func__, stream);
  const Function* entry = reinterpret_cast<Function*>(function);
  if (static_cast<int>(shared_bytes) > entry->shared_bytes) return 1;
  if (block_x * block_y * block_z > 1024) return 1;
  return Enqueue(stream, [=] {
    const heddle::test::FakeLaunch launch{entry->symbol,
                                          {grid_x, grid_y, grid_z},
                                          {block_x, block_y, block_z},
                                          shared_bytes,
                                          arguments};
    FakeCudaState& state = State();
    double ns = 1000;
    if (entry->run != nullptr) {
      const unsigned dims[] = {grid_x, grid_y, grid_z, block_x, block_y, block_z};
      const auto begin = std::chrono::steady_clock::now();
      if (entry->run(arguments, dims) != 0) return state.sticky = kMisalignedAddress;
      ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin)
               .count();
    }
    if (state.on_launch) state.on_launch(launch);
    state.now_ns += state.launch_ns ? state.launch_ns(launch) : ns;
    return 0;
  });
}
CuResult cuStreamBeginCapture_v2(CuStream stream, int) {
  ENTER(true);
  CheckLive(__func__, stream);
  if (capture != nullptr) Misuse(__func__, "a recording in a recording");
  capture = new Capture{stream, {}, false};
  return 0;
}
CuResult cuStreamEndCapture(CuStream stream, CuGraph* graph) {
  // A recording ends whatever the answer is.
  if (capture == nullptr || capture->stream != stream) Misuse(__func__, "nothing is recorded");
  const std::unique_ptr<Capture> done(capture);
  capture = nullptr;
  *graph = nullptr;
  ENTER(true);
  if (done->broken) return kCaptureInvalidated;
  *graph = reinterpret_cast<CuGraph>(new Graph{std::move(done->work)});
  live.insert(*graph);
  ++State().graphs;
  return 0;
}
CuResult cuGraphInstantiateWithFlags(CuGraphExec* exec, CuGraph graph, unsigned long long) {
  ENTER(true);
  CheckLive(__func__, graph);
  *exec = reinterpret_cast<CuGraphExec>(new Graph(*reinterpret_cast<Graph*>(graph)));
  live.insert(*exec);
  ++State().graphs;
  return 0;
}
CuResult cuGraphLaunch(CuGraphExec exec, CuStream stream) {
  ENTER(true);
  CheckLive(__func__, exec);
  CheckLive(__func__, stream);
  for (const Work& work : reinterpret_cast<Graph*>(exec)->work) {
    if (const CuResult error = work()) return error;
  }
  return 0;
}
CuResult cuGraphExecDestroy(CuGraphExec exec) {
  ENTER(true);
  CheckLive(__func__, exec);
  live.erase(exec);
  delete reinterpret_cast<Graph*>(exec);
  --State().graphs;
  return 0;
}
CuResult cuGraphDestroy(CuGraph graph) {
  ENTER(true);
  CheckLive(__func__, graph);
  live.erase(graph);
  delete reinterpret_cast<Graph*>(graph);
  --State().graphs;
  return 0;
}

}  // extern "C"
