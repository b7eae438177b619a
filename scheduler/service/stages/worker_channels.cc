#include "scheduler/service/stages/worker_channels.h"

#include <algorithm>
#include <iterator>

#include "base/clock.h"
#include "proto/access/channel.h"

namespace heddle::scheduler {
namespace {

// A connection without calls costs both ends a file and pings.
constexpr absl::Duration kKeptFor = absl::Seconds(30);
constexpr size_t kMostOfWorker = 64;  // about as many as it has slots

}  // namespace

std::shared_ptr<grpc::Channel> WorkerChannels::Take(const std::string& address,
                                                    const std::string& worker) {
  {
    const absl::Time now = MonotonicNow();
    absl::MutexLock lock(&mutex_);
    DropOld(now);
    const auto found = kept_.find({address, worker});
    while (found != kept_.end() && !found->second.empty()) {
      const std::shared_ptr<grpc::Channel> channel = std::move(found->second.back().channel);
      found->second.pop_back();
      if (channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) return channel;
    }
  }
  return MakeChannel(address, PeerName(Role::kWorker, worker), *credentials_);
}

void WorkerChannels::Keep(const std::string& address, const std::string& worker,
                          std::shared_ptr<grpc::Channel> channel) {
  const absl::Time now = MonotonicNow();
  absl::MutexLock lock(&mutex_);
  DropOld(now);
  std::vector<Kept>& of_worker = kept_[{address, worker}];
  if (of_worker.size() < kMostOfWorker) of_worker.push_back({std::move(channel), now + kKeptFor});
  next_drop_ = std::min(next_drop_, now + kKeptFor);
}

void WorkerChannels::DropOld(absl::Time now) {
  if (now < next_drop_) return;
  next_drop_ = absl::InfiniteFuture();
  for (auto of_worker = kept_.begin(); of_worker != kept_.end();) {
    std::erase_if(of_worker->second, [now](const Kept& kept) { return kept.until <= now; });
    for (const Kept& kept : of_worker->second) next_drop_ = std::min(next_drop_, kept.until);
    of_worker = of_worker->second.empty() ? kept_.erase(of_worker) : std::next(of_worker);
  }
}

}  // namespace heddle::scheduler
