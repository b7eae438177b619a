// Small models that ask for very much. They are refused, or imported in a time and memory that fit their size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/import.h"
#include "tests/onnx/model_text.h"

namespace heddle::graph::hostile_test {
namespace {

using ::testing::HasSubstr;

onnx::ModelProto MlModel(const std::string& graph) {
  return onnx_cases::ClassicalModelOf(18, 2, graph);
}

// `inputs` inputs of strings, which one encoder compares with `keys` keys.
onnx::ModelProto StringModel(int inputs, int keys) {
  std::string graph = "(", all, list;
  for (int i = 0; i < inputs; ++i) {
    absl::StrAppend(&graph, i == 0 ? "" : ", ", "string[1,1] x", i);
    absl::StrAppend(&all, i == 0 ? "" : ", ", "x", i);
  }
  for (int i = 0; i < keys; ++i) absl::StrAppend(&list, i == 0 ? "\"" : ", \"", i, "\"");
  absl::StrAppend(&graph, ") => (int64[a,b] y) {both = Concat<axis = 1>(", all,
                  ") y = ai.onnx.ml.LabelEncoder<keys_strings = [", list, "], values_int64s = [");
  for (int i = 0; i < keys; ++i) absl::StrAppend(&graph, i == 0 ? "" : ", ", i);
  return MlModel(absl::StrCat(graph, "]>(both)}"));
}

// Every input would get a table of all keys.
TEST(HostileModel, StringsOfManyInputsWithManyKeys) {
  EXPECT_TRUE(ImportOnnx(StringModel(30, 30).SerializeAsString()).ok());
  const auto refused = ImportOnnx(StringModel(1500, 1500).SerializeAsString());
  EXPECT_TRUE(absl::IsUnimplemented(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("strings of too many inputs"));
}

// A call of a function of `nodes` nodes in a chain; the call's name has so many bytes.
onnx::ModelProto CallModel(int nodes, size_t name) {
  onnx::ModelProto model = onnx_cases::ModelOf(18, "(float[1] x) => (float[a] y) {y = Neg(x)}");
  onnx::NodeProto* call = model.mutable_graph()->mutable_node(0);
  call->set_op_type("F");
  call->set_domain("com.example");
  call->set_name(std::string(name, 'n'));
  auto* opset = model.add_opset_import();
  opset->set_domain("com.example");
  opset->set_version(1);
  onnx::FunctionProto* f = model.add_functions();
  f->set_name("F");
  f->set_domain("com.example");
  f->add_input("v0");
  f->add_output(absl::StrCat("v", nodes));
  *f->add_opset_import() = model.opset_import(0);
  for (int i = 0; i < nodes; ++i) {
    onnx::NodeProto* node = f->add_node();
    node->set_op_type("Neg");
    node->add_input(absl::StrCat("v", i));
    node->add_output(absl::StrCat("v", i + 1));
  }
  return model;
}

// Every name in a function gets that of its call before it.
TEST(HostileModel, CallsWithLongNamesOfLargeFunctions) {
  const auto imported = ImportOnnx(CallModel(2000, 10).SerializeAsString());
  EXPECT_TRUE(imported.ok()) << imported.status();
  const auto refused = ImportOnnx(CallModel(2000, 200'000).SerializeAsString());
  EXPECT_TRUE(absl::IsUnimplemented(refused.status())) << refused.status().code();
  EXPECT_THAT(std::string(refused.status().message().substr(0, 200)),
              HasSubstr("functions that become more than"));
}

// An innermost body without nodes, which is entered a billion times.
TEST(HostileModel, LoopsInLoopsOverNothing) {
  const onnx::ModelProto model = onnx_cases::ModelOf(18, R"((float[1] x) => (float[a] y) {
    n = Constant<value = int64 {1024}>() t = Constant<value = bool {1}>()
    y = Loop<body = (int64 i, bool c, float[1] a) => (bool c, float[1] z) {
      z = Loop<body = (int64 j, bool d, float[1] b) => (bool d, float[1] w) {
        w = Loop<body = (int64 k, bool e, float[1] v) => (bool e, float[1] v) {}>(n, t, b)
      }>(n, t, a)
    }>(n, t, x)})");
  const auto refused = ImportOnnx(model.SerializeAsString());
  EXPECT_TRUE(absl::IsUnimplemented(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("unroll to more than"));
}

std::string Refusal(const std::string& graph) {
  const auto imported = ImportOnnx(onnx_cases::ModelOf(18, graph).SerializeAsString());
  EXPECT_FALSE(imported.ok()) << graph;
  return std::string(imported.status().message());
}

// An operator of a few bytes may ask for tables, nodes or constants of any size.
TEST(HostileModel, OperatorsThatAskForVeryMuch) {
  EXPECT_THAT(Refusal("(float[2000000000] x) => (float[a] y) {s = SplitToSequence(x) "
                      "z = Constant<value = int64 {0}>() y = SequenceAt(s, z)}"),
              HasSubstr("more than 2048 parts"));
  EXPECT_THAT(
      Refusal("(float[4] x) => (float[a] y) {p = Constant<value = int64[2] {9223372036854775807, "
              "-9223372036854775803}>() "
              "s = SplitToSequence(x, p) z = Constant<value = int64 {0}>() y = SequenceAt(s, z)}"),
      HasSubstr("cannot split into parts"));
  EXPECT_THAT(Refusal("(float[4] x) => (float[a] y, float[b] z) {p = Constant<value = int64[2] "
                      "{9223372036854775807, "
                      "-9223372036854775803}>() y, z = Split(x, p)}"),
              HasSubstr("do not add up"));
  EXPECT_THAT(Refusal("(float[8] x, int64[2000000000] s, int64[2000000000] e) => (float[a] y) {y = "
                      "Slice(x, s, e)}"),
              HasSubstr("more than the dimensions"));
  EXPECT_THAT(Refusal("(float[1000000,1000000,1,1] x) => (float[a,b,c,d] y, int64[e,f,g,h] i) {"
                      "y, i = MaxPool<kernel_shape = [1, 1]>(x)}"),
              HasSubstr("elements"));
}

// Each problem is another one, and all have long names. One line tells the first ones.
TEST(HostileModel, ManyProblemsWithLongNames) {
  onnx::ModelProto model = onnx_cases::ModelOf(18, "(float[1] x) => (float[a] y) {y = Neg(x)}");
  const std::string long_name(2000, 'n');
  for (int i = 0; i < 20'000; ++i) {
    onnx::NodeProto* node = model.mutable_graph()->add_node();
    node->set_op_type("Neg");
    node->add_input(absl::StrCat("nowhere", i, i < 50 ? long_name : ""));
    node->add_output(absl::StrCat("z", i));
  }
  const auto refused = ImportOnnx(model.SerializeAsString());
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status().code();
  const std::string message(refused.status().message());
  EXPECT_THAT(message, HasSubstr("nowhere0"));
  EXPECT_THAT(message, HasSubstr("and 19960 more"));
  EXPECT_LT(message.size(), 50'000u);
}

// Values of a type that we lack are collected without looking through those before.
TEST(HostileModel, ManyValuesOfAnUnsupportedType) {
  onnx::ModelProto model = onnx_cases::ModelOf(18, "(float[1] x) => (float[a] y) {y = Neg(x)}");
  for (int i = 0; i < 50'000; ++i) {
    auto* input = model.mutable_graph()->add_input();
    input->set_name(absl::StrCat("c", i));
    input->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::COMPLEX64);
  }
  const auto refused = ImportOnnx(model.SerializeAsString());
  EXPECT_TRUE(absl::IsUnimplemented(refused.status())) << refused.status().code();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("complex64"));
}

}  // namespace
}  // namespace heddle::graph::hostile_test
