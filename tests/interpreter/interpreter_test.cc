#include "compiler/interpreter/interpreter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "compiler/ir/arithmetic.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/tensor/expression.h"
#include "tests/ir/run_program.h"

namespace heddle::interpreter {
namespace {

using ir::DType;
using ir::Float;
using ir::Int;
using ir::Op;
using tensor::Iters;

ir::Program Lowered(const absl::StatusOr<tensor::TensorProgram>& program) {
  EXPECT_TRUE(program.ok()) << program.status();
  auto loops = tensor::LowerToLoops(*program);
  EXPECT_TRUE(loops.ok()) << loops.status();
  EXPECT_TRUE(ir::Verify(*loops).ok()) << ir::Verify(*loops);
  return *loops;
}

ir::Program Parsed(const char* text) {
  auto program = ir::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

void RandomInputs(const ir::Program& program, Arena& arena, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> value(-1, 1);
  for (size_t n = 0; n < program.inputs.size(); ++n) {
    for (int64_t k = 0; k < program.inputs[n]->NumElements(); ++k) arena.Set(n, k, value(rng));
  }
}

// Every element of output 0 by the second oracle.
void ExpectPointsAgree(const ir::Program& program, const Arena& arena) {
  std::vector<OutputPoint> points;
  for (int64_t k = 0; k < program.outputs[0]->NumElements(); ++k) points.push_back({0, k});
  const auto values =
      EvaluatePoints(program, std::span(arena.tensors).first(program.inputs.size()), points);
  ASSERT_TRUE(values.ok()) << values.status();
  for (size_t k = 0; k < points.size(); ++k) {
    const double ran = arena.Get(program.inputs.size(), static_cast<int64_t>(k));
    ASSERT_TRUE((*values)[k] == ran || (std::isnan((*values)[k]) && std::isnan(ran)))
        << k << ": " << (*values)[k] << " " << ran;
  }
}

TEST(Interpreter, PaddedConvolutionMatchesPlainLoops) {
  constexpr int C = 3, K = 4, H = 7, W = 6;
  tensor::Builder b("conv");
  auto x = b.Input("x", DType::kF32, {C, H, W});
  auto w = b.Input("w", DType::kF32, {K, C, 3, 3});
  auto pad = b.Compute("pad", {C, H + 2, W + 2}, [&](Iters s) {
    auto inside = And(And(Le(Int(1), s[1]), Lt(s[1], Int(H + 1))),
                      And(Le(Int(1), s[2]), Lt(s[2], Int(W + 1))));
    return Select(inside, x(s[0], s[1] - Int(1), s[2] - Int(1)), Float(0));
  });
  auto conv = b.Reduce("y", {K, H, W}, {C, 3, 3}, ir::ReduceOp::kSum, [&](Iters s, Iters r) {
    return pad(r[0], s[1] + r[1], s[2] + r[2]) * w(s[0], r[0], r[1], r[2]);
  });
  const ir::Program program = Lowered(b.Build({conv}));
  Arena arena(program);
  RandomInputs(program, arena, 1);
  ASSERT_TRUE(Interpret(program, arena.tensors).ok());
  const auto* xs = static_cast<const float*>(arena.tensors[0].data);
  const auto* ws = static_cast<const float*>(arena.tensors[1].data);
  for (int k = 0; k < K; ++k) {
    for (int h = 0; h < H; ++h) {
      for (int v = 0; v < W; ++v) {
        float sum = 0;
        for (int c = 0; c < C; ++c) {
          for (int p = 0; p < 3; ++p) {
            for (int q = 0; q < 3; ++q) {
              const int y = h + p - 1, z = v + q - 1;
              const float value = y < 0 || y >= H || z < 0 || z >= W ? 0 : xs[(c * H + y) * W + z];
              sum += value * ws[((k * C + c) * 3 + p) * 3 + q];
            }
          }
        }
        ASSERT_EQ(arena.Get(2, (k * H + h) * W + v), sum) << k << " " << h << " " << v;
      }
    }
  }
  ExpectPointsAgree(program, arena);
}

TEST(Interpreter, MatrixProductByHand) {
  tensor::Builder b("matmul");
  auto x = b.Input("x", DType::kF32, {2, 2});
  auto w = b.Input("w", DType::kF32, {2, 2});
  auto y = b.Reduce("y", {2, 2}, {2}, ir::ReduceOp::kSum,
                    [&](Iters s, Iters r) { return x(s[0], r[0]) * w(r[0], s[1]); });
  const ir::Program program = Lowered(b.Build({y}));
  Arena arena(program);
  const double values[] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int k = 0; k < 8; ++k) arena.Set(k / 4, k % 4, values[k]);
  ASSERT_TRUE(Interpret(program, arena.tensors).ok());
  EXPECT_EQ(arena.Get(2, 0), 19);
  EXPECT_EQ(arena.Get(2, 1), 22);
  EXPECT_EQ(arena.Get(2, 2), 43);
  EXPECT_EQ(arena.Get(2, 3), 50);
  ExpectPointsAgree(program, arena);
}

TEST(Interpreter, SoftmaxSumsToOne) {
  tensor::Builder b("softmax");
  auto x = b.Input("x", DType::kF32, {3, 10});
  auto m =
      b.Reduce("m", {3}, {10}, ir::ReduceOp::kMax, [&](Iters s, Iters r) { return x(s[0], r[0]); });
  auto e = b.Compute("e", {3, 10},
                     [&](Iters s) { return ir::Make(Op::kExp, {x(s[0], s[1]) - m(s[0])}); });
  auto t =
      b.Reduce("t", {3}, {10}, ir::ReduceOp::kSum, [&](Iters s, Iters r) { return e(s[0], r[0]); });
  auto y = b.Compute("y", {3, 10}, [&](Iters s) {
    return ir::Make(Op::kDiv, {e(s[0], s[1]), t(s[0])});
  });
  const ir::Program program = Lowered(b.Build({y}));
  Arena arena(program);
  RandomInputs(program, arena, 2);
  ASSERT_TRUE(Interpret(program, arena.tensors).ok());
  for (int row = 0; row < 3; ++row) {
    double largest = -INFINITY, total = 0;
    for (int k = 0; k < 10; ++k) largest = std::fmax(largest, arena.Get(0, row * 10 + k));
    for (int k = 0; k < 10; ++k) total += std::exp(arena.Get(0, row * 10 + k) - largest);
    for (int k = 0; k < 10; ++k) {
      EXPECT_NEAR(arena.Get(1, row * 10 + k),
                  std::exp(arena.Get(0, row * 10 + k) - largest) / total, 1e-6);
    }
  }
  ExpectPointsAgree(program, arena);
}

// One stage per (operator, type): both oracles against <cmath> and plain C++.
TEST(Interpreter, EveryFloatFunction) {
  struct Row {
    Op op;
    double (*f)(double);
  };
  const Row rows[] = {
      {Op::kNeg, [](double v) { return -v; }},
      {Op::kAbs, [](double v) { return std::fabs(v); }},
      {Op::kSign, [](double v) { return double((v > 0) - (v < 0)); }},
      {Op::kExp, [](double v) { return std::exp(v); }},
      {Op::kLog, [](double v) { return std::log(v); }},
      {Op::kSqrt, [](double v) { return std::sqrt(v); }},
      {Op::kTanh, [](double v) { return std::tanh(v); }},
      {Op::kErf, [](double v) { return std::erf(v); }},
      {Op::kSin, [](double v) { return std::sin(v); }},
      {Op::kCos, [](double v) { return std::cos(v); }},
      {Op::kTan, [](double v) { return std::tan(v); }},
      {Op::kAsin, [](double v) { return std::asin(v); }},
      {Op::kAcos, [](double v) { return std::acos(v); }},
      {Op::kAtan, [](double v) { return std::atan(v); }},
      {Op::kSinh, [](double v) { return std::sinh(v); }},
      {Op::kCosh, [](double v) { return std::cosh(v); }},
      {Op::kAsinh, [](double v) { return std::asinh(v); }},
      {Op::kAcosh, [](double v) { return std::acosh(v); }},
      {Op::kAtanh, [](double v) { return std::atanh(v); }},
      {Op::kFloor, [](double v) { return std::floor(v); }},
      {Op::kCeil, [](double v) { return std::ceil(v); }},
      {Op::kRound, [](double v) { return std::nearbyint(v); }},
  };
  for (DType dtype : {DType::kF32, DType::kF64}) {
    for (const Row& row : rows) {
      tensor::Builder b("f");
      auto x = b.Input("x", dtype, {41});
      auto y = b.Compute("y", {41}, [&](Iters s) { return ir::Make(row.op, {x(s[0])}); });
      const ir::Program program = Lowered(b.Build({y}));
      Arena arena(program);
      for (int k = 0; k < 41; ++k)
        arena.Set(0, k, (k - 20) / 4.0);  // halves included: rounding to even shows
      ASSERT_TRUE(Interpret(program, arena.tensors).ok());
      for (int k = 0; k < 41; ++k) {
        const double want = row.f((k - 20) / 4.0), got = arena.Get(1, k);
        const double slack = (dtype == DType::kF32 ? 1e-6 : 1e-14) * std::fmax(1, std::fabs(want));
        EXPECT_TRUE((std::isnan(want) && std::isnan(got)) || want == got ||
                    std::fabs(want - got) <= slack)
            << ir::Name(row.op) << " " << (k - 20) / 4.0 << ": " << got << ", not " << want;
      }
      ExpectPointsAgree(program, arena);
    }
  }
}

TEST(Interpreter, SinglePrecisionIsRoundedAtEveryStep) {
  tensor::Builder b("r");
  auto x = b.Input("x", DType::kF32, {1});
  auto y = b.Compute("y", {1}, [&](Iters s) { return (x(s[0]) + Float(1)) - Float(1); });
  const ir::Program program = Lowered(b.Build({y}));
  Arena arena(program);
  arena.Set(0, 0, 1e-9);
  ASSERT_TRUE(Interpret(program, arena.tensors).ok());
  EXPECT_EQ(arena.Get(1, 0), 0) << "in double precision it would be about 1e-9";
}

TEST(Interpreter, ReadingAnUnwrittenElementIsFound) {
  const ir::Program program = Parsed(R"(program p() -> (y: f32[4]) {
    alloc t: f32[4] global {
      for i in 3 { t[i] = 1.0 }
      for j in 4 { y[j] = t[j] }
    }
  })");
  Arena arena(program);
  const absl::Status status = Interpret(program, arena.tensors);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(std::string(status.message()).find("t[3] is read before"), std::string::npos) << status;
  EXPECT_TRUE(Interpret(program, arena.tensors, {.check_uninitialized = false}).ok());
}

TEST(Interpreter, MemoryOfAnAllocationIsForgottenBetweenItsLives) {
  const ir::Program program = Parsed(R"(program p() -> (y: f32[2]) {
    for i in 2 {
      alloc t: f32[1] local {
        if (i == 0) { t[0] = 1.0 }
        y[i] = t[0]
      }
    }
  })");
  Arena arena(program);
  const absl::Status status = Interpret(program, arena.tensors);
  EXPECT_NE(std::string(status.message()).find("t[0] is read before"), std::string::npos) << status;
}

TEST(Interpreter, AnOutputWithHolesIsFound) {
  const ir::Program program =
      Parsed("program p() -> (y: f32[2, 2]) { for i in 2 { y[i, i] = 1.0 } }");
  Arena arena(program);
  const absl::Status status = Interpret(program, arena.tensors);
  EXPECT_NE(std::string(status.message()).find("y[0, 1] is never written"), std::string::npos)
      << status;
}

TEST(Interpreter, AccessesOutsideTheShapeAreFound) {
  struct Row {
    const char* text;
    const char* message;
  };
  const Row rows[] = {
      // Element 4 exists in memory, but not in that row.
      {"program p(x: f32[2, 3]) -> (y: f32[2]) { for i in 2 { y[i] = x[0, (i + 2)] } }",
       "index 1 of x is 3"},
      {"program p(x: f32[3]) -> (y: f32[2]) { for i in 2 { y[i] = x[(i - 1)] } }",
       "index 0 of x is -1"},
      {"program p(x: f32[3]) -> (y: f32[2]) { for i in 3 { y[i] = x[i] } }", "index 0 of y is 2"},
      {"program p(x: i64[3]) -> (y: f32[2]) { for i in 2 { y[x[i]] = 1.0 } }",
       "index 0 of y is -5"},
  };
  for (const Row& row : rows) {
    const ir::Program program = Parsed(row.text);
    Arena arena(program);
    const absl::Status status = Interpret(program, arena.tensors);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_NE(std::string(status.message()).find(row.message), std::string::npos) << status;
  }
}

TEST(Interpreter, GuardsProtectLoads) {
  const ir::Program program = Parsed(R"(program p(x: f32[3]) -> (y: f32[5], b: bool[5]) {
    for i in 5 {
      y[i] = select(((1 <= i) && (i < 4)), x[(i - 1)], -1.0)
      b[i] = (((i < 1) || (3 < i)) || (x[(i - 1)] < -3.5))
    }
  })");
  ASSERT_TRUE(ir::Verify(program).ok()) << ir::Verify(program);
  Arena arena(program);
  ASSERT_TRUE(Interpret(program, arena.tensors).ok());
  const double want[] = {-1, -5, -4, -3, -1}, truth[] = {1, 1, 1, 0, 1};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(arena.Get(1, i), want[i]);
    EXPECT_EQ(arena.Get(2, i), truth[i]);
  }
}

TEST(Interpreter, GuardedSplitRunsEachInstanceOnce) {
  const ir::Program program = Parsed(R"(program p(x: f32[10]) -> (y: f32[10], s: f32[]) {
    for i.0 in 3 { for i.1 in 4 {
      block copy(v < 10 spatial = ((i.0 * 4) + i.1)) where (((i.0 * 4) + i.1) < 10) { y[v] = x[v] }
    } }
    for k.0 in 3 { for k.1 in 4 {
      block total(r < 10 reduce = ((k.0 * 4) + k.1)) where (((k.0 * 4) + k.1) < 10) sum init 0.0 { s[] = x[r] }
    } }
  })");
  ASSERT_TRUE(ir::Verify(program).ok()) << ir::Verify(program);
  Arena arena(program);
  ASSERT_TRUE(Interpret(program, arena.tensors).ok());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(arena.Get(1, i), i - 5);
  EXPECT_EQ(arena.Get(2, 0), -5);
}

TEST(Interpreter, ParallelLoopsMayRunInAnyOrder) {
  const ir::Program good = Parsed(R"(program p(x: f32[8]) -> (y: f32[8]) {
    for i in 8 parallel { alloc t: f32[1] local { t[0] = (x[i] * 2.0)
      y[i] = (t[0] + 1.0) } }
  })");
  ASSERT_TRUE(ir::Verify(good, ir::Level::kLowered).ok());
  Arena forwards(good), backwards(good);
  ASSERT_TRUE(Interpret(good, forwards.tensors).ok());
  ASSERT_TRUE(Interpret(good, backwards.tensors, {.reverse_parallel = true}).ok());
  EXPECT_EQ(forwards.memory, backwards.memory);
  EXPECT_EQ(forwards.Get(1, 7), 5);

  // A claim of independence that is false shows as a difference.
  const ir::Program bad = Parsed(R"(program p(x: f32[8]) -> (y: f32[9]) {
    y[0] = 0.0
    for i in 8 parallel { y[(i + 1)] = (select((i < 1), 0.0, 1.0) + x[i]) }
    for j in 8 parallel { y[(j + 1)] = (y[j] + x[j]) }
  })");
  Arena a(bad), b(bad);
  ASSERT_TRUE(Interpret(bad, a.tensors).ok());
  ASSERT_TRUE(Interpret(bad, b.tensors, {.reverse_parallel = true}).ok());
  EXPECT_NE(a.memory, b.memory);
}

TEST(Interpreter, GpuLoopsRunAsLoops) {
  const ir::Program plain = Parsed(R"(program p(x: f32[8]) -> (y: f32[8]) {
    for b in 2 blockIdx.x { for t in 4 threadIdx.x { y[((b * 4) + t)] = x[((b * 4) + t)] } barrier }
  })");
  ASSERT_TRUE(ir::Verify(plain).ok()) << ir::Verify(plain);
  Arena arena(plain);
  ASSERT_TRUE(Interpret(plain, arena.tensors).ok());
  EXPECT_EQ(arena.Get(1, 6), 1);
}

TEST(Interpreter, RefusesWrongBuffersAndTooManySteps) {
  const ir::Program program =
      Parsed("program p(x: f32[8]) -> (y: f32[8]) { for i in 8 { y[i] = x[i] } }");
  Arena arena(program);
  EXPECT_EQ(Interpret(program, std::span(arena.tensors).first(1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Interpret(program, arena.tensors, {.max_steps = 7}).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Interpret(program, arena.tensors, {.max_steps = 8}).ok());
  arena.tensors[0].shape = {4, 2};
  EXPECT_EQ(Interpret(program, arena.tensors).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Interpreter, IntegersWrapAndDivideAsTheGrammarSays) {
  const ir::Program program = Parsed(
      R"(program p(x: i64[3]) -> (a: i64[3], b: i64[3], c: i64[3], d: i8[3], e: u8[3], f: i32[1]) {
    for i in 3 {
      a[i] = (x[i] / 2)
      b[i] = (x[i] // 2)
      c[i] = (x[i] % 3)
      d[i] = (i8(x[i]) * 100i8)
      e[i] = u8((x[i] * 100))
    }
    f[0] = i32(3000000000.0)
  })");
  ASSERT_TRUE(ir::Verify(program).ok()) << ir::Verify(program);
  Arena arena(program);  // x = -5, -4, -3
  ASSERT_TRUE(Interpret(program, arena.tensors).ok());
  const double want[5][3] = {{-2, -2, -1}, {-3, -2, -2}, {1, 2, 0}, {12, 112, -44}, {12, 112, 212}};
  for (int t = 0; t < 5; ++t) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(arena.Get(t + 1, i), want[t][i]) << t << " " << i;
  }
  EXPECT_EQ(arena.Get(6, 0), 2147483647) << "out of range saturates";
}

TEST(Interpreter, DividingAnIntegerByZeroGivesZero) {
  const ir::Program program = Parsed(
      R"(program p(x: i64[6]) -> (q: i64[6], f: i64[6], r: i64[6], c: i64[6]) {
    for i in 6 {
      q[i] = ((i - 7) / x[i])
      f[i] = ((i - 7) // x[i])
      r[i] = ((i - 7) % x[i])
      c[i] = ((7 / 0) + ((7 // 0) + (7 % 0)))
    }
  })");
  Arena arena(program);  // x = -5, -4, .., 0
  ASSERT_TRUE(Interpret(program, arena.tensors).ok());
  EXPECT_EQ(arena.Get(1, 4), 3);
  for (int t = 1; t <= 4; ++t) EXPECT_EQ(arena.Get(t, 5), 0) << t;
}

TEST(EvaluatePoints, RefusesWhatIsNotNaive) {
  const ir::Program program =
      Parsed(R"(program p(x: f32[4]) -> (y: f32[4]) { for i in 4 { y[i] = x[i] } })");
  Arena arena(program);
  const OutputPoint point{0, 0};
  EXPECT_EQ(EvaluatePoints(program, std::span(arena.tensors).first(1), {&point, 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Integers of every width are those of C++, with wrapping that C++ leaves undefined and division by
// zero that it forbids.
template <typename T>
void CompareIntegers(ir::DType dtype) {
  using Wide = __int128;
  SCOPED_TRACE(std::string(ir::Name(dtype)));
  EXPECT_EQ(ir::LowestInt(dtype), static_cast<int64_t>(std::numeric_limits<T>::min()));
  EXPECT_EQ(ir::HighestInt(dtype), static_cast<int64_t>(std::numeric_limits<T>::max()));
  std::mt19937_64 random(1);
  const auto draw = [&] {
    const uint64_t bits = random();
    switch (random() % 4) {
      case 0:
        return static_cast<T>(bits % 5 - 2);
      case 1:
        return static_cast<T>(std::numeric_limits<T>::max() - static_cast<T>(bits % 3));
      case 2:
        return static_cast<T>(std::numeric_limits<T>::min() + static_cast<T>(bits % 3));
      default:
        return static_cast<T>(bits);
    }
  };
  for (int k = 0; k < 20000; ++k) {
    const T a = draw(), b = draw();
    const Wide x = a, y = b;
    const Wide quotient = y == 0 ? 0 : x / y;
    const Wide floor = y == 0 ? 0 : quotient - (x % y != 0 && (x < 0) != (y < 0));
    const std::pair<ir::Op, Wide> expected[] = {
        {ir::Op::kAdd, x + y},
        {ir::Op::kSub, x - y},
        {ir::Op::kMul, static_cast<Wide>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y))},
        {ir::Op::kDiv, quotient},
        {ir::Op::kFloorDiv, floor},
        {ir::Op::kFloorMod, y == 0 ? 0 : x - floor * y},
        {ir::Op::kMin, std::min(x, y)},
        {ir::Op::kMax, std::max(x, y)},
        {ir::Op::kLt, x < y},
        {ir::Op::kLe, x <= y},
        {ir::Op::kEq, x == y},
        {ir::Op::kNe, x != y},
        {ir::Op::kNeg, -x},
        {ir::Op::kAbs, x < 0 ? -x : x},
        {ir::Op::kSign, (x > 0) - (x < 0)}};
    for (const auto& [op, value] : expected) {
      const auto found = ir::EvalInt(op, dtype, static_cast<int64_t>(a), static_cast<int64_t>(b));
      ASSERT_TRUE(found.has_value());
      ASSERT_EQ(*found, static_cast<int64_t>(static_cast<T>(value)))
          << ir::Name(op) << " of " << +a << " and " << +b;
    }
    ASSERT_EQ(ir::IntToFloat(static_cast<int64_t>(a), dtype, ir::DType::kF64),
              static_cast<double>(a));
    ASSERT_EQ(ir::IntToFloat(static_cast<int64_t>(a), dtype, ir::DType::kF32),
              static_cast<float>(a));
  }
  const double two = std::ldexp(1, 8 * sizeof(T));
  EXPECT_EQ(ir::FloatToInt(two, dtype), ir::HighestInt(dtype));
  EXPECT_EQ(ir::FloatToInt(-two, dtype), ir::LowestInt(dtype));
  EXPECT_EQ(ir::FloatToInt(std::nan(""), dtype), 0);
  EXPECT_EQ(ir::FloatToInt(99.9, dtype), 99);
}

TEST(Arithmetic, IntegersAreThoseOfCpp) {
  CompareIntegers<int8_t>(ir::DType::kI8);
  CompareIntegers<uint8_t>(ir::DType::kU8);
  CompareIntegers<int16_t>(ir::DType::kI16);
  CompareIntegers<uint16_t>(ir::DType::kU16);
  CompareIntegers<int32_t>(ir::DType::kI32);
  CompareIntegers<uint32_t>(ir::DType::kU32);
  CompareIntegers<int64_t>(ir::DType::kI64);
  CompareIntegers<uint64_t>(ir::DType::kU64);
}

}  // namespace
}  // namespace heddle::interpreter
