// GPU reductions whose operands are used several times: products and convolutions.
//
// Loops, from outside: blocks (outer spatial loops, fused) | steps of the reduction | threads
// (fused) | the reduction within a step | virtual threads | register tile. A step's operands are
// fetched into shared memory by all threads. Neighbouring threads hold neighbouring register tiles;
// virtual threads repeat that pattern at a distance, so that their accesses stay close together.
// Where results are few and sums long, the sums may be made in parts.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/gpu/fetch.h"
#include "compiler/schedule/rules/gpu/parts.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/rules/shared_steps.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kMinTiled = 256;  // results: with fewer, tiles are hardly possible
constexpr int64_t kMaxThreadsPerAxis = 64;
constexpr int64_t kMaxTile = 8;
constexpr int64_t kMaxStep = 64;
constexpr int64_t kMaxAccumulators = 128;  // of a thread; operands and addresses need the rest
// With fewer, accumulators spill into memory, and the assembler takes up to half a minute.
constexpr int64_t kOtherRegisters = 24;  // of a thread
constexpr int64_t kMinThreads = 32;
// Multiply-adds of one thread in a step that is unrolled. Loads from global memory have conditions,
// and the assembler takes many seconds for a thousand of them.
constexpr int64_t kMaxUnrolledTerms = 512, kMaxUnrolledLoads = 128;
constexpr int64_t kMaxPreferredThreads = 512;
constexpr int64_t kUsualStep = 16;  // terms of a step

// The model behind the preferred schedule, in cycles of one multiprocessor. On an H200 (ResNet-18,
// batch 1), a step of a lone block took 900 to 1250 cycles whatever its arithmetic.
constexpr double kStepLatency = 900;     // from the fetch of a step to the next
constexpr double kLanes = 128;           // multiply-adds in a cycle
constexpr double kOperandReads = 8;      // of each term, in multiply-adds of one thread
constexpr double kFetchedPerCycle = 16;  // 32-bit numbers from the second-level cache
constexpr double kLaunchCycles = 4000;   // of the kernel that adds up the parts

// Factors to split an extent by: its divisors, and powers of two, which may leave a tail.
std::vector<int64_t> SplitsOf(int64_t extent, int64_t limit) {
  const std::vector<int64_t> divisors = Divisors(extent, limit);
  std::set<int64_t> values(divisors.begin(), divisors.end());
  for (int64_t p = 1; p <= limit && p <= extent; p *= 2) values.insert(p);
  return {values.begin(), values.end()};
}

// The largest of the values that divides `extent` and is at most `limit`.
int64_t BestSplit(const std::vector<int64_t>& values, int64_t extent, int64_t limit) {
  int64_t best = 1;
  for (int64_t v : values) {
    if (v <= limit && extent % v == 0) best = v;
  }
  return best;
}

struct SpatialSplit {
  int64_t threads = 1, virtual_threads = 1, tile = 1;
  int64_t Inside() const { return threads * virtual_threads * tile; }
};

class GpuTiledRule : public Rule {
 public:
  GpuTiledRule(const Stage& stage, const machine::TargetInfo& target, Knobs& knobs)
      : stage_(stage), target_(target), operands_(OperandsOf(*stage.block)) {
    for (size_t k = 0; k < reduce().size(); ++k) {
      if (reduce()[k].extent > reduce()[parts_axis_].extent) parts_axis_ = k;
    }
    const std::vector<int64_t> parts = PartsOf(stage_, reduce()[parts_axis_].extent, target_);
    const std::vector<int64_t> steps = PreferredSteps();
    const Choice preferred = Preferred(parts, steps);
    AddSpatialKnobs(preferred.splits, knobs);
    step_knobs_.resize(steps.size(), -1);
    for (size_t k = steps.size(); k-- > 0;) {
      step_knobs_[k] = knobs.Add(absl::StrCat("step ", reduce()[k].loop),
                                 Divisors(reduce()[k].extent, kMaxStep), steps[k]);
    }
    for (const GpuOperand& operand : operands_) {
      shared_.push_back(
          knobs.Add(absl::StrCat("share ", operand.buffer, " of ", Name()), {0, 1}, 1));
    }
    unroll_ = knobs.Add(absl::StrCat("unroll a step of ", Name()), {0, 1}, 1);
    vectors_ = knobs.Add(absl::StrCat("fetch width of ", Name()), {1, 2, 4}, 4);
    if (parts.size() > 1)
      parts_ = knobs.Add(absl::StrCat("parts of the sums of ", Name()), parts, preferred.parts);
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override;
  absl::Status Check(const Knobs& knobs, const Point& point) const override;

 private:
  struct Loops {
    std::vector<Loop> blocks, steps, threads, inner, virtual_threads, tile;
  };

  const std::string& Name() const { return stage_.view.block; }
  const std::vector<Axis>& spatial() const { return stage_.view.spatial; }
  const std::vector<Axis>& reduce() const { return stage_.view.reduce; }

  std::vector<int64_t> PreferredSteps() const;
  void AddSpatialKnobs(const std::vector<SpatialSplit>& preferred, Knobs& knobs);
  int64_t PartsAt(const Knobs& knobs, const Point& point) const {
    return parts_ < 0 ? 1 : knobs.Value(point, parts_);
  }
  absl::Status ApplyInParts(const Knobs& knobs, const Point& point, Recorder& out) const;
  // What a schedule prefers.
  struct Choice {
    std::vector<SpatialSplit> splits;
    int64_t parts = 1;
  };
  bool FitRegisters(int64_t accumulators, int64_t threads) const {
    return accumulators <= kMaxAccumulators &&
           (accumulators + kOtherRegisters) * threads <= target_.registers_per_block;
  }
  double Cycles(const std::vector<SpatialSplit>& splits, int64_t parts, int64_t step_terms) const;
  Choice Preferred(const std::vector<int64_t>& parts, const std::vector<int64_t>& steps) const;
  std::vector<SpatialSplit> Pattern(int64_t tile, int64_t threads, int64_t row_tile,
                                    int64_t row_threads) const;
  std::vector<SpatialSplit> SplitsAt(const Knobs& knobs, const Point& point) const;
  absl::StatusOr<Loops> SplitAll(const std::vector<SpatialSplit>& splits, const Knobs& knobs,
                                 const Point& point, Recorder& out) const;
  absl::Status Finish(const Loops& loops, const std::vector<Loop>& copy, Recorder& out) const;

  Stage stage_;
  machine::TargetInfo target_;
  std::vector<GpuOperand> operands_;
  std::vector<int> thread_knobs_, virtual_knobs_, tile_knobs_;  // by spatial axis; -1: extent one
  std::vector<int> step_knobs_;                                 // by reduce axis
  std::vector<int> shared_;                                     // by operand
  int unroll_ = -1, vectors_ = -1;
  int parts_ = -1;         // -1: sums are not cut
  size_t parts_axis_ = 0;  // the reduce axis that is cut
};

// Cycles that a schedule takes, by a model of one multiprocessor. Its blocks take a step of the
// reduction each in turn. A step takes as long as fetch and barrier, or as its arithmetic and
// fetches for all blocks there. Parts shorten the sums and cost a second launch.
double GpuTiledRule::Cycles(const std::vector<SpatialSplit>& splits, int64_t parts,
                            int64_t step_terms) const {
  double blocks = static_cast<double>(parts), threads = 1, sums = 1, rows = 1, columns = 1;
  for (size_t k = 0; k < splits.size(); ++k) {
    const int64_t inside = splits[k].Inside();
    blocks *= static_cast<double>((spatial()[k].extent + inside - 1) / inside);
    threads *= static_cast<double>(splits[k].threads);
    sums *= static_cast<double>(splits[k].tile);
    rows *= columns;
    columns = static_cast<double>(inside);
  }
  const auto terms = static_cast<double>(ElementsOf(reduce()));
  const auto results = static_cast<double>(ElementsOf(spatial()));
  const auto step = static_cast<double>(step_terms);
  const double steps = terms / step / static_cast<double>(parts);
  const double arithmetic = threads * (sums + kOperandReads) / kLanes;
  const double fetches = (rows + columns) / kFetchedPerCycle;
  const double resident = std::ceil(blocks / target_.multiprocessors);
  double cycles = steps * std::max(kStepLatency, resident * step * (arithmetic + fetches));
  if (parts > 1) {
    cycles += kLaunchCycles + 2 * static_cast<double>(parts) * results /
                                  (kFetchedPerCycle * target_.multiprocessors);
  }
  return cycles;
}

// The split and the number of parts that take the fewest cycles by the model. Compares some
// patterns, each with one width along the axis that moves fastest through the result and another
// along the axes before it. `steps`: the terms of a step along each reduce axis.
GpuTiledRule::Choice GpuTiledRule::Preferred(const std::vector<int64_t>& parts,
                                             const std::vector<int64_t>& steps) const {
  int64_t step_terms = 1;
  for (const int64_t step : steps) step_terms *= step;
  Choice best{std::vector<SpatialSplit>(spatial().size()), 1};
  double fewest = std::numeric_limits<double>::infinity();
  for (const int64_t tile : {4, 2, 1}) {
    for (const int64_t threads : {16, 8, 32, 64}) {
      for (const int64_t row_tile : {8, 4, 2, 1}) {
        for (const int64_t row_threads : {16, 8, 4, 2, 32, 64}) {
          const std::vector<SpatialSplit> splits = Pattern(tile, threads, row_tile, row_threads);
          int64_t block = 1, sums = 1;
          for (const SpatialSplit& split : splits) {
            block *= split.threads;
            sums *= split.tile;
          }
          if (block > kMaxPreferredThreads || block < kMinThreads || !FitRegisters(sums, block))
            continue;
          for (const int64_t number : parts) {
            if (reduce()[parts_axis_].extent / number % steps[parts_axis_] != 0) continue;
            const double cycles = Cycles(splits, number, step_terms);
            if (cycles >= fewest * 0.999) continue;
            fewest = cycles;
            best = {splits, number};
          }
        }
      }
    }
  }
  return best;
}

std::vector<SpatialSplit> GpuTiledRule::Pattern(int64_t tile, int64_t threads, int64_t row_tile,
                                                int64_t row_threads) const {
  std::vector<SpatialSplit> splits(spatial().size());
  bool fastest = true;
  for (size_t k = spatial().size(); k-- > 0;) {
    const int64_t extent = spatial()[k].extent;
    if (extent == 1) continue;
    SpatialSplit& split = splits[k];
    const std::vector<int64_t> values = SplitsOf(extent, kMaxThreadsPerAxis);
    split.tile = BestSplit(SplitsOf(extent, kMaxTile), extent, fastest ? tile : row_tile);
    split.threads = BestSplit(values, extent / split.tile, fastest ? threads : row_threads);
    if (!fastest) {
      row_tile = std::max<int64_t>(1, row_tile / split.tile);
      row_threads = std::max<int64_t>(1, row_threads / split.threads);
    }
    fastest = false;
  }
  return splits;
}

void GpuTiledRule::AddSpatialKnobs(const std::vector<SpatialSplit>& preferred, Knobs& knobs) {
  for (size_t k = 0; k < spatial().size(); ++k) {
    const Axis& axis = spatial()[k];
    const bool one = axis.extent == 1;
    const auto add = [&](const char* what, std::vector<int64_t> values, int64_t wanted) {
      return one ? -1 : knobs.Add(absl::StrCat(what, " ", axis.loop), std::move(values), wanted);
    };
    thread_knobs_.push_back(
        add("threads", SplitsOf(axis.extent, kMaxThreadsPerAxis), preferred[k].threads));
    virtual_knobs_.push_back(add("virtual threads", {1, 2, 4}, 1));
    tile_knobs_.push_back(add("tile", SplitsOf(axis.extent, kMaxTile), preferred[k].tile));
  }
}

// Steps of about kUsualStep terms, from the innermost reduce axis outwards.
std::vector<int64_t> GpuTiledRule::PreferredSteps() const {
  std::vector<int64_t> steps(reduce().size(), 1);
  int64_t wanted = kUsualStep;
  for (size_t k = reduce().size(); k-- > 0;) {
    steps[k] = LargestDivisorUpTo(reduce()[k].extent, wanted);
    wanted = std::max<int64_t>(1, wanted / steps[k]);
  }
  return steps;
}

std::vector<SpatialSplit> GpuTiledRule::SplitsAt(const Knobs& knobs, const Point& point) const {
  std::vector<SpatialSplit> splits(spatial().size());
  for (size_t k = 0; k < splits.size(); ++k) {
    if (thread_knobs_[k] < 0) continue;
    splits[k] = {knobs.Value(point, thread_knobs_[k]), knobs.Value(point, virtual_knobs_[k]),
                 knobs.Value(point, tile_knobs_[k])};
  }
  return splits;
}

absl::Status GpuTiledRule::Check(const Knobs& knobs, const Point& point) const {
  const std::vector<SpatialSplit> splits = SplitsAt(knobs, point);
  const int64_t cut = reduce()[parts_axis_].extent / PartsAt(knobs, point);
  if (cut % knobs.Value(point, step_knobs_[parts_axis_]) != 0)
    return absl::FailedPreconditionError("steps do not divide the parts of the sums");
  int64_t threads = 1, accumulators = 1;
  for (size_t k = 0; k < splits.size(); ++k) {
    const SpatialSplit& split = splits[k];
    if (split.Inside() > 2 * spatial()[k].extent) {
      return absl::FailedPreconditionError(absl::StrCat("a block covers more than twice loop ",
                                                        spatial()[k].loop, " of extent ",
                                                        spatial()[k].extent));
    }
    threads *= split.threads;
    accumulators *= split.virtual_threads * split.tile;
  }
  if (threads > target_.max_threads_per_block) {
    return absl::ResourceExhaustedError(absl::StrCat("exceeds the limits of ", target_.target.cpu,
                                                     ": ", threads, " threads in a block"));
  }
  if (threads < kMinThreads) {
    return absl::FailedPreconditionError(absl::StrCat(threads, " threads are less than a warp"));
  }
  if (!FitRegisters(accumulators, threads)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "exceeds the limits of ", target_.target.cpu, ": ", accumulators, " accumulators and ",
        kOtherRegisters, " other registers in each of ", threads, " threads"));
  }
  return absl::OkStatus();
}

absl::StatusOr<GpuTiledRule::Loops> GpuTiledRule::SplitAll(const std::vector<SpatialSplit>& splits,
                                                           const Knobs& knobs, const Point& point,
                                                           Recorder& out) const {
  Loops loops;
  for (size_t k = 0; k < spatial().size(); ++k) {
    const Axis& axis = spatial()[k];
    if (thread_knobs_[k] < 0) {
      loops.blocks.push_back(LoopOf(axis));
      continue;
    }
    const SpatialSplit& s = splits[k];
    const int64_t blocks = (axis.extent + s.Inside() - 1) / s.Inside();
    HEDDLE_ASSIGN_OR_RETURN(
        const std::vector<Loop> parts,
        out.Split(LoopOf(axis), {blocks, s.virtual_threads, s.threads, s.tile}));
    loops.blocks.push_back(parts[0]);
    loops.virtual_threads.push_back(parts[1]);
    loops.threads.push_back(parts[2]);
    loops.tile.push_back(parts[3]);
  }
  for (size_t k = 0; k < reduce().size(); ++k) {
    const Axis& axis = reduce()[k];
    const int64_t step = knobs.Value(point, step_knobs_[k]);
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> parts,
                            out.Split(LoopOf(axis), {axis.extent / step, step}));
    loops.steps.push_back(parts[0]);
    loops.inner.push_back(parts[1]);
  }
  HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat(
      {loops.blocks, loops.steps, loops.threads, loops.inner, loops.virtual_threads, loops.tile})));
  return loops;
}

absl::Status GpuTiledRule::ApplyInParts(const Knobs& knobs, const Point& point,
                                        Recorder& out) const {
  GpuTiledRule part = *this;
  part.parts_ = -1;
  HEDDLE_ASSIGN_OR_RETURN(part.stage_, CutSums(stage_, parts_axis_, PartsAt(knobs, point), out));
  for (std::vector<int>* own : {&part.thread_knobs_, &part.virtual_knobs_, &part.tile_knobs_})
    own->push_back(-1);
  HEDDLE_RETURN_IF_ERROR(part.Apply(knobs, point, out));
  return AddUpParts(stage_, target_, out);
}

absl::Status GpuTiledRule::Apply(const Knobs& knobs, const Point& point, Recorder& out) const {
  HEDDLE_RETURN_IF_ERROR(Check(knobs, point));
  if (PartsAt(knobs, point) > 1) return ApplyInParts(knobs, point, out);
  const std::vector<SpatialSplit> splits = SplitsAt(knobs, point);
  int64_t threads = 1, accumulators = 1;
  for (const SpatialSplit& split : splits) {
    threads *= split.threads;
    accumulators *= split.virtual_threads * split.tile;
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string epilogue, Accumulate(stage_, out));
  HEDDLE_ASSIGN_OR_RETURN(const Loops loops, SplitAll(splits, knobs, point, out));
  HEDDLE_ASSIGN_OR_RETURN(const Loop thread, out.Fuse(loops.threads));
  HEDDLE_ASSIGN_OR_RETURN(const Loop block, out.Fuse(loops.blocks));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> copy, out.ReverseComputeAt(epilogue, block));
  int64_t shared_bytes = 0, unrolled = kMaxUnrolledTerms;
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (knobs.Value(point, shared_[i]) == 0) unrolled = kMaxUnrolledLoads;
    HEDDLE_RETURN_IF_ERROR(FetchOperand(stage_, operands_[i], knobs.Value(point, shared_[i]) != 0,
                                        loops.steps.back(), threads, knobs.Value(point, vectors_),
                                        &shared_bytes, out));
  }
  HEDDLE_RETURN_IF_ERROR(CheckShared(shared_bytes, target_));
  HEDDLE_RETURN_IF_ERROR(out.Bind(block, ir::LoopKind::kBlockX));
  HEDDLE_RETURN_IF_ERROR(out.Bind(thread, ir::LoopKind::kThreadX));
  HEDDLE_RETURN_IF_ERROR(Finish(loops, copy, out));
  int64_t terms = accumulators;
  for (size_t k = loops.inner.size(); k-- > 0 && knobs.Value(point, unroll_) != 0;) {
    terms *= loops.inner[k].extent;
    if (terms > unrolled) break;
    HEDDLE_RETURN_IF_ERROR(out.Unroll(loops.inner[k]));
  }
  return out.DecomposeReduction(Name(), loops.steps[0]);
}

// `copy`: the loops of the block that takes the tile out, which repeat the spatial ones inside:
// threads, virtual threads, tile.
absl::Status GpuTiledRule::Finish(const Loops& loops, const std::vector<Loop>& copy,
                                  Recorder& out) const {
  HEDDLE_RETURN_IF_ERROR(out.Bind(copy[0], ir::LoopKind::kThreadX));
  size_t next = 1;
  for (const Loop& loop : loops.virtual_threads) {
    HEDDLE_RETURN_IF_ERROR(out.Bind(loop, ir::LoopKind::kVThread));
    HEDDLE_RETURN_IF_ERROR(out.Unroll(copy[next++]));
  }
  for (const Loop& loop : loops.tile) {
    HEDDLE_RETURN_IF_ERROR(out.Unroll(loop));
    const Loop& own = copy[next++];
    const bool lanes = loop == loops.tile.back() && (loop.extent == 2 || loop.extent == 4);
    HEDDLE_RETURN_IF_ERROR(lanes ? out.Vectorize(own) : out.Unroll(own));
  }
  return absl::OkStatus();
}

}  // namespace

bool MatchesGpuTiled(const StageSite& site) {
  const StageView& view = site.stage.view;
  return site.target.execution == machine::Execution::kGrid && !view.reduce.empty() &&
         HasReuse(*site.stage.block) && ElementsOf(view.spatial) >= kMinTiled;
}

std::unique_ptr<Rule> MakeGpuTiled(const StageSite& site, Knobs& knobs) {
  return std::make_unique<GpuTiledRule>(site.stage, site.target, knobs);
}

}  // namespace heddle::schedule
