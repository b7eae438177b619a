#include "tests/adversary/mutate.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace heddle {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kLooksIntoItems = 8;  // of a list; the others are like them

using Place = std::pair<Message*, const FieldDescriptor*>;

void CollectPlaces(Message* message, std::vector<Place>* places) {
  const Reflection& reflect = *message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->field(i);
    places->emplace_back(message, field);
    if (field->message_type() == nullptr) continue;
    if (field->is_repeated()) {
      const int items = std::min(kLooksIntoItems, reflect.FieldSize(*message, field));
      for (int k = 0; k < items; ++k)
        CollectPlaces(reflect.MutableRepeatedMessage(message, field, k), places);
    } else if (reflect.HasField(*message, field)) {
      CollectPlaces(reflect.MutableMessage(message, field), places);
    }
  }
}

// More than any server takes.
constexpr size_t kMostCopiedBytes = size_t{32} << 20;

template <typename T, size_t N>
const T& Pick(const T (&choices)[N], uint64_t number) {
  return choices[number % N];
}

}  // namespace

int Mutations(int usual) {
  const char* asked = std::getenv("HEDDLE_MUTATIONS");
  return asked == nullptr ? usual : std::atoi(asked);
}

void Mutator::Mutate(Message* message) {
  if (Below(8) == 0 && FlipBits(message)) return;
  for (uint64_t changes = 1 + Below(3); changes > 0; --changes) ChangeOne(message);
}

void Mutator::ChangeOne(Message* message) {
  std::vector<Place> places;
  CollectPlaces(message, &places);
  if (places.empty()) return;
  const auto& [owner, field] = places[Below(places.size())];
  if (field->is_repeated()) {
    ChangeList(owner, *field);
  } else {
    ChangeField(owner, *field);
  }
}

bool Mutator::FlipBits(Message* message) {
  std::string bytes = message->SerializeAsString();
  if (bytes.empty()) return false;
  for (uint64_t flips = 1 + Below(8); flips > 0; --flips)
    bytes[Below(bytes.size())] ^= static_cast<char>(1u << Below(8));
  const google::protobuf::LogSilencer silence;  // a text that is no UTF-8 any more is no news here
  std::unique_ptr<Message> flipped(message->New());
  if (!flipped->ParseFromString(bytes)) return false;
  message->CopyFrom(*flipped);
  return true;
}

std::string Mutator::Text(const std::string& old) {
  static constexpr size_t kSizes[] = {1, 17, 65, 300, 5000, size_t{1} << 20, size_t{3} << 20};
  static const char* const kNasty[] = {"two\nlines",
                                       "\x1b[2J\x1b]0;title\x07",
                                       "\xc2\x9b"
                                       "31m",
                                       "../../../etc/passwd",
                                       "'; DROP TABLE records; --",
                                       "%s%n%s%n",
                                       "llvm -mcpu=native",
                                       "j99999999999999999999",
                                       "0123456789abcdef"};
  switch (Below(6)) {
    case 0:
      return "";
    case 1:
      return std::string(Pick(kSizes, Below(100)), 'x');
    case 2:
      return std::string("a\0b", 3);
    case 3:
      return old + old;
    case 4: {
      std::string changed = old.empty() ? "x" : old;
      char& digit = changed[Below(changed.size())];
      // gRPC itself refuses a text that is not UTF-8, so such a message would test nothing of ours.
      if (static_cast<unsigned char>(digit) < 0x80) digit = static_cast<char>('0' + Below(75));
      return changed;
    }
    default:
      return Pick(kNasty, Below(100));
  }
}

double Mutator::Real(double old) {
  using Limits = std::numeric_limits<double>;
  const double choices[] = {Limits::quiet_NaN(),
                            Limits::infinity(),
                            -Limits::infinity(),
                            Limits::max(),
                            Limits::lowest(),
                            Limits::denorm_min(),
                            0,
                            -0.0,
                            -1,
                            -old,
                            old * 1e6,
                            random_.Unit()};
  return Pick(choices, Below(1000));
}

int64_t Mutator::Whole(int64_t old) {
  using Limits = std::numeric_limits<int64_t>;
  const int64_t choices[] = {Limits::max(),
                             Limits::min(),
                             std::numeric_limits<int32_t>::max(),
                             std::numeric_limits<int32_t>::min(),
                             -1,
                             0,
                             1,
                             old ^ 1,
                             static_cast<int64_t>(random_.Next())};
  return Pick(choices, Below(1000));
}

void Mutator::ChangeField(Message* message, const FieldDescriptor& field) {
  const Reflection& reflect = *message->GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return reflect.SetString(message, &field, Text(reflect.GetString(*message, &field)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflect.SetDouble(message, &field, Real(reflect.GetDouble(*message, &field)));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflect.SetFloat(message, &field,
                              static_cast<float>(Real(reflect.GetFloat(*message, &field))));
    case FieldDescriptor::CPPTYPE_INT32:
      return reflect.SetInt32(message, &field,
                              static_cast<int32_t>(Whole(reflect.GetInt32(*message, &field))));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflect.SetInt64(message, &field, Whole(reflect.GetInt64(*message, &field)));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflect.SetUInt32(message, &field, static_cast<uint32_t>(Whole(1)));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflect.SetUInt64(message, &field, static_cast<uint64_t>(Whole(1)));
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflect.SetEnumValue(
          message, &field,
          Below(3) == 0 ? static_cast<int>(Whole(1)) : static_cast<int>(Below(12)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflect.SetBool(message, &field, !reflect.GetBool(*message, &field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (reflect.HasField(*message, &field) && Below(2) == 0)
        return reflect.ClearField(message, &field);
      reflect.MutableMessage(message, &field);
      return;
  }
}

void Mutator::ChangeList(Message* message, const FieldDescriptor& field) {
  static constexpr int kCounts[] = {1, 2, 5, 40, 2000, 20000};
  const Reflection& reflect = *message->GetReflection();
  const int size = reflect.FieldSize(*message, &field);
  const uint64_t what = Below(4);
  if (what == 0) return reflect.ClearField(message, &field);
  if (what == 1 && size > 0) return reflect.RemoveLast(message, &field);
  // An item that is changed, or like the first one, once or often.
  int count = what == 2 ? Pick(kCounts, Below(60)) : 1;
  // Copies of a large item would fill the memory of the test before anybody gets the message.
  if (size > 0 && field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const size_t bytes = reflect.GetRepeatedMessage(*message, &field, 0).ByteSizeLong() + 1;
    count = static_cast<int>(std::min(static_cast<size_t>(count), 1 + kMostCopiedBytes / bytes));
  }
  for (int i = 0; i < count; ++i) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        reflect.AddString(message, &field, count > 1 ? "x" : Text(""));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflect.AddDouble(message, &field, count > 1 ? 1 : Real(1));
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        reflect.AddInt32(message, &field, count > 1 ? i : static_cast<int32_t>(Whole(1)));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        reflect.AddInt64(message, &field, count > 1 ? i : Whole(1));
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        Message* item = reflect.AddMessage(message, &field);
        if (size > 0) item->CopyFrom(reflect.GetRepeatedMessage(*message, &field, 0));
        if (count == 1) ChangeOne(item);
        break;
      }
      default:
        return;  // no message of ours lists anything else
    }
  }
}

bool AllFinite(const Message& message) {
  const Reflection& reflect = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflect.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int size = field->is_repeated() ? reflect.FieldSize(message, field) : 1;
    for (int k = 0; k < size; ++k) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
        const double value = field->is_repeated() ? reflect.GetRepeatedDouble(message, field, k)
                                                  : reflect.GetDouble(message, field);
        if (!std::isfinite(value)) return false;
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        if (!AllFinite(field->is_repeated() ? reflect.GetRepeatedMessage(message, field, k)
                                            : reflect.GetMessage(message, field)))
          return false;
      }
    }
  }
  return true;
}

}  // namespace heddle
