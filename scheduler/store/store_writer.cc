#include "scheduler/store/store_writer.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/thread_priority.h"

namespace heddle::scheduler {

namespace {

// Whether the batch commits the result of a stage, under its lease.
bool CommitsResult(const Batch& batch) {
  return !batch.empty() && std::holds_alternative<CheckFence>(batch.front());
}

// About what a change takes in memory: what may be large of it, and a flat rate for the rest.
struct ChangeBytes {
  static constexpr size_t kRest = 256;
  size_t operator()(const PutJob& change) const { return kRest + change.row.job.ByteSizeLong(); }
  size_t operator()(const PutTask& change) const { return kRest + change.row.info.ByteSizeLong(); }
  size_t operator()(const PutSearchState& change) const { return kRest + change.state.size(); }
  size_t operator()(const PutLearned& change) const {
    return kRest + change.report.ByteSizeLong() + change.transfer_samples.ByteSizeLong();
  }
  size_t operator()(const PutTransferModel& change) const {
    return kRest + change.model.ByteSizeLong();
  }
  size_t operator()(const PutExperience& change) const {
    return kRest * (1 + change.factors.size());
  }
  size_t operator()(const InsertCandidate& change) const { return kRest + change.row.trace.size(); }
  size_t operator()(const InsertRecord& change) const {
    return kRest + change.record.ByteSizeLong();
  }
  size_t operator()(const PutStage& change) const { return kRest + change.row.span.ByteSizeLong(); }
  size_t operator()(const CollectRows& change) const {
    return kRest + sizeof(int64_t) *
                       (change.candidates.size() + change.records.size() + change.attempts.size());
  }
  template <typename Other>
  size_t operator()(const Other&) const {
    return kRest;
  }
};

size_t BytesOf(const Batch& batch) {
  size_t bytes = 0;
  for (const StoreChange& change : batch) bytes += std::visit(ChangeBytes(), change);
  return bytes;
}

absl::Status Ending() { return absl::UnavailableError("the scheduler is shutting down"); }

}  // namespace

StoreWriter::StoreWriter(RecordStore* store, Hooks hooks, absl::Duration retry_pause)
    : store_(store),
      hooks_(std::move(hooks)),
      retry_pause_(retry_pause),
      thread_([this] { Loop(); }) {}

StoreWriter::~StoreWriter() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    give_up_ = true;
  }
  thread_.join();
}

void StoreWriter::StopWaiting() {
  absl::MutexLock lock(&mutex_);
  give_up_ = true;
}

void StoreWriter::Write(Batch batch, std::function<void()> durable) {
  Enqueue({std::move(batch), std::move(durable), nullptr});
}

void StoreWriter::WriteAnswered(Batch batch, std::function<void(const absl::Status&)> answer) {
  Enqueue({std::move(batch), nullptr, std::move(answer)});
}

void StoreWriter::Enqueue(Entry entry) {
  entry.bytes = BytesOf(entry.batch);
  auto full = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return queue_.size() >= kMaxQueue || queued_bytes_ >= kMaxQueueBytes;
  };
  auto room = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !full() || give_up_; };
  {
    absl::MutexLock lock(&mutex_, absl::Condition(&room));
    if (!full()) {
      queued_bytes_ += entry.bytes;
      queue_.push_back(std::move(entry));
      ++queued_;
      return;
    }
  }
  if (entry.answer) entry.answer(Ending());
}

void StoreWriter::Flush(absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  const int64_t wanted = queued_;
  auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return settled_ >= wanted; };
  mutex_.AwaitWithTimeout(absl::Condition(&there), limit);
}

std::deque<StoreWriter::Entry> StoreWriter::TakeGroup(int64_t* batches) {
  std::deque<Entry> group;
  while (!queue_.empty() && group.size() < kMaxGroup) {
    queued_bytes_ -= queue_.front().bytes;
    group.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  *batches = static_cast<int64_t>(group.size());
  for (size_t i = 0; i < kImportsOfGroup && !imports_.empty(); ++i) {
    group.push_back(std::move(imports_.front()));
    imports_.pop_front();
  }
  return group;
}

void StoreWriter::Loop() {
  (void)RunBeforeOthers();  // results count, and are shown, only once they are written
  while (true) {
    std::deque<Entry> group;
    int64_t batches = 0;
    {
      auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !queue_.empty() || !imports_.empty() || stop_;
      };
      absl::MutexLock lock(&mutex_, absl::Condition(&work));
      group = TakeGroup(&batches);
      if (group.empty()) return;
    }
    const bool written = ApplyAll(group);
    for (const Entry& entry : group) {
      if (written && entry.durable) entry.durable();
      if (!written && entry.answer) entry.answer(Ending());
    }
    absl::MutexLock lock(&mutex_);
    settled_ += batches;
    if (written) continue;
    settled_ += static_cast<int64_t>(queue_.size());
    for (std::deque<Entry>* left : {&queue_, &imports_}) {
      for (const Entry& entry : *left) {
        if (entry.answer) entry.answer(Ending());
      }
      left->clear();
    }
    queued_bytes_ = 0;
  }
}

absl::Status StoreWriter::problem() const {
  absl::MutexLock lock(&mutex_);
  return problem_;
}

void StoreWriter::SetProblem(const absl::Status& problem) {
  {
    absl::MutexLock lock(&mutex_);
    problem_ = problem;
  }
  hooks_.blocked(problem);
}

bool StoreWriter::ApplyAll(const std::deque<Entry>& entries) {
  std::vector<Batch> batches;
  std::vector<const Entry*> written;  // the entries of these
  for (const Entry& entry : entries) {
    if (entry.batch.empty()) continue;  // it only waits for those before it
    batches.push_back(entry.batch);
    written.push_back(&entry);
  }
  if (batches.empty()) return true;
  for (bool blocked = false;;) {
    const absl::Time began = MonotonicNow();
    absl::StatusOr<std::vector<absl::Status>> results = store_->Apply(batches);
    if (results.ok()) {
      if (hooks_.committed) hooks_.committed(MonotonicNow() - began);
      if (blocked) SetProblem(absl::OkStatus());
      for (size_t i = 0; i < results->size(); ++i) {
        const absl::Status& result = (*results)[i];
        const Entry& entry = *written[i];
        if (entry.answer) entry.answer(result);
        if (result.ok() || entry.answer) continue;
        // The fencing token is stale: somebody else has held the slot since. Refusing a record
        // costs only its measurement, and a restart queues the candidate again. Refusing the
        // result of a stage is fatal: the jobs of this process would differ from those of the
        // store.
        if (absl::IsFailedPrecondition(result) && !CommitsResult(entry.batch)) {
          hooks_.rejected(std::string(result.message()));
          continue;
        }
        hooks_.fatal(absl::StrCat("the record store refused a change: ", result.message()));
        return false;
      }
      return true;
    }
    const absl::StatusCode code = results.status().code();
    if (code != absl::StatusCode::kResourceExhausted && code != absl::StatusCode::kUnavailable) {
      hooks_.fatal(absl::StrCat("the record store failed: ", results.status().message()));
      return false;
    }
    if (!blocked) {
      SetProblem(absl::Status(
          code, code == absl::StatusCode::kUnavailable
                    ? absl::StrCat("the database takes no writes (", results.status().message(),
                                   "); goes on by itself when it does")
                    : "the disk of the database is full; goes on by itself when there is space"));
    }
    blocked = true;
    absl::MutexLock lock(&mutex_);
    // Nothing acknowledged is lost; the rest is found again after a restart.
    if (mutex_.AwaitWithTimeout(absl::Condition(&give_up_), retry_pause_)) return false;
  }
}

absl::StatusOr<std::vector<absl::Status>> StoreWriter::Import(
    const std::vector<v1::Record>& records, absl::Duration limit) {
  HEDDLE_RETURN_IF_ERROR(problem());
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
  std::deque<Entry> entries;
  for (size_t i = 0; i < records.size(); ++i) {
    entries.push_back(
        {{InsertRecord{records[i], 0, true}}, nullptr, [state, i](const absl::Status& s) {
           absl::MutexLock lock(&state->mutex);
           state->answers[i] = s;
           --state->open;
         }});
  }
  const absl::Time end = MonotonicNow() + limit;
  bool queued = false;
  {
    auto room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return imports_.size() < kMaxImports || give_up_;
    };
    absl::MutexLock lock(&mutex_);
    queued = mutex_.AwaitWithTimeout(absl::Condition(&room), end - MonotonicNow());
    if (give_up_) return Ending();
    if (queued) std::move(entries.begin(), entries.end(), std::back_inserter(imports_));
  }
  if (queued) {
    auto all = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mutex) { return state->open == 0; };
    absl::MutexLock lock(&state->mutex);
    if (state->mutex.AwaitWithTimeout(absl::Condition(&all), end - MonotonicNow()))
      return state->answers;
  }
  HEDDLE_RETURN_IF_ERROR(problem());
  return absl::UnavailableError(
      "the database has no time for imports now; import again later, what is there is skipped");
}

}  // namespace heddle::scheduler
