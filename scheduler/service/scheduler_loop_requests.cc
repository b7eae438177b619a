// What users ask of the executive, answered from snapshots: the half that runs on the threads of
// the gRPC server.
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "proto/job_states.h"
#include "scheduler/service/scheduler_loop.h"

namespace heddle::scheduler {
namespace {

// A read that may be a little old is better than none.
constexpr absl::Duration kFlushLimit = absl::Seconds(2);
// Then a client is told that the store does not take the job.
constexpr absl::Duration kDurableLimit = absl::Seconds(30);

const char* StateName(v1::JobState state) {
  return state == v1::JOB_DONE ? "done" : state == v1::JOB_FAILED ? "failed" : "cancelled";
}

}  // namespace

absl::StatusOr<SchedulerLoop::Snapshot> SchedulerLoop::Get(const std::string& job) const {
  absl::MutexLock lock(&view_mutex_);
  auto it = snapshots_.find(JobId{ParseJobName(job)});
  if (it == snapshots_.end())
    return absl::NotFoundError(absl::StrCat("no job \"", job, "\" (heddle jobs --all lists them)"));
  return it->second;
}

absl::StatusOr<SchedulerLoop::Snapshot> SchedulerLoop::WaitForChange(const std::string& job,
                                                                     int64_t version,
                                                                     absl::Duration timeout) const {
  const JobId id{ParseJobName(job)};
  auto changed = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(view_mutex_) {
    auto it = snapshots_.find(id);
    return it == snapshots_.end() || it->second.version != version;
  };
  {
    absl::MutexLock lock(&view_mutex_);
    view_mutex_.AwaitWithTimeout(absl::Condition(&changed), timeout);
  }
  return Get(job);
}

std::vector<std::shared_ptr<const v1::Job>> SchedulerLoop::List(bool finished_too) const {
  std::vector<std::shared_ptr<const v1::Job>> jobs;
  absl::MutexLock lock(&view_mutex_);
  for (const auto& [id, snapshot] : snapshots_) {
    if (finished_too || snapshot.job->finished_unix_ns() == 0) jobs.push_back(snapshot.job);
  }
  return jobs;
}

// Durable, and visible too: who asks for the job next must find it so.
absl::Status SchedulerLoop::CallAndWait(Input input, const std::string& what) {
  auto durable = std::make_shared<absl::Notification>();
  input.durable = [durable] { durable->Notify(); };
  auto visible = std::make_shared<absl::Notification>();
  input.done = [visible] { visible->Notify(); };
  if (!Post(std::move(input))) return absl::UnavailableError("the scheduler is shutting down");
  if (visible->WaitForNotificationWithTimeout(kDurableLimit) &&
      durable->WaitForNotificationWithTimeout(kDurableLimit)) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("the database does not take writes now; ", what, " (heddle jobs tells)"));
}

absl::StatusOr<std::string> SchedulerLoop::Submit(const v1::JobSpec& spec,
                                                  const std::string& model_digest) {
  HEDDLE_ASSIGN_OR_RETURN(JobParams params,
                          JobLedger::ParamsFrom(spec, MonotonicNow(), absl::Now()));
  const JobId id{next_job_++};
  JobSubmitted submitted{id, params};
  submitted.description.set_id(JobName(id.value));
  *submitted.description.mutable_spec() = spec;
  submitted.description.set_state(v1::JOB_IMPORTING);
  submitted.description.set_model_digest(model_digest);
  submitted.description.set_created_unix_ns(absl::GetCurrentTimeNanos());
  HEDDLE_RETURN_IF_ERROR(
      CallAndWait({std::move(submitted), {}, {}},
                  absl::StrCat("job ", JobName(id.value), " may or may not be there")));
  return JobName(id.value);
}

absl::StatusOr<std::shared_ptr<const v1::Job>> SchedulerLoop::Act(Action action,
                                                                  const std::string& job,
                                                                  const std::string& reason) {
  HEDDLE_ASSIGN_OR_RETURN(Snapshot snapshot, Get(job));
  const v1::JobState state = snapshot.job->state();
  const bool again = action == Action::kCancel && state == v1::JOB_CANCELLED;
  if (IsFinal(state) && !again) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job, " is over already (", StateName(state), ")"));
  }
  const JobId id{ParseJobName(job)};
  Event event = PauseRequested{id, reason};
  if (action == Action::kResume) event = ResumeRequested{id};
  if (action == Action::kCancel) event = CancelRequested{id, reason};
  HEDDLE_RETURN_IF_ERROR(CallAndWait({std::move(event), {}, {}},
                                     absl::StrCat("job ", job, " may forget this at a restart")));
  HEDDLE_ASSIGN_OR_RETURN(snapshot, Get(job));
  return snapshot.job;
}

absl::StatusOr<std::string> SchedulerLoop::Module(const std::string& job, v1::ScheduleChoice choice,
                                                  const std::function<bool()>& gone) {
  HEDDLE_ASSIGN_OR_RETURN(Snapshot snapshot, Get(job));
  if (choice == v1::SCHEDULE_BEST && !snapshot.job->module_digest().empty())
    return snapshot.job->module_digest();
  if (snapshot.job->state() == v1::JOB_FAILED) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job, " has failed: ", snapshot.job->reason()));
  }
  if (snapshot.job->inputs().empty())
    return absl::FailedPreconditionError(absl::StrCat("job ", job, " is not imported yet"));
  const JobId id{ParseJobName(job)};
  const FetchId fetch{next_fetch_++};
  {
    absl::MutexLock lock(&view_mutex_);
    auto made = modules_.find({id, choice});
    if (made != modules_.end()) return made->second;
    fetches_[fetch] = {id, choice, false, {}, ""};
  }
  auto ended = [&]()
                   ABSL_EXCLUSIVE_LOCKS_REQUIRED(view_mutex_) { return fetches_.at(fetch).ended; };
  bool posted = Post({FetchRequested{fetch, id}, {}, {}});
  FetchState result;
  while (true) {
    {
      absl::MutexLock lock(&view_mutex_);
      const bool over =
          posted && view_mutex_.AwaitWithTimeout(absl::Condition(&ended), absl::Milliseconds(200));
      if (over || !posted || gone()) {
        result = fetches_.at(fetch);
        fetches_.erase(fetch);
        break;
      }
    }
    absl::MutexLock lock(&mutex_);
    if (stop_) posted = false;
  }
  if (!posted) return absl::UnavailableError("the scheduler is shutting down");
  if (!result.ended) {
    Post({FetchAbandoned{fetch}, {}, {}});
    return absl::CancelledError("the caller left");
  }
  if (result.fault.kind == v1::FAULT_USER)
    return absl::FailedPreconditionError(result.fault.message);
  if (result.digest.empty())
    return absl::UnavailableError(
        absl::StrCat("compiling the module failed: ", result.fault.message));
  return result.digest;
}

void SchedulerLoop::Flush() { writer_->Flush(kFlushLimit); }

absl::StatusOr<std::vector<absl::Status>> SchedulerLoop::Import(
    const std::vector<v1::Record>& records) {
  struct Answers {
    absl::Mutex mutex;
    std::vector<absl::Status> answers ABSL_GUARDED_BY(mutex);
    size_t open ABSL_GUARDED_BY(mutex);
  };
  auto state = std::make_shared<Answers>();
  {
    absl::MutexLock lock(&state->mutex);
    state->answers.resize(records.size());
    state->open = records.size();
  }
  for (size_t i = 0; i < records.size(); ++i) {
    writer_->WriteAnswered({InsertRecord{records[i], 0, true}}, [state, i](const absl::Status& s) {
      absl::MutexLock lock(&state->mutex);
      state->answers[i] = s;
      --state->open;
    });
  }
  absl::MutexLock lock(&state->mutex);
  auto all = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mutex) { return state->open == 0; };
  if (!state->mutex.AwaitWithTimeout(absl::Condition(&all), kDurableLimit)) {
    return absl::UnavailableError(
        "the database does not take writes now; import again later, what is there is skipped");
  }
  return state->answers;
}

}  // namespace heddle::scheduler
