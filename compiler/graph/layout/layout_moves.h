// Moves values from one layout to another. Internal to this folder.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/graph/core/channel_layout.h"
#include "compiler/graph/core/graph_builder.h"

namespace heddle::graph {

// The position of dimension `axis` of a channels-first tensor when its channels are last.
int64_t LastAxis(int64_t axis, int64_t rank);
// One number per dimension of a channels-first tensor, in the order of channels last.
Shape ToLastOrder(const Shape& values);

// Moves a value from one layout to another. `type`: its type with channels first. `block`: channels
// in a block, which divides them if either layout is blocked. `name`: of the value.
absl::StatusOr<ValueId> MoveLayout(GraphBuilder& out, ValueId x, const TensorType& type,
                                   Layout from, Layout to, int64_t block, const std::string& name);

}  // namespace heddle::graph
