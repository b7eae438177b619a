// Models of ai.onnx.ml as machine code against the interpreter of their graphs.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/driver/compile.h"
#include "tests/driver/run_model.h"
#include "tests/onnx/model_text.h"

namespace heddle::onnx_cases {
namespace {

std::string Model(const std::string& graph) {
  return ClassicalModelOf(18, 3, graph).SerializeAsString();
}

// Rows of numbers from -2 to 2 in steps of a quarter; some are NaN.
template <typename T>
std::string RandomRows(size_t count) {
  std::mt19937_64 rng(5);
  std::string bytes(count * sizeof(T), '\0');
  for (size_t i = 0; i < count; ++i) {
    const T v =
        rng() % 10 == 0 ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(rng() % 17) / 4 - 2;
    std::memcpy(bytes.data() + i * sizeof(T), &v, sizeof(T));
  }
  return bytes;
}

void ExpectSame(const std::string& graph, const std::string& input) {
  const std::string model = Model(graph);
  const auto expected = InterpretModel(model, {}, {input});
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto bytes = CompileModel(model, {}, Target(), {}, {});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto found = RunModule(*runtime::ParseModule(*bytes), {input});
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0], (*expected)[0]) << "labels";
  EXPECT_LE(RelativeError((*found)[1], (*expected)[1]), 1e-5) << "scores";
}

TEST(ClassicalRun, AMachineWithProbabilitiesAfterImputerAndScaler) {
  ExpectSame(R"((float[21,2] x) => (int64[a] label, float[b,c] scores) {
    nan = IsNaN(x)
    half = Constant<value = float {0.5}>()
    numbers = Where(nan, half, x)
    full = ai.onnx.ml.Imputer<imputed_value_floats = [0.125, 0.75], replaced_value_float = -2.0>(numbers)
    s = ai.onnx.ml.Scaler<offset = [0.25, -0.5], scale = [1.5, 2.0]>(full)
    label, scores = ai.onnx.ml.SVMClassifier<classlabels_ints = [4, 1, 7], kernel_type = "RBF",
      kernel_params = [0.5, 0.0, 3.0], vectors_per_class = [2, 1, 1],
      support_vectors = [1.0, 0.5, -1.0, 2.0, 0.25, 0.5, -0.75, -2.0],
      coefficients = [1.0, -0.5, 0.75, -1.0, 0.5, 1.0, -1.0, 0.25], rho = [0.1, -0.2, 0.3],
      prob_a = [-1.5, -2.0, -0.5], prob_b = [0.25, 0.0, -0.25]>(s)
  })",
             RandomRows<float>(42));
}

constexpr const char* kTrees = R"(] x) => (string[a] label, float[b,c] scores) {
    label, scores = ai.onnx.ml.TreeEnsembleClassifier<classlabels_strings = ["a", "b", "c"],
      nodes_treeids = [0, 0, 0, 0, 0, 1, 1, 1], nodes_nodeids = [0, 1, 2, 3, 4, 0, 1, 2],
      nodes_featureids = [0, 0, 1, 0, 0, 1, 0, 0],
      nodes_modes = ["BRANCH_LT", "LEAF", "BRANCH_EQ", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "LEAF"],
      nodes_values = [0.25, 0.0, 1.5, 0.0, 0.0, -0.5, 0.0, 0.0],
      nodes_truenodeids = [1, 0, 3, 0, 0, 1, 0, 0], nodes_falsenodeids = [2, 0, 4, 0, 0, 2, 0, 0],
      nodes_missing_value_tracks_true = [1, 0, 0, 0, 0, 0, 0, 0],
      class_treeids = [0, 0, 0, 1, 1], class_nodeids = [1, 3, 4, 1, 2], class_ids = [0, 1, 2, 1, 0],
      class_weights = [1.0, 2.0, 0.5, 0.25, 0.125], base_values = [0.0, 0.1, 0.2],
      post_transform = "SOFTMAX">(x)
  })";

TEST(ClassicalRun, TreesOfFloats) {
  ExpectSame(absl::StrCat("(float[33,2", kTrees), RandomRows<float>(66));
}

TEST(ClassicalRun, TreesOfDoubles) {
  ExpectSame(absl::StrCat("(double[33,2", kTrees), RandomRows<double>(66));
}

// A forest over an encoder, a scaler and columns that nothing asks, with texts as inputs and as labels.
// `flat` is the extent of its rows behind the encoder, `weights` are of the three labels, and `more` is
// a further attribute of the forest.
std::string TableModel(const std::string& rows, const std::string& flat, const std::string& weights,
                       const std::string& more = "") {
  return Model(absl::StrCat("(string[", rows, ",1] color, float[", rows,
                            R"(,2] size) => (string[a] label, float[b,c] scores) {
    hot = ai.onnx.ml.OneHotEncoder<cats_strings = ["red", "green", "blue"]>(color)
    shape = Constant<value = int64[2] {)",
                            flat, R"(, 3}>()
    flat = Reshape(hot, shape)
    s = ai.onnx.ml.Scaler<offset = [0.25, -0.5], scale = [1.5, 2.0]>(size)
    x = Concat<axis = 1>(flat, s)
    label, scores = ai.onnx.ml.TreeEnsembleClassifier<classlabels_strings = ["no", "yes", "perhaps"],
      nodes_treeids = [0, 0, 0, 0, 0], nodes_nodeids = [0, 1, 2, 3, 4], nodes_featureids = [1, 0, 4, 0, 0],
      nodes_modes = ["BRANCH_LEQ", "LEAF", "BRANCH_LT", "LEAF", "LEAF"],
      nodes_values = [0.5, 0.0, 1.0, 0.0, 0.0],
      nodes_truenodeids = [1, 0, 3, 0, 0], nodes_falsenodeids = [2, 0, 4, 0, 0],
      class_treeids = [0, 0, 0], class_nodeids = [1, 3, 4], class_ids = [0, 1, 2], class_weights = [)",
                            weights, "]", more, ">(x)\n  }"));
}

TEST(ClassicalRun, ATableOfTextsAndNumbersGivesLabels) {
  const std::string model = TableModel("9", "9", "1.0, 1.0, 1.0");
  std::string colors;
  std::vector<float> sizes;
  std::vector<int64_t> labels;
  for (int row = 0; row < 9; ++row) {
    std::string color =
        std::vector<std::string>{"green", "red", "greenish"}[static_cast<size_t>(row % 3)].substr(
            0, 6);
    color.resize(6, '\0');
    colors += color;
    sizes.insert(sizes.end(), {1.0F, static_cast<float>(row) / 4 - 1});
    const bool small = (sizes.back() + 0.5F) * 2 < 1;
    labels.push_back(row % 3 != 0 ? 0 : small ? 1 : 2);
  }
  const std::vector<std::string> inputs = {
      colors,
      std::string(reinterpret_cast<const char*>(sizes.data()), sizes.size() * sizeof(float))};
  const auto bytes = CompileModel(model, {}, Target(), {}, {});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto module = runtime::ParseModule(*bytes);
  ASSERT_TRUE(module.ok()) << module.status();
  const runtime::Manifest& manifest = module->manifest;
  EXPECT_TRUE(manifest.independent_rows);
  EXPECT_TRUE(manifest.inputs[0].text);
  EXPECT_EQ(manifest.inputs[0].shape, (std::vector<int64_t>{9, 1, 6}));
  EXPECT_EQ(manifest.inputs[0].columns, std::vector<std::string>{"color"});
  EXPECT_FALSE(manifest.inputs[1].text);
  const std::vector<std::string> names = {"no", "yes", "perhaps"};
  EXPECT_EQ(manifest.outputs[0].labels, names);
  EXPECT_EQ(manifest.outputs[1].columns, names);
  const auto found = RunModule(*module, inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)[0], std::string(reinterpret_cast<const char*>(labels.data()),
                                     labels.size() * sizeof(int64_t)));
}

// Trees behind an encoder and a scaler, for any number of rows, against the model for just as many.
TEST(ClassicalRun, APipelineOfAnyNumberOfRows) {
  const std::string model =
      TableModel("N", "-1", "1.0, 0.5, 0.25", ", post_transform = \"SOFTMAX\"");
  const auto bytes = CompileModel(model, {}, Target(), {}, {});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  auto module = runtime::ParseModule(*bytes);
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_EQ(module->manifest.NumBlocks(), 4u);
  EXPECT_EQ(module->manifest.outputs[0].labels, (std::vector<std::string>{"no", "yes", "perhaps"}));
  auto executor = runtime::Executor::Create(*std::move(module));
  ASSERT_TRUE(executor.ok()) << executor.status();
  for (const int64_t rows : {1, 2, 15, 16, 17, 300, 4097}) {
    std::string colors;
    for (int64_t row = 0; row < rows; ++row) {
      std::string color = std::vector<std::string>{"green", "red", "greeni"}[row % 3];
      color.resize(6, '\0');
      colors += color;
    }
    const std::string sizes = RandomRows<float>(static_cast<size_t>(2 * rows));
    ModelOptions fixed;
    fixed.import.shapes["N"] = {rows};
    const auto expected = InterpretModel(model, fixed, {colors, sizes});
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto in_blocks = InterpretModel(model, {}, {colors, sizes});
    ASSERT_TRUE(in_blocks.ok()) << in_blocks.status();
    EXPECT_EQ(*in_blocks, *expected) << rows << " rows";
    std::string labels(static_cast<size_t>(8 * rows), '\xff'),
        scores(static_cast<size_t>(12 * rows), '\xff');
    const void* from[] = {colors.data(), sizes.data()};
    void* to[] = {labels.data(), scores.data()};
    ASSERT_TRUE((*executor)->RunRows(rows, from, to).ok());
    EXPECT_EQ(labels, (*expected)[0]) << rows << " rows";
    EXPECT_LE(RelativeError(scores, (*expected)[1]), 1e-5) << rows << " rows";
  }
}

}  // namespace
}  // namespace heddle::onnx_cases
