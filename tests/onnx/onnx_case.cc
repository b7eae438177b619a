#include "tests/onnx/onnx_case.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/measure/compare.h"
#include "compiler/onnx/format/onnx_format.pb.h"
#include "compiler/onnx/node.h"
#include "compiler/runtime/executor.h"
#include "tests/onnx/random_cases.h"

namespace heddle::onnx_cases {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::vector<onnx::TensorProto> ReadTensors(const fs::path& folder, const std::string& prefix) {
  std::vector<onnx::TensorProto> tensors;
  for (int i = 0;; ++i) {
    const fs::path path = folder / absl::StrCat(prefix, "_", i, ".pb");
    if (!fs::exists(path)) return tensors;
    tensors.emplace_back();
    if (!tensors.back().ParseFromString(ReadFile(path))) tensors.back().Clear();
  }
}

std::string Dims(const std::vector<int64_t>& shape) {
  std::string s;
  for (int64_t d : shape) absl::StrAppend(&s, s.empty() ? "" : "x", d);
  return s;
}

absl::Status Compare(const runtime::Executor& executor, int index,
                     const onnx::TensorProto& expected, bool random) {
  const runtime::TensorSpec& spec = executor.manifest().outputs[static_cast<size_t>(index)];
  const std::vector<int64_t> shape(expected.dims().begin(), expected.dims().end());
  if (shape != executor.OutputShape(index)) {
    return absl::InternalError(absl::StrCat("output ", spec.name, " is ",
                                            Dims(executor.OutputShape(index)), ", expected ",
                                            Dims(shape)));
  }
  HEDDLE_ASSIGN_OR_RETURN(const graph::TensorData wanted, graph::FromOnnxTensor(expected));
  const std::optional<ir::DType> dtype = ir::DTypeFromName(spec.dtype);
  if (dtype != wanted.type.dtype)
    return absl::InternalError(absl::StrCat("output ", spec.name, " is of type ", spec.dtype));
  if (random) return absl::OkStatus();
  auto bytes = std::make_shared<const std::string>(executor.Output(index));
  const std::vector<double> values = graph::ToDoubles(wanted),
                            found = graph::ToDoubles({wanted.type, bytes});
  // As the standard's own runner: two units in the last place of bfloat16.
  runtime::Tolerance tolerance = runtime::kDirectTolerance;
  if (dtype == ir::DType::kBF16) tolerance.relative = 0x1p-6;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!Same(*dtype, found[i], values[i], tolerance)) {
      return absl::InternalError(
          absl::StrCat("output ", spec.name, "[", i, "] = ", found[i], ", expected ", values[i]));
    }
  }
  return absl::OkStatus();
}

// Which inputs stay inputs.
enum class Bind { kNone, kAllButFirst, kAll };

onnx::ModelProto BindInputs(const onnx::ModelProto& model,
                            const std::vector<onnx::TensorProto>& data, Bind bind) {
  onnx::ModelProto bound = model;
  auto* graph = bound.mutable_graph();
  graph->clear_input();
  for (int i = 0; i < model.graph().input_size(); ++i) {
    // What is no tensor of ours cannot be a constant.
    const onnx::TypeProto& type = model.graph().input(i).type();
    const bool tensor = i < static_cast<int>(data.size()) && type.has_tensor_type() &&
                        type.tensor_type().elem_type() == data[i].data_type();
    const bool wanted = bind == Bind::kAll || (bind == Bind::kAllButFirst && i > 0);
    if (!wanted || !tensor) {
      *graph->add_input() = model.graph().input(i);
      continue;
    }
    auto* initializer = graph->add_initializer();
    *initializer = data[i];
    initializer->set_name(model.graph().input(i).name());
  }
  return bound;
}

absl::Status RunData(const std::string& bytes, const onnx::ModelProto& bound,
                     const onnx::ModelProto& model, const std::vector<onnx::TensorProto>& inputs,
                     const std::vector<onnx::TensorProto>& outputs, bool random) {
  HEDDLE_ASSIGN_OR_RETURN(Target target, ParseTarget("llvm -mcpu=native"));
  HEDDLE_ASSIGN_OR_RETURN(const Target resolved, codegen::ResolveTarget(target));
  CompileOptions compile;
  compile.choice = ScheduleChoice::kDefault;
  compile.model_name = "case";
  HEDDLE_ASSIGN_OR_RETURN(std::string file, CompileModel(bytes, {}, resolved, {}, compile));
  HEDDLE_ASSIGN_OR_RETURN(runtime::Module module, runtime::ParseModule(file));
  HEDDLE_ASSIGN_OR_RETURN(auto executor, runtime::Executor::Create(std::move(module)));
  const runtime::Manifest& manifest = executor->manifest();
  for (size_t k = 0; k < manifest.inputs.size(); ++k) {
    if (random)  // a seed is no input of the case
      std::memset(executor->InputData(static_cast<int>(k)), 0, manifest.inputs[k].SizeBytes());
    for (int i = 0; i < model.graph().input_size(); ++i) {
      if (model.graph().input(i).name() != manifest.inputs[k].name) continue;
      HEDDLE_ASSIGN_OR_RETURN(const graph::TensorData input, graph::FromOnnxTensor(inputs[i]));
      if (static_cast<int64_t>(input.bytes->size()) != manifest.inputs[k].SizeBytes()) {
        return absl::InternalError(
            absl::StrCat("input ", manifest.inputs[k].name, " has another size"));
      }
      std::memcpy(executor->InputData(static_cast<int>(k)), input.bytes->data(),
                  input.bytes->size());
    }
  }
  executor->Run().IgnoreError();  // on a processor it does not fail
  if (manifest.NumResults() != static_cast<int>(outputs.size()))
    return absl::InternalError("wrong number of outputs");
  for (size_t k = 0; k < outputs.size(); ++k) {
    HEDDLE_RETURN_IF_ERROR(Compare(*executor, static_cast<int>(k), outputs[k], random));
  }
  return absl::OkStatus();
}

bool HaveTypes(const std::vector<onnx::TensorProto>& data,
               const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& declared) {
  for (int i = 0; i < declared.size() && i < static_cast<int>(data.size()); ++i) {
    const onnx::TypeProto& type = declared[i].type();
    if (type.has_tensor_type() && type.tensor_type().elem_type() != data[i].data_type())
      return false;
  }
  return true;
}

std::string OneLine(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\n", " "}}).substr(0, 400);
}

}  // namespace

Result RunCase(const std::string& folder) {
  const fs::path path(folder);
  const std::string original = ReadFile(path / "model.onnx");
  onnx::ModelProto model;
  if (!model.ParseFromString(original)) return {Verdict::kFailed, "cannot read the model"};
  Result result{Verdict::kFailed, "no data set"};
  const bool random = IsRandomCase(path.filename().string());
  for (int set = 0; fs::exists(path / absl::StrCat("test_data_set_", set)); ++set) {
    const fs::path data = path / absl::StrCat("test_data_set_", set);
    const auto inputs = ReadTensors(data, "input"), outputs = ReadTensors(data, "output");
    // Old releases store bfloat16 as other types.
    if (!HaveTypes(inputs, model.graph().input()) || !HaveTypes(outputs, model.graph().output()))
      return {Verdict::kUnsupported, "the data has another type than the model says"};
    absl::Status imported;
    for (Bind bind : {Bind::kNone, Bind::kAllButFirst, Bind::kAll}) {
      const onnx::ModelProto bound = BindInputs(model, inputs, bind);
      const std::string bytes = bound.SerializeAsString();
      imported = graph::ImportOnnx(bytes).status();
      if (absl::IsUnimplemented(imported)) continue;
      if (!imported.ok()) return {Verdict::kFailed, "import: " + OneLine(imported.message())};
      const absl::Status run = RunData(bytes, bound, model, inputs, outputs, random);
      if (!run.ok()) return {Verdict::kFailed, OneLine(run.message())};
      result = {random ? Verdict::kRandom : Verdict::kPassed,
                bound.graph().input_size() == 0 ? kAllConstant : ""};
      break;
    }
    if (!imported.ok()) return {Verdict::kUnsupported, OneLine(imported.message())};
  }
  return result;
}

}  // namespace heddle::onnx_cases
