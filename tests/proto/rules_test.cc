// Every field that enters a process of ours has a rule (proto/rules.proto).
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/vocabulary/job_limits.h"
#include "proto/check_message.h"
#include "proto/jobs.pb.h"
#include "proto/rules.pb.h"
#include "proto/tracker.pb.h"
#include "proto/worker.pb.h"

namespace heddle {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptorProto;
using google::protobuf::ServiceDescriptor;
using ::testing::HasSubstr;

// The answers of JobService and RecordService go to people. All other messages are taken by a process of ours.
bool AnswersPeople(const ServiceDescriptor& service) {
  return service.name() == "JobService" || service.name() == "RecordService";
}

std::vector<const Descriptor*> Entering() {
  std::vector<const Descriptor*> types;
  for (const auto* file : {v1::JobSpec::descriptor()->file(), v1::StageStart::descriptor()->file(),
                           v1::Slot::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const ServiceDescriptor& service = *file->service(i);
      for (int k = 0; k < service.method_count(); ++k) {
        types.push_back(service.method(k)->input_type());
        if (!AnswersPeople(service)) types.push_back(service.method(k)->output_type());
      }
    }
  }
  return types;
}

TEST(Rules, EveryFieldThatEntersHasOne) {
  const std::vector<const Descriptor*> types = Entering();
  EXPECT_GE(types.size(), 30u) << "the services are not found any more";
  for (const Descriptor* type : types) EXPECT_EQ(FindGaps(*type), "") << type->full_name();
}

// A message type with this one field.
std::string GapsOf(const FieldDescriptorProto& field) {
  FileDescriptorProto file;
  file.set_name("made.proto");
  file.set_syntax("proto3");
  file.add_dependency("proto/rules.proto");
  auto& type = *file.add_message_type();
  type.set_name("Made");
  *type.add_field() = field;
  DescriptorPool pool(DescriptorPool::generated_pool());
  const auto* built = pool.BuildFile(file);
  return built == nullptr ? "not built" : FindGaps(*built->message_type(0));
}

FieldDescriptorProto Field(FieldDescriptorProto::Type type, bool repeated = false) {
  FieldDescriptorProto field;
  field.set_name("field");
  field.set_number(1);
  field.set_type(type);
  field.set_label(repeated ? FieldDescriptorProto::LABEL_REPEATED
                           : FieldDescriptorProto::LABEL_OPTIONAL);
  return field;
}

TEST(Rules, AGapIsFound) {
  FieldDescriptorProto text = Field(FieldDescriptorProto::TYPE_STRING);
  EXPECT_THAT(GapsOf(text), HasSubstr("Made.field needs one of (rule).text, line, digest and key"));
  text.mutable_options()->MutableExtension(v1::rule)->set_line(8);
  EXPECT_EQ(GapsOf(text), "");
  text.mutable_options()->MutableExtension(v1::rule)->set_key(true);
  EXPECT_THAT(GapsOf(text), HasSubstr("needs one of"));
  FieldDescriptorProto real = Field(FieldDescriptorProto::TYPE_DOUBLE);
  EXPECT_THAT(GapsOf(real), HasSubstr("needs (rule).most"));
  real.mutable_options()->MutableExtension(v1::rule)->set_most(1);
  EXPECT_EQ(GapsOf(real), "");
  real.mutable_options()->MutableExtension(v1::rule)->set_items(3);
  EXPECT_THAT(GapsOf(real), HasSubstr("is no list"));
  FieldDescriptorProto list = Field(FieldDescriptorProto::TYPE_INT64, true);
  EXPECT_THAT(GapsOf(list), HasSubstr("needs (rule).items"));
  list.mutable_options()->MutableExtension(v1::rule)->set_items(3);
  EXPECT_EQ(GapsOf(list), "");
  list.mutable_options()->MutableExtension(v1::rule)->set_line(3);
  EXPECT_THAT(GapsOf(list), HasSubstr("is no text"));
  EXPECT_EQ(GapsOf(Field(FieldDescriptorProto::TYPE_INT32)), "");
  EXPECT_EQ(GapsOf(Field(FieldDescriptorProto::TYPE_BOOL)), "");
  FieldDescriptorProto itself = Field(FieldDescriptorProto::TYPE_MESSAGE);
  itself.set_type_name(".Made");
  EXPECT_THAT(GapsOf(itself), HasSubstr("contains itself"));
}

// "LEAST..MOST" as the rule of the field says.
std::string RangeOf(const Descriptor* type, const std::string& field) {
  const auto* found = type->FindFieldByName(field);
  if (found == nullptr) return absl::StrCat(type->name(), " has no field ", field);
  const v1::Rule& rule = found->options().GetExtension(v1::rule);
  return absl::StrCat(rule.least(), "..", rule.most());
}

// A proto file cannot include base/vocabulary/limits.h, so the numbers stand in both.
TEST(Rules, LimitsOfJobsAreThoseThatClientsKnow) {
  const std::string priority = absl::StrCat(kMinPriority, "..", kMaxPriority);
  EXPECT_EQ(RangeOf(v1::JobSpec::descriptor(), "priority"), priority);
  EXPECT_EQ(RangeOf(v1::PrioritizeJobRequest::descriptor(), "priority"), priority);
  EXPECT_EQ(RangeOf(v1::ProposeSpec::descriptor(), "count"), absl::StrCat("0..", kMaxBatch));
  EXPECT_EQ(RangeOf(v1::ProfileSpec::descriptor(), "repeats"), absl::StrCat("0..", kMaxRepeats));
  EXPECT_EQ(RangeOf(v1::ProfileSpec::descriptor(), "min_repeat_us"),
            absl::StrCat("0..", static_cast<double>(kMaxMinRepeatUs)));
}

}  // namespace
}  // namespace heddle
