#include "scheduler/service/record_reader.h"

#include <utility>

#include "base/thread_priority.h"

namespace heddle::scheduler {

RecordReader::RecordReader(RecordStore* store, Priority priority)
    : store_(store), priority_(priority), thread_([this] { Run(); }) {}

RecordReader::~RecordReader() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void RecordReader::Read(std::function<void(RecordStore*)> lookup) {
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(lookup));
}

void RecordReader::Run() {
  if (priority_ == Priority::kLess) {
    RunWithLess();
  } else {
    (void)RunBeforeOthers();
  }
  while (true) {
    std::function<void(RecordStore*)> lookup;
    {
      auto work = [this]()
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !queue_.empty() || stop_; };
      absl::MutexLock lock(&mutex_, absl::Condition(&work));
      if (stop_) return;
      lookup = std::move(queue_.front());
      queue_.pop_front();
    }
    lookup(store_);
  }
}

}  // namespace heddle::scheduler
