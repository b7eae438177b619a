// JSON and UBJSON as a tree of values, for files that nobody has checked yet.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heddle::classical {

struct Member;

// Booleans are the numbers 0 and 1. An array of nothing but numbers lies side by side, and so does an
// empty one. null is NaN in such an array; in any other array NaN is null.
struct Value {
  std::variant<std::monostate, double, std::string, std::vector<double>, std::vector<Value>,
               std::vector<Member>>
      is;

  // The first member of that name; nullptr if there is none or the value is no object.
  const Value* Find(absl::string_view name) const;
};

struct Member {
  std::string name;
  Value value;
};

// Arrays and objects inside one another beyond this are refused.
inline constexpr int kMostLevels = 64;

// The file's only value. Bytes that begin like a JSON object are read as JSON, all others as UBJSON.
// XGBoost writes the word NaN into JSON, which the standard does not know; it is read as null.
// InvalidArgument: the bytes are neither, end early, have more after the value, are nested too deeply,
// or announce more values than there are bytes.
absl::StatusOr<Value> ParseDocument(std::string_view bytes);

// Whether the bytes begin like a JSON object: a brace, blanks, and the quote of a name or the closing
// brace.
bool BeginsLikeJson(std::string_view bytes);

}  // namespace heddle::classical
