// Converts Protobuf messages to and from plain JSON: numbers stay numbers, also 64-bit ones; enums
// are lower-case words without their prefix ("done", "wrong_result"); fields keep their names;
// empty fields are left out.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace heddle::client {

// Version of every JSON document and stream the command prints; each document carries it as
// "schema_version".
inline constexpr int kJsonSchemaVersion = 1;

nlohmann::json ToJson(const google::protobuf::Message& message);
// One line of text; adds "schema_version" unless the message has such a field itself.
std::string ToJsonLine(const google::protobuf::Message& message);
// InvalidArgument names the field that is unknown or of the wrong type. "schema_version" is
// accepted where the message has no such field.
absl::Status FromJsonLine(std::string_view line, google::protobuf::Message* message);

}  // namespace heddle::client
