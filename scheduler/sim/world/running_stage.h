// A stage as its simulated worker runs it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/core/events.h"
#include "scheduler/sim/world/stage_work.h"

namespace heddle::sim {

struct RunningStage {
  StartStage start;
  StageWork work;
  int process = 0;       // the scheduler's process that started it
  int slot = 0;          // index in scenario.slots
  uint64_t token = 0;    // fencing token of its lease
  bool taken = false;    // the worker has answered
  bool closing = false;  // the scheduler has closed its input; input_closed: the worker knows
  bool input_closed = false;
  bool over = false;  // the worker has ended it; its slot is held until the scheduler hears of that
  absl::Time last_order, last_answer;  // when the latest one arrives
  bool hung = false;
  bool cancelled = false;  // the scheduler asked for its end
  // Durable worlds: its job has ended. What is left of its work counts for nothing, and takes the
  // time of the task's first candidate.
  bool job_over = false;
  std::vector<CandidateWork> working;  // candidates of the piece at hand
  double factor = 1;                   // seconds of the stage, or of its batch
  absl::Time began;
  int candidates = 0;  // proposed, or answered for

  // The piece of work at hand. Stages that overlap on cores share these.
  bool busy = false;
  double left = 0;     // seconds at full rate
  double rate = 1;     // progress per second
  double sharers = 1;  // stages at work on these cores
  absl::Time since;    // when `left` and `rate` were set
  int64_t piece = 0;   // grows whenever the end of a piece is planned anew
  bool disturbed_piece = false;
  double stretched = 0, alone = 0;  // seconds of the piece as it ran, and if it had run alone
  bool disturbed = false;
};
using RunningStages = std::map<AttemptId, RunningStage>;

}  // namespace heddle::sim
