#include "base/vocabulary/target.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"

namespace heddle {
namespace {

constexpr int kMaxThreads = 256;  // a larger number is a typing error
constexpr char kThreads[] = "-threads";
constexpr size_t kMaxTextBytes = 4096;  // enough for the longest list of features

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

// Sorts the features by name; the last mention of a feature wins. Equal feature sets get equal
// text.
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

absl::StatusOr<bool> ParseSwitch(const std::string& name, const std::string& value) {
  if (value != "on" && value != "off") return Bad(name + " wants on or off, not '" + value + "'");
  return value == "on";
}

struct Option {
  std::string name;
  absl::Status (*read)(const std::string& value, Target& target);
  // The value as canonical text; empty if canonical text omits the option.
  std::string (*write)(const Target& target);
};

// The first word of a target, and the options that may follow, in canonical order.
struct Grammar {
  TargetKind kind;
  std::string name;
  std::vector<Option> options;
};

const std::vector<Grammar>& Grammars() {
  static const auto& grammars = *new std::vector<Grammar>{
      {TargetKind::kLlvm,
       "llvm",
       {{"-mcpu",
         [](const std::string& value, Target& target) {
           if (!IsPlainName(value)) return Bad("-mcpu wants a CPU name, not '" + value + "'");
           target.cpu = value;
           return absl::OkStatus();
         },
         [](const Target& target) { return target.cpu; }},
        {"-mattr",
         [](const std::string& value, Target& target) {
           HEDDLE_ASSIGN_OR_RETURN(target.attrs, CanonicalAttrs(value));
           return absl::OkStatus();
         },
         [](const Target& target) { return target.attrs; }},
        {"-triple",
         [](const std::string& value, Target& target) {
           if (!IsPlainName(value))
             return Bad("-triple wants a triple like x86_64-linux-gnu, not '" + value + "'");
           target.triple = value;
           return absl::OkStatus();
         },
         [](const Target& target) { return target.triple; }},
        {kThreads,
         [](const std::string& value, Target& target) {
           HEDDLE_ASSIGN_OR_RETURN(target.threads, ParseThreads(value));
           return absl::OkStatus();
         },
         [](const Target& target) {
           return target.threads == 1 ? "" : std::to_string(target.threads);
         }},
        {"-winograd",
         [](const std::string& value, Target& target) {
           HEDDLE_ASSIGN_OR_RETURN(target.winograd, ParseSwitch("-winograd", value));
           return absl::OkStatus();
         },
         [](const Target& target) { return std::string(target.winograd ? "" : "off"); }}}},
      {TargetKind::kCuda,
       "cuda",
       {{"-arch",
         [](const std::string& value, Target& target) {
           const bool digits = value.size() > 4 && value.compare(0, 3, "sm_") == 0 &&
                               std::isdigit(static_cast<unsigned char>(value[3])) &&
                               IsPlainName(value);
           if (!digits && value != "native")
             return Bad("-arch wants an architecture like sm_90, or native, not '" + value + "'");
           target.cpu = value;
           return absl::OkStatus();
         },
         [](const Target& target) { return target.cpu; }},
        {"-tf32",
         [](const std::string& value, Target& target) {
           HEDDLE_ASSIGN_OR_RETURN(target.tf32, ParseSwitch("-tf32", value));
           return absl::OkStatus();
         },
         [](const Target& target) { return std::string(target.tf32 ? "on" : ""); }}}}};
  return grammars;
}

const Grammar& GrammarOf(TargetKind kind) {
  return *std::find_if(Grammars().begin(), Grammars().end(),
                       [kind](const Grammar& grammar) { return grammar.kind == kind; });
}

absl::Status ReadOption(const Grammar& grammar, const std::string& word, Target& target) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return Bad("option '" + word + "' wants a value: -name=value");
  const std::string name = word.substr(0, equals);
  std::string known;
  for (const Option& option : grammar.options) {
    if (option.name == name) return option.read(word.substr(equals + 1), target);
    known += (known.empty() ? "" : ", ") + option.name;
  }
  return Bad("unknown option '" + name + "' of " + grammar.name + "; known are " + known);
}

}  // namespace

const std::vector<TargetKind>& TargetKinds() {
  static const auto& kinds = *[] {
    auto* all = new std::vector<TargetKind>;
    for (const Grammar& grammar : Grammars()) all->push_back(grammar.kind);
    return all;
  }();
  return kinds;
}

const std::string& KindName(TargetKind kind) { return GrammarOf(kind).name; }

absl::StatusOr<Target> ParseTarget(std::string_view text) {
  if (text.size() > kMaxTextBytes) return Bad("too long");
  const std::vector<std::string> words = Words(text);
  if (words.empty()) return Bad("empty; try 'llvm -mcpu=native'");
  std::string known;
  for (const Grammar& grammar : Grammars()) {
    known += (known.empty() ? "" : " and ") + grammar.name;
    if (grammar.name != words[0]) continue;
    Target target;
    target.kind = grammar.kind;
    for (size_t i = 1; i < words.size(); ++i)
      HEDDLE_RETURN_IF_ERROR(ReadOption(grammar, words[i], target));
    return target;
  }
  return Bad("unknown kind '" + words[0] + "'; known are " + known);
}

std::string ToText(const Target& target) {
  const Grammar& grammar = GrammarOf(target.kind);
  std::string text = grammar.name;
  for (const Option& option : grammar.options) {
    const std::string value = option.write(target);
    if (!value.empty()) text += " " + option.name + "=" + value;
  }
  return text;
}

DeviceNeeds NeedsOf(const Target& target) {
  Target device = target;
  device.threads = 1;
  device.winograd = true;
  device.tf32 = false;
  const std::vector<Option>& options = GrammarOf(target.kind).options;
  const bool counts_threads = std::any_of(options.begin(), options.end(),
                                          [](const Option& o) { return o.name == kThreads; });
  return {ToText(device), counts_threads ? target.threads : 0};
}

}  // namespace heddle
