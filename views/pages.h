// The contents of the pages: overview, jobs, a job, a task, machines, records. Each is a function of
// messages, so the scheduler's page and `heddle report` show the same. The addresses are those of
// scheduler/page/page.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "proto/jobs.pb.h"
#include "proto/tracker.pb.h"
#include "views/accuracy.h"
#include "views/html.h"
#include "views/parts.h"
#include "views/roofline.h"

namespace heddle::views {

using Jobs = std::vector<std::shared_ptr<const v1::Job>>;

// Stages of the last hours on all machines.
struct RecentStages {
  std::vector<v1::StageSpan> spans;
  int64_t begin_unix_ns = 0;  // of the time that they cover
  int64_t now_unix_ns = 0;
};

// Numbers of unfinished jobs.
struct JobCounts {
  int64_t running = 0;  // a stage of theirs runs now
  int64_t paused = 0;
  int64_t waiting = 0;  // the others
};
JobCounts CountJobs(const Jobs& unfinished, const RecentStages& recent);

struct Overview {
  JobCounts counts;
  Jobs unfinished;  // the newest
  Part part;
  Jobs finished;  // the newest
  v1::ListWorkersResponse machines;
  std::string machines_missing;  // why there are none; empty: there are
  RecentStages recent;
  std::string policy;
  bool may_submit = false;  // the caller may
};
Html OverviewPage(const Overview& overview);

// All jobs, the newest first.
Html JobsPage(const Jobs& jobs, const Part& part);

struct JobDetails {
  v1::Job job;
  std::vector<v1::StageSpan> spans;  // at most a limit of the latest
  // What the caller may do to the job now: "cancel", "pause", "resume". Each is the last part of an
  // address.
  std::vector<std::string> actions;
  int64_t now_unix_ns = 0;
  bool links = true;  // false: in a file
};
Html JobPage(const JobDetails& details);

// A trial of a task, without its text.
struct Trial {
  int64_t number = 0;  // from 1, in the order in which they were stored
  int64_t created_unix_ns = 0;
  double median_ns = 0;  // 0: it failed
  std::string origin;
  std::string job;
  bool fastest_so_far = false;
};
// Trials whose predictions are shown beside what was measured.
inline constexpr int64_t kMostPredicted = 512;
struct TaskDetails {
  v1::Job job;
  int task = 0;  // index in the job
  std::string device_key;
  int64_t all_trials = 0;       // of its workload on the target and device key
  bool older_left_out = false;  // all_trials counts the newest only; there may be more
  std::vector<Trial>
      trials;  // by number: as ChooseTrials (base/vocabulary/choose_trials.h) takes them
  std::string best_trace, default_trace;  // empty: not known
  double best_ns = 0, default_ns = 0;     // of these
  // The latest kMostPredicted trials at most, the oldest first; those without a prediction are left out.
  std::vector<PredictedTrial> predicted;
  std::string workload;  // the task as loops, before any schedule; empty: not known
  // The same after each schedule; empty: not known. The scheduler opens no program: its page has these from
  // the worker that measured the trial (Measurement.loops).
  std::string best_loops, default_loops;
  // The task's kernel in the job's module, as lines of assembly, and the schedule that it was built with. If there are no
  // lines, `kernel_missing` says why; if that is empty too, nobody asked for them.
  std::vector<std::string> kernel;
  std::string kernel_schedule, kernel_missing;
  Limits limits;  // of the slot that measured the best trial
  bool links = true;
};
Html TaskPage(const TaskDetails& details);

struct Machines {
  v1::ListWorkersResponse machines;
  std::string missing;  // why there are none; empty: there are
  RecentStages recent;
  // The latest of all tasks, which say how quiet the slots are: kNoiseRecords (views/noise.h) at most.
  std::vector<v1::Record> noise_records{};
  bool may_drain = false;  // the caller may take machines out of use
};
Html MachinesPage(const Machines& machines);

struct TaskName {
  std::string key;
  std::string label;
  double flops = 0;
};
struct RecordsView {
  std::string search;  // what was asked for: a part of a label, or the beginning of a key
  // Without a task: those that match.
  std::vector<TaskName> tasks;
  // With a task: its records.
  std::string key;
  std::string label;
  std::vector<v1::Record> best;  // one for each target and device key
  // Of one target and device key.
  std::string target, device_key;
  std::vector<v1::Record> latest;  // the newest first
  std::vector<Trial> trials;       // of that target and device key, as in TaskDetails
  double flops = 0;                // of the task
  Part part;                       // of the tasks, or of these records
};
Html RecordsPage(const RecordsView& records);

// What went wrong, for people.
Html ErrorPage(const std::string& title, const std::string& message);

// Address of the records of a task on a target and device key.
std::string RecordsAddress(const std::string& key, const std::string& target,
                           const std::string& device_key);
// Address of a job, or of a task of it, by number from 1.
std::string JobAddress(const std::string& job);
std::string TaskAddress(const std::string& job, int number);

}  // namespace heddle::views
