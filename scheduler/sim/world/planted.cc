#include "scheduler/sim/world/planted.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "scheduler/core/job_state.h"

namespace heddle::sim {
namespace {

constexpr std::pair<Planted, const char*> kPlanted[] = {
    {Planted::kDropClose, "drop-close"},
    {Planted::kDropFeed, "drop-feed"},
    {Planted::kRecordTwice, "record-twice"},
    {Planted::kWrongSlot, "wrong-slot"},
    {Planted::kStartTwice, "start-twice"},
    {Planted::kForgetLease, "forget-lease"},
    {Planted::kSkipFencing, "skip-fencing"},
    {Planted::kStarve, "starve"},
    {Planted::kSkipUpdate, "skip-update"},
    {Planted::kForgetFind, "forget-find"},
    {Planted::kOverrun, "overrun"},
    {Planted::kBelieve, "believe"},
    {Planted::kForgive, "forgive"},
    {Planted::kLateWrite, "late-write"},
    {Planted::kChargeLosers, "charge-losers"},
    {Planted::kTuneBeaten, "tune-beaten"},
    {Planted::kLearnEarly, "learn-early"},
    {Planted::kLearnTwice, "learn-twice"},
    {Planted::kForgetArtifact, "forget-artifact"},
    {Planted::kSwapTrace, "swap-trace"},
    {Planted::kForgetWarm, "forget-warm"},
    {Planted::kForgetBest, "forget-best"},
    {Planted::kForgetDefault, "forget-default"},
    {Planted::kForgetPlanned, "forget-planned"}};

class Starving : public Policy {
 public:
  explicit Starving(std::unique_ptr<Policy> inner) : inner_(std::move(inner)) {}
  void Attach(const PolicyView& view) override { inner_->Attach(view); }
  Rank RankOf(const WorkItem& work, const Job& job, const Wait& wait) override {
    Rank rank = inner_->RankOf(work, job, wait);
    if (job.id.value == 1) rank.tier = kLast;
    return rank;
  }
  TierRank RankOfTier(int64_t tier, int64_t tenant) const override {
    return tier == kLast ? TierRank{HUGE_VAL} : inner_->RankOfTier(tier, tenant);
  }
  bool HoldsBack(int64_t tier, int64_t tenant, const std::array<double, 2>& key,
                 JobId job) const override {
    return tier != kLast && inner_->HoldsBack(tier, tenant, key, job);
  }
  double ShareOf(int64_t tenant) const override { return inner_->ShareOf(tenant); }
  std::vector<int64_t> TakeMoved() override { return inner_->TakeMoved(); }
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

bool NeedsFaults(Planted planted) {
  return planted == Planted::kSkipFencing || planted == Planted::kBelieve ||
         planted == Planted::kForgive || NeedsFailOver(planted);
}

bool NeedsFailOver(Planted planted) { return planted == Planted::kLateWrite; }

void Plant::Mutate(const RunningStages& running, const std::function<void(AttemptId)>& end_early,
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
    if (planted_ == Planted::kWrongSlot && start != nullptr && !running.empty()) {
      for (const auto& [id, stage] : running) {
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

void Plant::Mutate(Event* event) {
  auto* end = std::get_if<StageFinished>(event);
  if (planted_ == Planted::kBelieve && end != nullptr && end->fault.kind == v1::FAULT_USER)
    end->fault.own = true;
  if (auto* listed = std::get_if<SlotsChanged>(event); planted_ == Planted::kForgive && listed) {
    for (scheduler::SlotInfo& slot : listed->slots) slot.boot.clear();
  }
  if (planted_ == Planted::kSkipUpdate && end != nullptr &&
      std::holds_alternative<Updated>(end->result) && Nth(2))
    end->result = {};
  auto* planned = end == nullptr ? nullptr : std::get_if<Planned>(&end->result);
  if (planted_ == Planted::kForgetPlanned && planned != nullptr && planned->plan.tasks_size() > 1)
    planned->plan.mutable_tasks()->RemoveLast();
  auto* compiled = end == nullptr ? nullptr : std::get_if<Compiled>(&end->result);
  if (planted_ == Planted::kForgetDefault && compiled != nullptr) compiled->default_digest.clear();
}

void Plant::MutateLate(const Dispatcher& dispatcher, const RunningStages& running,
                       const StartStage& start, Event* event) const {
  if (planted_ != Planted::kSkipFencing) return;
  std::visit(
      [&](auto& answer) {
        if constexpr (requires { answer.attempt, answer.candidate; }) {
          for (const auto& [id, stage] : dispatcher.live()) {
            if (running.count(id) && stage.job == start.job && stage.kind == start.kind &&
                stage.candidates.count(answer.candidate))
              answer.attempt = id;
          }
        }
      },
      *event);
}

void Plant::MutateStart(StartStage* start) const {
  if (planted_ == Planted::kLearnEarly)
    start->before = CandidateId{std::numeric_limits<int64_t>::max()};
}

void Plant::MutateOrder(const StartStage& start, StageOrder* order) {
  if (start.kind == v1::STAGE_PROFILE) {
    for (v1::StageInput& input : order->inputs) MutateInput(&input);
  } else if (planted_ == Planted::kSwapTrace && order->inputs.size() > 1) {
    std::swap(*order->inputs[0].mutable_build()->mutable_candidate()->mutable_trace(),
              *order->inputs[1].mutable_build()->mutable_candidate()->mutable_trace());
  } else if (planted_ == Planted::kLearnTwice && start.kind == v1::STAGE_UPDATE) {
    v1::UpdateSpec& update = *order->start.mutable_update();
    if (update.results().empty()) return;
    v1::SearchResult& before = taught_[{start.job, *start.task}];
    const v1::SearchResult latest = *update.results().rbegin();
    if (!before.trace().empty()) *update.add_results() = before;
    before = latest;
  }
}

void Plant::MutateInput(v1::StageInput* input) {
  if (planted_ == Planted::kForgetArtifact && Nth(3)) input->mutable_profile()->clear_artifact();
}

void Plant::MutateCompleted(const OrderReads& reads, StageOrder* order) const {
  v1::StageStart& start = order->start;
  if (planted_ == Planted::kForgetBest && start.compile().best_size() > 0)
    start.mutable_compile()->mutable_best()->RemoveLast();
  if (planted_ == Planted::kForgetWarm && reads.warm && start.update().results_size() > 0)
    start.mutable_update()->mutable_results()->RemoveLast();
}

}  // namespace heddle::sim
