#include "compiler/interpreter/interpreter.h"

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "compiler/interpreter/bytecode.h"

namespace heddle::interpreter {
namespace {

absl::Status CheckParameters(const ir::Program& program, std::span<const TensorRef> tensors) {
  const size_t expected = program.inputs.size() + program.outputs.size();
  if (tensors.size() != expected) {
    return absl::InvalidArgumentError(program.name + " wants " + std::to_string(expected) +
                                      " buffers, not " + std::to_string(tensors.size()));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ir::Buffer& buffer = i < program.inputs.size()
                                   ? *program.inputs[i]
                                   : *program.outputs[i - program.inputs.size()];
    if (tensors[i].dtype != buffer.dtype || tensors[i].shape != buffer.shape) {
      return absl::InvalidArgumentError("the tensor for " + buffer.name +
                                        " has another type or shape");
    }
    if (tensors[i].data == nullptr)
      return absl::InvalidArgumentError("the tensor for " + buffer.name + " has no memory");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Interpret(const ir::Program& program, std::span<const TensorRef> buffers,
                       const InterpreterOptions& options) {
  HEDDLE_RETURN_IF_ERROR(CheckParameters(program, buffers));
  HEDDLE_ASSIGN_OR_RETURN(Bytecode bytecode, CompileToBytecode(program, options));
  return RunBytecode(bytecode, buffers, program.inputs.size(), options);
}

}  // namespace heddle::interpreter
