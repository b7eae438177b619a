// Moves values from one layout to another. Internal to this folder.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/graph/core/attributes.h"
#include "compiler/graph/core/channel_layout.h"
#include "compiler/graph/core/graph_builder.h"

namespace heddle::graph {

// The position that dimension `axis` of a channels-first tensor has when channels are last.
int64_t LastAxis(int64_t axis, int64_t rank);
// Takes one number per dimension of a channels-first tensor and gives them in the order of channels
// last.
Shape ToLastOrder(const Shape& values);

// The attributes of an operator in `layout`, which is not channels first: those that say something
// about dimensions follow their roles. `rank`: of the first operand. `block`: channels in a block.
Attrs MovedAttrs(std::span<const AttrSpec> specs, const Attrs& attrs, int64_t rank, Layout layout,
                 int64_t block);

// Moves a value from one layout to another. `type`: its type with channels first. `block`: the
// number of channels in a block; it divides the channels if either layout is blocked. `name`: the
// name of the value.
absl::StatusOr<ValueId> MoveLayout(GraphBuilder& out, ValueId x, const TensorType& type,
                                   Layout from, Layout to, int64_t block, const std::string& name);

}  // namespace heddle::graph
