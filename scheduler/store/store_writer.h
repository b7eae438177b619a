// The only thread that writes to the record store. It applies batches in the order in which they
// come, and all that have gathered in one transaction (group commit), so that one sync of the disk
// serves them all. Imported records have a queue of their own: each transaction takes only a few of
// them, behind the batches that have gathered, so imports do not hold decisions up.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

class StoreWriter {
 public:
  struct Hooks {
    // The store does not take writes for now: ResourceExhausted (the disk is full) or Unavailable
    // (another program has locked the database). Nothing is lost; the write is tried again every
    // second. OK: it takes writes again.
    std::function<void(const absl::Status& problem)> blocked;
    // A record was refused because its fencing token is older than one seen; the other records were
    // taken.
    std::function<void(std::string reason)> rejected;
    // The store and the scheduler no longer agree, or the disk fails. The process must end; what
    // was acknowledged is safe.
    std::function<void(std::string reason)> fatal;
    // A transaction was written, which took this long; may be null.
    std::function<void(absl::Duration took)> committed{};
  };
  // `retry_pause`: between attempts to write to a store that takes no writes.
  StoreWriter(RecordStore* store, Hooks hooks, absl::Duration retry_pause = absl::Seconds(1));
  // Applies what is queued, then ends.
  ~StoreWriter();

  // For the end of the process: from now on the writer does not wait for a store that takes no
  // writes.
  void StopWaiting();

  // Queues a batch. `durable`, if set, is called on the writer's thread when the batch, and all
  // that was queued before it, is on disk; the batch may be empty. Blocks while the queue is full.
  // After StopWaiting the batch is dropped instead and never becomes durable.
  void Write(Batch batch, std::function<void()> durable = nullptr);
  // The same for changes that the store may refuse. `answer` gets the store's status on the
  // writer's thread, or Unavailable if the process ends before.
  void WriteAnswered(Batch batch, std::function<void(const absl::Status&)> answer);
  // Why the store takes no writes now, as told to Hooks::blocked; OK: it takes them.
  absl::Status problem() const;
  // Writes imported records and waits for the store's status of each (see RecordStore::Apply).
  // problem() if there is one, or Unavailable if it takes longer than `limit`, the wait for a place
  // in the queue included; records written by then stay, and others may still follow.
  absl::StatusOr<std::vector<absl::Status>> Import(const std::vector<v1::Record>& records,
                                                   absl::Duration limit);
  // Waits until everything queued before, imports aside, is durable, or until `limit` has passed,
  // because the store may not take writes for long.
  void Flush(absl::Duration limit);

 private:
  struct Entry {
    Batch batch;
    std::function<void()> durable;
    std::function<void(const absl::Status&)> answer;
    size_t bytes = 0;  // about
  };
  void Enqueue(Entry entry);
  void Loop();
  // The next transaction, in this order; empty: nothing is queued. `batches`: those that are no
  // imports.
  std::deque<Entry> TakeGroup(int64_t* batches) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ApplyAll(const std::deque<Entry>& entries);
  void SetProblem(const absl::Status& problem);

  // The queue is full when either limit is reached, so it holds at most one entry (a few MiB) more.
  static constexpr size_t kMaxQueue = 4096;
  static constexpr size_t kMaxQueueBytes = size_t{256} << 20;
  static constexpr size_t kMaxGroup = 512;  // keeps one transaction under a second
  // Imported records that wait: an import is queued as a whole while there are fewer. And those
  // that one transaction takes, which add some milliseconds to it.
  static constexpr size_t kMaxImports = 1024;
  static constexpr size_t kImportsOfGroup = 64;

  RecordStore* const store_;
  const Hooks hooks_;
  const absl::Duration retry_pause_;
  mutable absl::Mutex mutex_;
  std::deque<Entry> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Entry> imports_ ABSL_GUARDED_BY(mutex_);
  int64_t queued_ ABSL_GUARDED_BY(mutex_) = 0;  // entries ever in queue_
  int64_t settled_ ABSL_GUARDED_BY(mutex_) =
      0;  // of these, entries that are durable or never will be
  absl::Status problem_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool give_up_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle::scheduler
