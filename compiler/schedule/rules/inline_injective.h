// What is inlined before rules share out the stages. Internal to this folder.
#pragma once

#include "compiler/schedule/rules/recorder.h"

namespace heddle::schedule {

// Chains of injective stages become one: each goes into its readers if these are injective too,
// unless it is expensive and read more than once. What a reduction reads stays a stage of its own,
// which the reduction's rule places.
void InlineInjective(Recorder& out);

}  // namespace heddle::schedule
