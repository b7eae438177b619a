// Look-ups in tables that lie in registers: right results, nothing read beyond a buffer, and the
// instructions that do it.
#include "compiler/codegen/llvm/table_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/llvm/llvm_backend.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/machine/target_info.h"
#include "compiler/pass/lower.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/thread_pool.h"
#include "tests/codegen/kernel_runner.h"

namespace heddle::codegen {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<ir::Program> ParseVerified(const std::string& text) {
  HEDDLE_ASSIGN_OR_RETURN(ir::Program program, ir::Parse(text));
  HEDDLE_RETURN_IF_ERROR(ir::Verify(program));
  return program;
}

struct Code {
  Artifact artifact;
  std::string llvm_ir, assembly;
};

absl::StatusOr<Code> CompileFor(const ir::Program& program, const std::string& target,
                                int opt_level = 3) {
  HEDDLE_ASSIGN_OR_RETURN(const ir::Program lowered, pass::Lower(program));
  HEDDLE_ASSIGN_OR_RETURN(const Target parsed, ParseTarget(target));
  Code code;
  HEDDLE_ASSIGN_OR_RETURN(
      code.artifact,
      CompileLlvm({lowered}, parsed,
                  {.opt_level = opt_level, .llvm_ir = &code.llvm_ir, .assembly = &code.assembly}));
  return code;
}

// ---- Random tables ----

// A copy of `bytes` bytes, a multiple of 64, that ends where readable memory ends.
class AtTheEndOfMemory {
 public:
  AtTheEndOfMemory(const std::byte* from, size_t bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t readable = (bytes + page - 1) / page * page;
    size_ = readable + page;
    void* pages = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) std::abort();
    pages_ = static_cast<std::byte*>(pages);
    if (mprotect(pages_ + readable, page, PROT_NONE) != 0) std::abort();
    data_ = pages_ + readable - bytes;
    std::memcpy(data_, from, bytes);
  }
  ~AtTheEndOfMemory() { munmap(pages_, size_); }
  AtTheEndOfMemory(const AtTheEndOfMemory&) = delete;
  AtTheEndOfMemory& operator=(const AtTheEndOfMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte *pages_ = nullptr, *data_ = nullptr;
  size_t size_ = 0;
};

// A program that looks up a table T at random places X. Its first input is T, whose size is a
// multiple of 64 bytes.
struct RandomTable {
  std::string text;
  // Random numbers below these go into all inputs but T and those whose limit is 0.
  std::vector<int64_t> below;
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  RandomTable Run() {
    static constexpr const char* kElements[] = {"bool", "i8",  "u8",  "i16",  "u16", "i32",
                                                "u32",  "f32", "f64", "bf16", "f16", "i64"};
    element_ = kElements[Below(std::size(kElements))];
    const int64_t in_line = 64 / SizeOf(*ir::DTypeFromName(element_));
    rows_ = in_line;  // so that any number of elements for each row fills lines
    lanes_ = 2 + Below(63);
    columns_ = lanes_ * (1 + Below(3)) - Below(2) * Below(lanes_);
    // Few elements, powers of two, one more, and any number.
    const int64_t kind = Below(4), power = int64_t{1} << Below(9);
    window_ = kind == 0   ? 1 + Below(40)
              : kind == 1 ? power
              : kind == 2 ? std::min<int64_t>(power + 1, 256)
                          : 1 + Below(256);
    const std::string place = Place();
    const std::string index = Below(6) == 0 ? Moving(in_line) : Table(place, in_line);
    const std::string value = Guarded(absl::StrCat("T[", index, "]"));
    RandomTable result;
    result.below = below_;
    const int64_t steps = (columns_ + lanes_ - 1) / lanes_;
    result.text = absl::StrReplaceAll(
        "program p(T: ELEMENT[TABLE]INPUTS) -> (O: ELEMENT[ROWS, COLUMNS]) {\n"
        "  for i in ROWS { for j in STEPS { for l in LANES vectorized {\n"
        "    block b(v < ROWS spatial = i, w < COLUMNS spatial = ((j * LANES) + l)) WHERE {\n"
        "      O[v, w] = VALUE\n"
        "    }\n  } } }\n}\n",
        {{"ELEMENT", element_},
         {"TABLE", table_},
         {"INPUTS", inputs_},
         {"ROWS", absl::StrCat(rows_)},
         {"COLUMNS", absl::StrCat(columns_)},
         {"STEPS", absl::StrCat(steps)},
         {"LANES", absl::StrCat(lanes_)},
         {"WHERE", steps * lanes_ == columns_
                       ? ""
                       : absl::StrCat("where (((j * ", lanes_, ") + l) < ", columns_, ")")},
         {"VALUE", value}});
    return result;
  }

 private:
  int64_t Below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }

  // Adds an input; `below` 0: its elements are any.
  void Add(const std::string& declared, int64_t below, bool promised) {
    absl::StrAppend(&inputs_, ", ", declared, promised ? absl::StrCat(" < ", below) : "");
    below_.push_back(below);
  }

  // Of columns and rows, numbers that are promised to be below `below`, in a type that holds them.
  void AddPlaces(int64_t below) {
    static constexpr const char* kTypes[] = {"u8", "i8", "i16", "u16", "i32", "u32", "i64"};
    const char* type = kTypes[Below(std::size(kTypes))];
    if (below > 128 && std::string(type) == "i8") type = "u8";
    Add(absl::StrCat("X: ", type, "[", rows_, ", ", columns_, "]"), below, true);
  }

  // The place in the window as an expression that is at least 0 and less than window_.
  std::string Place() {
    const std::string x = "i64(X[v, w])";
    const std::string any = absl::StrCat("X: i32[", rows_, ", ", columns_, "]");
    switch (Below(8)) {
      case 0:
        Add(any, 1000, false);
        return absl::StrCat("min(max((", x, " - 300), 0), ", window_ - 1, ")");
      case 1:
        Add(any, 1000, false);
        return absl::StrCat("((", x, " - 500) % ", window_, ")");
      case 2:
        Add(any, 8, false);
        return absl::StrCat("select((X[v, w] < 3i32), ", Below(window_), ", ", Below(window_), ")");
      case 3:
        AddPlaces(window_);
        return absl::StrCat("(", window_ - 1, " - ", x, ")");
      case 4:
        AddPlaces((window_ + 1) / 2);
        return absl::StrCat("(", x, " * 2)");
      case 5:  // the whole range of a type
        window_ = 256;
        if (Below(2)) {
          Add(absl::StrCat("X: u8[", rows_, ", ", columns_, "]"), 256, false);
          return x;
        }
        Add(absl::StrCat("X: i8[", rows_, ", ", columns_, "]"), 128, false);
        return absl::StrCat("(", x, " + 128)");
      default:
        AddPlaces(window_);
        return x;
    }
  }

  // The indices into T, and its shape.
  std::string Table(const std::string& place, int64_t in_line) {
    const auto whole_lines = [&](int64_t n) { return (n + in_line - 1) / in_line * in_line; };
    const int64_t tables = 1 + Below(5), size = whole_lines(window_ + Below(2) * Below(200));
    switch (Below(4)) {
      case 0:  // another window for each row
        table_ = absl::StrCat(rows_, ", ", window_);
        return absl::StrCat("v, ", place);
      case 1:  // a window that data choose, the same one for all lanes
        Add(absl::StrCat("B: i32[", rows_, "]"), tables, true);
        table_ = absl::StrCat(whole_lines(tables * window_));
        return absl::StrCat("((i64(B[v]) * ", window_, ") + ", place, ")");
      case 2:  // at the end
        table_ = absl::StrCat(size);
        return absl::StrCat("(", place, " + ", size - window_, ")");
      default:  // anywhere
        table_ = absl::StrCat(size);
        return absl::StrCat("(", place, " + ", Below(size - window_ + 1), ")");
    }
  }

  // An index in the column alone, whose window is another one for each vector, and the shape of T.
  std::string Moving(int64_t in_line) {
    const int64_t by = 2 + Below(5);
    table_ = absl::StrCat((columns_ * by + in_line - 1) / in_line * in_line);
    switch (Below(4)) {
      case 0:
        return absl::StrCat("(w * ", by, ")");
      case 1:
        return absl::StrCat("((", columns_ - 1, " - w) * ", by - 1, ")");
      case 2:
        return absl::StrCat("(w // ", by, ")");
      default:
        return absl::StrCat("(w % ", by, ")");
    }
  }

  // The value in all lanes, or in some.
  std::string Guarded(const std::string& value) {
    const int64_t kind = Below(4);
    if (kind >= 2) return value;
    Add(absl::StrCat("U: ", element_, "[", rows_, ", ", columns_, "]"), 0, false);
    const std::string condition =
        kind == 0 ? absl::StrCat("(w < ", Below(columns_ + 1), ")") : "(i64(X[v, w]) < 5)";
    return absl::StrCat("select(", condition, ", ", value, ", U[v, w])");
  }

  std::mt19937_64 random_;
  std::string element_, inputs_, table_;
  std::vector<int64_t> below_;
  int64_t rows_ = 1, columns_ = 1, lanes_ = 1, window_ = 1;
};

// Compares what `code` computes with the interpreter, with each table at the end of its memory.
absl::Status CheckTable(const ir::Program& program, const RandomTable& table, const Code& code,
                        uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<testing::HostTensor> inputs = testing::MakeInputs(program, seed);
  for (size_t k = 1; k < inputs.size(); ++k) {
    const int64_t below = table.below[k - 1];
    for (int64_t i = 0; below > 0 && i < inputs[k].size(); ++i) {
      const auto drawn = static_cast<int64_t>(random() % static_cast<uint64_t>(below));
      const bool is_signed = program.inputs[k]->dtype == ir::DType::kI8;
      inputs[k].Set(
          i, static_cast<double>(is_signed && random() % 2 && !program.inputs[k]->below ? -1 - drawn
                                                                                        : drawn));
    }
  }
  auto expected = testing::MakeOutputs(program), actual = testing::MakeOutputs(program);
  HEDDLE_RETURN_IF_ERROR(testing::RunInterpreter(program, inputs, expected));
  HEDDLE_ASSIGN_OR_RETURN(auto library, runtime::KernelLibrary::Load(code.artifact.shared_object));
  HEDDLE_ASSIGN_OR_RETURN(heddle_kernel kernel, library->Find(code.artifact.kernels[0].symbol));
  const AtTheEndOfMemory memory(inputs[0].data(),
                                static_cast<size_t>(program.inputs[0]->SizeBytes()));
  std::vector<void*> buffers = {memory.data()};
  for (size_t k = 1; k < inputs.size(); ++k) buffers.push_back(inputs[k].data());
  buffers.push_back(actual[0].data());
  runtime::ThreadPool pool(1);
  kernel(buffers.data(), nullptr, pool.host());
  if (!actual[0].GuardIntact()) return absl::InternalError("wrote past the end");
  return testing::Compare(program, expected, actual);
}

bool RunsHere(const std::string& target) {
  const auto resolved = ResolveTarget(*ParseTarget(target));
  return resolved.ok() && BackendOf(*resolved).RunsHere(*resolved);
}

// HEDDLE_SEED=n checks that program only.
TEST(RandomTables, FindWhatTheInterpreterFindsAndReadNothingElse) {
  const char* const kTargets[] = {"llvm -mcpu=native", "llvm -mcpu=x86-64-v4",
                                  "llvm -mcpu=x86-64-v3",
                                  "llvm -mcpu=x86-64-v3 -mattr=+fast-gather"};
  const char* one = std::getenv("HEDDLE_SEED");
  const uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1, last = one ? first : 400;
  int with_table = 0, without = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const RandomTable table = Generator(seed).Run();
    SCOPED_TRACE(absl::StrCat("HEDDLE_SEED=", seed, "\n", table.text));
    const auto program = ParseVerified(table.text);
    ASSERT_TRUE(program.ok()) << program.status();
    const char* target = kTargets[seed % std::size(kTargets)];
    if (!RunsHere(target)) continue;
    const auto code = CompileFor(*program, target, static_cast<int>(seed / 4 % 4));
    ASSERT_TRUE(code.ok()) << code.status();
    const absl::Status status = CheckTable(*program, table, *code, seed);
    ASSERT_TRUE(status.ok()) << target << ": " << status;
    ++(code->llvm_ir.find("@llvm.x86.") != std::string::npos ? with_table : without);
  }
  std::printf("%d programs with look-ups in registers, %d without\n", with_table, without);
  if (!one && RunsHere("llvm -mcpu=x86-64-v3")) {
    // With AVX2 the larger tables are gathered.
    EXPECT_GT(with_table, (with_table + without) / 5);
  }
}

// ---- Instructions ----

// Looks u8 up in a table of `elements`, the same one for all rows.
std::string UniformTable(const std::string& type, int64_t elements, int64_t lanes) {
  return absl::StrReplaceAll(
      R"(
program kernel(T: TYPE[ELEMENTS], X: u8[64, LANES] < ELEMENTS) -> (O: TYPE[64, LANES]) {
  for i in 64 { for l in LANES vectorized {
    block b(v < 64 spatial = i, w < LANES spatial = l) { O[v, w] = T[i64(X[v, w])] }
  } }
})",
      {{"TYPE", type}, {"ELEMENTS", absl::StrCat(elements)}, {"LANES", absl::StrCat(lanes)}});
}

Code CodeFor(const std::string& text, const std::string& target) {
  const auto program = ParseVerified(text);
  EXPECT_TRUE(program.ok()) << program.status();
  if (!program.ok()) return {};
  auto code = CompileFor(*program, target);
  EXPECT_TRUE(code.ok()) << code.status();
  return code.ok() ? *std::move(code) : Code{};
}

// The targets are not this machine, whatever it is.
TEST(Instructions, TablesArePermutedAndNotGathered) {
  const std::string triple = " -triple=x86_64-linux-gnu";
  struct Case {
    const char* cpu;
    const char* type;
    int64_t elements, lanes;
    const char* instruction;
  };
  for (const Case& c : {
           Case{"x86-64-v4", "f32", 32, 16, "vperm[it]2(ps|d)"},
           {"znver4", "f32", 256, 16, "vperm[it]2(ps|d)"},
           {"skylake-avx512", "f32", 64, 16, "vperm[it]2(ps|d)"},
           {"skylake-avx512", "i32", 9, 16, "vperm(ps|d)"},
           {"skylake-avx512", "f64", 16, 8, "vperm[it]2(pd|q)"},
           {"skylake-avx512", "i16", 200, 32, "vperm[it]2w"},
           {"skylake-avx512", "u8", 256, 64, "vpshufb"},
           {"icelake-server", "u8", 256, 64, "vperm[it]2b"},
           {"icelake-server", "i8", 50, 64, "vpermb"},
           {"x86-64-v3", "f32", 8, 8, "vperm(ps|d)"},
           {"haswell", "f32", 30, 8, "vperm(ps|d)"},
           {"x86-64-v3", "u8", 64, 32, "vpshufb"},
       }) {
    SCOPED_TRACE(absl::StrCat(c.cpu, " ", c.type, " ", c.elements));
    const Code code = CodeFor(UniformTable(c.type, c.elements, c.lanes),
                              absl::StrCat("llvm -mcpu=", c.cpu, triple));
    EXPECT_THAT(code.assembly, ContainsRegex(c.instruction));
    EXPECT_THAT(code.assembly, Not(HasSubstr("gather")));
    // Nor are elements put together one by one.
    EXPECT_THAT(code.assembly, Not(ContainsRegex("vpinsr|vinsertps|vpextr")));
    EXPECT_THAT(code.llvm_ir, HasSubstr("@llvm.x86."));
  }
}

// Also for CPUs with only some of the extensions, and with registers of other sizes.
TEST(Instructions, EveryCpuHasCodeForEveryTable) {
  for (const char* cpu : {"btver2", "haswell", "znver3", "alderlake", "knl", "skylake-avx512",
                          "znver5", "graniterapids", "x86-64 -mattr=+avx2",
                          "x86-64 -mattr=+avx512f", "x86-64-v4 -mattr=-avx512bw",
                          "x86-64-v4 -mattr=-avx512vl", "x86-64-v3 -mattr=+avx10.1-256"}) {
    for (const char* type : {"u8", "i16", "f32", "f64"}) {
      for (const int64_t elements : {3, 100}) {
        SCOPED_TRACE(absl::StrCat(cpu, " ", type, " ", elements));
        const Code code = CodeFor(UniformTable(type, elements, 48),
                                  absl::StrCat("llvm -mcpu=", cpu, " -triple=x86_64-linux-gnu"));
        EXPECT_FALSE(code.assembly.empty());
      }
    }
  }
}

TEST(Instructions, OtherCpusAndOtherTablesHaveNone) {
  const std::string zen = "llvm -mcpu=znver4 -triple=x86_64-linux-gnu";
  const std::string table = UniformTable("f32", 32, 16);
  EXPECT_THAT(CodeFor(table, zen).llvm_ir, HasSubstr("@llvm.x86."));
  for (const char* target : {"llvm -mcpu=x86-64 -triple=x86_64-linux-gnu",
                             "llvm -mcpu=x86-64-v2 -triple=x86_64-linux-gnu",
                             "llvm -mcpu=neoverse-n1 -triple=aarch64-linux-gnu"}) {
    EXPECT_THAT(CodeFor(table, target).llvm_ir, Not(HasSubstr("@llvm.x86."))) << target;
  }
  // One more element than a place can name.
  EXPECT_THAT(
      CodeFor(absl::StrReplaceAll(UniformTable("f32", 257, 16), {{"u8", "i32"}}), zen).llvm_ir,
      Not(HasSubstr("@llvm.x86.")));
  // Nobody says what the places are.
  EXPECT_THAT(CodeFor(R"(
program kernel(T: f32[1000], X: i32[64, 16] < 1000) -> (O: f32[64, 16]) {
  for i in 64 { for l in 16 vectorized {
    block b(v < 64 spatial = i, w < 16 spatial = l) { O[v, w] = T[i64(X[v, w])] }
  } }
})",
                      zen)
                  .llvm_ir,
              Not(HasSubstr("@llvm.x86.")));
}

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A table that no loop changes is loaded once, its last register only as far as the buffer goes.
TEST(Instructions, ATableIsLoadedOnceBeforeTheLoop) {
  const std::string zen = "llvm -mcpu=znver4 -triple=x86_64-linux-gnu";
  const std::string whole = CodeFor(UniformTable("f32", 32, 16), zen).llvm_ir;
  EXPECT_EQ(CountOf(whole, "load <16 x i32>"), 2) << whole;
  EXPECT_THAT(whole, Not(HasSubstr("masked.load")));
  const std::string cut = CodeFor(UniformTable("f32", 27, 16), zen).llvm_ir;
  EXPECT_EQ(CountOf(cut, "load <16 x i32>"), 1) << cut;
  EXPECT_EQ(CountOf(cut, "call <16 x i32> @llvm.masked.load"), 1) << cut;
}

// ---- Whether it is worth it ----

TEST(Worth, CountsInstructionsAgainstTheLanesOfAGather) {
  const LookupUnit slow{.avx2 = true, .avx512f = true, .avx512bw = true, .avx512vbmi = true};
  LookupUnit fast = slow;
  fast.fast_gather = true;
  const auto worth = [](const LookupUnit& unit, int bits, int64_t elements, int64_t lanes,
                        bool loads = false) {
    return IsWorthLookup(unit, *FindLookup(unit, bits), bits, elements, lanes, loads);
  };
  EXPECT_TRUE(worth(fast, 32, 64, 16));
  EXPECT_FALSE(worth(fast, 32, 256, 16));
  EXPECT_TRUE(worth(slow, 32, 256, 16));
  EXPECT_TRUE(worth(slow, 32, 128, 16, true));
  EXPECT_FALSE(worth(slow, 32, 256, 4));
  EXPECT_TRUE(worth(fast, 8, 256, 64, true));  // there are no gathers of bytes
  // Schedules count on it where gathers are slow (machine::TargetInfo).
  machine::TargetInfo target;
  target.vector_bytes = 64;
  EXPECT_EQ(target.SharedTableElements(), kMaxTable);
  EXPECT_TRUE(worth(slow, 32, target.SharedTableElements(), target.vector_bytes / 4));
  // More elements, fewer lanes and a load of the table never make a look-up better.
  for (const LookupUnit& unit : {slow, fast}) {
    for (const int bits : {8, 16, 32, 64}) {
      for (int64_t lanes = 2; lanes <= 256; lanes *= 2) {
        for (int64_t elements = 1; elements < kMaxTable; ++elements) {
          EXPECT_GE(worth(unit, bits, elements, lanes), worth(unit, bits, elements + 1, lanes));
          EXPECT_GE(worth(unit, bits, elements, lanes), worth(unit, bits, elements, lanes, true));
          EXPECT_LE(worth(unit, bits, elements, lanes), worth(unit, bits, elements, 2 * lanes));
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::codegen
