// What code is made for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace heddle {

enum class TargetKind { kLlvm, kCuda };

// The canonical text is one of
//   llvm -mcpu=znver5 [-mattr=+a,-b] [-triple=..] [-threads=N] [-winograd=off]
//   cuda -arch=sm_90 [-tf32=on]
// with the options in this order. Two targets are the same if and only if their canonical texts
// are. compiler/codegen/target_info.h resolves `-mcpu=native` to the real name, plus the features
// that differ from it, before a target is stored anywhere.
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

// What a device slot must be to run code of a target.
struct DeviceNeeds {
  // The target without the options that only say how its device is used: threads, Winograd, tf32.
  std::string target;
  int cores = 1;  // of the slot; 0: any number (GPUs)
};
DeviceNeeds NeedsOf(const Target& target);

}  // namespace heddle
