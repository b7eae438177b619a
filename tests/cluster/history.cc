#include "tests/cluster/history.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/job_states.h"

namespace heddle {
namespace {

// What must stay the same of a record.
std::string Essence(const v1::Record& record) {
  return absl::StrCat(record.workload_key(), " ", record.trace(), " ", record.attempt(), " ",
                      record.median_ns(), " ", record.measurement().outcome());
}

}  // namespace

void History::Violated(const std::string& what) {
  if (std::find(violations_.begin(), violations_.end(), what) == violations_.end())
    violations_.push_back(what);
}

void History::Submitted(const std::string& job) {
  if (!submitted_.insert(job).second)
    Violated(absl::StrCat("two submissions were told the name ", job));
}

void History::Missing(const std::string& job) {
  if (submitted_.count(job) != 0) Violated(absl::StrCat("job ", job, " is lost"));
}

void History::Saw(const v1::Job& job) {
  v1::Job& before = jobs_[job.id()];
  if (job.trials() < before.trials()) {
    Violated(absl::StrCat("job ", job.id(), " went from ", before.trials(), " trials back to ",
                          job.trials()));
  }
  if (job.tasks_size() < before.tasks_size())
    Violated(absl::StrCat("job ", job.id(), " lost tasks"));
  if (IsFinal(before.state()) && job.state() != before.state()) {
    Violated(absl::StrCat("job ", job.id(), " had ended as ", v1::JobState_Name(before.state()),
                          " and is now ", v1::JobState_Name(job.state())));
  }
  for (int i = 0; i < std::min(before.tasks_size(), job.tasks_size()); ++i) {
    if (job.tasks(i).trials() < before.tasks(i).trials())
      Violated(absl::StrCat("task ", i, " of job ", job.id(), " lost trials"));
    if (before.tasks(i).best_ns() > 0 &&
        (job.tasks(i).best_ns() == 0 || job.tasks(i).best_ns() > before.tasks(i).best_ns()))
      Violated(absl::StrCat("task ", i, " of job ", job.id(), " lost its best time"));
  }
  before = job;
}

void History::SawRecords(const std::string& job, const std::vector<v1::Record>& records) {
  std::map<int64_t, std::string> now;
  std::set<std::string> traces;
  for (const v1::Record& record : records) {
    if (!now.emplace(record.candidate(), Essence(record)).second)
      Violated(absl::StrCat("candidate ", record.candidate(), " of ", job, " has two records"));
    if (!traces.insert(absl::StrCat(record.workload_key(), " ", record.trace())).second)
      Violated(absl::StrCat("job ", job, " measured a schedule twice"));
  }
  for (auto told = records_.lower_bound({job, std::numeric_limits<int64_t>::min()});
       told != records_.end() && told->first.first == job; ++told) {
    const int64_t candidate = told->first.second;
    const auto found = now.find(candidate);
    if (found == now.end()) {
      Violated(absl::StrCat("the record of candidate ", candidate, " of ", job, " is lost"));
    } else if (found->second != told->second) {
      Violated(absl::StrCat("the record of candidate ", candidate, " of ", job, " changed"));
    }
  }
  for (const auto& [candidate, essence] : now) records_[{job, candidate}] = essence;
}

void History::Granted(const std::string& slot, uint64_t token) {
  if (token <= token_) {
    Violated(
        absl::StrCat("slot ", slot, " was granted with token ", token, " after token ", token_));
  }
  token_ = std::max(token_, token);
}

void History::Stored(const std::string& slot, uint64_t token) {
  uint64_t& latest = stored_[slot];
  if (token < latest) {
    Violated(absl::StrCat("a stale record of slot ", slot, " was stored: its token is ", token,
                          ", and one before it had ", latest));
  }
  latest = std::max(latest, token);
}

void History::Ended(const v1::Job& job, const std::vector<v1::Record>& records) {
  Saw(job);
  SawRecords(job.id(), records);
  if (job.state() != v1::JOB_DONE) {
    Violated(absl::StrCat("job ", job.id(), " ended as ", v1::JobState_Name(job.state()), ": ",
                          job.reason(), " ", job.fault().message()));
  }
  if (static_cast<int>(records.size()) != job.trials()) {
    Violated(absl::StrCat("job ", job.id(), " counts ", job.trials(), " trials and has ",
                          records.size(), " records"));
  }
  for (const v1::Record& record : records) {
    if (record.measurement().outcome() == v1::OUTCOME_LOST)
      Violated(
          absl::StrCat("a trial of ", job.id(), " was given up: ", record.measurement().message()));
  }
}

}  // namespace heddle
