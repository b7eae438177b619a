// The one simulated world: machines, workers, tracker, users and a scheduler's process under a
// virtual clock, driving the very dispatcher, job book and store interface of production.
// heddle-sim measures policies in it; with faults it is what the promises are checked in (after
// every event). Everything follows from scenario and seed.
//
// Its parts: agenda.h (the clock), machines.h (hosts and slots), running_stage.h, searches.h (what
// tuning finds), promises.h (what must hold), planted.h. Here: the scheduler's process (world.cc),
// what workers do with the stages they are given (world_workers.cc), and what goes wrong
// (world_faults.cc).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/sim/chance.h"
#include "scheduler/sim/scenario.h"
#include "scheduler/sim/world/agenda.h"
#include "scheduler/sim/world/machines.h"
#include "scheduler/sim/world/planted.h"
#include "scheduler/sim/world/promises.h"
#include "scheduler/sim/world/running_stage.h"
#include "scheduler/sim/world/searches.h"
#include "scheduler/store/record_store.h"

namespace heddle::sim {

struct WorldOptions {
  Planted planted = Planted::kNone;
  bool durable = false;  // keep book and store: restarts, and records to compare
  bool checks = false;   // after every event
  bool waiting = false;  // count who waits for what
  bool spans = false;    // keep every stage, for charts
};

// One stage as it ran, in seconds from the start.
struct RanStage {
  int slot = 0;  // of scenario.slots
  int job = 0;   // of scenario.jobs
  int task = -1;
  v1::StageKind kind = v1::STAGE_UNSPECIFIED;
  double begin = 0, end = 0;
  int candidates = 0;
  bool disturbed = false;
  bool fault = false;
};

// Seconds of jobs; a job may wait for several things at once.
struct WaitSeconds {
  double cpu = 0;      // has work for a CPU slot, and none is free
  double device = 0;   // the same for a device slot
  double backoff = 0;  // after a fault
  double depth = 0;    // its pipeline is full, and a CPU slot is free
};

struct JobOutcome {
  double arrival = 0;
  double end = -1;  // -1: never
  bool done = false;
  int64_t trials = 0;
  double service = 0;  // seconds of slots
};

struct WorldResult {
  std::string violation;  // empty: every promise was kept
  double seconds = 0;     // of the virtual clock, until the last job's end
  std::vector<JobOutcome> jobs;
  std::vector<double> busy;  // per slot, seconds at work
  std::vector<double> held;  // per slot, seconds leased
  std::vector<RanStage> stages;
  WaitSeconds waiting;
  int64_t steps = 0, trials = 0, lost = 0, restarts = 0, infrastructure_faults = 0, done_jobs = 0;
  int64_t measurements = 0, disturbed = 0, stale_answers = 0;
  uint64_t fingerprint = 0;          // of all decisions (decision_text.h): the same seed repeats
  std::vector<std::string> records;  // sorted; of done jobs, when durable
};

inline constexpr char kUncoordinated[] = "uncoordinated";

// Policies: those of MakePolicy, and kUncoordinated, where every job has a dispatcher of its own
// that believes it is alone. InvalidArgument: no such policy.
absl::StatusOr<WorldResult> RunWorld(const Scenario& scenario, const std::string& policy,
                                     const WorldOptions& options);

class World {
 public:
  World(const Scenario& scenario, const std::string& policy, const WorldOptions& options);
  WorldResult Run();

 private:
  // A scheduler's process; only `uncoordinated` has more than one.
  struct Process {
    std::unique_ptr<Dispatcher> dispatcher;
    JobLedger book;
    std::vector<Batch> pending;  // written, not durable yet
    absl::Time wake;
    int64_t next_attempt = 1;
  };

  // world.cc
  void Later(absl::Duration after, std::function<void()> action);  // of this process's life
  void Violation(const std::string& what);
  void Boot();
  void Restart();
  void Flush(Process* process);
  void Feed(int process, const Event& event);
  void SendSlots();
  void SubmitJob(int index);
  void SetWake(int process);
  absl::Time now() const { return agenda_.now(); }
  int ProcessOf(int job) const { return processes_.size() > 1 ? job : 0; }
  int JobIndex(JobId id) const { return static_cast<int>(id.value) - 1; }
  void CountWaiting();
  void NoteEnds(int process);
  void Collect();

  // world_workers.cc
  void Note(int process, const Event& event, const Change& change);
  void Perform(int process, const Order& order);
  void Begin(int process, const StartStage& start);
  void Work(AttemptId id);
  void WorkOnCandidates(AttemptId id);
  void StartPiece(AttemptId id, double seconds);
  void EndPiece(AttemptId id);
  void Rebalance(int slot);
  void EndSimple(AttemptId id);
  void EndCandidates(AttemptId id);
  void Answer(AttemptId id, CandidateId candidate);
  void Refuse(AttemptId id);
  void Finish(AttemptId id, FaultInfo fault, decltype(StageFinished::result) result = {},
              bool interrupted = false);
  const StageTime& TimeOf(const StartStage& start) const;
  uint64_t KeyOf(const StartStage& start, uint64_t what) const;
  void AnswerFind(int process, const FindRecords& find);

  // world_faults.cc
  bool Chance(double p) { return p > 0 && dice_.Likely(p); }
  absl::Duration Between(double low, double high) {
    return absl::Seconds(dice_.Between(low, high));
  }
  // Chaos draws from a stream that begins anew with each blow: its moments, kinds, machines and
  // durations are the same whatever a policy has done until then.
  absl::Duration Fate(double low, double high) { return absl::Seconds(fate_.Between(low, high)); }
  void Chaos();
  void Heal();
  void KillWorker(const std::string& worker);
  void LoseLease(bool comes_back);
  void LeaveGhost(AttemptId id);
  void TakeForeign();
  void TakeTrackerDown();
  void Lie();

  const Scenario& scenario_;
  const std::string policy_;
  const WorldOptions options_;
  Dice dice_, fate_;
  uint64_t blows_ = 0;  // of chaos
  WorldResult result_;
  Agenda agenda_;
  Machines machines_{scenario_};
  RunningStages stages_;
  Promises promises_{scenario_, policy_, agenda_,
                     machines_, stages_, [this](const std::string& what) { Violation(what); }};
  Plant plant_{options_.planted};
  std::unique_ptr<RecordStore> store_;  // where durable
  Searches searches_;

  std::vector<Process> processes_;
  int64_t epoch_ = 0;
  int64_t last_fetch_ = 0;
  uint64_t last_token_ = 0;
  int unfinished_ = 0;
  std::set<int64_t> finished_jobs_;
  std::map<std::pair<int64_t, int>, int64_t> started_;  // (job, kind) -> stages, for passing over
  absl::Time waiting_since_;
  WaitSeconds waiting_now_;  // jobs that wait for each, since waiting_since_
};

}  // namespace heddle::sim
