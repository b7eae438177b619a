// The table of translations of ONNX operators, and its text for people.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/lower.h"
#include "compiler/onnx/node.h"
#include "onnx/defs/schema.h"

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
    return t;
  }();
  return *table;
}

std::vector<std::string> SupportedOnnxOps() {
  std::vector<std::string> names;
  for (const auto& [name, translation] : Translations()) names.push_back(name);
  return names;
}

namespace {

// The opsets that define an operator, among those that libonnx knows.
struct Span {
  int first = 0;
  int removed = 0;  // 0: it still is
};

std::map<std::string, Span> StandardOps() {
  std::map<std::string, Span> ops;
  for (const onnx::OpSchema& schema : onnx::OpSchemaRegistry::get_all_schemas_with_history()) {
    if (!schema.domain().empty() ||
        schema.support_level() == onnx::OpSchema::SupportType::EXPERIMENTAL)
      continue;
    Span& span = ops[schema.Name()];
    const int version = schema.SinceVersion();
    if (schema.Deprecated())
      span.removed = version;
    else
      span.first = span.first == 0 ? version : std::min(span.first, version);
  }
  return ops;
}

}  // namespace

std::string OnnxOperatorTable() {
  const std::map<std::string, Span> standard = StandardOps();
  std::string text = absl::StrCat(
      "# ONNX operators\n\n",
      "What `heddle` imports, as its importer says; a test compares. Opsets up to ", NewestOpset(),
      " are checked against the\nstandard; newer ones are taken where their operators changed "
      "in spelling only, or are listed here. Element types are float, double, int8,\nuint8, int32, "
      "int64 and bool. "
      "Shapes "
      "are fixed at import, so operands that decide a shape have to be constants, and\nwhat has "
      "no elements is refused.\n\n| operator | opsets | not supported |\n|---|---|---|\n");
  for (const auto& [name, translation] : Translations()) {
    const auto span = standard.find(name);
    const std::string opsets =
        span == standard.end()
            ? absl::StrCat(translation.since, "-")
            : absl::StrCat(span->second.first, "-",
                           span->second.removed == 0 ? NewestOpset() : span->second.removed - 1);
    absl::StrAppend(&text, "| ", name, " | ", opsets, " | ", translation.limits, " |\n");
  }
  std::vector<std::string> missing;
  for (const auto& [name, span] : standard) {
    if (Translations().count(name) == 0) missing.push_back(name);
  }
  absl::StrAppend(
      &text, "\n", Translations().size(),
      " operators. Results whose shapes depend on data, control flow, sequences, strings "
      "and random numbers have no\nplace in a compiler for fixed shapes. Of the standard, "
      "these are not supported:\n");
  for (const std::string& name : missing) absl::StrAppend(&text, "`", name, "`\n");
  return text;
}

}  // namespace heddle::graph
