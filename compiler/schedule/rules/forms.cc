#include "compiler/schedule/rules/forms.h"

#include <algorithm>

#include "compiler/schedule/rules/rules.h"

namespace heddle::schedule {

namespace {

class TensorCoresForm : public FormRule {
 public:
  bool Holds(const Owners& owners) const override {
    return std::any_of(owners.begin(), owners.end(),
                       [](const auto& owner) { return owner.second == kGpuTensorRule; });
  }
};

}  // namespace

bool MatchesDirect(const FormSite& site) { return site.reduction == nullptr; }
std::unique_ptr<FormRule> MakeDirect(const FormSite&) { return std::make_unique<FormRule>(); }
int RankDirect(const FormSite&) { return 0; }

bool MatchesTensorCores(const FormSite& site) {
  if (site.reduction == nullptr) return false;
  ReductionStage stage;
  stage.block = &site.reduction->block();
  return ViewStage(*site.reduction, &stage.view) &&
         MatchesGpuTensor({stage, site.target, kTensorCoresForm});
}
std::unique_ptr<FormRule> MakeTensorCores(const FormSite&) {
  return std::make_unique<TensorCoresForm>();
}
int RankTensorCores(const FormSite&) { return 1; }

}  // namespace heddle::schedule
