// What tuning a model would involve: its tasks, their schedules, and how long the trials take.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "absl/time/time.h"
#include "client/views/terminal.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/machine/target_info.h"

namespace heddle::client {

struct TuningWork {
  struct Task {
    graph::Task task;
    double schedules = 1;  // size of its space
  };
  std::vector<Task> tasks;  // heaviest first
  size_t kernels = 0;       // calls in the model
  double flops = 0;         // of the whole model
  int64_t trials = 0;       // a space smaller than `trials_per_task` needs no more than its size
};

TuningWork WorkOf(const graph::FusedGraph& fused, const machine::TargetInfo& target,
                  int trials_per_task);

// An estimate from a typical trial: build, check, warm-up and repeats.
absl::Duration DurationOf(const TuningWork& work, int device_slots);

// "1.23 MFLOP"; from 1e9 on "1.23 GFLOP".
std::string FormatFlops(double flops);
Table WorkTable(const TuningWork& work);
nlohmann::json TasksToJson(const TuningWork& work);

}  // namespace heddle::client
