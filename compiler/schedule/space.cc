#include "compiler/schedule/space.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/primitives/primitives.h"
#include "compiler/schedule/rules/form_choice.h"
#include "compiler/schedule/rules/form_space.h"
#include "compiler/schedule/rules/gpu_rules.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

class RuleSpace : public Space {
 public:
  RuleSpace(const ir::Program& naive, const machine::TargetInfo& target)
      : target_(target), base_(naive) {}

  // The space of the program in Winograd form; false if it has none, or the form does not apply.
  bool BuildWinograd(const std::string& block, int64_t m);

  int NumDecisions() const override { return static_cast<int>(knobs_.all().size()); }
  int32_t Choices(int decision) const override {
    return static_cast<int32_t>(knobs_.all()[decision].values.size());
  }
  std::string Describe(int decision) const override { return knobs_.all()[decision].what; }

  absl::StatusOr<Trace> Expand(const Point& point) const override {
    return ApplyRules(point, base_);
  }
  absl::StatusOr<Trace> ExpandWith(const Point& point, Replayer& known) const override {
    Recorder out(known);
    for (const Step& step : base_.trace().steps) HEDDLE_RETURN_IF_ERROR(out.Do(step));
    return ApplyRules(point, std::move(out));
  }

  double Size() const override {
    double size = 1;
    for (const Knob& knob : knobs_.all()) size *= static_cast<double>(knob.values.size());
    return size;
  }

  Point Preferred() const override {
    Point point;
    for (const Knob& knob : knobs_.all()) point.push_back(knob.preferred);
    return point;
  }

  Point Random(Rng& rng) const override {
    Point point;
    for (int draw = 0; draw < kMaxDraws; ++draw) {
      point = Space::Random(rng);
      const bool fits = std::all_of(rules_.begin(), rules_.end(), [&](const auto& rule) {
        return rule->Check(knobs_, point).ok();
      });
      if (fits) break;
    }
    return point;
  }

  // `tensor`: with tensor cores where they fit; false if they fit nowhere.
  bool Build(bool tensor = false);

 private:
  static constexpr int kMaxDraws = 1000;  // of a random point; cheap, as nothing is scheduled
  absl::Status CheckPoint(const Point& point) const;
  absl::StatusOr<Trace> ApplyRules(const Point& point, Recorder out) const;
  void InlineInjective();
  void AddReductions();
  void AddPlainStages();
  bool TryRule(std::unique_ptr<Rule> (*make)(const ReductionStage&, int, const machine::TargetInfo&,
                                             Knobs&),
               const ReductionStage& stage, int axis);
  void AddReduction(const ReductionStage& stage);
  void AddPlain(const Path& path);
  std::vector<Path> Consumers(const std::vector<Path>& blocks, const Path& producer) const;

  machine::TargetInfo target_;
  Recorder base_;                  // the naive program with what is injective inlined
  Recorder tried_{ir::Program{}};  // base_ with the preferred decisions of all rules so far
  Knobs knobs_;
  std::vector<std::unique_ptr<Rule>> rules_;
  std::set<std::string> taken_;  // blocks that a rule owns
  bool tensor_ = false, took_tensor_ = false;
};

absl::Status RuleSpace::CheckPoint(const Point& point) const {
  if (static_cast<int>(point.size()) != NumDecisions()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a point has ", NumDecisions(), " decisions here, not ", point.size()));
  }
  for (int k = 0; k < NumDecisions(); ++k) {
    if (point[k] >= 0 && point[k] < Choices(k)) continue;
    return absl::InvalidArgumentError(absl::StrCat("decision ", k, " has ", Choices(k),
                                                   " choices; ", point[k], " is not one of them"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Trace> RuleSpace::ApplyRules(const Point& point, Recorder out) const {
  HEDDLE_RETURN_IF_ERROR(CheckPoint(point));
  for (const auto& rule : rules_) HEDDLE_RETURN_IF_ERROR(rule->Apply(knobs_, point, out));
  return std::move(out).TakeTrace();
}

std::vector<Path> RuleSpace::Consumers(const std::vector<Path>& blocks,
                                       const Path& producer) const {
  std::vector<Path> consumers;
  for (const Path& path : blocks) {
    if (Reads(path.block(), producer.block().store.buffer.get())) consumers.push_back(path);
  }
  return consumers;
}

// Loads of the buffer at different places, in all blocks together: how often its stage would be
// computed if it went into its readers. Equal loads of one block share their computation.
int DistinctLoads(const std::vector<Path>& readers, const ir::Buffer* buffer) {
  int count = 0;
  for (const Path& path : readers) {
    std::vector<ir::Expr> seen;
    ForEachLoad(path.block(), [&](const ir::Expr& load) {
      if (load->buffer.get() != buffer) return;
      for (const ir::Expr& other : seen) {
        if (ir::StructuralEqual(load, other)) return;
      }
      seen.push_back(load);
    });
    count += static_cast<int>(seen.size());
  }
  return count;
}

// Padding asks at every load whether it is inside; asked too often, a padded copy is cheaper.
constexpr int kMaxGuardedCopies = 4;

bool HasGuard(const ir::Expr& e) {
  if (e->kind == ir::ExprKind::kOp && e->op == ir::Op::kSelect) return true;
  return std::any_of(e->args.begin(), e->args.end(), HasGuard);
}

// Chains of injective stages become one: each goes into its readers if these are injective too,
// unless it is expensive and read more than once. What a reduction reads stays a stage of its own,
// which the reduction's rule places.
void RuleSpace::InlineInjective() {
  bool changed = true;
  while (changed) {
    changed = false;
    std::vector<Path> blocks = AllBlocks(base_.program().body);
    for (const Path& path : blocks) {
      const ir::Block& block = path.block();
      if (block.reducer || IsOutput(base_.program(), block.store.buffer.get())) continue;
      std::vector<Path> consumers = Consumers(blocks, path);
      bool injective = std::all_of(consumers.begin(), consumers.end(),
                                   [](const Path& c) { return !c.block().reducer; });
      if (!injective) continue;
      const int readers = DistinctLoads(consumers, block.store.buffer.get());
      if (IsExpensive(block) && readers > 1) continue;
      if (readers > kMaxGuardedCopies && HasGuard(block.store.value)) continue;
      if (taken_.count(block.name)) continue;
      if (base_.Do(Primitive::kComputeInline, {block.name}).ok()) {
        changed = true;
        break;
      }
    }
  }
}

// Buffers of const inputs and of what is computed from nothing else.
std::set<const ir::Buffer*> ConstantBuffers(const ir::Program& program,
                                            const std::vector<Path>& blocks) {
  std::set<const ir::Buffer*> constants;
  for (const ir::BufferRef& input : program.inputs) {
    if (input->constant) constants.insert(input.get());
  }
  for (const Path& path : blocks) {  // in program order: producers first
    bool known = true;
    ForEachLoad(path.block(),
                [&](const ir::Expr& load) { known &= constants.count(load->buffer.get()) > 0; });
    const ir::Buffer* buffer = path.block().store.buffer.get();
    if (known && !IsOutput(program, buffer)) constants.insert(buffer);
  }
  return constants;
}

void RuleSpace::AddReductions() {
  const ir::Program& base = base_.program();
  std::vector<Path> blocks = AllBlocks(base.body);
  const std::set<const ir::Buffer*> constants = ConstantBuffers(base, blocks);
  std::vector<ReductionStage> stages;
  std::set<std::string> epilogues;
  for (const Path& path : blocks) {
    if (!path.block().reducer) continue;
    ReductionStage stage;
    for (const ir::Buffer* buffer : constants) {
      if (Reads(path.block(), buffer)) stage.constants.push_back(buffer->name);
    }
    std::sort(stage.constants.begin(), stage.constants.end());
    stage.block = &path.block();
    if (!ViewStage(path, &stage.view)) continue;
    // An injective stage that is all that reads the result, point by point, runs on each finished
    // tile.
    std::vector<Path> consumers = Consumers(blocks, path);
    if (consumers.size() == 1 && !stage.view.spatial.empty()) {
      const ir::Block& consumer = consumers[0].block();
      int64_t points = 1;
      for (const ir::BlockIter& iter : consumer.iters) points *= iter.extent;
      if (!consumer.reducer && points == path.block().store.buffer->NumElements() &&
          !epilogues.count(consumer.name) && !taken_.count(consumer.name) &&
          ReverseComputeAt(base, consumer.name, stage.view.spatial.back().loop).ok()) {
        stage.epilogue = consumer.name;
        epilogues.insert(consumer.name);
      }
    }
    stages.push_back(std::move(stage));
  }
  for (ReductionStage& stage : stages) {
    for (const Path& path : blocks) {
      const ir::Block& block = path.block();
      if (block.reducer || epilogues.count(block.name) || taken_.count(block.name)) continue;
      const ir::Buffer* buffer = block.store.buffer.get();
      if (IsOutput(base, buffer) || constants.count(buffer)) continue;
      std::vector<Path> consumers = Consumers(blocks, path);
      if (consumers.size() == 1 && &consumers[0].block() == stage.block) {
        stage.producers.push_back(block.name);
      }
    }
    AddReduction(stage);
  }
}

// Keeps the rule if its preferred decisions work on top of those before it.
bool RuleSpace::TryRule(std::unique_ptr<Rule> (*make)(const ReductionStage&, int,
                                                      const machine::TargetInfo&, Knobs&),
                        const ReductionStage& stage, int axis) {
  Knobs knobs = knobs_;
  std::unique_ptr<Rule> rule = make(stage, axis, target_, knobs);
  if (rule == nullptr) return false;
  Point point;
  for (const Knob& knob : knobs.all()) point.push_back(knob.preferred);
  Recorder attempt = tried_;
  if (!rule->Apply(knobs, point, attempt).ok()) return false;
  tried_ = std::move(attempt);
  knobs_ = std::move(knobs);
  rules_.push_back(std::move(rule));
  taken_.insert(stage.view.block);
  if (!stage.epilogue.empty()) taken_.insert(stage.epilogue);
  taken_.insert(stage.producers.begin(), stage.producers.end());
  return true;
}

void RuleSpace::AddReduction(const ReductionStage& stage) {
  if (target_.execution == machine::Execution::kGrid) {
    for (const GpuRuleMaker make : GpuRulesFor(stage, target_, tensor_)) {
      if (!TryRule(make, stage, 0)) continue;
      took_tensor_ |= make == MakeGpuTensor;
      return;
    }
    return;
  }
  const std::vector<Axis>& spatial = stage.view.spatial;
  int best = -1;
  VectorFit best_fit;
  for (size_t k = 0; k < spatial.size(); ++k) {
    if (spatial[k].extent < 2) continue;
    VectorFit fit = FitOf(*stage.block, spatial[k].iter);
    if (fit.contiguous == 0) continue;
    if (best < 0 || fit.scattered < best_fit.scattered ||
        (fit.scattered == best_fit.scattered && fit.contiguous >= best_fit.contiguous)) {
      best = static_cast<int>(k);
      best_fit = fit;
    }
  }
  int lane_axis = -1;
  for (size_t k = 0; k < stage.view.reduce.size(); ++k) {
    VectorFit fit = FitOf(*stage.block, stage.view.reduce[k].iter);
    if (fit.contiguous > 0 && fit.scattered == 0 &&
        PowerOfTwoDivisor(stage.view.reduce[k].extent, 64) >= 4) {
      lane_axis = static_cast<int>(k);
    }
  }
  const bool clean = best >= 0 && best_fit.scattered == 0;
  if (!clean && lane_axis >= 0 && TryRule(MakeLaneReduction, stage, lane_axis)) return;
  if (best < 0) return;
  if (IsWindowReduction(stage, best) && TryRule(MakeWindowReduction, stage, best)) return;
  TryRule(MakeTiledReduction, stage, best);
}

void RuleSpace::AddPlainStages() {
  const std::vector<Path> blocks = AllBlocks(base_.program().body);
  const std::set<const ir::Buffer*> constants = ConstantBuffers(base_.program(), blocks);
  for (const Path& path : blocks) {
    const ir::Block& block = path.block();
    StageView view;
    if (target_.execution == machine::Execution::kGrid) {
      if (taken_.count(block.name) || !ViewStage(path, &view) || view.spatial.empty()) continue;
      AddReduction({view, &block, "", {}, {}});
      continue;
    }
    // What is computed when the module is made may be slow.
    if (constants.count(block.store.buffer.get())) continue;
    if (taken_.count(block.name) || !ViewStage(path, &view) || view.spatial.empty()) continue;
    Knobs knobs = knobs_;
    std::unique_ptr<Rule> rule = MakePlainStage(view, block, target_, knobs);
    Point point;
    for (const Knob& knob : knobs.all()) point.push_back(knob.preferred);
    Recorder attempt = tried_;
    if (!rule->Apply(knobs, point, attempt).ok()) continue;
    tried_ = std::move(attempt);
    knobs_ = std::move(knobs);
    rules_.push_back(std::move(rule));
  }
}

bool RuleSpace::Build(bool tensor) {
  tensor_ = tensor;
  InlineInjective();
  tried_ = base_;
  AddReductions();
  AddPlainStages();
  return !tensor || took_tensor_;
}

bool RuleSpace::BuildWinograd(const std::string& block, int64_t m) {
  if (!base_.Do(Primitive::kWinograd, {block}, {m}).ok()) return false;
  InlineInjective();
  tried_ = base_;
  Knobs knobs;
  std::set<std::string> owned;
  std::unique_ptr<Rule> transforms =
      MakeWinogradTransforms(base_.program(), block, m, target_, knobs, &owned);
  if (transforms == nullptr) return false;
  Point point;
  for (const Knob& knob : knobs.all()) point.push_back(knob.preferred);
  Recorder attempt = tried_;
  if (!transforms->Apply(knobs, point, attempt).ok()) return false;
  tried_ = std::move(attempt);
  knobs_ = std::move(knobs);
  rules_.push_back(std::move(transforms));
  taken_.insert(owned.begin(), owned.end());
  AddReductions();
  AddPlainStages();
  return taken_.count(block + ".product") > 0;
}

std::unique_ptr<Space> BuildSpace(const ir::Program& naive, const machine::TargetInfo& target) {
  auto direct = std::make_unique<RuleSpace>(naive, target);
  direct->Build();
  std::vector<Form> forms;
  forms.push_back({"direct", std::move(direct)});
  int preferred = 0;
  if (target.execution == machine::Execution::kGrid) {
    auto tensor = std::make_unique<RuleSpace>(naive, target);
    if (!target.tensor_cores || !tensor->Build(true)) return std::move(forms[0].space);
    forms.push_back({"tensor cores", std::move(tensor)});
    return MakeFormSpace(std::move(forms), 1);
  }
  for (const Path& path : AllBlocks(naive.body)) {
    if (!path.block().reducer || !target.target.winograd) continue;
    const int wanted = PreferredWinograd(path.block(), target);
    for (int64_t m : {2, 4, 6}) {
      auto space = std::make_unique<RuleSpace>(naive, target);
      if (!space->BuildWinograd(path.block().name, m)) continue;
      if (m == wanted) preferred = static_cast<int>(forms.size());
      forms.push_back({absl::StrCat("winograd ", m), std::move(space)});
    }
    if (forms.size() > 1) break;
  }
  if (forms.size() == 1) return std::move(forms[0].space);
  return MakeFormSpace(std::move(forms), preferred);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Space>> MakeSpace(const ir::Program& naive,
                                                 const machine::TargetInfo& target) {
  return BuildSpace(naive, target);
}

absl::StatusOr<Trace> DefaultTrace(const ir::Program& naive, const machine::TargetInfo& target) {
  std::unique_ptr<Space> space = BuildSpace(naive, target);
  return space->Expand(space->Preferred());
}

}  // namespace heddle::schedule
