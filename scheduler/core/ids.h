// Strong ids: a job is never mistaken for a candidate.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace heddle::scheduler {

template <typename Tag>
struct Id {
  int64_t value = 0;
  friend auto operator<=>(Id, Id) = default;
};

using JobId = Id<struct JobTag>;              // from 1; text form "j12"
using CandidateId = Id<struct CandidateTag>;  // from 1, unique within a job, never reused
using AttemptId = Id<struct AttemptTag>;      // from 1, unique for ever: one attempt of one stage
using FetchId = Id<struct FetchTag>;  // a module compiled on demand; lives as long as the call

// Position of a task within its job, in the order the import found them.
struct TaskIndex {
  int value = 0;
  friend auto operator<=>(TaskIndex, TaskIndex) = default;
};

struct SlotId {
  std::string worker;
  std::string slot;
  friend auto operator<=>(const SlotId&, const SlotId&) = default;
};

// The lease under which something was made. A later lease of the same slot has a larger token.
struct Fence {
  SlotId slot;
  uint64_t token = 0;
};

// Identifies a transfer model. All searches with these three values may start from it.
struct TransferModelId {
  std::string target;
  std::string device_key;
  std::string strategy;
  friend auto operator<=>(const TransferModelId&, const TransferModelId&) = default;
};

}  // namespace heddle::scheduler
