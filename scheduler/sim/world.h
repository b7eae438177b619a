// The one simulated world: machines, workers, tracker, users and a scheduler's process under a
// virtual clock, driving the very dispatcher, job book and store interface of production.
// heddle-sim measures policies in it; with faults it is what the promises are checked in (after
// every event). Everything follows from scenario and seed.
//
// world.cc: clock, the scheduler's process; world_stages.cc: what workers do; world_answers.cc and
// world_search.cc: what comes of it; world_faults.cc: what goes wrong; world_checks.cc: what must
// hold.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/sim/budget_check.h"
#include "scheduler/sim/chance.h"
#include "scheduler/sim/scenario.h"
#include "scheduler/store/record_store.h"

namespace heddle::sim {

using namespace heddle::scheduler;  // NOLINT: the simulator is the scheduler's own

// A fault put between dispatcher and world, to see that the checks see it.
enum class Planted {
  kNone,
  kDropClose,
  kDropFeed,
  kRecordTwice,
  kWrongSlot,
  kStartTwice,
  kForgetLease,  // the dispatcher takes a slot for free that its stage still holds
  kSkipFencing,  // an answer under an old lease counts as one of the present lease
  kStarve,       // one job's work is passed over
  kSkipUpdate,   // an update counts as done, and nothing was learned
  kLearnEarly,   // an update takes in results of rounds that it does not mark as learned
  kForgetFind,   // what is on record of a device that came later is taken for nothing
  kOverrun,      // a job's tasks are not known to be those of others: each spends the whole budget
};

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
  // One running stage, as a worker runs it.
  struct Stage {
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

  // What a search has learned, as far as it matters here: every result it was told of, in order,
  // has a part in `hash`, which is in the traces it proposes. As text: "next learned hash".
  struct SearchState {
    int next = 0;     // candidates proposed
    int learned = 0;  // results told of
    uint64_t hash = 0;
  };

  // world.cc
  void At(absl::Duration after, std::function<void()> action);
  void Later(absl::Duration after, std::function<void()> action);  // of this process's life
  void Violation(const std::string& what);
  void Boot();
  void Restart();
  void Flush(Process* process);
  void Feed(int process, const Event& event);
  void SendSlots();
  void SubmitJob(int index);
  void SetWake(int process);
  double Since(absl::Time time) const { return absl::ToDoubleSeconds(time - start_); }
  int ProcessOf(int job) const { return processes_.size() > 1 ? job : 0; }
  int JobIndex(JobId id) const { return static_cast<int>(id.value) - 1; }
  void CountWaiting();
  void NoteEnds(int process);
  void Collect();

  // world_stages.cc
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
  int Ordinal(JobId job, CandidateId candidate) const;
  SearchState StateOf(const Process& process, const StartStage& start) const;
  Proposed Propose(const Process& process, const StartStage& start);
  decltype(StageFinished::result) Learn(const Process& process, const StartStage& start);
  Imported Import(const Process& process, const StartStage& start);
  void AnswerFind(int process, const FindRecords& find);
  TaskPlan Plan(const Process& process, JobId job, size_t task,
                const std::string& device_key) const;
  double TrueMedian(JobId job, int task, int ordinal) const;

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
  void Mutate(Decisions* decisions);

  // world_checks.cc
  void CheckStart(const Process& process, const StartStage& start, const SlotInfo& slot);
  void CheckArtifact(int process, JobId job, CandidateId candidate);
  void CheckRecord(const FinishCandidate& done, const Event& event);
  void Check(const Process& process);
  void CheckNoIdleSlot(const Process& process);
  bool MayGiveWay(const Process& process, const Job& job) const;
  void CheckHeldBack(const Process& process);
  void CheckLearned(const Process& process, const StartStage& start, const SearchState& state);
  bool BacksOff(const Process& process, const SlotInfo& slot);
  bool CoresFree(const Process& process, const SlotInfo& slot) const;
  void CountPassedOver(const Process& process, const StartStage& start, const SlotInfo& slot);
  void CheckNobodyStarves(const Process& process);
  void CheckEnd();
  bool Free(const SlotInfo& slot) const;
  bool Held(const SlotId& id) const;
  static bool Share(const SlotInfo& a, const SlotInfo& b);

  const Scenario& scenario_;
  const std::string policy_;
  const WorldOptions options_;
  Dice dice_, fate_;
  uint64_t blows_ = 0;  // of chaos
  WorldResult result_;
  const absl::Time start_ = absl::FromUnixSeconds(1'000'000);
  absl::Time now_ = start_;
  int64_t order_ = 0;
  std::map<std::pair<absl::Time, int64_t>, std::function<void()>> agenda_;

  std::vector<Process> processes_;
  std::unique_ptr<RecordStore> store_;
  int64_t epoch_ = 0;
  int64_t last_fetch_ = 0;
  uint64_t last_token_ = 0;
  int planted_ = 0;
  int unfinished_ = 0;
  std::set<int64_t> acknowledged_, finished_jobs_;
  std::set<std::pair<int64_t, int64_t>> recorded_;  // (job, candidate) with a final record
  absl::flat_hash_map<std::pair<int64_t, int64_t>, int> ordinals_;
  std::map<std::pair<int64_t, int>, int> proposed_;     // (job, task) -> candidates so far
  std::map<std::pair<int64_t, int>, int64_t> started_;  // (job, kind) -> stages, for passing over
  absl::Time waiting_since_;
  WaitSeconds waiting_now_;  // jobs that wait for each, since waiting_since_

  std::map<SlotId, int> slot_index_;
  std::vector<std::vector<int>> neighbours_;  // slots that share a core with this one, itself too
  std::set<std::string> dead_;
  std::set<SlotId> foreign_, quarantined_, lying_;
  std::map<SlotId, int> lies_;
  bool tracker_down_ = false;
  std::map<AttemptId, Stage> stages_;     // open ones
  std::map<SlotId, absl::Time> blocked_;  // the dispatcher may hold these back for a while
  BudgetCheck budgets_;
  std::set<JobId> unlucky_;  // an update of theirs was struck by a fault, and may be left out
  std::map<std::pair<JobId, bool>, int> passed_over_;  // (job, device) -> stages of others since
};

}  // namespace heddle::sim
