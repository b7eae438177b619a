// What is chosen without measuring.
#include "compiler/schedule/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/analysis/linear.h"
#include "compiler/ir/text.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/lower.h"
#include "compiler/tensor/expression.h"
#include "tests/schedule/oracle.h"
#include "tests/schedule/workloads.h"

namespace heddle::schedule {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A matrix product with constant weights.
ir::Program Product(int64_t rows, int64_t columns, int64_t steps) {
  tensor::Builder b("product");
  const tensor::Tensor x = b.Input("x", ir::DType::kF32, {rows, steps}),
                       w = b.Input("w", ir::DType::kF32, {steps, columns}, /*constant=*/true);
  const tensor::Tensor y =
      b.Reduce("product", {rows, columns}, {steps}, ir::ReduceOp::kSum,
               [&](tensor::Iters s, tensor::Iters r) { return x(s[0], r[0]) * w(r[0], s[1]); });
  return tensor::LowerToLoops(b.Build({y}).value()).value();
}

// The default of a 3 x 3 convolution is Winograd's where that pays and may be.
TEST(Default, Forms) {
  const auto text = [](const char* name, bool winograd, bool constant) {
    machine::TargetInfo target = Wide();
    target.target.winograd = winograd;
    ir::Program naive = MakeWorkload(name).value();
    std::string program = ir::Print(naive);
    if (!constant) program = absl::StrReplaceAll(program, {{" const", ""}});
    return ToText(DefaultTrace(ir::Parse(program).value(), target).value());
  };
  EXPECT_THAT(text("C2", true, true), HasSubstr("winograd conv2d 4"));
  EXPECT_THAT(text("C9", true, true), HasSubstr("reorder conv2d.product.0.0 conv2d.product.1.0 "))
      << "products share nothing: one after another, whatever is outermost in each";
  EXPECT_THAT(text("C2", false, true), Not(HasSubstr("winograd")));
  EXPECT_THAT(text("C2", true, false), Not(HasSubstr("winograd")))
      << "weights would be transformed at every call";
  EXPECT_THAT(text("C4", true, true), Not(HasSubstr("winograd"))) << "stride 2";
  // Four tiles of 4 x 4 do not pay for four times the weights, sixteen of 2 x 2 do for twice.
  EXPECT_THAT(text("C12", true, true), HasSubstr("winograd conv2d 2"));
  EXPECT_THAT(text("C12", false, true), Not(HasSubstr("winograd")));
  EXPECT_THAT(text("7x64-64k3s1", true, true), Not(HasSubstr("winograd")))
      << "few channels, few tiles";
  EXPECT_THAT(text("56x3-64k3s1", true, true), Not(HasSubstr("winograd"))) << "few channels";
  machine::TargetInfo off = Wide();
  off.target.winograd = false;
  EXPECT_NE(MakeSpace(MakeWorkload("C2").value(), off).value()->Describe(0), "form");
}

// Tiles of F(4) that are mostly beyond a small image's end multiply as much as the direct form, by
// four times the weights; however many images there are.
TEST(Default, FormsOfABatchOfSmallImages) {
  const auto text = [](int64_t size) {
    const std::string in = std::to_string(size + 2), out = std::to_string(size);
    const auto naive = ir::Parse(
        "program p(X: f32[16, " + in + ", " + in +
        ", 512], W: f32[3, 3, 512, 512] const) -> (Y: "
        "f32[16, " +
        out + ", " + out + ", 512]) { for n in 16 { for i in " + out + " { for j in " + out +
        " { for o in 512 { for h in 3 { for w in 3 { for k in 512 { block b("
        "vn < 16 spatial = n, vi < " +
        out + " spatial = i, vj < " + out +
        " spatial = j, vo < 512 "
        "spatial = o, vh < 3 reduce = h, vw < 3 reduce = w, vk < 512 reduce = k) sum init 0.0 { "
        "Y[vn, vi, vj, vo] = (X[vn, (vi + vh), (vj + vw), vk] * W[vh, vw, vk, vo]) } } } } } } } } "
        "}");
    return ToText(DefaultTrace(naive.value(), Wide()).value());
  };
  EXPECT_THAT(text(2), HasSubstr("winograd b 2"));
  EXPECT_THAT(text(4), HasSubstr("winograd b 4"));
}

// A convolution in groups of that many channels.
std::string Grouped(int64_t channels, int64_t group) {
  const std::string c = std::to_string(channels), g = std::to_string(group);
  return "program p(X: f32[9, 9, " + c + "], W: f32[3, 3, " + g + ", " + c +
         "] const) -> (Y: f32[7, 7, " + c + "]) { for i in 7 { for j in 7 { for o in " + c +
         " { for h in 3 { for w in 3 { for k in " + g +
         " { block b(vi < 7 spatial = i, vj < 7 spatial = j, vo < " + c +
         " spatial = o, vh < 3 reduce = h, vw < 3 reduce = w, vk < " + g +
         " reduce = k) sum init 0.0 { Y[vi, vj, vo] = (X[(vi + vh), (vj + vw), (((vo // " + g +
         ") * " + g + ") + vk)] * W[vh, vw, vk, vo]) } } } } } } } }";
}

// Channels of a group as wide as several vectors read the same element of the image, and a tile may
// hold those of one group or more. Vectors that reach across two groups would load an element for
// each lane: narrower ones do not, and one of these takes fewest instructions.
TEST(Default, VectorsStayWithinAGroup) {
  const auto text = [](int64_t channels, int64_t group) {
    return ToText(DefaultTrace(ir::Parse(Grouped(channels, group)).value(), Wide()).value());
  };
  EXPECT_THAT(text(1024, 32), HasSubstr("split o 16 1 4 16"));
  EXPECT_THAT(text(96, 24), HasSubstr("split o 12 1 1 8"));
  EXPECT_THAT(text(160, 40), HasSubstr("split o 20 1 1 8"));
}

// A vector of which each lane takes its group's element stays in a register beside the
// accumulators: a tile of 28 of these, which would fit without, has no room for as many.
TEST(Default, PermutedVectorsTakeRegisters) {
  const std::string text = ToText(DefaultTrace(ir::Parse(Grouped(128, 4)).value(), Wide()).value());
  EXPECT_THAT(text, HasSubstr("split o 4 1 2 16")) << text;
  EXPECT_THAT(text, HasSubstr("split i 7 1 1")) << text;
  EXPECT_THAT(text, HasSubstr("split j 1 1 7")) << text;
}

// A tile runs along a row, of a padded image too (C4): the rows of a column are far apart and share
// sets of the cache. Where pixels do, there are no more of them than ways: not 14 of 12.
TEST(Default, TilesAndSetsOfTheCache) {
  machine::TargetInfo target = Wide();
  target.target.threads = 1;
  target.l1_bytes = 48 << 10;
  target.l2_bytes = 2 << 20;
  const std::map<std::string, std::vector<std::string>> splits = {
      {"C4", {"conv2d.i1 28 1 1", "conv2d.i2 4 1 7"}},
      {"14x1024-256k1s1", {"conv2d.i1 14 1 1", "conv2d.i2 2 1 7"}}};
  for (const auto& [name, parts] : splits) {
    const std::string text = ToText(DefaultTrace(MakeWorkload(name).value(), target).value());
    for (const std::string& part : parts)
      EXPECT_THAT(text, HasSubstr("split " + part)) << name << "\n" << text;
  }
}

// The default of a convolution: the weights packed, the epilogue inside the tile, accumulators in
// registers, vectors along channels.
TEST(Default, OfAConvolution) {
  auto naive = MakeWorkload("C2");
  ASSERT_TRUE(naive.ok());
  machine::TargetInfo direct = Wide();
  direct.target.winograd = false;
  auto trace = DefaultTrace(*naive, direct);
  ASSERT_TRUE(trace.ok()) << trace.status();
  std::string text = ToText(*trace);
  for (const char* step :
       {"pack conv2d w", "set_scope conv2d local", "reverse_compute_at relu conv2d.i",
        "vectorize conv2d.i3.3", "decompose_reduction conv2d", "parallel conv2d"}) {
    EXPECT_NE(text.find(step), std::string::npos) << step << " is not in\n" << text;
  }
}

// Few rows that each pass over weights from beyond the second-level cache: the weights go in
// blocks, each used for all rows, and the results wait in the first level; unless threads would be
// left without a panel of their own, or the number of steps is prime. Points with blocks that do
// not divide the reduction evenly, or cut it in another axis, are as right.
TEST(Default, LargeWeightsGoInBlocks) {
  const std::string blocks = "reverse_compute_at relu conv2d.i2.0";
  for (const char* name : {"6x14-64k3s1", "6x160-64k1s1", "7x300-32k1s1"}) {
    const ir::Program naive = MakeWorkload(name).value();
    for (machine::TargetInfo target : Targets()) {
      target.target.winograd = false;
      target.target.threads = 1;
      EXPECT_THAT(ToText(DefaultTrace(naive, target).value()), Not(HasSubstr(blocks)));
      target.l2_bytes = 12 << 10;
      const auto trace = DefaultTrace(naive, target);
      ASSERT_TRUE(trace.ok()) << trace.status();
      EXPECT_THAT(ToText(*trace), HasSubstr(blocks)) << name;
      EXPECT_TRUE(CheckTrace(naive, *trace, 1).ok()) << Explain(naive, *trace, 1);
      const auto space = MakeSpace(naive, target).value();
      Rng rng(3);
      int accepted = 0;
      for (int k = 0; k < 12; ++k) {
        const auto point = space->Expand(space->Random(rng));
        if (!point.ok()) continue;
        ++accepted;
        EXPECT_TRUE(CheckTrace(naive, *point, 1).ok()) << Explain(naive, *point, 1);
      }
      EXPECT_GE(accepted, 3) << name;
    }
  }
  machine::TargetInfo target = Wide();
  target.l2_bytes = 12 << 10;
  const auto text = [&](const char* name) {
    return ToText(DefaultTrace(MakeWorkload(name).value(), target).value());
  };
  EXPECT_THAT(text("6x160-16k1s1"), Not(HasSubstr(blocks))) << "one panel for two threads";
  EXPECT_THAT(text("6x160-32k1s1"), HasSubstr(blocks)) << "two panels";
  EXPECT_THAT(text("6x163-32k1s1"), Not(HasSubstr(blocks))) << "a prime number of steps";
}

// A product whose rows and whose weights both exceed the second-level cache, but whose result does
// not: the reduction goes in blocks around everything, and the weights lie in the order in which
// they are read, each once.
TEST(Default, ResultsWaitWhereNothingElseFits) {
  const ir::Program naive = Product(16, 96, 1024);
  for (machine::TargetInfo target : Targets()) {
    target.target.threads = 1;
    target.l2_bytes = 32 << 10;
    const std::string text = ToText(DefaultTrace(naive, target).value());
    EXPECT_THAT(text, HasSubstr("pack product w 512 ")) << text;
    EXPECT_TRUE(CheckTrace(naive, ParseTrace(text).value(), 1).ok());
    EXPECT_THAT(ToText(DefaultTrace(Product(16, 96, 2 * 1031), target).value()),
                HasSubstr("pack product w 1 "))
        << "no blocks of more than two steps";
    target.target.threads = 2;
    EXPECT_THAT(ToText(DefaultTrace(naive, target).value()), HasSubstr("pack product w 1 "))
        << "each thread would read all rows";
    target.target.threads = 1;
    target.l2_bytes = 4 << 20;
    EXPECT_THAT(ToText(DefaultTrace(naive, target).value()), HasSubstr("pack product w 1 "));
    target.l2_bytes = 16 << 10;  // the result does not fit either
    EXPECT_THAT(ToText(DefaultTrace(naive, target).value()), HasSubstr("pack product w 1 "));
  }
}

// Of channels in blocks of a vector, those of several blocks are innermost in a tile: were rows
// inside them, the scalars of all rows would wait in registers for the next block. So are the loops
// over blocks where the weights are what is read again.
TEST(Default, OfAProductOfBlockedChannels) {
  for (const int64_t size : {28, 224}) {
    tensor::Builder b("blocked");
    const tensor::Tensor x = b.Input("x", ir::DType::kF32, {8, size, size, 16}),
                         w = b.Input("w", ir::DType::kF32, {16, 8, 16, 16}, /*constant=*/true);
    const tensor::Tensor y =
        b.Reduce("y", {16, size, size, 16}, {8, 16}, ir::ReduceOp::kSum,
                 [&](tensor::Iters s, tensor::Iters r) {
                   return x(r[0], s[1], s[2], r[1]) * w(s[0], r[0], r[1], s[3]);
                 });
    const ir::Program naive = tensor::LowerToLoops(b.Build({y}).value()).value();
    machine::TargetInfo target = Wide();
    target.target.threads = 1;
    target.l1_bytes = 48 << 10;
    target.l2_bytes = 2 << 20;
    const auto trace = DefaultTrace(naive, target);
    ASSERT_TRUE(trace.ok()) << trace.status();
    const std::string text = ToText(*trace);
    EXPECT_THAT(text, HasSubstr(" y.i1.2 y.i2.2 y.i0.2 y.i3.2 y.i3.3\n"));
    EXPECT_THAT(text, HasSubstr(size == 28 ? "reorder y.i0.0 y.i3.0 y.i1.0 y.i2.0 "
                                           : "reorder y.i1.0 y.i2.0 y.i0.0 y.i3.0 "));
  }
}

// Windows of a patch share registers only if patches and window are unrolled around the lanes, and
// threads share lines of memory unless each has rows of its own.
TEST(Default, OfADepthwiseConvolution) {
  for (const char* name : {"D5", "D6"}) {
    auto naive = MakeWorkload(name);
    ASSERT_TRUE(naive.ok());
    auto trace = DefaultTrace(*naive, Wide());
    ASSERT_TRUE(trace.ok()) << trace.status();
    std::string text = ToText(*trace);
    for (const char* step :
         {"set_scope depthwise local", "reverse_compute_at relu depthwise.i2.1",
          "compute_inline pad", "unroll depthwise.i2.1", "unroll depthwise.i2.2",
          "unroll depthwise.r0", "unroll depthwise.r1", "vectorize depthwise.i3.2",
          "parallel depthwise.i0*depthwise.i1.0*depthwise.i3.0"}) {
      EXPECT_NE(text.find(step), std::string::npos) << step << " is not in\n" << text;
    }
  }
}

// One thread walks down a strip of columns where the next strip finds the shared ones still close,
// along whole rows where it would not or there is none, and by blocks in what is far away.
TEST(Default, OrderOfADepthwiseConvolution) {
  machine::TargetInfo target = Wide();
  target.target.threads = 1;
  target.l1_bytes = 48 << 10;
  target.l2_bytes = 2 << 20;
  const std::map<std::string, std::string> order = {
      {"D7", "i0 depthwise.i3.0 depthwise.i2.0 depthwise.i1.0 depthwise.i3.1"},
      {"D5", "i0 depthwise.i1.0 depthwise.i3.0 depthwise.i2.0 depthwise.i3.1"},
      {"D9", "i0 depthwise.i1.0 depthwise.i3.0 depthwise.i2.0 depthwise.i3.1"},
      {"D1", "i0 depthwise.i3.0 depthwise.i1.0 depthwise.i2.0 depthwise.i3.1"}};
  for (const auto& [name, loops] : order) {
    const auto trace = DefaultTrace(MakeWorkload(name).value(), target);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_THAT(ToText(*trace), HasSubstr("reorder depthwise." + loops)) << name;
  }
}

// Rows of a patch: one where two would read more places than the caches keep up with (of D8, 5 x
// 15).
TEST(Default, RowsOfADepthwiseConvolution) {
  for (const int threads : {1, 2}) {
    machine::TargetInfo target = Wide();
    target.target.threads = threads;
    target.l1_bytes = 48 << 10;
    target.l2_bytes = 2 << 20;
    for (const auto& [name, rows] :
         std::map<std::string, std::string>{{"D6", "7 2"}, {"D8", "7 1"}, {"D9", "4 2"}}) {
      const auto trace = DefaultTrace(MakeWorkload(name).value(), target);
      ASSERT_TRUE(trace.ok()) << trace.status();
      EXPECT_THAT(ToText(*trace), HasSubstr("split depthwise.i1 " + rows + "\n")) << name;
    }
  }
}

// Channels that fill no whole register: one not quite full, or fewer with a guarded tail; halves
// where they go up exactly.
TEST(Default, DepthwiseLanesOfOddChannels) {
  machine::TargetInfo target = Wide();
  target.target.threads = 1;
  const std::map<std::string, std::string> split = {{"8x11-0k3s1", "depthwise.i3 1 1 11"},
                                                    {"8x22-0k3s1", "depthwise.i3 1 2 11"},
                                                    {"8x44-0k3s1", "depthwise.i3 1 3 16"},
                                                    {"8x88-0k3s1", "depthwise.i3 1 11 8"}};
  for (const auto& [name, factors] : split) {
    const auto trace = DefaultTrace(MakeWorkload(name).value(), target);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_THAT(ToText(*trace), HasSubstr("split " + factors)) << name;
  }
}

// Weights known ahead of time are packed with zeros behind the last column: whole registers, as
// many a tile as divide their number. Others are masked in every load: narrower ones that need no
// mask are better.
TEST(Default, LanesOfOddColumns) {
  const auto text = [](const std::string& rows, const std::string& columns,
                       const std::string& of_weights) {
    machine::TargetInfo target = Wide();
    target.target.threads = 1;
    const std::string naive =
        "program p(X: f32[" + rows + ", 512], W: f32[512, " + columns + "]" + of_weights +
        ") -> (Y: f32[" + rows + ", " + columns + "]) { for i in " + rows + " { for j in " +
        columns + " { for k in 512 { block b(vi < " + rows + " spatial = i, vj < " + columns +
        " spatial = j, vk < 512 reduce = k) sum init 0.0 { Y[vi, vj] = (X[vi, vk] * W[vk, vj]) } } "
        "} } }";
    return ToText(DefaultTrace(ir::Parse(naive).value(), target).value());
  };
  EXPECT_THAT(text("1", "1000", " const"), HasSubstr("split j 9 1 7 16"));
  EXPECT_THAT(text("1", "650", " const"), HasSubstr("split j 10 1 5 13")) << "41 is a prime";
  EXPECT_THAT(text("20", "2600", " const"), HasSubstr("split j 163 1 1 16"));
  EXPECT_THAT(text("20", "2600", ""), HasSubstr("split j 100 1 2 13"));
}

// An element of a row of `columns` is computed by `value` of X[vi, vj] and of S[vi], the row's own.
ir::Program ShortRows(int64_t rows, int64_t columns, const std::string& value) {
  const std::string m = std::to_string(rows), n = std::to_string(columns);
  const auto naive = ir::Parse(
      "program p(X: f32[" + m + ", " + n + "], S: f32[" + m + "], V: f32[" + n + "]) -> (Y: f32[" +
      m + ", " + n + "]) { for i in " + m + " { for j in " + n + " { block b(vi < " + m +
      " spatial = i, vj < " + n + " spatial = j) { Y[vi, vj] = " + value + " } } } }");
  EXPECT_TRUE(naive.ok()) << naive.status();
  return *naive;
}

// The split of its vectors, in the default trace, which computes what the naive program does.
std::string SplitOf(const ir::Program& naive, const machine::TargetInfo& target) {
  const Trace trace = DefaultTrace(naive, target).value();
  if (!CheckTrace(naive, trace, 1).ok()) ADD_FAILURE() << Explain(naive, trace, 1);
  const std::string text = ToText(trace);
  const size_t split = text.find("split ");
  if (split == std::string::npos) return "none";
  return text.substr(split, text.find('\n', split) - split);
}

// What takes long to compute has a guarded vector instead of many short ones.
TEST(Default, LanesOfShortRows) {
  machine::TargetInfo target = Wide();
  target.target.threads = 1;
  const auto lanes = [&](int64_t columns, const std::string& value) {
    return SplitOf(ShortRows(33, columns, value), target);
  };
  EXPECT_EQ(lanes(10, "(X[vi, vj] / S[vi])"), "split j 1 1 16");
  EXPECT_EQ(lanes(10, "exp((X[vi, vj] - S[vi]))"), "split j 1 1 16");
  EXPECT_EQ(lanes(10, "(X[vi, vj] * S[vi])"), "split j 5 1 2");
  EXPECT_EQ(lanes(3, "(X[vi, vj] / S[vi])"), "split j 1 1 4");
  EXPECT_EQ(lanes(24, "(X[vi, vj] / S[vi])"), "split j 3 1 8") << "whole vectors, not half as many";
}

// If the rows go up in vectors, these reach across them: as many rows as lanes are as many vectors as columns.
TEST(Default, VectorsReachAcrossShortRows) {
  for (machine::TargetInfo target : Targets()) {
    target.target.threads = 1;
    const int64_t lanes = target.vector_bytes / 4;
    for (const int64_t rows : {lanes, 4 * lanes}) {
      for (const int64_t columns : {2, 3, 5, 10, 12, 15, 31}) {
        const ir::Program naive = ShortRows(rows, columns, "exp((X[vi, vj] - S[vi]))");
        const std::string split = SplitOf(naive, target);
        const std::string across = "split i*j 1 " + std::to_string(rows / lanes) + " " +
                                   std::to_string(columns) + " " + std::to_string(lanes);
        const bool whole = columns % lanes == 0 || columns >= 2 * lanes;
        EXPECT_EQ(split == across, !whole) << split << ", " << columns << " columns";
      }
    }
    // Nothing but rows is read. An element of a column is none of a row.
    EXPECT_THAT(SplitOf(ShortRows(2 * lanes, 10, "(X[vi, vj] / V[vj])"), target),
                Not(HasSubstr("i*j")));
    EXPECT_THAT(SplitOf(ShortRows(2 * lanes, 10, "(X[vi, 3] / S[vi])"), target),
                Not(HasSubstr("i*j")));
  }
  machine::TargetInfo threads = Wide();
  threads.core.wake_ns = 0;
  const ir::Program naive = ShortRows(64, 10, "(X[vi, vj] / S[vi])");
  EXPECT_EQ(SplitOf(naive, threads), "split i*j 4 1 10 16") << "each thread has whole steps";
  EXPECT_THAT(ToText(DefaultTrace(naive, threads).value()), HasSubstr("parallel i*j.0"));
}

// The rule for walks takes the program, and no rule that is offered refuses. The default schedule has this step; it and some of
// `points` random ones compute what the naive program does.
void CheckWalk(const ir::Program& naive, const char* step, int points) {
  const auto space = MakeSpace(naive, Wide()).value();
  bool walks = false;
  for (const Offer& offer : space->Offers()) {
    EXPECT_TRUE(offer.status.ok()) << offer.rule << ": " << offer.status;
    walks |= offer.rule == "walk";
  }
  EXPECT_TRUE(walks) << ir::Print(naive);
  const Trace trace = DefaultTrace(naive, Wide()).value();
  EXPECT_THAT(ToText(trace), HasSubstr(step));
  if (!CheckTrace(naive, trace, 1).ok()) FAIL() << Explain(naive, trace, 1);
  Rng rng(1);
  int checked = 0;
  for (int k = 0; k < points; ++k) {
    const auto random = space->Expand(space->Random(rng));
    if (!random.ok()) continue;
    ++checked;
    if (!CheckTrace(naive, *random, 1).ok()) FAIL() << Explain(naive, *random, 1);
  }
  EXPECT_GT(checked, 2);
}

// Walks of trees keep the places of all steps in registers, over records or, if there are few of them, over trees. Whatever
// is decided, they find what the naive program finds.
TEST(Default, WalksOfTrees) {
  struct Case {
    int64_t groups, trees, steps, values, records;
    const char* what;  // a step of the trace
  };
  const Case cases[] = {
      {1, 32, 3, 1, 64, "compute_at step_2 forest.i2.1"},
      {1, 32, 4, 1, 1, "rfactor forest"},
      {1, 16, 2, 3, 40, "compute_at step_1"},
      {3, 16, 2, 1, 37, "compute_at step_1"},
      {1, 16, 3, 2, 5, "rfactor forest"},
      {2, 48, 1, 1, 16, "compute_at step"},
  };
  for (const Case& c : cases) {
    for (const bool ranges : {true, false}) {
      CheckWalk(MakeWalk(c.groups, c.trees, c.steps, c.values, c.records, ranges), c.what, 8);
      if (HasFatalFailure()) return;
    }
  }
}

// Where gathers are slow, a step in vectors pays only if registers hold the nodes of a tree, here nine.
TEST(Default, WalksOfSmallTreesAreVectors) {
  const ir::Program naive = MakeWalk(1, 32, 3, 1, 64, /*ranges=*/true);
  machine::TargetInfo target = Wide();
  const auto vectors = [&](double gathered_per_cycle) {
    target.core.gathered_per_cycle = gathered_per_cycle;
    const std::string trace = ToText(DefaultTrace(naive, target).value());
    return trace.find("vectorize") != std::string::npos;
  };
  EXPECT_TRUE(vectors(2));
  EXPECT_TRUE(vectors(0.4));
  target.vector_bytes = 32;
  EXPECT_TRUE(vectors(2));
  EXPECT_FALSE(vectors(0.4));
}

// A block has more records if trees exceed the second-level cache but the columns of its records do not fill it, and fewer if each
// thread would not get one otherwise.
TEST(Default, BlocksOfRecords) {
  machine::TargetInfo target = Wide();
  target.vector_bytes = 32;
  target.core.gathered_per_cycle = 0.4;
  target.core.wake_ns = 0;
  const auto split = [&](int64_t trees, int64_t records, int threads, int64_t l2_bytes) {
    target.target.threads = threads;
    target.l2_bytes = l2_bytes;
    const std::string text =
        ToText(DefaultTrace(MakeWalk(1, trees, 3, 1, records), target).value());
    const size_t at = text.find("split forest.i2 ");
    return at == std::string::npos ? text : text.substr(at, text.find('\n', at) - at);
  };
  // A tree has 144 bytes, a record 20. Eight records are a tile.
  EXPECT_EQ(split(300, 2048, 1, 44 << 10), "split forest.i2 16 16 8 1") << "the trees fit";
  EXPECT_EQ(split(320, 2048, 1, 44 << 10), "split forest.i2 4 64 8 1");
  EXPECT_EQ(split(320, 2048, 1, 36 << 10), "split forest.i2 16 16 8 1") << "the columns do not";
  EXPECT_EQ(split(32, 128, 1, 1 << 20), "split forest.i2 1 16 8 1");
  EXPECT_EQ(split(32, 128, 2, 1 << 20), "split forest.i2 4 4 8 1");
  EXPECT_EQ(split(32, 128, 8, 1 << 20), "split forest.i2 16 1 8 1");
  target.core.wake_ns = 1e15;
  EXPECT_EQ(split(32, 128, 2, 1 << 20), "split forest.i2 1 16 8 1") << "one thread works";
  target.core.wake_ns = 0;
  for (const int threads : {1, 2, 8}) {
    target.target.threads = threads;
    const ir::Program naive = MakeWalk(1, 16, 3, 1, 128);
    const Trace trace = DefaultTrace(naive, target).value();
    if (!CheckTrace(naive, trace, 1).ok()) FAIL() << Explain(naive, trace, 1);
  }
}

// forest_ranks computes with bytes, so a vector has a lane for each of its bytes. The lanes are records, or trees if there are few
// records.
TEST(Default, TreesInBytes) {
  struct Case {
    int64_t groups, trees, block, depth, values, records;
    const char* what;  // a step of the trace
  };
  const Case cases[] = {
      {1, 12, 1, 3, 1, 256, "split forest.i2 4 1 1 64"},
      {2, 8, 1, 2, 3, 64, "split forest.i2 1 1 1 64"},
      {1, 5, 1, 8, 1, 128, "split forest.i2 2 1 1 64"},
      {1, 128, 64, 4, 1, 1, "split forest.r0 2 1 64"},
      {2, 64, 64, 3, 2, 1, "rfactor forest"},
      {1, 192, 64, 2, 1, 3, "split forest.r0 3 1 64"},
  };
  for (const Case& c : cases) {
    for (const bool ranges : {true, false}) {
      const ir::Program naive =
          MakeRanks(c.groups, c.trees, c.block, c.depth, c.values, c.records, ranges);
      CheckWalk(naive, c.what, 6);
      if (HasFatalFailure()) return;
      EXPECT_THAT(ToText(DefaultTrace(naive, Wide()).value()), HasSubstr("compute_at leaf"));
    }
  }
}

// The steps of forest_leaves look nothing up and wait for each other, so two vectors are at once, of records or, if there are few of
// them, of trees.
TEST(Default, LeavesThatAreLeft) {
  struct Case {
    int64_t groups, trees, block, nodes, values, records;
    bool floats;
    const char* what;  // a step of the trace
  };
  const Case cases[] = {
      {1, 12, 1, 7, 1, 256, false, "split forest.i2 2 1 2 64"},
      {2, 8, 1, 8, 3, 64, false, "split forest.r0 4 2"},
      {1, 3, 1, 130, 1, 128, false, "split forest.i2 1 1 2 64"},
      {1, 128, 64, 20, 1, 1, false, "split forest.r0 1 2 64"},
      {2, 64, 64, 9, 2, 1, false, "rfactor forest"},
      {1, 6, 1, 10, 1, 64, true, "compute_at leaf_3"},
      {1, 32, 16, 10, 1, 1, true, "split forest.r0 1 2 16"},
  };
  for (const Case& c : cases) {
    const ir::Program naive =
        MakeLeaves(c.groups, c.trees, c.block, c.nodes, c.values, c.records, c.floats);
    CheckWalk(naive, c.what, 6);
    if (HasFatalFailure()) return;
  }
  // Nothing is looked up, so vectors pay even where gathers are slow.
  machine::TargetInfo target = Wide();
  target.vector_bytes = 32;
  target.core.gathered_per_cycle = 0.4;
  EXPECT_THAT(ToText(DefaultTrace(MakeLeaves(1, 12, 1, 31, 1, 64), target).value()),
              HasSubstr("vectorize"));
}

// forest_select of one record has its trees in lanes, which look the record's columns up.
TEST(Default, TreesSideBySide) {
  for (const int64_t groups : {1, 3}) {
    for (const int64_t block : {8, 16}) {
      const ir::Program naive = MakeSelect(groups, 48, block, 3);
      const Trace trace = DefaultTrace(naive, Wide()).value();
      EXPECT_THAT(ToText(trace),
                  AllOf(HasSubstr("rfactor forest"), HasSubstr("vectorize forest.rf")));
      if (!CheckTrace(naive, trace, 1).ok()) FAIL() << Explain(naive, trace, 1);
    }
  }
}

// The group in which a value lies is found once, in vectors of records, and not again for every cut of a group that is looked up by it.
TEST(Default, RanksInTwoSteps) {
  for (const auto& [groups, of_group] :
       std::vector<std::pair<int64_t, int64_t>>{{16, 16}, {16, 4}, {11, 3}}) {
    const ir::Program naive = MakeDigitize(3, groups, of_group, 256);
    const auto space = MakeSpace(naive, Wide()).value();
    for (const Offer& offer : space->Offers()) {
      EXPECT_TRUE(offer.status.ok()) << offer.rule << ": " << offer.status;
      EXPECT_NE(offer.rule, "walk");
    }
    const Trace trace = DefaultTrace(naive, Wide()).value();
    EXPECT_THAT(ToText(trace), AllOf(HasSubstr("vectorize group"), HasSubstr("vectorize digitize"),
                                     Not(HasSubstr("inline group"))));
    if (!CheckTrace(naive, trace, 1).ok()) FAIL() << Explain(naive, trace, 1);
  }
}

// One loop over all elements: its steps keep the array flat to whoever simplifies the index.
TEST(Default, FlatLoopsStayFlat) {
  for (const std::string shape : {"3, 8, 11", "3, 5, 16", "8, 6, 4", "2, 56, 3"}) {
    const std::string type = "f32[" + shape + "]";
    std::vector<std::string> extents = absl::StrSplit(shape, ", ");
    std::string text = "program p(A: " + type + ") -> (O: " + type + ") { ", iters, index, close;
    for (size_t k = 0; k < extents.size(); ++k) {
      const std::string n = std::to_string(k);
      text += "for l" + n + " in " + extents[k] + " { ";
      iters += (k ? ", v" : "v") + n + " < " + extents[k] + " spatial = l" + n;
      index += (k ? ", v" : "v") + n;
      close += " }";
    }
    text +=
        "block b(" + iters + ") { O[" + index + "] = max(A[" + index + "], 0.0) }" + close + " }";
    const auto naive = ir::Parse(text);
    ASSERT_TRUE(naive.ok()) << naive.status();
    for (const machine::TargetInfo& target : Targets()) {
      const auto program = Replay(*naive, DefaultTrace(*naive, target).value());
      ASSERT_TRUE(program.ok()) << program.status();
      const auto lowered = pass::Lower(*program, {});
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      ir::Ranges ranges;
      ir::VisitStmt(lowered->body, [&](const ir::Stmt& s) {
        if (auto* loop = ir::As<ir::For>(s)) ranges[loop->var.get()] = {0, loop->extent - 1};
        return true;
      });
      ir::VisitStmt(lowered->body, [&](const ir::Stmt& s) {
        auto* store = ir::As<ir::Store>(s);
        if (store == nullptr) return true;
        ir::Expr address = ir::Int(0);
        for (size_t d = 0; d < store->indices.size(); ++d)
          address = address * ir::Int(store->buffer->shape[d]) + store->indices[d];
        const ir::Linear flat = ir::Analyzer(&ranges).SimplifyToLinear(address);
        for (const auto& [term, stride] : flat.terms)
          EXPECT_EQ(term->kind, ir::ExprKind::kVar) << shape << ": " << ir::Print(*lowered);
        return true;
      });
    }
  }
}

}  // namespace
}  // namespace heddle::schedule
