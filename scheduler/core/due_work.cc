#include "scheduler/core/due_work.h"

#include <algorithm>
#include <iterator>

namespace heddle::scheduler {

size_t DueWork::BlockOf(const Due& due) const {
  const auto found = std::lower_bound(
      blocks_.begin(), blocks_.end(), due,
      [](const Block& block, const Due& key) { return block.entries.back().due < key; });
  return static_cast<size_t>(found - blocks_.begin());
}

void DueWork::Sum(Block* block) {
  block->cpu_s = 0;
  block->device_s.assign(block->device_s.size(), 0);
  for (const Entry& entry : block->entries) {
    const auto lane = static_cast<size_t>(entry.work.lane);
    if (lane >= block->device_s.size()) block->device_s.resize(lane + 1);
    block->cpu_s += entry.work.cpu_s;
    block->device_s[lane] += entry.work.device_s;
  }
}

void DueWork::Put(Due due, const Work& work) {
  // A job that is due after all others comes into the last block.
  const size_t at = blocks_.empty() ? 0 : std::min(BlockOf(due), blocks_.size() - 1);
  if (blocks_.empty()) blocks_.emplace_back();
  std::vector<Entry>& entries = blocks_[at].entries;
  const auto place =
      std::lower_bound(entries.begin(), entries.end(), due,
                       [](const Entry& entry, const Due& key) { return entry.due < key; });
  if (place != entries.end() && place->due == due) {
    place->work = work;
  } else {
    entries.insert(place, {due, work});
  }
  if (entries.size() <= kMostOfBlock) return Sum(&blocks_[at]);
  Block second;
  const auto middle = entries.begin() + kMostOfBlock / 2;
  second.entries.assign(middle, entries.end());
  entries.erase(middle, entries.end());
  Sum(&blocks_[at]);
  Sum(&second);
  blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::move(second));
}

void DueWork::Erase(Due due) {
  const size_t at = BlockOf(due);
  if (at == blocks_.size()) return;
  if (std::erase_if(blocks_[at].entries, [&](const Entry& e) { return e.due == due; }) == 0) return;
  if (blocks_[at].entries.empty()) {
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
  } else {
    Sum(&blocks_[at]);
  }
}

void DueWork::AddBefore(absl::Time end, Work* sum) const {
  const auto lane = static_cast<size_t>(sum->lane);
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    const auto next = std::next(block);
    if (next != blocks_.end() && next->entries.front().due.first < end) {
      sum->cpu_s += block->cpu_s;
      if (lane < block->device_s.size()) sum->device_s += block->device_s[lane];
      continue;
    }
    for (const Entry& entry : block->entries) {
      if (entry.due.first >= end) break;
      sum->cpu_s += entry.work.cpu_s;
      if (entry.work.lane == sum->lane) sum->device_s += entry.work.device_s;
    }
    return;
  }
}

}  // namespace heddle::scheduler
