// The name of a workload: a hash of its canonical text.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// 64-bit XXH3 of the text, as 16 lower-case hexadecimal digits. Databases and modules hold these
// keys: the function never changes.
std::string WorkloadKey(std::string_view workload_text);

}  // namespace heddle
