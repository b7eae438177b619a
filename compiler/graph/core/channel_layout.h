// Where the channels stand in a tensor of images.
#pragma once

#include <array>
#include <string_view>

#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// The orders N, C, spatial..; N, spatial.., C; and N, C/b, spatial.., b. The whole graph has one
// block size b.
enum class Layout { kChannelsFirst, kChannelsLast, kChannelsBlocked };
inline constexpr std::array kLayouts = {Layout::kChannelsFirst, Layout::kChannelsLast,
                                        Layout::kChannelsBlocked};

// "channels_first", "channels_last", "channels_blocked": the values of the attribute "layout".
inline constexpr std::string_view kLayoutNames[] = {"channels_first", "channels_last",
                                                    "channels_blocked"};
constexpr std::string_view LayoutName(Layout layout) {
  return kLayoutNames[static_cast<size_t>(layout)];
}

// Whether a channels-first tensor has a blocked form of its own with blocks of `block` channels.
// Its channels must be several whole blocks. In the blocked layout, all other tensors have their
// channels last.
inline bool Blocks(const TensorType& type, int64_t block) {
  return block > 0 && type.shape.size() >= 3 && type.shape[1] % block == 0 && type.shape[1] > block;
}

}  // namespace heddle::graph
