#include "compiler/schedule/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/schedule/replayer.h"
#include "tests/schedule/workloads.h"

namespace heddle::schedule {
namespace {

using ::testing::HasSubstr;

constexpr char kEveryPrimitive[] =
    "split a 4 7 2\n"
    "fuse a b c\n"
    "reorder b a\n"
    "compute_at p l\n"
    "reverse_compute_at e l\n"
    "compute_inline p\n"
    "reverse_compute_inline e\n"
    "cache_read b x local\n"
    "cache_write b shared\n"
    "decompose_reduction b k\n"
    "rfactor b k.1\n"
    "parallel a*b\n"
    "vectorize e@l.3\n"
    "unroll c\n"
    "bind a blockIdx.x\n"
    "set_scope b global\n"
    "pack b w 1 32 1 0\n"
    "winograd b 4\n";

TEST(TraceText, RoundTripsEveryPrimitive) {
  auto trace = ParseTrace(kEveryPrimitive);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->steps.size(), static_cast<size_t>(Primitive::kWinograd) + 1);
  EXPECT_EQ(ToText(*trace), kEveryPrimitive);
}

TEST(TraceText, BlankLinesAndIndentationAreFree) {
  auto trace = ParseTrace("\n  unroll a \r\n\n\tunroll b");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(ToText(*trace), "unroll a\nunroll b\n");
}

TEST(TraceText, NamesTheLineThatIsWrong) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c :
       {Case{"unroll a\nspilt b 2", "line 2: unknown primitive `spilt`"},
        Case{"unroll", "line 1: `unroll` has the wrong number of arguments"},
        Case{"unroll a b", "wrong number of arguments"},
        Case{"split a", "wrong number of arguments"}, Case{"fuse a", "wrong number of arguments"},
        Case{"split a 2 x", "line 1: `x` is not an integer"},
        Case{"split a 99999999999999999999", "is not an integer"}}) {
    auto trace = ParseTrace(c.text);
    EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(std::string(trace.status().message()), HasSubstr(c.message));
  }
}

TEST(TraceText, RefusesTracesWithoutEnd) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "unroll a\n";
  EXPECT_TRUE(ParseTrace(text).ok());
  EXPECT_THAT(std::string(ParseTrace(text + "unroll a\n").status().message()),
              HasSubstr("line 1001: more than 1000 steps"));
}

// Each factor may become a loop, and passes walk loops by recursion.
TEST(TraceText, RefusesNestsWithoutEnd) {
  std::string text = "split a";
  for (int i = 0; i < 500; ++i) text += " 1";
  EXPECT_TRUE(ParseTrace(text).ok());
  EXPECT_THAT(std::string(ParseTrace(text + " 1").status().message()),
              HasSubstr("more than 500 factors"));
  EXPECT_THAT(std::string(ParseTrace(text + "\nsplit b 2").status().message()),
              HasSubstr("line 2: more than 500 factors"));
}

TEST(Replay, TheDeepestNestThatATraceMakesIsReplayed) {
  auto naive = MakeWorkload("C3");
  ASSERT_TRUE(naive.ok());
  std::string text, loop = "conv2d.i1";
  for (int i = 0; i < 250; ++i) {
    text += "split " + loop + " 56 1\n";
    loop += ".0";
  }
  const auto trace = ParseTrace(text);
  ASSERT_TRUE(trace.ok()) << trace.status();
  const auto replayed = Replay(*naive, *trace);
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_TRUE(ir::Verify(*replayed).ok());
}

TEST(Replay, PrefixesTheFailingStep) {
  auto naive = MakeWorkload("C3");
  ASSERT_TRUE(naive.ok());
  auto trace = ParseTrace("split conv2d.i1 28 2\nunroll conv2d.i9");
  ASSERT_TRUE(trace.ok());
  auto replayed = Replay(*naive, *trace);
  EXPECT_EQ(replayed.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(replayed.status().message()),
              HasSubstr("step 2 `unroll conv2d.i9`: no loop `conv2d.i9`"));
}

Trace Parsed(const std::string& text) {
  const auto trace = ParseTrace(text);
  EXPECT_TRUE(trace.ok()) << trace.status();
  return *trace;
}

TEST(Replayer, SaysWhatReplaySays) {
  const ir::Program naive = *MakeWorkload("C3");
  Replayer replayer(naive);
  const std::string first = "split conv2d.i1 28 2\n";
  const Trace traces[] = {{},
                          Parsed(first + "unroll conv2d.i1.1"),
                          Parsed(first + "unroll conv2d.i9"),
                          Parsed(first + "vectorize conv2d.i1.1"),
                          Parsed("split conv2d.i1 14 4\nunroll conv2d.i1.1"),
                          Parsed("split conv2d.i1 2 2")};
  for (const char* round : {"first", "again"}) {
    for (const Trace& trace : traces) {
      const auto expected = Replay(naive, trace), found = replayer.Replay(trace);
      ASSERT_EQ(found.status(), expected.status()) << round;
      if (!expected.ok()) continue;
      EXPECT_EQ(ir::Print(*found), ir::Print(*expected)) << round;
    }
    EXPECT_EQ(replayer.made(), 7u) << round << ": what failed is remembered too";
  }
}

TEST(Replayer, ForgetsAllWhenItIsTooMuch) {
  Replayer replayer(*MakeWorkload("C3"));
  const auto often = [](int n) {
    Trace trace;
    for (int i = 0; i < n; ++i) trace.steps.push_back({Primitive::kUnroll, {"conv2d.i1"}, {}});
    return trace;
  };
  const auto cost = [&](const Trace& trace) {
    const size_t before = replayer.made();
    EXPECT_TRUE(replayer.Replay(trace).ok());
    return replayer.made() - before;
  };
  EXPECT_EQ(cost(often(4095)), 4095u);
  EXPECT_EQ(cost(often(4095)), 0u);
  EXPECT_EQ(cost(often(5000)), 905u);
  EXPECT_EQ(cost(often(10)), 10u) << "more than 4096 were remembered";
  EXPECT_EQ(cost(often(12)), 2u);
}

TEST(Replay, WordsThatAreNoScopeOrAxis) {
  auto naive = MakeWorkload("C3");
  ASSERT_TRUE(naive.ok());
  EXPECT_THAT(
      std::string(
          ApplyStep(*naive, {Primitive::kCacheWrite, {"conv2d", "lokal"}, {}}).status().message()),
      HasSubstr("`lokal` is not a scope"));
  EXPECT_THAT(
      std::string(
          ApplyStep(*naive, {Primitive::kBind, {"conv2d.i1", "gridIdx.x"}, {}}).status().message()),
      HasSubstr("`gridIdx.x` is not a GPU axis"));
  EXPECT_THAT(std::string(ApplyStep(*naive, {Primitive::kUnroll, {}, {}}).status().message()),
              HasSubstr("wrong number of arguments"));
}

}  // namespace
}  // namespace heddle::schedule
