#include "base/files/model_beginning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace heddle {
namespace {

using ::testing::HasSubstr;

TEST(ModelBeginning, ModulesAndTextsAreNoModels) {
  const absl::Status module = CheckModelBeginning("HEDDLE03 and more");
  EXPECT_TRUE(absl::IsInvalidArgument(module));
  EXPECT_THAT(std::string(module.message()), HasSubstr("`heddle run`"));
  for (const std::string text : {"Dear diary\n", "<html>", "\t\r\n", "pip install \xc3\xa4", "x"}) {
    const absl::Status status = CheckModelBeginning(text);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("it is a text file")) << text;
  }
  EXPECT_FALSE(CheckModelBeginning(std::string(100'000, 'a')).ok());
}

TEST(ModelBeginning, ModelsOfOtherPackagesTellTheWayOut) {
  for (const auto& [bytes, way_out] :
       {std::pair<std::string, const char*>{"PK\x03\x04 and more", "torch.onnx.export"},
        {"\x80\x04\x95", "skl2onnx"},
        {std::string("\x1c\0\0\0TFL3", 8), "tf2onnx"}}) {
    const absl::Status status = CheckModelBeginning(bytes);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << way_out;
    EXPECT_THAT(std::string(status.message()), HasSubstr(way_out));
  }
}

TEST(ModelBeginning, WhatMayBeAModelIsLeftToTheImport) {
  for (const std::string bytes :
       {std::string("\x08\x07\x12\x07pytorch"), std::string("{\"learner\": {}}"), std::string("{L"),
        std::string("tree\nversion=v4\n"), std::string(3, '\0'), std::string()})
    EXPECT_TRUE(CheckModelBeginning(bytes).ok()) << bytes;
  EXPECT_TRUE(CheckModelBeginning(std::string(100, 'a') + '\x01').ok());
}

}  // namespace
}  // namespace heddle
