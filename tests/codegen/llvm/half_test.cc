// 16-bit floats: rounding, their text, and the code of CPUs.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/backend.h"
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

// CPUs with instructions between f16 and f32, and CPUs without.
const char* const kCpus[] = {"llvm -mcpu=native", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64"};

bool RunsHere(const char* cpu) {
  const Target target = *codegen::ResolveTarget(*ParseTarget(cpu));
  return codegen::BackendOf(target).RunsHere(target);
}

// All 65,536 patterns as f32 and back, in vectors and one by one. A NaN stays a NaN.
TEST(Halves, EveryPatternOnCpus) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    const std::string name(ir::Name(type));
    for (const char* kind : {"", "vectorized"}) {
      const auto program = ir::Parse(absl::StrCat(
          "program p(x: ", name, "[4096, 16]) -> (y: f32[4096, 16], z: ", name,
          "[4096, 16]) { for i in 4096 { for j in 16 ", kind,
          " { block a(r < 4096 spatial = i, c < 16 spatial = j) { y[r, c] = f32(x[r, c]) } } }",
          " for k in 4096 { for l in 16 ", kind,
          " { block b(r2 < 4096 spatial = k, c2 < 16 spatial = l) { z[r2, c2] = ", name,
          "(y[r2, c2]) } } } }"));
      ASSERT_TRUE(program.ok()) << program.status();
      std::vector<HostTensor> inputs = MakeInputs(*program, 1);
      auto* bits = reinterpret_cast<uint16_t*>(inputs[0].data());
      for (int i = 0; i < 65536; ++i) bits[i] = static_cast<uint16_t>(i);
      for (const char* cpu : kCpus) {
        if (!RunsHere(cpu)) continue;
        SCOPED_TRACE(absl::StrCat(name, " ", kind, " ", cpu));
        std::vector<HostTensor> outputs = MakeOutputs(*program);
        const absl::Status status = RunLlvm(*program, inputs, outputs, {.target = cpu});
        ASSERT_TRUE(status.ok()) << status;
        const auto* single = reinterpret_cast<const float*>(outputs[0].data());
        const auto* back = reinterpret_cast<const uint16_t*>(outputs[1].data());
        for (int i = 0; i < 65536; ++i) {
          const float expected = ir::HalfValue(static_cast<uint16_t>(i), type);
          if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(single[i])) << i;
            ASSERT_TRUE(std::isnan(ir::HalfValue(back[i], type))) << i;
          } else {
            ASSERT_EQ(std::bit_cast<uint32_t>(single[i]), std::bit_cast<uint32_t>(expected)) << i;
            ASSERT_EQ(back[i], i);
          }
        }
      }
    }
  }
}

// f32s around every number and every tie, and numbers, infinities and NaNs of random bits.
TEST(Halves, RoundAlikeOnCpus) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    const std::string name(ir::Name(type));
    const auto program = ir::Parse(absl::StrCat(
        "program p(x: f32[32768, 16], d: f64[32768, 16]) -> (y: ", name, "[32768, 16], z: ", name,
        "[32768, 16]) { for i in 32768 { for j in 16 vectorized { block a(r < 32768 spatial = i, ",
        "c < 16 spatial = j) { y[r, c] = ", name, "(x[r, c]) } block b(q < 32768 spatial = i, ",
        "e < 16 spatial = j) { z[q, e] = ", name, "(d[q, e]) } } } }"));
    ASSERT_TRUE(program.ok()) << program.status();
    std::vector<HostTensor> inputs = MakeInputs(*program, 1);
    auto* single = reinterpret_cast<float*>(inputs[0].data());
    auto* twice = reinterpret_cast<double*>(inputs[1].data());
    std::mt19937 random(1);
    for (int i = 0; i < 65536; ++i) {
      const auto at = static_cast<uint16_t>(i);
      const float low = ir::HalfValue(at, type), high = ir::HalfValue(at + 1, type);
      const float tie = low / 2 + high / 2;
      const float inf = std::numeric_limits<float>::infinity();
      const float all[] = {tie,
                           std::nextafter(tie, inf),
                           std::nextafter(tie, -inf),
                           std::nextafter(low, inf),
                           std::bit_cast<float>(static_cast<uint32_t>(random())),
                           std::bit_cast<float>(static_cast<uint32_t>(random())),
                           std::bit_cast<float>(static_cast<uint32_t>(random()) & 0x800fffff),
                           std::bit_cast<float>(static_cast<uint32_t>(random()) | 0x7f800000)};
      for (int k = 0; k < 8; ++k) {
        single[i * 8 + k] = all[k];
        twice[i * 8 + k] = all[k] * (1 + 0x1p-30);  // above the tie, but not as an f32
      }
    }
    for (const char* cpu : kCpus) {
      if (!RunsHere(cpu)) continue;
      SCOPED_TRACE(absl::StrCat(name, " ", cpu));
      std::vector<HostTensor> outputs = MakeOutputs(*program);
      const absl::Status status = RunLlvm(*program, inputs, outputs, {.target = cpu});
      ASSERT_TRUE(status.ok()) << status;
      for (int k = 0; k < 2; ++k) {
        const auto* found = reinterpret_cast<const uint16_t*>(outputs[k].data());
        for (int i = 0; i < 8 * 65536; ++i) {
          const float x = k == 0 ? single[i] : static_cast<float>(twice[i]);
          if (std::isnan(x))
            ASSERT_TRUE(std::isnan(ir::HalfValue(found[i], type))) << i;
          else
            ASSERT_EQ(found[i], ir::HalfBits(x, type)) << i << ": " << x;
        }
      }
    }
  }
}

// What is computed of halves is computed in f32, and rounded once where it is stored.
TEST(Halves, ArithmeticIsSingle) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    const std::string name(ir::Name(type));
    for (const char* op : {"+", "-", "*", "/"}) {
      const auto program = ir::Parse(absl::StrCat(
          "program p(x: ", name, "[4096, 16], w: ", name, "[4096, 16]) -> (y: ", name,
          "[4096, 16]) { for i in 4096 { for j in 16 vectorized { block a(r < 4096 spatial = i, ",
          "c < 16 spatial = j) { y[r, c] = ", name, "((f32(x[r, c]) ", op,
          " f32(w[r, c]))) } } } }"));
      ASSERT_TRUE(program.ok()) << program.status();
      std::vector<HostTensor> inputs = MakeInputs(*program, 1);
      std::mt19937 random(1);
      for (HostTensor& input : inputs) {
        for (int i = 0; i < 65536; ++i)
          reinterpret_cast<uint16_t*>(input.data())[i] = static_cast<uint16_t>(random());
      }
      std::vector<HostTensor> expected = MakeOutputs(*program), found = MakeOutputs(*program);
      ASSERT_TRUE(RunInterpreter(*program, inputs, expected).ok());
      for (const char* cpu : kCpus) {
        if (!RunsHere(cpu)) continue;
        const absl::Status status = RunLlvm(*program, inputs, found, {.target = cpu});
        ASSERT_TRUE(status.ok()) << status;
        for (int i = 0; i < 65536; ++i) {
          const double a = expected[0].Get(i), b = found[0].Get(i);
          ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b)))
              << name << " " << op << " " << cpu << ": " << a << " and " << b;
        }
      }
    }
  }
}

TEST(Halves, CpusRefuseTensorCoresInOneLine) {
  const auto built = BuildCandidate(
      "program p(x: f32[4]) -> (y: f32[4]) { for i in 4 { block b(v < 4 spatial = i) { y[v] = "
      "tf32(x[v]) } } }",
      ScheduleChoice::kNaive, "", *ParseTarget("llvm -mcpu=x86-64"));
  EXPECT_TRUE(absl::IsUnimplemented(built.status())) << built.status();
  EXPECT_NE(built.status().message().find("tf32"), absl::string_view::npos);
  EXPECT_EQ(built.status().message().find('\n'), absl::string_view::npos);
}

}  // namespace
}  // namespace heddle::testing
