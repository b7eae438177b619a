// Keeps this process the leader (scheduler/store/leader.h) for as long as it can. It decides nothing while another may
// lead, and ends as soon as another does.
//
// How long clients wait when the leader hangs or is cut off, of which half shall wait for 5 s at most and 99 % for 15 s:
//
//   lease 4 s - age of the latest renewal (0 to 1 s) + until the next question (0 to 0.25 s)      3 to 4.25 s
//   + loading the unfinished jobs and listening (0.3 s with few jobs; it grows with them)        3.3 to 4.6 s
//
// A client gives the old leader up within 4.5 s (LeaderPings in proto/leader_calls.h), so it adds next to nothing to this.
// Nothing ends the lease of such a leader sooner: a lock or a connection that the store has lost tells as little
// about what the leader still decides. Of one that has ended nobody waits for the lease: it lets go when it ends in
// order, and on the same host the lock of the data folder and the process table tell of one that was killed.
//
// A shorter lease would cost take-overs without need. They lose nothing, since the store checks the epoch with every
// write, but the jobs are loaded anew, and stages under way are made again. The lease is renewed every second, by
// one small write that goes before all others. One renewal may take 2.5 s until this process pauses, and 3 s until
// another takes over. Other writes take less than 1 s a transaction (StoreWriter), and a sync of a busy disk some
// tenths. A renewal that failed is tried again after half a second, which is soon enough if it failed at once, as one does
// whose connection is gone. A renewal whose new connection takes long (2 s at most, postgres_session.cc) comes too late if it
// follows one that failed; the next one brings the leadership back.
//
// By this process' own monotonic clock, counted from before a renewal was sent, the leadership is held until 3.5 s
// later: half a second before the store gives it to another. So nobody decides at the same
// time as long as the clocks of this host and of the store run alike within one part in eight; real ones
// differ by less than one in a thousand. A process that is stopped notices nothing of this; for it, the store
// checks the epoch with every write. If nobody has taken over, as where no other scheduler stands by, the next renewal
// gives the leadership back in the same epoch; without one for a minute, the process ends. It ends at once if the store
// says that it can never be renewed (FailedPrecondition), as after a newer program has migrated the tables.
//
// Meanwhile its clients are refused (lead_check.h), since another may lead and know better.
//
// A store that takes no writes at all (ResourceExhausted) gives the leadership to nobody. Whoever has it keeps it meanwhile,
// so that those who read get answers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

struct LeadershipTimes {
  absl::Duration lease = absl::Seconds(4);
  // From one question to the next; at once after an answer that took longer.
  absl::Duration renew_every = absl::Seconds(1);
  absl::Duration renew_again = absl::Milliseconds(500);  // after a renewal that failed
  absl::Duration margin =
      absl::Milliseconds(500);  // before the end of the lease, the leader decides nothing more
  absl::Duration ask_every = absl::Milliseconds(250);  // whoever stands by, which costs one read
  absl::Duration give_up = absl::Seconds(60);  // without a renewal after that, the process ends
};

class Leadership {
 public:
  struct Options {
    LeaderClaim claim;  // its lease is that of `times`
    LeadershipTimes times{};
    // Called once, from a thread of this object, with a message; the process must end at once.
    std::function<void(std::string reason)> lost;
    std::function<void()> renewed{};  // called after each renewal; may be empty
  };
  // Asks the store for the leadership once. Null, and `leader` says who leads, if another does. From then on
  // the store takes writes in this epoch only (RecordStore::SetEpoch). The store outlives this.
  static absl::StatusOr<std::unique_ptr<Leadership>> Take(RecordStore* store, Options options,
                                                          Leader* leader);
  // Lets go of the leadership: another may lead at once. Call it after the last write.
  ~Leadership();

  // Whether this process leads for certain, by its own clock. Unavailable, with the reason: it must not decide, nor tell
  // clients what may be over, but it may lead again.
  absl::Status Check() const;
  bool Holds() const { return Check().ok(); }
  // Where clients reach this process, once it is known; tells the store soon.
  void SetAddress(const std::string& address);

 private:
  Leadership(RecordStore* store, Options options, int64_t epoch, absl::Time asked);
  // `asked`: when the leadership was asked for.
  void RenewLoop(absl::Time asked);
  void WatchLoop();
  // Returns whether to go on.
  bool Renew();
  void Lose(const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  RecordStore* const store_;
  const Options options_;
  const int64_t epoch_;
  mutable absl::Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  bool untold_ ABSL_GUARDED_BY(mutex_) = false;  // the store does not know the address yet
  absl::Time until_ ABSL_GUARDED_BY(mutex_);     // by this process' clock
  std::string problem_ ABSL_GUARDED_BY(mutex_);  // of the latest renewal; empty: none
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread renewer_;
  std::thread watcher_;  // a renewal may hang, so the clock is watched by another thread
};

}  // namespace heddle::scheduler
