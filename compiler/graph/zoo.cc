#include "compiler/graph/zoo.h"

#include <cmath>
#include <exception>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "onnx/checker.h"
#include "onnx/onnx_pb.h"

namespace heddle::graph {
namespace {

// SplitMix64: small, fast, and the same everywhere (the standard library's distributions are not).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [low, high); 24 random bits, so that the arithmetic is exact up to one rounding.
  float Uniform(float low, float high) {
    const float unit = static_cast<float>(Next() >> 40) * 0x1p-24f;
    return low + (high - low) * unit;
  }

 private:
  uint64_t state_;
};

// Writes nodes one after another; every method returns the name of its result.
class ModelWriter {
 public:
  ModelWriter(const std::string& name, uint64_t seed) : random_(seed) {
    model_.set_ir_version(7);
    model_.set_producer_name("heddle zoo");
    auto* opset = model_.add_opset_import();
    opset->set_domain("");
    opset->set_version(13);
    model_.mutable_graph()->set_name(name);
  }

  std::string Input(const std::string& name, const std::vector<int64_t>& shape) {
    Describe(model_.mutable_graph()->add_input(), name, shape);
    return name;
  }
  void Output(const std::string& name, const std::vector<int64_t>& shape) {
    // The last node's result takes the name.
    model_.mutable_graph()->mutable_node(model_.graph().node_size() - 1)->set_output(0, name);
    Describe(model_.mutable_graph()->add_output(), name, shape);
  }

  // Convolution without bias and batch normalisation, as training frameworks export them.
  std::string ConvBn(const std::string& x, const std::string& name, int64_t in, int64_t out,
                     int64_t kernel, int64_t stride, int64_t groups = 1) {
    const int64_t fan_in = in / groups * kernel * kernel, pad = kernel / 2;
    onnx::NodeProto* conv = Node(
        "Conv", name, {x, Weight(name + ".weight", {out, in / groups, kernel, kernel}, fan_in)});
    Ints(conv, "dilations", {1, 1});
    Int(conv, "group", groups);
    Ints(conv, "kernel_shape", {kernel, kernel});
    Ints(conv, "pads", {pad, pad, pad, pad});
    Ints(conv, "strides", {stride, stride});
    onnx::NodeProto* bn = Node("BatchNormalization", name + ".bn",
                               {conv->output(0), Uniform(name + ".bn.scale", {out}, 0.9f, 1.1f),
                                Uniform(name + ".bn.bias", {out}, -0.1f, 0.1f),
                                Uniform(name + ".bn.mean", {out}, -0.1f, 0.1f),
                                Uniform(name + ".bn.var", {out}, 0.9f, 1.1f)});
    Float(bn, "epsilon", 1e-5f);
    return bn->output(0);
  }

  std::string Relu(const std::string& x, const std::string& name) {
    return Node("Relu", name, {x})->output(0);
  }

  std::string Relu6(const std::string& x, const std::string& name) {
    if (clip_min_.empty()) {
      clip_min_ = Scalar("relu6.min", 0);
      clip_max_ = Scalar("relu6.max", 6);
    }
    return Node("Clip", name, {x, clip_min_, clip_max_})->output(0);
  }

  std::string Add(const std::string& a, const std::string& b, const std::string& name) {
    return Node("Add", name, {a, b})->output(0);
  }

  std::string MaxPool(const std::string& x, const std::string& name, int64_t kernel, int64_t stride,
                      int64_t pad) {
    onnx::NodeProto* pool = Node("MaxPool", name, {x});
    Ints(pool, "kernel_shape", {kernel, kernel});
    Ints(pool, "pads", {pad, pad, pad, pad});
    Ints(pool, "strides", {stride, stride});
    return pool->output(0);
  }

  std::string GlobalPoolFlatten(const std::string& x) {
    const std::string pooled = Node("GlobalAveragePool", "avgpool", {x})->output(0);
    onnx::NodeProto* flatten = Node("Flatten", "flatten", {pooled});
    Int(flatten, "axis", 1);
    return flatten->output(0);
  }

  std::string Dense(const std::string& x, const std::string& name, int64_t in, int64_t out) {
    onnx::NodeProto* gemm = Node(
        "Gemm", name,
        {x, Weight(name + ".weight", {out, in}, in), Uniform(name + ".bias", {out}, -0.1f, 0.1f)});
    Float(gemm, "alpha", 1);
    Float(gemm, "beta", 1);
    Int(gemm, "transB", 1);
    return gemm->output(0);
  }

  std::string Softmax(const std::string& x, const std::string& name) {
    onnx::NodeProto* softmax = Node("Softmax", name, {x});
    Int(softmax, "axis", -1);
    return softmax->output(0);
  }

  absl::StatusOr<std::string> Finish() {
    try {
      onnx::checker::check_model(model_);
    } catch (const std::exception& e) {
      return absl::InternalError(absl::StrCat("the zoo wrote an invalid model: ", e.what()));
    }
    return model_.SerializeAsString();
  }

 private:
  onnx::NodeProto* Node(const std::string& op, const std::string& name,
                        const std::vector<std::string>& inputs) {
    onnx::NodeProto* node = model_.mutable_graph()->add_node();
    node->set_op_type(op);
    node->set_name(name);
    for (const std::string& input : inputs) node->add_input(input);
    node->add_output(name + ".out");
    return node;
  }

  onnx::AttributeProto* Attribute(onnx::NodeProto* node, const std::string& name,
                                  onnx::AttributeProto::AttributeType type) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(type);
    return attribute;
  }
  void Int(onnx::NodeProto* node, const std::string& name, int64_t value) {
    Attribute(node, name, onnx::AttributeProto::INT)->set_i(value);
  }
  void Float(onnx::NodeProto* node, const std::string& name, float value) {
    Attribute(node, name, onnx::AttributeProto::FLOAT)->set_f(value);
  }
  void Ints(onnx::NodeProto* node, const std::string& name, const std::vector<int64_t>& values) {
    onnx::AttributeProto* attribute = Attribute(node, name, onnx::AttributeProto::INTS);
    for (int64_t v : values) attribute->add_ints(v);
  }

  std::string Uniform(const std::string& name, const std::vector<int64_t>& shape, float low,
                      float high) {
    onnx::TensorProto* tensor = model_.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    int64_t count = 1;
    for (int64_t d : shape) {
      tensor->add_dims(d);
      count *= d;
    }
    std::string* bytes = tensor->mutable_raw_data();
    bytes->reserve(static_cast<size_t>(count) * 4);
    for (int64_t i = 0; i < count; ++i) {
      // raw_data is little endian by definition.
      uint32_t bits;
      const float value = random_.Uniform(low, high);
      static_assert(sizeof(bits) == sizeof(value));
      __builtin_memcpy(&bits, &value, sizeof(bits));
      for (int k = 0; k < 4; ++k) bytes->push_back(static_cast<char>(bits >> (8 * k)));
    }
    return name;
  }

  // He: variance 2 / fan-in, here of a uniform distribution (whose variance is bound^2 / 3).
  std::string Weight(const std::string& name, const std::vector<int64_t>& shape, int64_t fan_in) {
    const float bound = std::sqrt(6.0f / static_cast<float>(fan_in));
    return Uniform(name, shape, -bound, bound);
  }

  std::string Scalar(const std::string& name, float value) {
    onnx::TensorProto* tensor = model_.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    tensor->add_float_data(value);
    return name;
  }

  static void Describe(onnx::ValueInfoProto* info, const std::string& name,
                       const std::vector<int64_t>& shape) {
    info->set_name(name);
    auto* type = info->mutable_type()->mutable_tensor_type();
    type->set_elem_type(onnx::TensorProto::FLOAT);
    for (int64_t d : shape) type->mutable_shape()->add_dim()->set_dim_value(d);
  }

  Random random_;
  onnx::ModelProto model_;
  std::string clip_min_, clip_max_;
};

void Mlp(ModelWriter& m) {
  std::string x = m.Input("input", {1, 784});
  x = m.Relu(m.Dense(x, "fc1", 784, 512), "relu1");
  x = m.Relu(m.Dense(x, "fc2", 512, 256), "relu2");
  m.Softmax(m.Dense(x, "fc3", 256, 10), "softmax");
  m.Output("probabilities", {1, 10});
}

// He et al., "Deep Residual Learning for Image Recognition", table 1, 18 layers.
void Resnet18(ModelWriter& m) {
  std::string x = m.Input("input", {1, 3, 224, 224});
  x = m.Relu(m.ConvBn(x, "conv1", 3, 64, 7, 2), "relu1");
  x = m.MaxPool(x, "maxpool", 3, 2, 1);
  int64_t channels = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t out = int64_t{64} << stage;
    for (int block = 0; block < 2; ++block) {
      const std::string name = absl::StrCat("layer", stage + 1, ".", block);
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      std::string y =
          m.Relu(m.ConvBn(x, name + ".conv1", channels, out, 3, stride), name + ".relu1");
      y = m.ConvBn(y, name + ".conv2", out, out, 3, 1);
      // A projection where the shape changes, else the identity.
      if (stride != 1) x = m.ConvBn(x, name + ".downsample", channels, out, 1, stride);
      x = m.Relu(m.Add(y, x, name + ".add"), name + ".relu2");
      channels = out;
    }
  }
  m.Dense(m.GlobalPoolFlatten(x), "fc", 512, 1000);
  m.Output("logits", {1, 1000});
}

// Howard et al., "MobileNets", table 1, width 1.0; ReLU6 as in the authors' implementation.
void MobilenetV1(ModelWriter& m) {
  std::string x = m.Input("input", {1, 3, 224, 224});
  x = m.Relu6(m.ConvBn(x, "conv1", 3, 32, 3, 2), "conv1.relu6");
  struct Block {
    int64_t out, stride;
  };
  const Block blocks[] = {{64, 1},  {128, 2}, {128, 1}, {256, 2}, {256, 1},  {512, 2}, {512, 1},
                          {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1}};
  int64_t channels = 32;
  for (size_t i = 0; i < std::size(blocks); ++i) {
    const std::string name = absl::StrCat("block", i + 1);
    x = m.Relu6(m.ConvBn(x, name + ".depthwise", channels, channels, 3, blocks[i].stride, channels),
                name + ".depthwise.relu6");
    x = m.Relu6(m.ConvBn(x, name + ".pointwise", channels, blocks[i].out, 1, 1),
                name + ".pointwise.relu6");
    channels = blocks[i].out;
  }
  m.Softmax(m.Dense(m.GlobalPoolFlatten(x), "fc", 1024, 1000), "softmax");
  m.Output("probabilities", {1, 1000});
}

// Sandler et al., "MobileNetV2", table 2, width 1.0.
void MobilenetV2(ModelWriter& m) {
  std::string x = m.Input("input", {1, 3, 224, 224});
  x = m.Relu6(m.ConvBn(x, "conv1", 3, 32, 3, 2), "conv1.relu6");
  struct Stage {
    int64_t expansion, out, repeats, stride;
  };
  const Stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                          {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  int64_t channels = 32;
  int index = 0;
  for (const Stage& stage : stages) {
    for (int64_t repeat = 0; repeat < stage.repeats; ++repeat) {
      const std::string name = absl::StrCat("block", ++index);
      const int64_t stride = repeat == 0 ? stage.stride : 1, hidden = channels * stage.expansion;
      std::string y = x;
      if (stage.expansion != 1) {
        y = m.Relu6(m.ConvBn(y, name + ".expand", channels, hidden, 1, 1), name + ".expand.relu6");
      }
      y = m.Relu6(m.ConvBn(y, name + ".depthwise", hidden, hidden, 3, stride, hidden),
                  name + ".depthwise.relu6");
      y = m.ConvBn(y, name + ".project", hidden, stage.out, 1, 1);
      x = stride == 1 && channels == stage.out ? m.Add(y, x, name + ".add") : y;
      channels = stage.out;
    }
  }
  x = m.Relu6(m.ConvBn(x, "conv2", 320, 1280, 1, 1), "conv2.relu6");
  m.Dense(m.GlobalPoolFlatten(x), "fc", 1280, 1000);
  m.Output("logits", {1, 1000});
}

const std::map<std::string, void (*)(ModelWriter&)>& Models() {
  static const auto* models =
      new std::map<std::string, void (*)(ModelWriter&)>{{"mlp", Mlp},
                                                        {"resnet18", Resnet18},
                                                        {"mobilenet_v1", MobilenetV1},
                                                        {"mobilenet_v2", MobilenetV2}};
  return *models;
}

}  // namespace

std::vector<std::string> ZooNames() { return {"mlp", "resnet18", "mobilenet_v1", "mobilenet_v2"}; }

absl::StatusOr<std::string> MakeZooModel(std::string_view name, uint64_t seed) {
  auto it = Models().find(std::string(name));
  if (it == Models().end()) {
    return absl::NotFoundError(absl::StrCat("no model '", std::string(name),
                                            "' in the zoo; there are ",
                                            absl::StrJoin(ZooNames(), ", ")));
  }
  ModelWriter writer(it->first, seed);
  it->second(writer);
  return writer.Finish();
}

}  // namespace heddle::graph
