// Parts of a task's page that say how good its trials are: how well the cost model ranked them, and how
// far they are from what the machine can do.
#pragma once

#include "views/html.h"
#include "views/pages.h"

namespace heddle::views {

// Predicted against measured ranks. Of a task without predictions, a line that says so.
Html PredictionPart(const TaskDetails& details);
// The roofline with the trials. Where a limit of the machine or the task's bytes are not known, a line
// that says so.
Html RooflinePart(const TaskDetails& details);
// The machine code of the kernel, behind a heading that opens it, and cut where it is long. The page has no
// code to show, since the scheduler opens none: there, the command that lists it.
Html KernelPart(const TaskDetails& details);
// The loops that schedules begin from, behind a heading that opens them; empty if they are not known.
Html LoopsPart(const TaskDetails& details);

}  // namespace heddle::views
