// Any number of rows through a module of four.
#include "client/modules/run_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "client/modules/output_check.h"
#include "compiler/driver/compile.h"
#include "tests/driver/onnx_models.h"

namespace heddle::client {
namespace {

using runtime::Executor;

constexpr int64_t kColumns = 3;

// y = softmax of each row of x, z = the sum of each row; `independent` as the module says it.
std::unique_ptr<Executor> MakeExecutor(bool independent) {
  OnnxModel model;
  model.Input("x", {4, kColumns}).Ints("axes", {1});
  model.Node("Softmax", {"x"}, {"y"}).Node("ReduceSum", {"x", "axes"}, {"z"});
  model.Output("y", {4, kColumns}).Output("z", {4, 1});
  CompileOptions compile;
  compile.choice = ScheduleChoice::kDefault;
  auto module = runtime::ParseModule(CompileModel(model.Bytes(), {}, {}, {}, compile).value());
  EXPECT_FALSE(module->manifest.independent_rows) << "it is no model of tables";
  module->manifest.independent_rows = independent;
  return Executor::Create(*std::move(module)).value();
}

std::string BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(RunRows, AnyNumberOfRows) {
  const std::unique_ptr<Executor> executor = MakeExecutor(true);
  std::mt19937 rng(1);
  std::uniform_real_distribution<float> uniform(-2, 2);
  for (int64_t rows = 1; rows <= 13; ++rows) {
    std::vector<float> x(static_cast<size_t>(rows * kColumns));
    for (float& value : x) value = uniform(rng);
    const auto results = RunRows({{BytesOf(x)}, rows}, *executor);
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_EQ(results->size(), 2u);
    EXPECT_EQ((*results)[0].shape, (std::vector<int64_t>{rows, kColumns}));
    EXPECT_EQ((*results)[1].shape, (std::vector<int64_t>{rows, 1}));
    const std::vector<double> y = ToDoubles((*results)[0].bytes, "f32");
    const std::vector<double> z = ToDoubles((*results)[1].bytes, "f32");
    ASSERT_EQ(y.size(), x.size());
    ASSERT_EQ(z.size(), static_cast<size_t>(rows));
    for (size_t r = 0; r < z.size(); ++r) {
      double sum = 0, exponentials = 0;
      for (size_t c = 0; c < kColumns; ++c) {
        sum += x[r * kColumns + c];
        exponentials += std::exp(x[r * kColumns + c]);
      }
      EXPECT_NEAR(z[r], sum, 1e-5) << rows << " rows, row " << r;
      for (size_t c = 0; c < kColumns; ++c) {
        EXPECT_NEAR(y[r * kColumns + c], std::exp(x[r * kColumns + c]) / exponentials, 1e-5)
            << rows << " rows, row " << r;
      }
    }
  }
}

TEST(RunRows, OnceWhereRowsDependOnEachOther) {
  const std::unique_ptr<Executor> executor = MakeExecutor(false);
  const std::vector<float> x(4 * kColumns, 1.0F);
  const auto results = RunRows({{BytesOf(x)}, 0}, *executor);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0].shape, (std::vector<int64_t>{4, kColumns}));
  EXPECT_THAT(ToDoubles((*results)[1].bytes, "f32"), ::testing::ElementsAre(3, 3, 3, 3));
}

}  // namespace
}  // namespace heddle::client
