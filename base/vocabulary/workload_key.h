// The name of a workload: a hash of its canonical text.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// 64-bit XXH3 of the text, as 16 lower-case hexadecimal digits. The function must never change,
// because databases and modules hold these keys.
std::string WorkloadKey(std::string_view workload_text);

}  // namespace heddle
