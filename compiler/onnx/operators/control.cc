// Translation of control flow. A branch whose condition is known is taken at import, and loops whose
// number of iterations is known are unrolled, or become one iteration over all elements.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/operator.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using ir::DType;

// An iteration becomes as many nodes as the body has. The importer also limits their sum.
constexpr int64_t kMostIterations = 1024;

constexpr char kFixTheInput[] = "; if it follows from an input, fix that with --input-value name=1";

void If(NodeImport& n) {
  n.Ignore({"then_branch", "else_branch"});
  const ValueId condition = n.In(0);
  if (n.ok() && NumElements(n.Type(condition)) != 1) return n.Fail("needs one condition");
  if (const TensorData* known = n.ConstantData(condition)) {
    const auto results = n.Body(ToInts(*known)[0] != 0 ? "then_branch" : "else_branch", {});
    if (n.ok() && static_cast<int>(results.size()) != n.NumOutputs())
      return n.Fail(absl::StrCat("the branch has ", results.size(), " outputs, the node has ",
                                 n.NumOutputs()));
    for (int i = 0; n.ok() && i < n.NumOutputs(); ++i) n.SetValue(i, results[i]);
    return;
  }
  // Branches have no effects, so both may be computed. One that is never taken may be wrong.
  const auto yes = n.Body("then_branch", {}), no = n.Body("else_branch", {});
  if (!n.ok())
    return n.ExplainBody(absl::StrCat("a condition that is not a constant", kFixTheInput));
  if (static_cast<int>(yes.size()) != n.NumOutputs() || yes.size() != no.size())
    return n.Fail("the branches have other numbers of outputs");
  const ValueId scalar = n.Reshape(condition, {});
  for (int i = 0; i < n.NumOutputs(); ++i) {
    const bool tensors = yes[i].kind == NamedValue::Kind::kTensor && yes[i].kind == no[i].kind;
    if (!tensors || n.Type(yes[i].tensor) != n.Type(no[i].tensor))
      return n.Unsupported(absl::StrCat(
          "a condition that is not a constant, with branches of different shapes", kFixTheInput));
    n.Set(i, n.Emit(OpKind::kWhere, {scalar, yes[i].tensor, no[i].tensor}));
  }
}

// What an iteration gives out, stacked along a new dimension.
ValueId Stack(NodeImport& n, const std::vector<ValueId>& items, int64_t axis, bool backward) {
  if (!n.ok()) return -1;
  if (items.empty()) {
    n.Unsupported("a loop without iterations, whose results have no elements");
    return -1;
  }
  std::vector<ValueId> parts;
  for (const ValueId item : items) {
    Shape shape = n.ShapeOf(item);
    shape.insert(shape.begin() + n.Axis(axis, static_cast<int>(shape.size()) + 1), 1);
    if (item != items[0] && n.Type(item) != n.Type(items[0])) {
      n.Fail("the iterations give results of different shapes");
      return -1;
    }
    parts.push_back(n.Reshape(item, shape));
  }
  if (backward) std::reverse(parts.begin(), parts.end());
  return Concat(n, parts, n.Axis(axis, n.Rank(parts[0])));
}

// The tensor that a body gives out at the end of an iteration.
ValueId Item(NodeImport& n, const NamedValue& v) {
  if (v.kind != NamedValue::Kind::kTensor) n.Unsupported("sequences that a loop stacks");
  return v.tensor;
}

void Loop(NodeImport& n) {
  n.Ignore({"body"});
  const Shape trips = n.Has(0) ? n.ConstantInts(0) : Shape{INT64_MAX};
  const Shape begins = n.Has(1) ? n.ConstantInts(1) : Shape{1};
  if (!n.ok()) return;
  if (trips.size() != 1 || begins.size() != 1)
    return n.Fail("needs one number of iterations and one condition");
  std::vector<NamedValue> states;
  for (int i = 2; i < n.NumInputs(); ++i) states.push_back(n.Value(i));
  const size_t count = states.size();
  if (static_cast<int>(count) > n.NumOutputs()) return n.Fail("has more states than outputs");
  std::vector<std::vector<ValueId>> stacks(n.NumOutputs() - count);
  bool go = begins[0] != 0;
  for (int64_t i = 0; go && i < trips[0] && n.ok(); ++i) {
    if (i >= kMostIterations)
      return n.Unsupported(absl::StrCat("more than ", kMostIterations, " iterations"));
    std::vector<NamedValue> inputs{n.Constant(Repeated(FromInts({i}), {})),
                                   n.Constant(Filled({DType::kBool, {}}, 1))};
    inputs.insert(inputs.end(), states.begin(), states.end());
    const auto results = n.Body("body", inputs);
    if (!n.ok()) return;
    if (results.size() != 1 + count + stacks.size())
      return n.Fail(absl::StrCat("the body has ", results.size(), " outputs, needs ",
                                 1 + count + stacks.size()));
    const TensorData* on = n.ConstantData(results[0].tensor);
    if (on == nullptr) return n.Unsupported("a condition that is not a constant");
    if (NumElements(on->type) != 1) return n.Fail("needs one condition");
    go = ToInts(*on)[0] != 0;
    states.assign(results.begin() + 1, results.begin() + 1 + static_cast<int64_t>(count));
    for (size_t k = 0; k < stacks.size(); ++k) stacks[k].push_back(Item(n, results[1 + count + k]));
  }
  for (size_t i = 0; i < count; ++i) n.SetValue(static_cast<int>(i), states[i]);
  for (size_t k = 0; k < stacks.size(); ++k) {
    const int output = static_cast<int>(count + k);
    if (n.Wants(output)) n.Set(output, Stack(n, stacks[k], 0, false));
  }
}

// An entry of a list attribute that may be left out.
int64_t Entry(NodeImport& n, const char* name, size_t i, size_t count) {
  const Shape list = n.Ints(name);
  if (list.empty()) return 0;
  if (list.size() != count)
    n.Fail(absl::StrCat(name, " has ", list.size(), " entries, needs ", count));
  return n.ok() ? list[i] : 0;
}

// ---- Scans whose iterations do not depend on each other ----
//
// A body that passes its states on is translated once, for one element of each scan input, and then made anew with a dimension more, which
// counts the elements. So the distances of rows to thousands of others (nearest neighbours) are one operator.

// Whether the body has only operators that ForAll knows. Hardly any of them needs a constant that differs between iterations, so the body can
// mostly be translated for an element that is not known.
bool IsSimple(const onnx::GraphProto& body) {
  static constexpr std::string_view kSimple[] = {"Abs",        "Add",        "Cast",
                                                 "Constant",   "Div",        "Exp",
                                                 "Identity",   "Log",        "Max",
                                                 "Min",        "Mul",        "Neg",
                                                 "Pow",        "ReduceL1",   "ReduceL2",
                                                 "ReduceMax",  "ReduceMean", "ReduceMin",
                                                 "ReduceProd", "ReduceSum",  "ReduceSumSquare",
                                                 "Sqrt",       "Sub"};
  return std::all_of(body.node().begin(), body.node().end(), [](const onnx::NodeProto& node) {
    return std::find(std::begin(kSimple), std::end(kSimple), onnx::OperatorKey(node)) !=
           std::end(kSimple);
  });
}

// Element 0 of dimension `axis`, without that dimension; no constant, even if v is one.
ValueId AnElement(NodeImport& n, ValueId v, int64_t axis) {
  return n.EmitBy(v, [&](GraphBuilder& out, ValueId x) -> absl::StatusOr<ValueId> {
    Shape shape = out.Type(x).shape;
    const Shape starts(shape.size(), 0), steps(shape.size(), 1);
    shape[static_cast<size_t>(axis)] = 1;
    HEDDLE_ASSIGN_OR_RETURN(
        const ValueId part,
        out.Add(OpKind::kSlice, {x}, {{"starts", starts}, {"steps", steps}, {"sizes", shape}},
                n.name()));
    shape.erase(shape.begin() + axis);
    return out.Add(OpKind::kReshape, {part}, {{"shape", shape}}, n.name());
  });
}

// v with dimension `from` at place `to`.
ValueId Moved(NodeImport& n, ValueId v, int64_t from, int64_t to) {
  Shape perm;
  for (int64_t d = 0; d < n.Rank(v); ++d) {
    if (d != from) perm.push_back(d);
  }
  perm.insert(perm.begin() + to, from);
  return n.Transpose(v, perm);
}

// What `node` makes of all elements, where `all` has operands for all of them, in dimension 0. nullopt: no such form is known.
std::optional<ValueId> OfAll(NodeImport& n, const Node& node, const std::map<ValueId, ValueId>& all,
                             int64_t length) {
  const OpDef& def = Def(node.kind);
  const Shape result = n.ShapeOf(node.outputs[0]);
  const auto with_length = [&](Shape shape) {
    shape.insert(shape.begin(), length);
    return shape;
  };
  if (node.kind == OpKind::kReshape) return n.Reshape(all.at(node.inputs[0]), with_length(result));
  if (def.family == OpFamily::kReduction) {
    const auto axes = NormalizeAxes(AttrsOf(node).Ints("axes"), n.Rank(node.inputs[0]));
    if (!axes.ok()) return std::nullopt;
    Shape moved = *axes;
    for (int64_t& axis : moved) ++axis;
    Attrs attrs = node.attrs;
    attrs["axes"] = moved;
    return n.Emit(node.kind, {all.at(node.inputs[0])}, attrs);
  }
  const bool plain = std::all_of(def.attrs.begin(), def.attrs.end(), [](const AttrSpec& attr) {
    return attr.role == AttrRole::kPlain;
  });
  if (!def.elementwise || !plain) return std::nullopt;
  std::vector<ValueId> operands;
  for (const ValueId x : node.inputs) {
    const auto found = all.find(x);
    if (found == all.end()) {
      operands.push_back(x);
      continue;
    }
    // Operands are aligned at the right, and the elements stand in front of all.
    Shape shape = n.ShapeOf(x);
    shape.insert(shape.begin(), result.size() - shape.size(), 1);
    operands.push_back(n.Reshape(found->second, with_length(shape)));
  }
  return n.Emit(node.kind, operands, node.attrs);
}

// Elements of the largest tensor that all iterations at once may need. It may be no more than an operand of the kernel that reduces it, but
// then its elements are steps of that kernel; else it is 2 GiB of f32.
constexpr int64_t kMostAtOnce = int64_t{1} << 29;

absl::Status NotAtOnce(const std::string& why) { return absl::UnimplementedError(why); }

// What the nodes that were added behind the elements, the keys of `all`, make of all elements: for each result, a value with the elements in
// dimension 0. Unimplemented: no such form is known, a result does not depend on an element, or a value exceeds kMostAtOnce.
absl::StatusOr<std::vector<ValueId>> ForAll(NodeImport& n, const std::vector<ValueId>& results,
                                            std::map<ValueId, ValueId> all, int64_t length) {
  const ValueId first = all.begin()->first;
  std::set<ValueId> needed(results.begin(), results.end());
  for (auto v = needed.end(); v != needed.begin();) {
    const Node* node = n.ProducerOf(*--v);
    if (node == nullptr || all.contains(*v)) continue;
    // Operands come before results, so they are looked at later.
    for (const ValueId x : node->inputs) {
      if (x >= first) needed.insert(x);
    }
  }
  for (const ValueId v : needed) {
    const Node* found = n.ProducerOf(v);
    if (found == nullptr || all.contains(v)) continue;
    const Node node = *found;  // the next Emit may move it
    const bool depends = std::any_of(node.inputs.begin(), node.inputs.end(),
                                     [&](ValueId x) { return all.contains(x); });
    if (!depends) continue;
    if (NumElements(n.Type(v)) > kMostAtOnce / length) {
      return NotAtOnce(absl::StrCat("they need tensors of more than ", kMostAtOnce,
                                    " elements; give fewer rows"));
    }
    const std::optional<ValueId> made = OfAll(n, node, all, length);
    if (!n.ok()) return n.status();
    if (!made.has_value())
      return NotAtOnce(absl::StrCat("there is no ", NameOf(node.kind), " of all of them"));
    all[v] = *made;
  }
  std::vector<ValueId> made;
  for (const ValueId v : results) {
    const auto found = all.find(v);
    if (found == all.end()) return NotAtOnce("a result is the same for all of them");
    made.push_back(found->second);
  }
  return made;
}

struct ScanOperands {
  const std::vector<ValueId>& states;
  const std::vector<ValueId>& scanned;
  const std::vector<int64_t>& axes;  // of `scanned`
  int64_t length;
  const char* directions;  // the attribute
};

// The results of ScanOver by one iteration over all elements, or why the iterations have to be made one by one.
absl::StatusOr<std::vector<ValueId>> ScanAtOnce(NodeImport& n, const ScanOperands& scan) {
  const auto& [states, scanned, axes, length, directions] = scan;
  const onnx::AttributeProto* body = n.Find("body");
  if (length < 2 || scanned.empty()) return NotAtOnce("there is one");
  if (body == nullptr || !IsSimple(body->g()))
    return NotAtOnce("the body has operators that are only known for single ones");
  const auto is_known = [&](ValueId v) {
    return n.lengths().Of(v).empty() && NumElements(n.Type(v)) > 0;
  };
  if (!std::all_of(states.begin(), states.end(), is_known) ||
      !std::all_of(scanned.begin(), scanned.end(), is_known))
    return NotAtOnce("shapes depend on data");
  const size_t count = states.size(), outputs = static_cast<size_t>(n.NumOutputs()) - count;
  // Results stand as the elements do, so all have one direction.
  std::set<bool> backward;
  for (size_t k = 0; k < scanned.size(); ++k)
    backward.insert(Entry(n, directions, k, scanned.size()) != 0);
  for (size_t k = 0; k < outputs; ++k)
    backward.insert(Entry(n, "scan_output_directions", k, outputs) != 0);
  if (backward.size() > 1) return NotAtOnce("they go forth and back");
  std::vector<NamedValue> inputs(states.begin(), states.end());
  std::map<ValueId, ValueId> all;
  for (size_t k = 0; k < scanned.size(); ++k) {
    const ValueId element = AnElement(n, scanned[k], axes[k]);
    inputs.emplace_back(element);
    all[element] = Moved(n, scanned[k], axes[k], 0);
  }
  if (!n.ok()) return n.status();
  const std::vector<NamedValue> found = n.Body("body", inputs);
  if (!n.ok()) return n.status();
  if (found.size() != count + outputs) return NotAtOnce("the body has other outputs");
  std::vector<ValueId> items;
  for (size_t i = 0; i < found.size(); ++i) {
    const bool passed_on = i >= count || found[i].tensor == states[i];
    if (found[i].kind != NamedValue::Kind::kTensor || !passed_on)
      return NotAtOnce("each depends on the one before");
    if (i >= count) items.push_back(found[i].tensor);
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<ValueId> made,
                          ForAll(n, items, std::move(all), length));
  std::vector<ValueId> results = states;
  for (size_t k = 0; k < outputs; ++k) {
    const ValueId v = made[k];
    results.push_back(Moved(n, v, 0, n.Axis(Entry(n, "scan_output_axes", k, outputs), n.Rank(v))));
  }
  return results;
}

// The final states and the scan outputs for these states and inputs.
std::vector<ValueId> ScanOver(NodeImport& n, std::vector<ValueId> states,
                              const std::vector<ValueId>& scanned, const char* input_directions) {
  const size_t m = scanned.size(), count = states.size();
  std::vector<int64_t> axes;
  int64_t length = -1;
  for (size_t k = 0; k < m; ++k) {
    axes.push_back(n.Axis(Entry(n, "scan_input_axes", k, m), n.Rank(scanned[k])));
    if (!n.ok()) return {};
    const int64_t extent = n.Rank(scanned[k]) == 0 ? -1 : n.ShapeOf(scanned[k])[axes[k]];
    if (extent < 0 || (k > 0 && extent != length)) {
      n.Fail("the scan inputs differ in length");
      return {};
    }
    length = extent;
  }
  std::vector<ValueId> at_once;
  const absl::Status tried = n.Attempt([&]() -> absl::Status {
    HEDDLE_ASSIGN_OR_RETURN(at_once,
                            ScanAtOnce(n, {states, scanned, axes, length, input_directions}));
    return absl::OkStatus();
  });
  if (tried.ok()) return at_once;
  if (length > kMostIterations) {
    n.Unsupported(absl::StrCat("more than ", kMostIterations,
                               " iterations, which are not made at once: ", tried.message()));
    return {};
  }
  const size_t outputs = static_cast<size_t>(n.NumOutputs()) - count;
  std::vector<std::vector<ValueId>> stacks(outputs);
  for (int64_t t = 0; t < length && n.ok(); ++t) {
    std::vector<NamedValue> inputs(states.begin(), states.end());
    for (size_t k = 0; k < m; ++k) {
      const int64_t at = Entry(n, input_directions, k, m) != 0 ? length - 1 - t : t;
      inputs.push_back(At(n, scanned[k], static_cast<int>(axes[k]), at));
    }
    const auto results = n.Body("body", inputs);
    if (!n.ok()) return {};
    if (results.size() != count + outputs) {
      n.Fail(absl::StrCat("the body has ", results.size(), " outputs, needs ", count + outputs));
      return {};
    }
    for (size_t i = 0; i < count; ++i) states[i] = Item(n, results[i]);
    for (size_t k = 0; k < outputs; ++k) stacks[k].push_back(Item(n, results[count + k]));
  }
  for (size_t k = 0; k < outputs; ++k) {
    states.push_back(Stack(n, stacks[k], Entry(n, "scan_output_axes", k, outputs),
                           Entry(n, "scan_output_directions", k, outputs) != 0));
  }
  return states;
}

// The first version has a batch in front of every operand, and an operand with sequence lengths.
void BatchedScan(NodeImport& n, const std::vector<ValueId>& operands, size_t count) {
  if (operands.empty() || n.Rank(operands[0]) == 0) return n.Fail("needs a batch");
  const int64_t batch = n.ShapeOf(operands[0])[0];
  for (const ValueId v : operands) {
    if (n.Rank(v) == 0 || n.ShapeOf(v)[0] != batch) return n.Fail("the batches differ in size");
  }
  if (n.Has(0)) {
    for (const int64_t length : n.ConstantInts(0)) {
      if (n.ok() && (n.Rank(operands.back()) < 2 || length != n.ShapeOf(operands.back())[1]))
        return n.Unsupported("sequences of several lengths");
    }
  }
  std::vector<std::vector<ValueId>> results(n.NumOutputs());
  for (int64_t b = 0; b < batch && n.ok(); ++b) {
    std::vector<ValueId> states, scanned;
    for (size_t i = 0; i < operands.size(); ++i)
      (i < count ? states : scanned).push_back(At(n, operands[i], 0, b));
    const auto one = ScanOver(n, states, scanned, "directions");
    if (!n.ok()) return;
    for (size_t i = 0; i < one.size(); ++i) results[i].push_back(one[i]);
  }
  for (int i = 0; n.ok() && i < n.NumOutputs(); ++i) n.Set(i, Stack(n, results[i], 0, false));
}

void Scan(NodeImport& n) {
  n.Ignore({"body", "scan_input_axes", "scan_output_axes", "scan_output_directions",
            "scan_input_directions", "directions"});
  const int first = n.opset() < 9 ? 1 : 0;
  std::vector<ValueId> operands;
  for (int i = first; i < n.NumInputs(); ++i) operands.push_back(n.In(i));
  const int64_t scanned = n.Int("num_scan_inputs");
  if (!n.ok()) return;
  const auto total = static_cast<int64_t>(operands.size());
  if (scanned < 1 || scanned > total || total - scanned > n.NumOutputs())
    return n.Fail(absl::StrCat("cannot scan ", scanned, " of ", total, " inputs"));
  const auto count = static_cast<size_t>(total - scanned);
  if (first == 1) return BatchedScan(n, operands, count);
  const auto middle = operands.begin() + static_cast<int64_t>(count);
  const auto results =
      ScanOver(n, {operands.begin(), middle}, {middle, operands.end()}, "scan_input_directions");
  for (size_t i = 0; n.ok() && i < results.size(); ++i) n.Set(static_cast<int>(i), results[i]);
}

}  // namespace

void AddControlTranslations(TranslationTable& table) {
  table["If"] = {If,
                 "a condition that is not a constant, if the branches' results differ in shape"};
  table["Loop"] = {Loop,
                   "a number of iterations that is not known at import, or above 1024; results of "
                   "no iterations"};
  table["Scan"] = {Scan,
                   "more than 1024 iterations, unless they are independent and simple; sequences "
                   "of several lengths"};
}

}  // namespace heddle::graph
