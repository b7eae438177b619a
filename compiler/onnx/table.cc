// The table of translations of ONNX operators, and its text for the documentation.
#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/fatal.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {

const TranslationTable& Translations() {
  static const auto* table = [] {
    auto* t = new TranslationTable;
    AddConstantTranslations(*t);
    AddElementwiseTranslations(*t);
    AddNetworkTranslations(*t);
    AddReductionTranslations(*t);
    AddMovementTranslations(*t);
    AddResizeTranslations(*t);
    AddQuantizedTranslations(*t);
    AddRecurrentTranslations(*t);
    AddLossTranslations(*t);
    AddScatterTranslations(*t);
    AddAttentionTranslations(*t);
    AddBitTranslations(*t);
    AddRegionTranslations(*t);
    AddSignalTranslations(*t);
    AddControlTranslations(*t);
    AddSequenceTranslations(*t);
    AddSelectionTranslations(*t);
    AddRandomTranslations(*t);
    AddMicrosoftTranslations(*t);
    AddMicrosoftAttentionTranslations(*t);
    return t;
  }();
  return *table;
}

const Translation* FindTranslation(const onnx::NodeProto& node) {
  const auto found = Translations().find(onnx::OperatorKey(node));
  return found == Translations().end() ? nullptr : &found->second;
}

std::vector<std::string> SupportedOnnxOps() {
  std::vector<std::string> names;
  for (const auto& [name, translation] : Translations()) names.push_back(name);
  return names;
}

int NewestImportedOpset() {
  constexpr int kNewestReviewedOpset = 28;
  return std::min(onnx::NewestOpset(), kNewestReviewedOpset);
}

namespace {

// "1-9", or "13-28": the opsets that have an operator.
std::string Opsets(const std::vector<onnx::OperatorRule>& versions) {
  const bool removed = versions.back().removed;
  return absl::StrCat(versions[0].since, "-",
                      removed ? versions.back().since - 1 : NewestImportedOpset());
}

}  // namespace

std::string OnnxOperatorTable() {
  const onnx::Standard& standard = onnx::AllRules();
  std::string text = absl::StrCat(
      "# ONNX operators\n\n",
      "What `heddle` imports, as its importer says; a test compares. Each node is checked against "
      "the version of its operator\nthat holds in the model's opset, up to opset ",
      NewestImportedOpset(),
      "; what a node leaves out has the default of that version. Element types are\n",
      absl::StrReplaceAll(SupportedTypeNames(), {{"; ", ";\n"}}),
      ".\nWhat is only storage is held in int8, uint8 or float16, also at the inputs and outputs "
      "of a "
      "module.\nShapes are fixed at import, so operands that decide a shape have to be constants, "
      "and "
      "what has no elements is refused.\n\n| operator | opsets | changed in opset | not supported "
      "|\n|---|---|---|---|\n");
  std::string others;  // the lines of operators that are not of the standard
  size_t count = 0;
  for (const auto& [name, translation] : Translations()) {
    const auto known = standard.find(name);
    if (known == standard.end()) Fatal(absl::StrCat("no table has the operator '", name, "'"));
    if (!known->second[0].standard) {
      absl::StrAppend(&others, "| ", name, " | ", translation.limits, " |\n");
      continue;
    }
    ++count;
    std::vector<int> changes;
    for (const onnx::OperatorRule& rule : known->second) {
      if (rule.since != known->second[0].since && !rule.removed) changes.push_back(rule.since);
    }
    absl::StrAppend(&text, "| ", name, " | ", Opsets(known->second), " | ",
                    absl::StrJoin(changes, ", "), " | ", translation.limits, " |\n");
  }
  std::vector<std::string> missing;
  for (const auto& [name, versions] : standard) {
    if (Translations().count(std::string(name)) == 0)
      missing.push_back(absl::StrCat("`", std::string(name), "` ", Opsets(versions)));
  }
  absl::StrAppend(
      &text, "\n", count,
      " operators. Functions of the model are inlined. Branches and loops whose course is known at "
      "import are taken and\nunrolled, and sequences disappear. Results whose shapes depend on "
      "data "
      "and strings have no place in a\ncompiler for fixed shapes. Operators that draw random "
      "numbers take them from a seed, which is one more input of the\nmodule "
      "([using.md](using.md)). "
      "Of the standard, these are not supported (with their opsets):\n");
  for (const std::string& name : missing) absl::StrAppend(&text, name, "\n");
  absl::StrAppend(
      &text,
      "\n## Operators of ONNX Runtime\n\nThe quantiser and the graph optimiser of ONNX Runtime "
      "write "
      "operators of their own domain, `com.microsoft`. They are\nchecked against the schemas of "
      "ONNX Runtime. What the schemas leave open is as its kernels for CPUs compute it.\n\n"
      "| operator | not supported |\n|---|---|\n",
      others);
  return text;
}

}  // namespace heddle::graph
