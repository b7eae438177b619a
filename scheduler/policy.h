// Whose turn it is. The dispatcher says what could run; a policy orders it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/common.pb.h"
#include "scheduler/ids.h"

namespace heddle::scheduler {

// A stage that waits for a slot.
struct WorkItem {
  JobId job;
  v1::StageKind kind = v1::STAGE_UNSPECIFIED;
  std::optional<TaskIndex> task;
  std::optional<FetchId> fetch;
  bool device = false;  // needs a device slot
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Most urgent first. Items of one job come in the order its own stages should run; keep it where
  // nothing speaks against it.
  virtual void Order(std::vector<WorkItem>* work) const = 0;
  virtual void Served(const WorkItem& work) = 0;
};

// Jobs take turns: the one whose last turn is the longest ago is first; new jobs in start order.
// Turns are counted apart for CPU and device slots, so that a job that waits for one loses nothing
// by using the other.
class RoundRobin : public Policy {
 public:
  void Order(std::vector<WorkItem>* work) const override;
  void Served(const WorkItem& work) override;

 private:
  int64_t LastTurn(const WorkItem& work) const;
  std::map<std::pair<JobId, bool>, int64_t> last_turn_;
  int64_t turn_ = 0;
};

// "sequential", "round_robin" or "predictive". InvalidArgument names the policies there are.
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name);

}  // namespace heddle::scheduler
