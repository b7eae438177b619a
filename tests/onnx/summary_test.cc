// What `heddle inspect` tells about a file, also about one that is refused.
#include "compiler/onnx/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/onnx/model_text.h"

namespace heddle::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::Pair;

OnnxSummary Summarize(const onnx::ModelProto& model) {
  const auto summary = SummarizeOnnx(model.SerializeAsString());
  EXPECT_TRUE(summary.ok()) << summary.status();
  return summary.value_or(OnnxSummary{});
}

TEST(Summary, CountsOperatorsWithTheirSupport) {
  const onnx::ModelProto model = onnx_cases::ModelOf(17, R"((float[N,4] x) => (float[N,4] y) {
        a = Relu(x)
        b = Relu(a)
        c = Gemm(b, b)
        d = NoSuchOperator(c)
        y = com.example.Twice(d)
      })");
  const OnnxSummary s = Summarize(model);
  EXPECT_THAT(s.operators,
              ElementsAre(FieldsAre("Relu", "", 2, true, ""), FieldsAre("Gemm", "", 1, true, ""),
                          FieldsAre("NoSuchOperator", "", 1, false, ""),
                          FieldsAre("Twice", "com.example", 1, false, "")));
  EXPECT_THAT(s.inputs, ElementsAre(FieldsAre("x", "float", "[N,4]")));
}

TEST(Summary, AFunctionOfTheModelIsKnownAndItsNodesCount) {
  onnx::ModelProto model = onnx_cases::ModelOf(17, R"((float[4] x) => (float[4] y) {
        y = com.example.Twice(x)
      })");
  onnx::FunctionProto* f = model.add_functions();
  f->set_domain("com.example");
  f->set_name("Twice");
  f->add_node()->set_op_type("Add");
  const OnnxSummary s = Summarize(model);
  EXPECT_EQ(s.functions, 1);
  EXPECT_THAT(s.operators, ElementsAre(FieldsAre("Add", "", 1, true, ""),
                                       FieldsAre("Twice", "com.example", 1, true, "")));
}

TEST(Summary, ParametersAreCountedWhereverTheyAre) {
  onnx::ModelProto model = onnx_cases::ModelOf(17, R"((float[4] x) => (float[4] y) {
        c = Constant<value = float[2] {1.0, 2.0}>()
        y = Relu(x)
      })");
  onnx::TensorProto* outside = model.mutable_graph()->add_initializer();
  outside->set_name("w");
  outside->set_data_type(onnx::TensorProto::FLOAT16);
  outside->add_dims(3);
  outside->add_dims(5);
  outside->set_data_location(onnx::TensorProto::EXTERNAL);
  onnx::TensorProto* packed = model.mutable_graph()->add_initializer();
  packed->set_name("p");
  packed->set_data_type(onnx::TensorProto::INT4);
  packed->add_dims(7);
  const OnnxSummary s = Summarize(model);
  EXPECT_EQ(s.parameters, 2 + 15 + 7);
  EXPECT_EQ(s.parameter_bytes, 8 + 30 + 4);
  EXPECT_THAT(s.bytes_by_type, ElementsAre(Pair("float", 8), Pair("float16", 30), Pair("int4", 4)));
}

TEST(Summary, ShapesThatNobodyGaveAreGuessed) {
  const std::string bytes =
      onnx_cases::ModelOf(17, R"((float[batch,3,height,width] image, int64[batch,seq] ids,
                                  float[2] fixed) => (float[2] y) { y = Relu(fixed) })")
          .SerializeAsString();
  const auto guessed = LikelyShapes(bytes, {});
  ASSERT_TRUE(guessed.ok()) << guessed.status();
  EXPECT_THAT(*guessed, ElementsAre(Pair("ids", ElementsAre(1, 128)),
                                    Pair("image", ElementsAre(1, 3, 224, 224))));
  ImportOptions options;
  options.shapes = {{"batch", {4}}, {"ids", {4, 7}}};
  const auto rest = LikelyShapes(bytes, options);
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_THAT(*rest, ElementsAre(Pair("image", ElementsAre(4, 3, 224, 224))));
}

TEST(Summary, IndependentRowsNeedNoGuess) {
  const auto guessed = [](const std::string& y) {
    const onnx::ModelProto model =
        onnx_cases::ClassicalModelOf(17, 1,
                                     "(float[N,2] x) => (float[a,b] y) {"
                                     "s = ai.onnx.ml.Scaler<offset = [0.0], scale = [2.0]>(x) " +
                                         y + "}");
    return LikelyShapes(model.SerializeAsString(), {}).value();
  };
  EXPECT_THAT(guessed("y = Softmax<axis = 1>(s)"), ElementsAre());
  EXPECT_THAT(guessed("y = Softmax<axis = 0>(s)"), ElementsAre(Pair("x", ElementsAre(1, 2))));
}

TEST(Summary, WhatIsNoModelIsRefused) {
  EXPECT_EQ(SummarizeOnnx("nonsense").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::graph
