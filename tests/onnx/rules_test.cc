// Models against the rules of their opset: what the newer opsets spell differently is understood,
// and what breaks a rule is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/standard/standard.h"
#include "tests/onnx/model_text.h"
#include "tests/onnx/onnx_case.h"

namespace heddle::graph::rules_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

absl::Status Import(int opset, const std::string& graph) {
  return ImportOnnx(onnx_cases::ModelOf(opset, graph).SerializeAsString()).status();
}

std::string Refusal(int opset, const std::string& graph) {
  const absl::Status status = Import(opset, graph);
  EXPECT_FALSE(status.ok()) << graph;
  return std::string(status.message());
}

// The first output, of inputs that count from 1 on.
TensorData Result(int opset, const std::string& text) {
  const auto graph = ImportOnnx(onnx_cases::ModelOf(opset, text).SerializeAsString());
  EXPECT_TRUE(graph.ok()) << graph.status() << "\n" << text;
  if (!graph.ok()) return FromInts({});
  std::vector<TensorData> inputs;
  for (const ValueId v : graph->inputs) {
    const TensorType& type = graph->values[v].type;
    std::vector<double> values;
    for (int64_t i = 0; i < NumElements(type); ++i) values.push_back(static_cast<double>(i + 1));
    inputs.push_back(FromDoubles(values, type.shape, type.dtype));
  }
  const auto outputs = EvaluateGraph(*graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? outputs->front() : FromInts({});
}

std::vector<double> Values(int opset, const std::string& text) {
  return ToDoubles(Result(opset, text));
}

TEST(Standard, KnowsVersionsDefaultsAndTypes) {
  using onnx::FindRule;
  EXPECT_EQ(onnx::NewestOpset(), 28);
  EXPECT_EQ(onnx::NewestOpset("ai.onnx.ml"), 5);
  EXPECT_EQ(FindRule("ai.onnx.ml.LabelEncoder", 3)->since, 2);
  EXPECT_EQ(FindRule("ai.onnx.ml.LabelEncoder", 4)->Attribute("default_int64")->fallback.i(), -1);
  EXPECT_TRUE(FindRule("ai.onnx.ml.TreeEnsembleRegressor", 5)->removed);
  EXPECT_EQ(FindRule("Resize", 12)->since, 11);
  EXPECT_EQ(FindRule("Resize", 28)->since, 19);
  EXPECT_EQ(FindRule("Gelu", 19), nullptr);
  EXPECT_TRUE(FindRule("Upsample", 10)->removed);
  EXPECT_EQ(FindRule("Softmax", 12)->Attribute("axis")->fallback.i(), 1);
  EXPECT_EQ(FindRule("Softmax", 13)->Attribute("axis")->fallback.i(), -1);
  EXPECT_EQ(FindRule("Selu", 6)->Attribute("alpha")->fallback.f(), 1.67326319217681884765625f);
  EXPECT_EQ(FindRule("Split", 18)->FewestInputs(), 1);
  EXPECT_EQ(FindRule("Split", 18)->MostInputs(), 2);
  EXPECT_EQ(FindRule("Concat", 13)->FewestInputs(), 1);
  EXPECT_EQ(FindRule("Concat", 13)->Input(7)->name, "inputs");
  EXPECT_EQ(onnx::ElementTypeNames(FindRule("Relu", 6)->Input(0)->types),
            "float, float16 or double");
  for (const auto& [name, versions] : onnx::AllRules()) {
    int before = 0;
    for (const onnx::OperatorRule& rule : versions) {
      EXPECT_GT(rule.since, before) << name;
      before = rule.since;
      for (const auto* operands : {&rule.inputs, &rule.outputs}) {
        for (const onnx::OperandRule& o : *operands)
          EXPECT_NE(o.types, 0u) << name << " " << o.name;
      }
    }
  }
}

TEST(Opsets, NewSpellingsAreUnderstood) {
  EXPECT_THAT(Values(18,
                     "(float[2,2] x) => (float[a] y) {"
                     "axes = Constant<value_ints = [1]>()\n"
                     "y = ReduceMean<keepdims = 0>(x, axes)}"),
              ElementsAre(1.5, 3.5));
  // The axes are a folded computation.
  EXPECT_THAT(Values(20,
                     "(float[2,2] x) => (float[?] y) {"
                     "one = Constant<value_ints = [1]>()\naxes = Sub(one, one)\n"
                     "y = ReduceMax<keepdims = 0>(x, axes)}"),
              ElementsAre(3, 4));
  EXPECT_THAT(Values(18,
                     "(float[2] x) => (float[2] y) {"
                     "y = ReduceSumSquare<noop_with_empty_axes = 1, keepdims = 0>(x)}"),
              ElementsAre(1, 4));
  EXPECT_THAT(Values(28,
                     "(float[5] x) => (float[1] c) {"
                     "a, b, c = Split<num_outputs = 3>(x)}"),
              ElementsAre(5));
  EXPECT_THAT(Values(19,
                     "(float[3] x) => (float[a] y) {"
                     "pads = Constant<value_ints = [4, 2]>()\n"
                     "y = Pad<mode = \"wrap\">(x, pads)}"),
              ElementsAre(3, 1, 2, 3, 1, 2, 3, 1, 2));
  EXPECT_THAT(
      Values(25,
             "(float[1,2] x) => (float[1,a] y) {"
             "pads = Constant<value_ints = [1, 1]>()\naxis = Constant<value_ints = [-1]>()\n"
             "y = Pad(x, pads, , axis)}"),
      ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(Values(21,
                     "(float[4] x) => (int32[4] y) {"
                     "y = Cast<to = 6, saturate = 0>(x)}"),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Values(22,
                     "(float[1,1,5] x) => (float[1,1,a] y) {"
                     "y = AveragePool<kernel_shape = [2], dilations = [2]>(x)}"),
              ElementsAre(2, 3, 4));
  EXPECT_THAT(Values(28,
                     "(float[1,2,2,2] x) => (float[1,8,1,1] y) {"
                     "y = SpaceToDepth<blocksize = 2, mode = \"CRD\">(x)}"),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(Values(23,
                     "(float[2] x) => (int8[2] y) {"
                     "s = Constant<value_float = 0.5>()\n"
                     "y = QuantizeLinear<output_dtype = 3>(x, s)}"),
              ElementsAre(2, 4));
}

TEST(Opsets, ResizeOfSomeAxes) {
  EXPECT_EQ(Result(18,
                   "(float[1,1,4,8] x) => (float[?,?,?,?] y) {"
                   "sizes = Constant<value_ints = [2, 2]>()\n"
                   "y = Resize<axes = [3, 2], mode = \"linear\">(x, , , sizes)}")
                .type.shape,
            (Shape{1, 1, 2, 2}));
  for (const auto& [policy, shape] :
       std::map<std::string, Shape>{{"not_larger", {1, 1, 3, 6}}, {"not_smaller", {1, 1, 5, 10}}}) {
    EXPECT_EQ(Result(19, absl::StrCat("(float[1,1,4,8] x) => (float[?,?,?,?] y) {"
                                      "sizes = Constant<value_ints = [5, 6]>()\n"
                                      "y = Resize<axes = [2, 3], keep_aspect_ratio_policy = \"",
                                      policy, "\">(x, , , sizes)}"))
                  .type.shape,
              shape);
  }
  // Each result averages four elements, not the two that linear interpolation sees.
  EXPECT_THAT(Values(18,
                     "(float[8] x) => (float[2] y) {"
                     "s = Constant<value_floats = [0.25]>()\n"
                     "y = Resize<mode = \"linear\", antialias = 1>(x, , s)}"),
              ElementsAre(testing::DoubleNear(2.6, 0.1), testing::DoubleNear(6.4, 0.1)));
}

// What a node leaves out has the default of its own opset.
TEST(Opsets, DefaultsAreThoseOfTheVersion) {
  const std::string graph = "(float[1,1,2] x) => (float[1,1,2] y) {y = Hardmax(x)}";
  EXPECT_THAT(Values(12, graph), ElementsAre(0, 1));
  const std::string two = "(float[1,2,1] x) => (float[1,2,1] y) {y = Hardmax(x)}";
  EXPECT_THAT(Values(12, two), ElementsAre(0, 1));  // over all dimensions from 1 on
  EXPECT_THAT(Values(13, two), ElementsAre(1, 1));  // over the last one
}

TEST(Opsets, WhatAnOpsetDoesNotHaveIsRefusedByName) {
  const std::string relu = "(float[2] x) => (float[2] y) {y = Relu(x)}";
  EXPECT_THAT(Refusal(29, relu), AllOf(HasSubstr("opset 29"), HasSubstr("28")));
  EXPECT_TRUE(absl::IsUnimplemented(Import(29, relu)));
  EXPECT_THAT(Refusal(0, relu), HasSubstr("no opset 0"));
  EXPECT_THAT(Refusal(7, "(float[2] x) => (float[2] y) {y = Sinh(x)}"),
              HasSubstr("Sinh (node 'y', opset 7): exists from opset 9 on"));
  EXPECT_THAT(Refusal(11,
                      "(float[2] x) => (float[4] y) {"
                      "s = Constant<value = float[1] {2.0}>()\ny = Upsample(x, s)}"),
              HasSubstr("was removed in opset 10"));
  EXPECT_THAT(Refusal(17,
                      "(float[1,1,2,2] x) => (float[?,?,?,?] y) {"
                      "s = Constant<value_floats = [1.0, 1.0, 2.0, 2.0]>()\n"
                      "y = Resize<antialias = 1>(x, , s)}"),
              HasSubstr("has no attribute 'antialias' before opset 18"));
  EXPECT_THAT(Refusal(18, "(float[2] x) => (float[1] y) {y = ReduceMean<axes = [0]>(x)}"),
              HasSubstr("has no attribute 'axes' any more"));
  EXPECT_THAT(Refusal(13, "(float[5] x) => (float[a] y) {y, z = Split(x)}"),
              HasSubstr("not 2 equal parts"));
  EXPECT_THAT(Refusal(28,
                      "(float[2,4] x) => (uint8[2,4] y) {"
                      "s = Constant<value = float[2,2] {1.0, 1.0, 1.0, 1.0}>()\n"
                      "y = QuantizeLinear<block_size = 4>(x, s)}"),
              HasSubstr("block"));
  EXPECT_THAT(Refusal(18,
                      "(float16[2,4] x, float16[4] s) => (float16[2,4] y) {"
                      "y = LayerNormalization<stash_type = 7>(x, s)}"),
              HasSubstr("cannot compute in the type 7"));
  EXPECT_THAT(Refusal(18,
                      "(float[1,2,4] x) => (float[?,?,?] y) {"
                      "w = Constant<value = float[2,1,1] {1.0, 2.0}>()\n"
                      "y = ConvTranspose<strides = [1, 1]>(x, w)}"),
              HasSubstr("strides has 2 entries, needs 1"));
}

// Names are checked with the scopes of subgraphs.
TEST(Names, AreDefinedOnceAndBeforeTheirUse) {
  EXPECT_THAT(Refusal(13, "(float[2] x) => (float[2] y) {y = Relu(z)\nz = Relu(x)}"),
              HasSubstr("uses 'z' before it is computed"));
  EXPECT_THAT(Refusal(13, "(float[2] x) => (float[2] y) {y = Relu(q)}"),
              HasSubstr("uses 'q', which nothing defines"));
  EXPECT_THAT(Refusal(13, "(float[2] x) => (float[2] y) {y = Relu(x)\ny = Abs(x)}"),
              HasSubstr("'y' is defined twice"));
  EXPECT_THAT(Refusal(13, "(float[2] x) => (float[2] y) {x = Relu(x)\ny = Abs(x)}"),
              HasSubstr("'x' is defined twice"));
  EXPECT_THAT(Refusal(13, "(float[2] x) => (float[2] y, float[2] z) {y = Relu(x)}"),
              HasSubstr("'z' is not computed"));
  onnx::ModelProto m = onnx_cases::ModelOf(16, "(bool c, float[2] x) => (float[2] y) {y = If(c)}");
  for (const char* name : {"then_branch", "else_branch"}) {
    auto* a = m.mutable_graph()->mutable_node(0)->add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::GRAPH);
    *a->mutable_g() = onnx_cases::ModelOf(16, "() => (float[2] r) {r = Relu(x)}").graph();
  }
  const absl::Status outer = ImportOnnx(m.SerializeAsString()).status();
  EXPECT_TRUE(outer.ok()) << outer;
  m.mutable_graph()->mutable_node(0)->mutable_attribute(1)->mutable_g()->mutable_node(0)->set_input(
      0, "hidden");
  EXPECT_THAT(std::string(ImportOnnx(m.SerializeAsString()).status().message()),
              HasSubstr("uses 'hidden', which nothing defines"));
}

TEST(Problems, AreListedAllAtOnce) {
  const std::string all =
      Refusal(20,
              "(complex64[2] u, string[2] s, float[2] x) => (float[2] y) {"
              "a = StringNormalizer(s)\nb = StringNormalizer(a)\nc = com.example.Odd(b)\nd = "
              "RegexFullMatch<pattern = \"a\">(s)\ne = Identity(u)\n"
              "f, i = MaxPool<kernel_shape = [1]>(x)\ny = Relu(x)}");
  EXPECT_THAT(all, AllOf(HasSubstr("StringNormalizer (nodes 'a', 'b', opset 20)"),
                         HasSubstr("com.example.Odd"), HasSubstr("RegexFullMatch"),
                         HasSubstr("complex64 of 'u', 'e'"), Not(HasSubstr("Relu"))));
  const std::string broken =
      Refusal(13,
              "(float[2] x) => (float[2] y) {a = Relu<odd = 1>(x)\nb = Softmax<axis = 1.5>(x)\n"
              "c = Concat(x, x)\ny = Add(x)}");
  EXPECT_THAT(broken, AllOf(HasSubstr("Relu (node 'a', opset 13): has no attribute 'odd'"),
                            HasSubstr("takes an int as attribute 'axis', not a float"),
                            HasSubstr("lacks the attribute 'axis'"),
                            HasSubstr("has 1 input, but takes 2")));
}

// Element types have to be those that are computed. Shapes of results may be wrong: the nodes decide.
TEST(Declarations, OfResults) {
  const auto import = [](const std::string& output, const std::string& between) {
    onnx::ModelProto m =
        onnx_cases::ModelOf(13, absl::StrCat("(float[2,3] x) => (", output, " y, ", between,
                                             " a) {a = Relu(x)\ny = Abs(a)}"));
    onnx::GraphProto& graph = *m.mutable_graph();
    *graph.add_value_info() = graph.output(1);
    graph.mutable_output()->RemoveLast();
    return ImportOnnx(m.SerializeAsString());
  };
  const std::string right = "float[2,3]";
  for (const char* declared : {"float[2,3]", "float[3,3]", "float[2]", "float[N,?]", "float"}) {
    for (const auto& imported : {import(declared, right), import(right, declared)}) {
      ASSERT_TRUE(imported.ok()) << declared << ": " << imported.status();
      EXPECT_EQ(ToText(imported->values[imported->outputs[0]].type), "f32[2,3]") << declared;
    }
  }
  EXPECT_THAT(import("int64[2,3]", right).status().message(),
              HasSubstr("'y' is declared as int64, but is float"));
  EXPECT_THAT(import(right, "int64[2,3]").status().message(),
              HasSubstr("'a' is declared as int64, but is float"));
}

// ---- Good nodes of the official cases, damaged in one place ----

onnx::ModelProto Load(const std::string& name) {
  const std::string folder = std::string(onnx_cases::kCaseFolder) + "/" + name;
  onnx::ModelProto m;
  std::ifstream file(folder + "/model.onnx", std::ios::binary);
  m.ParseFromIstream(&file);
  // All inputs but the first become constants, so that shapes are known.
  onnx::ModelProto bound = m;
  bound.mutable_graph()->clear_input();
  for (int i = 0; i < m.graph().input_size(); ++i) {
    std::ifstream data(folder + "/test_data_set_0/input_" + std::to_string(i) + ".pb",
                       std::ios::binary);
    onnx::TensorProto tensor;
    if (i > 0 && m.graph().input(i).type().has_tensor_type() && tensor.ParseFromIstream(&data)) {
      tensor.set_name(m.graph().input(i).name());
      *bound.mutable_graph()->add_initializer() = tensor;
    } else {
      *bound.mutable_graph()->add_input() = m.graph().input(i);
    }
  }
  return bound;
}

struct Damage {
  const char* name;
  // Damages the node; returns what the message has to name, or nothing if it cannot be done.
  std::function<std::string(onnx::ModelProto&, onnx::NodeProto&, const onnx::OperatorRule&)> run;
};

const std::vector<Damage>& Damages() {
  using onnx::AttributeProto;
  static const auto* damages = new std::vector<Damage>{
      {"unknown attribute",
       [](auto&, onnx::NodeProto& node, auto&) {
         auto* a = node.add_attribute();
         a->set_name("oddity");
         a->set_type(AttributeProto::INT);
         a->set_i(1);
         return std::string("'oddity'");
       }},
      {"attribute of another type",
       [](auto&, onnx::NodeProto& node, auto&) {
         if (node.attribute_size() == 0) return std::string();
         AttributeProto& a = *node.mutable_attribute(0);
         const std::string name = a.name();
         const bool is_float = a.type() == AttributeProto::FLOAT;
         a.Clear();
         a.set_name(name);
         a.set_type(is_float ? AttributeProto::INT : AttributeProto::FLOAT);
         is_float ? a.set_i(1) : a.set_f(1);
         return "'" + name + "'";
       }},
      {"required attribute left out",
       [](auto&, onnx::NodeProto& node, const onnx::OperatorRule& rule) {
         for (int i = 0; i < node.attribute_size(); ++i) {
           const std::string name = node.attribute(i).name();
           if (!rule.Attribute(name)->required) continue;
           node.mutable_attribute()->DeleteSubrange(i, 1);
           return "'" + name + "'";
         }
         return std::string();
       }},
      {"too many inputs",
       [](auto&, onnx::NodeProto& node, const onnx::OperatorRule& rule) {
         if (rule.MostInputs() > 100 || node.input_size() == 0) return std::string();
         while (node.input_size() <= rule.MostInputs()) node.add_input(node.input(0));
         return absl::StrCat("has ", node.input_size(), " input");
       }},
      {"too few inputs",
       [](auto&, onnx::NodeProto& node, const onnx::OperatorRule& rule) {
         if (rule.FewestInputs() == 0) return std::string();
         while (node.input_size() >= rule.FewestInputs()) node.mutable_input()->RemoveLast();
         return absl::StrCat("has ", node.input_size(), " input");
       }},
      {"too many outputs",
       [](auto&, onnx::NodeProto& node, const onnx::OperatorRule& rule) {
         if (rule.MostOutputs() > 100) return std::string();
         while (node.output_size() <= rule.MostOutputs())
           node.add_output(absl::StrCat("more", node.output_size()));
         return absl::StrCat("has ", node.output_size(), " output");
       }},
      {"input of a type that the operator does not take",
       [](onnx::ModelProto& m, onnx::NodeProto& node, const onnx::OperatorRule& rule) {
         if (node.input_size() == 0 || m.graph().input_size() == 0 ||
             node.input(0) != m.graph().input(0).name())
           return std::string();
         for (const int type : {onnx::TensorProto::FLOAT, onnx::TensorProto::BOOL,
                                onnx::TensorProto::INT64, onnx::TensorProto::STRING}) {
           if (rule.Input(0)->types >> type & 1) continue;
           m.mutable_graph()
               ->mutable_input(0)
               ->mutable_type()
               ->mutable_tensor_type()
               ->set_elem_type(type);
           return "'" + node.input(0) + "'";
         }
         return std::string();
       }},
      {"input that nothing defines",
       [](auto&, onnx::NodeProto& node, auto&) {
         if (node.input_size() == 0) return std::string();
         node.set_input(0, "nowhere");
         return std::string("'nowhere'");
       }},
      {"opset before the operator's first",
       [](onnx::ModelProto& m, onnx::NodeProto& node, auto&) {
         const int first = onnx::AllRules().at(node.op_type()).front().since;
         m.mutable_opset_import(0)->set_version(first - 1);
         return first == 1 ? std::string("opset 0") : absl::StrCat("from opset ", first);
       }},
      {"opset that is too new",
       [](onnx::ModelProto& m, auto&, auto&) {
         m.mutable_opset_import(0)->set_version(onnx::NewestOpset() + 1);
         return absl::StrCat("opset ", onnx::NewestOpset() + 1);
       }},
  };
  return *damages;
}

TEST(Rules, DamagedNodesAreRefusedByName) {
  std::map<std::string, int> done;
  for (const std::string& name : onnx_cases::ListCases()) {
    const onnx::ModelProto good = Load(name);
    if (good.graph().node_size() != 1 || good.opset_import_size() != 1) continue;
    if (!ImportOnnx(good.SerializeAsString()).ok()) continue;
    for (const Damage& damage : Damages()) {
      SCOPED_TRACE(testing::Message() << name << ": " << damage.name);
      onnx::ModelProto m = good;
      onnx::NodeProto& node = *m.mutable_graph()->mutable_node(0);
      const onnx::OperatorRule* rule =
          onnx::FindRule(node.op_type(), static_cast<int>(m.opset_import(0).version()));
      ASSERT_NE(rule, nullptr);
      const std::string wanted = damage.run(m, node, *rule);
      if (wanted.empty()) continue;
      ++done[damage.name];
      const absl::Status status = ImportOnnx(m.SerializeAsString()).status();
      EXPECT_FALSE(status.ok());
      const std::string text(status.message());
      EXPECT_THAT(text, HasSubstr(wanted));
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      if (wanted.rfind("opset", 0) != 0) {
        EXPECT_THAT(text, HasSubstr(node.op_type()));
      }
    }
  }
  for (const Damage& damage : Damages()) EXPECT_GT(done[damage.name], 20) << damage.name;
}

}  // namespace
}  // namespace heddle::graph::rules_test
