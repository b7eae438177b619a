// Writing by indices and sorting, against loops that write.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/evaluate.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

int64_t Draw(TestRng& rng, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}

// Small integers, so that sums and products are exact.
TensorData Numbers(TestRng& rng, const Shape& shape) {
  std::vector<double> values(Product(shape));
  for (double& v : values) v = static_cast<double>(Draw(rng, -2, 2));
  return FromDoubles(values, shape, ir::DType::kF32);
}

TensorData Indices(const Shape& values, const Shape& shape) {
  TensorData data = FromInts(values);
  data.type.shape = shape;
  return data;
}

double Combined(const std::string& reduction, double old, double update) {
  if (reduction == "add") return old + update;
  if (reduction == "mul") return old * update;
  if (reduction == "max") return std::max(old, update);
  return update;
}

constexpr const char* kReductions[] = {"none", "add", "mul", "max"};

TEST(Scatter, ElementsOfAMatrixWithFewerUpdatesThanPlaces) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    TestRng rng(seed);
    const Shape shape{Draw(rng, 1, 4), Draw(rng, 1, 4)};
    const int64_t axis = Draw(rng, 0, 1);
    Shape few{Draw(rng, 1, shape[0]), Draw(rng, 1, shape[1])};
    few[axis] = Draw(rng, 1, 6);
    const std::string reduction = kReductions[seed % 4];
    const TensorData data = Numbers(rng, shape), updates = Numbers(rng, few);
    Shape where(Product(few));
    for (int64_t& i : where) i = Draw(rng, -shape[axis], shape[axis] - 1);
    std::vector<double> expected = ToDoubles(data);
    const std::vector<double> news = ToDoubles(updates);
    for (int64_t i = 0; i < few[0]; ++i) {
      for (int64_t j = 0; j < few[1]; ++j) {
        Shape at{i, j};
        at[axis] = (where[i * few[1] + j] + shape[axis]) % shape[axis];
        double& place = expected[at[0] * shape[1] + at[1]];
        place = Combined(reduction, place, news[i * few[1] + j]);
      }
    }
    const std::vector<TensorData> in{data, Indices(where, few), updates};
    const auto got =
        EvaluateOp(OpKind::kScatterElements, {{"axis", axis}, {"reduction", reduction}}, in);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(ToDoubles(*got), expected) << "seed " << seed;
  }
}

TEST(Scatter, RowsAndElementsOfAMatrix) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    TestRng rng(seed);
    const Shape shape{Draw(rng, 1, 4), Draw(rng, 1, 3)};
    const int64_t depth = Draw(rng, 1, 2), count = Draw(rng, 1, 5);
    const std::string reduction = kReductions[seed % 4];
    const int64_t row = depth == 1 ? shape[1] : 1;  // elements of one update
    const TensorData data = Numbers(rng, shape);
    const TensorData updates = Numbers(rng, depth == 1 ? Shape{count, row} : Shape{count});
    Shape where;
    std::vector<double> expected = ToDoubles(data);
    for (int64_t u = 0; u < count; ++u) {
      int64_t place = 0;
      for (int64_t d = 0; d < depth; ++d) {
        where.push_back(Draw(rng, -shape[d], shape[d] - 1));
        place = place * shape[d] + (where.back() + shape[d]) % shape[d];
      }
      for (int64_t k = 0; k < row; ++k) {
        double& old = expected[place * row + k];
        old = Combined(reduction, old, ToDoubles(updates)[u * row + k]);
      }
    }
    const std::vector<TensorData> in{data, Indices(where, {count, depth}), updates};
    const auto got = EvaluateOp(OpKind::kScatterNd, {{"reduction", reduction}}, in);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(ToDoubles(*got), expected) << "seed " << seed;
  }
}

TEST(Scatter, AnIndexBeyondTheTensorConcernsNothing) {
  TestRng rng(1);
  const TensorData data = Numbers(rng, {3, 2}), updates = Numbers(rng, {2, 2});
  const std::vector<TensorData> elements{data, Indices({3, -4, 7, 3}, {2, 2}), updates};
  const std::vector<TensorData> rows{data, Indices({3, -4}, {2, 1}), updates};
  EXPECT_EQ(ToDoubles(*EvaluateOp(OpKind::kScatterElements, {{"axis", int64_t{0}}}, elements)),
            ToDoubles(data));
  EXPECT_EQ(ToDoubles(*EvaluateOp(OpKind::kScatterNd, {}, rows)), ToDoubles(data));
}

TEST(TopK, EqualElementsKeepTheirOrderAndNansAreLargest) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    TestRng rng(seed);
    const int64_t n = Draw(rng, 1, 9), k = Draw(rng, 1, n);
    const bool largest = seed % 2 == 0;
    std::vector<double> values = ToDoubles(Numbers(rng, {n}));
    for (double& value : values) {
      if (seed % 4 >= 2 && Draw(rng, 0, 2) == 0) value = std::nan("");
    }
    const TensorData x = FromDoubles(values, {n}, ir::DType::kF32);
    // A NaN is larger than any number, and equal to another.
    const auto less = [&](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
    Shape order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return largest ? less(values[b], values[a]) : less(values[a], values[b]);
    });
    order.resize(k);
    const std::vector<TensorData> in{x};
    const Attrs attrs{{"axis", int64_t{0}}, {"k", k}, {"largest", int64_t{largest}}};
    EXPECT_EQ(ToInts(*EvaluateOp(OpKind::kTopK, attrs, in)), order) << "seed " << seed;
  }
}

}  // namespace
}  // namespace heddle::graph
