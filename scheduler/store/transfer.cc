#include "scheduler/store/transfer.h"

#include <algorithm>

namespace heddle::scheduler {
namespace {

constexpr int64_t kLeastRefresh = 16;  // a batch

}  // namespace

void RecentExperience::Keep(const WorkloadId& id, const v1::Experience& learned) {
  const auto old = std::find_if(experience_.begin(), experience_.end(),
                                [&](const auto& known) { return known.first == id; });
  if (!Replaces(learned, old == experience_.end() ? v1::Experience() : old->second)) return;
  if (old != experience_.end()) experience_.erase(old);
  experience_.emplace_front(id, learned);
  if (experience_.size() > kMost) experience_.pop_back();
}

std::vector<Experience> RecentExperience::Of(const WorkloadId& id) const {
  std::vector<Experience> others;
  for (const auto& [workload, learned] : experience_) {
    if (KinshipOf(workload, id) != Kinship::kNone) others.push_back({workload, learned});
  }
  return others;
}

void OthersModels::Put(const OthersModelId& id, const v1::OthersModel& model) {
  models_.erase(id);
  if (model.model().empty()) return;
  models_.emplace(id, model);
  if (models_.size() <= kMost) return;
  models_.erase(std::min_element(models_.begin(), models_.end(), [](const auto& a, const auto& b) {
    return a.second.made_unix_ns() < b.second.made_unix_ns();
  }));
}

void OthersModels::Count(const std::string& device_key, int64_t trials) {
  counted_[device_key] += trials;
  for (auto& [id, model] : models_) {
    if (id.device_key == device_key) model.set_since(model.since() + trials);
  }
}

int64_t OthersModels::counted(const std::string& device_key) const {
  const auto found = counted_.find(device_key);
  return found == counted_.end() ? 0 : found->second;
}

const v1::OthersModel* OthersModels::Find(const OthersModelId& id) const {
  const auto found = models_.find(id);
  return found == models_.end() ? nullptr : &found->second;
}

bool IsStale(const v1::OthersModel& model) {
  int64_t measured = 0;
  for (const auto& teacher : model.teachers()) measured += teacher.measured();
  return model.since() >= std::clamp(measured / 4, kLeastRefresh, kRefresh);
}

bool Taught(const v1::OthersModel& model, const WorkloadId& id) {
  return std::any_of(model.teachers().begin(), model.teachers().end(), [&](const auto& teacher) {
    return teacher.workload_key() == id.key && teacher.target() == id.target &&
           teacher.device_key() == id.device_key;
  });
}

bool Suits(const v1::OthersModel& model, const WorkloadId& search, const Experience* nearest) {
  if (Taught(model, search)) return false;
  return nearest == nullptr || nearest->workload.key != search.key ||
         Taught(model, nearest->workload);
}

}  // namespace heddle::scheduler
