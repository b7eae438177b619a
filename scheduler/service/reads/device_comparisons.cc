#include "scheduler/service/reads/device_comparisons.h"

#include "absl/strings/str_cat.h"

namespace heddle::scheduler {

void DeviceComparisons::Drop(size_t room) {
  const absl::Time now = now_();
  std::erase_if(entries_, [&](const auto& kept) {
    return kept.second->done && now - kept.second->began > kKept;
  });
  while (entries_.size() - reading_ + room > kMostKept) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (!it->second->done) continue;
      if (oldest == entries_.end() || it->second->began < oldest->second->began) oldest = it;
    }
    entries_.erase(oldest);
  }
}

DeviceComparisons::Answer DeviceComparisons::Find(const std::string& device_a,
                                                  const std::string& device_b) {
  const Pair pair(device_a, device_b);
  const auto entry = std::make_shared<Entry>();
  {
    absl::MutexLock lock(&mutex_);
    Drop(/*room=*/0);
    if (const auto found = entries_.find(pair); found != entries_.end()) {
      const std::shared_ptr<Entry> other = found->second;
      ++waiting_;
      mutex_.Await(absl::Condition(&other->done));
      --waiting_;
      return other->answer;
    }
    if (reading_ == kMostReads) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kMostReads, " other pairs of devices are being compared; ask again in a ",
                       "few seconds"));
    }
    entry->began = now_();
    entries_.emplace(pair, entry);
    ++reading_;
  }
  const Answer answer = read_(device_a, device_b);
  const bool is_kept = answer.ok() && !(*answer)->pairs.empty();
  absl::MutexLock lock(&mutex_);
  if (is_kept) {
    Drop(/*room=*/1);
  } else {
    entries_.erase(pair);
  }
  entry->answer = answer;
  entry->done = true;
  --reading_;
  return answer;
}

}  // namespace heddle::scheduler
