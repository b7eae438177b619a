// Reductions over a window that slides along rows and columns, one window for each vector lane:
// depthwise convolution, pooling.
//
// Nothing is reused across lanes, so a register tile saves loads of neighbouring windows only. A
// patch of a few rows and columns is computed at a time, its accumulators in registers for the
// whole window. Patches side by side are unrolled one after another, so that the columns that they
// share, and the weights, are still in registers.
//
// Loops, from outside: batch and other axes; blocks of vectors, rows and columns of patches, in an
// order that is a decision; vectors of a block; patches (unrolled); the window (unrolled); the
// patch (unrolled); lanes.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/rules/shared_steps.h"
#include "compiler/schedule/rules/stage_work.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kMaxWindow = 64;         // steps; larger ones are not unrolled whole
constexpr int64_t kUnrolledWindow = 16;    // steps whose operands the registers hold
constexpr int64_t kMaxPatch = 16;          // accumulators
constexpr int64_t kMaxUnrolled = 512;      // multiply-adds: each border gets its own copy of them
constexpr int64_t kBlockBytes = 512;       // contiguous bytes of a place, for hardware prefetching
constexpr int64_t kStreamBytes = 1 << 10;  // of a row: shorter pieces than this stream badly
constexpr int64_t kFewColumns = 4;         // columns of two patches whose windows fit the registers
// Places that a patch reads a vector of, one after another. Caches lose track of many more: on
// 14 x 14 x 512 by steps of two, 45 are 5 % faster than 75 on warm caches, 10 % on cold ones.
constexpr int64_t kMaxPlaces = 64;

// The order of the loops over blocks of vectors, rows and columns.
enum Order : int64_t { kBlocksRowsColumns, kBlocksColumnsRows, kRowsBlocksColumns };
enum WindowPlace : int64_t { kWindowAtRoot, kWindowAtPatches, kWindowInlined };

bool UsesReduce(const ir::Expr& e, const StageView& view) {
  return std::any_of(view.reduce.begin(), view.reduce.end(),
                     [&](const Axis& axis) { return ir::UsesVar(e, axis.iter); });
}

// Whether some load's index moves with the axis and with a reduce axis.
bool Slides(const Stage& stage, const Axis& axis) {
  if (axis.extent < 2) return false;
  for (const ir::Expr& load : DistinctLoads(*stage.block)) {
    for (const ir::Expr& index : load->args) {
      if (ir::UsesVar(index, axis.iter) && UsesReduce(index, stage.view)) return true;
    }
  }
  return false;
}

// The spatial axes that a window slides along, without the vector axis.
std::vector<int> SlidingAxes(const Stage& stage) {
  std::vector<int> axes;
  for (size_t k = 0; k < stage.view.spatial.size(); ++k) {
    if (static_cast<int>(k) != stage.vector_axis && Slides(stage, stage.view.spatial[k]))
      axes.push_back(static_cast<int>(k));
  }
  return axes;
}

// Divisors of the extent, and small sizes whose guarded rest is less than a third.
std::vector<int64_t> PatchSizes(int64_t extent, int64_t limit) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= std::min(extent, limit); ++size) {
    const int64_t covered = (extent + size - 1) / size * size;
    if (extent % size == 0 || (size <= 4 && 3 * covered < 4 * extent)) sizes.push_back(size);
  }
  return sizes;
}

class WindowRule : public Rule {
 public:
  WindowRule(const Stage& stage, const machine::TargetInfo& target, Knobs& knobs)
      : stage_(stage), v_(stage.vector_axis), target_(target) {
    const std::vector<int> axes = SlidingAxes(stage);
    column_ = axes.back();
    if (axes.size() > 1) row_ = axes[axes.size() - 2];
    steps_ = ElementsOf(stage.view.reduce);
    Declare(knobs);
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override;

 private:
  struct Decided {
    int64_t lanes = 1, block = 1;                // elements, vectors
    int64_t rows = 1, columns = 1, patches = 1;  // of a patch; side by side
    int64_t order = kBlocksRowsColumns;
    bool unroll_window = true, parallel = false;
    std::vector<int64_t> producers;
  };
  // Loops after splitting, by what they are for.
  struct Loops {
    std::vector<Loop> outer;   // in order, to be shared out among threads
    std::vector<Loop> serial;  // inside those
    Loop patches;
    std::vector<Loop> reduce, patch;
    Loop lanes;
  };

  const Axis& vector() const { return stage_.view.spatial[v_]; }
  const Axis& column() const { return stage_.view.spatial[column_]; }
  const Axis& row() const { return stage_.view.spatial[row_]; }
  int64_t Touched(const Axis& axis, int64_t size) const {
    return TouchedBy(*stage_.block, stage_.view.reduce, axis, size);
  }
  int64_t ElementBytes() const { return ir::SizeOf(stage_.block->store.buffer->dtype); }

  void Declare(Knobs& knobs);
  void DeclareLanes(Knobs& knobs);
  void DeclareBlock(int64_t order, Knobs& knobs);
  void DeclarePatch(Knobs& knobs);
  bool Beyond2ndLevel() const;
  int64_t StripBytes(int64_t columns) const;
  int64_t PreferredOrder(int64_t columns) const;
  int64_t PreferredRows(int64_t columns) const;
  Decided Decide(const Knobs& knobs, const Point& point) const;
  absl::Status Check(const Decided& decided) const;
  absl::StatusOr<Loops> SplitAll(const Decided& decided, Recorder& out) const;

  Stage stage_;
  int v_, column_ = -1, row_ = -1;  // axes; a window may slide along columns only
  machine::TargetInfo target_;
  int64_t steps_ = 1;
  int64_t preferred_lanes_ = 1;
  int lanes_knob_ = -1, block_knob_ = -1, rows_knob_ = -1, columns_knob_ = -1, patches_knob_ = -1;
  int order_knob_ = -1, unroll_knob_ = -1, parallel_knob_ = -1;
  std::vector<int> producer_knobs_;
};

void WindowRule::DeclareLanes(Knobs& knobs) {
  const int64_t full = LanesOf(target_, stage_.block->store.buffer->dtype);
  const int64_t extent = vector().extent;
  const int64_t divisor = PowerOfTwoDivisor(extent, full);
  std::vector<int64_t> lanes{divisor};
  const int64_t widest = LargestDivisorUpTo(extent, full);
  if (widest != divisor) lanes.push_back(widest);
  if (divisor < full && extent > full) lanes.push_back(full);
  if (divisor > 2) lanes.push_back(divisor / 2);
  // One register that is not quite full (11 channels) costs less than several much smaller ones. A
  // guarded tail costs less than another register.
  preferred_lanes_ = divisor;
  if (2 * divisor < full)
    preferred_lanes_ = (extent + full - 1) / full < extent / widest ? full : widest;
  lanes_knob_ = knobs.Add(absl::StrCat("lanes of ", vector().loop), lanes, preferred_lanes_);
}

// One thread that goes along whole rows takes longer pieces of each place, and patches one by one.
// That is a few percent faster than strips on warm caches, a sixth on cold ones (28 x 28 x 256).
void WindowRule::DeclareBlock(int64_t order, Knobs& knobs) {
  const int64_t groups = (vector().extent + preferred_lanes_ - 1) / preferred_lanes_;
  const bool alone = order == kRowsBlocksColumns && target_.target.threads == 1;
  const int64_t bytes = alone ? 2 * kBlockBytes : kBlockBytes;
  const int64_t wanted = std::max<int64_t>(1, bytes / ElementBytes() / preferred_lanes_);
  block_knob_ = knobs.Add(absl::StrCat("vectors per block of ", vector().loop), Divisors(groups),
                          LargestDivisorUpTo(groups, wanted));
}

// Whether what each thread reads and writes exceeds its second-level cache.
bool WindowRule::Beyond2ndLevel() const {
  int64_t bytes = stage_.block->store.buffer->SizeBytes();
  std::set<const ir::Buffer*> read;
  for (const ir::Expr& load : DistinctLoads(*stage_.block)) {
    if (read.insert(load->buffer.get()).second) bytes += load->buffer->SizeBytes();
  }
  return bytes > target_.l2_bytes * target_.target.threads;
}

// Bytes read and written for a strip of this many columns: all rows, one block of vectors. Columns
// that neighbouring strips share count once.
int64_t WindowRule::StripBytes(int64_t columns) const {
  int64_t read = 0;
  for (const ir::Expr& load : DistinctLoads(*stage_.block))
    read = std::max(read, load->buffer->SizeBytes());
  const int64_t bytes = read + stage_.block->store.buffer->SizeBytes();
  const int64_t vector_bytes = vector().extent * ElementBytes();
  return bytes * columns / column().extent * std::min(kBlockBytes, vector_bytes) / vector_bytes;
}

// Walking down a strip of columns keeps the rows that neighbouring patches share in the cache. If
// the strip fits the first-level cache, the columns that the next strip shares stay there too. If
// it does not fit, or is the only one, whole rows stream better, unless everything comes from
// beyond the second level or rows are short. Threads get rows of their own: parts of a cache line
// for each make them compete for it.
int64_t WindowRule::PreferredOrder(int64_t columns) const {
  if (target_.target.threads > 1) return kRowsBlocksColumns;
  if (Beyond2ndLevel() || columns * vector().extent * ElementBytes() < kStreamBytes)
    return kBlocksRowsColumns;
  const bool close = columns < column().extent && StripBytes(columns) <= target_.l1_bytes;
  return close ? kBlocksColumnsRows : kRowsBlocksColumns;
}

int64_t WindowRule::PreferredRows(int64_t columns) const {
  int64_t rows = Beyond2ndLevel() ? 4 : 2;
  if (steps_ > kUnrolledWindow) return rows;
  while (rows > 1 && Touched(row(), rows) * Touched(column(), columns) > kMaxPlaces) --rows;
  return rows;
}

void WindowRule::DeclarePatch(Knobs& knobs) {
  const bool small = steps_ <= kUnrolledWindow, far = Beyond2ndLevel();
  unroll_knob_ =
      knobs.Add(absl::StrCat("whole window unrolled of ", stage_.view.block), {1, 0}, small);
  const int64_t extent = column().extent;
  std::vector<int64_t> sizes = PatchSizes(extent, kMaxPatch);
  // Where the registers do not hold the weights, more columns share each weight.
  int64_t columns = small ? 2 : kFewColumns;
  if (extent % columns != 0) columns = LargestDivisorUpTo(extent, 7);
  if (columns == 1) columns = 2;
  if (row_ >= 0) {
    rows_knob_ = knobs.Add(absl::StrCat("rows of a patch of ", row().loop),
                           PatchSizes(row().extent, 8), PreferredRows(columns));
  }
  columns_knob_ = knobs.Add(absl::StrCat("columns of a patch of ", column().loop), sizes, columns);
  const int64_t rest = (extent + columns - 1) / columns;
  int64_t patches =
      columns < kFewColumns && !far ? LargestDivisorUpTo(rest, kFewColumns / columns) : 1;
  const int64_t order = PreferredOrder(columns * patches);
  if (order == kRowsBlocksColumns && target_.target.threads == 1) patches = 1;
  DeclareBlock(order, knobs);
  patches_knob_ = knobs.Add(absl::StrCat("patches side by side of ", column().loop),
                            {1, 2, 3, 4, 7, 8, 14, 28}, patches);
  order_knob_ = knobs.Add(absl::StrCat("order of ", stage_.view.block),
                          {kBlocksRowsColumns, kBlocksColumnsRows, kRowsBlocksColumns}, order);
}

void WindowRule::Declare(Knobs& knobs) {
  DeclareLanes(knobs);
  DeclarePatch(knobs);
  if (target_.target.threads > 1) {
    parallel_knob_ = knobs.Add(absl::StrCat("parallel ", stage_.view.block), {0, 1},
                               machine::WorthThreads(WorkOf(stage_, target_), target_));
  }
  for (const std::string& producer : stage_.producers) {
    producer_knobs_.push_back(knobs.Add(absl::StrCat("place of ", producer),
                                        {kWindowAtRoot, kWindowAtPatches, kWindowInlined},
                                        kWindowInlined));
  }
}

WindowRule::Decided WindowRule::Decide(const Knobs& knobs, const Point& point) const {
  Decided decided;
  decided.lanes = knobs.Value(point, lanes_knob_);
  const int64_t groups = (vector().extent + decided.lanes - 1) / decided.lanes;
  decided.block = LargestDivisorUpTo(groups, knobs.Value(point, block_knob_));
  if (row_ >= 0) decided.rows = knobs.Value(point, rows_knob_);
  decided.columns = knobs.Value(point, columns_knob_);
  const int64_t rest = (column().extent + decided.columns - 1) / decided.columns;
  decided.patches = LargestDivisorUpTo(rest, knobs.Value(point, patches_knob_));
  decided.order = knobs.Value(point, order_knob_);
  decided.unroll_window = knobs.Value(point, unroll_knob_) != 0;
  decided.parallel = parallel_knob_ >= 0 && knobs.Value(point, parallel_knob_) != 0;
  for (int knob : producer_knobs_) decided.producers.push_back(knobs.Value(point, knob));
  return decided;
}

absl::Status WindowRule::Check(const Decided& decided) const {
  const int64_t patch = decided.rows * decided.columns;
  if (patch > kMaxPatch || patch >= target_.vector_registers) {
    return absl::FailedPreconditionError(
        absl::StrCat("a patch of ", patch, " vectors is too large"));
  }
  if (patch * decided.patches * (decided.unroll_window ? steps_ : 1) > kMaxUnrolled) {
    return absl::FailedPreconditionError("the unrolled patches are too large");
  }
  return absl::OkStatus();
}

absl::StatusOr<WindowRule::Loops> WindowRule::SplitAll(const Decided& decided,
                                                       Recorder& out) const {
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  Loops loops;
  HEDDLE_ASSIGN_OR_RETURN(
      const std::vector<Loop> c,
      out.Split(LoopOf(vector()), {ceil_div(vector().extent, decided.lanes) / decided.block,
                                   decided.block, decided.lanes}));
  HEDDLE_ASSIGN_OR_RETURN(
      const std::vector<Loop> x,
      out.Split(LoopOf(column()), {ceil_div(column().extent, decided.columns) / decided.patches,
                                   decided.patches, decided.columns}));
  std::vector<Loop> y;
  if (row_ >= 0) {
    HEDDLE_ASSIGN_OR_RETURN(
        y, out.Split(LoopOf(row()), {ceil_div(row().extent, decided.rows), decided.rows}));
    loops.patch.push_back(y[1]);
  }
  for (size_t k = 0; k < stage_.view.spatial.size(); ++k) {
    const int axis = static_cast<int>(k);
    if (axis != v_ && axis != row_ && axis != column_)
      loops.outer.push_back(LoopOf(stage_.view.spatial[k]));
  }
  const bool rows_inside = decided.order == kBlocksColumnsRows;
  if (decided.order == kRowsBlocksColumns && !y.empty()) {
    loops.outer.insert(loops.outer.end(), {y[0], c[0]});
  } else {
    loops.outer.insert(loops.outer.end(), {c[0], rows_inside || y.empty() ? x[0] : y[0]});
  }
  if (!y.empty()) loops.serial.push_back(rows_inside ? y[0] : x[0]);
  loops.serial.push_back(c[1]);
  loops.patches = x[1];
  loops.reduce = LoopsOf(stage_.view.reduce);
  loops.patch.push_back(x[2]);
  loops.lanes = c[2];
  HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat(
      {loops.outer, loops.serial, {loops.patches}, loops.reduce, loops.patch, {loops.lanes}})));
  return loops;
}

absl::Status WindowRule::Apply(const Knobs& knobs, const Point& point, Recorder& out) const {
  const Decided decided = Decide(knobs, point);
  HEDDLE_RETURN_IF_ERROR(Check(decided));
  HEDDLE_ASSIGN_OR_RETURN(const std::string epilogue, Accumulate(stage_, out));
  HEDDLE_ASSIGN_OR_RETURN(const Loops loops, SplitAll(decided, out));
  // The copy's loops repeat those of the patch.
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> copy,
                          out.ReverseComputeAt(epilogue, loops.patches));
  std::vector<ProducerPlace> places;
  for (int64_t place : decided.producers) {
    places.push_back({place == kWindowInlined  ? ProducerPlace::kInlined
                      : place == kWindowAtRoot ? ProducerPlace::kAtRoot
                                               : ProducerPlace::kInLoop,
                      loops.outer.back()});
  }
  HEDDLE_RETURN_IF_ERROR(PlaceProducers(stage_, places, target_, out));
  if (decided.parallel) HEDDLE_RETURN_IF_ERROR(FuseParallel(loops.outer, out));
  HEDDLE_RETURN_IF_ERROR(out.Unroll(loops.patches));
  HEDDLE_RETURN_IF_ERROR(UnrollTile(loops.patch, loops.lanes, copy, out));
  const size_t kept = decided.unroll_window ? 0 : loops.reduce.size() - 1;
  HEDDLE_RETURN_IF_ERROR(UnrollAll({loops.reduce.begin() + kept, loops.reduce.end()}, out));
  return out.DecomposeReduction(stage_.view.block, loops.reduce[0]);
}

}  // namespace

bool MatchesWindow(const StageSite& site) {
  const Stage& stage = site.stage;
  if (site.target.execution != machine::Execution::kThreads || stage.alone || stage.vector_axis < 0)
    return false;
  if (stage.view.reduce.empty() || ElementsOf(stage.view.reduce) > kMaxWindow) return false;
  for (const ir::Expr& load : DistinctLoads(*stage.block)) {
    if (StrideOf(*load->buffer, load->args, stage.view.spatial[stage.vector_axis].iter) != 1)
      return false;
  }
  return !SlidingAxes(stage).empty();
}

std::unique_ptr<Rule> MakeWindow(const StageSite& site, Knobs& knobs) {
  return std::make_unique<WindowRule>(site.stage, site.target, knobs);
}

}  // namespace heddle::schedule
