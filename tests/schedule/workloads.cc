#include "tests/schedule/workloads.h"

#include <algorithm>
#include <cstdio>

#include "bench/common/operator_table.h"
#include "compiler/graph/core/operator.h"
#include "compiler/tensor/expression.h"

namespace heddle::schedule {

using bench::Operator;
using bench::OperatorKind;
using ir::DType;
using ir::Expr;
using ir::ReduceOp;
using tensor::Builder;
using tensor::Iters;
using tensor::Tensor;

namespace {

Tensor BiasRelu(Builder& b, const Tensor& x) {
  Tensor bias = b.Input("bias", DType::kF32, {x.shape().back()}, true);
  return b.Compute("relu", x.shape(), [&](Iters i) {
    return ir::Make(ir::Op::kMax, {x.At({i.begin(), i.end()}) + bias(i.back()), ir::Float(0)});
  });
}

Tensor MakeConvolution(Builder& b, const Operator& c) {
  const int64_t out = c.OutSize(), total = c.PadTotal();
  Tensor x = b.Input("x", DType::kF32, {1, c.size, c.size, c.inputs});
  if (total > 0) {
    const int64_t before = c.PadBegin(), size = c.size;
    x = b.Compute("pad", {1, size + total, size + total, c.inputs}, [&](Iters i) {
      Expr h = i[1] - ir::Int(before), w = i[2] - ir::Int(before);
      auto inside = [&](const Expr& e) {
        return ir::And(ir::Le(ir::Int(0), e), ir::Lt(e, ir::Int(size)));
      };
      return ir::Select(ir::And(inside(h), inside(w)), x(i[0], h, w, i[3]), ir::Float(0));
    });
  }
  Expr stride = ir::Int(c.stride);
  if (c.kind == OperatorKind::kDepthwise) {
    Tensor w = b.Input("w", DType::kF32, {c.kernel, c.kernel, c.inputs}, true);
    return BiasRelu(b, b.Reduce("depthwise", {1, out, out, c.inputs}, {c.kernel, c.kernel},
                                ReduceOp::kSum, [&](Iters s, Iters r) {
                                  return x(s[0], s[1] * stride + r[0], s[2] * stride + r[1], s[3]) *
                                         w(r[0], r[1], s[3]);
                                }));
  }
  Tensor w = b.Input("w", DType::kF32, {c.kernel, c.kernel, c.inputs, c.outputs}, true);
  return BiasRelu(b, b.Reduce("conv2d", {1, out, out, c.outputs}, {c.kernel, c.kernel, c.inputs},
                              ReduceOp::kSum, [&](Iters s, Iters r) {
                                return x(s[0], s[1] * stride + r[0], s[2] * stride + r[1], r[2]) *
                                       w(r[0], r[1], r[2], s[3]);
                              }));
}

Tensor MakeProduct(Builder& b, int64_t m, int64_t n, int64_t k, bool transposed) {
  Tensor x = b.Input("x", DType::kF32, {m, k});
  Tensor w = b.Input("w", DType::kF32,
                     transposed ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n}, true);
  return BiasRelu(b, b.Reduce("dense", {m, n}, {k}, ReduceOp::kSum, [&](Iters s, Iters r) {
    return x(s[0], r[0]) * (transposed ? w(s[1], r[0]) : w(r[0], s[1]));
  }));
}

Tensor MakeSoftmax(Builder& b, int64_t n, int64_t m) {
  Tensor x = b.Input("x", DType::kF32, {n, m});
  Tensor top =
      b.Reduce("max", {n}, {m}, ReduceOp::kMax, [&](Iters s, Iters r) { return x(s[0], r[0]); });
  Tensor e = b.Compute(
      "exp", {n, m}, [&](Iters i) { return ir::Make(ir::Op::kExp, {x(i[0], i[1]) - top(i[0])}); });
  Tensor sum =
      b.Reduce("sum", {n}, {m}, ReduceOp::kSum, [&](Iters s, Iters r) { return e(s[0], r[0]); });
  return b.Compute("softmax", {n, m}, [&](Iters i) {
    return ir::Make(ir::Op::kDiv, {e(i[0], i[1]), sum(i[0])});
  });
}

Tensor MakePooling(Builder& b) {
  Tensor x = b.Input("x", DType::kF32, {1, 7, 7, 512});
  Tensor sum = b.Reduce("sum", {1, 512}, {7, 7}, ReduceOp::kSum,
                        [&](Iters s, Iters r) { return x(s[0], r[0], r[1], s[1]); });
  return b.Compute("mean", {1, 512},
                   [&](Iters i) { return sum(i[0], i[1]) * ir::Float(1.0 / 49); });
}

Tensor MakeElementwise(Builder& b) {
  Tensor x = b.Input("x", DType::kF32, {1, 56, 56, 64});
  Tensor y = b.Input("y", DType::kF32, {1, 56, 56, 64});
  Tensor sum = b.Compute("add", x.shape(), [&](Iters i) {
    std::vector<Expr> at{i.begin(), i.end()};
    return x.At(at) + y.At(at);
  });
  return BiasRelu(b, sum);
}

}  // namespace

ir::Program MakeWalk(int64_t groups, int64_t trees, int64_t steps, int64_t values, int64_t records,
                     bool ranges) {
  constexpr int64_t kColumns = 5, kNodes = 9;
  Builder b("walk");
  const std::vector<int64_t> nodes{groups, trees, kNodes};
  const Tensor operands[] = {b.Input("x", DType::kF32, {kColumns, records}),
                             b.Input("columns", DType::kI32, nodes, true, ranges ? kColumns : 0),
                             b.Input("thresholds", DType::kF32, nodes, true),
                             b.Input("left", DType::kI32, nodes, true, ranges ? kNodes - 1 : 0),
                             b.Input("leaves", DType::kF32, {groups, trees, kNodes, values}, true)};
  const Tensor bias = b.Input("bias", DType::kF32, {groups, values}, true);
  const Tensor sum =
      graph::Express(graph::OpKind::kForestWalk, b, operands, {{"steps", steps}}).value();
  const Tensor result = b.Compute(
      "add", sum.shape(), [&](Iters i) { return sum(i[0], i[1], i[2]) + bias(i[0], i[1]); });
  return tensor::LowerToLoops(*b.Build({result})).value();
}

ir::Program MakeRanks(int64_t groups, int64_t trees, int64_t block, int64_t depth, int64_t values,
                      int64_t records, bool ranges) {
  constexpr int64_t kColumns = 5;
  const int64_t inner = (int64_t{1} << depth) - 1;
  Builder b("ranks");
  const std::vector<int64_t> nodes{groups, trees / block, inner, block};
  const Tensor operands[] = {
      b.Input("x", DType::kU8, {kColumns, records}),
      b.Input("columns", DType::kU8, nodes, true, ranges ? kColumns : 0),
      b.Input("thresholds", DType::kU8, nodes, true),
      b.Input("leaves", DType::kF32, {groups, trees, inner + 1, values}, true)};
  const Tensor sum = graph::Express(graph::OpKind::kForestRanks, b, operands, {}).value();
  return tensor::LowerToLoops(*b.Build({sum})).value();
}

ir::Program MakeLeaves(int64_t groups, int64_t trees, int64_t block, int64_t nodes, int64_t values,
                       int64_t records, bool floats) {
  constexpr int64_t kColumns = 5;
  Builder b("leaves");
  const std::vector<int64_t> tables{groups, trees / block, nodes, block};
  const DType x = floats ? DType::kF32 : DType::kU8;
  const DType spans = floats ? DType::kI32 : (nodes <= 127 ? DType::kI8 : DType::kU8);
  const Tensor operands[] = {
      b.Input("x", x, {kColumns, records}), b.Input("columns", DType::kI32, tables, true, kColumns),
      b.Input("thresholds", x, tables, true), b.Input("spans", spans, tables, true),
      b.Input("leaves", DType::kF32, {groups, trees, nodes + 1, values}, true)};
  const Tensor sum = graph::Express(graph::OpKind::kForestLeaves, b, operands, {}).value();
  return tensor::LowerToLoops(*b.Build({sum})).value();
}

ir::Program MakeSelect(int64_t groups, int64_t trees, int64_t block, int64_t depth) {
  constexpr int64_t kColumns = 5;
  const int64_t inner = (int64_t{1} << depth) - 1;
  Builder b("select");
  const std::vector<int64_t> nodes{groups, trees / block, inner, block};
  const Tensor operands[] = {
      b.Input("x", DType::kF32, {kColumns, 1}),
      b.Input("columns", DType::kI32, nodes, true, kColumns),
      b.Input("thresholds", DType::kF32, nodes, true),
      b.Input("leaves", DType::kF32, {groups, trees / block, inner + 1, block}, true)};
  const Tensor sum =
      graph::Express(graph::OpKind::kForestSelect, b, operands, {{"depth", depth}}).value();
  return tensor::LowerToLoops(*b.Build({sum})).value();
}

ir::Program MakeDigitize(int64_t columns, int64_t groups, int64_t of_group, int64_t records) {
  Builder b("digitize");
  const Tensor operands[] = {b.Input("x", DType::kF32, {columns, records}),
                             b.Input("last", DType::kF32, {columns, groups - 1}, true),
                             b.Input("cuts", DType::kF32, {columns, of_group, groups}, true)};
  const Tensor ranks = graph::Express(graph::OpKind::kDigitize, b, operands, {}).value();
  return tensor::LowerToLoops(*b.Build({ranks})).value();
}

ir::Program MakeHalvedDigitize(int64_t columns, int64_t cuts) {
  Builder b("digitize");
  const Tensor operands[] = {b.Input("x", DType::kF32, {columns, 1}),
                             b.Input("cuts", DType::kF32, {columns, cuts}, true)};
  const Tensor ranks =
      graph::Express(graph::OpKind::kDigitize, b, operands, {{"sorted", int64_t{1}}}).value();
  return tensor::LowerToLoops(*b.Build({ranks})).value();
}

std::vector<std::string> WorkloadNames() {
  std::vector<std::string> names;
  for (const std::string& name : bench::OperatorNames()) {
    if (bench::FindOperator(name)->kind != OperatorKind::kMatrixProduct) names.push_back(name);
  }
  for (const char* name : {"M1", "M2", "MT", "S", "P", "E", "T1", "T64"}) names.push_back(name);
  return names;
}

absl::StatusOr<ir::Program> MakeWorkload(const std::string& name) {
  if (name == "T1") return MakeWalk(1, 32, 3, 1, 1);
  if (name == "T64") return MakeWalk(1, 32, 3, 1, 64);
  Builder b("workload");
  Tensor result;
  if (name == "M1") {
    result = MakeProduct(b, 1, 1000, 512, false);
  } else if (name == "M2") {
    result = MakeProduct(b, 128, 768, 768, false);
  } else if (name == "MT") {
    result = MakeProduct(b, 128, 128, 64, true);
  } else if (name == "S") {
    result = MakeSoftmax(b, 128, 1000);
  } else if (name == "P") {
    result = MakePooling(b);
  } else if (name == "E") {
    result = MakeElementwise(b);
  } else {
    std::optional<Operator> c = bench::FindOperator(name);
    if (!c.has_value()) {
      c.emplace(Operator{name, OperatorKind::kConvolution});
      if (std::sscanf(name.c_str(), "%ldx%ld-%ldk%lds%ld", &c->size, &c->inputs, &c->outputs,
                      &c->kernel, &c->stride) != 5 ||
          std::min({c->size, c->inputs, c->kernel, c->stride}) < 1 || c->outputs < 0) {
        return absl::NotFoundError("no workload " + name);
      }
      if (c->outputs == 0) c->kind = OperatorKind::kDepthwise;
    }
    if (c->kind == OperatorKind::kMatrixProduct) return absl::NotFoundError("no workload " + name);
    result = MakeConvolution(b, *c);
  }
  auto program = b.Build({result});
  if (!program.ok()) return program.status();
  return tensor::LowerToLoops(*program);
}

machine::TargetInfo Wide() {
  machine::TargetInfo wide;
  wide.vector_bytes = 64;
  wide.vector_registers = 32;
  wide.target.threads = 2;
  return wide;
}

std::vector<machine::TargetInfo> Targets() { return {machine::TargetInfo{}, Wide()}; }

}  // namespace heddle::schedule
