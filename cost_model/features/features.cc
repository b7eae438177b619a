#include "cost_model/features/features.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "compiler/ir/visit.h"
#include "cost_model/features/estimate.h"
#include "cost_model/features/feature_sink.h"
#include "cost_model/features/reuse_curves.h"
#include "cost_model/features/statement_metrics.h"
#include "cost_model/features/statements.h"

namespace heddle::cost_model {
namespace {

constexpr size_t kSlots = 3;   // the store and the two largest loads; the other loads are summed
constexpr size_t kLadder = 8;  // innermost loops that have features of their own
// log2 of the cache sizes whose traffic is a feature: 512 B to 8 MiB.
constexpr int kCapacityMin = 9;
constexpr int kCapacityMax = 23;
constexpr int kCapacityStep = 2;

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

struct AllocatedBytes {
  double local = 0, shared = 0, global = 0;

  void Add(const ir::Stmt& body) {
    ir::VisitStmt(body, [&](const ir::Stmt& s) {
      if (const auto* alloc = ir::As<ir::Alloc>(s)) {
        double& sum = alloc->buffer->scope == ir::Scope::kLocal    ? local
                      : alloc->buffer->scope == ir::Scope::kShared ? shared
                                                                   : global;
        sum += static_cast<double>(alloc->buffer->SizeBytes());
      }
      return true;
    });
  }
};

// Sums over statements.
struct Totals {
  double flops = 0, trips = 0, instructions = 0, guarded = 0, serial = 0, vectorized = 0,
         copies = 0;
  double code = 0, l1_bytes = 0, l2_bytes = 0, regions = 0;

  void Add(const Statement& st, const machine::TargetInfo& target) {
    const double n = st.Trips();
    trips += n;
    flops += n * st.ops.Flops();
    instructions += n * InstructionsPerTrip(st, target);
    if (st.guards > 0) guarded += n;
    if (VectorLanes(st) > 1) vectorized += n;
    if (st.ops.Flops() == 0) copies += n;
    code += UnrolledCopies(st);
    l1_bytes += st.Traffic(static_cast<double>(target.l1_bytes));
    l2_bytes += st.Traffic(static_cast<double>(target.l2_bytes));
    const auto outermost = std::find_if(st.loops.begin(), st.loops.end(), IsCpuParallel);
    if (outermost == st.loops.end()) {
      serial += n;
    } else {
      regions += st.Trips(0, static_cast<size_t>(outermost - st.loops.begin()));
    }
  }
};

void EmitProgram(const ir::Program& p, const std::vector<Statement>& statements, const Totals& t,
                 const machine::TargetInfo& target, FeatureSink& out) {
  double io = 0;
  for (const auto& b : p.inputs) io += static_cast<double>(b->SizeBytes());
  for (const auto& b : p.outputs) io += static_cast<double>(b->SizeBytes());
  AllocatedBytes allocated;
  if (p.body != nullptr) allocated.Add(p.body);
  out.Begin("program", "program.");
  out.Magnitude("statements", "count", "Statements.", static_cast<double>(statements.size()));
  out.Magnitude("trips", "executions", "Executions of all statements; main.trips + side.trips.",
                t.trips);
  out.Magnitude("flops", "flop", "Float operations of all statements, recomputation included.",
                t.flops);
  out.Magnitude("instructions", "count",
                "Operations and accesses after vectorization: executions times those of one "
                "execution, over lanes times registers.",
                t.instructions);
  out.Magnitude("io_bytes", "bytes", "Sizes of inputs and outputs.", io);
  out.Magnitude("intensity", "flop/byte", "flops / io_bytes.", Share(t.flops, io));
  out.Magnitude("l1_bytes", "bytes",
                "Traffic from beyond the first-level cache; at least l2_bytes.", t.l1_bytes);
  out.Magnitude("l2_bytes", "bytes", "Traffic from beyond the second-level cache.", t.l2_bytes);
  out.Magnitude("local_bytes", "bytes", "Allocations of scope local.", allocated.local);
  out.Magnitude("shared_bytes", "bytes", "Allocations of scope shared.", allocated.shared);
  out.Magnitude("global_bytes", "bytes", "Allocations of scope global.", allocated.global);
  out.Magnitude(
      "parallel_regions", "entries",
      "Times a parallel loop is entered, counted per statement: trips of the loops outside it.",
      t.regions);
  out.Magnitude("serial_trips", "executions",
                "Executions outside every parallel loop; at most trips.", t.serial);
  out.Magnitude("code_copies", "count",
                "Copies of statements that unrolling makes: sum of unrolled extents.", t.code);
  out.Plain("guarded_share", "share", "Executions under a condition / trips.",
            Share(t.guarded, t.trips));
  out.Plain("vectorized_share", "share", "Executions in a vectorized loop / trips.",
            Share(t.vectorized, t.trips));
  out.Magnitude("threads", "count", "Threads of the target.", target.target.threads);
  out.Magnitude("vector_bytes", "bytes", "Width of the target's vector registers.",
                target.vector_bytes);
  out.Magnitude("l1_capacity", "bytes", "First-level cache of the target.",
                static_cast<double>(target.l1_bytes));
  out.Magnitude("l2_capacity", "bytes", "Second-level cache of the target.",
                static_cast<double>(target.l2_bytes));
}

// Features of the statements other than the main one: packing, padding, epilogues.
void EmitSide(const Totals& t, FeatureSink& out) {
  out.Begin("side", "side.");
  out.Magnitude("trips", "executions", "Executions of the statements beside the main one.",
                t.trips);
  out.Magnitude("flops", "flop", "Their float operations; program.flops - main's.", t.flops);
  out.Magnitude("instructions", "count", "Their share of program.instructions.", t.instructions);
  out.Magnitude("copy_trips", "executions", "Those executions that only move data; at most trips.",
                t.copies);
  out.Magnitude("l1_bytes", "bytes", "Their traffic from beyond the first-level cache.",
                t.l1_bytes);
  out.Magnitude("l2_bytes", "bytes", "Their traffic from beyond the second-level cache.",
                t.l2_bytes);
  out.Plain("vectorized_share", "share", "Their executions in a vectorized loop / trips.",
            Share(t.vectorized, t.trips));
  out.Plain("serial_share", "share", "Their executions outside every parallel loop / trips.",
            Share(t.serial, t.trips));
}

void EmitMain(const Statement& st, const machine::TargetInfo& target, FeatureSink& out) {
  const double lanes = VectorLanes(st), parallel = ParallelExtent(st);
  const double vector_bytes = static_cast<double>(target.vector_bytes);
  const double filled = lanes * StoreSize(st);
  const double spatial = st.accesses[0].elements[0];
  const double threads = target.target.threads;
  double registers = 0;
  for (const Access& a : st.accesses) registers += Registers(st, a, target);
  out.Begin("counts", "main.");
  out.Magnitude("flops", "flop", "Float operations of one execution; add + mul + div + special.",
                st.ops.Flops());
  out.Magnitude("add", "operations",
                "Float additions, subtractions, minima and maxima of one execution.",
                st.ops.float_add);
  out.Magnitude("mul", "operations", "Float multiplications of one execution.", st.ops.float_mul);
  out.Magnitude("div", "operations", "Float divisions of one execution.", st.ops.float_div);
  out.Magnitude("special", "operations", "Calls of functions such as exp in one execution.",
                st.ops.special);
  out.Magnitude("select", "operations",
                "Selects, comparisons and logic of one execution, such as padding.", st.ops.select);
  out.Magnitude("integer", "operations",
                "Integer arithmetic of one execution that makes values, not indices.",
                st.ops.integer);
  out.Magnitude("cast", "operations", "Casts of one execution.", st.ops.cast);
  out.Begin("main", "main.");
  out.Magnitude("trips", "executions",
                "Executions of the main statement, the one with most work; product of its loops.",
                st.Trips());
  out.Magnitude("spatial_trips", "elements", "Distinct elements it writes.", spatial);
  out.Magnitude("reduce_trips", "executions", "Executions per element; trips / spatial_trips.",
                st.Trips() / spatial);
  out.Plain("reduction", "0 or 1", "Whether it reads the element it writes.", st.reduction);
  out.Magnitude("guards", "count", "Conditions around it.", st.guards);
  out.Magnitude("depth", "count", "Loops around it of extent two or more.",
                static_cast<double>(st.loops.size()));
  out.Magnitude("parallel_extent", "iterations", "Product of its parallel loops.", parallel);
  out.Plain("parallel_use", "share", "parallel_extent / (its multiple of the threads, rounded up).",
            parallel / (std::ceil(parallel / threads) * threads));
  out.Magnitude("gpu_blocks", "count", "Product of its loops bound to GPU blocks.", GpuBlocks(st));
  out.Magnitude("gpu_threads", "count", "Product of its loops bound to GPU threads.",
                GpuThreads(st));
  out.Magnitude("lanes", "elements", "Product of its vectorized loops.", lanes);
  out.Plain("vector_fill", "share", "Bytes of the lanes / bytes of the vector registers they take.",
            filled / (std::ceil(filled / vector_bytes) * vector_bytes));
  out.Magnitude("unrolled", "copies", "Product of its unrolled loops.", UnrolledCopies(st));
  out.Magnitude("tile_trips", "executions",
                "Trips of the register tile: the innermost loops that are unrolled or vectorized.",
                st.Trips(RegisterLevel(st), st.loops.size()));
  out.Magnitude("accumulators", "registers", "Vector registers that hold what the tile writes.",
                Registers(st, st.accesses[0], target));
  out.Magnitude("register_use", "ratio",
                "Vector registers of all accesses of the tile / registers of the target.",
                registers / target.vector_registers);
  out.Begin("traffic", "main.");
  for (int c = kCapacityMin; c <= kCapacityMax; c += kCapacityStep) {
    out.Magnitude("traffic_2^" + std::to_string(c), "bytes",
                  "Traffic of the main statement from beyond a cache of that many bytes; never "
                  "grows with the size.",
                  st.Traffic(std::ldexp(1.0, c)));
  }
}

// Features of the analytic estimate (estimate.h).
void EmitEstimate(const std::vector<Statement>& statements, const Statement& main,
                  const machine::TargetInfo& target, FeatureSink& out) {
  const CycleEstimate own = EstimateCycles(main, target);
  double side = 0, flops = 0;
  for (const Statement& st : statements) {
    if (&st != &main) side += EstimateCycles(st, target).Longest();
    flops += st.Trips() * st.ops.Flops();
  }
  const double cycles = (own.Longest() + side) / BusyCores(main, target);
  const double peak =  // of f32, in operations a cycle; a multiply-add is two
      2 * target.core.operations_per_cycle * target.vector_bytes / sizeof(float);
  out.Begin("estimate", "estimate.");
  out.Magnitude("cycles", "cycles", "Of the busiest core; (main + side) / cores that are busy.",
                cycles);
  out.Magnitude("main", "cycles",
                "Of the main statement on one core; the largest of arithmetic, moves, issue, fill.",
                own.Longest());
  out.Magnitude("side", "cycles", "Of the other statements on one core.", side);
  out.Magnitude(
      "arithmetic", "cycles",
      "Of the main statement's operations: two a cycle, or in chains of its accumulators.",
      own.arithmetic);
  out.Magnitude("moves", "cycles",
                "Of the main statement's loads, stores and spilled registers: two a cycle.",
                own.moves);
  out.Magnitude("issue", "cycles", "Of all instructions of the main statement: six a cycle.",
                own.issue);
  out.Magnitude("fill", "cycles", "Of lines that the main statement brings nearer.", own.fill);
  out.Plain("use", "share", "Float operations / those of cycles at two vectors of them a cycle.",
            cycles > 0 ? std::min(1.0, flops / (peak * cycles * BusyCores(main, target))) : 0);
}

struct SlotSums {
  double elements = 0, tile = 0, l1 = 0, l2 = 0, stride = 0, reuse = 0, scope = 0;
};

void EmitSlot(std::string_view prefix, const SlotSums& s, FeatureSink& out) {
  out.Begin("access", prefix);
  out.Magnitude("elements", "elements", "Distinct elements touched by the whole nest.", s.elements);
  out.Magnitude("reuse", "executions", "main.trips / elements.", s.reuse);
  out.Magnitude("tile_elements", "elements",
                "Distinct elements touched by one register tile; at most elements.", s.tile);
  out.Magnitude("inner_stride", "elements",
                "Distance between two iterations of the innermost loop.", s.stride);
  out.Magnitude("l1_bytes", "bytes", "Its traffic from beyond the first-level cache.", s.l1);
  out.Magnitude("l2_bytes", "bytes",
                "Its traffic from beyond the second-level cache; at most l1_bytes.", s.l2);
  out.Plain("scope", "code", "Memory: 0 global, 1 shared, 2 local.", s.scope);
}

void EmitReuseCurves(std::string_view prefix, const ReuseCurves& r, FeatureSink& out) {
  out.Begin("reuse", prefix);
  for (size_t t = 0; t < kBytesThresholds; ++t) {
    const std::string at = "2^" + std::to_string(6 + 2 * t);
    out.Magnitude("reuse_" + at, "executions",
                  "Most executions per element among the loops inside which it touches at most so "
                  "many bytes; never shrinks with them.",
                  r.reuse[t]);
    out.Magnitude("entries_" + at, "entries",
                  "Fewest entries of a loop inside which it touches at most so many bytes; never "
                  "grows with them.",
                  r.entries[t]);
  }
  for (size_t t = 0; t < kReuseThresholds; ++t) {
    out.Magnitude("touched_2^" + std::to_string(1 + 2 * t), "bytes",
                  "Most bytes touched by a loop that uses them at most so often; at most its "
                  "elements times their size.",
                  r.touched[t]);
  }
}

// The store first, then the loads by footprint, and loads with equal footprints by inner stride. So
// names do not influence the order.
void EmitAccesses(const Statement& st, const machine::TargetInfo& target, FeatureSink& out) {
  const auto stride = [&](const Access& a) {
    return a.stride.empty() ? 0.0 : std::abs(static_cast<double>(a.stride.back()));
  };
  std::vector<const Access*> order;
  for (const Access& a : st.accesses) order.push_back(&a);
  std::stable_sort(order.begin() + 1, order.end(), [&](const Access* a, const Access* b) {
    if (a->elements[0] != b->elements[0]) return a->elements[0] > b->elements[0];
    return stride(*a) < stride(*b);
  });
  std::array<SlotSums, kSlots + 1> slots;
  std::array<ReuseCurves, kSlots> curves;
  const size_t tile = RegisterLevel(st);
  for (size_t i = 0; i < order.size(); ++i) {
    const Access& a = *order[i];
    SlotSums& s = slots[std::min(i, kSlots)];
    s.elements += a.elements[0];
    s.tile += a.elements[tile];
    s.l1 += st.Traffic(a, static_cast<double>(target.l1_bytes));
    s.l2 += st.Traffic(a, static_cast<double>(target.l2_bytes));
    s.stride = std::max(s.stride, stride(a));
    s.scope = std::max(s.scope, static_cast<double>(a.buffer->scope));
    s.reuse = st.Trips() / s.elements;
    if (i < kSlots) curves[i] = ReuseCurvesOf(st, a);
  }
  constexpr std::array<std::string_view, kSlots + 1> kPrefixes = {"store.", "load0.", "load1.",
                                                                  "other_loads."};
  for (size_t i = 0; i < slots.size(); ++i) EmitSlot(kPrefixes[i], slots[i], out);
  for (size_t i = 0; i < kSlots; ++i) EmitReuseCurves(kPrefixes[i], curves[i], out);
}

double KindCode(ir::LoopKind kind) {
  if (kind == ir::LoopKind::kSerial) return 1;
  if (kind == ir::LoopKind::kUnrolled) return 2;
  if (kind == ir::LoopKind::kVectorized) return 3;
  if (kind == ir::LoopKind::kParallel) return 4;
  if (ir::IsGpuThread(kind)) return 5;
  if (kind == ir::LoopKind::kVThread) return 6;
  if (kind == ir::LoopKind::kTensor) return 8;
  return 7;
}

void EmitLadder(const Statement& st, FeatureSink& out) {
  double access_bytes = 0;
  for (const Access& a : st.accesses)
    access_bytes += static_cast<double>(ir::SizeOf(a.buffer->dtype));
  for (size_t k = 0; k < kLadder; ++k) {
    const bool present = k < st.loops.size();
    const size_t level = present ? st.loops.size() - 1 - k : 0;
    double touched = 0, extent = 1;
    if (present) extent = static_cast<double>(st.loops[level].extent);
    for (const Access& a : st.accesses) touched += a.Bytes(level);
    const double accessed = access_bytes * st.Trips(level, st.loops.size());
    out.Begin("loop", "loop" + std::to_string(k) + ".");
    out.Magnitude("extent", "iterations",
                  "Iterations of the main statement's loop number k, counted from the innermost; 1 "
                  "beyond the outermost.",
                  extent);
    out.Plain("kind", "code",
              "0 none, 1 serial, 2 unrolled, 3 vectorized, 4 parallel, 5 GPU thread, 6 virtual "
              "thread, 7 GPU block, 8 tensor instruction.",
              present ? KindCode(st.loops[level].kind) : 0);
    out.Magnitude(
        "touched", "bytes",
        "Distinct bytes touched by this loop and those inside it; never shrinks outwards.",
        touched);
    out.Magnitude("reuse", "ratio", "Bytes accessed by this loop and those inside it / touched.",
                  accessed / touched);
  }
}

void Emit(const ir::Program& program, const machine::TargetInfo& target, KnownStatements* known,
          FeatureSink& out) {
  static const ir::Buffer kScalar;
  static const Statement kNothing = [] {
    Statement st;
    st.accesses.push_back({&kScalar, true, {1}, {kLineBytes}, {}});
    return st;
  }();
  const std::vector<Statement> statements = CollectStatements(program, known);
  const Statement* main = MainStatement(statements);
  Totals all, side;
  for (const Statement& st : statements) {
    all.Add(st, target);
    if (&st != main) side.Add(st, target);
  }
  if (main == nullptr) main = &kNothing;
  EmitProgram(program, statements, all, target, out);
  EmitSide(side, out);
  EmitMain(*main, target, out);
  EmitEstimate(statements, *main, target, out);
  EmitAccesses(*main, target, out);
  EmitLadder(*main, out);
}

}  // namespace

std::span<const FeatureInfo> FeatureTable() {
  static const std::vector<FeatureInfo>* const kTable = [] {
    auto* table = new std::vector<FeatureInfo>;
    FeatureSink sink(table);
    Emit(ir::Program{}, machine::TargetInfo{}, nullptr, sink);
    return table;
  }();
  return *kTable;
}

std::vector<float> ExtractFeatures(const ir::Program& program, const machine::TargetInfo& target,
                                   KnownStatements* known) {
  std::vector<float> values;
  values.reserve(FeatureTable().size());
  FeatureSink sink(&values);
  Emit(program, target, known, sink);
  return values;
}

}  // namespace heddle::cost_model
