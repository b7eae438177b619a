// What the dispatcher knows of jobs, tasks, candidates and slots: enough to decide, nothing to
// perform. A state is a variant of structs, so that a field exists only where it means something.
#pragma once

#include <algorithm>
#include <compare>
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
  bool own = false;  // the scheduler found it itself; no worker has to confirm it
};

// One slot as the tracker reports it.
struct SlotInfo {
  SlotId id;
  std::string host;
  bool device = false;
  std::vector<int> cores;
  std::string device_key;
  std::string target;  // of a device slot, without -threads
  // Of a CPU slot: the kinds of targets that its host has compilers for (KindOf of base/vocabulary/target.h).
  std::vector<std::string> builds{};
  bool usable = true;    // false: it drains, is in quarantine, or somebody else has leased it
  bool foreign = false;  // somebody else has leased it, so its cores are taken as well
  std::string why_not;   // one line that says why the slot is not usable
  std::string boot{};    // of the worker: another one after each start of its process
  // What was measured of a device slot, for its stages; nothing here reads it. Empty: nothing.
  std::string machine{};
  friend bool operator==(const SlotInfo&, const SlotInfo&) = default;
};

// How a job shares its trials out among its tasks.
enum class Allocation {
  kGradient,  // to the task whose next trials should save the most time of the whole model
  kUniform,   // the same number to every task
};

struct JobParams {
  std::string target;         // without -threads
  std::string record_target;  // the full target, under which the job's records are kept
  std::string strategy;       // of the search; one strategy cannot use the state of another
  int threads = 1;            // 0: any slot whose target matches will do
  std::string device_key;     // empty: any
  int trials_per_task = 0;
  int batch = 16;
  int pipeline_depth = 0;  // rounds in flight; 0: PipelineDepth derives it from the devices
  bool force = false;      // known records do not count: the job measures everything itself
  std::string tenant;      // the user; tenants with work get equal shares of the slots
  int priority = 0;        // -10..10; among the jobs of a tenant the larger goes first
  absl::Time deadline = absl::InfiniteFuture();  // of the whole job
  // What ends tuning besides the trials. Rounds in flight are finished, then the job compiles.
  absl::Duration time_limit = absl::InfiniteDuration();  // of tuning; pauses do not count
  int plateau = 0;  // a task ends after this many trials without a gain over 1 %; 0: never
  double target_latency_ns = 0;  // for the sum of best time x weight over the tasks; 0: none
  Allocation allocation = Allocation::kGradient;
  int max_devices = 0;   // device slots the job may hold at a time; 0: any number
  bool compare = false;  // before the job ends, a device times its module against the default one
  bool plan = false;     // the job's plan is chosen by what kernels cost (Planning)
};

// What is known of a task besides the trials of its own job.
struct KnownRecords {
  int total = 0;
  int valid = 0;
  double best_ns = 0;     // the best median; 0: none is valid
  double untuned_ns = 0;  // the default schedule's; 0: unknown. No decision depends on it
};

// What the dispatcher decides of a task and the store remembers.
struct TaskProgress {
  int budget = 0;            // trials granted so far, those already made included
  KnownRecords known;        // of the database at the start, and of other jobs since
  bool exhausted = false;    // the search has nothing more to propose
  int estimated_weight = 0;  // weight by the plan of the import
  int rival_weight = 0;      // uses in a plan that contends with the job's (machines/contest.h)
};

// Where a candidate without a final record is.
struct Unbuilt {};
struct Building {
  AttemptId attempt;
};
struct Built {};  // the ledger has its artifact
struct Profiling {
  AttemptId attempt;
};
struct Candidate {
  int attempts = 0;  // infrastructure faults that struck it
  std::variant<Unbuilt, Building, Built, Profiling> where;
  int64_t artifact_bytes = 0;  // of its code, once it is built
  int interruptions = 0;       // of stages that had begun it; a restart forgets them
};

// What a task does next. A task is in flight unless it waits or is finished.
struct Waiting {};  // in the job's queue for its next round
struct WantsPropose {};
struct Proposing {
  AttemptId attempt;
};
struct Measuring {};  // the candidates of its rounds are built and profiled
struct WantsUpdate {
  bool then_propose = false;  // a propose was granted, and this update comes before it
};
struct Updating {
  AttemptId attempt;
  bool then_propose = false;
};
struct Finished {};
using TaskPhase =
    std::variant<Waiting, WantsPropose, Proposing, Measuring, WantsUpdate, Updating, Finished>;

// Candidates that were proposed together and whose results the search has not learned yet. The
// rounds of a task are ordered by the ids of their candidates.
struct Round {
  CandidateId first, end;  // end: one past its last candidate
  int size = 0;
  int open = 0;  // candidates without a final record
};

// Whether a task in this phase was granted a propose that has not begun.
bool WillPropose(const TaskPhase& phase);

// What the task's search has not learned yet.
struct Unlearned {
  bool known = false;   // the known records; the next update learns all that there are by then
  bool others = false;  // trials that other jobs have made since
  bool own = false;     // the latest results of this job
  bool any() const { return known || others || own; }
};

struct Task : TaskProgress {
  TaskPhase phase;
  std::string key;  // workload hash; empty: unknown, and the task shares with no other job
  // Uses in the model. 0: only other plans than the job's need the task. It is measured once, so that
  // they can be judged.
  int weight = 1;
  double flops = 0;                       // of one execution
  double best_ns = 0;                     // best median, known records included; 0: none
  int trials = 0;                         // final records of this job, failed ones included
  int failed = 0;                         // trials without a valid measurement
  std::string first_error;                // of the failed trials
  std::deque<Round> rounds;               // proposed and in flight, oldest first
  std::map<CandidateId, Candidate> open;  // candidates of these rounds without a final record
  std::set<AttemptId> profiles;           // live profile stages, each on a slot of its own
  std::vector<CurvePoint> curve;          // how the best time fell (task_choice.h)
  std::map<CandidateId, double> results;  // medians (0: failed) that are not in the curve yet
  double device_ns = 0;                   // time that its trials spent on devices
  Unlearned unlearned;
  int stage_failures = 0;                        // infrastructure faults in a row
  absl::Time not_before = absl::InfinitePast();  // the end of its backoff
  bool keep_default =
      false;              // the comparison found its tuned kernel no faster than the default one
  bool replaced = false;  // the comparison broke its imported record, so it has the next best one

  int valid() const { return trials - failed; }
  int remaining() const { return budget - trials; }
  int unproposed() const { return remaining() - static_cast<int>(open.size()); }
};

struct Importing {};
// A job with params.plan whose import lists a survey first makes it: every task, those of other plans included, gets one
// trial, the default schedule's. With a time limit, a survey ends at its share of it
// (DispatcherOptions.survey_share), whatever was measured. Then a stage settles the plan, and the tasks
// of that plan are tuned. If the stage names a second plan, the tasks of both, and of the estimated plan, are tuned
// first. Then a further plan stage chooses by their best times, and modules may be compared (machines/contest.h).
struct Tuning {};
// A plan stage chooses among plans by the times of their kernels. After a survey, the job goes on
// tuning, or makes a further survey of tasks that the stage added. After a contest, it goes on tuning, or compares
// modules first (Judging). After tuning, the stage chooses once more, by the best times, and the job compiles.
struct Planning {};
struct Compiling {};
// The module is compared with the one that has default schedules only. If tuned kernels turn out to
// be no faster, the job compiles once more, without them, and compares that module. So it does if an
// imported record does not hold (Compared.broken): the task gets its next best schedule, and after
// kTriesOfImports comparisons the best that was measured here.
struct Comparing {};
struct Done {};
struct Failed {
  FaultInfo fault;
};
struct Cancelled {
  std::string reason;
};
using JobPhase =
    std::variant<Importing, Tuning, Planning, Compiling, Comparing, Done, Failed, Cancelled>;

// So many comparisons may judge imported records of a task. If the last of them breaks one, too, the
// task gets the best that was measured here, so that many false records of one task neither hold the
// job up nor cost what it found itself.
inline constexpr int kTriesOfImports = 3;

struct Job {
  JobId id;
  JobParams params;
  JobPhase phase;
  std::optional<std::string> paused;  // the user's reason, which may be empty; nullopt: not paused
  std::vector<Task> tasks;
  std::deque<TaskIndex> queue;       // tasks in phase Waiting, in the order of their turns
  std::vector<TaskIndex> in_flight;  // in the order they began their rounds
  std::string stop;                  // why tuning ended before its trials; empty: it did not
  absl::Duration tuned;              // time spent tuning until tuning_since; pauses do not count
  std::optional<absl::Time> tuning_since;  // nullopt: the clock stands still
  int64_t next_candidate = 1;
  int surveys = 0;      // plan stages that ended a survey
  bool settled = true;  // the plan is chosen; false: import, survey or its plan stage come first
  bool has_estimated_plan = true;  // no plan stage has chosen, or what it chose was taken back
  int compared = 0;                // comparisons made
  absl::Time compare_before = absl::InfiniteFuture();  // the end of waiting for a device for that
  std::string not_compared;       // why a comparison was given up; empty: it was not
  std::optional<AttemptId> live;  // the running import, plan, compile or compare stage
  std::set<AttemptId> stages;     // all that run, without compiles for users (machines/fetches.h)
  int stage_failures = 0;         // faults of these in a row
  absl::Time not_before = absl::InfinitePast();  // the end of their backoff
  std::string last_fault;                        // the latest infrastructure fault, for people
  int lane = 0;          // of its profile stages (slot_index.h); the dispatcher sets it
  int build_lane = 0;    // likewise, of its build and compile stages
  bool finding = false;  // FindRecords is not answered yet
  // Workers that told a user fault which no other worker has confirmed yet, by kind and task of the
  // stage (-1: it has no task). A restart forgets them.
  std::map<std::pair<v1::StageKind, int>, std::string> accusers;

  // Whether the task's next kernel may be that of an imported record.
  bool TrustsImports(const Task& task) const {
    return !task.replaced || compared < kTriesOfImports;
  }
  bool final() const {
    return std::holds_alternative<Done>(phase) || std::holds_alternative<Failed>(phase) ||
           std::holds_alternative<Cancelled>(phase);
  }
};

// What a stage does, and for whom.
struct StageWork {
  JobId job;
  v1::StageKind kind = v1::STAGE_UNSPECIFIED;
  std::optional<TaskIndex> task{};  // import, plan, compile, compare: none
  std::optional<FetchId> fetch{};   // compile: the user's call that it serves, if any
  friend auto operator<=>(const StageWork&, const StageWork&) = default;
};

// The key of the stage in Job.accusers.
inline std::pair<v1::StageKind, int> AccuserKey(const StageWork& work) {
  return {work.kind, work.task ? work.task->value : -1};
}

// One running attempt of a stage.
struct LiveStage : StageWork {
  AttemptId id;
  SlotId slot;
  std::string host;
  std::string boot;  // SlotInfo.boot
  std::vector<int> cores;
  std::set<CandidateId> candidates;   // assigned to it and not answered yet
  std::set<CandidateId> in_progress;  // those of them that the worker said it has begun
  CandidateId before;         // profile, update: the stage takes only candidates before this one
  bool input_closed = false;  // profile: no more candidates will be fed
  bool cancelled = false;
  uint32_t worker_class = 0;  // DurationModel::ClassId of the slot's kind
  absl::Time started;
  // These tell how long one candidate takes.
  int units = 0;          // candidates answered
  absl::Duration busy;    // the time these took together
  absl::Time unit_since;  // when the next one began
};

using Jobs = std::map<JobId, Job>;
using LiveStages = std::map<AttemptId, LiveStage>;

// Whether stages of this kind run on device slots.
inline bool NeedsDevice(v1::StageKind kind) {
  return kind == v1::STAGE_PROFILE || kind == v1::STAGE_COMPARE;
}
// Whether a tuned kernel is surely faster: the better kernel of each task stays, and in doubt that
// is the default one.
inline bool IsFaster(const v1::Gain& gain) { return gain.low() > 1; }
// Whether a whole tuned module is not taken: it took longer, however uncertain that is.
inline bool IsSlower(const v1::Gain& gain) { return gain.ratio() < 1; }

// The stage that a job in this phase runs by itself. Of Tuning: none.
v1::StageKind StageOf(const JobPhase& phase);

// "import", "profile", ..
std::string StageName(v1::StageKind kind);

// Whether a phase, or the place of a candidate, is this one.
template <typename Phase, typename Variant>
bool Is(const Variant& phase) {
  return std::holds_alternative<Phase>(phase);
}

// Whether the job measures tasks only to choose its plan. Then every task gets one trial.
inline bool Surveying(const Job& job) { return !job.settled; }

// Whether plans of the job are tuned side by side, or judged thereafter (machines/contest.h).
bool Contending(const Job& job);
// Uses in the job's plan; if plans contend, in the one of them that has the most. 0: the task gets no trials after the
// survey.
inline int Uses(const Task& task, bool contending) {
  return contending ? std::max({task.weight, task.rival_weight, task.estimated_weight})
                    : task.weight;
}
// Whether the job compiles and compares modules by two plans only to choose between these. It then goes on tuning.
bool Judging(const Job& job);

// Whether each task has as many uses as in the plan of the import. Another plan may have the same tasks, and run them in
// another order.
bool HasEstimatedTasks(const Job& job);
// Goes back to that plan, with its weights. Nothing contends with it.
void TakeEstimatedPlan(Job* job);

// The smaller of two times; 0 means unknown.
inline double Faster(double a, double b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

// A task of which the import, or the store after a restart, knows this.
Task MakeTask(const v1::TaskInfo& info, const TaskProgress& progress);

// Counts a final record of the task; `message` says why a trial is not valid.
void CountTrial(Task* task, CandidateId candidate, bool valid, double median_ns,
                const std::string& message);

// Time the job has spent tuning; pauses do not count.
absl::Duration Tuned(const Job& job, absl::Time now);
// Stops the clock of Tuned.
void StopClock(Job* job, absl::Time now);
// Whether the task has candidates that wait for a build.
bool HasUnbuilt(const Task& task);
// How many rounds of the job may be in flight when `devices` slots suit it. A job that does not say
// may have one round for every device it may hold, and one more whose candidates are being made.
int PipelineDepth(const JobParams& params, int devices);
// Rounds the task has in flight, the one that is being proposed included.
int RoundsInFlight(const Task& task);
int RoundsInFlight(const Job& job);
// The end of the last of the oldest rounds that are fully measured; nullopt: the oldest one is not.
std::optional<CandidateId> MeasuredBefore(const Task& task);
// Rebuilds the rounds in flight after a restart. `candidates` are those from the first open one on,
// by id, each with whether it is open. Every round gets `batch` candidates, so there are never more
// rounds than before; without `several` there is just one.
std::deque<Round> MakeRounds(const std::vector<std::pair<CandidateId, bool>>& candidates, int batch,
                             bool several);
// Whether the latest JobParams.plateau trials brought the task no gain.
bool Plateaued(const JobParams& params, const Task& task);
// Adds a valid time to the curve. `trials` counts the trials until then, known records included.
void AddToCurve(Task* task, int trials, double ns);
// Moves results into the curve, in the order of their candidates: those before `before`, or all.
void FoldResults(Task* task, std::optional<CandidateId> before);

inline bool InFlight(const Task& task) {
  return !Is<Waiting>(task.phase) && !Is<Finished>(task.phase);
}

}  // namespace heddle::scheduler
