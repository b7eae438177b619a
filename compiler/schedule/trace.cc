#include "compiler/schedule/trace.h"

#include <array>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/primitives/primitives.h"

namespace heddle::schedule {

namespace {

// How a step is written: a keyword, a number of names (kMany: two or more), and whether integers
// follow.
struct Form {
  Primitive primitive;
  std::string_view word;
  int names;
  bool ints;
};
constexpr int kMany = -1;
constexpr std::array<Form, 20> kForms = {{
    {Primitive::kSplit, "split", 1, true},
    {Primitive::kFuse, "fuse", kMany, false},
    {Primitive::kReorder, "reorder", kMany, false},
    {Primitive::kComputeAt, "compute_at", 2, false},
    {Primitive::kReverseComputeAt, "reverse_compute_at", 2, false},
    {Primitive::kComputeInline, "compute_inline", 1, false},
    {Primitive::kReverseComputeInline, "reverse_compute_inline", 1, false},
    {Primitive::kCacheRead, "cache_read", 3, false},
    {Primitive::kCacheWrite, "cache_write", 2, false},
    {Primitive::kDecomposeReduction, "decompose_reduction", 2, false},
    {Primitive::kRfactor, "rfactor", 2, false},
    {Primitive::kParallel, "parallel", 1, false},
    {Primitive::kVectorize, "vectorize", 1, false},
    {Primitive::kUnroll, "unroll", 1, false},
    {Primitive::kBind, "bind", 2, false},
    {Primitive::kSetScope, "set_scope", 2, false},
    {Primitive::kPack, "pack", 2, true},
    {Primitive::kWinograd, "winograd", 1, true},
    {Primitive::kTf32, "tf32", 1, false},
    {Primitive::kTensorize, "tensorize", 1, false},
}};

// A trace is read from strangers' records: longer ones are not schedules.
constexpr size_t kMaxSteps = 10'000;

const Form& FormOf(Primitive primitive) { return kForms[static_cast<size_t>(primitive)]; }

std::string StepText(const Step& step) {
  std::string text(FormOf(step.primitive).word);
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
  for (const Form& form : kForms) {
    if (words[0] != form.word) continue;
    Step step{form.primitive, {}, {}};
    size_t names = form.names == kMany ? words.size() - 1 : static_cast<size_t>(form.names);
    if (words.size() - 1 < names || (form.names == kMany && names < 2) ||
        (form.ints ? words.size() - 1 == names : words.size() - 1 != names)) {
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

absl::StatusOr<ir::Scope> ParseScope(const std::string& word) {
  if (word == "global") return ir::Scope::kGlobal;
  if (word == "shared") return ir::Scope::kShared;
  if (word == "local") return ir::Scope::kLocal;
  return absl::InvalidArgumentError(
      absl::StrCat("`", word, "` is not a scope (global, shared, local)"));
}

absl::Status CheckArguments(const Step& step) {
  const Form& form = FormOf(step.primitive);
  bool fits = form.names == kMany ? step.names.size() >= 2
                                  : step.names.size() == static_cast<size_t>(form.names);
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
    trace.steps.push_back(*std::move(step));
  }
  return trace;
}

absl::StatusOr<Rewritten> ApplyStep(const ir::Program& program, const Step& step) {
  HEDDLE_RETURN_IF_ERROR(CheckArguments(step));
  const std::vector<std::string>& names = step.names;
  switch (step.primitive) {
    case Primitive::kSplit:
      return Split(program, names[0], step.ints);
    case Primitive::kFuse:
      return Fuse(program, names);
    case Primitive::kReorder:
      return Reorder(program, names);
    case Primitive::kComputeAt:
      return ComputeAt(program, names[0], names[1]);
    case Primitive::kReverseComputeAt:
      return ReverseComputeAt(program, names[0], names[1]);
    case Primitive::kComputeInline:
      return ComputeInline(program, names[0]);
    case Primitive::kReverseComputeInline:
      return ReverseComputeInline(program, names[0]);
    case Primitive::kCacheRead: {
      HEDDLE_ASSIGN_OR_RETURN(ir::Scope scope, ParseScope(names[2]));
      return CacheRead(program, names[0], names[1], scope);
    }
    case Primitive::kCacheWrite: {
      HEDDLE_ASSIGN_OR_RETURN(ir::Scope scope, ParseScope(names[1]));
      return CacheWrite(program, names[0], scope);
    }
    case Primitive::kDecomposeReduction:
      return DecomposeReduction(program, names[0], names[1]);
    case Primitive::kRfactor:
      return Rfactor(program, names[0], names[1]);
    case Primitive::kParallel:
      return Parallel(program, names[0]);
    case Primitive::kVectorize:
      return Vectorize(program, names[0]);
    case Primitive::kUnroll:
      return Unroll(program, names[0]);
    case Primitive::kBind: {
      auto axis = ir::LoopKindFromName(names[1]);
      if (!axis)
        return absl::InvalidArgumentError(absl::StrCat("`", names[1], "` is not a GPU axis"));
      return Bind(program, names[0], *axis);
    }
    case Primitive::kSetScope: {
      HEDDLE_ASSIGN_OR_RETURN(ir::Scope scope, ParseScope(names[1]));
      return SetScope(program, names[0], scope);
    }
    case Primitive::kPack:
      return Pack(program, names[0], names[1], step.ints);
    case Primitive::kWinograd:
      if (step.ints.size() != 1) {
        return absl::InvalidArgumentError("`winograd` takes one integer, the size of a tile");
      }
      return Winograd(program, names[0], step.ints[0]);
    case Primitive::kTf32:
      return Tf32(program, names[0]);
    case Primitive::kTensorize:
      return Tensorize(program, names[0]);
  }
  return absl::InvalidArgumentError("unknown primitive");
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
