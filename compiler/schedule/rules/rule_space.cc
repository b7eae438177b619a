// Builds the space of a program from the tables of rules.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/form_space.h"
#include "compiler/schedule/rules/inline_injective.h"
#include "compiler/schedule/rules/rule_table.h"
#include "compiler/schedule/space.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

// The space of one form of the program, whose stages are distributed among the rules.
class RuleSpace : public Space {
 public:
  // Null if the form does not apply.
  static std::unique_ptr<RuleSpace> Make(const ir::Program& naive,
                                         const machine::TargetInfo& target, const FormEntry& form,
                                         const FormSite& site) {
    auto space = std::unique_ptr<RuleSpace>(new RuleSpace(naive, target, form.name));
    return space->Build(form.make(site)) ? std::move(space) : nullptr;
  }

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

  std::vector<Offer> Offers() const override { return offers_; }

  Point Preferred() const override { return knobs_.Preferred(); }

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

 private:
  // Most draws of a random point. They are cheap, because nothing is scheduled.
  static constexpr int kMaxDraws = 1000;

  RuleSpace(const ir::Program& naive, const machine::TargetInfo& target, std::string_view form)
      : target_(target), form_(form), base_(naive) {}

  bool Build(std::unique_ptr<FormRule> form);
  absl::Status Keep(std::unique_ptr<Rule> rule, Knobs knobs);
  void FindRule(const Stage& stage);
  absl::Status CheckPoint(const Point& point) const;
  absl::StatusOr<Trace> ApplyRules(const Point& point, Recorder out) const;

  machine::TargetInfo target_;
  std::string_view form_;
  Recorder base_;                  // the form's program, with injective stages inlined
  Recorder tried_{ir::Program{}};  // base_ with the preferred decisions of all rules so far
  Knobs knobs_;
  std::vector<std::unique_ptr<Rule>> rules_;
  Owners owners_;
  std::vector<Offer> offers_;
};

bool RuleSpace::Build(std::unique_ptr<FormRule> form) {
  FormRule& rule = *form;
  if (!rule.Rewrite(base_).ok()) return false;
  InlineInjective(base_);
  tried_ = base_;
  Knobs knobs;
  if (!rule.Declare(base_.program(), target_, form_, knobs, owners_).ok()) return false;
  if (!Keep(std::move(form), std::move(knobs)).ok()) return false;
  for (const Stage& stage : ReductionsOf(base_.program(), owners_)) FindRule(stage);
  for (const Stage& stage : StagesLeft(base_.program(), owners_)) FindRule(stage);
  return rule.Holds(owners_);
}

// Keeps the rule if its preferred decisions work on top of those before it. `knobs`: all decisions
// so far and the rule's own.
absl::Status RuleSpace::Keep(std::unique_ptr<Rule> rule, Knobs knobs) {
  Recorder attempt = tried_;
  HEDDLE_RETURN_IF_ERROR(rule->Apply(knobs, knobs.Preferred(), attempt));
  tried_ = std::move(attempt);
  knobs_ = std::move(knobs);
  rules_.push_back(std::move(rule));
  return absl::OkStatus();
}

// Gives the stage to the first rule in the table that matches and can be kept.
void RuleSpace::FindRule(const Stage& stage) {
  const StageSite site{stage, target_, form_};
  for (const StageRule& entry : StageRules()) {
    if (!entry.matches(site)) continue;
    Knobs knobs = knobs_;
    std::unique_ptr<Rule> rule = entry.make(site, knobs);
    const absl::Status status = Keep(std::move(rule), std::move(knobs));
    offers_.push_back({stage.view.block, std::string(entry.name), status});
    if (!status.ok()) continue;
    owners_[stage.view.block] = entry.name;
    if (!stage.epilogue.empty()) owners_[stage.epilogue] = entry.name;
    for (const std::string& producer : stage.producers) owners_[producer] = entry.name;
    if (entry.name == kWalkRule || entry.name == kGpuWalkRule) {
      for (const std::string& step : stage.walk) owners_[step] = entry.name;
    }
    return;
  }
}

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

// Tries the forms in the table on the program, then on its reductions until one of them has forms.
std::unique_ptr<Space> BuildSpace(const ir::Program& naive, const machine::TargetInfo& target) {
  std::vector<Form> forms;
  int preferred = 0, best = 0;
  const auto add = [&](const FormSite& site) {
    for (const FormEntry& entry : Forms()) {
      if (!entry.matches(site)) continue;
      std::unique_ptr<Space> space = RuleSpace::Make(naive, target, entry, site);
      if (space == nullptr) continue;
      const int rank = entry.rank(site);
      if (forms.empty() || rank > best) {
        preferred = static_cast<int>(forms.size());
        best = rank;
      }
      forms.push_back({std::string(entry.name), std::move(space)});
    }
  };
  add({nullptr, target});
  for (const Path& path : AllBlocks(naive.body)) {
    if (path.block().reducer && forms.size() == 1) add({&path, target});
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
