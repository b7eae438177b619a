// The trackers of a service: one of them is in use, and calls go to that one. Where there are several, the scheduler that leads
// appoints one (tracker_choice.h), and another when that does not answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/access/credentials.h"
#include "proto/tracker.grpc.pb.h"
#include "scheduler/service/stages/tracker_choice.h"

namespace heddle::scheduler {

// Calls to the tracker go through this: `->` gives the stub of the tracker that is in use. Whoever makes a TrackerInUse owns
// the stubs.
class TrackerInUse {
 public:
  using Stub = v1::TrackerService::StubInterface;
  explicit TrackerInUse(std::function<Stub*()> find) : find_(std::move(find)) {}
  TrackerInUse(Stub* only) : find_([only] { return only; }) {}  // NOLINT: there is only one
  TrackerInUse(std::shared_ptr<Stub> only) : find_([only] { return only.get(); }) {}  // NOLINT
  Stub* operator->() const { return find_(); }

 private:
  std::function<Stub*()> find_;
};

// Thread-safe.
class Trackers {
 public:
  struct Options {
    std::vector<std::string> addresses;  // one, or several, which were started with --appointed
    Credentials credentials;
    std::string holder;           // the service, as it holds leases
    int64_t epoch = 0;            // of this scheduler's leadership
    std::function<bool()> leads;  // whether it leads for certain; appoints nobody else
    TrackerChoice::Options choice{};
  };
  explicit Trackers(Options options);
  ~Trackers();

  // Begins to appoint, if there are several. `changed` is called when a tracker is chosen, the first and each other one; not after End.
  void Begin(std::function<void()> changed);
  void End();
  // Tokens of the next tracker that is appointed are above this.
  void SawToken(uint64_t token);

  TrackerInUse in_use() const {
    return TrackerInUse([this] { return stubs_[Current()].get(); });
  }
  // Of the one in use; before one of several is, of the first.
  const std::string& address() const { return options_.addresses[Current()]; }

 private:
  size_t Current() const;
  void Loop(size_t tracker);
  // Decides by `now`, a time at which this scheduler led for certain.
  void Call(size_t tracker, absl::Time now);

  const Options options_;
  std::vector<std::unique_ptr<v1::TrackerService::Stub>> stubs_;
  std::function<void()> changed_;
  mutable absl::Mutex mutex_;
  std::unique_ptr<TrackerChoice> choice_ ABSL_GUARDED_BY(mutex_);
  size_t current_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<size_t> told_ ABSL_GUARDED_BY(mutex_);  // the one that `changed_` was called for
  uint64_t token_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> problems_
      ABSL_GUARDED_BY(mutex_);  // of the latest call to each; empty: none
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // one for each of several
};

}  // namespace heddle::scheduler
