#include "compiler/ir/text.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>

#include "base/vocabulary/workload_bytes.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"
#include "tests/ir/random_ir.h"
#include "tests/ir/run_program.h"

namespace heddle::ir {
namespace {

bool SameBits(const interpreter::Arena& a, const interpreter::Arena& b) {
  return a.memory == b.memory;
}

// What knows no loop programs reads the sizes from their text.
TEST(Text, TheFirstLineTellsTheBytes) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 rng(seed);
    const Program program = RandomProgram(rng, false).Make();
    int64_t bytes = 0;
    for (const auto* buffers : {&program.inputs, &program.outputs}) {
      for (const BufferRef& buffer : *buffers) bytes += buffer->SizeBytes();
    }
    EXPECT_EQ(BytesOfWorkload(Print(program)), bytes) << Print(program);
    EXPECT_GT(bytes, 0);
  }
}

TEST(Text, RandomProgramsRoundTripAndMeanTheSame) {
  std::mt19937_64 rng(1);
  int ran = 0;
  for (int n = 0; n < 500; ++n) {
    const Program program = RandomProgram(rng, false).Make();
    const std::string text = Print(program);
    ASSERT_TRUE(Verify(program).ok()) << Verify(program) << "\n" << text;
    const absl::StatusOr<Program> parsed = Parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << text;
    ASSERT_EQ(Print(*parsed), text);
    ASSERT_TRUE(Verify(*parsed).ok());
    interpreter::Arena a(program), b(*parsed);
    const absl::Status first = interpreter::Interpret(program, a.tensors),
                       second = interpreter::Interpret(*parsed, b.tensors);
    ASSERT_EQ(first, second) << text;
    ASSERT_TRUE(SameBits(a, b)) << text;
    ran += first.ok();
  }
  EXPECT_GT(ran, 400);
}

TEST(Text, ConstInputsRoundTrip) {
  const std::string text =
      "program p(x: f32[4], w: f32[4] const) -> (y: f32[4]) {\n"
      "  for i in 4 {\n    y[i] = (x[i] * w[i])\n  }\n}\n";
  const auto program = Parse(text);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_FALSE(program->inputs[0]->constant);
  EXPECT_TRUE(program->inputs[1]->constant);
  const std::string printed = Print(*program);
  EXPECT_NE(printed.find("(x: f32[4], w: f32[4] const) -> (y: f32[4])"), std::string::npos);
  EXPECT_EQ(Print(*Parse(printed)), printed);
  // Only an input can be known when a module is made.
  const auto output = Parse("program p() -> (y: f32[1] const) { y[0] = 0.0 }");
  EXPECT_TRUE(!output.ok() || !Verify(*output).ok());
  EXPECT_FALSE(
      Parse("program p() -> (y: f32[1]) { alloc t: f32[1] global const { y[0] = 0.0 } }").ok());
}

TEST(Text, BrokenTextNeverCrashesTheParser) {
  std::mt19937_64 rng(2);
  for (int n = 0; n < 300; ++n) {
    RandomProgram random(rng, false);
    std::string text = Print(random.Make());
    for (int64_t edits = random.Pick(1, 4); edits > 0 && !text.empty(); --edits) {
      const size_t at = random.Pick(0, text.size() - 1);
      switch (random.Pick(0, 3)) {
        case 0:
          text.erase(at, random.Pick(1, 20));
          break;
        case 1:
          text.insert(at, text.substr(random.Pick(0, text.size() - 1), 15));
          break;
        case 2:
          text[at] = static_cast<char>(random.Pick(1, 255));
          break;
        default:
          text.resize(at);
      }
    }
    if (const absl::StatusOr<Program> program = Parse(text); program.ok()) (void)Verify(*program);
  }
}

TEST(Text, DeepNestingIsRefused) {
  std::string expr(100000, '(');
  const auto program = Parse("program p() -> (y: f32[]) { y[] = " + expr);
  ASSERT_FALSE(program.ok());
  EXPECT_NE(std::string(program.status().message()).find("nest too deeply"), std::string::npos);
}

// A name means something inside of its statement only, and what it meant outside it means again afterwards.
TEST(Text, NamesEndWithTheirStatement) {
  const auto parses = [](const std::string& body) {
    return Parse("program p() -> (y: f32[4]) { " + body + " }").ok();
  };
  EXPECT_TRUE(parses("for i in 4 { for i in 2 { y[i] = 0.0 } y[i] = 1.0 }"));
  EXPECT_FALSE(parses("for i in 4 { y[i] = 0.0 } y[i] = 1.0"));
  EXPECT_FALSE(parses("alloc t: f32[1] local { t[0] = 0.0 } t[0] = 1.0"));
  EXPECT_FALSE(parses("for i in 4 { block b(v < 4 spatial = i) { y[v] = 0.0 } y[v] = 1.0 }"));
  EXPECT_FALSE(parses("block b(v < 4 spatial = 0, v < 4 spatial = 1) { y[v] = 0.0 } y[v] = 1.0"));
  EXPECT_TRUE(parses(
      "for v in 4 { block b(v < 4 spatial = v, v < 2 spatial = 0) { y[v] = 0.0 } y[v] = 1.0 }"));
}

TEST(Text, ManyNamesTakeLinearTime) {
  constexpr int kMany = 20'000;
  std::string text = "program p() -> (y: f32[4]) {\n";
  for (int i = 0; i < kMany; ++i) {
    const std::string n = std::to_string(i);
    text += "for i" + n + " in 4 { block b" + n + "(v" + n + " < 4 spatial = i" + n + ") { y[v" +
            n + "] = 0.0 } }\n";
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(Parse(text + "}").ok());
  // Some hundredths of a second; with a copy of all names for each block it was a minute.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Text, NamesOfDerivedLoopsAreNames) {
  EXPECT_TRUE(IsName("conv2d.i0.1"));
  EXPECT_TRUE(IsName("conv2d.i0*conv2d.i1"));
  EXPECT_TRUE(IsName("pad@conv2d.i0.2"));
  for (const char* bad : {"", "1a", "a b", "a-b", "if", "inf", "a/b", ".a"})
    EXPECT_FALSE(IsName(bad)) << bad;
}

TEST(Visit, SubstituteAndFreeVars) {
  auto i = std::make_shared<Var>(Var{"i"}), j = std::make_shared<Var>(Var{"j"});
  const Expr e = VarExpr(i) * Int(4) + VarExpr(j) + VarExpr(i);
  EXPECT_EQ(FreeVars(e).size(), 2u);
  const Expr s = Substitute(e, {{i.get(), Int(2)}});
  EXPECT_EQ(Print(s), "((8 + j) + 2)");
  EXPECT_FALSE(UsesVar(s, i.get()));
  EXPECT_EQ(Substitute(e, {}), e) << "an unchanged expression is shared, not copied";
}

TEST(Visit, FlopsCountFloatArithmeticOnly) {
  const auto program = Parse(R"(program p(x: f32[8], w: f32[8]) -> (y: f32[4]) {
    for i in 4 { for k in 8 {
      block b(vi < 4 spatial = i, vk < 8 reduce = k) sum init 0.0 {
        y[vi] = select((vk < 3), (x[vk] * w[(vk + 0)]), f32(exp(f64(x[vk]))))
      } } }
  })");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(CountFlops(*program), 4 * 8 * 3);  // multiply, exp, and the sum
}

}  // namespace
}  // namespace heddle::ir
