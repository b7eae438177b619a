// Decision trees on GPUs, without one: schedules are interpreted with race detection, and the CUDA C++ made of them runs on
// this CPU, both against the interpreter on the naive program.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/ir/text.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/space.h"
#include "compiler/schedule/trace.h"
#include "tests/codegen/cuda/cuda_on_host.h"
#include "tests/codegen/cuda/gpu_testing.h"
#include "tests/schedule/workloads.h"

namespace heddle::testing {
namespace {

using graph::FromElements;
using graph::OpKind;
using graph::ValueId;

struct Forest {
  int64_t groups, trees, levels, values, records;
  const char* reduce = "sum";
};

std::vector<int32_t> Numbers(schedule::Rng& rng, int64_t count, int64_t below) {
  std::vector<int32_t> numbers;
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(static_cast<int32_t>(rng() % static_cast<uint64_t>(below)));
  return numbers;
}

std::vector<float> Floats(schedule::Rng& rng, int64_t count) {
  std::vector<float> floats;
  for (const int32_t n : Numbers(rng, count, 129))
    floats.push_back(static_cast<float>(n - 64) / 64);
  return floats;
}

// The kernel of forest_walk or forest_select and a bias. The tables are constants, so they have ranges.
ir::Program Kernel(const Forest& f, bool select) {
  constexpr int64_t kColumns = 6, kNodes = 11;
  schedule::Rng rng(1);
  graph::GraphBuilder b;
  const int64_t nodes = select ? (int64_t{1} << f.levels) - 1 : kNodes;
  const int64_t leaves = select ? nodes + 1 : kNodes;
  const graph::Shape shape{f.groups, f.trees, nodes};
  const int64_t size = f.groups * f.trees * nodes, values = f.groups * f.trees * leaves * f.values;
  std::vector<ValueId> inputs{
      b.Input("x", {ir::DType::kF32, {kColumns, f.records}}),
      b.Constant("columns", FromElements(shape, Numbers(rng, size, kColumns))),
      b.Constant("thresholds", FromElements(shape, Floats(rng, size)))};
  if (!select)
    inputs.push_back(b.Constant("left", FromElements(shape, Numbers(rng, size, nodes - 1))));
  inputs.push_back(b.Constant(
      "leaves", FromElements({f.groups, f.trees, leaves, f.values}, Floats(rng, values))));
  const ValueId sum =
      b.Add(select ? OpKind::kForestSelect : OpKind::kForestWalk, inputs,
            {{select ? "depth" : "steps", f.levels}, {"reduce", std::string(f.reduce)}}, "forest")
          .value();
  const ValueId bias =
      b.Constant("bias", FromElements({f.groups, f.values, 1}, Floats(rng, f.groups * f.values)));
  const ValueId y = b.Add(OpKind::kAdd, {sum, bias}, {}, "add").value();
  const graph::FusedGraph fused = graph::Fuse(b.Build({{"y", y}}).value()).value();
  EXPECT_EQ(fused.groups.size(), 1u);
  return fused.groups[0].naive;
}

int Launches(const ir::Program& program) {
  int launches = 0;
  ir::VisitStmt(program.body, [&](const ir::Stmt& s) {
    const auto* loop = ir::As<ir::For>(s);
    launches += loop != nullptr && loop->kind == ir::LoopKind::kBlockX;
    return true;
  });
  return launches;
}

// Schedules of several programs that are right as the interpreter runs them.
class Schedules {
 public:
  // The preferred schedule and random ones. `multiprocessors`: of the GPU that they are made for.
  void Check(const ir::Program& naive, int multiprocessors, int draws) {
    machine::TargetInfo target = GpuTarget();
    target.multiprocessors = multiprocessors;
    const auto space = schedule::MakeSpace(naive, target);
    ASSERT_TRUE(space.ok()) << space.status();
    offers = (*space)->Offers();
    schedule::Rng rng(1);
    for (int draw = 0; draw < draws; ++draw) {
      const auto trace =
          (*space)->Expand(draw == 0 ? (*space)->Preferred() : (*space)->Random(rng));
      if (!trace.ok()) {
        ASSERT_NE(draw, 0) << trace.status();
        ASSERT_TRUE(absl::IsFailedPrecondition(trace.status()) ||
                    absl::IsResourceExhausted(trace.status()))
            << trace.status();
        continue;
      }
      const std::string about = schedule::ToText(*trace);
      auto made = LowerForGpu(naive, *trace);
      ASSERT_TRUE(made.ok()) << made.status() << about;
      const absl::Status status = CheckGpuProgram(naive, *made, static_cast<uint64_t>(draw + 1));
      ASSERT_TRUE(status.ok()) << status << about;
      made->name = absl::StrCat("f", lowered_.size());
      shared += about.find("rfactor") != std::string::npos;
      whole += about.find("rfactor") == std::string::npos;
      if (draw == 0) preferred = *made;
      naive_.push_back(naive);
      lowered_.push_back(*std::move(made));
    }
  }

  // The generated source of all of them.
  void RunOnHost() const {
    const absl::Status compiled = CompileForGpu(lowered_, "sm_90");
    EXPECT_TRUE(compiled.ok()) << compiled;
    const auto host = CudaOnHost::Compile(lowered_);
    if (absl::IsUnavailable(host.status())) GTEST_SKIP() << host.status().message();
    ASSERT_TRUE(host.ok()) << host.status();
    for (size_t k = 0; k < lowered_.size(); ++k) {
      const std::vector<HostTensor> inputs = MakeInputs(naive_[k], k);
      std::vector<HostTensor> expected = MakeOutputs(naive_[k]), found = MakeOutputs(naive_[k]);
      ASSERT_TRUE(RunInterpreter(naive_[k], inputs, expected).ok());
      absl::Status status = (*host)->Run(k, inputs, found);
      if (status.ok()) status = Compare(naive_[k], expected, found);
      EXPECT_TRUE(status.ok()) << status << "\n" << ir::Print(lowered_[k]);
    }
  }

  std::vector<schedule::Offer> offers;  // of the last program
  ir::Program preferred;                // its schedule
  int shared = 0, whole = 0;  // schedules in which threads share the trees of a record, and others

 private:
  std::vector<ir::Program> naive_, lowered_;
};

// Whether the rule took the walk.
bool TakesWalk(const std::vector<schedule::Offer>& offers) {
  for (const schedule::Offer& offer : offers) {
    if (offer.rule == "gpu walk") return offer.status.ok();
  }
  return false;
}

// All steps are one launch, in which their places are registers.
TEST(ForestOnGpu, WalksStayInAThread) {
  Schedules schedules;
  for (const Forest& f : {Forest{1, 32, 3, 1, 64}, Forest{1, 48, 6, 1, 1}, Forest{3, 16, 2, 1, 37},
                          Forest{1, 64, 3, 1, 37}, Forest{1, 16, 3, 3, 40}, Forest{2, 24, 3, 2, 5},
                          Forest{1, 17, 2, 1, 300, "min"}, Forest{2, 8, 40, 1, 70, "max"}}) {
    for (const int multiprocessors : {132, 1}) {
      const ir::Program naive = Kernel(f, false);
      ASSERT_NO_FATAL_FAILURE(schedules.Check(naive, multiprocessors, 4));
      EXPECT_TRUE(TakesWalk(schedules.offers)) << ir::Print(naive);
      EXPECT_EQ(Launches(schedules.preferred), 1) << ir::Print(schedules.preferred);
    }
  }
  EXPECT_GT(schedules.shared, 10);
  EXPECT_GT(schedules.whole, 10);
  schedules.RunOnHost();
}

// Schedules of forests as they are imported, for blocks of rows of all sizes, fit into every GPU: the
// preferred one always, and random ones, which their rule draws within the limits.
TEST(ForestOnGpu, SchedulesFitTheArchitecture) {
  int drawn = 0, refused = 0;
  for (const char* arch : {"sm_80", "sm_90"}) {
    const machine::TargetInfo target = GpuTarget(arch);
    for (const Forest& shape :
         {Forest{1, 112, 6, 1, 1}, Forest{1, 16, 3, 1, 1}, Forest{1, 512, 8, 1, 1},
          Forest{3, 48, 6, 1, 1}, Forest{1, 96, 12, 3, 1}, Forest{1, 64, 30, 10, 1},
          Forest{1, 8, 100, 30, 1}}) {
      for (const int64_t records : {1, 16, 256, 4096, 10000}) {
        Forest f = shape;
        f.records = records;
        const ir::Program naive = Kernel(f, false);
        const auto space = schedule::MakeSpace(naive, target);
        ASSERT_TRUE(space.ok()) << space.status();
        schedule::Rng rng(1);
        for (int draw = 0; draw < 4; ++draw) {
          const auto trace =
              (*space)->Expand(draw == 0 ? (*space)->Preferred() : (*space)->Random(rng));
          ++drawn;
          refused += !trace.ok();
          if (!trace.ok()) {
            ASSERT_NE(draw, 0) << trace.status();
            continue;
          }
          const auto lowered = LowerForGpu(naive, *trace);
          ASSERT_TRUE(lowered.ok()) << lowered.status();
          const absl::Status fits = codegen::CudaBackend().CheckLimits(*lowered, target.target);
          EXPECT_TRUE(fits.ok()) << fits << ": " << f.trees << " trees, " << f.levels << " levels, "
                                 << f.values << " values, " << records << " records, draw " << draw
                                 << "\n"
                                 << schedule::ToText(*trace);
        }
      }
    }
  }
  EXPECT_LT(refused, drawn / 10);
}

// Tables without ranges are read at the nearest place.
TEST(ForestOnGpu, WalksWithoutRanges) {
  Schedules schedules;
  ASSERT_NO_FATAL_FAILURE(
      schedules.Check(schedule::MakeWalk(1, 16, 3, 2, 37, /*ranges=*/false), 132, 5));
  EXPECT_TRUE(TakesWalk(schedules.offers));
  schedules.RunOnHost();
}

// A thread has no registers for so many steps: each is a launch.
TEST(ForestOnGpu, VeryDeepWalksAreALaunchForEachStep) {
  Schedules schedules;
  ASSERT_NO_FATAL_FAILURE(schedules.Check(Kernel({1, 2, 140, 1, 8}, false), 132, 1));
  EXPECT_FALSE(TakesWalk(schedules.offers));
  EXPECT_GE(Launches(schedules.preferred), 140);
}

TEST(ForestOnGpu, Selections) {
  Schedules schedules;
  for (const Forest& f : {Forest{1, 32, 3, 1, 64}, Forest{1, 64, 4, 1, 3}, Forest{3, 16, 2, 1, 300},
                          Forest{2, 5, 6, 1, 37, "max"}}) {
    ASSERT_NO_FATAL_FAILURE(schedules.Check(Kernel(f, true), 132, 4));
    EXPECT_EQ(Launches(schedules.preferred), 1) << ir::Print(schedules.preferred);
  }
  schedules.RunOnHost();
}

}  // namespace
}  // namespace heddle::testing
