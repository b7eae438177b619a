// The race detector of the interpreter. A race is two threads of a GPU launch that touch one
// element without a barrier between them, at least one of them writing. A thread also races with
// its own fetch, because a GPU may copy asynchronously. The interpreter runs iterations one after
// the other, so a missing barrier does not show in its results; on a GPU it does.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/ir.h"

namespace heddle::interpreter {

class RaceDetector {
 public:
  // Says who runs. Axes 0..5 are blockIdx.x, y, z, then threadIdx.x, y, z. -1 on an axis of threads
  // means no thread in particular: what no loop of the axis encloses may run on any of them.
  void SetAxis(int axis, int64_t value) {
    position_[axis] = value;
    if (axis < 3) ++interval_, come_ = fetch_ - 1;  // another block, or another iteration of it
    thread_ = (position_[3] + 1) + ((position_[4] + 1) << 20) + ((position_[5] + 1) << 40);
    block_ = position_[0] + (position_[1] << 32) + (position_[2] << 48);
  }
  // All fetches but the last `late` have come.
  void Barrier(int late) {
    ++interval_;
    come_ = fetch_ - 1 - late;
  }
  void EndFetch() { ++fetch_; }
  // A launch begins or ends.
  void NewLaunch() { ++interval_, ++launch_, come_ = fetch_ - 1; }

  // What is known of one buffer. Races in `shared` memory are between the threads of a block from
  // barrier to barrier, in `global` memory also between the blocks of a launch. An element of a
  // `local` buffer belongs to one thread.
  class Watch {
   public:
    Watch(ir::Scope scope, int64_t elements) : scope_(scope), touches_(elements) {}
    // The buffer is allocated again. Shared memory is the same memory each time.
    void Forget() {
      if (scope_ != ir::Scope::kShared) touches_.assign(touches_.size(), {});
    }

   private:
    friend class RaceDetector;
    // The last write, or the last read: when and by whom. Interval and launch 0 are before all.
    struct Side {
      int64_t interval = 0, thread = 0, launch = 0, block = 0;
      int64_t fetch = 0;  // of a write
      bool many_threads = false, many_blocks = false;
    };
    struct Touch {
      Side write, read;
    };
    ir::Scope scope_;
    std::vector<Touch> touches_;
  };

  // False if this access races with an earlier one.
  bool Read(Watch& watch, uint64_t element) {
    Watch::Touch& touch = watch.touches_[element];
    const bool clean = !Conflicts(watch, touch.write);
    Note(watch, touch.read);
    touch.read.fetch = 0;
    return clean;
  }
  bool Write(Watch& watch, uint64_t element) {
    Watch::Touch& touch = watch.touches_[element];
    const bool clean = !Conflicts(watch, touch.write) && !Conflicts(watch, touch.read);
    Note(watch, touch.write);
    return clean;
  }

 private:
  // Barriers mean nothing to a local buffer, which is allocated anew for each block.
  int64_t Interval(const Watch& watch) const {
    return watch.scope_ == ir::Scope::kLocal ? 1 : interval_;
  }
  bool Conflicts(const Watch& watch, const Watch::Side& side) const {
    if (side.interval == Interval(watch) && (side.many_threads || side.thread != thread_))
      return true;
    // A thread may use what it wrote within the same fetch.
    if (watch.scope_ == ir::Scope::kShared && side.fetch > come_ && side.fetch < fetch_)
      return true;
    return watch.scope_ == ir::Scope::kGlobal && side.launch == launch_ &&
           (side.many_blocks || side.block != block_);
  }
  void Note(const Watch& watch, Watch::Side& side) const {
    const int64_t interval = Interval(watch);
    side.many_threads = side.interval == interval && (side.many_threads || side.thread != thread_);
    side.many_blocks = side.launch == launch_ && (side.many_blocks || side.block != block_);
    side.interval = interval;
    side.fetch = fetch_;
    side.thread = thread_;
    side.launch = launch_;
    side.block = block_;
  }

  int64_t position_[6] = {0, 0, 0, -1, -1, -1};
  int64_t thread_ = 0, block_ = 0;
  int64_t interval_ = 1, launch_ = 1;
  int64_t fetch_ = 1, come_ = 0;  // number of the current fetch; of the last that has come
};

}  // namespace heddle::interpreter
