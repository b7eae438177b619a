// Translation of the operators of ONNX Runtime (com.microsoft) that its graph optimiser makes of several
// of the standard: activations, normalisations, products. Those on quantised tensors are in
// quantized.cc. 16-bit floats are computed in f32.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/operators/formulas.h"
#include "compiler/onnx/precision.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using ir::DType;

ValueId Sum(NodeImport& n, ValueId a, ValueId b) { return n.Emit(OpKind::kAdd, {a, b}); }

// The sum of operand i, in f32 at least, and of operand `bias` if it is there.
ValueId BiasedInput(NodeImport& n, int i, int bias) {
  const ValueId x = Single(n, n.In(i));
  return n.Has(bias) ? Sum(n, x, Single(n, n.In(bias))) : x;
}

// ---- Activations ----

void BiasedGelu(NodeImport& n) { SetRounded(n, GeluOf(n, BiasedInput(n, 0, 1), false)); }
void FastGelu(NodeImport& n) { SetRounded(n, GeluOf(n, BiasedInput(n, 0, 1), true)); }
void QuickGelu(NodeImport& n) { SetRounded(n, SwishOf(n, Single(n, n.In(0)), n.Float("alpha"))); }
void BiasAdd(NodeImport& n) { SetRounded(n, Sum(n, BiasedInput(n, 0, 1), Single(n, n.In(2)))); }

// The first half of the last dimension times the Gelu of the second one.
void BiasSplitGelu(NodeImport& n) {
  const ValueId x = BiasedInput(n, 0, 1);
  if (!n.ok()) return;
  const int last = n.Rank(x) - 1;
  if (last < 0 || n.ShapeOf(x)[last] % 2 != 0)
    return n.Fail(absl::StrCat("cannot halve ", ShapeText(n.ShapeOf(x))));
  const int64_t half = n.ShapeOf(x)[last] / 2;
  const ValueId gate = GeluOf(n, Part(n, x, last, half, 2 * half), false);
  SetRounded(n, n.Emit(OpKind::kMul, {Part(n, x, last, 0, half), gate}));
}

// An activation by the name of its operator. Its parameters have their names in `names`, in the
// order in which `given` lists them.
ValueId Activated(NodeImport& n, ValueId x, const std::string& name,
                  const std::vector<double>& given) {
  struct Row {
    const char* name;
    OpKind kind;
    std::vector<const char*> parameters = {};
  };
  static const auto* rows = new std::vector<Row>{
      {"Relu", OpKind::kRelu},
      {"Tanh", OpKind::kTanh},
      {"Sigmoid", OpKind::kSigmoid},
      {"Softplus", OpKind::kSoftplus},
      {"Softsign", OpKind::kSoftsign},
      {"LeakyRelu", OpKind::kLeakyRelu, {"alpha"}},
      {"Elu", OpKind::kElu, {"alpha"}},
      {"ThresholdedRelu", OpKind::kThresholdedRelu, {"alpha"}},
      {"HardSigmoid", OpKind::kHardSigmoid, {"alpha", "beta"}},
      {"Clip", OpKind::kClip, {"min", "max"}},
  };
  if (name.empty()) return x;
  for (const Row& row : *rows) {
    if (row.name != name) continue;
    if (given.size() < row.parameters.size()) {
      n.Fail(absl::StrCat("needs ", row.parameters.size(), " parameters of the activation ", name));
      return -1;
    }
    Attrs attrs;
    for (size_t i = 0; i < row.parameters.size(); ++i) attrs[row.parameters[i]] = given[i];
    return n.Emit(row.kind, {x}, attrs);
  }
  n.Unsupported(absl::StrCat("the activation '", name, "'"));
  return -1;
}

// ---- Products ----

// From [.., m, batch.., k] as FusedMatMul may store it to [batch.., m, k], then transposed.
ValueId Turned(NodeImport& n, ValueId v, const char* batch, const char* matrix) {
  const int rank = n.Rank(v);
  Shape perm;
  for (int d = 0; d < rank; ++d) perm.push_back(d);
  if (n.Int(batch) != 0 && rank > 2) std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (n.Int(matrix) != 0 && rank > 1) std::swap(perm[rank - 2], perm[rank - 1]);
  return n.Transpose(v, perm);
}

void FusedMatMul(NodeImport& n) {
  const ValueId y = MatMulOf(n, Single(n, Turned(n, n.In(0), "transBatchA", "transA")),
                             Single(n, Turned(n, n.In(1), "transBatchB", "transB")));
  const double alpha = n.Float("alpha");
  SetRounded(n, alpha == 1 ? y : n.Emit(OpKind::kMul, {y, n.ScalarLike(alpha, y)}));
}

void FusedGemm(NodeImport& n) {
  std::vector<double> parameters;
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"}) {
    if (n.HasAttr(name)) parameters.push_back(n.Float(name));
  }
  SetRounded(n, Activated(n, Single(n, GemmOf(n)), n.String("activation"), parameters));
}

void FusedConv(NodeImport& n) {
  ValueId y = Single(n, ConvOf(n, n.In(0), n.In(1)));
  if (n.Has(3)) y = Sum(n, y, Single(n, n.In(3)));
  SetRounded(n, Activated(n, y, n.String("activation"), n.Floats("activation_params")));
}

// ---- Normalisations ----

// Over the last dimension of x; the scale and the bias are operands.
ValueId LayerNormal(NodeImport& n, ValueId x, int scale, int bias) {
  const Shape last{n.Rank(x) - 1};
  const ValueId normal =
      n.Emit(OpKind::kNormalize, {x}, {{"axes", last}, {"epsilon", n.Float("epsilon")}});
  const ValueId y = n.Emit(OpKind::kMul, {normal, Single(n, n.In(scale))});
  return n.Has(bias) ? Sum(n, y, Single(n, n.In(bias))) : y;
}

// The sum of operands 0 and 1, and of the bias. The second may lack the batch or have it as 1.
ValueId SkipSum(NodeImport& n, int bias) {
  const ValueId x = Single(n, n.In(0)), skip = Single(n, n.In(1));
  if (n.ok() && n.Rank(x) < 1) n.Fail("needs dimensions");
  ValueId sum = Sum(n, x, skip);
  if (n.Has(bias)) sum = Sum(n, sum, Single(n, n.In(bias)));
  if (n.ok() && n.ShapeOf(sum) != n.ShapeOf(x))
    n.Fail(
        absl::StrCat("cannot add ", ShapeText(n.ShapeOf(skip)), " to ", ShapeText(n.ShapeOf(x))));
  return sum;
}

void SkipLayerNormalization(NodeImport& n) {
  const ValueId sum = SkipSum(n, 4);
  SetRounded(n, LayerNormal(n, sum, 2, 3));
  SetRounded(n, sum, 3);
}

void SkipSimplifiedLayerNormalization(NodeImport& n) {
  const ValueId sum = SkipSum(n, 3);
  const ValueId normal = RmsNormalOf(n, sum, {n.Rank(sum) - 1}, n.Float("epsilon"));
  SetRounded(n, n.Emit(OpKind::kMul, {normal, Single(n, n.In(2))}));
  SetRounded(n, sum, 3);
}

// The sum of three embeddings, normalised; and how many words of each row the mask has.
void EmbedLayerNormalization(NodeImport& n) {
  n.Ignore({"mask_index_type"});  // ONNX Runtime counts in any case
  const ValueId words = n.In(0);
  if (n.ok() && n.Rank(words) != 2) return n.Fail("needs input_ids [batch, sequence]");
  const Attrs rows{{"axis", int64_t{0}}};
  const auto embedded = [&](int table, ValueId ids) {
    return Single(n, n.Emit(OpKind::kGather, {n.In(table), ids}, rows));
  };
  ValueId sum = embedded(2, words);
  if (!n.ok()) return;
  const int64_t batch = n.ShapeOf(words)[0], length = n.ShapeOf(words)[1];
  sum = Sum(n, sum, embedded(3, n.Has(8) ? n.In(8) : Numbers(n, length, {length})));
  if (n.Has(4)) {
    if (!n.Has(1)) return n.Fail("has a segment embedding without segment_ids");
    sum = Sum(n, sum, embedded(4, n.In(1)));
  } else {
    n.IgnoreOperand(1);
  }
  const ValueId y = LayerNormal(n, sum, 5, 6);
  if (!n.ok()) return;
  const DType dtype = n.Type(n.In(2)).dtype;
  n.Set(0, n.Cast(y, dtype));
  n.Set(2, n.Cast(sum, dtype));
  if (!n.Wants(1)) return n.IgnoreOperand(7);
  n.Set(1, n.Has(7) ? n.Emit(OpKind::kReduceSum, {n.In(7)},
                             {{"axes", Shape{1}}, {"keepdims", int64_t{0}}})
                    : n.Fill({DType::kI32, {batch}}, 0));
}

// Normalises groups of channels of x [batch, .., channels], or of [batch, channels, ..]; then scales,
// and multiplies by the sigmoid if the node says so.
ValueId GroupNormal(NodeImport& n, ValueId x) {
  const int64_t groups = n.Int("groups");
  const bool last = n.Int("channels_last") != 0;
  if (!n.ok()) return -1;
  const int rank = n.Rank(x), axis = last ? rank - 1 : 1;
  const Shape shape = n.ShapeOf(x);
  if (rank < 3 || groups < 1 || shape[axis] % groups != 0) {
    n.Fail(absl::StrCat("cannot make ", groups, " groups of ", ShapeText(shape)));
    return -1;
  }
  const int64_t size = shape[axis] / groups, places = Product(shape) / shape[0] / shape[axis];
  const Shape apart =
      last ? Shape{shape[0], places, groups, size} : Shape{shape[0], groups, size, places};
  const Shape over = last ? Shape{1, 3} : Shape{2, 3};
  const ValueId normal = n.Emit(OpKind::kNormalize, {n.Reshape(x, apart)},
                                {{"axes", over}, {"epsilon", n.Float("epsilon")}});
  const auto along = [&](int i) { return n.AlongAxis(Single(n, n.In(i)), axis, rank); };
  const ValueId y = Sum(n, n.Emit(OpKind::kMul, {n.Reshape(normal, shape), along(1)}), along(2));
  const int64_t activation = n.Int("activation");
  if (activation != 0 && activation != 1) n.Fail(absl::StrCat("has no activation ", activation));
  return activation == 1 ? SwishOf(n, y, 1) : y;
}

void GroupNorm(NodeImport& n) { SetRounded(n, GroupNormal(n, Single(n, n.In(0)))); }

void SkipGroupNorm(NodeImport& n) {
  ValueId skip = Single(n, n.In(3));
  const ValueId x = BiasedInput(n, 0, 4);
  if (!n.ok()) return;
  if (n.Int("channels_last") == 0) return n.Unsupported("channels_last=0");
  // Of each channel, a skip may come without the spatial dimensions.
  if (n.Rank(skip) == 2 && n.Rank(x) == 4)
    skip = n.Reshape(skip, {n.ShapeOf(skip)[0], 1, 1, n.ShapeOf(skip)[1]});
  const ValueId sum = Sum(n, x, skip);
  SetRounded(n, GroupNormal(n, sum));
  SetRounded(n, sum, 1);
}

// ---- What scikit-learn's converter writes ----

void CDist(NodeImport& n) {
  const ValueId x = n.In(0), y = n.In(1);
  if (!n.ok()) return;
  const std::string metric = n.OneOf("metric", {"sqeuclidean", "euclidean"});
  const ValueId squares = SquaredDistances(n, x, y);
  n.Set(0, metric == "euclidean" ? n.Emit(OpKind::kSqrt, {squares}) : squares);
}

// The inverse of a square matrix, row by row; empty if it has none. With its rows in an order of their own, except for a lower
// triangle, whose zeros then stay.
std::vector<double> Inverse(std::vector<double> a, size_t size) {
  std::vector<double> b(size * size, 0);
  bool triangle = true;
  for (size_t i = 0; i < size; ++i) {
    b[i * size + i] = 1;
    for (size_t j = i + 1; j < size; ++j) triangle &= a[i * size + j] == 0;
  }
  const auto subtract = [&](size_t from, size_t row, size_t column) {
    const double by = a[row * size + column];
    if (by == 0) return;
    for (size_t k = column; k < size; ++k) a[row * size + k] -= by * a[from * size + k];
    for (size_t k = 0; k < size; ++k) b[row * size + k] -= by * b[from * size + k];
  };
  for (size_t c = 0; c < size; ++c) {
    size_t pivot = c;
    for (size_t r = c; r < size && !triangle; ++r) {
      if (std::abs(a[r * size + c]) > std::abs(a[pivot * size + c])) pivot = r;
    }
    const double divisor = a[pivot * size + c];
    if (divisor == 0 || !std::isfinite(divisor)) return {};
    for (size_t k = 0; k < size; ++k) {
      std::swap(a[c * size + k], a[pivot * size + k]);
      std::swap(b[c * size + k], b[pivot * size + k]);
      a[c * size + k] /= divisor;
      b[c * size + k] /= divisor;
    }
    for (size_t r = c + 1; r < size; ++r) subtract(c, r, c);
  }
  for (size_t c = size; c-- > 0;) {
    for (size_t r = 0; r < c; ++r) subtract(c, r, c);
  }
  return b;
}

// The solution x of a x = y, by the inverse of a, which is computed in double precision. No library defines the operator: scikit-learn's
// converter writes it for Gaussian processes that classify, and means scipy.linalg.solve, which looks at all of `a`.
void Solve(NodeImport& n) {
  constexpr int64_t kMostRows = 1024;  // the inverse takes about a second
  n.Ignore({"lower"});
  const std::vector<double> a = n.ConstantDoubles(0);
  const ValueId y = n.In(1);
  const bool transposed = n.Int("transposed") != 0;
  if (!n.ok()) return;
  const TensorType type = n.Type(n.In(0));
  const int64_t size = type.shape.empty() ? 0 : type.shape[0];
  if (type.shape != Shape{size, size} || n.Rank(y) < 1 || n.Rank(y) > 2 || n.ShapeOf(y)[0] != size)
    return n.Fail(
        absl::StrCat("cannot solve ", ShapeText(type.shape), " for ", ShapeText(n.ShapeOf(y))));
  if (size > kMostRows)
    return n.Unsupported(absl::StrCat("a matrix of more than ", kMostRows, " rows"));
  if (!n.CanMake(type)) return;
  const std::vector<double> inverse = Inverse(a, static_cast<size_t>(size));
  if (inverse.empty()) return n.Fail("the matrix has no inverse");
  const ValueId by = n.Constant(FromDoubles(inverse, type.shape, type.dtype));
  n.Set(0, MatMulOf(n, transposed ? n.Transpose(by, {1, 0}) : by, y));
}

}  // namespace

void AddMicrosoftTranslations(TranslationTable& table) {
  const auto add = [&](const char* name, Translation::Run run, const char* limits = "") {
    table[onnx::OperatorKey("com.microsoft", name)] = {run, limits};
  };
  add("Gelu", BiasedGelu);
  add("BiasGelu", BiasedGelu);
  add("FastGelu", FastGelu);
  add("QuickGelu", QuickGelu);
  add("BiasAdd", BiasAdd);
  add("BiasSplitGelu", BiasSplitGelu);
  add("FusedMatMul", FusedMatMul);
  add("TransposeMatMul", FusedMatMul);
  add("FusedGemm", FusedGemm, "activations other than those of FusedConv");
  add("FusedConv", FusedConv,
      "activations other than Relu, Tanh, Sigmoid, Softplus, Softsign, LeakyRelu, Elu, "
      "ThresholdedRelu, HardSigmoid and Clip; more than 3 spatial dimensions");
  constexpr const char* kMoments = "the outputs mean and inv_std_var";
  add("SkipLayerNormalization", SkipLayerNormalization, kMoments);
  add("SkipSimplifiedLayerNormalization", SkipSimplifiedLayerNormalization, kMoments);
  table["SimplifiedLayerNormalization"].limits = "the output inv_std_var";
  add("EmbedLayerNormalization", EmbedLayerNormalization);
  add("CDist", CDist);
  add("Solve", Solve, "a matrix that is not constant, or has more than 1024 rows");
  add("GroupNorm", GroupNorm);
  add("SkipGroupNorm", SkipGroupNorm, "channels_last=0");
}

}  // namespace heddle::graph
