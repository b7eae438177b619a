// Replays traces of one program that begin alike, as those of a search do. It remembers the program
// after each step, so that a trace costs only the steps that no earlier trace had in the same
// place.
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
  // The program after some steps.
  struct State {
    Step step;            // the last step; empty for the naive program itself
    absl::Status status;  // why that step cannot be applied, or OK
    Rewritten made;       // the program after it, if it can
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
  // The state after one more step. Valid until the next Begin.
  State* Next(State* from, const Step& step);
  // Steps that were applied rather than remembered, so far.
  size_t made() const { return made_; }

 private:
  static constexpr size_t kMost = 4096;  // a few kilobytes each

  std::deque<State> states_;  // the naive program first
  size_t made_ = 0;
};

}  // namespace heddle::schedule
