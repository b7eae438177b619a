// Results of operators that become several of ours, against plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/onnx/import.h"
#include "tests/onnx/model_text.h"

namespace heddle::graph::operators_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using Numbers = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();

MATCHER(IsNear, "") { return std::fabs(std::get<0>(arg) - std::get<1>(arg)) <= 2e-5; }

// All outputs of a model for these inputs.
std::vector<Numbers> Outputs(int opset, const std::string& graph,
                             const std::vector<TensorData>& inputs) {
  const auto imported = ImportOnnx(onnx_cases::ModelOf(opset, graph).SerializeAsString());
  EXPECT_TRUE(imported.ok()) << imported.status() << "\n" << graph;
  if (!imported.ok()) return std::vector<Numbers>(4);
  const auto outputs = EvaluateGraph(*imported, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  std::vector<Numbers> values;
  if (outputs.ok()) {
    for (const TensorData& t : *outputs) values.push_back(ToDoubles(t));
  }
  values.resize(4);
  return values;
}

Numbers Values(int opset, const std::string& graph, const std::vector<TensorData>& inputs) {
  return Outputs(opset, graph, inputs)[0];
}

TensorData Floats(const Numbers& values, const Shape& shape) {
  return FromDoubles(values, shape, ir::DType::kF32);
}

TensorData Integers(const std::vector<int64_t>& values, const Shape& shape) {
  return {{ir::DType::kI64, shape}, FromInts(values).bytes};
}

// Random floats that f32 holds exactly.
Numbers Random(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Numbers values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>(static_cast<int>(random() % 129) - 64) / 32);
  return values;
}

Numbers Map(const Numbers& x, const std::function<double(double)>& f) {
  Numbers y;
  for (const double v : x) y.push_back(f(v));
  return y;
}

// ---- Activations and bits ----

TEST(Operators, Activations) {
  const Numbers x = {-9, -2, -0.5, 0, 0.25, 1, 8};
  const auto run = [&](int opset, const std::string& op) {
    return Values(opset, "(float[7] x) => (float[7] y) {y = " + op + "(x)}", {Floats(x, {7})});
  };
  const auto gelu = [](double v) { return v / 2 * (1 + std::erf(v / std::sqrt(2))); };
  const auto tanh = [](double v) {
    return v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  };
  const auto swish = [](double by) {
    return [by](double v) { return v / (1 + std::exp(-by * v)); };
  };
  EXPECT_THAT(run(20, "Gelu"), Pointwise(IsNear(), Map(x, gelu)));
  EXPECT_THAT(run(20, "Gelu<approximate = \"tanh\">"), Pointwise(IsNear(), Map(x, tanh)));
  EXPECT_THAT(
      run(18, "Mish"),
      Pointwise(IsNear(), Map(x, [](double v) { return v * std::tanh(std::log1p(std::exp(v))); })));
  EXPECT_THAT(run(24, "Swish<alpha = 1.5>"), Pointwise(IsNear(), Map(x, swish(1.5))));
  EXPECT_THAT(Values(28, "(float[2] a, float[2] b) => (float[2] y) {y = SwiGLU(a, b)}",
                     {Floats({1, -1}, {2}), Floats({3, 5}, {2})}),
              Pointwise(IsNear(), Numbers{3 * swish(1)(1), 5 * swish(1)(-1)}));
}

TEST(Operators, BitsOfIntegers) {
  const std::vector<int64_t> a = {0, 1, -1, 127, -128, 85, -77, 3},
                             b = {5, -2, -128, 64, 127, -86, 51, 1};
  const auto run = [&](const std::string& op, ir::DType dtype, const std::string& type) {
    return Values(18,
                  absl::StrCat("(", type, "[8] a, ", type, "[8] b) => (", type, "[8] y) {y = ", op,
                               "(a, b)}"),
                  {FromInts(a, dtype), FromInts(b, dtype)});
  };
  using Pair = std::function<int64_t(int64_t, int64_t)>;
  const std::map<std::string, Pair> pairs = {
      {"BitwiseAnd", [](int64_t x, int64_t y) { return x & y; }},
      {"BitwiseOr", [](int64_t x, int64_t y) { return x | y; }},
      {"BitwiseXor", [](int64_t x, int64_t y) { return x ^ y; }},
  };
  for (const auto& [op, f] : pairs) {
    Numbers is_signed, is_unsigned;
    for (size_t i = 0; i < a.size(); ++i) {
      is_signed.push_back(static_cast<double>(f(a[i], b[i])));
      is_unsigned.push_back(static_cast<double>(f(a[i], b[i]) & 255));
    }
    EXPECT_EQ(run(op, ir::DType::kI8, "int8"), is_signed) << op;
    EXPECT_EQ(run(op, ir::DType::kI32, "int32"), is_signed) << op;
    EXPECT_EQ(run(op, ir::DType::kI64, "int64"), is_signed) << op;
    EXPECT_EQ(run(op, ir::DType::kU8, "uint8"), is_unsigned) << op;
  }
  EXPECT_THAT(Values(18, "(uint8[3] x) => (uint8[3] y) {y = BitwiseNot(x)}",
                     {FromInts({0, 1, 255}, ir::DType::kU8)}),
              ElementsAre(255, 254, 0));
  EXPECT_THAT(Values(18, "(int32[3] x) => (int32[3] y) {y = BitwiseNot(x)}",
                     {FromInts({0, 1, -1}, ir::DType::kI32)}),
              ElementsAre(-1, -2, 0));
}

TEST(Operators, ShiftsOfSignedIntegers) {
  const auto run = [&](const std::string& direction, const std::vector<int64_t>& x,
                       const std::vector<int64_t>& by) {
    return Values(
        28,
        absl::StrCat("(int32[4] x, int32[4] b) => (int32[4] y) {y = BitShift<direction = \"",
                     direction, "\">(x, b)}"),
        {FromInts(x, ir::DType::kI32), FromInts(by, ir::DType::kI32)});
  };
  EXPECT_THAT(run("LEFT", {1, -3, 1, 5}, {4, 1, 31, 32}), ElementsAre(16, -6, -2147483648.0, 0));
  EXPECT_THAT(run("RIGHT", {-7, INT32_MIN, 9, -1}, {1, 31, 1, 40}), ElementsAre(-4, -1, 4, -1));
  EXPECT_THAT(run("RIGHT", {7, -7, 3, -3}, {-1, -1, 0, 33}), ElementsAre(0, -1, 3, -1));
}

TEST(Operators, RemaindersOfFloatsHaveTheSignOfTheDivisor) {
  const Numbers y =
      Values(28, "(float[7] a, float[7] b) => (float[7] y) {y = Mod(a, b)}",
             {Floats({5, -5, 5, -5, 6, 1, -1}, {7}), Floats({3, 3, -3, -3, -3, kInf, kInf}, {7})});
  EXPECT_THAT(y, ElementsAre(2, 1, -1, -2, 0, 1, kInf));
  EXPECT_TRUE(std::signbit(y[4]));
}

TEST(Operators, RunningProducts) {
  const auto run = [&](const std::string& attributes) {
    return Values(26,
                  "(float[4] x) => (float[4] y) {a = Constant<value_int = 0>()\ny = CumProd" +
                      attributes + "(x, a)}",
                  {Floats({2, 3, 4, 5}, {4})});
  };
  EXPECT_THAT(run(""), ElementsAre(2, 6, 24, 120));
  EXPECT_THAT(run("<exclusive = 1>"), ElementsAre(1, 2, 6, 24));
  EXPECT_THAT(run("<reverse = 1>"), ElementsAre(120, 60, 20, 5));
}

// ---- Normalisation ----

TEST(Operators, GroupsHaveAScalePerGroupBeforeOpset21) {
  const Numbers x = Random(2 * 4 * 3, 1);
  const auto expected = [&](const Numbers& scale, const Numbers& bias) {
    Numbers y(x.size());
    for (size_t g = 0; g < 4; ++g) {  // two groups of two samples, six elements each
      double mean = 0, variance = 0;
      for (size_t i = 0; i < 6; ++i) mean += x[g * 6 + i] / 6;
      for (size_t i = 0; i < 6; ++i) variance += (x[g * 6 + i] - mean) * (x[g * 6 + i] - mean) / 6;
      for (size_t i = 0; i < 6; ++i) {
        const size_t channel = (g * 6 + i) / 3 % 4;
        const size_t of = scale.size() == 4 ? channel : channel / 2;
        y[g * 6 + i] = (x[g * 6 + i] - mean) / std::sqrt(variance + 1e-5) * scale[of] + bias[of];
      }
    }
    return y;
  };
  for (const auto& [opset, scale] : std::map<int, Numbers>{{18, {2, -1}}, {21, {2, -1, 0.5, 3}}}) {
    const int64_t count = static_cast<int64_t>(scale.size());
    const Numbers bias(scale.rbegin(), scale.rend());
    EXPECT_THAT(
        Values(opset,
               absl::StrCat(
                   "(float[2,4,3] x, float[", count, "] s, float[", count,
                   "] b) => (float[2,4,3] y) {y = GroupNormalization<num_groups = 2>(x, s, b)}"),
               {Floats(x, {2, 4, 3}), Floats(scale, {count}), Floats(bias, {count})}),
        Pointwise(IsNear(), expected(scale, bias)));
  }
}

TEST(Operators, RootMeanSquares) {
  EXPECT_THAT(Values(23,
                     "(float[2,2] x, float[2] s) => (float[2,2] y) {"
                     "y = RMSNormalization<epsilon = 0.0>(x, s)}",
                     {Floats({3, 4, 0, 2}, {2, 2}), Floats({1, 10}, {2})}),
              Pointwise(IsNear(), Numbers{3 / std::sqrt(12.5), 40 / std::sqrt(12.5), 0,
                                          10 * std::sqrt(2.0)}));
}

// ---- Attention ----

struct Heads {
  int64_t batch, heads, length, size;
  Numbers values;
  double At(int64_t b, int64_t h, int64_t t, int64_t i) const {
    return values[static_cast<size_t>(((b * heads + h) * length + t) * size + i)];
  }
  TensorData Tensor() const { return Floats(values, {batch, heads, length, size}); }
};

Heads RandomHeads(int64_t batch, int64_t heads, int64_t length, int64_t size, unsigned seed) {
  return {batch, heads, length, size,
          Random(static_cast<size_t>(batch * heads * length * size), seed)};
}

// `bias` is what is added to the score of a query and a key.
Numbers Attend(const Heads& q, const Heads& k, const Heads& v, double scale, double cap,
               const std::function<double(int64_t b, int64_t i, int64_t j)>& bias) {
  Numbers y;
  const int64_t group = q.heads / k.heads;
  for (int64_t b = 0; b < q.batch; ++b) {
    for (int64_t h = 0; h < q.heads; ++h) {
      for (int64_t i = 0; i < q.length; ++i) {
        Numbers p;
        double most = -kInf, sum = 0;
        for (int64_t j = 0; j < k.length; ++j) {
          double s = 0;
          for (int64_t d = 0; d < q.size; ++d) s += q.At(b, h, i, d) * k.At(b, h / group, j, d);
          s *= scale;
          if (cap != 0) s = cap * std::tanh(s / cap);
          p.push_back(s + bias(b, i, j));
          most = std::max(most, p.back());
        }
        for (double& e : p) sum += e = most == -kInf ? 0 : std::exp(e - most);
        for (int64_t d = 0; d < v.size; ++d) {
          double o = 0;
          for (int64_t j = 0; j < k.length; ++j)
            o += sum == 0 ? 0 : p[static_cast<size_t>(j)] / sum * v.At(b, h / group, j, d);
          y.push_back(o);
        }
      }
    }
  }
  return y;
}

TEST(Operators, AttentionWithGroupsMasksAndWindows) {
  const Heads q = RandomHeads(2, 4, 3, 2, 1), k = RandomHeads(2, 2, 5, 2, 2),
              v = RandomHeads(2, 2, 5, 3, 3);
  const double scale = 1 / std::sqrt(2.0);
  const auto run = [&](const std::string& attributes, const std::string& more,
                       const std::string& names, std::vector<TensorData> data) {
    data.insert(data.begin(), {q.Tensor(), k.Tensor(), v.Tensor()});
    return Values(
        25,
        absl::StrCat("(float[2,4,3,2] q, float[2,2,5,2] k, float[2,2,5,3] v", more,
                     ") => (float[a,b,c,d] y) {y = Attention", attributes, "(q, k, v", names, ")}"),
        data);
  };
  const auto allow = [](bool allowed) { return allowed ? 0.0 : -kInf; };
  EXPECT_THAT(run("", "", "", {}),
              Pointwise(IsNear(), Attend(q, k, v, scale, 0, [](auto...) { return 0.0; })));
  EXPECT_THAT(run("<scale = 0.5, softcap = 1.5>", "", "", {}),
              Pointwise(IsNear(), Attend(q, k, v, 0.5, 1.5, [](auto...) { return 0.0; })));
  EXPECT_THAT(run("<is_causal = 1>", "", "", {}),
              Pointwise(IsNear(), Attend(q, k, v, scale, 0, [&](int64_t, int64_t i, int64_t j) {
                          return allow(j <= i);
                        })));
  EXPECT_THAT(run("<left_window_size = 1, right_window_size = 2>", "", "", {}),
              Pointwise(IsNear(), Attend(q, k, v, scale, 0, [&](int64_t, int64_t i, int64_t j) {
                          return allow(i - 1 <= j && j <= i + 2);
                        })));
  // The first query attends nothing, and the mask ends before the last key.
  const Numbers mask = {0, 0, 0, 0, 1, 0, 1, 1, 0, 1, 1, 1};
  EXPECT_THAT(run("", ", bool[3,4] m", ", m", {FromDoubles(mask, {3, 4}, ir::DType::kBool)}),
              Pointwise(IsNear(), Attend(q, k, v, scale, 0, [&](int64_t, int64_t i, int64_t j) {
                          return allow(j < 4 && mask[static_cast<size_t>(i * 4 + j)] != 0);
                        })));
  const Numbers bias = Random(3 * 5, 9);
  EXPECT_THAT(run("", ", float[3,5] m", ", m", {Floats(bias, {3, 5})}),
              Pointwise(IsNear(), Attend(q, k, v, scale, 0, [&](int64_t, int64_t i, int64_t j) {
                          return bias[static_cast<size_t>(i * 5 + j)];
                        })));
  const Numbers known = {2, 5};
  EXPECT_THAT(run("<is_causal = 1>", ", int64[2] l", ", , , , l", {FromInts({2, 5})}),
              Pointwise(IsNear(), Attend(q, k, v, scale, 0, [&](int64_t b, int64_t i, int64_t j) {
                          const double valid = known[static_cast<size_t>(b)];
                          return allow(static_cast<double>(j) < valid &&
                                       static_cast<double>(j - i) <= valid - 3);
                        })));
}

// Since opset 24, a mask ends before the last key. Before, one of a single key is broadcast.
TEST(Operators, AttentionMasksOfOneKey) {
  const Heads q = RandomHeads(1, 1, 2, 2, 1), k = RandomHeads(1, 1, 3, 2, 2),
              v = RandomHeads(1, 1, 3, 2, 3);
  for (int opset : {23, 24, 25}) {
    const Numbers expected =
        Attend(q, k, v, 1 / std::sqrt(2.0), 0,
               [&](int64_t, int64_t, int64_t j) { return opset < 24 || j == 0 ? 0.0 : -kInf; });
    for (const bool is_bool : {false, true}) {
      const TensorData mask =
          is_bool ? FromDoubles({1, 1}, {2, 1}, ir::DType::kBool) : Floats({0, 0}, {2, 1});
      EXPECT_THAT(Values(opset,
                         absl::StrCat("(float[1,1,2,2] q, float[1,1,3,2] k, float[1,1,3,2] v, ",
                                      is_bool ? "bool" : "float",
                                      "[2,1] m) => (float[a,b,c,d] y) {y = Attention(q, k, v, m)}"),
                         {q.Tensor(), k.Tensor(), v.Tensor(), mask}),
                  Pointwise(IsNear(), expected))
          << opset;
    }
  }
}

TEST(Operators, AttentionKeepsThePast) {
  const Heads q = RandomHeads(1, 2, 2, 2, 4), k = RandomHeads(1, 2, 5, 2, 5),
              v = RandomHeads(1, 2, 5, 2, 6);
  // The operands are the last two of five steps, and flat: [batch, steps, heads * size].
  const auto flat = [](const Heads& x, int64_t from) {
    Numbers values;
    for (int64_t t = from; t < x.length; ++t) {
      for (int64_t h = 0; h < x.heads; ++h) {
        for (int64_t i = 0; i < x.size; ++i) values.push_back(x.At(0, h, t, i));
      }
    }
    return Floats(values, {1, x.length - from, x.heads * x.size});
  };
  const auto past = [](const Heads& x) {
    Numbers values;
    for (int64_t h = 0; h < x.heads; ++h) {
      for (int64_t t = 0; t < 3; ++t) {
        for (int64_t i = 0; i < x.size; ++i) values.push_back(x.At(0, h, t, i));
      }
    }
    return Floats(values, {1, 2, 3, 2});
  };
  const auto outputs = Outputs(
      23,
      "(float[1,2,4] q, float[1,2,4] k, float[1,2,4] v, float[1,2,3,2] pk, float[1,2,3,2] pv) =>"
      " (float[a,b,c] y, float[d,e,f,g] nk, float[h,i,j,l] nv) {"
      "y, nk, nv = Attention<q_num_heads = 2, kv_num_heads = 2, is_causal = 1>(q, k, v, , pk, pv)}",
      {flat(q, 0), flat(k, 3), flat(v, 3), past(k), past(v)});
  const Numbers y = Attend(q, k, v, 1 / std::sqrt(2.0), 0,
                           [](int64_t, int64_t i, int64_t j) { return j <= i + 3 ? 0 : -kInf; });
  EXPECT_THAT(outputs[0], Pointwise(IsNear(), ToDoubles(flat({1, 2, 2, 2, y}, 0))));
  EXPECT_EQ(outputs[1], k.values);
  EXPECT_EQ(outputs[2], v.values);
}

TEST(Operators, RotaryEmbeddingTurnsPairs) {
  const Numbers x = Random(8, 7), angles = {0.3, 1.1};
  for (const bool interleaved : {false, true}) {
    Numbers expected(8);
    for (size_t t = 0; t < 2; ++t) {
      for (size_t i = 0; i < 2; ++i) {
        const size_t a = t * 4 + (interleaved ? 2 * i : i),
                     b = t * 4 + (interleaved ? 2 * i + 1 : i + 2);
        const double by = angles[i] * (t == 0 ? 1 : 2);
        expected[a] = std::cos(by) * x[a] - std::sin(by) * x[b];
        expected[b] = std::sin(by) * x[a] + std::cos(by) * x[b];
      }
    }
    // Position p turns by p times the angles; the two steps are at positions 1 and 2.
    Numbers cosines, sines;
    for (int p = 0; p < 3; ++p) {
      for (const double angle : angles) {
        cosines.push_back(std::cos(p * angle));
        sines.push_back(std::sin(p * angle));
      }
    }
    EXPECT_THAT(
        Values(23,
               absl::StrCat("(float[1,1,2,4] x, float[3,2] c, float[3,2] s, int64[1,2] p) =>"
                            " (float[1,1,2,4] y) {y = RotaryEmbedding<interleaved = ",
                            int{interleaved}, ">(x, c, s, p)}"),
               {Floats(x, {1, 1, 2, 4}), Floats(cosines, {3, 2}), Floats(sines, {3, 2}),
                Integers({1, 2}, {1, 2})}),
        Pointwise(IsNear(), expected));
  }
}

TEST(Operators, LinearAttentionCarriesAState) {
  const Numbers q = Random(6, 1), k = Random(6, 2), v = Random(3, 3), g = Random(3, 4),
                beta = {0.5, 0.25, 1};
  // One head with keys of two elements and values of one.
  Numbers state = {0.5, -1}, expected;
  for (size_t t = 0; t < 3; ++t) {
    double known = 0, o = 0;
    for (size_t i = 0; i < 2; ++i) {
      state[i] *= std::exp(g[t]);
      known += state[i] * k[t * 2 + i];
    }
    for (size_t i = 0; i < 2; ++i) state[i] += beta[t] * k[t * 2 + i] * (v[t] - known);
    for (size_t i = 0; i < 2; ++i) o += q[t * 2 + i] * state[i];
    expected.push_back(o / std::sqrt(2.0));
  }
  const auto outputs =
      Outputs(27,
              "(float[1,3,2] q, float[1,3,2] k, float[1,3,1] v, float[1,1,2,1] s, float[1,3,1] g,"
              " float[1,3,1] b) => (float[1,3,1] y, float[1,1,2,1] r) {"
              "y, r = LinearAttention<q_num_heads = 1, kv_num_heads = 1>(q, k, v, s, g, b)}",
              {Floats(q, {1, 3, 2}), Floats(k, {1, 3, 2}), Floats(v, {1, 3, 1}),
               Floats({0.5, -1}, {1, 1, 2, 1}), Floats(g, {1, 3, 1}), Floats(beta, {1, 3, 1})});
  EXPECT_THAT(outputs[0], Pointwise(IsNear(), expected));
  EXPECT_THAT(outputs[1], Pointwise(IsNear(), state));
}

TEST(Operators, CausalConvolutionSeesThePast) {
  const auto outputs = Outputs(27,
                               "(float[1,1,3] x, float[1,1,3] w, float[1] b, float[1,1,2] p) => "
                               "(float[1,1,3] y, float[1,1,2] r) {"
                               "y, r = CausalConvWithState(x, w, b, p)}",
                               {Floats({3, 4, 5}, {1, 1, 3}), Floats({1, 10, 100}, {1, 1, 3}),
                                Floats({0.5}, {1}), Floats({1, 2}, {1, 1, 2})});
  EXPECT_THAT(outputs[0], ElementsAre(321.5, 432.5, 543.5));
  EXPECT_THAT(outputs[1], ElementsAre(4, 5));
}

TEST(Operators, CachesAreWrittenRoundTheEnd) {
  const auto run = [&](const std::string& mode, int64_t first) {
    return Values(24,
                  absl::StrCat("(float[1,4,1] c, float[1,2,1] u, int64[1] i) => (float[1,4,1] y) {"
                               "y = TensorScatter<mode = \"",
                               mode, "\">(c, u, i)}"),
                  {Floats({1, 2, 3, 4}, {1, 4, 1}), Floats({8, 9}, {1, 2, 1}), FromInts({first})});
  };
  EXPECT_THAT(run("linear", 1), ElementsAre(1, 8, 9, 4));
  EXPECT_THAT(run("circular", 3), ElementsAre(9, 2, 3, 8));
}

// ---- Images ----

TEST(Operators, CropsAndPadsAroundTheCentre) {
  EXPECT_THAT(Values(18,
                     "(float[5,2] x) => (float[a,b] y) {s = Constant<value_ints = [2, 5]>()\n"
                     "y = CenterCropPad(x, s)}",
                     {Floats({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {5, 2})}),
              ElementsAre(0, 3, 4, 0, 0, 0, 5, 6, 0, 0));
}

TEST(Operators, BlocksAddUpToAnImage) {
  // Blocks of two overlap by one.
  EXPECT_THAT(Values(18,
                     "(float[1,2,3] x) => (float[a,b,c] y) {i = Constant<value_ints = [4]>()\n"
                     "k = Constant<value_ints = [2]>()\ny = Col2Im(x, i, k)}",
                     {Floats({1, 2, 3, 10, 20, 30}, {1, 2, 3})}),
              ElementsAre(1, 12, 23, 30));
}

TEST(Operators, MaximaReturnToTheirPlaces) {
  EXPECT_THAT(Values(11,
                     "(float[1,1,1,2] x, int64[1,1,1,2] i) => (float[a,b,c,d] y) {"
                     "y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i)}",
                     {Floats({5, 6}, {1, 1, 1, 2}), Integers({1, 6}, {1, 1, 1, 2})}),
              ElementsAre(0, 5, 0, 0, 0, 0, 6, 0));
}

TEST(Operators, PlacesOfMaxima) {
  const Numbers x = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4};
  for (const int order : {0, 1}) {
    Numbers expected;
    for (int c = 0; c < 2; ++c) {  // planes of 3 by 4, windows of 2 by 2 around padding
      for (int row = -1; row < 3; row += 2) {
        for (int column = -1; column < 4; column += 2) {
          double most = -kInf;
          int place = 0;
          for (int i = row; i < row + 2; ++i) {
            for (int j = column; j < column + 2; ++j) {
              if (i < 0 || i >= 3 || j < 0 || j >= 4) continue;
              const double v = x[static_cast<size_t>(c * 12 + i * 4 + j)];
              if (v > most) most = v, place = c * 12 + (order == 0 ? i * 4 + j : j * 3 + i);
            }
          }
          expected.push_back(place);
        }
      }
    }
    EXPECT_EQ(Outputs(12,
                      absl::StrCat("(float[1,2,3,4] x) => (float[a,b,c,d] y, int64[e,f,g,h] i) {"
                                   "y, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2],"
                                   " pads = [1, 1, 0, 1], storage_order = ",
                                   order, ">(x)}"),
                      {Floats(x, {1, 2, 3, 4})})[1],
              expected)
        << order;
  }
}

TEST(Operators, Determinants) {
  EXPECT_THAT(Values(11, "(float[2,3,3] x) => (float[2] y) {y = Det(x)}",
                     {Floats({2, 0, 1, 1, 3, 2, 1, 1, 4, 0, 1, 0, 1, 0, 0, 0, 0, 5}, {2, 3, 3})}),
              ElementsAre(18, -5));
}

// An image whose value is linear in its coordinates, so bilinear interpolation is exact.
TEST(Operators, RegionsOfALinearImage) {
  Numbers image;
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 8; ++x) image.push_back(10 * y + x);
  }
  const auto run = [&](const std::string& attributes, const Numbers& region) {
    return Values(16,
                  "(float[1,1,8,8] x) => (float[a,b,c,d] y) {"
                  "r = Constant<value = float[1,4] {" +
                      absl::StrCat(region[0], ", ", region[1], ", ", region[2], ", ", region[3]) +
                      "}>()\ni = Constant<value_ints = [0]>()\n"
                      "y = RoiAlign<output_height = 2, output_width = 1" +
                      attributes + ">(x, r, i)}",
                  {Floats(image, {1, 1, 8, 8})});
  };
  // The region covers rows 1.5 to 5.5 and columns 2.5 to 4.5; its bins are centred at rows 2.5, 4.5.
  for (const char* ratio : {"", ", sampling_ratio = 2"})
    EXPECT_THAT(run(ratio, {3, 2, 5, 6}), Pointwise(IsNear(), Numbers{28.5, 48.5}));
  EXPECT_THAT(run(", coordinate_transformation_mode = \"output_half_pixel\"", {3, 2, 5, 6}),
              Pointwise(IsNear(), Numbers{34, 54}));
  EXPECT_THAT(Values(1,
                     "(float[1,1,8,8] x, float[1,5] r) => (float[a,b,c,d] y) {"
                     "y = MaxRoiPool<pooled_shape = [2, 2]>(x, r)}",
                     {Floats(image, {1, 1, 8, 8}), Floats({0, 1, 2, 4, 6}, {1, 5})}),
              ElementsAre(42, 44, 62, 64));
}

TEST(Operators, DeformedConvolutionsOfALinearImage) {
  Numbers image;
  for (int y = 0; y < 6; ++y) {
    for (int x = 0; x < 6; ++x) image.push_back(10 * y + x);
  }
  // Two taps side by side; the first moves down by 0.5, the second right by 0.25.
  Numbers offset;
  for (const double by : {0.5, 0.0, 0.0, 0.25}) offset.insert(offset.end(), 4, by);
  Numbers expected;
  for (int y = 0; y < 2; ++y) {
    for (int x = 0; x < 2; ++x) {
      const double row = 3 * y, column = 3 * x;  // strides
      expected.push_back(2 * (10 * (row + 0.5) + column) + 0.5 * (10 * row + column + 1.25) + 1);
    }
  }
  EXPECT_THAT(Values(19,
                     "(float[1,1,6,6] x, float[1,1,1,2] w, float[1,4,2,2] o, float[1] b) =>"
                     " (float[a,b1,c,d] y) {y = DeformConv<strides = [3, 3]>(x, w, o, b)}",
                     {Floats(image, {1, 1, 6, 6}), Floats({2, 0.5}, {1, 1, 1, 2}),
                      Floats(offset, {1, 4, 2, 2}), Floats({1}, {1})}),
              Pointwise(IsNear(), expected));
}

TEST(Operators, AffineGridsOfTheIdentity) {
  const auto run = [&](int align) {
    return Values(20,
                  absl::StrCat("(float[1,2,3] t) => (float[a,b,c,d] y) {"
                               "s = Constant<value_ints = [1, 1, 1, 2]>()\n"
                               "y = AffineGrid<align_corners = ",
                               align, ">(t, s)}"),
                  {Floats({1, 0, 0, 0, 1, 0.5}, {1, 2, 3})});
  };
  EXPECT_THAT(run(0), Pointwise(IsNear(), Numbers{-0.5, 0.5, 0.5, 0.5}));
  EXPECT_THAT(run(1), Pointwise(IsNear(), Numbers{-1, 0.5, 1, 0.5}));
}

// A volume whose value is linear in its coordinates, sampled between its elements.
TEST(Operators, SamplesOfALinearVolume) {
  Numbers volume;
  for (int i = 0; i < 27; ++i) volume.push_back(100 * (i / 9) + 10 * (i / 3 % 3) + i % 3);
  // (x, y, z) from -1 to 1 are the centres of the first and last elements.
  const Numbers grid = {0.5, -1, 0, -0.5, 0, 1};
  EXPECT_THAT(Values(20,
                     "(float[1,1,3,3,3] x, float[1,1,1,2,3] g) => (float[a,b,c,d,e] y) {"
                     "y = GridSample<align_corners = 1>(x, g)}",
                     {Floats(volume, {1, 1, 3, 3, 3}), Floats(grid, {1, 1, 1, 2, 3})}),
              Pointwise(IsNear(), Numbers{101.5, 210.5}));
}

// ---- Signals ----

Numbers Spectrum(const Numbers& x, int64_t length, int64_t bins, double sign) {
  Numbers y;
  for (int64_t k = 0; k < bins; ++k) {
    double re = 0, im = 0;
    for (int64_t j = 0; j < length && j < static_cast<int64_t>(x.size()); ++j) {
      const double angle = 2 * M_PI * static_cast<double>(j * k) / static_cast<double>(length);
      re += x[static_cast<size_t>(j)] * std::cos(angle);
      im += sign * x[static_cast<size_t>(j)] * std::sin(angle);
    }
    y.insert(y.end(), {re, im});
  }
  return y;
}

TEST(Operators, FourierTransforms) {
  const Numbers x = Random(6, 11);
  const auto run = [&](const std::string& text, const std::vector<TensorData>& data) {
    return Values(20, text, data);
  };
  EXPECT_THAT(run("(float[1,6,1] x) => (float[a,b,c] y) {y = DFT(x)}", {Floats(x, {1, 6, 1})}),
              Pointwise(IsNear(), Spectrum(x, 6, 6, -1)));
  EXPECT_THAT(run("(float[1,6,1] x) => (float[a,b,c] y) {n = Constant<value_int = 8>()\n"
                  "y = DFT<onesided = 1>(x, n)}",
                  {Floats(x, {1, 6, 1})}),
              Pointwise(IsNear(), Spectrum(x, 8, 5, -1)));
  // There and back, with the whole spectrum and with one side of it.
  for (const char* sides : {"0", "1"}) {
    const std::string back = sides[0] == '1' ? "z" : "r";
    Numbers wanted;
    for (const double v : x) {
      wanted.push_back(v);
      if (sides[0] == '0') wanted.push_back(0);
    }
    EXPECT_THAT(run(absl::StrCat("(float[6,1] x) => (float[a,b] z) {s = DFT<onesided = ", sides,
                                 ">(x)\nz = DFT<inverse = 1, onesided = ", sides, ">(s)}"),
                    {Floats(x, {6, 1})}),
                Pointwise(IsNear(), wanted));
  }
}

TEST(Operators, FramesOfASignal) {
  const Numbers x = Random(7, 12), window = {0.5, 1, 0.25};
  Numbers expected;
  for (size_t f = 0; f < 3; ++f) {
    const Numbers spectrum =
        Spectrum({x[2 * f] * 0.5, x[2 * f + 1], x[2 * f + 2] * 0.25}, 3, 2, -1);
    expected.insert(expected.end(), spectrum.begin(), spectrum.end());
  }
  EXPECT_THAT(Values(17,
                     "(float[1,7,1] x, float[3] w) => (float[a,b,c,d] y) {"
                     "s = Constant<value_int = 2>()\ny = STFT(x, s, w)}",
                     {Floats(x, {1, 7, 1}), Floats(window, {3})}),
              Pointwise(IsNear(), expected));
}

// ---- Recurrence ----

TEST(Operators, ActivationsOfCells) {
  // One step from zeros: the result is the activation of the input itself.
  const auto run = [&](const std::string& attributes, double x) {
    return Values(14,
                  "(float[1,1,1] x, float[1,1,1] w, float[1,1,1] r) => (float[a,b,c,d] y) {"
                  "y = RNN<hidden_size = 1, " +
                      attributes + ">(x, w, r)}",
                  {Floats({x}, {1, 1, 1}), Floats({1}, {1, 1, 1}), Floats({1}, {1, 1, 1})})[0];
  };
  EXPECT_FLOAT_EQ(static_cast<float>(run("activations = [\"Relu\"]", -2)), 0);
  EXPECT_FLOAT_EQ(static_cast<float>(run("activations = [\"affine\"], activation_alpha = [3.0],"
                                         " activation_beta = [0.5]",
                                         2)),
                  6.5f);
  EXPECT_FLOAT_EQ(static_cast<float>(run("activations = [\"LeakyRelu\"]", -2)), -0.02f);
  EXPECT_FLOAT_EQ(static_cast<float>(run("activations = [\"ThresholdedRelu\"]", 0.5)), 0);
  EXPECT_FLOAT_EQ(static_cast<float>(run("activations = [\"ScaledTanh\"], activation_alpha = [2.0],"
                                         " activation_beta = [0.5]",
                                         1)),
                  static_cast<float>(2 * std::tanh(0.5)));
  EXPECT_FLOAT_EQ(static_cast<float>(run("activations = [\"HardSigmoid\"]", 1)), 0.7f);
  EXPECT_FLOAT_EQ(static_cast<float>(run("activations = [\"Elu\"]", -1)),
                  static_cast<float>(std::exp(-1) - 1));
  EXPECT_FLOAT_EQ(static_cast<float>(run("activations = [\"Softsign\"], clip = 1.0", 7)), 0.5f);
  const auto refused = ImportOnnx(
      onnx_cases::ModelOf(14,
                          "(float[1,1,1] x, float[1,1,1] w, float[1,1,1] r) => (float[a,b,c,d] y) {"
                          "y = RNN<hidden_size = 1, activations = [\"Odd\"]>(x, w, r)}")
          .SerializeAsString());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("has no activation 'Odd'"));
}

// Samples that end early keep their state, and their outputs are zero from there on. A reversed one
// begins at its own end.
TEST(Operators, SequencesOfSeveralLengths) {
  const auto run = [&](const std::string& direction) {
    return Outputs(
        14,
        "(float[3,2,1] x, float[1,1,1] w, float[1,1,1] r, int32[2] l) =>"
        " (float[a,b,c,d] y, float[e,f,g] h) {b0 = Constant<value = float[1,2] {0.0, 0.0}>()\n"
        "y, h = RNN<hidden_size = 1, activations = [\"Relu\"], direction = \"" +
            direction + "\">(x, w, r, b0, l)}",
        {Floats({1, 2, 3, 4, 5, 6}, {3, 2, 1}), Floats({1}, {1, 1, 1}), Floats({10}, {1, 1, 1}),
         FromInts({3, 2}, ir::DType::kI32)});
  };
  const auto forward = run("forward"), reverse = run("reverse");
  EXPECT_THAT(forward[0], ElementsAre(1, 2, 13, 24, 135, 0));
  EXPECT_THAT(forward[1], ElementsAre(135, 24));
  EXPECT_THAT(reverse[0], ElementsAre(531, 42, 53, 4, 5, 0));
  EXPECT_THAT(reverse[1], ElementsAre(531, 42));
}

}  // namespace
}  // namespace heddle::graph::operators_test
