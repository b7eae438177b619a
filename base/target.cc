#include "base/target.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"

namespace heddle {
namespace {

constexpr int kMaxThreads = 256;        // more is a mistyped number, not a machine
constexpr size_t kMaxTextBytes = 4096;  // lists of features are long, but not longer

absl::Status Bad(const std::string& message) {
  return absl::InvalidArgumentError("target: " + message);
}

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (char c : text) {
    if (std::isspace(static_cast<unsigned char>(c))) {
      if (!word.empty()) words.push_back(std::move(word));
      word.clear();
    } else {
      word += c;
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

bool IsPlainName(const std::string& s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.';
  });
}

// Sorted by name, the last mention of a feature wins: equal feature sets get equal text.
absl::StatusOr<std::string> CanonicalAttrs(const std::string& text) {
  std::map<std::string, char> features;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    if (item.empty()) continue;
    if ((item[0] != '+' && item[0] != '-') || !IsPlainName(item.substr(1))) {
      return Bad("-mattr wants a list like +avx2,-fma, not '" + item + "'");
    }
    features[item.substr(1)] = item[0];
  }
  std::string out;
  for (const auto& [name, sign] : features) {
    if (!out.empty()) out += ',';
    out += sign;
    out += name;
  }
  return out;
}

absl::StatusOr<int> ParseThreads(const std::string& value) {
  int threads = 0;
  const char* end = value.data() + value.size();
  auto [p, error] = std::from_chars(value.data(), end, threads);
  if (error != std::errc() || p != end || threads < 1 || threads > kMaxThreads) {
    return Bad("-threads wants 1.." + std::to_string(kMaxThreads) + ", not '" + value + "'");
  }
  return threads;
}

absl::Status SetLlvmOption(const std::string& key, const std::string& value, Target& target) {
  if (key == "-mcpu") {
    if (!IsPlainName(value)) return Bad("-mcpu wants a CPU name, not '" + value + "'");
    target.cpu = value;
  } else if (key == "-mattr") {
    HEDDLE_ASSIGN_OR_RETURN(target.attrs, CanonicalAttrs(value));
  } else if (key == "-triple") {
    if (!IsPlainName(value))
      return Bad("-triple wants a triple like x86_64-linux-gnu, not '" + value + "'");
    target.triple = value;
  } else if (key == "-threads") {
    HEDDLE_ASSIGN_OR_RETURN(target.threads, ParseThreads(value));
  } else if (key == "-winograd") {
    if (value != "on" && value != "off")
      return Bad("-winograd wants on or off, not '" + value + "'");
    target.winograd = value == "on";
  } else {
    return Bad("unknown option '" + key +
               "' of llvm; known are -mcpu, -mattr, -triple, -threads, -winograd");
  }
  return absl::OkStatus();
}

absl::Status SetCudaOption(const std::string& key, const std::string& value, Target& target) {
  if (key == "-tf32") {
    if (value != "on" && value != "off") return Bad("-tf32 wants on or off, not '" + value + "'");
    target.tf32 = value == "on";
    return absl::OkStatus();
  }
  if (key != "-arch") return Bad("unknown option '" + key + "' of cuda; known are -arch, -tf32");
  const bool digits = value.size() > 4 && value.compare(0, 3, "sm_") == 0 &&
                      std::isdigit(static_cast<unsigned char>(value[3])) && IsPlainName(value);
  if (!digits) return Bad("-arch wants an architecture like sm_90, not '" + value + "'");
  target.cpu = value;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Target> ParseTarget(std::string_view text) {
  if (text.size() > kMaxTextBytes) return Bad("too long");
  const std::vector<std::string> words = Words(text);
  if (words.empty()) return Bad("empty; try 'llvm -mcpu=native'");
  Target target;
  if (words[0] == "cuda") {
    target.kind = TargetKind::kCuda;
    target.cpu.clear();
  } else if (words[0] != "llvm") {
    return Bad("unknown kind '" + words[0] + "'; known are llvm and cuda");
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos)
      return Bad("option '" + words[i] + "' wants a value: -name=value");
    const std::string key = words[i].substr(0, equals), value = words[i].substr(equals + 1);
    HEDDLE_RETURN_IF_ERROR(target.kind == TargetKind::kLlvm ? SetLlvmOption(key, value, target)
                                                            : SetCudaOption(key, value, target));
  }
  if (target.cpu.empty()) return Bad("cuda wants -arch, e.g. 'cuda -arch=sm_90'");
  return target;
}

std::string ToText(const Target& target) {
  if (target.kind == TargetKind::kCuda)
    return "cuda -arch=" + target.cpu + (target.tf32 ? " -tf32=on" : "");
  std::string out = "llvm -mcpu=" + target.cpu;
  if (!target.attrs.empty()) out += " -mattr=" + target.attrs;
  if (!target.triple.empty()) out += " -triple=" + target.triple;
  if (target.threads != 1) out += " -threads=" + std::to_string(target.threads);
  if (!target.winograd) out += " -winograd=off";
  return out;
}

DeviceNeeds NeedsOf(const Target& target) {
  Target device = target;
  device.threads = 1;
  device.winograd = true;
  device.tf32 = false;
  return {ToText(device), target.kind == TargetKind::kCuda ? 0 : target.threads};
}

}  // namespace heddle
