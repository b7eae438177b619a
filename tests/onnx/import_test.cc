// What the importer refuses, and how it says so.
#include "compiler/onnx/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "client/zoo/zoo.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/onnx/format/onnx_format.pb.h"
#include "tests/onnx/model_text.h"
#include "tests/places.h"

namespace heddle::graph::import_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

onnx::ModelProto EmptyModel() {
  onnx::ModelProto m;
  m.set_ir_version(7);
  m.add_opset_import()->set_version(13);
  m.mutable_graph()->set_name("test");
  return m;
}

void Describe(onnx::ValueInfoProto* info, const std::string& name,
              const std::vector<std::string>& dims, int type = onnx::TensorProto::FLOAT) {
  info->set_name(name);
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  tensor->mutable_shape();  // of a scalar, too
  for (const std::string& d : dims) {
    auto* dim = tensor->mutable_shape()->add_dim();
    if (std::isdigit(static_cast<unsigned char>(d[0])))
      dim->set_dim_value(std::stoll(d));
    else
      dim->set_dim_param(d);
  }
}

onnx::NodeProto* AddNode(onnx::ModelProto& m, const std::string& op, const std::string& name,
                         const std::vector<std::string>& in, const std::string& out) {
  auto* node = m.mutable_graph()->add_node();
  node->set_op_type(op);
  node->set_name(name);
  for (const auto& i : in) node->add_input(i);
  node->add_output(out);
  return node;
}

// y = relu(x), x of the given dimensions.
onnx::ModelProto ReluModel(const std::vector<std::string>& dims,
                           int type = onnx::TensorProto::FLOAT) {
  onnx::ModelProto m = EmptyModel();
  Describe(m.mutable_graph()->add_input(), "x", dims, type);
  AddNode(m, "Relu", "r", {"x"}, "y");
  Describe(m.mutable_graph()->add_output(), "y", std::vector<std::string>(dims.size(), "d"), type);
  return m;
}

absl::Status Import(const onnx::ModelProto& m, const ImportOptions& options = {}) {
  return ImportOnnx(m.SerializeAsString(), options).status();
}

void ExpectRefused(const absl::Status& s, absl::StatusCode code,
                   const testing::Matcher<std::string>& message) {
  EXPECT_EQ(s.code(), code) << s;
  const std::string text(s.message());
  EXPECT_THAT(text, message);
  EXPECT_EQ(text.find('\n'), std::string::npos) << "more than one line: " << text;
}

TEST(ImportRefusals, WhatIsNoModel) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ExpectRefused(ImportOnnx("").status(), invalid, HasSubstr("empty"));
  ExpectRefused(ImportOnnx("this is a letter, not a model").status(), invalid,
                HasSubstr("not an ONNX model"));
  const std::string model = *zoo::MakeZooModel("mlp", 1);
  ExpectRefused(ImportOnnx(std::string_view(model).substr(0, model.size() / 2)).status(), invalid,
                HasSubstr("truncated"));
}

TEST(ImportRefusals, TheCheckersComplaintIsPassedOn) {
  onnx::ModelProto m = ReluModel({"2"});
  m.mutable_graph()->mutable_node(0)->add_input("x");  // Relu takes one
  ExpectRefused(Import(m), absl::StatusCode::kInvalidArgument,
                AllOf(HasSubstr("not a valid ONNX model"), HasSubstr("Relu")));
}

TEST(ImportRefusals, UnsupportedOperatorsAreListedAllAtOnce) {
  onnx::ModelProto m = ReluModel({"4"});
  Describe(m.mutable_graph()->add_input(), "s", {"2"}, onnx::TensorProto::STRING);
  AddNode(m, "StringNormalizer", "where_are_they", {"s"}, "a");
  AddNode(m, "Relu", "fine", {"x"}, "b");
  AddNode(m, "StringNormalizer", "", {"s"}, "c");
  auto* custom = AddNode(m, "Frobnicate", "f", {"x"}, "d");
  custom->set_domain("com.example");
  auto* opset = m.add_opset_import();
  opset->set_domain("com.example");
  opset->set_version(2);
  ExpectRefused(
      Import(m), absl::StatusCode::kUnimplemented,
      AllOf(HasSubstr("StringNormalizer (nodes 'where_are_they', 'c', opset 13)"),
            HasSubstr("element type string of 's'"),
            HasSubstr("com.example.Frobnicate (node 'f', opset 2)"), Not(HasSubstr("Relu"))));
}

TEST(ImportRefusals, UnsupportedUsesOfKnownOperatorsAreListedToo) {
  onnx::ModelProto m = EmptyModel();
  Describe(m.mutable_graph()->add_input(), "x", {"1", "1", "4", "4"});
  for (const char* name : {"first", "second"}) {
    auto* p = AddNode(m, "GlobalLpPool", name, {"x"}, std::string("y_") + name)->add_attribute();
    p->set_name("p");
    p->set_type(onnx::AttributeProto::INT);
    p->set_i(0);
    Describe(m.mutable_graph()->add_output(), std::string("y_") + name, {"a", "b", "c", "d"});
  }
  ExpectRefused(Import(m), absl::StatusCode::kUnimplemented,
                AllOf(HasSubstr("nodes 'first', 'second'"), HasSubstr("p = 0")));
}

TEST(ImportRefusals, ADynamicShapeNamesTheInputAndTheFlag) {
  ExpectRefused(Import(ReluModel({"N", "3"})), absl::StatusCode::kInvalidArgument,
                AllOf(HasSubstr("'x'"), HasSubstr("[N,3]"), HasSubstr("--shape x=1x3")));
}

// Zero is an extent. But files of old tools write it for an open one, so --shape may say otherwise.
TEST(Import, ZeroIsAnExtent) {
  const auto empty = ImportOnnx(ReluModel({"0", "3"}).SerializeAsString());
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->values[empty->inputs[0]].type.shape, (Shape{0, 3}));
  const auto open =
      ImportOnnx(ReluModel({"0", "3"}).SerializeAsString(), {.shapes = {{"x", {2, 3}}}});
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(open->values[open->outputs[0]].type.shape, (Shape{2, 3}));
  EXPECT_TRUE(Import(ReluModel({"N", "3"}), {.shapes = {{"x", {0, 3}}}}).ok());
}

TEST(ImportRefusals, AShapeIsProposedThatAModelMayTake) {
  ExpectRefused(Import(ReluModel({"batch", "3", "height", "width"})),
                absl::StatusCode::kInvalidArgument,
                AllOf(HasSubstr("--shape x=1x3x224x224"),
                      HasSubstr("--shape batch=1 --shape height=224 --shape width=224")));
  ExpectRefused(Import(ReluModel({"N", "seq_len", "768"})), absl::StatusCode::kInvalidArgument,
                HasSubstr("--shape x=1x128x768"));
  onnx::ModelProto m = ReluModel({"N", "3"});
  Describe(m.mutable_graph()->add_input(), "mask", {"N", "tokens"});
  ExpectRefused(Import(m), absl::StatusCode::kInvalidArgument,
                AllOf(HasSubstr("'x' [N,3], 'mask' [N,tokens]"),
                      HasSubstr("--shape x=1x3 --shape mask=1x128")));
}

TEST(Import, DimensionsAreFixedByTheirNames) {
  onnx::ModelProto m = ReluModel({"N", "3", "size"});
  const ImportOptions named{.shapes = {{"N", {2}}, {"size", {7}}}};
  const auto graph = ImportOnnx(m.SerializeAsString(), named);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(ToText(graph->values[graph->outputs[0]].type), "f32[2,3,7]");
  ExpectRefused(Import(m, {.shapes = {{"N", {2}}, {"length", {7}}}}),
                absl::StatusCode::kInvalidArgument,
                AllOf(HasSubstr("no input 'length'"), HasSubstr("N, size")));
  const absl::Status several = Import(m, {.shapes = {{"N", {4, 16}}, {"size", {7}}}});
  ExpectRefused(several, absl::StatusCode::kInvalidArgument,
                AllOf(HasSubstr("'N' has one extent"), HasSubstr("2 are given"),
                      HasSubstr("--shape N=4"), Not(HasSubstr("no input"))));
}

// The sampling rate of a speech model decides which branch there is.
TEST(Import, InputsWithAValueAreConstants) {
  const onnx::ModelProto m = onnx_cases::ModelOf(17, R"(
    (float[2,3] x, int64 rate, float[N] scale) => (float[a,b] y) {
      wide = Constant<value = int64 {16000}>()
      is_wide = Equal(rate, wide)
      z = If<then_branch = () => (float[2,3] t) {t = Neg(x)},
             else_branch = () => (float[3,2] e) {e = Transpose(x)}>(is_wide)
      y = Mul(z, scale)
    })");
  const auto first = ImportOnnx(m.SerializeAsString(),
                                {.input_values = {{"rate", "16000"}, {"scale", "1.5,2,-3"}}});
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->inputs.size(), 1u);
  const TensorData x = FromDoubles({1, 2, 3, 4, 5, 6}, {2, 3}, ir::DType::kF32);
  EXPECT_THAT(ToDoubles((*EvaluateGraph(*first, std::vector{x}))[0]),
              ElementsAre(-1.5, -4, 9, -6, -10, 18));
  const auto second =
      ImportOnnx(m.SerializeAsString(),
                 {.shapes = {{"N", {2}}}, .input_values = {{"rate", "8000"}, {"scale", "2"}}});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(ToDoubles((*EvaluateGraph(*second, std::vector{x}))[0]),
              ElementsAre(2, 8, 4, 10, 6, 12));

  const auto refused = [&](const std::string& input, const std::string& value, const auto& says) {
    ExpectRefused(Import(m, {.shapes = {{"N", {3}}}, .input_values = {{input, value}}}),
                  absl::StatusCode::kInvalidArgument, says);
  };
  ExpectRefused(Import(m, {.shapes = {{"N", {3}}}}), absl::StatusCode::kUnimplemented,
                AllOf(HasSubstr("different shapes"), HasSubstr("--input-value name=1")));
  // The dead branch does not fit.
  ExpectRefused(Import(onnx_cases::ModelOf(17, R"(
    (float[2,3] x, bool flag) => (float[2,3] y) {
      y = If<then_branch = () => (float[2,3] t) {t = Neg(x)},
             else_branch = () => (float[2,3] e) {e = MatMul(x, x)}>(flag)
    })")),
                absl::StatusCode::kInvalidArgument,
                AllOf(HasSubstr("MatMul"), HasSubstr("--input-value name=1")));
  refused("sr", "1", AllOf(HasSubstr("no input 'sr'"), HasSubstr("x, rate, scale")));
  refused("rate", "1.5", AllOf(HasSubstr("'1.5'"), HasSubstr("i64")));
  refused("rate", "99999999999999999999", HasSubstr("i64"));
  refused("rate", "1,2", HasSubstr("has 1 elements, but --input-value gives 2"));
  refused("scale", "1,2", HasSubstr("has 3 elements, but --input-value gives 2"));
  refused("scale", "1,,2", HasSubstr("''"));
}

// An input may be an output as well, and users know both by the same name.
TEST(Import, AnInputThatIsAnOutputKeepsItsName) {
  onnx::ModelProto m = ReluModel({"2"});
  Describe(m.mutable_graph()->add_output(), "x", {"2"});
  const auto graph = ImportOnnx(m.SerializeAsString());
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto optimized = Optimize(*graph);
  ASSERT_TRUE(optimized.ok()) << optimized.status();
  for (const Graph* g : {&*graph, &*optimized}) {
    EXPECT_EQ(g->values[g->inputs[0]].name, "x");
    EXPECT_EQ(g->values[g->outputs[0]].name, "y");
    EXPECT_EQ(g->values[g->outputs[1]].name, "x");
  }
}

// Old files repeat initializers as inputs. They are no inputs of the module, even if nothing reads them.
TEST(Import, InitializersAmongTheInputs) {
  onnx::ModelProto model = onnx_cases::ModelOf(
      8, "(float[2] x, float[2] w, float[1] unread) => (float[2] y) {y = Add(x, w)}");
  for (const auto& [name, size] : {std::pair{"w", 2}, {"unread", 1}}) {
    onnx::TensorProto& t = *model.mutable_graph()->add_initializer();
    t.set_name(name);
    t.set_data_type(onnx::TensorProto::FLOAT);
    t.add_dims(size);
    for (int i = 0; i < size; ++i) t.add_float_data(1);
  }
  const auto graph = ImportOnnx(model.SerializeAsString());
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(graph->inputs.size(), 1);
  EXPECT_EQ(graph->values[graph->inputs[0]].name, "x");
}

TEST(ImportRefusals, AShapeThatDoesNotFit) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ExpectRefused(Import(ReluModel({"N", "3"}), {.shapes = {{"x", {2, 4}}}}), invalid,
                AllOf(HasSubstr("2x4"), HasSubstr("[N,3]")));
  ExpectRefused(Import(ReluModel({"N", "3"}), {.shapes = {{"x", {2}}}}), invalid,
                HasSubstr("does not fit"));
  ExpectRefused(Import(ReluModel({"N", "3"}), {.shapes = {{"x", {-1, 3}}}}), invalid,
                HasSubstr("does not fit"));
  ExpectRefused(Import(ReluModel({"2", "3"}), {.shapes = {{"image", {2, 3}}}}), invalid,
                AllOf(HasSubstr("no input 'image'"), HasSubstr("x")));
}

TEST(ImportRefusals, TypesWithoutASupport) {
  onnx::ModelProto m = ReluModel({"2"}, onnx::TensorProto::COMPLEX64);
  m.mutable_graph()->mutable_node(0)->set_op_type("Identity");
  ExpectRefused(Import(m), absl::StatusCode::kUnimplemented,
                AllOf(HasSubstr("'x'"), HasSubstr("complex64")));
}

// 16-bit floats are read as f32 and stored again after each operator: what a fused kernel computes
// is what the operators compute one by one.
TEST(Import, ProductsOfHalves) {
  for (const int type : {onnx::TensorProto::FLOAT16, onnx::TensorProto::BFLOAT16}) {
    onnx::ModelProto m = EmptyModel();
    Describe(m.mutable_graph()->add_input(), "x", {"16", "32"}, type);
    Describe(m.mutable_graph()->add_input(), "w", {"32", "8"}, type);
    AddNode(m, "MatMul", "m", {"x", "w"}, "s");
    AddNode(m, "Relu", "r", {"s"}, "y");
    Describe(m.mutable_graph()->add_output(), "y", {"16", "8"}, type);
    const auto graph = ImportOnnx(m.SerializeAsString());
    ASSERT_TRUE(graph.ok()) << graph.status();
    std::mt19937 rng(1);
    std::vector<TensorData> inputs;
    for (const ValueId v : graph->inputs) {
      const TensorType& t = graph->values[v].type;
      std::string bytes;
      for (int64_t i = 0; i < NumElements(t); ++i) {
        const float value = std::uniform_real_distribution<float>(-1, 1)(rng);
        const uint16_t bits = ir::HalfBits(value, t.dtype);
        bytes.append(reinterpret_cast<const char*>(&bits), sizeof bits);
      }
      inputs.push_back({t, std::make_shared<const std::string>(bytes)});
    }
    const auto alone = EvaluateGraph(*graph, inputs);
    ASSERT_TRUE(alone.ok()) << alone.status();
    const std::vector<double> x = ToDoubles(inputs[0]), w = ToDoubles(inputs[1]),
                              y = ToDoubles((*alone)[0]);
    double sum = 0;
    for (int k = 0; k < 32; ++k) sum += x[k] * w[8 * k];
    EXPECT_NEAR(y[0], std::max(sum, 0.0), type == onnx::TensorProto::FLOAT16 ? 4e-3 : 3e-2);
    const auto fused = Fuse(*graph);
    ASSERT_TRUE(fused.ok()) << fused.status();
    ASSERT_EQ(fused->groups.size(), 1u);
    const auto expression = GroupExpression(*fused, fused->groups[0]);
    ASSERT_TRUE(expression.ok()) << expression.status();
    const auto together = EvaluateProgram(*expression, inputs);
    ASSERT_TRUE(together.ok()) << together.status();
    EXPECT_EQ(*(*together)[0].bytes, *(*alone)[0].bytes);
  }
}

// An operator of f16 inputs, evaluated; its outputs are f16 but for those in `single`. A bias is a
// constant.
std::vector<TensorData> OfHalves(onnx::ModelProto m, std::vector<TensorData> inputs,
                                 const std::set<std::string>& single = {}) {
  m.mutable_opset_import(0)->set_version(17);
  auto* node = m.mutable_graph()->mutable_node(0);
  const bool product = node->op_type() == "Gemm" || node->op_type().rfind("Conv", 0) == 0;
  if (product) {
    auto* bias = m.mutable_graph()->add_initializer();
    bias->set_name(node->input(2));
    bias->set_data_type(onnx::TensorProto::FLOAT16);
    bias->add_dims(inputs[2].type.shape[0]);
    bias->set_raw_data(std::string(*inputs[2].bytes));
    inputs.pop_back();
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<std::string> dims;
    for (int64_t d : inputs[i].type.shape) dims.push_back(std::to_string(d));
    Describe(m.mutable_graph()->add_input(), node->input(static_cast<int>(i)), dims,
             onnx::TensorProto::FLOAT16);
  }
  const std::vector<std::string> rank(inputs[0].type.shape.size(), "d");
  for (const std::string& name : node->output()) {
    Describe(m.mutable_graph()->add_output(), name, rank,
             single.count(name) ? onnx::TensorProto::FLOAT : onnx::TensorProto::FLOAT16);
  }
  const auto graph = ImportOnnx(m.SerializeAsString());
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok()) return {};
  const auto alone = EvaluateGraph(*graph, inputs);
  EXPECT_TRUE(alone.ok()) << alone.status();
  if (!alone.ok()) return {};
  for (int i = 0; i < node->output_size(); ++i) {
    EXPECT_EQ((*alone)[i].type.dtype,
              single.count(node->output(i)) ? ir::DType::kF32 : ir::DType::kF16);
  }
  EXPECT_TRUE(Optimize(*graph).ok()) << Optimize(*graph).status();
  if (product && node->op_type() != "ConvTranspose") {
    const auto fused = Fuse(*graph);
    EXPECT_TRUE(fused.ok()) << fused.status();
    EXPECT_EQ(fused->groups.size(), 1u) << node->op_type();
    if (fused->groups.size() != 1) return {};
    const auto expression = GroupExpression(*fused, fused->groups[0]);
    EXPECT_TRUE(expression.ok()) << expression.status();
    for (const ValueId v : fused->groups[0].inputs) {
      if (const auto found = fused->graph.constants.find(v); found != fused->graph.constants.end())
        inputs.push_back(found->second);
    }
    const auto together = EvaluateProgram(*expression, inputs);
    EXPECT_TRUE(together.ok()) << together.status();
    EXPECT_EQ(*(*together)[0].bytes, *(*alone)[0].bytes);
  }
  return *alone;
}

// What is one operator in ONNX and several here.
TEST(Import, OperatorsOfHalvesRoundOnce) {
  const auto halves = [](const std::vector<double>& values, const std::vector<int64_t>& shape) {
    return FromDoubles(values, shape, ir::DType::kF16);
  };
  const auto result = [&](const std::string& op, const std::vector<TensorData>& inputs) {
    onnx::ModelProto m = EmptyModel();
    std::vector<std::string> names;
    for (size_t i = 0; i < inputs.size(); ++i) names.push_back("x" + std::to_string(i));
    AddNode(m, op, op, names, "y");
    const auto outputs = OfHalves(m, inputs);
    return outputs.empty() ? std::vector<double>{} : ToDoubles(outputs[0]);
  };
  const TensorData large = halves({40000}, {1}), one = halves({1}, {1});
  EXPECT_THAT(result("Mean", {large, large}), ElementsAre(40000));
  EXPECT_THAT(result("Sum", {halves({2048}, {1}), one, one}), ElementsAre(2050));
  EXPECT_THAT(result("Gemm", {halves({2048, 1}, {1, 2}), halves({1, 1}, {2, 1}), one}),
              ElementsAre(2050));
  const TensorData x = halves({2048, 1}, {1, 2, 1});
  EXPECT_THAT(result("Conv", {x, halves({1, 1}, {1, 2, 1}), one}), ElementsAre(2050));
  EXPECT_THAT(result("ConvTranspose", {x, halves({1, 1}, {2, 1, 1}), one}), ElementsAre(2050));
}

TEST(Import, StatisticsOfHalvesAreSingle) {
  onnx::ModelProto m = EmptyModel();
  auto* node = AddNode(m, "LayerNormalization", "n", {"x", "scale"}, "y");
  node->add_output("mean");
  node->add_output("inverse");
  const auto outputs = OfHalves(m,
                                {FromDoubles({2048, 2048, 2050, 2052}, {1, 4}, ir::DType::kF16),
                                 FromDoubles({1, 1, 1, 1}, {4}, ir::DType::kF16)},
                                {"mean", "inverse"});
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_THAT(ToDoubles(outputs[1]), ElementsAre(2049.5));
}

TEST(ImportRefusals, ExternalDataIsNeverOpened) {
  onnx::ModelProto m = ReluModel({"2"});
  auto* tensor = m.mutable_graph()->add_initializer();
  tensor->set_name("secret");
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  tensor->add_dims(1);
  tensor->set_data_location(onnx::TensorProto::EXTERNAL);
  auto* entry = tensor->add_external_data();
  entry->set_key("location");
  entry->set_value("../../etc/passwd");
  ExpectRefused(Import(m), absl::StatusCode::kInvalidArgument,
                AllOf(HasSubstr("'secret'"), HasSubstr("external data")));
}

// With a loader, external data may be anywhere in a model. Its locations mean what the loader makes of
// them.
TEST(ImportExternal, InitializersAndConstantsOfNodes) {
  onnx::ModelProto m = ReluModel({"2"});
  onnx::GraphProto& g = *m.mutable_graph();
  g.mutable_node(0)->set_op_type("Sum");
  g.mutable_node(0)->add_input("w");
  g.mutable_node(0)->add_input("c");
  const auto place = [](onnx::TensorProto* t, const std::string& location) {
    t->set_data_type(onnx::TensorProto::FLOAT);
    t->add_dims(2);
    t->set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : {std::pair{"location", location.c_str()}, {"length", "8"}}) {
      t->add_external_data()->set_key(key);
      t->mutable_external_data()->rbegin()->set_value(value);
    }
  };
  onnx::TensorProto& w = *g.add_initializer();
  w.set_name("w");
  place(&w, "one");
  onnx::NodeProto constant;
  constant.set_op_type("Constant");
  constant.add_output("c");
  onnx::AttributeProto& value = *constant.add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  place(value.mutable_t(), "two");
  *g.add_node() = constant;
  g.mutable_node()->SwapElements(0, 1);
  ImportOptions options;
  options.external = [](const onnx::TensorPlace& place) -> absl::StatusOr<SharedBytes> {
    EXPECT_EQ(place.length, 8);
    const float x = place.location == "one" ? 1.f : 2.f;
    const float values[] = {x, 10 * x};
    return SharedBytes::Of(std::string(reinterpret_cast<const char*>(values), sizeof values));
  };
  const auto graph = ImportOnnx(m.SerializeAsString(), options);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const TensorData x = FromDoubles({100, 200}, {2}, ir::DType::kF32);
  const auto outputs = EvaluateGraph(*graph, {&x, 1});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(ToDoubles((*outputs)[0]), ElementsAre(103, 230));
  options.external = [](const onnx::TensorPlace&) -> absl::StatusOr<SharedBytes> {
    return absl::InvalidArgumentError("tensor 'w' is elsewhere");
  };
  ExpectRefused(Import(m, options), absl::StatusCode::kInvalidArgument, HasSubstr("elsewhere"));
}

TEST(ImportRefusals, AnInitializerWithTooFewBytes) {
  onnx::ModelProto m = ReluModel({"2"});
  auto* tensor = m.mutable_graph()->add_initializer();
  tensor->set_name("w");
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  tensor->add_dims(1000);
  tensor->set_raw_data("abcd");
  ExpectRefused(Import(m), absl::StatusCode::kInvalidArgument, HasSubstr("'w'"));
}

void Initialize(onnx::ModelProto& m, const std::string& name, const std::vector<int64_t>& values,
                bool scalar = false) {
  auto* t = m.mutable_graph()->add_initializer();
  t->set_name(name);
  t->set_data_type(onnx::TensorProto::INT64);
  if (!scalar) t->add_dims(static_cast<int64_t>(values.size()));
  for (int64_t v : values) t->add_int64_data(v);
}

// Reshape(c, Identity(shape)) of four constants, so that the checker does not see the shape.
TEST(ImportRefusals, ShapesThatNoTensorHas) {
  const std::vector<std::vector<int64_t>> shapes = {
      {-2, -2}, {-1, -1}, {-4, -1}, {INT64_MIN, 2}, {int64_t{1} << 32, int64_t{1} << 32, 4}};
  for (const auto& shape : shapes) {
    onnx::ModelProto m = EmptyModel();
    Initialize(m, "c", {1, 2, 3, 4});
    Initialize(m, "shape", shape);
    Describe(m.mutable_graph()->add_input(), "x", {"1"}, onnx::TensorProto::INT64);
    AddNode(m, "Identity", "id", {"shape"}, "to");
    AddNode(m, "Reshape", "reshape", {"c", "to"}, "r");
    AddNode(m, "Add", "add", {"x", "r"}, "y");
    Describe(m.mutable_graph()->add_output(), "y", {"a", "b"}, onnx::TensorProto::INT64);
    ExpectRefused(Import(m), absl::StatusCode::kInvalidArgument, HasSubstr("reshape"));
  }
}

// Each is small enough, all together are not.
TEST(ImportRefusals, ConstantsThatTogetherAreTooLarge) {
  onnx::ModelProto m = EmptyModel();
  Initialize(m, "shape", {1000});
  Describe(m.mutable_graph()->add_input(), "x", {"1000"});
  for (const char* name : {"a", "b", "c"}) {
    AddNode(m, "ConstantOfShape", name, {"shape"}, std::string("filled_") + name);
    AddNode(m, "Add", std::string("add_") + name, {"x", std::string("filled_") + name}, name);
    Describe(m.mutable_graph()->add_output(), name, {"n"});
  }
  EXPECT_TRUE(Import(m).ok()) << Import(m);
  EXPECT_TRUE(Import(m, {.shapes = {}, .constant_bytes = 12000}).ok());
  ExpectRefused(Import(m, {.shapes = {}, .constant_bytes = 11000}),
                absl::StatusCode::kUnimplemented,
                AllOf(HasSubstr("ConstantOfShape (node 'c'"), HasSubstr("with all others")));
}

TEST(ImportRefusals, ShapesThatContradictEachOther) {
  onnx::ModelProto m = EmptyModel();
  Describe(m.mutable_graph()->add_input(), "a", {"2", "3"});
  Describe(m.mutable_graph()->add_input(), "b", {"2", "4"});
  AddNode(m, "Add", "sum", {"a", "b"}, "y");
  Describe(m.mutable_graph()->add_output(), "y", {"2", "3"});
  ExpectRefused(Import(m), absl::StatusCode::kInvalidArgument, HasSubstr("sum"));
}

TEST(Import, AFixedShapeReachesTheOutput) {
  auto g = ImportOnnx(ReluModel({"N", "3"}).SerializeAsString(), {.shapes = {{"x", {5, 3}}}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(ToText(g->values[g->outputs[0]].type), "f32[5,3]");
  EXPECT_EQ(g->values[g->inputs[0]].name, "x");
  EXPECT_EQ(g->values[g->outputs[0]].name, "y");
}

// Reshape(x, Concat(Shape(x)[0:1], [-1])), as exporters write a flatten.
TEST(Import, ArithmeticOnShapesFolds) {
  onnx::ModelProto m = EmptyModel();
  Describe(m.mutable_graph()->add_input(), "x", {"N", "3", "4"});
  Initialize(m, "zero", {0});
  Initialize(m, "minus_one", {-1});
  AddNode(m, "Shape", "shape", {"x"}, "s");
  AddNode(m, "Gather", "gather", {"s", "zero"}, "n");
  auto* axis = AddNode(m, "Concat", "concat", {"n", "minus_one"}, "to")->add_attribute();
  axis->set_name("axis");
  axis->set_type(onnx::AttributeProto::INT);
  axis->set_i(0);
  AddNode(m, "Reshape", "reshape", {"x", "to"}, "y");
  Describe(m.mutable_graph()->add_output(), "y", {"N", "K"});
  auto g = ImportOnnx(m.SerializeAsString(), {.shapes = {{"x", {2, 3, 4}}}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(ToText(g->values[g->outputs[0]].type), "f32[2,12]");
  EXPECT_EQ(g->nodes.size(), 1u) << Print(*g);
}

// 2^63-1 is no double, and what it rounds to is no 64-bit integer.
TEST(Import, IntegersAboveTheDoublesStayExact) {
  constexpr int64_t kOdd = (int64_t{1} << 53) + 1;
  onnx::ModelProto m = EmptyModel();
  Initialize(m, "low", {kOdd}, /*scalar=*/true);
  Initialize(m, "high", {INT64_MAX}, /*scalar=*/true);
  Initialize(m, "start", {kOdd}, true);
  Initialize(m, "limit", {kOdd + 2}, true);
  Initialize(m, "step", {1}, true);
  Initialize(m, "around", {1, 0});
  Initialize(m, "two", {2});
  Describe(m.mutable_graph()->add_input(), "x", {"2"}, onnx::TensorProto::INT64);
  AddNode(m, "Clip", "clip", {"x", "low", "high"}, "clipped");
  AddNode(m, "Pad", "pad", {"x", "around", "low"}, "padded");
  AddNode(m, "Range", "range", {"start", "limit", "step"}, "counted");
  auto* value = AddNode(m, "Constant", "constant", {}, "odd")->add_attribute();
  value->set_name("value_int");
  value->set_type(onnx::AttributeProto::INT);
  value->set_i(kOdd);
  auto* filling = AddNode(m, "ConstantOfShape", "fill", {"two"}, "filled")->add_attribute();
  filling->set_name("value");
  filling->set_type(onnx::AttributeProto::TENSOR);
  filling->mutable_t()->set_data_type(onnx::TensorProto::INT64);
  filling->mutable_t()->add_dims(1);
  filling->mutable_t()->add_int64_data(kOdd);
  for (const char* name : {"clipped", "padded", "counted", "odd", "filled"}) {
    std::vector<std::string> dims{"n"};
    if (std::string(name) == "odd") dims.clear();
    Describe(m.mutable_graph()->add_output(), name, dims, onnx::TensorProto::INT64);
  }
  auto g = ImportOnnx(m.SerializeAsString());
  ASSERT_TRUE(g.ok()) << g.status();
  TensorData x = FromInts({5, INT64_MAX - 1});
  auto out = EvaluateGraph(*g, std::vector{x});
  ASSERT_TRUE(out.ok()) << out.status();
  const std::vector<std::vector<int64_t>> expected = {
      {kOdd, INT64_MAX - 1}, {kOdd, 5, INT64_MAX - 1}, {kOdd, kOdd + 1}, {kOdd}, {kOdd, kOdd}};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(ToInts((*out)[i]), expected[i]) << i;
}

TEST(Import, RangesEndBeforeTheirLimit) {
  struct Case {
    int64_t start, limit, step;
    std::vector<int64_t> values;
  };
  const Case cases[] = {{0, 7, 3, {0, 3, 6}},
                        {0, 6, 3, {0, 3}},
                        {5, -2, -3, {5, 2, -1}},
                        {INT64_MAX, INT64_MIN, INT64_MIN, {INT64_MAX, -1}},
                        {INT64_MIN, INT64_MAX, INT64_MAX, {INT64_MIN, -1, INT64_MAX - 1}}};
  for (const Case& c : cases) {
    onnx::ModelProto m = EmptyModel();
    Initialize(m, "start", {c.start}, true);
    Initialize(m, "limit", {c.limit}, true);
    Initialize(m, "step", {c.step}, true);
    AddNode(m, "Range", "range", {"start", "limit", "step"}, "y");
    Describe(m.mutable_graph()->add_output(), "y", {"n"}, onnx::TensorProto::INT64);
    auto g = ImportOnnx(m.SerializeAsString());
    ASSERT_TRUE(g.ok()) << g.status();
    EXPECT_EQ(ToInts((*EvaluateGraph(*g, {}))[0]), c.values);
  }
}

// Damaged models are refused or imported, but never bring the process down.
TEST(ImportProperty, SurvivesDamage) {
  std::mt19937_64 rng(1);
  onnx::ModelProto small = ReluModel({"2", "3"});
  AddNode(small, "Softmax", "s", {"x"}, "z");
  const std::string bytes = small.SerializeAsString();
  for (size_t length = 0; length < bytes.size(); ++length) {
    ImportOnnx(std::string_view(bytes).substr(0, length)).status().IgnoreError();
  }
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = bytes;
    for (uint64_t k = 0; k <= rng() % 3; ++k)
      damaged[rng() % damaged.size()] = static_cast<char>(rng());
    auto g = ImportOnnx(damaged);
    if (g.ok()) {
      EXPECT_TRUE(Optimize(*g).ok());
    }
  }
}

// HEDDLE_BLESS=1 writes the table anew.
TEST(Import, TheDocumentedOperatorsAreTheImportersOwn) {
  const std::string path = HEDDLE_SOURCE_DIR "/docs/onnx-operators.md";
  const std::string table = OnnxOperatorTable();
  if (std::getenv("HEDDLE_BLESS") != nullptr) std::ofstream(path) << table;
  std::ifstream file(path);
  const std::string documented{std::istreambuf_iterator<char>(file),
                               std::istreambuf_iterator<char>()};
  EXPECT_EQ(documented, table) << "run this test with HEDDLE_BLESS=1";
}

TEST(Import, SupportedOperatorsAreSortedAndMany) {
  const std::vector<std::string> ops = SupportedOnnxOps();
  EXPECT_TRUE(std::is_sorted(ops.begin(), ops.end()));
  EXPECT_GT(ops.size(), 120u);
  EXPECT_THAT(ops, testing::IsSupersetOf({"Conv", "Gemm", "Resize", "LSTM"}));
}

}  // namespace
}  // namespace heddle::graph::import_test
