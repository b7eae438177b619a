#include "compiler/substitution/match.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/convolution_weights.h"
#include "compiler/substitution/algebra.h"

namespace heddle::substitution {
namespace {

using graph::Attrs;
using graph::AttrsOf;
using graph::Graph;
using graph::GraphBuilder;
using graph::Node;
using graph::OpFamily;
using graph::OpKind;
using graph::Shape;
using graph::TensorData;
using graph::TensorType;
using graph::ValueId;

constexpr const char* kReversed = "reversed ";
constexpr size_t kMostMatches = 1000;
constexpr int64_t kMostConstant = int64_t{1} << 24;  // elements of a constant that a rule makes

template <typename Visit>
void VisitTerms(const Term& term, const Visit& visit) {
  for (const Term& operand : term.operands) VisitTerms(operand, visit);
  visit(term);
}

bool AnyTerm(const Rule& rule, const auto& predicate) {
  bool any = false;
  for (const auto* side : {&rule.source, &rule.target}) {
    for (const Term& term : *side)
      VisitTerms(term, [&](const Term& t) { any = any || predicate(t); });
  }
  return any;
}

bool IsMatrixRule(const Rule& rule) {
  return AnyTerm(rule, [](const Term& t) { return t.op == Op::kTranspose || t.op == Op::kMatmul; });
}

bool IsConstant(const Term& term) { return term.operands.empty() && term.op != Op::kVariable; }

bool IsConvolution(OpKind kind) { return graph::Def(kind).family == OpFamily::kConvolution; }

// Strides, dilations and twice the padding that a kernel of extent 1 would have in the same place, so that
// two windows are equal if convolutions with them are the same operator.
Attrs RelativeWindow(const Node& node, const Shape& kernel) {
  const graph::OpAttrs attrs = AttrsOf(node);
  const size_t n = kernel.size();
  const auto list = [&](std::string_view name, size_t size, int64_t fallback) {
    Shape values = attrs.Ints(name);
    if (values.empty()) values.assign(size, fallback);
    return values;
  };
  Attrs window{{"strides", list("strides", n, 1)}, {"dilations", list("dilations", n, 1)}};
  Shape pads = list("pads", 2 * n, 0);
  const Shape dilations = std::get<Shape>(window["dilations"]);
  for (size_t i = 0; i < n; ++i) {
    const int64_t reach = (kernel[i] - 1) * dilations[i];
    pads[i] = 2 * pads[i] - reach;
    pads[n + i] = 2 * pads[n + i] - reach;
  }
  window["pads"] = pads;
  return window;
}

// The attributes of a convolution with this window; nullopt: the kernel does not fit the padding.
std::optional<Attrs> WithKernel(const Attrs& window, const Shape& kernel) {
  const size_t n = kernel.size();
  const Shape& dilations = std::get<Shape>(window.at("dilations"));
  Attrs attrs = window;
  Shape pads = std::get<Shape>(window.at("pads"));
  for (size_t i = 0; i < n; ++i) {
    for (const size_t side : {i, n + i}) {
      pads[side] += (kernel[i] - 1) * dilations[i];
      if (pads[side] < 0 || pads[side] % 2 != 0) return std::nullopt;
      pads[side] /= 2;
    }
  }
  attrs["pads"] = pads;
  return attrs;
}

// Whether a transpose swaps the last two dimensions, and only these.
bool TransposesMatrices(const Node& node) {
  Shape perm = AttrsOf(node).Ints("perm");
  if (perm.size() < 2) return false;
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return std::is_sorted(perm.begin(), perm.end());
}

// Stride 1, and as much padding as keeps the extents.
bool IsPlain(const Attrs& window) {
  const auto all = [&](const char* name, int64_t value) {
    const Shape& values = std::get<Shape>(window.at(name));
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
  };
  return all("strides", 1) && all("pads", 0);
}
Binding PlainWindow(size_t dimensions) {
  return {graph::kConvolutions[dimensions - 1],
          {{"strides", Shape(dimensions, 1)},
           {"dilations", Shape(dimensions, 1)},
           {"pads", Shape(2 * dimensions, 0)}},
          {}};
}

// What the kernel of a pool stands for. An average that counts padding is a depthwise convolution.
Binding CountingAverage(const Shape& kernel) {
  return {OpKind::kAvgPool, {{"count_include_pad", int64_t{1}}}, kernel};
}
Binding PoolKernelOf(const Graph& graph, const Node& node) {
  const graph::OpAttrs attrs = AttrsOf(node);
  const Shape& kernel = attrs.Ints("kernel");
  Binding binding{node.kind, {}, kernel};
  if (node.kind == OpKind::kAvgPool) {
    const Shape& pads = attrs.Ints("pads");
    const bool unpadded = std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p == 0; });
    if (unpadded || attrs.Flag("count_include_pad")) binding = CountingAverage(kernel);
  }
  if (attrs.Flag("ceil_mode")) {
    Attrs floor = node.attrs;
    floor["ceil_mode"] = int64_t{0};
    const std::vector<TensorType> types{graph.values[static_cast<size_t>(node.inputs[0])].type};
    const auto type = graph::InferType(node.kind, types, floor);
    if (!type.ok() || *type != graph.values[static_cast<size_t>(node.outputs[0])].type)
      binding.attrs["ceil_mode"] = int64_t{1};
  }
  return binding;
}

// The elements of a constant of this type; nullopt: it has no such type.
std::optional<TensorData> ConstantOf(Op op, const TensorType& type) {
  const Shape& shape = type.shape;
  const int64_t elements = graph::NumElements(type);
  if (!ir::IsFloat(type.dtype) || elements < 1 || elements > kMostConstant) return std::nullopt;
  const auto square = [&] { return shape.size() >= 2 && shape[0] == shape[1]; };
  int64_t taps = 1;
  for (size_t d = 2; d < shape.size(); ++d) taps *= shape[d];
  switch (op) {
    case Op::kOnes:
      return graph::Filled(type, 1);
    case Op::kPoolWeights:
      if (shape.size() < 3 || shape[1] != 1) return std::nullopt;
      return graph::Filled(type, 1.0 / static_cast<double>(taps));
    case Op::kIdentity:
    case Op::kIdentityWeights: {
      if (!square() || (op == Op::kIdentity) != (shape.size() == 2)) return std::nullopt;
      if (std::any_of(shape.begin() + 2, shape.end(), [](int64_t e) { return e % 2 == 0; }))
        return std::nullopt;
      std::vector<double> values(static_cast<size_t>(elements), 0);
      // The middle of a kernel with odd extents is its middle element.
      for (int64_t i = 0; i < shape[0]; ++i)
        values[static_cast<size_t>((i * shape[0] + i) * taps + taps / 2)] = 1;
      return graph::FromDoubles(values, shape, type.dtype);
    }
    default:
      return std::nullopt;
  }
}

bool HoldsConstant(Op op, const TensorData& data) {
  // Most constants differ in the first elements.
  TensorType first = data.type;
  for (size_t d = 0; d < std::min<size_t>(2, first.shape.size()); ++d) {
    if (first.shape[d] < 1) return false;
    first.shape[d] = 1;
  }
  const std::optional<TensorData> small = ConstantOf(op, first);
  if (!small.has_value() ||
      graph::ToDoubles(graph::LeadingPart(data, first.shape)) != graph::ToDoubles(*small))
    return false;
  const std::optional<TensorData> whole = ConstantOf(op, data.type);
  return whole.has_value() && *whole->bytes == *data.bytes;
}

// Where a slice cuts: nullopt if it is not one part of two in one dimension.
struct Cut {
  int64_t axis = 0, begin = 0, size = 0;
};
std::optional<Cut> CutOf(const Graph& graph, const Node& node) {
  const Shape& whole = graph.values[static_cast<size_t>(node.inputs[0])].type.shape;
  const graph::OpAttrs attrs = AttrsOf(node);
  const Shape &starts = attrs.Ints("starts"), &steps = attrs.Ints("steps"),
              &sizes = attrs.Ints("sizes");
  std::optional<Cut> cut;
  for (size_t d = 0; d < whole.size(); ++d) {
    if (steps[d] != 1) return std::nullopt;
    if (sizes[d] == whole[d]) continue;
    if (cut.has_value()) return std::nullopt;
    cut = Cut{static_cast<int64_t>(d), starts[d], sizes[d]};
  }
  return cut;
}

// False: no node of this kind is the operator. Else MatchNode says whether it is.
bool MayBe(Op op, OpKind kind) {
  switch (op) {
    case Op::kAdd:
      return kind == OpKind::kAdd;
    case Op::kMul:
    case Op::kScale:
      return kind == OpKind::kMul;
    case Op::kMap:
      return graph::Def(kind).elementwise;
    case Op::kTranspose:
      return kind == OpKind::kTranspose;
    case Op::kMatmul:
      return kind == OpKind::kMatmul;
    case Op::kConv:
    case Op::kDepthwise:
      return IsConvolution(kind);
    case Op::kAvgPool:
      return kind == OpKind::kAvgPool;
    case Op::kMaxPool:
      return kind == OpKind::kMaxPool;
    case Op::kConcat:
      return kind == OpKind::kConcat;
    case Op::kSplit0:
    case Op::kSplit1:
      return kind == OpKind::kSlice;
    default:
      return true;
  }
}

class Matcher {
 public:
  // `within`: if set, only matches of these nodes.
  Matcher(const Graph& graph, const DirectedRule& rule, size_t limit,
          const std::set<int>* within = nullptr)
      : graph_(graph),
        rule_(rule.rule),
        limit_(limit),
        within_(within),
        matrices_(IsMatrixRule(rule.rule)) {
    producers_ = graph::Producers(graph);
    readers_.resize(graph.values.size());
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const ValueId v : graph.nodes[n].inputs)
        readers_[static_cast<size_t>(v)].push_back(static_cast<int>(n));
    }
  }

  std::vector<Match> Run() {
    MatchFrom(0, {});
    return std::move(found_);
  }

 private:
  using Then = std::function<void(const Match&)>;

  const TensorType& TypeOf(ValueId v) const { return graph_.values[static_cast<size_t>(v)].type; }

  void MatchFrom(size_t i, const Match& match) {
    if (found_.size() >= limit_) return;
    if (i == rule_.source.size()) {
      ChooseKernels(match);
      return;
    }
    const Term& term = rule_.source[i];
    for (const int n : Candidates(term, match)) {
      const ValueId v = graph_.nodes[static_cast<size_t>(n)].outputs[0];
      if (std::count(match.outputs.begin(), match.outputs.end(), v) > 0) continue;
      MatchValue(term, v, match, [&](const Match& more) {
        Match next = more;
        next.outputs.push_back(v);
        MatchFrom(i + 1, next);
      });
    }
  }

  // Nodes that may be the last operator of a term: those as far behind a variable that is known as the term
  // says, or all.
  std::vector<int> Candidates(const Term& term, const Match& match) const {
    int depth = 0;
    const std::optional<ValueId> from = KnownVariable(term, match, &depth);
    if (!from.has_value()) {
      std::vector<int> all(graph_.nodes.size());
      for (size_t n = 0; n < all.size(); ++n) all[n] = static_cast<int>(n);
      return all;
    }
    std::set<ValueId> values{*from};
    std::set<int> nodes;
    for (int d = 0; d < depth; ++d) {
      nodes.clear();
      for (const ValueId v : values)
        nodes.insert(readers_[static_cast<size_t>(v)].begin(),
                     readers_[static_cast<size_t>(v)].end());
      values.clear();
      for (const int n : nodes) values.insert(graph_.nodes[static_cast<size_t>(n)].outputs[0]);
    }
    return {nodes.begin(), nodes.end()};
  }

  std::optional<ValueId> KnownVariable(const Term& term, const Match& match, int* depth) const {
    if (term.op == Op::kVariable) {
      const auto known = match.variables.find(term.name);
      if (known == match.variables.end()) return std::nullopt;
      *depth = 0;
      return known->second;
    }
    for (const Term& operand : term.operands) {
      if (const auto v = KnownVariable(operand, match, depth)) {
        ++*depth;
        return v;
      }
    }
    return std::nullopt;
  }

  void MatchValue(const Term& term, ValueId v, const Match& match, const Then& then) {
    if (found_.size() >= limit_) return;
    if (term.op == Op::kVariable) {
      Match more = match;
      if (more.variables.emplace(term.name, v).first->second == v) then(more);
      return;
    }
    if (IsConstant(term)) {
      Match more = match;
      if (MatchConstant(term, v, &more)) then(more);
      return;
    }
    const int n = producers_[static_cast<size_t>(v)];
    if (n < 0 || (within_ != nullptr && !within_->contains(n))) return;
    const Node& node = graph_.nodes[static_cast<size_t>(n)];
    if (!MayBe(term.op, node.kind)) return;
    Match more = match;
    if (!MatchNode(term, node, &more)) return;
    if (std::count(more.nodes.begin(), more.nodes.end(), n) == 0) more.nodes.push_back(n);
    std::vector<std::vector<size_t>> orders;
    switch (term.op) {
      case Op::kScale:
        for (size_t factor : {size_t{1}, size_t{0}}) {
          const TensorType& other = TypeOf(node.inputs[1 - factor]);
          if (graph::NumElements(TypeOf(node.inputs[factor])) == 1 && other == TypeOf(v))
            orders.push_back({1 - factor, factor});
        }
        break;
      case Op::kAdd:
      case Op::kMul:
        orders = {{0, 1}, {1, 0}};
        break;
      default:
        orders.emplace_back();
        for (size_t i = 0; i < term.operands.size(); ++i) orders.back().push_back(i);
        break;
    }
    for (const std::vector<size_t>& order : orders) {
      Match ordered = more;
      if (term.op == Op::kAdd || term.op == Op::kMul) {
        for (size_t i = 0; i < order.size(); ++i) {
          if (TypeOf(node.inputs[order[i]]).shape == TypeOf(v).shape) continue;
          const std::vector<std::string> names =
              VariablesOf(std::span(term.operands).subspan(i, 1));
          ordered.broadcast.insert(names.begin(), names.end());
        }
      }
      MatchValue(term.operands[0], node.inputs[order[0]], ordered, [&](const Match& first) {
        if (order.size() == 1) {
          then(first);
        } else {
          MatchValue(term.operands[1], node.inputs[order[1]], first, then);
        }
      });
    }
  }

  bool BindAxis(const std::string& parameter, int64_t axis, int64_t rank, Match* match) const {
    if (parameter[0] == '0' || parameter[0] == '1') {
      const int64_t number = parameter[0] - '0';
      return axis == (matrices_ ? rank - 2 + number : number);
    }
    return match->axes.emplace(parameter, axis).first->second == axis;
  }

  bool MatchConstant(const Term& term, ValueId v, Match* match) const {
    const auto data = graph_.constants.find(v);
    if (data == graph_.constants.end() || !HoldsConstant(term.op, data->second)) return false;
    if (term.parameters.empty()) return true;
    const Shape& shape = data->second.type.shape;
    const Shape kernel(shape.begin() + 2, shape.end());
    return BindParameter(
        term.parameters[0],
        term.op == Op::kPoolWeights ? CountingAverage(kernel) : Binding{{}, {}, kernel}, match);
  }

  static bool BindParameter(const std::string& name, Binding binding, Match* match) {
    // Window 1 is one of stride 1 that keeps the extents.
    if (name[0] == '1' && !IsPlain(binding.attrs)) return false;
    return match->parameters.emplace(name, binding).first->second == binding;
  }

  // Whether the node is what the term's operator stands for; binds its parameters.
  bool MatchNode(const Term& term, const Node& node, Match* match) const {
    const TensorType& type = TypeOf(node.outputs[0]);
    const auto rank = static_cast<int64_t>(type.shape.size());
    if (!ir::IsFloat(type.dtype)) return false;
    switch (term.op) {
      case Op::kAdd:
        return node.kind == OpKind::kAdd;
      case Op::kMul:
      case Op::kScale:
        return node.kind == OpKind::kMul;
      case Op::kMap: {
        const graph::OpDef& def = graph::Def(node.kind);
        return def.elementwise && node.inputs.size() == 1 && TypeOf(node.inputs[0]) == type &&
               BindParameter(term.parameters[0], {node.kind, node.attrs, {}}, match);
      }
      case Op::kMove:
        return (node.kind == OpKind::kReshape ||
                (node.kind == OpKind::kTranspose && !TransposesMatrices(node))) &&
               BindParameter(term.parameters[0], {node.kind, node.attrs, {}}, match);
      case Op::kTranspose:
        return node.kind == OpKind::kTranspose && TransposesMatrices(node);
      case Op::kMatmul:
        return node.kind == OpKind::kMatmul && node.attrs.empty() &&
               TypeOf(node.inputs[0]).shape.size() >= 2 && TypeOf(node.inputs[1]).shape.size() >= 2;
      case Op::kConv:
      case Op::kDepthwise:
      case Op::kGrouped: {
        if (!IsConvolution(node.kind) || node.inputs.size() != 2) return false;
        if (AttrsOf(node).Text("layout") != AttrsOf(Node{node.kind, "", {}, {}, {}}).Text("layout"))
          return false;
        const Shape& w = TypeOf(node.inputs[1]).shape;
        const int64_t groups = AttrsOf(node).Int("groups");
        const Op op = groups == 1                   ? Op::kConv
                      : groups == w[0] && w[1] == 1 ? Op::kDepthwise
                                                    : Op::kGrouped;
        if (term.op != op) return false;
        // Weights may be read in one number of groups only.
        if (op == Op::kGrouped &&
            match->groups.emplace(node.inputs[1], groups).first->second != groups)
          return false;
        const Shape kernel(w.begin() + 2, w.end());
        return BindParameter(term.parameters[0], {node.kind, RelativeWindow(node, kernel), {}},
                             match);
      }
      case Op::kAvgPool:
      case Op::kMaxPool: {
        if (node.kind != (term.op == Op::kAvgPool ? OpKind::kAvgPool : OpKind::kMaxPool) ||
            AttrsOf(node).Text("layout") != AttrsOf(Node{node.kind, "", {}, {}, {}}).Text("layout"))
          return false;
        const Shape& kernel = AttrsOf(node).Ints("kernel");
        return BindParameter(term.parameters[0], PoolKernelOf(graph_, node), match) &&
               BindParameter(
                   term.parameters[1],
                   {graph::kConvolutions[kernel.size() - 1], RelativeWindow(node, kernel), {}},
                   match);
      }
      case Op::kConcat: {
        if (node.kind != OpKind::kConcat || node.inputs.size() != 2) return false;
        int64_t axis = AttrsOf(node).Int("axis");
        if (axis < 0) axis += rank;
        const Shape& first = TypeOf(node.inputs[0]).shape;
        match->splits[{node.outputs[0], axis}] = first[static_cast<size_t>(axis)];
        return BindAxis(term.parameters[0], axis, rank, match);
      }
      case Op::kSplit0:
      case Op::kSplit1: {
        if (node.kind != OpKind::kSlice) return false;
        const std::optional<Cut> cut = CutOf(graph_, node);
        if (!cut.has_value() || !BindAxis(term.parameters[0], cut->axis, rank, match)) return false;
        const int64_t whole = TypeOf(node.inputs[0]).shape[static_cast<size_t>(cut->axis)];
        const int64_t point = term.op == Op::kSplit0 ? cut->size : cut->begin;
        if (term.op == Op::kSplit0 ? cut->begin != 0 : cut->begin + cut->size != whole)
          return false;
        return match->splits.emplace(std::pair(node.inputs[0], cut->axis), point).first->second ==
               point;
      }
      default:
        return false;
    }
  }

  // What the source leaves open: extents of enlarged kernels and factors of groups.
  void ChooseKernels(const Match& match) {
    const Term* open = nullptr;
    for (const Term& term : rule_.target) {
      VisitTerms(term, [&](const Term& t) {
        if ((t.op == Op::kEnlarge || t.op == Op::kMergeGroups) &&
            !match.kernels.contains(t.parameters[0]))
          open = &t;
      });
    }
    if (open == nullptr) {
      found_.push_back(match);
      return;
    }
    const Term& weights = open->operands[0];
    if (weights.op != Op::kVariable) return;
    const ValueId w = match.variables.at(weights.name);
    for (const int64_t value :
         open->op == Op::kEnlarge ? ExtentsFor(w, match) : FactorsFor(w, match)) {
      Match more = match;
      more.kernels[open->parameters[0]] = value;
      ChooseKernels(more);
    }
  }

  static std::set<int64_t> FactorsFor(ValueId w, const Match& match) {
    std::set<int64_t> factors;
    const auto groups = match.groups.find(w);
    if (groups == match.groups.end()) return factors;
    for (int64_t factor = 2; factor <= groups->second; ++factor) {
      if (groups->second % factor == 0) factors.insert(factor);
    }
    return factors;
  }

  // The extents of other convolutions of the same image.
  std::set<int64_t> ExtentsFor(ValueId w, const Match& match) const {
    const Shape& shape = TypeOf(w).shape;
    std::set<int64_t> extents;
    for (const int n : match.nodes) {
      const Node& node = graph_.nodes[static_cast<size_t>(n)];
      if (!IsConvolution(node.kind)) continue;
      std::vector<int> others = match.nodes;
      const auto& readers = readers_[static_cast<size_t>(node.inputs[0])];
      others.insert(others.end(), readers.begin(), readers.end());
      for (const int o : others) {
        const Node& other = graph_.nodes[static_cast<size_t>(o)];
        if (other.kind != node.kind) continue;
        const Shape& kernel = TypeOf(other.inputs[1]).shape;
        const bool square = std::all_of(kernel.begin() + 2, kernel.end(),
                                        [&](int64_t e) { return e == kernel[2]; });
        const bool larger = std::all_of(shape.begin() + 2, shape.end(), [&](int64_t e) {
          return e <= kernel[2] && (kernel[2] - e) % 2 == 0;
        });
        if (square && larger && kernel[2] != *std::min_element(shape.begin() + 2, shape.end()))
          extents.insert(kernel[2]);
      }
    }
    return extents;
  }

  const Graph& graph_;
  const Rule& rule_;
  size_t limit_;
  const std::set<int>* within_;
  bool matrices_;
  std::vector<int> producers_;
  std::vector<std::vector<int>> readers_;
  std::vector<Match> found_;
};

SplitTree CommonTree(const SplitTree& a, const SplitTree& b) {
  if (a == nullptr || b == nullptr || a->first != b->first) return nullptr;
  return std::make_shared<SplitNode>(
      SplitNode{a->first, CommonTree(a->left, b->left), CommonTree(a->right, b->right)});
}

absl::Status Refused(std::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("the rule cannot be applied: ", std::string(why)));
}

// Copies a graph with the target of a rule in it.
class Rewriter {
 public:
  Rewriter(const Graph& graph, const Rule& rule, const Match& match)
      : graph_(graph),
        rule_(rule),
        match_(match),
        matrices_(IsMatrixRule(rule)),
        producers_(graph::Producers(graph)),
        map_(graph.values.size(), -1),
        state_(graph.nodes.size(), State::kOpen) {
    for (size_t i = 0; i < match.outputs.size(); ++i) replaced_[match.outputs[i]] = i;
  }

  absl::StatusOr<Graph> Run() {
    for (const ValueId v : graph_.inputs)
      map_[Index(v)] = out_.Input(graph_.values[Index(v)].name, graph_.values[Index(v)].type);
    for (const auto& [v, data] : graph_.constants)
      map_[Index(v)] = out_.Constant(graph_.values[Index(v)].name, data);
    for (const Node& node : graph_.nodes) {
      if (!replaced_.contains(node.outputs[0]))
        HEDDLE_RETURN_IF_ERROR(Use(node.outputs[0]).status());
    }
    std::vector<std::pair<std::string, ValueId>> outputs;
    for (const ValueId v : graph_.outputs) {
      HEDDLE_ASSIGN_OR_RETURN(const ValueId made, Use(v));
      outputs.emplace_back(graph_.values[Index(v)].name, made);
    }
    HEDDLE_ASSIGN_OR_RETURN(Graph built, out_.Build(outputs));
    built.lengths = graph_.lengths;
    built.tables = graph_.tables;
    return graph::RemoveDead(built);
  }

 private:
  enum class State { kOpen, kActive, kDone };
  // A value of the new graph, and where it can be split.
  struct Made {
    ValueId value = -1;
    std::map<int64_t, SplitTree> trees = {};  // by dimension
    bool broadcast = false;                   // stands for a tensor of a larger shape
    int64_t groups = 0;                       // of weights of a grouped convolution
  };
  // Where a constant is used.
  struct Place {
    Op op;                                 // that reads it
    int axis = -1;                         // of a concatenation
    bool first = true;                     // whether it is the first operand
    const Shape* other = nullptr;          // the shape of the other operand, if that is known
    std::optional<int64_t> channels = {};  // of the image that the weights are for
  };

  static size_t Index(ValueId v) { return static_cast<size_t>(v); }
  const Shape& ShapeOf(ValueId made) const { return out_.Type(made).shape; }

  // The value of the new graph for one of the old one, where it is read.
  absl::StatusOr<ValueId> Use(ValueId v) {
    const auto replaced = replaced_.find(v);
    if (replaced == replaced_.end()) return Original(v);
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<ValueId>* targets, Targets());
    return (*targets)[replaced->second];
  }

  // Copies the node that makes it, if there is one. A node that needs its own result through the target
  // would close a cycle.
  absl::StatusOr<ValueId> Original(ValueId v) {
    if (map_[Index(v)] >= 0) return map_[Index(v)];
    const int n = producers_[Index(v)];
    if (n < 0) return absl::InternalError("a value without a maker");
    State& state = state_[static_cast<size_t>(n)];
    if (state == State::kActive) return Refused("it would make a cycle");
    state = State::kActive;
    const Node& node = graph_.nodes[static_cast<size_t>(n)];
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) {
      HEDDLE_ASSIGN_OR_RETURN(const ValueId made, Use(input));
      inputs.push_back(made);
    }
    HEDDLE_ASSIGN_OR_RETURN(map_[Index(v)],
                            out_.Add(node.kind, std::move(inputs), node.attrs, node.name));
    state = State::kDone;
    return map_[Index(v)];
  }

  absl::StatusOr<const std::vector<ValueId>*> Targets() {
    if (!targets_.empty()) return &targets_;
    if (building_) return Refused("it would make a cycle");
    building_ = true;
    std::vector<ValueId> targets;
    for (size_t i = 0; i < rule_.target.size(); ++i) {
      HEDDLE_ASSIGN_OR_RETURN(const Made made, Make(rule_.target[i], std::nullopt));
      if (made.broadcast || out_.Type(made.value) != graph_.values[Index(match_.outputs[i])].type)
        return Refused("a result has another type");
      targets.push_back(made.value);
    }
    targets_ = std::move(targets);
    return &targets_;
  }

  int64_t AxisOf(const std::string& parameter, int64_t rank) const {
    if (const auto found = match_.axes.find(parameter); found != match_.axes.end())
      return found->second;
    const int64_t number = parameter[0] - '0';
    return matrices_ ? rank - 2 + number : number;
  }

  // `channels`: of the image that the term is the weights for, or columns of the matrix before it.
  absl::StatusOr<Made> Make(const Term& term, std::optional<int64_t> channels) {
    const std::string key = absl::StrCat(ToText(term), " ", channels.value_or(0));
    if (const auto known = made_.find(key); known != made_.end()) return known->second;
    HEDDLE_ASSIGN_OR_RETURN(Made made, MakeNew(term, channels));
    made_[key] = made;
    return made;
  }

  absl::StatusOr<Made> MakeNew(const Term& term, std::optional<int64_t> channels) {
    if (term.op == Op::kVariable) {
      const ValueId v = match_.variables.at(term.name);
      // What the source matched is read as it was, even if it is replaced elsewhere.
      Made made;
      made.broadcast = match_.broadcast.contains(term.name);
      HEDDLE_ASSIGN_OR_RETURN(made.value, Original(v));
      for (const auto& [place, point] : match_.splits) {
        if (place.first == v)
          made.trees[place.second] =
              std::make_shared<SplitNode>(SplitNode{point, nullptr, nullptr});
      }
      if (const auto groups = match_.groups.find(v); groups != match_.groups.end())
        made.groups = groups->second;
      return made;
    }
    HEDDLE_ASSIGN_OR_RETURN(std::vector<Made> operands, MakeOperands(term, channels));
    bool broadcast = false;
    HEDDLE_RETURN_IF_ERROR(CheckBroadcast(term.op, operands, &broadcast));
    if (channels.has_value() && (term.op == Op::kSplit0 || term.op == Op::kSplit1))
      HEDDLE_RETURN_IF_ERROR(SplitAt(*channels, term, &operands[0]));
    HEDDLE_ASSIGN_OR_RETURN(Made made, Apply(term, std::move(operands)));
    made.broadcast = broadcast;
    return made;
  }

  // A part of weights has the channels of the image that it is for, if nothing else says where they are split.
  absl::Status SplitAt(int64_t channels, const Term& term, Made* whole) {
    const Shape& shape = ShapeOf(whole->value);
    const auto rank = static_cast<int64_t>(shape.size());
    const int64_t axis = AxisOf(term.parameters[0], rank);
    if (axis != (matrices_ ? rank - 2 : 1) || axis >= rank || Tree(*whole, axis) != nullptr)
      return absl::OkStatus();
    const int64_t extent = shape[static_cast<size_t>(axis)];
    const int64_t point = term.op == Op::kSplit0 ? channels : extent - channels;
    if (split_at_.emplace(std::pair(whole->value, axis), point).first->second != point)
      return Refused("parts of the weights do not fit");
    whole->trees[axis] = std::make_shared<SplitNode>(SplitNode{point, nullptr, nullptr});
    return absl::OkStatus();
  }

  // Constants come last, because their types follow from the other operand.
  absl::StatusOr<std::vector<Made>> MakeOperands(const Term& term,
                                                 std::optional<int64_t> channels) {
    std::vector<Made> operands(term.operands.size());
    const bool convolves = term.op == Op::kConv || term.op == Op::kDepthwise;
    const bool whole = term.op == Op::kAdd || term.op == Op::kScale || term.op == Op::kEnlarge;
    for (const bool constants : {false, true}) {
      for (size_t i = 0; i < operands.size(); ++i) {
        if (IsConstant(term.operands[i]) != constants) continue;
        std::optional<int64_t> wanted;
        if (convolves && i == 1) wanted = ShapeOf(operands[0].value)[1];
        if (term.op == Op::kMatmul && i == 1 && !ShapeOf(operands[0].value).empty())
          wanted = ShapeOf(operands[0].value).back();
        if (whole || (constants && term.op == Op::kConcat)) wanted = channels;
        if (!constants) {
          HEDDLE_ASSIGN_OR_RETURN(operands[i], Make(term.operands[i], wanted));
          continue;
        }
        Place place{term.op, -1, i == 0, nullptr, wanted};
        if (term.op == Op::kConcat) place.axis = term.parameters[0][0] - '0';
        if (operands.size() == 2 && operands[1 - i].value >= 0)
          place.other = &ShapeOf(operands[1 - i].value);
        HEDDLE_ASSIGN_OR_RETURN(operands[i], MakeConstant(term.operands[i], place));
      }
    }
    return operands;
  }

  absl::StatusOr<Made> MakeConstant(const Term& term, const Place& place) {
    const TensorType& result = graph_.values[Index(match_.outputs[0])].type;
    HEDDLE_ASSIGN_OR_RETURN(Shape shape, ShapeOfConstant(term, place));
    const std::optional<TensorData> data = ConstantOf(term.op, {result.dtype, std::move(shape)});
    if (!data.has_value()) return Refused("a constant has no such type");
    return Made{out_.Constant(std::string(OpShapes()[static_cast<size_t>(term.op)].name), *data)};
  }

  absl::StatusOr<Shape> ShapeOfConstant(const Term& term, const Place& place) const {
    const Shape* other = place.other;
    switch (term.op) {
      case Op::kOnes:
        if (place.op != Op::kMul || other == nullptr) break;
        return Shape(other->size(), 1);
      case Op::kIdentity: {
        if (other == nullptr || other->size() < 2) break;
        if (place.op == Op::kAdd) return *other;
        const size_t rank = other->size();
        int64_t extent = 0;
        if (place.op == Op::kMatmul) extent = (*other)[place.first ? rank - 2 : rank - 1];
        if (place.op == Op::kConcat && place.axis >= 0 && place.axis <= 1)
          extent = (*other)[rank - 1 - static_cast<size_t>(place.axis)];
        if (extent == 0) break;
        return Shape{extent, extent};
      }
      case Op::kPoolWeights:
      case Op::kIdentityWeights: {
        const bool pool = term.op == Op::kPoolWeights;
        const auto bound = match_.parameters.find(term.parameters[0]);
        Shape shape;
        if (other != nullptr && place.op != Op::kConv && place.op != Op::kDepthwise) {
          shape = *other;
        } else if (bound != match_.parameters.end()) {
          shape = {0, 0};
          shape.insert(shape.end(), bound->second.kernel.begin(), bound->second.kernel.end());
        }
        if (shape.size() < 3) break;
        const Shape kernel(shape.begin() + 2, shape.end());
        if (bound != match_.parameters.end() && bound->second.kernel != kernel)
          return Refused("kernels differ");
        if (pool && (bound == match_.parameters.end() || bound->second != CountingAverage(kernel)))
          return Refused("the average is not that of a convolution");
        if (place.op == Op::kAdd && other != nullptr) return shape;
        if (place.op == Op::kConcat && !pool && place.axis >= 0 && place.axis <= 1) {
          shape[0] = shape[1] = shape[place.axis == 0 ? 1 : 0];
          return shape;
        }
        if (!place.channels.has_value()) break;
        const int64_t others = place.op == Op::kConcat && other != nullptr ? (*other)[0] : 0;
        shape[0] = *place.channels - others;
        shape[1] = pool ? 1 : shape[0];
        if (place.op == Op::kConcat && other == nullptr) break;
        if (shape[0] < 1) break;
        return shape;
      }
      default:
        break;
    }
    return Refused("the type of a constant is unknown");
  }

  // Whether the result is still broadcast.
  static absl::Status CheckBroadcast(Op op, const std::vector<Made>& operands, bool* result) {
    const bool first = operands[0].broadcast;
    const bool any = first || operands.back().broadcast, all = first && operands.back().broadcast;
    switch (op) {
      case Op::kAdd:
      case Op::kMul:
        *result = all;
        return absl::OkStatus();
      case Op::kScale:
      case Op::kMap:
      case Op::kTranspose:
      case Op::kSplit0:
      case Op::kSplit1:
        *result = first;
        return absl::OkStatus();
      case Op::kMatmul:
        // Rows that are alike have products that are alike.
        *result = first && !operands.back().broadcast;
        return operands.back().broadcast ? Refused("a broadcast operand would be used otherwise")
                                         : absl::OkStatus();
      case Op::kConcat:
        *result = all;
        return any && !all ? Refused("one of two parts is broadcast") : absl::OkStatus();
      default:
        return any ? Refused("a broadcast operand would be used otherwise") : absl::OkStatus();
    }
  }

  absl::StatusOr<Made> Apply(const Term& term, std::vector<Made> operands) {
    Made& a = operands[0];
    switch (term.op) {
      case Op::kAdd:
      case Op::kMul:
      case Op::kScale: {
        Made& b = operands[1];
        const int64_t rank =
            static_cast<int64_t>(std::max(ShapeOf(a.value).size(), ShapeOf(b.value).size()));
        HEDDLE_RETURN_IF_ERROR(Align(&a, rank));
        if (term.op != Op::kScale) HEDDLE_RETURN_IF_ERROR(Align(&b, rank));
        HEDDLE_ASSIGN_OR_RETURN(Made made, Add(term.op == Op::kAdd ? OpKind::kAdd : OpKind::kMul,
                                               {}, {a.value, b.value}));
        for (int64_t d = 0; d < rank; ++d) {
          const SplitTree ta = Tree(a, d), tb = Tree(b, d);
          const auto extent = [&](const Made& m) {
            return term.op == Op::kScale && &m == &b ? 1 : ShapeOf(m.value)[static_cast<size_t>(d)];
          };
          const SplitTree tree = extent(b) == 1 ? ta : extent(a) == 1 ? tb : CommonTree(ta, tb);
          if (tree != nullptr) made.trees[d] = tree;
        }
        if (term.op == Op::kAdd && a.groups != b.groups) return Refused("groups differ");
        made.groups = a.groups;
        return made;
      }
      case Op::kMap: {
        const Binding& f = match_.parameters.at(term.parameters[0]);
        HEDDLE_ASSIGN_OR_RETURN(Made made, Add(f.kind, f.attrs, {a.value}));
        made.trees = a.trees;
        return made;
      }
      case Op::kMove: {
        const Binding& movement = match_.parameters.at(term.parameters[0]);
        return Add(movement.kind, movement.attrs, {a.value});
      }
      case Op::kTranspose: {
        const auto rank = static_cast<int64_t>(ShapeOf(a.value).size());
        if (rank < 2) return Refused("a vector has no transpose");
        Shape perm(static_cast<size_t>(rank));
        for (int64_t d = 0; d < rank; ++d) perm[static_cast<size_t>(d)] = d;
        std::swap(perm[static_cast<size_t>(rank) - 1], perm[static_cast<size_t>(rank) - 2]);
        HEDDLE_ASSIGN_OR_RETURN(Made made, Add(OpKind::kTranspose, {{"perm", perm}}, {a.value}));
        for (const auto& [d, tree] : a.trees) made.trees[perm[static_cast<size_t>(d)]] = tree;
        return made;
      }
      case Op::kMatmul: {
        const Made& b = operands[1];
        if (a.broadcast) HEDDLE_RETURN_IF_ERROR(Align(&a, 2));
        if (ShapeOf(a.value).size() < 2 || ShapeOf(b.value).size() < 2)
          return Refused("a vector is no matrix");
        HEDDLE_ASSIGN_OR_RETURN(Made made, Add(OpKind::kMatmul, {}, {a.value, b.value}));
        const auto last = [&](const Made& m, int64_t from_end) {
          return Tree(m, static_cast<int64_t>(ShapeOf(m.value).size()) - from_end);
        };
        const auto rank = static_cast<int64_t>(ShapeOf(made.value).size());
        if (last(a, 2) != nullptr) made.trees[rank - 2] = last(a, 2);
        if (last(b, 1) != nullptr) made.trees[rank - 1] = last(b, 1);
        return made;
      }
      case Op::kConv:
      case Op::kDepthwise:
      case Op::kGrouped: {
        const Made& w = operands[1];
        const Shape& weights = ShapeOf(w.value);
        const Binding window = WindowOf(term.parameters[0], weights.size() - 2);
        std::optional<Attrs> attrs =
            WithKernel(window.attrs, Shape(weights.begin() + 2, weights.end()));
        if (!attrs.has_value()) return Refused("the padding does not fit the kernel");
        const int64_t groups = term.op == Op::kConv        ? 1
                               : term.op == Op::kDepthwise ? weights[0]
                                                           : w.groups;
        if (groups == 0) return Refused("the groups are unknown");
        (*attrs)["groups"] = groups;
        HEDDLE_ASSIGN_OR_RETURN(Made made, Add(window.kind, *attrs, {a.value, w.value}));
        if (Tree(a, 0) != nullptr) made.trees[0] = Tree(a, 0);
        if (Tree(w, 0) != nullptr) made.trees[1] = Tree(w, 0);
        return made;
      }
      case Op::kAvgPool:
      case Op::kMaxPool: {
        const Binding& pool = match_.parameters.at(term.parameters[0]);
        const Binding& window = match_.parameters.at(term.parameters[1]);
        std::optional<Attrs> attrs = WithKernel(window.attrs, pool.kernel);
        if (!attrs.has_value()) return Refused("the padding does not fit the kernel");
        (*attrs)["kernel"] = pool.kernel;
        attrs->insert(pool.attrs.begin(), pool.attrs.end());
        HEDDLE_ASSIGN_OR_RETURN(Made made, Add(pool.kind, *attrs, {a.value}));
        for (const int64_t d : {0, 1}) {
          if (Tree(a, d) != nullptr) made.trees[d] = Tree(a, d);
        }
        return made;
      }
      case Op::kEnlarge: {
        const Shape& shape = ShapeOf(a.value);
        const int64_t extent = match_.kernels.at(term.parameters[0]);
        Shape begin(shape.size(), 0), end(shape.size(), 0);
        for (size_t d = 2; d < shape.size(); ++d) begin[d] = end[d] = (extent - shape[d]) / 2;
        HEDDLE_ASSIGN_OR_RETURN(Made made,
                                Add(OpKind::kPad, {{"begin", begin}, {"end", end}}, {a.value}));
        made.trees = a.trees;
        made.groups = a.groups;
        return made;
      }
      case Op::kMergeGroups: {
        const int64_t factor = match_.kernels.at(term.parameters[0]);
        const TensorData* weights = out_.ConstantData(a.value);
        if (weights == nullptr) return Refused("the weights are computed");
        if (a.groups == 0 || a.groups % factor != 0)
          return Refused("the groups cannot be merged so");
        const std::string name = absl::StrCat(out_.Name(a.value), "/merged");
        Made made{out_.Constant(name, graph::MergeGroups(*weights, a.groups, factor))};
        made.groups = a.groups / factor;
        return made;
      }
      case Op::kConcat: {
        Made& b = operands[1];
        const int64_t rank =
            static_cast<int64_t>(std::max(ShapeOf(a.value).size(), ShapeOf(b.value).size()));
        // A broadcast operand has its full rank where it meets one that has.
        const int64_t full = std::max(rank, FullRank());
        HEDDLE_RETURN_IF_ERROR(Align(&a, full));
        HEDDLE_RETURN_IF_ERROR(Align(&b, full));
        const int64_t axis = AxisOf(term.parameters[0], full);
        if (axis < 0 || axis >= full) return Refused("a dimension is missing");
        if (a.groups > 0 || b.groups > 0) {
          const auto outputs = [&](const Made& m) {
            return m.groups == 0 ? 0 : ShapeOf(m.value)[0] / m.groups;
          };
          if (axis != 0 || outputs(a) != outputs(b)) return Refused("groups differ");
        }
        HEDDLE_ASSIGN_OR_RETURN(Made made,
                                Add(OpKind::kConcat, {{"axis", axis}}, {a.value, b.value}));
        for (int64_t d = 0; d < full; ++d) {
          if (const SplitTree tree = CommonTree(Tree(a, d), Tree(b, d)); tree != nullptr)
            made.trees[d] = tree;
        }
        made.trees[axis] = std::make_shared<SplitNode>(
            SplitNode{ShapeOf(a.value)[static_cast<size_t>(axis)], Tree(a, axis), Tree(b, axis)});
        made.groups = a.groups + b.groups;
        return made;
      }
      case Op::kSplit0:
      case Op::kSplit1: {
        const Shape sizes = ShapeOf(a.value);
        const int64_t axis = AxisOf(term.parameters[0], static_cast<int64_t>(sizes.size()));
        const SplitTree tree = Tree(a, axis);
        if (tree == nullptr) return Refused("it is unknown where to split");
        const bool second = term.op == Op::kSplit1;
        Shape starts(sizes.size(), 0), steps(sizes.size(), 1), part = sizes;
        int64_t& size = part[static_cast<size_t>(axis)];
        if (second) starts[static_cast<size_t>(axis)] = tree->first;
        size = second ? size - tree->first : tree->first;
        if (size <= 0) return Refused("a part is empty");
        HEDDLE_ASSIGN_OR_RETURN(
            Made made, Add(OpKind::kSlice, {{"starts", starts}, {"steps", steps}, {"sizes", part}},
                           {a.value}));
        made.trees = a.trees;
        made.trees[axis] = second ? tree->right : tree->left;
        return made;
      }
      default:
        return Refused("it has an operator that graphs do not have");
    }
  }

  // Window 1 is one that keeps the extents, if the source does not say which.
  Binding WindowOf(const std::string& parameter, size_t dimensions) const {
    const auto bound = match_.parameters.find(parameter);
    return bound != match_.parameters.end() ? bound->second : PlainWindow(dimensions);
  }

  static SplitTree Tree(const Made& made, int64_t axis) {
    const auto found = made.trees.find(axis);
    return found == made.trees.end() ? nullptr : found->second;
  }

  // The rank of what the rule computes: a bias of an image has fewer dimensions.
  int64_t FullRank() const {
    if (matrices_ || !elementwise_) return 0;
    int64_t rank = 0;
    for (const ValueId v : match_.outputs)
      rank = std::max(rank, static_cast<int64_t>(graph_.values[Index(v)].type.shape.size()));
    return rank;
  }

  // Puts dimensions of extent 1 in front.
  absl::Status Align(Made* made, int64_t rank) {
    Shape shape = ShapeOf(made->value);
    const int64_t missing = rank - static_cast<int64_t>(shape.size());
    if (missing <= 0) return absl::OkStatus();
    shape.insert(shape.begin(), static_cast<size_t>(missing), 1);
    HEDDLE_ASSIGN_OR_RETURN(const Made aligned,
                            Add(OpKind::kReshape, {{"shape", shape}}, {made->value}));
    std::map<int64_t, SplitTree> trees;
    for (const auto& [d, tree] : made->trees) trees[d + missing] = tree;
    *made = {aligned.value, std::move(trees), made->broadcast};
    return absl::OkStatus();
  }

  absl::StatusOr<Made> Add(OpKind kind, const Attrs& attrs, std::vector<ValueId> inputs) {
    const Node& first = graph_.nodes[static_cast<size_t>(match_.nodes[0])];
    absl::StatusOr<ValueId> value = out_.Add(kind, std::move(inputs), attrs, first.name);
    if (!value.ok()) return Refused(std::string(value.status().message()));
    return Made{*value};
  }

  const Graph& graph_;
  const Rule& rule_;
  const Match& match_;
  bool matrices_;
  bool elementwise_ = !AnyTerm(rule_, [](const Term& t) {
    return t.op == Op::kConv || t.op == Op::kDepthwise || t.op == Op::kGrouped ||
           t.op == Op::kEnlarge;
  });
  std::vector<int> producers_;
  std::vector<ValueId> map_;  // of the new graph, by values of the old one
  std::vector<State> state_;
  std::map<ValueId, size_t> replaced_;  // outputs of the source, with their terms
  GraphBuilder out_;
  bool building_ = false;
  std::vector<ValueId> targets_;
  std::map<std::string, Made> made_;  // by text of terms
  std::map<std::pair<ValueId, int64_t>, int64_t>
      split_at_;  // by value and axis, where SplitAt splits
};

bool Subset(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::all_of(a.begin(), a.end(),
                     [&](const std::string& x) { return std::count(b.begin(), b.end(), x) > 0; });
}

// Whether every term shares a variable with those before it.
bool Connected(const std::vector<Term>& terms) {
  std::vector<std::string> known = VariablesOf(std::span(terms).first(1));
  for (size_t i = 1; i < terms.size(); ++i) {
    const std::vector<std::string> own = VariablesOf(std::span(terms).subspan(i, 1));
    if (std::none_of(own.begin(), own.end(), [&](const std::string& name) {
          return std::count(known.begin(), known.end(), name) > 0;
        }))
      return false;
    known.insert(known.end(), own.begin(), own.end());
  }
  return true;
}

std::vector<Match> Sorted(std::vector<Match> matches) {
  std::stable_sort(matches.begin(), matches.end(),
                   [](const Match& a, const Match& b) { return a.nodes < b.nodes; });
  return matches;
}

bool CanApply(const Rule& rule) {
  if (std::any_of(rule.source.begin(), rule.source.end(),
                  [](const Term& t) { return t.operands.empty(); }))
    return false;
  // Graphs have no such operators; their results are constants.
  bool folded = false;
  for (const Term& term : rule.source) {
    VisitTerms(term, [&](const Term& t) {
      folded = folded || t.op == Op::kEnlarge || t.op == Op::kMergeGroups;
    });
  }
  if (folded || !Connected(rule.source)) return false;
  if (std::any_of(rule.target.begin(), rule.target.end(), IsConstant)) return false;
  // A constant is made in place of an operator, not in addition to all of them.
  bool constants = false;
  for (const Term& term : rule.target)
    VisitTerms(term, [&](const Term& t) { constants = constants || IsConstant(t); });
  if (constants && NumOperators(rule.target) > NumOperators(rule.source)) return false;
  if (!Subset(VariablesOf(rule.target), VariablesOf(rule.source))) return false;
  std::set<std::string> kernels;
  for (const Term& term : rule.target) {
    VisitTerms(term, [&](const Term& t) {
      if (t.op == Op::kEnlarge || t.op == Op::kMergeGroups || t.op == Op::kIdentityWeights)
        kernels.insert(t.parameters[0]);
    });
  }
  std::vector<std::string> needed = ParametersOf(rule.target);
  std::erase_if(needed, [&](const std::string& p) { return kernels.contains(p); });
  return Subset(needed, ParametersOf(rule.source));
}

}  // namespace

std::vector<DirectedRule> Applicable(const std::vector<Rule>& rules) {
  std::vector<DirectedRule> directed;
  for (const Rule& rule : rules) {
    if (CanApply(rule)) directed.push_back({NameOf(rule), rule});
    if (const Rule reversed = Reversed(rule); CanApply(reversed))
      directed.push_back({kReversed + NameOf(rule), reversed});
  }
  // A search tries first what makes graphs smaller.
  const auto growth = [](const DirectedRule& r) {
    return NumOperators(r.rule.target) - NumOperators(r.rule.source);
  };
  std::stable_sort(directed.begin(), directed.end(),
                   [&](const auto& a, const auto& b) { return growth(a) < growth(b); });
  return directed;
}

std::vector<Match> FindMatches(const Graph& graph, const DirectedRule& rule, size_t limit) {
  return Sorted(Matcher(graph, rule, limit).Run());
}

absl::StatusOr<Graph> Apply(const Graph& graph, const DirectedRule& rule, const Match& match) {
  return Rewriter(graph, rule.rule, match).Run();
}

std::vector<plan::Substitution> Named(const Graph& graph, const DirectedRule& rule,
                                      const std::vector<Match>& matches) {
  std::vector<plan::Substitution> named;
  std::map<std::vector<int>, int> ways;
  for (const Match& match : matches) {
    plan::Substitution& substitution = named.emplace_back();
    substitution.rule = rule.name;
    substitution.way = ways[match.nodes]++;
    for (const int n : match.nodes)
      substitution.nodes.push_back(graph.nodes[static_cast<size_t>(n)].name);
  }
  return named;
}

absl::StatusOr<NamedMatch> FindNamed(const Graph& graph, const std::vector<DirectedRule>& rules,
                                     const plan::Substitution& substitution) {
  const auto rule = std::find_if(rules.begin(), rules.end(), [&](const DirectedRule& r) {
    return r.name == substitution.rule;
  });
  if (rule == rules.end()) {
    return absl::NotFoundError(
        absl::StrCat("no rule '", substitution.rule, "'; the plan was made by another version"));
  }
  const std::set<std::string> names(substitution.nodes.begin(), substitution.nodes.end());
  std::set<int> nodes;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (names.contains(graph.nodes[n].name)) nodes.insert(static_cast<int>(n));
  }
  std::vector<Match> matches = Sorted(Matcher(graph, *rule, kMostMatches, &nodes).Run());
  const std::vector<plan::Substitution> named = Named(graph, *rule, matches);
  for (size_t i = 0; i < matches.size(); ++i) {
    if (named[i] == substitution) return NamedMatch{&*rule, std::move(matches[i])};
  }
  return DoesNotApply(substitution);
}

absl::Status DoesNotApply(const plan::Substitution& substitution) {
  return absl::NotFoundError(absl::StrCat("rule '", substitution.rule, "' does not apply to ",
                                          absl::StrJoin(substitution.nodes, ", ")));
}

}  // namespace heddle::substitution
