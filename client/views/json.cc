#include "client/views/json.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/status_macros.h"

namespace heddle::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::json;

std::string EnumWord(const EnumValueDescriptor& value) {
  std::string word = value.name().substr(value.name().find('_') + 1);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return word;
}

const EnumValueDescriptor* EnumFromWord(const EnumDescriptor& type, const std::string& word) {
  for (int i = 0; i < type.value_count(); ++i) {
    if (EnumWord(*type.value(i)) == word) return type.value(i);
  }
  return nullptr;
}

json MessageToJson(const Message& message, bool whole);

// index < 0: the field is singular.
json FieldToJson(const Message& message, const FieldDescriptor& field, int index, bool whole) {
  const Reflection& r = *message.GetReflection();
  const bool one = index < 0;
  const FieldDescriptor* f = &field;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? r.GetInt32(message, f) : r.GetRepeatedInt32(message, f, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return one ? r.GetInt64(message, f) : r.GetRepeatedInt64(message, f, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return one ? r.GetUInt32(message, f) : r.GetRepeatedUInt32(message, f, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return one ? r.GetUInt64(message, f) : r.GetRepeatedUInt64(message, f, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return one ? r.GetDouble(message, f) : r.GetRepeatedDouble(message, f, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return one ? r.GetFloat(message, f) : r.GetRepeatedFloat(message, f, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? r.GetBool(message, f) : r.GetRepeatedBool(message, f, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumWord(*(one ? r.GetEnum(message, f) : r.GetRepeatedEnum(message, f, index)));
    case FieldDescriptor::CPPTYPE_STRING:
      return one ? r.GetString(message, f) : r.GetRepeatedString(message, f, index);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(one ? r.GetMessage(message, f) : r.GetRepeatedMessage(message, f, index),
                           whole);
  }
  return nullptr;
}

// The value in nanoseconds and the name that says so, for a singular field that counts in other units.
std::pair<std::string, json> InNanoseconds(const std::string& name, json value) {
  for (const auto& [ending, factor] : {std::pair{"_ms", 1'000'000}, {"_us", 1'000}}) {
    if (!name.ends_with(ending) || !value.is_number_integer()) continue;
    // A time that does not fit is about 300 years long.
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const auto number = value.get<int64_t>();
    return {name.substr(0, name.size() - 3) + "_ns",
            std::clamp(number, -kMost / factor, kMost / factor) * factor};
  }
  return {name, std::move(value)};
}

// `whole`: with all fields, and with times in nanoseconds.
json MessageToJson(const Message& message, bool whole) {
  json object = json::object();
  const Descriptor& type = *message.GetDescriptor();
  const Reflection& r = *message.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) {
      const int size = r.FieldSize(message, &field);
      if (size == 0 && !whole) continue;
      json array = json::array();
      for (int k = 0; k < size; ++k) array.push_back(FieldToJson(message, field, k, whole));
      object[field.name()] = std::move(array);
    } else if (r.HasField(message, &field)) {
      json value = FieldToJson(message, field, -1, whole);
      if (whole) {
        auto [name, ns] = InNanoseconds(field.name(), std::move(value));
        object[name] = std::move(ns);
      } else {
        object[field.name()] = std::move(value);
      }
    } else if (whole) {
      // The value that the field has without being set; null if it then has none.
      auto [name, value] = InNanoseconds(
          field.name(), field.has_presence() ? json() : FieldToJson(message, field, -1, whole));
      object[name] = std::move(value);
    }
  }
  return object;
}

std::string ToLine(const Message& message, bool whole) {
  json object = MessageToJson(message, whole);
  // A message with such a field, such as a record, says itself of which version it is.
  if (message.GetDescriptor()->FindFieldByName("schema_version") == nullptr)
    object["schema_version"] = kJsonSchemaVersion;
  // A worker's messages may contain any bytes; invalid ones become replacement characters.
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::Status Parse(const json& object, Message* message);

// The value, if it is an integer that T has.
template <typename T>
std::optional<T> IntegerOf(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<uint64_t>())
                                               : std::in_range<T>(value.get<int64_t>());
  return fits ? std::optional<T>(value.get<T>()) : std::nullopt;
}

absl::Status WrongType(const FieldDescriptor& field) {
  return absl::InvalidArgumentError("field '" + field.name() + "' has the wrong type");
}

// Sets a singular field or appends to a repeated one.
absl::Status FieldFromJson(const json& value, const FieldDescriptor& field, Message* message) {
  const Reflection& r = *message->GetReflection();
  const FieldDescriptor* f = &field;
  const bool many = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      const std::optional<int32_t> v = IntegerOf<int32_t>(value);
      if (!v) return WrongType(field);
      many ? r.AddInt32(message, f, *v) : r.SetInt32(message, f, *v);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      const std::optional<int64_t> v = IntegerOf<int64_t>(value);
      if (!v) return WrongType(field);
      many ? r.AddInt64(message, f, *v) : r.SetInt64(message, f, *v);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      const std::optional<uint32_t> v = IntegerOf<uint32_t>(value);
      if (!v) return WrongType(field);
      many ? r.AddUInt32(message, f, *v) : r.SetUInt32(message, f, *v);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const std::optional<uint64_t> v = IntegerOf<uint64_t>(value);
      if (!v) return WrongType(field);
      many ? r.AddUInt64(message, f, *v) : r.SetUInt64(message, f, *v);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT: {
      if (!value.is_number()) return WrongType(field);
      const double v = value.get<double>();
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
        many ? r.AddDouble(message, f, v) : r.SetDouble(message, f, v);
      } else {
        many ? r.AddFloat(message, f, static_cast<float>(v))
             : r.SetFloat(message, f, static_cast<float>(v));
      }
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      if (!value.is_boolean()) return WrongType(field);
      many ? r.AddBool(message, f, value.get<bool>()) : r.SetBool(message, f, value.get<bool>());
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_STRING:
      if (!value.is_string()) return WrongType(field);
      many ? r.AddString(message, f, value.get<std::string>())
           : r.SetString(message, f, value.get<std::string>());
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor* word =
          value.is_string() ? EnumFromWord(*field.enum_type(), value.get<std::string>()) : nullptr;
      if (word == nullptr)
        return absl::InvalidArgumentError("field '" + field.name() +
                                          "' is none of its known words");
      many ? r.AddEnum(message, f, word) : r.SetEnum(message, f, word);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Parse(value, many ? r.AddMessage(message, f) : r.MutableMessage(message, f));
  }
  return WrongType(field);
}

absl::Status Parse(const json& object, Message* message) {
  if (!object.is_object()) return absl::InvalidArgumentError("expected a JSON object");
  for (const auto& [key, value] : object.items()) {
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(key);
    if (field == nullptr) {
      if (key == "schema_version") continue;
      return absl::InvalidArgumentError("unknown field '" + key + "'");
    }
    if (value.is_null() && field->has_presence()) continue;  // unset
    if (!field->is_repeated()) {
      HEDDLE_RETURN_IF_ERROR(FieldFromJson(value, *field, message));
      continue;
    }
    if (!value.is_array()) return WrongType(*field);
    for (const json& element : value) {
      HEDDLE_RETURN_IF_ERROR(FieldFromJson(element, *field, message));
    }
  }
  return absl::OkStatus();
}

}  // namespace

json ToJson(const Message& message) { return MessageToJson(message, true); }

std::string ToJsonLine(const Message& message) { return ToLine(message, true); }

json ToFileJson(const Message& message) { return MessageToJson(message, false); }

std::string ToFileJsonLine(const Message& message) { return ToLine(message, false); }

absl::Status FromJsonLine(std::string_view line, Message* message) {
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) return absl::InvalidArgumentError("not valid JSON");
  return Parse(object, message);
}

void PrintOneText(const std::string& name, const std::string& text) {
  const nlohmann::json object = {{"schema_version", kJsonSchemaVersion}, {name, text}};
  std::printf("%s\n", object.dump().c_str());
}

}  // namespace heddle::client
