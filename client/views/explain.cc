#include "client/views/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "views/align.h"

namespace heddle::client {
namespace {

constexpr double kDiffers = 1.03;
constexpr size_t kMostCompared = 1024;  // trials of a batch: the largest batch of a job

double Speed(const v1::Record& trial) { return trial.median_ns() > 0 ? 1 / trial.median_ns() : 0; }

void Compare(const std::vector<const v1::Record*>& batch, BatchAccuracy* out) {
  double right = 0, all = 0;
  const v1::Record* best = batch[0];
  for (const v1::Record* a : batch) {
    if (Speed(*a) > Speed(*best)) best = a;
    for (const v1::Record* b : batch) {
      if (Speed(*a) <= Speed(*b) * kDiffers) continue;  // a is the faster one
      all += 1;
      const double ahead = a->prediction().score() - b->prediction().score();
      right += ahead > 0 ? 1 : ahead == 0 ? 0.5 : 0;
    }
  }
  out->trials = static_cast<int>(batch.size());
  if (all > 0) out->pairs = right / all;
  out->rank_of_best = 1 + static_cast<int>(std::count_if(batch.begin(), batch.end(), [&](auto* t) {
                        return t->prediction().score() > best->prediction().score();
                      }));
}

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

std::vector<BatchAccuracy> RankAccuracy(absl::Span<const v1::Record> trials) {
  std::vector<BatchAccuracy> found;
  std::vector<std::vector<const v1::Record*>> batches;
  std::map<std::pair<std::string, int>, size_t> batch_of;  // by job and samples
  for (const v1::Record& trial : trials) {
    if (!trial.has_prediction() || trial.measurement().outcome() == v1::OUTCOME_LOST) continue;
    const int samples = trial.prediction().samples();
    const auto [at, fresh] = batch_of.try_emplace({trial.job(), samples}, found.size());
    if (fresh) {
      found.push_back({trial.job(), samples, 0, std::nullopt, 0});
      batches.emplace_back();
    }
    if (batches[at->second].size() < kMostCompared) batches[at->second].push_back(&trial);
  }
  for (size_t i = 0; i < found.size(); ++i) Compare(batches[i], &found[i]);
  return found;
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
