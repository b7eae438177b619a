// What the readers of models say of a file that they do not take. Private to this folder.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace heddle::classical {

// InvalidArgument: the parts of the reason, joined.
template <typename... Why>
absl::Status Refuse(const Why&... why) {
  return absl::InvalidArgumentError(absl::StrCat(why...));
}

// A part of the file, such as "trees[3].split_indices", is not as the library writes it.
template <typename... Why>
absl::Status Damaged(absl::string_view where, const Why&... why) {
  return Refuse(where, ": ", why..., "; the file is damaged: save the model again with save_model");
}

}  // namespace heddle::classical
