#include "tests/schedule/random_programs.h"

#include "compiler/tensor/expression.h"

namespace heddle::schedule {

using ir::DType;
using ir::Expr;
using ir::ReduceOp;
using tensor::Builder;
using tensor::Iters;
using tensor::Tensor;

namespace {

class Generator {
 public:
  explicit Generator(Rng& rng) : rng_(rng), builder_("random") {}

  absl::StatusOr<ir::Program> Run() {
    Tensor result = Anchor();
    int64_t extra = Below(3);
    for (int64_t i = 0; i < extra; ++i) result = Follow(result);
    std::vector<Tensor> outputs{result};
    if (Below(6) == 0 && anchor_.buffer() != result.buffer()) outputs.push_back(anchor_);
    auto program = builder_.Build(outputs);
    if (!program.ok()) return program.status();
    return tensor::LowerToLoops(*program);
  }

 private:
  int64_t Below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(rng_); }
  int64_t Extent() { return 1 + Below(Below(2) ? 4 : 9); }
  std::string Name(const char* word) { return std::string(word) + std::to_string(count_++); }
  Tensor Input(std::vector<int64_t> shape) {
    return builder_.Input(Name("in"), DType::kF32, std::move(shape));
  }
  static Expr Max(Expr a, Expr b) { return ir::Make(ir::Op::kMax, {std::move(a), std::move(b)}); }

  Tensor Anchor() {
    switch (Below(9)) {
      case 0:
        return anchor_ = Conv();
      case 1:
        return anchor_ = Matmul();
      case 2:
        return anchor_ = Depthwise();
      case 3:
        return anchor_ = Pool();
      case 4:
        return anchor_ = Softmax();
      case 5:
        return anchor_ = Transpose(Input({Extent(), Extent(), Extent()}));
      case 6:
        return anchor_ = RowReduction(Input({Extent(), Extent() * 3}));
      case 7:
        return anchor_ = Broadcast();
      default:
        return anchor_ = Activation(Input({Extent(), Extent(), Extent()}));
    }
  }

  // One more stage on top of a result.
  Tensor Follow(const Tensor& x) {
    switch (Below(6)) {
      case 0:
        return Activation(x);
      case 1:
        return AddInput(x);
      case 2:
        return Residual(x);
      case 3:
        return x.rank() >= 2 ? Transpose(x) : Activation(x);
      case 4:
        return RowReduction(x);
      default:
        return Padded(x);
    }
  }

  Tensor Activation(const Tensor& x) {
    bool relu = Below(2);
    return builder_.Compute(Name("act"), x.shape(), [&](Iters i) {
      Expr value = x.At({i.begin(), i.end()});
      return relu ? Max(value, ir::Float(0)) : value * ir::Float(0.5) + value;
    });
  }

  // Adds a vector along the last dimension.
  Tensor AddInput(const Tensor& x) {
    if (x.rank() == 0) return Activation(x);
    Tensor bias = Input({x.shape().back()});
    return builder_.Compute(Name("bias"), x.shape(), [&](Iters i) {
      return x.At({i.begin(), i.end()}) + bias(i.back());
    });
  }

  Tensor Residual(const Tensor& x) {
    Tensor other = Input(x.shape());
    Tensor doubled = builder_.Compute(Name("scaled"), x.shape(), [&](Iters i) {
      return other.At({i.begin(), i.end()}) * ir::Float(2);
    });
    return builder_.Compute(Name("residual"), x.shape(), [&](Iters i) {
      std::vector<Expr> at{i.begin(), i.end()};
      return Max(x.At(at) + doubled.At(at), ir::Float(-1));
    });
  }

  Tensor Transpose(const Tensor& x) {
    std::vector<int64_t> shape = x.shape();
    std::swap(shape.front(), shape.back());
    return builder_.Compute(Name("transposed"), shape, [&](Iters i) {
      std::vector<Expr> at{i.begin(), i.end()};
      std::swap(at.front(), at.back());
      return x.At(at);
    });
  }

  Tensor RowReduction(const Tensor& x) {
    if (x.rank() == 0) return Activation(x);
    std::vector<int64_t> shape(x.shape().begin(), x.shape().end() - 1);
    ReduceOp op = Below(2) ? ReduceOp::kSum : ReduceOp::kMax;
    return builder_.Reduce(Name("row"), shape, {x.shape().back()}, op, [&](Iters s, Iters r) {
      std::vector<Expr> at{s.begin(), s.end()};
      at.push_back(r[0]);
      return x.At(at);
    });
  }

  Tensor Padded(const Tensor& x) {
    if (x.rank() == 0) return Activation(x);
    std::vector<int64_t> shape = x.shape();
    const int64_t before = Below(2), last = shape[0];
    shape[0] += before + 1;
    return builder_.Compute(Name("padded"), shape, [&](Iters i) {
      std::vector<Expr> at{i.begin(), i.end()};
      at[0] = at[0] - ir::Int(before);
      return ir::Select(ir::And(ir::Le(ir::Int(0), at[0]), ir::Lt(at[0], ir::Int(last))), x.At(at),
                        ir::Float(0));
    });
  }

  Tensor Broadcast() {
    int64_t n = Extent(), m = Extent(), k = Extent();
    Tensor a = Input({n, 1, k});
    Tensor b = Input({m, 1});
    return builder_.Compute(Name("broadcast"), {n, m, k}, [&](Iters i) {
      return a(i[0], ir::Int(0), i[2]) * b(i[1], ir::Int(0));
    });
  }

  Tensor Matmul() {
    int64_t m = Extent(), n = Extent() * (1 + Below(3)), k = Extent() * 2;
    Tensor a = Input({m, k});
    const bool transposed = Below(2);
    Tensor b = Input(transposed ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n});
    return builder_.Reduce(Name("matmul"), {m, n}, {k}, ReduceOp::kSum, [&](Iters s, Iters r) {
      return a(s[0], r[0]) * (transposed ? b(s[1], r[0]) : b(r[0], s[1]));
    });
  }

  // x[1, h, w, c] with zeros around.
  Tensor PadSpatial(const Tensor& x, int64_t pad) {
    std::vector<int64_t> shape = x.shape();
    const int64_t h = shape[1], w = shape[2];
    shape[1] += 2 * pad;
    shape[2] += 2 * pad;
    return builder_.Compute(Name("pad"), shape, [&](Iters i) {
      Expr y = i[1] - ir::Int(pad), z = i[2] - ir::Int(pad);
      Expr inside = ir::And(ir::And(ir::Le(ir::Int(0), y), ir::Lt(y, ir::Int(h))),
                            ir::And(ir::Le(ir::Int(0), z), ir::Lt(z, ir::Int(w))));
      return ir::Select(inside, x(i[0], y, z, i[3]), ir::Float(0));
    });
  }

  struct Window {
    int64_t kernel, stride, pad, h, w, out_h, out_w;
  };
  Window RandomWindow() {
    Window win{1 + Below(3), 1 + Below(2), 0, 2 + Below(6), 2 + Below(6), 0, 0};
    win.pad = Below(win.kernel);
    win.kernel = std::min({win.kernel, win.h + 2 * win.pad, win.w + 2 * win.pad});
    win.out_h = (win.h + 2 * win.pad - win.kernel) / win.stride + 1;
    win.out_w = (win.w + 2 * win.pad - win.kernel) / win.stride + 1;
    return win;
  }

  Tensor Conv() {
    Window win = RandomWindow();
    int64_t ic = 1 + Below(4), oc = Extent();
    Tensor x = Input({1, win.h, win.w, ic});
    Tensor weight = Input({win.kernel, win.kernel, ic, oc});
    Tensor padded = win.pad ? PadSpatial(x, win.pad) : x;
    Expr stride = ir::Int(win.stride);
    return builder_.Reduce(Name("conv"), {1, win.out_h, win.out_w, oc},
                           {win.kernel, win.kernel, ic}, ReduceOp::kSum, [&](Iters s, Iters r) {
                             return padded(s[0], s[1] * stride + r[0], s[2] * stride + r[1], r[2]) *
                                    weight(r[0], r[1], r[2], s[3]);
                           });
  }

  Tensor Depthwise() {
    Window win = RandomWindow();
    int64_t c = Extent();
    Tensor x = Input({1, win.h, win.w, c});
    Tensor weight = Input({win.kernel, win.kernel, c});
    Tensor padded = win.pad ? PadSpatial(x, win.pad) : x;
    Expr stride = ir::Int(win.stride);
    return builder_.Reduce(Name("depthwise"), {1, win.out_h, win.out_w, c},
                           {win.kernel, win.kernel}, ReduceOp::kSum, [&](Iters s, Iters r) {
                             return padded(s[0], s[1] * stride + r[0], s[2] * stride + r[1], s[3]) *
                                    weight(r[0], r[1], s[3]);
                           });
  }

  Tensor Pool() {
    Window win = RandomWindow();
    int64_t c = Extent();
    Tensor x = Input({1, win.h, win.w, c});
    Tensor padded = win.pad ? PadSpatial(x, win.pad) : x;
    Expr stride = ir::Int(win.stride);
    ReduceOp op = Below(2) ? ReduceOp::kMax : ReduceOp::kSum;
    return builder_.Reduce(Name("pool"), {1, win.out_h, win.out_w, c}, {win.kernel, win.kernel}, op,
                           [&](Iters s, Iters r) {
                             return padded(s[0], s[1] * stride + r[0], s[2] * stride + r[1], s[3]);
                           });
  }

  Tensor Softmax() {
    int64_t n = Extent(), m = Extent() * 2;
    Tensor x = Input({n, m});
    Tensor top = builder_.Reduce(Name("max"), {n}, {m}, ReduceOp::kMax,
                                 [&](Iters s, Iters r) { return x(s[0], r[0]); });
    Tensor e = builder_.Compute(Name("exp"), {n, m}, [&](Iters i) {
      return ir::Make(ir::Op::kExp, {x(i[0], i[1]) - top(i[0])});
    });
    Tensor sum = builder_.Reduce(Name("sum"), {n}, {m}, ReduceOp::kSum,
                                 [&](Iters s, Iters r) { return e(s[0], r[0]); });
    return builder_.Compute(Name("softmax"), {n, m}, [&](Iters i) {
      return ir::Make(ir::Op::kDiv, {e(i[0], i[1]), sum(i[0])});
    });
  }

  Rng& rng_;
  Builder builder_;
  Tensor anchor_;
  int count_ = 0;
};

}  // namespace

absl::StatusOr<ir::Program> RandomProgram(Rng& rng) { return Generator(rng).Run(); }

}  // namespace heddle::schedule
