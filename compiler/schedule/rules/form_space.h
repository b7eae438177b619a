// One space for all forms of a program. Internal to this folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/schedule/space.h"

namespace heddle::schedule {

// A way to compute the program, with the space of its schedules.
struct Form {
  std::string name;
  std::unique_ptr<Space> space;
};

// Decision 0 picks the form. The others belong to one form each, in the order of `forms`; those of
// forms that are not picked mean nothing, and are zero in the points that Random, Mutate and
// Preferred give. `forms` has two or more, `preferred` is the index of one.
std::unique_ptr<Space> MakeFormSpace(std::vector<Form> forms, int preferred);

}  // namespace heddle::schedule
