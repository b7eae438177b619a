#include "tests/schedule/workloads.h"

#include <algorithm>
#include <cstdio>

#include "compiler/tensor/expression.h"

namespace heddle::schedule {

using ir::DType;
using ir::Expr;
using ir::ReduceOp;
using tensor::Builder;
using tensor::Iters;
using tensor::Tensor;

namespace {

struct Convolution {
  const char* name;
  int64_t size, in, out, kernel, stride;
};
constexpr Convolution kConvolutions[] = {
    {"C1", 224, 3, 64, 7, 2},    {"C2", 56, 64, 64, 3, 1},    {"C3", 56, 64, 64, 1, 1},
    {"C4", 56, 64, 128, 3, 2},   {"C5", 56, 64, 128, 1, 2},   {"C6", 28, 128, 128, 3, 1},
    {"C7", 28, 128, 256, 3, 2},  {"C8", 28, 128, 256, 1, 2},  {"C9", 14, 256, 256, 3, 1},
    {"C10", 14, 256, 512, 3, 2}, {"C11", 14, 256, 512, 1, 2}, {"C12", 7, 512, 512, 3, 1},
    {"D1", 112, 32, 0, 3, 1},    {"D2", 112, 64, 0, 3, 2},    {"D3", 56, 128, 0, 3, 1},
    {"D4", 56, 128, 0, 3, 2},    {"D5", 28, 256, 0, 3, 1},    {"D6", 28, 256, 0, 3, 2},
    {"D7", 14, 512, 0, 3, 1},    {"D8", 14, 512, 0, 3, 2},    {"D9", 7, 1024, 0, 3, 1},
};

Tensor BiasRelu(Builder& b, const Tensor& x) {
  Tensor bias = b.Input("bias", DType::kF32, {x.shape().back()}, true);
  return b.Compute("relu", x.shape(), [&](Iters i) {
    return ir::Make(ir::Op::kMax, {x.At({i.begin(), i.end()}) + bias(i.back()), ir::Float(0)});
  });
}

Tensor MakeConvolution(Builder& b, const Convolution& c) {
  const bool depthwise = c.out == 0;
  const int64_t out = (c.size + c.stride - 1) / c.stride;
  const int64_t total = std::max<int64_t>((out - 1) * c.stride + c.kernel - c.size, 0);
  Tensor x = b.Input("x", DType::kF32, {1, c.size, c.size, c.in});
  if (total > 0) {
    const int64_t before = total / 2, size = c.size;
    x = b.Compute("pad", {1, size + total, size + total, c.in}, [&](Iters i) {
      Expr h = i[1] - ir::Int(before), w = i[2] - ir::Int(before);
      auto inside = [&](const Expr& e) {
        return ir::And(ir::Le(ir::Int(0), e), ir::Lt(e, ir::Int(size)));
      };
      return ir::Select(ir::And(inside(h), inside(w)), x(i[0], h, w, i[3]), ir::Float(0));
    });
  }
  Expr stride = ir::Int(c.stride);
  if (depthwise) {
    Tensor w = b.Input("w", DType::kF32, {c.kernel, c.kernel, c.in}, true);
    return BiasRelu(b, b.Reduce("depthwise", {1, out, out, c.in}, {c.kernel, c.kernel},
                                ReduceOp::kSum, [&](Iters s, Iters r) {
                                  return x(s[0], s[1] * stride + r[0], s[2] * stride + r[1], s[3]) *
                                         w(r[0], r[1], s[3]);
                                }));
  }
  Tensor w = b.Input("w", DType::kF32, {c.kernel, c.kernel, c.in, c.out}, true);
  return BiasRelu(b, b.Reduce("conv2d", {1, out, out, c.out}, {c.kernel, c.kernel, c.in},
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

std::vector<std::string> WorkloadNames() {
  std::vector<std::string> names;
  for (const Convolution& c : kConvolutions) names.push_back(c.name);
  for (const char* name : {"M1", "M2", "MT", "S", "P", "E"}) names.push_back(name);
  return names;
}

absl::StatusOr<ir::Program> MakeWorkload(const std::string& name) {
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
    auto it = std::find_if(std::begin(kConvolutions), std::end(kConvolutions),
                           [&](const Convolution& c) { return name == c.name; });
    Convolution c{name.c_str(), 0, 0, 0, 0, 0};
    if (it != std::end(kConvolutions)) {
      c = *it;
    } else if (std::sscanf(name.c_str(), "%ldx%ld-%ldk%lds%ld", &c.size, &c.in, &c.out, &c.kernel,
                           &c.stride) != 5 ||
               std::min({c.size, c.in, c.kernel, c.stride}) < 1 || c.out < 0) {
      return absl::NotFoundError("no workload " + name);
    }
    result = MakeConvolution(b, c);
  }
  auto program = b.Build({result});
  if (!program.ok()) return program.status();
  return tensor::LowerToLoops(*program);
}

}  // namespace heddle::schedule
