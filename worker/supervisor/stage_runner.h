// Performs one stage in child processes and enforces its limits: the supervisor's half of a stage.
//
// The child does the work and may misbehave in any way; this class checks the form of everything it
// says. If the child crashes, hangs, exceeds its memory or sends garbage, its current candidate
// gets a typed failure, and a fresh child continues with the remaining ones. A crash in a child
// that had run other candidates proves little, since one of those may have done the damage. The
// candidate then gets one more chance, first in a fresh child.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/pauses.h"
#include "proto/worker.pb.h"
#include "worker/confine/mechanisms.h"
#include "worker/confine/stage_folder.h"
#include "worker/frame.h"
#include "worker/process/child_process.h"
#include "worker/process/child_watch.h"
#include "worker/supervisor/blob_cache.h"
#include "worker/supervisor/slot_guard.h"
#include "worker/supervisor/stage_session.h"

namespace heddle::worker {

struct RunnerOptions {
  std::vector<std::string> child_command;          // program and arguments up to kStageChildFlag
  std::vector<int> cores;                          // cores of the slot
  std::string gpu{};                               // GPU of the slot, "cuda:0"; empty: none
  int64_t memory_limit_bytes = int64_t{4} << 30;   // default of StageStart, and the most it may ask
  absl::Duration stage_limit = absl::Minutes(10);  // default of StageStart.time_limit_ms
  absl::Duration candidate_limit = absl::Seconds(30);  // default of candidate_time_limit_ms
  absl::Duration longest_stage = absl::Hours(24);      // the most that these may be
  confine::Confinement confinement{};                  // of the children
  std::string code_cache{};    // folder of compiled GPU code, with one for each job; empty: none
  std::string worker;          // for the evidence
  SlotGuard* guard = nullptr;  // not owned; null: no guard
  BlobCache* blobs = nullptr;  // not owned; null: stages with blobs are refused
  // Asked about the file of each module before a compare stage runs it; null: all may run.
  std::function<absl::Status(std::string_view file)> check_module = nullptr;
};

// One object per stage; SIGPIPE must be ignored in the process.
class StageRunner {
 public:
  StageRunner(const v1::StageStart& start, const RunnerOptions& options, StageCaller& caller,
              StageSession& session);

  // Returns the last event for the caller. No process of the stage is left.
  v1::StageFinished Run();

 private:
  struct Item {
    int64_t candidate = 0;
    std::string frame;  // as sent to the child
  };
  // kUnwatched: this process could not look at the child, as when it has no descriptors left. That is no
  // fault of what the child ran.
  enum class Failure { kCrash, kTimeout, kUnwatched };
  struct Breach {
    Failure failure;
    std::string what;  // one line
  };

  bool HasCandidates() const;
  // Takes from the caller what is missing of the stage's blobs, before the child starts.
  void FetchBlobs();
  void CheckModules();
  void StartChild();
  // What the child does beyond its limits, but for time: one line; empty if nothing.
  std::string Excess(const BytesInUse& bytes, const ThreadsInUse& threads);
  // Looks whether the child keeps its limits, as often as is due.
  std::optional<Breach> FindBreach();
  // Does so while the caller takes an event. A child that does not is killed at once; what follows from
  // that waits until the event is written.
  void WatchChild();
  // Moves the time limits by the time for which this process itself was stopped. The child may have been stopped as well; if
  // it went on, its result may be ready to be read. Leases do not move: StageTable has a clock of its own for them.
  void ExcusePause();
  // The limits that hold from the beginning, and those of the child.
  void CheckStage();
  void CheckLimits();
  void TakeInput();
  void AddItem(const v1::StageInput& input);
  void Feed();
  void Wait();
  // Handles the child's output or its end; false if there was neither.
  bool ReadChild();
  void HandleEvent(v1::StageEvent& event);
  // Handles a result of the child; false if it is not expected now.
  bool HandleResult(v1::StageEvent& event);
  void HandleExit();
  // Ends an unusable child and recovers.
  void ChildFailed(Failure failure, const std::string& what);
  // After the child's end: assigns the failure, and starts a fresh child if work is left.
  void Recover(Failure failure, const std::string& what, bool from_outside);
  void AnswerFailure(int64_t candidate, Failure failure, const std::string& message);
  void Forward(const v1::StageEvent& event);
  // Ends all processes of the child; returns its wait status.
  int EndChild(absl::Duration patience);
  void Over(v1::FaultKind kind, const std::string& message);

  const v1::StageStart start_;
  const RunnerOptions options_;
  const int64_t memory_limit_bytes_;
  const absl::Duration candidate_limit_;
  StageCaller& caller_;
  StageSession& session_;
  Pauses pauses_;
  absl::Time deadline_;

  std::unique_ptr<BlobCache::Fetch> fetch_;       // keeps the blobs while the stage runs
  std::unique_ptr<confine::StageFolder> folder_;  // of the child
  std::unique_ptr<ChildProcess> child_;
  std::string last_words_;  // the last line that the last ended child printed
  FrameDecoder decoder_;
  std::string outbox_;  // bytes for the child
  std::deque<Item>
      items_;  // candidates without an answer, in order; the first sent_ are with the child
  size_t sent_ = 0;
  std::optional<int64_t> current_;  // the candidate the child is busy with
  absl::Time candidate_deadline_;
  int answered_here_ = 0;  // by this child
  int unexplained_ = 0;    // children in a row that failed between candidates
  std::set<int64_t> second_chance_;
  std::optional<Breach> breach_;  // for which WatchChild has killed the child
  absl::Time next_check_;         // of what the child uses
  std::string code_folder_;       // of compiled code, for the child; empty: none
  absl::Time next_folder_check_;  // of that folder

  bool over_ = false;
  v1::StageFinished finished_;
  absl::Duration cpu_;
  int64_t peak_memory_bytes_ = 0;
};

}  // namespace heddle::worker
