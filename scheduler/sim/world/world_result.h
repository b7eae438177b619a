// What a simulated run gives: figures, outcomes of jobs, and the violated promise if there is one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/common.pb.h"
#include "scheduler/sim/world/spread.h"

namespace heddle::sim {

namespace v1 = heddle::v1;

// One stage as it ran, in seconds from the start.
struct RanStage {
  int slot = 0;  // index in scenario.slots
  int job = 0;   // index in scenario.jobs
  int task = -1;
  v1::StageKind kind = v1::STAGE_UNSPECIFIED;
  double begin = 0, end = 0;
  int candidates = 0;
  bool disturbed = false;
  bool fault = false;
};

// Job-seconds spent waiting. A job may wait for several things at once.
struct WaitSeconds {
  double cpu = 0;      // has work for a CPU slot, and none is free
  double device = 0;   // has work for a device slot, and none is free
  double backoff = 0;  // waits after a fault
  double depth = 0;    // its pipeline is full, and a CPU slot is free
};

struct JobOutcome {
  double arrival = 0;
  double end = -1;  // -1: never
  bool done = false;
  int64_t trials = 0;
  double service = 0;  // slot-seconds
};

struct WorldResult {
  std::string violation;  // empty: every promise was kept
  double seconds = 0;     // virtual time until the last job's end
  std::vector<JobOutcome> jobs;
  std::vector<double> busy;  // by slot, seconds at work
  std::vector<double> held;  // by slot, seconds leased
  std::vector<RanStage> stages;
  WaitSeconds waiting;
  int64_t steps = 0, trials = 0, lost = 0, restarts = 0, infrastructure_faults = 0, done_jobs = 0;
  int64_t measurements = 0, disturbed = 0, stale_answers = 0;
  // Pools that another scheduler took over; writes of whom they replaced that were refused.
  int64_t fail_overs = 0, late_writes = 0;
  int64_t dropped = 0;   // built candidates whose code made way for others (artifact_room.h)
  int64_t contests = 0;  // plan stages that ended one (machines/contest.h)
  int64_t judged = 0;    // comparisons that chose between two plans
  // Plans that go on after a contest and whose pool pays only a part of what the others have used.
  int64_t relieved = 0;
  // Of durable worlds: orders, those of updates that learn known records, and those of searches that
  // begin with what other tasks learned.
  int64_t orders = 0, warm_orders = 0, transfer_orders = 0;
  // With a clock (WorldOptions), in seconds of this machine: how long a decision took (Dispatcher::Step),
  // how long each scheduler decided altogether, and how long a scheduler that takes over took to load
  // what the other had.
  Spread decisions, take_overs;
  std::vector<double> deciding;
  // Virtual seconds from an event to its decision, if decisions take time (Schedulers::decision).
  Spread queued;
  int64_t preemptions = 0;
  int64_t batch_starts = 0;          // workers that were ordered from batch systems
  double node_seconds = 0;           // that these had a machine
  uint64_t fingerprint = 0;          // hash of all decisions (decision_text.h)
  std::vector<std::string> records;  // of durable worlds, sorted
};

}  // namespace heddle::sim
