#include "compiler/schedule/rules/register_tile.h"

#include <algorithm>
#include <map>
#include <set>

namespace heddle::schedule {

namespace {

constexpr int64_t kMaxRows = 16;   // most rows of one axis in the register tile
constexpr double kSmallImage = 8;  // a small image is this many times smaller than the weights

}  // namespace

std::vector<int64_t> TileSizes(int64_t extent) {
  std::vector<int64_t> sizes = Divisors(extent, kMaxRows);
  // Sizes whose last tile is nearly full: no smaller size gives as few tiles.
  for (int64_t size = 2; size <= std::min(kMaxRows, extent - 1) && extent >= 5; ++size) {
    const int64_t tiles = (extent + size - 1) / size;
    if ((extent + tiles - 1) / tiles == size) sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

TileModel::TileModel(const Stage& stage, int vector_axis, const machine::TargetInfo& target)
    : spatial_(stage.view.spatial), v_(vector_axis), target_(target) {
  const ir::DType result = stage.block->store.buffer->dtype;
  full_lanes_ = LanesOf(target, result);
  result_element_bytes_ = ir::SizeOf(result);
  for (const ir::Expr& load : DistinctLoads(*stage.block)) {
    LoadShape shape;
    for (size_t k = 0; k < spatial_.size(); ++k) {
      shape.strides.push_back(StrideOf(*load->buffer, load->args, spatial_[k].iter));
      shape.depends.push_back(shape.strides[k] != 0);
    }
    // A group with several vectors of channels shares what it reads of the image. A group of one
    // vector counts as loaded with each vector: tiles then stay within a group, which was faster
    // (the 13 such convolutions of resnext50: 8.3 ms against 9.0, though the two strided ones
    // lose).
    if (shape.strides[v_] == kIrregular) shape.shared = SharedBy(load->args, spatial_[v_].iter);
    shape.vector = shape.depends[v_] && shape.shared <= full_lanes_;
    shape.permuted = shape.shared > 1 && shape.shared < full_lanes_;
    shape.constant = std::find(stage.constants.begin(), stage.constants.end(),
                               load->buffer->name) != stage.constants.end();
    shape.elements = static_cast<double>(load->buffer->NumElements());
    shape.element_bytes = ir::SizeOf(load->buffer->dtype);
    shape.used = 1;
    for (const auto* axes : {&stage.view.spatial, &stage.view.reduce}) {
      for (const Axis& axis : *axes) {
        if (StrideOf(*load->buffer, load->args, axis.iter) != 0)
          shape.used *= static_cast<double>(axis.extent);
      }
    }
    streaming_ &= shape.vector;
    loads_.push_back(std::move(shape));
  }
  for (size_t k = 0; k < spatial_.size(); ++k) {
    if (static_cast<int>(k) != v_ && spatial_[k].extent > 1) row_axis_ = static_cast<int>(k);
  }
  for (size_t k = 0; k < spatial_.size(); ++k) {
    if (TellsPanels(k)) panel_axis_ = static_cast<int>(k);
  }
  if (!stage.view.reduce.empty()) run_ = stage.view.reduce.back().extent;
  for (const Axis& axis : spatial_) {
    const int64_t one = TouchedBy(*stage.block, stage.view.reduce, axis, 1);
    windows_.push_back({one, TouchedBy(*stage.block, stage.view.reduce, axis, 2) - one});
  }
  // Padding a small image costs next to nothing: its weights are much larger, or the padded copy
  // stays in the second-level cache. Conditions around conversions cost more.
  guarded_ = !stage.producers.empty() && !stage.reads_half && !streaming_ &&
             kSmallImage * scalar_operand_bytes() > vector_operand_bytes() &&
             scalar_operand_bytes() > static_cast<double>(target.l2_bytes) / 4;
  for (const Axis& axis : stage.view.reduce) reduce_steps_ *= axis.extent;
}

int64_t TileModel::Accumulators(const RegisterTile& tile) const {
  int64_t accumulators = 1;
  for (int64_t size : tile.sizes) accumulators *= size;
  return accumulators * ((tile.lanes + full_lanes_ - 1) / full_lanes_);
}

int64_t TileModel::SharedScalars(int64_t shared, const RegisterTile& tile) const {
  const int64_t width = tile.sizes[v_] * tile.lanes;
  if (shared % tile.lanes == 0) return (width + shared - 1) / shared;
  // Unless each tile begins with a group, no vector is known to lie within one.
  const bool known = width % shared == 0;
  int64_t count = 0, last = -1;
  for (int64_t begin = 0; begin < width; begin += tile.lanes) {
    const int64_t group = begin / shared;
    if (!known || (begin + tile.lanes - 1) / shared != group) {
      count += tile.lanes;
    } else if (group != last) {
      ++count;
      last = group;
    }
  }
  return count;
}

int64_t TileModel::CountOf(const LoadShape& load, const RegisterTile& tile) const {
  int64_t count = 1;
  for (size_t k = 0; k < tile.sizes.size(); ++k) {
    if (!load.depends[k]) continue;
    const bool groups = static_cast<int>(k) == v_ && !load.vector;
    count *= groups ? SharedScalars(load.shared, tile) : tile.sizes[k];
  }
  return count;
}

// Registers for the operands of one reduce step: vectors or broadcast scalars, whichever are
// fewer, stay for the whole step; the others are loaded one at a time. Permuted vectors stay for
// several steps.
int64_t TileModel::OperandRegisters(const RegisterTile& tile) const {
  int64_t vectors = 0, scalars = 0, permuted = 0;
  for (const LoadShape& load : loads_) {
    const bool stays = load.permuted && tile.lanes > load.shared;
    (stays ? permuted : load.vector ? vectors : scalars) += CountOf(load, tile);
  }
  return permuted + std::min(vectors, scalars) + 1;
}

int64_t TileModel::Spilled(const RegisterTile& tile) const {
  // Without broadcast operands, a scalar needs a register of its own.
  const int64_t spare = target_.BroadcastsOperand() ? 0 : 1;
  return std::max<int64_t>(
      Accumulators(tile) + OperandRegisters(tile) + spare - target_.vector_registers, 0);
}

bool TileModel::Batch(size_t axis) const {
  return !streaming_ && static_cast<int>(axis) != v_ && !loads_.empty() &&
         std::all_of(loads_.begin(), loads_.end(),
                     [&](const LoadShape& load) { return load.depends[axis]; });
}

bool TileModel::TellsPanels(size_t axis) const {
  if (streaming_ || static_cast<int>(axis) == v_ || spatial_[axis].extent < 2) return false;
  return std::all_of(loads_.begin(), loads_.end(), [&](const LoadShape& load) {
    return load.vector ? load.constant && load.depends[axis] : !load.depends[axis];
  });
}

double TileModel::OperandBytes(bool vector) const {
  double bytes = 0;
  for (const LoadShape& load : loads_) {
    if (load.vector == vector) bytes += load.elements * static_cast<double>(load.element_bytes);
  }
  return bytes;
}

int64_t TileModel::ElementBytes(bool vector) const {
  int64_t bytes = 1;
  for (const LoadShape& load : loads_) {
    if (load.vector == vector) bytes = std::max(bytes, load.element_bytes);
  }
  return bytes;
}

double TileModel::scalar_bytes_used() const {
  double bytes = 0;
  for (const LoadShape& load : loads_) {
    if (!load.vector)
      bytes += std::min(load.elements, load.used) * static_cast<double>(load.element_bytes);
  }
  return bytes;
}

double TileModel::ScalarsTouched(const RegisterTile& tile) const {
  auto steps = static_cast<double>(reduce_steps_);  // reduce steps at one position of the window
  double places = 1;
  for (size_t k = 0; k < tile.sizes.size(); ++k) {
    const bool moves = std::any_of(loads_.begin(), loads_.end(), [&](const LoadShape& load) {
      return !load.vector && load.depends[k];
    });
    if (static_cast<int>(k) == v_ || !moves) continue;
    steps /= static_cast<double>(windows_[k].size);
    places *= static_cast<double>(windows_[k].size + (tile.sizes[k] - 1) * windows_[k].step);
  }
  return steps * places;
}

std::vector<int64_t> TileModel::AddressesOf(const LoadShape& load, const RegisterTile& tile) const {
  std::vector<int64_t> addresses{0};
  for (size_t k = 0; k < tile.sizes.size(); ++k) {
    if (!load.depends[k] || static_cast<int>(k) == v_ || load.strides[k] == kIrregular) continue;
    std::vector<int64_t> moved;
    for (int64_t i = 0; i < tile.sizes[k]; ++i) {
      for (int64_t address : addresses)
        moved.push_back(address + load.element_bytes * i * load.strides[k]);
    }
    addresses = std::move(moved);
  }
  return addresses;
}

int64_t TileModel::LinesInOneSet(const LoadShape& load, const RegisterTile& tile) const {
  std::set<int64_t> lines;
  for (int64_t address : AddressesOf(load, tile)) lines.insert(address / target_.line_bytes);
  std::map<int64_t, int64_t> sets;
  int64_t most = 0;
  const int64_t period = target_.page_bytes / target_.line_bytes;
  for (int64_t line : lines) most = std::max(most, ++sets[line % period]);
  return most;
}

int64_t TileModel::Pages(const LoadShape& load, const RegisterTile& tile) const {
  std::set<int64_t> pages;
  for (int64_t address : AddressesOf(load, tile)) pages.insert(address / target_.page_bytes);
  return static_cast<int64_t>(pages.size());
}

}  // namespace heddle::schedule
