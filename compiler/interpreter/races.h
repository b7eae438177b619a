// The race detector of the interpreter. There is a race if two threads of a GPU launch touch one
// element without a barrier between them and at least one of them writes. A thread also races with
// its own fetch, because a GPU may copy asynchronously. The interpreter runs iterations one after
// the other, so its results do not show a missing barrier, but a GPU's do.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/ir.h"

namespace heddle::interpreter {

class RaceDetector {
 public:
  // Sets the position of the running code on one axis. Axes 0..5 are blockIdx.x, y, z, then
  // threadIdx.x, y, z. On a thread axis, -1 means no thread in particular: code that is in no loop
  // over the axis may run on any of its threads.
  void SetAxis(int axis, int64_t value) {
    position_[axis] = value;
    if (axis < 3) ++interval_, come_ = fetch_ - 1;  // another block, or another iteration of it
    thread_ = (position_[3] + 1) + ((position_[4] + 1) << 20) + ((position_[5] + 1) << 40);
    block_ = position_[0] + (position_[1] << 32) + (position_[2] << 48);
  }
  // After this barrier, all fetches but the last `late` are complete.
  void Barrier(int late) {
    ++interval_;
    come_ = fetch_ - 1 - late;
  }
  void EndFetch() { ++fetch_; }
  // A launch begins or ends.
  void NewLaunch() { ++interval_, ++launch_, come_ = fetch_ - 1; }

  // The accesses to one buffer so far. Races in `shared` memory are between the threads of a block,
  // from barrier to barrier; in `global` memory they are also between the blocks of a launch. An
  // element of a `local` buffer belongs to one thread.
  class Watch {
   public:
    Watch(ir::Scope scope, int64_t elements) : scope_(scope), touches_(elements) {}
    // The buffer is allocated again. Shared memory is the same memory each time.
    void Forget() {
      if (scope_ != ir::Scope::kShared) touches_.assign(touches_.size(), {});
    }

   private:
    friend class RaceDetector;
    // The last write, or the last read: when it was and who made it. Interval and launch 0 are
    // before everything.
    struct Side {
      int64_t interval = 0, thread = 0, launch = 0, block = 0;
      int64_t fetch = 0;  // number of the fetch that wrote
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
  // Barriers do not concern a local buffer, which is allocated anew for each block.
  int64_t Interval(const Watch& watch) const {
    return watch.scope_ == ir::Scope::kLocal ? 1 : interval_;
  }
  bool Conflicts(const Watch& watch, const Watch::Side& side) const {
    if (side.interval == Interval(watch) && (side.many_threads || side.thread != thread_))
      return true;
    // A thread may use what it has written within the same fetch.
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
  int64_t fetch_ = 1, come_ = 0;  // numbers of the current fetch and of the last complete one
};

}  // namespace heddle::interpreter
