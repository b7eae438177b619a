// Translation of the operators of transformers: attention, linear attention, rotary embedding, and
// updates of caches. 16-bit floats are computed in f32.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/sum_type.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/operators/formulas.h"
#include "compiler/onnx/precision.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using ir::DType;

// ---- Attention ----

class AttentionImport {
 public:
  explicit AttentionImport(NodeImport& n) : n_(n) {}

  void Run() {
    flat_ = n_.Rank(n_.In(0)) == 3;
    q_ = Heads(0, "q_num_heads");
    k_ = WithPast(Heads(1, "kv_num_heads"), 4);
    v_ = WithPast(Heads(2, "kv_num_heads"), 5);
    if (!n_.ok() || !CheckShapes()) return;
    type_ = n_.Type(q_).dtype;
    const double head = static_cast<double>(n_.ShapeOf(q_)[3]);
    const bool scaled = n_.HasAttr("scale");
    const double scale = scaled ? n_.Float("scale") : 1 / std::sqrt(head);
    const int64_t mode = n_.Int("qk_matmul_output_mode");
    if (mode < 0 || mode > 3) return n_.Fail(absl::StrCat("has no output mode ", mode));
    ValueId s = GroupedProduct(n_, q_, n_.Transpose(k_, {0, 1, 3, 2}));
    if (scale != 1) s = n_.Emit(OpKind::kMul, {s, n_.ScalarLike(scale, s)});
    if (mode == 0) GiveOut(s);
    s = Capped(n_, s, n_.Float("softcap"));
    if (mode == 1) GiveOut(s);
    s = Masked(s);
    if (mode == 2) GiveOut(s);
    s = Softmax(s);
    if (mode == 3) GiveOut(s);
    Finish(s);
  }

 private:
  // Operand i as [batch, heads, sequence, size].
  ValueId Heads(int i, const char* count) {
    const ValueId x = n_.In(i);
    if (!n_.ok()) return -1;
    if (n_.Rank(x) != (flat_ ? 3 : 4)) {
      n_.Fail("needs operands of rank 3, or all of rank 4");
      return -1;
    }
    const int64_t heads = n_.Int(count);
    if (!flat_) return x;
    return SplitHeads(n_, x, heads, count);
  }

  ValueId WithPast(ValueId x, int i) {
    if (!n_.Has(i)) return x;
    const ValueId past = n_.In(i);
    past_ = n_.Rank(past) == 4 ? n_.ShapeOf(past)[2] : 0;
    return Concat(n_, {past, x}, 2);
  }

  bool CheckShapes() {
    const Shape &q = n_.ShapeOf(q_), &k = n_.ShapeOf(k_), &v = n_.ShapeOf(v_);
    if (n_.Has(4) != n_.Has(5)) n_.Fail("needs past_key and past_value, or none of them");
    if (n_.Has(4) && n_.Has(6)) n_.Fail("takes past_key or nonpad_kv_seqlen, not both");
    if (q[0] != k[0] || q[0] != v[0] || q[3] != k[3] || k[1] != v[1] || k[2] != v[2] ||
        q[1] % k[1] != 0) {
      n_.Fail(absl::StrCat("cannot attend with queries ", ShapeText(q), ", keys ", ShapeText(k),
                           " and values ", ShapeText(v)));
    }
    return n_.ok();
  }

  void GiveOut(ValueId s) {
    if (n_.Wants(3)) n_.Set(3, n_.Cast(s, type_));
  }

  // The keys that each query may attend, or -1 for all.
  ValueId Allowed(ValueId s) {
    if (!n_.ok()) return -1;
    const Shape shape = n_.ShapeOf(s);
    ValueId allowed = -1;
    const auto allow = [&](ValueId more) {
      allowed = allowed < 0 ? more : n_.Emit(OpKind::kAnd, {allowed, more});
      may_be_empty_ |= offset_is_data_;
    };
    const bool causal = n_.Int("is_causal") != 0;
    const int64_t left = n_.Int("left_window_size", -1), right = n_.Int("right_window_size", -1);
    const bool positions = causal || left >= 0 || right >= 0;
    const ValueId keys = positions || n_.Has(6) ? Numbers(n_, shape[3], {shape[3]}) : -1;
    if (n_.Has(6)) {
      const ValueId known = n_.Reshape(n_.In(6), {shape[0], 1, 1, 1});
      offset_is_data_ = true;
      allow(n_.Emit(OpKind::kLess, {keys, known}));
    }
    if (!positions) return allowed;
    ValueId at = Numbers(n_, shape[2], {shape[2], 1});  // of the queries
    if (n_.Has(6)) {
      const ValueId known = n_.Reshape(n_.In(6), {shape[0], 1, 1, 1});
      at = Plus(n_.Emit(OpKind::kAdd, {at, known}), -shape[2]);
    } else {
      at = Plus(at, past_);
    }
    may_be_empty_ |= left >= 0;  // all keys may be too far behind
    if (causal) allow(n_.Emit(OpKind::kLessEqual, {keys, at}));
    if (left >= 0) allow(n_.Emit(OpKind::kLessEqual, {Plus(at, -left), keys}));
    if (right >= 0) allow(n_.Emit(OpKind::kLessEqual, {keys, Plus(at, right)}));
    return allowed;
  }

  ValueId Plus(ValueId v, int64_t by) {
    return by == 0 ? v : n_.Emit(OpKind::kAdd, {v, n_.ScalarLike(static_cast<double>(by), v)});
  }

  ValueId Masked(ValueId s) {
    ValueId allowed = Allowed(s);
    if (n_.Has(3)) {
      ValueId mask = n_.In(3);
      const bool is_bool = n_.Type(mask).dtype == DType::kBool;
      may_be_empty_ |= is_bool || MayHide(mask);
      mask = Lengthened(mask, s, is_bool ? 0 : -HUGE_VAL);
      if (is_bool) {
        allowed = allowed < 0 ? mask : n_.Emit(OpKind::kAnd, {allowed, mask});
      } else {
        s = n_.Emit(OpKind::kAdd, {s, n_.Cast(mask, n_.Type(s).dtype)});
      }
    }
    return allowed < 0 ? s : n_.Emit(OpKind::kWhere, {allowed, s, n_.ScalarLike(-HUGE_VAL, s)});
  }

  // Whether a mask of floats may hold minus infinity.
  bool MayHide(ValueId mask) const {
    const TensorData* known = n_.ConstantData(mask);
    if (known == nullptr) return true;
    const std::vector<double> values = ToDoubles(*known);
    return std::count(values.begin(), values.end(), -HUGE_VAL) != 0;
  }

  // A mask may end before the last keys, which then are masked. Since opset 24, that goes for masks
  // of one key, too.
  ValueId Lengthened(ValueId mask, ValueId s, double value) {
    const int rank = n_.Rank(mask);
    if (!n_.ok() || rank == 0) return mask;
    const int64_t missing = n_.ShapeOf(s)[3] - n_.ShapeOf(mask).back();
    if (missing <= 0 || (n_.opset() < 24 && n_.ShapeOf(mask).back() == 1)) return mask;
    Shape end(static_cast<size_t>(rank), 0);
    end.back() = missing;
    const bool is_bool = n_.Type(mask).dtype == DType::kBool;
    const ValueId padded = n_.Emit(OpKind::kPad, {is_bool ? n_.Cast(mask, DType::kI32) : mask},
                                   {{"begin", Shape(static_cast<size_t>(rank), 0)},
                                    {"end", end},
                                    {"mode", std::string("constant")},
                                    {"value", value}});
    return is_bool ? n_.Cast(padded, DType::kBool) : padded;
  }

  // A query that attends no key gets zeros.
  ValueId Softmax(ValueId s) {
    const DType computed = n_.Type(s).dtype;
    const int64_t precision = n_.Int("softmax_precision", onnx::TensorProto::FLOAT);
    if (const auto named = FromOnnxType(static_cast<int>(precision));
        precision < 0 || precision > 100 || !named.ok() || !ir::IsFloat(*named)) {
      n_.Fail(absl::StrCat("cannot compute a softmax in type ", precision));
    }
    if (precision == onnx::TensorProto::DOUBLE) s = n_.Cast(s, DType::kF64);
    const Attrs last{{"axes", Shape{3}}};
    ValueId p = n_.Emit(OpKind::kSoftmax, {s}, last);
    if (may_be_empty_) {
      const ValueId most =
          n_.Emit(OpKind::kReduceMax, {s}, {{"axes", Shape{3}}, {"keepdims", int64_t{1}}});
      const ValueId none = n_.Emit(OpKind::kEqual, {most, n_.ScalarLike(-HUGE_VAL, most)});
      p = n_.Emit(OpKind::kWhere, {none, n_.ScalarLike(0, p), p});
    }
    return n_.Cast(p, computed);
  }

  void Finish(ValueId p) {
    if (!n_.ok()) return;
    ValueId y = n_.Cast(GroupedProduct(n_, n_.Cast(p, n_.Type(v_).dtype), v_), type_);
    if (flat_) y = MergeHeads(n_, y);
    n_.Set(0, y);
    n_.Set(1, k_);
    n_.Set(2, v_);
  }

  NodeImport& n_;
  bool flat_ = false;
  ValueId q_ = -1, k_ = -1, v_ = -1;
  DType type_ = DType::kF32;
  int64_t past_ = 0;
  bool offset_is_data_ = false;  // how many keys are valid is an operand
  bool may_be_empty_ = false;    // whether a query may attend no key
};

void Attention(NodeImport& n) {
  n.Ignore({"q_num_heads", "kv_num_heads"});  // of operands of rank 3
  AttentionImport(n).Run();
}

// ---- Rotary embedding ----

void RotaryEmbedding(NodeImport& n) {
  const ValueId given = n.In(0);
  const DType dtype = n.Type(given).dtype;
  ValueId x = Single(n, given), cosines = Single(n, n.In(1)), sines = Single(n, n.In(2));
  const int64_t heads = n.Int("num_heads");
  const bool interleaved = n.Int("interleaved") != 0;
  if (n.Has(3)) {
    cosines = n.Emit(OpKind::kGather, {cosines, n.In(3)}, {{"axis", int64_t{0}}});
    sines = n.Emit(OpKind::kGather, {sines, n.In(3)}, {{"axis", int64_t{0}}});
  }
  if (!n.ok()) return;
  const bool flat = n.Rank(x) == 3;
  if (!flat && n.Rank(x) != 4) return n.Fail("needs an input of rank 3 or 4");
  if (flat) {
    const Shape shape = n.ShapeOf(x);
    if (heads < 1 || shape[2] % heads != 0)
      return n.Fail(absl::StrCat("num_heads is ", heads, ", which does not divide ", shape[2]));
    x = n.Reshape(x, {shape[0], shape[1], heads, shape[2] / heads});
  }
  if (!n.ok()) return;
  const Shape shape = n.ShapeOf(x);
  const int64_t size = shape[3], part = n.Int("rotary_embedding_dim");
  const int64_t rotated = part == 0 ? size : part, half = rotated / 2;
  if (rotated % 2 != 0 || rotated < 2 || rotated > size)
    return n.Fail(absl::StrCat("cannot rotate ", rotated, " of ", size, " elements"));
  const int64_t steps = flat ? shape[1] : shape[2];
  for (ValueId* cache : {&cosines, &sines}) {
    if (n.ShapeOf(*cache) != Shape{shape[0], steps, half})
      return n.Fail(absl::StrCat("needs caches of ", ShapeText({shape[0], steps, half}), ", not ",
                                 ShapeText(n.ShapeOf(*cache))));
    *cache =
        n.Reshape(*cache, flat ? Shape{shape[0], steps, 1, half} : Shape{shape[0], 1, steps, half});
  }
  const ValueId y = Rotated(n, x, cosines, sines, interleaved);
  if (n.ok()) n.Set(0, n.Reshape(n.Cast(y, dtype), n.ShapeOf(given)));
}

// ---- Linear attention ----

// The graph has nodes for each step of the sequence, of which kLongestSequence are allowed.
void LinearAttention(NodeImport& n) {
  n.Ignore({"chunk_size"});  // how to compute, not what
  const ValueId query = n.In(0);
  const DType dtype = n.Type(query).dtype;
  const std::string rule = n.OneOf("update_rule", {"gated_delta", "linear", "gated", "delta"});
  const bool decays = rule == "gated" || rule == "gated_delta";
  const bool corrects = rule == "delta" || rule == "gated_delta";
  const int64_t q_heads = n.Int("q_num_heads"), heads = n.Int("kv_num_heads");
  const ValueId key = n.In(1), value = n.In(2);
  if (!decays) n.IgnoreOperand(4);
  if (!corrects) n.IgnoreOperand(5);
  if (decays && !n.Has(4)) return n.Fail("needs the operand 'decay'");
  if (corrects && !n.Has(5)) return n.Fail("needs the operand 'beta'");
  if (!n.ok()) return;
  if (n.Rank(query) != 3 || n.Rank(key) != 3 || n.Rank(value) != 3)
    return n.Fail("needs operands of rank 3");
  const int64_t batch = n.ShapeOf(query)[0], length = n.ShapeOf(query)[1];
  if (heads < 1 || q_heads < 1 || q_heads % heads != 0 || n.ShapeOf(query)[2] % q_heads != 0 ||
      n.ShapeOf(key)[2] % heads != 0 || n.ShapeOf(value)[2] % heads != 0)
    return n.Fail("the numbers of heads do not fit");
  if (length > kLongestSequence)
    return n.Unsupported(
        absl::StrCat("a sequence of ", length, " steps (at most ", kLongestSequence, ")"));
  const int64_t dk = n.ShapeOf(key)[2] / heads, dv = n.ShapeOf(value)[2] / heads;
  const double given = n.Float("scale");
  const double scale = given == 0 ? 1 / std::sqrt(static_cast<double>(dk)) : given;
  // Step t of an operand, as [batch, heads, rows, columns].
  const auto step = [&](ValueId v, int64_t t, int64_t rows, int64_t columns) {
    const int64_t own = n.ok() && n.ShapeOf(v)[2] == 1 ? 1 : heads;
    return n.Reshape(Single(n, At(n, v, 1, t)), {batch, own, rows, columns});
  };
  const auto mul = [&](ValueId a, ValueId b) { return n.Emit(OpKind::kMul, {a, b}); };
  const DType state_type = n.Has(3) ? n.Type(n.In(3)).dtype : dtype;
  ValueId state = n.Has(3) ? Single(n, n.In(3)) : n.Fill({DType::kF32, {batch, heads, dk, dv}}, 0);
  if (n.ok() && n.ShapeOf(state) != Shape{batch, heads, dk, dv})
    return n.Fail(absl::StrCat("the state is ", ShapeText(n.ShapeOf(state)), ", needs ",
                               ShapeText({batch, heads, dk, dv})));
  std::vector<ValueId> outputs;
  for (int64_t t = 0; t < length && n.ok(); ++t) {
    const ValueId k = step(key, t, dk, 1);
    ValueId v = step(value, t, 1, dv);
    if (decays) {
      const ValueId decay = n.In(4);
      if (!n.ok() || n.Rank(decay) != 3) return n.Fail("needs a decay of rank 3");
      const bool per_key = n.ShapeOf(decay)[2] != heads || dk == 1;
      state = mul(n.Emit(OpKind::kExp, {step(decay, t, per_key ? dk : 1, 1)}), state);
    }
    if (corrects) {
      const ValueId known = n.Emit(OpKind::kMatmul, {n.Transpose(k, {0, 1, 3, 2}), state});
      v = n.Emit(OpKind::kSub, {v, known});
      v = mul(v, step(n.In(5), t, 1, 1));
    }
    state = n.Emit(OpKind::kAdd, {state, mul(k, v)});
    const ValueId q = step(query, t, q_heads / heads, dk);
    ValueId o = n.Emit(OpKind::kMatmul, {q, state});
    if (scale != 1) o = mul(o, n.ScalarLike(scale, o));
    outputs.push_back(n.Reshape(o, {batch, 1, q_heads * dv}));
  }
  n.Set(0, n.Cast(Concat(n, outputs, 1), dtype));
  n.Set(1, n.Cast(state, state_type));
}

void CausalConvWithState(NodeImport& n) {
  const ValueId x = n.In(0), w = n.In(1);
  const std::string activation = n.OneOf("activation", {"none", "silu", "swish"});
  if (!n.ok()) return;
  const Shape shape = n.ShapeOf(x), weights = n.ShapeOf(w);
  if (shape.size() != 3 || weights.size() != 3 || weights[0] != shape[1] || weights[1] != 1)
    return n.Fail("needs an input [batch, channels, length] and weights [channels, 1, extent]");
  const int64_t before = weights[2] - 1;
  const DType dtype = n.Type(x).dtype;
  ValueId padded = x;
  if (before > 0) {
    const ValueId past =
        n.Has(3) ? n.Cast(n.In(3), dtype) : n.Fill({dtype, {shape[0], shape[1], before}}, 0);
    padded = Concat(n, {past, x}, 2);
  } else {
    n.IgnoreOperand(3);
  }
  Attrs attrs{{"groups", shape[1]}};
  if (ir::IsHalf(dtype)) attrs[kSingle] = int64_t{1};
  ValueId y = n.Emit(OpKind::kConv1d, {padded, w}, attrs);
  if (n.Has(2)) y = n.Emit(OpKind::kAdd, {y, n.AlongAxis(Single(n, n.In(2)), 1, 3)});
  if (activation != "none") y = n.Emit(OpKind::kMul, {y, n.Emit(OpKind::kSigmoid, {y})});
  n.Set(0, n.Cast(y, dtype));
  if (!n.Wants(1)) return;
  const DType state = n.Has(3) ? n.Type(n.In(3)).dtype : dtype;
  n.Set(1, n.Cast(Part(n, padded, 2, shape[2], shape[2] + before), state));
}

// ---- Caches ----

void TensorScatter(NodeImport& n) {
  const ValueId cache = n.In(0), update = n.In(1);
  const int64_t axis = n.Axis(n.Int("axis"), n.Rank(cache));
  const bool circular = n.OneOf("mode", {"linear", "circular"}) == "circular";
  if (!n.ok()) return;
  if (axis == 0 || n.Rank(cache) == 0) return n.Fail("cannot write along the first axis");
  const ValueId first = n.Has(2) ? n.In(2) : n.Fill({DType::kI64, {n.ShapeOf(cache)[0]}}, 0);
  n.Set(0, Written(n, cache, update, first, axis, circular));
}

}  // namespace

ValueId Numbers(NodeImport& n, int64_t count, const Shape& shape) {
  if (!n.CanMake({DType::kI64, shape})) return -1;
  Shape values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return n.Reshape(n.Constant(FromInts(values)), shape);
}

ValueId SplitHeads(NodeImport& n, ValueId x, int64_t heads, const char* count) {
  if (!n.ok()) return -1;
  const Shape shape = n.ShapeOf(x);
  if (shape.size() != 3) {
    n.Fail(absl::StrCat("needs an operand of rank 3, not ", ShapeText(shape)));
    return -1;
  }
  if (heads < 1 || shape[2] % heads != 0) {
    n.Fail(absl::StrCat(count, " is ", heads, ", which does not divide ", shape[2]));
    return -1;
  }
  return n.Transpose(n.Reshape(x, {shape[0], shape[1], heads, shape[2] / heads}), {0, 2, 1, 3});
}

ValueId MergeHeads(NodeImport& n, ValueId x) {
  if (!n.ok()) return -1;
  const Shape shape = n.ShapeOf(x);
  return n.Reshape(n.Transpose(x, {0, 2, 1, 3}), {shape[0], shape[2], shape[1] * shape[3]});
}

ValueId GroupedProduct(NodeImport& n, ValueId a, ValueId b) {
  if (!n.ok()) return -1;
  const Shape x = n.ShapeOf(a), y = n.ShapeOf(b);
  Attrs attrs;
  if (ir::IsHalf(n.Type(a).dtype)) attrs[kSingle] = int64_t{1};
  const ValueId grouped = n.Reshape(a, {x[0], y[1], x[1] / y[1] * x[2], x[3]});
  return n.Reshape(n.Emit(OpKind::kMatmul, {grouped, b}, attrs), {x[0], x[1], x[2], y[3]});
}

ValueId Capped(NodeImport& n, ValueId s, double cap) {
  if (cap == 0) return s;
  const ValueId by = n.ScalarLike(cap, s);
  return n.Emit(OpKind::kMul, {n.Emit(OpKind::kTanh, {n.Emit(OpKind::kDiv, {s, by})}), by});
}

ValueId Rotated(NodeImport& n, ValueId x, ValueId cosines, ValueId sines, bool neighbours) {
  if (!n.ok()) return -1;
  const Shape shape = n.ShapeOf(x);
  const int64_t size = shape[3], half = n.ShapeOf(cosines).back(), rotated = 2 * half;
  const ValueId turned = Part(n, x, 3, 0, rotated);
  ValueId a, b;
  if (neighbours) {
    const ValueId pairs = n.Reshape(turned, {shape[0], shape[1], shape[2], half, 2});
    a = At(n, pairs, 4, 0), b = At(n, pairs, 4, 1);
  } else {
    a = Part(n, turned, 3, 0, half), b = Part(n, turned, 3, half, rotated);
  }
  const auto mul = [&](ValueId u, ValueId v) { return n.Emit(OpKind::kMul, {u, v}); };
  const ValueId real = n.Emit(OpKind::kSub, {mul(cosines, a), mul(sines, b)});
  const ValueId imaginary = n.Emit(OpKind::kAdd, {mul(sines, a), mul(cosines, b)});
  ValueId y;
  if (neighbours) {
    const Shape pair{shape[0], shape[1], shape[2], half, 1};
    y = n.Reshape(Concat(n, {n.Reshape(real, pair), n.Reshape(imaginary, pair)}, 4),
                  {shape[0], shape[1], shape[2], rotated});
  } else {
    y = Concat(n, {real, imaginary}, 3);
  }
  return rotated < size ? Concat(n, {y, Part(n, x, 3, rotated, size)}, 3) : y;
}

ValueId Written(NodeImport& n, ValueId cache, ValueId update, ValueId first, int64_t axis,
                bool circular) {
  if (!n.ok()) return -1;
  const Shape shape = n.ShapeOf(cache);
  Shape fits = n.ShapeOf(update);
  const int64_t most = shape[axis],
                length = static_cast<int64_t>(fits.size()) > axis ? fits[axis] : 0;
  if (length > 0) fits[axis] = most;
  if (fits != shape || length < 1 || length > most) {
    n.Fail(absl::StrCat("cannot write ", ShapeText(n.ShapeOf(update)), " into ", ShapeText(shape),
                        " along axis ", axis));
    return -1;
  }
  const int64_t batch = shape[0];
  if (n.ShapeOf(first) != Shape{batch}) {
    n.Fail("needs one index for each sample");
    return -1;
  }
  // Which element of the update belongs to each place of the cache.
  ValueId from = n.Emit(OpKind::kSub, {Numbers(n, most, {1, most}), n.Reshape(first, {batch, 1})});
  if (circular)
    from = n.Emit(OpKind::kFloorMod, {from, n.ScalarLike(static_cast<double>(most), from)});
  const ValueId zero = n.ScalarLike(0, from);
  const ValueId written =
      n.Emit(OpKind::kAnd,
             {n.Emit(OpKind::kLessEqual, {zero, from}),
              n.Emit(OpKind::kLess, {from, n.ScalarLike(static_cast<double>(length), from)})});
  const ValueId index = n.Emit(OpKind::kClip, {from}, {{"min", int64_t{0}}, {"max", length - 1}});
  // The axis is brought next to the batch.
  Shape there(shape.size()), back(shape.size());
  std::iota(there.begin(), there.end(), 0);
  there.erase(there.begin() + axis);
  there.insert(there.begin() + 1, axis);
  for (size_t i = 0; i < there.size(); ++i) back[there[i]] = static_cast<int64_t>(i);
  const ValueId picked =
      n.Emit(OpKind::kGatherNd, {n.Transpose(update, there), n.Reshape(index, {batch, most, 1})},
             {{"batch_dims", int64_t{1}}});
  Shape along(shape.size(), 1);
  along[0] = batch;
  along[axis] = most;
  if (!n.ok()) return -1;
  return n.Emit(OpKind::kWhere, {n.Reshape(written, along), n.Transpose(picked, back), cache});
}

void AddAttentionTranslations(TranslationTable& table) {
  table["Attention"] = Attention;
  table["RotaryEmbedding"] = RotaryEmbedding;
  table["LinearAttention"] = {LinearAttention, "sequences of more than 8192 steps"};
  table["CausalConvWithState"] = CausalConvWithState;
  table["TensorScatter"] = TensorScatter;
}

}  // namespace heddle::graph
