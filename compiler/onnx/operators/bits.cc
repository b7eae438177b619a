// Translation of the operators on the bits of integers, into arithmetic: a shift multiplies or
// divides by a power of two, and a bit is a remainder of such a quotient.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/node.h"

namespace heddle::graph {
namespace {

using ir::DType;

int64_t Width(NodeImport& n, ValueId v) { return 8 * int64_t{ir::SizeOf(n.Type(v).dtype)}; }

// 2^exponent for each exponent below `count`, times a step; what does not fit wraps. A vector of the
// type of `like`.
ValueId Powers(NodeImport& n, int64_t count, ValueId like, int64_t (*exponent)(int64_t)) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<int64_t>(uint64_t{1} << exponent(i)));
  return n.Constant(FromInts(values, n.Type(like).dtype));
}

// The highest power of two is negative as a signed number, so a division by 2^i is one by 2^(i/2)
// and one by the rest.
int64_t Lower(int64_t i) { return i / 2; }
int64_t Upper(int64_t i) { return i - i / 2; }
int64_t Whole(int64_t i) { return i; }

ValueId Shifted(NodeImport& n, ValueId x, ValueId lower, ValueId upper) {
  return n.Emit(OpKind::kFloorDiv, {n.Emit(OpKind::kFloorDiv, {x, lower}), upper});
}

void BitShift(NodeImport& n) {
  const ValueId x = n.In(0), y = n.In(1);
  const bool left = n.OneOf("direction", {"LEFT", "RIGHT"}) == "LEFT";
  if (!n.ok()) return;
  const int64_t width = Width(n, x);
  const ValueId by = n.Cast(y, DType::kI64), zero = n.ScalarLike(0, x);
  // A shift by the width or more leaves copies of the sign, as does one by a negative number. An
  // unsigned number of 64 bits is beyond the width if it is negative as an index.
  const ValueId possible = n.Emit(
      OpKind::kAnd, {n.Emit(OpKind::kLessEqual, {n.ScalarLike(0, by), by}),
                     n.Emit(OpKind::kLess, {by, n.ScalarLike(static_cast<double>(width), by)})});
  const ValueId index = n.Emit(OpKind::kClip, {by}, {{"min", int64_t{0}}, {"max", width - 1}});
  const auto power = [&](int64_t (*exponent)(int64_t)) {
    return n.Emit(OpKind::kGather, {Powers(n, width, x, exponent), index}, {{"axis", int64_t{0}}});
  };
  if (left) {
    const ValueId moved = n.Emit(OpKind::kMul, {x, power(Whole)});
    return n.Set(0, n.Emit(OpKind::kWhere, {possible, moved, zero}));
  }
  const ValueId moved = Shifted(n, x, power(Lower), power(Upper));
  const ValueId rest =
      n.Emit(OpKind::kWhere, {n.Emit(OpKind::kLess, {x, zero}),
                              n.Constant(Repeated(FromInts({-1}, n.Type(x).dtype), {})), zero});
  n.Set(0, n.Emit(OpKind::kWhere, {possible, moved, rest}));
}

// The bits of each element, 0 or 1, along a new last dimension.
ValueId Bits(NodeImport& n, ValueId x) {
  if (!n.ok()) return -1;
  Shape shape = n.ShapeOf(x);
  shape.push_back(1);
  const int64_t width = Width(n, x);
  const ValueId shifted =
      Shifted(n, n.Reshape(x, shape), Powers(n, width, x, Lower), Powers(n, width, x, Upper));
  return n.Emit(OpKind::kFloorMod, {shifted, n.ScalarLike(2, x)});
}

ValueId And(NodeImport& n, ValueId a, ValueId b) {
  const ValueId both = n.Emit(OpKind::kMul, {Bits(n, a), Bits(n, b)});
  if (!n.ok()) return -1;
  const ValueId weighted = n.Emit(OpKind::kMul, {both, Powers(n, Width(n, a), a, Whole)});
  return n.Emit(OpKind::kReduceSum, {weighted},
                {{"axes", Shape{int64_t{n.Rank(weighted)} - 1}}, {"keepdims", int64_t{0}}});
}

void BitwisePair(NodeImport& n) {
  const std::string& type = n.proto().op_type();
  const ValueId a = n.In(0), b = n.In(1), both = And(n, a, b);
  if (type == "BitwiseAnd") return n.Set(0, both);
  // a + b counts common bits twice.
  const ValueId any = n.Emit(OpKind::kSub, {n.Emit(OpKind::kAdd, {a, b}), both});
  n.Set(0, type == "BitwiseOr" ? any : n.Emit(OpKind::kSub, {any, both}));
}

// In two's complement, and modulo the range of an unsigned type.
void BitwiseNot(NodeImport& n) {
  const ValueId x = n.In(0);
  const ValueId minus_one = n.ok() ? n.Constant(Repeated(FromInts({-1}, n.Type(x).dtype), {})) : -1;
  n.Set(0, n.Emit(OpKind::kSub, {minus_one, x}));
}

void BitCast(NodeImport& n) {
  const ValueId x = n.In(0);
  const auto to = FromOnnxType(static_cast<int>(n.Int("to")));
  if (!to.ok()) return n.Unsupported(std::string(to.status().message()));
  if (!n.ok()) return;
  const DType from = n.Type(x).dtype;
  if (ir::SizeOf(from) != ir::SizeOf(*to)) return n.Fail("the types differ in size");
  if (const TensorData* data = n.ConstantData(x); data != nullptr && *to != DType::kBool)
    return n.Set(0, n.Constant({{*to, data->type.shape}, data->bytes}));
  // Between integers, a cast wraps; a bool is the byte 0 or 1.
  const bool wraps = !ir::IsFloat(from) && !ir::IsFloat(*to) && *to != DType::kBool;
  if (!wraps && from != *to)
    return n.Unsupported("floats and results of type bool, unless the operand is constant");
  n.Set(0, n.Cast(x, *to));
}

}  // namespace

void AddBitTranslations(TranslationTable& table) {
  table["BitShift"] = BitShift;
  for (const char* name : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"}) table[name] = BitwisePair;
  table["BitwiseNot"] = BitwiseNot;
  table["BitCast"] = {BitCast, "floats and results of type bool, unless the operand is constant"};
}

}  // namespace heddle::graph
