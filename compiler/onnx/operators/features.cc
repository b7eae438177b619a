// Translation of the operators of ai.onnx.ml that prepare the features of classical models, or that give
// labels their form.
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/operators/scores.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using ir::DType;

// A vector of numbers, one for all features or one for each: it broadcasts along the last dimension of x.
ValueId PerFeature(NodeImport& n, ValueId x, TensorData numbers, const std::string& name) {
  if (!n.ok()) return -1;
  const int64_t count = NumElements(numbers.type);
  const Shape& shape = n.ShapeOf(x);
  if (shape.empty() || (count != 1 && count != shape.back())) {
    n.Fail(absl::StrCat("'", name, "' has ", count, " numbers for ", ShapeText(shape)));
    return -1;
  }
  return n.Constant(std::move(numbers));
}

ValueId PerFeature(NodeImport& n, ValueId x, const std::vector<double>& numbers,
                   const std::string& name) {
  return PerFeature(
      n, x, FromDoubles(numbers, {static_cast<int64_t>(numbers.size())}, n.Type(x).dtype), name);
}

// Integers and 16-bit floats as f32; f64 stays.
ValueId AsReal(NodeImport& n, ValueId x) {
  return n.Type(x).dtype == DType::kF64 ? x : n.Cast(x, DType::kF32);
}

// ---- Numbers to numbers ----

void Scaler(NodeImport& n) {
  ValueId x = AsReal(n, n.In(0));
  const std::vector<double> offset = n.Floats("offset"), scale = n.Floats("scale");
  if (!offset.empty()) x = n.Emit(OpKind::kSub, {x, PerFeature(n, x, offset, "offset")});
  if (!scale.empty()) x = n.Emit(OpKind::kMul, {x, PerFeature(n, x, scale, "scale")});
  n.Set(0, n.Cast(x, DType::kF32));
}

// The norm of MAX is the largest absolute value. The standard's text lacks "absolute"; its reference
// implementation and scikit-learn have it.
void Normalizer(NodeImport& n) {
  constexpr double kLeast = 1e-30;  // so a row of zeros stays one
  const std::string norm = n.OneOf("norm", {"MAX", "L1", "L2"});
  const ValueId x = n.Cast(n.In(0), DType::kF32);
  if (!n.ok()) return;
  const int rank = n.Rank(x);
  if (rank != 1 && rank != 2)
    return n.Fail(absl::StrCat("needs [rows, features], not ", ShapeText(n.ShapeOf(x))));
  const Attrs row{{"axes", Shape{int64_t{rank} - 1}}, {"keepdims", int64_t{1}}};
  const ValueId length =
      norm == "MAX" ? n.Emit(OpKind::kReduceMax, {n.Emit(OpKind::kAbs, {x})}, row)
                    : n.Emit(norm == "L1" ? OpKind::kReduceL1 : OpKind::kReduceL2, {x}, row);
  n.Set(0, n.Emit(OpKind::kDiv, {x, n.Emit(OpKind::kMax, {length, n.ScalarLike(kLeast, length)})}));
}

void Imputer(NodeImport& n) {
  const ValueId x = n.In(0);
  if (!n.ok()) return;
  const DType dtype = n.Type(x).dtype;
  ValueId values, replaced;
  if (ir::IsFloat(dtype)) {
    const double from = n.Float("replaced_value_float");
    values = PerFeature(n, x, n.Floats("imputed_value_floats"), "imputed_value_floats");
    replaced = std::isnan(from) ? n.Emit(OpKind::kIsnan, {x})
                                : n.Emit(OpKind::kEqual, {x, n.ScalarLike(from, x)});
  } else {
    const auto integers = [&](const std::vector<int64_t>& v) { return FromInts(v, dtype); };
    values = PerFeature(n, x, integers(n.Ints("imputed_value_int64s")), "imputed_value_int64s");
    replaced = n.Emit(OpKind::kEqual, {x, n.Constant(integers({n.Int("replaced_value_int64")}))});
  }
  n.Set(0, n.Emit(OpKind::kWhere, {replaced, values, x}));
}

void Binarizer(NodeImport& n) {
  const ValueId x = n.In(0);
  if (!n.ok()) return;
  const DType dtype = n.Type(x).dtype;
  const ValueId real = ir::IsFloat(dtype) ? x : n.Cast(x, DType::kF64);
  const ValueId above = n.Emit(OpKind::kLess, {n.ScalarLike(n.Float("threshold"), real), real});
  n.Set(0, n.Cast(above, dtype));
}

// ---- Columns ----

// Each operand becomes f32 [rows, width]: what is wider is cut, what is narrower gets zeros.
void FeatureVectorizer(NodeImport& n) {
  const Shape widths = n.Ints("inputdimensions");
  if (!widths.empty() && static_cast<int>(widths.size()) != n.NumInputs())
    return n.Fail(absl::StrCat("'inputdimensions' has ", widths.size(), " numbers for ",
                               n.NumInputs(), " operands"));
  std::vector<ValueId> parts;
  for (int i = 0; i < n.NumInputs(); ++i) {
    ValueId x = n.Cast(n.In(i), DType::kF32);
    if (!n.ok()) return;
    const Shape shape = n.ShapeOf(x);
    if (shape.empty()) return n.Fail("an operand is a scalar");
    const int64_t rows = shape.size() == 1 ? 1 : shape[0];
    const int64_t has = Product(shape) / std::max<int64_t>(rows, 1);
    const int64_t width = widths.empty() ? has : widths[i];
    if (width < 0) return n.Fail("an operand has a negative dimension");
    x = n.Reshape(x, {rows, has});
    if (width < has) x = Part(n, x, 1, 0, width);
    if (width > has)
      x = n.Emit(OpKind::kConcat, {x, n.Fill({DType::kF32, {rows, width - has}}, 0)},
                 {{"axis", int64_t{1}}});
    parts.push_back(x);
  }
  n.Set(0, Concat(n, parts, 1));
}

void ArrayFeatureExtractor(NodeImport& n) {
  ValueId x = n.In(0);
  const ValueId places = n.In(1);
  if (!n.ok()) return;
  Shape shape = n.ShapeOf(x);
  if (shape.empty()) return n.Fail("cannot pick from a scalar");
  if (shape.size() == 1) shape.insert(shape.begin(), 1);  // the result has a row
  if (const TensorData* known = n.ConstantData(places)) {
    for (const int64_t place : ToInts(*known)) {
      if (place < 0 || place >= shape.back())
        return n.Fail(absl::StrCat("picks feature ", place, " of ", shape.back()));
    }
  }
  // What is picked for each row of a matrix of places keeps its rows (independent_rows.h) up to the last step, which models undo.
  const Shape of = n.ShapeOf(places);
  const int64_t features = shape.back(), count = Product(of);
  shape.pop_back();
  const bool one_row = of.size() > 1 && Product(shape) == 1;
  Shape from = shape;
  from.push_back(features);
  x = n.Reshape(x, one_row ? Shape{features} : from);
  const ValueId picked =
      n.Emit(OpKind::kGather, {x, of.size() > 1 ? places : n.Reshape(places, {count})},
             {{"axis", int64_t{n.Rank(x)} - 1}});
  shape.push_back(count);
  n.Set(0, n.Reshape(picked, shape));
}

// ---- Categories ----

// x with one dimension more, so that its elements can be compared with a vector.
ValueId Apart(NodeImport& n, ValueId x) {
  if (!n.ok()) return -1;
  Shape shape = n.ShapeOf(x);
  shape.push_back(1);
  return n.Reshape(x, shape);
}

void OneHotEncoder(NodeImport& n) {
  n.Ignore({"zeros"});  // a module cannot fail at an unknown category
  const std::vector<int64_t> categories = n.Ints("cats_int64s");
  if (categories.empty())
    return n.Unsupported("categories that are strings, for what is no input's string");
  if (std::set<int64_t>(categories.begin(), categories.end()).size() != categories.size())
    return n.Fail("has a category twice");
  const ValueId x = Apart(n, n.Cast(n.In(0), DType::kI64));
  n.Set(0, n.Cast(n.Emit(OpKind::kEqual, {x, n.Constant(FromInts(categories))}), DType::kF32));
}

// The values of the elements of x: that of the last key that equals the element, or the default, which
// stands behind the values. NaN equals NaN.
ValueId LookUp(NodeImport& n, ValueId x, const TensorData& keys, TensorData values_and_default) {
  if (!n.ok()) return -1;
  const DType dtype = n.Type(x).dtype;
  const int64_t count = NumElements(keys.type);
  if (keys.type.dtype != dtype) {
    n.Fail(absl::StrCat("has keys of type ", std::string(ir::Name(keys.type.dtype)), " for ",
                        ToText(n.Type(x))));
    return -1;
  }
  if (count == 0 || NumElements(values_and_default.type) != count + 1) {
    n.Fail(absl::StrCat("has ", count, " keys and ", NumElements(values_and_default.type) - 1,
                        " values"));
    return -1;
  }
  // Distinct keys with their places.
  std::map<int64_t, int64_t> integers;
  std::map<double, int64_t> reals;
  int64_t nan = -1;
  if (ir::IsFloat(dtype)) {
    const std::vector<double> numbers = ToDoubles(keys);
    for (int64_t i = 0; i < count; ++i) (std::isnan(numbers[i]) ? nan : reals[numbers[i]]) = i;
  } else {
    const std::vector<int64_t> numbers = ToInts(keys);
    for (int64_t i = 0; i < count; ++i) integers[numbers[i]] = i;
  }
  std::vector<int64_t> whole, places;
  std::vector<double> real;
  for (const auto& [key, place] : integers) whole.push_back(key), places.push_back(place);
  for (const auto& [key, place] : reals) real.push_back(key), places.push_back(place);
  const auto scalar = [&](int64_t v) {
    return n.Constant(Repeated(FromInts({v}, DType::kI32), {}));
  };
  ValueId place = scalar(count);
  if (!places.empty()) {
    const auto distinct = static_cast<int64_t>(places.size());
    const int64_t elements = NumElements(n.Type(x));
    if (static_cast<double>(elements) * static_cast<double>(distinct) > kMostComparisons) {
      n.Unsupported(
          absl::StrCat("a comparison of ", elements, " elements with ", distinct, " keys"));
      return -1;
    }
    const TensorData sorted =
        ir::IsFloat(dtype) ? FromDoubles(real, {distinct}, dtype) : FromInts(whole, dtype);
    const ValueId equal = n.Emit(OpKind::kEqual, {Apart(n, x), n.Constant(sorted)});
    const ValueId found =
        n.Emit(OpKind::kWhere, {equal, n.Constant(FromInts(places, DType::kI32)), place});
    place = n.Emit(OpKind::kReduceMin, {found},
                   {{"axes", Shape{int64_t{n.Rank(x)}}}, {"keepdims", int64_t{0}}});
  }
  if (nan >= 0) place = n.Emit(OpKind::kWhere, {n.Emit(OpKind::kIsnan, {x}), scalar(nan), place});
  return n.Emit(OpKind::kGather, {n.Constant(std::move(values_and_default)), place},
                {{"axis", int64_t{0}}});
}

// Places from 0 on, and -1 for the default: what a module gives instead of strings (labels.h).
TensorData Places(size_t count) {
  std::vector<int64_t> places(count);
  std::iota(places.begin(), places.end(), int64_t{0});
  places.push_back(-1);
  return FromInts(places);
}

TensorData Vector(const std::vector<double>& numbers) {
  return FromDoubles(numbers, {static_cast<int64_t>(numbers.size())}, DType::kF32);
}

// The elements of an attribute that is a tensor, as a vector.
std::optional<TensorData> TensorOf(NodeImport& n, std::string_view name) {
  auto data = FromOnnxTensor(n.Find(name)->t());
  if (!data.ok()) {
    n.Unsupported(absl::StrCat("'", std::string(name), "': ", data.status().message()));
    return std::nullopt;
  }
  data->type.shape = {NumElements(data->type)};
  return *std::move(data);
}

// The keys of a LabelEncoder; nothing if they are no numbers, which is refused.
std::optional<TensorData> EncoderKeys(NodeImport& n) {
  if (n.HasAttr("keys_int64s")) return FromInts(n.Ints("keys_int64s"));
  if (n.HasAttr("keys_floats")) return Vector(n.Floats("keys_floats"));
  if (n.HasAttr("keys_tensor")) return TensorOf(n, "keys_tensor");
  if (n.HasAttr("keys_strings"))
    n.Unsupported("keys that are strings, for what is no input's string");
  else
    n.Fail("has no keys");
  return std::nullopt;
}

// The values of a LabelEncoder, and behind them its default.
std::optional<TensorData> ValuesOf(NodeImport& n) {
  const bool tensor_of_strings =
      n.HasAttr("values_tensor") &&
      n.Find("values_tensor")->t().data_type() == onnx::TensorProto::STRING;
  if (n.HasAttr("values_strings")) return Places(n.Strings("values_strings").size());
  if (tensor_of_strings) return Places(n.Find("values_tensor")->t().string_data_size());
  std::optional<TensorData> values;
  if (n.HasAttr("values_int64s")) {
    values = FromInts(n.Ints("values_int64s"));
  } else if (n.HasAttr("values_floats")) {
    values = Vector(n.Floats("values_floats"));
  } else if (n.HasAttr("values_tensor")) {
    values = TensorOf(n, "values_tensor");
  } else {
    n.Fail("has no values");
  }
  if (!values) return std::nullopt;
  const DType dtype = values->type.dtype;
  TensorData fallback = ir::IsFloat(dtype) ? FromDoubles({n.Float("default_float")}, {1}, dtype)
                                           : FromInts({n.Int("default_int64")}, dtype);
  if (n.HasAttr("default_tensor")) {
    const auto given = TensorOf(n, "default_tensor");
    if (!given) return std::nullopt;
    if (given->type != fallback.type) {
      n.Fail(absl::StrCat("has the default ", ToText(given->type), " for values of type ",
                          std::string(ir::Name(dtype))));
      return std::nullopt;
    }
    fallback = *given;
  }
  const int64_t count = NumElements(values->type);
  return TensorData{{dtype, {count + 1}},
                    SharedBytes::Of(std::string(*values->bytes) + std::string(*fallback.bytes))};
}

void LabelEncoder(NodeImport& n) {
  const ValueId x = n.In(0);
  // Defaults of other types than the values'.
  n.Ignore({"default_string", "default_int64", "default_float", "default_tensor"});
  if (n.opset() == 1) {
    // Places to strings, which a module gives as places.
    const std::vector<std::string> classes = n.Strings("classes_strings");
    std::vector<int64_t> keys(classes.size());
    std::iota(keys.begin(), keys.end(), int64_t{0});
    return n.Set(0, LookUp(n, x, FromInts(keys), Places(keys.size())));
  }
  const std::optional<TensorData> keys = EncoderKeys(n);
  std::optional<TensorData> values = ValuesOf(n);
  if (keys && values) n.Set(0, LookUp(n, x, *keys, *std::move(values)));
}

// Integers to strings, which a module gives as places.
void CategoryMapper(NodeImport& n) {
  n.Ignore({"default_string", "default_int64"});
  const std::vector<int64_t> keys = n.Ints("cats_int64s");
  n.Set(0, LookUp(n, n.In(0), FromInts(keys), Places(n.Strings("cats_strings").size())));
}

// ---- Maps ----

// Of a map that has not become a table (maps.h).
void OfMap(NodeImport& n) {
  n.Unsupported(
      "a map that does not go into the model, or is to strings, or whose keys are not one list; "
      "give a tensor");
}

// ---- Results ----

// The map from labels to scores stays the tensor of the scores.
void ZipMap(NodeImport& n) {
  const ValueId scores = n.In(0);
  const std::vector<int64_t> labels = ClassLabels(n, "classlabels_int64s", "classlabels_strings");
  if (!n.ok()) return;
  const Shape& shape = n.ShapeOf(scores);
  if (shape.empty() || shape.back() != static_cast<int64_t>(labels.size()))
    return n.Fail(absl::StrCat(labels.size(), " labels for scores ", ShapeText(shape)));
  n.Set(0, scores);
}

}  // namespace

void AddFeatureTranslations(TranslationTable& table) {
  const auto add = [&](const char* name, Translation::Run run, const char* limits = "") {
    table[onnx::OperatorKey(onnx::kMlDomain, name)] = {run, limits};
  };
  add("Scaler", Scaler);
  add("Normalizer", Normalizer);
  add("Imputer", Imputer);
  add("Binarizer", Binarizer);
  add("FeatureVectorizer", FeatureVectorizer);
  add("ArrayFeatureExtractor", ArrayFeatureExtractor);
  add("OneHotEncoder", OneHotEncoder, "zeros=0 (an unknown category gives zeros in any case)");
  add("LabelEncoder", LabelEncoder, "keys or values in a tensor, for strings that the model gives");
  add("CategoryMapper", CategoryMapper);
  add("DictVectorizer", OfMap, "maps to strings; several lists of keys for one map");
  add("CastMap", OfMap, "maps to strings; map_form=DENSE; cast_to=TO_STRING");
  add("ZipMap", ZipMap, "maps: the result is the tensor of scores");
}

}  // namespace heddle::graph
