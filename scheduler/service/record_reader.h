// Reads the store for the core thread, which must not wait for a disk: thousands of jobs may wait
// for what is on record of one device.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// Runs lookups one after another on a thread of its own.
class RecordReader {
 public:
  explicit RecordReader(RecordStore* store);
  // Ends after the lookup at hand; those behind it are dropped.
  ~RecordReader();
  void Read(std::function<void(RecordStore*)> lookup);

 private:
  void Run();

  RecordStore* const store_;
  absl::Mutex mutex_;
  std::deque<std::function<void(RecordStore*)>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle::scheduler
