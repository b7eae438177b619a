// Points that were proposed and are not measured yet. Results come back as traces, whose points are
// looked up here.
#pragma once

#include <cstdint>
#include <deque>

#include "compiler/schedule/space.h"
#include "cost_model/blob.h"
#include "cost_model/search/candidate_space.h"

namespace heddle::cost_model {

class PendingPoints {
 public:
  // Beyond this number the oldest entries are dropped. The result of a dropped entry has no point.
  static constexpr size_t kMax = 4096;

  void Add(const Drawn& drawn);
  // Removes a trace and returns its point; empty if it was not proposed here.
  schedule::Point Take(uint64_t hash);

  void Save(BlobWriter& writer) const;
  static PendingPoints Load(BlobReader& reader);
  bool AllIn(const schedule::Space& space) const;

 private:
  struct Entry {
    uint64_t hash;
    schedule::Point point;
  };
  std::deque<Entry> entries_;  // oldest first
};

}  // namespace heddle::cost_model
