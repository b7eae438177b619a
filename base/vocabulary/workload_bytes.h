// Reads the size of a task's data from the text of its workload, for programs that know no loop programs.
#pragma once

#include <cstdint>
#include <string_view>

namespace heddle {

// Bytes of all inputs and outputs of a workload, each counted once, from its first line
// "program NAME(x: f32[2, 3], ..) -> (y: f32[2]) {" (compiler/ir/text.h). 0: the text is no workload.
int64_t BytesOfWorkload(std::string_view text);

}  // namespace heddle
