#include "scheduler/sim/world/planted.h"

#include <cmath>
#include <utility>

#include "scheduler/core/job_state.h"

namespace heddle::sim {
namespace {

constexpr std::pair<Planted, const char*> kPlanted[] = {
    {Planted::kDropClose, "drop-close"},     {Planted::kDropFeed, "drop-feed"},
    {Planted::kRecordTwice, "record-twice"}, {Planted::kWrongSlot, "wrong-slot"},
    {Planted::kStartTwice, "start-twice"},   {Planted::kForgetLease, "forget-lease"},
    {Planted::kSkipFencing, "skip-fencing"}, {Planted::kStarve, "starve"},
    {Planted::kSkipUpdate, "skip-update"},   {Planted::kLearnEarly, "learn-early"},
    {Planted::kForgetFind, "forget-find"},   {Planted::kOverrun, "overrun"}};

class Starving : public Policy {
 public:
  explicit Starving(std::unique_ptr<Policy> inner) : inner_(std::move(inner)) {}
  void Attach(const PolicyView& view) override { inner_->Attach(view); }
  Rank RankOf(const WorkItem& work, const Job& job, const Wait& wait) override {
    Rank rank = inner_->RankOf(work, job, wait);
    if (job.id.value == 1) rank.tier = kLast;
    return rank;
  }
  TierRank RankOfTier(int64_t group) const override {
    return group == kLast ? TierRank{HUGE_VAL} : inner_->RankOfTier(group);
  }
  void Changed(const Job& job) override { inner_->Changed(job); }
  void Started(const WorkItem& work, const Job& job, const LiveStage& stage) override {
    inner_->Started(work, job, stage);
  }
  void Ended(const LiveStage& stage, const Job& job, absl::Time now) override {
    inner_->Ended(stage, job, now);
  }
  std::vector<JobId> TakeStale(absl::Time now) override { return inner_->TakeStale(now); }

 private:
  static constexpr int64_t kLast = -1;
  std::unique_ptr<Policy> inner_;
};

}  // namespace

std::unique_ptr<Policy> Starve(std::unique_ptr<Policy> policy) {
  return std::make_unique<Starving>(std::move(policy));
}

std::vector<Planted> AllPlanted() {
  std::vector<Planted> all;
  for (const auto& [planted, name] : kPlanted) all.push_back(planted);
  return all;
}

std::string PlantedName(Planted planted) {
  for (const auto& [one, name] : kPlanted) {
    if (one == planted) return name;
  }
  return "none";
}

void Plant::Mutate(const RunningStages& stages, const std::function<void(AttemptId)>& end_early,
                   Decisions* decisions) {
  auto& [changes, orders] = *decisions;
  for (size_t i = 0; i < changes.size(); ++i) {
    const bool twice =
        planted_ == Planted::kRecordTwice && std::holds_alternative<FinishCandidate>(changes[i]);
    if (twice && Nth(5)) return changes.push_back(Change(changes[i]));
  }
  for (size_t i = 0; i < orders.size(); ++i) {
    Order& order = orders[i];
    const auto* start = std::get_if<StartStage>(&order);
    const bool drop =
        (planted_ == Planted::kDropClose && std::holds_alternative<CloseProfile>(order)) ||
        (planted_ == Planted::kDropFeed && std::holds_alternative<FeedProfile>(order));
    if (drop && Nth(3)) {
      orders.erase(orders.begin() + static_cast<int64_t>(i));
      return;
    }
    const bool twice = planted_ == Planted::kStartTwice && start != nullptr;
    if (twice && Nth(5)) return orders.push_back(Order(order));
    if (planted_ == Planted::kWrongSlot && start != nullptr && !stages.empty()) {
      for (const auto& [id, stage] : stages) {
        if (stage.start.slot == start->slot) continue;
        StartStage wrong = *start;
        wrong.slot = stage.start.slot;
        order.emplace<StartStage>(std::move(wrong));
        return;
      }
    }
    if (planted_ == Planted::kForgetLease && start != nullptr && start->kind == v1::STAGE_BUILD &&
        Nth(3)) {
      end_early(start->attempt);
      return;
    }
  }
}

}  // namespace heddle::sim
