// The lowering passes: each keeps the meaning of every conformance case, and does what it is there
// for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/lower.h"
#include "compiler/pass/overwrite.h"
#include "compiler/pass/widen_copies.h"
#include "compiler/pass/widen_halves.h"
#include "tests/codegen/kernel_runner.h"
#include "tests/places.h"

namespace heddle::pass {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ir::Program Parsed(const std::string& text) {
  absl::StatusOr<ir::Program> program = ir::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

TEST(Passes, KeepTheMeaningWhicheverIsLeftOut) {
  for (const auto& entry :
       std::filesystem::directory_iterator(HEDDLE_SOURCE_DIR "/tests/cases/conformance")) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    ir::Program program = Parsed(text.str());
    std::vector<testing::HostTensor> inputs = testing::MakeInputs(program, 7),
                                     expected = testing::MakeOutputs(program);
    ASSERT_TRUE(testing::RunInterpreter(program, inputs, expected).ok());
    std::vector<std::string> variants = OptionalPasses(machine::Execution::kThreads);
    variants.push_back("none");
    for (const std::string& disabled : variants) {
      SCOPED_TRACE(entry.path().string() + " without " + disabled);
      LowerOptions options;
      options.disabled = {disabled};
      auto lowered = Lower(program, options);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      std::vector<testing::HostTensor> actual = testing::MakeOutputs(program);
      absl::Status status = testing::RunInterpreter(*lowered, inputs, actual);
      ASSERT_TRUE(status.ok()) << status << ir::Print(*lowered);
      status = testing::Compare(program, expected, actual);
      EXPECT_TRUE(status.ok()) << status << ir::Print(*lowered);
    }
  }
}

TEST(Passes, AreObservedAndCanBeDisabled) {
  ir::Program program = Parsed(
      "program p(A: f32[4]) -> (O: f32[4]) { for i in 4 { block b(v < 4 spatial = i) { O[v] = A[v] "
      "} } }");
  const auto passes_without = [&](const std::set<std::string>& disabled) {
    std::vector<std::string> seen;
    LowerOptions options;
    options.disabled = disabled;
    options.observer = [&](const std::string& pass, const ir::Program&, double ms) {
      EXPECT_GE(ms, 0);
      seen.push_back(pass);
    };
    EXPECT_TRUE(Lower(program, options).ok());
    return seen;
  };
  std::vector<std::string> optional = OptionalPasses(machine::Execution::kThreads);
  EXPECT_THAT(optional, Contains("unroll"));
  EXPECT_THAT(optional, Not(Contains("lower_blocks")));
  EXPECT_THAT(passes_without({optional.begin(), optional.end()}), ElementsAre("lower_blocks"));
  optional.insert(optional.begin(), "lower_blocks");
  EXPECT_EQ(passes_without({}), optional);
  EXPECT_EQ(passes_without({"lower_blocks"}), optional) << "it is not optional";
}

TEST(LowerBlocks, InitialisesOutsideTheReduction) {
  auto lowered = Lower(
      Parsed("program p(A: f32[8, 9]) -> (O: f32[8]) { for k in 9 { for i in 8 { "
             "block b(v < 8 spatial = i, r < 9 reduce = k) sum init 0.0 { O[v] = A[v, r] } } } }"));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  std::string text = ir::Print(*lowered);
  EXPECT_THAT(text, Not(HasSubstr("if")));
  EXPECT_LT(text.find("= 0.0"), text.find("for k"));
}

TEST(CompactBuffers, LeavesATileOfABufferInsideLoops) {
  LowerOptions options;
  options.disabled = {"unroll", "partition_loops"};
  auto lowered = Lower(Parsed(R"(program p(A: f32[100]) -> (O: f32[99]) {
    for i in 33 {
      alloc t : f32[100] local {
        for a in 4 { block f(v < 100 spatial = ((i * 3) + a)) { t[v] = (A[v] * 2.0) } }
        for b in 3 { block g(w < 99 spatial = ((i * 3) + b)) { O[w] = (t[w] + t[(w + 1)]) } }
      }
    } })"),
                       options);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_THAT(ir::Print(*lowered), HasSubstr("t: f32[4]"));
}

TEST(PartitionLoops, InteriorHasNoGuard) {
  auto lowered =
      Lower(Parsed("program p(A: f32[103]) -> (O: f32[103]) { for i in 11 { for j in 10 { "
                   "block b(v < 103 spatial = ((i * 10) + j)) where (((i * 10) + j) < 103) { O[v] "
                   "= A[v] } } } }"));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_THAT(ir::Print(*lowered), Not(HasSubstr("if")));
}

// The guard of the last column's tile stands outside the loops over the tile, and the others have
// none.
TEST(PartitionLoops, DecidesGuardsOfWhatAParallelLoopWasFusedFrom) {
  auto lowered = Lower(Parsed(R"(program p(A: f32[9, 17]) -> (O: f32[9, 17]) {
    for f in 18 parallel { for j in 10 unrolled {
      block b(v < 9 spatial = (f // 2), w < 17 spatial = (((f % 2) * 10) + j))
        where ((((f % 2) * 10) + j) < 17) { O[v, w] = A[v, w] }
    } } })"));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  int guards = 0, stores = 0;
  ir::VisitStmt(lowered->body, [&](const ir::Stmt& s) {
    guards += ir::As<ir::If>(s) != nullptr;
    stores += ir::As<ir::Store>(s) != nullptr;
    return true;
  });
  EXPECT_EQ(guards, 2) << ir::Print(*lowered);
  EXPECT_EQ(stores, 10 + 7) << ir::Print(*lowered);
}

// Where not all guards can be decided, those of most iterations are.
TEST(PartitionLoops, TheInteriorIsCutBeforeItsBorders) {
  auto lowered = Lower(Parsed(R"(program p(A: f32[10, 170]) -> (O: f32[10, 170]) {
    for i in 10 { for r in 3 { for j in 170 unrolled {
      block b(v < 10 spatial = i, w < 170 spatial = j, u < 3 reduce = r) sum init 0.0 {
        O[v, w] = select(((1 <= (v + u)) && ((((v + u) < 11) && (1 <= (w + u))) && ((w + u) < 171))), A[((v + u) - 1), ((w + u) - 1)], 0.0)
      }
    } } } })"));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  int interiors = 0;
  ir::VisitStmt(lowered->body, [&](const ir::Stmt& s) {
    auto* loop = ir::As<ir::For>(s);
    if (loop == nullptr || loop->extent != 8) return true;
    ++interiors;
    EXPECT_THAT(ir::Print(s), Not(HasSubstr("select")));
    return false;
  });
  EXPECT_EQ(interiors, 1) << ir::Print(*lowered);
}

// How many stores run, by their number of lanes.
std::map<int64_t, int64_t> StoresByLanes(const ir::Stmt& s, int64_t times = 1, int64_t lanes = 1) {
  std::map<int64_t, int64_t> stores;
  if (ir::As<ir::Store>(s)) stores[lanes] += times;
  const auto* loop = ir::As<ir::For>(s);
  if (loop && loop->kind == ir::LoopKind::kVectorized) {
    lanes = loop->extent;
  } else if (loop) {
    times *= loop->extent;
  }
  ir::ForEachChild(s, [&](const ir::Stmt& child) {
    for (const auto& [width, count] : StoresByLanes(child, times, lanes)) stores[width] += count;
  });
  return stores;
}

// An image padded by two rows and columns on each side; what it reads there.
struct Padded {
  std::string type = "f32";
  std::string zero = "0.0";
  int64_t columns = 40;
  int64_t channels = 3;
  std::string rows{};  // the kind of their loop
  std::string read = "A[(u - 2), (v - 2), w]";

  ir::Program Make() const {
    const std::string c = std::to_string(channels), n = std::to_string(columns),
                      all = std::to_string(columns + 4), end = std::to_string(columns + 2);
    return Parsed("program p(A: " + type + "[20, " + n + ", " + c + "]) -> (O: " + type + "[24, " +
                  all + ", " + c + "]) { for i in 24 " + rows + " { for j in " + all +
                  " { for k in " + c + " { block b(u < 24 spatial = i, v < " + all +
                  " spatial = j, w < " + c + " spatial = k) { O[u, v, w] = select(((2 <= u) && " +
                  "((u < 22) && ((2 <= v) && (v < " + end + ")))), " + read + ", " + zero +
                  ") } } } } }");
  }
};

// Rows of pixels of any width and type are copied in vectors, with what is left in a shorter one or
// alone, and give what the definition gives: also where a condition on the row stays, since threads
// share the rows.
TEST(WidenHalves, WhatIsAllocatedIsRoundedOnceAndReadAsSingle) {
  const ir::Program program = Parsed(
      "program p(x: f16[8]) -> (y: f32[8], z: f16[8]) { alloc t: f16[8] global {"
      "for i in 8 { t[i] = f16((f32(x[i]) * 0.1)) }"
      "for j in 8 { y[j] = (f32(t[j]) + f32(x[j])) z[j] = t[j] } } }");
  const ir::Program wide = WidenHalves(program);
  const std::string text = ir::Print(wide);
  EXPECT_THAT(text, HasSubstr("alloc t: f32[8]"));
  EXPECT_THAT(text, HasSubstr("t[i] = f32(f16((f32(x[i]) * 0.1)))"));
  EXPECT_THAT(text, HasSubstr("y[j] = (t[j] + f32(x[j]))"));
  EXPECT_THAT(text, HasSubstr("z[j] = f16(t[j])"));
}

TEST(WidenCopies, RowsOfNarrowPixels) {
  const auto check = [](const Padded& image, int64_t lanes) {
    const ir::Program program = image.Make();
    const auto lowered = Lower(program);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    SCOPED_TRACE(ir::Print(*lowered));
    int64_t elements = 0, whole = 0, narrow = 0;
    for (const auto& [width, count] : StoresByLanes(lowered->body)) {
      elements += width * count;
      if (width == lanes) whole += count;
      if (width < kMinWidenedElements) narrow += count * width;
    }
    EXPECT_EQ(elements, 24 * (image.columns + 4) * image.channels);
    EXPECT_GE(whole, 20 * (image.columns * image.channels / lanes));
    EXPECT_LE(narrow, 24 * (4 + kMinWidenedElements));
    for (const std::string target : {"llvm -mcpu=native -threads=4", "llvm -mcpu=x86-64-v3"}) {
      const absl::Status status = testing::CheckConformance(program, {.target = target});
      EXPECT_TRUE(status.ok()) << target << ": " << status;
    }
  };
  for (const int64_t channels : {1, 2, 3, 5, 7, 12, 16, 19}) {
    for (const std::string rows : {"", "parallel"}) check({.channels = channels, .rows = rows}, 16);
  }
  for (const int64_t columns : {11, 17, 33}) check({.columns = columns}, 16);
  check({.columns = 33, .channels = 1}, 16);
  check({.type = "f64", .zero = "0.0f64", .columns = 35}, 8);
  check({.type = "i8", .zero = "0i8", .columns = 43}, 64);
}

// Neither what does not lie side by side nor what is more than a copy.
TEST(WidenCopies, NothingElse) {
  for (const char* read : {"A[(u - 2), (v - 2), (2 - w)]", "A[(u - 2), (41 - v), w]",
                           "(A[(u - 2), (v - 2), w] + 1.0)"}) {
    const auto lowered = Lower(Padded{.read = read}.Make());
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_EQ(StoresByLanes(lowered->body)[1], 20 * 40 * 3) << ir::Print(*lowered);
  }
  const auto itself = Lower(Parsed(
      "program p(A: f32[32]) -> (O: f32[32]) { O[0] = A[0] for j in 31 { O[(j + 1)] = select((O[0] "
      "< 1.0), A[j], 5.0) } }"));
  ASSERT_TRUE(itself.ok()) << itself.status();
  EXPECT_EQ(StoresByLanes(itself->body)[1], 32) << ir::Print(*itself);
}

TEST(Unroll, KeepsALoopThatWouldGrowTooLarge) {
  auto count_loops = [](int extent) {
    std::string n = std::to_string(extent);
    auto lowered =
        Lower(Parsed("program p(A: f32[" + n + "]) -> (O: f32[" + n + "]) { for i in " + n +
                     " unrolled { block b(v < " + n + " spatial = i) { O[v] = A[v] } } }"));
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    int loops = 0;
    ir::VisitStmt(lowered->body, [&](const ir::Stmt& s) {
      loops += ir::As<ir::For>(s) != nullptr;
      return true;
    });
    return loops;
  };
  EXPECT_EQ(count_loops(16), 0);
  EXPECT_EQ(count_loops(4000), 1);
}

// ---- overwrite ----

std::vector<std::string> Pairs(const std::string& text) {
  const ir::Program program = Parsed(text);
  std::vector<std::string> names;
  for (const Overwrite& pair : FindOverwrites(program)) {
    names.push_back(program.outputs[static_cast<size_t>(pair.output)]->name + " over " +
                    program.inputs[static_cast<size_t>(pair.input)]->name);
  }
  return names;
}

TEST(Overwrite, WhatIsReadWhereItIsWritten) {
  EXPECT_THAT(Pairs(R"(program p(a: f32[4, 8], b: f32[8], c: f32[4, 8]) -> (y: f32[4, 8]) {
                         for i in 4 { for j in 8 vectorized {
                           y[i, j] = ((a[i, j] * b[j]) + c[i, j]) } } })"),
              ElementsAre("y over a", "y over c"));
}

TEST(Overwrite, NothingElse) {
  // Another element.
  EXPECT_THAT(Pairs(R"(program p(a: f32[8]) -> (y: f32[8]) {
                         for i in 8 { y[i] = a[(7 - i)] } })"),
              IsEmpty());
  // Twice: the second time reads what the first wrote.
  EXPECT_THAT(Pairs(R"(program p(a: f32[8]) -> (y: f32[8]) {
                         for t in 2 { for i in 8 { y[i] = (a[i] + 1.0) } } })"),
              IsEmpty());
  // Partial results.
  EXPECT_THAT(Pairs(R"(program p(a: f32[8]) -> (y: f32[8]) {
                         for i in 8 { y[i] = a[i] }
                         for i2 in 8 { y[i2] = (y[i2] + 1.0) } })"),
              IsEmpty());
  // Another output wants the input too, after it was overwritten.
  EXPECT_THAT(Pairs(R"(program p(a: f32[8]) -> (y: f32[8], z: f32[8]) {
                         for i in 8 { y[i] = (a[i] + 1.0) }
                         for i2 in 8 { z[i2] = a[i2] } })"),
              IsEmpty());
  // A guard reads it.
  EXPECT_THAT(Pairs(R"(program p(a: f32[8]) -> (y: f32[8]) {
                         for i in 8 { if (a[0] < 1.0) { y[i] = a[i] } }
                       })"),
              IsEmpty());
  // Other types and shapes.
  EXPECT_THAT(Pairs(R"(program p(a: f32[8], b: i32[8]) -> (y: f32[2, 4]) {
                         for i in 2 { for j in 4 { y[i, j] = (a[((i * 4) + j)] + f32(b[((i * 4) + j)])) } } })"),
              IsEmpty());
}

}  // namespace
}  // namespace heddle::pass
