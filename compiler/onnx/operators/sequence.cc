// Translation of the operators on sequences and optionals. They disappear at import: a sequence is a
// list of tensors whose length is known, and an optional is its content or nothing.
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using Kind = NamedValue::Kind;

// Items of a sequence. Each is a node, and each value that is a sequence lists all of its items.
constexpr int64_t kMostItems = 2048;

void SetSequence(NodeImport& n, std::vector<ValueId> items) {
  if (static_cast<int64_t>(items.size()) > kMostItems)
    return n.Unsupported(absl::StrCat("a sequence of more than ", kMostItems, " tensors"));
  n.SetValue(0, NamedValue::Sequence(std::move(items)));
}

// A position in a sequence, or between two of its elements (`after`: also after the last one).
int64_t Position(NodeImport& n, int input, size_t length, bool after) {
  const Shape position = n.ConstantInts(input);
  const auto size = static_cast<int64_t>(length);
  if (n.ok() && position.size() != 1) n.Fail("needs one position");
  if (!n.ok()) return 0;
  const int64_t at = position[0] < 0 ? position[0] + size : position[0];
  if (at < 0 || at > (after ? size : size - 1))
    n.Fail(absl::StrCat("position ", position[0], " is outside of a sequence of ", size));
  return at;
}

void SequenceEmpty(NodeImport& n) {
  n.Ignore({"dtype"});
  n.SetValue(0, NamedValue::Sequence({}));
}

void SequenceConstruct(NodeImport& n) {
  std::vector<ValueId> items;
  for (int i = 0; i < n.NumInputs(); ++i) items.push_back(n.In(i));
  SetSequence(n, std::move(items));
}

void SequenceInsert(NodeImport& n) {
  std::vector<ValueId> items = n.Items(0);
  const ValueId item = n.In(1);
  const int64_t at =
      n.Has(2) ? Position(n, 2, items.size(), true) : static_cast<int64_t>(items.size());
  if (!n.ok()) return;
  items.insert(items.begin() + at, item);
  SetSequence(n, std::move(items));
}

void SequenceErase(NodeImport& n) {
  std::vector<ValueId> items = n.Items(0);
  if (n.ok() && items.empty()) return n.Fail("the sequence is empty");
  const int64_t at =
      n.Has(1) ? Position(n, 1, items.size(), false) : static_cast<int64_t>(items.size()) - 1;
  if (!n.ok()) return;
  items.erase(items.begin() + at);
  n.SetValue(0, NamedValue::Sequence(items));
}

void SequenceAt(NodeImport& n) {
  const std::vector<ValueId> items = n.Items(0);
  const int64_t at = Position(n, 1, items.size(), false);
  if (n.ok()) n.Set(0, items[at]);
}

void SequenceLength(NodeImport& n) {
  const auto length = static_cast<int64_t>(n.Items(0).size());
  n.Set(0, n.Constant(Repeated(FromInts({length}), {})));
}

void ConcatFromSequence(NodeImport& n) {
  std::vector<ValueId> items = n.Items(0);
  const bool stacks = n.Int("new_axis") != 0;
  if (n.ok() && items.empty()) return n.Fail("the sequence is empty");
  if (!n.ok()) return;
  const int64_t axis = n.Axis(n.Int("axis"), n.Rank(items[0]) + (stacks ? 1 : 0));
  for (ValueId& item : items) {
    if (!stacks || !n.ok()) break;
    Shape shape = n.ShapeOf(item);
    if (axis > static_cast<int64_t>(shape.size())) return n.Fail("the tensors differ in rank");
    shape.insert(shape.begin() + axis, 1);
    item = n.Reshape(item, shape);
  }
  n.Set(0, Concat(n, items, axis));
}

void SplitToSequence(NodeImport& n) {
  const ValueId x = n.In(0);
  const int64_t axis = n.Axis(n.Int("axis"), n.Rank(x));
  const bool keeps = n.Int("keepdims") != 0 || n.Has(1);
  const Shape split = n.Has(1) ? n.ConstantInts(1) : Shape{};
  if (!n.ok()) return;
  if (n.Rank(x) == 0) return n.Fail("needs a dimension to split");
  const int64_t extent = n.ShapeOf(x)[axis];
  Shape sizes = split;
  // A scalar is the size of all parts but the last.
  if (!n.Has(1) || n.Rank(n.In(1)) == 0) {
    const int64_t each = n.Has(1) ? split[0] : 1;
    if (each < 1) return n.Fail(absl::StrCat("cannot split into parts of ", each));
    if (extent / each > kMostItems)
      return n.Unsupported(absl::StrCat("more than ", kMostItems, " parts"));
    sizes.assign(static_cast<size_t>(extent / each), each);
    if (extent % each != 0) sizes.push_back(extent % each);
  }
  if (static_cast<int64_t>(sizes.size()) > kMostItems)
    return n.Unsupported(absl::StrCat("more than ", kMostItems, " parts"));
  for (const int64_t size : sizes) {
    if (size < 0 || size > extent) return n.Fail(absl::StrCat("cannot split into parts of ", size));
  }
  if (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != extent)
    return n.Fail(absl::StrCat("the parts do not add up to ", extent));
  std::vector<ValueId> items;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    items.push_back(keeps ? Part(n, x, static_cast<int>(axis), begin, begin + size)
                          : At(n, x, static_cast<int>(axis), begin));
    begin += size;
  }
  SetSequence(n, std::move(items));
}

void SequenceMap(NodeImport& n) {
  n.Ignore({"body"});
  const size_t length = n.Items(0).size();
  std::vector<std::vector<ValueId>> results(n.NumOutputs());
  for (size_t at = 0; at < length && n.ok(); ++at) {
    std::vector<NamedValue> inputs;
    for (int i = 0; i < n.NumInputs(); ++i) {
      const NamedValue& v = n.Value(i);
      if (v.kind == Kind::kSequence && v.items.size() != length)
        return n.Fail("the sequences differ in length");
      inputs.push_back(v.kind == Kind::kSequence ? NamedValue(v.items[at]) : v);
    }
    const auto one = n.Body("body", inputs);
    if (n.ok() && one.size() != results.size()) return n.Fail("the body has other outputs");
    for (size_t i = 0; n.ok() && i < one.size(); ++i) results[i].push_back(one[i].tensor);
  }
  for (int i = 0; n.ok() && i < n.NumOutputs(); ++i)
    n.SetValue(i, NamedValue::Sequence(results[i]));
}

void Optional(NodeImport& n) {
  n.Ignore({"type"});
  n.SetValue(0, n.Has(0) ? n.Value(0) : NamedValue::Nothing());
}

void OptionalHasElement(NodeImport& n) {
  const bool has = n.Has(0) && n.Value(0).kind != Kind::kNothing;
  n.Set(0, n.Constant(Filled({ir::DType::kBool, {}}, has ? 1 : 0)));
}

void OptionalGetElement(NodeImport& n) {
  const NamedValue& v = n.Value(0);
  if (n.ok() && v.kind == Kind::kNothing) return n.Fail("the optional is empty");
  n.SetValue(0, v);
}

}  // namespace

void AddSequenceTranslations(TranslationTable& table) {
  constexpr const char* kKnown = "a sequence that is an input or output of the model";
  constexpr const char* kKnownAndFew =
      "a sequence that is an input or output of the model; more than 2048 tensors";
  table["SequenceEmpty"] = {SequenceEmpty, kKnown};
  table["SequenceConstruct"] = {SequenceConstruct, kKnownAndFew};
  table["SequenceInsert"] = {SequenceInsert,
                             "a position that is not constant; more than 2048 tensors"};
  table["SequenceErase"] = {SequenceErase, "a position that is not constant"};
  table["SequenceAt"] = {SequenceAt, "a position that is not constant"};
  table["SequenceLength"] = SequenceLength;
  table["SequenceMap"] = SequenceMap;
  table["ConcatFromSequence"] = ConcatFromSequence;
  table["SplitToSequence"] = {SplitToSequence,
                              "sizes that are not constants; more than 2048 parts"};
  table["Optional"] = {Optional, "an optional that is an input or output of the model"};
  table["OptionalHasElement"] = OptionalHasElement;
  table["OptionalGetElement"] = OptionalGetElement;
}

}  // namespace heddle::graph
