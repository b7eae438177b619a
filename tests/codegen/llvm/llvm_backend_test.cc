// What the LLVM back end promises besides right results: targets, object files, calling convention,
// registers.
#include "compiler/codegen/llvm/llvm_backend.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/llvm/link_shared_object.h"
#include "compiler/ir/text.h"
#include "compiler/pass/lower.h"
#include "compiler/runtime/abi.h"
#include "compiler/runtime/kernel_library.h"
#include "tests/codegen/kernel_runner.h"

namespace heddle::codegen {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kExp[] = R"(
program kernel(A: f32[100]) -> (O: f32[100]) {
  alloc t : f32[100] global {
    for i in 100 parallel { block b(v < 100 spatial = i) { t[v] = tanh(cos(A[v])) } }
    for j in 100 { block c(w < 100 spatial = j) { O[w] = (t[w] + 0.0) } }
  }
})";

ir::Program Lowered(const std::string& text) {
  absl::StatusOr<ir::Program> program = ir::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status();
  absl::StatusOr<ir::Program> lowered = pass::Lower(*program);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return *lowered;
}

Target Target(const std::string& text) { return *ParseTarget(text); }

const Elf64_Ehdr& Header(const Artifact& artifact) {
  return *reinterpret_cast<const Elf64_Ehdr*>(artifact.shared_object.data());
}

std::set<std::string> UndefinedSymbols(const Artifact& artifact) {
  const char* data = artifact.shared_object.data();
  const Elf64_Ehdr& header = Header(artifact);
  auto* sections = reinterpret_cast<const Elf64_Shdr*>(data + header.e_shoff);
  std::set<std::string> names;
  for (int i = 0; i < header.e_shnum; ++i) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    auto* symbols = reinterpret_cast<const Elf64_Sym*>(data + sections[i].sh_offset);
    const char* strings = data + sections[sections[i].sh_link].sh_offset;
    for (size_t s = 1; s < sections[i].sh_size / sizeof(Elf64_Sym); ++s) {
      if (symbols[s].st_shndx == SHN_UNDEF) names.insert(strings + symbols[s].st_name);
    }
  }
  return names;
}

TEST(Artifact, IsASharedObjectForThisMachineThatNeedsOnlyLibm) {
  absl::StatusOr<Artifact> artifact = CompileLlvm({Lowered(kExp)}, Target("llvm -mcpu=native"));
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_EQ(std::memcmp(Header(*artifact).e_ident, ELFMAG, SELFMAG), 0);
  EXPECT_EQ(Header(*artifact).e_type, ET_DYN);
  EXPECT_THAT(UndefinedSymbols(*artifact),
              Each(::testing::AnyOf("cosf", "tanhf", "memcpy", "memset", "memmove")));
}

TEST(Artifact, IsReproducible) {
  auto first = CompileLlvm({Lowered(kExp)}, Target("llvm -mcpu=x86-64-v3"));
  auto second = CompileLlvm({Lowered(kExp)}, Target("llvm -mcpu=x86-64-v3"));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->shared_object, second->shared_object);
}

TEST(Artifact, HoldsSeveralKernelsAndRefusesTwoOfOneName) {
  ir::Program other = Lowered(kExp);
  other.name = "other";
  auto artifact = CompileLlvm({Lowered(kExp), other}, Target("llvm -mcpu=native"));
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  auto library = runtime::KernelLibrary::Load(artifact->shared_object);
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_TRUE((*library)->Find("kernel").ok());
  EXPECT_TRUE((*library)->Find("other").ok());
  EXPECT_EQ(CompileLlvm({other, other}, Target("llvm -mcpu=native")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// The linker's way to give up is to end the process.
TEST(Link, WhatIsNoObjectIsAnErrorAndNotTheEnd) {
  std::string bad(256, '\0');
  bad.replace(0, SELFMAG, ELFMAG);
  bad[EI_CLASS] = ELFCLASS64;
  bad[EI_DATA] = 7;  // no byte order
  bad[EI_NIDENT] = ET_REL;
  const auto link_twice = [&] {
    for (int i = 0; i < 2; ++i)
      std::fprintf(stderr, "%s;", LinkSharedObject(bad).status().ToString().c_str());
    std::exit(7);
  };
  EXPECT_EXIT(link_twice(), ::testing::ExitedWithCode(7),
              "INTERNAL: lld: .*kernel.o: .*UNAVAILABLE: lld: .*damaged");
}

TEST(CrossCompile, MakesCodeForAnotherArchitecture) {
  auto artifact =
      CompileLlvm({Lowered(kExp)}, Target("llvm -mcpu=neoverse-n1 -triple=aarch64-linux-gnu"));
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_EQ(Header(*artifact).e_machine, EM_AARCH64);
  auto here = CompileLlvm({Lowered(kExp)}, Target("llvm -mcpu=x86-64-v2 -triple=x86_64-linux-gnu"));
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_EQ(Header(*here).e_machine, EM_X86_64);
}

TEST(Targets, ErrorsNameTheThingAndTheWayOutInOneLine) {
  struct Case {
    const char* target;
    const char* says;
    const char* suggests;
  };
  for (const Case& c :
       {Case{"llvm -mcpu=skylake-avx51", "skylake-avx51", "skylake-avx512"},
        Case{"llvm -mcpu=x86-64-v3 -mattr=+avx2x", "avx2x", "avx2"},
        Case{"llvm -mcpu=generic -triple=quux-linux-gnu", "quux", "aarch64-linux-gnu"},
        Case{"llvm -mcpu=neoverse-n11 -triple=aarch64-linux-gnu", "neoverse-n11", "neoverse-n1"},
        Case{"llvm -mcpu=native -triple=aarch64-linux-gnu", "native", "name a CPU"}}) {
    auto artifact = CompileLlvm({Lowered(kExp)}, Target(c.target));
    ASSERT_EQ(artifact.status().code(), absl::StatusCode::kInvalidArgument) << c.target;
    EXPECT_THAT(std::string(artifact.status().message()),
                AllOf(HasSubstr(c.says), HasSubstr(c.suggests), Not(HasSubstr("\n"))));
  }
}

bool RunsHere(const heddle::Target& target) { return BackendOf(target).RunsHere(target); }

TEST(Targets, ResolvingIsIdempotentAndNativeRunsHere) {
  auto resolved = ResolveTarget(Target("llvm -mcpu=native -threads=2"));
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_NE(resolved->cpu, "native");
  EXPECT_TRUE(RunsHere(*resolved));
  EXPECT_EQ(ToText(*ResolveTarget(*resolved)), ToText(*resolved));
  EXPECT_EQ(ToText(*ParseTarget(ToText(*resolved))), ToText(*resolved));
}

TEST(Targets, AttributesHaveOneCanonicalOrder) {
  auto a = ResolveTarget(Target("llvm -mcpu=x86-64 -mattr=+avx2,+fma")),
       b = ResolveTarget(Target("llvm -mcpu=x86-64 -mattr=+fma,-avx2,+avx2"));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(ToText(*a), ToText(*b));
}

TEST(Targets, OthersDoNotRunHere) {
  EXPECT_FALSE(RunsHere(Target("llvm -mcpu=neoverse-n1 -triple=aarch64-linux-gnu")));
  EXPECT_FALSE(
      RunsHere(Target("llvm -mcpu=native -mattr=+amx-tile,+amx-fp16,+sha512,+sm4,+avxvnniint16")));
  EXPECT_FALSE(RunsHere(Target("cuda -arch=sm_90")));
}

TEST(Targets, VectorUnitsFollowTheFeatures) {
  for (auto [text, bytes, registers] :
       {std::tuple{"llvm -mcpu=x86-64-v4", 64, 32},
        {"llvm -mcpu=x86-64-v3", 32, 16},
        {"llvm -mcpu=x86-64", 16, 16},
        {"llvm -mcpu=neoverse-n1 -triple=aarch64-linux-gnu", 16, 32}}) {
    auto info = DescribeTarget(Target(text));
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->vector_bytes, bytes) << text;
    EXPECT_EQ(info->vector_registers, registers) << text;
  }
}

TEST(Refusals, GpuLoopsAndBlocks) {
  auto gpu =
      ir::Parse("program p(A: f32[4]) -> (O: f32[4]) { for i in 4 threadIdx.x { O[i] = A[i] } }");
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  auto status = CompileLlvm({*gpu}, Target("llvm -mcpu=native")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  auto block = ir::Parse(
      "program p(A: f32[4]) -> (O: f32[4]) { for i in 4 { block b(v < 4 spatial = i) { O[v] = A[v] "
      "} } }");
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_EQ(CompileLlvm({*block}, Target("llvm -mcpu=native")).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// ---- Calling convention
// ----------------------------------------------------------------------------------------------

constexpr char kParallel[] = R"(
program kernel(A: f32[7, 20000]) -> (O: f32[7, 20000]) {
  for i in 7 parallel {
    alloc t : f32[20000] global {
      for a in 20000 { block b(v0 < 7 spatial = i, w0 < 20000 spatial = a) { t[w0] = (A[v0, w0] + 1.0) } }
      for d in 20000 { block c(v1 < 7 spatial = i, w1 < 20000 spatial = d) { O[v1, w1] = t[(19999 - w1)] } }
    }
  }
})";

struct Calls {
  int count = 0;
  int64_t n = 0;
};

// Runs the loop backwards in single steps, to show that nothing depends on the order.
void Backwards(const heddle_host* host, int64_t n, heddle_parallel_body body, void* closure) {
  auto* calls = static_cast<Calls*>(host->context);
  ++calls->count;
  calls->n = n;
  for (int64_t i = n - 1; i >= 0; --i)
    body(closure, i, i + 1, static_cast<int32_t>(i % host->num_workers));
  body(closure, 0, 0, 0);  // an empty range does nothing
}

TEST(Convention, ParallelLoopsUseTheHostOnlyWhenItHelps) {
  auto artifact = CompileLlvm({Lowered(kParallel)}, Target("llvm -mcpu=native -threads=3"));
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_GE(artifact->kernels[0].workspace_bytes, 3 * 20000 * 4);
  auto library = runtime::KernelLibrary::Load(artifact->shared_object);
  ASSERT_TRUE(library.ok()) << library.status();
  heddle_kernel kernel = *(*library)->Find("kernel");
  std::vector<float> a(7 * 20000 + 16), o(a.size());
  auto align = [](std::vector<float>& v) {
    return v.data() + (64 - reinterpret_cast<uintptr_t>(v.data()) % 64) % 64 / 4;
  };
  for (size_t i = 0; i < 7 * 20000; ++i) align(a)[i] = static_cast<float>(i);
  std::vector<float> workspace(static_cast<size_t>(artifact->kernels[0].workspace_bytes) / 4 + 16);
  void* buffers[] = {align(a), align(o)};
  // One worker: no call. As many as the target has: a call. More than there is workspace for: no
  // call.
  for (auto [workers, expected] : {std::pair{1, 0}, {3, 1}, {4, 0}}) {
    Calls calls;
    heddle_host host{workers, Backwards, &calls};
    std::fill(o.begin(), o.end(), 0.0f);
    kernel(buffers, align(workspace), &host);
    EXPECT_EQ(calls.count, expected) << workers;
    EXPECT_EQ(calls.n, expected ? 7 : 0);
    EXPECT_EQ(align(o)[6 * 20000], static_cast<float>(6 * 20000 + 19999) + 1.0f);
    EXPECT_EQ(align(o)[19999], 1.0f);
  }
}

// ---- Elementary functions
// ------------------------------------------------------------------------------------------------

TEST(Math, SinglePrecisionFunctionsAreAccurateToTheLastBits) {
  constexpr int kPoints = 1 << 16;
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> special = {0.0f,   -0.0f,  inf,    -inf,    nan,     1e-30f, -1e-30f,
                                88.72f, 88.73f, -87.4f, -103.9f, -104.1f, 1e30f};
  struct Case {
    const char* name;
    double (*exact)(double);
  };
  for (const Case& c : {Case{"exp", std::exp}, {"tanh", std::tanh}, {"erf", std::erf}}) {
    auto program = ir::Parse(
        "program p(A: f32[65536]) -> (O: f32[65536]) { for i in 4096 { for j in 16 vectorized { "
        "block b(v < 65536 spatial = ((i * 16) + j)) { O[v] = " +
        std::string(c.name) + "(A[v]) } } } }");
    ASSERT_TRUE(program.ok()) << program.status();
    auto inputs = testing::MakeInputs(*program, 1), outputs = testing::MakeOutputs(*program);
    for (int i = 0; i < kPoints; ++i) inputs[0].Set(i, -20.0 + 40.0 * i / kPoints);
    for (int i = 0; i < 2000; ++i) inputs[0].Set(i, -104.0 + 192.0 * i / 2000);
    for (size_t i = 0; i < special.size(); ++i) inputs[0].Set(static_cast<int64_t>(i), special[i]);
    absl::Status status = testing::RunLlvm(*program, inputs, outputs);
    ASSERT_TRUE(status.ok()) << status;
    for (int i = 0; i < kPoints; ++i) {
      double x = inputs[0].Get(i), expected = static_cast<float>(c.exact(x)),
             actual = outputs[0].Get(i);
      if (std::isnan(expected) || std::isinf(expected)) {
        EXPECT_TRUE(std::isnan(expected) ? std::isnan(actual) : actual == expected)
            << c.name << "(" << x << ") = " << actual;
        continue;
      }
      // The absolute part is one step of the subnormal floats.
      ASSERT_NEAR(actual, expected, 3e-7 * std::fabs(expected) + 1.5e-45)
          << c.name << "(" << x << ")";
    }
  }
}

// ---- Registers
// ---------------------------------------------------------------------------------------------------------

std::string AssemblyOf(const ir::Program& lowered) {
  std::string assembly;
  LlvmOptions options;
  options.assembly = &assembly;
  const auto artifact = CompileLlvm({lowered}, Target("llvm -mcpu=x86-64-v4"), options);
  EXPECT_TRUE(artifact.ok()) << artifact.status();
  return assembly;
}

// An 8 x 32 tile of a product with `columns` columns; fewer than 32 leave a guard in the lanes.
std::string TileAssembly(const std::string& columns) {
  std::string text = R"(
program kernel(A: f32[512, 8], B: f32[512, COLUMNS]) -> (C: f32[8, COLUMNS]) {
  alloc acc : f32[8, COLUMNS] local {
    for k in 512 { for i in 8 unrolled { for j0 in 2 unrolled { for j1 in 16 vectorized {
      block mm(vi < 8 spatial = i, vj < COLUMNS spatial = ((j0 * 16) + j1), r < 512 reduce = k) where (((j0 * 16) + j1) < COLUMNS) sum init 0.0 {
        acc[vi, vj] = (A[r, vi] * B[r, vj])
      }
    } } } }
    for ci in 8 unrolled { for cj in COLUMNS vectorized {
      block copy(wi < 8 spatial = ci, wj < COLUMNS spatial = cj) { C[wi, wj] = acc[wi, wj] }
    } }
  }
})";
  const std::string assembly =
      AssemblyOf(Lowered(absl::StrReplaceAll(text, {{"COLUMNS", columns}})));
  return assembly.substr(0,
                         assembly.find(".globl"));  // the loops; the entry that calls them follows
}

TEST(Registers, AccumulatorsOfATileNeverTouchMemory) {
  for (const char* columns : {"32", "30"}) {
    std::string assembly = TileAssembly(columns);
    EXPECT_THAT(assembly, HasSubstr("vfmadd")) << columns;
    // Not even spilled: the stack is only aligned, for whatever may have to be.
    EXPECT_THAT(assembly, Not(HasSubstr("(%rsp"))) << columns;
    EXPECT_THAT(assembly, Not(ContainsRegex("mm[0-9]+, -?[0-9]*\\(%rbp"))) << columns;
    EXPECT_THAT(assembly, Not(ContainsRegex("\\(%rbp\\), %.mm"))) << columns;
    // A tail is a narrower vector: nothing is blended.
    EXPECT_THAT(assembly, Not(HasSubstr("blend"))) << columns;
  }
}

// A tile of four rows of a product with a padded operand. Which rows are padding depends on the
// parallel loop; the loads read zeros instead, without a branch for each.
TEST(Registers, PaddingOfATileIsReadWithoutBranches) {
  const ir::Program lowered = Lowered(R"(
program kernel(A: f32[20, 8], B: f32[3, 8, 32]) -> (C: f32[20, 32]) {
  alloc acc : f32[20, 32] local {
    for i in 5 parallel {
      for r in 3 { for k in 8 { for ii in 4 unrolled { for j0 in 2 unrolled { for j1 in 16 vectorized {
        block conv(vi < 20 spatial = ((i * 4) + ii), vj < 32 spatial = ((j0 * 16) + j1), vr < 3 reduce = r, vk < 8 reduce = k) sum init 0.0 {
          acc[vi, vj] = (select(((1 <= (vi + vr)) && ((vi + vr) < 21)), A[((vi + vr) - 1), vk], 0.0) * B[vr, vk, vj])
        }
      } } } } }
      for ci in 4 unrolled { for cj in 32 vectorized {
        block copy(wi < 20 spatial = ((i * 4) + ci), wj < 32 spatial = cj) { C[wi, wj] = acc[wi, wj] }
      } }
    }
  }
})");
  std::string assembly = AssemblyOf(lowered);
  const size_t begin = assembly.find("kernel.parallel0.loops:");
  ASSERT_NE(begin, std::string::npos);
  assembly = assembly.substr(begin, assembly.find(".Lfunc_end", begin) - begin);
  EXPECT_THAT(assembly, AllOf(HasSubstr("vfmadd"), HasSubstr("cmov")));
  // Of the loops, and whether there is an iteration at all.
  int jumps = 0;
  for (const auto line : absl::StrSplit(assembly, '\n')) jumps += line.substr(0, 2) == "\tj";
  EXPECT_LE(jumps, 8) << assembly;
}

// Lanes at a constant distance are loaded and stored one by one where gathers are no faster, and gathered where they are.
TEST(Registers, LanesApartHaveNoVectorOfAddresses) {
  const ir::Program lowered = Lowered(R"(
program kernel(A: f32[64, 10]) -> (S: f32[64, 10]) {
  for i in 8 { for j in 10 { for l in 8 vectorized {
    block b(v < 64 spatial = ((i * 8) + l), w < 10 spatial = j) { S[v, (9 - w)] = (A[v, w] * A[v, w]) }
  } } }
})");
  const auto llvm_ir = [&](const std::string& cpu) {
    std::string text;
    LlvmOptions options;
    options.llvm_ir = &text;
    const auto artifact =
        CompileLlvm({lowered}, Target("llvm -triple=x86_64-linux-gnu -mcpu=" + cpu), options);
    EXPECT_TRUE(artifact.ok()) << artifact.status();
    return text;
  };
  for (const char* cpu : {"znver3", "x86-64-v3", "x86-64"}) {
    EXPECT_THAT(llvm_ir(cpu), AllOf(Not(HasSubstr("masked.gather")),
                                    Not(HasSubstr("masked.scatter")), HasSubstr("insertelement")))
        << cpu;
  }
  for (const char* cpu : {"skylake-avx512", "x86-64-v3 -mattr=+fast-gather"})
    EXPECT_THAT(llvm_ir(cpu), HasSubstr("masked.gather")) << cpu;
}

// Ten vectors of eight reach across eight rows of ten. Each reads what belongs to its rows by one load and a permutation.
TEST(Registers, VectorsAcrossRowsArePermuted) {
  const ir::Program lowered = Lowered(R"(
program kernel(A: f32[64, 10], R: f32[64, 1]) -> (S: f32[64, 10]) {
  for i in 8 { for j in 10 unrolled { for l in 8 vectorized {
    block b(v < 64 spatial = (((((i * 10) + j) * 8) + l) // 10), w < 10 spatial = (((((i * 10) + j) * 8) + l) % 10)) {
      S[v, w] = (A[v, w] / R[v, 0])
    }
  } } }
})");
  std::string text;
  LlvmOptions options;
  options.llvm_ir = &text;
  const auto artifact =
      CompileLlvm({lowered}, Target("llvm -triple=x86_64-linux-gnu -mcpu=x86-64-v3"), options);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_THAT(text, HasSubstr("fdiv contract <8 x float>")) << text;
  // The ninth of the ten: elements 64 to 71 of the eight rows.
  EXPECT_THAT(text, HasSubstr("i32 6, i32 6, i32 6, i32 6, i32 6, i32 6, i32 7, i32 7>")) << text;
  EXPECT_THAT(text, Not(HasSubstr("masked"))) << text;
}

// Of the twelve terms of four windows over four places and padding, two lie in the padding.
TEST(Registers, PaddingIsNotMultiplied) {
  const ir::Program lowered = Lowered(R"(
program kernel(A: f32[4, 16], W: f32[3, 16]) -> (C: f32[4, 16]) {
  alloc acc : f32[4, 16] local {
    for r in 3 unrolled { for i in 4 unrolled { for j in 16 vectorized {
      block conv(vi < 4 spatial = i, vj < 16 spatial = j, vr < 3 reduce = r) sum init 0.0 {
        acc[vi, vj] = (select(((1 <= (vi + vr)) && ((vi + vr) < 5)), A[((vi + vr) - 1), vj], 0.0) * W[vr, vj])
      }
    } } }
    for ci in 4 unrolled { for cj in 16 vectorized {
      block copy(wi < 4 spatial = ci, wj < 16 spatial = cj) { C[wi, wj] = acc[wi, wj] }
    } }
  }
})");
  std::string assembly = AssemblyOf(lowered);
  int products = 0;
  for (const auto line : absl::StrSplit(assembly, '\n'))
    products += absl::StrContains(line, "vfmadd") || absl::StrContains(line, "vmulps");
  EXPECT_EQ(products, 10) << assembly;
  EXPECT_THAT(assembly, Not(HasSubstr("vaddps")));
}

}  // namespace
}  // namespace heddle::codegen
