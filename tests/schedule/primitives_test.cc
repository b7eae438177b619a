// Each primitive: one rewrite before and after, and every refusal by its message.
#include "compiler/schedule/primitives/primitives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/schedule/trace.h"
#include "compiler/tensor/expression.h"

namespace heddle::schedule {
namespace {

using ir::DType;
using ir::Expr;
using tensor::Iters;
using tensor::Tensor;
using ::testing::HasSubstr;

ir::Program Lowered(tensor::Builder& builder, const std::vector<Tensor>& outputs) {
  auto program = builder.Build(outputs);
  auto loops = tensor::LowerToLoops(program.value());
  return loops.value();
}

// pre[8, 16] = x * 2; mm[8, 32] = sum of pre * w; y = max(mm, 0), an output.
ir::Program Product() {
  tensor::Builder b("product");
  Tensor x = b.Input("x", DType::kF32, {8, 16});
  Tensor w = b.Input("w", DType::kF32, {16, 32});
  Tensor pre = b.Compute("pre", {8, 16}, [&](Iters i) { return x(i[0], i[1]) * ir::Float(2); });
  Tensor mm = b.Reduce("mm", {8, 32}, {16}, ir::ReduceOp::kSum,
                       [&](Iters s, Iters r) { return pre(s[0], r[0]) * w(r[0], s[1]); });
  Tensor y = b.Compute("y", {8, 32}, [&](Iters i) {
    return ir::Make(ir::Op::kMax, {mm(i[0], i[1]), ir::Float(0)});
  });
  return Lowered(b, {y});
}

// a[10] = x + 1; b[10] = a * 2; c[9] = b[i] + b[i + 1]; d[10] = a + b: c and d are outputs.
ir::Program Chain() {
  tensor::Builder builder("chain");
  Tensor x = builder.Input("x", DType::kF32, {10});
  Tensor a = builder.Compute("a", {10}, [&](Iters i) { return x(i[0]) + ir::Float(1); });
  Tensor b = builder.Compute("b", {10}, [&](Iters i) { return a(i[0]) * ir::Float(2); });
  Tensor c = builder.Compute("c", {9}, [&](Iters i) { return b(i[0]) + b(i[0] + ir::Int(1)); });
  Tensor d = builder.Compute("d", {10}, [&](Iters i) { return a(i[0]) + b(i[0]); });
  return Lowered(builder, {c, d});
}

// a[6] = x + 1; b[6] = a * 2, an output.
ir::Program Pair() {
  tensor::Builder builder("pair");
  Tensor x = builder.Input("x", DType::kF32, {6});
  Tensor a = builder.Compute("a", {6}, [&](Iters i) { return x(i[0]) + ir::Float(1); });
  Tensor b = builder.Compute("b", {6}, [&](Iters i) { return a(i[0]) * ir::Float(2); });
  return Lowered(builder, {b});
}

absl::StatusOr<ir::Program> Apply(const ir::Program& program, const std::string& steps) {
  auto trace = ParseTrace(steps);
  if (!trace.ok()) return trace.status();
  return Replay(program, *trace);
}

struct Refusal {
  const char* steps;  // all but the last succeed
  absl::StatusCode code;
  const char* message;
};

constexpr absl::StatusCode kIllegal = absl::StatusCode::kFailedPrecondition;
constexpr absl::StatusCode kMalformed = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kMissing = absl::StatusCode::kNotFound;

void ExpectRefusals(const ir::Program& program, const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    auto trace = ParseTrace(refusal.steps);
    ASSERT_TRUE(trace.ok()) << trace.status();
    Trace before = *trace;
    before.steps.pop_back();
    auto legal = Replay(program, before);
    ASSERT_TRUE(legal.ok()) << refusal.steps << "\n" << legal.status();
    EXPECT_TRUE(ir::Verify(*legal).ok()) << refusal.steps;
    auto refused = ApplyStep(*legal, trace->steps.back());
    ASSERT_FALSE(refused.ok()) << refusal.steps << "\n" << ir::Print(refused->program);
    EXPECT_EQ(refused.status().code(), refusal.code) << refusal.steps;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(refusal.message))
        << refusal.steps;
  }
}

TEST(Refusals, Split) {
  ExpectRefusals(
      Product(),
      {{"split nothing 2 4", kMissing, "no loop `nothing`"},
       {"split y.i0 0 4", kMalformed, "factor 0 is not positive"},
       {"split y.i0 -2 4", kMalformed, "factor -2 is not positive"},
       {"split y.i0 2 3", kIllegal, "of extent 8 is not covered by factors of product 6"},
       {"split y.i0 3 7", kIllegal, "split into more than twice its iterations"},
       {"split y.i0 4611686018427387904 4", kIllegal, "more than twice"},
       {"bind y.i0 blockIdx.x\nsplit y.i0 2 4", kIllegal, "bound to a GPU axis"},
       {"vectorize y.i1\nsplit y.i1 4 8", kIllegal, "is vectorized"},
       {"fuse y.i0 y.i1\nsplit y.i0*y.i1 37 7", kIllegal,
        "was fused and needs factors that divide it"},
       {"split y.i0 2 4\nsplit y.i0 2 4", kMissing, "no loop `y.i0`"}});
}

TEST(Refusals, Fuse) {
  ExpectRefusals(
      Product(),
      {{"fuse y.i0 y.i9", kMissing, "no loop `y.i9`"},
       {"fuse y.i1 y.i0", kIllegal, "has not loop `y.i0` directly inside it"},
       {"fuse mm.i0 mm.r0", kIllegal, "has not loop `mm.r0` directly inside it"},
       {"unroll y.i0\nfuse y.i0 y.i1", kIllegal, "is unrolled; only serial loops fuse"},
       {"parallel y.i0\nfuse y.i0 y.i1", kIllegal, "is parallel; only serial loops fuse"},
       {"fuse mm.i1 mm.r0", kIllegal, "mean different things to the reduction `mm`"}});
}

// Each split may double the iterations; so a trace could ask for any number of them.
TEST(Refusals, FuseOfVeryManyIterations) {
  const auto naive = ir::Parse(
      "program p(x: f32[1]) -> (out: f32[1]) { for a in 1 { block y(v < 1 spatial = a) { out[v] = "
      "x[v] } } }");
  ASSERT_TRUE(naive.ok()) << naive.status();
  std::string text = "split a 2\n", outer = "a.0", inner;
  for (int i = 0; i < 41; ++i) {
    absl::StrAppend(&text, "split ", outer, " 2 2\n");
    inner = absl::StrCat(" ", outer, ".1", inner);
    outer += ".0";
  }
  const auto trace = ParseTrace(absl::StrCat(text, "fuse ", outer, inner));
  ASSERT_TRUE(trace.ok()) << trace.status();
  const auto refused = Replay(*naive, *trace);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("more than 2^40 iterations"));
}

TEST(Refusals, Reorder) {
  ExpectRefusals(Product(), {{"reorder mm.i0 mm.i7", kMissing, "no loop `mm.i7`"},
                             {"reorder mm.i0 mm.i0", kMalformed, "names a loop twice"},
                             {"reorder mm.i0 y.i0", kIllegal, "does not lie on one chain"},
                             {"decompose_reduction mm mm.r0\nreorder mm.r0 mm.i1", kIllegal,
                              "have something else between them"},
                             // What repeats a reduction stays outside its reduce loops: y is
                             // inlined nowhere, so mm repeats for every y.i1.
                             {"compute_at mm y.i1\nreorder mm@y.i1.2 y.i1", kIllegal,
                              "have something else between them"}});
}

TEST(Refusals, ReorderKeepsRepetitionOutside) {
  auto program = ir::Parse(
      "program repeated(x: f32[4, 3]) -> (z: f32[4]) {\n"
      "  alloc y_buf: f32[4] global {\n"
      "    for again in 2 { for i in 4 { for k in 3 {\n"
      "      block y(y.v0 < 4 spatial = i, y.v1 < 3 reduce = k) sum init 0.0 {\n"
      "        y_buf[y.v0] = x[y.v0, y.v1]\n"
      "      }\n"
      "    } } }\n"
      "    for j in 4 { block out(out.v < 4 spatial = j) { z[out.v] = y_buf[out.v] } }\n"
      "  }\n"
      "}\n");
  ASSERT_TRUE(program.ok()) << program.status();
  ExpectRefusals(*program,
                 {{"reorder i k again", kIllegal, "cannot go inside its reduce loop `k`"},
                  {"decompose_reduction y again", kIllegal,
                   "is computed again in every iteration of loop `again`"},
                  {"reverse_compute_at out i", kIllegal, "computed again in every iteration"},
                  {"parallel again", kIllegal, "writes the same element"}});
}

TEST(Refusals, ComputeAt) {
  ExpectRefusals(
      Product(),
      {{"compute_at nothing y.i0", kMissing, "no block `nothing`"},
       {"compute_at pre mm.i7", kMissing, "no loop `mm.i7`"},
       {"compute_at y mm.i0", kIllegal, "writes an output"},
       {"compute_at pre y.i0", kIllegal, "has a consumer outside loop `y.i0`: block `mm`"},
       {"compute_at mm mm.i0", kIllegal, "is under loop `mm.i0` already"},
       {"vectorize y.i1\ncompute_at mm y.i1", kIllegal, "which is vectorized"},
       {"decompose_reduction mm mm.r0\ncompute_at mm y.i0", kIllegal,
        "is a reduction decomposed already"}});
  ExpectRefusals(Chain(), {{"compute_at a c.i0", kIllegal, "has a consumer outside loop `c.i0`"}});
}

TEST(Refusals, ReverseComputeAt) {
  ExpectRefusals(Product(),
                 {{"reverse_compute_at y pre.i0", kIllegal,
                   "reads nothing that is produced under loop `pre.i0`"},
                  {"reverse_compute_at y mm.r0", kIllegal, "its reduce loop `mm.r0` is outside"},
                  {"reorder mm.r0 mm.i1\nreverse_compute_at y mm.i1", kIllegal,
                   "its reduce loop `mm.r0` is outside"},
                  {"reverse_compute_at mm pre.i1", kIllegal,
                   "does not read each element of block `pre` at a point of its own"},
                  {"vectorize mm.i1\nreverse_compute_at y mm.i1", kIllegal, "which is vectorized"},
                  {"split y.i1 5 7\nreverse_compute_at y mm.i0", kIllegal, "has a guard"},
                  {"compute_at mm y.i0\nreverse_compute_at y mm@y.i0.1", kIllegal,
                   "shares a loop with its producer `mm` already"},
                  {"reverse_compute_at y y.i0", kIllegal, "is under loop `y.i0` already"}});
  ExpectRefusals(Chain(),
                 {{"reverse_compute_at c b.i0", kIllegal, "at a point of its own"},
                  {"reverse_compute_at d a.i0", kIllegal, "reads what block `b` produces"}});
}

TEST(Refusals, ComputeInline) {
  ExpectRefusals(Product(), {{"compute_inline mm", kIllegal, "is a reduction"},
                             {"compute_inline y", kIllegal, "writes an output"},
                             {"decompose_reduction mm mm.r0\ncompute_inline mm.init", kIllegal,
                              "shares its buffer with block `mm`"}});
  auto unread = ir::Parse(
      "program unread(x: f32[4]) -> (y: f32[4]) {\n"
      "  alloc t: f32[4] global { alloc u: f32[8] global {\n"
      "    for i in 4 { block dead(dead.v < 4 spatial = i) { t[dead.v] = x[dead.v] } }\n"
      "    for j in 4 { block even(even.v < 4 spatial = j) { u[(even.v * 2)] = x[even.v] } }\n"
      "    for k in 4 { block out(out.v < 4 spatial = k) { y[out.v] = u[(out.v * 2)] } }\n"
      "  } }\n"
      "}\n");
  ASSERT_TRUE(unread.ok()) << unread.status();
  ExpectRefusals(*unread,
                 {{"compute_inline dead", kIllegal, "has no reader"},
                  {"compute_inline even", kIllegal, "does not store exactly at its iterators"}});
}

TEST(Refusals, ReverseComputeInline) {
  ExpectRefusals(Product(),
                 {{"reverse_compute_inline mm", kIllegal, "is a reduction"},
                  {"reverse_compute_inline y", kIllegal, "into block `mm`, which is a reduction"},
                  {"reverse_compute_inline pre", kIllegal, "has no producer"}});
  ExpectRefusals(Chain(),
                 {{"reverse_compute_inline d", kIllegal, "has more than one producer"},
                  {"reverse_compute_inline b", kIllegal, "is not the only consumer of block `a`"}});
  tensor::Builder builder("shifted");
  Tensor x = builder.Input("x", DType::kF32, {6});
  Tensor a = builder.Compute("a", {6}, [&](Iters i) { return x(i[0]) + ir::Float(1); });
  Tensor b = builder.Compute("b", {5}, [&](Iters i) { return a(i[0] + ir::Int(1)); });
  ExpectRefusals(Lowered(builder, {b}), {{"reverse_compute_inline b", kIllegal,
                                          "does not read block `a` at its own point only"}});
  ExpectRefusals(Pair(), {{"split b.i0 4 2\nreverse_compute_inline b", kIllegal, "has a guard"}});
}

TEST(Refusals, Caches) {
  ExpectRefusals(
      Product(),
      {{"cache_read mm x local", kIllegal, "block `mm` does not read buffer `x`"},
       {"cache_read mm w local\ncache_read mm w local", kIllegal, "does not read buffer `w`"},
       {"cache_read pre x local\ncompute_inline x.local\ncache_read pre x local\n"
        "cache_read x.local x local",
        kIllegal, "exists already"},
       {"decompose_reduction mm mm.r0\ncache_write mm local", kIllegal,
        "is a reduction decomposed already"},
       {"decompose_reduction mm mm.r0\ncache_write mm.init local", kIllegal,
        "shares its buffer with block `mm`"},
       {"cache_write mm local\ncache_write mm local", kIllegal, "exists already"},
       {"set_scope y local", kIllegal, "whose scope is always global"},
       {"parallel mm.i0\nset_scope mm local", kIllegal,
        "writes a local buffer that they would share"}});
  const auto look_up = ir::Parse(
      "program look_up(x: f32[5], t: i32[4] < 5 const) -> (y: f32[4]) {\n"
      "  for i in 4 { block out(out.v < 4 spatial = i) { y[out.v] = x[i64(t[out.v])] } }\n"
      "}\n");
  ASSERT_TRUE(look_up.ok()) << look_up.status();
  ExpectRefusals(*look_up, {{"cache_read out t local", kIllegal,
                             "`t`, whose elements have a range that a copy would not have"}});
}

TEST(Refusals, Reductions) {
  ExpectRefusals(Product(), {{"decompose_reduction y y.i0", kIllegal, "is not a reduction"},
                             {"decompose_reduction mm y.i0", kIllegal, "is not under loop `y.i0`"},
                             {"split mm.r0 4 4\ndecompose_reduction mm mm.r0.1", kIllegal,
                              "has a reduce loop `mm.r0.0` outside"},
                             {"decompose_reduction mm mm.r0\ndecompose_reduction mm mm.i1",
                              kIllegal, "is decomposed already"},
                             {"rfactor y y.i0", kIllegal, "is not a reduction"},
                             {"rfactor mm mm.i0", kIllegal, "does not reduce over loop `mm.i0`"},
                             {"rfactor mm y.i0", kIllegal, "does not reduce over loop `y.i0`"},
                             {"split mm.r0 3 6\nrfactor mm mm.r0.0", kIllegal, "has a guard"},
                             {"decompose_reduction mm mm.r0\nrfactor mm mm.r0", kIllegal,
                              "is decomposed already"}});
}

TEST(Refusals, Kinds) {
  ExpectRefusals(
      Product(),
      {{"parallel mm.r0", kIllegal, "block `mm` reduces over it"},
       {"vectorize mm.r0", kIllegal, "block `mm` reduces over it"},
       {"bind mm.r0 threadIdx.x", kIllegal, "block `mm` reduces over it"},
       {"vectorize y.i1\nvectorize y.i0", kIllegal, "inside a vectorized loop"},
       {"parallel y.i1\nvectorize y.i0", kIllegal, "inside a vectorized loop"},
       {"parallel y.i1\nparallel y.i0", kIllegal, "parallel inside a parallel loop"},
       {"fuse y.i0 y.i1\nvectorize y.i0*y.i1", kIllegal, "of extent 256 is over 64"},
       {"bind y.i0 blockIdx.x\nunroll y.i0", kIllegal, "is bound to a GPU axis"},
       {"bind y.i0 blockIdx.x\nbind y.i1 blockIdx.x", kIllegal, "is bound already on its path"},
       {"bind y.i1 blockIdx.x\nbind y.i0 blockIdx.x", kIllegal, "is bound already on its path"},
       {"bind y.i1 blockIdx.x\nbind y.i0 threadIdx.x", kIllegal,
        "a block axis would lie inside a thread axis"},
       {"bind y.i0 vectorized", kMalformed, "is not a GPU axis"}});
  ir::Program long_loop = *ir::Parse(
      "program long(x: f32[5000]) -> (y: f32[5000]) {\n"
      "  for i in 5000 { block b(b.v < 5000 spatial = i) { y[b.v] = x[b.v] } }\n"
      "}\n");
  ExpectRefusals(long_loop, {{"unroll i", kIllegal, "of extent 5000 is over 4096"}});
  ir::Program repeated = *ir::Parse(
      "program repeated(x: f32[4]) -> (y: f32[4]) {\n"
      "  for i in 4 { for k in 3 { block b(b.v < 4 spatial = i) { y[b.v] = x[b.v] } } }\n"
      "}\n");
  ExpectRefusals(repeated, {{"parallel k", kIllegal, "writes the same element"},
                            {"fuse i k\nparallel i*k", kIllegal, "writes the same element"}});
}

// ---- Rewrites
// --------------------------------------------------------------------------------------------------------

// The body of the program after the steps, as text.
void ExpectBody(const ir::Program& program, const std::string& steps, const std::string& body) {
  auto result = Apply(program, steps);
  ASSERT_TRUE(result.ok()) << steps << "\n" << result.status();
  EXPECT_TRUE(ir::Verify(*result).ok()) << ir::Verify(*result);
  EXPECT_EQ("\n" + ir::Print(result->body), body) << steps;
}

TEST(Rewrites, SplitThatDoesNotDivideIsGuarded) {
  ExpectBody(Pair(), "compute_inline a\nsplit b.i0 2 4", R"(
for b.i0.0 in 2 {
  for b.i0.1 in 4 {
    block b(b.vi0 < 6 spatial = ((b.i0.0 * 4) + b.i0.1)) where (((b.i0.0 * 4) + b.i0.1) < 6) {
      b_buf[b.vi0] = ((x[b.vi0] + 1.0) * 2.0)
    }
  }
}
)");
}

TEST(Rewrites, ReverseComputeInline) {
  ExpectBody(Pair(), "reverse_compute_inline b", R"(
for a.i0 in 6 {
  block a(a.vi0 < 6 spatial = a.i0) {
    b_buf[a.vi0] = ((x[a.vi0] + 1.0) * 2.0)
  }
}
)");
}

// b is computed for just the two elements that c reads; a's copy stays outside because d reads it
// too.
TEST(Rewrites, ComputeAtCoversWhatConsumersRead) {
  ExpectBody(Pair(), "split b.i0 3 2\ncompute_at a b.i0.0", R"(
for b.i0.0 in 3 {
  alloc a_buf: f32[6] global {
    for a@b.i0.0.0 in 2 {
      block a(a.vi0 < 6 spatial = ((b.i0.0 * 2) + a@b.i0.0.0)) {
        a_buf[a.vi0] = (x[a.vi0] + 1.0)
      }
    }
    for b.i0.1 in 2 {
      block b(b.vi0 < 6 spatial = ((b.i0.0 * 2) + b.i0.1)) {
        b_buf[b.vi0] = (a_buf[b.vi0] * 2.0)
      }
    }
  }
}
)");
}

TEST(Rewrites, CacheWrite) {
  ExpectBody(Pair(), "compute_inline a\ncache_write b local", R"(
alloc b.local_buf: f32[6] local {
  for b.i0 in 6 {
    block b(b.vi0 < 6 spatial = b.i0) {
      b.local_buf[b.vi0] = ((x[b.vi0] + 1.0) * 2.0)
    }
  }
  for b.copy.0 in 6 {
    block b.copy(b.copy.v0 < 6 spatial = b.copy.0) {
      b_buf[b.copy.v0] = b.local_buf[b.copy.v0]
    }
  }
}
)");
}

TEST(Rewrites, FuseAndReorder) {
  ExpectBody(*ir::Parse("program p(x: f32[4, 3]) -> (y: f32[4, 3]) {\n"
                        "  for i in 4 { for j in 3 {\n"
                        "    block b(b.v0 < 4 spatial = i, b.v1 < 3 spatial = j) { y[b.v0, b.v1] = "
                        "x[b.v0, b.v1] }\n"
                        "  } }\n"
                        "}\n"),
             "reorder j i\nfuse j i\nparallel j*i", R"(
for j*i in 12 parallel {
  block b(b.v0 < 4 spatial = (j*i % 4), b.v1 < 3 spatial = (j*i // 4)) {
    y[b.v0, b.v1] = x[b.v0, b.v1]
  }
}
)");
}

TEST(Rewrites, DecomposeReductionCopiesKinds) {
  ExpectBody(*ir::Parse("program p(x: f32[4, 3]) -> (y: f32[4]) {\n"
                        "  for i in 4 { for k in 3 {\n"
                        "    block b(b.v0 < 4 spatial = i, b.v1 < 3 reduce = k) max init -inf { "
                        "y[b.v0] = x[b.v0, b.v1] }\n"
                        "  } }\n"
                        "}\n"),
             "reorder k i\nvectorize i\ndecompose_reduction b k", R"(
for i.init in 4 vectorized {
  block b.init(b.init.v0 < 4 spatial = i.init) {
    y[b.init.v0] = -inf
  }
}
for k in 3 {
  for i in 4 vectorized {
    block b(b.v0 < 4 spatial = i, b.v1 < 3 reduce = k) max {
      y[b.v0] = x[b.v0, b.v1]
    }
  }
}
)");
}

TEST(Rewrites, Rfactor) {
  ExpectBody(*ir::Parse("program p(x: f32[8]) -> (y: f32[1]) {\n"
                        "  for i in 1 { for k in 8 {\n"
                        "    block b(b.v0 < 1 spatial = i, b.v1 < 8 reduce = k) sum init 0.0 { "
                        "y[b.v0] = x[b.v1] }\n"
                        "  } }\n"
                        "}\n"),
             "split k 2 4\nrfactor b k.1", R"(
alloc b.rf_buf: f32[1, 4] global {
  for i in 1 {
    for k.0 in 2 {
      for k.1 in 4 {
        block b.rf(b.rf.v0 < 4 spatial = k.1, b.rf.v1 < 1 spatial = i, b.rf.v2 < 2 reduce = k.0) sum init 0.0 {
          b.rf_buf[b.rf.v1, b.rf.v0] = x[((b.rf.v2 * 4) + b.rf.v0)]
        }
      }
    }
  }
  for b.merge.0 in 1 {
    for b.merge.1 in 4 {
      block b(b.merge.v0 < 1 spatial = b.merge.0, b.merge.v1 < 4 reduce = b.merge.1) sum init 0.0 {
        y[b.merge.v0] = b.rf_buf[b.merge.v0, b.merge.v1]
      }
    }
  }
}
)");
}

}  // namespace
}  // namespace heddle::schedule
