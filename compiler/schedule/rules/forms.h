// Forms: rules on the whole program. A form is a way to compute its result, chosen before any loop
// is scheduled. Internal to this folder; rule_table.cc lists the forms.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"
#include "compiler/schedule/rules/recorder.h"
#include "compiler/schedule/rules/rule.h"
#include "compiler/schedule/rules/stage.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

// Names of forms and rules that other rules refer to.
inline constexpr std::string_view kTensorCoresForm = "tensor cores";
inline constexpr std::string_view kGpuTensorRule = "gpu tensor";
inline constexpr std::string_view kPlainRule = "plain";
// These take the blocks of Stage::walk, too.
inline constexpr std::string_view kWalkRule = "walk";
inline constexpr std::string_view kGpuWalkRule = "gpu walk";

// What a form applies to: the naive program as a whole, or one reduction in it. Forms are tried on
// the program, then on its reductions until one of them has forms.
struct FormSite {
  const Path* reduction;  // null: the program
  const machine::TargetInfo& target;
};

// The base class leaves the program as it is.
class FormRule : public Rule {
 public:
  // Rewrites the naive program.
  virtual absl::Status Rewrite(Recorder& /*out*/) { return absl::OkStatus(); }
  // Looks at the rewritten program, in which injective stages are inlined, and declares decisions
  // for the stages that no stage rule knows. These stages get `name` as their owner.
  virtual absl::Status Declare(const ir::Program& /*program*/,
                               const machine::TargetInfo& /*target*/, std::string_view /*name*/,
                               Knobs& /*knobs*/, Owners& /*owners*/) {
    return absl::OkStatus();
  }
  // Schedules the stages that Declare has claimed.
  absl::Status Apply(const Knobs& /*knobs*/, const Point& /*point*/,
                     Recorder& /*out*/) const override {
    return absl::OkStatus();
  }
  // Whether the form is worth having, once all stages have owners.
  virtual bool Holds(const Owners& /*owners*/) const { return true; }
};

// The program as it is.
bool MatchesDirect(const FormSite& site);
std::unique_ptr<FormRule> MakeDirect(const FormSite& site);
int RankDirect(const FormSite& site);

// Products on tensor cores wherever they fit (gpu/tensor_rule.cc).
bool MatchesTensorCores(const FormSite& site);
std::unique_ptr<FormRule> MakeTensorCores(const FormSite& site);
int RankTensorCores(const FormSite& site);

// A 3 x 3 convolution as F(m x m, 3 x 3) of Winograd (winograd_form.cc).
bool MatchesWinograd(const FormSite& site);
std::unique_ptr<FormRule> MakeWinogradForm(const FormSite& site, int64_t m);
int RankWinogradForm(const FormSite& site, int64_t m);
template <int64_t m>
std::unique_ptr<FormRule> MakeWinograd(const FormSite& site) {
  return MakeWinogradForm(site, m);
}
template <int64_t m>
int RankWinograd(const FormSite& site) {
  return RankWinogradForm(site, m);
}

}  // namespace heddle::schedule
