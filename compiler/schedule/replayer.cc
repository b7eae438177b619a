#include "compiler/schedule/replayer.h"

#include <utility>

namespace heddle::schedule {

Replayer::Replayer(ir::Program naive) {
  states_.push_back({{}, absl::OkStatus(), std::move(naive), {}});
}

Replayer::State* Replayer::Begin() {
  if (states_.size() > kMost) {
    states_.resize(1);
    states_.front().next.clear();
  }
  return &states_.front();
}

Replayer::State* Replayer::Next(State* from, const Step& step) {
  for (State* known : from->next) {
    if (known->step == step) return known;
  }
  ++made_;
  State& made = states_.emplace_back();
  made.step = step;
  absl::StatusOr<Rewritten> rewritten = ApplyStep(from->made.program, step);
  if (rewritten.ok()) {
    made.made = *std::move(rewritten);
  } else {
    made.status = rewritten.status();
  }
  from->next.push_back(&made);
  return &made;
}

absl::StatusOr<ir::Program> Replayer::Replay(const Trace& trace) {
  State* state = Begin();
  for (size_t i = 0; i < trace.steps.size(); ++i) {
    state = Next(state, trace.steps[i]);
    if (!state->status.ok()) return StepError(i, trace.steps[i], state->status);
  }
  return state->made.program;
}

}  // namespace heddle::schedule
