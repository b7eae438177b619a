// docs/json.md lists exactly the fields that --json prints of messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <set>
#include <sstream>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/views/json.h"
#include "proto/jobs.pb.h"
#include "proto/store.pb.h"
#include "proto/tracker.pb.h"
#include "tests/places.h"

namespace heddle::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;

// Words in backquotes.
std::set<std::string> Quoted(absl::string_view text) {
  std::set<std::string> words;
  const std::vector<std::string> parts = absl::StrSplit(text, '`');
  for (size_t i = 1; i < parts.size(); i += 2) words.insert(parts[i]);
  return words;
}

// Fields by message, from the table below "## Messages".
std::map<std::string, std::set<std::string>> Documented() {
  std::ifstream file(HEDDLE_SOURCE_DIR "/docs/json.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  const size_t begin = all.find("## Messages");
  EXPECT_NE(begin, std::string::npos);
  std::map<std::string, std::set<std::string>> fields;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(all.substr(begin), '\n'))) {
    const std::vector<std::string> cells = absl::StrSplit(line, " | ");
    if (cells.size() != 2 || !cells[0].starts_with("| ") || cells[0] == "| message") continue;
    fields[cells[0].substr(2)] = Quoted(cells[1]);
  }
  return fields;
}

std::set<std::string> Printed(const Descriptor& type) {
  const std::unique_ptr<Message> message(
      MessageFactory::generated_factory()->GetPrototype(&type)->New());
  std::set<std::string> names;
  const nlohmann::json object = ToJson(*message);
  for (const auto& [name, value] : object.items()) names.insert(name);
  return names;
}

TEST(JsonDocument, ListsTheFieldsOfEachMessage) {
  std::queue<const Descriptor*> open;
  for (const Descriptor* root :
       {v1::Job::descriptor(), v1::Timeline::descriptor(), v1::Record::descriptor(),
        v1::TaskExplanation::descriptor(), v1::ListWorkersResponse::descriptor(),
        v1::ImportRecordsResponse::descriptor(), v1::RetractRecordsResponse::descriptor(),
        v1::CheckProgress::descriptor(), v1::CollectProgress::Job::descriptor(),
        v1::CollectProgress::Total::descriptor(), v1::Lease::descriptor()})
    open.push(root);
  const auto documented = Documented();
  std::set<std::string> seen;
  while (!open.empty()) {
    const Descriptor& type = *open.front();
    open.pop();
    const std::string name = type.full_name().substr(std::string("heddle.v1.").size());
    if (!seen.insert(name).second) continue;
    const auto found = documented.find(name);
    if (found == documented.end()) {
      ADD_FAILURE() << "docs/json.md lacks the message " << name;
    } else {
      EXPECT_EQ(found->second, Printed(type)) << name;
    }
    for (int i = 0; i < type.field_count(); ++i) {
      if (const Descriptor* part = type.field(i)->message_type(); part != nullptr) open.push(part);
    }
  }
  for (const auto& [name, fields] : documented)
    EXPECT_TRUE(seen.contains(name)) << name << " is not printed by any command";
}

TEST(JsonDocument, ZeroAndUnsetFieldsStayAndTimesHaveOneUnit) {
  v1::Job job;
  job.set_eta_ms(1500);
  job.mutable_spec()->set_min_repeat_us(7);
  const nlohmann::json object = ToJson(job);
  EXPECT_EQ(object["trials"], 0);
  EXPECT_EQ(object["reason"], "");
  EXPECT_EQ(object["tasks"], nlohmann::json::array());
  EXPECT_TRUE(object["fault"].is_null());
  EXPECT_EQ(object["state"], "unspecified");
  EXPECT_EQ(object["eta_ns"], 1'500'000'000);
  EXPECT_EQ(object["spec"]["min_repeat_ns"], 7000);
  EXPECT_FALSE(object.contains("eta_ms"));
  job.set_eta_ms(std::numeric_limits<int64_t>::max());
  EXPECT_GT(ToJson(job)["eta_ns"].get<int64_t>(), int64_t{1} << 62);
}

TEST(JsonDocument, FilesLeaveOutWhatIsEmpty) {
  v1::Job job;
  job.set_eta_ms(1500);
  const nlohmann::json object = ToFileJson(job);
  EXPECT_EQ(object, (nlohmann::json{{"eta_ms", 1500}}));
}

TEST(JsonDocument, APrintedRecordCanBeReadAgain) {
  v1::Record record;
  record.set_workload_key("0123456789abcdef");
  record.mutable_measurement()->add_samples_ns(5);
  v1::Record again;
  const absl::Status read = FromJsonLine(ToJsonLine(record), &again);
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(again.SerializeAsString(), record.SerializeAsString());
  EXPECT_FALSE(again.has_retraction());
}

}  // namespace
}  // namespace heddle::client
