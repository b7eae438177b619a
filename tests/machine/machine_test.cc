// The description of a machine: its numbers agree with each other, and what reads one of them
// follows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "compiler/codegen/backend.h"
#include "compiler/graph/layout/layout_costs.h"
#include "compiler/graph/ops/convolution_weights.h"
#include "compiler/ir/text.h"
#include "compiler/ir/visit.h"
#include "compiler/machine/cpu_family.h"
#include "compiler/machine/measured_machine.h"
#include "compiler/machine/target_info.h"
#include "compiler/pass/lower.h"
#include "compiler/schedule/rules/register_tile.h"
#include "compiler/schedule/space.h"
#include "cost_model/features/estimate.h"
#include "tests/graph/random_graph.h"
#include "tests/schedule/workloads.h"

namespace heddle::machine {
namespace {

TEST(Machine, EveryTargetIsDescribed) {
  const TargetInfo other;
  std::vector<std::string> texts;
  for (const char* gpu : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"})
    texts.push_back(std::string("cuda -arch=") + gpu);
  for (const char* cpu : {"nehalem", "haswell", "znver3", "sapphirerapids"})
    texts.push_back(std::string("llvm -triple=x86_64-linux-gnu -mcpu=") + cpu);
  for (const std::string& text : texts) {
    const auto resolved = codegen::ResolveTarget(*ParseTarget(text));
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    const auto info = codegen::DescribeTarget(*resolved);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(ToText(info->target), ToText(*resolved));
    EXPECT_GE(info->vector_bytes, 16) << text;
    EXPECT_GE(info->vector_registers, 8) << text;
    EXPECT_EQ(info->page_bytes % info->line_bytes, 0) << text;
    EXPECT_GE(info->L1Ways(), 4) << text;
    EXPECT_GT(info->l2_bytes, info->l1_bytes) << text;
    // Bandwidths of all targets are those of the reference machine, until somebody measures.
    EXPECT_EQ(info->core.l2_bytes_per_cycle, other.core.l2_bytes_per_cycle) << text;
    EXPECT_EQ(info->graph_speed.bytes_per_ns, other.graph_speed.bytes_per_ns) << text;
    // What tasks depend on is the same everywhere.
    EXPECT_EQ(info->graph_core.vector_bytes, other.graph_core.vector_bytes) << text;
    EXPECT_EQ(info->graph_core.near_bytes, other.graph_core.near_bytes) << text;
  }
}

absl::StatusOr<TargetInfo> Described(const std::string& cpu, const MeasuredMachine* m = nullptr) {
  const bool arm = cpu.starts_with("neoverse") || cpu.starts_with("cortex");
  const std::string triple = arm ? "aarch64-linux-gnu" : "x86_64-linux-gnu";
  const auto resolved =
      codegen::ResolveTarget(*ParseTarget("llvm -mcpu=" + cpu + " -triple=" + triple));
  if (!resolved.ok()) return resolved.status();
  return codegen::DescribeTarget(*resolved, m);
}

TEST(Machine, FamiliesOfCpusAreKnownToTheCompiler) {
  std::set<std::string_view> names;
  for (const CpuFamily& family : CpuFamilies()) {
    for (const std::string_view name : family.names) {
      EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
      EXPECT_EQ(FindCpuFamily(name), &family);
      const auto info = Described(std::string(name));
      ASSERT_TRUE(info.ok()) << info.status();
      const CoreSpeed& core = info->core;
      EXPECT_GE(core.operations_per_cycle, 1) << name;
      EXPECT_LE(core.operations_per_cycle, 4) << name;
      EXPECT_GE(core.loads_per_cycle, 1) << name;
      EXPECT_LE(core.stores_per_cycle, core.loads_per_cycle) << name;
      // Two lanes a byte-quarter, at the clock of the reference machine.
      EXPECT_NEAR(info->graph_speed.peak_gflops,
                  core.operations_per_cycle * info->vector_bytes / 4 * 2 * 170 / 64, 0.5)
          << name;
      EXPECT_EQ(info->graph_speed.vector_bytes, info->vector_bytes) << name;
    }
  }
  EXPECT_EQ(FindCpuFamily("nehalem"), nullptr);
}

TEST(Machine, TheReferenceMachineIsOfItsFamily) {
  const TargetInfo typical;
  const auto info = Described("sapphirerapids");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->core.operations_per_cycle, typical.core.operations_per_cycle);
  EXPECT_EQ(info->core.loads_per_cycle, typical.core.loads_per_cycle);
  EXPECT_EQ(info->core.stores_per_cycle, typical.core.stores_per_cycle);
  EXPECT_EQ(info->core.multiply_add_cycles, typical.core.multiply_add_cycles);
  EXPECT_EQ(info->graph_speed.peak_gflops, typical.graph_speed.peak_gflops);
  EXPECT_EQ(info->graph_speed.vector_bytes, typical.graph_speed.vector_bytes);
  EXPECT_EQ(info->graph_speed.l2_bytes, typical.graph_speed.l2_bytes);
}

TEST(Machine, NumbersOfTheReferenceMachineAgree) {
  const TargetInfo info;
  const CoreSpeed& core = info.core;
  const GraphSpeed& graph = info.graph_speed;
  const double f32_lanes = static_cast<double>(graph.vector_bytes) / 4, ghz = core.clock_ghz;
  EXPECT_NEAR(graph.peak_gflops, 2 * core.operations_per_cycle * f32_lanes * ghz, 5);
  EXPECT_NEAR(core.l3_bytes_per_cycle * ghz, graph.bytes_per_ns, 4);
  EXPECT_LT(info.graph_core.near_bytes, graph.l2_bytes);
  EXPECT_NEAR(graph.bytes_per_ns, info.code.layout.far_share * core.l3_bytes_per_cycle * ghz, 1);
  EXPECT_NEAR(graph.call_ns, info.code.layout.kernel_bytes / graph.near_bytes_per_ns, 10);
  EXPECT_NEAR(graph.near_bytes_per_ns, info.code.layout.near_share * core.l2_bytes_per_cycle * ghz,
              2);
  EXPECT_GT(graph.near_bytes_per_ns, graph.bytes_per_ns);
  EXPECT_NEAR(graph.l2_read_bytes_per_ns, core.l2_bytes_per_cycle * ghz, 1);
  EXPECT_NEAR(graph.bytes_per_ns,
              info.code.layout.far_share * 2 /
                  (1 / graph.l3_read_bytes_per_ns + 1 / graph.memory_read_bytes_per_ns),
              1);
  EXPECT_GT(graph.l2_read_bytes_per_ns, graph.l3_read_bytes_per_ns);
  EXPECT_GT(graph.l3_bytes, graph.l2_bytes);
  EXPECT_GT(core.l2_bytes_per_cycle, core.l3_bytes_per_cycle);
  EXPECT_GT(core.l1_fill_bytes_per_cycle, core.l2_fill_bytes_per_cycle);
}

// A core that does everything twice as fast takes half the time.
TEST(Machine, LayoutCostsScaleWithTheCore) {
  graph::TestRng rng(1);
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kF16}) {
    graph::GraphBuilder b;
    const graph::ValueId x = b.Input("x", {dtype, {1, 24, 14, 14}});
    const graph::ValueId w = b.Constant("w", graph::RandomTensor(rng, {dtype, {40, 24, 3, 3}}));
    const graph::Graph graph =
        *b.Build({{"y", *b.Add(graph::OpKind::kConv2d, {x, w}, {}, "conv")}});
    TargetInfo slow, fast;
    fast.graph_speed.peak_gflops *= 2;
    fast.graph_speed.bytes_per_ns *= 2;
    fast.graph_speed.near_bytes_per_ns *= 2;
    fast.graph_speed.call_ns /= 2;
    const graph::LayoutProblem::Operator
        before = graph::LayoutCosts(slow).OperatorCost(graph, graph.nodes[0]).ns,
        after = graph::LayoutCosts(fast).OperatorCost(graph, graph.nodes[0]).ns;
    for (const graph::Layout layout : graph::kLayouts)
      EXPECT_NEAR(static_cast<double>(before.Cost(layout)),
                  2 * static_cast<double>(after.Cost(layout)), 2);
    const graph::TensorType type = graph.values[graph.outputs[0]].type;
    EXPECT_NEAR(static_cast<double>(graph::LayoutCosts(slow).MoveNs(type)),
                2 * static_cast<double>(graph::LayoutCosts(fast).MoveNs(type)), 2);
  }
}

TEST(Machine, GroupsAreMergedToFillAVector) {
  for (const int64_t lanes : {4, 8, 16, 32, 64}) {
    for (const int64_t outputs : {1, 2, 3, 8, 16, 32}) {
      const int64_t merged = graph::MergedGroups(12, 7, outputs, lanes);
      EXPECT_EQ(merged, outputs >= lanes       ? 1
                        : 2 * outputs >= lanes ? 2
                        : 3 * outputs >= lanes ? 3
                                               : 4)
          << outputs << " outputs, " << lanes << " lanes";
    }
  }
}

// A vector times a matrix whose columns lie in panels of 32, one after another.
constexpr const char* kPanels =
    "program p(X: f32[128], W: f32[3, 128, 32] const) -> (Y: f32[96]) { for p in 3 { for k in 128 "
    "{ "
    "for l in 32 vectorized { block b(j < 96 spatial = ((p * 32) + l), s < 128 reduce = k) sum "
    "init "
    "0.0 { Y[j] = (X[s] * W[(j // 32), s, (j % 32)]) } } } } }";

// Executions of prefetches.
int64_t Fetches(const TargetInfo& target) {
  const auto program = ir::Parse(kPanels);
  EXPECT_TRUE(program.ok()) << program.status();
  pass::LowerOptions options;
  options.target = target;
  const auto lowered = pass::Lower(*program, options);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  int64_t fetches = 0;
  const std::function<void(const ir::Stmt&, int64_t)> count = [&](const ir::Stmt& s,
                                                                  int64_t times) {
    if (auto* loop = ir::As<ir::For>(s)) return count(loop->body, times * loop->extent);
    if (ir::As<ir::Prefetch>(s) != nullptr) fetches += times;
    if (auto* seq = ir::As<ir::Seq>(s)) {
      for (const ir::Stmt& child : seq->stmts) count(child, times);
    }
  };
  count(lowered->body, 1);
  return fetches;
}

TEST(Machine, FetchesFollowLinesAndPanels) {
  TargetInfo target;
  EXPECT_EQ(Fetches(target), 3 * 128 * 32 / 16) << "each line of a panel once in each panel's turn";
  target.line_bytes = 32;
  EXPECT_EQ(Fetches(target), 3 * 128 * 32 / 8);
  target.code.fetch.min_panel_bytes = 1 << 20;
  EXPECT_EQ(Fetches(target), 0);
}

TEST(Machine, ThePriorFollowsTheCore) {
  const auto program = ir::Parse(R"(
program mm(A: f32[64, 32], B: f32[32, 64]) -> (C: f32[64, 64]) {
  for i0 in 8 { for j0 in 8 { for k in 32 {
    for i1 in 8 unrolled { for j1 in 8 vectorized {
      block c(a < 64 spatial = ((i0 * 8) + i1), b < 64 spatial = ((j0 * 8) + j1), d < 32 reduce = k)
          sum init 0.0 {
        C[a, b] = (A[a, d] * B[d, b])
      }
    } }
  } } }
})");
  ASSERT_TRUE(program.ok()) << program.status();
  const cost_model::Statement st = cost_model::CollectStatements(*program).at(0);
  TargetInfo target;
  const cost_model::CycleEstimate before = cost_model::EstimateCycles(st, target);
  target.core.operations_per_cycle *= 2;
  target.core.loads_per_cycle *= 2;
  target.core.stores_per_cycle *= 2;
  target.core.multiply_add_cycles /= 2;
  target.core.instructions_per_cycle *= 2;
  target.core.l1_fill_bytes_per_cycle *= 2;
  target.core.l2_fill_bytes_per_cycle *= 2;
  const cost_model::CycleEstimate after = cost_model::EstimateCycles(st, target);
  EXPECT_DOUBLE_EQ(after.arithmetic, before.arithmetic / 2);
  EXPECT_DOUBLE_EQ(after.moves, before.moves / 2);
  EXPECT_DOUBLE_EQ(after.issue, before.issue / 2);
  EXPECT_DOUBLE_EQ(after.fill, before.fill / 2);
}

TEST(Machine, WinogradIsTakenWhereItGains) {
  const ir::Program naive = schedule::MakeWorkload("28x128-128k3s1").value();
  TargetInfo target = schedule::Wide();
  const auto trace = [&] {
    return schedule::ToText(schedule::DefaultTrace(naive, target).value());
  };
  EXPECT_NE(trace().find("winograd"), std::string::npos);
  target.code.winograd.gain = 100;
  EXPECT_EQ(trace().find("winograd"), std::string::npos);
  target.code.winograd.gain = 1.2;
  target.code.winograd.channels = 256;
  EXPECT_EQ(trace().find("winograd"), std::string::npos);
}

// Of one product in each type: registers hold more of the narrow ones, and operands weigh less.
TEST(Machine, TilesCountBytesOfTheType) {
  for (const auto& [dtype, bytes] :
       std::vector<std::pair<std::string, int64_t>>{{"f64", 8}, {"f32", 4}, {"f16", 2}}) {
    const std::string type = dtype + "[64, 64]";
    const auto program =
        ir::Parse("program mm(A: " + type + ", B: " + type + ") -> (C: " + type +
                  ") { for i in 64 { for j in 64 { for k in 64 { block c(a < 64 spatial = "
                  "i, b < 64 spatial = j, d < 64 reduce = k) sum init 0.0" +
                  (dtype == "f32" ? "" : dtype) + " { C[a, b] = (A[a, d] * B[d, b]) } } } } }");
    ASSERT_TRUE(program.ok()) << program.status();
    const schedule::Path path = schedule::FindBlock(program->body, "c").value();
    schedule::Stage stage;
    stage.block = &path.block();
    ASSERT_TRUE(schedule::ViewStage(path, &stage.view));
    const schedule::TileModel model(stage, 1, schedule::Wide());
    // 16-bit floats are f32 in registers.
    EXPECT_EQ(model.full_lanes(), 64 / std::max<int64_t>(bytes, 4)) << dtype;
    EXPECT_EQ(model.vector_operand_bytes(), static_cast<double>(64 * 64 * bytes)) << dtype;
    EXPECT_EQ(model.scalar_operand_bytes(), static_cast<double>(64 * 64 * bytes)) << dtype;
    EXPECT_EQ(model.result_element_bytes(), bytes) << dtype;
  }
}

}  // namespace
}  // namespace heddle::machine
