#include "compiler/classical/read.h"

#include <gtest/gtest.h>

#include <string>

namespace heddle::classical {
namespace {

using std::string_literals::operator""s;

TEST(IsForestFile, LooksAtTheFirstBytes) {
  for (const std::string& bytes :
       {"{\"learner\":{"s, "{ \n  \"learner\": {"s, "{\"version\":[1,7,4],"s, "{\"Config\":"s,
        "{L\0\0\0\0\0\0\0\7learner{"s, "{L\0\0\0\0\0\0\0\7version["s, "tree\nversion=v3\n"s,
        "tree\r\nversion=v4\r\n"s})
    EXPECT_TRUE(IsForestFile(bytes)) << bytes;
  for (const std::string& bytes :
       {""s, "{"s, "{}"s, "{\"name\":\"tree\""s, "{\"learners\":"s, "{L\0\0\0\0\0\0\0\7lear"s,
        "{L\0\0\0\0\0\0\0\6learner"s, "trees\n"s, "tree"s, "\x08\x07\x12\x04skl2"s, "binf"s})
    EXPECT_FALSE(IsForestFile(bytes)) << bytes;
}

TEST(ReadForest, SaysWhatToDoWithOtherFiles) {
  const absl::Status status = ReadForest("binf").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("save the model with save_model"), std::string::npos) << status;
  EXPECT_NE(ReadForest("{\"Config\":{},\"Model\":{}}").status().message().find("memory snapshot"),
            std::string::npos);
}

}  // namespace
}  // namespace heddle::classical
