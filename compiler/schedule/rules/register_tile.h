// A model of what a register tile of a reduction costs on a CPU, from the machine's description.
// register_tile.cc counts what a tile loads; tile_cost.cc turns the counts into cycles. Internal
// to this folder.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/machine/target_info.h"
#include "compiler/schedule/rules/stage.h"

namespace heddle::schedule {

// The part of the result that one pass over the reduce loops computes.
struct RegisterTile {
  std::vector<int64_t> sizes;  // per spatial axis; vectors for the vector axis, rows for the others
  int64_t lanes = 1;           // elements of one vector
};

// Sizes to try for an axis: its divisors, and sizes that cut it into equal parts except for the
// last one.
std::vector<int64_t> TileSizes(int64_t extent);

class TileModel {
 public:
  TileModel(const Stage& stage, int vector_axis, const machine::TargetInfo& target);

  int64_t full_lanes() const { return full_lanes_; }      // elements of a whole vector register
  int64_t reduce_steps() const { return reduce_steps_; }  // for one element
  // Whether no load is a scalar for many vector lanes. Memory bandwidth then bounds the reduction.
  bool streaming() const { return streaming_; }

  // Whether each load has a condition, because the reduction reads padding that is not stored.
  bool guarded() const { return guarded_; }
  // Whether it is better to store padding for a strip of rows at a time: the reduction reads
  // padding, and the steps between two conditions are too few to pay for them.
  bool StripsOfPadding() const { return guarded_ && run_ < kMinGuardedRun && row_axis_ >= 0; }
  // Whether the axis numbers independent products: every load depends on it, and some load is a
  // scalar for many vector lanes.
  bool Batch(size_t axis) const;
  // The axis that numbers the panels of a constant vector operand, such as blocks of channels; -1
  // if there is none.
  int panel_axis() const { return panel_axis_; }
  // Whether neighbours along the axis read some of the same elements.
  bool Overlaps(size_t axis) const { return windows_[axis].size > windows_[axis].step; }
  // Bytes of the operands that are loaded as vectors, and as scalars for many lanes.
  double vector_operand_bytes() const { return OperandBytes(true); }
  double scalar_operand_bytes() const { return OperandBytes(false); }
  // The same, but only of the elements that are read: a stride leaves some out.
  double scalar_bytes_used() const;
  // Bytes of one element of the vector operands, of the scalar ones (the widest), of the result.
  int64_t vector_element_bytes() const { return ElementBytes(true); }
  int64_t scalar_element_bytes() const { return ElementBytes(false); }
  int64_t result_element_bytes() const { return result_element_bytes_; }
  // The innermost spatial axis that is not the vector axis; -1 if there is none.
  int row_axis() const { return row_axis_; }

  // Vector registers that hold the tile.
  int64_t Accumulators(const RegisterTile& tile) const;
  // Instructions of one reduce step: multiply-adds, loads that no multiply-add contains, a share of
  // the loop's own instructions, and spills.
  double Instructions(const RegisterTile& tile) const;
  // Distinct elements that a tile reads as scalars in its whole reduction.
  double ScalarsTouched(const RegisterTile& tile) const;
  // The tile that fits the registers and costs least by CyclesPerElement.
  RegisterTile BestTile() const;

 private:
  // What one load depends on. It is a vector, or a scalar that is broadcast to all lanes.
  struct LoadShape {
    std::vector<bool> depends;     // per spatial axis
    std::vector<int64_t> strides;  // per spatial axis, in elements
    bool vector = false;
    int64_t shared = 1;     // neighbours along the vector axis that use the same scalar
    bool permuted = false;  // a vector that holds the scalars of several groups of lanes
    bool constant = false;
    double elements = 0;  // of the buffer
    int64_t element_bytes = 1;
    double used = 0;  // elements that are read, at most
  };

  // Loads of scalars that `shared` neighbours along the vector axis use: one for each group of
  // them, but one for each lane of a vector that may lie across two groups.
  int64_t SharedScalars(int64_t shared, const RegisterTile& tile) const;
  // Distinct vectors or scalars of the load in one step of the tile.
  int64_t CountOf(const LoadShape& load, const RegisterTile& tile) const;
  int64_t OperandRegisters(const RegisterTile& tile) const;
  int64_t Spilled(const RegisterTile& tile) const;  // values for which there is no register
  double CyclesPerElement(const RegisterTile& tile) const;
  double StepCycles(const RegisterTile& tile, double passes) const;
  bool TellsPanels(size_t axis) const;
  // Addresses of the scalars that a load reads in one step, in bytes from the first one.
  std::vector<int64_t> AddressesOf(const LoadShape& load, const RegisterTile& tile) const;
  // Number of pages that these addresses lie in.
  int64_t Pages(const LoadShape& load, const RegisterTile& tile) const;
  // The largest number of their cache lines that fall into one set of the first-level cache.
  int64_t LinesInOneSet(const LoadShape& load, const RegisterTile& tile) const;

  double OperandBytes(bool vector) const;
  int64_t ElementBytes(bool vector) const;

  static constexpr int64_t kMinGuardedRun = 16;

  std::vector<Axis> spatial_;
  int v_;  // vector axis
  // Elements along a spatial axis that one element of the result reads, and the distance to those
  // of its neighbour.
  struct Window {
    int64_t size = 1;
    int64_t step = 1;
  };
  std::vector<Window> windows_;  // per spatial axis
  int row_axis_ = -1, panel_axis_ = -1;
  int64_t run_ = 1;  // extent of the last reduce axis
  machine::TargetInfo target_;
  int64_t full_lanes_ = 1, result_element_bytes_ = 1;
  std::vector<LoadShape> loads_;
  int64_t reduce_steps_ = 1;
  bool streaming_ = true;
  bool guarded_ = false;
};

}  // namespace heddle::schedule
