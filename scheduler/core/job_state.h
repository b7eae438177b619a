// What the dispatcher knows of jobs, tasks, candidates and slots: enough to decide, nothing to
// perform. States are variants, so that a field exists only where it means something.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "proto/common.pb.h"
#include "scheduler/core/ids.h"
#include "scheduler/core/task_choice.h"

namespace heddle::scheduler {

struct FaultInfo {
  v1::FaultKind kind = v1::FAULT_NONE;
  std::string message;
};

// One slot as the tracker reports it.
struct SlotInfo {
  SlotId id;
  std::string host;
  bool device = false;
  std::vector<int> cores;
  std::string device_key;
  std::string target;       // device slots: without -threads
  bool builds_cuda = true;  // CPU slots: has a compiler for cuda targets
  bool usable = true;       // false: draining, quarantined, or leased to somebody else
  bool foreign = false;     // leased to somebody else: its cores are taken as well
  std::string why_not;      // one line, when not usable
  friend bool operator==(const SlotInfo&, const SlotInfo&) = default;
};

// How a job's trials are shared out among its tasks.
enum class Allocation {
  kGradient,  // to the task whose next trials should save the most time of the whole model
  kUniform,   // every task the same number
};

struct JobParams {
  std::string target;         // without -threads
  std::string record_target;  // with all: what its records are kept by
  std::string strategy;       // of the search; states of one are of no use to another
  int threads = 1;            // 0: any slot whose target matches
  std::string device_key;     // empty: any
  int trials_per_task = 0;
  int batch = 16;
  int pipeline_depth = 0;  // rounds in flight; 0: by the devices there are, of a task one
  bool force = false;
  std::string tenant;  // whose job it is: tenants with work get the same share of the slots
  int priority = 0;    // -10..10; larger first, within a tenant
  absl::Time deadline = absl::InfiniteFuture();  // of the whole job
  // When tuning ends besides the trials; what is in flight is finished, then the job compiles.
  absl::Duration time_limit = absl::InfiniteDuration();  // of tuning, pauses left out
  int plateau = 0;  // so many trials of a task without a gain over 1 % end it; 0: never
  double target_latency_ns = 0;  // sum over the tasks of best time x weight; 0: none
  Allocation allocation = Allocation::kGradient;
  int max_devices = 0;  // device slots it may hold at a time; 0: any number
};

// Where a candidate without a final record is.
struct Unbuilt {};
struct Building {
  AttemptId attempt;
};
struct Built {};  // the artifact is in hand
struct Profiling {
  AttemptId attempt;
};
struct Candidate {
  int attempts = 0;  // infrastructure faults it was struck by
  std::variant<Unbuilt, Building, Built, Profiling> where;
};

// What a task does next. A task is in flight from WantsPropose (or WantsUpdate) until it waits or
// is finished.
struct Waiting {};  // in the job's queue for its next round
struct WantsPropose {};
struct Proposing {
  AttemptId attempt;
};
struct Measuring {};  // nothing but what its rounds' candidates need
struct WantsUpdate {};
struct Updating {
  AttemptId attempt;
};
struct Finished {};
using TaskPhase =
    std::variant<Waiting, WantsPropose, Proposing, Measuring, WantsUpdate, Updating, Finished>;

// Candidates that were proposed together, of a round whose results are not learned yet. A task's
// rounds follow each other by the ids of their candidates.
struct Round {
  CandidateId first, end;  // end: after its last
  int size = 0;
  int open = 0;  // without a final record
};

struct Task {
  TaskPhase phase;
  std::string key;           // workload hash; empty where unknown
  int weight = 1;            // uses in the model
  double flops = 0;          // of one execution
  double known_best_ns = 0;  // of the known records
  double best_ns = 0;        // best median so far, known records included; 0: none
  int budget = 0;            // trials granted to it so far, `trials` included
  int trials = 0;            // final records of this job, failed ones included
  int failed = 0;            // of these
  int known = 0;           // records of the database at the start, and those other jobs made since
  int known_valid = 0;     // of these
  bool exhausted = false;  // the search has nothing more to propose
  bool warm_pending = false;              // the known records are not learned yet
  std::string first_error;                // of the failed trials
  std::deque<Round> rounds;               // proposed and in flight, oldest first
  std::map<CandidateId, Candidate> open;  // of these, those without a final record
  std::set<AttemptId> profiles;           // the live profile stages, each on a slot of its own
  std::vector<CurvePoint> curve;          // how its best time fell, see task_choice.h
  std::map<CandidateId, double> results;  // of the round: medians (0: failed), not in the curve yet
  double device_ns = 0;                   // its trials spent on devices
  bool behind = false;        // other jobs' records came that its search has not learned
  bool unlearned = false;     // its own latest results are not learned yet
  bool update_first = false;  // the update at hand comes before a propose that was granted
  int stage_failures = 0;     // infrastructure faults in a row
  absl::Time not_before = absl::InfinitePast();  // backoff

  int valid() const { return trials - failed; }
  int remaining() const { return budget - trials; }
  int unproposed() const { return remaining() - static_cast<int>(open.size()); }
};

struct Importing {};
struct Tuning {};
struct Compiling {};
struct Done {};
struct Failed {
  FaultInfo fault;
};
struct Cancelled {
  std::string reason;
};
using JobPhase = std::variant<Importing, Tuning, Compiling, Done, Failed, Cancelled>;

struct Job {
  JobId id;
  JobParams params;
  JobPhase phase;
  bool paused = false;
  std::string pause_reason;
  std::vector<Task> tasks;
  std::deque<TaskIndex> queue;       // tasks in phase Waiting, in turn
  std::vector<TaskIndex> in_flight;  // in the order they started their round
  std::string stop;                  // why tuning ended before its trials; empty: it did not
  absl::Duration tuned;              // time in phase Tuning, pauses left out, up to tuning_since
  std::optional<absl::Time> tuning_since;
  int64_t next_candidate = 1;
  std::optional<AttemptId> live;  // the import or compile stage
  int stage_failures = 0;         // of import or compile, in a row
  absl::Time not_before = absl::InfinitePast();
  std::string last_fault;  // the latest infrastructure fault, for people
  int lane = 0;            // of its profile stages, see slot_index.h; set by placement
  bool finding = false;    // FindRecords was said and not answered yet

  bool final() const {
    return std::holds_alternative<Done>(phase) || std::holds_alternative<Failed>(phase) ||
           std::holds_alternative<Cancelled>(phase);
  }
};

// One running stage attempt.
struct LiveStage {
  AttemptId id;
  JobId job;
  v1::StageKind kind = v1::STAGE_UNSPECIFIED;
  std::optional<TaskIndex> task;
  std::optional<FetchId> fetch;
  SlotId slot;
  std::string host;
  std::vector<int> cores;
  std::set<CandidateId> candidates;   // assigned, without an answer
  std::set<CandidateId> in_progress;  // of these, the ones the worker said it started
  CandidateId before;  // profile, update: of candidates before this one only; rounds as a whole
  bool input_closed = false;  // profile: nothing more will be fed
  bool cancelled = false;
  uint32_t worker_class = 0;  // DurationModel::ClassId of the slot's kind
  absl::Time started;
  // For what a unit takes: candidates answered, the time they took together, and since when the
  // next one has been under way.
  int units = 0;
  absl::Duration busy;
  absl::Time unit_since;
};

struct Fetch {
  FetchId id;
  JobId job;
  std::optional<AttemptId> live;
  int failures = 0;
  absl::Time not_before = absl::InfinitePast();
};

// "import", "profile", ..
std::string StageName(v1::StageKind kind);

// Whether a phase, or where a candidate is, is this one.
template <typename Phase, typename Variant>
bool Is(const Variant& phase) {
  return std::holds_alternative<Phase>(phase);
}

// Candidates that wait for a build.
bool HasUnbuilt(const Task& task);
// Rounds of the job that may be in flight where so many devices suit it. Without a wish of its own:
// one for every device it may hold, and one whose candidates are being made.
int PipelineDepth(const JobParams& params, int devices);
// Rounds the task has in flight, the one that is being proposed included.
int RoundsInFlight(const Task& task);
int RoundsInFlight(const Job& job);
// Up to where the oldest rounds are measured without a gap; nullopt: the oldest one is not.
std::optional<CandidateId> MeasuredBefore(const Task& task);
// The rounds in flight, of what a store remembers: candidates by id from the first open one on, and
// whether each is open. Of `batch` candidates each, so that they are no more than there were; just
// one unless `several`.
std::deque<Round> MakeRounds(const std::vector<std::pair<CandidateId, bool>>& candidates, int batch,
                             bool several);
// Whether the task's latest JobParams.plateau trials gained it nothing (see there).
bool Plateaued(const JobParams& params, const Task& task);
// A valid time, found with the task's so-many-th trial (known records included).
void AddToCurve(Task* task, int trials, double ns);
// Results become part of the curve in the order of their candidates: those before `before`, or all.
void FoldResults(Task* task, std::optional<CandidateId> before);

inline bool InFlight(const Task& task) {
  return !Is<Waiting>(task.phase) && !Is<Finished>(task.phase);
}

}  // namespace heddle::scheduler
