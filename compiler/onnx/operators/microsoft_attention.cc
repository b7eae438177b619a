// Translation of the attention of ONNX Runtime (com.microsoft). 16-bit floats are computed in f32.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/operators/formulas.h"
#include "compiler/onnx/precision.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using ir::DType;

// Attributes and operands that change how the result is stored or computed, which only other devices
// have.
void RefuseIfSet(NodeImport& n, std::initializer_list<const char*> attributes) {
  for (const char* name : attributes) {
    if (n.Int(name) != 0) n.Unsupported(absl::StrCat("the attribute '", name, "'"));
  }
}

ValueId PlusInteger(NodeImport& n, ValueId v, int64_t by) {
  return by == 0 ? v : n.Emit(OpKind::kAdd, {v, n.ScalarLike(static_cast<double>(by), v)});
}

// scale * q k^T, where q, k are [batch, heads, sequence, size] and k may have fewer heads.
ValueId Scores(NodeImport& n, ValueId q, ValueId k) {
  if (!n.ok()) return -1;
  const Shape a = n.ShapeOf(q), b = n.ShapeOf(k);
  if (a[0] != b[0] || a[3] != b[3] || a[1] % b[1] != 0) {
    n.Fail(absl::StrCat("cannot attend with queries ", ShapeText(a), " and keys ", ShapeText(b)));
    return -1;
  }
  const double given = n.Float("scale");
  const double scale = given == 0 ? 1 / std::sqrt(static_cast<double>(a[3])) : given;
  const ValueId s = GroupedProduct(n, Single(n, q), n.Transpose(Single(n, k), {0, 1, 3, 2}));
  return n.Emit(OpKind::kMul, {s, n.ScalarLike(scale, s)});
}

// The scores plus an operand that broadcasts to them, if it is there.
ValueId Biased(NodeImport& n, ValueId s, int bias) {
  if (!n.Has(bias)) return s;
  const ValueId sum = n.Emit(OpKind::kAdd, {s, Single(n, n.In(bias))});
  if (n.ok() && n.ShapeOf(sum) != n.ShapeOf(s))
    n.Fail(absl::StrCat("cannot add ", ShapeText(n.ShapeOf(n.In(bias))), " to scores ",
                        ShapeText(n.ShapeOf(s))));
  return sum;
}

// Adds mask_filter_value to the scores of keys that the mask hides. The mask has a flag for each key,
// or for each pair of a query and a key, or says where the keys of a sample end (and then, where
// they begin).
ValueId Masked(NodeImport& n, ValueId s, int operand) {
  const bool given = n.HasAttr("mask_filter_value");
  const double filter = given ? n.Float("mask_filter_value") : -10000;
  if (!n.Has(operand) || !n.ok()) return s;
  const int64_t batch = n.ShapeOf(s)[0], queries = n.ShapeOf(s)[2], keys = n.ShapeOf(s)[3];
  const ValueId mask = n.In(operand);
  const Shape shape = n.ShapeOf(mask);
  ValueId hidden;
  if (shape == Shape{batch} || shape == Shape{2 * batch}) {
    const ValueId places = n.Cast(Numbers(n, keys, {keys}), n.Type(mask).dtype);
    const auto bound = [&](int64_t from) {
      return n.Reshape(Part(n, mask, 0, from, from + batch), {batch, 1, 1, 1});
    };
    hidden = n.Emit(OpKind::kLessEqual, {bound(0), places});
    if (shape[0] != batch)
      hidden = n.Emit(OpKind::kOr, {hidden, n.Emit(OpKind::kLess, {places, bound(batch)})});
  } else if (shape == Shape{batch, keys} || shape == Shape{batch, queries, keys}) {
    const int64_t rows = shape.size() == 2 ? 1 : queries;
    hidden = n.Emit(OpKind::kLessEqual,
                    {n.Reshape(mask, {batch, 1, rows, keys}), n.ScalarLike(0, mask)});
  } else {
    n.Unsupported(
        absl::StrCat("a mask ", ShapeText(shape), " for scores ", ShapeText(n.ShapeOf(s))));
    return -1;
  }
  return n.Emit(OpKind::kAdd,
                {s, n.Emit(OpKind::kWhere, {hidden, n.ScalarLike(filter, s), n.ScalarLike(0, s)})});
}

// Hides keys that are not `allowed`. A query always attends its own key, so no row is hidden.
ValueId Allowed(NodeImport& n, ValueId s, ValueId allowed) {
  constexpr double kLowest = std::numeric_limits<float>::lowest();
  return n.Emit(OpKind::kWhere, {allowed, s, n.ScalarLike(kLowest, s)});
}

// Hides the keys after each query. `past` keys are before the first one.
ValueId Causal(NodeImport& n, ValueId s, int64_t past) {
  if (!n.ok()) return -1;
  const int64_t queries = n.ShapeOf(s)[2], keys = n.ShapeOf(s)[3];
  if (past + queries < keys) n.Unsupported("unidirectional, with keys beyond those of the queries");
  if (past + 1 >= keys) return s;
  const ValueId at = PlusInteger(n, Numbers(n, queries, {queries, 1}), past);
  return Allowed(n, s, n.Emit(OpKind::kLessEqual, {Numbers(n, keys, {keys}), at}));
}

// Sets output 0 to the values by the weights of the scores, as [batch, sequence, heads * size]. A
// sink [1, heads, 1, 1] is the score of one more key, which has no value.
void SetAttended(NodeImport& n, ValueId s, ValueId v, DType dtype, ValueId sink = -1) {
  if (n.ok() && (n.ShapeOf(v)[0] != n.ShapeOf(s)[0] || n.ShapeOf(v)[2] != n.ShapeOf(s)[3] ||
                 n.ShapeOf(s)[1] % n.ShapeOf(v)[1] != 0))
    n.Fail(absl::StrCat("cannot weight values ", ShapeText(n.ShapeOf(v)), " by scores ",
                        ShapeText(n.ShapeOf(s))));
  if (!n.ok()) return;
  const int64_t keys = n.ShapeOf(s)[3];
  if (sink >= 0) {
    Shape column = n.ShapeOf(s);
    column[3] = 1;
    s = Concat(n, {s, n.Emit(OpKind::kExpand, {sink}, {{"shape", column}})}, 3);
  }
  const ValueId all = n.Emit(OpKind::kSoftmax, {s}, {{"axes", Shape{3}}});
  const ValueId weights = Part(n, all, 3, 0, keys);
  const ValueId y = MergeHeads(n, GroupedProduct(n, weights, Single(n, v)));
  n.Set(0, n.Cast(y, dtype));
}

ValueId WithPast(NodeImport& n, ValueId x, ValueId past) { return Concat(n, {past, x}, 2); }

// ---- Attention, QAttention ----

// From `all` [batch, sequence, queries, keys and values] of the heads. `past` is an operand with keys
// and values before these, [2, batch, heads, length, size].
void FromProduct(NodeImport& n, ValueId all, const Shape& sizes, int mask, int past, int bias,
                 DType dtype) {
  RefuseIfSet(n, {"do_rotary", "past_present_share_buffer"});
  n.Ignore({"rotary_embedding_dim"});
  const int64_t heads = n.Int("num_heads");
  int64_t begin = 0;
  ValueId parts[3];
  for (int i = 0; i < 3; ++i) {
    parts[i] = SplitHeads(n, Part(n, all, 2, begin, begin + sizes[i]), heads, "num_heads");
    begin += sizes[i];
  }
  auto [q, k, v] = parts;
  if (n.Has(past)) {
    const ValueId before = n.In(past);
    if (n.ok() && (n.Rank(before) != 5 || n.ShapeOf(before)[0] != 2))
      return n.Fail("needs a past [2, batch, heads, length, size]");
    k = WithPast(n, k, Single(n, At(n, before, 0, 0)));
    v = WithPast(n, v, Single(n, At(n, before, 0, 1)));
  }
  if (n.Wants(1)) {
    const auto row = [&](ValueId x) {
      Shape shape = n.ShapeOf(x);
      shape.insert(shape.begin(), 1);
      return n.Reshape(x, shape);
    };
    n.Set(1, n.Cast(Concat(n, {row(k), row(v)}, 0), dtype));
  }
  ValueId s = Masked(n, Scores(n, q, k), mask);
  if (bias >= 0) s = Biased(n, s, bias);
  if (n.Int("unidirectional") != 0)
    s = Causal(n, s, n.Has(past) && n.ok() ? n.ShapeOf(n.In(past))[3] : 0);
  SetAttended(n, s, v, dtype);
}

void MicrosoftAttention(NodeImport& n) {
  const ValueId x = n.In(0), weights = n.In(1);
  if (!n.ok()) return;
  if (n.Rank(x) != 3 || n.Rank(weights) != 2)
    return n.Fail("needs an input [batch, sequence, size] and a matrix of weights");
  const int64_t columns = n.ShapeOf(weights)[1];
  Shape sizes = n.Ints("qkv_hidden_sizes");
  if (sizes.empty()) sizes.assign(3, columns / 3);
  bool fits = sizes.size() == 3;
  int64_t sum = 0;
  for (const int64_t size : sizes) fits &= size > 0 && size <= columns, sum += fits ? size : 0;
  if (!fits || sum != columns)
    return n.Fail(
        absl::StrCat("cannot split ", columns, " columns of weights into ", ShapeText(sizes)));
  ValueId all = MatMulOf(n, Single(n, x), Single(n, weights));
  if (n.Has(2)) all = n.Emit(OpKind::kAdd, {all, Single(n, n.In(2))});
  FromProduct(n, all, sizes, 3, 4, 5, n.Type(x).dtype);
}

void QAttention(NodeImport& n) {
  const ValueId all = ScaledProduct(n, {0, 1, 3, 4, 6, 7, 2});
  if (!n.ok()) return;
  const int64_t columns = n.ShapeOf(all).back();
  if (n.Rank(all) != 3 || columns % 3 != 0)
    return n.Fail("needs an input [batch, sequence, size] and weights for three matrices");
  FromProduct(n, all, Shape(3, columns / 3), 5, 8, -1, n.Type(n.In(3)).dtype);
}

// ---- MultiHeadAttention ----

// Item i of [batch, sequence, heads, count, size], as [batch, heads, sequence, size].
ValueId PackedPart(NodeImport& n, ValueId packed, int64_t i) {
  return n.Transpose(At(n, packed, 3, i), {0, 2, 1, 3});
}

void MultiHeadAttention(NodeImport& n) {
  const ValueId query = n.In(0);
  const int64_t heads = n.Int("num_heads");
  if (!n.ok()) return;
  const DType dtype = n.Type(query).dtype;
  const auto packed = [&](ValueId x, int64_t count) {
    return n.Rank(x) == 5 && n.ShapeOf(x)[2] == heads && n.ShapeOf(x)[3] == count;
  };
  const auto split = [&](ValueId x) { return SplitHeads(n, x, heads, "num_heads"); };
  ValueId q = query, k = -1, v = -1;
  const bool apart = n.Has(1) && n.Has(2);
  if (!n.Has(1) && !n.Has(2)) {
    if (!packed(query, 3)) return n.Fail("needs keys and values, or a packed query");
    q = PackedPart(n, query, 0), k = PackedPart(n, query, 1), v = PackedPart(n, query, 2);
  } else if (!n.Has(2)) {
    if (!packed(n.In(1), 2)) return n.Fail("needs values, or packed keys");
    k = PackedPart(n, n.In(1), 0), v = PackedPart(n, n.In(1), 1);
  } else if (apart) {
    k = n.In(1), v = n.In(2);
  } else {
    return n.Fail("has values without keys");
  }
  if (!n.ok()) return;
  const bool computed = apart && n.Rank(k) == 4;  // keys and values that are split already
  if (n.Has(3)) {
    if (!apart) return n.Unsupported("a bias of packed operands");
    if (n.Rank(query) != 3) return n.Fail("needs a query of rank 3");
    const ValueId bias = n.In(3);
    const int64_t size = n.ShapeOf(query)[2], all = NumElements(n.Type(bias));
    if (n.Rank(bias) != 1 || all <= 2 * size) return n.Fail("the bias does not fit");
    const auto add = [&](ValueId x, int64_t begin, int64_t end) {
      return n.Emit(OpKind::kAdd, {x, Part(n, bias, 0, begin, end)});
    };
    q = add(q, 0, size);
    if (!computed) k = add(k, size, 2 * size), v = add(v, 2 * size, all);
  }
  if (n.Rank(q) != 4) q = split(q);
  if (apart && !computed) k = split(k), v = split(v);
  if (n.Has(6) != n.Has(7)) return n.Fail("needs past_key and past_value, or none of them");
  if (n.Has(6)) k = WithPast(n, k, n.In(6)), v = WithPast(n, v, n.In(7));
  n.Set(1, k);
  n.Set(2, v);
  ValueId s = Biased(n, Masked(n, Scores(n, q, k), 4), 5);
  if (n.Int("unidirectional") != 0)
    s = Causal(n, s, n.Has(6) && n.ok() ? n.ShapeOf(n.In(6))[2] : 0);
  SetAttended(n, s, v, dtype);
}

// ---- Rotary embedding ----

// The rows of the caches for these positions [batch or 1, steps], as [batch or 1, 1, steps, half].
ValueId CacheRows(NodeImport& n, int cache, ValueId positions) {
  const ValueId rows =
      n.Emit(OpKind::kGather, {Single(n, n.In(cache)), positions}, {{"axis", int64_t{0}}});
  if (!n.ok()) return -1;
  const Shape shape = n.ShapeOf(rows);
  if (shape.size() != 3) {
    n.Fail("needs caches of rank 2 and positions [batch, sequence]");
    return -1;
  }
  return n.Reshape(rows, {shape[0], 1, shape[1], shape[2]});
}

// x is [batch, heads, sequence, size]. The operands `cache` and `cache + 1` are cosines and sines.
ValueId TurnedByCaches(NodeImport& n, ValueId x, int cache, ValueId positions, bool neighbours) {
  const ValueId cosines = CacheRows(n, cache, positions),
                sines = CacheRows(n, cache + 1, positions);
  if (!n.ok()) return -1;
  if (n.ShapeOf(cosines) != n.ShapeOf(sines) || 2 * n.ShapeOf(cosines)[3] > n.ShapeOf(x)[3]) {
    n.Fail(absl::StrCat("cannot turn ", ShapeText(n.ShapeOf(x)), " with caches of ",
                        n.ShapeOf(cosines)[3], " and ", n.ShapeOf(sines)[3], " columns"));
    return -1;
  }
  return n.Cast(Rotated(n, Single(n, x), cosines, sines, neighbours), n.Type(x).dtype);
}

void MicrosoftRotaryEmbedding(NodeImport& n) {
  RefuseIfSet(n, {"is_packed_batching"});
  if (n.Float("scale", 1) != 1) n.Unsupported("the attribute 'scale'");
  ValueId x = n.In(0), positions = n.In(1);
  const ValueId cache = n.In(2);
  if (!n.ok()) return;
  const bool flat = n.Rank(x) == 3;
  if ((!flat && n.Rank(x) != 4) || n.Rank(cache) != 2)
    return n.Fail("needs an input of rank 3 or 4 and caches of rank 2");
  const int64_t part = n.Int("rotary_embedding_dim"), half = n.ShapeOf(cache)[1];
  int64_t heads = n.Int("num_heads");
  if (part != 0 && part != 2 * half) return n.Fail("the caches do not fit rotary_embedding_dim");
  if (flat) {
    if (part != 0 && heads == 0) return n.Fail("needs num_heads with rotary_embedding_dim");
    if (heads == 0) heads = n.ShapeOf(x)[2] / (2 * half);
    x = SplitHeads(n, x, heads, "num_heads");
  }
  if (!n.ok()) return;
  const int64_t steps = n.ShapeOf(x)[2];
  if (n.ShapeOf(positions) == Shape{1})
    positions = n.Emit(OpKind::kAdd, {Numbers(n, steps, {1, steps}), n.Reshape(positions, {1, 1})});
  const ValueId y = TurnedByCaches(n, x, 2, positions, n.Int("interleaved") != 0);
  n.Set(0, flat ? MergeHeads(n, y) : y);
}

// ---- GroupQueryAttention ----

// The keys and values of a sample lie in caches: `before` of them are in the past, the new ones
// follow. seqlens_k has the number of all, less one.
void GroupQueryAttention(NodeImport& n) {
  RefuseIfSet(n, {"kv_cache_bit_width"});
  const int64_t heads = n.Int("num_heads"), kv_heads = n.Int("kv_num_heads");
  const ValueId query = n.In(0), lengths = n.In(5);
  const Shape totals = n.ConstantInts(6);
  if (!n.ok()) return;
  if (n.Rank(query) != 3 || totals.size() != 1 || heads < 1 || kv_heads < 1)
    return n.Fail("needs a query [batch, sequence, size], numbers of heads and the total length");
  const int64_t batch = n.ShapeOf(query)[0], steps = n.ShapeOf(query)[1], total = totals[0];
  if (total < steps) return n.Fail(absl::StrCat("has ", steps, " queries for ", total, " keys"));
  if (NumElements(n.Type(lengths)) != batch) return n.Fail("needs a length for each sample");
  const DType dtype = n.Type(query).dtype;
  ValueId q, k, v;
  if (n.Has(1) && n.Has(2)) {
    q = SplitHeads(n, query, heads, "num_heads");
    k = SplitHeads(n, n.In(1), kv_heads, "kv_num_heads");
    v = SplitHeads(n, n.In(2), kv_heads, "kv_num_heads");
  } else {
    if (n.Has(1) || n.Has(2)) return n.Fail("needs keys and values, or none of them");
    const ValueId all = SplitHeads(n, query, heads + 2 * kv_heads, "num_heads + 2 * kv_num_heads");
    q = Part(n, all, 1, 0, heads);
    k = Part(n, all, 1, heads, heads + kv_heads);
    v = Part(n, all, 1, heads + kv_heads, heads + 2 * kv_heads);
  }
  if (n.Has(3) != n.Has(4)) return n.Fail("needs past_key and past_value, or none of them");
  // How many keys each sample has before the new ones, and where in the sequence its queries are.
  const bool first = steps == total;
  const TensorData* known = n.ConstantData(lengths);
  bool even = first;  // all samples have the same number
  if (!first && known != nullptr) {
    even = true;
    for (const int64_t length : ToInts(*known)) even &= length == total - 1;
  }
  ValueId before, at = Numbers(n, steps, {1, steps});
  if (even) {
    n.IgnoreOperand(5);
    at = PlusInteger(n, at, total - steps);
  } else {
    before = PlusInteger(n, n.Reshape(n.Cast(lengths, DType::kI64), {batch}), 1 - steps);
    at = n.Emit(OpKind::kAdd, {at, n.Reshape(before, {batch, 1})});
  }
  if (n.Int("do_rotary") != 0) {
    ValueId positions = n.Has(9) ? n.In(9) : at;
    if (n.ok() && n.Has(9) && n.ShapeOf(positions) != Shape{batch, steps})
      return n.Fail("needs position_ids [batch, sequence]");
    if (n.Has(9) && first) {  // of a first prompt, they say only where it begins
      const ValueId begin = Part(n, Part(n, positions, 0, 0, 1), 1, 0, 1);
      positions = n.Emit(OpKind::kAdd, {Numbers(n, steps, {1, steps}), begin});
    }
    const bool neighbours = n.Int("rotary_interleaved") != 0;
    q = TurnedByCaches(n, q, 7, positions, neighbours);
    k = TurnedByCaches(n, k, 7, positions, neighbours);
  } else {
    n.Ignore({"rotary_interleaved"});
    for (const int unused : {7, 8, 9}) n.IgnoreOperand(unused);
  }
  const auto cached = [&](ValueId now, int operand) {
    if (!n.ok()) return ValueId{-1};
    if (!n.Has(operand)) {
      if (!first) n.Fail("needs past_key and past_value for the keys before the new ones");
      return now;
    }
    const ValueId past = n.In(operand);
    if (n.ok() && n.Type(past).dtype != dtype) n.Unsupported("a cache of another type");
    if (!n.ok()) return ValueId{-1};
    const Shape shape = n.ShapeOf(past);
    const int64_t held = shape.size() == 4 ? shape[2] : 0;
    if (!n.ok() || shape.size() != 4) return ValueId{-1};
    const auto padded = [&](ValueId x, int64_t by) {  // with zeros
      return by <= 0 ? x
                     : n.Emit(OpKind::kPad, {x},
                              {{"begin", Shape(4, 0)},
                               {"end", Shape{0, 0, by, 0}},
                               {"mode", std::string("constant")},
                               {"value", 0.0}});
    };
    if (even) {
      if (held < total - steps) n.Fail("the past is shorter than the keys before the new ones");
      const ValueId all = first ? now : WithPast(n, now, Part(n, past, 2, 0, total - steps));
      return padded(all, held - total);
    }
    // What the past has beyond its keys is left out, as ONNX Runtime does.
    const ValueId room = padded(past, total - held);
    const int64_t places = std::max(held, total);
    const ValueId kept = n.Emit(OpKind::kLess, {Numbers(n, places, {1, 1, places, 1}),
                                                n.Reshape(before, {batch, 1, 1, 1})});
    const ValueId clean = n.Emit(OpKind::kWhere, {kept, room, n.ScalarLike(0, room)});
    return Written(n, clean, now, before, 2, false);
  };
  k = cached(k, 3);
  v = cached(v, 4);
  n.Set(1, k);
  n.Set(2, v);
  if (!n.ok()) return;
  ValueId s = Scores(n, q, Part(n, k, 2, 0, total));
  s = Biased(n, Capped(n, s, n.Float("softcap")), 10);
  const int64_t window = n.Int("local_window_size", -1);
  if (n.Int("causal", 1) == 0) {
    if (window >= 0) return n.Fail("needs causal=1 with local_window_size");
    const ValueId last = n.Cast(n.Reshape(lengths, {batch, 1, 1, 1}), DType::kI64);
    s = Allowed(n, s, n.Emit(OpKind::kLessEqual, {Numbers(n, total, {total}), last}));
  } else if (!even || steps > 1 || window >= 0) {
    const ValueId keys = Numbers(n, total, {total});
    const ValueId own = n.Reshape(at, {even ? 1 : batch, 1, steps, 1});
    ValueId allowed = n.Emit(OpKind::kLessEqual, {keys, own});
    if (window >= 0)
      allowed = n.Emit(OpKind::kAnd,
                       {allowed, n.Emit(OpKind::kLess, {PlusInteger(n, own, -window), keys})});
    s = Allowed(n, s, allowed);
  }
  ValueId sink = -1;
  const bool smooth = n.Int("smooth_softmax", -1) == 1;
  if (n.Has(11)) {
    sink = n.Reshape(Single(n, n.In(11)), {1, heads, 1, 1});
  } else if (smooth) {
    sink = n.Fill({n.Type(s).dtype, {1, heads, 1, 1}}, 0);
  }
  SetAttended(n, s, Part(n, v, 2, 0, total), dtype, sink);
}

}  // namespace

void AddMicrosoftAttentionTranslations(TranslationTable& table) {
  const auto add = [&](const char* name, Translation::Run run, const char* limits = "") {
    table[onnx::OperatorKey("com.microsoft", name)] = {run, limits};
  };
  constexpr const char* kMasks =
      "masks of rank 4 or of 3 * batch + 2 elements; do_rotary; a past that shares its buffer";
  add("Attention", MicrosoftAttention, kMasks);
  add("QAttention", QAttention, kMasks);
  add("MultiHeadAttention", MultiHeadAttention,
      "masks of 3 * batch + 2 elements; a bias of packed operands; cache_indirection; the output "
      "qk");
  add("RotaryEmbedding", MicrosoftRotaryEmbedding, "is_packed_batching; scale");
  add("GroupQueryAttention", GroupQueryAttention,
      "a total length that is no constant; quantised caches; norms of queries and keys; the output "
      "output_qk");
}

}  // namespace heddle::graph
