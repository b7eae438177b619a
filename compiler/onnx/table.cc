// The table of translations of ONNX operators, and its text for the documentation.
#include <algorithm>
#include <climits>
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
    AddFeatureTranslations(*t);
    AddLinearTranslations(*t);
    AddTreeTranslations(*t);
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

int NewestImportedOpset(std::string_view domain) {
  constexpr int kNewestReviewedOpset = 28, kNewestReviewedMlOpset = 5;
  const int reviewed = onnx::IsStandard(domain)    ? kNewestReviewedOpset
                       : domain == onnx::kMlDomain ? kNewestReviewedMlOpset
                                                   : INT_MAX;
  return std::min(onnx::NewestOpset(domain), reviewed);
}

namespace {

using Source = onnx::OperatorRule::Source;

// "1-9", or "13-28": the opsets that have an operator.
std::string Opsets(const std::vector<onnx::OperatorRule>& versions) {
  const bool removed = versions.back().removed;
  const std::string_view domain = versions[0].source == Source::kMl ? onnx::kMlDomain : "";
  return absl::StrCat(versions[0].since, "-",
                      removed ? versions.back().since - 1 : NewestImportedOpset(domain));
}

// The rows of the operators of the standard, or of its domain ai.onnx.ml, with their opsets.
struct OperatorRows {
  std::string text;
  int count = 0;
};

OperatorRows OperatorRowsOf(Source source) {
  OperatorRows rows;
  for (const auto& [name, translation] : Translations()) {
    const auto known = onnx::AllRules().find(name);
    if (known == onnx::AllRules().end())
      Fatal(absl::StrCat("no table has the operator '", name, "'"));
    const std::vector<onnx::OperatorRule>& versions = known->second;
    if (versions[0].source != source) continue;
    ++rows.count;
    if (source == Source::kRuntime) {
      absl::StrAppend(&rows.text, "| ", name, " | ", translation.limits, " |\n");
      continue;
    }
    std::vector<int> changes;
    for (const onnx::OperatorRule& rule : versions) {
      if (rule.since != versions[0].since && !rule.removed) changes.push_back(rule.since);
    }
    absl::StrAppend(&rows.text, "| ", name, " | ", Opsets(versions), " | ",
                    absl::StrJoin(changes, ", "), " | ", translation.limits, " |\n");
  }
  return rows;
}

// "`Name` 1-28" of each operator of the table without a translation.
std::vector<std::string> Missing(Source source) {
  std::vector<std::string> missing;
  for (const auto& [name, versions] : onnx::AllRules()) {
    if (versions[0].source == source && Translations().count(std::string(name)) == 0)
      missing.push_back(absl::StrCat("`", std::string(name), "` ", Opsets(versions)));
  }
  return missing;
}

}  // namespace

std::string OnnxOperatorTable() {
  constexpr const char* kHead =
      "| operator | opsets | changed in opset | not supported |\n|---|---|---|---|\n";
  const OperatorRows standard = OperatorRowsOf(Source::kStandard);
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
      "what has no elements is refused.\n\n",
      kHead, standard.text);
  absl::StrAppend(
      &text, "\n", standard.count,
      " operators. Functions of the model are inlined. Branches and loops whose course is known at "
      "import are taken and\nunrolled, and sequences disappear. Results whose shapes depend on "
      "data "
      "and strings have no place in a\ncompiler for fixed shapes. Operators that draw random "
      "numbers take them from a seed, which is one more input of the\nmodule "
      "([using.md](using.md)). "
      "Of the standard, these are not supported (with their opsets):\n");
  for (const std::string& name : Missing(Source::kStandard)) absl::StrAppend(&text, name, "\n");
  absl::StrAppend(
      &text,
      "\n## Classical models\n\nThe standard's domain `ai.onnx.ml` has trees, linear models, "
      "support vector machines, and what stands before and after\nthem; its newest opset here is ",
      NewestImportedOpset(onnx::kMlDomain),
      ". Strings are no element type of a module:\n\n"
      "- An input of strings becomes bytes, uint8 [.., width], with zeros behind each text; the "
      "width is that of the longest key "
      "it is compared\n  with, and one more. Longer texts are cut, and equal no key. Such strings "
      "may be moved about (`Concat`, "
      "`Reshape`, ..) and read by\n  `OneHotEncoder`, `LabelEncoder` and `CategoryMapper`; what "
      "else reads them is refused. "
      "`heddle run` fills them from a CSV file.\n"
      "- Where the model gives strings out of a list of its own (class labels, `LabelEncoder`, "
      "`CategoryMapper`), the module gives\n  their places in that list, from 0 on, as int64; for "
      "the default of an encoder it gives -1. The list is in the module, and `heddle run` prints "
      "the strings.\n"
      "- `ZipMap` gives its operand, a tensor [rows, classes] with the classes in the order of "
      "the labels.\n"
      "- An input that is a map, in which `DictVectorizer` or `CastMap` looks up keys, becomes a "
      "tensor [rows, keys], whose columns are\n  named by the keys. Give zeros for keys that a map "
      "lacks.\n\n"
      "Trees compare doubles as doubles. All scores are computed in float, which is their type. "
      "Where the standard's text leaves\na result open, it is that of its reference "
      "implementation.\n\n",
      kHead, OperatorRowsOf(Source::kMl).text);
  const std::vector<std::string> missing = Missing(Source::kMl);
  if (!missing.empty()) absl::StrAppend(&text, "\nOf the domain, these are not supported:\n");
  for (const std::string& name : missing) absl::StrAppend(&text, name, "\n");
  absl::StrAppend(
      &text,
      "\n## Operators of ONNX Runtime\n\nThe quantiser and the graph optimiser of ONNX Runtime "
      "write "
      "operators of their own domain, `com.microsoft`. They are\nchecked against the schemas of "
      "ONNX Runtime. What the schemas leave open is as its kernels for CPUs compute it. `Solve` is "
      "no operator of it: scikit-learn's\nconverter writes it for Gaussian processes that "
      "classify.\n\n"
      "| operator | not supported |\n|---|---|\n",
      OperatorRowsOf(Source::kRuntime).text);
  return text;
}

}  // namespace heddle::graph
