// Runs one program on every back end, for tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/vocabulary/target.h"
#include "compiler/codegen/llvm/llvm_backend.h"
#include "compiler/interpreter/interpreter.h"
#include "compiler/ir/ir.h"

namespace heddle::testing {

// A dense tensor, 64-byte aligned, with a guard zone behind it that shows writes past its end.
class HostTensor {
 public:
  explicit HostTensor(const ir::Buffer& buffer);
  interpreter::TensorRef ref() const { return {dtype_, shape_, const_cast<std::byte*>(data())}; }
  std::byte* data() { return storage_.data() + offset_; }
  const std::byte* data() const { return storage_.data() + offset_; }
  int64_t size() const { return elements_; }
  double Get(int64_t element) const;
  void Set(int64_t element, double value);
  bool GuardIntact() const;

 private:
  ir::DType dtype_;
  std::vector<int64_t> shape_;
  int64_t elements_;
  size_t bytes_;
  size_t offset_ = 0;
  std::vector<std::byte> storage_;
};

// Inputs of a program filled reproducibly: floats in [-1, 1], i8 and u8 over their whole range,
// other integers in [-20, 20], bools of both kinds. Integers of an input with a range (ir::Buffer::below)
// lie in it. All multiples of 1/64, so that sums of a few stay exact.
std::vector<HostTensor> MakeInputs(const ir::Program& program, uint64_t seed);
std::vector<HostTensor> MakeOutputs(const ir::Program& program);

// What the interpreter says of `program` (scheduled or lowered).
absl::Status RunInterpreter(const ir::Program& program, const std::vector<HostTensor>& inputs,
                            std::vector<HostTensor>& outputs,
                            const interpreter::InterpreterOptions& options = {});

struct LlvmRun {
  int workers = 1;  // of the thread pool
  codegen::LlvmOptions options = {};
  std::string target = "llvm -mcpu=native -threads=4";
};

// Lowers, compiles, loads and calls `program`. Internal if it wrote past the end of a buffer or of
// its workspace, or if it computes something else where an output lies in an input and
// pass/overwrite.h says that it may.
absl::Status RunLlvm(const ir::Program& program, const std::vector<HostTensor>& inputs,
                     std::vector<HostTensor>& outputs, const LlvmRun& run = {});

// OK, or the first element in which the two differ by more than runtime/numerics.h allows.
absl::Status Compare(const ir::Program& program, const std::vector<HostTensor>& expected,
                     const std::vector<HostTensor>& actual);

// Interpreter against LLVM on one scheduled program.
absl::Status CheckConformance(const ir::Program& program, const LlvmRun& run = {},
                              uint64_t seed = 1);

}  // namespace heddle::testing
