// Predicts how long stages take, from those that have ended. Pure.
//
// A unit of work is one candidate for build and profile, and the whole stage otherwise. Each cell
// keeps the last few observed units and predicts their median. A stage that hung, or many that were
// cut short, thus cannot move the prediction before they fill half of the window.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "proto/common.pb.h"
#include "scheduler/core/ids.h"

namespace heddle::scheduler {

class DurationModel {
 public:
  static constexpr int kWindow = 9;
  // Limit on the cells of one level; a level that would exceed it is cleared. Enough for 10,000
  // jobs of 6 tasks with 4 stages each, at about 80 bytes a cell.
  static constexpr size_t kMaxCells = 250'000;

  struct Where {
    JobId job;
    uint64_t task = 0;  // TaskId of the workload, or of the job and the index; 0: no task
    v1::StageKind kind = v1::STAGE_UNSPECIFIED;
    uint32_t worker_class = 0;  // ClassId; 0: any
  };
  // Ids depend only on the arguments, in every process.
  static uint64_t TaskId(std::string_view workload_key);
  static uint64_t TaskId(JobId job, TaskIndex task);
  static uint32_t ClassId(std::string_view worker_class);

  // Ignores durations that are not finite or not positive.
  void Observe(const Where& where, absl::Duration unit);
  // The median of the most specific cell with observations: that of the task, else of the job, else
  // of the stage kind; each for this class of workers, else for any class. Without any, the Prior.
  absl::Duration Predict(const Where& where) const;
  static absl::Duration Prior(v1::StageKind kind);
  size_t cells() const { return task_.size() + job_.size() + stage_.size(); }

 private:
  struct Window {
    std::array<float, kWindow> seconds{};
    int count = 0;  // observations so far
    float median = 0;
    void Add(float value);
  };
  struct Cell {
    uint64_t of = 0;  // task or job
    int32_t kind = 0;
    uint32_t worker_class = 0;
    friend bool operator==(const Cell&, const Cell&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Cell& c) {
      return H::combine(std::move(h), c.of, c.kind, c.worker_class);
    }
  };
  using Level = absl::flat_hash_map<Cell, Window>;
  static void Add(Level* level, uint64_t of, const Where& where, float seconds);
  static const Window* Find(const Level& level, uint64_t of, const Where& where);

  Level task_, job_, stage_;
};

}  // namespace heddle::scheduler
