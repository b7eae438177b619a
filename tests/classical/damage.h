// Damaged files of forests, for tests.
#pragma once

#include <string_view>

namespace heddle::classical {

// Reads the file cut short at many places, and with random bytes changed, added and left out. ReadForest
// does not crash, refuses with InvalidArgument, and what it accepts CheckForest accepts, too.
void ExpectSafeReadingOfDamage(std::string_view file);

}  // namespace heddle::classical
