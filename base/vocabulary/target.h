// The target that code is made for. Each row of the table in target.cc is the grammar of one kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle {

enum class TargetKind { kLlvm, kCuda };

// The kind of the hosts themselves. Every worker has the compiler for it, because LLVM is linked
// into it; the compilers of other kinds are found on some hosts only.
inline constexpr TargetKind kHostKind = TargetKind::kLlvm;

const std::vector<TargetKind>& TargetKinds();
// The name of a kind is the first word of its targets: "llvm", "cuda".
const std::string& KindName(TargetKind kind);
// The name of the kind of a target, from its text. A kind that does not exist has a name, too.
inline std::string_view KindOf(std::string_view target) {
  return target.substr(0, target.find(' '));
}

// Text form, options in canonical order:
//   llvm -mcpu=znver5 [-mattr=+a,-b] [-triple=..] [-threads=N] [-winograd=off]
//   cuda -arch=sm_90 [-tf32=on]
// Two targets are the same if and only if their canonical texts are. `native`, the default, is this
// machine's CPU or first GPU: before a target is stored anywhere, codegen::ResolveTarget replaces it
// by the real name and, of a CPU, the features in which this machine differs from it.
struct Target {
  TargetKind kind = kHostKind;
  std::string cpu = "native";  // CPU name, or GPU architecture
  std::string attrs{};         // "+avx512f,-avx512vl"
  std::string triple{};        // empty: this machine's
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
