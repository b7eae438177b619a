#include "cost_model/search/shortlist.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace heddle::cost_model {
double Spread(const std::vector<float>& scores) {
  if (scores.empty()) return 1e-6;
  double sum = 0, squares = 0;
  for (float v : scores) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const double n = static_cast<double>(scores.size()), mean = sum / n;
  return std::max(1e-6, std::sqrt(std::max(0.0, squares / n - mean * mean)));
}

bool Shortlist::Offer(const schedule::Point& point, uint64_t hash, float score) {
  if (capacity_ == 0) return false;
  const bool full = entries_.size() == capacity_;
  if (full && score <= entries_.back().score) return false;
  if (!hashes_.insert(hash).second) return false;
  if (full) {
    hashes_.erase(entries_.back().hash);
    entries_.pop_back();
  }
  const auto at = std::upper_bound(entries_.begin(), entries_.end(), score,
                                   [](float s, const Entry& e) { return s > e.score; });
  entries_.insert(at, {point, hash, score});
  return true;
}

std::vector<size_t> Shortlist::DiverseOrder(double diversity) const {
  std::vector<float> scores;
  for (const Entry& e : entries_) scores.push_back(e.score);
  const double unit = Spread(scores);
  std::set<std::pair<size_t, int32_t>> covered;
  const auto value = [&](const Entry& e) {
    double fresh = 0;
    for (size_t d = 0; d < e.point.size(); ++d) fresh += !covered.contains({d, e.point[d]});
    const double share = e.point.empty() ? 0 : fresh / static_cast<double>(e.point.size());
    return e.score / unit + diversity * share;
  };
  std::vector<size_t> order;
  std::vector<bool> taken(entries_.size());
  while (order.size() < entries_.size()) {
    size_t best = entries_.size();
    double best_value = 0;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (taken[i]) continue;
      const double v = value(entries_[i]);
      if (best == entries_.size() || v > best_value) {
        best = i;
        best_value = v;
      }
    }
    taken[best] = true;
    order.push_back(best);
    const schedule::Point& p = entries_[best].point;
    for (size_t d = 0; d < p.size(); ++d) covered.insert({d, p[d]});
  }
  return order;
}

}  // namespace heddle::cost_model
