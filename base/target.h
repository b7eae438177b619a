// The target that code is made for. Each row of the table in target.cc is the grammar of one kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace heddle {

enum class TargetKind { kLlvm, kCuda };

// Text form, options in canonical order:
//   llvm -mcpu=znver5 [-mattr=+a,-b] [-triple=..] [-threads=N] [-winograd=off]
//   cuda -arch=sm_90 [-tf32=on]
// Two targets are the same if and only if their canonical texts are. Before a target is stored
// anywhere, codegen::ResolveTarget replaces `-mcpu=native` by the real name and the features in
// which this machine differs from it.
struct Target {
  TargetKind kind = TargetKind::kLlvm;
  std::string cpu = "native";  // CPU name, or GPU architecture
  std::string attrs;           // "+avx512f,-avx512vl"
  std::string triple;          // empty: this machine's
  int threads = 1;             // threads a kernel may use, 1..256
  // Approximations that kernels may take (runtime/numerics.h).
  bool winograd = true;  // Winograd's form of convolutions
  bool tf32 = false;     // products of f32 rounded to tf32
};

// InvalidArgument names the option that is not understood and lists the known ones.
absl::StatusOr<Target> ParseTarget(std::string_view text);
std::string ToText(const Target& target);

// What a device slot must offer to run code of a target.
struct DeviceNeeds {
  // The target without the options that only say how its device is used: threads, Winograd, tf32.
  std::string target;
  int cores = 1;  // cores of the slot; 0 means any number (GPUs)
};
DeviceNeeds NeedsOf(const Target& target);

}  // namespace heddle
