// Translation of the operators that draw random numbers.
//
// Every draw has a stream of its own (random_bits in compiler/graph/ops/random.cc), which depends on how
// many draws the importer has translated before, and on the node's attribute `seed`. So the numbers are a
// function of the model and the seed alone. Distributions are computed such that uniform numbers, and
// what is decided by them, are the same on every machine; normal ones may differ in their last digits, as
// logarithm and cosine do.
#include "compiler/onnx/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/onnx/bounded.h"
#include "compiler/onnx/model.h"
#include "compiler/onnx/narrow.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/precision.h"

namespace heddle::graph {
namespace {

using ir::DType;
using onnx::NodeProto;
using onnx::TensorProto;

// ---- The seed ----

bool IsFalse(const TensorProto& t) {
  if (t.data_type() != TensorProto::BOOL) return false;
  return t.raw_data() == std::string(1, '\0') ||
         (t.raw_data().empty() && t.int32_data_size() == 1 && t.int32_data(0) == 0);
}

// `known_false` are names of constants.
bool Draws(const NodeProto& node, const std::set<std::string>& known_false) {
  static const auto* always =
      new std::set<std::string>{"Bernoulli",        "Multinomial",   "RandomNormal",
                                "RandomNormalLike", "RandomUniform", "RandomUniformLike"};
  if (!onnx::IsStandard(node.domain())) return false;
  if (always->count(node.op_type())) return true;
  return node.op_type() == "Dropout" && node.input_size() > 2 && !node.input(2).empty() &&
         !known_false.count(node.input(2));
}

bool AnyDraws(const Nodes& nodes, std::set<std::string> known_false) {
  bool any = false;
  ForEachNode(nodes, [&](const NodeProto& node) {
    for (const onnx::AttributeProto& a : node.attribute()) {
      if (node.op_type() == "Constant" && node.output_size() == 1 && IsFalse(a.t()))
        known_false.insert(node.output(0));
    }
    any = any || Draws(node, known_false);
  });
  return any;
}

// ---- Bits ----

// The finaliser of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
// generators", 2014).
uint64_t Mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Shapes are copied here and below, because those of values move when a value is added.

// Integers that are evenly distributed over [0, 2^bits).
ValueId RandomBits(NodeImport& n, Shape shape, int64_t bits) {
  uint64_t own = 0;  // an attribute of 0 is another seed than none
  if (n.HasAttr("seed")) {
    const onnx::AttributeProto& a = *n.Find("seed");
    own = 1 + (a.has_f() ? std::bit_cast<uint32_t>(a.f()) : static_cast<uint64_t>(a.i()));
  }
  const uint64_t stream = Mixed(Mixed(own) + ++n.random().streams);
  return n.Emit(OpKind::kRandomBits, {n.random().seed, Scalar(n, static_cast<int64_t>(stream))},
                {{"shape", shape}, {"bits", bits}});
}

// ---- Distributions, in f32 or f64 ----

ValueId PlusNumber(NodeImport& n, ValueId v, double by) {
  return n.Emit(OpKind::kAdd, {v, n.ScalarLike(by, v)});
}
ValueId TimesNumber(NodeImport& n, ValueId v, double by) {
  return n.Emit(OpKind::kMul, {v, n.ScalarLike(by, v)});
}

DType ComputedIn(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// Multiples of 2^-24, or 2^-53 for f64, in [0, 1).
ValueId Unit(NodeImport& n, Shape shape, DType dtype) {
  if (dtype == DType::kF32) return TimesNumber(n, n.Cast(RandomBits(n, shape, 24), dtype), 0x1p-24);
  const ValueId high = TimesNumber(n, n.Cast(RandomBits(n, shape, 27), dtype), 0x1p26);
  const ValueId low = n.Cast(RandomBits(n, shape, 26), dtype);
  return TimesNumber(n, n.Emit(OpKind::kAdd, {high, low}), 0x1p-53);
}

// The same in (0, 1], with finer steps near 0, since the logarithm of these numbers gives the tails of a
// normal distribution.
ValueId AboveZero(NodeImport& n, Shape shape, DType dtype) {
  if (dtype == DType::kF64) return PlusNumber(n, Unit(n, shape, dtype), 0x1p-53);
  return TimesNumber(n, PlusNumber(n, n.Cast(RandomBits(n, shape, 31), dtype), 1), 0x1p-31);
}

// By Box and Muller. An approximated logarithm may exceed 0.
ValueId StandardNormal(NodeImport& n, Shape shape, DType dtype) {
  const ValueId square = n.Emit(
      OpKind::kClip, {TimesNumber(n, n.Emit(OpKind::kLog, {AboveZero(n, shape, dtype)}), -2)},
      {{"min", int64_t{0}}});
  const ValueId angle = TimesNumber(n, Unit(n, shape, dtype), 2 * M_PI);
  return n.Emit(OpKind::kMul, {n.Emit(OpKind::kSqrt, {square}), n.Emit(OpKind::kCos, {angle})});
}

// The number of a float type that is next to x, which is one, upwards or downwards.
double Neighbour(double x, DType dtype, bool up) {
  const double to = up ? HUGE_VAL : -HUGE_VAL;
  if (dtype == DType::kF64) return std::nextafter(x, to);
  if (dtype == DType::kF32) return std::nextafterf(static_cast<float>(x), static_cast<float>(to));
  if (x == 0) return (up ? 1 : -1) * ir::HalfValue(1, dtype);
  const uint16_t bits = ir::HalfBits(static_cast<float>(x), dtype);
  return ir::HalfValue(static_cast<uint16_t>(bits + ((x > 0) == up ? 1 : -1)), dtype);
}

// In [low, high), as numbers of `dtype`.
ValueId Uniform(NodeImport& n, Shape shape, DType dtype) {
  const double low = n.Float("low"), high = n.Float("high");
  const DType computed = ComputedIn(dtype);
  double first = ir::RoundFloat(low, dtype), last = ir::RoundFloat(high, dtype);
  if (!std::isfinite(first) || !std::isfinite(last) ||
      !std::isfinite(ir::RoundFloat(high - low, computed)) || low > high) {
    n.Fail(absl::StrCat("cannot draw ", std::string(ir::Name(dtype)), " from ", low, " to ", high));
    return -1;
  }
  if (first < low) first = Neighbour(first, dtype, true);
  if (last >= high) last = Neighbour(last, dtype, false);
  if (first > last) first = last = ir::RoundFloat(low, dtype);  // no number lies between them
  // The clip keeps product and sum apart. Machines that fuse them would round differently.
  const ValueId offset = n.Emit(
      OpKind::kClip, {TimesNumber(n, Unit(n, shape, computed), high - low)}, {{"min", int64_t{0}}});
  return n.Emit(OpKind::kClip, {PlusNumber(n, offset, low)}, {{"min", first}, {"max", last}});
}

// ---- Operators ----

// The type that the attribute `dtype` says, or else `fallback`, an ONNX type.
int ResultType(NodeImport& n, int fallback) { return static_cast<int>(n.Int("dtype", fallback)); }

// Uniform or normal numbers. The standard has these types for them.
void SetReals(NodeImport& n, Shape shape, int type) {
  if (type != TensorProto::FLOAT && type != TensorProto::DOUBLE && type != TensorProto::FLOAT16 &&
      type != TensorProto::BFLOAT16) {
    return n.Fail(absl::StrCat("draws floats, not ", onnx::ElementTypeName(type),
                               "; the attribute 'dtype' decides the type"));
  }
  const DType dtype = *FromOnnxType(type);
  if (n.proto().op_type().rfind("RandomUniform", 0) == 0)
    return n.Set(0, n.Cast(Uniform(n, shape, dtype), dtype));
  const ValueId normal = StandardNormal(n, shape, ComputedIn(dtype));
  n.Set(0, n.Cast(PlusNumber(n, TimesNumber(n, normal, n.Float("scale")), n.Float("mean")), dtype));
}

void RandomReals(NodeImport& n) { SetReals(n, n.Ints("shape"), ResultType(n, TensorProto::FLOAT)); }

void RandomRealsLike(NodeImport& n) {
  const ValueId like = n.In(0);
  if (n.ok()) SetReals(n, n.ShapeOf(like), ResultType(n, n.OnnxType(0)));
}

void Bernoulli(NodeImport& n) {
  const ValueId p = Single(n, n.In(0));
  const int type = ResultType(n, n.OnnxType(0));
  if (auto known = FromOnnxType(type); !known.ok())
    return n.Unsupported(std::string(known.status().message()));
  if (!n.ok()) return;
  const ValueId is_one = n.Emit(OpKind::kLess, {Unit(n, n.ShapeOf(p), n.Type(p).dtype), p});
  n.Set(0, CastToOnnx(n, is_one, type, true));
}

// The class with the largest logarithm of its weight minus that of a number drawn from the exponential
// distribution. In double precision, ties have no weight, and a class of weight 0 never wins.
void Multinomial(NodeImport& n) {
  const ValueId x = n.In(0);
  const int type = ResultType(n, TensorProto::INT32);
  const int64_t samples = n.Int("sample_size", 1);
  if (type != TensorProto::INT32 && type != TensorProto::INT64)
    return n.Fail(absl::StrCat("draws int32 or int64, not ", onnx::ElementTypeName(type)));
  if (!n.ok()) return;
  const Shape shape = n.ShapeOf(x);
  if (shape.size() != 2 || shape[1] < 1) return n.Fail("takes a matrix of at least one class");
  if (samples < 1) return n.Fail(absl::StrCat("draws ", samples, " samples"));
  const auto minus_log = [&](ValueId v) {
    return n.Emit(OpKind::kNeg, {n.Emit(OpKind::kLog, {v})});
  };
  const ValueId bits = n.Cast(RandomBits(n, {shape[0], samples, shape[1]}, 31), DType::kF64);
  const ValueId exponential = minus_log(TimesNumber(n, PlusNumber(n, bits, 0.5), 0x1p-31));
  const ValueId weights = n.Cast(n.Reshape(x, {shape[0], 1, shape[1]}), DType::kF64);
  const ValueId drawn =
      n.Emit(OpKind::kArgMax, {n.Emit(OpKind::kAdd, {weights, minus_log(exponential)})},
             {{"axes", Shape{2}}, {"keepdims", int64_t{0}}});
  n.Set(0, n.Cast(drawn, *FromOnnxType(type)));
}

// x / (1 - ratio) where a number is not below the ratio, and 0 elsewhere.
void DropAtRandom(NodeImport& n, ValueId x, ValueId ratio) {
  if (!n.ok()) return;
  if (!n.lengths().Of(x).empty()) return n.Unsupported("training mode on a computed size");
  const DType dtype = n.Type(x).dtype, computed = ComputedIn(dtype);
  if (NumElements(n.Type(ratio)) != 1) return n.Fail("takes one number as ratio");
  if (const TensorData* known = n.ConstantData(ratio)) {
    const double value = ToDoubles(*known)[0];
    if (!(value >= 0 && value < 1))
      return n.Fail(absl::StrCat("takes a ratio from 0 to below 1, not ", value));
  }
  const ValueId share = n.Reshape(n.Cast(ratio, computed), {});
  const ValueId kept = n.Emit(OpKind::kLessEqual, {share, Unit(n, n.ShapeOf(x), computed)});
  const ValueId scale =
      n.Emit(OpKind::kReciprocal, {n.Emit(OpKind::kSub, {n.ScalarLike(1, share), share})});
  const ValueId scaled = n.Emit(OpKind::kMul, {n.Cast(x, computed), scale});
  n.Set(0, n.Cast(n.Emit(OpKind::kMul, {scaled, n.Cast(kept, computed)}), dtype));
  n.Set(1, kept);
}

// Dropout is the identity at inference. Its mask, if something reads it, is all ones. Before opset 10,
// the mask has the operand's type.
void Dropout(NodeImport& n) {
  n.Ignore({"seed", "ratio", "is_test"});
  n.IgnoreOperand(1);
  const ValueId x = n.In(0);
  if (n.Has(2)) {
    const std::vector<double> training = n.ConstantDoubles(2);
    const ValueId ratio = n.Has(1) ? n.In(1) : n.Constant(FromDoubles({0.5}, {}, DType::kF32));
    const TensorData* known = n.ConstantData(ratio);
    const bool keeps_all = known != nullptr && ToDoubles(*known) == std::vector<double>{0};
    if (!training.empty() && training[0] != 0 && !keeps_all) return DropAtRandom(n, x, ratio);
  }
  n.Set(0, x);
  if (n.Wants(1))
    n.Set(1, n.Fill({n.opset() < 10 ? n.Type(x).dtype : DType::kBool, n.ShapeOf(x)}, 1));
}

}  // namespace

std::string AddSeedInput(onnx::ModelProto& model) {
  onnx::GraphProto& graph = *model.mutable_graph();
  std::set<std::string> known_false;
  for (const TensorProto& t : graph.initializer()) {
    if (IsFalse(t)) known_false.insert(t.name());
  }
  for (const auto& input : graph.input()) known_false.erase(input.name());  // only a default
  bool any = AnyDraws(graph.node(), known_false);
  for (const onnx::FunctionProto& f : model.functions()) any = any || AnyDraws(f.node(), {});
  if (!any) return "";
  std::set<std::string> taken = NamesRead(graph);
  for (const auto& input : graph.input()) taken.insert(input.name());
  for (const TensorProto& t : graph.initializer()) taken.insert(t.name());
  for (const auto& s : graph.sparse_initializer()) taken.insert(s.values().name());
  for (const NodeProto& node : graph.node())
    taken.insert(node.output().begin(), node.output().end());
  std::string name = "seed";
  for (int i = 1; taken.count(name) != 0; ++i) name = absl::StrCat("seed_", i);
  onnx::ValueInfoProto& input = *graph.add_input();
  input.set_name(name);
  auto& type = *input.mutable_type()->mutable_tensor_type();
  type.set_elem_type(TensorProto::INT64);
  type.mutable_shape();
  return name;
}

void AddRandomTranslations(TranslationTable& table) {
  for (const char* name : {"RandomNormal", "RandomUniform"}) table[name] = RandomReals;
  for (const char* name : {"RandomNormalLike", "RandomUniformLike"}) table[name] = RandomRealsLike;
  table["Bernoulli"] = Bernoulli;
  table["Multinomial"] = Multinomial;
  table["Dropout"] = {Dropout, "a training mode that is not constant"};
}

}  // namespace heddle::graph
