// A stage as its simulated worker runs it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/core/events.h"

namespace heddle::sim {

using namespace heddle::scheduler;  // NOLINT: the simulator is the scheduler's own

struct RunningStage {
  StartStage start;
  int process = 0;
  int slot = 0;
  uint64_t token = 0;
  bool taken = false;  // the worker has answered
  bool input_closed = false;
  bool hung = false;
  std::deque<CandidateId> inputs;
  std::vector<CandidateId> working;  // now
  double factor = 1;                 // seconds of this stage: of a batch, or of one candidate
  absl::Time began;
  int candidates = 0;
  // The piece of work at hand. Stages that overlap on a machine share it.
  bool busy = false;
  double left = 0;  // seconds at full rate
  double rate = 1;
  double sharers = 1;  // stages at work on these cores
  absl::Time since;
  int64_t piece = 0;
  bool disturbed_piece = false;
  double stretched = 0, alone = 0;  // seconds of the piece as it ran, and undisturbed
  bool disturbed = false;
};
using RunningStages = std::map<AttemptId, RunningStage>;

}  // namespace heddle::sim
