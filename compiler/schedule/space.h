// The search space of one workload on one target. Rules generate it from the naive program
// (rules/rule_table.h); there are no templates per operator. docs/schedule-spaces.md has an
// example.
//
// A point of the space is a list of decisions, each an index into a finite list of choices. It
// expands to a trace.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"
#include "compiler/schedule/replayer.h"
#include "compiler/schedule/trace.h"

namespace heddle::schedule {

using Rng = std::mt19937_64;

// A stage of the program, and a rule of the table that matched it. OK: the rule schedules the stage.
// Otherwise its preferred decisions were refused, for this reason, and the next rule was asked.
// Codes other than FailedPrecondition and ResourceExhausted are bugs of the rule.
struct Offer {
  std::string stage;  // its block
  std::string rule;
  absl::Status status;
};

// decisions[k] < Space::Choices(k). Comparable, hashable by its text ("3,0,17,2").
using Point = std::vector<int32_t>;

class Space {
 public:
  virtual ~Space() = default;
  // Number of decisions, and of choices of each (>= 1).
  virtual int NumDecisions() const = 0;
  virtual int32_t Choices(int decision) const = 0;
  // What the decision is about, for people: "register tile of conv2d.h".
  virtual std::string Describe(int decision) const = 0;
  // FailedPrecondition or ResourceExhausted: the point is infeasible (a register tile too large, a
  // primitive that refuses). InvalidArgument: it is no point of this space.
  virtual absl::StatusOr<Trace> Expand(const Point& point) const = 0;
  // Like Expand, with a replayer of the space's naive program. The replayer remembers the result of
  // each step, so that points that differ little cost little.
  virtual absl::StatusOr<Trace> ExpandWith(const Point& point, Replayer& /*known*/) const {
    return Expand(point);
  }
  // Number of points: the product of the choices. Where decision 0 is the form, the sum of that
  // product over the forms, because decisions of other forms mean nothing.
  virtual double Size() const = 0;

  // Which rules were asked for which stages, in that order.
  virtual std::vector<Offer> Offers() const = 0;

  // Good decisions without any measurement, from the description of the machine.
  virtual Point Preferred() const = 0;
  // Every form is equally likely, and every choice within it; decisions of other forms are zero.
  virtual Point Random(Rng& rng) const;
  // Redraws one decision that has a choice, or sometimes the form, which then starts from its
  // preferred decisions. The result equals the point only if nothing has a choice.
  virtual Point Mutate(const Point& point, Rng& rng) const;
  // Takes each decision from one of the two points at random. If their forms differ, gives the
  // first.
  virtual Point Cross(const Point& a, const Point& b, Rng& rng) const;
  // Advances to the next point: Size() calls visit every point that Random may give. False when
  // the last one was passed and the first is back.
  virtual bool Next(Point& point) const;
};

// Never fails for a verified naive program: one that no rule fits gets a space of one point.
absl::StatusOr<std::unique_ptr<Space>> MakeSpace(const ir::Program& naive,
                                                 const machine::TargetInfo& target);

// The trace of the preferred point.
absl::StatusOr<Trace> DefaultTrace(const ir::Program& naive, const machine::TargetInfo& target);

// For tests: up to `max_steps` random primitives that do not refuse. The trace is legal by
// construction.
absl::StatusOr<Trace> RandomTrace(const ir::Program& naive, int max_steps, Rng& rng);

}  // namespace heddle::schedule
