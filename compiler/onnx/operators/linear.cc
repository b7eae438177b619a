// Translation of linear models and support vector machines (ai.onnx.ml). Scores are computed in f32, as
// the outputs are.
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/operators/formulas.h"
#include "compiler/onnx/operators/scores.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using classical::Transform;
using ir::DType;

// A constant f32 matrix.
ValueId Matrix(NodeImport& n, const std::vector<double>& values, int64_t rows, int64_t columns) {
  return n.Constant(FromDoubles(values, {rows, columns}, DType::kF32));
}

ValueId PlusRow(NodeImport& n, ValueId x, const std::vector<double>& row) {
  return n.Emit(OpKind::kAdd, {x, Matrix(n, row, 1, static_cast<int64_t>(row.size()))});
}

// The products of the rows of x with the rows of a matrix [count, features], whose number follows from
// that of its elements: [rows, count].
ValueId Products(NodeImport& n, ValueId x, const std::vector<double>& matrix,
                 const std::string& name) {
  if (!n.ok()) return -1;
  const auto features = static_cast<size_t>(n.ShapeOf(x)[1]);
  if (matrix.empty() || matrix.size() % features != 0) {
    n.Fail(absl::StrCat("the ", matrix.size(), " numbers of '", name, "' are no rows of ", features,
                        " features"));
    return -1;
  }
  const size_t count = matrix.size() / features;
  std::vector<double> turned(matrix.size());
  for (size_t i = 0; i < matrix.size(); ++i)
    turned[i % features * count + i / features] = matrix[i];
  return MatMulOf(n, x, Matrix(n, turned, n.ShapeOf(x)[1], static_cast<int64_t>(count)));
}

// ---- Linear models ----

// x times the transposed coefficients, plus the intercepts if there are any: [rows, scores].
ValueId LinearScores(NodeImport& n) {
  const ValueId scores = Products(n, RowsOf(n), n.Floats("coefficients"), "coefficients");
  const std::vector<double> intercepts = n.Floats("intercepts");
  if (!n.ok() || intercepts.empty()) return scores;
  if (static_cast<int64_t>(intercepts.size()) != n.ShapeOf(scores)[1]) {
    n.Fail(absl::StrCat(intercepts.size(), " intercepts for ", n.ShapeOf(scores)[1],
                        " rows of coefficients"));
    return -1;
  }
  return PlusRow(n, scores, intercepts);
}

void LinearRegressor(NodeImport& n) {
  const ValueId scores = LinearScores(n);
  const int64_t targets = n.Int("targets");
  if (n.ok() && n.ShapeOf(scores)[1] != targets)
    return n.Fail(
        absl::StrCat(n.ShapeOf(scores)[1], " rows of coefficients for ", targets, " targets"));
  n.Set(0, Transformed(n, scores, TransformOf(n)));
}

void LinearClassifier(NodeImport& n) {
  n.Ignore({"multi_class"});  // how the model was trained
  const std::vector<int64_t> labels = ClassLabels(n, "classlabels_ints", "classlabels_strings");
  const ValueId scores = LinearScores(n);
  const Transform transform = TransformOf(n);
  if (!n.ok()) return;
  const int64_t count = n.ShapeOf(scores)[1];
  if (count == 1 && labels.size() == 2) return SetTwoClasses(n, scores, false, transform, labels);
  if (count < 2 || count != static_cast<int64_t>(labels.size()))
    return n.Fail(absl::StrCat(labels.size(), " labels for ", count, " rows of coefficients"));
  SetLabels(n, Best(n, scores), labels);
  n.Set(1, Transformed(n, scores, transform));
}

// ---- Support vector machines ----

// What the kernel makes of each row of x and each of the vectors: [rows, vectors].
ValueId Kernel(NodeImport& n, ValueId x, const std::vector<double>& vectors,
               const std::string& kernel) {
  std::vector<double> parameters = n.Floats("kernel_params");
  if (parameters.empty()) parameters = {0, 0, 0};
  if (parameters.size() != 3) {
    n.Fail(absl::StrCat("'kernel_params' needs gamma, coef0 and degree, and has ",
                        parameters.size(), " numbers"));
    return -1;
  }
  const double gamma = parameters[0], offset = parameters[1], degree = parameters[2];
  const auto times = [&](ValueId v, double by) {
    return n.Emit(OpKind::kMul, {v, n.ScalarLike(by, v)});
  };
  // Also checks the number of the vectors' elements.
  const ValueId products = Products(n, x, vectors, "support_vectors");
  if (!n.ok() || kernel == "LINEAR") return products;
  if (kernel == "RBF") {
    const int64_t features = n.ShapeOf(x)[1], count = n.ShapeOf(products)[1];
    const ValueId distance = SquaredDistances(n, x, Matrix(n, vectors, count, features));
    return n.Emit(OpKind::kExp, {times(distance, -gamma)});
  }
  const ValueId scaled = times(products, gamma);
  const ValueId inner = n.Emit(OpKind::kAdd, {scaled, n.ScalarLike(offset, scaled)});
  if (kernel == "SIGMOID") return n.Emit(OpKind::kTanh, {inner});
  if (degree == 1) return inner;
  const ValueId square = n.Emit(OpKind::kMul, {inner, inner});
  if (degree == 2) return square;
  if (degree == 3) return n.Emit(OpKind::kMul, {square, inner});
  return n.Emit(OpKind::kPow, {inner, n.ScalarLike(degree, inner)});
}

std::string KernelOf(NodeImport& n) {
  return n.OneOf("kernel_type", {"LINEAR", "POLY", "RBF", "SIGMOID"});
}

void SvmRegressor(NodeImport& n) {
  if (n.OneOf("post_transform", {"NONE"}) != "NONE") return;
  const ValueId x = RowsOf(n);
  const std::string kernel = KernelOf(n);
  const int64_t supports = n.Int("n_supports");
  const std::vector<double> coefficients = n.Floats("coefficients"), rho = n.Floats("rho"),
                            vectors = n.Floats("support_vectors");
  if (rho.empty()) return n.Fail("needs a number in 'rho'");
  ValueId y;
  if (supports > 0) {
    y = Kernel(n, x, vectors, kernel);
    if (n.ok() && n.ShapeOf(y)[1] != supports)
      return n.Fail(absl::StrCat(n.ShapeOf(y)[1], " support vectors instead of ", supports));
    y = Products(n, y, coefficients, "coefficients");
  } else {
    n.Ignore({"kernel_params"});
    y = Products(n, x, coefficients, "coefficients");
  }
  if (n.ok() && n.ShapeOf(y)[1] != 1) return n.Fail("has more coefficients than vectors");
  y = PlusRow(n, y, {rho[0]});
  if (n.Int("one_class") != 0) {
    const ValueId inside = n.Emit(OpKind::kLess, {n.ScalarLike(0, y), y});
    y = n.Emit(OpKind::kWhere, {inside, n.ScalarLike(1, y), n.ScalarLike(-1, y)});
  }
  n.Set(0, y);
}

// Pairs of classes i < j, in the order (0, 1), (0, 2), .., (1, 2), ..
struct ClassPair {
  int64_t i, j;
};

std::vector<ClassPair> PairsOf(int64_t classes) {
  std::vector<ClassPair> pairs;
  for (int64_t i = 0; i < classes; ++i) {
    for (int64_t j = i + 1; j < classes; ++j) pairs.push_back({i, j});
  }
  return pairs;
}

// For each pair of classes, a number that is above 0 if i is more likely than j: [rows, pairs].
// The coefficients are a matrix [classes - 1, vectors]. The vectors of class c have their coefficient
// against class d in row d if d < c, else in row d - 1.
ValueId PairScores(NodeImport& n, ValueId x, const std::vector<int64_t>& per_class,
                   const std::vector<ClassPair>& pairs) {
  const int64_t classes = static_cast<int64_t>(per_class.size()),
                count = static_cast<int64_t>(pairs.size()),
                vectors = std::accumulate(per_class.begin(), per_class.end(), int64_t{0});
  const std::vector<double> coefficients = n.Floats("coefficients"), rho = n.Floats("rho");
  const ValueId kernel = Kernel(n, x, n.Floats("support_vectors"), KernelOf(n));
  if (!n.ok()) return -1;
  if (n.ShapeOf(kernel)[1] != vectors)
    n.Fail(absl::StrCat(n.ShapeOf(kernel)[1], " support vectors instead of ", vectors));
  else if (static_cast<int64_t>(coefficients.size()) != (classes - 1) * vectors)
    n.Fail(absl::StrCat(coefficients.size(), " coefficients instead of ", (classes - 1) * vectors));
  else if (static_cast<int64_t>(rho.size()) != count)
    n.Fail(absl::StrCat(rho.size(), " numbers in 'rho' for ", count, " pairs of classes"));
  if (!n.ok() || !n.CanMake({DType::kF32, {vectors, count}})) return -1;
  std::vector<double> weights(static_cast<size_t>(vectors * count), 0);
  for (int64_t p = 0; p < count; ++p) {
    int64_t v = 0;
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t row = c == pairs[p].i ? pairs[p].j - 1 : pairs[p].i;
      const bool takes_part = c == pairs[p].i || c == pairs[p].j;
      for (int64_t k = 0; k < per_class[c]; ++k, ++v) {
        if (takes_part) weights[v * count + p] = coefficients[row * vectors + v];
      }
    }
  }
  return PlusRow(n, MatMulOf(n, kernel, Matrix(n, weights, vectors, count)), rho);
}

// The class that wins most of its pairs, the first one of equal ones: i64 [rows].
ValueId Elected(NodeImport& n, ValueId scores, int64_t classes,
                const std::vector<ClassPair>& pairs) {
  const auto count = static_cast<int64_t>(pairs.size());
  std::vector<double> change(static_cast<size_t>(count * classes), 0), start(classes, 0);
  for (int64_t p = 0; p < count; ++p) {
    start[pairs[p].j] += 1;
    change[p * classes + pairs[p].j] = -1;
    change[p * classes + pairs[p].i] = 1;
  }
  const ValueId first = n.Emit(OpKind::kLess, {n.ScalarLike(0, scores), scores});
  return Best(n,
              PlusRow(n, MatMulOf(n, n.Cast(first, DType::kF32), Matrix(n, change, count, classes)),
                      start));
}

// The probabilities of the classes from those of pairs, r[i][j] = P(i | i or j). They minimise the sum
// of (r[j][i] p[i] - r[i][j] p[j])^2: Wu, Lin, Weng, "Probability estimates for multi-class classification
// by pairwise coupling" (2004), algorithm 2. LIBSVM, and with it scikit-learn and ONNX Runtime, stop
// early, at errors of up to 0.005 / classes; so results are near theirs only if the steps are the same.
class Coupling {
 public:
  // `pairwise`: [rows, pairs].
  Coupling(NodeImport& n, ValueId pairwise, int64_t classes, const std::vector<ClassPair>& pairs)
      : n_(n), classes_(classes), rows_(n.ok() ? n.ShapeOf(pairwise)[0] : 1) {
    // Of the pairs and of their opposites, those that r has, row by row.
    const ValueId both = Concat(n, {pairwise, Sub(n.ScalarLike(1, pairwise), pairwise)}, 1);
    Shape places(static_cast<size_t>(classes * classes), 0);
    std::vector<int64_t> apart(places.size(), 1);
    for (int64_t i = 0; i < classes; ++i) apart[static_cast<size_t>(i * classes + i)] = 0;
    for (size_t p = 0; p < pairs.size(); ++p) {
      const auto [i, j] = pairs[p];
      places[static_cast<size_t>(i * classes + j)] = static_cast<int64_t>(p);
      places[static_cast<size_t>(j * classes + i)] = static_cast<int64_t>(p + pairs.size());
    }
    const Shape square{1, classes, classes};
    const ValueId off = n.Cast(n.Reshape(n.Constant(FromInts(apart)), square), DType::kBool);
    const ValueId found =
        n.Emit(OpKind::kGather, {both, n.Constant(FromInts(places))}, {{"axis", int64_t{1}}});
    const ValueId r = n.Emit(
        OpKind::kWhere, {off, n.Reshape(found, {rows_, classes, classes}), n.ScalarLike(0, found)});
    const ValueId turned = n.Transpose(r, {0, 2, 1});
    diagonal_ =
        n.Emit(OpKind::kReduceSumSquare, {turned}, {{"axes", Shape{2}}, {"keepdims", int64_t{0}}});
    q_ = n.Emit(OpKind::kWhere, {off, n.Emit(OpKind::kNeg, {Mul(turned, r)}),
                                 n.Reshape(diagonal_, {rows_, classes, 1})});
    for (int64_t i = 0; i < classes; ++i) {
      std::vector<double> unit(classes, 0);
      unit[i] = 1;
      units_.push_back(Matrix(n, unit, 1, classes));
      places_.push_back(n.Constant(FromInts({i})));
    }
  }

  ValueId Run() {
    ValueId p = n_.Fill({DType::kF32, {rows_, classes_}}, 1.0 / static_cast<double>(classes_));
    // Two classes need two sweeps at most, and random probabilities of up to 60 classes five.
    const int sweeps = classes_ == 2 ? 2 : classes_ <= 10 ? 6 : 8;
    for (int k = 0; k < sweeps && n_.ok(); ++k) p = Sweep(p);
    return p;
  }

 private:
  ValueId Sub(ValueId a, ValueId b) { return n_.Emit(OpKind::kSub, {a, b}); }
  ValueId Add(ValueId a, ValueId b) { return n_.Emit(OpKind::kAdd, {a, b}); }
  ValueId Mul(ValueId a, ValueId b) { return n_.Emit(OpKind::kMul, {a, b}); }
  ValueId Div(ValueId a, ValueId b) { return n_.Emit(OpKind::kDiv, {a, b}); }

  // What v has for class i, in dimension 1: [rows, 1, ..]. The place is data, so that the steps of all classes are the same kernels.
  ValueId Of(ValueId v, int64_t i) {
    return n_.Emit(OpKind::kGather, {v, places_[i]}, {{"axis", int64_t{1}}});
  }

  // p after one sweep over the classes; of a row that is near enough, p itself.
  ValueId Sweep(ValueId p) {
    const ValueId before = p;
    ValueId qp = n_.Emit(OpKind::kReduceSum, {Mul(q_, n_.Reshape(p, {rows_, 1, classes_}))},
                         {{"axes", Shape{2}}, {"keepdims", int64_t{0}}});
    const Attrs over{{"axes", Shape{1}}, {"keepdims", int64_t{1}}};
    ValueId pqp = n_.Emit(OpKind::kReduceSum, {Mul(p, qp)}, over);
    const ValueId error =
        n_.Emit(OpKind::kReduceMax, {n_.Emit(OpKind::kAbs, {Sub(qp, pqp)})}, over);
    const ValueId near = n_.Emit(
        OpKind::kLess, {error, n_.ScalarLike(0.005 / static_cast<double>(classes_), error)});
    const ValueId one = n_.ScalarLike(1, p), two = n_.ScalarLike(2, p);
    for (int64_t i = 0; i < classes_ && n_.ok(); ++i) {
      const ValueId at = Of(qp, i), diagonal = Of(diagonal_, i);
      const ValueId row = n_.Reshape(Of(q_, i), {rows_, classes_});
      const ValueId step = Div(Sub(pqp, at), diagonal), scale = Add(step, one);
      const ValueId grown = Add(pqp, Mul(step, Add(Mul(step, diagonal), Mul(two, at))));
      pqp = Div(Div(grown, scale), scale);
      qp = Div(Add(qp, Mul(step, row)), scale);
      p = Div(Add(p, Mul(step, units_[i])), scale);
    }
    return n_.Emit(OpKind::kWhere, {near, before, p});
  }

  NodeImport& n_;
  int64_t classes_, rows_;
  ValueId q_ = -1, diagonal_ = -1;       // [rows, classes, classes] and [rows, classes]
  std::vector<ValueId> units_, places_;  // of each class, [1, classes] and [1]
};

// 1 / (1 + exp(a score + b)) for each pair (Platt), kept away from 0 and 1.
ValueId PairProbabilities(NodeImport& n, ValueId scores, const std::vector<double>& a,
                          const std::vector<double>& b) {
  const auto count = static_cast<int64_t>(a.size());
  const ValueId inner = PlusRow(n, n.Emit(OpKind::kMul, {scores, Matrix(n, a, 1, count)}), b);
  const ValueId p = n.Emit(OpKind::kSigmoid, {n.Emit(OpKind::kNeg, {inner})});
  return n.Emit(OpKind::kClip, {p}, {{"min", 1e-7}, {"max", 1 - 1e-7}});
}

void SvmClassifier(NodeImport& n) {
  constexpr int64_t kMostClasses = 1 << 10;  // with half a million pairs
  constexpr int64_t kMostCoupled = 64;       // a class is a step of each sweep: 9,000 nodes
  const ValueId x = RowsOf(n);
  const std::vector<int64_t> labels = ClassLabels(n, "classlabels_ints", "classlabels_strings");
  const std::vector<int64_t> per_class = n.Ints("vectors_per_class");
  const Transform transform = TransformOf(n);
  const std::vector<double> a = n.Floats("prob_a"), b = n.Floats("prob_b"), rho = n.Floats("rho");
  const auto classes = static_cast<int64_t>(labels.size());
  int64_t vectors = 0;
  for (const int64_t count : per_class) {
    if (count < 0 || count > (int64_t{1} << 31))
      return n.Fail("a class has an impossible number of vectors");
    vectors += count;
  }
  if (!n.ok()) return;
  if (classes < 2) return n.Unsupported("fewer than two classes");
  if (classes > kMostClasses)
    return n.Unsupported(absl::StrCat("more than ", kMostClasses, " classes"));
  if (vectors == 0) {
    // A linear model, whatever the kernel.
    n.Ignore({"kernel_type", "kernel_params", "support_vectors", "prob_a", "prob_b"});
    if (rho.empty()) return n.Fail("needs a number in 'rho'");
    const ValueId products = Products(n, x, n.Floats("coefficients"), "coefficients");
    if (n.ok() && n.ShapeOf(products)[1] != classes)
      return n.Fail(
          absl::StrCat(n.ShapeOf(products)[1], " rows of coefficients for ", classes, " classes"));
    const ValueId scores = PlusRow(n, products, {rho[0]});
    SetLabels(n, Best(n, scores), labels);
    return n.Set(1, Transformed(n, scores, transform));
  }
  if (per_class.size() != labels.size())
    return n.Fail(absl::StrCat("'vectors_per_class' has ", per_class.size(), " numbers for ",
                               classes, " classes"));
  const std::vector<ClassPair> pairs = PairsOf(classes);
  const ValueId scores = PairScores(n, x, per_class, pairs);
  if (!n.ok()) return;
  SetLabels(n, Elected(n, scores, classes, pairs), labels);
  if (a.size() != b.size() || (!a.empty() && a.size() != pairs.size()))
    return n.Fail(absl::StrCat("'prob_a' and 'prob_b' have ", a.size(), " and ", b.size(),
                               " numbers for ", pairs.size(), " pairs of classes"));
  if (!n.Wants(1)) return;
  if (!a.empty()) {
    if (classes > kMostCoupled)
      return n.Unsupported(absl::StrCat("probabilities of more than ", kMostCoupled, " classes"));
    const ValueId pairwise = PairProbabilities(n, scores, a, b);
    return n.Set(1, Transformed(n, Coupling(n, pairwise, classes, pairs).Run(), transform));
  }
  if (classes > 2) return n.Set(1, Transformed(n, scores, transform));
  // Of two classes, each has a score.
  const ValueId both = Concat(n, {n.Emit(OpKind::kNeg, {scores}), scores}, 1);
  n.Set(1, Transformed(n, both, transform));
}

}  // namespace

ValueId SquaredDistances(NodeImport& n, ValueId x, ValueId y) {
  if (!n.ok()) return -1;
  const Shape of_x = n.ShapeOf(x), of_y = n.ShapeOf(y);
  if (of_x.size() != 2 || of_y.size() != 2 || of_x[1] != of_y[1]) {
    n.Fail(absl::StrCat("cannot compare rows of ", ShapeText(of_x), " and ", ShapeText(of_y)));
    return -1;
  }
  // The differences themselves: squares and products would cancel.
  const ValueId apart = n.Emit(
      OpKind::kSub, {n.Reshape(x, {of_x[0], 1, of_x[1]}), n.Reshape(y, {1, of_y[0], of_y[1]})});
  return n.Emit(OpKind::kReduceSumSquare, {apart}, {{"axes", Shape{2}}, {"keepdims", int64_t{0}}});
}

void AddLinearTranslations(TranslationTable& table) {
  const auto add = [&](const char* name, Translation::Run run, const char* limits = "") {
    table[onnx::OperatorKey(onnx::kMlDomain, name)] = {run, limits};
  };
  add("LinearRegressor", LinearRegressor);
  add("LinearClassifier", LinearClassifier, "a single class");
  add("SVMRegressor", SvmRegressor, "post_transform");
  add("SVMClassifier", SvmClassifier, "a single class; probabilities of more than 64 classes");
}

}  // namespace heddle::graph
