// Which slots are free, without looking at all of them: kept up to date with every stage that
// starts or ends. Slots of one shape (kind, target, device key, number of cores) form a class; work
// of one kind of need forms a lane, which several classes may serve. Lane 0 is the CPU's; lane 1 is
// those of its slots that have a compiler for cuda targets.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "scheduler/core/job_state.h"

namespace heddle::scheduler {

class SlotIndex {
 public:
  static constexpr int kCpuLane = 0;
  static constexpr int kCudaBuildLane = 1;
  // Cores kept for work whose turn comes first; of one pass of placement, valid until a slot is
  // held or released.
  struct Reserved {
    std::vector<bool> cores;                        // by their numbers in this index
    std::vector<std::set<int>::const_iterator> at;  // by class: all of `partly` before are reserved
  };

  SlotIndex();

  // The lane of a job's stages of a kind that runs on CPU slots.
  static int CpuLane(v1::StageKind kind, const JobParams& needs);
  // Whether `slot` is of use to a job's stages of this kind.
  static bool Suits(const SlotInfo& slot, v1::StageKind kind, const JobParams& needs);

  // A new list, sorted by id; `slots` must stay where it is until the next Reset. What is held or
  // backs off stays so.
  void Reset(const std::vector<SlotInfo>& slots);
  // Grows with every Reset.
  int64_t version() const { return version_; }
  // A stage of slot `id` begins or ends; the slot may be gone from the list by then.
  void Hold(const SlotId& id, const std::string& host, const std::vector<int>& cores);
  void Release(const SlotId& id, const std::string& host, const std::vector<int>& cores);
  // Not to be used before `time`; a time that is over lifts it.
  void BackOff(const SlotId& id, absl::Time time);
  // Backoffs until `now` are over.
  void Advance(absl::Time now);
  // When the next backoff ends; InfiniteFuture when there is none.
  absl::Time NextWake() const;

  // The lane of a job's profile stages. Lanes are never taken back: there are as many as different
  // needs were seen.
  int DeviceLane(const JobParams& needs);
  int lanes() const { return static_cast<int>(lanes_.size()); }
  int slots() const { return static_cast<int>(states_.size()); }  // of the list
  // Slots that suit the lane: all, those usable (held or not), those free now, and whether any is
  // either free or only kept from work by cores others hold.
  int Count(int lane) const;
  int Usable(int lane) const;
  int Free(int lane) const;
  bool AnyFree(int lane) const;
  bool Open(int lane) const;
  // CPU slots that a busy slot of the device lane keeps from work, on average.
  double Displaced(int lane) const { return lanes_[static_cast<size_t>(lane)].displaced; }
  // The first in order of id, free or not, of the usable ones if there are any; null when no slot
  // suits at all.
  const SlotInfo* First(int lane) const;
  // The free slot with the fewest cores, the first of these by id, that needs no reserved core.
  const SlotInfo* Choose(int lane, const Reserved& reserved) const;
  Reserved NoneReserved() const;
  // Reserves the cores of the first slot nobody holds but for some of its cores. False: none.
  bool Reserve(int lane, Reserved* reserved) const;
  bool IsFree(const SlotInfo& slot) const;

 private:
  using Shape = std::tuple<bool, std::string, std::string, size_t, bool>;
  struct Class {
    Shape shape;
    std::set<int> all, free, partly;  // partly: usable, not held, but some core is taken
    int usable = 0;
  };
  struct State {
    int cls = 0;
    std::vector<int> cores;  // numbers of cores_
    int taken = 0;           // of these, by anybody
    bool held = false;
    bool backs_off = false;
  };
  struct Core {
    int taken = 0;
    std::vector<int> slots;
  };
  struct Lane {
    v1::StageKind kind = v1::STAGE_PROPOSE;  // one of those it is for
    JobParams needs;                         // target, device_key, threads
    std::vector<int> classes;
    double displaced = 0;
  };

  int Find(const SlotId& id) const;  // -1: not in the list
  void Take(const std::string& host, const std::vector<int>& cores, int by);
  void Classify(int slot);  // puts it into the sets of its class
  void FillLane(Lane* lane) const;

  const std::vector<SlotInfo>* slots_ = nullptr;
  int64_t version_ = 0;
  std::vector<State> states_;
  std::vector<Class> classes_;
  std::vector<Core> cores_;
  absl::flat_hash_map<std::pair<std::string, int>, int> core_numbers_;
  std::vector<Lane> lanes_;
  std::map<std::tuple<std::string, std::string, int>, int> lane_numbers_;
  // Of running stages, listed or not: to find the cores again after a Reset.
  std::map<SlotId, std::pair<std::string, std::vector<int>>> held_;
  std::map<SlotId, absl::Time> back_off_;
  std::set<std::pair<absl::Time, SlotId>> wakes_;
};

}  // namespace heddle::scheduler
