// Finds free slots without looking at all of them. It is updated with every stage that starts or
// ends. Slots of the same shape (kind, target, device key, number of cores, compilers) form a
// class. A lane is all work with the same slot needs; several classes may serve it. Lane 0 is the
// CPU lane: work that any CPU slot can do. That includes builds for CPUs, since every worker has
// the compiler for them (kHostKind of base/vocabulary/target.h). Builds for each other kind of target are a
// lane of their own, which the CPU slots serve that list the kind.
#pragma once

#include <map>
#include <optional>
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
  // Cores that are kept for work whose turn comes first. Belongs to one pass of placement, and is
  // valid until a slot is held or released.
  struct Reserved {
    // Both are empty until something is reserved, which most passes do not.
    std::vector<bool> cores;  // by their numbers in this index
    // By class: all slots of `partly` before this one are reserved.
    std::vector<std::set<int>::const_iterator> at;
  };

  SlotIndex() : lanes_(1) {}

  // The lane of a job's stages of this kind, which must be one that runs on CPU slots.
  static int CpuLane(v1::StageKind kind, const Job& job) {
    return Compiles(kind) ? job.build_lane : kCpuLane;
  }
  // The lane of a job's stages of any kind.
  static int LaneOf(v1::StageKind kind, const Job& job) {
    return NeedsDevice(kind) ? job.lane : CpuLane(kind, job);
  }
  // Whether `slot` can run a job's stages of this kind.
  static bool Suits(const SlotInfo& slot, v1::StageKind kind, const JobParams& needs);

  // Takes a new list, sorted by id. `slots` must stay where it is until the next Reset. Slots that
  // are held or back off stay so.
  void Reset(const std::vector<SlotInfo>& slots);
  // Grows with every Reset.
  int64_t version() const { return version_; }
  // A stage begins or ends on slot `id`. The slot may have left the list by then.
  void Hold(const SlotId& id, const std::string& host, const std::vector<int>& cores);
  void Release(const SlotId& id, const std::string& host, const std::vector<int>& cores);
  // The slot must not be used before `time`. InfinitePast lifts the backoff.
  void BackOff(const SlotId& id, absl::Time time);
  // Lifts the backoffs that end by `now`.
  void Advance(absl::Time now);
  // When the next backoff ends; InfiniteFuture when there is none.
  absl::Time NextWake() const;

  // The lane of a job's profile stages, and that of its build and compile stages. Lanes are never
  // removed: there are as many as different needs have been seen.
  int DeviceLane(const JobParams& needs);
  int BuildLane(const JobParams& needs);
  int lanes() const { return static_cast<int>(lanes_.size()); }
  int slots() const { return static_cast<int>(states_.size()); }  // of the list
  // Number of slots that suit the lane: all of them (Count), those that are usable, held or not
  // (Usable), and those that are free now (Free). Open: whether any slot is free or would be free
  // if others did not use some of its cores.
  int Count(int lane) const { return lanes_[static_cast<size_t>(lane)].count; }
  int Usable(int lane) const { return lanes_[static_cast<size_t>(lane)].usable; }
  int Free(int lane) const;
  bool AnyFree(int lane) const;
  bool Open(int lane) const;
  // What jobs of the lane look at when they begin a round or estimate their end. By lane.
  struct LaneFigures {
    int count = 0, usable = 0;
    double displaced = 0;
    std::optional<SlotInfo> first;
    friend bool operator==(const LaneFigures&, const LaneFigures&) = default;
  };
  std::vector<LaneFigures> Figures() const;
  // Mean number of CPU slots that share a core with a slot of this device lane, and so cannot work
  // while it is busy.
  double Displaced(int lane) const { return lanes_[static_cast<size_t>(lane)].displaced; }
  // The first slot by id that suits, free or not. Usable slots come before others. Null if no slot
  // suits.
  const SlotInfo* First(int lane) const;
  // Whether a worker other than this one has a usable slot that suits, held or not.
  bool AnotherWorker(int lane, const std::string& worker) const;
  // The free slot with the fewest cores that needs no reserved core and is not of the worker
  // `avoided` (null: of any worker); of several, the first by id. Null if there is none.
  const SlotInfo* Choose(int lane, const Reserved& reserved, const std::string* avoided) const;
  // Reserves the cores of the first slot, not of the worker `avoided`, that could start work if some
  // of its cores were not in use. False if there is none.
  bool Reserve(int lane, Reserved* reserved, const std::string* avoided) const;
  bool IsFree(const SlotInfo& slot) const;
  // The lanes that a slot of the list serves; it must be an element of the list, no copy.
  const std::vector<int>& LanesOf(const SlotInfo& slot) const;

 private:
  // Whether the slot is of the worker; null: of none.
  bool IsOf(int slot, const std::string* worker) const;
  // Whether the slot needs a reserved core.
  bool IsKept(int slot, const Reserved& reserved) const;

  using Shape = std::tuple<bool, std::string, std::string, size_t, std::vector<std::string>>;
  struct Class {
    Shape shape;
    std::set<int> all, free, partly;  // partly: usable and not held, but some core is in use
    int usable = 0;
    int first_usable = -1, last_usable = -1;  // -1: none
    // Of device slots: the sum of how many CPU slots share a core with each.
    double displaced = 0;
    std::vector<int> lanes;
  };
  struct State {
    int cls = 0;
    std::vector<int> cores;  // indices into cores_
    int taken = 0;           // how many of these are in use
    bool held = false;
    bool backs_off = false;
  };
  struct Core {
    int taken = 0;
    std::vector<int> slots;
  };
  struct Lane {
    v1::StageKind kind = v1::STAGE_PROPOSE;  // an example of its kinds
    JobParams needs;                         // target, device_key, threads; builds: target
    std::vector<int> classes;
    int count = 0, usable = 0;  // slots
    double displaced = 0;
  };

  static bool Compiles(v1::StageKind kind) {
    return kind == v1::STAGE_BUILD || kind == v1::STAGE_COMPILE;
  }
  int Find(const SlotId& id) const;  // -1: not in the list
  void Take(const std::string& host, const std::vector<int>& cores, int by);
  void Classify(int slot);  // puts the slot into the sets of its class
  int AddLane(v1::StageKind kind, const JobParams& needs);
  double CountDisplaced(int slot) const;
  void FillLane(int number);

  const std::vector<SlotInfo>* slots_ = nullptr;
  int64_t version_ = 0;
  std::vector<State> states_;
  std::vector<Class> classes_;
  std::vector<Core> cores_;
  absl::flat_hash_map<std::pair<std::string, int>, int> core_numbers_;
  std::vector<Lane> lanes_;
  std::map<std::tuple<std::string, std::string, int>, int> device_lanes_;
  std::map<std::string, int, std::less<>> build_lanes_;  // by kind of target
  // Slots and cores of running stages, also of slots that left the list, so that Reset finds them
  // again.
  std::map<SlotId, std::pair<std::string, std::vector<int>>> held_;
  std::map<SlotId, absl::Time> back_off_;
  std::set<std::pair<absl::Time, SlotId>> wakes_;
};

}  // namespace heddle::scheduler
