// Results whose size depends on data, against plain loops, and what may follow them against the same
// nodes on an operand of that very size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/onnx/import.h"
#include "tests/onnx/model_text.h"

namespace heddle::graph {
namespace {

using ir::DType;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<TensorData>> Evaluate(const std::string& graph,
                                                 const std::vector<TensorData>& inputs) {
  const auto imported = ImportOnnx(onnx_cases::ModelOf(18, graph).SerializeAsString());
  if (!imported.ok()) return imported.status();
  auto outputs = EvaluateGraph(*imported, inputs);
  if (outputs.ok()) outputs->resize(static_cast<size_t>(imported->NumResults()));
  return outputs;
}

std::string Dims(const Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ","), "]"); }

class Draw {
 public:
  explicit Draw(uint32_t seed) : rng_(seed) {}
  int64_t Int(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng_);
  }
  Shape AShape(int rank, int64_t most) {
    Shape shape;
    for (int i = 0; i < rank; ++i) shape.push_back(Int(1, most));
    return shape;
  }
  // Small whole numbers, so that sums are exact and equal elements occur.
  TensorData Tensor(const Shape& shape, DType dtype, int64_t low, int64_t high) {
    std::vector<double> values;
    for (int64_t i = 0; i < NumElements({dtype, shape}); ++i)
      values.push_back(static_cast<double>(Int(low, high)));
    return FromDoubles(values, shape, dtype);
  }
  TensorData Flags(int64_t count) {  // sometimes all, sometimes none
    const int64_t kind = Int(0, 4);
    return Tensor({count}, DType::kBool, kind == 0 ? 1 : 0, kind == 1 ? 0 : 1);
  }

 private:
  std::mt19937 rng_;
};

// ---- Each operator ----

TEST(Selection, NonZero) {
  Draw draw(1);
  for (int round = 0; round < 40; ++round) {
    const Shape shape = draw.AShape(static_cast<int>(draw.Int(1, 3)), round < 35 ? 5 : 30);
    const TensorData x = draw.Tensor(shape, DType::kF32, 0, draw.Int(0, 3));
    const auto y = Evaluate(
        absl::StrCat("(float", Dims(shape), " x) => (int64[?,?] y) {y = NonZero(x)}"), {x});
    ASSERT_TRUE(y.ok()) << y.status();
    const auto rank = static_cast<int64_t>(shape.size());
    const std::vector<double> values = ToDoubles(x);
    std::vector<Shape> places;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == 0) continue;
      Shape place(shape.size());
      auto rest = static_cast<int64_t>(i);
      for (int64_t d = rank - 1; d >= 0; --d) {
        place[d] = rest % shape[d];
        rest /= shape[d];
      }
      places.push_back(place);
    }
    Shape wanted;
    for (int64_t d = 0; d < rank; ++d) {
      for (const Shape& place : places) wanted.push_back(place[d]);
    }
    EXPECT_EQ((*y)[0].type.shape, (Shape{rank, static_cast<int64_t>(places.size())}));
    EXPECT_EQ(ToInts((*y)[0]), wanted);
  }
}

TEST(Selection, Compress) {
  Draw draw(2);
  for (int round = 0; round < 40; ++round) {
    const int64_t rows = draw.Int(1, 9), columns = draw.Int(1, 4);
    const bool along = draw.Int(0, 2) != 0;
    const int64_t axis = draw.Int(-2, 1), extent = !along                    ? rows * columns
                                                   : axis == 0 || axis == -2 ? rows
                                                                             : columns;
    const TensorData x = draw.Tensor({rows, columns}, DType::kI32, -9, 9);
    const TensorData flags = draw.Flags(std::max<int64_t>(extent - draw.Int(0, 1), 1));
    const auto y =
        Evaluate(absl::StrCat("(int32", Dims({rows, columns}), " x, bool", Dims(flags.type.shape),
                              " f) => (int32", along ? "[?,?]" : "[?]", " y) {y = Compress",
                              along ? absl::StrCat("<axis = ", axis, ">") : "", "(x, f)}"),
                 {x, flags});
    ASSERT_TRUE(y.ok()) << y.status();
    const Shape set = ToInts(flags), values = ToInts(x);
    const auto is_set = [&](int64_t i) { return i < static_cast<int64_t>(set.size()) && set[i]; };
    Shape wanted;
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t place = !along                                        ? i
                            : extent == rows && (axis == 0 || axis == -2) ? i / columns
                                                                          : i % columns;
      if (is_set(place)) wanted.push_back(values[i]);
    }
    EXPECT_EQ(ToInts((*y)[0]), wanted);
  }
}

TEST(Selection, Unique) {
  Draw draw(3);
  for (int round = 0; round < 40; ++round) {
    const int64_t rows = draw.Int(1, 12), columns = draw.Int(1, 3);
    const bool along = draw.Int(0, 1) != 0, sorted = draw.Int(0, 1) != 0;
    const TensorData x = draw.Tensor({rows, columns}, DType::kI64, -2, draw.Int(-2, 4));
    const auto y = Evaluate(
        absl::StrCat("(int64", Dims({rows, columns}), " x) => (int64", along ? "[?,?]" : "[?]",
                     " y, int64[?] i, int64[?] g, int64[?] c) {y, i, g, c = Unique<sorted = ",
                     sorted ? 1 : 0, along ? ", axis = 0" : "", ">(x)}"),
        {x});
    ASSERT_TRUE(y.ok()) << y.status();
    const Shape values = ToInts(x);
    std::vector<Shape> parts;
    for (int64_t i = 0; i < rows * columns; i += along ? columns : 1)
      parts.emplace_back(values.begin() + i, values.begin() + i + (along ? columns : 1));
    std::vector<Shape> distinct;
    for (const Shape& part : parts) {
      if (std::find(distinct.begin(), distinct.end(), part) == distinct.end())
        distinct.push_back(part);
    }
    if (sorted) std::sort(distinct.begin(), distinct.end());
    Shape flat, first, group(parts.size()), counts;
    for (size_t k = 0; k < distinct.size(); ++k) {
      flat.insert(flat.end(), distinct[k].begin(), distinct[k].end());
      first.push_back(std::find(parts.begin(), parts.end(), distinct[k]) - parts.begin());
      counts.push_back(std::count(parts.begin(), parts.end(), distinct[k]));
      for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i] == distinct[k]) group[i] = static_cast<int64_t>(k);
      }
    }
    EXPECT_EQ(ToInts((*y)[0]), flat);
    EXPECT_EQ(ToInts((*y)[1]), first);
    EXPECT_EQ(ToInts((*y)[2]), group);
    EXPECT_EQ(ToInts((*y)[3]), counts);
  }
}

struct Box {
  double y1, x1, y2, x2;
};

double Overlap(const Box& a, const Box& b) {
  const double height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1),
               width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  if (height <= 0 || width <= 0) return 0;
  const double both = height * width;
  return both / ((a.y2 - a.y1) * (a.x2 - a.x1) + (b.y2 - b.y1) * (b.x2 - b.x1) - both);
}

TEST(Selection, NonMaxSuppression) {
  Draw draw(4);
  for (int round = 0; round < 40; ++round) {
    const int64_t batches = draw.Int(1, 2), classes = draw.Int(1, 3), count = draw.Int(1, 14);
    const bool centres = draw.Int(0, 1) != 0;
    const int64_t most = draw.Int(0, 5);
    const double overlap = static_cast<double>(draw.Int(0, 3)) / 4 + 0.1;
    std::vector<double> boxes, scores;
    std::vector<Box> corners;
    for (int64_t i = 0; i < batches * count; ++i) {
      const auto a = static_cast<double>(draw.Int(0, 8)), b = static_cast<double>(draw.Int(0, 8));
      const double h = static_cast<double>(draw.Int(0, 4)) * 2,
                   w = static_cast<double>(draw.Int(1, 4)) * 2;
      corners.push_back({a, b, a + h, b + w});
      const std::vector<double> centre = {b + w / 2, a + h / 2, w, h}, plain = {a, b, a + h, b + w},
                                turned = {a + h, b, a, b + w};
      const std::vector<double>& box = centres ? centre : draw.Int(0, 1) ? plain : turned;
      boxes.insert(boxes.end(), box.begin(), box.end());
    }
    // Scores differ: which of two equal ones comes first is open.
    std::vector<int> order(static_cast<size_t>(batches * classes * count));
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[draw.Int(0, static_cast<int64_t>(i) - 1)]);
    for (int i : order) scores.push_back(i);
    const double least = static_cast<double>(order.size()) / 4 + 0.5;
    const auto y =
        Evaluate(absl::StrCat("(float", Dims({batches, count, 4}), " b, float",
                              Dims({batches, classes, count}),
                              " s, int64 m, float o, float t) => (int64[?,3] y) {y = "
                              "NonMaxSuppression<center_point_box = ",
                              centres ? 1 : 0, ">(b, s, m, o, t)}"),
                 {FromDoubles(boxes, {batches, count, 4}, DType::kF32),
                  FromDoubles(scores, {batches, classes, count}, DType::kF32),
                  FromDoubles({static_cast<double>(most)}, {}, DType::kI64),
                  FromDoubles({overlap}, {}, DType::kF32), FromDoubles({least}, {}, DType::kF32)});
    ASSERT_TRUE(y.ok()) << y.status();
    Shape wanted;
    for (int64_t row = 0; row < batches * classes; ++row) {
      const double* score = scores.data() + row * count;
      const Box* box = corners.data() + row / classes * count;
      Shape by_score(static_cast<size_t>(count)), chosen;
      std::iota(by_score.begin(), by_score.end(), 0);
      std::sort(by_score.begin(), by_score.end(),
                [&](int64_t i, int64_t j) { return score[i] > score[j]; });
      for (int64_t i : by_score) {
        const bool free = std::none_of(chosen.begin(), chosen.end(), [&](int64_t j) {
          return Overlap(box[i], box[j]) > overlap;
        });
        if (score[i] <= least || !free || static_cast<int64_t>(chosen.size()) == most) continue;
        chosen.push_back(i);
        for (int64_t v : {row / classes, row % classes, i}) wanted.push_back(v);
      }
    }
    EXPECT_EQ(ToInts((*y)[0]), wanted) << "round " << round;
  }
}

TEST(Selection, TopKWithAComputedK) {
  Draw draw(5);
  for (int round = 0; round < 20; ++round) {
    const int64_t count = draw.Int(1, 9), k = draw.Int(0, count);
    const TensorData x = draw.Tensor({count}, DType::kF32, -9, 9);
    const auto y =
        Evaluate(absl::StrCat("(float", Dims({count}),
                              " x, int64[1] k) => (float[?] y, int64[?] i) {y, i = TopK(x, k)}"),
                 {x, FromDoubles({static_cast<double>(k)}, {1}, DType::kI64)});
    ASSERT_TRUE(y.ok()) << y.status();
    std::vector<double> wanted = ToDoubles(x);
    std::sort(wanted.begin(), wanted.end(), std::greater<>());
    wanted.resize(static_cast<size_t>(k));
    EXPECT_EQ(ToDoubles((*y)[0]), wanted);
    EXPECT_EQ((*y)[1].type.shape, Shape{k});
  }
}

// ---- What follows ----

// Nodes that make y (any type) of v, a float tensor [n, 3] whose n depends on data. They may use x
// float[6,3], row float[3], w float[3,4] and places int64[2] as well.
constexpr const char* kBodies[] = {
    "float[?,3] y|y = Relu(v)",
    "float[?,3] y|y = Add(v, v)",
    "float[?,3] y|y = Mul(v, row)",
    "float[?,3] y|t = Exp(v)\n u = Sub(t, v)\n y = Neg(u)",
    "float[?] y|a = Constant<value_ints = [1]>()\n y = ReduceSum<keepdims = 0>(v, a)",
    "float[3] y|a = Constant<value_ints = [0]>()\n y = ReduceSum<keepdims = 0>(v, a)",
    "float[1,1] y|y = ReduceSum(v)",
    "float[1,3] y|a = Constant<value_ints = [0]>()\n y = ReduceMean(v, a)",
    "float y|y = ReduceMean<keepdims = 0>(v)",
    "float[1,3] y|a = Constant<value_ints = [0]>()\n y = ReduceMax(v, a)",
    "float[1,3] y|a = Constant<value_ints = [-2]>()\n y = ReduceMin(v, a)",
    "float[1,3] y|a = Constant<value_ints = [0]>()\n y = ReduceProd(v, a)",
    "float[1,3] y|a = Constant<value_ints = [0]>()\n y = ReduceL1(v, a)",
    "float[1,3] y|a = Constant<value_ints = [0]>()\n y = ReduceL2(v, a)",
    "float[1,3] y|a = Constant<value_ints = [0]>()\n y = ReduceSumSquare(v, a)",
    "float[1,3] y|a = Constant<value_ints = [0]>()\n y = ReduceLogSumExp(v, a)",
    "int64[1,3] y|y = ArgMax<axis = 0>(v)",
    "int64[1,3] y|y = ArgMin<axis = 0>(v)",
    "float[?,3] y|y = Softmax<axis = 0>(v)",
    "float[?,3] y|y = LogSoftmax<axis = 0>(v)",
    "float[?,3] y|y = Softmax(v)",
    "float[3,?] y|y = Transpose(v)",
    "float[?,4] y|y = MatMul(v, w)",
    "float[3,3] y|t = Transpose(v)\n y = MatMul(t, v)",
    "float[?,?] y|t = Transpose(v)\n y = MatMul(v, t)",
    "float[?,4] y|y = Gemm(v, w)",
    "float[?,3] y|y = Concat<axis = 0>(v, x)",
    "float[?,3] y|y = Concat<axis = 0>(x, v, v)",
    "float[?,6] y|y = Concat<axis = 1>(v, v)",
    "float[?,3] y|t = Concat<axis = 0>(v, v)\n zero = Constant<value_int = 0>()\n y = CumSum(t, "
    "zero)",
    "float[?,3] y|zero = Constant<value_int = 0>()\n y = CumSum(v, zero)",
    "float[?,3] y|zero = Constant<value_int = 0>()\n y = CumSum<reverse = 1>(v, zero)",
    "float[?,3] y|b = Constant<value_ints = [1]>()\n e = Constant<value_ints = [3]>()\n y = "
    "Slice(v, b, e)",
    "float[?,3] y|b = Constant<value_ints = [-2]>()\n e = Constant<value_ints = [99]>()\n y = "
    "Slice(v, b, e)",
    "float[?,3] y|b = Constant<value_ints = [0]>()\n e = Constant<value_ints = [-1]>()\n y = "
    "Slice(v, b, e)",
    "float[?,2] y|b = Constant<value_ints = [1]>()\n e = Constant<value_ints = [3]>()\n a = "
    "Constant<value_ints = [1]>()\n y = Slice(v, b, e, a)",
    "int64[2] y|y = Shape(v)",
    "int64 y|y = Size(v)",
    "float[?] y|s = Constant<value_ints = [-1]>()\n y = Reshape(v, s)",
    "float[?,1,3] y|s = Constant<value_ints = [-1,1,3]>()\n y = Reshape(v, s)",
    "float[?,3] y|s = Constant<value_ints = [0,3]>()\n y = Reshape(v, s)",
    "float[?,1,3] y|a = Constant<value_ints = [1]>()\n y = Unsqueeze(v, a)",
    "float[2,?,3] y|p = Constant<value_ints = [2]>()\n s = Shape(v)\n t = Concat<axis = 0>(p, s)\n "
    "y = Expand(v, t)",
    "float[?,3] y|s = Shape(v)\n y = Expand(row, s)",
    "float[?,3] y|s = Shape(v)\n y = ConstantOfShape<value = float[1] {2.0}>(s)",
    "int64[?] y|s = Shape<start = 0, end = 1>(v)\n z = Constant<value_ints = [0]>()\n t = "
    "Squeeze(s)\n u = Squeeze(z)\n i = Constant<value_ints = [1]>()\n j = Squeeze(i)\n y = "
    "Range(u, t, j)",
    "float[?,3] y|b = Greater(v, row)\n y = Where(b, v, row)",
    "int64[2,?] y|y = NonZero(v)",
    "float[?] y|b = Greater(v, row)\n r = Constant<value_ints = [-1]>()\n f = Reshape(b, r)\n y = "
    "Compress(v, f)",
    "int64[?,3] y|y = Cast<to = 7>(v)",
    "float[?,3] y|y = Gather(v, places)",
    "float[?,3,2] y|e = Constant<value_ints = [2]>()\n u = Unsqueeze(v, e)\n y = Concat<axis = "
    "2>(u, u)",
};

TEST(Selection, WhatFollowsIsRightForEverySize) {
  Draw draw(6);
  int compared = 0;
  for (const char* text : kBodies) {
    const std::string body(text);
    const std::string result = body.substr(0, body.find('|')),
                      nodes = body.substr(body.find('|') + 1);
    const std::string rest = "float[6,3] x, float[3] row, float[3,4] w, int64[2] places";
    // All sizes, and in each the first, the last and other rows.
    for (int64_t count = 0; count <= 6; ++count) {
      std::vector<double> flags(6, 0);
      std::fill(flags.begin(), flags.begin() + count, 1);
      for (int i = 5; i > 0; --i) std::swap(flags[i], flags[draw.Int(0, i)]);
      const TensorData x = draw.Tensor({6, 3}, DType::kF32, -3, 3);
      std::vector<double> kept;
      for (int row = 0; row < 6; ++row) {
        for (int k = 0; k < 3 && flags[row] != 0; ++k) kept.push_back(ToDoubles(x)[row * 3 + k]);
      }
      const std::vector<TensorData> others = {
          x, draw.Tensor({3}, DType::kF32, -2, 2), draw.Tensor({3, 4}, DType::kF32, -2, 2),
          draw.Tensor({2}, DType::kI64, -count, std::max<int64_t>(count, 1) - 1)};
      std::vector<TensorData> bounded = {FromDoubles(flags, {6}, DType::kBool)},
                              fixed = {FromDoubles(kept, {count, 3}, DType::kF32)};
      bounded.insert(bounded.end(), others.begin(), others.end());
      fixed.insert(fixed.end(), others.begin(), others.end());
      const auto wanted = Evaluate(
          absl::StrCat("(float[", count, ",3] v, ", rest, ") => (", result, ") {", nodes, "}"),
          fixed);
      const auto found = Evaluate(absl::StrCat("(bool[6] flags, ", rest, ") => (", result,
                                               ") {v = Compress<axis = 0>(x, flags)\n", nodes, "}"),
                                  bounded);
      ASSERT_TRUE(found.ok()) << body << ": " << found.status();
      // Not every operator takes tensors without elements if the size is fixed.
      if (!wanted.ok() && count == 0) continue;
      ASSERT_TRUE(wanted.ok()) << body << ": " << wanted.status();
      if (count == 0 && body.find("places") != std::string::npos) continue;
      ++compared;
      EXPECT_EQ((*found)[0].type, (*wanted)[0].type) << body << ", " << count << " rows";
      EXPECT_THAT(
          ToDoubles((*found)[0]),
          ::testing::Pointwise(::testing::NanSensitiveDoubleNear(1e-5), ToDoubles((*wanted)[0])))
          << body << ", " << count << " rows";
    }
  }
  EXPECT_GT(compared, 300);
}

TEST(Selection, RefusalsNameTheOperandAndWhatItsSizeDependsOn) {
  const auto two_sizes = Evaluate(
      "(float[6] x, bool[6] f, bool[6] g) => (float[?] y) {v = Compress<axis = 0>(x, f)\n "
      "u = Compress<axis = 0>(x, g)\n y = Add(u, v)}",
      {});
  EXPECT_EQ(two_sizes.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(two_sizes.status().message()), HasSubstr("different sizes"));
  const auto no_rule = Evaluate(
      "(float[6,3] x, bool[6] f) => (float[?,3] y) {v = Compress<axis = 0>(x, f)\n y = Hardmax(v)}",
      {});
  EXPECT_EQ(no_rule.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(no_rule.status().message()), HasSubstr("whose size depends on Compress"));
}

}  // namespace
}  // namespace heddle::graph
