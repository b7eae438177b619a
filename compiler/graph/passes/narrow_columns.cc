#include "compiler/graph/passes/narrow_columns.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

// Places along a dimension, ascending; nullopt: all of them.
using Places = std::optional<Shape>;
// A reshape of a larger dimension is computed whole.
constexpr int64_t kMostPlaces = int64_t{1} << 22;
// Of the rows of a matrix, so that it is worth picking them.
constexpr double kFew = 0.75;
// By dimension of a value. The elements at all places of all dimensions are meant.
using Box = std::vector<Places>;

bool IsWhole(const Box& box) {
  return std::none_of(box.begin(), box.end(), [](const Places& p) { return p.has_value(); });
}

// All places if these are as many.
Places Among(Shape places, int64_t extent) {
  if (static_cast<int64_t>(places.size()) == extent) return std::nullopt;
  return places;
}

Places Sorted(Shape places, int64_t extent) {
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return Among(std::move(places), extent);
}

Places Union(const Places& a, const Places& b, int64_t extent) {
  if (!a || !b) return std::nullopt;
  Shape both = *a;
  both.insert(both.end(), b->begin(), b->end());
  return Sorted(std::move(both), extent);
}

class Narrower {
 public:
  explicit Narrower(const Graph& graph)
      : graph_(graph),
        producers_(Producers(graph)),
        kept_(graph.values.size()),
        is_read_(graph.values.size(), false) {
    for (size_t v = 0; v < graph.values.size(); ++v)
      kept_[v] = Box(graph.values[v].type.shape.size());
  }

  // Whether there is anything to leave out.
  bool FindNeeds() {
    std::vector<std::optional<Box>> needs(
        graph_.values.size());  // nullopt: nothing reads the value
    const auto read = [&](ValueId v, const Box& box) {
      if (!needs[v]) {
        needs[v] = box;
        return;
      }
      for (size_t d = 0; d < box.size(); ++d)
        (*needs[v])[d] = Union((*needs[v])[d], box[d], ShapeOf(v)[d]);
    };
    for (ValueId v : graph_.outputs) read(v, kept_[v]);
    bool any = false;
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      const ValueId result = node.outputs[0];
      if (!needs[result]) continue;
      is_read_[result] = true;
      kept_[result] = Possible(node, *needs[result]);
      any |= !IsWhole(kept_[result]);
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        if (const std::optional<Box> box = Read(node, k)) read(node.inputs[k], *box);
      }
    }
    return any;
  }

  Replacement operator()(GraphBuilder& out, const Node& node, const Node& original) {
    if (!is_read_[original.outputs[0]] && !node.inputs.empty()) return node.inputs[0];
    const Box& kept = kept_[original.outputs[0]];
    if (const std::optional<Shape> picked = ConstantPlaces(original)) {
      const bool same = IsWhole(kept) && IsWhole(kept_[original.inputs[0]]);
      return same ? Replacement(std::nullopt) : Gather(out, node, original, *picked);
    }
    Node narrow = node;
    narrow.inputs.clear();
    bool same = IsWhole(kept);
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const std::optional<Box> box = Read(original, k);
      same &= box.has_value();
      if (!box) continue;
      HEDDLE_ASSIGN_OR_RETURN(const ValueId v,
                              Taken(out, node.inputs[k], kept_[original.inputs[k]], *box));
      same &= v == node.inputs[k];
      narrow.inputs.push_back(v);
    }
    if (same) return std::nullopt;
    if (node.kind == OpKind::kConcat && narrow.inputs.size() == 1) return narrow.inputs[0];
    const Shape shape = Extents(ShapeOf(original.outputs[0]), kept);
    if (node.kind == OpKind::kReshape || node.kind == OpKind::kExpand)
      narrow.attrs["shape"] = shape;
    if (node.kind == OpKind::kSlice) {
      Shape starts = AttrsOf(original).Ints("starts"), steps = AttrsOf(original).Ints("steps");
      for (size_t d = 0; d < kept.size(); ++d) {
        if (!kept[d]) continue;
        starts[d] = 0;  // the operand holds nothing else
        steps[d] = 1;
      }
      narrow.attrs["starts"] = starts;
      narrow.attrs["steps"] = steps;
      narrow.attrs["sizes"] = shape;
    }
    return out.Add(narrow.kind, narrow.inputs, narrow.attrs, node.name);
  }

 private:
  const Shape& ShapeOf(ValueId v) const { return graph_.values[v].type.shape; }

  static Shape Extents(const Shape& shape, const Box& box) {
    Shape extents = shape;
    for (size_t d = 0; d < box.size(); ++d) {
      if (box[d]) extents[d] = static_cast<int64_t>(box[d]->size());
    }
    return extents;
  }

  // The places that a gather takes, if they are a constant vector; from 0 on.
  std::optional<Shape> ConstantPlaces(const Node& node) const {
    if (node.kind != OpKind::kGather) return std::nullopt;
    const auto known = graph_.constants.find(node.inputs[1]);
    if (known == graph_.constants.end() || known->second.type.shape.size() != 1)
      return std::nullopt;
    const int64_t extent = ShapeOf(node.inputs[0])[static_cast<size_t>(GatherAxis(node))];
    Shape places = ToInts(known->second);
    for (int64_t& place : places)  // as the operator reads them
      place = std::clamp<int64_t>(place < 0 ? place + extent : place, 0, extent - 1);
    return places;
  }

  int64_t GatherAxis(const Node& node) const {
    const auto rank = static_cast<int64_t>(ShapeOf(node.inputs[0]).size());
    const int64_t axis = AttrsOf(node).Int("axis");
    return axis < 0 ? axis + rank : axis;
  }

  int64_t ConcatAxis(const Node& node) const {
    const auto rank = static_cast<int64_t>(ShapeOf(node.outputs[0]).size());
    const int64_t axis = AttrsOf(node).Int("axis");
    return axis < 0 ? axis + rank : axis;
  }

  // ---- Reshape ----

  // The dimensions of the operand that make up dimension `d` of the result: one, or two next to each other, without those of
  // extent one; empty if it is otherwise.
  std::vector<size_t> Sources(const Node& node, size_t d) const {
    const Shape &from = ShapeOf(node.inputs[0]), &to = ShapeOf(node.outputs[0]);
    int64_t before = 1, so_far = 1;
    for (size_t k = 0; k < d; ++k) before *= to[k];
    size_t at = 0;
    while (at < from.size() && (so_far < before || from[at] == 1)) so_far *= from[at++];
    if (so_far != before || at == from.size()) return {};
    if (from[at] == to[d]) return {at};
    size_t next = at + 1;
    while (next < from.size() && from[next] == 1) ++next;
    if (next < from.size() && from[at] * from[next] == to[d]) return {at, next};
    return {};
  }

  // The places in a dimension of extent `inner` and in the one before it that make up these.
  static std::pair<Places, Places> Parts(const Shape& places, int64_t outer, int64_t inner) {
    Shape of_outer, of_inner;
    for (const int64_t place : places) {
      of_outer.push_back(place / inner);
      of_inner.push_back(place % inner);
    }
    return {Sorted(std::move(of_outer), outer), Sorted(std::move(of_inner), inner)};
  }

  static Shape All(const Places& places, int64_t extent) {
    if (places) return *places;
    Shape all;
    for (int64_t k = 0; k < extent; ++k) all.push_back(k);
    return all;
  }

  // The places of dimension d that a reshape can keep apart from the others: `need`, or more.
  Places Reshaped(const Node& node, size_t d, const Shape& need) const {
    const std::vector<size_t> sources = Sources(node, d);
    if (sources.size() == 1) return need;
    if (sources.empty()) return std::nullopt;
    const Shape& from = ShapeOf(node.inputs[0]);
    const int64_t outer = from[sources[0]], inner = from[sources[1]];
    if (outer * inner > kMostPlaces) return std::nullopt;
    const auto [of_outer, of_inner] = Parts(need, outer, inner);
    Shape places;
    for (const int64_t i : All(of_outer, outer)) {
      for (const int64_t k : All(of_inner, inner)) places.push_back(i * inner + k);
    }
    return Among(std::move(places), outer * inner);
  }

  // ---- What operators can leave out, and what they read ----

  // Which of its elements the result of a node has if `need` is read: these, or more.
  Box Possible(const Node& node, const Box& need) const {
    const OpDef& def = Def(node.kind);
    if (def.elementwise) return node.kind == OpKind::kBatchNorm ? Box(need.size()) : need;
    if (def.family == OpFamily::kReduction) return need;
    switch (node.kind) {
      case OpKind::kConcat:
      case OpKind::kTranspose:
      case OpKind::kGather:
      case OpKind::kMatmul:
      case OpKind::kExpand:
        return need;
      case OpKind::kSlice: {
        Box box = need;
        for (size_t d = 0; d < box.size(); ++d) {
          if (AttrsOf(node).Ints("steps")[d] < 1) box[d] = std::nullopt;  // turns the order round
        }
        return box;
      }
      case OpKind::kReshape: {
        Box box = need;
        for (size_t d = 0; d < box.size(); ++d) {
          if (box[d]) box[d] = Reshaped(node, d, *box[d]);
        }
        return box;
      }
      default:
        return Box(need.size());
    }
  }

  // Which elements of operand k a node reads for what its result keeps; nullopt: none.
  std::optional<Box> Read(const Node& node, size_t k) const {
    const Shape &from = ShapeOf(node.inputs[k]), &to = ShapeOf(node.outputs[0]);
    const Box& kept = kept_[node.outputs[0]];
    Box box(from.size());
    if (const std::optional<Shape> picked = ConstantPlaces(node)) {
      if (k > 0) return box;
      const auto axis = static_cast<size_t>(GatherAxis(node));
      box = kept;
      Shape places;
      for (const int64_t at : All(kept[axis], to[axis]))
        places.push_back((*picked)[static_cast<size_t>(at)]);
      box[axis] = Sorted(std::move(places), from[axis]);
      return box;
    }
    if (node.kind == OpKind::kMatmul) return ReadByProduct(node, k, kept);
    if (IsWhole(kept)) return box;
    const OpDef& def = Def(node.kind);
    const size_t shift = to.size() - std::min(from.size(), to.size());
    if (def.elementwise || node.kind == OpKind::kExpand) {
      for (size_t d = 0; d < from.size(); ++d) {
        if (from[d] == to[d + shift]) box[d] = kept[d + shift];
      }
      return box;
    }
    if (def.family == OpFamily::kReduction) return ReadByReduction(node, kept);
    switch (node.kind) {
      case OpKind::kConcat: {
        const auto axis = static_cast<size_t>(ConcatAxis(node));
        box = kept;
        if (!kept[axis]) return box;
        int64_t begin = 0;
        for (size_t i = 0; i < k; ++i) begin += ShapeOf(node.inputs[i])[axis];
        Shape places;
        for (const int64_t place : *kept[axis]) {
          if (place >= begin && place < begin + from[axis]) places.push_back(place - begin);
        }
        if (places.empty()) return std::nullopt;
        box[axis] = Among(std::move(places), from[axis]);
        return box;
      }
      case OpKind::kTranspose: {
        const Shape& perm = AttrsOf(node).Ints("perm");
        for (size_t d = 0; d < perm.size(); ++d) box[static_cast<size_t>(perm[d])] = kept[d];
        return box;
      }
      case OpKind::kReshape:
        for (size_t d = 0; d < kept.size(); ++d) {
          if (!kept[d]) continue;
          const std::vector<size_t> sources = Sources(node, d);
          if (sources.size() == 1)
            box[sources[0]] = kept[d];
          else
            std::tie(box[sources[0]], box[sources[1]]) =
                Parts(*kept[d], from[sources[0]], from[sources[1]]);
        }
        return box;
      case OpKind::kSlice: {
        const OpAttrs attrs = AttrsOf(node);
        for (size_t d = 0; d < kept.size(); ++d) {
          if (!kept[d]) continue;
          Shape places;
          for (const int64_t at : *kept[d])
            places.push_back(attrs.Ints("starts")[d] + at * attrs.Ints("steps")[d]);
          box[d] = Sorted(std::move(places), from[d]);
        }
        return box;
      }
      case OpKind::kGather: {
        // Dimensions of the result: those of the data before the axis, those of the indices, those of the data behind it.
        const auto axis = static_cast<size_t>(GatherAxis(node));
        const size_t rank = ShapeOf(node.inputs[1]).size();
        for (size_t d = 0; d < from.size(); ++d) {
          if (k == 1)
            box[d] = kept[axis + d];
          else if (d != axis)
            box[d] = kept[d < axis ? d : d + rank - 1];
        }
        return box;
      }
      default:
        return box;
    }
  }

  Box ReadByProduct(const Node& node, size_t k, const Box& kept) const {
    const Shape &from = ShapeOf(node.inputs[k]), &to = ShapeOf(node.outputs[0]);
    const size_t n = from.size(), shift = to.size() - n;
    Box box(n);
    for (size_t d = 0; d + 2 < n; ++d) {
      if (from[d] == to[d + shift]) box[d] = kept[d + shift];
    }
    box[k == 0 ? n - 2 : n - 1] = kept[to.size() - (k == 0 ? 2 : 1)];
    if (IsFinite(node.inputs[0])) box[k == 0 ? n - 1 : n - 2] = SummedPlaces(node.inputs[1]);
    return box;
  }

  // Whether a value cannot hold NaN or an infinity, because it comes from an encoder: it was made of integers or truths.
  bool IsFinite(ValueId v) const {
    if (!ir::IsFloat(graph_.values[v].type.dtype)) return true;
    const int at = producers_[v];
    if (at < 0) return false;
    const Node& node = graph_.nodes[static_cast<size_t>(at)];
    switch (node.kind) {
      case OpKind::kCast:
      case OpKind::kReshape:
      case OpKind::kTranspose:
      case OpKind::kGather:
        return IsFinite(node.inputs[0]);
      case OpKind::kConcat:
        return std::all_of(node.inputs.begin(), node.inputs.end(),
                           [&](ValueId part) { return IsFinite(part); });
      default:
        return false;
    }
  }

  // The rows of a constant matrix that are not zero, if these are few: others add nothing to a product with what is finite.
  Places SummedPlaces(ValueId v) const {
    const auto known = graph_.constants.find(v);
    if (known == graph_.constants.end() || ShapeOf(v).size() != 2) return std::nullopt;
    const int64_t rows = ShapeOf(v)[0], columns = ShapeOf(v)[1];
    // Numbers, not bytes: a classifier of two classes has a weight and its opposite, and so 0 and -0.
    const std::vector<double> weights = ToDoubles(known->second);
    Shape places;
    for (int64_t i = 0; i < rows; ++i) {
      const auto row = weights.begin() + i * columns;
      if (std::any_of(row, row + columns, [](double w) { return w != 0; })) places.push_back(i);
    }
    if (places.empty()) places.push_back(0);
    const bool few = static_cast<double>(places.size()) <= kFew * static_cast<double>(rows);
    return few ? Among(std::move(places), rows) : std::nullopt;
  }

  Box ReadByReduction(const Node& node, const Box& kept) const {
    const Shape& from = ShapeOf(node.inputs[0]);
    Box box(from.size());
    const OpAttrs attrs = AttrsOf(node);
    const auto axes = NormalizeAxes(attrs.Ints("axes"), static_cast<int>(from.size()));
    size_t at = 0;
    for (size_t d = 0; d < from.size(); ++d) {
      const bool reduced = std::count(axes->begin(), axes->end(), static_cast<int64_t>(d)) > 0;
      if (!reduced) box[d] = kept[at];
      if (!reduced || attrs.Flag("keepdims")) ++at;
    }
    return box;
  }

  // ---- The narrow graph ----

  // `v` holds `has` of a value; the part `wanted` of it.
  static absl::StatusOr<ValueId> Taken(GraphBuilder& out, ValueId v, const Box& has,
                                       const Box& wanted) {
    for (size_t d = 0; d < has.size(); ++d) {
      if (has[d] == wanted[d] || !wanted[d]) continue;
      HEDDLE_ASSIGN_OR_RETURN(v, Picked(out, v, d, Positions(*wanted[d], has[d])));
    }
    return v;
  }

  // Where these places are among those that are there.
  static Shape Positions(const Shape& places, const Places& among) {
    if (!among) return places;
    Shape positions;
    for (const int64_t place : places)
      positions.push_back(std::lower_bound(among->begin(), among->end(), place) - among->begin());
    return positions;
  }

  static absl::StatusOr<ValueId> Picked(GraphBuilder& out, ValueId v, size_t axis,
                                        const Shape& positions) {
    return out.Add(OpKind::kGather, {v, out.Constant("needed", FromInts(positions))},
                   {{"axis", static_cast<int64_t>(axis)}}, out.Name(v) + "_needed");
  }

  // A gather of constant places takes from what there is, without a further one before it.
  Replacement Gather(GraphBuilder& out, const Node& node, const Node& original,
                     const Shape& picked) const {
    const auto axis = static_cast<size_t>(GatherAxis(original));
    const Box& has = kept_[original.inputs[0]];
    Box wanted = *Read(original, 0);
    const Shape places = All(kept_[original.outputs[0]][axis], ShapeOf(original.outputs[0])[axis]);
    Shape taken;
    for (const int64_t at : places) taken.push_back(picked[static_cast<size_t>(at)]);
    wanted[axis] = has[axis];
    HEDDLE_ASSIGN_OR_RETURN(const ValueId v, Taken(out, node.inputs[0], has, wanted));
    const Shape positions = Positions(taken, has[axis]);
    bool all = static_cast<int64_t>(positions.size()) == out.Type(v).shape[axis];
    for (size_t k = 0; k < positions.size(); ++k) all &= positions[k] == static_cast<int64_t>(k);
    if (all) return v;
    return Picked(out, v, axis, positions);
  }

  const Graph& graph_;
  std::vector<int> producers_;  // by value; -1: none
  // By value: what the narrow graph has of it, and whether anything needs it there.
  std::vector<Box> kept_;
  std::vector<bool> is_read_;
};

}  // namespace

absl::StatusOr<Graph> NarrowColumns(const Graph& graph) {
  Narrower narrower(graph);
  if (!narrower.FindNeeds()) return graph;
  return RewriteGraph(graph, std::ref(narrower));
}

}  // namespace heddle::graph
