#include <algorithm>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "bench/search/replay_table.h"

namespace heddle::bench {
namespace {

using schedule::Point;
using schedule::Rng;

// A mutation leads to one of the kNeighbours nearest rows, or to a row that has this one among its
// kBack nearest, so that every row is reachable.
constexpr size_t kNeighbours = 16;
constexpr size_t kBack = 4;
// One mutation in this many is a random draw, since the points of a table may form islands.
constexpr int kJump = 16;

std::string KeyOf(const Point& point) {
  return std::string(reinterpret_cast<const char*>(point.data()), point.size() * sizeof(point[0]));
}

// The number of decisions that differ. Points of two forms (decision 0 where there are several) are
// further apart than any two of one form.
int Distance(const Point& a, const Point& b, bool forms) {
  int distance = forms && a[0] != b[0] ? static_cast<int>(a.size()) : 0;
  for (size_t d = 0; d < a.size(); ++d) distance += a[d] != b[d];
  return distance;
}

bool HasForms(const ReplayTable& table) {
  return !table.header.decisions.empty() && table.header.decisions[0].what == "form";
}

// The `n` rows nearest to a point, except its own, nearest first; of equals the earlier.
std::vector<size_t> Nearest(const ReplayTable& table, const Point& point, size_t n) {
  const bool forms = HasForms(table);
  std::vector<std::pair<int, size_t>> order;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const int distance = Distance(point, table.rows[i].point, forms);
    if (distance > 0) order.emplace_back(distance, i);
  }
  n = std::min(n, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end());
  std::vector<size_t> rows;
  for (size_t k = 0; k < n; ++k) rows.push_back(order[k].second);
  return rows;
}

class ReplaySpace final : public schedule::Space {
 public:
  ReplaySpace(const ReplayTable& table, const std::vector<std::vector<size_t>>& neighbours)
      : table_(table), neighbours_(neighbours) {
    for (size_t i = 0; i < table.rows.size(); ++i) {
      rows_.emplace(KeyOf(table.rows[i].point), i);
      if (table.rows[i].origin == ReplayOrigin::kRandom) random_.push_back(i);
    }
    if (random_.empty()) random_.push_back(0);
    for (const auto& [key, row] : rows_) order_.push_back(table.rows[row].point);
    std::sort(order_.begin(), order_.end());
  }

  int NumDecisions() const override { return static_cast<int>(table_.header.decisions.size()); }
  int32_t Choices(int decision) const override {
    return table_.header.decisions[static_cast<size_t>(decision)].choices;
  }
  std::string Describe(int decision) const override {
    return table_.header.decisions[static_cast<size_t>(decision)].what;
  }
  // The size of the real space, so that no search enumerates a table as a small space.
  double Size() const override {
    double size = 1;
    for (const ReplayDecision& d : table_.header.decisions) size *= d.choices;
    return size;
  }
  Point Preferred() const override { return table_.rows[0].point; }

  absl::StatusOr<schedule::Trace> Expand(const Point& point) const override {
    const auto it = rows_.find(KeyOf(point));
    if (it == rows_.end()) return absl::FailedPreconditionError("not in the table");
    return schedule::ParseTrace(table_.rows[it->second].trace);
  }

  Point Random(Rng& rng) const override {
    return table_.rows[random_[Below(random_.size(), rng)]].point;
  }

  Point Mutate(const Point& point, Rng& rng) const override {
    const auto it = rows_.find(KeyOf(point));
    if (it == rows_.end() || Below(kJump, rng) == 0) return Random(rng);
    const std::vector<size_t>& near = neighbours_[it->second];
    return near.empty() ? point : table_.rows[near[Below(near.size(), rng)]].point;
  }

  // The row nearest to a mixture of both points.
  Point Cross(const Point& a, const Point& b, Rng& rng) const override {
    if (HasForms(table_) && a[0] != b[0]) return a;  // as in the real space
    const Point mixed = Space::Cross(a, b, rng);
    if (rows_.contains(KeyOf(mixed))) return mixed;
    return table_.rows[Nearest(table_, mixed, 1)[0]].point;
  }

  // The next row after any point of the real space.
  bool Next(Point& point) const override {
    const auto next = std::upper_bound(order_.begin(), order_.end(), point);
    point = next == order_.end() ? order_.front() : *next;
    return next != order_.end();
  }

 private:
  static size_t Below(size_t n, Rng& rng) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(rng);
  }

  const ReplayTable& table_;
  const std::vector<std::vector<size_t>>& neighbours_;
  std::unordered_map<std::string, size_t> rows_;  // by point
  std::vector<size_t> random_;                    // rows drawn at random
  std::vector<Point> order_;
};

}  // namespace

std::vector<std::vector<size_t>> FindNeighbours(const ReplayTable& table) {
  std::vector<std::vector<size_t>> neighbours;
  for (const ReplayRow& row : table.rows) {
    neighbours.push_back(Nearest(table, row.point, kNeighbours));
  }
  for (size_t i = 0; i < table.rows.size(); ++i) {
    for (size_t k = 0; k < std::min(kBack, neighbours[i].size()); ++k) {
      std::vector<size_t>& other = neighbours[neighbours[i][k]];
      if (std::find(other.begin(), other.end(), i) == other.end()) other.push_back(i);
    }
  }
  return neighbours;
}

std::unique_ptr<schedule::Space> MakeReplaySpace(
    const ReplayTable& table, const std::vector<std::vector<size_t>>& neighbours) {
  return std::make_unique<ReplaySpace>(table, neighbours);
}

}  // namespace heddle::bench
