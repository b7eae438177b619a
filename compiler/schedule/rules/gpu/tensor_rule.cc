// GPU products on tensor cores.
//
// Loops, from outside: blocks (outer spatial loops, fused) | steps of the reduction | threads:
// warps along the rows, warps along the columns, then a thread's place in its warp, 8 groups of 4 |
// terms within a step | tiles of 16 x 8 of a warp | rows, columns and terms of one product. A
// step's operands are fetched into shared memory by all threads. Where results are few and sums
// long, the sums may be made in parts. If the target makes products of four warps together
// (ir/analysis/group_product.h), each four warps along the rows may share tiles of 64 x 8.
#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/analysis/group_product.h"
#include "compiler/ir/analysis/tensor_product.h"
#include "compiler/ir/visit.h"
#include "compiler/machine/group_products.h"
#include "compiler/schedule/rules/forms.h"
#include "compiler/schedule/rules/gpu/fetch.h"
#include "compiler/schedule/rules/gpu/parts.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/rules/shared_steps.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kMaxWarps = 8;  // most warps along one axis
constexpr int64_t kMaxTiles = 8;  // most tiles of one warp along one axis
constexpr int64_t kMaxGroupTiles = ir::kMaxGroupColumns / ir::kTensorColumns;  // of four warps
constexpr int64_t kMaxStepTiles = 4;  // most products along the terms of a step
constexpr int64_t kMaxSums = 128;     // most sums of a thread
constexpr int64_t kMaxHeld = 200;     // sums and operands of a thread; addresses need the rest
constexpr int64_t kMaxTensorThreads = 256;
constexpr int64_t kFetchBytes = 16;  // the longest copy of one thread

// The load in f32(load) of a half, or a load of an f32; null if the factor is neither.
ir::Expr TensorLoadOf(const ir::Expr& factor) {
  if (factor->kind == ir::ExprKind::kLoad && factor->dtype == ir::DType::kF32) return factor;
  const bool cast = factor->kind == ir::ExprKind::kCast && factor->dtype == ir::DType::kF32 &&
                    ir::IsHalf(factor->args[0]->dtype);
  return cast && factor->args[0]->kind == ir::ExprKind::kLoad ? factor->args[0] : nullptr;
}

bool Moves(const ir::Expr& load, const Axis& axis) {
  return std::any_of(load->args.begin(), load->args.end(),
                     [&](const ir::Expr& index) { return ir::UsesVar(index, axis.iter); });
}

// Which axes are rows, columns and terms of a product.
struct ProductAxes {
  int rows = -1, columns = -1, terms = -1;
  ir::DType operand = ir::DType::kF32;
};

// The longest axis that moves `own`, does not move `other`, and is a multiple of `tile`; of equals
// the last.
int AxisOf(const std::vector<Axis>& axes, const ir::Expr& own, const ir::Expr& other,
           int64_t tile) {
  int best = -1;
  for (size_t k = 0; k < axes.size(); ++k) {
    if (axes[k].extent % tile != 0 || !Moves(own, axes[k]) || Moves(other, axes[k])) continue;
    if (best < 0 || axes[k].extent >= axes[best].extent) best = static_cast<int>(k);
  }
  return best;
}

ProductAxes AxesOf(const Stage& stage) {
  ProductAxes axes;
  const ir::Block& block = *stage.block;
  const ir::Expr& value = block.store.value;
  const bool product = block.reducer && block.reducer->op == ir::ReduceOp::kSum &&
                       block.store.buffer->dtype == ir::DType::kF32 &&
                       value->kind == ir::ExprKind::kOp && value->op == ir::Op::kMul;
  if (!product) return axes;
  const ir::Expr x = TensorLoadOf(value->args[0]), y = TensorLoadOf(value->args[1]);
  if (!x || !y || x->dtype != y->dtype) return axes;
  axes.operand = x->dtype;
  const std::vector<Axis>& reduce = stage.view.reduce;
  for (size_t k = 0; k < reduce.size(); ++k) {
    const bool fits = reduce[k].extent % ir::TensorTerms(axes.operand) == 0;
    if (fits && Moves(x, reduce[k]) && Moves(y, reduce[k])) axes.terms = static_cast<int>(k);
  }
  // Columns are better along what is contiguous in the result, the last axis.
  const std::vector<Axis>& spatial = stage.view.spatial;
  for (const auto& [rows, columns] : {std::pair(x, y), std::pair(y, x)}) {
    const int m = AxisOf(spatial, rows, columns, ir::kTensorRows);
    const int n = AxisOf(spatial, columns, rows, ir::kTensorColumns);
    if (m < 0 || n < 0 || n <= axes.columns) continue;
    axes.rows = m;
    axes.columns = n;
  }
  return axes;
}

// Whether the load's last two dimensions are `own` and `terms`, in any order, and no other one is.
bool IsMatrix(const ir::Expr& load, const Axis& own, const Axis& terms) {
  const auto is = [](const ir::Expr& e, const Axis& axis) {
    return e->kind == ir::ExprKind::kVar && e->var.get() == axis.iter;
  };
  const size_t rank = load->args.size();
  if (rank < 2) return false;
  for (size_t d = 0; d + 2 < rank; ++d) {
    if (ir::UsesVar(load->args[d], own.iter) || ir::UsesVar(load->args[d], terms.iter))
      return false;
  }
  const ir::Expr &last = load->args[rank - 1], &before = load->args[rank - 2];
  return (is(last, own) && is(before, terms)) || (is(last, terms) && is(before, own));
}

// What products of four warps together need to know.
struct Grouping {
  bool possible = false;
  bool columns_together = false;  // columns are neighbours in memory
};

// Warps and tiles of a warp along the rows or the columns.
struct WarpSplit {
  int64_t warps = 1, tiles = 1;
};

class GpuTensorRule : public Rule {
 public:
  GpuTensorRule(const Stage& stage, const ProductAxes& axes, const machine::TargetInfo& target,
                Knobs& knobs)
      : stage_(stage),
        axes_(axes),
        target_(target),
        operands_(OperandsOf(*stage.block)),
        terms_(ir::TensorTerms(axes.operand)),
        grouping_(FindGrouping()) {
    auto [m, n] = Preferred(grouping_.possible);
    if (grouping_.possible && m.warps % ir::kGroupWarps != 0) {
      grouping_.possible = false;  // nothing fits
      std::tie(m, n) = Preferred(false);
    }
    const bool groups = grouping_.possible;
    const auto add = [&](const Axis& axis, int64_t tiles, int64_t most, const WarpSplit& wanted,
                         int* warps, int* own) {
      *warps =
          knobs.Add(absl::StrCat("warps ", axis.loop), Divisors(tiles, kMaxWarps), wanted.warps);
      *own = knobs.Add(absl::StrCat("tiles ", axis.loop), Divisors(tiles, most), wanted.tiles);
    };
    add(rows(), RowTiles(), kMaxTiles, m, &row_warps_, &row_tiles_);
    add(columns(), ColumnTiles(), groups ? kMaxGroupTiles : kMaxTiles, n, &column_warps_,
        &column_tiles_);
    const std::vector<int64_t> steps = Divisors(terms().extent / terms_, kMaxStepTiles);
    step_ = knobs.Add(absl::StrCat("step ", terms().loop), steps,
                      groups ? kMaxStepTiles : LargestDivisorUpTo(terms().extent / terms_, 2));
    unroll_ = knobs.Add(absl::StrCat("unroll a step of ", Name()), {0, 1}, 1);
    fetch_ = knobs.Add(absl::StrCat("fetch bytes of ", Name()), {4, 8, kFetchBytes}, kFetchBytes);
    std::vector<int64_t> parts = PartsOf(stage, terms().extent / terms_, target);
    if (parts.size() > 1)
      parts_ = knobs.Add(absl::StrCat("parts of the sums of ", Name()), std::move(parts), 1);
    if (groups) groups_ = knobs.Add(absl::StrCat("four warps together in ", Name()), {0, 1}, 1);
  }

  absl::Status Check(const Knobs& knobs, const Point& point) const override {
    const WarpSplit m = RowsAt(knobs, point), n = ColumnsAt(knobs, point);
    if (RowTiles() % (m.warps * m.tiles) != 0 || ColumnTiles() % (n.warps * n.tiles) != 0)
      return absl::FailedPreconditionError("the tiles of a block do not divide the result");
    if (terms().extent / terms_ / PartsAt(knobs, point) % knobs.Value(point, step_) != 0)
      return absl::FailedPreconditionError("steps do not divide the parts of the sums");
    if (GroupsAt(knobs, point)) {
      if (!FitsGroups(m, n) || knobs.Value(point, step_) != kMaxStepTiles)
        return absl::FailedPreconditionError("four warps make no such product together");
    } else if (n.tiles > kMaxTiles) {
      return absl::FailedPreconditionError("a warp does not make so many tiles alone");
    }
    return CheckLimits(m, n);
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override;

 private:
  struct Loops {
    std::vector<Loop> steps;
    Loop block, thread;
    Loop terms;                // of a step, in tiles
    std::vector<Loop> inside;  // of a thread: tiles along rows and columns, its rows and columns
  };

  const std::string& Name() const { return stage_.view.block; }
  const Axis& rows() const { return stage_.view.spatial[axes_.rows]; }
  const Axis& columns() const { return stage_.view.spatial[axes_.columns]; }
  const Axis& terms() const { return stage_.view.reduce[axes_.terms]; }
  int64_t RowTiles() const { return rows().extent / ir::kTensorRows; }
  int64_t ColumnTiles() const { return columns().extent / ir::kTensorColumns; }
  WarpSplit RowsAt(const Knobs& knobs, const Point& point) const {
    return {knobs.Value(point, row_warps_), knobs.Value(point, row_tiles_)};
  }
  WarpSplit ColumnsAt(const Knobs& knobs, const Point& point) const {
    return {knobs.Value(point, column_warps_), knobs.Value(point, column_tiles_)};
  }

  int64_t PartsAt(const Knobs& knobs, const Point& point) const {
    return parts_ < 0 ? 1 : knobs.Value(point, parts_);
  }

  bool GroupsAt(const Knobs& knobs, const Point& point) const {
    return groups_ >= 0 && knobs.Value(point, groups_) != 0;
  }

  absl::Status ApplyInParts(const Knobs& knobs, const Point& point, Recorder& out) const;
  absl::Status CheckLimits(const WarpSplit& m, const WarpSplit& n) const;
  Grouping FindGrouping() const;
  bool FitsGroups(const WarpSplit& m, const WarpSplit& n) const {
    const int64_t columns = n.tiles * ir::kTensorColumns;
    return m.warps % ir::kGroupWarps == 0 &&
           (!grouping_.columns_together || columns % ir::kPanelWidth == 0);
  }
  // `groups`: by products of four warps together. One warp with one tile if nothing fits.
  std::pair<WarpSplit, WarpSplit> Preferred(bool groups) const;
  absl::StatusOr<Loops> SplitAll(const WarpSplit& m, const WarpSplit& n, int64_t step, bool groups,
                                 Recorder& out) const;
  absl::Status Finish(const Loops& loops, const std::vector<Loop>& copy, bool unroll,
                      Recorder& out) const;

  Stage stage_;
  ProductAxes axes_;
  machine::TargetInfo target_;
  std::vector<GpuOperand> operands_;
  int64_t terms_;  // of one product
  Grouping grouping_;
  int row_warps_ = -1, row_tiles_ = -1, column_warps_ = -1, column_tiles_ = -1;
  int step_ = -1, unroll_ = -1, fetch_ = -1;
  int parts_ = -1;   // -1: sums are not cut
  int groups_ = -1;  // -1: each warp makes its own products
};

Grouping GpuTensorRule::FindGrouping() const {
  Grouping grouping;
  const ir::Expr& value = stage_.block->store.value;
  ir::Expr a = TensorLoadOf(value->args[0]), b = TensorLoadOf(value->args[1]);
  if (!Moves(a, rows())) std::swap(a, b);
  grouping.possible = machine::MakesGroupProducts(target_) && ir::IsHalf(axes_.operand) &&
                      terms().extent % (kMaxStepTiles * terms_) == 0 &&
                      IsMatrix(a, rows(), terms()) && IsMatrix(b, columns(), terms());
  grouping.columns_together = ir::UsesVar(b->args.back(), columns().iter);
  return grouping;
}

absl::Status GpuTensorRule::CheckLimits(const WarpSplit& m, const WarpSplit& n) const {
  const int64_t threads = m.warps * n.warps * ir::kWarpThreads;
  const int64_t sums = 4 * m.tiles * n.tiles, held = sums + 4 * m.tiles + 2 * n.tiles;
  if (threads > target_.max_threads_per_block) {
    return absl::ResourceExhaustedError(absl::StrCat("exceeds the limits of ", target_.target.cpu,
                                                     ": ", threads, " threads in a block"));
  }
  if (sums > kMaxSums || held > kMaxHeld || held * threads > target_.registers_per_block) {
    return absl::ResourceExhaustedError(
        absl::StrCat("exceeds the limits of ", target_.target.cpu, ": ", held,
                     " registers of sums and operands in each of ", threads, " threads"));
  }
  return absl::OkStatus();
}

// Prefers much arithmetic for each fetched byte, a block for each multiprocessor, and several warps
// in each block.
std::pair<WarpSplit, WarpSplit> GpuTensorRule::Preferred(bool groups) const {
  std::pair<WarpSplit, WarpSplit> best;
  double best_score = -1;
  const auto results = static_cast<double>(ElementsOf(stage_.view.spatial));
  for (const int64_t row_tiles : Divisors(RowTiles(), kMaxTiles)) {
    for (const int64_t row_warps : Divisors(RowTiles() / row_tiles, kMaxWarps)) {
      for (const int64_t column_tiles :
           Divisors(ColumnTiles(), groups ? kMaxGroupTiles : kMaxTiles)) {
        for (const int64_t column_warps : Divisors(ColumnTiles() / column_tiles, kMaxWarps)) {
          const WarpSplit m{row_warps, row_tiles}, n{column_warps, column_tiles};
          const int64_t threads = m.warps * n.warps * ir::kWarpThreads;
          if (!CheckLimits(m, n).ok() || threads > kMaxTensorThreads) continue;
          if (groups && !FitsGroups(m, n)) continue;
          const auto height = static_cast<double>(m.warps * m.tiles * ir::kTensorRows);
          const auto width = static_cast<double>(n.warps * n.tiles * ir::kTensorColumns);
          const double blocks = results / (height * width);
          // For each product: what a block fetches, and what a warp, or four together, read of that.
          const double fetched = 1 / height + 1 / width;
          const int64_t rows_read = groups ? ir::kGroupRows : m.tiles * ir::kTensorRows;
          const double read = 1.0 / static_cast<double>(rows_read) +
                              1.0 / static_cast<double>(n.tiles * ir::kTensorColumns);
          const double score = std::min(1.0, blocks / target_.multiprocessors) *
                               std::min(1.0, static_cast<double>(threads) / 128) /
                               (fetched + read / 4);
          if (score <= best_score * 1.001) continue;
          best_score = score;
          best = {m, n};
        }
      }
    }
  }
  return best;
}

absl::StatusOr<GpuTensorRule::Loops> GpuTensorRule::SplitAll(const WarpSplit& m, const WarpSplit& n,
                                                             int64_t step, bool groups,
                                                             Recorder& out) const {
  const int64_t row_blocks = RowTiles() / (m.warps * m.tiles);
  std::vector<int64_t> row_parts = {row_blocks, m.warps, m.tiles, 2, 8};
  if (groups) row_parts = {row_blocks, m.warps / ir::kGroupWarps, m.tiles, ir::kGroupWarps, 2, 8};
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> row, out.Split(LoopOf(rows()), row_parts));
  HEDDLE_ASSIGN_OR_RETURN(
      const std::vector<Loop> column,
      out.Split(LoopOf(columns()), {ColumnTiles() / (n.warps * n.tiles), n.warps, n.tiles, 4, 2}));
  HEDDLE_ASSIGN_OR_RETURN(
      const std::vector<Loop> term,
      out.Split(LoopOf(terms()), {terms().extent / terms_ / step, step, terms_}));
  Loops loops;
  std::vector<Loop> blocks = LoopsOf(stage_.view.spatial);
  blocks[axes_.rows] = row[0];
  blocks[axes_.columns] = column[0];
  loops.steps = LoopsOf(stage_.view.reduce);
  loops.steps[axes_.terms] = term[0];
  loops.terms = term[1];
  const size_t last = row.size() - 1;
  loops.inside = {row[2], column[2], row[last - 1], column[4]};
  std::vector<Loop> threads = {row[1], column[1], row[last], column[3]};
  if (groups) threads.insert(threads.begin() + 2, row[3]);
  HEDDLE_RETURN_IF_ERROR(
      out.Reorder(Concat({blocks, loops.steps, threads, {loops.terms}, loops.inside, {term[2]}})));
  HEDDLE_ASSIGN_OR_RETURN(loops.thread, out.Fuse(threads));
  HEDDLE_ASSIGN_OR_RETURN(loops.block, out.Fuse(blocks));
  return loops;
}

absl::Status GpuTensorRule::ApplyInParts(const Knobs& knobs, const Point& point,
                                         Recorder& out) const {
  GpuTensorRule part = *this;
  part.parts_ = -1;
  HEDDLE_ASSIGN_OR_RETURN(
      part.stage_, CutSums(stage_, static_cast<size_t>(axes_.terms), PartsAt(knobs, point), out));
  HEDDLE_RETURN_IF_ERROR(part.Apply(knobs, point, out));
  return AddUpParts(stage_, target_, out);
}

absl::Status GpuTensorRule::Apply(const Knobs& knobs, const Point& point, Recorder& out) const {
  HEDDLE_RETURN_IF_ERROR(Check(knobs, point));
  if (PartsAt(knobs, point) > 1) return ApplyInParts(knobs, point, out);
  const WarpSplit m = RowsAt(knobs, point), n = ColumnsAt(knobs, point);
  if (axes_.operand == ir::DType::kF32) HEDDLE_RETURN_IF_ERROR(out.Tf32(Name()));
  HEDDLE_ASSIGN_OR_RETURN(const std::string epilogue, Accumulate(stage_, out));
  HEDDLE_ASSIGN_OR_RETURN(const Loops loops,
                          SplitAll(m, n, knobs.Value(point, step_), GroupsAt(knobs, point), out));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> copy,
                          out.ReverseComputeAt(epilogue, loops.block));
  int64_t shared_bytes = 0;
  for (const GpuOperand& operand : operands_) {
    HEDDLE_RETURN_IF_ERROR(FetchOperand(
        stage_, operand, true, loops.steps.back(), m.warps * n.warps * ir::kWarpThreads,
        knobs.Value(point, fetch_) / operand.element_bytes, &shared_bytes, out));
  }
  HEDDLE_RETURN_IF_ERROR(CheckShared(shared_bytes, target_));
  return Finish(loops, copy, knobs.Value(point, unroll_) != 0, out);
}

// `copy`: the loops of the block that takes the tile out, which repeat the spatial ones inside:
// threads, then those of a thread.
absl::Status GpuTensorRule::Finish(const Loops& loops, const std::vector<Loop>& copy, bool unroll,
                                   Recorder& out) const {
  HEDDLE_RETURN_IF_ERROR(out.Bind(loops.block, ir::LoopKind::kBlockX));
  HEDDLE_RETURN_IF_ERROR(out.Bind(loops.thread, ir::LoopKind::kThreadX));
  HEDDLE_RETURN_IF_ERROR(out.Bind(copy[0], ir::LoopKind::kThreadX));
  for (size_t k = 0; k < loops.inside.size(); ++k) {
    HEDDLE_RETURN_IF_ERROR(out.Unroll(loops.inside[k]));
    const bool lanes = k + 1 == loops.inside.size();
    HEDDLE_RETURN_IF_ERROR(lanes ? out.Vectorize(copy[k + 1]) : out.Unroll(copy[k + 1]));
  }
  if (unroll) HEDDLE_RETURN_IF_ERROR(out.Unroll(loops.terms));
  HEDDLE_RETURN_IF_ERROR(out.DecomposeReduction(Name(), loops.steps[0]));
  return out.Tensorize(loops.inside[2]);
}

}  // namespace

bool MatchesGpuTensor(const StageSite& site) {
  if (site.form != kTensorCoresForm || !site.target.tensor_cores) return false;
  const ProductAxes axes = AxesOf(site.stage);
  return axes.rows >= 0 && axes.columns >= 0 && axes.terms >= 0 &&
         (axes.operand != ir::DType::kF32 || site.target.target.tf32);
}

std::unique_ptr<Rule> MakeGpuTensor(const StageSite& site, Knobs& knobs) {
  return std::make_unique<GpuTensorRule>(site.stage, AxesOf(site.stage), site.target, knobs);
}

}  // namespace heddle::schedule
