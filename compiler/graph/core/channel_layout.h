// Where channels stand in a tensor of images.
#pragma once

#include <array>
#include <string_view>

#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// N, C, spatial..; N, spatial.., C; or N, C/b, spatial.., b for one block b of a whole graph.
enum class Layout { kChannelsFirst, kChannelsLast, kChannelsBlocked };
inline constexpr std::array kLayouts = {Layout::kChannelsFirst, Layout::kChannelsLast,
                                        Layout::kChannelsBlocked};

// "channels_first", "channels_last", "channels_blocked": the values of the attribute "layout".
inline constexpr std::string_view kLayoutNames[] = {"channels_first", "channels_last",
                                                    "channels_blocked"};
constexpr std::string_view LayoutName(Layout layout) {
  return kLayoutNames[static_cast<size_t>(layout)];
}

// Whether channels in blocks of `block` are a layout of their own for a channels-first tensor: one
// whose channels are several whole blocks. All others have their channels last there.
inline bool Blocks(const TensorType& type, int64_t block) {
  return block > 0 && type.shape.size() >= 3 && type.shape[1] % block == 0 && type.shape[1] > block;
}

}  // namespace heddle::graph
