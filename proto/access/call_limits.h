// Keeps long calls from using up the server: how many there are at a time, in all and of one
// peer, and how long a peer may let a call stand still. A long call occupies a thread of the server
// and often a file, so without limits a few peers that never read could shut everybody else out.
// Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <array>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/access/identity.h"

namespace heddle {

class CallLimits {
 public:
  enum Kind {
    kUploads,
    kWatches,
    kTransfers,
    kQueries,
    kLongQueries,
    kBackups,
    kChecks,
    kCare,
    kSchedulerWatches,  // at the tracker; places that people cannot take
    kKinds
  };
  enum class Refusal {
    kCallerFull,   // the caller has its share of the places
    kServiceFull,  // there is no place
    kSlowPeer,     // the call began, and its peer let it wait too long
  };

  struct Options {
    // At a time, by kind. One peer gets at most `share` of them, and at least one.
    std::array<int, kKinds> most = {8, 64, 16, 8, 8, 1, 1, 4, 64};
    double share = 0.5;
    // A call ends with CANCELLED if its peer lets it wait longer than this, for a message or for room
    // to send one. Time that the server takes itself does not count.
    absl::Duration patience = absl::Seconds(30);
    // The same for the slowest call of a kind while others have no place.
    absl::Duration crowded_patience = absl::Seconds(2);
    // How long a call waits for a place before it is refused.
    absl::Duration queueing = absl::Milliseconds(500);
    // What a refused peer is told to wait before it calls again.
    absl::Duration retry_after = absl::Seconds(1);
    // Told of each call that is refused or cancelled, under a lock: it must be quick. May be null.
    std::function<void(Refusal)> refused{};
  };
  explicit CallLimits(const Options& options);
  ~CallLimits();

  // The place of a call, from its begin to its end. A call that turns out to be of another kind gives its place back before it
  // takes one of that kind.
  class Call {
   public:
    // `context` must outlive the call. Calls of one caller count together; those of nobody in
    // particular (Role::kLocal) by the host that they come from.
    Call(CallLimits* limits, Kind kind, grpc::ServerContext* context, const Identity& caller);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // RESOURCE_EXHAUSTED if there is no place; the method returns this at once. The peer finds in the
    // trailing metadata (grpc-retry-pushback-ms, which gRPC's own retries heed) when to call again.
    const grpc::Status& status() const { return status_; }
    bool ok() const { return status_.ok(); }

    // Runs `step`, which waits for the peer: one Read or Write of the stream, or some small ones. Returns its
    // result. If the peer takes too long, the call is cancelled, and `step` ends by that.
    template <typename Step>
    auto WithPeer(const Step& step) {
      const Waiting waiting(this);
      return step();
    }

   private:
    friend class CallLimits;
    struct Waiting {
      explicit Waiting(Call* call) : call(call) { call->limits_->NoteWait(call, true); }
      ~Waiting() { call->limits_->NoteWait(call, false); }
      Call* const call;
    };

    CallLimits* const limits_;
    const Kind kind_;
    grpc::ServerContext* const context_;
    const std::string peer_;
    grpc::Status status_;
    std::list<Call*>::iterator place_;  // in calls_, if the call was admitted
    // Guarded by the mutex of limits_. InfiniteFuture: it does not wait for its peer.
    absl::Time waits_since_ = absl::InfiniteFuture();
    bool cancelled_ = false;
  };

 private:
  void Admit(Call* call);
  void Leave(Call* call);
  void NoteWait(Call* call, bool waits);
  void Cancel(Call* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Cancels the call that has waited for its peer the longest, if that is too long: one of the wanted
  // call's kind, and of its own caller if only that one's share is used up.
  void MakeRoom(const Call& wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Watch();

  const Options options_;
  absl::Mutex mutex_;
  std::list<Call*> calls_ ABSL_GUARDED_BY(mutex_);
  std::array<int, kKinds> count_ ABSL_GUARDED_BY(mutex_) = {};
  std::map<std::pair<Kind, std::string>, int> of_peer_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle
