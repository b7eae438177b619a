#include "scheduler/core/forecast.h"

#include <algorithm>

namespace heddle::scheduler {
namespace {

DurationModel::Where At(const Job& job, v1::StageKind kind, std::optional<TaskIndex> index) {
  DurationModel::Where where;
  where.job = job.id;
  where.kind = kind;
  if (index) {
    const Task& task = job.tasks[static_cast<size_t>(index->value)];
    where.task =
        task.key.empty() ? DurationModel::TaskId(job.id, *index) : DurationModel::TaskId(task.key);
  }
  // How long a candidate runs depends on the device, not on the worker's CPU.
  if (kind == v1::STAGE_PROFILE) {
    where.worker_class = DurationModel::ClassId(job.params.device_key);
  }
  return where;
}

// Time to complete work of `serial` seconds in total, of which `busy` seconds are at the
// bottleneck, with up to `beside` parts in progress at a time. The parts queue only at the
// bottleneck. This is mean value analysis of a closed queueing network with one queue (Reiser and
// Lavenberg 1980).
double Closed(double serial, double busy, int beside) {
  const double elsewhere = std::max(0.0, serial - busy);
  // Mean queue length and utilization of the bottleneck.
  double queue = 0, served = 0, span = serial;
  for (int n = 1; n <= beside && span > 0; ++n) {
    // A part that arrives finds the one in service half done, because service times vary little.
    const double there = busy * (1 + queue - served / 2);
    span = std::max(busy, (elsewhere + there) / n);
    queue = std::min<double>(n, there / span);
    served = busy / span;
  }
  return span;
}

}  // namespace

void Forecast::SetSlots(int lane, int count, double displaced) {
  if (lane >= static_cast<int>(lanes_.size())) lanes_.resize(static_cast<size_t>(lane) + 1);
  lanes_[static_cast<size_t>(lane)] = {count, displaced};
  horizon_.Set(static_cast<size_t>(lane), LaneSeconds(lane));
}

double Forecast::Slots(int lane) const {
  const bool known = lane < static_cast<int>(lanes_.size());
  return std::max(1, known ? lanes_[static_cast<size_t>(lane)].slots : 0);
}

double Forecast::Displaced(int lane) const {
  return lane < static_cast<int>(lanes_.size()) ? lanes_[static_cast<size_t>(lane)].displaced : 0;
}

double Forecast::Busiest(double cpu_s, double device_s, int lane) const {
  return std::max((cpu_s + Displaced(lane) * device_s) / Slots(0), device_s / Slots(lane));
}

void Forecast::Observe(const LiveStage& stage, const Job& job, absl::Duration unit) {
  DurationModel::Where where = At(job, stage.kind, stage.task);
  if (stage.kind != v1::STAGE_PROFILE) where.worker_class = stage.worker_class;
  durations_.Observe(where, unit);
}

double Forecast::Seconds(const Job& job, v1::StageKind kind, std::optional<TaskIndex> task) const {
  return absl::ToDoubleSeconds(durations_.Predict(At(job, kind, task)));
}

absl::Duration Forecast::Stage(const Job& job, v1::StageKind kind, std::optional<TaskIndex> task,
                               int units) const {
  return durations_.Predict(At(job, kind, task)) * std::max(1, units);
}

absl::Duration Forecast::InFlight(const Job& job, int lane) const {
  double build_s = 0, profile_s = 0;
  size_t builds = 0, profiles = 0;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    const auto& open = job.tasks[i].open;
    if (open.empty()) continue;
    const auto unbuilt = std::count_if(open.begin(), open.end(), [](const auto& entry) {
      return std::holds_alternative<Unbuilt>(entry.second.where) ||
             std::holds_alternative<Building>(entry.second.where);
    });
    const TaskIndex index{static_cast<int>(i)};
    build_s += static_cast<double>(unbuilt) * Seconds(job, v1::STAGE_BUILD, index);
    profile_s += static_cast<double>(open.size()) * Seconds(job, v1::STAGE_PROFILE, index);
    builds += static_cast<size_t>(unbuilt);
    profiles += open.size();
  }
  auto spread = [&](double seconds, size_t pieces, int of) {
    return pieces == 0 ? 0 : seconds / std::min(Slots(of), static_cast<double>(pieces));
  };
  return absl::Seconds(spread(build_s, builds, 0) + spread(profile_s, profiles, lane));
}

Forecast::TaskLoad Forecast::Estimate(const Job& job, TaskIndex index, int lane, int extra) const {
  const Task& task = job.tasks[static_cast<size_t>(index.value)];
  if (std::holds_alternative<Finished>(task.phase)) return {};
  const int trials = std::max(0, task.remaining()) + extra;
  const int unproposed = std::max(0, trials - static_cast<int>(task.open.size()));
  const int batch = std::max(1, job.params.batch);
  const int rounds = (unproposed + batch - 1) / batch;
  DurationModel::Where where = At(job, v1::STAGE_PROFILE, index);
  const double profile = absl::ToDoubleSeconds(durations_.Predict(where));
  where.worker_class = 0;
  auto seconds = [&](v1::StageKind kind) {
    where.kind = kind;
    return absl::ToDoubleSeconds(durations_.Predict(where));
  };
  const double around = rounds * (seconds(v1::STAGE_PROPOSE) + seconds(v1::STAGE_UPDATE));
  const double build = seconds(v1::STAGE_BUILD);
  TaskLoad load;
  load.cpu_s = around + trials * build;
  load.device_s = trials * profile;
  // Builds and measurements of a round overlap, except for the first build or the last measurement.
  // A round seldom finds all slots free, because other tasks hold some.
  const double others = 1 + PipelineDepth(job.params, static_cast<int>(Slots(lane))) / 2.0;
  auto spread = [&](int of) {
    return std::clamp(Slots(of) / others, 1.0, static_cast<double>(batch));
  };
  const double builds = trials * build / spread(0);
  const double profiles = trials * profile / spread(lane);
  load.span_s = around + (Displaced(lane) > 0
                              ? builds + profiles
                              : std::max(builds, profiles) + rounds * std::min(build, profile));
  return load;
}

void Forecast::Count(const Load& load, double sign) {
  Add(0, sign * load.joint_s);
  Add(load.lane, sign * load.device_s);
  deadline_s_ += sign * load.deadline_s;
}

void Forecast::Add(int lane, double seconds) {
  const auto index = static_cast<size_t>(lane);
  if (index >= lane_s_.size()) lane_s_.resize(index + 1);
  lane_s_[index] += seconds;
  horizon_.Set(index, LaneSeconds(lane));
}

void Forecast::Refresh(const Job& job, int lane, int trials_left, std::optional<TaskIndex> task) {
  auto it = jobs_.find(job.id);
  if (it != jobs_.end()) {
    Count(it->second.load, -1);
    const absl::Time deadline = it->second.load.deadline;
    if (job.final() || job.paused || deadline != job.params.deadline)
      due_.Erase({deadline, job.id});
  }
  if (job.final() || job.paused) {
    if (it != jobs_.end()) jobs_.erase(it);
    if (jobs_.empty()) {
      lane_s_.assign(lane_s_.size(), 0), deadline_s_ = 0;  // rounding
      horizon_ = {};
    }
    return;
  }
  if (it == jobs_.end()) it = jobs_.emplace(job.id, Entry{}).first;
  Entry& entry = it->second;
  int granted = 0, unfinished = 0;
  for (const Task& one : job.tasks) {
    if (std::holds_alternative<Finished>(one.phase)) continue;
    granted += std::max(0, one.remaining());
    ++unfinished;
  }
  const int extra = std::max(0, trials_left - granted) / std::max(1, unfinished);
  if (!task || entry.tasks.size() != job.tasks.size()) {
    entry.tasks.resize(job.tasks.size());
    for (size_t i = 0; i < job.tasks.size(); ++i)
      entry.tasks[i] = Estimate(job, TaskIndex{static_cast<int>(i)}, lane, extra);
  } else {
    entry.tasks[static_cast<size_t>(task->value)] = Estimate(job, *task, lane, extra);
    entry.next = (entry.next + 1) % entry.tasks.size();
    entry.tasks[entry.next] = Estimate(job, TaskIndex{static_cast<int>(entry.next)}, lane, extra);
  }
  Load load;
  load.lane = lane;
  load.deadline = job.params.deadline;
  double longest = 0, serial = 0;
  int open = 0;
  load.most_ready = std::max(0, std::min(trials_left, unfinished * job.params.batch));
  for (const TaskLoad& one : entry.tasks) {
    load.cpu_s += one.cpu_s;
    load.device_s += one.device_s;
    serial += one.span_s;
    longest = std::max(longest, one.span_s);
    open += one.span_s > 0;
  }
  const int depth = PipelineDepth(job.params, static_cast<int>(Slots(lane)));
  const int beside = std::max(1, std::min(depth, open));
  load.share_s = Busiest(load.cpu_s, load.device_s, lane);
  load.span_s = std::max({longest, Closed(serial, load.share_s, beside), load.share_s});
  const double last = (job.params.plan ? Seconds(job, v1::STAGE_PLAN, std::nullopt) : 0) +
                      Seconds(job, v1::STAGE_COMPILE, std::nullopt) +
                      (job.params.compare ? Seconds(job, v1::STAGE_COMPARE, std::nullopt) : 0);
  const double first = std::holds_alternative<Importing>(job.phase)
                           ? Seconds(job, v1::STAGE_IMPORT, std::nullopt)
                           : 0;
  load.cpu_s += first + last;
  load.span_s += first + last;
  load.joint_s = load.cpu_s + Displaced(lane) * load.device_s;
  if (load.deadline != absl::InfiniteFuture())
    load.deadline_s = Busiest(load.cpu_s, load.device_s, lane);
  entry.load = load;
  Count(load, 1);
  if (load.deadline != absl::InfiniteFuture())
    due_.Put({load.deadline, job.id}, {load.lane, load.cpu_s, load.device_s});
}

const Forecast::Load* Forecast::Of(JobId job) const {
  auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : &it->second.load;
}

double Forecast::LaneSeconds(int lane) const {
  return lane < static_cast<int>(lane_s_.size())
             ? std::max(0.0, lane_s_[static_cast<size_t>(lane)]) / Slots(lane)
             : 0;
}

absl::Time Forecast::Finish(const Job& job, bool earlier_deadlines_first, absl::Time now) const {
  auto own = jobs_.find(job.id);
  if (own == jobs_.end()) return absl::InfiniteFuture();
  const Load& load = own->second.load;
  DueWork::Work work{load.lane, load.cpu_s, load.device_s};
  if (earlier_deadlines_first) {
    due_.AddBefore(load.deadline, &work);
  } else {
    for (const auto& [id, other] : jobs_) {
      if (id == job.id) continue;
      work.cpu_s += std::min(other.load.cpu_s, load.cpu_s);
      if (other.load.lane == load.lane)
        work.device_s += std::min(other.load.device_s, load.device_s);
    }
  }
  const double seconds = std::max(load.span_s, Busiest(work.cpu_s, work.device_s, load.lane));
  return now + absl::Seconds(seconds);
}

}  // namespace heddle::scheduler
