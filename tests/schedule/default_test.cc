// What is chosen without measuring.
#include "compiler/schedule/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "compiler/ir/analyzer.h"
#include "compiler/ir/linear.h"
#include "compiler/ir/text.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/lower.h"
#include "compiler/tensor/expression.h"
#include "tests/schedule/oracle.h"
#include "tests/schedule/workloads.h"

namespace heddle::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The widest CPU, a machine with threads.
ir::TargetInfo Wide() {
  ir::TargetInfo wide;
  wide.vector_bytes = 64;
  wide.vector_registers = 32;
  wide.target.threads = 2;
  return wide;
}

// And the narrowest.
std::vector<ir::TargetInfo> Targets() { return {ir::TargetInfo{}, Wide()}; }

// The default of a 3 x 3 convolution is Winograd's where that pays and may be.
TEST(Default, Forms) {
  const auto text = [](const char* name, bool winograd, bool constant) {
    ir::TargetInfo target = Wide();
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
  ir::TargetInfo off = Wide();
  off.target.winograd = false;
  EXPECT_NE(MakeSpace(MakeWorkload("C2").value(), off).value()->Describe(0), "form");
}

// Channels of a group as wide as two vectors read the same element of the image: the register tile
// has both, so that each is loaded once for the two.
TEST(Default, VectorsOfAGroupShareATile) {
  const char* text =
      "program p(X: f32[9, 9, 1024], W: f32[3, 3, 32, 1024] const) -> (Y: f32[7, 7, 1024]) { for i "
      "in 7 { for j in 7 { for o in 1024 { for h in 3 { for w in 3 { for k in 32 { block b(vi < 7 "
      "spatial = i, vj < 7 spatial = j, vo < 1024 spatial = o, vh < 3 reduce = h, vw < 3 reduce = "
      "w, vk < 32 reduce = k) sum init 0.0 { Y[vi, vj, vo] = (X[(vi + vh), (vj + vw), (((vo // 32) "
      "* 32) + vk)] * W[vh, vw, vk, vo]) } } } } } } } }";
  const auto trace = DefaultTrace(ir::Parse(text).value(), Wide());
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(ToText(*trace), HasSubstr("split o 32 1 2 16"));
}

// The default of a convolution: the weights packed, the epilogue inside the tile, accumulators in
// registers, vectors along channels.
TEST(Default, OfAConvolution) {
  auto naive = MakeWorkload("C2");
  ASSERT_TRUE(naive.ok());
  ir::TargetInfo direct = Wide();
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
// blocks, each used for all rows, and the results wait in the first level. Points with blocks that
// do not divide the reduction evenly, or cut it in another axis, are as right.
TEST(Default, LargeWeightsGoInBlocks) {
  for (const char* name : {"5x14-64k3s1", "6x160-64k1s1", "5x300-32k1s1"}) {
    const ir::Program naive = MakeWorkload(name).value();
    for (ir::TargetInfo target : Targets()) {
      target.target.winograd = false;
      const auto whole = DefaultTrace(naive, target);
      ASSERT_TRUE(whole.ok()) << whole.status();
      EXPECT_THAT(ToText(*whole), Not(HasSubstr("reverse_compute_at relu conv2d.i2.0")));
      target.l2_bytes = 12 << 10;
      const auto trace = DefaultTrace(naive, target);
      ASSERT_TRUE(trace.ok()) << trace.status();
      EXPECT_THAT(ToText(*trace), HasSubstr("reverse_compute_at relu conv2d.i2.0")) << name;
      EXPECT_TRUE(CheckTrace(naive, *trace, 1).ok()) << Explain(naive, *trace, 1);
      const auto space = MakeSpace(naive, target).value();
      Rng rng(3);
      for (int k = 0; k < 12; ++k) {
        const auto point = space->Expand(space->Random(rng));
        if (!point.ok()) continue;
        EXPECT_TRUE(CheckTrace(naive, *point, 1).ok()) << Explain(naive, *point, 1);
      }
    }
  }
}

// A product whose rows and whose weights both exceed the second-level cache, but whose result does
// not: the reduction goes in blocks around everything, and the weights lie in the order in which
// they are read, each once.
TEST(Default, ResultsWaitWhereNothingElseFits) {
  constexpr int64_t kRows = 16, kColumns = 96, kSteps = 1024;
  tensor::Builder b("product");
  const tensor::Tensor x = b.Input("x", ir::DType::kF32, {kRows, kSteps}),
                       w = b.Input("w", ir::DType::kF32, {kSteps, kColumns}, /*constant=*/true);
  const tensor::Tensor y =
      b.Reduce("product", {kRows, kColumns}, {kSteps}, ir::ReduceOp::kSum,
               [&](tensor::Iters s, tensor::Iters r) { return x(s[0], r[0]) * w(r[0], s[1]); });
  const ir::Program naive = tensor::LowerToLoops(b.Build({y}).value()).value();
  for (ir::TargetInfo target : Targets()) {
    target.target.threads = 1;
    target.l2_bytes = 32 << 10;
    const std::string text = ToText(DefaultTrace(naive, target).value());
    EXPECT_THAT(text, HasSubstr("pack product w 512 ")) << text;
    EXPECT_TRUE(CheckTrace(naive, ParseTrace(text).value(), 1).ok());
    target.l2_bytes = 4 << 20;
    EXPECT_THAT(ToText(DefaultTrace(naive, target).value()), HasSubstr("pack product w 1 "));
    target.l2_bytes = 16 << 10;  // the result does not fit either
    EXPECT_THAT(ToText(DefaultTrace(naive, target).value()), HasSubstr("pack product w 1 "));
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
  ir::TargetInfo target = Wide();
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

// Channels that fill no whole register: one not quite full, or fewer with a guarded tail; halves
// where they go up exactly.
TEST(Default, DepthwiseLanesOfOddChannels) {
  ir::TargetInfo target = Wide();
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
    for (const ir::TargetInfo& target : Targets()) {
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
