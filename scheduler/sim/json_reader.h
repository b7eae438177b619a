// Reads fields of a JSON file and remembers the first error, with its path in the file.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace heddle::sim {

using Json = nlohmann::json;

// The message of the JSON library without its prefix "[json.exception...] ".
inline std::string Plain(const std::exception& error) {
  const std::string text = error.what();
  const size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

// Every reading function leaves `value` unchanged if the field is missing or wrong.
class Reader {
 public:
  Reader(std::string file, absl::Status* status) : file_(std::move(file)), status_(status) {}
  void Wrong(const std::string& path, const std::string& why) const {
    if (status_->ok())
      *status_ = absl::InvalidArgumentError(absl::StrCat(file_, ": ", path, ": ", why));
  }
  bool ok() const { return status_->ok(); }

  // Fields outside `known` are errors, most likely spelling mistakes.
  void Known(const Json& json, const std::string& path, const std::set<std::string>& known) const {
    if (!json.is_object()) return Wrong(path.empty() ? "the file" : path, "must be an object {..}");
    for (const auto& [key, value] : json.items()) {
      if (!known.count(key) && key != "comment") {
        Wrong(At(path, key), absl::StrCat("no such field; there are ", absl::StrJoin(known, ", ")));
      }
    }
  }
  void Number(const Json& json, const std::string& path, const char* field, double low, double high,
              double* value) const {
    if (!json.is_object() || !json.contains(field)) return;
    const Json& found = json.at(field);
    if (!found.is_number() || !(found.get<double>() >= low && found.get<double>() <= high)) {
      return Wrong(At(path, field),
                   absl::StrCat("is ", found.dump(), "; it must be a number in ", low, "..", high));
    }
    *value = found.get<double>();
  }
  void Integer(const Json& json, const std::string& path, const char* field, int low, int high,
               int* value) const {
    double number = *value;
    Number(json, path, field, low, high, &number);
    if (number != std::floor(number)) return Wrong(At(path, field), "must be a whole number");
    *value = static_cast<int>(number);
  }
  void Text(const Json& json, const std::string& path, const char* field,
            std::string* value) const {
    if (!json.is_object() || !json.contains(field)) return;
    if (!json.at(field).is_string()) return Wrong(At(path, field), "must be a text in quotes");
    *value = json.at(field).get<std::string>();
  }
  void Flag(const Json& json, const std::string& path, const char* field, bool* value) const {
    if (!json.is_object() || !json.contains(field)) return;
    if (!json.at(field).is_boolean()) return Wrong(At(path, field), "must be true or false");
    *value = json.at(field).get<bool>();
  }
  static std::string At(const std::string& path, const std::string& field) {
    return path.empty() ? field : absl::StrCat(path, ".", field);
  }

 private:
  std::string file_;
  absl::Status* status_;
};

}  // namespace heddle::sim
