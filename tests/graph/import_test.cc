// What the importer refuses, and how it says so.
#include "compiler/graph/onnx_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "compiler/graph/passes.h"
#include "compiler/graph/zoo.h"
#include "onnx/onnx_pb.h"

namespace heddle::graph {
namespace {

using ::testing::AllOf;
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
  const std::string model = *MakeZooModel("mlp", 1);
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
  AddNode(m, "NonZero", "where_are_they", {"x"}, "a");
  AddNode(m, "Relu", "fine", {"x"}, "b");
  AddNode(m, "Unique", "", {"x"}, "c");
  auto* custom = AddNode(m, "Frobnicate", "f", {"x"}, "d");
  custom->set_domain("com.example");
  auto* opset = m.add_opset_import();
  opset->set_domain("com.example");
  opset->set_version(2);
  ExpectRefused(
      Import(m), absl::StatusCode::kUnimplemented,
      AllOf(HasSubstr("NonZero (node 'where_are_they', opset 13)"),
            HasSubstr("Unique (node 'c', opset 13)"),
            HasSubstr("com.example.Frobnicate (node 'f', opset 2)"), Not(HasSubstr("Relu"))));
}

TEST(ImportRefusals, UnsupportedUsesOfKnownOperatorsAreListedToo) {
  onnx::ModelProto m = EmptyModel();
  Describe(m.mutable_graph()->add_input(), "x", {"1", "1", "4", "4"});
  for (const char* name : {"first", "second"}) {
    auto* pool = AddNode(m, "MaxPool", name, {"x"}, std::string("y_") + name);
    pool->add_output(std::string("indices_") + name);
    auto* kernel = pool->add_attribute();
    kernel->set_name("kernel_shape");
    kernel->set_type(onnx::AttributeProto::INTS);
    kernel->add_ints(2);
    kernel->add_ints(2);
    Describe(m.mutable_graph()->add_output(), std::string("y_") + name, {"a", "b", "c", "d"});
  }
  ExpectRefused(Import(m), absl::StatusCode::kUnimplemented,
                AllOf(HasSubstr("node 'first'"), HasSubstr("node 'second'"), HasSubstr("Indices")));
}

TEST(ImportRefusals, ADynamicShapeNamesTheInputAndTheFlag) {
  ExpectRefused(Import(ReluModel({"N", "3"})), absl::StatusCode::kInvalidArgument,
                AllOf(HasSubstr("'x'"), HasSubstr("[N,3]"), HasSubstr("--shape x=1x3")));
  ExpectRefused(Import(ReluModel({"0", "3"})), absl::StatusCode::kInvalidArgument,
                HasSubstr("--shape x=1x3"));
}

TEST(ImportRefusals, AShapeThatDoesNotFit) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ExpectRefused(Import(ReluModel({"N", "3"}), {.shapes = {{"x", {2, 4}}}}), invalid,
                AllOf(HasSubstr("2x4"), HasSubstr("[N,3]")));
  ExpectRefused(Import(ReluModel({"N", "3"}), {.shapes = {{"x", {2}}}}), invalid,
                HasSubstr("does not fit"));
  ExpectRefused(Import(ReluModel({"N", "3"}), {.shapes = {{"x", {0, 3}}}}), invalid,
                HasSubstr("does not fit"));
  ExpectRefused(Import(ReluModel({"2", "3"}), {.shapes = {{"image", {2, 3}}}}), invalid,
                AllOf(HasSubstr("no input 'image'"), HasSubstr("x")));
}

TEST(ImportRefusals, TypesWithoutASupport) {
  ExpectRefused(Import(ReluModel({"2"}, onnx::TensorProto::FLOAT16)),
                absl::StatusCode::kUnimplemented, AllOf(HasSubstr("'x'"), HasSubstr("float16")));
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

TEST(ImportRefusals, AnInitializerWithTooFewBytes) {
  onnx::ModelProto m = ReluModel({"2"});
  auto* tensor = m.mutable_graph()->add_initializer();
  tensor->set_name("w");
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  tensor->add_dims(1000);
  tensor->set_raw_data("abcd");
  ExpectRefused(Import(m), absl::StatusCode::kInvalidArgument, HasSubstr("'w'"));
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
  const auto ints = [&](const std::string& name, const std::vector<int64_t>& values) {
    auto* t = m.mutable_graph()->add_initializer();
    t->set_name(name);
    t->set_data_type(onnx::TensorProto::INT64);
    t->add_dims(static_cast<int64_t>(values.size()));
    for (int64_t v : values) t->add_int64_data(v);
  };
  ints("zero", {0});
  ints("minus_one", {-1});
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

TEST(Import, SupportedOperatorsAreSortedAndMany) {
  const std::vector<std::string> ops = SupportedOnnxOps();
  EXPECT_TRUE(std::is_sorted(ops.begin(), ops.end()));
  EXPECT_GT(ops.size(), 120u);
  EXPECT_THAT(ops, testing::IsSupersetOf({"Conv", "Gemm", "Resize", "LSTM"}));
}

}  // namespace
}  // namespace heddle::graph
