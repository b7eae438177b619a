#include "worker/supervisor/stage_table.h"

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace heddle::worker {

const SlotConfig* StageTable::FindSlot(const std::string& name) const {
  for (const SlotConfig& slot : slots_) {
    if (slot.name == name) return &slot;
  }
  return nullptr;
}

void StageTable::SetGrants(std::vector<Grant> grants, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  grants_.clear();
  for (Grant& grant : grants) {
    const std::string id = grant.lease_id;
    grants_[id] = std::move(grant);
  }
  StopInvalid(now);
}

void StageTable::StopExpired(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  StopInvalid(now);
}

bool StageTable::Granted(const std::string& lease_id, const std::string& slot,
                         uint64_t fencing_token, absl::Time now) const {
  absl::MutexLock lock(&mutex_);
  return Valid(lease_id, slot, fencing_token, now);
}

absl::Status StageTable::Enter(const v1::StageStart& start, StageSession* session,
                               absl::Duration patience) {
  const SlotConfig* slot = FindSlot(start.slot());
  if (slot == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("this worker has no slot '", start.slot(), "'"));
  absl::MutexLock lock(&mutex_);
  StopInvalid(MonotonicNow());
  const auto free_or_closed = [this, slot]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_ || CoresIdle(*slot);
  };
  mutex_.AwaitWithTimeout(absl::Condition(&free_or_closed), patience);
  if (closed_) return absl::UnavailableError("the worker is draining");
  if (!CoresIdle(*slot)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("slot ", start.slot(), " is still busy with another stage"));
  }
  // Checked after the wait, during which everything may have changed.
  uint64_t& highest = highest_token_[start.slot()];
  if (start.fencing_token() < highest) {
    return absl::FailedPreconditionError(
        absl::StrCat("fencing token ", start.fencing_token(), " is older than ", highest));
  }
  if (!Valid(start.lease_id(), start.slot(), start.fencing_token(), MonotonicNow())) {
    return absl::FailedPreconditionError(absl::StrCat("the tracker knows of no lease '",
                                                      start.lease_id(), "' of slot ", start.slot(),
                                                      " with this token"));
  }
  highest = start.fencing_token();
  running_[start.slot()] = {.lease_id = start.lease_id(),
                            .fencing_token = start.fencing_token(),
                            .session = session,
                            .kind = start.kind(),
                            .began = MonotonicNow()};
  return absl::OkStatus();
}

void StageTable::Leave(const std::string& slot) {
  absl::MutexLock lock(&mutex_);
  const auto stage = running_.find(slot);
  if (stage == running_.end()) return;
  if (!stage->second.session->stopped())
    times_.Note(stage->second.kind, MonotonicNow() - stage->second.began);
  running_.erase(stage);
}

void StageTable::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

void StageTable::StopAll(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  for (auto& [slot, stage] : running_) stage.session->Stop(reason);
}

void StageTable::StopLate(absl::Duration left, absl::Time now, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  for (auto& [slot, stage] : running_) {
    if (!times_.CanEnd(stage.kind, now - stage.began, left)) stage.session->Stop(reason);
  }
}

bool StageTable::WaitEmpty(absl::Duration patience) const {
  absl::MutexLock lock(&mutex_);
  const auto empty = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_.empty(); };
  return mutex_.AwaitWithTimeout(absl::Condition(&empty), patience);
}

std::vector<std::string> StageTable::RunningLeases() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> ids;
  for (const auto& [slot, stage] : running_) ids.push_back(stage.lease_id);
  return ids;
}

std::vector<int> StageTable::IdleCores(const SlotConfig& slot) const {
  absl::MutexLock lock(&mutex_);
  std::vector<int> idle = slot.cores;
  for (const auto& [name, stage] : running_) {
    for (int core : FindSlot(name)->cores) std::erase(idle, core);
  }
  return idle;
}

bool StageTable::Valid(const std::string& lease_id, const std::string& slot, uint64_t token,
                       absl::Time now) const {
  auto grant = grants_.find(lease_id);
  return grant != grants_.end() && grant->second.slot == slot &&
         grant->second.fencing_token == token && grant->second.expires > now;
}

void StageTable::StopInvalid(absl::Time now) {
  for (auto& [slot, stage] : running_) {
    if (!Valid(stage.lease_id, slot, stage.fencing_token, now)) {
      stage.session->Stop(
          absl::StrCat("lease ", stage.lease_id, " of slot ", slot, " is not valid any more"));
    }
  }
}

bool StageTable::CoresIdle(const SlotConfig& slot) const {
  for (const auto& [name, stage] : running_) {
    if (ShareCore(*FindSlot(name), slot)) return false;
  }
  return true;
}

}  // namespace heddle::worker
