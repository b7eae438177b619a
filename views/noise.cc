#include "views/noise.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantiles.h"

namespace heddle {

std::map<std::pair<std::string, std::string>, Noise> NoiseOf(
    const std::vector<v1::Record>& records) {
  std::map<std::pair<std::string, std::string>, Noise> noises;
  std::map<std::pair<std::string, std::string>, std::vector<double>> spreads;
  for (const v1::Record& record : records) {
    const v1::Measurement& measurement = record.measurement();
    const v1::Evidence& evidence = measurement.evidence();
    if (!record.imported_by().empty() || evidence.worker().empty() || record.median_ns() <= 0 ||
        measurement.samples_ns().empty())
      continue;
    const auto [least, most] =
        std::minmax_element(measurement.samples_ns().begin(), measurement.samples_ns().end());
    const std::pair<std::string, std::string> slot = {evidence.worker(), evidence.slot()};
    spreads[slot].push_back((*most - *least) / record.median_ns());
    Noise& noise = noises[slot];
    ++noise.trials;
    noise.repeated += evidence.times_measured() > 1 ? 1 : 0;
    noise.other_share += evidence.other_share();
  }
  for (auto& [slot, noise] : noises) {
    noise.spread = Median(spreads[slot]);
    noise.repeated /= noise.trials;
    noise.other_share /= noise.trials;
  }
  return noises;
}

std::string NoiseText(const Noise& noise) {
  if (noise.trials == 0) return "-";
  return fmt::format("{:.1f} %, {:.0f} % repeated", 100 * noise.spread, 100 * noise.repeated);
}

}  // namespace heddle
