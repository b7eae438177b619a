// Runs ONNX models for differential.py: reads requests from stdin, answers each on stdout.
//
// A message is a sequence of byte strings: their number as 4 bytes, then for each its length as 8
// bytes (little endian) and the bytes.
//   request: "interpret" or "compile", the model, then a name and the bytes for each input; an input of strings has
//            as many bytes for each
//   answer:  the name of a status code, its message, then a type and the bytes for each output
//
// "interpret" computes the imported graph operator by operator. "compile" takes the whole way:
// passes, fusion, default schedules, code for this machine.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/runtime/executor.h"

namespace heddle {
namespace {

using Message = std::vector<std::string>;
using Inputs = std::map<std::string, std::string>;

bool ReadBytes(void* to, size_t size) { return std::fread(to, 1, size, stdin) == size; }

// False at the end of the stream.
bool Read(Message& message) {
  uint32_t count = 0;
  if (!ReadBytes(&count, sizeof count)) return false;
  message.assign(count, "");
  for (std::string& text : message) {
    uint64_t size = 0;
    if (!ReadBytes(&size, sizeof size)) return false;
    text.resize(size);
    if (!ReadBytes(text.data(), size)) return false;
  }
  return true;
}

void Write(const Message& message) {
  const uint32_t count = static_cast<uint32_t>(message.size());
  std::fwrite(&count, sizeof count, 1, stdout);
  for (const std::string& text : message) {
    const uint64_t size = text.size();
    std::fwrite(&size, sizeof size, 1, stdout);
    std::fwrite(text.data(), 1, size, stdout);
  }
  std::fflush(stdout);
}

absl::Status WrongSize(const std::string& input) {
  return absl::InternalError(absl::StrCat("input '", input, "' has another size"));
}

// The bytes of an input. Texts of any width are cut, or get zeros behind them.
absl::StatusOr<std::string> Fitting(const Inputs& inputs, const std::string& name, bool text,
                                    const std::vector<int64_t>& shape, int64_t size) {
  const auto found = inputs.find(name);
  if (found == inputs.end()) return WrongSize(name);
  const std::string& given = found->second;
  if (text) {
    const auto width = static_cast<size_t>(shape.back()), count = static_cast<size_t>(size) / width,
               has = given.size() / count;
    if (has * count != given.size()) return WrongSize(name);
    std::string fitting;
    for (size_t i = 0; i < count; ++i) {
      std::string element = given.substr(i * has, std::min(has, width));
      element.resize(width, '\0');
      fitting += element;
    }
    return fitting;
  }
  if (static_cast<int64_t>(given.size()) != size) return WrongSize(name);
  return given;
}

absl::StatusOr<Message> Interpret(const std::string& model, const Inputs& inputs) {
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph, graph::ImportOnnx(model));
  std::vector<graph::TensorData> tensors;
  for (size_t k = 0; k < graph.inputs.size(); ++k) {
    const graph::Value& value = graph.values[graph.inputs[k]];
    HEDDLE_ASSIGN_OR_RETURN(
        const std::string bytes,
        Fitting(inputs, value.name, graph.tables.inputs[k].text, value.type.shape,
                graph::NumElements(value.type) * ir::SizeOf(value.type.dtype)));
    tensors.push_back({value.type, std::make_shared<const std::string>(bytes)});
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<graph::TensorData> results,
                          graph::EvaluateGraph(graph, tensors));
  Message outputs;
  for (const graph::TensorData& result : results) {
    outputs.push_back(graph::ToText(result.type));
    outputs.emplace_back(*result.bytes);
  }
  return outputs;
}

absl::StatusOr<Message> CompileAndRun(const std::string& model, const Inputs& inputs) {
  HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget("llvm -mcpu=native"));
  HEDDLE_ASSIGN_OR_RETURN(const Target resolved, codegen::ResolveTarget(target));
  CompileOptions options;
  options.choice = ScheduleChoice::kDefault;
  options.model_name = "differential";
  HEDDLE_ASSIGN_OR_RETURN(const std::string file, CompileModel(model, {}, resolved, {}, options));
  HEDDLE_ASSIGN_OR_RETURN(runtime::Module module, runtime::ParseModule(file));
  HEDDLE_ASSIGN_OR_RETURN(const auto executor, runtime::Executor::Create(std::move(module)));
  const runtime::Manifest& manifest = executor->manifest();
  for (size_t k = 0; k < manifest.inputs.size(); ++k) {
    const runtime::TensorSpec& spec = manifest.inputs[k];
    HEDDLE_ASSIGN_OR_RETURN(const std::string bytes,
                            Fitting(inputs, spec.name, spec.text, spec.shape, spec.SizeBytes()));
    std::memcpy(executor->InputData(static_cast<int>(k)), bytes.data(), bytes.size());
  }
  HEDDLE_RETURN_IF_ERROR(executor->Run());
  Message outputs;
  for (int k = 0; k < manifest.NumResults(); ++k) {
    outputs.push_back(absl::StrCat(manifest.outputs[static_cast<size_t>(k)].dtype, "[",
                                   absl::StrJoin(executor->OutputShape(k), ","), "]"));
    outputs.push_back(executor->Output(k));
  }
  return outputs;
}

absl::StatusOr<Message> Answer(const Message& request) {
  if (request.size() < 2 || request.size() % 2 != 0)
    return absl::InternalError("needs a verb, a model, and pairs of names and bytes");
  Inputs inputs;
  for (size_t i = 2; i < request.size(); i += 2) inputs[request[i]] = request[i + 1];
  return request[0] == "compile" ? CompileAndRun(request[1], inputs)
                                 : Interpret(request[1], inputs);
}

void Serve() {
  for (Message request; Read(request);) {
    const absl::StatusOr<Message> result = Answer(request);
    Message answer{absl::StatusCodeToString(result.status().code()),
                   std::string(result.status().message())};
    if (result.ok()) answer.insert(answer.end(), result->begin(), result->end());
    Write(answer);
  }
}

}  // namespace
}  // namespace heddle

int main() { heddle::Serve(); }
