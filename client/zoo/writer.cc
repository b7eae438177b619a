#include "client/zoo/writer.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"

namespace heddle::zoo {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data of ONNX is little endian");

void Describe(onnx::ValueInfoProto* info, const std::string& name, const ModelWriter::Dims& shape,
              onnx::TensorProto::DataType dtype) {
  info->set_name(name);
  auto* type = info->mutable_type()->mutable_tensor_type();
  type->set_elem_type(dtype);
  for (int64_t d : shape) type->mutable_shape()->add_dim()->set_dim_value(d);
}

void AddAttribute(onnx::NodeProto* node, const std::string& name,
                  const ModelWriter::Attribute& value) {
  onnx::AttributeProto* a = node->add_attribute();
  a->set_name(name);
  if (const auto* i = std::get_if<int64_t>(&value)) {
    a->set_type(onnx::AttributeProto::INT);
    a->set_i(*i);
  } else if (const auto* f = std::get_if<float>(&value)) {
    a->set_type(onnx::AttributeProto::FLOAT);
    a->set_f(*f);
  } else if (const auto* s = std::get_if<std::string>(&value)) {
    a->set_type(onnx::AttributeProto::STRING);
    a->set_s(*s);
  } else {
    a->set_type(onnx::AttributeProto::INTS);
    for (int64_t v : std::get<ModelWriter::Dims>(value)) a->add_ints(v);
  }
}

}  // namespace

uint64_t ZooRandom::Next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

float ZooRandom::Uniform(float low, float high) {
  const float unit = static_cast<float>(Next() >> 40) * 0x1p-24f;
  return low + (high - low) * unit;
}

ModelWriter::ModelWriter(const std::string& name, uint64_t seed) : random_(seed) {
  model_.set_ir_version(7);
  model_.set_producer_name("heddle zoo");
  auto* opset = model_.add_opset_import();
  opset->set_domain("");
  opset->set_version(13);
  model_.mutable_graph()->set_name(name);
}

std::string ModelWriter::Input(const std::string& name, const Dims& shape,
                               onnx::TensorProto::DataType type) {
  Describe(model_.mutable_graph()->add_input(), name, shape, type);
  return name;
}

void ModelWriter::Output(const std::string& value, const std::string& name, const Dims& shape) {
  for (onnx::NodeProto& node : *model_.mutable_graph()->mutable_node()) {
    for (std::string& input : *node.mutable_input()) {
      if (input == value) input = name;
    }
    for (std::string& output : *node.mutable_output()) {
      if (output == value) output = name;
    }
  }
  Describe(model_.mutable_graph()->add_output(), name, shape, onnx::TensorProto::FLOAT);
}

std::string ModelWriter::Op(const std::string& type, const std::string& name, const Names& inputs,
                            const Attributes& attributes) {
  return Ops(type, name, inputs, 1, attributes)[0];
}

ModelWriter::Names ModelWriter::Ops(const std::string& type, const std::string& name,
                                    const Names& inputs, int outputs,
                                    const Attributes& attributes) {
  onnx::NodeProto* node = model_.mutable_graph()->add_node();
  node->set_op_type(type);
  node->set_name(name);
  for (const std::string& input : inputs) node->add_input(input);
  for (int i = 0; i < outputs; ++i)
    node->add_output(outputs == 1 ? name + ".out" : absl::StrCat(name, ".out", i));
  for (const auto& [attribute, value] : attributes) AddAttribute(node, attribute, value);
  return {node->output().begin(), node->output().end()};
}

std::string ModelWriter::Uniform(const std::string& name, const Dims& shape, float low,
                                 float high) {
  onnx::TensorProto* tensor = model_.mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  size_t count = 1;
  for (int64_t d : shape) {
    tensor->add_dims(d);
    count *= static_cast<size_t>(d);
  }
  std::string* bytes = tensor->mutable_raw_data();
  bytes->resize(count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    const float value = random_.Uniform(low, high);
    std::memcpy(bytes->data() + i * sizeof(float), &value, sizeof(float));
  }
  return name;
}

// A uniform distribution in [-b, b) has the variance b^2 / 3.
std::string ModelWriter::RectifierWeight(const std::string& name, const Dims& shape,
                                         int64_t fan_in) {
  const float bound = std::sqrt(6.0f / static_cast<float>(fan_in));
  return Uniform(name, shape, -bound, bound);
}

std::string ModelWriter::LinearWeight(const std::string& name, const Dims& shape, int64_t fan_in) {
  const float bound = std::sqrt(3.0f / static_cast<float>(fan_in));
  return Uniform(name, shape, -bound, bound);
}

std::string ModelWriter::Scalar(const std::string& name, float value) {
  onnx::TensorProto* tensor = model_.mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  tensor->add_float_data(value);
  return name;
}

std::string ModelWriter::Ints(const std::string& name, const Dims& values) {
  onnx::TensorProto* tensor = model_.mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::INT64);
  tensor->add_dims(static_cast<int64_t>(values.size()));
  for (int64_t v : values) tensor->add_int64_data(v);
  return name;
}

std::string ModelWriter::Conv(const std::string& x, const std::string& name, const ConvSpec& conv) {
  const int64_t group_in = conv.in / conv.groups;
  const std::string weight =
      RectifierWeight(name + ".weight", {conv.out, group_in, conv.kernel_h, conv.kernel_w},
                      group_in * conv.kernel_h * conv.kernel_w);
  return Op("Conv", name, {x, weight},
            {{"dilations", Dims{1, 1}},
             {"group", conv.groups},
             {"kernel_shape", Dims{conv.kernel_h, conv.kernel_w}},
             {"pads", Dims{conv.pad_h, conv.pad_w, conv.pad_h, conv.pad_w}},
             {"strides", Dims{conv.stride, conv.stride}}});
}

std::string ModelWriter::ConvBias(const std::string& x, const std::string& name,
                                  const ConvSpec& conv) {
  const std::string y = Conv(x, name, conv);
  onnx::NodeProto* node = model_.mutable_graph()->mutable_node(model_.graph().node_size() - 1);
  node->add_input(Uniform(name + ".bias", {conv.out}, -0.1f, 0.1f));
  return y;
}

std::string ModelWriter::BatchNorm(const std::string& x, const std::string& name, int64_t channels,
                                   float epsilon) {
  const Dims shape{channels};
  // In separate statements, since the evaluation order of arguments is unspecified.
  const std::string scale = Uniform(name + ".scale", shape, 0.9f, 1.1f);
  const std::string bias = Uniform(name + ".bias", shape, -0.1f, 0.1f);
  const std::string mean = Uniform(name + ".mean", shape, -0.1f, 0.1f);
  const std::string var = Uniform(name + ".var", shape, 0.9f, 1.1f);
  return Op("BatchNormalization", name, {x, scale, bias, mean, var}, {{"epsilon", epsilon}});
}

std::string ModelWriter::ConvBn(const std::string& x, const std::string& name, int64_t in,
                                int64_t out, int64_t kernel, int64_t stride, int64_t groups) {
  const std::string y =
      Conv(x, name, {in, out, kernel, kernel, stride, kernel / 2, kernel / 2, groups});
  return BatchNorm(y, name + ".bn", out);
}

std::string ModelWriter::Relu(const std::string& x, const std::string& name) {
  return Op("Relu", name, {x});
}

std::string ModelWriter::Relu6(const std::string& x, const std::string& name) {
  if (clip_min_.empty()) {
    clip_min_ = Scalar("relu6.min", 0);
    clip_max_ = Scalar("relu6.max", 6);
  }
  return Op("Clip", name, {x, clip_min_, clip_max_});
}

std::string ModelWriter::Add(const std::string& a, const std::string& b, const std::string& name) {
  return Op("Add", name, {a, b});
}

std::string ModelWriter::Concat(const Names& parts, const std::string& name, int64_t axis) {
  return Op("Concat", name, parts, {{"axis", axis}});
}

std::string ModelWriter::MaxPool(const std::string& x, const std::string& name, int64_t kernel,
                                 int64_t stride, int64_t pad, bool ceil) {
  Attributes attributes{{"kernel_shape", Dims{kernel, kernel}},
                        {"pads", Dims{pad, pad, pad, pad}},
                        {"strides", Dims{stride, stride}}};
  if (ceil) attributes.emplace_back("ceil_mode", int64_t{1});
  return Op("MaxPool", name, {x}, attributes);
}

std::string ModelWriter::AveragePool(const std::string& x, const std::string& name, int64_t kernel,
                                     int64_t stride, int64_t pad) {
  return Op("AveragePool", name, {x},
            {{"kernel_shape", Dims{kernel, kernel}},
             {"pads", Dims{pad, pad, pad, pad}},
             {"strides", Dims{stride, stride}}});
}

std::string ModelWriter::GlobalPoolFlatten(const std::string& x) {
  return Flatten(Op("GlobalAveragePool", "avgpool", {x}), "flatten");
}

std::string ModelWriter::Flatten(const std::string& x, const std::string& name) {
  return Op("Flatten", name, {x}, {{"axis", int64_t{1}}});
}

std::string ModelWriter::Dense(const std::string& x, const std::string& name, int64_t in,
                               int64_t out) {
  const std::string weight = RectifierWeight(name + ".weight", {out, in}, in);
  const std::string bias = Uniform(name + ".bias", {out}, -0.1f, 0.1f);
  return Op("Gemm", name, {x, weight, bias},
            {{"alpha", 1.0f}, {"beta", 1.0f}, {"transB", int64_t{1}}});
}

std::string ModelWriter::Softmax(const std::string& x, const std::string& name) {
  return Op("Softmax", name, {x}, {{"axis", int64_t{-1}}});
}

absl::StatusOr<std::string> ModelWriter::Finish() {
  std::set<std::string> names;
  const auto add = [&](const std::string& name) { return names.insert(name).second; };
  const onnx::GraphProto& graph = model_.graph();
  bool unique = true;
  for (const onnx::ValueInfoProto& input : graph.input()) unique &= add(input.name());
  for (const onnx::TensorProto& tensor : graph.initializer()) unique &= add(tensor.name());
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) unique &= add(output);
  }
  if (!unique) return absl::InternalError("the zoo gave one name to two values of a model");
  return model_.SerializeAsString();
}

}  // namespace heddle::zoo
