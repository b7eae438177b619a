// One suite for all back ends: each program runs on the interpreter and as LLVM code, and both must
// agree.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "tests/codegen/kernel_runner.h"
#include "tests/places.h"

namespace heddle::testing {
namespace {

using ir::DType;
using ir::Expr;
using ir::Op;

ir::Program ParseVerified(const std::string& text) {
  absl::StatusOr<ir::Program> program = ir::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status() << "\n" << text;
  if (!program.ok()) return {};
  EXPECT_TRUE(ir::Verify(*program).ok()) << ir::Verify(*program) << "\n" << text;
  return *std::move(program);
}

void ExpectConforms(const ir::Program& program, const LlvmRun& run = {}) {
  absl::Status status = CheckConformance(program, run);
  EXPECT_TRUE(status.ok()) << status << "\n" << ir::Print(program);
}

template <typename T>
std::string NameOf(T value) {
  return std::string(ir::Name(value));
}

// ---- Text cases
// --------------------------------------------------------------------------------------------------

class TextCase : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> CaseFiles() {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(HEDDLE_SOURCE_DIR "/tests/cases/conformance")) {
    if (entry.path().extension() == ".ir") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST_P(TextCase, Conforms) {
  std::ostringstream text;
  text << std::ifstream(GetParam()).rdbuf();
  ir::Program program = ParseVerified(text.str());
  for (int workers : {1, 3}) ExpectConforms(program, {.workers = workers});
  ExpectConforms(program, {.options = {.opt_level = 0}});
  ExpectConforms(program, {.options = {.vectorizer = false}, .target = "llvm -mcpu=x86-64-v3"});
}

INSTANTIATE_TEST_SUITE_P(All, TextCase, ::testing::ValuesIn(CaseFiles()), [](const auto& info) {
  return absl::StrReplaceAll(std::filesystem::path(info.param).stem().string(), {{"-", "_"}});
});

// ---- Every operator on every type in every kind of loop
// ------------------------------------------------------------

constexpr int64_t kElements = 37;  // not a multiple of the lanes

const DType kAllTypes[] = {DType::kBool, DType::kI8,  DType::kU8,  DType::kI16, DType::kU16,
                           DType::kI32,  DType::kU32, DType::kI64, DType::kU64, DType::kF32,
                           DType::kF64,  DType::kF16, DType::kBF16};

// O[i] = value(A[i], B[i], C[i]) in a plain, an unrolled, a parallel, and a vectorized loop with a
// guarded tail.
struct Loop {
  const char* name;
  const char* text;
};
const Loop kLoops[] = {
    {"plain", "for i in 37 { block b(v < 37 spatial = i) { STORE } }"},
    {"unrolled", "for i in 37 unrolled { block b(v < 37 spatial = i) { STORE } }"},
    {"parallel", "for i in 37 parallel { block b(v < 37 spatial = i) { STORE } }"},
    {"vectorized",
     "for i in 5 { for j in 8 vectorized { block b(v < 37 spatial = ((i * 8) + j)) where (((i * 8) "
     "+ j) < 37) { STORE } } }"},
    {"wide", "for i in 37 vectorized { block b(v < 37 spatial = i) { STORE } }"},
};

struct OpCase {
  std::string name;
  DType in, out;
  std::string value;  // in A[v], B[v], C[v] (bool)
};

// What keeps an argument inside the domain of an operator.
std::string Argument(Op op, DType dtype, const std::string& x) {
  if (!ir::IsFloat(dtype)) return x;
  const std::string suffix = NameOf(dtype);
  switch (op) {
    case Op::kAcosh:
      return absl::StrCat("(abs(", x, ") + 1.5", suffix, ")");
    case Op::kAtanh:
      return absl::StrCat("(", x, " * 0.9", suffix, ")");
    case Op::kLog:
    case Op::kSqrt:
      return absl::StrCat("(", x, " + 0.75", suffix, ")");  // some of it negative: NaN
    case Op::kAsin:
    case Op::kAcos:
      return x;
    default:
      return absl::StrCat("(", x, " * 5.0", suffix, ")");
  }
}

std::vector<OpCase> OpCases() {
  std::vector<OpCase> cases;
  for (DType dtype : kAllTypes) {
    const std::string type = NameOf(dtype);
    const bool is_float = ir::IsFloat(dtype), is_bool = dtype == DType::kBool;
    auto add = [&](const std::string& name, DType out, const std::string& value) {
      cases.push_back({absl::StrCat(name, "_", type), dtype, out, value});
    };
    add("select", dtype, "select(C[v], A[v], B[v])");
    for (DType to : kAllTypes)
      add(absl::StrCat("to_", NameOf(to)), to, absl::StrCat(NameOf(to), "(A[v])"));
    if (ir::IsHalf(dtype)) {
      add("sum", dtype, absl::StrCat(type, "((f32(A[v]) + f32(B[v])))"));
      add("constant", dtype, absl::StrCat("select((v < 20), A[v], 0.1", type, ")"));
      continue;
    }
    for (auto [name, text] : {std::pair{"lt", "<"}, {"le", "<="}, {"eq", "=="}, {"ne", "!="}}) {
      add(name, DType::kBool, absl::StrCat("(A[v] ", text, " B[v])"));
    }
    if (is_bool) {
      add("and", DType::kBool, "(A[v] && B[v])");
      add("or", DType::kBool, "(A[v] || B[v])");
      add("not", DType::kBool, "not(A[v])");
      continue;
    }
    for (auto [name, text] : {std::pair{"add", "+"}, {"sub", "-"}, {"mul", "*"}}) {
      add(name, dtype, absl::StrCat("(A[v] ", text, " B[v])"));
    }
    const std::string one = is_float ? "1.0" + type : type == "i64" ? "1" : "1" + type;
    const std::string three = type == "i64" ? "3" : "3" + type;
    const std::string zero = is_float ? "0.0" + type : type == "i64" ? "0" : "0" + type;
    // Of integers -1 (of unsigned ones the largest), 0 and 1, where division is easy to get wrong, and anything.
    const std::string edge = absl::StrCat("((B[v] % ", three, ") - ", one, ")");
    for (auto [name, text] : {std::pair{"div", "/"}, {"floordiv", "//"}, {"floormod", "%"}}) {
      if (is_float && name[0] == 'f') continue;
      add(name, dtype, absl::StrCat("(A[v] ", text, " B[v])"));
      if (!is_float) {
        add(absl::StrCat(name, "_edge"), dtype, absl::StrCat("(A[v] ", text, " ", edge, ")"));
      }
    }
    for (const char* name : {"min", "max"}) add(name, dtype, absl::StrCat(name, "(A[v], B[v])"));
    add("pow", dtype, is_float ? "pow(abs(A[v]), B[v])" : "pow(A[v], B[v])");
    for (const char* name : {"abs", "sign"}) add(name, dtype, absl::StrCat(name, "(A[v])"));
    if (!ir::IsUnsigned(dtype)) add("neg", dtype, "neg(A[v])");
    if (!is_float) continue;
    for (Op op : {Op::kExp, Op::kLog, Op::kSqrt, Op::kTanh, Op::kErf, Op::kSin, Op::kCos, Op::kTan,
                  Op::kAsin, Op::kAcos, Op::kAtan, Op::kSinh, Op::kCosh, Op::kAsinh, Op::kAcosh,
                  Op::kAtanh, Op::kFloor, Op::kCeil, Op::kRound}) {
      add(NameOf(op), dtype, absl::StrCat(NameOf(op), "(", Argument(op, dtype, "A[v]"), ")"));
    }
    add("is_nan", DType::kBool, absl::StrCat(NameOf(Op::kIsNan), "(sqrt(A[v]))"));
    add("is_inf", DType::kBool, absl::StrCat(NameOf(Op::kIsInf), "((A[v] / ", zero, "))"));
  }
  return cases;
}

class EveryOp : public ::testing::TestWithParam<OpCase> {};

TEST_P(EveryOp, InEveryLoop) {
  const OpCase& c = GetParam();
  for (const Loop& loop : kLoops) {
    SCOPED_TRACE(loop.name);
    std::string body =
        absl::StrReplaceAll(loop.text, {{"STORE", absl::StrCat("O[v] = ", c.value)}});
    ir::Program program = ParseVerified(
        absl::StrCat("program p(A: ", NameOf(c.in), "[37], B: ", NameOf(c.in),
                     "[37], C: bool[37]) -> (O: ", NameOf(c.out), "[37]) { ", body, " }"));
    ExpectConforms(program, {.workers = 2, .options = {.opt_level = 1}});
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryOp, ::testing::ValuesIn(OpCases()),
                         [](const auto& info) { return info.param.name; });

// ---- Every reduction on every type
// ---------------------------------------------------------------------------------

TEST(Reductions, EveryOperatorAndType) {
  for (DType dtype : kAllTypes) {
    if (dtype == DType::kBool || ir::IsHalf(dtype)) continue;
    for (const char* op : {"sum", "prod", "max", "min"}) {
      const std::string type = NameOf(dtype);
      const char* init = ir::IsFloat(dtype) ? "0.5" : "1";
      ir::Program program = ParseVerified(
          absl::StrCat("program p(A: ", type, "[24, 50]) -> (O: ", type,
                       "[24]) { for i in 3 { for j in 8 vectorized { for k in 50 {",
                       "block b(v < 24 spatial = ((i * 8) + j), r < 50 reduce = k) ", op, " init ",
                       init, type == "i64" ? "" : type, " { O[v] = A[v, r] } } } } }"));
      ExpectConforms(program);
    }
  }
}

// ---- The suite can fail
// --------------------------------------------------------------------------------------------

TEST(Suite, SeesAWrongResult) {
  ir::Program program = ParseVerified(
      "program p(A: f32[4]) -> (O: f32[4]) { for i in 4 { block b(v < 4 spatial = i) { O[v] = A[v] "
      "} } }");
  std::vector<HostTensor> inputs = MakeInputs(program, 1);
  std::vector<HostTensor> expected = MakeOutputs(program), actual = MakeOutputs(program);
  ASSERT_TRUE(RunInterpreter(program, inputs, expected).ok());
  ASSERT_TRUE(RunLlvm(program, inputs, actual).ok());
  EXPECT_TRUE(Compare(program, expected, actual).ok());
  actual[0].Set(3, expected[0].Get(3) + 0.01);
  EXPECT_FALSE(Compare(program, expected, actual).ok());
}

}  // namespace
}  // namespace heddle::testing
