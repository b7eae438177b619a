// Checks a message from another process against the rules written beside its fields (proto/rules.proto). What spans several fields is in
// proto/message_rules.h, which calls this first.
//
// The cost is a microsecond or two for a record, and grows with the number of fields and the bytes of their text.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace heddle {

// InvalidArgument names the field, its limit and what it has: "profiled.measurement.samples_ns[2] is nan; it must be a finite number".
// Fields that this program does not know are ignored, but a message has at most kMaxUnknownBytes of them.
absl::Status CheckMessage(const google::protobuf::Message& message);
inline constexpr size_t kMaxUnknownBytes = 4096;

// Makes texts for people fit their rule: in every field with (rule).line, control characters become spaces and what is too long is cut;
// a repeated one loses the items beyond its limit. For the output of a process of ours, whose long message is no reason to drop a result.
void TrimLines(google::protobuf::Message* message);

// The most bytes that the text `field` of the message type may have, as its rule (rule).text says. For whoever makes the text.
size_t MostTextBytes(const google::protobuf::Descriptor& type, int field);

// Why the rules of the message type and of all types inside it are not complete, one line for each field; empty: they are. A text, a
// list or a floating-point number needs a limit, and a rule must suit the type of its field.
std::string FindGaps(const google::protobuf::Descriptor& type);

}  // namespace heddle
