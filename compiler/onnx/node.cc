#include "compiler/onnx/node.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/onnx/bounded.h"
#include "compiler/onnx/model.h"
#include "compiler/onnx/narrow.h"

namespace heddle::graph {

using ir::DType;
using onnx::AttributeProto;
using onnx::TensorProto;

static_assert(std::endian::native == std::endian::little, "raw_data of ONNX is little endian");

namespace {

// Import evaluates only cheap nodes, such as arithmetic on shapes. The pass fold-constants
// evaluates heavier ones.
constexpr double kImportEvaluationLimit = 1e5;  // expression nodes; about a millisecond

template <typename To, typename Field>
std::string Packed(const Field& field) {
  std::string bytes(static_cast<size_t>(field.size()) * sizeof(To), '\0');
  for (int i = 0; i < field.size(); ++i) {
    const To v = static_cast<To>(field.Get(i));
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(To), &v, sizeof(To));
  }
  return bytes;
}

std::string TypedBytes(const TensorProto& t, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Packed<float>(t.float_data());
    case DType::kF64:
      return Packed<double>(t.double_data());
    case DType::kI64:
      return Packed<int64_t>(t.int64_data());
    case DType::kI32:
      return Packed<int32_t>(t.int32_data());
    case DType::kI16:
      return Packed<int16_t>(t.int32_data());
    case DType::kU16:
      return Packed<uint16_t>(t.int32_data());
    case DType::kU32:
      return Packed<uint32_t>(t.uint64_data());
    case DType::kU64:
      return Packed<uint64_t>(t.uint64_data());
    case DType::kI8:
      return Packed<int8_t>(t.int32_data());
    case DType::kU8:
    case DType::kBool:
      return Packed<uint8_t>(t.int32_data());
    case DType::kF16:  // 16-bit floats are stored as their bits
    case DType::kBF16:
      return Packed<uint16_t>(t.int32_data());
  }
  return "";
}

bool SameValue(const AttributeProto& a, const AttributeProto& b) {
  const auto same = [](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
  };
  return a.i() == b.i() && a.f() == b.f() && a.s() == b.s() && same(a.ints(), b.ints()) &&
         same(a.floats(), b.floats()) && same(a.strings(), b.strings());
}

}  // namespace

absl::StatusOr<DType> FromOnnxType(int type) {
  switch (type) {
    case TensorProto::FLOAT:
      return DType::kF32;
    case TensorProto::DOUBLE:
      return DType::kF64;
    case TensorProto::INT8:
      return DType::kI8;
    case TensorProto::UINT8:
      return DType::kU8;
    case TensorProto::INT16:
      return DType::kI16;
    case TensorProto::UINT16:
      return DType::kU16;
    case TensorProto::UINT32:
      return DType::kU32;
    case TensorProto::UINT64:
      return DType::kU64;
    case TensorProto::INT32:
      return DType::kI32;
    case TensorProto::INT64:
      return DType::kI64;
    case TensorProto::BOOL:
      return DType::kBool;
    case TensorProto::FLOAT16:
      return DType::kF16;
    case TensorProto::BFLOAT16:
      return DType::kBF16;
    default:
      if (const auto held = HeldIn(type)) return *held;
      break;
  }
  return absl::UnimplementedError(absl::StrCat("element type ", onnx::ElementTypeName(type),
                                               " is not supported; there are ",
                                               SupportedTypeNames()));
}

std::string SupportedTypeNames() {
  return "float, double, float16, bfloat16, int8, uint8, int16, uint16, int32, uint32, int64, "
         "uint64, bool; and as storage int2, uint2, int4, uint4, float4e2m1, float8e4m3fn, "
         "float8e4m3fnuz, float8e5m2, float8e5m2fnuz";
}

absl::StatusOr<TensorData> FromOnnxTensor(const TensorProto& t) {
  return FromOnnxTensor(TensorProto(t));
}

absl::StatusOr<TensorData> FromOnnxTensor(TensorProto&& t) {
  HEDDLE_ASSIGN_OR_RETURN(DType dtype, FromOnnxType(t.data_type()));
  const DType stored = HeldIn(t.data_type()) ? DType::kU8 : dtype;
  return FromOnnxTensor(t, SharedBytes::Of(t.has_raw_data() ? std::move(*t.mutable_raw_data())
                                                            : TypedBytes(t, stored)));
}

absl::StatusOr<TensorData> FromOnnxTensor(const TensorProto& t, SharedBytes elements) {
  HEDDLE_ASSIGN_OR_RETURN(DType dtype, FromOnnxType(t.data_type()));
  TensorData out{{dtype, {t.dims().begin(), t.dims().end()}}, std::move(elements)};
  constexpr int64_t kMost = int64_t{1} << 40;  // elements that the loop IR allows
  int64_t count = 1;
  for (int64_t d : out.type.shape) {
    if (d < 0 || (d > 0 && count > kMost / d)) {
      return BadInput(absl::StrCat("tensor '", t.name(), "' has impossible dimensions"));
    }
    count *= d;
  }
  const size_t size = static_cast<size_t>(ir::SizeOf(dtype));
  if (HeldIn(t.data_type()))
    out.bytes = SharedBytes::Of(Unpacked(std::string(*out.bytes), t.data_type(), count));
  if (out.bytes->size() != static_cast<size_t>(count) * size) {
    return BadInput(absl::StrCat("tensor '", t.name(), "' is ", ToText(out.type), " but holds ",
                                 out.bytes->size(), " bytes"));
  }
  const bool misaligned = reinterpret_cast<uintptr_t>(out.bytes->data()) % size != 0;
  if (dtype == DType::kBool || misaligned) {
    std::string bytes(*out.bytes);
    if (dtype == DType::kBool) {
      for (char& c : bytes) c = c != 0;
    }
    out.bytes = SharedBytes::Of(std::move(bytes));
  }
  return out;
}

NamedValue NamedValue::Sequence(std::vector<ValueId> items) {
  NamedValue v;
  v.kind = Kind::kSequence;
  v.items = std::move(items);
  return v;
}

NamedValue NamedValue::Nothing() {
  NamedValue v;
  v.kind = Kind::kNothing;
  return v;
}

const LengthTable::ByDimension& LengthTable::Of(ValueId v) const {
  static const auto* none = new ByDimension;
  const auto it = lengths_.find(v);
  return it == lengths_.end() ? *none : it->second;
}

const LengthTable::Origin* LengthTable::Find(ValueId length) const {
  const auto it = origins_.find(length);
  return it == origins_.end() ? nullptr : &it->second;
}

const LengthTable::Choice* LengthTable::FindChoice(ValueId flags) const {
  const auto it = choices_.find(flags);
  return it == choices_.end() ? nullptr : &it->second;
}

// ---- NodeImport ----

NodeImport::NodeImport(const onnx::NodeProto& node, const onnx::OperatorRule& rule, int opset,
                       std::vector<int> types, GraphBuilder& builder, NamedValues& values,
                       ConstantBudget& budget, LengthTable& lengths, RandomNumbers& random,
                       SampleTable& samples, RunSubgraph run_subgraph)
    : node_(node),
      rule_(rule),
      opset_(opset),
      types_(std::move(types)),
      builder_(builder),
      values_(values),
      budget_(budget),
      lengths_(lengths),
      random_(random),
      samples_(samples),
      run_subgraph_(run_subgraph) {
  name_ = !node.name().empty()     ? node.name()
          : node.output_size() > 0 ? node.output(0)
                                   : node.op_type();
}

void NodeImport::Fail(const std::string& what) {
  if (ok()) status_ = absl::InvalidArgumentError(what);
}

void NodeImport::Unsupported(const std::string& what) {
  if (ok()) status_ = absl::UnimplementedError(what);
}

absl::Status NodeImport::Attempt(absl::FunctionRef<absl::Status()> translate) {
  if (!ok()) return status_;
  attempt_ = true;
  absl::Status result = translate();
  attempt_ = false;
  if (!ok()) result = std::exchange(status_, absl::OkStatus());
  return result;
}

void NodeImport::ExplainBody(const std::string& what) {
  if (absl::IsAborted(status_)) status_ = absl::UnimplementedError(what);
}

bool NodeImport::Has(int i) const {
  read_operands_.insert(i);
  return i < node_.input_size() && !node_.input(i).empty();
}

const NamedValue& NodeImport::Value(int i) {
  static const auto* none = new NamedValue;
  if (!Has(i)) {
    Fail(absl::StrCat("input ", i, " is missing"));
    return *none;
  }
  auto it = values_.find(node_.input(i));
  if (it == values_.end()) {
    Fail(absl::StrCat("input '", node_.input(i), "' is not defined"));
    return *none;
  }
  return it->second;
}

const NamedValue* NodeImport::Peek(int i) const {
  const auto it = values_.find(node_.input(i));
  return it == values_.end() ? nullptr : &it->second;
}

ValueId NodeImport::In(int i) {
  const NamedValue& v = Value(i);
  if (ok() && v.kind != NamedValue::Kind::kTensor)
    Fail(absl::StrCat("input '", node_.input(i), "' is no tensor"));
  return v.tensor;
}

std::vector<ValueId> NodeImport::Items(int i) {
  const NamedValue& v = Value(i);
  if (ok() && v.kind != NamedValue::Kind::kSequence)
    Fail(absl::StrCat("input '", node_.input(i), "' is no sequence"));
  return v.items;
}

const TensorType& NodeImport::Type(ValueId v) const {
  static const auto* none = new TensorType;
  return v < 0 ? *none : builder_.Type(v);
}

Shape NodeImport::ConstantInts(int i) {
  const ValueId v = In(i);
  if (v < 0) return {};
  const TensorData* data = ConstantData(v);
  if (data == nullptr) {
    Unsupported(
        absl::StrCat("input '", node_.input(i), "' decides a shape and has to be a constant"));
    return {};
  }
  return ToInts(*data);
}

std::vector<double> NodeImport::ConstantDoubles(int i) {
  const ValueId v = In(i);
  if (v < 0) return {};
  const TensorData* data = ConstantData(v);
  if (data == nullptr) {
    Unsupported(absl::StrCat("input '", node_.input(i), "' has to be a constant"));
    return {};
  }
  return ToDoubles(*data);
}

const onnx::AttributeProto* NodeImport::Given(std::string_view name) const {
  return FindAttribute(node_, name);
}

const onnx::AttributeProto* NodeImport::Find(std::string_view name) const {
  read_attributes_.emplace(name);
  if (const onnx::AttributeProto* given = Given(name)) return given;
  const onnx::AttributeRule* rule = rule_.Attribute(name);
  const bool has_default = rule != nullptr && rule->fallback.type() != AttributeProto::UNDEFINED;
  return has_default ? &rule->fallback : nullptr;
}

bool NodeImport::HasAttr(std::string_view name) const {
  read_attributes_.emplace(name);
  return Given(name) != nullptr;
}

void NodeImport::Ignore(std::initializer_list<std::string_view> attributes) const {
  for (const std::string_view name : attributes) read_attributes_.emplace(name);
}

void NodeImport::IgnoreOperand(int i) const { read_operands_.insert(i); }

void NodeImport::CheckAllRead() {
  // An optimisation of the first opset, which named operands that may be overwritten.
  Ignore({"consumed_inputs"});
  for (const onnx::AttributeProto& a : node_.attribute()) {
    const onnx::AttributeRule* rule = rule_.Attribute(a.name());
    if (read_attributes_.count(a.name()) || rule == nullptr) continue;
    if (rule->fallback.type() == AttributeProto::UNDEFINED || !SameValue(a, rule->fallback))
      Unsupported(absl::StrCat("the attribute '", a.name(), "'"));
  }
  for (int i = 0; i < node_.input_size(); ++i) {
    const onnx::OperandRule* rule = rule_.Input(i);
    if (!read_operands_.count(i) && !node_.input(i).empty() && rule != nullptr)
      Unsupported(absl::StrCat("the operand '", std::string(rule->name), "'"));
  }
}

int64_t NodeImport::Int(std::string_view name, int64_t fallback) const {
  const auto* a = Find(name);
  return a ? a->i() : fallback;
}

double NodeImport::Float(std::string_view name, double fallback) const {
  const auto* a = Find(name);
  // The standard's defaults are of single precision, too.
  return static_cast<double>(a ? a->f() : static_cast<float>(fallback));
}

std::string NodeImport::String(std::string_view name, const std::string& fallback) const {
  const auto* a = Find(name);
  return a ? a->s() : fallback;
}

std::string NodeImport::OneOf(std::string_view name,
                              std::initializer_list<std::string_view> known) {
  const auto* a = Find(name);
  if (a == nullptr) return std::string(*known.begin());
  if (std::find(known.begin(), known.end(), a->s()) == known.end()) {
    std::string list;
    for (std::string_view value : known) list += (list.empty() ? "" : ", ") + std::string(value);
    Unsupported(absl::StrCat(std::string(name), " '", a->s(), "' (supported: ", list, ")"));
  }
  return a->s();
}

Shape NodeImport::Ints(std::string_view name) const {
  const auto* a = Find(name);
  return a ? Shape(a->ints().begin(), a->ints().end()) : Shape{};
}

std::vector<double> NodeImport::Floats(std::string_view name) const {
  const auto* a = Find(name);
  return a ? std::vector<double>(a->floats().begin(), a->floats().end()) : std::vector<double>{};
}

std::vector<std::string> NodeImport::Strings(std::string_view name) const {
  const auto* a = Find(name);
  return a ? std::vector<std::string>(a->strings().begin(), a->strings().end())
           : std::vector<std::string>{};
}

ValueId NodeImport::Emit(OpKind kind, const std::vector<ValueId>& inputs, const Attrs& attrs) {
  if (!ok()) return -1;
  for (ValueId v : inputs) {
    if (!lengths_.Of(v).empty()) return EmitWithLengths(*this, kind, inputs, attrs);
  }
  return EmitFixed(kind, inputs, attrs);
}

ValueId NodeImport::EmitFixed(OpKind kind, const std::vector<ValueId>& inputs, const Attrs& attrs) {
  if (!ok()) return -1;
  bool constant = true, empty = false;
  std::vector<TensorType> types;
  std::vector<TensorData> data;
  for (ValueId v : inputs) {
    types.push_back(Type(v));
    empty |= NumElements(Type(v)) == 0;
    const TensorData* c = v < 0 ? nullptr : builder_.ConstantData(v);
    constant &= c != nullptr;
    if (c) data.push_back(*c);
  }
  const absl::StatusOr<TensorType> type = InferType(kind, types, attrs);
  if (!type.ok()) {
    // The standard allows these element types (check.h). If f32 would do, only ours do not.
    for (TensorType& t : types) t.dtype = DType::kF32;
    if (InferType(kind, types, attrs).ok()) {
      Unsupported(std::string(type.status().message()));
      return -1;
    }
    Fail(absl::StrCat(NameOf(kind), " ", type.status().message()));
    return -1;
  }
  empty |= NumElements(*type) == 0;
  if (absl::Status size = CheckSize(*type); !size.ok()) {
    Fail(std::string(size.message()));
    return -1;
  }
  if (constant && (empty || MayEvaluate(kind, attrs, types, *type))) {
    auto result = EvaluateOp(kind, attrs, data);
    if (result.ok()) return Constant(*std::move(result));
  }
  if (empty) return EmitWithoutElements(kind, inputs, attrs, *type);
  auto v = builder_.Add(kind, inputs, attrs, name_);
  if (!v.ok()) {
    Fail(std::string(v.status().message()));
    return -1;
  }
  return *v;
}

// A graph has no operators on tensors without elements, so what comes of them is made at once.
ValueId NodeImport::EmitWithoutElements(OpKind kind, const std::vector<ValueId>& inputs,
                                        const Attrs& attrs, const TensorType& result) {
  if (NumElements(result) == 0) return Constant({result, SharedBytes::Of("")});
  if (kind == OpKind::kConcat) {
    std::vector<ValueId> rest;
    for (ValueId v : inputs) {
      if (NumElements(Type(v)) != 0) rest.push_back(v);
    }
    return rest.size() == 1 ? rest[0] : EmitFixed(kind, rest, attrs);
  }
  // A sum of no products.
  if (kind == OpKind::kMatmul || kind == OpKind::kEinsum) return Fill(result, 0);
  const bool writes = kind == OpKind::kScatterElements || kind == OpKind::kScatterNd;
  if (writes && NumElements(Type(inputs[0])) != 0) return inputs[0];
  if (kind == OpKind::kPad) {
    const ValueId fill = inputs.size() > 1 ? inputs[1]
                                           : Fill({result.dtype, {}},
                                                  OpAttrs(Def(kind).attrs, attrs).Float("value"));
    return EmitFixed(OpKind::kExpand, {Reshape(fill, {})}, {{"shape", result.shape}});
  }
  Unsupported("tensors without elements");
  return -1;
}

ValueId NodeImport::EmitBy(
    ValueId operand, absl::FunctionRef<absl::StatusOr<ValueId>(GraphBuilder&, ValueId)> function) {
  if (!ok()) return -1;
  if (!lengths_.Of(operand).empty()) Unsupported("an operand whose shape depends on data");
  if (NumElements(Type(operand)) == 0) Unsupported("tensors without elements");
  if (!ok()) return -1;
  const absl::StatusOr<ValueId> v = function(builder_, operand);
  if (v.ok()) return *v;
  status_ = v.status();
  return -1;
}

bool NodeImport::MayEvaluate(OpKind kind, const Attrs& attrs, Types types,
                             const TensorType& result) {
  const double cost = EvaluationCost(kind, attrs, types);
  return cost <= kImportEvaluationLimit &&
         budget_.Take(NumElements(result) * ir::SizeOf(result.dtype), cost);
}

ValueId NodeImport::Constant(TensorData data) {
  if (!ok()) return -1;
  return builder_.Constant(name_, std::move(data));
}

ValueId NodeImport::Fill(const TensorType& type, double value) {
  return CanMake(type) ? Constant(Filled(type, value)) : -1;
}

bool NodeImport::CanMake(const TensorType& type) {
  // Limits what a tiny file can make us allocate.
  constexpr int64_t kMostElements = int64_t{1} << 26;
  if (absl::Status size = CheckSize(type); !size.ok()) Fail(std::string(size.message()));
  if (NumElements(type) > kMostElements) {
    Unsupported(absl::StrCat("a constant ", ToText(type), " of more than ", kMostElements,
                             " elements that is not stored as an initializer"));
  }
  if (!ok()) return false;
  const int64_t elements = NumElements(type);
  if (!budget_.Take(elements * ir::SizeOf(type.dtype), static_cast<double>(elements)))
    Unsupported(absl::StrCat("a constant ", ToText(type),
                             ", which with all others that are not stored as initializers is more "
                             "than ",
                             ConstantBudget::kBytes >> 20, " MiB or takes too much time"));
  return ok();
}

ValueId NodeImport::ScalarLike(double value, ValueId like) {
  return Constant(FromDoubles({value}, {}, Type(like).dtype));
}

ValueId NodeImport::Reshape(ValueId v, const Shape& shape) {
  if (v < 0 || ShapeOf(v) == shape) return v;
  const Node* before = ProducerOf(v);
  if (before != nullptr && before->kind == OpKind::kReshape) {
    const ValueId whole = before->inputs[0];
    if (ShapeOf(whole) == shape && lengths_.Of(v).empty() && lengths_.Of(whole).empty())
      return whole;
  }
  return Emit(OpKind::kReshape, {v}, {{"shape", shape}});
}

ValueId NodeImport::Transpose(ValueId v, const Shape& perm) {
  bool identity = true;
  for (size_t i = 0; i < perm.size(); ++i) identity &= perm[i] == static_cast<int64_t>(i);
  return identity ? v : Emit(OpKind::kTranspose, {v}, {{"perm", perm}});
}

ValueId NodeImport::Cast(ValueId v, DType to) {
  return Type(v).dtype == to ? v : Emit(OpKind::kCast, {v}, {{"to", std::string(ir::Name(to))}});
}

ValueId NodeImport::AlongAxis(ValueId vector, int axis, int rank) {
  Shape shape(rank, 1);
  if (!ok() || axis >= rank) return -1;
  shape[axis] = NumElements(Type(vector));
  return Reshape(vector, shape);
}

int64_t NodeImport::Axis(int64_t axis, int rank) {
  auto a = NormalizeAxis(axis, rank);
  if (!a.ok()) Fail(std::string(a.status().message()));
  return a.ok() ? *a : 0;
}

Shape NodeImport::Axes(const Shape& axes, int rank) {
  auto a = NormalizeAxes(axes, rank);
  if (!a.ok()) Fail(std::string(a.status().message()));
  return a.ok() ? *a : Shape{};
}

std::vector<NamedValue> NodeImport::Body(std::string_view attribute,
                                         const std::vector<NamedValue>& inputs) {
  const onnx::AttributeProto* a = Find(attribute);
  if (!ok() || a == nullptr) return {};
  if (a->g().input_size() != static_cast<int>(inputs.size())) {
    Fail(absl::StrCat("'", std::string(attribute), "' has ", a->g().input_size(), " inputs, needs ",
                      inputs.size()));
    return {};
  }
  auto results = run_subgraph_(a->g(), inputs, attempt_);
  if (!results.ok()) {
    status_ = results.status();
    return {};
  }
  return *std::move(results);
}

void NodeImport::Set(int i, ValueId v) {
  if (v >= 0) SetValue(i, v);
}

void NodeImport::SetValue(int i, const NamedValue& v) {
  if (ok() && Wants(i)) values_[node_.output(i)] = v;
}

}  // namespace heddle::graph
