// A CUDA driver without a GPU, for tests of what drives one: "device" memory is the host's, time is
// counted in calls, and every misuse that it can see (a context that is not current, memory of
// nobody, a handle twice destroyed, a copy out of bounds) ends the process with a line. Built as a
// library of its own, loaded in place of libcuda.so.1 (HEDDLE_CUDA_DRIVER); a test in the same
// process controls it through FakeCuda(). Like a real driver it names a thread of its own when it
// starts, and fails if it cannot.
//
// Code of the fake NVRTC (tests/codegen/cuda/fake_nvrtc.cc) it runs, on this CPU, before
// `on_launch` sees the launch; the device's clock then goes on as long as that takes, and accesses
// that a GPU would not align are its error. What is recorded into a graph runs when that is launched.
//
// Without a test in the same process, HEDDLE_FAKE_CUDA_FAIL="cuLaunchKernel:3:700" makes the third
// call of a function fail; HEDDLE_FAKE_CUDA_VERSION=12040 makes it a driver that knows CUDA 12.4.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace heddle::test {

struct FakeLaunch {
  std::string symbol;
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  unsigned shared_bytes = 0;
  void** arguments = nullptr;
};

struct FakeCudaState {
  // What a launch does and how long it takes; nothing and 1000 ns unless a test says otherwise or
  // there is code.
  std::function<void(const FakeLaunch&)> on_launch;
  std::function<double(const FakeLaunch&)> launch_ns;
  int64_t memory_limit = int64_t{1} << 30;
  int devices = 1;
  int minor = 0;  // of the architecture: sm_90
  // The `nth` call from now on of a function gives this error; a sticky one, all later calls of all
  // functions do.
  struct Failure {
    int nth = 0;
    int error = 0;
  };
  std::map<std::string, Failure> failures;
  std::map<std::string, std::vector<int32_t>> variables;  // of every module, by name
  int sticky = 0;

  std::vector<std::string> calls;  // names, in order
  std::map<uint64_t, size_t> device_memory;
  std::map<void*, size_t> host_memory;
  int contexts = 0, modules = 0, streams = 0, events = 0, graphs = 0;
  double now_ns = 0;

  // "" or what was not given back.
  std::string Leaks() const {
    std::string text;
    const auto add = [&text](const char* what, size_t count) {
      if (count > 0) text += std::to_string(count) + " " + what + "; ";
    };
    add("blocks of device memory", device_memory.size());
    add("blocks of host memory", host_memory.size());
    add("contexts", static_cast<size_t>(contexts));
    add("modules", static_cast<size_t>(modules));
    add("streams", static_cast<size_t>(streams));
    add("events", static_cast<size_t>(events));
    add("graphs", static_cast<size_t>(graphs));
    return text;
  }
  int Count(const std::string& name) const {
    int count = 0;
    for (const std::string& call : calls) count += call == name;
    return count;
  }
};

inline constexpr int kHasCode = 15;  // of an ELF header's bytes: the last that nobody uses

// The state of the library at `path`, which HEDDLE_CUDA_DRIVER names.
inline FakeCudaState& FakeCuda(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  auto* get = reinterpret_cast<FakeCudaState* (*)()>(dlsym(library, "fake_cuda_state"));
  return *get();
}

// The smallest file that passes for a cubin: an ELF header; after it code that the driver runs, if
// there is any (a HostKernel of each kernel, tests/codegen/cuda/host_code.h).
inline std::string FakeCubin(const std::string& code = "") {
  std::string header(64, '\0');
  header.replace(0, 7, "\177ELF\2\1\1");
  header[18] = static_cast<char>(190);  // e_machine: EM_CUDA
  header[58] = 64;                      // e_shentsize
  if (code.empty()) return header;
  header[kHasCode] = 1;
  const uint64_t size = code.size();
  return header + std::string(reinterpret_cast<const char*>(&size), sizeof size) + code;
}

}  // namespace heddle::test
