// The checker against an oracle that reads the rules in the plainest way, over mutated messages.
#include "proto/check_message.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <regex>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/jobs.pb.h"
#include "proto/rules.pb.h"
#include "proto/tracker.pb.h"
#include "proto/worker.pb.h"
#include "tests/adversary/mutate.h"

namespace heddle {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::testing::HasSubstr;

// ---- the oracle ----

bool TextObeys(const v1::Rule& rule, const std::string& text) {
  static const std::regex digest("[0-9a-f]{64}"), key("[0-9a-f]{16}");
  if (text.empty()) return true;
  if (rule.digest()) return text.size() == 64 && std::regex_match(text, digest);
  if (rule.key()) return text.size() == 16 && std::regex_match(text, key);
  const auto size = static_cast<int64_t>(text.size());
  if (rule.text() > 0) return size <= rule.text();
  for (size_t i = 0; i < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) < 32 || text[i] == 127) return false;
    if (i + 1 < text.size() && text[i] == '\xc2' && static_cast<unsigned char>(text[i + 1]) < 0xa0)
      return false;
  }
  return size <= rule.line();
}

bool NumberObeys(const v1::Rule& rule, double value, bool item) {
  if (!std::isfinite(value)) return false;
  if (value == 0 && !item) return true;
  return value >= rule.least() && (rule.most() == 0 || value <= rule.most());
}

bool Obeys(const Message& message) {
  const auto& reflect = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const v1::Rule& rule = field->options().GetExtension(v1::rule);
    const bool list = field->is_repeated();
    if (!list && field->message_type() != nullptr && !reflect.HasField(message, field)) continue;
    const int size = list ? reflect.FieldSize(message, field) : 1;
    if (list && size > rule.items()) return false;
    for (int k = 0; k < size; ++k) {
      bool good = true;
      switch (field->type()) {
        case FieldDescriptor::TYPE_STRING:
        case FieldDescriptor::TYPE_BYTES:
          good = TextObeys(rule, list ? reflect.GetRepeatedString(message, field, k)
                                      : reflect.GetString(message, field));
          break;
        case FieldDescriptor::TYPE_DOUBLE:
          good = NumberObeys(rule,
                             list ? reflect.GetRepeatedDouble(message, field, k)
                                  : reflect.GetDouble(message, field),
                             list);
          break;
        case FieldDescriptor::TYPE_INT32:
          good = NumberObeys(
              rule,
              list ? reflect.GetRepeatedInt32(message, field, k) : reflect.GetInt32(message, field),
              list);
          break;
        case FieldDescriptor::TYPE_INT64:
          good = NumberObeys(rule,
                             static_cast<double>(list ? reflect.GetRepeatedInt64(message, field, k)
                                                      : reflect.GetInt64(message, field)),
                             list);
          break;
        case FieldDescriptor::TYPE_ENUM:
          good = field->enum_type()->FindValueByNumber(reflect.GetEnumValue(message, field)) !=
                 nullptr;
          break;
        case FieldDescriptor::TYPE_MESSAGE:
          good = Obeys(list ? reflect.GetRepeatedMessage(message, field, k)
                            : reflect.GetMessage(message, field));
          break;
        default:
          break;
      }
      if (!good) return false;
    }
  }
  return true;
}

// ---- messages ----

v1::Record GoodRecord() {
  v1::Record record;
  record.set_schema_version(1);
  record.set_workload_key("0123456789abcdef");
  record.set_workload("a workload\nof two lines");
  record.set_target("llvm -mcpu=x");
  record.set_device_key("key");
  record.set_trace("split a 2\n");
  record.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
  for (const double ns : {3.0, 1.0, 2.0}) record.mutable_measurement()->add_samples_ns(ns);
  v1::Evidence& evidence = *record.mutable_measurement()->mutable_evidence();
  evidence.set_worker("w1");
  evidence.set_temperature_celsius(-3);
  evidence.set_steal_share(0.5);
  record.mutable_prediction()->set_score(-2);
  return record;
}

v1::StageEvent GoodEvent() {
  v1::StageEvent event;
  v1::BuildResult& built = *event.mutable_built();
  built.set_candidate(3);
  v1::Kernel& kernel = *built.mutable_artifact()->add_kernels();
  kernel.set_symbol("f");
  kernel.add_arguments()->set_name("x");
  v1::Kernel::Launch& launch = *kernel.add_launches();
  for (const int64_t extent : {4, 2, 1}) launch.add_grid(extent);
  launch.add_arguments()->set_buffer(-1);
  return event;
}

v1::SynchronizeRequest GoodHeartbeat() {
  v1::SynchronizeRequest request;
  request.set_worker("w1");
  request.set_load_average(0.5);
  v1::Slot& slot = *request.add_slots();
  slot.set_name("profile0");
  slot.set_kind(v1::SLOT_DEVICE);
  for (const int core : {0, 1}) slot.add_cores(core);
  slot.add_builds("llvm");
  slot.set_machine("machine 1\n");
  request.add_running_leases("lease1");
  request.add_troubles()->set_slot("profile0");
  return request;
}

v1::SubmitRequest GoodSubmit() {
  v1::SubmitRequest request;
  request.mutable_spec()->set_name("model");
  request.mutable_spec()->set_priority(-3);
  v1::BlobRef& blob = *request.mutable_parts()->add_blobs();
  blob.set_sha256(std::string(64, 'a'));
  return request;
}

TEST(CheckMessage, AgreesWithTheOracle) {
  const v1::Record record = GoodRecord();
  const v1::StageEvent event = GoodEvent();
  const v1::SynchronizeRequest heartbeat = GoodHeartbeat();
  const v1::SubmitRequest submit = GoodSubmit();
  const Message* const good[] = {&record, &event, &heartbeat, &submit};
  int refused = 0, taken = 0;
  for (const Message* message : good) {
    EXPECT_EQ(CheckMessage(*message), absl::OkStatus());
    ASSERT_TRUE(Obeys(*message));
    for (int i = 0; i < Mutations(1000); ++i) {
      std::unique_ptr<Message> bad(message->New());
      bad->CopyFrom(*message);
      Mutator mutator(static_cast<uint64_t>(i));
      mutator.Mutate(bad.get());
      const absl::Status checked = CheckMessage(*bad);
      ASSERT_EQ(checked.ok(), Obeys(*bad)) << "seed " << i << ": " << checked << "\n"
                                           << bad->ShortDebugString().substr(0, 2000);
      ++(checked.ok() ? taken : refused);
      if (checked.ok()) {
        EXPECT_TRUE(AllFinite(*bad));
        continue;
      }
      EXPECT_TRUE(absl::IsInvalidArgument(checked));
      EXPECT_LT(checked.message().size(), 400u) << "the message repeats no text of the stranger";
    }
  }
  EXPECT_GT(refused, taken / 10);
  EXPECT_GT(taken, refused / 100);
}

TEST(CheckMessage, NamesTheFieldAndItsLimit) {
  const auto told = [](const Message& message) {
    return std::string(CheckMessage(message).message());
  };
  v1::Record record = GoodRecord();
  record.mutable_measurement()->set_samples_ns(1, std::nan(""));
  EXPECT_EQ(told(record), "measurement.samples_ns[1] is nan; it must be a finite number");
  record.mutable_measurement()->set_samples_ns(1, -1);
  EXPECT_EQ(told(record), "measurement.samples_ns[1] is -1; it must be 0.001..1e+15");
  record = GoodRecord();
  record.mutable_measurement()->set_profile_ns(-5);
  EXPECT_EQ(told(record), "measurement.profile_ns is -5; it must be 0 or more");
  record = GoodRecord();
  record.set_device_key(std::string(257, 'x'));
  EXPECT_EQ(told(record), "device_key has 257 bytes; at most 256 are allowed");
  record.set_device_key("two\nlines");
  EXPECT_EQ(told(record), "device_key is not one line of text without control characters");
  record = GoodRecord();
  record.set_workload_key("0123456789ABCDEF");
  EXPECT_THAT(told(record), HasSubstr("workload_key is no workload key"));
  record = GoodRecord();
  record.mutable_measurement()->set_outcome(static_cast<v1::Outcome>(77));
  EXPECT_EQ(told(record), "measurement.outcome is 77, which this program does not know");
  v1::SynchronizeRequest heartbeat = GoodHeartbeat();
  for (int i = 0; i < 1024; ++i) heartbeat.add_slots();
  EXPECT_EQ(told(heartbeat), "slots has 1025 items; at most 1024 are allowed");
}

TEST(CheckMessage, TellsHowLongATextMayBe) {
  const size_t most =
      MostTextBytes(*v1::Measurement::descriptor(), v1::Measurement::kLoopsFieldNumber);
  v1::Measurement measurement;
  measurement.set_loops(std::string(most, 'x'));
  EXPECT_TRUE(CheckMessage(measurement).ok());
  measurement.set_loops(std::string(most + 1, 'x'));
  EXPECT_FALSE(CheckMessage(measurement).ok());
}

TEST(CheckMessage, FieldsOfALaterVersionAreIgnoredIfTheyAreSmall) {
  v1::Record record = GoodRecord();
  auto* unknown = record.GetReflection()->MutableUnknownFields(&record);
  unknown->AddLengthDelimited(999, "new");
  EXPECT_EQ(CheckMessage(record), absl::OkStatus());
  unknown->AddLengthDelimited(999, std::string(1 << 20, 'x'));
  EXPECT_THAT(std::string(CheckMessage(record).message()), HasSubstr("does not know"));
}

TEST(TrimLines, WhatIsTrimmedPasses) {
  v1::StageEvent event;
  v1::Measurement& measured = *event.mutable_profiled()->mutable_measurement();
  measured.set_message("first\nsecond\x1b[2J\xc2\x9b!");
  TrimLines(&event);
  EXPECT_EQ(measured.message(), "first second [2J !");
  std::string umlauts;
  for (int i = 0; i < 3000; ++i) umlauts += "\xc3\xa4";
  measured.set_message("x" + umlauts);
  TrimLines(&event);
  EXPECT_EQ(measured.message(), "x" + umlauts.substr(0, 4094)) << "no half of a character";
  for (int i = 0; i < 300; ++i) event.mutable_finished()->add_warnings("warning\n");
  TrimLines(&event);
  EXPECT_EQ(event.finished().warnings_size(), 100);
  EXPECT_EQ(event.finished().warnings(99), "warning ");
  EXPECT_EQ(CheckMessage(event), absl::OkStatus());
  v1::Record record = GoodRecord();
  TrimLines(&record);
  EXPECT_EQ(record.ShortDebugString(), GoodRecord().ShortDebugString());
}

}  // namespace
}  // namespace heddle
