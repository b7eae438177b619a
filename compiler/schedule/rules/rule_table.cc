#include "compiler/schedule/rules/rule_table.h"

namespace heddle::schedule {

namespace {

constexpr StageRule kStageRules[] = {
    // CPU: reductions with the stages around them, then each stage that is left, alone.
    {kWalkRule, MatchesWalk, MakeWalk},
    {"lanes", MatchesLanes, MakeLanes},
    {"window", MatchesWindow, MakeWindow},
    {"tiled", MatchesTiled, MakeTiled},
    {kPlainRule, MatchesPlain, MakePlain},
    // GPU: the same. A stage that no rule takes with the stages around it is tried alone.
    {kGpuWalkRule, MatchesGpuWalk, MakeGpuWalk},
    {kGpuTensorRule, MatchesGpuTensor, MakeGpuTensor},
    {"gpu tiled", MatchesGpuTiled, MakeGpuTiled},
    {"gpu row", MatchesGpuRow, MakeGpuRow},
    {"gpu plain", MatchesGpuPlain, MakeGpuPlain},
};

constexpr FormEntry kForms[] = {
    {"direct", MatchesDirect, MakeDirect, RankDirect},
    {kTensorCoresForm, MatchesTensorCores, MakeTensorCores, RankTensorCores},
    {"winograd 2", MatchesWinograd, MakeWinograd<2>, RankWinograd<2>},
    {"winograd 4", MatchesWinograd, MakeWinograd<4>, RankWinograd<4>},
    {"winograd 6", MatchesWinograd, MakeWinograd<6>, RankWinograd<6>},
};

}  // namespace

absl::Span<const StageRule> StageRules() { return kStageRules; }
absl::Span<const FormEntry> Forms() { return kForms; }

}  // namespace heddle::schedule
