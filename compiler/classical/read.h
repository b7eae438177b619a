// Models of trees from the files of other libraries, recognised by their first bytes.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/classical/forest.h"

namespace heddle::classical {

// Larger files are refused.
inline constexpr size_t kMostFileBytes = size_t{1} << 30;

// Whether the bytes begin like a file that ReadForest reads: XGBoost's JSON and UBJSON or LightGBM's
// text.
bool IsForestFile(std::string_view bytes);

// The forest of such a file; see xgboost.h and lightgbm.h. InvalidArgument: the bytes begin otherwise,
// are more than kMostFileBytes, or the format's reader refuses them.
absl::StatusOr<Forest> ReadForest(std::string_view bytes);

}  // namespace heddle::classical
