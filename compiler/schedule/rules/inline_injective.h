// Inlines injective stages before stages are assigned to rules. Internal to this folder.
#pragma once

#include "compiler/schedule/rules/recorder.h"

namespace heddle::schedule {

// Merges chains of injective stages into one: each goes into its readers if these are injective
// too, unless it is expensive and read more than once, or is padding that is read in many places.
// What a reduction reads stays a stage of its own, which the reduction's rule places.
void InlineInjective(Recorder& out);

}  // namespace heddle::schedule
