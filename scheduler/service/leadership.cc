#include "scheduler/service/leadership.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/thread_priority.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(50);  // of the watcher at the clock

}  // namespace

absl::StatusOr<std::unique_ptr<Leadership>> Leadership::Take(RecordStore* store, Options options,
                                                             Leader* leader) {
  options.claim.lease = options.times.lease;
  const absl::Time asked = MonotonicNow();
  HEDDLE_ASSIGN_OR_RETURN(*leader, store->Lead(options.claim));
  if (leader->scheduler != options.claim.scheduler) return nullptr;
  store->SetEpoch(options.claim.pool, leader->epoch);
  return std::unique_ptr<Leadership>(
      new Leadership(store, std::move(options), leader->epoch, asked));
}

Leadership::Leadership(RecordStore* store, Options options, int64_t epoch, absl::Time asked)
    : store_(store),
      options_(std::move(options)),
      epoch_(epoch),
      address_(options_.claim.address),
      until_(asked + options_.times.lease - options_.times.margin),
      renewer_([this, asked] { RenewLoop(asked); }),
      watcher_([this] { WatchLoop(); }) {}

Leadership::~Leadership() {
  bool lost = false;
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    lost = lost_;
  }
  renewer_.join();
  watcher_.join();
  if (lost) return;
  const absl::Status ended = store_->EndLead(options_.claim.pool, epoch_);
  if (!ended.ok())
    spdlog::warn("another scheduler can lead only in {}, since letting go failed: {}",
                 absl::FormatDuration(options_.times.lease), std::string(ended.message()));
}

absl::Status Leadership::Check() const {
  absl::MutexLock lock(&mutex_);
  if (!lost_ && MonotonicNow() < until_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "this scheduler could not tell the database in time that it is there",
      problem_.empty() ? "" : absl::StrCat(" (", problem_, ")"),
      ", so another may lead by now; it answers again once the database says that it leads"));
}

void Leadership::SetAddress(const std::string& address) {
  absl::MutexLock lock(&mutex_);
  untold_ |= address != address_;
  address_ = address;
}

void Leadership::Lose(const std::string& reason) {
  {
    absl::MutexLock lock(&mutex_);
    if (lost_ || stop_) return;
    lost_ = true;
  }
  options_.lost(reason);
}

bool Leadership::Renew() {
  LeaderClaim claim = options_.claim;
  {
    absl::MutexLock lock(&mutex_);
    claim.address = address_;
    untold_ = false;
  }
  claim.leader_has_ended = false;
  const absl::Time asked = MonotonicNow();
  const absl::StatusOr<Leader> leader = store_->Lead(claim);
  if (leader.ok() && (leader->scheduler != claim.scheduler || leader->epoch != epoch_)) {
    Lose(std::string(NotLeading(*leader, epoch_).message()));
    return false;
  }
  // The tables are of a newer program, or the database no longer takes this one: that does not pass.
  if (absl::IsFailedPrecondition(leader.status())) {
    Lose(absl::StrCat("the leadership is lost: ", leader.status().message()));
    return false;
  }
  std::string problem;
  // While nobody can write, nobody can take over either, and a leader that ended would only be missed by
  // those who read. As soon as there are writes again, the epoch tells whether another was faster.
  const bool stays = leader.ok() || absl::IsResourceExhausted(leader.status());
  if (!leader.ok()) problem = std::string(leader.status().message());
  {
    absl::MutexLock lock(&mutex_);
    if (lost_) return false;
    // The answer of a store that takes no writes may have taken long, and held for all of that time.
    if (stays) {
      until_ =
          (leader.ok() ? asked : MonotonicNow()) + options_.times.lease - options_.times.margin;
    }
    if (!problem.empty() && problem_.empty())
      spdlog::warn("the leadership could not be renewed: {}", problem);
    problem_ = problem;
  }
  if (leader.ok() && options_.renewed) options_.renewed();
  return true;
}

void Leadership::RenewLoop(absl::Time asked) {
  (void)RunBeforeOthers();  // calls of users must not cost the leadership
  absl::Time next = asked + options_.times.renew_every;
  const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || untold_; };
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&wanted), next - MonotonicNow());
      if (stop_) return;
    }
    asked = MonotonicNow();
    if (!Renew()) return;
    absl::MutexLock lock(&mutex_);
    next = problem_.empty()
               ? asked + options_.times.renew_every
               : MonotonicNow() + std::min(options_.times.renew_again, options_.times.renew_every);
  }
}

void Leadership::WatchLoop() {
  while (true) {
    std::string problem;
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stop_), kLook) || lost_) return;
      if (MonotonicNow() < until_ + options_.times.give_up) continue;
      problem = problem_;
    }
    Lose(absl::StrCat(
        "the leadership was not renewed for ",
        absl::FormatDuration(options_.times.lease - options_.times.margin + options_.times.give_up),
        problem.empty() ? " (this process was stopped, or the database does not answer)"
                        : absl::StrCat(" (", problem, ")"),
        ", so another scheduler may lead from now on"));
    return;
  }
}

}  // namespace heddle::scheduler
