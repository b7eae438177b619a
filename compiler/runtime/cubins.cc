#include "compiler/runtime/cubins.h"

#include <cstdint>
#include <cstring>

namespace heddle::runtime {
namespace {

// Several cubins: this name, their number, and the size of each, as 64-bit integers; then each at
// the next multiple of kAlignment bytes.
constexpr std::string_view kName = "\x7fHEDGPU1";
constexpr uint64_t kAlignment = 64;

void PutU64(uint64_t value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}
uint64_t GetU64(std::string_view bytes, uint64_t at) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
uint64_t Aligned(uint64_t at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::string JoinCubins(const std::vector<std::string>& cubins) {
  if (cubins.size() == 1) return cubins[0];
  std::string code(kName);
  PutU64(cubins.size(), &code);
  for (const std::string& cubin : cubins) PutU64(cubin.size(), &code);
  for (const std::string& cubin : cubins) {
    code.resize(Aligned(code.size()));
    code += cubin;
  }
  return code;
}

absl::StatusOr<std::vector<std::string_view>> SplitCubins(std::string_view code) {
  if (code.substr(0, kName.size()) != kName) return std::vector<std::string_view>{code};
  const absl::Status damaged = absl::InvalidArgumentError("GPU code (several cubins) is truncated");
  uint64_t at = kName.size() + sizeof(uint64_t);
  if (code.size() < at) return damaged;
  const uint64_t count = GetU64(code, kName.size());
  if (count > (code.size() - at) / sizeof(uint64_t)) return damaged;
  uint64_t begin = at + count * sizeof(uint64_t);
  std::vector<std::string_view> cubins;
  for (uint64_t k = 0; k < count; ++k, at += sizeof(uint64_t)) {
    const uint64_t size = GetU64(code, at);
    begin = Aligned(begin);
    if (begin > code.size() || size > code.size() - begin) return damaged;
    cubins.push_back(code.substr(begin, size));
    begin += size;
  }
  return cubins;
}

}  // namespace heddle::runtime
