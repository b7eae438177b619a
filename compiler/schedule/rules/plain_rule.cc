// Stages without a register tile: one pass over memory.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/rules.h"

namespace heddle::schedule {

namespace {

// Chunks per thread of a parallel loop: enough to even out, few enough to start cheaply.
constexpr int64_t kChunksPerThread = 4;
constexpr int64_t kMaxLanes = 64;

struct PlainChoice {
  int64_t vectors = 1;  // vector registers per iteration of the innermost serial loop
  bool parallel = false;
};

struct Shape {
  StageView view;
  int vector_axis = -1;  // index into view.spatial, -1: none
  bool linear = false;   // every access walks memory in the order of the loops
  int64_t lanes = 1;
  int64_t elements = 1;  // times reduce iterations
  bool reduces = false;
};

// The value depends on where it is, not only on what is loaded (padding does).
bool UsesPosition(const ir::Expr& e) {
  if (e->kind == ir::ExprKind::kVar) return true;
  if (e->kind == ir::ExprKind::kLoad) return false;
  return std::any_of(e->args.begin(), e->args.end(), UsesPosition);
}

// Every access that moves at all moves like one flat array.
bool IsLinear(const StageView& view, const ir::Block& block) {
  auto flat = [&](const ir::Buffer& buffer, const std::vector<ir::Expr>& indices) {
    int64_t stride = 1;
    for (size_t k = view.spatial.size(); k > 0; --k) {
      const Axis& axis = view.spatial[k - 1];
      if (axis.extent > 1 && StrideOf(buffer, indices, axis.iter) != stride) return false;
      stride *= axis.extent;
    }
    return true;
  };
  if (block.reducer || UsesPosition(block.store.value)) return false;
  if (!flat(*block.store.buffer, block.store.indices)) return false;
  for (const ir::Expr& load : DistinctLoads(block)) {
    if (load->buffer->NumElements() > 1 && !flat(*load->buffer, load->args)) return false;
  }
  return true;
}

Shape ShapeOf(const StageView& view, const ir::Block& block, const machine::TargetInfo& target) {
  Shape shape;
  shape.view = view;
  shape.reduces = block.reducer.has_value();
  shape.lanes = LanesOf(target, block.store.buffer->dtype);
  shape.linear = IsLinear(view, block);
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

// Fuses loops and makes them parallel; one loop is only made parallel.
absl::Status ParallelLoops(const std::vector<std::string>& loops, Recorder& out) {
  if (loops.empty()) return absl::OkStatus();
  std::string loop = loops[0];
  if (loops.size() > 1) {
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kFuse, loops));
    for (size_t k = 1; k < loops.size(); ++k) absl::StrAppend(&loop, "*", loops[k]);
  }
  return out.Do(Primitive::kParallel, {loop});
}

// The largest power of two up to `wanted` whose steps through the array the analyser recognises as
// flat: those that straddle no end of the innermost dimensions, 8 of 56 x 11 elements, not 16.
int64_t FlatStep(const StageView& view, int64_t wanted) {
  int64_t inner = 1;
  bool whole = false;  // a step takes inner dimensions whole
  for (size_t k = view.spatial.size(); k > 0; --k) {
    inner *= view.spatial[k - 1].extent;
    const auto fits = [&] {
      return inner % wanted == 0 || wanted % inner == 0 || (inner > wanted && !whole);
    };
    if (k == 1 && inner > wanted) break;  // the end of all
    while (!fits()) wanted /= 2;
    whole |= inner > 1 && inner < wanted;
  }
  return wanted;
}

absl::Status ApplyLinear(const Shape& shape, const PlainChoice& choice, Recorder& out) {
  std::vector<std::string> loops;
  std::string fused;
  for (const Axis& axis : shape.view.spatial) {
    loops.push_back(axis.loop);
    absl::StrAppend(&fused, fused.empty() ? "" : "*", axis.loop);
  }
  if (loops.size() > 1) HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kFuse, loops));
  const int64_t flat = FlatStep(shape.view, shape.lanes * choice.vectors);
  int64_t lanes = PowerOfTwoDivisor(shape.elements, std::min(shape.lanes, flat));
  int64_t vectors = PowerOfTwoDivisor(shape.elements / lanes, std::max<int64_t>(1, flat / lanes));
  vectors = std::min(vectors, choice.vectors);
  int64_t rest = shape.elements / lanes / vectors;
  // The largest number of chunks up to the wanted one that divides the loop.
  int64_t chunks = choice.parallel ? LargestDivisorUpTo(rest, 64) : 1;
  HEDDLE_RETURN_IF_ERROR(
      out.Do(Primitive::kSplit, {fused}, {chunks, rest / chunks, vectors, lanes}));
  if (chunks > 1) HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kParallel, {fused + ".0"}));
  if (vectors > 1) HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {fused + ".2"}));
  return lanes > 1 ? out.Do(Primitive::kVectorize, {fused + ".3"}) : absl::OkStatus();
}

absl::Status ApplyNested(const Shape& shape, const PlainChoice& choice, Recorder& out) {
  const StageView& view = shape.view;
  std::vector<std::string> outer;
  for (size_t k = 0; k < view.spatial.size(); ++k) {
    if (static_cast<int>(k) != shape.vector_axis) outer.push_back(view.spatial[k].loop);
  }
  std::vector<std::string> order = outer;
  std::string lane_loop, vector_loop, vector_outer;
  if (shape.vector_axis >= 0) {
    const Axis& axis = view.spatial[shape.vector_axis];
    int64_t lanes = PowerOfTwoDivisor(axis.extent, shape.lanes);
    // A tail is guarded where whole vectors dominate.
    if (lanes < shape.lanes && axis.extent >= 2 * shape.lanes) lanes = shape.lanes;
    int64_t groups = (axis.extent + lanes - 1) / lanes;
    int64_t vectors = LargestDivisorUpTo(groups, choice.vectors);
    HEDDLE_RETURN_IF_ERROR(
        out.Do(Primitive::kSplit, {axis.loop}, {groups / vectors, vectors, lanes}));
    vector_outer = axis.loop + ".0";
    order.push_back(vector_outer);
    if (vectors > 1) vector_loop = axis.loop + ".1";
    if (lanes > 1) lane_loop = axis.loop + ".2";
  }
  for (const Axis& axis : view.reduce) order.push_back(axis.loop);
  if (shape.vector_axis >= 0) {
    order.push_back(view.spatial[shape.vector_axis].loop + ".1");
    order.push_back(view.spatial[shape.vector_axis].loop + ".2");
  }
  if (order.size() > 1) HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kReorder, order));
  if (choice.parallel) {
    std::vector<std::string> loops = outer;
    if (!vector_outer.empty()) loops.push_back(vector_outer);
    HEDDLE_RETURN_IF_ERROR(ParallelLoops(loops, out));
  }
  if (!vector_loop.empty()) HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {vector_loop}));
  return lane_loop.empty() ? absl::OkStatus() : out.Do(Primitive::kVectorize, {lane_loop});
}

absl::Status ApplyShape(const Shape& shape, const PlainChoice& choice, Recorder& out) {
  if (shape.view.spatial.empty()) return absl::OkStatus();
  return shape.linear ? ApplyLinear(shape, choice, out) : ApplyNested(shape, choice, out);
}

bool WorthThreads(const Shape& shape, const machine::TargetInfo& target) {
  return target.target.threads > 1 && shape.elements >= target.core.wake_elements;
}

class PlainRule : public Rule {
 public:
  PlainRule(Shape shape, const machine::TargetInfo& target, Knobs& knobs)
      : shape_(std::move(shape)) {
    vectors_ = knobs.Add(absl::StrCat("vectors per step of ", shape_.view.block), {1, 2, 4}, 1);
    bool worth = WorthThreads(shape_, target);
    if (target.target.threads > 1) {
      parallel_ = knobs.Add(absl::StrCat("parallel ", shape_.view.block), {0, 1}, worth);
    }
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override {
    PlainChoice choice;
    choice.vectors = knobs.Value(point, vectors_);
    choice.parallel = parallel_ >= 0 && knobs.Value(point, parallel_) != 0;
    return ApplyShape(shape_, choice, out);
  }

 private:
  Shape shape_;
  int vectors_ = -1;
  int parallel_ = -1;
};

}  // namespace

std::unique_ptr<Rule> MakePlainStage(const StageView& view, const ir::Block& block,
                                     const machine::TargetInfo& target, Knobs& knobs) {
  return std::make_unique<PlainRule>(ShapeOf(view, block, target), target, knobs);
}

absl::Status ApplyPlain(const StageView& view, const ir::Block& block,
                        const machine::TargetInfo& target, Recorder& out) {
  Shape shape = ShapeOf(view, block, target);
  return ApplyShape(shape, {1, WorthThreads(shape, target)}, out);
}

absl::Status VectorizeLoop(const std::string& loop, int64_t extent, int64_t lanes, Recorder& out) {
  int64_t width = PowerOfTwoDivisor(extent, lanes);
  if (width == 1) return absl::OkStatus();
  if (width == extent) return out.Do(Primitive::kVectorize, {loop});
  HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSplit, {loop}, {extent / width, width}));
  return out.Do(Primitive::kVectorize, {loop + ".1"});
}

}  // namespace heddle::schedule
