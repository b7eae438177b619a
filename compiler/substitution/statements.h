// Rules that are larger than what is enumerated, stated by hand. `heddle-rules generate` judges them like those
// that it finds: they hold on small shapes, they are proved from the axioms, and no others lead to them.
#pragma once

#include <vector>

#include "compiler/substitution/term.h"

namespace heddle::substitution {

std::vector<Rule> Statements();

}  // namespace heddle::substitution
