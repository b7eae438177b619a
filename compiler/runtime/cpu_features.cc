#include "compiler/runtime/cpu_features.h"

#include <cstdio>
#include <memory>
#include <set>

namespace heddle::runtime {
namespace {

struct Feature {
  std::string_view llvm;     // name in -mattr
  std::string_view cpuinfo;  // name in the flags line of /proc/cpuinfo
};

constexpr Feature kFeatures[] = {
    {"sse3", "pni"},
    {"ssse3", "ssse3"},
    {"sse4.1", "sse4_1"},
    {"sse4.2", "sse4_2"},
    {"sse4a", "sse4a"},
    {"popcnt", "popcnt"},
    {"lzcnt", "abm"},
    {"movbe", "movbe"},
    {"aes", "aes"},
    {"pclmul", "pclmulqdq"},
    {"avx", "avx"},
    {"f16c", "f16c"},
    {"fma", "fma"},
    {"bmi", "bmi1"},
    {"bmi2", "bmi2"},
    {"avx2", "avx2"},
    {"adx", "adx"},
    {"sha", "sha_ni"},
    {"gfni", "gfni"},
    {"vaes", "vaes"},
    {"vpclmulqdq", "vpclmulqdq"},
    {"avx512f", "avx512f"},
    {"avx512dq", "avx512dq"},
    {"avx512cd", "avx512cd"},
    {"avx512bw", "avx512bw"},
    {"avx512vl", "avx512vl"},
    {"avx512ifma", "avx512ifma"},
    {"avx512vbmi", "avx512vbmi"},
    {"avx512vbmi2", "avx512_vbmi2"},
    {"avx512vnni", "avx512_vnni"},
    {"avx512bitalg", "avx512_bitalg"},
    {"avx512vpopcntdq", "avx512_vpopcntdq"},
    {"avx512bf16", "avx512_bf16"},
    {"avx512fp16", "avx512_fp16"},
    {"avx512vp2intersect", "avx512_vp2intersect"},
    {"avxvnni", "avx_vnni"},
    {"avxifma", "avx_ifma"},
    {"amx-tile", "amx_tile"},
    {"amx-int8", "amx_int8"},
    {"amx-bf16", "amx_bf16"},
    {"amx-fp16", "amx_fp16"},
};

const Feature* FindFeature(std::string_view name) {
  for (const Feature& feature : kFeatures) {
    if (feature.llvm == name) return &feature;
  }
  return nullptr;
}

// The first line of /proc/cpuinfo that begins with "flags"; empty: there is none. Not by a stream of
// the standard library, which would make libheddle.so twice as large.
std::string FlagsLine() {
  const std::unique_ptr<FILE, int (*)(FILE*)> cpuinfo(std::fopen("/proc/cpuinfo", "re"),
                                                      std::fclose);
  if (cpuinfo == nullptr) return "";
  std::string line;
  for (int c; (c = std::getc(cpuinfo.get())) != EOF;) {
    if (c != '\n') {
      line += static_cast<char>(c);
    } else if (line.starts_with("flags")) {
      return line;
    } else {
      line.clear();
    }
  }
  return "";
}

std::set<std::string, std::less<>> ReadMachineFlags() {
  const std::string line = FlagsLine();
  std::set<std::string, std::less<>> flags;
  for (size_t at = line.find(':'); at != std::string::npos;) {
    at = line.find_first_not_of(" \t", at + 1);
    if (at == std::string::npos) break;
    const size_t end = line.find(' ', at);
    flags.insert(line.substr(at, end - at));
    at = end;
  }
  return flags;
}

}  // namespace

bool IsKnownCpuFeature(std::string_view feature) { return FindFeature(feature) != nullptr; }

std::vector<std::string> MissingCpuFeatures(const std::vector<std::string>& features) {
  static const auto& flags = *new std::set<std::string, std::less<>>(ReadMachineFlags());
  std::vector<std::string> missing;
  for (const std::string& name : features) {
    const Feature* feature = FindFeature(name);
    if (feature != nullptr && !flags.contains(feature->cpuinfo)) missing.push_back(name);
  }
  return missing;
}

}  // namespace heddle::runtime
