// GPU reductions of what a walk finds, such as the leaves of decision trees.
//
// A thread walks the trees for a record one after another, or a few at once, because each step waits for the look-ups of
// the step before it. Places and sums stay in registers. Neighbouring threads have neighbouring records, so that they
// read neighbouring elements of a column. Where records are few, several threads share the trees of one record, and the
// parts of its sum meet in shared memory.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/gpu/fetch.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/rules/shared_steps.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kUsualThreads = 256;     // of a block
constexpr int64_t kMostRecords = 256;      // of a block
constexpr int64_t kMostShares = 256;       // threads for one record
constexpr int64_t kMostWalksOfThread = 8;  // trees that a thread walks at once
// Each step of each tree at once has a register of a thread, which has 255.
constexpr int64_t kMostPlaces = 128;
constexpr int64_t kMostValues = 32;  // of a leaf; a thread sums each in a register, too
// Steps of all trees at once that hide each other's latency.
constexpr int64_t kUsualPlaces = 64;
// Threads that keep a multiprocessor busy while others wait for memory.
constexpr int64_t kBusyThreads = 1024;

class GpuWalkRule : public Rule {
 public:
  GpuWalkRule(const Stage& stage, const machine::TargetInfo& target, Knobs& knobs)
      : stage_(stage), target_(target) {
    int64_t walks = 1;
    for (size_t k = 0; k < spatial().size(); ++k) {
      const bool decides = DecidesWalk(*stage.block, spatial()[k]);
      (decides ? walked_ : valued_).push_back(k);
      (decides ? walks : values_) *= spatial()[k].extent;
    }
    if (walked_.empty()) return;  // refused by Apply
    const int64_t records = Record().extent, trees = reduce().extent;
    const int64_t wanted = kBusyThreads * target.multiprocessors;
    const int64_t shares =
        LargestDivisorUpTo(trees, std::min(kMostShares, (wanted + walks - 1) / walks));
    std::vector<int64_t> sizes;
    int64_t size = 1;  // preferred
    for (int64_t r = 1; r <= std::min(kMostRecords, records); r *= 2) {
      sizes.push_back(r);
      if (r * shares <= kUsualThreads) size = r;
    }
    const std::string& name = stage.view.block;
    records_knob_ = knobs.Add(absl::StrCat("records in a block of ", Record().loop), sizes, size);
    shares_knob_ = knobs.Add(absl::StrCat("threads per record of ", name),
                             Divisors(trees, kMostShares), shares);
    trees_knob_ = knobs.Add(
        absl::StrCat("trees at once of ", reduce().loop), Divisors(trees, kMostWalksOfThread),
        LargestDivisorUpTo(trees / shares, std::clamp<int64_t>(kUsualPlaces / Steps(), 1, 4)));
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override {
    if (walked_.empty()) return absl::FailedPreconditionError("one walk for all records");
    HEDDLE_RETURN_IF_ERROR(Check(knobs, point));
    HEDDLE_RETURN_IF_ERROR(InlineProducers(stage_, out));
    const Tile tile = TileAt(knobs, point);
    return tile.shares == 1 ? ApplyWhole(tile, out) : ApplyShares(tile, out);
  }

  absl::Status Check(const Knobs& knobs, const Point& point) const override {
    if (walked_.empty()) return absl::OkStatus();
    const Tile tile = TileAt(knobs, point);
    if (values_ > kMostValues || Steps() * tile.trees > kMostPlaces)
      return absl::FailedPreconditionError("a thread has too few registers for its walks");
    if (reduce().extent % (tile.shares * tile.trees) != 0)
      return absl::FailedPreconditionError("the trees do not divide among the threads");
    const int64_t threads = tile.records * tile.shares;
    if (threads > target_.max_threads_per_block) {
      return absl::ResourceExhaustedError(absl::StrCat("exceeds the limits of ", target_.target.cpu,
                                                       ": ", threads, " threads in a block"));
    }
    // Places and sums. A value narrower than a register takes a whole one.
    const int64_t registers = Steps() * tile.trees + values_;
    if (registers * threads > target_.registers_per_block) {
      return absl::ResourceExhaustedError(absl::StrCat("exceeds the limits of ", target_.target.cpu,
                                                       ": ", registers, " registers in each of ",
                                                       threads, " threads"));
    }
    if (tile.shares == 1) return absl::OkStatus();
    return CheckShared(threads * values_ * ir::SizeOf(stage_.block->store.buffer->dtype), target_);
  }

 private:
  struct Tile {
    int64_t records = 1;  // of a block
    int64_t shares = 1;   // threads that share the trees of a record
    int64_t trees = 1;    // that a thread walks at once
  };
  // Spatial loops, with the records cut.
  struct Nest {
    std::vector<Loop> outer;  // what decides the walk; last: tiles of records
    Loop record;              // of a tile
    std::vector<Loop> values;
  };

  const std::vector<Axis>& spatial() const { return stage_.view.spatial; }
  const Axis& reduce() const { return stage_.view.reduce[0]; }
  const Axis& Record() const { return spatial()[walked_.back()]; }
  int64_t Steps() const { return static_cast<int64_t>(stage_.walk.size()); }

  Tile TileAt(const Knobs& knobs, const Point& point) const {
    return {.records = knobs.Value(point, records_knob_),
            .shares = knobs.Value(point, shares_knob_),
            .trees = knobs.Value(point, trees_knob_)};
  }

  // `loops`: one for each spatial axis, in their order.
  absl::StatusOr<Nest> CutRecords(const std::vector<Loop>& loops, int64_t records,
                                  Recorder& out) const {
    const Loop& all = loops[walked_.back()];
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> parts,
                            out.Split(all, {(all.extent + records - 1) / records, records}));
    Nest nest;
    for (const size_t k : walked_) nest.outer.push_back(loops[k]);
    nest.outer.back() = parts[0];
    nest.record = parts[1];
    for (const size_t k : valued_) nest.values.push_back(loops[k]);
    return nest;
  }

  // Puts all steps at the head of `loop`, in registers.
  absl::Status PlaceWalk(const Loop& loop, Recorder& out) const {
    for (auto step = stage_.walk.rbegin(); step != stage_.walk.rend(); ++step) {
      HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> loops, out.ComputeAt(*step, loop));
      HEDDLE_RETURN_IF_ERROR(out.SetScope(*step, ir::Scope::kLocal));
      HEDDLE_RETURN_IF_ERROR(UnrollAll(loops, out));
    }
    return absl::OkStatus();
  }

  static absl::Status BindBlocks(const std::vector<Loop>& loops, Recorder& out) {
    HEDDLE_ASSIGN_OR_RETURN(const Loop block, out.Fuse(loops));
    return out.Bind(block, ir::LoopKind::kBlockX);
  }

  // A thread walks all trees for its record.
  absl::Status ApplyWhole(const Tile& tile, Recorder& out) const {
    HEDDLE_ASSIGN_OR_RETURN(const std::string epilogue, Accumulate(stage_, out));
    HEDDLE_ASSIGN_OR_RETURN(const Nest nest, CutRecords(LoopsOf(spatial()), tile.records, out));
    HEDDLE_ASSIGN_OR_RETURN(
        const std::vector<Loop> t,
        out.Split(LoopOf(reduce()), {reduce().extent / tile.trees, tile.trees}));
    HEDDLE_RETURN_IF_ERROR(
        out.Reorder(Concat({nest.outer, {nest.record, t[0], t[1]}, nest.values})));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> copy,
                            out.ReverseComputeAt(epilogue, nest.record));
    HEDDLE_RETURN_IF_ERROR(PlaceWalk(t[0], out));
    HEDDLE_RETURN_IF_ERROR(UnrollAll(Concat({{t[1]}, nest.values, copy}), out));
    HEDDLE_RETURN_IF_ERROR(BindBlocks(nest.outer, out));
    HEDDLE_RETURN_IF_ERROR(out.Bind(nest.record, ir::LoopKind::kThreadX));
    return out.DecomposeReduction(stage_.view.block, t[0]);
  }

  // Each thread sums its share of the trees; then one thread for each record adds up the parts. The trees that a
  // thread walks at once are neighbours: a step computes all places between the first and the last of them.
  absl::Status ApplyShares(const Tile& tile, Recorder& out) const {
    const int64_t turns = reduce().extent / (tile.trees * tile.shares);
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> t,
                            out.Split(LoopOf(reduce()), {turns, tile.shares, tile.trees}));
    HEDDLE_ASSIGN_OR_RETURN(const Recorder::Factored sums, out.Rfactor(stage_.view.block, t[1]));
    HEDDLE_ASSIGN_OR_RETURN(const std::string epilogue, Accumulate(stage_, out));
    HEDDLE_ASSIGN_OR_RETURN(const Nest nest, CutRecords(sums.merge, tile.records, out));
    HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat({nest.outer, {nest.record}, nest.values})));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> copy,
                            out.ReverseComputeAt(epilogue, nest.record));
    // The partial block's loops: the share, the spatial ones, the reduce loops that are left.
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> own,
                            out.ComputeAt(sums.partial, nest.outer.back()));
    HEDDLE_RETURN_IF_ERROR(out.SetScope(sums.partial, ir::Scope::kShared));
    const Loop &share = own[0], &turn = own[spatial().size() + 1],
               &several = own[spatial().size() + 2];
    std::vector<Loop> groups, values;  // groups have one iteration here
    for (const size_t k : walked_) groups.push_back(own[k + 1]);
    for (const size_t k : valued_) values.push_back(own[k + 1]);
    const Loop record = groups.back();
    groups.pop_back();
    HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat({groups, {share, record, turn, several}, values})));
    HEDDLE_RETURN_IF_ERROR(PlaceWalk(turn, out));
    HEDDLE_RETURN_IF_ERROR(UnrollAll(Concat({{several}, values, nest.values, copy}), out));
    HEDDLE_ASSIGN_OR_RETURN(const Loop thread, out.Fuse({share, record}));
    HEDDLE_RETURN_IF_ERROR(BindBlocks(nest.outer, out));
    HEDDLE_RETURN_IF_ERROR(out.Bind(thread, ir::LoopKind::kThreadX));
    // One record is left to the whole block: a warp adds up its parts.
    if (tile.records > 1) HEDDLE_RETURN_IF_ERROR(out.Bind(nest.record, ir::LoopKind::kThreadX));
    return out.DecomposeReduction(sums.partial, turn);
  }

  Stage stage_;
  machine::TargetInfo target_;
  std::vector<size_t> walked_, valued_;  // spatial axes that decide the walk, and the others
  int64_t values_ = 1;                   // that a walk finds
  int records_knob_ = -1, shares_knob_ = -1, trees_knob_ = -1;
};

}  // namespace

bool MatchesGpuWalk(const StageSite& site) {
  const Stage& stage = site.stage;
  return site.target.execution == machine::Execution::kGrid && !stage.alone &&
         !stage.walk.empty() && stage.view.reduce.size() == 1;
}

std::unique_ptr<Rule> MakeGpuWalk(const StageSite& site, Knobs& knobs) {
  return std::make_unique<GpuWalkRule>(site.stage, site.target, knobs);
}

}  // namespace heddle::schedule
