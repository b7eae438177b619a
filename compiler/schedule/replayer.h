// Replays traces of one program that begin alike, as those of a search do. What a step makes is
// remembered, so that a trace costs only the steps that no earlier trace had in the same place.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/trace.h"

namespace heddle::schedule {

class Replayer {
 public:
  // What some steps make of the naive program.
  struct State {
    Step step;            // the last of them; empty for the naive program itself
    absl::Status status;  // why that step cannot be made
    Rewritten made;       // by it, if it can
    std::vector<State*> next;
  };

  explicit Replayer(ir::Program naive);
  Replayer(const Replayer&) = delete;
  Replayer& operator=(const Replayer&) = delete;

  // The same as schedule::Replay of the naive program.
  absl::StatusOr<ir::Program> Replay(const Trace& trace);

  // The naive program. Forgets everything if more than kMost steps are remembered; earlier states
  // are invalid then.
  State* Begin();
  // One step on. Valid until the next Begin.
  State* Next(State* from, const Step& step);
  // Steps that were applied so far rather than remembered.
  size_t made() const { return made_; }

 private:
  static constexpr size_t kMost = 4096;  // a few kilobytes each

  std::deque<State> states_;  // the naive program first
  size_t made_ = 0;
};

}  // namespace heddle::schedule
