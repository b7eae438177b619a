#include "compiler/runtime/row_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace heddle::runtime {

namespace {

constexpr double kLeastWork = 0.125;  // of the smallest block's time
constexpr double kClearly = 1.05;     // times are not known more exactly

std::vector<double> WithoutMisses(const std::vector<int64_t>& rows,
                                  const std::vector<double>& cold_ns) {
  std::vector<double> times = cold_ns;
  if (cold_ns.size() < 2) return times;
  const size_t last = rows.size() - 1;
  const double of_row = (cold_ns[last - 1] - cold_ns[last]) /
                        static_cast<double>(std::max<int64_t>(1, rows[last - 1] - rows[last]));
  const double misses = std::clamp(cold_ns[last] - of_row * static_cast<double>(rows[last]), 0.0,
                                   (1 - kLeastWork) * cold_ns[last]);
  for (double& ns : times) ns = std::sqrt(ns * std::max(ns - misses, kLeastWork * ns));
  return times;
}

}  // namespace

std::vector<double> NsInCall(const std::vector<int64_t>& rows, const std::vector<double>& cold_ns,
                             const std::vector<double>& warm_ns) {
  std::vector<double> times = WithoutMisses(rows, cold_ns);
  for (size_t b = 0; b < warm_ns.size(); ++b) times[b] += warm_ns[b];
  return times;
}

RowCut::RowCut(std::vector<int64_t> rows, const std::vector<double>& cold_ns,
               const std::vector<double>& warm_ns) {
  const std::vector<double> times = NsInCall(rows, cold_ns, warm_ns);
  double least = std::numeric_limits<double>::infinity();  // for a row, of the smaller blocks
  for (size_t b = rows.size(); b-- > 0;) {
    if (!times.empty()) {
      const double of_row = times[b] / static_cast<double>(std::max<int64_t>(1, rows[b]));
      if (of_row > kClearly * least) continue;
      least = std::min(least, of_row);
      ns_.push_back(times[b]);
    }
    blocks_.push_back(b);
    rows_.push_back(rows[b]);
  }
  std::reverse(blocks_.begin(), blocks_.end());
  std::reverse(rows_.begin(), rows_.end());
  std::reverse(ns_.begin(), ns_.end());
}

// The time of `left` rows in this block and smaller ones.
double RowCut::NsOf(int64_t left, size_t k) const {
  const int64_t rows = rows_[k], full = left / rows, rest = left % rows;
  const double ns = static_cast<double>(full) * ns_[k];
  if (rest == 0) return ns;
  if (k + 1 == rows_.size()) return ns + ns_[k];
  const double smaller = NsOf(rest, k + 1);
  return ns + (rest > rows_[k + 1] ? std::min(ns_[k], smaller) : smaller);
}

// Whether a block, not the smallest one, takes `left` rows, which are fewer than it has.
bool RowCut::Pads(int64_t left, size_t k) const {
  if (left <= rows_[k + 1]) return false;
  if (!ns_.empty()) return ns_[k] <= NsOf(left, k + 1);
  // At most half of its work is for nothing, and smaller blocks take longer for a row.
  return left >= rows_[k] - left;
}

RowCut::Piece RowCut::Next(int64_t left) const {
  if (left <= rows_.back()) return {blocks_.back(), left};
  for (size_t k = 0; k + 1 < rows_.size(); ++k) {
    if (left >= rows_[k]) return {blocks_[k], rows_[k]};
    if (Pads(left, k)) return {blocks_[k], left};
  }
  return {blocks_.back(), std::min(left, rows_.back())};
}

}  // namespace heddle::runtime
