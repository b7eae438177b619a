// Translation of the ONNX operators that make constants.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/bounded.h"
#include "compiler/onnx/node.h"

namespace heddle::graph {
namespace {

using ir::DType;

void SetTensor(NodeImport& n, const onnx::TensorProto& tensor) {
  auto data = FromOnnxTensor(tensor);
  if (data.ok()) return n.Set(0, n.Constant(*std::move(data)));
  if (absl::IsUnimplemented(data.status()))
    return n.Unsupported(std::string(data.status().message()));
  n.Fail(std::string(data.status().message()));
}

void Constant(NodeImport& n) {
  if (const auto* a = n.Find("value")) return SetTensor(n, a->t());
  if (const auto* a = n.Find("value_int"))
    return n.Set(0, n.Constant(Repeated(FromInts({a->i()}), {})));
  if (const auto* a = n.Find("value_float"))
    return n.Set(0, n.Constant(FromDoubles({a->f()}, {}, DType::kF32)));
  if (n.Find("value_ints")) return n.Set(0, n.Constant(FromInts(n.Ints("value_ints"))));
  if (const auto* a = n.Find("value_floats")) {
    return n.Set(0, n.Constant(FromDoubles({a->floats().begin(), a->floats().end()},
                                           {a->floats_size()}, DType::kF32)));
  }
  n.Unsupported("constants of strings or sparse tensors");
}

void ConstantOfShape(NodeImport& n) {
  const std::vector<Extent> extents = ShapeOperand(n, 0);
  if (!n.ok()) return;
  Shape shape;
  for (const Extent& e : extents) shape.push_back(e.value);
  TensorData value = FromDoubles({0}, {}, DType::kF32);
  if (const auto* a = n.Find("value")) {
    auto data = FromOnnxTensor(a->t());
    if (!data.ok()) return n.Unsupported(std::string(data.status().message()));
    if (NumElements(data->type) != 1) return n.Fail("needs one value");
    value = *std::move(data);
  }
  if (n.CanMake({value.type.dtype, shape}))
    n.Set(0, WithExtents(n, n.Constant(Repeated(value, shape)), extents));
}

void EyeLike(NodeImport& n) {
  const TensorType& like = n.Type(n.In(0));
  if (like.shape.size() != 2) return n.Fail("needs a matrix");
  DType dtype = like.dtype;
  if (n.HasAttr("dtype")) {
    auto given = FromOnnxType(static_cast<int>(n.Int("dtype")));
    if (!given.ok()) return n.Unsupported(std::string(given.status().message()));
    dtype = *given;
  }
  if (!n.CanMake({dtype, like.shape})) return;
  std::vector<double> values;
  for (int64_t i = 0; i < like.shape[0]; ++i) {
    for (int64_t j = 0; j < like.shape[1]; ++j) values.push_back(j - i == n.Int("k"));
  }
  n.Set(0, n.Constant(FromDoubles(values, like.shape, dtype)));
}

// A range of integers. It is computed in integers because doubles are not exact beyond 2^53.
void IntegerRange(NodeImport& n, DType dtype) {
  const Shape start = n.ConstantInts(0), limit = n.ConstantInts(1), delta = n.ConstantInts(2);
  if (!n.ok()) return;
  if (start.size() != 1 || limit.size() != 1 || delta.size() != 1 || delta[0] == 0)
    return n.Fail("needs three scalars");
  const bool up = delta[0] > 0;
  // The distance between two int64_t values, like the magnitude of a step, fits into 64 bits
  // without a sign.
  const auto distance = [](int64_t low, int64_t high) {
    return high <= low ? 0 : static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  };
  const uint64_t span = up ? distance(start[0], limit[0]) : distance(limit[0], start[0]);
  const uint64_t by = static_cast<uint64_t>(delta[0]), step = up ? by : 0 - by;
  const uint64_t count = span / step + (span % step != 0);
  // Far more than CanMake allows, and within int64_t.
  constexpr uint64_t kLongest = uint64_t{1} << 40;
  if (count > kLongest) return n.Unsupported("a range of that length");
  if (!n.CanMake({dtype, {static_cast<int64_t>(count)}})) return;
  Shape values;
  // The products may wrap, but each sum lies between start and limit.
  for (uint64_t i = 0; i < count; ++i)
    values.push_back(static_cast<int64_t>(static_cast<uint64_t>(start[0]) + i * by));
  n.Set(0, n.Constant(FromInts(values, dtype)));
}

// 0, 1, .. up to a computed limit.
void CountTo(NodeImport& n, DType dtype) {
  const auto limit = Extents(n, n.In(1));
  if (!n.ok()) return;
  if (!limit) return n.Unsupported("a limit that is computed and has no known bound");
  if (limit->size() != 1) return n.Fail("needs three scalars");
  if ((*limit)[0].value > kLargestBound)
    return n.Unsupported(absl::StrCat("a range of up to ", (*limit)[0].value, " elements"));
  n.Set(0, WithExtents(n, n.Cast(Count(n, (*limit)[0].value), dtype), *limit));
}

void Range(NodeImport& n) {
  n.Ignore({"stash_type"});  // elements are computed one by one, in doubles
  const DType dtype = n.Type(n.In(0)).dtype;
  const TensorData *first = n.ConstantData(n.In(0)), *step = n.ConstantData(n.In(2));
  if (n.ok() && !ir::IsFloat(dtype) && n.ConstantData(n.In(1)) == nullptr && first && step &&
      NumElements(first->type) == 1 && NumElements(step->type) == 1 && ToInts(*first)[0] == 0 &&
      ToInts(*step)[0] == 1)
    return CountTo(n, dtype);
  if (!ir::IsFloat(dtype)) return IntegerRange(n, dtype);
  const auto start = n.ConstantDoubles(0), limit = n.ConstantDoubles(1),
             delta = n.ConstantDoubles(2);
  if (!n.ok()) return;
  if (start.size() != 1 || limit.size() != 1 || delta.size() != 1 || delta[0] == 0)
    return n.Fail("needs three scalars");
  const double count = std::max(std::ceil((limit[0] - start[0]) / delta[0]), 0.0);
  constexpr double kLongest = 1e12;  // far more than CanMake allows, and within int64_t
  if (!(count <= kLongest)) return n.Unsupported("a range of that length");
  if (!n.CanMake({dtype, {static_cast<int64_t>(count)}})) return;
  std::vector<double> values;
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i)
    values.push_back(start[0] + static_cast<double>(i) * delta[0]);
  n.Set(0, n.Constant(FromDoubles(values, {static_cast<int64_t>(values.size())}, dtype)));
}

// Window functions of signal processing: a0 - a1 cos(2 pi i / m) + a2 cos(4 pi i / m). m is the
// size of a periodic window, and size - 1 of any other.
void SetWindow(NodeImport& n, double a0, double a1, double a2) {
  const Shape size = n.ConstantInts(0);
  if (!n.ok()) return;
  auto dtype = FromOnnxType(static_cast<int>(n.Int("output_datatype")));
  if (!dtype.ok()) return n.Unsupported(std::string(dtype.status().message()));
  if (size.size() != 1 || size[0] < 1) return n.Fail("needs one positive size");
  if (!n.CanMake({*dtype, size})) return;
  const double m = static_cast<double>(n.Int("periodic") != 0 ? size[0] : size[0] - 1);
  std::vector<double> values;
  for (int64_t i = 0; i < size[0]; ++i) {
    const double angle = m == 0 ? 0 : 2 * M_PI * static_cast<double>(i) / m;
    values.push_back(a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle));
  }
  n.Set(0, n.Constant(FromDoubles(values, size, *dtype)));
}

void HannWindow(NodeImport& n) { SetWindow(n, 0.5, 0.5, 0); }
void HammingWindow(NodeImport& n) { SetWindow(n, 25.0 / 46, 21.0 / 46, 0); }
void BlackmanWindow(NodeImport& n) { SetWindow(n, 0.42, 0.5, 0.08); }

}  // namespace

void AddConstantTranslations(TranslationTable& table) {
  table["Constant"] = {Constant, "strings, sparse tensors"};
  table["ConstantOfShape"] = {ConstantOfShape,
                              "a shape that is neither constant nor made of computed lengths"};
  table["EyeLike"] = EyeLike;
  table["HannWindow"] = {HannWindow, "a size that is not constant"};
  table["HammingWindow"] = {HammingWindow, "a size that is not constant"};
  table["BlackmanWindow"] = {BlackmanWindow, "a size that is not constant"};
  table["Range"] = {Range, "bounds that are not constants, but for a limit with a known bound"};
}

}  // namespace heddle::graph
