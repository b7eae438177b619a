// Converts Protobuf messages to and from plain JSON: numbers stay numbers, also 64-bit ones; enums
// are lower-case words without their prefix ("done", "wrong_result"); fields keep their names.
// docs/json.md describes what the commands print.
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

// What to read: every field is there, an unset message as null, an empty list as []. Times have one unit:
// a field whose name ends in _ms or _us is in nanoseconds, and its name ends in _ns.
nlohmann::json ToJson(const google::protobuf::Message& message);
// One line of text; adds "schema_version" unless the message has such a field itself.
std::string ToJsonLine(const google::protobuf::Message& message);

// What to keep in a file: fields without a value are left out, and all names and units are the message's.
nlohmann::json ToFileJson(const google::protobuf::Message& message);
std::string ToFileJsonLine(const google::protobuf::Message& message);

// Reads ToFileJsonLine, and ToJsonLine of messages without times in other units than nanoseconds.
// InvalidArgument names the field that is unknown or of the wrong type. "schema_version" is
// accepted where the message has no such field.
absl::Status FromJsonLine(std::string_view line, google::protobuf::Message* message);

// Prints a JSON document of one text under that name.
void PrintOneText(const std::string& name, const std::string& text);

}  // namespace heddle::client
