// The remaining work of the jobs with a deadline, in the order of their deadlines. The work that is due before a moment is
// summed without a look at each of the jobs. Pure.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/core/ids.h"

namespace heddle::scheduler {

class DueWork {
 public:
  using Due = std::pair<absl::Time, JobId>;
  struct Work {
    int lane = 0;                    // of `device_s`
    double cpu_s = 0, device_s = 0;  // slot-seconds
  };

  // Adds a job, or replaces its work.
  void Put(Due due, const Work& work);
  // Does nothing if there is no such job.
  void Erase(Due due);
  // Adds to `sum` the work that is due before `end`: the work on CPU slots, and that of the lane of `sum` on devices.
  void AddBefore(absl::Time end, Work* sum) const;

 private:
  // Up to so many jobs are summed one by one, in the order of their deadlines.
  static constexpr size_t kMostOfBlock = 128;

  struct Entry {
    Due due;
    Work work;
  };
  // Jobs whose deadlines follow each other, at least one, and their sums.
  struct Block {
    std::vector<Entry> entries;
    double cpu_s = 0;
    std::vector<double> device_s;  // by lane
  };
  // The index of the first block whose last job is not due before `due`; the number of blocks if there is none.
  size_t BlockOf(const Due& due) const;
  // Summed anew rather than changed by differences, whose rounding errors would add up.
  static void Sum(Block* block);

  std::vector<Block> blocks_;
};

}  // namespace heddle::scheduler
