#include "client/views/tuning_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "compiler/ir/text.h"
#include "compiler/schedule/space.h"

namespace heddle::client {

TuningWork WorkOf(const graph::FusedGraph& fused, const machine::TargetInfo& target,
                  int trials_per_task) {
  TuningWork work;
  work.kernels = fused.groups.size();
  for (graph::Task& task : graph::ExtractTasks(fused)) {
    double schedules = 1;
    if (const auto program = ir::Parse(task.workload); program.ok()) {
      if (const auto space = schedule::MakeSpace(*program, target); space.ok())
        schedules = (*space)->Size();
    }
    work.flops += task.flops * task.weight;
    work.trials += static_cast<int64_t>(std::min<double>(trials_per_task, schedules));
    work.tasks.push_back({std::move(task), schedules});
  }
  return work;
}

absl::Duration DurationOf(const TuningWork& work, int device_slots) {
  constexpr absl::Duration kTrial = absl::Milliseconds(200);
  return kTrial * work.trials / std::max(1, device_slots);
}

std::string FormatFlops(double flops) {
  return flops < 1e9 ? fmt::format("{:.3g} MFLOP", flops / 1e6)
                     : fmt::format("{:.3g} GFLOP", flops / 1e9);
}

Table WorkTable(const TuningWork& work) {
  Table table({"task", "uses", "MFLOP", "schedules", "key"});
  for (const auto& [task, schedules] : work.tasks) {
    table.Add(
        {task.label, fmt::format("{}", task.weight), fmt::format("{:.1f}", task.flops / 1e6),
         schedules < 1e7 ? fmt::format("{:.0f}", schedules) : fmt::format("{:.1e}", schedules),
         task.key});
  }
  return table;
}

nlohmann::json TasksToJson(const TuningWork& work) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [task, schedules] : work.tasks) {
    list.push_back({{"key", task.key},
                    {"label", task.label},
                    {"weight", task.weight},
                    {"flops", task.flops},
                    {"space_size", schedules}});
  }
  return list;
}

}  // namespace heddle::client
