#include "client/views/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "views/align.h"

namespace heddle::client {
namespace {

std::string Cut(const std::string& line, size_t width) {
  return line.size() <= width ? line : line.substr(0, width - 2) + "..";
}

}  // namespace

std::vector<double> BestSoFar(absl::Span<const v1::Record> trials) {
  std::vector<double> best;
  for (const v1::Record& trial : trials) {
    const double before = best.empty() ? 0 : best.back(), now = trial.median_ns();
    best.push_back(before <= 0 ? now : now <= 0 ? before : std::min(before, now));
  }
  return best;
}

std::vector<views::PredictedTrial> PredictedOf(absl::Span<const v1::Record> trials) {
  std::vector<views::PredictedTrial> predicted;
  for (const v1::Record& trial : trials) {
    if (!trial.has_prediction() || trial.measurement().outcome() == v1::OUTCOME_LOST) continue;
    predicted.push_back(
        {trial.job(), trial.prediction().samples(), trial.prediction().score(), trial.median_ns()});
  }
  return predicted;
}

std::vector<BatchAccuracy> RankAccuracy(absl::Span<const v1::Record> trials) {
  return views::RankAccuracy(PredictedOf(trials));
}

std::string DrawCurve(absl::Span<const double> values, const std::string& unit, int columns,
                      int rows, bool plain) {
  const double top = values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  if (top <= 0) return "";
  double low = top;
  for (const double v : values) low = v > 0 ? std::min(low, v) : low;
  low = low > 0.9 * top ? 0.9 * top : low;  // a flat curve stays flat
  const int width = std::min(columns, static_cast<int>(values.size()));
  // Heights in eighths of a row.
  constexpr const char* kParts[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string out;
  const int decimals = top < 0.1 ? 4 : top < 10 ? 2 : 1;
  for (int row = rows - 1; row >= 0; --row) {
    const double label = low + (top - low) * (row + 1) / rows;
    const bool labelled = row == rows - 1 || row == 0 || row == rows / 2;
    out += labelled ? fmt::format("{:>10.{}f} |", label, decimals) : fmt::format("{:>10} |", "");
    for (int c = 0; c < width; ++c) {
      const size_t last = values.size() * static_cast<size_t>(c + 1) / static_cast<size_t>(width);
      const double v = values[last - 1];
      const double height = v <= 0 ? 0 : 1 + (8 * rows - 1) * (v - low) / (top - low);
      const int part = std::clamp(static_cast<int>(std::lround(height)) - 8 * row, 0, 8);
      out += plain ? (part >= 4 || (part > 0 && row == 0) ? "#" : " ") : kParts[part];
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    out += "\n";
  }
  const std::string line(static_cast<size_t>(width), '-');
  const std::string count = fmt::format("{}", values.size());
  out += fmt::format("{:>10} +{}\n{:>10}  {:<{}}{}\n", unit, line, "trial", "1",
                     std::max(2, width - static_cast<int>(count.size())), count);
  return out;
}

std::string SideBySide(const std::string& left_title, const std::string& left,
                       const std::string& right_title, const std::string& right, int width,
                       bool plain) {
  const size_t column = static_cast<size_t>(std::max(20, (width - 3) / 2));
  std::string out;
  const auto row = [&](const std::string& l, char mark, const std::string& r) {
    if (plain) {
      out += fmt::format("{}\t{}\t{}\n", l, mark, r);
      return;
    }
    std::string text = fmt::format("{:<{}} {} {}", Cut(l, column), column, mark, Cut(r, column));
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  row(left_title, ' ', right_title);
  for (const AlignedRow& line : AlignLines(left, right)) row(line.left, line.mark, line.right);
  return out;
}

}  // namespace heddle::client
