// The race detector: programs with their barriers pass, and without any one of them do not.
#include <gtest/gtest.h>

#include <string>

#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "tests/ir/run_program.h"

namespace heddle::interpreter {
namespace {

// What the interpreter says of the program's races.
std::string Races(const std::string& text) {
  auto program = ir::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(ir::Verify(*program, ir::Level::kLowered).ok())
      << ir::Verify(*program, ir::Level::kLowered);
  Arena arena(*program);
  return std::string(Interpret(*program, arena.tensors, {.check_races = true}).message());
}

TEST(Races, SharedMemoryReversed) {
  const std::string before = R"(program p(x: f32[2, 8]) -> (y: f32[2, 8]) {
    for b in 2 blockIdx.x { alloc s: f32[8] shared {
      for t in 8 threadIdx.x { s[t] = x[b, t] } )";
  const std::string after = R"( for u in 8 threadIdx.x { y[b, u] = s[(7 - u)] } } } })";
  EXPECT_EQ(Races(before + "barrier" + after), "");
  EXPECT_EQ(
      Races(before + after),
      "interpreter: s[7] is touched by two threads, or fetched and touched, without a barrier "
      "between");
}

// Each iteration fills the memory anew: the barrier at the end keeps it from those who still read.
TEST(Races, NextIterationOverwrites) {
  const auto program = [](const char* first, const char* second) {
    return std::string(R"(program p(x: f32[4, 8]) -> (y: f32[4, 8]) {
      for b in 1 blockIdx.x { for k in 4 { alloc s: f32[8] shared {
        for t in 8 threadIdx.x { s[t] = x[k, t] } )") +
           first + " for u in 8 threadIdx.x { y[k, u] = s[(7 - u)] } " + second + "} } } }";
  };
  EXPECT_EQ(Races(program("barrier", "barrier")), "");
  EXPECT_NE(Races(program("barrier", "")), "");
  EXPECT_NE(Races(program("", "barrier")), "");
}

// With two buffers one barrier an iteration does.
TEST(Races, DoubleBuffer) {
  const auto program = [](const char* barrier) {
    return std::string(R"(program p(x: f32[4, 8]) -> (y: f32[4, 8]) {
      for b in 1 blockIdx.x { alloc s: f32[2, 8] shared { for k in 4 {
        for t in 8 threadIdx.x { s[(k % 2), t] = x[k, t] } )") +
           barrier + " for u in 8 threadIdx.x { y[k, u] = s[(k % 2), (7 - u)] } } } } }";
  };
  EXPECT_EQ(Races(program("barrier")), "");
  EXPECT_NE(Races(program("")), "");
}

TEST(Races, LocalElementsBelongToOneThread) {
  const auto program = [](const char* index) {
    return std::string(R"(program p(x: f32[8]) -> (y: f32[8]) {
      for b in 1 blockIdx.x { alloc r: f32[8] local {
        for t in 8 threadIdx.x { r[t] = x[t] }
        barrier
        for u in 8 threadIdx.x { y[u] = r[)") +
           index + "] } } } }";
  };
  EXPECT_EQ(Races(program("u")), "");
  EXPECT_NE(Races(program("(7 - u)")), "");
}

TEST(Races, BlocksOfALaunch) {
  const auto program = [](const char* between) {
    return std::string(R"(program p(x: f32[4]) -> (y: f32[4]) { alloc g: f32[4] global {
      for b in 4 blockIdx.x { g[b] = x[b] )") +
           between + " y[b] = g[(3 - b)] } } }";
  };
  EXPECT_NE(Races(program("")), "");
  EXPECT_NE(Races(program("barrier")), "");
}

TEST(Races, LaunchesFollowEachOther) {
  EXPECT_EQ(Races(R"(program p(x: f32[4]) -> (y: f32[4]) { alloc g: f32[4] global {
      for b in 4 blockIdx.x { g[b] = x[b] }
      for c in 4 blockIdx.x { y[c] = g[(3 - c)] } } })"),
            "");
}

// What no thread loop encloses may be shared out among threads: it is not even of the first alone.
TEST(Races, NobodyInParticular) {
  const auto program = [](const std::string& barrier) {
    return "program p(x: f32[4]) -> (y: f32[1]) { for b in 1 blockIdx.x { alloc s: f32[4] shared { "
           "for t in 4 threadIdx.x { s[t] = x[t] } " +
           barrier + " y[0] = s[0] } } }";
  };
  EXPECT_EQ(Races(program("barrier")), "");
  EXPECT_NE(Races(program("")), "");
}

// What a thread fetches may come behind its back: it waits for that, too, but not within the fetch.
TEST(Races, OwnFetchesMayComeLate) {
  const auto program = [](const std::string& barrier, const std::string& element) {
    return R"(program p(x: f32[2, 8]) -> (y: f32[8]) {
      for b in 1 blockIdx.x { alloc s: f32[2, 8] shared {
        for t in 8 threadIdx.x { s[0, t] = x[0, t] }
        for u in 8 threadIdx.x { s[1, u] = x[1, u] } )" +
           barrier + " for v in 8 threadIdx.x { y[v] = s[" + element + ", v] } } } }";
  };
  EXPECT_EQ(Races(program("barrier 1", "0")), "");
  EXPECT_NE(Races(program("barrier 1", "1")), "");
  EXPECT_NE(Races(program("barrier 2", "0")), "");
  EXPECT_EQ(Races(program("barrier", "1")), "");
  EXPECT_NE(Races(program("", "1")), "");
  // A loop of one thread is a fetch like others.
  EXPECT_NE(Races(R"(program p(x: f32[4]) -> (y: f32[1]) { for b in 1 blockIdx.x {
      alloc s: f32[4] shared { for t in 1 threadIdx.x { s[t] = x[t] } y[0] = s[0] } } })"),
            "");
  EXPECT_EQ(Races(R"(program p(x: f32[8]) -> (y: f32[8]) { for b in 1 blockIdx.x {
      alloc s: f32[8] shared { for t in 8 threadIdx.x { s[t] = x[t] y[t] = s[t] } } } })"),
            "");
}

// The first thread runs what no thread loop encloses.
TEST(Races, FirstThread) {
  const auto program = [](const char* barrier) {
    return std::string(R"(program p(x: f32[4]) -> (y: f32[4]) {
      for b in 1 blockIdx.x { alloc s: f32[1] shared {
        s[0] = x[0] )") +
           barrier + " for t in 4 threadIdx.x { y[t] = s[0] } } } }";
  };
  EXPECT_EQ(Races(program("barrier")), "");
  EXPECT_NE(Races(program("")), "");
}

}  // namespace
}  // namespace heddle::interpreter
