// Numbers as text for people.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace heddle {

std::string HumanDuration(absl::Duration d);        // "1h02m", "4m05s", "12.3s", "850ms"
std::string FormatNs(double ns);                    // "1.234 ms", "12.3 us"; "-" for 0
std::string FormatGflops(double flops, double ns);  // "123.4"; "-" where unknown
std::string FormatBytes(int64_t bytes);
std::string FormatRatio(double ratio);  // "12.3x"; "-" for 0
std::string FormatWallTime(int64_t unix_ns);

}  // namespace heddle
