// What simulated searches find: tasks of a model, candidates, and what these truly take.
//
// A search state leaves a trace of everything that was learned, so that a run which learned
// something else, or nothing, has other records.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "scheduler/core/events.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/sim/chance.h"
#include "scheduler/sim/scenario.h"
#include "scheduler/sim/world/planted.h"
#include "scheduler/store/record_store.h"

namespace heddle::sim {

class Searches {
 public:
  // All outlive this. Without a store, traces, search states and known records are left out.
  Searches(const Scenario& scenario, RecordStore* store, Dice* dice, Plant* plant)
      : scenario_(scenario), store_(store), dice_(dice), plant_(plant) {}

  Imported Import(JobId job, const JobLedger& book) const;
  // What the database knows of the job's tasks on devices of that key.
  RecordsFound Find(const FindRecords& find, const JobLedger& book) const;
  Proposed Propose(const StartStage& start, const JobLedger& book);
  // Nothing where the update is planted to be left out.
  decltype(StageFinished::result) Learn(const StartStage& start, const Task& task,
                                        const JobLedger& book);
  // Results that the search of the task has been told of.
  int Learned(const StartStage& start, const JobLedger& book) const {
    return StateOf(start, book).learned;
  }

  // The dispatcher gave the candidates their ids, or has the final outcome of one.
  void Added(const AddCandidates& add);
  void Finished(const FinishCandidate& done);
  // The candidate's place among all that its search proposes.
  int Ordinal(JobId job, CandidateId candidate, const JobLedger& book) const;
  double TrueMedian(JobId job, int task, int ordinal) const;

 private:
  // As text: "next learned hash". Each result that it was told of, in order, has a part in `hash`,
  // which is in the traces it proposes.
  struct State {
    int next = 0;     // candidates proposed
    int learned = 0;  // results told of
    uint64_t hash = 0;
    std::string ToText() const;
  };
  const SimJob& JobOf(JobId id) const { return scenario_.jobs[static_cast<size_t>(id.value - 1)]; }
  State StateOf(const StartStage& start, const JobLedger& book) const;
  std::string KeyOf(JobId job, size_t task) const;
  std::vector<KnownRecords> Known(JobId job, const std::string& device_key,
                                  const JobLedger& book) const;
  bool Broken() { return scenario_.faults.broken > 0 && dice_->Likely(scenario_.faults.broken); }

  const Scenario& scenario_;
  RecordStore* const store_;
  Dice* const dice_;
  Plant* const plant_;
  // Without a store.
  std::map<std::pair<int64_t, int>, int> proposed_;  // (job, task) -> candidates so far
  absl::flat_hash_map<std::pair<int64_t, int64_t>, int> ordinals_;  // of (job, candidate)
};

}  // namespace heddle::sim
