#include "views/format.h"

#include <fmt/format.h>

namespace heddle {

std::string HumanDuration(absl::Duration d) {
  const double seconds = absl::ToDoubleSeconds(d);
  if (seconds < 1) return fmt::format("{:.0f}ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.1f}s", seconds);
  const int64_t whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

std::string FormatNs(double ns) {
  if (ns <= 0) return "-";
  if (ns < 1e3) return fmt::format("{:.0f} ns", ns);
  if (ns < 1e6) return fmt::format("{:.1f} us", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.3f} ms", ns / 1e6);
  return fmt::format("{:.3f} s", ns / 1e9);
}

std::string FormatGflops(double flops, double ns) {
  if (flops <= 0 || ns <= 0) return "-";
  return fmt::format("{:.1f}", flops / ns);
}

std::string FormatBytes(int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string FormatRatio(double ratio) {
  return ratio <= 0 ? "-" : fmt::format("{:.{}f}x", ratio, ratio < 10 ? 2 : 1);
}

std::string FormatWallTime(int64_t unix_ns) {
  return unix_ns == 0 ? "-"
                      : absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(unix_ns),
                                         absl::LocalTimeZone());
}

}  // namespace heddle
