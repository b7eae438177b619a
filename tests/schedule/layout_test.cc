// The primitives that change what is stored and how: Winograd's form of a convolution, and packing.
// Random shapes against the interpreter, and every refusal by its message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/schedule/primitives/primitives.h"
#include "compiler/schedule/space.h"
#include "compiler/schedule/trace.h"
#include "compiler/tensor/expression.h"
#include "tests/schedule/oracle.h"

namespace heddle::schedule {
namespace {

using ir::DType;
using ir::Expr;
using tensor::Iters;
using tensor::Tensor;
using ::testing::HasSubstr;

int64_t Draw(Rng& rng, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}

// "conv" of x by the const w, and "relu" of it where asked for.
struct Shape {
  int64_t batch = 1, rows = 6, columns = 6, inputs = 4, outputs = 4;
  int64_t kernel = 3, stride = 1, groups = 1;
  DType dtype = DType::kF32;
  bool relu = false;
};

ir::Program Convolution(const Shape& s) {
  tensor::Builder b("convolution");
  const int64_t height = (s.rows - 1) * s.stride + s.kernel;
  const int64_t width = (s.columns - 1) * s.stride + s.kernel;
  const int64_t inputs = s.inputs / s.groups, outputs = s.outputs / s.groups;
  Tensor x = b.Input("x", s.dtype, {s.batch, height, width, s.inputs});
  Tensor w = b.Input("w", s.dtype, {s.kernel, s.kernel, inputs, s.outputs}, true);
  Tensor result = b.Reduce(
      "conv", {s.batch, s.rows, s.columns, s.outputs}, {s.kernel, s.kernel, inputs},
      ir::ReduceOp::kSum, [&](Iters i, Iters r) {
        Expr channel = r[2];
        if (s.groups > 1) {
          channel = channel + ir::FloorDiv(i[3], ir::Int(outputs)) * ir::Int(inputs);
        }
        return x(i[0], i[1] * ir::Int(s.stride) + r[0], i[2] * ir::Int(s.stride) + r[1], channel) *
               w(r[0], r[1], r[2], i[3]);
      });
  if (s.relu) {
    const Tensor conv = result;
    result = b.Compute("relu", conv.shape(), [&](Iters i) {
      return ir::Make(ir::Op::kMax, {conv(i[0], i[1], i[2], i[3]), ir::Zero(conv.dtype())});
    });
  }
  return tensor::LowerToLoops(b.Build({result}).value()).value();
}

// The program after the trace, which is written down and read again first.
absl::StatusOr<ir::Program> After(const ir::Program& program, const std::string& text) {
  const auto trace = ParseTrace(text);
  if (!trace.ok()) return trace.status();
  EXPECT_EQ(ToText(*trace), text);
  return Replay(program, *trace);
}

std::string Refusal(const ir::Program& program, const std::string& text) {
  return std::string(After(program, text).status().message());
}

// Largest difference, relative to the largest expected magnitude.
double Difference(const ir::Program& expected, const ir::Program& found, uint64_t seed) {
  const auto a = RunOnRandomInputs(expected, seed), b = RunOnRandomInputs(found, seed);
  EXPECT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  if (!a.ok() || !b.ok() || a->size() != b->size()) return INFINITY;
  double difference = 0, scale = 1e-30;
  for (size_t k = 0; k < a->size(); ++k) {
    for (size_t i = 0; i < (*a)[k].size(); ++i) {
      if (!std::isfinite((*b)[k][i])) return INFINITY;
      difference = std::max(difference, std::fabs((*a)[k][i] - (*b)[k][i]));
      scale = std::max(scale, std::fabs((*a)[k][i]));
    }
  }
  return difference / scale;
}

// A tenth of what numerics.h allows Winograd's form: sums here are short. A wrong sign or entry of
// a matrix gives a difference near one.
constexpr double kWinogradDifference = 1e-4;

TEST(Winograd, RandomShapesGiveTheSameResult) {
  for (int64_t m : {2, 4, 6}) {
    Rng rng(static_cast<uint64_t>(m));
    double worst = 0;
    for (uint64_t seed = 1; seed <= 30; ++seed) {
      Shape s;
      s.batch = Draw(rng, 1, 2);
      s.rows = Draw(rng, m, 2 * m + 3);  // mostly not multiples of m
      s.columns = Draw(rng, m, 2 * m + 3);
      s.inputs = Draw(rng, 1, 7);
      s.outputs = Draw(rng, 1, 7);
      s.relu = Draw(rng, 0, 1) != 0;
      // Sums of halves are f32. Where they are stored, they round in both programs.
      s.dtype = std::array{DType::kF32, DType::kF16, DType::kBF16}[Draw(rng, 0, 2)];
      const double rounding = s.dtype == DType::kF32   ? 0
                              : s.dtype == DType::kF16 ? 0x1p-10
                                                       : 0x1p-7;
      SCOPED_TRACE(absl::StrCat("m ", m, " seed ", seed));
      const ir::Program naive = Convolution(s);
      const auto program = After(naive, absl::StrCat("winograd conv ", m, "\n"));
      ASSERT_TRUE(program.ok()) << program.status();
      ASSERT_TRUE(ir::Verify(*program).ok()) << ir::Verify(*program);
      const double difference = Difference(naive, *program, seed);
      EXPECT_LT(difference, kWinogradDifference + rounding);
      if (rounding == 0) worst = std::max(worst, difference);
    }
    RecordProperty(absl::StrCat("worst_", m), absl::StrCat(worst));
  }
}

// The sum is over a tile's a x a places: (m + 2)^2 / m^2 products a result instead of nine.
TEST(Winograd, MultipliesLess) {
  const ir::Program naive = Convolution({.rows = 12, .columns = 12, .inputs = 3, .outputs = 5});
  const auto program = After(naive, "winograd conv 4\n");
  ASSERT_TRUE(program.ok()) << program.status();
  const std::string text = ir::Print(*program);
  EXPECT_THAT(text, HasSubstr("conv.product_buf: f32[6, 6, 1, 3, 3, 5]"));
  EXPECT_THAT(text, HasSubstr("conv.weight_buf: f32[6, 6, 3, 5]"));
  EXPECT_EQ(text.find("conv.tiles"), std::string::npos) << "12 is a multiple of 4";
  const auto odd = After(Convolution({.rows = 13}), "winograd conv 4\n");
  ASSERT_TRUE(odd.ok()) << odd.status();
  EXPECT_THAT(ir::Print(*odd), HasSubstr("conv.tiles_buf: f32[1, 18, 10, 4]"));
}

TEST(Winograd, Refusals) {
  const ir::Program naive = Convolution({});
  EXPECT_THAT(Refusal(naive, "winograd conv 3\n"), HasSubstr("a tile of 3 x 3"));
  EXPECT_THAT(Refusal(naive, "winograd conv 0\n"), HasSubstr("not one of 2, 4 and 6"));
  EXPECT_THAT(Refusal(naive, "winograd conv 2 2\n"), HasSubstr("takes one integer"));
  EXPECT_THAT(Refusal(naive, "winograd nothing 2\n"), HasSubstr("nothing"));
  const char* other = "is no 3 x 3 convolution of stride one in a naive nest";
  EXPECT_THAT(Refusal(Convolution({.stride = 2}), "winograd conv 2\n"), HasSubstr(other));
  EXPECT_THAT(Refusal(Convolution({.kernel = 5}), "winograd conv 2\n"), HasSubstr(other));
  EXPECT_THAT(Refusal(Convolution({.kernel = 1}), "winograd conv 2\n"), HasSubstr(other));
  EXPECT_THAT(Refusal(Convolution({.groups = 2}), "winograd conv 2\n"), HasSubstr(other));
  EXPECT_THAT(Refusal(Convolution({.dtype = DType::kI32}), "winograd conv 2\n"), HasSubstr(other));
  EXPECT_THAT(Refusal(Convolution({.relu = true}), "winograd relu 2\n"), HasSubstr(other));
  EXPECT_THAT(Refusal(naive, "split conv.i3 2 2\nwinograd conv 2\n"), HasSubstr(other));
  EXPECT_THAT(Refusal(naive, "winograd conv 2\nwinograd conv 2\n"), HasSubstr(other));
  EXPECT_THAT(Refusal(Convolution({.rows = 3}), "winograd conv 4\n"), HasSubstr("than a tile"));
  EXPECT_THAT(Refusal(Convolution({.columns = 5}), "winograd conv 6\n"), HasSubstr("than a tile"));
}

TEST(Winograd, RefusesNamesThatExist) {
  tensor::Builder b("names");
  Tensor x = b.Input("x", DType::kF32, {1, 6, 6, 2});
  Tensor copy = b.Compute("copy", {1, 6, 6, 2},
                          [&](Iters i) { return x(i[0], i[1], i[2], i[3]) * ir::Float(2); });
  Tensor w = b.Input("w", DType::kF32, {3, 3, 2, 2});
  Tensor conv =
      b.Reduce("conv", {1, 4, 4, 2}, {3, 3, 2}, ir::ReduceOp::kSum, [&](Iters s, Iters r) {
        return copy(s[0], s[1] + r[0], s[2] + r[1], r[2]) * w(r[0], r[1], r[2], s[3]);
      });
  const std::string text = ir::Print(tensor::LowerToLoops(b.Build({conv}).value()).value());
  const ir::Program naive = ir::Parse(absl::StrReplaceAll(text, {{"copy", "conv.data"}})).value();
  EXPECT_THAT(Refusal(naive, "winograd conv 2\n"), HasSubstr("exists already in the program"));
  // A block computed in the convolution's own loops would vanish with them.
  EXPECT_THAT(Refusal(ir::Parse(text).value(), "compute_at copy conv.i0\nwinograd conv 2\n"),
              HasSubstr("shares its loops with another block"));
}

ir::Program Product(int64_t m, int64_t n, int64_t k) {
  tensor::Builder b("product");
  Tensor x = b.Input("x", DType::kF32, {m, k});
  Tensor w = b.Input("w", DType::kF32, {k, n}, true);
  Tensor mm = b.Reduce("conv", {m, n}, {k}, ir::ReduceOp::kSum,
                       [&](Iters s, Iters r) { return x(s[0], r[0]) * w(r[0], s[1]); });
  return tensor::LowerToLoops(b.Build({mm}).value()).value();
}

TEST(Pack, RandomLayoutsGiveTheSameResult) {
  int uneven = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    Rng rng(seed);
    ir::Program naive = seed % 2 ? Convolution({.rows = Draw(rng, 1, 4),
                                                .columns = 3,
                                                .inputs = Draw(rng, 1, 5),
                                                .outputs = Draw(rng, 1, 9),
                                                .relu = true})
                                 : Product(Draw(rng, 1, 4), Draw(rng, 1, 11), Draw(rng, 1, 7));
    const std::string buffer = Draw(rng, 0, 3) ? "w" : "x";
    std::vector<int64_t> shape;
    for (const ir::BufferRef& input : naive.inputs) {
      if (input->name == buffer) shape = input->shape;
    }
    std::vector<int64_t> numbers, places(shape.size());
    for (int64_t extent : shape) {
      numbers.push_back(Draw(rng, 1, 2 * extent - 1));
      uneven += extent % numbers.back() != 0;
    }
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), rng);
    numbers.insert(numbers.end(), places.begin(), places.end());
    Trace trace{{{Primitive::kPack, {"conv", buffer}, numbers}}};
    SCOPED_TRACE(ToText(trace));
    const auto program = After(naive, ToText(trace));
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_THAT(ir::Print(*program), HasSubstr(absl::StrCat("block ", buffer, ".pack(")));
    EXPECT_EQ(Difference(naive, *program, seed), 0) << "the sum runs as before";
    const absl::Status whole = CheckTrace(naive, trace, seed);
    EXPECT_TRUE(whole.ok()) << whole;
  }
  EXPECT_GT(uneven, 50);
}

// The layout that primitives.h describes.
TEST(Pack, PanelsOfOutputChannels) {
  const auto program =
      After(Convolution({.inputs = 5, .outputs = 70}), "pack conv w 1 1 1 32 3 0 1 2\n");
  ASSERT_TRUE(program.ok()) << program.status();
  const std::string text = ir::Print(*program);
  EXPECT_THAT(text, HasSubstr("w.pack_buf: f32[3, 3, 3, 5, 32]"));
  EXPECT_THAT(text, HasSubstr("w.pack_buf[w.pack.v0, w.pack.v1, w.pack.v2, w.pack.v3, w.pack.v4] = "
                              "select((((w.pack.v0 * 32) + w.pack.v4) < 70), "
                              "w[w.pack.v1, w.pack.v2, w.pack.v3, ((w.pack.v0 * 32) + w.pack.v4)], "
                              "0.0)"));
}

TEST(Pack, Refusals) {
  const ir::Program naive = Convolution({.outputs = 8, .relu = true});
  EXPECT_THAT(Refusal(naive, "pack conv bias 1 0\n"), HasSubstr("does not read buffer `bias`"));
  EXPECT_THAT(Refusal(naive, "pack conv w 1 1 1 4 3 0 1\n"), HasSubstr("for each dimension"));
  EXPECT_THAT(Refusal(naive, "pack conv w 1 1 1 0 3 0 1 2\n"), HasSubstr("positive"));
  EXPECT_THAT(Refusal(naive, "pack conv w 1 1 1 16 3 0 1 2\n"), HasSubstr("more than half"));
  EXPECT_TRUE(After(naive, "pack conv w 1 1 1 15 3 0 1 2\n").ok());
  EXPECT_THAT(Refusal(naive, "pack conv w 1 1 1 4 3 0 1 3\n"), HasSubstr("no permutation"));
  EXPECT_THAT(Refusal(naive, "pack conv w 1 1 1 4 3 0 1 4\n"), HasSubstr("no permutation"));
  EXPECT_THAT(Refusal(naive, "pack conv w 1 1 1 4 3 0 1 2\npack conv w 1 1 1 4 3 0 1 2\n"),
              HasSubstr("does not read buffer `w`"));
  EXPECT_THAT(Refusal(naive, "compute_at conv relu.i1\npack relu conv_buf 1 1 1 4 0 1 2 3\n"),
              HasSubstr("shares loops with the block that makes `conv_buf`"));
}

}  // namespace
}  // namespace heddle::schedule
