// The decisions of tiling a reduction around a register tile, and which values to prefer before
// anything is measured. Internal to this folder; tiled_rule.cc turns decided values into steps.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/schedule/rules/register_tile.h"
#include "compiler/schedule/rules/rule.h"
#include "compiler/schedule/rules/stage.h"

namespace heddle::schedule {

// Which of the outer loops become one parallel loop.
enum ParallelMode : int64_t {
  kSerial,
  kAllLoops,
  kAboveRows,  // those outside the loop along a row, whose ends keep conditions of their own
};

enum ProducerMode : int64_t { kAtRoot, kAtOuter, kAtMiddle, kInline };

// The factors of one row axis, or of the vector axis with `lanes` split off.
struct Factors {
  int64_t outer = 1;
  int64_t middle = 1;
  int64_t tile = 1;
  int64_t lanes = 1;
};

// A constant that is loaded as vectors, so that its layout is free to choose.
struct Packable {
  std::string buffer;
  size_t dim = 0;                     // along which the vector axis runs
  std::vector<int64_t> outer, inner;  // other dimensions: of spatial and of reduce iterators
  int knob = -1;
};

struct DecidedTiles {
  static constexpr int64_t kWhole = 0;  // the reduction is not cut into blocks

  std::vector<Factors> spatial;
  std::vector<int64_t> reduce_inner;
  int64_t reduce_block = kWhole;  // steps
  bool vector_first = true;
  int64_t unroll = 1;
  int64_t parallel = kSerial;
  std::vector<int64_t> producers;  // of the stage, each a ProducerMode
  std::vector<bool> packed;        // by packable()
};

// Steps of each reduce axis inside a block of `block` steps (kWhole: all of them), from the last
// axis outwards: whole multiples of `factors` that divide the axis that is cut. Their product is
// at most `block` unless the factors alone exceed it; on a prime axis it may be far less.
std::vector<int64_t> StepsInside(const std::vector<Axis>& reduce,
                                 const std::vector<int64_t>& factors, int64_t block);

class TileDecisions {
 public:
  // Adds the decisions to `knobs`.
  TileDecisions(const Stage& stage, int vector_axis, const machine::TargetInfo& target,
                Knobs& knobs);

  DecidedTiles Decide(const Knobs& knobs, const Point& point) const;
  // FailedPrecondition if the tile exceeds the registers, the caches or the limit of unrolled code,
  // or if it computes more than twice the results.
  absl::Status Check(const DecidedTiles& decided) const;

  const TileModel& model() const { return model_; }
  const std::vector<Packable>& packable() const { return packable_; }

 private:
  void DeclareTiles(const RegisterTile& preferred, Knobs& knobs);
  void DeclareReduce(const RegisterTile& preferred, Knobs& knobs);
  void DeclarePacking(Knobs& knobs);
  void DeclareOthers(const RegisterTile& preferred, Knobs& knobs);
  int64_t BlocksOfRows() const;
  int64_t PreferredInner(size_t axis) const;
  bool CutsIntoBlocks(int64_t steps) const;
  bool PrefersReductionBlocks(const RegisterTile& tile) const;
  bool PrefersWaitingResult() const;
  bool IsAboveRows(size_t axis) const;
  int64_t TilesOfAStrip(size_t axis, const RegisterTile& tile) const;
  int64_t PreferredMiddle(size_t axis, const RegisterTile& tile, int64_t groups) const;
  bool PrefersVectorFirst(const RegisterTile& tile) const;
  int64_t PreferredPlace() const;

  const std::vector<Axis>& spatial() const { return stage_.view.spatial; }
  const std::vector<Axis>& reduce() const { return stage_.view.reduce; }

  Stage stage_;
  int v_;  // vector axis
  machine::TargetInfo target_;
  TileModel model_;

  std::vector<Packable> packable_;
  std::vector<int> tile_knobs_, middle_knobs_, reduce_knobs_, producer_knobs_;
  int lanes_knob_ = -1, order_knob_ = -1, unroll_knob_ = -1, parallel_knob_ = -1, block_knob_ = -1;
};

}  // namespace heddle::schedule
