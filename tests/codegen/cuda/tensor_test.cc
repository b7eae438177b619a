// Tensor cores: schedules that use them against the plain program, by the interpreter and by the
// CUDA C++ that the back end writes, run on this CPU; how exact they are; what the compiler makes
// of them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/codegen/cuda/gpu_arch.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/schedule_and_lower.h"
#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/text.h"
#include "compiler/ir/visit.h"
#include "compiler/measure/compare.h"
#include "compiler/schedule/trace.h"
#include "tests/codegen/cuda/cuda_on_host.h"
#include "tests/codegen/cuda/gpu_testing.h"
#include "tests/codegen/cuda/tensor_programs.h"

namespace heddle::testing {
namespace {

using ir::DType;

Shape DrawShape(schedule::Rng& rng) {
  const auto among = [&](std::initializer_list<int64_t> values) {
    return values.begin()[rng() % values.size()];
  };
  constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF32};
  Shape s;
  s.type = kTypes[rng() % 3];
  s.m = among({16, 32, 48, 64});
  s.n = among({16, 24, 32, 64});
  s.k = among({16, 32, 48, 64, 256});
  s.a_transposed = rng() % 3 == 0;
  s.b_transposed = rng() % 2 == 0;
  s.half_result = s.type != DType::kF32 && rng() % 2 == 0;
  return s;
}

// A point of the form with tensor cores.
schedule::Point TensorPoint(const schedule::Space& space, schedule::Rng& rng) {
  schedule::Point point = space.Random(rng);
  while (point[0] == 0) point = space.Random(rng);
  return point;
}

// ---- Schedules

// HEDDLE_SEED=n checks that one only.
TEST(Tensor, RandomSchedulesComputeTheSame) {
  const char* one = std::getenv("HEDDLE_SEED");
  constexpr int kSchedules = 60;
  constexpr size_t kBatch = 20;
  int checked = 0, refused = 0;
  std::vector<ir::Program> batch;
  for (uint64_t seed = one ? std::strtoull(one, nullptr, 10) : 1; checked < kSchedules; ++seed) {
    ASSERT_LT(seed, 10 * kSchedules) << "hardly a point is feasible";
    schedule::Rng rng(seed);
    const Shape shape = DrawShape(rng);
    const ir::Program naive = Product(shape);
    const auto space = schedule::MakeSpace(naive, Tf32Target());
    ASSERT_TRUE(space.ok()) << space.status();
    ASSERT_EQ((*space)->Describe(0), "form") << ir::Print(naive);
    const auto trace = (*space)->Expand(TensorPoint(**space, rng));
    if (!trace.ok()) {
      ASSERT_TRUE(absl::IsFailedPrecondition(trace.status()) ||
                  absl::IsResourceExhausted(trace.status()))
          << trace.status();
      ++refused;
      continue;
    }
    const std::string about =
        absl::StrCat("seed ", seed, "\n", ir::Print(naive), schedule::ToText(*trace));
    auto lowered = LowerForGpu(naive, *trace);
    ASSERT_TRUE(lowered.ok()) << lowered.status() << about;
    ASSERT_TRUE(HasTensorLoop(*lowered)) << ir::Print(*lowered);
    const absl::Status status = CheckGpuProgram(naive, *lowered, seed);
    ASSERT_TRUE(status.ok()) << status << about;
    const auto parsed = ir::Parse(ir::Print(*lowered));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(ir::Print(*parsed), ir::Print(*lowered));
    lowered->name = absl::StrCat("s", seed);
    batch.push_back(*std::move(lowered));
    ++checked;
    if (batch.size() == kBatch || one) {
      for (const char* arch : {"sm_80", "sm_90"}) {
        const absl::Status compiled = CompileForGpu(batch, arch);
        ASSERT_TRUE(compiled.ok()) << compiled << about;
      }
      batch.clear();
    }
    if (one) break;
  }
  if (one == nullptr) {
    EXPECT_LT(refused, checked);
  }
}

// What is written as CUDA C++, run on this CPU: which numbers a thread holds of which fragment, and
// every address of them.
TEST(Tensor, CudaRunsOnThisCpu) {
  std::vector<ir::Program> naive, lowered;
  std::vector<std::string> about;
  schedule::Rng rng(1);
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
    for (int way = 0; way < 4; ++way) {
      for (int draw = 0; draw < 2; ++draw) {
        const Shape shape{type,
                          32,
                          32,
                          draw == 0 ? 128 : 64,
                          way % 2 == 1,
                          way / 2 == 1,
                          type != DType::kF32 && draw == 1};
        naive.push_back(Product(shape));
        const auto space = schedule::MakeSpace(naive.back(), Tf32Target());
        ASSERT_TRUE(space.ok());
        auto trace =
            (*space)->Expand(draw == 0 ? (*space)->Preferred() : TensorPoint(**space, rng));
        while (!trace.ok()) trace = (*space)->Expand(TensorPoint(**space, rng));
        auto program = LowerForGpu(naive.back(), *trace);
        ASSERT_TRUE(program.ok()) << program.status();
        program->name = absl::StrCat("p", naive.size());
        lowered.push_back(*std::move(program));
        about.push_back(schedule::ToText(*trace));
      }
    }
  }
  const auto host = CudaOnHost::Compile(lowered);
  if (absl::IsUnavailable(host.status())) GTEST_SKIP() << host.status().message();
  ASSERT_TRUE(host.ok()) << host.status();
  for (size_t k = 0; k < lowered.size(); ++k) {
    // Of f32 the loops say where it is rounded to tf32.
    const bool rounds = naive[k].inputs[0]->dtype == DType::kF32;
    const std::vector<HostTensor> inputs = rounds ? FineInputs(naive[k]) : MakeInputs(naive[k], k);
    std::vector<HostTensor> expected = MakeOutputs(naive[k]), found = MakeOutputs(naive[k]);
    ASSERT_TRUE(RunInterpreter(rounds ? lowered[k] : naive[k], inputs, expected).ok());
    absl::Status status = (*host)->Run(k, inputs, found);
    if (status.ok()) status = Compare(naive[k], expected, found);
    EXPECT_TRUE(status.ok()) << status << "\n" << about[k] << ir::Print(lowered[k]);
  }
}

// Where the rows of a product are of the image or of the channels, padding is computed into shared
// memory, and steps go over the window, too.
TEST(Tensor, ConvolutionsComputeTheSame) {
  const Image images[] = {{DType::kF16},
                          {DType::kBF16, 16, 16, 8, 1, 1},
                          {DType::kF32, 16, 8, 16, 3, 1},
                          {DType::kF16, 8, 16, 32, 3, 1},
                          {DType::kF32, 32, 16, 8, 3, 2}};
  schedule::Rng rng(1);
  std::vector<ir::Program> naive, lowered;
  std::vector<std::string> about;
  for (const Image& image : images) {
    const ir::Program program = Convolution(image);
    const auto space = schedule::MakeSpace(program, Tf32Target());
    ASSERT_TRUE(space.ok()) << space.status();
    ASSERT_EQ((*space)->Describe(0), "form") << ir::Print(program);
    for (int draw = 0; draw < 3; ++draw) {
      auto trace = (*space)->Expand(draw == 0 ? (*space)->Preferred() : TensorPoint(**space, rng));
      for (int tries = 0; !trace.ok(); ++tries) {
        ASSERT_LT(tries, 1000) << trace.status();
        trace = (*space)->Expand(TensorPoint(**space, rng));
      }
      about.push_back(absl::StrCat(ir::Print(program), schedule::ToText(*trace)));
      auto result = LowerForGpu(program, *trace);
      ASSERT_TRUE(result.ok()) << result.status() << about.back();
      ASSERT_TRUE(HasTensorLoop(*result)) << ir::Print(*result);
      const absl::Status status = CheckGpuProgram(program, *result, 1);
      ASSERT_TRUE(status.ok()) << status << about.back();
      result->name = absl::StrCat("c", naive.size());
      naive.push_back(program);
      lowered.push_back(*std::move(result));
    }
  }
  for (const char* arch : {"sm_80", "sm_90"}) {
    const absl::Status compiled = CompileForGpu(lowered, arch);
    ASSERT_TRUE(compiled.ok()) << compiled;
  }
  const auto host = CudaOnHost::Compile(lowered);
  if (absl::IsUnavailable(host.status())) GTEST_SKIP() << host.status().message();
  ASSERT_TRUE(host.ok()) << host.status();
  for (size_t k = 0; k < lowered.size(); k += 2) {
    const std::vector<HostTensor> inputs = MakeInputs(naive[k], k);
    std::vector<HostTensor> expected = MakeOutputs(naive[k]), found = MakeOutputs(naive[k]);
    ASSERT_TRUE(RunInterpreter(naive[k], inputs, expected).ok());
    absl::Status status = (*host)->Run(k, inputs, found);
    if (status.ok()) status = Compare(naive[k], expected, found);
    EXPECT_TRUE(status.ok()) << status << "\n" << about[k] << ir::Print(lowered[k]);
  }
}

// Each warp makes sums of a part of the terms; another launch adds them up and runs the epilogue.
TEST(Tensor, SumsInParts) {
  const ir::Program naive = Product({.n = 32, .k = 256, .half_result = true});
  const auto space = schedule::MakeSpace(naive, GpuTarget());
  ASSERT_TRUE(space.ok()) << space.status();
  schedule::Point point = (*space)->Preferred();
  for (int k = 0; k < (*space)->NumDecisions(); ++k) {
    if ((*space)->Describe(k) == "tensor cores: parts of the sums of dot") point[k] = 2;
  }
  ASSERT_NE(point, (*space)->Preferred()) << "sums are never cut";
  const auto trace = (*space)->Expand(point);
  ASSERT_TRUE(trace.ok()) << trace.status();
  auto lowered = LowerForGpu(naive, *trace);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_TRUE(HasTensorLoop(*lowered)) << ir::Print(*lowered);
  EXPECT_NE(ir::Print(*lowered).find("f32[32, 32, 4] global"), std::string::npos)
      << ir::Print(*lowered);
  absl::Status status = CheckGpuProgram(naive, *lowered, 1);
  EXPECT_TRUE(status.ok()) << status;
  status = CompileForGpu({*lowered}, "sm_90");
  EXPECT_TRUE(status.ok()) << status;
  const auto host = CudaOnHost::Compile({*lowered});
  if (absl::IsUnavailable(host.status())) GTEST_SKIP() << host.status().message();
  ASSERT_TRUE(host.ok()) << host.status();
  const std::vector<HostTensor> inputs = MakeInputs(naive, 1);
  std::vector<HostTensor> expected = MakeOutputs(naive), found = MakeOutputs(naive);
  ASSERT_TRUE(RunInterpreter(naive, inputs, expected).ok());
  status = (*host)->Run(0, inputs, found);
  if (status.ok()) status = Compare(naive, expected, found);
  EXPECT_TRUE(status.ok()) << status << ir::Print(*lowered);
}

// Which of shared memory's 32 banks the lanes of a warp read, number by number, in a product of f32
// (codegen/cuda/tensor.cc: Gather): both operands lie with the terms apart.
TEST(Tensor, WordsOfAWarpLieInDifferentBanks) {
  for (const int64_t n : {16, 24, 32, 64}) {
    const ir::Program lowered = Default({DType::kF32, 64, n, 64, true, false});
    const ir::For* thread = nullptr;
    int seen = 0;
    ir::VisitStmt(lowered.body, [&](const ir::Stmt& s) {
      const auto* rows = ir::As<ir::For>(s);
      if (rows != nullptr && rows->kind == ir::LoopKind::kThreadX) thread = rows;
      if (rows == nullptr || rows->kind != ir::LoopKind::kTensor) return true;
      const auto* columns = ir::As<ir::For>(rows->body);
      const auto* terms = ir::As<ir::For>(columns->body);
      ir::VisitExpr(ir::As<ir::Store>(terms->body)->value, [&](const ir::Expr& load) {
        if (load->kind != ir::ExprKind::kLoad || load->buffer->scope != ir::Scope::kShared) return;
        ++seen;
        ir::Expr place = ir::Int(0);
        for (size_t d = 0; d < load->args.size(); ++d)
          place = place * ir::Int(load->buffer->shape[d]) + load->args[d];
        const bool of_rows = ir::UsesVar(place, rows->var.get());
        std::set<int64_t> banks;
        for (int64_t lane = 0; lane < 32; ++lane) {
          ir::Substitution at;
          for (const ir::VarRef& var : ir::FreeVars(place)) at[var.get()] = ir::Int(0);
          at[thread->var.get()] = ir::Int(of_rows ? lane : lane / 8);
          at[columns->var.get()] = ir::Int(lane / 4 % 2);
          at[terms->var.get()] = ir::Int(lane % 4);
          int64_t word = 0;
          ASSERT_TRUE(ir::IsConstInt(ir::Simplify(ir::Substitute(place, at), ir::Ranges{}), &word));
          banks.insert(word % 32);
        }
        EXPECT_EQ(banks.size(), 32u) << load->buffer->name << "\n" << ir::Print(lowered);
      });
      return true;
    });
    EXPECT_EQ(seen, 2) << ir::Print(lowered);
  }
}

TEST(Tensor, EveryBarrierIsNeeded) {
  const ir::Program naive = Product({.k = 256});
  const ir::Program lowered = Default({.k = 256});
  int barriers = 0;
  ir::VisitStmt(lowered.body, [&](const ir::Stmt& s) {
    barriers += ir::As<ir::Barrier>(s) != nullptr;
    return true;
  });
  ASSERT_GT(barriers, 0) << ir::Print(lowered);
  for (int n = 0; n < barriers; ++n) {
    int seen = 0;
    ir::Program without = lowered;
    without.body = ir::RewriteStmt(lowered.body, [&](const ir::Stmt& s) -> ir::Stmt {
      return ir::As<ir::Barrier>(s) != nullptr && seen++ == n ? nullptr : s;
    });
    const absl::Status status = CheckGpuProgram(naive, without, 1);
    EXPECT_NE(status.message().find("without a barrier"), absl::string_view::npos) << status;
  }
}

// Three parts of shared memory: what a barrier lets come late has to be what nobody reads yet.
TEST(Tensor, NoMoreFetchesMayComeLate) {
  const ir::Program naive = Product({.k = 256});
  const ir::Program lowered = Default({.k = 256});
  const auto with = [&](int more) {
    int changed = 0;
    ir::Program result = lowered;
    result.body = ir::RewriteStmt(lowered.body, [&](const ir::Stmt& s) -> ir::Stmt {
      const auto* barrier = ir::As<ir::Barrier>(s);
      if (barrier == nullptr || barrier->late == 0) return s;
      ++changed;
      return ir::MakeStmt(ir::Barrier{barrier->late + more});
    });
    EXPECT_EQ(changed, 1) << ir::Print(lowered);
    return CheckGpuProgram(naive, result, 1);
  };
  EXPECT_TRUE(with(0).ok()) << with(0);
  EXPECT_TRUE(with(-1).ok()) << with(-1);
  EXPECT_NE(with(1).message().find("without a barrier"), absl::string_view::npos) << with(1);
}

// ---- Precision

// And is no more tolerant than that, however long the sums: a tenth of it is too little.
TEST(Tensor, Tf32IsAsExactAsItsTolerance) {
  for (const int64_t terms : {8, 64, 512, 4608}) {
    const Shape shape{DType::kF32, 32, 32, terms};
    const ir::Program naive = Product(shape), lowered = Default(shape);
    const std::vector<HostTensor> inputs = FineInputs(naive);
    std::vector<HostTensor> exact = MakeOutputs(naive), found = MakeOutputs(naive);
    ASSERT_TRUE(RunInterpreter(naive, inputs, exact).ok());
    ASSERT_TRUE(RunInterpreter(lowered, inputs, found).ok());
    const runtime::Tolerance all = runtime::Tf32Tolerance(terms);
    const runtime::Tolerance part = {all.relative / 10, all.absolute / 10};
    int beyond = 0;
    for (int64_t i = 0; i < exact[0].size(); ++i) {
      EXPECT_TRUE(Close(exact[0].Get(i), found[0].Get(i), all))
          << exact[0].Get(i) << " " << found[0].Get(i) << " of " << terms;
      beyond += !Close(exact[0].Get(i), found[0].Get(i), part);
    }
    EXPECT_GT(beyond, 0) << terms;
  }
}

TEST(Tensor, HalvesAreExactInSingle) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (const bool half_result : {false, true}) {
      const Shape shape{type, 32, 32, 512, false, false, half_result};
      const ir::Program naive = Product(shape), lowered = Default(shape);
      const std::vector<HostTensor> inputs = FineInputs(naive);
      std::vector<HostTensor> exact = MakeOutputs(naive), found = MakeOutputs(naive);
      ASSERT_TRUE(RunInterpreter(naive, inputs, exact).ok());
      ASSERT_TRUE(RunInterpreter(lowered, inputs, found).ok());
      EXPECT_TRUE(Compare(naive, exact, found).ok()) << Compare(naive, exact, found);
    }
  }
}

TEST(Tensor, OnlyTargetsThatAllowTf32RoundToIt) {
  const ir::Program naive = Product({DType::kF32});
  const auto direct = schedule::MakeSpace(naive, GpuTarget());
  ASSERT_TRUE(direct.ok());
  EXPECT_NE((*direct)->Describe(0), "form");
  const auto trace = schedule::DefaultTrace(naive, Tf32Target());
  ASSERT_TRUE(trace.ok());
  const std::string text = schedule::ToText(*trace);
  EXPECT_NE(text.find("tf32 "), std::string::npos) << text;
  const auto refused = BuildCandidate(ir::Print(naive), ScheduleChoice::kTrace, text,
                                      *ParseTarget("cuda -arch=sm_90"));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  EXPECT_NE(refused.status().message().find("-tf32=on"), absl::string_view::npos);
}

// Tensor cores sum less exactly, so a schedule says whether it uses them.
TEST(Tensor, ASchedulePromisesWhatTensorCoresDo) {
  const auto numerics = [](DType type, const machine::TargetInfo& target) {
    const auto lowered = internal::ScheduleAndLower(Product({.type = type, .k = 256}),
                                                    ScheduleChoice::kDefault, "", target, "kernel");
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    return lowered.ok() ? lowered->numerics : runtime::Numerics();
  };
  EXPECT_EQ(numerics(DType::kF16, GpuTarget()),
            (runtime::Numerics{.tensor_cores = true, .sum_terms = 256}));
  EXPECT_EQ(numerics(DType::kF32, Tf32Target()),
            (runtime::Numerics{.tf32 = true, .tensor_cores = true, .sum_terms = 256}));
  EXPECT_EQ(numerics(DType::kF32, GpuTarget()), (runtime::Numerics{.sum_terms = 256}));
}

// ---- What the compiler makes of it

TEST(TensorLimits, FragmentsCountAsRegisters) {
  const machine::TargetInfo info = GpuTarget();
  codegen::GpuDemand demand;
  demand.tensor_cores = true;
  EXPECT_TRUE(codegen::CheckDemand(demand, info).ok());
  machine::TargetInfo old = info;
  old.tensor_cores = false;
  EXPECT_TRUE(absl::IsUnimplemented(codegen::CheckDemand(demand, old)));
  demand.register_words = 300;
  EXPECT_TRUE(absl::IsResourceExhausted(codegen::CheckDemand(demand, info)));
}

TEST(TensorCompiled, UsesTensorCoresAndSpillsNothing) {
  if (!HasNvrtc()) GTEST_SKIP() << codegen::CudaBackend().FindToolchain().status().message();
  const std::string tool = "/usr/local/cuda/bin/cuobjdump";
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
    ir::Program lowered = Default({type, 1024, 1024, 1024});
    for (const char* arch : {"sm_80", "sm_90"}) {
      std::string source;
      const auto artifact = codegen::CompileCuda(
          {lowered}, *ParseTarget(absl::StrCat("cuda -arch=", arch, " -tf32=on")),
          {.source = &source});
      ASSERT_TRUE(artifact.ok()) << artifact.status() << source;
      for (const runtime::GpuLaunch& launch : artifact->kernels[0].launches) {
        EXPECT_GT(launch.registers, 32);
        EXPECT_EQ(launch.local_bytes, 0) << arch << source;
      }
      // Two-byte operands on sm_90: group_product_test.cc.
      const bool groups = type != DType::kF32 && arch == std::string("sm_90");
      EXPECT_NE(source.find(groups ? "h_group<" : "h_matrices4(h_a0"), std::string::npos) << source;
      if (!std::filesystem::exists(tool)) continue;
      const std::string file = std::filesystem::temp_directory_path() /
                               absl::StrCat("heddle-tensor-", getpid(), ".cubin");
      std::ofstream(file) << artifact->shared_object;
      EXPECT_EQ(std::system(absl::StrCat(tool, " -sass ", file, " > ", file, ".sass").c_str()), 0);
      std::ostringstream sass;
      sass << std::ifstream(file + ".sass").rdbuf();
      EXPECT_NE(sass.str().find(groups ? "HGMMA" : "HMMA"), std::string::npos) << sass.str();
      EXPECT_EQ(sass.str().find("LDSM") == std::string::npos, groups);
      std::filesystem::remove(file);
      std::filesystem::remove(file + ".sass");
    }
  }
  if (!std::filesystem::exists(tool)) GTEST_SKIP() << "no " << tool << ": SASS was not looked at";
}

}  // namespace
}  // namespace heddle::testing
