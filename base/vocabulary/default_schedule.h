// What stands for the default schedule where a trace is expected.
#pragma once

#include <string_view>

namespace heddle {

// In BestTrace.trace (proto/worker.proto): the task keeps its default schedule, which took median_ns. It is no trace: a line of a
// trace begins with a primitive.
inline constexpr std::string_view kDefaultSchedule = "default";

}  // namespace heddle
