// CUDA C++ as code for this CPU: compiled by the C++ compiler that built the tests, with the
// threads of a block as threads and tensor cores, warp shuffles and asynchronous copies as PTX
// defines them (cuda_host_shim.h). Uses nothing of ours but the prelude: the fake NVRTC and driver
// are made of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::testing {

// Whether that compiler is there.
bool HasHostCompiler();

// A shared object of the source, which is what the back end gives to NVRTC: the prelude, then
// kernels. Of each kernel it has a function "run_" and the kernel's name, a HostKernel. Empty if
// the source does not compile; `log` receives what the compiler said.
std::string CompileForHost(const std::string& source, std::string* log);

// Arguments as the driver takes them, a pointer to each; grid, then block. The number of accesses
// that are not aligned as PTX asks.
using HostKernel = int (*)(void* const* arguments, const unsigned* dims);

// dlopen's handle of a shared object in memory; null if it does not load.
void* LoadHostCode(std::string_view shared_object);

// The kernels of a source, by name.
HostKernel FindHostKernel(void* code, const std::string& name);

// A variable of a source, by name; null if there is none.
struct HostVariable {
  const void* address = nullptr;
  size_t bytes = 0;
};
HostVariable FindHostVariable(void* code, const std::string& name);

// What a kernel takes as the map of a matrix of 16-bit numbers (prelude.h, h_map), with boxes of so
// many rows.
struct alignas(128) HostMap {
  uint64_t address = 0, width = 0, height = 0, rows = 0;
  uint64_t unused[12] = {};
};

}  // namespace heddle::testing
