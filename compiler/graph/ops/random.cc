// random_bits makes random numbers from a seed.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

using ir::DType;
using ir::Expr;

// random_bits {shape, bits}: the operands are a seed and the number of a stream, both i64[]. The result
// is i32[shape], evenly distributed over [0, 2^bits), with 1 to 31 bits. An element depends on the
// seed, the stream and its place in row-major order, and on nothing else. Elements of other seeds or
// streams are independent if the numbers of streams are themselves mixed: seed and stream are added.
//
// The generator is Squares (B. Widynski, "Squares: a fast counter-based RNG", 2020): four rounds of
// middle squares of counter * key. It needs only products, sums and shifts. The counter is the place of
// the element. The key, an odd number, consists of two numbers that the generator makes of the sum of
// seed and stream, under fixed keys.
constexpr int64_t kMostBits = 31;

absl::StatusOr<TensorType> InferRandomBits(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 2, 2));
  for (const TensorType& t : in) {
    if (t.dtype != DType::kI64 || !t.shape.empty())
      return BadInput(absl::StrCat("takes i64 scalars as seed and stream, not ", ToText(t)));
  }
  const int64_t bits = attrs.Int("bits");
  if (bits < 1 || bits > kMostBits) return BadInput(absl::StrCat("cannot make ", bits, " bits"));
  for (const int64_t d : attrs.Ints("shape")) {
    if (d < 0) return BadInput("the shape has a negative extent");
  }
  return TensorType{DType::kI32, attrs.Ints("shape")};
}

Expr U64(uint64_t value) { return ir::Int(static_cast<int64_t>(value), DType::kU64); }
Expr ShiftedRight(const Expr& x, int64_t by) {
  return ir::Make(ir::Op::kDiv, {x, U64(uint64_t{1} << by)});
}
Expr Concatenated(const Expr& high, const Expr& low) { return high * U64(uint64_t{1} << 32) + low; }

// The highest `bits` bits of Squares, for a counter and a key (u64) at each point of `shape`.
using DrawnValue = std::function<Expr(tensor::Iters)>;
tensor::Tensor Squares(tensor::Builder& b, const Shape& shape, const DrawnValue& counter,
                       const DrawnValue& key, int64_t bits) {
  constexpr int kRounds = 4;
  tensor::Tensor last;
  for (int round = 0; round < kRounds; ++round) {
    last = b.Compute("random_bits", shape, [&](tensor::Iters s) {
      const Expr start = counter(s) * key(s);
      Expr x = start;
      if (round > 0) {  // the halves of the last square, swapped
        const Expr square = last.At({s.begin(), s.end()});
        x = Concatenated(square, ShiftedRight(square, 32));
      }
      const Expr square = x * x + (round % 2 == 0 ? start : start + key(s));
      return round + 1 == kRounds ? ShiftedRight(square, 64 - bits) : square;
    });
  }
  return last;
}

absl::StatusOr<tensor::Tensor> ExpressRandomBits(tensor::Builder& b, Tensors in,
                                                 const OpAttrs& attrs) {
  // Fractional digits of the golden ratio and of the square root of 2.
  constexpr uint64_t kFirstKey = 0x9e3779b97f4a7c15, kSecondKey = 0x6a09e667f3bcc909;
  const Shape shape = attrs.Ints("shape");
  const tensor::Tensor words = Squares(
      b, {2},
      [&](tensor::Iters) {
        return ir::Cast(DType::kU64, in[0].At({})) + ir::Cast(DType::kU64, in[1].At({}));
      },
      [&](tensor::Iters s) {
        return ir::Select(ir::Make(ir::Op::kEq, {s[0], ir::Int(0)}), U64(kFirstKey),
                          U64(kSecondKey));
      },
      32);
  const tensor::Tensor key = b.Compute("random_key", {}, [&](tensor::Iters) {
    return Concatenated(words(ir::Int(0)), words(ir::Int(1))) * U64(2) + U64(1);
  });
  const Shape strides = RowMajorStrides(shape);
  const tensor::Tensor result = Squares(
      b, shape,
      [&](tensor::Iters s) {
        Expr place = ir::Int(0);
        for (size_t d = 0; d < shape.size(); ++d) place = place + s[d] * ir::Int(strides[d]);
        return ir::Cast(DType::kU64, place);
      },
      [&](tensor::Iters) { return key.At({}); }, attrs.Int("bits"));
  return b.Compute("random_bits", shape, [&](tensor::Iters s) {
    return ir::Cast(DType::kI32, result.At({s.begin(), s.end()}));
  });
}

}  // namespace

void AppendRandomOps(std::vector<OpDef>& ops) {
  ops.push_back(MakeOp(OpKind::kRandomBits, FusionClass::kComplexOutFusable, InferRandomBits,
                       ExpressRandomBits,
                       {{.name = "shape", .fallback = Shape{}, .required = true},
                        {.name = "bits", .fallback = int64_t{0}, .required = true}}));
}

}  // namespace heddle::graph
