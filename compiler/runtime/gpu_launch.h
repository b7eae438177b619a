// One grid of a compiled GPU kernel: what the runtime needs besides the cubin. Includes no other
// header of ours.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace heddle::runtime {

// A parameter of a launch. All parameters are 64-bit device addresses.
struct GpuArgument {
  int buffer = -1;               // index into inputs, then outputs; -1: the workspace
  int64_t workspace_offset = 0;  // bytes, a multiple of 256; used if buffer == -1
  bool operator==(const GpuArgument&) const = default;
};

// One function of the cubin and how to launch it. The launches of a kernel depend on each other, so
// they run in order in one stream.
struct GpuLaunch {
  std::string symbol;                     // the function's name, unique in the cubin
  std::array<int64_t, 3> grid{1, 1, 1};   // blocks in x, y, z
  std::array<int64_t, 3> block{1, 1, 1};  // threads in x, y, z
  int64_t static_shared_bytes = 0;        // declared in the code, needs no request
  // Must be passed to the launch. Above 48 KiB, the function's attribute
  // MAX_DYNAMIC_SHARED_SIZE_BYTES (8) must be raised to it first.
  int64_t dynamic_shared_bytes = 0;
  std::vector<GpuArgument> arguments{};  // the function's parameters, in order
  // Reported by the compiler.
  int registers = 0;        // 32-bit registers of one thread
  int64_t local_bytes = 0;  // stack and spilled registers of one thread
  bool operator==(const GpuLaunch&) const = default;
};

}  // namespace heddle::runtime
