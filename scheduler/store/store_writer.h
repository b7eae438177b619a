// The one thread that writes to the record store. Batches are applied in the order they come, as
// many at a time as have gathered (group commit), so that one sync of the disk serves them all.
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
    // The store takes no writes for now (disk full, locked); nothing is lost, it is tried again
    // every second. Empty: it does again.
    std::function<void(std::string reason)> blocked;
    // A record was not taken because its fencing token is older than one seen; the others were.
    std::function<void(std::string reason)> rejected;
    // The store and the scheduler no longer agree, or the disk fails: the process must end, what
    // was acknowledged is safe.
    std::function<void(std::string reason)> fatal;
  };
  StoreWriter(RecordStore* store, Hooks hooks);
  // Applies what is queued, then ends.
  ~StoreWriter();

  // From now on nothing is waited for that the store does not take: for the end of the process.
  void StopWaiting();

  // `durable`, if set, is called on the writer's thread once the batch is on disk. Blocks while the
  // queue is full; after StopWaiting the batch is dropped instead, and never durable.
  void Write(Batch batch, std::function<void()> durable = nullptr);
  // The same for changes that the store may refuse: `answer` gets its verdict, on the writer's
  // thread; Unavailable if the process ends before.
  void WriteAnswered(Batch batch, std::function<void(const absl::Status&)> answer);
  // Writes imported records and waits for the store's verdict on each, as RecordStore::Apply gives
  // it. Unavailable if that takes longer than `limit`; what was written until then stays.
  absl::StatusOr<std::vector<absl::Status>> Import(const std::vector<v1::Record>& records,
                                                   absl::Duration limit);
  // Waits until everything written before is durable, or `limit` has passed (the store may take no
  // writes for long).
  void Flush(absl::Duration limit);

 private:
  struct Entry {
    Batch batch;
    std::function<void()> durable;
    std::function<void(const absl::Status&)> answer;
  };
  void Enqueue(Entry entry);
  void Loop();
  bool ApplyAll(const std::deque<Entry>& entries);

  // Entries, not bytes: one is at most a round of candidates or a search state (some MiB).
  static constexpr size_t kMaxQueue = 4096;
  static constexpr size_t kMaxGroup = 512;  // keeps one transaction under a second

  RecordStore* const store_;
  const Hooks hooks_;
  absl::Mutex mutex_;
  std::deque<Entry> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t queued_ ABSL_GUARDED_BY(mutex_) = 0;  // entries ever queued
  int64_t settled_ ABSL_GUARDED_BY(mutex_) =
      0;  // of these, the ones that are durable, or never will be
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool give_up_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle::scheduler
