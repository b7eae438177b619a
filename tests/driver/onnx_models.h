// ONNX models made by hand, for what no zoo model has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/onnx/format/onnx_format.pb.h"

namespace heddle {

class OnnxModel {
 public:
  OnnxModel() {
    model_.set_ir_version(8);
    model_.set_producer_name("test");
    auto* opset = model_.add_opset_import();
    opset->set_domain("");
    opset->set_version(13);
    model_.mutable_graph()->set_name("g");
  }

  OnnxModel& Input(const std::string& name, const std::vector<int64_t>& shape) {
    Describe(model_.mutable_graph()->add_input(), name, shape);
    return *this;
  }
  OnnxModel& Output(const std::string& name, const std::vector<int64_t>& shape) {
    Describe(model_.mutable_graph()->add_output(), name, shape);
    return *this;
  }
  OnnxModel& Constant(const std::string& name, const std::vector<int64_t>& shape,
                      const std::vector<float>& values) {
    auto* tensor = model_.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    for (int64_t extent : shape) tensor->add_dims(extent);
    for (float value : values) tensor->add_float_data(value);
    return *this;
  }
  OnnxModel& Ints(const std::string& name, const std::vector<int64_t>& values) {
    auto* tensor = model_.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::INT64);
    tensor->add_dims(static_cast<int64_t>(values.size()));
    for (int64_t value : values) tensor->add_int64_data(value);
    return *this;
  }
  OnnxModel& Node(const std::string& op, const std::vector<std::string>& inputs,
                  const std::vector<std::string>& outputs) {
    auto* node = model_.mutable_graph()->add_node();
    node->set_op_type(op);
    node->set_name(op + "_" + outputs[0]);
    for (const std::string& name : inputs) node->add_input(name);
    for (const std::string& name : outputs) node->add_output(name);
    return *this;
  }
  std::string Bytes() const { return model_.SerializeAsString(); }

 private:
  static void Describe(onnx::ValueInfoProto* info, const std::string& name,
                       const std::vector<int64_t>& shape) {
    info->set_name(name);
    auto* type = info->mutable_type()->mutable_tensor_type();
    type->set_elem_type(onnx::TensorProto::FLOAT);
    type->mutable_shape();
    for (int64_t extent : shape) type->mutable_shape()->add_dim()->set_dim_value(extent);
  }

  onnx::ModelProto model_;
};

}  // namespace heddle
