// Lines of caches, as schedules and the passes that fetch ahead count them.
#pragma once

#include <cstdint>

namespace heddle::ir {

inline constexpr int64_t kLineBytes = 64;
// Lines asked for at once. More would fill the queue of outstanding loads; then too little is
// computed with each line to hide anything.
inline constexpr int64_t kMaxLinesAtOnce = 4;

}  // namespace heddle::ir
