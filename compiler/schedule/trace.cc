#include "compiler/schedule/trace.h"

#include <array>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/primitives/primitives.h"

namespace heddle::schedule {

namespace {

absl::StatusOr<ir::Scope> ParseScope(const std::string& word) {
  if (word == "global") return ir::Scope::kGlobal;
  if (word == "shared") return ir::Scope::kShared;
  if (word == "local") return ir::Scope::kLocal;
  return absl::InvalidArgumentError(
      absl::StrCat("`", word, "` is not a scope (global, shared, local)"));
}

using Names = std::vector<std::string>;
using Apply = absl::StatusOr<Rewritten> (*)(const ir::Program& p, const Step& step);

// Appliers of primitives by their arguments: one name (a loop or a block), two, or a list.
template <absl::StatusOr<Rewritten> (*fn)(const ir::Program&, const std::string&)>
absl::StatusOr<Rewritten> One(const ir::Program& p, const Step& step) {
  return fn(p, step.names[0]);
}
template <absl::StatusOr<Rewritten> (*fn)(const ir::Program&, const std::string&,
                                          const std::string&)>
absl::StatusOr<Rewritten> Two(const ir::Program& p, const Step& step) {
  return fn(p, step.names[0], step.names[1]);
}
template <absl::StatusOr<Rewritten> (*fn)(const ir::Program&, const Names&)>
absl::StatusOr<Rewritten> Many(const ir::Program& p, const Step& step) {
  return fn(p, step.names);
}

absl::StatusOr<Rewritten> ApplySplit(const ir::Program& p, const Step& step) {
  return Split(p, step.names[0], step.ints);
}

absl::StatusOr<Rewritten> ApplyCacheRead(const ir::Program& p, const Step& step) {
  HEDDLE_ASSIGN_OR_RETURN(const ir::Scope scope, ParseScope(step.names[2]));
  return CacheRead(p, step.names[0], step.names[1], scope);
}

absl::StatusOr<Rewritten> ApplyCacheWrite(const ir::Program& p, const Step& step) {
  HEDDLE_ASSIGN_OR_RETURN(const ir::Scope scope, ParseScope(step.names[1]));
  return CacheWrite(p, step.names[0], scope);
}

absl::StatusOr<Rewritten> ApplySetScope(const ir::Program& p, const Step& step) {
  HEDDLE_ASSIGN_OR_RETURN(const ir::Scope scope, ParseScope(step.names[1]));
  return SetScope(p, step.names[0], scope);
}

absl::StatusOr<Rewritten> ApplyBind(const ir::Program& p, const Step& step) {
  const auto axis = ir::LoopKindFromName(step.names[1]);
  if (!axis)
    return absl::InvalidArgumentError(absl::StrCat("`", step.names[1], "` is not a GPU axis"));
  return Bind(p, step.names[0], *axis);
}

absl::StatusOr<Rewritten> ApplyPack(const ir::Program& p, const Step& step) {
  return Pack(p, step.names[0], step.names[1], step.ints);
}

absl::StatusOr<Rewritten> ApplyWinograd(const ir::Program& p, const Step& step) {
  if (step.ints.size() != 1)
    return absl::InvalidArgumentError("`winograd` takes one integer, the size of a tile");
  return Winograd(p, step.names[0], step.ints[0]);
}

// How a step is written and applied: a keyword, a number of names (kMany: two or more), and whether
// integers follow. In the order of Primitive.
struct Spelling {
  Primitive primitive;
  std::string_view word;
  int names;
  bool ints;
  Apply apply;
};
constexpr int kMany = -1;
constexpr std::array<Spelling, 20> kSpellings = {{
    {Primitive::kSplit, "split", 1, true, ApplySplit},
    {Primitive::kFuse, "fuse", kMany, false, Many<Fuse>},
    {Primitive::kReorder, "reorder", kMany, false, Many<Reorder>},
    {Primitive::kComputeAt, "compute_at", 2, false, Two<ComputeAt>},
    {Primitive::kReverseComputeAt, "reverse_compute_at", 2, false, Two<ReverseComputeAt>},
    {Primitive::kComputeInline, "compute_inline", 1, false, One<ComputeInline>},
    {Primitive::kReverseComputeInline, "reverse_compute_inline", 1, false,
     One<ReverseComputeInline>},
    {Primitive::kCacheRead, "cache_read", 3, false, ApplyCacheRead},
    {Primitive::kCacheWrite, "cache_write", 2, false, ApplyCacheWrite},
    {Primitive::kDecomposeReduction, "decompose_reduction", 2, false, Two<DecomposeReduction>},
    {Primitive::kRfactor, "rfactor", 2, false, Two<Rfactor>},
    {Primitive::kParallel, "parallel", 1, false, One<Parallel>},
    {Primitive::kVectorize, "vectorize", 1, false, One<Vectorize>},
    {Primitive::kUnroll, "unroll", 1, false, One<Unroll>},
    {Primitive::kBind, "bind", 2, false, ApplyBind},
    {Primitive::kSetScope, "set_scope", 2, false, ApplySetScope},
    {Primitive::kPack, "pack", 2, true, ApplyPack},
    {Primitive::kWinograd, "winograd", 1, true, ApplyWinograd},
    {Primitive::kTf32, "tf32", 1, false, One<Tf32>},
    {Primitive::kTensorize, "tensorize", 1, false, One<Tensorize>},
}};

// Traces come from records of strangers: longer ones are not schedules. A schedule has some fifty steps with as many factors. Each factor
// may add a level to a nest of loops, which passes walk by recursion.
constexpr size_t kMaxSteps = 1000;
constexpr size_t kMaxFactors = 500;  // of all steps together

const Spelling& SpellingOf(Primitive primitive) {
  return kSpellings[static_cast<size_t>(primitive)];
}

std::string StepText(const Step& step) {
  std::string text(SpellingOf(step.primitive).word);
  for (const std::string& name : step.names) absl::StrAppend(&text, " ", name);
  for (int64_t value : step.ints) absl::StrAppend(&text, " ", value);
  return text;
}

std::vector<std::string> Words(std::string_view line) {
  std::vector<std::string> words;
  size_t i = 0;
  while (i < line.size()) {
    size_t begin = line.find_first_not_of(" \t\r", i);
    if (begin == std::string_view::npos) break;
    size_t end = line.find_first_of(" \t\r", begin);
    if (end == std::string_view::npos) end = line.size();
    words.emplace_back(line.substr(begin, end - begin));
    i = end;
  }
  return words;
}

absl::StatusOr<Step> ParseStep(const std::vector<std::string>& words) {
  for (const Spelling& spelling : kSpellings) {
    if (words[0] != spelling.word) continue;
    Step step{spelling.primitive, {}, {}};
    size_t names = spelling.names == kMany ? words.size() - 1 : static_cast<size_t>(spelling.names);
    if (words.size() - 1 < names || (spelling.names == kMany && names < 2) ||
        (spelling.ints ? words.size() - 1 == names : words.size() - 1 != names)) {
      return absl::InvalidArgumentError(
          absl::StrCat("`", words[0], "` has the wrong number of arguments"));
    }
    step.names.assign(words.begin() + 1, words.begin() + 1 + names);
    for (size_t i = 1 + names; i < words.size(); ++i) {
      int64_t value = 0;
      const char* end = words[i].data() + words[i].size();
      auto result = std::from_chars(words[i].data(), end, value);
      if (result.ec != std::errc() || result.ptr != end) {
        return absl::InvalidArgumentError(absl::StrCat("`", words[i], "` is not an integer"));
      }
      step.ints.push_back(value);
    }
    return step;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown primitive `", words[0], "`"));
}

absl::Status CheckArguments(const Step& step) {
  const Spelling& spelling = SpellingOf(step.primitive);
  bool fits = spelling.names == kMany ? step.names.size() >= 2
                                      : step.names.size() == static_cast<size_t>(spelling.names);
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("`", StepText(step), "` has the wrong number of arguments"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ToText(const Trace& trace) {
  std::string text;
  for (const Step& step : trace.steps) absl::StrAppend(&text, StepText(step), "\n");
  return text;
}

absl::StatusOr<Trace> ParseTrace(std::string_view text) {
  Trace trace;
  size_t factors = 0;
  int line_number = 0;
  while (!text.empty()) {
    ++line_number;
    size_t end = text.find('\n');
    std::vector<std::string> words = Words(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (words.empty()) continue;
    auto step = ParseStep(words);
    if (!step.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("trace line ", line_number, ": ", step.status().message()));
    }
    if (trace.steps.size() == kMaxSteps) {
      return absl::InvalidArgumentError(
          absl::StrCat("trace line ", line_number, ": more than ", kMaxSteps, " steps"));
    }
    factors += step->ints.size();
    if (factors > kMaxFactors) {
      return absl::InvalidArgumentError(
          absl::StrCat("trace line ", line_number, ": more than ", kMaxFactors, " factors"));
    }
    trace.steps.push_back(*std::move(step));
  }
  return trace;
}

absl::StatusOr<Rewritten> ApplyStep(const ir::Program& program, const Step& step) {
  HEDDLE_RETURN_IF_ERROR(CheckArguments(step));
  return SpellingOf(step.primitive).apply(program, step);
}

absl::Status StepError(size_t index, const Step& step, const absl::Status& error) {
  return absl::Status(
      error.code(), absl::StrCat("step ", index + 1, " `", StepText(step), "`: ", error.message()));
}

absl::StatusOr<ir::Program> Replay(const ir::Program& naive, const Trace& trace) {
  ir::Program program = naive;
  for (size_t i = 0; i < trace.steps.size(); ++i) {
    auto next = ApplyStep(program, trace.steps[i]);
    if (!next.ok()) return StepError(i, trace.steps[i], next.status());
    program = std::move(next->program);
  }
  return program;
}

}  // namespace heddle::schedule
