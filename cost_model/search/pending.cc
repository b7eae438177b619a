#include "cost_model/search/pending.h"

#include <algorithm>
#include <utility>

namespace heddle::cost_model {

void PendingPoints::Add(const Drawn& drawn) {
  entries_.push_back({drawn.hash, drawn.point});
  if (entries_.size() > kMax) entries_.pop_front();
}

schedule::Point PendingPoints::Take(uint64_t hash) {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& e) { return e.hash == hash; });
  if (it == entries_.end()) return {};
  schedule::Point point = std::move(it->point);
  entries_.erase(it);
  return point;
}

void PendingPoints::Save(BlobWriter& w) const {
  w.Unsigned(entries_.size());
  for (const Entry& e : entries_) {
    w.Fixed64(e.hash);
    SavePoint(e.point, w);
  }
}

PendingPoints PendingPoints::Load(BlobReader& r) {
  PendingPoints pending;
  for (size_t n = r.Count(); n > 0 && r.ok(); --n) {
    const uint64_t hash = r.Fixed64();
    pending.entries_.push_back({hash, LoadPoint(r)});
  }
  return pending;
}

bool PendingPoints::AllIn(const schedule::Space& space) const {
  return std::all_of(entries_.begin(), entries_.end(),
                     [&](const Entry& e) { return InSpace(space, e.point); });
}

}  // namespace heddle::cost_model
