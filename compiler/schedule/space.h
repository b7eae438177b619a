// The search space of one workload on one target, generated from the naive program by rules (no
// per-operator templates): inline what is injective, multi-level tiling of the reduction with data
// reuse, register accumulation by a local cache write, fused epilogue at a tile loop, padding
// inlined or computed at a tile, parallel outer loops, vectorized innermost, unrolled register
// tile; rfactor where there is little spatial parallelism. A 3 x 3 convolution has the Winograd
// forms beside the direct one, and the form is a decision like the others.
//
// A point of the space is a list of decisions, each an index into a finite list of choices; a trace
// is what it expands to.
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

// decisions[k] < Space::Choices(k). Comparable, hashable by its text ("3,0,17,2").
using Point = std::vector<int32_t>;

class Space {
 public:
  virtual ~Space() = default;
  // Number of decisions, and of choices of each (>= 1).
  virtual int NumDecisions() const = 0;
  virtual int32_t Choices(int decision) const = 0;
  // A human word for the decision, e.g. "tile conv2d.h".
  virtual std::string Describe(int decision) const = 0;
  // Expands a point. Points may be infeasible (FailedPrecondition: a register tile too large, a
  // primitive that refuses).
  virtual absl::StatusOr<Trace> Expand(const Point& point) const = 0;
  // The same with a replayer of the space's naive program, which then has what the trace makes: of
  // points that differ little, little is made anew.
  virtual absl::StatusOr<Trace> ExpandWith(const Point& point, Replayer& /*known*/) const {
    return Expand(point);
  }
  // Number of points: the product of the choices; where decision 0 is the form, the sum of that
  // over the forms, as decisions of other forms mean nothing.
  virtual double Size() const = 0;

  // Good decisions without any measurement, from cache and register sizes.
  virtual Point Preferred() const = 0;
  // Points whose decisions of other forms are zero: every form is as likely, and every choice in
  // it.
  virtual Point Random(Rng& rng) const;
  // Redraws one decision that has a choice; or, seldom, the form, which then starts from its
  // preferred decisions. The same point only if nothing has a choice.
  virtual Point Mutate(const Point& point, Rng& rng) const;
  // A point that takes each decision from one of two points; of points of different forms, the
  // first.
  virtual Point Cross(const Point& a, const Point& b, Rng& rng) const;
  // Makes it the next point: Size() calls visit every point that Random may give. False when the
  // last one was passed and the first is back.
  virtual bool Next(Point& point) const;
};

// Never fails for a verified naive program: a program no rule fits gets a space of one point, the
// default.
absl::StatusOr<std::unique_ptr<Space>> MakeSpace(const ir::Program& naive,
                                                 const machine::TargetInfo& target);

// A good schedule without any measurement, by the same rules with fixed decisions from cache and
// register sizes.
absl::StatusOr<Trace> DefaultTrace(const ir::Program& naive, const machine::TargetInfo& target);

// For tests: applies up to `max_steps` random primitives that do not refuse; the result is legal by
// construction.
absl::StatusOr<Trace> RandomTrace(const ir::Program& naive, int max_steps, Rng& rng);

}  // namespace heddle::schedule
