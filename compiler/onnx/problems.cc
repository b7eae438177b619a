#include "compiler/onnx/problems.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {
namespace {

// Limits keep the message of a model with thousands of nodes readable.
constexpr size_t kMostNamesShown = 3;
constexpr size_t kMostProblems = 40;
constexpr size_t kMostProblemBytes = 1000;  // of one problem: names may have any length

// At most kMostProblemBytes, cut between two characters.
std::string Shortened(std::string text) {
  if (text.size() <= kMostProblemBytes) return text;
  size_t end = kMostProblemBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  text.resize(end);
  return text + "..";
}

}  // namespace

std::string Quoted(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (size_t i = 0; i < names.size() && i < kMostNamesShown; ++i)
    quoted.push_back(absl::StrCat("'", names[i], "'"));
  std::string text = absl::StrJoin(quoted, ", ");
  if (names.size() > kMostNamesShown)
    absl::StrAppend(&text, " and ", names.size() - kMostNamesShown, " more");
  return text;
}

std::string NodeName(const onnx::NodeProto& node) {
  if (!node.name().empty()) return node.name();
  for (const std::string& output : node.output()) {
    if (!output.empty()) return output;
  }
  return node.op_type();
}

void Problems::Add(bool invalid, const std::string& op, const std::string& opset,
                   const std::string& what, const std::string& node) {
  const auto [place, is_new] =
      places_.try_emplace(std::tuple(invalid, op, opset, what), problems_.size());
  if (is_new) problems_.push_back({invalid, op, opset, what, {}});
  if (!node.empty()) problems_[place->second].nodes.push_back(node);
}

void Problems::AddNode(bool invalid, const onnx::NodeProto& node, int opset,
                       const std::string& what) {
  Add(invalid, onnx::OperatorKey(node), absl::StrCat(opset), what, NodeName(node));
}

void Problems::Invalid(const onnx::NodeProto& node, int opset, const std::string& what) {
  AddNode(true, node, opset, what);
}

void Problems::Unsupported(const onnx::NodeProto& node, int opset, const std::string& what) {
  AddNode(false, node, opset, what);
}

bool Problems::HasInvalid() const {
  return std::any_of(problems_.begin(), problems_.end(),
                     [](const Problem& p) { return p.invalid; });
}

std::string Problems::Text(const Problem& p) {
  if (p.op.empty()) return p.what;
  return absl::StrCat(p.op, p.nodes.size() == 1 ? " (node " : " (nodes ", Quoted(p.nodes),
                      ", opset ", p.opset, ")", p.what.empty() ? "" : ": ", p.what);
}

std::string Problems::List(bool invalid) const {
  std::vector<std::string> texts;
  size_t count = 0;
  for (const Problem& p : problems_) {
    if (p.invalid == invalid && ++count <= kMostProblems) texts.push_back(Shortened(Text(p)));
  }
  // Names may hold anything, ends of lines too.
  std::string text = absl::StrReplaceAll(absl::StrJoin(texts, "; "), {{"\n", " "}, {"\r", " "}});
  if (count > kMostProblems) absl::StrAppend(&text, "; and ", count - kMostProblems, " more");
  return text;
}

absl::Status Problems::Status() const {
  if (problems_.empty()) return absl::OkStatus();
  const std::string unsupported = List(false);
  if (!HasInvalid()) {
    return absl::UnimplementedError(absl::StrCat(
        "not supported: ", unsupported, " (docs/onnx-operators.md lists what is supported)"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("not a valid ONNX model: ", List(true),
                   unsupported.empty() ? "" : ". Also not supported: ", unsupported));
}

}  // namespace heddle::graph
