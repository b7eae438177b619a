#include "scheduler/core/machines/candidate_flow.h"

#include <algorithm>
#include <limits>

namespace heddle::scheduler {
namespace {

// A profile stage with this many candidates queued does not run empty before its next answer.
constexpr size_t kReadyQueue = 2;

// Whether a build is running whose candidate the profile stage may take.
bool AnyBuilding(const Task& task, const LiveStage& profile) {
  return std::any_of(task.open.begin(), task.open.lower_bound(profile.before),
                     [](const auto& entry) { return Is<Building>(entry.second.where); });
}

}  // namespace

bool CandidateFlow::Feed(Job& job, TaskIndex index, size_t depth) {
  Task& task = job.tasks[index.value];
  std::vector<LiveStage*> open;
  for (AttemptId id : task.profiles) {
    LiveStage& stage = live_->at(id);
    if (!stage.input_closed && !stage.cancelled) open.push_back(&stage);
  }
  bool fed = false;
  if (open.empty()) return fed;
  for (auto& [id, candidate] : task.open) {
    if (!Is<Built>(candidate.where)) continue;
    LiveStage* next = nullptr;
    for (LiveStage* stage : open) {
      const bool takes = id < stage->before;
      if (takes && (next == nullptr || stage->candidates.size() < next->candidates.size()))
        next = stage;
    }
    if (next == nullptr || next->candidates.size() >= depth) return fed;
    candidate.where = Profiling{next->id};
    if (next->candidates.empty()) next->unit_since = effects_->now();
    next->candidates.insert(id);
    effects_->Emit(FeedProfile{next->id, job.id, id});
    fed = true;
  }
  return fed;
}

void CandidateFlow::FeedShortQueues() {
  for (const auto& [job, task] : changed_) Feed(jobs_->at(job), task, kReadyQueue);
}

std::vector<JobId> CandidateFlow::FeedAndClose() {
  std::vector<JobId> fed;
  for (const auto& [id, index] : changed_) {
    Job& job = jobs_->at(id);
    if (Feed(job, index, std::numeric_limits<size_t>::max())) fed.push_back(id);
    const Task& task = job.tasks[index.value];
    for (AttemptId attempt : task.profiles) {
      LiveStage& stage = live_->at(attempt);
      if (!stage.input_closed && !AnyBuilding(task, stage)) Close(stage);
    }
  }
  changed_.clear();
  return fed;
}

void CandidateFlow::Close(LiveStage& stage) {
  stage.input_closed = true;
  effects_->Emit(CloseProfile{stage.id});
}

}  // namespace heddle::scheduler
