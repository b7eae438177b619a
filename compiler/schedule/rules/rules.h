// The rules a search space is made of. A rule owns one stage (or one reduction with its epilogue
// and its producers), declares the decisions it leaves open, and turns decided values into steps.
// Internal to this folder.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"
#include "compiler/schedule/access.h"
#include "compiler/schedule/replayer.h"
#include "compiler/schedule/space.h"
#include "compiler/schedule/trace.h"

namespace heddle::schedule {

// One decision: the values to choose from and the one to take without measurement.
struct Knob {
  std::string what;
  std::vector<int64_t> values;
  int32_t preferred = 0;
};

class Knobs {
 public:
  // Returns the decision's index. `preferred` must be among the values, else the first is
  // preferred.
  int Add(std::string what, std::vector<int64_t> values, int64_t preferred);
  const std::vector<Knob>& all() const { return knobs_; }
  int64_t Value(const Point& point, int knob) const { return knobs_[knob].values[point[knob]]; }

 private:
  std::vector<Knob> knobs_;
};

// Applies steps and writes them down.
class Recorder {
 public:
  explicit Recorder(ir::Program program) : program_(std::move(program)) {}
  // On the program of `known`, which remembers the steps. It must outlive the recorder, and begin
  // nothing else meanwhile.
  explicit Recorder(Replayer& known) : known_(&known), at_(known.Begin()) {}
  absl::Status Do(Primitive primitive, std::vector<std::string> names,
                  std::vector<int64_t> ints = {});
  absl::Status Do(Step step);
  // Keeps what a reduction accumulates in registers. The block that takes it out of there: its
  // epilogue, or a copy of its own where that is empty.
  absl::StatusOr<std::string> Accumulate(const std::string& reduction, const std::string& epilogue);
  const ir::Program& program() const { return known_ != nullptr ? at_->program : program_; }
  const Trace& trace() const { return trace_; }
  Trace TakeTrace() && { return std::move(trace_); }

 private:
  Replayer* known_ = nullptr;
  Replayer::State* at_ = nullptr;
  ir::Program program_;  // without `known_`
  Trace trace_;
};

class Rule {
 public:
  virtual ~Rule() = default;
  virtual absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const = 0;
  // What Apply would say of limits that decisions alone show, before any step is made. Random
  // points are drawn until this is OK.
  virtual absl::Status Check(const Knobs& /*knobs*/, const Point& /*point*/) const {
    return absl::OkStatus();
  }
};

// A reduction as its rule needs it.
struct ReductionStage {
  StageView view;
  const ir::Block* block = nullptr;    // alive as long as the analysed program
  std::string epilogue;                // empty: the reduction is copied out instead
  std::vector<std::string> producers;  // injective blocks that only this reduction reads
  std::vector<std::string> constants;  // buffers it reads that are known when a module is made
};

// Lanes of one vector register for elements of this type.
int64_t LanesOf(const machine::TargetInfo& target, ir::DType dtype);

// Multi-level tiling around an accumulator tile in registers, vectorized along a spatial axis.
std::unique_ptr<Rule> MakeTiledReduction(const ReductionStage& stage, int vector_axis,
                                         const machine::TargetInfo& target, Knobs& knobs);
// A window that slides along rows or columns, one for each lane; neighbouring windows share
// registers.
std::unique_ptr<Rule> MakeWindowReduction(const ReductionStage& stage, int vector_axis,
                                          const machine::TargetInfo& target, Knobs& knobs);
// Whether that fits: every load moves with the lanes, some index with a spatial and a reduce axis.
bool IsWindowReduction(const ReductionStage& stage, int vector_axis);
// One partial result per lane along a reduce axis that is contiguous in memory.
std::unique_ptr<Rule> MakeLaneReduction(const ReductionStage& stage, int reduce_axis,
                                        const machine::TargetInfo& target, Knobs& knobs);
// An injective stage, or a reduction no other rule fits: outer loops parallel, the contiguous axis
// vectorized.
std::unique_ptr<Rule> MakePlainStage(const StageView& view, const ir::Block& block,
                                     const machine::TargetInfo& target, Knobs& knobs);

// The transforms of a convolution in Winograd form (primitives.h): of its input per tile and
// register of channels, of its result likewise with the epilogue. Null if the program after
// `winograd <block> m` does not look as expected. `blocks` receives the blocks the rule owns.
std::unique_ptr<Rule> MakeWinogradTransforms(const ir::Program& program, const std::string& block,
                                             int64_t m, const machine::TargetInfo& target,
                                             Knobs& knobs, std::set<std::string>* blocks);

// The steps of a plain stage with its preferred decisions.
absl::Status ApplyPlain(const StageView& view, const ir::Block& block,
                        const machine::TargetInfo& target, Recorder& out);

// Splits off and vectorizes the last loop of a copy nest where its extent allows; otherwise leaves
// it alone.
absl::Status VectorizeLoop(const std::string& loop, int64_t extent, int64_t lanes, Recorder& out);

}  // namespace heddle::schedule
