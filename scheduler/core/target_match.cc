#include "scheduler/core/target_match.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace heddle::scheduler {
namespace {

constexpr int kMaxThreads = 256;          // as base/target.h
constexpr size_t kMaxTargetBytes = 4096;  // feature lists are long, but not longer

bool KnownOption(absl::string_view kind, absl::string_view name) {
  if (kind == "cuda") return name == "-arch" || name == "-tf32";
  return name == "-mcpu" || name == "-mattr" || name == "-triple" || name == "-threads" ||
         name == "-winograd";
}

}  // namespace

absl::StatusOr<TargetNeeds> ParseTargetNeeds(std::string_view target) {
  const absl::string_view text(target.data(), target.size());
  if (text.size() > kMaxTargetBytes) return absl::InvalidArgumentError("target: too long");
  std::vector<absl::string_view> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  if (words.empty()) {
    return absl::InvalidArgumentError("target: empty; give for example \"llvm -mcpu=znver4\"");
  }
  const absl::string_view kind = words[0];
  if (kind != "llvm" && kind != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("target \"", text, "\": unknown kind \"", kind, "\"; known: llvm, cuda"));
  }
  TargetNeeds needs;
  needs.threads = kind == "cuda" ? 0 : 1;
  std::vector<absl::string_view> kept = {kind};
  bool has_processor = false;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> option =
        absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    if (!KnownOption(kind, option.first) || option.second.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("target \"", text, "\": option \"", words[i], "\" is not understood"));
    }
    if (option.first == "-threads") {
      if (!absl::SimpleAtoi(option.second, &needs.threads) || needs.threads < 1 ||
          needs.threads > kMaxThreads) {
        return absl::InvalidArgumentError(
            absl::StrCat("target \"", text, "\": -threads must be 1..", kMaxThreads));
      }
      continue;
    }
    // What a device is does not depend on these.
    if (option.first == "-winograd" || option.first == "-tf32") continue;
    if (option.first == "-mcpu" || option.first == "-arch") has_processor = true;
    if (option.second == "native") {
      return absl::InvalidArgumentError(
          absl::StrCat("target \"", text, "\": \"native\" must be resolved before submitting"));
    }
    kept.push_back(words[i]);
  }
  if (!has_processor) {
    return absl::InvalidArgumentError(absl::StrCat("target \"", text, "\": names no processor (",
                                                   kind == "cuda" ? "-arch=" : "-mcpu=", "..)"));
  }
  needs.device_target = absl::StrJoin(kept, " ");
  return needs;
}

}  // namespace heddle::scheduler
