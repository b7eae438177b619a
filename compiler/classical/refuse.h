// What the readers of models say of a file that they do not take. Private to this folder.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace heddle::classical {

// InvalidArgument: the parts of the reason, joined to one line of ASCII. The parts may quote the file, whose texts may hold anything.
template <typename... Why>
absl::Status Refuse(const Why&... why) {
  std::string line = absl::StrCat(why...);
  for (char& c : line) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return absl::InvalidArgumentError(line);
}

// A part of the file, such as "trees[3].split_indices", is not as the library writes it.
template <typename... Why>
absl::Status Damaged(absl::string_view where, const Why&... why) {
  return Refuse(where, ": ", why..., "; the file is damaged: save the model again with save_model");
}

}  // namespace heddle::classical
