// Chooses the plan of a model by what its kernels cost alone (plan/kernel_costs.h) and in the model (plan/reuse.h).
//
// Contenders are whole plans. The first is the one that the estimates for the target give, and it stays
// unless another one is expected to be faster by more than is uncertain about it. The others, in this order:
//   uniform   one for each layout: every operator that has a form in it takes it.
//   unfused   the first, with every kernel cut before and after the operator that it is built around.
//   by columns  the first, with every transpose that one product alone reads in the product's kernel.
//   forests   one for each form of decision trees: every forest that has the form takes it.
//             With blocks of rows, also the plan in which each block has the form that costs it less.
//   layouts   the layouts with the least sum of costs. The cost of an operator in a layout is that of the
//             kernel that is built around it in the uniform graph (graph/layout/layout_choice.h).
//   cuts      the layouts of the faster of the first and `layouts`; a kernel is cut where its parts cost
//             less than the whole.
//   columns   the best so far; each transpose is in the product's kernel where both cost less so.
//   improved  the best so far, improved by changing the layout of one operator at a time, from the
//             costliest on, as long as that gains and the number of evaluations allows.
//   substituted  graphs that substitutions make of the model's, best first (substitution/search.h). Substitutions and
//             layouts are chosen together (PlanSearch::Mode); then kernels are cut as in `cuts`, and matrices read as in `columns`.
//   tuned     PlanSearch::tuned and those that contended with it, because nothing else would find them again for certain.
// Uniform, unfused, by-columns and forests contenders are there to be measured: their kernels are what the others are judged by.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/fusion/memory_plan.h"
#include "compiler/plan/kernel_costs.h"

namespace heddle {

// What one inference costs in kernels, one after the other. With blocks of rows: what all of them cost if each is given as many
// rows (graph::RunsOfGroups).
struct PlanCost {
  double ns = 0;
  double spread_ns =
      0;  // standard deviation, of the kernels alone; errors of predictions are independent
  int calls = 0;
  int measured = 0;          // of the calls, those whose kernel has a record
  int64_t memory_bytes = 0;  // graph::InferenceBytes
  // What the calls of each kernel take less in the model than alone, by workload key.
  std::map<std::string, double> saved_ns = {};
};

// Standard deviation of the difference of two costs, `other`'s predictions aside. What is saved may be wrong by half of
// it, for each kernel by itself. What both plans save with a kernel is wrong in both, and makes no difference.
double SpreadNs(const PlanCost& cost, const PlanCost& other = {});

struct Contender {
  std::string name;  // "estimated", "channels last everywhere", ..
  plan::Plan plan;   // nothing is open
  PlanCost cost;
  std::vector<graph::Task> tasks;
  bool fits =
      true;  // false: it needs more than PlanSearch::memory_bytes; only the estimated plan may
};

struct PlanChoice {
  std::vector<Contender> contenders;  // distinct plans, in the order above
  size_t chosen = 0;
  // The contender with the layouts that the costs of kernels choose; it may be the first one. nullopt: there is no layout to
  // choose, or no kernel with a time.
  std::optional<size_t> layouts;
  plan::PredictionError error;       // of measured kernels, each predicted from all others
  plan::PredictionError experience;  // of measured kernels, predicted from earlier jobs alone
  std::vector<plan::KernelFactor> learned;  // of measured kernels, for later jobs
  // Of the search for graphs.
  int graphs = 0;          // evaluated
  int bounded = 0;         // of these, found too costly by their bound
  bool timed_out = false;  // PlanSearch::time_limit ended it
  // Why plans are no contenders: their graphs did not pass check_substitution.h, or they need too much memory.
  std::vector<std::string> refused;
  const Contender& best() const { return contenders[chosen]; }
};

// What to tune: a plan, and beside it the estimated one and a runner-up, because what default schedules cost does not tell
// which is the fastest one after tuning.
struct PlansToTune {
  const Contender* plan = nullptr;
  const Contender* estimated = nullptr;  // the estimated plan; null: `plan` is tuned alone
  const Contender* runner_up = nullptr;  // tuned beside these two; null: there is none
};
// The plan is the chosen one. If that is the estimated one, it is the cheapest other one with kernels of its own that comes
// near, or else the estimated one alone. The plan is also tuned alone if it has all kernels of the estimated one, if the
// estimated one needs too much memory, or if the plan has decision trees, whose forms differ by far more than tuning gains.
// The runner-up is another plan that comes near and has kernels that neither of these two plans has; of several, the cheapest.
// The results point into `choice`.
PlansToTune WhatToTune(const PlanChoice& choice);

struct PlanSearch {
  enum class Mode {
    kOff,         // the estimated plan is the only contender
    kSequential,  // substitutions first, each graph with the layouts that the estimates choose; then layouts for the best
    kJoint,  // then once more, each graph with the best layouts for it, starting also from what the first search found
  };
  Mode mode = Mode::kJoint;
  int evaluations = 200;  // of `improved`: how many layouts are tried
  int graphs =
      200;  // of `substituted`: how many graphs each search tries; 0: there is no such contender
  // Times are of tuned kernels. Then only plans are chosen of which every kernel has a time, because a prediction from
  // tuned kernels says nothing of one that nobody will tune; and this plan, for which they were tuned.
  std::optional<plan::Plan> tuned = std::nullopt;
  // Other plans that were tuned beside that one. They are compared like any other contender.
  std::vector<plan::Plan> runners_up = {};
  // What an inference may need (graph::InferenceBytes). A plan that needs more costs infinitely much, and is no contender
  // unless it is the estimated one.
  int64_t memory_bytes = graph::kAnyBytes;
  int threads = 1;  // of the search for graphs; they do not change its result
  // For the search for graphs. A safety: what it cuts short depends on the machine.
  absl::Duration time_limit = absl::InfiniteDuration();
  std::function<void(int graph, double best_ns)> progress = nullptr;  // of the search for graphs
};

// One line that says that the search for graphs ended too early, and the way out. Empty if it was not timed out.
std::string TimedOutText(const PlanChoice& choice, const PlanSearch& search);

// `measured_ns`: times of kernels by workload key, all made alike. `experience`: what earlier jobs found, made
// alike, too. A pure function unless a search is timed out. Without times, the estimated plan is chosen. Errors as
// PrepareModel.
absl::StatusOr<PlanChoice> ChoosePlan(std::string_view onnx, const ModelOptions& options,
                                      const Target& target,
                                      const std::map<std::string, double>& measured_ns,
                                      const PlanSearch& search = {},
                                      const plan::Experience& experience = {});

}  // namespace heddle
