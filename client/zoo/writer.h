// Writes ONNX models node by node, with deterministic random weights. Internal to the zoo.
//
// Every method that adds a node returns the name of its result. The caller chooses the names of
// nodes and initializers. They must be unique, which Finish checks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/onnx/format/onnx_format.pb.h"

namespace heddle::zoo {

// SplitMix64: small, fast, and the same everywhere (the standard library's distributions are not).
class ZooRandom {
 public:
  explicit ZooRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // In [low, high); 24 random bits, so that the arithmetic is exact up to one rounding.
  float Uniform(float low, float high);

 private:
  uint64_t state_;
};

// A two-dimensional convolution. Padding is the same on both sides.
struct ConvSpec {
  int64_t in = 1, out = 1;  // channels
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride = 1;
  int64_t pad_h = 0, pad_w = 0;
  int64_t groups = 1;
};

class ModelWriter {
 public:
  using Names = std::vector<std::string>;
  using Dims = std::vector<int64_t>;
  using Attribute = std::variant<int64_t, float, std::string, Dims>;
  using Attributes = std::vector<std::pair<std::string, Attribute>>;

  ModelWriter(const std::string& name, uint64_t seed);

  std::string Input(const std::string& name, const Dims& shape,
                    onnx::TensorProto::DataType type = onnx::TensorProto::FLOAT);
  // Makes `value`, a node's result, an output called `name`. Values are written once, so call this
  // after adding everything that reads the value.
  void Output(const std::string& value, const std::string& name, const Dims& shape);

  // Any operator; the result is called name + ".out" (".out0", ".out1", .. where there are
  // several).
  std::string Op(const std::string& type, const std::string& name, const Names& inputs,
                 const Attributes& attributes = {});
  Names Ops(const std::string& type, const std::string& name, const Names& inputs, int outputs,
            const Attributes& attributes = {});

  // Initializers; each returns its name.
  std::string Uniform(const std::string& name, const Dims& shape, float low, float high);
  // Variance 2 / fan-in (He et al.) before a rectifier, 1 / fan-in elsewhere.
  std::string RectifierWeight(const std::string& name, const Dims& shape, int64_t fan_in);
  std::string LinearWeight(const std::string& name, const Dims& shape, int64_t fan_in);
  std::string Scalar(const std::string& name, float value);
  std::string Ints(const std::string& name, const Dims& values);  // a vector of int64

  // Layers.
  std::string Conv(const std::string& x, const std::string& name, const ConvSpec& conv);
  std::string ConvBias(const std::string& x, const std::string& name, const ConvSpec& conv);
  std::string BatchNorm(const std::string& x, const std::string& name, int64_t channels,
                        float epsilon = 1e-5f);
  // Convolution without bias and batch normalisation, as training frameworks export them; a square
  // kernel, padded by half of it.
  std::string ConvBn(const std::string& x, const std::string& name, int64_t in, int64_t out,
                     int64_t kernel, int64_t stride, int64_t groups = 1);
  std::string Relu(const std::string& x, const std::string& name);
  std::string Relu6(const std::string& x, const std::string& name);
  std::string Add(const std::string& a, const std::string& b, const std::string& name);
  std::string Concat(const Names& parts, const std::string& name, int64_t axis);
  std::string MaxPool(const std::string& x, const std::string& name, int64_t kernel, int64_t stride,
                      int64_t pad, bool ceil = false);
  std::string AveragePool(const std::string& x, const std::string& name, int64_t kernel,
                          int64_t stride, int64_t pad);  // padding does not count
  std::string GlobalPoolFlatten(const std::string& x);
  std::string Flatten(const std::string& x, const std::string& name);
  std::string Dense(const std::string& x, const std::string& name, int64_t in, int64_t out);
  std::string Softmax(const std::string& x, const std::string& name);

  // The serialised model. Internal if two values have one name.
  absl::StatusOr<std::string> Finish();

 private:
  ZooRandom random_;
  onnx::ModelProto model_;
  std::string clip_min_, clip_max_;
};

}  // namespace heddle::zoo
