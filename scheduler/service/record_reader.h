// Threads that read the store for others. The core thread hands its reads to one of them, so that it does not wait for a
// disk when thousands of jobs ask for the records of one device key. Another one, of low priority, reads long answers to
// users, so that these reads do not take the cores that decisions need.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// Reads a page of records as RecordStore.QueryPage does, on a thread of its choice.
using ReadPage = std::function<absl::StatusOr<RecordPage>(
    const v1::RecordQuery& query, const std::optional<RecordPlace>& after, int64_t limit)>;

// Runs lookups one after another on its own thread.
class RecordReader {
 public:
  enum class Priority {
    kBeforeOthers,  // where this process may (base/thread_priority.h)
    kLess,          // about a tenth of the share of a usual thread
  };
  RecordReader(RecordStore* store, Priority priority);
  // Ends after the running lookup; queued ones are dropped.
  ~RecordReader();
  void Read(std::function<void(RecordStore*)> lookup);

 private:
  void Run();

  RecordStore* const store_;
  const Priority priority_;
  absl::Mutex mutex_;
  std::deque<std::function<void(RecordStore*)>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle::scheduler
