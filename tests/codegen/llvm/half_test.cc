// 16-bit floats: rounding, their text, and who refuses them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/driver/compile.h"
#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "tests/codegen/cuda/tensor_programs.h"

namespace heddle::testing {
namespace {

using ir::DType;

// Every number between two neighbours goes to the nearer one, and one half way to the even one.
TEST(Halves, RoundToTheNearest) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    const int largest = type == DType::kF16 ? 0x7bff : 0x7f7f;
    for (int bits = 0; bits < largest; ++bits) {
      const double low = ir::HalfValue(static_cast<uint16_t>(bits), type);
      const double high = ir::HalfValue(static_cast<uint16_t>(bits + 1), type);
      ASSERT_LT(low, high);
      const auto half = static_cast<float>((low + high) / 2);
      ASSERT_EQ(half, (low + high) / 2);
      const auto check = [&](float value, int expected) {
        for (const int sign : {0, 0x8000}) {
          const float signed_value = sign ? -value : value;
          ASSERT_EQ(ir::HalfBits(signed_value, type), expected | sign) << signed_value;
        }
      };
      check(static_cast<float>(low), bits);
      check(half, bits % 2 == 0 ? bits : bits + 1);
      check(std::nextafter(half, 0.0f), bits);
      check(std::nextafter(half, std::numeric_limits<float>::infinity()), bits + 1);
    }
    const float inf = std::numeric_limits<float>::infinity();
    EXPECT_EQ(ir::HalfValue(ir::HalfBits(inf, type), type), inf);
    EXPECT_EQ(ir::HalfValue(ir::HalfBits(-inf, type), type), -inf);
    EXPECT_TRUE(std::isnan(ir::HalfValue(ir::HalfBits(std::nanf(""), type), type)));
  }
  EXPECT_EQ(ir::HalfBits(65519.996f, DType::kF16), 0x7bff);
  EXPECT_EQ(ir::HalfBits(65520.0f, DType::kF16), 0x7c00);
}

TEST(Halves, LiteralsAndCastsRoundTrip) {
  const std::string text =
      "program p(x: f16[4], z: bf16[4]) -> (y: bf16[4], w: f16[4]) {\n"
      "  for i in 4 {\n"
      "    y[i] = select((i < 2), bf16(f32(x[i])), 1.5bf16)\n"
      "    w[i] = select((i < 3), f16(tf32(f32(z[i]))), f16(-inf))\n"
      "  }\n}\n";
  const auto program = ir::Parse(text);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(ir::Verify(*program).ok()) << ir::Verify(*program);
  EXPECT_EQ(ir::Print(*program), text);
  const std::vector<HostTensor> inputs = MakeInputs(*program, 1);
  std::vector<HostTensor> outputs = MakeOutputs(*program);
  ASSERT_TRUE(RunInterpreter(*program, inputs, outputs).ok());
  EXPECT_EQ(outputs[0].Get(1), inputs[0].Get(1));
  EXPECT_EQ(outputs[0].Get(2), 1.5);
  EXPECT_EQ(outputs[1].Get(3), -std::numeric_limits<double>::infinity());
  for (const char* wrong : {"(x[0] + x[1])", "max(x[0], x[1])", "exp(x[0])"}) {
    const auto arithmetic =
        ir::Parse(absl::StrCat("program p(x: f16[2]) -> (y: f16[1]) { y[0] = ", wrong, " }"));
    ASSERT_TRUE(arithmetic.ok()) << arithmetic.status();
    EXPECT_FALSE(ir::Verify(*arithmetic).ok()) << wrong;
  }
}

TEST(Halves, CpusRefuseThemInOneLine) {
  const auto built = BuildCandidate(ir::Print(Product({})), ScheduleChoice::kNaive, "",
                                    *ParseTarget("llvm -mcpu=x86-64"));
  EXPECT_TRUE(absl::IsUnimplemented(built.status())) << built.status();
  EXPECT_NE(built.status().message().find("f16"), absl::string_view::npos);
  EXPECT_EQ(built.status().message().find('\n'), absl::string_view::npos);
}

}  // namespace
}  // namespace heddle::testing
