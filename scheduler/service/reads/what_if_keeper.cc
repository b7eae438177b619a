#include "scheduler/service/reads/what_if_keeper.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/thread_priority.h"

namespace heddle::scheduler {

WhatIfKeeper::WhatIfKeeper(std::function<absl::StatusOr<WhatIfQuestion>()> ask,
                           WhatIfSimulator simulator)
    : ask_(std::move(ask)), simulator_(std::move(simulator)), thread_([this] { Run(); }) {}

WhatIfKeeper::~WhatIfKeeper() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

std::shared_ptr<const views::WhatIf> WhatIfKeeper::Latest() {
  absl::MutexLock lock(&mutex_);
  wanted_ = true;
  return latest_;
}

void WhatIfKeeper::Run() {
  RunAfterOthers();
  const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || wanted_; };
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(&due));
    if (stop_) return;
    wanted_ = false;
    mutex_.Unlock();
    const absl::Time begin = MonotonicNow(), date = absl::Now();
    absl::StatusOr<views::WhatIf> answer;
    if (absl::StatusOr<WhatIfQuestion> question = ask_(); question.ok()) {
      answer = simulator_(*question, [this] {
        absl::MutexLock lock_again(&mutex_);
        return !stop_;
      });
    } else {
      answer = question.status();
    }
    auto made = std::make_shared<views::WhatIf>();
    if (answer.ok()) {
      *made = *std::move(answer);
    } else {
      made->missing = std::string(answer.status().message());
    }
    made->made_unix_ns = absl::ToUnixNanos(date);
    const absl::Duration took = MonotonicNow() - begin;
    made->took_s = absl::ToDoubleSeconds(took);
    mutex_.Lock();
    latest_ = std::move(made);
    mutex_.AwaitWithTimeout(absl::Condition(&stop_), std::max(kInterval, took / kShare));
  }
}

}  // namespace heddle::scheduler
