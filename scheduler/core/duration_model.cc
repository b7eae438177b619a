#include "scheduler/core/duration_model.h"

#include <algorithm>
#include <cmath>

namespace heddle::scheduler {
namespace {

// FNV-1a, 64 bit.
uint64_t Hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

}  // namespace

uint64_t DurationModel::TaskId(std::string_view workload_key) { return Hash(workload_key) | 1; }
// Even, whereas ids of workloads are odd, so the two never collide. A job has fewer than 2^24
// tasks, because the import message could not hold more.
uint64_t DurationModel::TaskId(JobId job, TaskIndex task) {
  return (static_cast<uint64_t>(job.value) << 25) + (static_cast<uint64_t>(task.value) + 1) * 2;
}
uint32_t DurationModel::ClassId(std::string_view worker_class) {
  const uint64_t hash = Hash(worker_class);
  return static_cast<uint32_t>(hash ^ (hash >> 32)) | 1;
}

void DurationModel::Window::Add(float value) {
  seconds[static_cast<size_t>(count++ % kWindow)] = value;
  const int filled = std::min(count, kWindow);
  std::array<float, kWindow> sorted = seconds;
  std::nth_element(sorted.begin(), sorted.begin() + filled / 2, sorted.begin() + filled);
  median = sorted[static_cast<size_t>(filled / 2)];
}

void DurationModel::Add(Level* level, uint64_t of, const Where& where, float seconds) {
  if (level->size() + 2 > kMaxCells) level->clear();
  (*level)[{of, where.kind, where.worker_class}].Add(seconds);
  if (where.worker_class != 0) (*level)[{of, where.kind, 0}].Add(seconds);
}

const DurationModel::Window* DurationModel::Find(const Level& level, uint64_t of,
                                                 const Where& where) {
  auto it = level.find({of, where.kind, where.worker_class});
  if (it == level.end() && where.worker_class != 0) it = level.find({of, where.kind, 0});
  return it == level.end() ? nullptr : &it->second;
}

void DurationModel::Observe(const Where& where, absl::Duration unit) {
  const double seconds = absl::ToDoubleSeconds(unit);
  if (!std::isfinite(seconds) || seconds <= 0) return;
  const float value = static_cast<float>(seconds);
  if (where.task != 0) Add(&task_, where.task, where, value);
  Add(&job_, static_cast<uint64_t>(where.job.value), where, value);
  Add(&stage_, 0, where, value);
}

absl::Duration DurationModel::Predict(const Where& where) const {
  const Window* window = where.task != 0 ? Find(task_, where.task, where) : nullptr;
  if (window == nullptr) window = Find(job_, static_cast<uint64_t>(where.job.value), where);
  if (window == nullptr) window = Find(stage_, 0, where);
  return window == nullptr ? Prior(where.kind) : absl::Seconds(window->median);
}

absl::Duration DurationModel::Prior(v1::StageKind kind) {
  switch (kind) {
    case v1::STAGE_IMPORT:
    case v1::STAGE_PLAN:
    case v1::STAGE_COMPILE:
    case v1::STAGE_COMPARE:
      return absl::Seconds(5);
    case v1::STAGE_BUILD:
      return absl::Milliseconds(500);
    default:
      return absl::Seconds(1);
  }
}

}  // namespace heddle::scheduler
