// What code is made for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace heddle::ir {

enum class TargetKind { kLlvm, kCuda };

// Text form, canonical order: `llvm -mcpu=znver5 [-mattr=+a,-b] [-triple=..] [-threads=N]
// [-winograd=off]`, `cuda
// -arch=sm_90 [-tf32=on]`. Two targets are the same if and only if their canonical texts are.
// `-mcpu=native` is resolved to the real name (plus the features that differ from it) by
// codegen/target_info.h before a target is stored anywhere.
struct Target {
  TargetKind kind = TargetKind::kLlvm;
  std::string cpu = "native";  // CPU name, or GPU architecture
  std::string attrs;           // "+avx512f,-avx512vl"
  std::string triple;          // empty: this machine's
  int threads = 1;             // threads a kernel may use, 1..256
  bool winograd = true;        // whether convolutions may take Winograd's form, which is less exact
  bool tf32 = false;           // whether products of f32 may round to tf32, which is less exact
};

// InvalidArgument naming the option that is not understood and what is.
absl::StatusOr<Target> ParseTarget(std::string_view text);
std::string ToText(const Target& target);

// The numbers schedules need to know of a target. Filled by codegen/target_info.h; the values here
// suit any CPU.
struct TargetInfo {
  Target target;
  int vector_bytes = 16;  // widest vector register worth using
  int vector_registers = 16;
  int64_t l1_bytes = 32 << 10;  // per core
  int64_t l2_bytes = 1 << 20;   // per core
  // GPU only; by architecture from codegen/gpu_arch.h.
  int max_threads_per_block = 1024;
  int64_t shared_bytes_per_block = 48 << 10;  // the most a block may ask for, static and dynamic
  int warp_size = 32;
  int max_registers_per_thread = 255;     // 32-bit ones
  int registers_per_block = 64 << 10;     // likewise
  int multiprocessors = 1;                // of the usual device of the architecture
  int threads_per_multiprocessor = 2048;  // resident at a time
  int64_t shared_bytes_per_multiprocessor = 64 << 10;
  bool async_copies = false;  // global to shared memory, past the registers (sm_80 and later)
  bool tensor_cores = false;  // for f16, bf16 and tf32 (sm_80 and later)
};

}  // namespace heddle::ir
