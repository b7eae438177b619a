// Tasks that several jobs have in common are tuned once.
//
// Tasks of different live jobs with the same workload, target and device key are partners. One of
// them at a time has a round in flight (a paused job's does not count), and each of its trials is a
// known record to the others, so that it is a trial less for all of them. Whoever begins the next
// round takes over the search state of a partner that has learned everything, or learns the known
// records. Nobody owns the task: when one job ends, stops or is paused, the others go on.
//
// A job that builds before there is a device (for GPUs) has no device key yet, and may become a
// partner of any task with the same workload and target: of these, too, one at a time has a round
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

  // A restored job, whose tasks know already what their partners know.
  void Enter(const Job& job);
  // A job whose tasks or device key have become known. What partners know and have measured is
  // known to it, whether or not it is on disk yet; what it has tried before it had a device (builds
  // that failed) becomes known to them.
  void Join(Job& job);
  // The task is finished, or all of the job's tasks are of no use any more.
  void Leave(const Job& job, TaskIndex task);
  void Leave(const Job& job);

  // Records of the task that are not its own: replaces what was known.
  void TakeKnown(Job& job, TaskIndex task, const KnownRecords& known);
  // A trial of the task has ended: it is a known record of the partners.
  void ShareTrial(const Job& job, TaskIndex task, bool valid, double median_ns);
  // The task begins a round: it takes over a partner's search state, or has to learn what is known.
  void CatchUp(Job& job, TaskIndex task);

  // Whether a partner, or what may become one, has a round in flight in an unpaused job.
  bool PartnerInFlight(const Job& job, TaskIndex task) const;
  // Touches the jobs that may wait for a round of the task to end.
  void TouchPartners(const Job& job, TaskIndex task);
  // The same for all tasks of the job, and for tasks that are no longer partners.
  void TouchAll(const Job& job);

 private:
  using Member = std::pair<JobId, TaskIndex>;
  // Unfinished tasks of one workload and target, of jobs in phase Tuning.
  struct Workload {
    std::set<Member> tasks;
    Member latest;  // the last to begin a round: in flight, most likely
  };
  Workload* Find(const Job& job, TaskIndex task);
  const Workload* Find(const Job& job, TaskIndex task) const;
  template <typename F>
  void ForPartners(const Job& job, TaskIndex task, F f);

  Jobs* const jobs_;
  Effects* const effects_;
  std::map<std::string, Workload> workloads_;
};

}  // namespace heddle::scheduler
