// What the disassembler says of code that the back end made, and of bytes that are no code.
#include "compiler/codegen/disassemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "compiler/codegen/llvm/llvm_backend.h"
#include "compiler/ir/text.h"
#include "compiler/pass/lower.h"

namespace heddle::codegen {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// Multiplies and adds vectors of 16 in a loop that threads share, so its code lies in a function of its own.
constexpr char kVectors[] = R"(
program kernel(A: f32[64, 16], B: f32[64, 16]) -> (C: f32[64, 16]) {
  for i in 64 parallel { for j in 16 vectorized {
    block b(v < 64 spatial = i, w < 16 spatial = j) { C[v, w] = ((A[v, w] * B[v, w]) + 1.0) }
  } }
})";

ir::Program Lowered(const std::string& name) {
  absl::StatusOr<ir::Program> program = ir::Parse(kVectors);
  EXPECT_TRUE(program.ok()) << program.status();
  absl::StatusOr<ir::Program> lowered = pass::Lower(*program);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  lowered->name = name;
  return *std::move(lowered);
}

std::string CodeOf(const std::vector<std::string>& names, const Target& target) {
  std::vector<ir::Program> programs;
  for (const std::string& name : names) programs.push_back(Lowered(name));
  absl::StatusOr<Artifact> artifact = CompileLlvm(programs, target);
  EXPECT_TRUE(artifact.ok()) << artifact.status();
  return artifact->shared_object;
}

TEST(Disassemble, ListsTheKernelAndTheFunctionsOfItsLoops) {
  const Target target = *ParseTarget("llvm -mcpu=x86-64-v4 -triple=x86_64-linux-gnu");
  const std::string code = CodeOf({"kernel_1", "kernel_10"}, target);
  const auto lines = Disassemble(code, "kernel_1", target);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_THAT(*lines, Contains("kernel_1:"));
  EXPECT_THAT(*lines, Contains(HasSubstr("kernel_1.parallel")));
  EXPECT_THAT(*lines, Not(Contains(HasSubstr("kernel_10"))));
  EXPECT_THAT(*lines, Contains(EndsWith(": ret")));
  const std::string text = absl::StrJoin(*lines, "\n");
  EXPECT_THAT(text, HasSubstr("zmm0")) << "the target has registers of 64 bytes";
  EXPECT_THAT(text, ContainsRegex("ptr \\[r")) << "Intel's syntax";
  EXPECT_THAT(text, Not(HasSubstr(".byte"))) << "all of it is instructions";
  // Addresses grow, and are whole numbers in base 16.
  uint64_t last = 0;
  for (const std::string& line : *lines) {
    if (line.ends_with(":")) continue;
    uint64_t address = 0;
    ASSERT_TRUE(absl::SimpleHexAtoi(line.substr(0, 8), &address)) << line;
    EXPECT_GT(address, last) << line;
    last = address;
  }
}

TEST(Disassemble, ReadsTheCodeOfOtherMachines) {
  const Target target = *ParseTarget("llvm -mcpu=neoverse-n1 -triple=aarch64-linux-gnu");
  const auto lines = Disassemble(CodeOf({"kernel"}, target), "kernel", target);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_THAT(*lines, Contains(EndsWith(": ret")));
  EXPECT_THAT(absl::StrJoin(*lines, "\n"), ContainsRegex("v[0-9]+\\.4s"));
}

TEST(Disassemble, SaysWhyThereIsNothingToList) {
  const Target target = *ParseTarget("llvm -mcpu=x86-64-v3 -triple=x86_64-linux-gnu");
  const std::string code = CodeOf({"kernel"}, target);
  const auto none = Disassemble(code, "other", target);
  EXPECT_TRUE(absl::IsNotFound(none.status())) << none.status();
  EXPECT_THAT(none.status().message(), HasSubstr("no kernel other"));
  EXPECT_TRUE(absl::IsDataLoss(Disassemble("no code", "kernel", target).status()));
  const Target arm = *ParseTarget("llvm -mcpu=neoverse-n1 -triple=aarch64-linux-gnu");
  EXPECT_TRUE(absl::IsDataLoss(Disassemble(code, "kernel", arm).status()));
  const auto gpu = Disassemble(code, "kernel", *ParseTarget("cuda -arch=sm_90"));
  EXPECT_TRUE(absl::IsUnimplemented(gpu.status()));
  EXPECT_THAT(gpu.status().message(), HasSubstr("nvdisasm"));
}

// The file of a module may be damaged by anybody.
TEST(Disassemble, DamagedCodeIsAnErrorOrOtherText) {
  const Target target = *ParseTarget("llvm -mcpu=x86-64-v3 -triple=x86_64-linux-gnu");
  const std::string good = CodeOf({"kernel"}, target);
  for (size_t size = 0; size < good.size(); size += 97)
    (void)Disassemble(good.substr(0, size), "kernel", target).status();
  std::string bytes = good;
  int refused = 0;
  for (size_t at = 0; at < bytes.size(); at += 31) {
    bytes[at] = static_cast<char>(~good[at]);
    refused += !Disassemble(bytes, "kernel", target).ok();
    bytes[at] = good[at];
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace heddle::codegen
