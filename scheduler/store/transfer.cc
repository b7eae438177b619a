#include "scheduler/store/transfer.h"

#include <algorithm>

namespace heddle::scheduler {
namespace {

constexpr int64_t kLeastRefresh = 16;  // one batch

}  // namespace

void RecentTransferSamples::Keep(const WorkloadId& id, const v1::TransferSamples& learned) {
  const auto old = std::find_if(transfer_samples_.begin(), transfer_samples_.end(),
                                [&](const auto& known) { return known.first == id; });
  if (!Replaces(learned, old == transfer_samples_.end() ? v1::TransferSamples() : old->second))
    return;
  if (old != transfer_samples_.end()) transfer_samples_.erase(old);
  transfer_samples_.emplace_front(id, learned);
  if (transfer_samples_.size() > kMost) transfer_samples_.pop_back();
}

void RecentTransferSamples::Forget(const WorkloadId& id) {
  std::erase_if(transfer_samples_, [&](const auto& known) { return known.first == id; });
}

std::vector<TransferSamples> RecentTransferSamples::Of(const WorkloadId& id) const {
  std::vector<TransferSamples> others;
  for (const auto& [workload, learned] : transfer_samples_) {
    if (RelatednessOf(workload, id) != Relatedness::kNone) others.push_back({workload, learned});
  }
  return others;
}

void TransferModels::Put(const TransferModelId& id, const v1::TransferModel& model) {
  models_.erase(id);
  if (model.model().empty()) return;
  models_.emplace(id, model);
  if (models_.size() <= kMost) return;
  models_.erase(std::min_element(models_.begin(), models_.end(), [](const auto& a, const auto& b) {
    return a.second.made_unix_ns() < b.second.made_unix_ns();
  }));
}

void TransferModels::Forget(const std::string& target, const std::string& device_key) {
  std::erase_if(models_, [&](const auto& entry) {
    return entry.first.target == target && entry.first.device_key == device_key;
  });
}

void TransferModels::Count(const std::string& device_key, int64_t trials) {
  counted_[device_key] += trials;
  for (auto& [id, model] : models_) {
    if (id.device_key == device_key) model.set_since(model.since() + trials);
  }
}

int64_t TransferModels::counted(const std::string& device_key) const {
  const auto found = counted_.find(device_key);
  return found == counted_.end() ? 0 : found->second;
}

const v1::TransferModel* TransferModels::Find(const TransferModelId& id) const {
  const auto found = models_.find(id);
  return found == models_.end() ? nullptr : &found->second;
}

bool LearnedFromAll(const v1::TransferModel& model) { return model.measured() > 0; }

bool IsStale(const v1::TransferModel& model) {
  int64_t measured = model.measured();
  for (const auto& teacher : model.teachers()) measured += teacher.measured();
  const int64_t most = LearnedFromAll(model) ? kRefreshOfAll : kRefresh;
  return model.since() >= std::clamp(measured / 4, kLeastRefresh, most);
}

bool Taught(const v1::TransferModel& model, const WorkloadId& id) {
  return std::any_of(model.teachers().begin(), model.teachers().end(), [&](const auto& teacher) {
    return teacher.workload_key() == id.key && teacher.target() == id.target &&
           teacher.device_key() == id.device_key;
  });
}

bool MayStartFrom(const v1::TransferModel& model, const WorkloadId& search, bool measured,
                  const TransferSamples* nearest) {
  if (LearnedFromAll(model)) return !measured;
  if (Taught(model, search)) return false;
  return nearest == nullptr || nearest->workload.key != search.key ||
         Taught(model, nearest->workload);
}

}  // namespace heddle::scheduler
