// Stages without a register tile: one pass over memory.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/rules/shared_steps.h"
#include "compiler/schedule/rules/stage_work.h"

namespace heddle::schedule {

namespace {

// Most chunks of a parallel loop: enough to even out, cheap to start.
constexpr int64_t kMaxChunks = 64;
// Most columns of rows that vectors reach across: a step has as many unrolled vectors.
constexpr int64_t kMostShort = 32;

struct PlainChoice {
  int64_t vectors = 1;  // vector registers per iteration of the innermost serial loop
  bool parallel = false;
};

struct Shape {
  StageView view;
  int vector_axis = -1;  // index into view.spatial, -1: none
  bool linear = false;   // every access walks memory in the order of the loops
  int64_t columns = 0;   // of rows that vectors reach across (ColumnsAcross); 0: they do not
  int64_t lanes = 1;
  int64_t elements = 1;  // elements of the result times reduce iterations
  bool reduces = false;
  bool costly = false;  // the value is a quotient, or a function that takes many operations
};

// Whether the value depends on its position, not only on what is loaded, as padding does.
bool UsesPosition(const ir::Expr& e) {
  if (e->kind == ir::ExprKind::kVar) return true;
  if (e->kind == ir::ExprKind::kLoad) return false;
  return std::any_of(e->args.begin(), e->args.end(), UsesPosition);
}

bool Divides(const ir::Expr& e) {
  if (e->kind == ir::ExprKind::kOp && e->op == ir::Op::kDiv && ir::IsFloat(e->dtype)) return true;
  return std::any_of(e->args.begin(), e->args.end(), Divides);
}

// Whether the access walks through memory as if the loops over the first `axes` spatial axes ran over one flat array.
bool IsFlat(const StageView& view, size_t axes, const ir::Buffer& buffer,
            const std::vector<ir::Expr>& indices) {
  int64_t stride = 1;
  for (size_t k = axes; k > 0; --k) {
    const Axis& axis = view.spatial[k - 1];
    if (axis.extent > 1 && StrideOf(buffer, indices, axis.iter) != stride) return false;
    stride *= axis.extent;
  }
  return true;
}

// Whether every access that moves at all walks through memory as if the loops ran over one flat
// array.
bool IsLinear(const StageView& view, const ir::Block& block) {
  const size_t all = view.spatial.size();
  if (block.reducer || UsesPosition(block.store.value)) return false;
  if (!IsFlat(view, all, *block.store.buffer, block.store.indices)) return false;
  for (const ir::Expr& load : DistinctLoads(block)) {
    if (load->buffer->NumElements() > 1 && !IsFlat(view, all, *load->buffer, load->args))
      return false;
  }
  return true;
}

// The columns of rows that are too short for whole vectors, such as the probabilities of 10 classes, where vectors may reach across
// rows: every access is flat, or has one element for each row, and the rows go up in vectors. As many rows as a vector has lanes are
// then as many vectors as there are columns, none of them narrow or guarded. Each reads the elements of its rows as a constant
// permutation of one vector. 0: rows are not like that.
int64_t ColumnsAcross(const StageView& view, const ir::Block& block, int64_t lanes) {
  const size_t all = view.spatial.size();
  if (all < 2 || lanes < 2 || block.reducer || UsesPosition(block.store.value)) return 0;
  const Axis& column = view.spatial[all - 1];
  if (column.extent < 2 || column.extent % lanes == 0 ||
      column.extent >= std::min(2 * lanes, kMostShort + 1))
    return 0;
  size_t row = all - 1;  // the axis before the columns, but for those of extent 1
  while (row > 0 && view.spatial[row - 1].extent == 1) --row;
  if (row == 0 || view.spatial[row - 1].extent % lanes != 0) return 0;
  if (!IsFlat(view, all, *block.store.buffer, block.store.indices)) return 0;
  for (const ir::Expr& load : DistinctLoads(block)) {
    if (load->buffer->NumElements() == 1 || IsFlat(view, all, *load->buffer, load->args)) continue;
    const bool of_row = StrideOf(*load->buffer, load->args, column.iter) == 0 &&
                        IsFlat(view, all - 1, *load->buffer, load->args);
    if (!of_row) return 0;
  }
  return column.extent;
}

Shape ShapeOf(const StageView& view, const ir::Block& block, const machine::TargetInfo& target) {
  Shape shape;
  shape.view = view;
  shape.reduces = block.reducer.has_value();
  shape.costly = IsExpensive(block) || Divides(block.store.value);
  shape.lanes = LanesOf(target, block.store.buffer->dtype);
  shape.linear = IsLinear(view, block);
  if (!shape.linear) shape.columns = ColumnsAcross(view, block, shape.lanes);
  int best = -1;
  for (size_t k = 0; k < view.spatial.size(); ++k) {
    shape.elements *= view.spatial[k].extent;
    if (view.spatial[k].extent < 2) continue;
    VectorFit fit = FitOf(block, view.spatial[k].iter);
    int score = fit.contiguous - fit.scattered;
    if (fit.contiguous > 0 && score > 0 && score >= best) {
      best = score;
      shape.vector_axis = static_cast<int>(k);
    }
  }
  for (const Axis& axis : view.reduce) shape.elements *= axis.extent;
  return shape;
}

// The largest power of two up to `wanted` such that the analyser sees steps of that many elements
// as contiguous. Such steps do not straddle the end of an inner dimension: for 56 x 11 elements
// they have 8 elements, not 16.
int64_t FlatStep(const StageView& view, int64_t wanted) {
  int64_t inner = 1;
  bool whole = false;  // a step covers inner dimensions completely
  for (size_t k = view.spatial.size(); k > 0; --k) {
    inner *= view.spatial[k - 1].extent;
    const auto fits = [&] {
      return inner % wanted == 0 || wanted % inner == 0 || (inner > wanted && !whole);
    };
    if (k == 1 && inner > wanted) break;  // nothing lies beyond the end of the outermost dimension
    while (!fits()) wanted /= 2;
    whole |= inner > 1 && inner < wanted;
  }
  return wanted;
}

absl::Status ApplyLinear(const Shape& shape, const PlainChoice& choice, Recorder& out) {
  HEDDLE_ASSIGN_OR_RETURN(const Loop fused, out.Fuse(LoopsOf(shape.view.spatial)));
  const int64_t flat = FlatStep(shape.view, shape.lanes * choice.vectors);
  const int64_t lanes = PowerOfTwoDivisor(shape.elements, std::min(shape.lanes, flat));
  const int64_t vectors =
      std::min(PowerOfTwoDivisor(shape.elements / lanes, std::max<int64_t>(1, flat / lanes)),
               choice.vectors);
  const int64_t rest = shape.elements / lanes / vectors;
  const int64_t chunks = choice.parallel ? LargestDivisorUpTo(rest, kMaxChunks) : 1;
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> parts,
                          out.Split(fused, {chunks, rest / chunks, vectors, lanes}));
  if (chunks > 1) HEDDLE_RETURN_IF_ERROR(out.Parallel(parts[0]));
  if (vectors > 1) HEDDLE_RETURN_IF_ERROR(out.Unroll(parts[2]));
  return VectorizeLanes(parts[3], out);
}

absl::Status ApplyAcross(const Shape& shape, const PlainChoice& choice, Recorder& out) {
  HEDDLE_ASSIGN_OR_RETURN(const Loop fused, out.Fuse(LoopsOf(shape.view.spatial)));
  const int64_t steps = shape.elements / (shape.columns * shape.lanes);
  const int64_t chunks = choice.parallel ? LargestDivisorUpTo(steps, kMaxChunks) : 1;
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> parts,
                          out.Split(fused, {chunks, steps / chunks, shape.columns, shape.lanes}));
  if (chunks > 1) HEDDLE_RETURN_IF_ERROR(out.Parallel(parts[0]));
  HEDDLE_RETURN_IF_ERROR(out.Unroll(parts[2]));
  return VectorizeLanes(parts[3], out);
}

// Elements of the spatial axes but the one that vectors run along.
int64_t OthersOf(const Shape& shape) {
  int64_t elements = 1;
  for (size_t k = 0; k < shape.view.spatial.size(); ++k) {
    if (static_cast<int>(k) != shape.vector_axis) elements *= shape.view.spatial[k].extent;
  }
  return elements;
}

// Lanes of the vectors that take `extent` elements: as many as divide them, or more with a guarded tail, if most vectors are whole. So it
// is, too, if a vector takes long to compute and there are at most half as many then: of 10 quotients, 2 vectors of 8 instead of 5 of 2.
int64_t LanesFor(int64_t extent, int64_t most, bool costly) {
  const int64_t whole = PowerOfTwoDivisor(extent, most);
  if (whole == most || extent >= 2 * most) return most;
  int64_t guarded = most;
  while (guarded / 2 >= extent) guarded /= 2;
  const int64_t vectors = (extent + guarded - 1) / guarded;
  return costly && 2 * vectors <= extent / whole ? guarded : whole;
}

absl::Status ApplyNested(const Shape& shape, const PlainChoice& choice, Recorder& out) {
  const StageView& view = shape.view;
  // `vector` holds the loops over groups, vectors and lanes.
  std::vector<Loop> outer, vector;
  for (size_t k = 0; k < view.spatial.size(); ++k) {
    if (static_cast<int>(k) != shape.vector_axis) outer.push_back(LoopOf(view.spatial[k]));
  }
  if (shape.vector_axis >= 0) {
    const Axis& axis = view.spatial[shape.vector_axis];
    const int64_t lanes = LanesFor(axis.extent, shape.lanes, shape.costly);
    const int64_t groups = (axis.extent + lanes - 1) / lanes;
    const int64_t vectors = LargestDivisorUpTo(groups, choice.vectors);
    HEDDLE_ASSIGN_OR_RETURN(vector, out.Split(LoopOf(axis), {groups / vectors, vectors, lanes}));
    outer.push_back(vector[0]);
  }
  std::vector<Loop> order = Concat({outer, LoopsOf(view.reduce)});
  if (!vector.empty()) order.insert(order.end(), vector.begin() + 1, vector.end());
  HEDDLE_RETURN_IF_ERROR(out.Reorder(order));
  if (choice.parallel) {
    // The loop over groups stays serial if the others are enough to share out. Where parts of a concatenation begin is then known
    // in each of its ranges (pass/partition_loops.h), and no place is divided to find the iteration of each loop.
    std::vector<Loop> shared = outer;
    if (!vector.empty() && OthersOf(shape) >= kMaxChunks) shared.pop_back();
    HEDDLE_RETURN_IF_ERROR(FuseParallel(shared, out));
  }
  if (vector.empty()) return absl::OkStatus();
  if (vector[1].extent > 1) HEDDLE_RETURN_IF_ERROR(out.Unroll(vector[1]));
  return VectorizeLanes(vector[2], out);
}

absl::Status ApplyShape(const Shape& shape, const PlainChoice& choice, Recorder& out) {
  if (shape.view.spatial.empty()) return absl::OkStatus();
  if (shape.columns > 0) return ApplyAcross(shape, choice, out);
  return shape.linear ? ApplyLinear(shape, choice, out) : ApplyNested(shape, choice, out);
}

class PlainRule : public Rule {
 public:
  PlainRule(Shape shape, bool worth_threads, const machine::TargetInfo& target, Knobs& knobs)
      : shape_(std::move(shape)) {
    if (shape_.columns == 0)
      vectors_ = knobs.Add(absl::StrCat("vectors per step of ", shape_.view.block), {1, 2, 4}, 1);
    if (target.target.threads > 1) {
      parallel_ = knobs.Add(absl::StrCat("parallel ", shape_.view.block), {0, 1}, worth_threads);
    }
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override {
    PlainChoice choice;
    if (vectors_ >= 0) choice.vectors = knobs.Value(point, vectors_);
    choice.parallel = parallel_ >= 0 && knobs.Value(point, parallel_) != 0;
    return ApplyShape(shape_, choice, out);
  }

 private:
  Shape shape_;
  int vectors_ = -1;
  int parallel_ = -1;
};

}  // namespace

bool MatchesPlain(const StageSite& site) {
  return site.target.execution == machine::Execution::kThreads && site.stage.alone &&
         !site.stage.constant;
}

std::unique_ptr<Rule> MakePlain(const StageSite& site, Knobs& knobs) {
  const bool worth = machine::WorthThreads(WorkOf(site.stage, site.target), site.target);
  return std::make_unique<PlainRule>(ShapeOf(site.stage.view, *site.stage.block, site.target),
                                     worth, site.target, knobs);
}

absl::Status ApplyPlain(const StageView& view, const ir::Block& block,
                        const machine::TargetInfo& target, Recorder& out) {
  Shape shape = ShapeOf(view, block, target);
  return ApplyShape(shape, {1, machine::WorthThreads(WorkOf({&block}, target), target)}, out);
}

}  // namespace heddle::schedule
