#include "proto/check_message.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/one_line.h"
#include "base/status_macros.h"
#include "proto/rules.pb.h"

namespace heddle {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kDigestDigits = 64, kKeyDigits = 16;

bool IsText(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
}
bool IsFloat(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT;
}
bool IsInteger(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      return true;
    default:
      return false;
  }
}

// ---- the rules of a type, prepared once ----

struct TypeRules;
struct FieldRule {
  const FieldDescriptor* field;
  v1::Rule rule;
  double most;            // infinite: what the type can hold
  const TypeRules* type;  // of a message
};
struct TypeRules {
  std::vector<FieldRule> fields;
};

// Types live as long as the process, and so do their rules.
class AllRules {
 public:
  const TypeRules& Of(const Descriptor* type) {
    {
      absl::ReaderMutexLock lock(&mutex_);
      const auto found = rules_.find(type);
      if (found != rules_.end()) return *found->second;
    }
    absl::MutexLock lock(&mutex_);
    return *Add(type);
  }

 private:
  const TypeRules* Add(const Descriptor* type) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::unique_ptr<TypeRules>& slot = rules_[type];
    if (slot != nullptr) return slot.get();
    slot = std::make_unique<TypeRules>();
    TypeRules* rules = slot.get();
    for (int i = 0; i < type->field_count(); ++i) {
      FieldRule made{type->field(i), type->field(i)->options().GetExtension(v1::rule), 0, nullptr};
      made.most =
          made.rule.most() != 0 ? made.rule.most() : std::numeric_limits<double>::infinity();
      if (made.field->message_type() != nullptr) made.type = Add(made.field->message_type());
      rules->fields.push_back(std::move(made));
    }
    return rules;
  }

  absl::Mutex mutex_;
  std::map<const Descriptor*, std::unique_ptr<TypeRules>> rules_ ABSL_GUARDED_BY(mutex_);
};

const TypeRules& RulesOf(const Message& message) {
  static AllRules& all = *new AllRules();
  return all.Of(message.GetDescriptor());
}

// ---- checks ----

// Where a check is. It costs nothing until an error is told.
struct Place {
  const Place* outer;  // null: the message itself
  const FieldDescriptor* field;
  int item;  // -1: not repeated

  std::string ToText() const {
    const std::string here = item < 0 ? field->name() : absl::StrCat(field->name(), "[", item, "]");
    return outer == nullptr ? here : absl::StrCat(outer->ToText(), ".", here);
  }
};

absl::Status Bad(const Place& place, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(place.ToText(), " ", why));
}

bool IsHexadecimal(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// Where the first control character begins.
size_t FindControl(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (ControlBytes(text.substr(i)) > 0) return i;
  }
  return std::string_view::npos;
}

absl::Status CheckText(const Place& place, const v1::Rule& rule, const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  if (rule.digest()) {
    return IsHexadecimal(text, kDigestDigits)
               ? absl::OkStatus()
               : Bad(place, "is no digest: 64 lower-case hexadecimal digits");
  }
  if (rule.key()) {
    return IsHexadecimal(text, kKeyDigits)
               ? absl::OkStatus()
               : Bad(place, "is no workload key: 16 lower-case hexadecimal digits");
  }
  const int64_t most = rule.line() > 0 ? rule.line() : rule.text();
  if (most > 0 && text.size() > static_cast<size_t>(most))
    return Bad(place, absl::StrCat("has ", text.size(), " bytes; at most ", most, " are allowed"));
  if (rule.line() > 0 && FindControl(text) != std::string_view::npos)
    return Bad(place, "is not one line of text without control characters");
  return absl::OkStatus();
}

// `shown`: the number as text.
absl::Status CheckNumber(const Place& place, const FieldRule& rule, double value,
                         const std::string& shown) {
  const bool absent = value == 0 && place.item < 0;
  if (absent || (value >= rule.rule.least() && value <= rule.most)) return absl::OkStatus();
  return Bad(place, absl::StrCat("is ", shown, "; it must be ", rule.rule.least(),
                                 std::isfinite(rule.most) ? absl::StrCat("..", rule.most)
                                                          : std::string(" or more")));
}

absl::Status Check(const Message& message, const TypeRules& rules, const Place* outer);

absl::Status CheckField(const Message& message, const FieldRule& rule, const Place& place) {
  const Reflection& reflect = *message.GetReflection();
  const FieldDescriptor* field = rule.field;
  const int k = place.item;
  const bool item = k >= 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string scratch;
      return CheckText(place, rule.rule,
                       item ? reflect.GetRepeatedStringReference(message, field, k, &scratch)
                            : reflect.GetStringReference(message, field, &scratch));
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (!item && !reflect.HasField(message, field)) return absl::OkStatus();
      return Check(
          item ? reflect.GetRepeatedMessage(message, field, k) : reflect.GetMessage(message, field),
          *rule.type, &place);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int value = item ? reflect.GetRepeatedEnumValue(message, field, k)
                             : reflect.GetEnumValue(message, field);
      if (field->enum_type()->FindValueByNumber(value) != nullptr) return absl::OkStatus();
      return Bad(place, absl::StrCat("is ", value, ", which this program does not know"));
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const double value = field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT
                               ? (item ? reflect.GetRepeatedFloat(message, field, k)
                                       : reflect.GetFloat(message, field))
                               : (item ? reflect.GetRepeatedDouble(message, field, k)
                                       : reflect.GetDouble(message, field));
      if (!std::isfinite(value))
        return Bad(place, absl::StrCat("is ", value, "; it must be a finite number"));
      if (value >= rule.rule.least() && value <= rule.most) return absl::OkStatus();
      return CheckNumber(place, rule, value, absl::StrCat(value));
    }
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t value = field->cpp_type() == FieldDescriptor::CPPTYPE_INT32
                                ? (item ? reflect.GetRepeatedInt32(message, field, k)
                                        : reflect.GetInt32(message, field))
                                : (item ? reflect.GetRepeatedInt64(message, field, k)
                                        : reflect.GetInt64(message, field));
      const auto number = static_cast<double>(value);
      if (number >= rule.rule.least() && number <= rule.most) return absl::OkStatus();
      return CheckNumber(place, rule, number, absl::StrCat(value));
    }
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64: {
      const uint64_t value = field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32
                                 ? (item ? reflect.GetRepeatedUInt32(message, field, k)
                                         : reflect.GetUInt32(message, field))
                                 : (item ? reflect.GetRepeatedUInt64(message, field, k)
                                         : reflect.GetUInt64(message, field));
      const auto number = static_cast<double>(value);
      if (number <= rule.most) return absl::OkStatus();
      return CheckNumber(place, rule, number, absl::StrCat(value));
    }
    default:
      return absl::OkStatus();  // bool
  }
}

// The types do not contain themselves (FindGaps), so this ends.
absl::Status Check(const Message& message, const TypeRules& rules, const Place* outer) {
  const Reflection& reflect = *message.GetReflection();
  for (const FieldRule& rule : rules.fields) {
    if (!rule.field->is_repeated()) {
      HEDDLE_RETURN_IF_ERROR(CheckField(message, rule, {outer, rule.field, -1}));
      continue;
    }
    const int count = reflect.FieldSize(message, rule.field);
    if (rule.rule.items() > 0 && count > rule.rule.items()) {
      return Bad({outer, rule.field, -1}, absl::StrCat("has ", count, " items; at most ",
                                                       rule.rule.items(), " are allowed"));
    }
    for (int k = 0; k < count; ++k)
      HEDDLE_RETURN_IF_ERROR(CheckField(message, rule, {outer, rule.field, k}));
  }
  const auto& unknown = reflect.GetUnknownFields(message);
  if (unknown.empty() || unknown.SpaceUsedExcludingSelfLong() <= kMaxUnknownBytes)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(outer == nullptr ? "the message" : outer->ToText(),
                   " has more fields that this program does not know than it takes; use programs "
                   "of one version"));
}

// ---- lines for people ----

void TrimLine(size_t most, std::string* line) {
  if (line->size() > most) {
    size_t end = most;  // not within a character
    while (end > 0 && (static_cast<unsigned char>((*line)[end]) & 0xc0) == 0x80) --end;
    line->resize(end);
  }
  for (size_t at = FindControl(*line); at != std::string::npos; at = FindControl(*line))
    line->replace(at, ControlBytes(std::string_view(*line).substr(at)), " ");
}

void Trim(Message* message, const TypeRules& rules) {
  const Reflection& reflect = *message->GetReflection();
  for (const FieldRule& rule : rules.fields) {
    const FieldDescriptor* field = rule.field;
    const auto most = static_cast<size_t>(rule.rule.line());
    const bool repeated = field->is_repeated();
    if (rule.type != nullptr) {
      if (!repeated && reflect.HasField(*message, field))
        Trim(reflect.MutableMessage(message, field), *rule.type);
      for (int k = 0; repeated && k < reflect.FieldSize(*message, field); ++k)
        Trim(reflect.MutableRepeatedMessage(message, field, k), *rule.type);
    } else if (most > 0 && IsText(*field)) {
      const auto fits = [&](const std::string& line) {
        return line.size() <= most && FindControl(line) == std::string::npos;
      };
      std::string scratch;
      if (!repeated) {
        std::string line = reflect.GetString(*message, field);
        if (fits(line)) continue;
        TrimLine(most, &line);
        reflect.SetString(message, field, std::move(line));
        continue;
      }
      while (rule.rule.items() > 0 && reflect.FieldSize(*message, field) > rule.rule.items())
        reflect.RemoveLast(message, field);
      for (int k = 0; k < reflect.FieldSize(*message, field); ++k) {
        std::string line = reflect.GetRepeatedString(*message, field, k);
        if (fits(line)) continue;
        TrimLine(most, &line);
        reflect.SetRepeatedString(message, field, k, std::move(line));
      }
    }
  }
}

// ---- are there rules? ----

std::string GapOf(const FieldDescriptor& field) {
  const v1::Rule& rule = field.options().GetExtension(v1::rule);
  const int texts = (rule.text() > 0) + (rule.line() > 0) + rule.digest() + rule.key();
  const bool bounds = rule.least() != 0 || rule.most() != 0;
  if (rule.text() < 0 || rule.line() < 0 || rule.items() < 0) return "has a negative limit";
  if (IsText(field) ? texts != 1 : texts > 0)
    return IsText(field) ? "needs one of (rule).text, line, digest and key"
                         : "is no text, and has a rule for one";
  if (field.is_repeated() != (rule.items() > 0))
    return field.is_repeated() ? "needs (rule).items" : "is no list, and has (rule).items";
  if (IsFloat(field) && rule.most() == 0) return "needs (rule).most";
  if (bounds && !IsFloat(field) && !IsInteger(field)) return "is no number, and has a rule for one";
  if (rule.most() != 0 && rule.most() < rule.least()) return "has no possible value";
  return "";
}

void AddGaps(const Descriptor& type, std::set<const Descriptor*>* inside,
             std::set<const Descriptor*>* done, std::string* gaps) {
  if (!inside->insert(&type).second) {
    absl::StrAppend(gaps, type.full_name(), " contains itself, so its depth has no limit\n");
    return;
  }
  if (done->insert(&type).second) {
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (const std::string gap = GapOf(field); !gap.empty())
        absl::StrAppend(gaps, field.full_name(), " ", gap, "\n");
      if (field.message_type() != nullptr) AddGaps(*field.message_type(), inside, done, gaps);
    }
  }
  inside->erase(&type);
}

}  // namespace

absl::Status CheckMessage(const Message& message) {
  return Check(message, RulesOf(message), nullptr);
}

void TrimLines(Message* message) { Trim(message, RulesOf(*message)); }

size_t MostTextBytes(const Descriptor& type, int field) {
  const v1::Rule& rule = type.FindFieldByNumber(field)->options().GetExtension(v1::rule);
  return static_cast<size_t>(rule.text());
}

std::string FindGaps(const Descriptor& type) {
  std::set<const Descriptor*> inside, done;
  std::string gaps;
  AddGaps(type, &inside, &done, &gaps);
  return gaps;
}

}  // namespace heddle
