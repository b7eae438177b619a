// What disappears at import: functions of the model, branches and loops whose course is known, and
// sequences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/onnx/import.h"
#include "tests/onnx/model_text.h"

namespace heddle::graph::structure_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<Graph> Import(int opset, const std::string& text) {
  return ImportOnnx(onnx_cases::ModelOf(opset, text).SerializeAsString());
}

std::string Refusal(int opset, const std::string& text) {
  const auto graph = Import(opset, text);
  EXPECT_FALSE(graph.ok()) << text;
  const std::string message(graph.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

// The first output, of inputs that count from 1 on; a bool is true.
std::vector<double> Values(int opset, const std::string& text) {
  const auto graph = Import(opset, text);
  EXPECT_TRUE(graph.ok()) << graph.status() << "\n" << text;
  if (!graph.ok()) return {};
  std::vector<TensorData> inputs;
  for (const ValueId v : graph->inputs) {
    const TensorType& type = graph->values[v].type;
    std::vector<double> values;
    for (int64_t i = 0; i < NumElements(type); ++i) values.push_back(static_cast<double>(i + 1));
    inputs.push_back(FromDoubles(values, type.shape, type.dtype));
  }
  const auto outputs = EvaluateGraph(*graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? ToDoubles(outputs->front()) : std::vector<double>{};
}

// ---- Functions ----

TEST(Functions, AreInlinedWithTheirAttributes) {
  const std::string function =
      "com.example.Scaled:17 <by, plus = 0.5> (x) => (y) {"
      "f = Constant<value_float: float = @by>()\ng = Constant<value_float: float = @plus>()\n"
      "m = Mul(x, f)\ny = Add(m, g)}";
  EXPECT_THAT(Values(17,
                     "(float[2] x) => (float[2] y) {"
                     "y = com.example.Scaled<by = 3.0>(x)}" +
                         function),
              ElementsAre(3.5, 6.5));
  // Names in the function are not those of the graph, and each call has its own.
  EXPECT_THAT(Values(17,
                     "(float[2] x) => (float[2] z) {"
                     "m = com.example.Scaled<by = 2.0, plus = 0.0>(x)\n"
                     "f = com.example.Scaled<by = 10.0>(m)\nz = Add(m, f)}" +
                         function),
              ElementsAre(22.5, 44.5));
}

TEST(Functions, CallEachOther) {
  EXPECT_THAT(Values(17,
                     "(float[2] x) => (float[2] y) {y = com.example.Outer<power = 3.0>(x)}"
                     "com.example.Outer:17 <power> (x) => (y) {"
                     "a = com.example.Inner<p: float = @power>(x)\n"
                     "y = com.example.Inner<p = 1.0>(a)}"
                     "com.example.Inner:17 <p> (x) => (y) {"
                     "c = Constant<value_float: float = @p>()\ny = Add(x, c)}"),
              ElementsAre(5, 6));
}

// An attribute that neither the call nor the function gives is left out, and so has its default.
TEST(Functions, MissingAttributesAndOperandsAreLeftOut) {
  const std::string function =
      "com.example.Limited:17 <alpha> (x, low, high) => (y, same) {"
      "c = Clip(x, low, high)\ny = LeakyRelu<alpha: float = @alpha>(c)\nsame = Identity(x)}";
  EXPECT_THAT(Values(17,
                     "(float[3] x) => (float[3] y) {"
                     "top = Constant<value_float = 2.0>()\nn = Neg(x)\n"
                     "y, z = com.example.Limited(n, , top)}" +
                         function),
              ElementsAre(testing::DoubleNear(-0.01, 1e-6), testing::DoubleNear(-0.02, 1e-6),
                          testing::DoubleNear(-0.03, 1e-6)));
  EXPECT_THAT(Values(17, "(float[3] x) => (float[3] y) {y = com.example.Limited(x)}" + function),
              ElementsAre(1, 2, 3));
}

TEST(Functions, MayGiveOutAnOperandOrNothing) {
  EXPECT_THAT(Values(17,
                     "(float[2] x) => (float[2] y) {"
                     ", y = com.example.Both(x)}"
                     "com.example.Both:17 (x) => (z, x) {z = Neg(x)}"),
              ElementsAre(1, 2));
}

// Hardmax works over all dimensions from axis 1 on before opset 13, and over the last one since.
TEST(Functions, KeepTheirOpset) {
  const auto model = [](int opset) {
    return absl::StrCat("(float[1,2,1] x) => (float[1,2,1] y) {y = com.example.F(x)}",
                        "com.example.F:", opset, " (x) => (y) {y = Hardmax(x)}");
  };
  EXPECT_THAT(Values(17, model(12)), ElementsAre(0, 1));
  EXPECT_THAT(Values(12, model(13)), ElementsAre(1, 1));
  EXPECT_THAT(Refusal(17, model(29)), HasSubstr("opset beyond 28"));
  EXPECT_THAT(Refusal(17,
                      "(float[2] x) => (float[2] y) {y = com.example.F(x)}"
                      "com.example.F:12 (x) => (y) {y = Gelu(x)}"),
              AllOf(HasSubstr("Gelu"), HasSubstr("opset 12"), HasSubstr("exists from opset 20")));
}

TEST(Functions, HaveSubgraphsThatReadTheirNames) {
  EXPECT_THAT(Values(17,
                     "(float[2] x) => (float[2] y) {y = com.example.F<add = 4.0>(x)}"
                     "com.example.F:17 <add> (x) => (y) {"
                     "c = Constant<value = bool {1}>()\nd = Neg(x)\n"
                     "y = If<then_branch = () => (float[2] r) {"
                     "k = Constant<value_float: float = @add>()\nr = Add(d, k)},"
                     " else_branch = () => (float[2] r) {r = Abs(d)}>(c)}"),
              ElementsAre(3, 2));
}

TEST(Functions, ThatAreWrongAreRefusedByName) {
  const std::string call = "(float[2] x) => (float[2] y) {y = com.example.F(x)}";
  EXPECT_THAT(Refusal(17, call + "com.example.F:17 (x) => (y) {y = com.example.G(x)}"
                                 "com.example.G:17 (x) => (y) {y = com.example.F(x)}"),
              HasSubstr("the function 'F' calls itself"));
  EXPECT_THAT(Refusal(17, call + "com.example.F:17 () => (y) {y = Constant<value_float = 1.0>()}"),
              HasSubstr("the call of function 'F' (node 'y') has 1 inputs and 1 outputs, but the "
                        "function has 0 and 1"));
  EXPECT_THAT(Refusal(17, call + "com.example.F:17 (x) => (y) {y = Add(x, q)}"),
              HasSubstr("the function 'F' uses 'q', which it does not define"));
  const std::string twice = "com.example.F:17 (x) => (y) {y = Neg(x)}";
  EXPECT_THAT(Refusal(17, call + twice + twice), HasSubstr("'F' is defined twice"));
  EXPECT_THAT(Refusal(17, "(float[2] x) => (float[2] y) {y = com.example.F<odd = 1>(x)}" + twice),
              HasSubstr("has an attribute 'odd', which the function does not have"));
  EXPECT_THAT(Refusal(17, "(float[2] x) => (float[2] y) {y = com.example.G(x)}" + twice),
              HasSubstr("com.example.G"));
}

// Each function calls the next one twice.
TEST(Functions, ThatGrowTooLargeAreRefused) {
  std::string text = "(float[2] x) => (float[2] y) {y = com.example.F0(x)}";
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&text, "com.example.F", i, ":17 (x) => (y) {a = com.example.F", i + 1,
                    "(x)\ny = com.example.F", i + 1, "(a)}");
  }
  text += "com.example.F40:17 (x) => (y) {y = Neg(x)}";
  EXPECT_THAT(Refusal(17, text), HasSubstr("functions that become more than"));
}

// ---- Branches ----

TEST(Branches, AreTakenAtImport) {
  const auto model = [](const std::string& condition) {
    return "(float[2] x) => (float[a] y) {n = Neg(x)\n" + condition +
           "y = If<then_branch = () => (float[?] r) {r = Exp(x)\ns = Abs(x)},"
           " else_branch = () => (float[?] r) {m = Mul(n, x)\nr = Concat<axis = 0>(m, n)}>(c)}";
  };
  EXPECT_THAT(Values(17, model("c = Constant<value = bool {0}>()\n")), ElementsAre(-1, -4, -1, -2));
  // The condition is a folded computation on shapes.
  EXPECT_THAT(Values(17, model("s = Shape(x)\ntwo = Constant<value_ints = [2]>()\n"
                               "c = Less(s, two)\n")),
              ElementsAre(-1, -4, -1, -2));
}

// What Heddle does not have, and the branch that is not taken asks for.
TEST(Branches, ThatAreNotTakenMayAskForAnything) {
  const auto model = [](int taken) {
    return absl::StrCat("(float[2] x) => (float[2] y) {c = Constant<value = bool {", taken,
                        "}>()\ny = If<then_branch = () => (float[2] r) {r = Abs(x)},"
                        " else_branch = () => (float[2] r) {u = Cast<to = 2>(x)\nq = "
                        "ImageDecoder(u)\ns = Cast<to = 8>(x)\nr = Cast<to = 1>(q)}>(c)}");
  };
  EXPECT_THAT(Values(20, model(1)), ElementsAre(1, 2));
  EXPECT_THAT(Refusal(20, model(0)),
              AllOf(HasSubstr("ImageDecoder"), HasSubstr("element type string")));
}

TEST(Branches, AreBothComputedIfTheConditionIsData) {
  EXPECT_THAT(Values(17,
                     "(bool c, float[2] x) => (float[2] y) {"
                     "y = If<then_branch = () => (float[2] r) {r = Neg(x)},"
                     " else_branch = () => (float[2] r) {r = Exp(x)}>(c)}"),
              ElementsAre(-1, -2));
  EXPECT_THAT(Refusal(17,
                      "(bool c, float[2] x) => (float[a] y) {"
                      "y = If<then_branch = () => (float[?] r) {r = Neg(x)},"
                      " else_branch = () => (float[?] r) {r = Concat<axis = 0>(x, x)}>(c)}"),
              HasSubstr("If (node 'y', opset 17): a condition that is not a constant"));
}

// ---- Loops ----

TEST(Loops, AreUnrolled) {
  const auto model = [](int trips) {
    return absl::StrCat(
        "(float[2] x) => (float[a,b] all) {n = Constant<value_int = ", trips,
        ">()\n"
        "last, all = Loop<body = (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] u) "
        "{"
        "d = Identity(c)\nf = Cast<to = 1>(i)\nu = Add(s, f)\nt = Mul(u, x)}>(n, , x)}");
  };
  // s: (1, 2), (1, 4), (2, 10); u = s + i.
  EXPECT_THAT(Values(17, model(3)), ElementsAre(1, 2, 2, 5, 4, 12));
  EXPECT_THAT(Refusal(17, model(0)), HasSubstr("without iterations"));
  EXPECT_THAT(Refusal(17, model(5000)), HasSubstr("more than 1024 iterations"));
}

TEST(Loops, EndWithTheirCondition) {
  EXPECT_THAT(
      Values(17,
             "(float[2] x) => (float[2] y) {"
             "y = Loop<body = (int64 i, bool c, float[2] s) => (bool d, float[2] t) {"
             "four = Constant<value_int = 4>()\nd = Less(i, four)\nt = Add(s, x)}>(, , x)}"),
      ElementsAre(6, 12));
  EXPECT_THAT(Refusal(17,
                      "(int64 n, float[2] x) => (float[2] y) {"
                      "y = Loop<body = (int64 i, bool c, float[2] s) => (bool d, float[2] t) {"
                      "d = Identity(c)\nt = Add(s, x)}>(n, , x)}"),
              AllOf(HasSubstr("Loop (node 'y'"), HasSubstr("has to be a constant")));
}

// Names of a body may be those of the graph around it; bodies may be nested.
TEST(Loops, AreNested) {
  EXPECT_THAT(Values(17,
                     "(float[2] x) => (float[2] y) {two = Constant<value_int = 2>()\n"
                     "y = Loop<body = (int64 i, bool c, float[2] s) => (bool d, float[2] t) {"
                     "d = Identity(c)\n"
                     "t = Loop<body = (int64 j, bool e, float[2] s2) => (bool d2, float[2] t2) {"
                     "d2 = Identity(e)\nt2 = Add(s2, x)}>(two, , s)}>(two, , x)}"),
              ElementsAre(5, 10));
}

TEST(Loops, ScanForthAndBack) {
  const auto model = [](const std::string& attributes) {
    return "(float[2] s, float[3,2] x) => (float[a,b] y) {"
           "l, y = Scan<num_scan_inputs = 1" +
           attributes +
           ", body = (float[2] s1, float[2] x1) => (float[2] t, float[2] u) {"
           "t = Add(s1, x1)\nu = Identity(t)}>(s, x)}";
  };
  EXPECT_THAT(Values(17, model("")), ElementsAre(2, 4, 5, 8, 10, 14));
  EXPECT_THAT(Values(17, model(", scan_input_directions = [1], scan_output_axes = [1]")),
              ElementsAre(6, 9, 10, 8, 12, 14));
}

// A body that passes its state on and has simple operators only is not unrolled, so it may have any number of iterations.
TEST(Loops, ScansOfIndependentIterationsAreOneIteration) {
  const auto model = [](int count, const std::string& body, const std::string& attributes = "") {
    return absl::StrCat("(float[2,2] s, float[", count,
                        ",2] x) => (float[a,b] y) {p = Constant<value = float[1] {3.0}>()\n"
                        "l, y = Scan<num_scan_inputs = 1",
                        attributes,
                        ", body = (float[2,2] s1, float[2] x1) => (float[2,2] t, float[2] u) {"
                        "t = Identity(s1)\n",
                        body, "}>(s, x)}");
  };
  const std::string distance = "d = Sub(s1, x1)\nu = ReduceSumSquare<axes = [1], keepdims = 0>(d)";
  // The rows of s are (1, 2) and (3, 4), those of x (1, 2), (3, 4), (5, 6).
  EXPECT_THAT(Values(17, model(3, distance)), ElementsAre(0, 8, 8, 0, 32, 8));
  EXPECT_THAT(Values(17, model(3, distance, ", scan_output_axes = [1]")),
              ElementsAre(0, 8, 32, 8, 0, 8));
  const std::string back = ", scan_input_directions = [1]";
  EXPECT_THAT(Values(17, model(3, distance, back)), ElementsAre(32, 8, 8, 0, 0, 8));
  EXPECT_THAT(Values(17, model(3, distance, back + ", scan_output_directions = [1]")),
              ElementsAre(0, 8, 8, 0, 32, 8));
  // A value of the iteration alone, of fewer dimensions, and one of the graph around it.
  EXPECT_THAT(Values(17, model(3,
                               "d = Sub(s1, x1)\nr = ReduceL1<axes = [0], keepdims = 0>(x1)\n"
                               "m = Mul(d, r)\nw = Mul(m, p)\n"
                               "v = ReduceL1<axes = [-1], keepdims = 0>(w)\nu = Neg(v)")),
              ElementsAre(0, -36, -84, 0, -264, -132));
  for (const int count : {3, 1500}) {
    const auto graph = Import(17, model(count, distance));
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_LE(graph->nodes.size(), 4u);
  }
  // Where an iteration needs the one before, or a result does not depend on the element, the scan is unrolled.
  const auto sums = [](int count) {
    return absl::StrCat("(float[2] s, float[", count,
                        ",2] x) => (float[a,b] y) {l, y = Scan<num_scan_inputs = 1, body = "
                        "(float[2] s1, float[2] x1) => (float[2] t, float[2] u) {"
                        "t = Add(s1, x1)\nu = Identity(t)}>(s, x)}");
  };
  EXPECT_THAT(Values(17, sums(3)), ElementsAre(2, 4, 5, 8, 10, 14));
  EXPECT_THAT(Refusal(17, sums(1500)), HasSubstr("more than 1024 iterations"));
  EXPECT_THAT(Values(17, model(2, "u = ReduceL1<axes = [1], keepdims = 0>(s1)")),
              ElementsAre(3, 7, 3, 7));
}

// What fails for all iterations at once is tried one by one, and none of its problems is told.
TEST(Loops, ScansThatAreNotMadeAtOnceAreUnrolled) {
  // The axis is a constant of each iteration.
  const std::string of_axes =
      "(float[2,2] s) => (float[a,b] y) {x = Constant<value = int64[2,1] {0, 1}>()\n"
      "l, y = Scan<num_scan_inputs = 1, body = (float[2,2] s1, int64[1] x1) => (float[2,2] t, "
      "float[2] u) {t = Identity(s1)\nu = ReduceSum<keepdims = 0>(s1, x1)}>(s, x)}";
  EXPECT_THAT(Values(17, of_axes), ElementsAre(4, 6, 3, 7));
  // The differences of all would be 2^20 for each iteration.
  const auto distances = [](int count) {
    return absl::StrCat("(float[1024,1024] s, float[", count,
                        ",1024] x) => (float[a,b] y) {l, y = Scan<num_scan_inputs = 1, body = "
                        "(float[1024,1024] s1, float[1024] x1) => (float[1024,1024] t, float[1024] "
                        "u) {t = Identity(s1)\nd = Sub(s1, x1)\n"
                        "u = ReduceSumSquare<axes = [1], keepdims = 0>(d)}>(s, x)}");
  };
  const auto nodes = [&](int count) {
    const auto graph = Import(17, distances(count));
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? graph->nodes.size() : 0;
  };
  EXPECT_LE(nodes(512), 4u);
  EXPECT_GE(nodes(513), 2 * 513u);
  EXPECT_THAT(Refusal(17, distances(1025)),
              AllOf(HasSubstr("Scan (node 'l'"), HasSubstr("more than 1024 iterations"),
                    HasSubstr("more than 536870912 elements; give fewer rows")));
}

// ---- Sequences ----

TEST(Sequences, Disappear) {
  EXPECT_THAT(Values(17,
                     "(float[2] x, float[2] z) => (float[a] y) {"
                     "n = Neg(x)\ns = SequenceConstruct(x, n)\none = Constant<value_int = 1>()\n"
                     "t = SequenceInsert(s, z, one)\nlast = Constant<value_int = -1>()\n"
                     "u = SequenceErase(t)\nl = SequenceLength(u)\nf = Cast<to = 1>(l)\n"
                     "j = ConcatFromSequence<axis = 0>(t)\ny = Mul(j, f)}"),
              ElementsAre(2, 4, 2, 4, -2, -4));
  EXPECT_THAT(Values(17,
                     "(float[5] x) => (float[a] y) {"
                     "two = Constant<value_int = 2>()\ns = SplitToSequence(x, two)\n"
                     "y = SequenceAt(s, two)}"),
              ElementsAre(5));
  EXPECT_THAT(Refusal(17,
                      "(float[5] x) => (float[a] y) {"
                      "two = Constant<value_int = 2>()\ns = SequenceConstruct(x)\n"
                      "y = SequenceAt(s, two)}"),
              HasSubstr("position 2 is outside of a sequence of 1"));
  EXPECT_THAT(Refusal(17, "(float[5] x) => (float[a] y) {y = SequenceConstruct(x)}"),
              HasSubstr("'y' is a sequence or an optional"));
}

TEST(Sequences, GrowInLoopsAndAreMapped) {
  EXPECT_THAT(Values(17,
                     "(float[2] x) => (float[a] y) {"
                     "n = Constant<value_int = 3>()\ne = SequenceConstruct(x)\n"
                     "s = Loop<body = (int64 i, bool c, seq q) => (bool d, seq r) {"
                     "d = Identity(c)\nf = Cast<to = 1>(i)\nm = Mul(x, f)\n"
                     "r = SequenceInsert(q, m)}>(n, , e)\n"
                     "t = SequenceMap<body = (float[2] v) => (float[2] w) {w = Neg(v)}>(s)\n"
                     "y = ConcatFromSequence<axis = 0>(t)}"),
              ElementsAre(-1, -2, 0, 0, -1, -2, -2, -4));
}

TEST(Sequences, OptionalsAreTheirContent) {
  EXPECT_THAT(Values(18,
                     "(float[2] x) => (float[2] y) {"
                     "o = Optional(x)\nh = OptionalHasElement(o)\nnone = OptionalHasElement()\n"
                     "g = OptionalGetElement(o)\nf = Cast<to = 1>(h)\nz = Cast<to = 1>(none)\n"
                     "a = Add(g, f)\ny = Add(a, z)}"),
              ElementsAre(2, 3));
}

}  // namespace
}  // namespace heddle::graph::structure_test
