// Translation of the operators of signal processing. A Fourier transform is a product with a constant
// matrix.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/precision.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using ir::DType;

struct FourierTransform {
  int64_t length = 0;  // of the transform
  bool inverse = false, onesided = false;
};

// cos or sin of 2 pi i / length; i is reduced first, so that large products stay exact.
double Cosine(int64_t i, int64_t length) {
  return std::cos(2 * M_PI * static_cast<double>(i % length) / static_cast<double>(length));
}
double Sine(int64_t i, int64_t length) {
  return std::sin(2 * M_PI * static_cast<double>(i % length) / static_cast<double>(length));
}

// The transform of the second last dimension; the last one holds real, or real and imaginary parts.
ValueId FourierTransformed(NodeImport& n, ValueId x, const FourierTransform& how) {
  if (!n.ok()) return -1;
  const DType dtype = n.Type(x).dtype;
  x = Single(n, x);
  Shape shape = n.ShapeOf(x);
  const size_t rank = shape.size();
  const int64_t parts = shape[rank - 1], length = how.length;
  const bool real_result = how.onesided && how.inverse;
  if (length < 1) n.Fail(absl::StrCat("has the length ", length));
  if (parts != 1 && parts != 2) n.Fail("the last dimension holds neither real nor complex numbers");
  if (how.onesided && parts != (how.inverse ? 2 : 1))
    n.Fail(how.inverse ? "a one-sided inverse transform needs complex numbers"
                       : "a one-sided transform needs real numbers");
  if (!n.ok()) return -1;
  const int64_t bins = length / 2 + 1;
  // What is missing of the input counts as zeros, and what is too much is left out.
  const int64_t used = std::min(shape[rank - 2], real_result ? bins : length);
  const int64_t results = how.onesided && !how.inverse ? bins : length;
  const int64_t result_parts = real_result ? 1 : 2;
  x = Part(n, x, static_cast<int>(rank) - 2, 0, used);
  const DType computed = n.Type(x).dtype;
  if (used > 1 << 20 || results > 1 << 20) {
    n.Unsupported("transforms of that length");
    return -1;
  }
  if (!n.CanMake({computed, {used * parts, results * result_parts}})) return -1;
  std::vector<double> matrix;
  const double scale = how.inverse ? 1 / static_cast<double>(length) : 1;
  const double sign = how.inverse ? 1 : -1;  // of the exponent
  for (int64_t i = 0; i < used; ++i) {
    // A one-sided spectrum holds the bins of which the others are conjugates.
    const bool twice = real_result && i != 0 && 2 * i != length;
    const double by = twice ? 2 * scale : scale;
    for (int64_t part = 0; part < parts; ++part) {
      for (int64_t k = 0; k < results; ++k) {
        const double c = by * Cosine(i * k, length), s = by * sign * Sine(i * k, length);
        matrix.push_back(part == 0 ? c : -s);
        if (!real_result) matrix.push_back(part == 0 ? s : c);
      }
    }
  }
  Shape flat(shape.begin(), shape.end() - 2), full = flat;
  flat.insert(flat.end(), {1, used * parts});
  full.insert(full.end(), {results, result_parts});
  const ValueId by =
      n.Constant(FromDoubles(matrix, {used * parts, results * result_parts}, computed));
  const ValueId y = n.Emit(OpKind::kMatmul, {n.Reshape(x, flat), by});
  return n.Cast(n.Reshape(y, full), dtype);
}

void Dft(NodeImport& n) {
  const ValueId x = n.In(0);
  const int rank = n.Rank(x);
  int64_t axis = n.opset() < 20 ? n.Int("axis") : -2;
  if (n.opset() >= 20 && n.Has(2)) {
    const Shape given = n.ConstantInts(2);
    if (given.size() != 1) return n.Fail("needs one axis");
    axis = given[0];
  }
  axis = n.Axis(axis, rank);
  FourierTransform how;
  how.inverse = n.Int("inverse") != 0;
  how.onesided = n.Int("onesided") != 0;
  const Shape length = n.Has(1) ? n.ConstantInts(1) : Shape{};
  if (!n.ok()) return;
  if (rank < 2 || axis == rank - 1) return n.Fail("the axis is that of the complex numbers");
  if (n.Has(1) && length.size() != 1) return n.Fail("needs one length");
  const int64_t extent = n.ShapeOf(x)[axis];
  how.length = n.Has(1) ? length[0] : how.inverse && how.onesided ? 2 * (extent - 1) : extent;
  Shape perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[axis], perm[rank - 2]);
  n.Set(0, n.Transpose(FourierTransformed(n, n.Transpose(x, perm), how), perm));
}

void Stft(NodeImport& n) {
  const ValueId x = n.In(0);
  const Shape step = n.ConstantInts(1);
  if (!n.ok()) return;
  if (n.Rank(x) != 3 || step.size() != 1 || step[0] < 1)
    return n.Fail("needs a signal of rank 3 and one positive step");
  const int64_t extent = n.ShapeOf(x)[1];
  int64_t length = extent;
  if (n.Has(2)) length = NumElements(n.Type(n.In(2)));
  if (n.Has(3)) {
    const Shape given = n.ConstantInts(3);
    if (n.ok() && (given.size() != 1 || (n.Has(2) && given[0] != length)))
      return n.Fail("the frame length is not that of the window");
    if (n.ok()) length = given[0];
  }
  if (!n.ok()) return;
  if (length < 1 || length > extent)
    return n.Fail(absl::StrCat("has frames of ", length, " elements, the signal has ", extent));
  const int64_t frames = (extent - length) / step[0] + 1;
  if (!n.CanMake({DType::kI64, {frames, length}})) return;
  Shape at;
  for (int64_t f = 0; f < frames; ++f) {
    for (int64_t i = 0; i < length; ++i) at.push_back(f * step[0] + i);
  }
  const ValueId index = n.Reshape(n.Constant(FromInts(at)), {frames, length});
  ValueId framed = n.Emit(OpKind::kGather, {x, index}, {{"axis", int64_t{1}}});
  if (n.Has(2)) framed = n.Emit(OpKind::kMul, {framed, n.Reshape(n.In(2), {length, 1})});
  // Complex signals have no one-sided spectrum; the attribute's default is not meant for them.
  const bool complex = n.ok() && n.ShapeOf(x)[2] == 2;
  const bool onesided = n.Int("onesided") != 0;
  if (complex && onesided && n.HasAttr("onesided"))
    return n.Fail("a one-sided transform needs real numbers");
  n.Set(0, FourierTransformed(n, framed, {length, false, onesided && !complex}));
}

void MelWeightMatrix(NodeImport& n) {
  const Shape bands = n.ConstantInts(0), length = n.ConstantInts(1), rate = n.ConstantInts(2);
  const auto low = n.ConstantDoubles(3), high = n.ConstantDoubles(4);
  const auto dtype = FromOnnxType(static_cast<int>(n.Int("output_datatype")));
  if (!dtype.ok()) return n.Unsupported(std::string(dtype.status().message()));
  if (!n.ok()) return;
  if (bands.size() != 1 || length.size() != 1 || rate.size() != 1 || low.size() != 1 ||
      high.size() != 1 || bands[0] < 1 || length[0] < 1 || rate[0] < 1)
    return n.Fail("needs five positive scalars");
  constexpr int64_t kMost = int64_t{1} << 24;
  if (bands[0] > kMost || length[0] > kMost) return n.Unsupported("a matrix of that size");
  const int64_t bins = length[0] / 2 + 1, count = bands[0];
  if (!n.CanMake({*dtype, {bins, count}})) return;
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  // The bins at which the triangles begin, peak and end; each one peaks where the next begins.
  std::vector<double> edges;
  const double from = mel(low[0]), step = (mel(high[0]) - from) / static_cast<double>(count + 2);
  for (int64_t i = 0; i < count + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (static_cast<double>(i) * step + from) / 2595) - 1);
    edges.push_back(
        std::floor(static_cast<double>(length[0] + 1) * hertz / static_cast<double>(rate[0])));
  }
  std::vector<double> values(static_cast<size_t>(bins * count), 0);
  for (int64_t b = 0; b < count; ++b) {
    const double begin = edges[b], peak = edges[b + 1], end = edges[b + 2];
    for (int64_t i = 0; i < bins; ++i) {
      const double at = static_cast<double>(i);
      double& v = values[static_cast<size_t>(i * count + b)];
      if (at >= begin && at < peak) v = (at - begin) / (peak - begin);
      if (at >= peak && at < end) v = (end - at) / (end - peak);
      if (at == peak) v = 1;
    }
  }
  n.Set(0, n.Constant(FromDoubles(values, {bins, count}, *dtype)));
}

}  // namespace

void AddSignalTranslations(TranslationTable& table) {
  table["DFT"] = {Dft, "a length or axis that is not constant"};
  table["STFT"] = {Stft, "a step or frame length that is not constant"};
  table["MelWeightMatrix"] = {MelWeightMatrix, "operands that are not constants"};
}

}  // namespace heddle::graph
