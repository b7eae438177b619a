// Translation of the ONNX operators of neural networks: convolutions, pools, matrix products and
// normalisations.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/sum_type.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/operators/formulas.h"
#include "compiler/onnx/precision.h"

namespace heddle::graph {
namespace {

// ---- Windows ----

// Limit on strides, dilations and kernel extents: far above those of any model, and far below those
// whose products overflow.
constexpr int64_t kLimit = int64_t{1} << 20;

bool InRange(const Shape& values, int64_t low) {
  return std::all_of(values.begin(), values.end(),
                     [&](int64_t v) { return v >= low && v <= kLimit; });
}

std::string AutoPad(NodeImport& n) {
  return n.OneOf("auto_pad", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"});
}

// The shape of the weights decides; `kernel_shape` may repeat it.
void CheckKernelShape(NodeImport& n, const Shape& kernel) {
  if (n.HasAttr("kernel_shape") && n.Ints("kernel_shape") != kernel)
    n.Fail(absl::StrCat("kernel_shape is ", ShapeText(n.Ints("kernel_shape")),
                        ", but the weights have ", ShapeText(kernel)));
}

// The strides, dilations and pads of a convolution or pool over `spatial` extents, with auto_pad
// resolved.
Attrs WindowAttrs(NodeImport& n, const Shape& spatial, const Shape& kernel) {
  const size_t dims = spatial.size();
  const auto list = [&](const char* name, size_t length, int64_t fallback) {
    Shape v = n.Ints(name);
    if (v.empty()) v.assign(length, fallback);
    if (v.size() != length)
      n.Fail(absl::StrCat(name, " has ", v.size(), " entries, needs ", length));
    return v;
  };
  const Shape strides = list("strides", dims, 1), dilations = list("dilations", dims, 1);
  Shape pads = list("pads", 2 * dims, 0);
  const std::string mode = AutoPad(n);
  if (!n.ok() || kernel.size() != dims) {
    n.Fail("the kernel does not fit the input's rank");
    return {};
  }
  if (!InRange(strides, 1) || !InRange(dilations, 1) || !InRange(kernel, 1)) {
    n.Fail("kernel, strides or dilations are out of range");
    return {};
  }
  if (mode == "VALID") pads.assign(2 * dims, 0);
  if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    for (size_t i = 0; i < dims; ++i) {
      const int64_t out = (spatial[i] + strides[i] - 1) / strides[i],
                    reach = (kernel[i] - 1) * dilations[i] + 1;
      const int64_t total = std::max<int64_t>((out - 1) * strides[i] + reach - spatial[i], 0);
      const int64_t small = total / 2, large = total - small;
      pads[i] = mode == "SAME_UPPER" ? small : large;
      pads[dims + i] = mode == "SAME_UPPER" ? large : small;
    }
  }
  return {{"strides", strides}, {"dilations", dilations}, {"pads", pads}};
}

Shape Spatial(const Shape& shape) {
  return shape.size() < 2 ? Shape{} : Shape(shape.begin() + 2, shape.end());
}

OpKind OfRank(NodeImport& n, const OpKindsByRank& kinds, ValueId x) {
  const int dims = n.Rank(x) - 2;
  if (n.ok() && (dims < 1 || dims > 3)) n.Unsupported(absl::StrCat(dims, " spatial dimensions"));
  return kinds[std::clamp(dims, 1, 3) - 1];
}

// A convolution, plus a bias per channel if the node has one.
ValueId WithBias(NodeImport& n, OpKind kind, ValueId x, ValueId w, Attrs attrs) {
  if (!n.Has(2)) return n.Emit(kind, {x, w}, attrs);
  if (ir::IsHalf(n.Type(x).dtype)) attrs[kSingle] = int64_t{1};
  const ValueId y = n.Emit(kind, {x, w}, attrs);
  const ValueId sum = n.Emit(OpKind::kAdd, {y, n.AlongAxis(Single(n, n.In(2)), 1, n.Rank(y))});
  return n.Cast(sum, n.Type(x).dtype);
}

void Conv(NodeImport& n) { n.Set(0, ConvOf(n, n.In(0), n.In(1))); }

void ConvTranspose(NodeImport& n) {
  const ValueId x = n.In(0), w = n.In(1);
  const OpKind kind = OfRank(n, kTransposedConvolutions, x);
  if (!n.ok()) return;
  const Shape spatial = Spatial(n.ShapeOf(x)), kernel = Spatial(n.ShapeOf(w));
  const size_t dims = spatial.size();
  if (kernel.size() != dims) return n.Fail("the kernel does not fit the input's rank");
  CheckKernelShape(n, kernel);
  Shape strides = n.Ints("strides"), dilations = n.Ints("dilations"), pads = n.Ints("pads");
  Shape extra = n.Ints("output_padding"), output = n.Ints("output_shape");
  const auto complete = [&](const char* name, Shape& list, size_t length, int64_t fallback) {
    if (list.empty()) list.assign(length, fallback);
    if (list.size() != length)
      n.Fail(absl::StrCat(name, " has ", list.size(), " entries, needs ", length));
  };
  complete("strides", strides, dims, 1);
  complete("dilations", dilations, dims, 1);
  complete("pads", pads, 2 * dims, 0);
  complete("output_padding", extra, dims, 0);
  const std::string mode = AutoPad(n);
  if (!n.ok()) return;
  if (mode == "VALID") pads.assign(2 * dims, 0);
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  for (const Shape* values : {&strides, &dilations, &pads, &extra, &output}) {
    if (!InRange(*values, 0))
      return n.Fail("strides, dilations, pads or output shape are out of range");
  }
  // Some exporters give the whole output shape, including batch and channels.
  if (output.size() == dims + 2) output.erase(output.begin(), output.begin() + 2);
  if (!output.empty() && output.size() != dims)
    return n.Fail("output_shape does not fit the input's rank");
  for (size_t i = 0; i < dims && (same || !output.empty()); ++i) {
    const int64_t wanted = output.empty() ? spatial[i] * strides[i] : output[i];
    int64_t total =
        strides[i] * (spatial[i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - wanted;
    if (total < 0) {
      // Nothing is cropped. The missing elements are added at the end.
      extra[i] -= total;
      total = 0;
    }
    const int64_t small = total / 2, large = total - small;
    pads[i] = mode == "SAME_UPPER" ? small : large;
    pads[dims + i] = mode == "SAME_UPPER" ? large : small;
  }
  n.Set(0, WithBias(n, kind, x, w,
                    {{"strides", strides},
                     {"dilations", dilations},
                     {"pads", pads},
                     {"output_padding", extra},
                     {"groups", n.Int("group")}}));
}

// The p of an Lp pool, which the first opset had as a float.
int64_t Norm(NodeImport& n) {
  const double p = n.opset() < 2 ? n.Float("p") : static_cast<double>(n.Int("p"));
  if (p != std::round(p) || p < 1 || p > 1e6) n.Unsupported(absl::StrCat("p = ", p));
  return n.ok() ? static_cast<int64_t>(p) : 2;
}

// Where in the whole tensor the maxima of the windows lie. The windows are gathered, so that the first
// maximum of each can be found. A tap on the padding reads the first tap of its window that is
// inside.
ValueId PlacesOfMaxima(NodeImport& n, ValueId x, const Attrs& attrs) {
  const ValueId pooled = n.Emit(OpKind::kMaxPool, {x}, attrs);
  if (!n.ok()) return -1;
  const Shape shape = n.ShapeOf(x), result = n.ShapeOf(pooled);
  const Shape in = Spatial(shape), out = Spatial(result);
  const auto ints = [&](const char* name) { return std::get<Shape>(attrs.find(name)->second); };
  const Shape kernel = ints("kernel"), strides = ints("strides"), dilations = ints("dilations"),
              pads = ints("pads");
  const bool by_column = n.Int("storage_order") != 0;
  const int64_t taps = Product(kernel), windows = Product(out), inside = Product(in);
  if (!n.CanMake({ir::DType::kI64, {windows, 2 * taps}})) return -1;
  Shape read, named;  // the element that each tap reads, and its number in the result
  for (int64_t w = 0; w < windows; ++w) {
    const size_t first = read.size();
    int64_t fallback = -1;
    for (int64_t k = 0; k < taps; ++k) {
      int64_t window = w, tap = k, row_major = 0, column_major = 0, row_step = 1;
      bool padding = false;
      for (size_t d = in.size(); d-- > 0;) {
        const int64_t at = window % out[d] * strides[d] - pads[d] + tap % kernel[d] * dilations[d];
        padding |= at < 0 || at >= in[d];
        row_major += at * row_step;
        row_step *= in[d];
        window /= out[d];
        tap /= kernel[d];
        // The first spatial dimension runs fastest in the other order.
        column_major = column_major * in[d] + at;
      }
      if (padding) row_major = -1;
      if (!padding && fallback < 0) fallback = static_cast<int64_t>(read.size());
      read.push_back(row_major);
      named.push_back(by_column ? column_major : row_major);
    }
    if (fallback < 0) {
      n.Unsupported("the output Indices of windows that only cover padding");
      return -1;
    }
    for (size_t i = first; i < read.size(); ++i) {
      if (read[i] >= 0) continue;
      named[i] = named[static_cast<size_t>(fallback)];
      read[i] = read[static_cast<size_t>(fallback)];
    }
  }
  const auto gather = [&](ValueId from, ValueId index, int64_t axis) {
    return n.Emit(OpKind::kGather, {from, index}, {{"axis", axis}});
  };
  const ValueId taken = gather(n.Reshape(x, {shape[0], shape[1], inside}),
                               n.Reshape(n.Constant(FromInts(read)), {windows, taps}), 2);
  const ValueId best =
      n.Emit(OpKind::kArgMax, {taken}, {{"axes", Shape{3}}, {"keepdims", int64_t{0}}});
  if (!n.CanMake({ir::DType::kI64, {shape[0], shape[1]}})) return -1;
  Shape begins, planes;  // of each window's taps, of each channel
  for (int64_t w = 0; w < windows; ++w) begins.push_back(w * taps);
  for (int64_t p = 0; p < shape[0] * shape[1]; ++p) planes.push_back(p * inside);
  const ValueId place = gather(
      n.Constant(FromInts(named)),
      n.Emit(OpKind::kAdd, {best, n.Reshape(n.Constant(FromInts(begins)), {1, 1, windows})}), 0);
  const ValueId plane = n.Reshape(n.Constant(FromInts(planes)), {shape[0], shape[1], 1});
  return n.Reshape(n.Emit(OpKind::kAdd, {place, plane}), result);
}

Attrs PoolAttrs(NodeImport& n, ValueId x) {
  OfRank(n, kConvolutions, x);  // refuses unsupported ranks
  const Shape kernel = n.Ints("kernel_shape");
  Attrs attrs = WindowAttrs(n, Spatial(n.ShapeOf(x)), kernel);
  attrs["kernel"] = kernel;
  attrs["ceil_mode"] = n.Int("ceil_mode");
  return attrs;
}

void Pool(NodeImport& n) {
  const std::string& type = n.proto().op_type();
  const ValueId x = n.In(0);
  n.Ignore({"storage_order"});  // of the indices
  if (type == "AveragePool") return n.Set(0, AveragePoolOf(n, x));
  Attrs attrs = PoolAttrs(n, x);
  if (type == "MaxPool") {
    n.Set(0, n.Emit(OpKind::kMaxPool, {x}, attrs));
    if (n.Wants(1)) n.Set(1, PlacesOfMaxima(n, x, attrs));
    return;
  }
  attrs["p"] = Norm(n);
  n.Set(0, n.Emit(OpKind::kLpPool, {x}, attrs));
}

void GlobalPool(NodeImport& n) {
  const std::string& type = n.proto().op_type();
  const ValueId x = n.In(0);
  if (n.Rank(x) < 3) return n.Fail("needs spatial dimensions");
  Shape axes(n.Rank(x) - 2);
  std::iota(axes.begin(), axes.end(), 2);
  const Attrs over{{"axes", axes}, {"keepdims", int64_t{1}}};
  const int64_t p = type == "GlobalLpPool" ? Norm(n) : 2;
  if (p > 2) {
    const auto power = [&](ValueId v, double exponent) {
      return n.Emit(OpKind::kPow, {v, n.ScalarLike(exponent, v)});
    };
    const ValueId powers = power(n.Emit(OpKind::kAbs, {x}), static_cast<double>(p));
    const ValueId sum = n.Emit(OpKind::kReduceSum, {powers}, over);
    return n.Set(0, power(sum, 1.0 / static_cast<double>(p)));
  }
  const OpKind kind = type == "GlobalAveragePool" ? OpKind::kReduceMean
                      : type == "GlobalMaxPool"   ? OpKind::kReduceMax
                      : p == 1                    ? OpKind::kReduceL1
                                                  : OpKind::kReduceL2;
  n.Set(0, n.Emit(kind, {x}, over));
}

// ---- Matrix products ----

void Gemm(NodeImport& n) { n.Set(0, GemmOf(n)); }

void MatMul(NodeImport& n) { n.Set(0, MatMulOf(n, n.In(0), n.In(1))); }

// Replaces ellipses by digits, which equations do not use as labels. An implicit result has the
// labels that occur once, sorted.
void Einsum(NodeImport& n) {
  std::string equation;
  for (char c : n.String("equation")) {
    if (c != ' ') equation += c;
  }
  const size_t arrow = equation.find("->");
  std::string left = equation.substr(0, arrow),
              result = arrow == std::string::npos ? "" : equation.substr(arrow + 2);
  std::vector<std::string> terms(1);
  for (char c : left) {
    if (c == ',')
      terms.emplace_back();
    else
      terms.back() += c;
  }
  if (static_cast<int>(terms.size()) != n.NumInputs())
    return n.Fail("the equation has another number of operands");
  std::vector<ValueId> inputs;
  std::string widest;
  for (size_t i = 0; i < terms.size(); ++i) {
    inputs.push_back(n.In(static_cast<int>(i)));
    const size_t dots = terms[i].find("...");
    if (dots == std::string::npos || !n.ok()) continue;
    const int hidden = n.Rank(inputs.back()) - (static_cast<int>(terms[i].size()) - 3);
    constexpr int kMostHidden = 8;
    if (hidden < 0 || hidden > kMostHidden) return n.Fail("the ellipsis does not fit its operand");
    // Labels count from the right, because broadcasting aligns the dimensions there.
    std::string labels;
    for (int k = hidden; k-- > 0;) labels += static_cast<char>('0' + k);
    terms[i].replace(dots, 3, labels);
    if (labels.size() > widest.size()) widest = labels;
  }
  if (arrow == std::string::npos) {
    std::map<char, int> counts;
    for (const std::string& t : terms) {
      for (char c : t) ++counts[c];
    }
    result = widest;
    for (const auto& [c, count] : counts) {
      if (count == 1 && !std::isdigit(static_cast<unsigned char>(c))) result += c;
    }
  } else if (const size_t dots = result.find("..."); dots != std::string::npos) {
    result.replace(dots, 3, widest);
  }
  std::string joined = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) joined += "," + terms[i];
  n.Set(0, n.Emit(OpKind::kEinsum, inputs, {{"terms", joined}, {"result", result}}));
}

// ---- Normalisation ----

// 1 / sqrt(v + epsilon)
ValueId InverseDeviation(NodeImport& n, ValueId v, double epsilon) {
  const ValueId sum = n.Emit(OpKind::kAdd, {v, n.ScalarLike(epsilon, v)});
  return n.Emit(OpKind::kReciprocal, {n.Emit(OpKind::kSqrt, {sum})});
}

// Since opset 14, the statistics of the batch can be used at inference, too: exporters write the
// standardisation of a convolution's weights so.
void BatchNormalizationByStatistics(NodeImport& n) {
  const ValueId x = n.In(0);
  const int rank = n.Rank(x);
  if (rank < 2) return n.Fail("needs channels");
  const ir::DType own = n.Type(x).dtype;
  Shape axes{0};
  for (int64_t a = 2; a < rank; ++a) axes.push_back(a);
  const ValueId normal =
      n.Emit(OpKind::kNormalize, {x}, {{"axes", axes}, {"epsilon", n.Float("epsilon")}});
  const auto spread = [&](ValueId v) { return n.AlongAxis(n.Cast(v, own), 1, rank); };
  const ValueId scaled = n.Emit(OpKind::kMul, {normal, spread(n.In(1))});
  n.Set(0, n.Emit(OpKind::kAdd, {scaled, spread(n.In(2))}));

  const double momentum = n.Float("momentum");
  const ir::DType wide = own == ir::DType::kF64 ? own : ir::DType::kF32;
  const Attrs over{{"axes", axes}, {"keepdims", int64_t{1}}};
  const ValueId signal = n.Cast(x, wide);
  const ValueId mean = n.Emit(OpKind::kReduceMean, {signal}, over);
  const ValueId centered = n.Emit(OpKind::kSub, {signal, mean});
  const ValueId variance =
      n.Emit(OpKind::kReduceMean, {n.Emit(OpKind::kMul, {centered, centered})}, over);
  const auto run = [&](int i, ValueId current) {
    const ValueId before = n.In(i + 2);
    if (!n.Wants(i) || !n.ok()) return;
    const ValueId old = n.Cast(before, wide), now = n.Reshape(current, n.ShapeOf(before));
    const auto part = [&](ValueId v, double weight) {
      return n.Emit(OpKind::kMul, {v, n.ScalarLike(weight, v)});
    };
    n.Set(i, n.Cast(n.Emit(OpKind::kAdd, {part(old, momentum), part(now, 1 - momentum)}),
                    n.Type(before).dtype));
  };
  run(1, mean);
  run(2, variance);
}

void BatchNormalization(NodeImport& n) {
  if (n.Int("training_mode") != 0) return BatchNormalizationByStatistics(n);
  n.Ignore({"momentum"});
  if (n.opset() < 7 && n.Int("is_test") == 0) return n.Unsupported("training mode (is_test=0)");
  if (n.opset() < 9 && n.Int("spatial") == 0) return n.Unsupported("spatial=0");
  for (int i = 1; i < n.NumOutputs(); ++i) {
    if (n.Wants(i)) return n.Unsupported("training outputs");
  }
  n.Set(0, n.Emit(OpKind::kBatchNorm, {n.In(0), n.In(1), n.In(2), n.In(3), n.In(4)},
                  {{"axis", int64_t{1}}, {"epsilon", n.Float("epsilon")}}));
}

void InstanceNormalization(NodeImport& n) {
  const ValueId x = n.In(0);
  const int rank = n.Rank(x);
  if (rank < 3) return n.Fail("needs spatial dimensions");
  Shape axes(rank - 2);
  std::iota(axes.begin(), axes.end(), 2);
  const ValueId y =
      n.Emit(OpKind::kNormalize, {x}, {{"axes", axes}, {"epsilon", n.Float("epsilon")}});
  const ValueId scaled = n.Emit(OpKind::kMul, {y, n.AlongAxis(n.In(1), 1, rank)});
  n.Set(0, n.Emit(OpKind::kAdd, {scaled, n.AlongAxis(n.In(2), 1, rank)}));
}

// The type in which a normalisation computes its first stage (stash_type). The operand is never
// rounded to a type of fewer bits, and 16-bit floats are computed in f32 at least.
ir::DType StashType(NodeImport& n) {
  const auto type = FromOnnxType(static_cast<int>(
      std::clamp<int64_t>(n.Int("stash_type", onnx::TensorProto::FLOAT), 0, 1000)));
  if (!type.ok() || !ir::IsFloat(*type)) {
    n.Fail(absl::StrCat("cannot compute in the type ", n.Int("stash_type")));
    return ir::DType::kF32;
  }
  return *type;
}

ir::DType StageType(NodeImport& n, ValueId x, ir::DType stash) {
  const ir::DType own = n.Type(x).dtype;
  return own == ir::DType::kF64 || stash == ir::DType::kF64 ? ir::DType::kF64 : ir::DType::kF32;
}

// All dimensions from the attribute `axis` on.
Shape AxesFrom(NodeImport& n, int rank) {
  Shape axes;
  for (int64_t a = n.Axis(n.Int("axis"), rank); a < rank; ++a) axes.push_back(a);
  return axes;
}

void LayerNormalization(NodeImport& n) {
  const ValueId x = n.In(0);
  const Shape axes = AxesFrom(n, n.Rank(x));
  const double epsilon = n.Float("epsilon");
  const ir::DType stash = StashType(n), stage = StageType(n, x, stash), own = n.Type(x).dtype;
  const bool widened = stage == ir::DType::kF64 && own != stage;
  const ValueId normal = n.Emit(OpKind::kNormalize, {widened ? n.Cast(x, stage) : x},
                                {{"axes", axes}, {"epsilon", epsilon}});
  ValueId y = n.Emit(OpKind::kMul, {n.Cast(normal, own), n.In(1)});
  if (n.Has(2)) y = n.Emit(OpKind::kAdd, {y, n.In(2)});
  n.Set(0, y);
  if (!n.Wants(1) && !n.Wants(2)) return;
  const Attrs over{{"axes", axes}, {"keepdims", int64_t{1}}};
  const ValueId single = n.Cast(x, stage), mean = n.Emit(OpKind::kReduceMean, {single}, over);
  const ValueId centered = n.Emit(OpKind::kSub, {single, mean});
  const ValueId variance =
      n.Emit(OpKind::kReduceMean, {n.Emit(OpKind::kMul, {centered, centered})}, over);
  n.Set(1, n.Cast(mean, stash));
  n.Set(2, n.Cast(InverseDeviation(n, variance, epsilon), stash));
}

void RmsNormalization(NodeImport& n) {
  const ValueId x = n.In(0), scale = n.In(1);
  const ir::DType own = n.Type(x).dtype;
  const ValueId wide = n.Cast(x, StageType(n, x, StashType(n)));
  const ValueId normal = RmsNormalOf(n, wide, AxesFrom(n, n.Rank(x)), n.Float("epsilon"));
  // The second stage, and the result, have the type of the scale.
  n.Set(0, n.Emit(OpKind::kMul, {n.Cast(n.Cast(normal, own), n.Type(scale).dtype), scale}));
}

// Opset 18 had a scale and a bias for each group; since opset 21, there is one for each channel.
void GroupNormalization(NodeImport& n) {
  const ValueId x = n.In(0);
  const int64_t groups = n.Int("num_groups");
  if (!n.ok()) return;
  const int rank = n.Rank(x);
  const Shape shape = n.ShapeOf(x);
  if (rank < 2 || groups < 1 || shape[1] % groups != 0)
    return n.Fail(absl::StrCat("cannot make ", groups, " groups of ", ShapeText(shape)));
  const ir::DType own = n.Type(x).dtype, stage = StageType(n, x, StashType(n));
  const bool widened = stage == ir::DType::kF64 && own != stage;
  const Shape grouped{shape[0], groups, Product(shape) / shape[0] / groups};
  const ValueId normal =
      n.Emit(OpKind::kNormalize, {n.Reshape(widened ? n.Cast(x, stage) : x, grouped)},
             {{"axes", Shape{2}}, {"epsilon", n.Float("epsilon")}});
  ValueId y = n.Reshape(n.Cast(normal, own), shape);
  // Of each channel.
  const auto spread = [&](ValueId v) {
    const int64_t count = n.ok() ? NumElements(n.Type(v)) : 0;
    if (count != (n.opset() < 21 ? groups : shape[1]))
      n.Fail(absl::StrCat("scale and bias have ", count, " elements"));
    if (n.opset() < 21 && groups != shape[1])
      v = n.Reshape(n.Emit(OpKind::kExpand, {n.Reshape(v, {groups, 1})},
                           {{"shape", Shape{groups, shape[1] / groups}}}),
                    {shape[1]});
    return n.AlongAxis(v, 1, rank);
  };
  y = n.Emit(OpKind::kMul, {y, spread(n.In(1))});
  n.Set(0, n.Emit(OpKind::kAdd, {y, spread(n.In(2))}));
}

void MeanVarianceNormalization(NodeImport& n) {
  const ValueId x = n.In(0);
  const Shape axes = n.Axes(n.Ints("axes"), n.Rank(x));
  const Attrs over{{"axes", axes}, {"keepdims", int64_t{1}}};
  const ValueId centered = n.Emit(OpKind::kSub, {x, n.Emit(OpKind::kReduceMean, {x}, over)});
  const ValueId deviation =
      n.Emit(OpKind::kSqrt,
             {n.Emit(OpKind::kReduceMean, {n.Emit(OpKind::kMul, {centered, centered})}, over)});
  n.Set(0, n.Emit(OpKind::kDiv,
                  {centered, n.Emit(OpKind::kAdd, {deviation, n.ScalarLike(1e-9, deviation)})}));
}

void Lrn(NodeImport& n) {
  n.Set(0, n.Emit(OpKind::kLrn, {n.In(0)},
                  {{"size", n.Int("size")},
                   {"alpha", n.Float("alpha")},
                   {"beta", n.Float("beta")},
                   {"bias", n.Float("bias")}}));
}

void LpNormalization(NodeImport& n) {
  const ValueId x = n.In(0);
  const int64_t p = n.Int("p"), axis = n.Axis(n.Int("axis"), n.Rank(x));
  if (p != 1 && p != 2) return n.Unsupported(absl::StrCat("p = ", p));
  const ValueId norm = n.Emit(p == 1 ? OpKind::kReduceL1 : OpKind::kReduceL2, {x},
                              {{"axes", Shape{axis}}, {"keepdims", int64_t{1}}});
  // Where the norm is zero, the result is defined as zero, and not as 0 / 0.
  const ValueId zero = n.ScalarLike(0, x), nothing = n.Emit(OpKind::kEqual, {norm, zero});
  n.Set(0, n.Emit(OpKind::kWhere, {nothing, zero, n.Emit(OpKind::kDiv, {x, norm})}));
}

// Before opset 13, the input counts as a matrix that is split at `axis`, so the operator works over
// `axis` and all later dimensions.
void Softmax(NodeImport& n) {
  const std::string& type = n.proto().op_type();
  const ValueId x = n.In(0);
  const int rank = n.Rank(x);
  Shape axes;
  if (n.opset() >= 13) {
    axes = {n.Axis(n.Int("axis"), rank)};
  } else {
    for (int64_t a = n.Axis(n.Int("axis"), rank); a < rank; ++a) axes.push_back(a);
  }
  const OpKind kind = type == "Softmax"      ? OpKind::kSoftmax
                      : type == "LogSoftmax" ? OpKind::kLogSoftmax
                                             : OpKind::kHardmax;
  n.Set(0, n.Emit(kind, {x}, {{"axes", axes}}));
}

}  // namespace

ValueId ConvOf(NodeImport& n, ValueId x, ValueId w) {
  const OpKind kind = OfRank(n, kConvolutions, x);
  CheckKernelShape(n, Spatial(n.ShapeOf(w)));
  Attrs attrs = WindowAttrs(n, Spatial(n.ShapeOf(x)), Spatial(n.ShapeOf(w)));
  attrs["groups"] = n.Int("group");
  return WithBias(n, kind, x, w, std::move(attrs));
}

ValueId AveragePoolOf(NodeImport& n, ValueId x) {
  Attrs attrs = PoolAttrs(n, x);
  attrs["count_include_pad"] = n.Int("count_include_pad");
  return n.Emit(OpKind::kAvgPool, {x}, attrs);
}

ValueId GemmOf(NodeImport& n) {
  n.Ignore({"broadcast"});  // before opset 7: the bias always may be
  ValueId a = n.In(0), b = n.In(1);
  if (n.ok() && (n.Rank(a) != 2 || n.Rank(b) != 2)) n.Fail("needs matrices");
  if (n.Int("transA") != 0) a = n.Transpose(a, {1, 0});
  if (n.Int("transB") != 0) b = n.Transpose(b, {1, 0});
  const double alpha = n.Float("alpha"), beta = n.Float("beta");
  const ir::DType dtype = n.Type(a).dtype;
  // Fractions of integers are computed in doubles, and the result is truncated.
  const bool fractions = alpha != std::floor(alpha) || (n.Has(2) && beta != std::floor(beta));
  const bool widen = n.ok() && !ir::IsFloat(dtype) && fractions;
  const auto widened = [&](ValueId v) { return widen ? n.Cast(v, ir::DType::kF64) : v; };
  Attrs attrs;
  if (ir::IsHalf(dtype) && (alpha != 1 || (n.Has(2) && beta != 0))) attrs[kSingle] = int64_t{1};
  ValueId y = widened(n.Emit(OpKind::kMatmul, {a, b}, attrs));
  if (alpha != 1) y = n.Emit(OpKind::kMul, {y, n.ScalarLike(alpha, y)});
  if (n.Has(2) && beta != 0) {
    ValueId c = widened(Single(n, n.In(2)));
    if (beta != 1) c = n.Emit(OpKind::kMul, {c, n.ScalarLike(beta, c)});
    y = n.Emit(OpKind::kAdd, {y, c});
  }
  return n.Cast(y, dtype);
}

// The result lacks the dimension of a vector.
ValueId MatMulOf(NodeImport& n, ValueId a, ValueId b) {
  if (n.ok() && (n.Rank(a) == 0 || n.Rank(b) == 0)) n.Fail("scalars have no product of matrices");
  if (!n.ok()) return -1;
  const bool row = n.Rank(a) == 1, column = n.Rank(b) == 1;
  if (row) a = n.Reshape(a, {1, n.ShapeOf(a)[0]});
  if (column) b = n.Reshape(b, {n.ShapeOf(b)[0], 1});
  const ValueId y = n.Emit(OpKind::kMatmul, {a, b});
  if (!n.ok()) return -1;
  Shape shape = n.ShapeOf(y);
  if (column) shape.pop_back();
  if (row) shape.erase(shape.end() - (column ? 1 : 2));
  return n.Reshape(y, shape);
}

ValueId RmsNormalOf(NodeImport& n, ValueId x, const Shape& axes, double epsilon) {
  const ValueId square = n.Emit(OpKind::kReduceMean, {n.Emit(OpKind::kMul, {x, x})},
                                {{"axes", axes}, {"keepdims", int64_t{1}}});
  return n.Emit(OpKind::kMul, {x, InverseDeviation(n, square, epsilon)});
}

void AddNetworkTranslations(TranslationTable& table) {
  constexpr const char* kSpatial = "more than 3 spatial dimensions";
  table["Conv"] = {Conv, kSpatial};
  table["ConvTranspose"] = {ConvTranspose, kSpatial};
  table["MaxPool"] = {Pool, kSpatial};
  for (const char* name : {"AveragePool", "LpPool"}) table[name] = {Pool, kSpatial};
  for (const char* name : {"GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"})
    table[name] = GlobalPool;
  table["Gemm"] = Gemm;
  table["MatMul"] = MatMul;
  table["Einsum"] = Einsum;
  table["BatchNormalization"] = {BatchNormalization,
                                 "training mode before opset 14; spatial=0 before opset 9"};
  table["InstanceNormalization"] = InstanceNormalization;
  table["LayerNormalization"] = LayerNormalization;
  // ONNX Runtime has the second in the standard's domain.
  for (const char* name : {"RMSNormalization", "SimplifiedLayerNormalization"})
    table[name] = RmsNormalization;
  table["GroupNormalization"] = GroupNormalization;
  table["MeanVarianceNormalization"] = MeanVarianceNormalization;
  table["LRN"] = Lrn;
  table["LpNormalization"] = LpNormalization;
  for (const char* name : {"Softmax", "LogSoftmax", "Hardmax"}) table[name] = Softmax;
}

}  // namespace heddle::graph
