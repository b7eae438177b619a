// Limits how many calls of a kind run at a time.
#pragma once

#include <atomic>

namespace heddle::scheduler {

// Counts a call for as long as this lives, and tells whether it is within the limit.
class Permit {
 public:
  Permit(std::atomic<int>* count, int limit) : count_(count), free_(++*count <= limit) {}
  ~Permit() { --*count_; }
  Permit(const Permit&) = delete;
  Permit& operator=(const Permit&) = delete;
  bool free() const { return free_; }

 private:
  std::atomic<int>* count_;
  bool free_;
};

}  // namespace heddle::scheduler
