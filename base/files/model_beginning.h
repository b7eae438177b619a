// What the first bytes of a file tell before it is taken for a model: that it is none, for certain.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"

namespace heddle {

inline constexpr size_t kModelBeginning = 512;  // bytes that are enough to look at

// Whether the bytes begin as modules of any format version do (compiler/runtime/module.h).
inline bool BeginsLikeModule(std::string_view bytes) { return bytes.substr(0, 6) == "HEDDLE"; }

// InvalidArgument: the bytes are those of a module, of a format that is not read, or text that neither XGBoost nor
// LightGBM writes. All else is OK, and may be anything: an import finds out. The message begins with "it is".
absl::Status CheckModelBeginning(std::string_view bytes);

}  // namespace heddle
