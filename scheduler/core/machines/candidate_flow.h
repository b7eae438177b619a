// How the candidates of a round flow from builds to measurements, one by one.
//
// A built candidate goes to a running profile stage of its task that has a short queue. If there is
// none, another slot may start a profile stage with it. Failing that, it goes to the shortest
// queue. A profile stage takes no candidates of rounds that were proposed after it started. Its
// input is closed as soon as no candidate that it may take is being built. No running stage thus
// ever waits for one that has not started, so slots that share cores cannot deadlock. A slot that is
// no longer usable, such as one that drains, gets no further candidates either.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/effects.h"

namespace heddle::scheduler {

class CandidateFlow {
 public:
  // All outlive this.
  CandidateFlow(Jobs* jobs, LiveStages* live, Effects* effects)
      : jobs_(jobs), live_(live), effects_(effects) {}

  // Call when builds or profile stages of the task have changed.
  void Note(JobId job, TaskIndex task) { changed_.insert({job, task}); }
  // Before slots are assigned: feeds the queues that would soon run empty.
  void FeedShortQueues();
  // After slots were assigned: feeds the candidates that found no slot, and closes inputs to which
  // nothing more can come. Returns the jobs whose candidates were fed.
  std::vector<JobId> FeedAndClose();
  // Closes the input of a profile stage. What it has been given it still measures.
  void Close(LiveStage& stage);

 private:
  // Feeds queues that are shorter than `depth`. False if nothing was fed.
  bool Feed(Job& job, TaskIndex task, size_t depth);

  Jobs* const jobs_;
  LiveStages* const live_;
  Effects* const effects_;
  std::set<std::pair<JobId, TaskIndex>> changed_;  // within the running step
};

// The number of the task's open candidates in that state.
template <typename State>
int CountWhere(const Task& task) {
  int count = 0;
  for (const auto& [id, candidate] : task.open) count += Is<State>(candidate.where);
  return count;
}

// Moves the first `count` candidates in state From to state To of the attempt, and returns them.
template <typename From, typename To>
std::vector<CandidateId> Take(Task& task, size_t count, AttemptId attempt) {
  std::vector<CandidateId> taken;
  for (auto& [id, candidate] : task.open) {
    if (taken.size() == count) break;
    if (!Is<From>(candidate.where)) continue;
    candidate.where = To{attempt};
    taken.push_back(id);
  }
  return taken;
}

}  // namespace heddle::scheduler
