// Operators of ONNX Runtime's domain against the graphs of standard operators that they stand for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/summary.h"
#include "tests/onnx/model_text.h"

namespace heddle::graph::microsoft_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kOpset = 23;

std::string Model(const std::string& graph) {
  onnx::ModelProto model = onnx_cases::ModelOf(kOpset, graph);
  auto* opset = model.add_opset_import();
  opset->set_domain("com.microsoft");
  opset->set_version(1);
  return model.SerializeAsString();
}

// All outputs, of inputs that look random: floats from -1 to 1, bytes of any value, flags of int32,
// and small numbers of int64.
std::vector<TensorData> Results(const std::string& graph) {
  const auto imported = ImportOnnx(Model(graph));
  EXPECT_TRUE(imported.ok()) << imported.status() << "\n" << graph;
  if (!imported.ok()) return {};
  std::vector<TensorData> inputs;
  uint32_t state = 1;
  for (const ValueId v : imported->inputs) {
    const TensorType& type = imported->values[v].type;
    std::vector<double> values;
    for (int64_t i = 0; i < NumElements(type); ++i) {
      state = state * 1664525 + 1013904223;
      const double byte = state >> 24;
      values.push_back(ir::IsFloat(type.dtype)         ? byte / 128 - 1
                       : type.dtype == ir::DType::kU8  ? byte
                       : type.dtype == ir::DType::kI8  ? byte - 128
                       : type.dtype == ir::DType::kI64 ? (state >> 24) % 3
                                                       : (state >> 24) % 2);
    }
    inputs.push_back(FromDoubles(values, type.shape, type.dtype));
  }
  const auto outputs = EvaluateGraph(*imported, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status() << "\n" << graph;
  return outputs.ok() ? *outputs : std::vector<TensorData>{};
}

// Both bodies, with the same inputs and outputs, give the same: integers exactly.
void ExpectSame(const std::string& declarations, const std::string& ours,
                const std::string& standard) {
  const std::vector<TensorData> found = Results(declarations + " {" + ours + "}"),
                                expected = Results(declarations + " {" + standard + "}");
  ASSERT_EQ(found.size(), expected.size()) << ours;
  ASSERT_FALSE(found.empty()) << ours;
  for (size_t k = 0; k < found.size(); ++k) {
    ASSERT_EQ(ToText(found[k].type), ToText(expected[k].type)) << ours;
    const std::vector<double> f = ToDoubles(found[k]), e = ToDoubles(expected[k]);
    const bool exact = !ir::IsFloat(found[k].type.dtype);
    const double near = ir::IsHalf(found[k].type.dtype) ? 2e-3 : 2e-5;
    for (size_t i = 0; i < f.size(); ++i) {
      ASSERT_NEAR(f[i], e[i], exact ? 0 : near * (1 + std::fabs(e[i])))
          << "output " << k << ", element " << i << " of " << ours;
    }
  }
}

TEST(Microsoft, Activations) {
  const std::string two = "(float[2,6] x, float[6] b) => (float[p,q] y)";
  ExpectSame("(float[2,6] x) => (float[p,q] y)", "y = com.microsoft.Gelu(x)", "y = Gelu(x)");
  ExpectSame("(float16[2,6] x) => (float16[p,q] y)", "y = com.microsoft.Gelu(x)", "y = Gelu(x)");
  ExpectSame(two, "y = com.microsoft.BiasGelu(x, b)", "s = Add(x, b) y = Gelu(s)");
  ExpectSame(two, "y = com.microsoft.FastGelu(x, b)",
             "s = Add(x, b) y = Gelu<approximate = \"tanh\">(s)");
  ExpectSame("(float[2,6] x) => (float[p,q] y)", "y = com.microsoft.QuickGelu<alpha = 1.5>(x)",
             "a = Constant<value = float {1.5}>() s = Mul(x, a) g = Sigmoid(s) y = Mul(x, g)");
  ExpectSame("(float[2,3,6] x, float[6] b) => (float[p,q,r] y)",
             "y = com.microsoft.BiasSplitGelu(x, b)",
             "s = Add(x, b) l, r = Split<axis = -1, num_outputs = 2>(s) g = Gelu(r) y = Mul(l, g)");
  ExpectSame("(float[2,3,6] x, float[6] b, float[2,3,6] s) => (float[p,q,r] y)",
             "y = com.microsoft.BiasAdd(x, b, s)", "t = Add(x, b) y = Add(t, s)");
}

TEST(Microsoft, Products) {
  const std::string alpha = "h = Constant<value = float {0.5}>() ";
  ExpectSame("(float[2,4,3] x, float[2,4,5] w) => (float[p,q,r] y)",
             "y = com.microsoft.FusedMatMul<transA = 1, alpha = 0.5>(x, w)",
             alpha + "t = Transpose<perm = [0, 2, 1]>(x) m = MatMul(t, w) y = Mul(m, h)");
  ExpectSame("(float[2,3,4] x, float[3,5,4] w) => (float[p,q,r] y)",
             "y = com.microsoft.FusedMatMul<transBatchA = 1, transB = 1>(x, w)",
             "t = Transpose<perm = [1, 0, 2]>(x) u = Transpose<perm = [0, 2, 1]>(w) "
             "y = MatMul(t, u)");
  ExpectSame("(float[3,4] x, float[5,4] w) => (float[p,q] y)",
             "y = com.microsoft.TransposeMatMul<transB = 1, alpha = 0.5>(x, w)",
             alpha + "u = Transpose(w) m = MatMul(x, u) y = Mul(m, h)");
  ExpectSame("(float[3,4] x, float[4,5] w, float[5] b) => (float[p,q] y)",
             "y = com.microsoft.FusedGemm<alpha = 0.5, activation = \"LeakyRelu\", "
             "activation_alpha = 0.2>(x, w, b)",
             "g = Gemm<alpha = 0.5>(x, w, b) y = LeakyRelu<alpha = 0.2>(g)");
  ExpectSame(
      "(float[1,2,5,5] x, float[3,2,3,3] w, float[3] b, float[1,3,5,5] z) => "
      "(float[p,q,r,s] y)",
      "y = com.microsoft.FusedConv<pads = [1, 1, 1, 1], activation = \"Clip\", "
      "activation_params = [-0.5, 1.25]>(x, w, b, z)",
      "c = Conv<pads = [1, 1, 1, 1]>(x, w, b) t = Add(c, z) "
      "low = Constant<value = float {-0.5}>() high = Constant<value = float {1.25}>() "
      "y = Clip(t, low, high)");
}

// What scikit-learn's converter writes.
TEST(Microsoft, DistancesAndSolutions) {
  const std::string rows = "(float[3,4] x, float[2,4] z) => (float[p,q] y)";
  const std::string squares =
      "a = Unsqueeze(x, one) b = Unsqueeze(z, zero) d = Sub(a, b) m = Mul(d, d) ";
  const std::string axes =
      "zero = Constant<value = int64[1] {0}>() one = Constant<value = int64[1] {1}>() "
      "two = Constant<value = int64[1] {2}>() ";
  ExpectSame(rows, "y = com.microsoft.CDist(x, z)",
             axes + squares + "y = ReduceSum<keepdims = 0>(m, two)");
  ExpectSame(rows, "y = com.microsoft.CDist<metric = \"euclidean\">(x, z)",
             axes + squares + "s = ReduceSum<keepdims = 0>(m, two) y = Sqrt(s)");
  // By the inverses of a triangle and of a matrix that needs its rows in another order.
  const std::string right = "(float[2,3] x) => (float[p,q] y)";
  const auto solve = [](const std::string& matrix, const std::string& attributes) {
    return "a = Constant<value = float[2,2] " + matrix + ">() y = com.microsoft.Solve" +
           attributes + "(a, x)";
  };
  const auto product = [](const std::string& inverse) {
    return "a = Constant<value = float[2,2] " + inverse + ">() y = MatMul(a, x)";
  };
  ExpectSame(right, solve("{2.0, 0.0, 3.0, 4.0}", "<lower = 0>"),
             product("{0.5, 0.0, -0.375, 0.25}"));
  ExpectSame(right, solve("{2.0, 0.0, 3.0, 4.0}", "<transposed = 1>"),
             product("{0.5, -0.375, 0.0, 0.25}"));
  ExpectSame(right, solve("{0.0, 2.0, 4.0, 1.0}", ""), product("{-0.125, 0.25, 0.5, 0.0}"));
  const auto refusal = [](const std::string& graph) {
    return std::string(ImportOnnx(Model(graph)).status().message());
  };
  EXPECT_THAT(refusal(right + " {" + solve("{1.0, 2.0, 2.0, 4.0}", "") + "}"),
              HasSubstr("the matrix has no inverse"));
  EXPECT_THAT(
      refusal("(float[2,2] a, float[2,3] x) => (float[p,q] y) {y = com.microsoft.Solve(a, x)}"),
      AllOf(HasSubstr("Solve (node 'y'"), HasSubstr("has to be a constant")));
}

TEST(Microsoft, Normalisations) {
  ExpectSame(
      "(float[2,3,4] x, float[3,4] k, float[4] g, float[4] b, float[4] c) => "
      "(float[p,q,r] y, float[s,t,u] sum)",
      "y, , , sum = com.microsoft.SkipLayerNormalization<epsilon = 0.001>(x, k, g, b, c)",
      "t = Add(x, k) sum = Add(t, c) "
      "y = LayerNormalization<epsilon = 0.001>(sum, g, b)");
  const std::string skip = "(float[2,3,4] x, float[2,3,4] k, float[4] g) => (float[p,q,r] y)";
  ExpectSame(skip, "y = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.001>(x, k, g)",
             "t = Add(x, k) y = RMSNormalization<epsilon = 0.001>(t, g)");
  ExpectSame(skip, "y = SimplifiedLayerNormalization(x, g)", "y = RMSNormalization(x, g)");
  ExpectSame(
      "(int32[2,3] ids, int32[2,3] segments, float[5,4] words, float[4,4] places, float[2,4] "
      "types, "
      "float[4] g, float[4] b, int32[2,3] mask) => (float[p,q,r] y, int32[s] count, float[t,u,v] "
      "sum)",
      "y, count, sum = com.microsoft.EmbedLayerNormalization<epsilon = 0.001>"
      "(ids, segments, words, places, types, g, b, mask)",
      "w = Gather(words, ids) at = Constant<value = int64[3] {0, 1, 2}>() p = Gather(places, at) "
      "s = Gather(types, segments) wp = Add(w, p) sum = Add(wp, s) "
      "y = LayerNormalization<epsilon = 0.001>(sum, g, b) "
      "one = Constant<value = int64[1] {1}>() count = ReduceSum<keepdims = 0>(mask, one)");
  const std::string groups =
      "n = Transpose<perm = [0, 3, 1, 2]>(t) "
      "m = GroupNormalization<num_groups = 2, epsilon = 0.01>(n, g, b) "
      "z = Transpose<perm = [0, 2, 3, 1]>(m) ";
  ExpectSame("(float[2,3,2,4] t, float[4] g, float[4] b) => (float[p,q,r,s] y)",
             "y = com.microsoft.GroupNorm<groups = 2, activation = 1, epsilon = 0.01>(t, g, b)",
             groups + "h = Sigmoid(z) y = Mul(z, h)");
  ExpectSame("(float[2,4,3] n, float[4] g, float[4] b) => (float[p,q,r] m)",
             "m = com.microsoft.GroupNorm<groups = 2, activation = 0, epsilon = 0.01, "
             "channels_last = 0>(n, g, b)",
             "m = GroupNormalization<num_groups = 2, epsilon = 0.01>(n, g, b)");
  ExpectSame(
      "(float[2,3,2,4] x, float[4] g, float[4] b, float[2,4] k, float[4] c) => "
      "(float[p,q,r,s] z, float[u,v,w,a] t)",
      "z, t = com.microsoft.SkipGroupNorm<groups = 2, activation = 0, epsilon = 0.01>"
      "(x, g, b, k, c)",
      "o = Constant<value = int64[4] {2, 1, 1, 4}>() f = Reshape(k, o) "
      "d = Add(x, f) t = Add(d, c) " +
          groups);
}

// Scales and zero points of two operands and of the result; the scales have no common multiples, so
// that nothing lies in the middle between two steps.
constexpr char kScales[] =
    "sa = Constant<value = float {0.0173}>() za = Constant<value = uint8 {121}>() "
    "sb = Constant<value = float {0.0219}>() zb = Constant<value = uint8 {7}>() "
    "sy = Constant<value = float {0.0371}>() zy = Constant<value = uint8 {99}>() ";
constexpr char kReal[] = "p = DequantizeLinear(a, sa, za) q = DequantizeLinear(b, sb, zb) ";
constexpr char kRounded[] = " y = QuantizeLinear(r, sy, zy)";

void ExpectQuantised(const std::string& declarations, const std::string& ours,
                     const std::string& standard) {
  ExpectSame(declarations, kScales + ours, absl::StrCat(kScales, kReal, standard, kRounded));
}

TEST(Microsoft, Quantised) {
  const std::string two = "(uint8[2,3,4] a, uint8[2,3,4] b) => (uint8[i,j,k] y)";
  ExpectQuantised(two, "y = com.microsoft.QLinearAdd(a, sa, za, b, sb, zb, sy, zy)",
                  "r = Add(p, q)");
  ExpectQuantised(two, "y = com.microsoft.QLinearMul(a, sa, za, b, sb, zb, sy, zy)",
                  "r = Mul(p, q)");
  ExpectQuantised(two, "y = com.microsoft.QLinearSigmoid(a, sa, za, sy, zy)", "r = Sigmoid(p)");
  ExpectQuantised(two, "y = com.microsoft.QLinearLeakyRelu<alpha = 0.3>(a, sa, za, sy, zy)",
                  "r = LeakyRelu<alpha = 0.3>(p)");
  ExpectQuantised(two, "y = com.microsoft.QLinearConcat<axis = 1>(sy, zy, a, sa, za, b, sb, zb)",
                  "r = Concat<axis = 1>(p, q)");
  ExpectQuantised("(uint8[2,3,4] a, uint8[2,3,4] b, bool[2,1,4] c) => (uint8[i,j,k] y)",
                  "y = com.microsoft.QLinearWhere(c, a, sa, za, b, sb, zb, sy, zy)",
                  "r = Where(c, p, q)");
  ExpectQuantised(two, "y = com.microsoft.QLinearGlobalAveragePool(a, sa, za, sy, zy)",
                  "r = GlobalAveragePool(p)");
  ExpectQuantised(two,
                  "y = com.microsoft.QLinearAveragePool<channels_last = 1, kernel_shape = [2]>"
                  "(a, sa, za, sy, zy)",
                  "t = Transpose<perm = [0, 2, 1]>(p) m = AveragePool<kernel_shape = [2]>(t) "
                  "r = Transpose<perm = [0, 2, 1]>(m)");
  ExpectQuantised(two,
                  "p = com.microsoft.DequantizeLinear(a, sa, za) r = Neg(p) "
                  "y = com.microsoft.QuantizeLinear(r, sy, zy)",
                  "r = Neg(p)");
  ExpectSame(
      "(uint8[2,3,4] a) => (uint8[i,j,k] y)",
      absl::StrCat(kScales,
                   "t = Constant<value = float {0.00390625}>() "
                   "y = com.microsoft.QLinearSoftmax<opset = 11, axis = 1>(a, sa, za, t, zb)"),
      absl::StrCat(kScales,
                   "t = Constant<value = float {0.00390625}>() "
                   "p = DequantizeLinear(a, sa, za) "
                   "s = Constant<value = int64[2] {2, 12}>() f = Reshape(p, s) "
                   "g = Softmax<axis = 1>(f) o = Constant<value = int64[3] {2, 3, 4}>() "
                   "h = Reshape(g, o) y = QuantizeLinear(h, t, zb)"));
}

TEST(Microsoft, QuantisedProducts) {
  const std::string scales = kScales;
  ExpectSame("(uint8[3,4] a, uint8[4,5] b, int32[5] c) => (uint8[i,j] y)",
             scales + "y = com.microsoft.QGemm<alpha = 0.5>(a, sa, za, b, sb, zb, c, sy, zy)",
             scales +
                 "m = MatMulInteger(a, b, za, zb) n = Add(m, c) f = Cast<to = 1>(n) "
                 "s = Mul(sa, sb) h = Constant<value = float {0.5}>() g = Mul(s, h) "
                 "r = Mul(f, g) y = QuantizeLinear(r, sy, zy)");
  const std::string by_column = scales +
                                "w = Constant<value = float[5] {0.01, 0.02, 0.03, 0.04, 0.05}>() "
                                "wz = Constant<value = uint8[5] {1, 20, 3, 100, 5}>() ";
  const std::string product = "f = Cast<to = 1>(m) s = Mul(scale, w) n = Mul(f, s) y = Add(n, c) ";
  ExpectSame("(uint8[2,3,4] a, uint8[4,5] b, float[5] c) => (float[i,j,k] y)",
             by_column + "y = com.microsoft.MatMulIntegerToFloat(a, b, sa, w, za, wz, c)",
             by_column + "scale = Identity(sa) m = MatMulInteger(a, b, za, wz) " + product);
  ExpectSame("(float[2,3,4] x, uint8[4,5] b, float[5] c) => (float[i,j,k] y)",
             by_column + "y = com.microsoft.DynamicQuantizeMatMul(x, b, w, wz, c)",
             by_column +
                 "a, scale, zero = DynamicQuantizeLinear(x) "
                 "m = MatMulInteger(a, b, zero, wz) " +
                 product);
}

TEST(Microsoft, DynamicQuantisationOfZerosHasTheScaleOne) {
  const std::string graph =
      "(float[4] x) => (float y, uint8[4] q) { z = Sub(x, x) q, y, p = DynamicQuantizeLinear(z) }";
  const std::vector<TensorData> found = Results(graph);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(ToDoubles(found[0]), testing::ElementsAre(1));
  EXPECT_THAT(ToDoubles(found[1]), testing::Each(0));
}

// A block is 16 weights; the last one of each row is cut.
TEST(Microsoft, WeightsOfFourBits) {
  constexpr int kRows = 2, kSize = 20, kBlocks = 2;
  std::string packed, weights;
  std::vector<std::vector<double>> matrix(kSize, std::vector<double>(kRows));
  const double scale[kRows][kBlocks] = {{0.5, 0.25}, {2, -1}};
  const int zero[kRows][kBlocks] = {{3, 8}, {0, 15}};
  for (int n = 0; n < kRows; ++n) {
    for (int k = 0; k < 32; ++k) {
      const int q = (k * 7 + n * 5) % 16;
      if (k % 2 == 1) absl::StrAppend(&packed, q * 16 + (((k - 1) * 7 + n * 5) % 16), ", ");
      if (k < kSize) matrix[k][n] = scale[n][k / 16] * (q - zero[n][k / 16]);
    }
  }
  for (const auto& row : matrix) absl::StrAppend(&weights, row[0], ", ", row[1], ", ");
  ExpectSame(
      "(float[3,20] x, float[2] b) => (float[p,q] y)",
      "w = Constant<value = uint8[2,2,8] {" + packed +
          "}>() s = Constant<value = float[2,2] {0.5, 0.25, 2, -1}>() "
          "z = Constant<value = uint8[2] {131, 240}>() "  // 3 + 16 * 8, 0 + 16 * 15
          "y = com.microsoft.MatMulNBits<K = 20, N = 2, block_size = 16>(x, w, s, z, , b)",
      "w = Constant<value = float[20,2] {" + weights + "}>() m = MatMul(x, w) y = Add(m, b)");
}

// The only step begins without a state, and what is quantised is 0 or 1, which is exact.
TEST(Microsoft, QuantisedLstm) {
  const std::string declarations =
      "(int32[1,2,3] flags, uint8[1,3,8] w, uint8[1,2,8] r, float[1,16] b) => "
      "(float[i,j,k,l] y, float[m,n,o] h, float[s,t,u] c)";
  const std::string scales =
      "x = Cast<to = 1>(flags) sw = Constant<value = float[1] {0.01}>() "
      "zw = Constant<value = uint8[1] {120}>() ";
  ExpectSame(declarations,
             scales +
                 "y, h, c = com.microsoft.DynamicQuantizeLSTM<hidden_size = 2>"
                 "(x, w, r, b, , , , , sw, zw, sw, zw)",
             scales +
                 "wf = DequantizeLinear(w, sw, zw) rf = DequantizeLinear(r, sw, zw) "
                 "wt = Transpose<perm = [0, 2, 1]>(wf) rt = Transpose<perm = [0, 2, 1]>(rf) "
                 "y, h, c = LSTM<hidden_size = 2>(x, wt, rt, b)");
}

// From a mask of flags [2, total] to what is added to the scores.
constexpr char kHidden[] =
    "none = Constant<value = int32 {0}>() shown = Less(none, mask) "
    "low = Constant<value = float {-10000.0}>() nothing = Constant<value = float {0.0}>() "
    "added = Where(shown, nothing, low) axes = Constant<value = int64[2] {1, 2}>() "
    "bias = Unsqueeze(added, axes) ";

TEST(Microsoft, AttentionFromOneProduct) {
  const std::string split =
      "sizes = Constant<value = int64[3] {4, 4, 4}>() q, k, v = Split<axis = 2>(all, sizes) "
      "first = Constant<value = int64 {0}>() second = Constant<value = int64 {1}>() ";
  ExpectSame("(float[2,3,5] x, float[5,12] w, float[12] b, int32[2,3] mask) => (float[i,j,k] y)",
             "y = com.microsoft.Attention<num_heads = 2>(x, w, b, mask)",
             "m = MatMul(x, w) all = Add(m, b) " + split + kHidden +
                 "y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, v, bias)");
  ExpectSame(
      "(float[2,3,5] x, float[5,12] w, float[2,2,2,1,2] past) => "
      "(float[i,j,k] y, float[l,m,n,o,p] now)",
      "y, now = com.microsoft.Attention<num_heads = 2, unidirectional = 1>(x, w, , , past)",
      "all = MatMul(x, w) " + split +
          "pk = Gather(past, first) pv = Gather(past, second) "
          "y, nk, nv = Attention<q_num_heads = 2, kv_num_heads = 2, is_causal = 1>"
          "(q, k, v, , pk, pv) zero = Constant<value = int64[1] {0}>() "
          "uk = Unsqueeze(nk, zero) uv = Unsqueeze(nv, zero) now = Concat<axis = 0>(uk, uv)");
  const std::string quantised = std::string(kScales);
  ExpectSame("(uint8[2,3,5] a, uint8[5,12] w, float[12] b) => (float[i,j,k] y)",
             quantised +
                 "y = com.microsoft.QAttention<num_heads = 2, scale = 0.25>"
                 "(a, w, b, sa, sb, , za, zb)",
             quantised + "all = com.microsoft.MatMulIntegerToFloat(a, w, sa, sb, za, zb, b) " +
                 split + "y = Attention<q_num_heads = 2, kv_num_heads = 2, scale = 0.25>(q, k, v)");
}

// Where the keys of a sample end, and where they begin.
TEST(Microsoft, MasksByPlaces) {
  const std::string declarations = "(float[2,3,4] x, float[4,12] w) => (float[i,j,k] y)";
  const auto with = [](const std::string& mask) {
    return "mask = Constant<value = int32" + mask + ">() " +
           "y = com.microsoft.Attention<num_heads = 2>(x, w, , mask)";
  };
  ExpectSame(declarations, with("[2] {2, 3}"), with("[2,3] {1, 1, 0, 1, 1, 1}"));
  ExpectSame(declarations, with("[4] {2, 3, 1, 0}"), with("[2,3] {0, 1, 0, 1, 1, 1}"));
  ExpectSame(declarations, with("[2,3] {0, 1, 1, 1, 0, 1}"),
             with("[2,3,3] {0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1}"));
}

TEST(Microsoft, MultiHeadAttention) {
  ExpectSame(
      "(float[2,3,4] q, float[2,3,4] k, float[2,3,6] v, float[14] b, float[2,2,1,2] pk, "
      "float[2,2,1,3] pv, int32[2,4] mask) => (float[i,j,l] y, float[m,n,o,p] nk, float[r,s,t,u] "
      "nv)",
      "y, nk, nv = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, b, mask, , pk, pv)",
      "sizes = Constant<value = int64[3] {4, 4, 6}>() bq, bk, bv = Split(b, sizes) "
      "qb = Add(q, bq) kb = Add(k, bk) vb = Add(v, bv) " +
          std::string(kHidden) +
          "y, nk, nv = Attention<q_num_heads = 2, kv_num_heads = 2>(qb, kb, vb, bias, pk, pv)");
  ExpectSame("(float[1,3,2,3,4] x) => (float[i,j,l] y)",
             "y = com.microsoft.MultiHeadAttention<num_heads = 2>(x)",
             "a, b, c = Split<axis = 3, num_outputs = 3>(x) "
             "shape = Constant<value = int64[3] {1, 3, 8}>() "
             "q = Reshape(a, shape) k = Reshape(b, shape) v = Reshape(c, shape) "
             "y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, v)");
  ExpectSame("(float[1,3,8] q, float[1,5,2,2,4] x) => (float[i,j,l] y)",
             "y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, x)",
             "b, c = Split<axis = 3, num_outputs = 2>(x) "
             "shape = Constant<value = int64[3] {1, 5, 8}>() "
             "k = Reshape(b, shape) v = Reshape(c, shape) "
             "y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, v)");
}

TEST(Microsoft, RotaryEmbedding) {
  const std::string declarations =
      "(float[2,3,8] x, int64[2,3] at, float[5,2] c, float[5,2] s) => (float[i,j,k] y)";
  ExpectSame(declarations, "y = com.microsoft.RotaryEmbedding(x, at, c, s)",
             "y = RotaryEmbedding<num_heads = 2>(x, c, s, at)");
  ExpectSame(declarations,
             "first = Constant<value = int64[1] {2}>() "
             "y = com.microsoft.RotaryEmbedding<interleaved = 1>(x, first, c, s)",
             "all = Constant<value = int64[2,3] {2, 3, 4, 2, 3, 4}>() "
             "y = RotaryEmbedding<num_heads = 2, interleaved = 1>(x, c, s, all)");
}

// Two heads of the queries share one of the keys; five keys lie in the past.
TEST(Microsoft, GroupQueryAttention) {
  const std::string results = "=> (float[i,j,l] y, float[m,n,o,p] nk, float[r,s,t,u] nv)";
  const std::string declarations =
      "(float[2,1,16] q, float[2,1,4] k, float[2,1,4] v, float[2,1,5,4] pk, float[2,1,5,4] pv, "
      "float[8,2] c, float[8,2] s) " +
      results;
  const std::string total = "total = Constant<value = int32 {6}>() ";
  const std::string call =
      "y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 1, "
      "do_rotary = 1>(q, k, v, pk, pv, lengths, total, c, s)";
  const std::string constant = total + "lengths = Constant<value = int32[2] {5, 5}>() " + call;
  ExpectSame(declarations, constant,
             "at = Constant<value = int64[2,1] {5, 5}>() "
             "tq = RotaryEmbedding<num_heads = 4>(q, c, s, at) "
             "tk = RotaryEmbedding<num_heads = 1>(k, c, s, at) "
             "y, nk, nv = Attention<q_num_heads = 4, kv_num_heads = 1, is_causal = 1>"
             "(tq, tk, v, , pk, pv)");
  // The lengths as data.
  ExpectSame(declarations,
             total +
                 "m = ReduceMax<keepdims = 0>(q) zero = Sub(m, m) none = Cast<to = 6>(zero) "
                 "known = Constant<value = int32[2] {5, 5}>() lengths = Add(known, none) " +
                 call,
             constant);
  ExpectSame("(float[2,3,24] q) " + results,
             "total = Constant<value = int32 {3}>() lengths = Constant<value = int32[2] {2, 2}>() "
             "y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 1>"
             "(q, , , , , lengths, total)",
             "sizes = Constant<value = int64[3] {16, 4, 4}>() "
             "a, b, v = Split<axis = 2>(q, sizes) "
             "shape = Constant<value = int64[4] {2, 3, 1, 4}>() rb = Reshape(b, shape) "
             "rv = Reshape(v, shape) nk = Transpose<perm = [0, 2, 1, 3]>(rb) "
             "nv = Transpose<perm = [0, 2, 1, 3]>(rv) "
             "y = Attention<q_num_heads = 4, kv_num_heads = 1, is_causal = 1>(a, b, v)");
}

TEST(Microsoft, WhatIsNotSupportedIsNamed) {
  struct Case {
    absl::StatusCode code;
    const char *graph, *named;
  };
  constexpr auto kNo = absl::StatusCode::kUnimplemented, kBad = absl::StatusCode::kInvalidArgument;
  const Case cases[] = {
      {kNo, "(float[2] x) => (float[a] y) {y = com.microsoft.Frobnicate(x)}",
       "com.microsoft.Frobnicate (node 'y', opset 1)"},
      {kBad, "(float[2] x) => (float[a] y) {y = com.microsoft.Gelu<alpha = 1.0>(x)}",
       "com.microsoft.Gelu (node 'y', opset 1): has no attribute 'alpha'"},
      {kBad, "(int32[2] x) => (int32[a] y) {y = com.microsoft.Gelu(x)}", "float"},
      {kNo,
       "(float[1,2,4] x, float[4] g) => (float[a,b,c] y, float[d,e,f] m)"
       "{y, m = com.microsoft.SkipLayerNormalization(x, x, g)}",
       "the output 'mean'"},
      {kNo,
       "(float[1,4] x, float[4,4] w) => (float[a,b] y)"
       "{y = com.microsoft.FusedGemm<activation = \"Odd\">(x, w)}",
       "the activation 'Odd'"},
      {kNo,
       "(float[1,16] x, uint8[1,1,8] w, float[1] s) => (float[a,b] y)"
       "{y = com.microsoft.MatMulNBits<K = 16, N = 1, block_size = 16>(x, w, s)}",
       "packed weights that are no constants"},
      {kNo,
       "(float[1,2,4] x, float[4,12] w) => (float[a,b,c] y)"
       "{y = com.microsoft.Attention<num_heads = 2, do_rotary = 1>(x, w)}",
       "the attribute 'do_rotary'"},
      {kNo,
       "(float[1,2,4] q, float[1,3,4] k) => (float[a,b,c] y)"
       "{y = com.microsoft.MultiHeadAttention<num_heads = 2, unidirectional = 1>(q, k, k)}",
       "unidirectional"},
      {kNo,
       "(float[1,1,8] q, float[1,1,4] k, int32[1] n, int32 t) => (float[a,b,c] y)"
       "{y = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1>"
       "(q, k, k, , , n, t)}",
       "input 't'"},
  };
  for (const Case& c : cases) {
    const absl::Status status = ImportOnnx(Model(c.graph)).status();
    EXPECT_EQ(status.code(), c.code) << c.graph << "\n" << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.named)) << c.graph;
  }
}

TEST(Microsoft, ASummaryKnowsTheOperators) {
  const auto summary = SummarizeOnnx(
      Model("(float[2] x) => (float[a] z) {y = com.microsoft.Gelu(x) z = com.microsoft.Odd(y)}"));
  ASSERT_TRUE(summary.ok()) << summary.status();
  ASSERT_EQ(summary->operators.size(), 2u);
  for (const OnnxSummary::Operator& op : summary->operators)
    EXPECT_EQ(op.known, op.name == "Gelu") << op.name;
}

}  // namespace
}  // namespace heddle::graph::microsoft_test
