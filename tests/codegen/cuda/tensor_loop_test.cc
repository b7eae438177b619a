// What a tensor loop has to be: what the verifier and tensorize refuse.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/trace.h"
#include "tests/codegen/cuda/tensor_programs.h"

namespace heddle::testing {
namespace {

// One warp: 16 x 8 sums of 16 terms. $ stands for what a test changes.
std::string OneProduct(const std::string& a_index, const std::string& b_index,
                       const std::string& loop, const std::string& before = "",
                       const std::string& type = "f16") {
  return absl::StrCat("program p(a: ", type, "[16, 16], b: ", type,
                      "[16, 8]) -> (y: f32[16, 8]) {\n"
                      " for g in 1 blockIdx.x { alloc c: f32[16, 8] local { alloc s: ",
                      type,
                      "[16, 16] shared {\n"
                      " for t0 in 32 threadIdx.x { for r in 8 {\n"
                      "  s[(((t0 * 8) + r) // 16), (((t0 * 8) + r) % 16)] = a[(((t0 * 8) + r) // "
                      "16), (((t0 * 8) + r) % 16)] } }\n"
                      " barrier\n"
                      " for t1 in 32 threadIdx.x { for i0 in 2 { for j0 in 2 {\n"
                      "  c[((i0 * 8) + (t1 // 4)), (((t1 % 4) * 2) + j0)] = 0.0 } } }\n"
                      " for t in 32 threadIdx.x { ",
                      before, " ", loop,
                      "\n"
                      "  c[((i * 8) + (t // 4)), (((t % 4) * 2) + j)] = (c[((i * 8) + (t // 4)), "
                      "(((t % 4) * 2) + j)]"
                      " + (f32(s[",
                      a_index, "]) * f32(b[", b_index, "]))) } } } ", before.empty() ? "" : "}",
                      " }\n"
                      " for t2 in 32 threadIdx.x { for i2 in 2 { for j2 in 2 {\n"
                      "  y[((i2 * 8) + (t2 // 4)), (((t2 % 4) * 2) + j2)] ="
                      " c[((i2 * 8) + (t2 // 4)), (((t2 % 4) * 2) + j2)] } } }\n } } } }");
}
constexpr char kRow[] = "((i * 8) + (t // 4)), k", kColumn[] = "k, (((t % 4) * 2) + j)";
constexpr char kLoops[] = "for i in 2 tensor { for j in 2 { for k in 16 {";

std::string Refusal(const std::string& text) {
  const auto program = ir::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status() << text;
  return std::string(ir::Verify(*program, ir::Level::kLowered).message());
}

TEST(Tensor, VerifierKnowsWhatOneIs) {
  EXPECT_EQ(Refusal(OneProduct(kRow, kColumn, kLoops)), "");
  EXPECT_EQ(Refusal(OneProduct(kRow, kColumn, kLoops, "", "bf16")), "");
  const auto expect = [&](const std::string& text, const std::string& why) {
    const std::string refusal = Refusal(text);
    EXPECT_EQ(refusal.rfind("tensor: ", 0), 0) << refusal;
    EXPECT_NE(refusal.find(why), std::string::npos) << refusal;
  };
  expect(OneProduct(kRow, kColumn, "for i in 1 tensor { for j in 2 { for k in 16 {"), "1 rows");
  expect(OneProduct(kRow, kColumn, "for i in 2 tensor { for j in 2 { for k in 8 {"),
         "no plain loop of 16");
  expect(OneProduct(kRow, kColumn,
                    "for i in 2 tensor { for j in 2 unrolled { for k in 16 vectorized {"),
         "no plain loop of 16");
  expect(OneProduct(kRow, kColumn, kLoops, "if (t < 31) {"), "a condition");
  expect(OneProduct("((i * 8) + (t % 4)), k", kColumn, kLoops), "not of rows and of columns");
  expect(OneProduct(kRow, "k, ((t // 4) + 0)", kLoops), "not of rows and of columns");
  expect(OneProduct("((i * 8) + ((j * 4) + (t // 8))), k", kColumn, kLoops),
         "not of rows and of columns");
  std::string two = OneProduct(kRow, kColumn, kLoops);
  for (size_t at; (at = two.find("(((t % 4) * 2) + j)] ")) != std::string::npos;)
    two.replace(at, 21, "((t % 4) * 2)] ");
  expect(two, "not one sum for each");
  // The same row for all: the factors may be anything of their own.
  EXPECT_EQ(Refusal(OneProduct("(15 - ((i * 8) + (t // 4))), k", "(15 - k), 0", kLoops)), "");
}

TEST(Tensor, VerifierWantsOperandsThatOthersMayRead) {
  std::string text = OneProduct(kRow, kColumn, kLoops);
  const size_t shared = text.find("[16, 16] shared");
  std::string local = text;
  local.replace(shared, 15, "[16, 16] local");
  EXPECT_NE(Refusal(local).find("is local"), std::string::npos) << Refusal(local);
  // Each thread would write what it reads; on a GPU another thread of the warp reads it.
  const std::string same =
      OneProduct(kRow, kColumn, kLoops, "for w in 1 { s[(t // 2), ((t % 2) * 8)] = f16(1.0)");
  EXPECT_NE(Refusal(same).find("written in the same thread loop"), std::string::npos)
      << Refusal(same);
}

// Each thread reads what it wrote itself, as the loops have it; tensor cores give each element of b
// to other threads, too. (In shared memory a thread would wait for what it fetched itself.)
TEST(Tensor, RaceDetectorKnowsThatOthersRead) {
  const auto message = [](const std::string& kind, const std::string& barrier) {
    const auto program = ir::Parse(absl::StrCat(
        R"(program p(a: f16[16, 16], b: f16[8, 16, 8]) -> (y: f32[16, 8]) {
    for g in 1 blockIdx.x { alloc s: f16[8, 16, 8] global { alloc c: f32[16, 8] local {
      for t0 in 32 threadIdx.x {
        for k0 in 16 { for j0 in 2 {
          s[(t0 // 4), k0, (((t0 % 4) * 2) + j0)] = b[(t0 // 4), k0, (((t0 % 4) * 2) + j0)] } }
        for i1 in 2 { for j1 in 2 { c[((i1 * 8) + (t0 // 4)), (((t0 % 4) * 2) + j1)] = 0.0 } } } )",
        barrier, " for t in 32 threadIdx.x { for i in 2 ", kind, R"( { for j in 2 { for k in 16 {
        c[((i * 8) + (t // 4)), (((t % 4) * 2) + j)] =
          (c[((i * 8) + (t // 4)), (((t % 4) * 2) + j)] + (f32(a[((i * 8) + (t // 4)), k]) *
            f32(s[(t // 4), k, (((t % 4) * 2) + j)]))) } } } }
      for t2 in 32 threadIdx.x { for i2 in 2 { for j2 in 2 {
        y[((i2 * 8) + (t2 // 4)), (((t2 % 4) * 2) + j2)] =
          c[((i2 * 8) + (t2 // 4)), (((t2 % 4) * 2) + j2)] } } } } } } })"));
    EXPECT_TRUE(program.ok()) << program.status();
    const std::vector<HostTensor> inputs = MakeInputs(*program, 1);
    std::vector<HostTensor> outputs = MakeOutputs(*program);
    return std::string(RunInterpreter(*program, inputs, outputs, {.check_races = true}).message());
  };
  EXPECT_EQ(message("", ""), "");
  EXPECT_EQ(message("tensor", "barrier"), "");
  EXPECT_NE(message("tensor", "").find("without a barrier"), std::string::npos);
}

TEST(Tensor, TensorizeRefusesWhatIsNoProduct) {
  const ir::Program naive = Product({});
  const auto refused = [&](const std::string& steps) {
    const auto trace = schedule::ParseTrace(steps);
    EXPECT_TRUE(trace.ok()) << trace.status();
    const auto program = schedule::Replay(naive, *trace);
    EXPECT_FALSE(program.ok()) << ir::Print(*program);
    EXPECT_TRUE(absl::IsFailedPrecondition(program.status())) << program.status();
    return std::string(program.status().message());
  };
  EXPECT_NE(refused("tensorize i\n").find("threadIdx.x"), std::string::npos);
  EXPECT_NE(refused("unroll i\nvectorize i\ntensorize i\n").find("kind"), std::string::npos);
  EXPECT_NE(refused("tf32 dot\n").find("f32 elements"), std::string::npos);
  EXPECT_NE(refused("split i 32 1\nbind j blockIdx.x\nreorder j i.0 i.1\nbind i.0 threadIdx.x\n"
                    "tensorize i.1\n")
                .find("rows"),
            std::string::npos);
}

}  // namespace
}  // namespace heddle::testing
