// Decision trees: forest_walk, forest_select, forest_ranks, forest_leaves, digitize (Nakandala et al., "A Tensor Compiler for Unified
// Machine Learning Prediction Serving", OSDI 2020: tree traversal; Lucchese et al., "QuickScorer", SIGIR 2015: leaves that nodes rule
// out; the others are our own).
//
// x: [K, n], n records with K columns, stored by columns. A node asks whether x[its column] >= its threshold; no goes
// left. There are G groups of T trees, and the result [G, W, n] reduces what the trees of a group say of a
// record: one value (W = 1) or several. All of them compute the same; which one is faster depends on the depth,
// the number of records and the target.
//
// A column or a node out of range reads the nearest one, because a kernel must not fault on any input.
#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

using ir::DType;
using ir::Expr;
using ir::Make;
using ir::Op;

// The trees of forest_select are complete, so a level more doubles its work and its text.
constexpr int64_t kMostSelectLevels = 8;
// Each level is a stage.
constexpr int64_t kMostSteps = 512;
// The leaf of a complete tree that forest_ranks finds is a byte.
constexpr int64_t kMostLeaves = 256;
// Leaves of a subtree whose numbers are constants.
constexpr int64_t kConstantLeaves = 8;
// Nodes of a tree of forest_leaves that ask something. Its leaves are one more, and their numbers are bytes.
constexpr int64_t kMostAsked = 255;
// So many of them are one stage. Each node names the one before it twice, so the text of a stage doubles with each.
constexpr int64_t kAskedAtOnce = 3;
// Entries of a column's row of cuts: the 255 that are counted in a byte, and one of padding, so that vectors are full.
constexpr int64_t kMostCutEntries = 256;

// A number, an element of `from`, as an index below `extent`. It is i32, i8 or u8.
Expr Index(Expr number, const tensor::Tensor& from, int64_t extent) {
  const int64_t below = from.buffer()->below;
  if (below > 0 && below <= extent) return ir::Cast(DType::kI64, std::move(number));
  if (from.dtype() == DType::kU8) {
    if (extent < 256) number = Make(Op::kMin, {std::move(number), ir::Int(extent - 1, DType::kU8)});
    return ir::Cast(DType::kI64, std::move(number));
  }
  Expr least = ir::Int(0, from.dtype()), most = ir::Int(extent - 1, from.dtype());
  return ir::Cast(DType::kI64, Make(Op::kMin, {Make(Op::kMax, {std::move(number), least}), most}));
}

Expr GoesRight(const tensor::Tensor& x, const tensor::Tensor& columns,
               const tensor::Tensor& thresholds, std::vector<Expr> node, const Expr& record) {
  Expr column = Index(columns.At(node), columns, x.shape()[0]);
  return Make(Op::kLe, {thresholds.At(std::move(node)), x(column, record)});
}

absl::StatusOr<ir::ReduceOp> ReduceOpOf(const OpAttrs& attrs) {
  const std::string& name = attrs.Text("reduce");
  if (name == "sum") return ir::ReduceOp::kSum;
  if (name == "min") return ir::ReduceOp::kMin;
  if (name == "max") return ir::ReduceOp::kMax;
  return BadInput(absl::StrCat("reduce is \"", name, "\"; it may be sum, min or max"));
}

// x, and tables of `nodes` (0: any number of) entries for each tree. With `blocks`, trees may stand side by side, in another dimension.
absl::Status ExpectForest(Types in, int64_t nodes, bool blocks = false) {
  const TensorType &x = in[0], &columns = in[1], &thresholds = in[2];
  if (x.shape.size() != 2)
    return BadInput(absl::StrCat("x is ", ToText(x), ", not [columns, records]"));
  if (x.dtype == DType::kBool || ir::IsHalf(x.dtype))
    return BadInput(absl::StrCat("is not defined on ", ToText(x)));
  const size_t rank = columns.shape.size();
  if (columns.dtype != DType::kI32 || (rank != 3 && !(blocks && rank == 4))) {
    return BadInput(absl::StrCat("columns are ", ToText(columns), ", not i32[groups, trees, nodes]",
                                 blocks ? " or [groups, blocks, nodes, trees in a block]" : ""));
  }
  if (nodes != 0 && columns.shape[2] != nodes)
    return BadInput(
        absl::StrCat("columns are ", ToText(columns), "; a tree has ", nodes, " nodes"));
  if (thresholds != TensorType{x.dtype, columns.shape}) {
    return BadInput(absl::StrCat("thresholds are ", ToText(thresholds), "; x is ", ToText(x),
                                 " and columns are ", ToText(columns)));
  }
  return absl::OkStatus();
}

absl::Status ExpectValues(const TensorType& values, const Shape& trees, int64_t leaves) {
  const bool fits = values.shape.size() == 4 && values.shape[0] == trees[0] &&
                    values.shape[1] == trees[1] && values.shape[2] == leaves &&
                    ir::IsFloat(values.dtype) && !ir::IsHalf(values.dtype);
  if (fits) return absl::OkStatus();
  return BadInput(absl::StrCat("values are ", ToText(values), ", not floats of [", trees[0], ", ",
                               trees[1], ", ", leaves, ", values]"));
}

// forest_walk {steps, reduce}: the operands are x [K, n], and for each node of a tree its column, its threshold (both
// [G, T, N]), its left child [G, T, N] (the right one is the next node), and its values [G, T, N, W]. A walk begins at
// node 0 and takes `steps` steps. A leaf is its own left child, and its threshold is one that nothing reaches (NaN).
absl::StatusOr<TensorType> InferWalk(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 5, 5));
  HEDDLE_RETURN_IF_ERROR(ExpectForest(in, 0));
  HEDDLE_RETURN_IF_ERROR(ReduceOpOf(attrs).status());
  const Shape& nodes = in[1].shape;
  if (in[3] != in[1])
    return BadInput(absl::StrCat("left children are ", ToText(in[3]), ", not ", ToText(in[1])));
  HEDDLE_RETURN_IF_ERROR(ExpectValues(in[4], nodes, nodes[2]));
  const int64_t steps = attrs.Int("steps");
  if (steps < 0 || steps > kMostSteps)
    return BadInput(absl::StrCat(steps, " steps; there may be 0 to ", kMostSteps));
  return TensorType{in[4].dtype, {nodes[0], in[4].shape[3], in[0].shape[1]}};
}

absl::StatusOr<tensor::Tensor> ExpressWalk(tensor::Builder& b, Tensors in, const OpAttrs& attrs) {
  const tensor::Tensor &x = in[0], &columns = in[1], &thresholds = in[2], &left = in[3],
                       &values = in[4];
  HEDDLE_ASSIGN_OR_RETURN(const ir::ReduceOp op, ReduceOpOf(attrs));
  const int64_t groups = columns.shape()[0], trees = columns.shape()[1], nodes = columns.shape()[2];
  const int64_t records = x.shape()[1];
  tensor::Tensor at;  // the node of each record after the steps so far
  const auto node = [&](const Expr& group, const Expr& tree, const Expr& record) {
    return at.buffer() == nullptr ? ir::Int(0) : Index(at(group, tree, record), at, nodes);
  };
  for (int64_t k = 0; k < attrs.Int("steps"); ++k) {
    at = b.Compute("step", {groups, trees, records}, [&](tensor::Iters s) {
      const std::vector<Expr> here{s[0], s[1], node(s[0], s[1], s[2])};
      Expr right = GoesRight(x, columns, thresholds, here, s[2]);
      return left.At(here) + ir::Select(right, ir::Int(1, DType::kI32), ir::Int(0, DType::kI32));
    });
  }
  return b.Reduce("forest", {groups, values.shape()[3], records}, {trees}, op,
                  [&](tensor::Iters s, tensor::Iters r) {
                    return values(s[0], r[0], node(s[0], r[0], s[2]), s[1]);
                  });
}

// forest_select {depth, reduce}: the trees are complete, and all their nodes are asked. The operands are x [K, n], the column
// and the threshold of each node, level by level ([G, T, 2^depth - 1]), and the values of the leaves from left to
// right, [G, T, 2^depth, 1]. There are no steps that wait for each other and nothing is looked up: with records in the lanes of a
// vector, a node is a comparison and a selection.
//
// Trees may stand in S blocks of B, T = S B: columns and thresholds are [G, S, 2^depth - 1, B] then, and values [G, S, 2^depth, B]. What
// the nodes of one record ask lies side by side, so that vectors may run over the trees of a block, and only its columns are looked up.
absl::StatusOr<TensorType> InferSelect(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 4, 4));
  const int64_t depth = attrs.Int("depth");
  if (depth < 1 || depth > kMostSelectLevels)
    return BadInput(absl::StrCat(depth, " levels; there may be 1 to ", kMostSelectLevels));
  HEDDLE_RETURN_IF_ERROR(ExpectForest(in, (int64_t{1} << depth) - 1, true));
  HEDDLE_RETURN_IF_ERROR(ReduceOpOf(attrs).status());
  HEDDLE_RETURN_IF_ERROR(ExpectValues(in[3], in[1].shape, int64_t{1} << depth));
  const int64_t block = in[1].shape.size() == 4 ? in[1].shape[3] : 1;
  if (in[3].shape[3] != block) {
    return BadInput(absl::StrCat("a leaf has one value, and ", block,
                                 block == 1 ? " tree" : " trees", " stand side by side"));
  }
  return TensorType{in[3].dtype, {in[1].shape[0], 1, in[0].shape[1]}};
}

absl::StatusOr<tensor::Tensor> ExpressSelect(tensor::Builder& b, Tensors in, const OpAttrs& attrs) {
  const tensor::Tensor &x = in[0], &columns = in[1], &thresholds = in[2], &values = in[3];
  HEDDLE_ASSIGN_OR_RETURN(const ir::ReduceOp op, ReduceOpOf(attrs));
  const int64_t inner = columns.shape()[2];
  const bool blocks = columns.shape().size() == 4;
  Shape trees{columns.shape()[1]};
  if (blocks) trees.push_back(columns.shape()[3]);
  return b.Reduce("forest", {columns.shape()[0], 1, x.shape()[1]}, trees, op,
                  [&](tensor::Iters s, tensor::Iters r) {
                    const std::function<Expr(int64_t)> value = [&](int64_t node) -> Expr {
                      if (node >= inner)
                        return values(s[0], r[0], ir::Int(node - inner), blocks ? r[1] : s[1]);
                      std::vector<Expr> here{s[0], r[0], ir::Int(node)};
                      if (blocks) here.push_back(r[1]);
                      Expr right = GoesRight(x, columns, thresholds, std::move(here), s[2]);
                      return ir::Select(right, value(2 * node + 2), value(2 * node + 1));
                    };
                    return value(0);
                  });
}

// forest_ranks {reduce}: as forest_select, in bytes. The trees are complete. The operands are
// - x: u8 [K, n]
// - the column of each node: u8 or i32 [G, S, 2^depth - 1, B]
// - the threshold of each node: u8 of the same shape
// - the values of the leaves from left to right: [G, T, 2^depth, W]
// Trees stand in S blocks of B, T = S B, so that vectors may run over the trees of a block.
//
// A vector has four times as many lanes for bytes as for floats. A tree gives the number of a leaf, which is looked
// up once. x may be what digitize makes of numbers: `rank >= j + 1` says whether the number is at least cut j.
absl::StatusOr<TensorType> InferRanks(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 4, 4));
  const TensorType &x = in[0], &columns = in[1], &thresholds = in[2];
  if (x.dtype != DType::kU8 || x.shape.size() != 2)
    return BadInput(absl::StrCat("x is ", ToText(x), ", not u8[columns, records]"));
  if ((columns.dtype != DType::kU8 && columns.dtype != DType::kI32) || columns.shape.size() != 4)
    return BadInput(absl::StrCat("columns are ", ToText(columns),
                                 ", not u8 or i32 of [groups, blocks, nodes, trees in a block]"));
  const Shape& nodes = columns.shape;
  const int64_t leaves = nodes[2] + 1;
  if (leaves < 2 || leaves > kMostLeaves || !std::has_single_bit(static_cast<uint64_t>(leaves)))
    return BadInput(absl::StrCat("columns are ", ToText(columns),
                                 "; a complete tree has 2^depth - 1 ", "nodes, at most ",
                                 kMostLeaves - 1));
  if (thresholds != TensorType{DType::kU8, nodes})
    return BadInput(absl::StrCat("thresholds are ", ToText(thresholds), ", not ",
                                 ToText(TensorType{DType::kU8, nodes})));
  HEDDLE_RETURN_IF_ERROR(ReduceOpOf(attrs).status());
  HEDDLE_RETURN_IF_ERROR(ExpectValues(in[3], {nodes[0], nodes[1] * nodes[3]}, leaves));
  return TensorType{in[3].dtype, {nodes[0], in[3].shape[3], x.shape[1]}};
}

absl::StatusOr<tensor::Tensor> ExpressRanks(tensor::Builder& b, Tensors in, const OpAttrs& attrs) {
  const tensor::Tensor &x = in[0], &columns = in[1], &thresholds = in[2], &values = in[3];
  HEDDLE_ASSIGN_OR_RETURN(const ir::ReduceOp op, ReduceOpOf(attrs));
  const int64_t groups = columns.shape()[0], trees = values.shape()[1], records = x.shape()[1];
  const int64_t inner = columns.shape()[2], together = columns.shape()[3];
  const tensor::Tensor leaf = b.Compute("leaf", {groups, trees, records}, [&](tensor::Iters s) {
    const Expr block = together == 1 ? s[1] : ir::FloorDiv(s[1], ir::Int(together));
    const Expr in_block = together == 1 ? ir::Int(0) : ir::FloorMod(s[1], ir::Int(together));
    // The leaf below a node with `under` leaves on each side, counted so that its first one is `first`. Larger subtrees
    // count from 0, and what is left of them is added, so that few constants take up registers.
    const std::function<Expr(int64_t, int64_t, int64_t)> below = [&](int64_t node, int64_t under,
                                                                     int64_t first) -> Expr {
      const auto number = [](int64_t n) { return ir::Int(n, DType::kU8); };
      const Expr right =
          GoesRight(x, columns, thresholds, {s[0], block, ir::Int(node), in_block}, s[2]);
      if (under == 1) return ir::Select(right, number(first + 1), number(first));
      const bool adds = 2 * under > kConstantLeaves;
      const Expr of_left = below(2 * node + 1, under / 2, first),
                 of_right = below(2 * node + 2, under / 2, adds ? 0 : first + under);
      return ir::Select(right, adds ? of_right + number(under) : of_right, of_left);
    };
    return below(0, (inner + 1) / 2, 0);
  });
  return b.Reduce("forest", {groups, values.shape()[3], records}, {trees}, op,
                  [&](tensor::Iters s, tensor::Iters r) {
                    return values(s[0], r[0], Index(leaf(s[0], r[0], s[2]), leaf, inner + 1), s[1]);
                  });
}

// forest_leaves {reduce}: trees of any shape. A node at which a record goes right rules out the leaves of its left subtree, and
// the tree's answer is the first leaf that no node rules out. QuickScorer keeps a bit for each leaf. Here the nodes are asked in the
// order in which they stand from left to right, and so only the first leaf that is left has to be known. The operands are
// - x: [K, n], u8 (ranks) or f32
// - the column of each node: u8 or i32 [G, S, N, B]; node k stands between leaves k and k + 1
// - the threshold of each node: the type of x, the shape of the columns
// - the span of each node: i8, u8 or i32, the shape of the columns. It is the number of leaves that the node rules out, of which
//   leaf k is the last. Nodes that only fill up a tree have span 0
// - the values of the leaves from right to left: [G, T, N + 1, W]
// Trees stand in S blocks of B, T = S B, as in forest_ranks.
//
// There are as many steps as nodes, each a few operations on vectors: nothing is looked up but the last leaf. Places are of the type
// of the spans.
absl::StatusOr<TensorType> InferLeaves(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 5, 5));
  const TensorType &x = in[0], &columns = in[1], &thresholds = in[2], &spans = in[3];
  if ((x.dtype != DType::kU8 && x.dtype != DType::kF32) || x.shape.size() != 2)
    return BadInput(absl::StrCat("x is ", ToText(x), ", not u8 or f32 of [columns, records]"));
  if ((columns.dtype != DType::kU8 && columns.dtype != DType::kI32) || columns.shape.size() != 4)
    return BadInput(absl::StrCat("columns are ", ToText(columns),
                                 ", not u8 or i32 of [groups, blocks, nodes, trees in a block]"));
  const Shape& nodes = columns.shape;
  if (thresholds != TensorType{x.dtype, nodes})
    return BadInput(absl::StrCat("thresholds are ", ToText(thresholds), ", not ",
                                 ToText(TensorType{x.dtype, nodes})));
  const bool places =
      spans.dtype == DType::kI8 || spans.dtype == DType::kU8 || spans.dtype == DType::kI32;
  if (!places || spans.shape != nodes)
    return BadInput(absl::StrCat("spans are ", ToText(spans),
                                 ", not i8, u8 or i32 of the shape of ", ToText(columns)));
  const int64_t most = spans.dtype == DType::kI8 ? 127 : kMostAsked;
  if (nodes[2] > most)
    return BadInput(absl::StrCat("spans are ", ToText(spans), "; of that type, a tree may have ",
                                 most, " nodes"));
  HEDDLE_RETURN_IF_ERROR(ReduceOpOf(attrs).status());
  HEDDLE_RETURN_IF_ERROR(ExpectValues(in[4], {nodes[0], nodes[1] * nodes[3]}, nodes[2] + 1));
  return TensorType{in[4].dtype, {nodes[0], in[4].shape[3], x.shape[1]}};
}

absl::StatusOr<tensor::Tensor> ExpressLeaves(tensor::Builder& b, Tensors in, const OpAttrs& attrs) {
  const tensor::Tensor &x = in[0], &columns = in[1], &thresholds = in[2], &spans = in[3],
                       &values = in[4];
  HEDDLE_ASSIGN_OR_RETURN(const ir::ReduceOp op, ReduceOpOf(attrs));
  const int64_t groups = columns.shape()[0], trees = values.shape()[1], records = x.shape()[1];
  const int64_t nodes = columns.shape()[2], together = columns.shape()[3];
  const auto place = [&](int64_t n) { return ir::Int(n, spans.dtype()); };
  // By how many leaves the first one that is left lies behind the last one that the nodes so far could rule out, plus one.
  tensor::Tensor behind;
  for (int64_t first = 0; first < nodes; first += kAskedAtOnce) {
    behind = b.Compute("leaf", {groups, trees, records}, [&](tensor::Iters s) {
      const Expr block = together == 1 ? s[1] : ir::FloorDiv(s[1], ir::Int(together));
      const Expr in_block = together == 1 ? ir::Int(0) : ir::FloorMod(s[1], ir::Int(together));
      Expr at = first == 0 ? place(0) : behind(s[0], s[1], s[2]);
      for (int64_t n = first; n < std::min(nodes, first + kAskedAtOnce); ++n) {
        const std::vector<Expr> node{s[0], block, ir::Int(n), in_block};
        const Expr ruled_out =
            ir::Select(GoesRight(x, columns, thresholds, node, s[2]), spans.At(node), place(0));
        at = ir::Select(ir::Lt(at, ruled_out), place(0), at + place(1));
      }
      return at;
    });
  }
  return b.Reduce("forest", {groups, values.shape()[3], records}, {trees}, op,
                  [&](tensor::Iters s, tensor::Iters r) {
                    return values(s[0], r[0], Index(behind(s[0], r[0], s[2]), behind, nodes + 1),
                                  s[1]);
                  });
}

// digitize {sorted}: the operands are x, floats [.., K, n], and cuts [K, M]. The result, u8 of the shape of x, says how many cuts of its
// row an element is not below: with sorted cuts, between which of them it lies (numpy's digitize). A cut that is NaN is
// never counted, and neither is any cut for an element that is NaN. 256 counted cuts would give 0.
//
// Many sorted cuts are counted in two steps. They stand in G groups of J. The operands are x, the last cut of each group but the last
// one [K, G - 1], and all cuts [K, J, G], cut j of every group side by side. The first step finds the group in which an element lies,
// whose number is that of the groups before it; the second one compares it with the cuts of that group alone.
//
// With `sorted`, the cuts ascend, NaN last, and M is a power of two. The last cut is never counted, and the others are counted by
// halving: one comparison for each bit of the result. Each looks a cut up, which pays where records are too few to fill vectors.
absl::StatusOr<TensorType> InferDigitize(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 2, 3));
  const TensorType &x = in[0], &cuts = in[1];
  const size_t rank = x.shape.size();
  if (!ir::IsFloat(x.dtype) || ir::IsHalf(x.dtype) || rank < 2)
    return BadInput(absl::StrCat("x is ", ToText(x), ", not floats of [.., columns, records]"));
  const bool fits = cuts.dtype == x.dtype && cuts.shape.size() == 2 &&
                    cuts.shape[0] == x.shape[rank - 2] && cuts.shape[1] <= kMostCutEntries;
  if (!fits) {
    return BadInput(absl::StrCat("cuts are ", ToText(cuts), " and x is ", ToText(x),
                                 "; each column has cuts of its type, at most ", kMostCutEntries));
  }
  if (attrs.Int("sorted") != 0) {
    const int64_t all = cuts.shape[1];
    if (in.size() == 3 || all < 2 || !std::has_single_bit(static_cast<uint64_t>(all)))
      return BadInput(absl::StrCat("sorted cuts are ", ToText(cuts),
                                   "; there must be 2, 4, 8, .. of them, not in groups"));
  }
  if (in.size() == 3) {
    const int64_t groups = cuts.shape[1] + 1;
    const TensorType& all = in[2];
    const bool grouped = all.dtype == x.dtype && all.shape.size() == 3 &&
                         all.shape[0] == cuts.shape[0] && all.shape[2] == groups &&
                         all.shape[1] * groups <= kMostCutEntries;
    if (!grouped) {
      return BadInput(absl::StrCat("grouped cuts are ", ToText(all), ", not ",
                                   ToText(TensorType{x.dtype, {cuts.shape[0], 0, groups}}),
                                   " with at most ", kMostCutEntries,
                                   " cuts of a column in place of the 0"));
    }
  }
  return TensorType{DType::kU8, x.shape};
}

// How many of the first M - 1 cuts are counted, for sorted ones: bit by bit, from the highest one.
tensor::Tensor CountByHalving(tensor::Builder& b, const tensor::Tensor& x,
                              const tensor::Tensor& cuts) {
  const int64_t all = cuts.shape()[1];
  const auto number = [](int64_t n) { return ir::Int(n, DType::kU8); };
  tensor::Tensor counted;
  for (int64_t half = all / 2; half >= 1; half /= 2) {
    counted = b.Compute("digitize", x.shape(), [&](tensor::Iters s) {
      const bool first = half == all / 2;
      const std::vector<Expr> here{s.begin(), s.end()};
      // At most all - 2 half are counted so far.
      Expr next = ir::Int(half - 1);
      if (!first) next = Index(counted.At(here), counted, all - 2 * half + 1) + next;
      const Expr more =
          ir::Select(ir::Le(cuts(s[s.size() - 2], next), x.At(here)), number(half), number(0));
      return first ? more : counted.At(here) + more;
    });
  }
  return counted;
}

absl::StatusOr<tensor::Tensor> ExpressDigitize(tensor::Builder& b, Tensors in,
                                               const OpAttrs& attrs) {
  const tensor::Tensor &x = in[0], &cuts = in[1];
  const auto number = [](int64_t n) { return ir::Int(n, DType::kU8); };
  if (attrs.Int("sorted") != 0) return CountByHalving(b, x, cuts);
  if (in.size() == 2) {
    return b.Reduce("digitize", x.shape(), {cuts.shape()[1]}, ir::ReduceOp::kSum,
                    [&](tensor::Iters s, tensor::Iters r) {
                      return ir::Select(
                          ir::Le(cuts(s[s.size() - 2], r[0]), x.At({s.begin(), s.end()})),
                          number(1), number(0));
                    });
  }
  const tensor::Tensor& grouped = in[2];
  const int64_t of_group = grouped.shape()[1], groups = grouped.shape()[2];
  const tensor::Tensor group = b.Compute("group", x.shape(), [&](tensor::Iters s) {
    Expr before = number(0);
    for (int64_t g = 0; g + 1 < groups; ++g) {
      const Expr whole =
          ir::Select(ir::Le(cuts(s[s.size() - 2], ir::Int(g)), x.At({s.begin(), s.end()})),
                     number(1), number(0));
      before = g == 0 ? whole : before + whole;
    }
    return before;
  });
  // Each of the `of_group` terms adds the number of the group, which is what all the groups before it make together.
  return b.Reduce("digitize", x.shape(), {of_group}, ir::ReduceOp::kSum,
                  [&](tensor::Iters s, tensor::Iters r) {
                    const Expr at = group.At({s.begin(), s.end()});
                    const Expr cut = grouped(s[s.size() - 2], r[0], Index(at, group, groups));
                    return ir::Select(ir::Le(cut, x.At({s.begin(), s.end()})), at + number(1), at);
                  });
}

// Places that walks look up, each of which finds the values of one leaf at the end.
int64_t Walks(const OpUse& use) {
  const Shape& values = use.inputs.back().shape;
  return values[0] * values[1] * use.inputs[0].shape[1];
}

// Of operands of which the last one holds the values of leaves, and the others are read as a whole.
std::vector<int64_t> LeavesAlone(const OpUse& use) {
  std::vector<int64_t> places(use.inputs.size(), 0);
  places.back() = Walks(use);
  return places;
}

double Nodes(const OpUse& use, double asked) {
  return static_cast<double>(NumElements(use.output)) *
         static_cast<double>(use.inputs[1].shape[1]) * asked;
}

}  // namespace

void AppendForestOps(std::vector<OpDef>& ops) {
  OpDef walk = MakeOp(
      OpKind::kForestWalk, FusionClass::kComplexOutFusable, InferWalk, ExpressWalk,
      {{"steps", int64_t{0}, AttrRole::kPlain, false, true}, {"reduce", std::string("sum")}});
  // The right child is the next node, so the last node is nobody's left child.
  walk.below = [](const OpUse& use) -> std::vector<int64_t> {
    return {0, use.inputs[0].shape[0], 0, use.inputs[1].shape[2] - 1, 0};
  };
  walk.looked_up = [](const OpUse& use) -> std::vector<int64_t> {
    const int64_t nodes = Walks(use) * std::max<int64_t>(1, use.attrs.Int("steps"));
    return {0, nodes, nodes, nodes, Walks(use)};
  };
  walk.flops = [](const OpUse& use) {
    return Nodes(use, static_cast<double>(use.attrs.Int("steps")));
  };
  ops.push_back(std::move(walk));
  OpDef select = MakeOp(
      OpKind::kForestSelect, FusionClass::kComplexOutFusable, InferSelect, ExpressSelect,
      {{"depth", int64_t{0}, AttrRole::kPlain, false, true}, {"reduce", std::string("sum")}});
  select.below = [](const OpUse& use) -> std::vector<int64_t> {
    return {0, use.inputs[0].shape[0], 0, 0};
  };
  select.flops = [](const OpUse& use) {
    const Shape& nodes = use.inputs[1].shape;
    return Nodes(use, static_cast<double>(nodes[2] * (nodes.size() == 4 ? nodes[3] : 1)));
  };
  ops.push_back(std::move(select));
  OpDef ranks = MakeOp(OpKind::kForestRanks, FusionClass::kComplexOutFusable, InferRanks,
                       ExpressRanks, {{"reduce", std::string("sum")}});
  ranks.below = [](const OpUse& use) -> std::vector<int64_t> {
    return {0, use.inputs[0].shape[0], 0, 0};
  };
  ranks.looked_up = LeavesAlone;
  ranks.flops = [](const OpUse& use) {
    return Nodes(use, static_cast<double>(use.inputs[1].shape[2] * use.inputs[1].shape[3]));
  };
  ops.push_back(std::move(ranks));
  OpDef leaves = MakeOp(OpKind::kForestLeaves, FusionClass::kComplexOutFusable, InferLeaves,
                        ExpressLeaves, {{"reduce", std::string("sum")}});
  leaves.below = [](const OpUse& use) -> std::vector<int64_t> {
    return {0, use.inputs[0].shape[0], 0, 0, 0};
  };
  leaves.looked_up = LeavesAlone;
  leaves.flops = [](const OpUse& use) {
    return Nodes(use, static_cast<double>(use.inputs[1].shape[2] * use.inputs[1].shape[3]));
  };
  ops.push_back(std::move(leaves));
  OpDef digitize = MakeOp(OpKind::kDigitize, FusionClass::kReduction, InferDigitize,
                          ExpressDigitize, {{"sorted", int64_t{0}}});
  // Looking a cut up counts as much as comparing with it.
  digitize.flops = [](const OpUse& use) {
    const int64_t cuts = use.inputs[1].shape[1];
    const int64_t grouped = use.inputs.size() > 2 ? 2 * use.inputs[2].shape[1] : 0;
    const int64_t halved = 2 * (std::bit_width(static_cast<uint64_t>(cuts)) - 1);
    return static_cast<double>(NumElements(use.output)) *
           static_cast<double>(use.attrs.Int("sorted") != 0 ? halved : cuts + grouped);
  };
  ops.push_back(std::move(digitize));
}

}  // namespace heddle::graph
