#include "compiler/plan/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace heddle::plan {
namespace {

constexpr std::string_view kFirstLine = "plan 1";
constexpr size_t kMaxBytes = 16 << 20;  // of a plan's text

std::string Quoted(std::string_view name) {
  return absl::StrCat("\"", absl::CHexEscape(absl::string_view(name.data(), name.size())), "\"");
}

// Reads one line from its beginning to its end.
class Line {
 public:
  explicit Line(absl::string_view text) : left_(text) {}

  bool AtEnd() const { return left_.empty(); }

  // The next word, up to a space.
  std::string Word() {
    const size_t end = std::min(left_.find(' '), left_.size());
    std::string word(left_.substr(0, end));
    Skip(end);
    return word;
  }

  absl::StatusOr<std::string> Name() {
    if (left_.empty() || left_[0] != '"') return Bad("a name in double quotes is missing");
    size_t end = 1;
    while (end < left_.size() && left_[end] != '"') end += left_[end] == '\\' ? 2 : 1;
    if (end >= left_.size()) return Bad("a name does not end");
    std::string name, error;
    if (!absl::CUnescape(left_.substr(1, end - 1), &name, &error)) return Bad(error);
    Skip(end + 1);
    return name;
  }

  static absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

 private:
  void Skip(size_t count) {
    left_.remove_prefix(count);
    if (!left_.empty() && left_[0] == ' ') left_.remove_prefix(1);
  }

  absl::string_view left_;
};

absl::StatusOr<graph::Layout> LayoutFromName(const std::string& name) {
  const auto* found =
      std::find(std::begin(graph::kLayoutNames), std::end(graph::kLayoutNames), name);
  if (found == std::end(graph::kLayoutNames))
    return Line::Bad(absl::StrCat("no layout is called '", name, "'"));
  return static_cast<graph::Layout>(found - std::begin(graph::kLayoutNames));
}

absl::Status ReadLine(Line line, Plan* plan) {
  const std::string kind = line.Word();
  if (kind == "substitute") {
    Substitution substitution;
    HEDDLE_ASSIGN_OR_RETURN(substitution.rule, line.Name());
    if (!absl::SimpleAtoi(line.Word(), &substitution.way) || substitution.way < 0)
      return Line::Bad("the number of a match is missing");
    while (!line.AtEnd()) {
      HEDDLE_ASSIGN_OR_RETURN(substitution.nodes.emplace_back(), line.Name());
    }
    plan->substitutions.push_back(std::move(substitution));
  } else if (kind == "block") {
    int64_t block = 0;
    if (plan->layouts.has_value()) return Line::Bad("there are two blocks");
    if (!absl::SimpleAtoi(line.Word(), &block) || block < 0 || block == 1)
      return Line::Bad("a block has 0 or at least 2 channels");
    plan->layouts.emplace().block = block;
  } else if (kind == "layout") {
    if (!plan->layouts.has_value()) return Line::Bad("the block comes before the layouts");
    HEDDLE_ASSIGN_OR_RETURN(const graph::Layout layout, LayoutFromName(line.Word()));
    HEDDLE_ASSIGN_OR_RETURN(std::string node, line.Name());
    if (!plan->layouts->of.emplace(std::move(node), layout).second)
      return Line::Bad("the node has two layouts");
  } else if (kind == "separate") {
    HEDDLE_ASSIGN_OR_RETURN(std::string value, line.Name());
    plan->separate.insert(std::move(value));
  } else if (kind == "columns") {
    HEDDLE_ASSIGN_OR_RETURN(std::string value, line.Name());
    plan->columns.insert(std::move(value));
  } else if (kind == "forest") {
    const std::string name = line.Word();
    const std::optional<graph::ForestForm> form = graph::ForestFormFromName(name);
    if (!form.has_value())
      return Line::Bad(
          absl::StrCat("no form of a forest is called '", absl::CHexEscape(name), "'"));
    HEDDLE_ASSIGN_OR_RETURN(std::string node, line.Name());
    if (!plan->forests.emplace(std::move(node), *form).second)
      return Line::Bad("the forest has two forms");
  } else {
    return Line::Bad(absl::StrCat("'", absl::CHexEscape(kind), "' is nothing that a plan chooses"));
  }
  if (!line.AtEnd()) return Line::Bad("the line goes on behind its end");
  return absl::OkStatus();
}

}  // namespace

std::string ToText(const Plan& plan) {
  std::string text = absl::StrCat(absl::string_view(kFirstLine.data(), kFirstLine.size()), "\n");
  for (const Substitution& substitution : plan.substitutions) {
    absl::StrAppend(&text, "substitute ", Quoted(substitution.rule), " ", substitution.way);
    for (const std::string& node : substitution.nodes) absl::StrAppend(&text, " ", Quoted(node));
    text += '\n';
  }
  if (plan.layouts.has_value()) {
    absl::StrAppend(&text, "block ", plan.layouts->block, "\n");
    for (const auto& [node, layout] : plan.layouts->of) {
      const std::string_view name = graph::LayoutName(layout);
      absl::StrAppend(&text, "layout ", absl::string_view(name.data(), name.size()), " ",
                      Quoted(node), "\n");
    }
  }
  for (const std::string& value : plan.separate)
    absl::StrAppend(&text, "separate ", Quoted(value), "\n");
  for (const std::string& value : plan.columns)
    absl::StrAppend(&text, "columns ", Quoted(value), "\n");
  for (const auto& [node, form] : plan.forests) {
    const std::string_view name = graph::ForestFormName(form);
    absl::StrAppend(&text, "forest ", absl::string_view(name.data(), name.size()), " ",
                    Quoted(node), "\n");
  }
  return text;
}

absl::StatusOr<std::vector<Plan>> ParsePlans(std::string_view text) {
  if (text.size() > kMaxBytes) return absl::InvalidArgumentError("a plan has at most 16 MiB");
  const absl::string_view first_line(kFirstLine.data(), kFirstLine.size());
  std::vector<Plan> plans;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    if (line == first_line) {
      plans.emplace_back();
      continue;
    }
    if (number == 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "this is no plan that this version knows: its first line is not '", first_line, "'"));
    }
    if (line.empty()) continue;
    if (const absl::Status read = ReadLine(Line(line), &plans.back()); !read.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " of the plan: ", read.message()));
    }
  }
  return plans;
}

absl::StatusOr<Plan> ParsePlan(std::string_view text) {
  HEDDLE_ASSIGN_OR_RETURN(std::vector<Plan> plans, ParsePlans(text));
  return std::move(plans.front());
}

}  // namespace heddle::plan
