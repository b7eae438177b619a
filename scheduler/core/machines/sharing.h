// Tasks that several jobs have in common are tuned once.
//
// Tasks of different live jobs with the same workload, target and device key are partners. Only one
// of them at a time has a round in flight (paused jobs do not count). Each of its trials is a known
// record to the others, and thus one trial less for all of them. The task that begins the next
// round takes over the search state of a partner that has learned everything, or else learns the
// known records. Nobody owns the work: when one job ends, stops or is paused, the others go on.
//
// A GPU job that builds before there is a device has no device key yet, and may become a partner of
// any task with the same workload and target. Of these tasks, too, only one at a time has a round
// in flight. Jobs with `force` share nothing.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/effects.h"

namespace heddle::scheduler {

class Sharing {
 public:
  // Both outlive this.
  Sharing(Jobs* jobs, Effects* effects) : jobs_(jobs), effects_(effects) {}

  // Adds a restored job, whose tasks know already what their partners know.
  void Enter(const Job& job) { Enter(job, 0); }
  // Adds a job whose tasks or device key have become known. It learns what its partners know and
  // have measured, whether or not that is on disk yet. They learn what it tried before it had a
  // device, that is, failed builds. With `first`: only the tasks from this one on, which are new.
  void Join(Job& job, size_t first = 0);
  // Removes a finished task, or all tasks of a job that needs them no more.
  void Leave(const Job& job, TaskIndex task);
  void Leave(const Job& job);

  // Replaces what was known of the task by these records, which are not its own.
  void TakeKnown(Job& job, TaskIndex task, const KnownRecords& known);
  // A trial of the task has ended: it becomes a known record of its partners.
  void ShareTrial(const Job& job, TaskIndex task, bool valid, double median_ns);
  // Call when the task begins a round: it takes over a partner's search state, or has to learn the
  // known records.
  void CatchUp(Job& job, TaskIndex task);

  // Whether a partner, or a task that may become one, has a round in flight in an unpaused job.
  bool PartnerInFlight(const Job& job, TaskIndex task) const;
  // Call when the last round of the task that was in flight has ended, unless the task is finished: then it leaves.
  void EndRounds(const Job& job, TaskIndex task);
  // The same for all tasks of the job, including tasks that are no longer partners.
  void TouchAll(const Job& job);

 private:
  using Member = std::pair<JobId, TaskIndex>;
  // Unfinished tasks of one workload and target, of jobs in phase Tuning or Planning, or Judging.
  struct Workload {
    std::set<Member> tasks;
    std::set<Member> begun;  // those with a round in flight: of unpaused partners, one at a time
  };
  void Enter(const Job& job, size_t first);
  Workload* Find(const Job& job, TaskIndex task);
  const Workload* Find(const Job& job, TaskIndex task) const;
  // Touches the jobs that may be waiting for a round of the task to end.
  void TouchPartners(const Job& job, TaskIndex task);
  template <typename F>
  void ForPartners(const Job& job, TaskIndex task, F f);

  Jobs* const jobs_;
  Effects* const effects_;
  std::map<std::string, Workload> workloads_;
};

}  // namespace heddle::scheduler
