#include "scheduler/core/slot_index.h"

#include <algorithm>

#include "base/vocabulary/target.h"

namespace heddle::scheduler {

namespace {

bool IsHostKind(std::string_view kind) { return kind == KindName(kHostKind); }

}  // namespace

bool SlotIndex::Suits(const SlotInfo& slot, v1::StageKind kind, const JobParams& needs) {
  const bool device = NeedsDevice(kind);
  if (slot.device != device) return false;
  if (!device) {
    if (!Compiles(kind)) return true;
    const std::string_view built = KindOf(needs.target);
    return IsHostKind(built) ||
           std::find(slot.builds.begin(), slot.builds.end(), built) != slot.builds.end();
  }
  if (slot.target != needs.target) return false;
  if (!needs.device_key.empty() && slot.device_key != needs.device_key) return false;
  return needs.threads == 0 || static_cast<int>(slot.cores.size()) == needs.threads;
}

int SlotIndex::Find(const SlotId& id) const {
  if (slots_ == nullptr) return -1;
  auto it = std::lower_bound(slots_->begin(), slots_->end(), id,
                             [](const SlotInfo& slot, const SlotId& key) { return slot.id < key; });
  return it != slots_->end() && it->id == id ? static_cast<int>(it - slots_->begin()) : -1;
}

void SlotIndex::Reset(const std::vector<SlotInfo>& slots) {
  ++version_;
  slots_ = &slots;
  states_.assign(slots.size(), {});
  classes_.clear();
  cores_.clear();
  core_numbers_.clear();
  std::map<Shape, int> shapes;
  for (size_t i = 0; i < slots.size(); ++i) {
    const SlotInfo& slot = slots[i];
    const Shape shape{slot.device, slot.target, slot.device_key, slot.cores.size(), slot.builds};
    auto [it, fresh] = shapes.emplace(shape, static_cast<int>(classes_.size()));
    if (fresh) classes_.emplace_back().shape = shape;
    State& state = states_[i];
    state.cls = it->second;
    Class& cls = classes_[static_cast<size_t>(state.cls)];
    cls.all.insert(cls.all.end(), static_cast<int>(i));
    if (slot.usable) {
      if (cls.usable++ == 0) cls.first_usable = static_cast<int>(i);
      cls.last_usable = static_cast<int>(i);
    }
    for (int core : slot.cores) {
      auto [number, added] =
          core_numbers_.emplace(std::pair(slot.host, core), static_cast<int>(cores_.size()));
      if (added) cores_.emplace_back();
      state.cores.push_back(number->second);
      cores_[static_cast<size_t>(number->second)].slots.push_back(static_cast<int>(i));
    }
  }
  for (const SlotInfo& slot : slots) {
    if (slot.foreign) Take(slot.host, slot.cores, 1);
  }
  for (const auto& [id, where] : held_) {
    Take(where.first, where.second, 1);
    if (const int slot = Find(id); slot >= 0) states_[static_cast<size_t>(slot)].held = true;
  }
  for (const auto& [id, time] : back_off_) {
    if (const int slot = Find(id); slot >= 0) states_[static_cast<size_t>(slot)].backs_off = true;
  }
  for (int i = 0; i < this->slots(); ++i) {
    Classify(i);
    if (slots[static_cast<size_t>(i)].device)
      classes_[static_cast<size_t>(states_[static_cast<size_t>(i)].cls)].displaced +=
          CountDisplaced(i);
  }
  for (int lane = 0; lane < lanes(); ++lane) FillLane(lane);
}

double SlotIndex::CountDisplaced(int slot) const {
  std::set<int> sharing;
  for (int core : states_[static_cast<size_t>(slot)].cores) {
    for (int other : cores_[static_cast<size_t>(core)].slots) {
      if (!(*slots_)[static_cast<size_t>(other)].device) sharing.insert(other);
    }
  }
  return static_cast<double>(sharing.size());
}

void SlotIndex::FillLane(int number) {
  Lane* const lane = &lanes_[static_cast<size_t>(number)];
  lane->classes.clear();
  lane->count = lane->usable = 0;
  lane->displaced = 0;
  for (size_t i = 0; i < classes_.size(); ++i) {
    const SlotInfo& sample = (*slots_)[static_cast<size_t>(*classes_[i].all.begin())];
    if (!Suits(sample, lane->kind, lane->needs)) continue;
    lane->classes.push_back(static_cast<int>(i));
    classes_[i].lanes.push_back(number);
    lane->count += static_cast<int>(classes_[i].all.size());
    lane->usable += classes_[i].usable;
    lane->displaced += classes_[i].displaced;
  }
  if (lane->count > 0) lane->displaced /= lane->count;
}

void SlotIndex::Classify(int slot) {
  const State& state = states_[static_cast<size_t>(slot)];
  Class& cls = classes_[static_cast<size_t>(state.cls)];
  const bool possible =
      (*slots_)[static_cast<size_t>(slot)].usable && !state.held && !state.backs_off;
  auto put = [slot](std::set<int>* set, bool in) {
    if (in) {
      set->insert(slot);
    } else {
      set->erase(slot);
    }
  };
  put(&cls.free, possible && state.taken == 0);
  put(&cls.partly, possible && state.taken > 0);
}

void SlotIndex::Take(const std::string& host, const std::vector<int>& cores, int by) {
  for (int core : cores) {
    auto number = core_numbers_.find(std::pair(host, core));
    if (number == core_numbers_.end()) continue;
    Core& entry = cores_[static_cast<size_t>(number->second)];
    const bool before = entry.taken > 0;
    entry.taken += by;
    if (before == (entry.taken > 0)) continue;
    for (int slot : entry.slots) {
      states_[static_cast<size_t>(slot)].taken += by;
      Classify(slot);
    }
  }
}

void SlotIndex::Hold(const SlotId& id, const std::string& host, const std::vector<int>& cores) {
  held_[id] = {host, cores};
  if (const int slot = Find(id); slot >= 0) {
    states_[static_cast<size_t>(slot)].held = true;
    Classify(slot);
  }
  Take(host, cores, 1);
}

void SlotIndex::Release(const SlotId& id, const std::string& host, const std::vector<int>& cores) {
  held_.erase(id);
  Take(host, cores, -1);
  if (const int slot = Find(id); slot >= 0) {
    states_[static_cast<size_t>(slot)].held = false;
    Classify(slot);
  }
}

void SlotIndex::BackOff(const SlotId& id, absl::Time time) {
  auto old = back_off_.find(id);
  if (old != back_off_.end()) {
    wakes_.erase({old->second, id});
    back_off_.erase(old);
  }
  const bool backs_off = time != absl::InfinitePast();
  if (backs_off) {
    back_off_[id] = time;
    wakes_.insert({time, id});
  }
  if (const int slot = Find(id); slot >= 0) {
    states_[static_cast<size_t>(slot)].backs_off = backs_off;
    Classify(slot);
  }
}

void SlotIndex::Advance(absl::Time now) {
  while (!wakes_.empty() && wakes_.begin()->first <= now) {
    const SlotId id = wakes_.begin()->second;
    BackOff(id, absl::InfinitePast());
  }
}

absl::Time SlotIndex::NextWake() const {
  return wakes_.empty() ? absl::InfiniteFuture() : wakes_.begin()->first;
}

int SlotIndex::AddLane(v1::StageKind kind, const JobParams& needs) {
  Lane& lane = lanes_.emplace_back();
  lane.kind = kind;
  lane.needs.target = needs.target;
  lane.needs.device_key = needs.device_key;
  lane.needs.threads = needs.threads;
  FillLane(lanes() - 1);
  return lanes() - 1;
}

int SlotIndex::DeviceLane(const JobParams& needs) {
  auto [it, fresh] =
      device_lanes_.emplace(std::tuple(needs.target, needs.device_key, needs.threads), lanes());
  if (fresh) AddLane(v1::STAGE_PROFILE, needs);
  return it->second;
}

int SlotIndex::BuildLane(const JobParams& needs) {
  const std::string_view kind = KindOf(needs.target);
  if (IsHostKind(kind)) return kCpuLane;
  const auto known = build_lanes_.find(kind);
  if (known != build_lanes_.end()) return known->second;
  return build_lanes_.emplace(kind, AddLane(v1::STAGE_BUILD, needs)).first->second;
}

int SlotIndex::Free(int lane) const {
  int count = 0;
  for (int c : lanes_[static_cast<size_t>(lane)].classes)
    count += static_cast<int>(classes_[static_cast<size_t>(c)].free.size());
  return count;
}

bool SlotIndex::AnyFree(int lane) const {
  const std::vector<int>& classes = lanes_[static_cast<size_t>(lane)].classes;
  return std::any_of(classes.begin(), classes.end(),
                     [this](int c) { return !classes_[static_cast<size_t>(c)].free.empty(); });
}

bool SlotIndex::Open(int lane) const {
  const std::vector<int>& classes = lanes_[static_cast<size_t>(lane)].classes;
  return std::any_of(classes.begin(), classes.end(), [this](int c) {
    const Class& cls = classes_[static_cast<size_t>(c)];
    return !cls.free.empty() || !cls.partly.empty();
  });
}

std::vector<SlotIndex::LaneFigures> SlotIndex::Figures() const {
  std::vector<LaneFigures> all;
  for (int lane = 0; lane < lanes(); ++lane) {
    LaneFigures& figures = all.emplace_back();
    figures = {Count(lane), Usable(lane), Displaced(lane), std::nullopt};
    if (const SlotInfo* first = First(lane)) figures.first = *first;
  }
  return all;
}

const SlotInfo* SlotIndex::First(int lane) const {
  int first = -1;
  bool usable = false;
  for (int c : lanes_[static_cast<size_t>(lane)].classes) {
    const Class& cls = classes_[static_cast<size_t>(c)];
    if (usable && cls.usable == 0) continue;
    const int slot = cls.usable > 0 ? cls.first_usable : *cls.all.begin();
    if (first < 0 || slot < first || (cls.usable > 0 && !usable)) first = slot;
    usable |= cls.usable > 0;
  }
  return first < 0 ? nullptr : &(*slots_)[static_cast<size_t>(first)];
}

bool SlotIndex::AnotherWorker(int lane, const std::string& worker) const {
  // The list is sorted by worker, so the slots between two of one worker are all of that worker.
  const std::vector<int>& classes = lanes_[static_cast<size_t>(lane)].classes;
  return std::any_of(classes.begin(), classes.end(), [&](int c) {
    const Class& cls = classes_[static_cast<size_t>(c)];
    return cls.usable > 0 && !(IsOf(cls.first_usable, &worker) && IsOf(cls.last_usable, &worker));
  });
}

bool SlotIndex::IsOf(int slot, const std::string* worker) const {
  return worker != nullptr && (*slots_)[static_cast<size_t>(slot)].id.worker == *worker;
}

bool SlotIndex::IsKept(int slot, const Reserved& reserved) const {
  const std::vector<int>& cores = states_[static_cast<size_t>(slot)].cores;
  return !reserved.cores.empty() && std::any_of(cores.begin(), cores.end(), [&](int core) {
    return reserved.cores[static_cast<size_t>(core)];
  });
}

const SlotInfo* SlotIndex::Choose(int lane, const Reserved& reserved,
                                  const std::string* avoided) const {
  int best = -1;
  size_t best_cores = 0;
  for (int c : lanes_[static_cast<size_t>(lane)].classes) {
    for (int slot : classes_[static_cast<size_t>(c)].free) {
      if (IsOf(slot, avoided) || IsKept(slot, reserved)) continue;
      const size_t cores = states_[static_cast<size_t>(slot)].cores.size();
      if (best < 0 || cores < best_cores || (cores == best_cores && slot < best)) {
        best = slot;
        best_cores = cores;
      }
      break;  // the other slots of this class have as many cores and larger ids
    }
  }
  return best < 0 ? nullptr : &(*slots_)[static_cast<size_t>(best)];
}

bool SlotIndex::Reserve(int lane, Reserved* reserved, const std::string* avoided) const {
  if (reserved->at.empty()) {
    reserved->cores.resize(cores_.size());
    for (const Class& cls : classes_) reserved->at.push_back(cls.partly.begin());
  }
  int best = -1;
  for (int c : lanes_[static_cast<size_t>(lane)].classes) {
    const std::set<int>& partly = classes_[static_cast<size_t>(c)].partly;
    auto& first = reserved->at[static_cast<size_t>(c)];
    while (first != partly.end() && IsKept(*first, *reserved)) ++first;
    auto at = first;
    while (at != partly.end() && (IsOf(*at, avoided) || IsKept(*at, *reserved))) ++at;
    if (at != partly.end() && (best < 0 || *at < best)) best = *at;
  }
  if (best < 0) return false;
  for (int core : states_[static_cast<size_t>(best)].cores)
    reserved->cores[static_cast<size_t>(core)] = true;
  return true;
}

const std::vector<int>& SlotIndex::LanesOf(const SlotInfo& slot) const {
  const State& state = states_[static_cast<size_t>(&slot - slots_->data())];
  return classes_[static_cast<size_t>(state.cls)].lanes;
}

bool SlotIndex::IsFree(const SlotInfo& slot) const {
  const int index = Find(slot.id);
  return index >= 0 &&
         classes_[static_cast<size_t>(states_[static_cast<size_t>(index)].cls)].free.count(index);
}

}  // namespace heddle::scheduler
