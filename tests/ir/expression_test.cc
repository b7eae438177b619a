#include "compiler/tensor/expression.h"

#include <gtest/gtest.h>

#include "base/vocabulary/workload_key.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"

namespace heddle::tensor {
namespace {

using ir::DType;

absl::StatusOr<TensorProgram> Dense(const char* middle = "dense") {
  Builder b("dense_relu");
  auto x = b.Input("x", DType::kF32, {2, 8});
  auto w = b.Input("w", DType::kF32, {4, 8});
  auto y = b.Reduce(middle, {2, 4}, {8}, ir::ReduceOp::kSum,
                    [&](Iters s, Iters r) { return x(s[0], r[0]) * w(s[1], r[0]); });
  b.Compute("unused", {3}, [&](Iters s) { return x(ir::Int(0), s[0]); });
  auto z = b.Compute("relu", {2, 4}, [&](Iters s) {
    return ir::Make(ir::Op::kMax, {y(s[0], s[1]), ir::Float(0)});
  });
  return b.Build({z});
}

TEST(TensorExpression, LowersToVerifiedNaiveLoops) {
  const auto program = Dense();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->stages.size(), 2u) << "the unused stage goes";
  const auto loops = LowerToLoops(*program);
  ASSERT_TRUE(loops.ok()) << loops.status();
  EXPECT_TRUE(ir::Verify(*loops).ok()) << ir::Verify(*loops);
  EXPECT_EQ(ir::CountFlops(*loops), 2 * 4 * 8 * 2 + 2 * 4);
  EXPECT_EQ(ir::Print(*loops),
            R"(program dense_relu(x: f32[2, 8], w: f32[4, 8]) -> (relu_buf: f32[2, 4]) {
  alloc dense_buf: f32[2, 4] global {
    for dense.i0 in 2 {
      for dense.i1 in 4 {
        for dense.r0 in 8 {
          block dense(dense.vi0 < 2 spatial = dense.i0, dense.vi1 < 4 spatial = dense.i1, dense.vr0 < 8 reduce = dense.r0) sum init 0.0 {
            dense_buf[dense.vi0, dense.vi1] = (x[dense.vi0, dense.vr0] * w[dense.vi1, dense.vr0])
          }
        }
      }
    }
    for relu.i0 in 2 {
      for relu.i1 in 4 {
        block relu(relu.vi0 < 2 spatial = relu.i0, relu.vi1 < 4 spatial = relu.i1) {
          relu_buf[relu.vi0, relu.vi1] = max(dense_buf[relu.vi0, relu.vi1], 0.0)
        }
      }
    }
  }
}
)");
}

TEST(TensorExpression, EqualExpressionsHaveEqualKeys) {
  const auto key = [](const absl::StatusOr<TensorProgram>& p) {
    return WorkloadKey(ir::Print(*LowerToLoops(*p)));
  };
  const std::string k = key(Dense());
  EXPECT_EQ(k, key(Dense()));
  EXPECT_NE(k, key(Dense("other")));
}

TEST(TensorExpression, NamesBecomeUniqueAndPlain) {
  Builder b("net/op:0");
  auto x = b.Input("in/put.0", DType::kF32, {4});
  auto a = b.Compute("a", {4}, [&](Iters s) { return x(s[0]) + x(s[0]); });
  auto c = b.Compute("a", {4}, [&](Iters s) { return a(s[0]) * x(s[0]); });
  auto d = b.Compute("a_buf", {4}, [&](Iters s) { return c(s[0]) - x(s[0]); });
  const auto loops = LowerToLoops(*b.Build({d, a}));
  ASSERT_TRUE(loops.ok());
  EXPECT_TRUE(ir::Verify(*loops).ok()) << ir::Verify(*loops);
  EXPECT_TRUE(ir::IsName(loops->name));
}

TEST(TensorExpression, ScalarsAreFine) {
  Builder b("total");
  auto x = b.Input("x", DType::kI64, {5});
  auto y = b.Reduce("y", {}, {5}, ir::ReduceOp::kMax, [&](Iters, Iters r) { return x(r[0]); });
  const auto loops = LowerToLoops(*b.Build({y}));
  ASSERT_TRUE(loops.ok());
  EXPECT_TRUE(ir::Verify(*loops).ok()) << ir::Verify(*loops);
}

TEST(TensorExpression, RefusesWhatHasNoMeaning) {
  Builder b("bad"), other("other");
  auto x = b.Input("x", DType::kF32, {4});
  auto y = b.Compute("y", {4}, [&](Iters s) { return x(s[0]); });
  auto stranger = other.Input("stranger", DType::kF32, {4});
  auto z = b.Compute("z", {4}, [&](Iters s) { return stranger(s[0]); });
  EXPECT_EQ(b.Build({x}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(b.Build({y, y}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(b.Build({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(b.Build({z}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::tensor
