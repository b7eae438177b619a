// Runs a program on made-up inputs.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "compiler/interpreter/interpreter.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/ir/ir.h"

namespace heddle::interpreter {

// Memory for every parameter of a program; inputs filled with small values (element k of input n is
// k + 10 n, less 5).
struct Arena {
  explicit Arena(const ir::Program& program) {
    for (size_t n = 0; n < program.inputs.size(); ++n) {
      const ir::Buffer& buffer = *program.inputs[n];
      Add(buffer);
      for (int64_t k = 0; k < buffer.NumElements(); ++k)
        Set(n, k, static_cast<double>(k + 10 * static_cast<int64_t>(n) - 5));
    }
    for (const ir::BufferRef& buffer : program.outputs) Add(*buffer);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void Set(size_t tensor, int64_t element, double value) {
    void* data = memory[tensor].data();
    switch (tensors[tensor].dtype) {
      case ir::DType::kBool:
        static_cast<uint8_t*>(data)[element] = value > 0;
        break;
      case ir::DType::kI8:
        static_cast<int8_t*>(data)[element] = static_cast<int8_t>(value);
        break;
      case ir::DType::kU8:
        static_cast<uint8_t*>(data)[element] = static_cast<uint8_t>(static_cast<int64_t>(value));
        break;
      case ir::DType::kI32:
        static_cast<int32_t*>(data)[element] = static_cast<int32_t>(value);
        break;
      case ir::DType::kI16:
      case ir::DType::kU16:
        static_cast<uint16_t*>(data)[element] = static_cast<uint16_t>(static_cast<int64_t>(value));
        break;
      case ir::DType::kU32:
        static_cast<uint32_t*>(data)[element] = static_cast<uint32_t>(static_cast<int64_t>(value));
        break;
      case ir::DType::kI64:
      case ir::DType::kU64:
        static_cast<int64_t*>(data)[element] = static_cast<int64_t>(value);
        break;
      case ir::DType::kF32:
        static_cast<float*>(data)[element] = static_cast<float>(value);
        break;
      case ir::DType::kF64:
        static_cast<double*>(data)[element] = value;
        break;
      case ir::DType::kF16:
      case ir::DType::kBF16:
        static_cast<uint16_t*>(data)[element] =
            ir::HalfBits(static_cast<float>(value), tensors[tensor].dtype);
        break;
    }
  }
  double Get(size_t tensor, int64_t element) const {
    const void* data = memory[tensor].data();
    switch (tensors[tensor].dtype) {
      case ir::DType::kBool:
      case ir::DType::kU8:
        return static_cast<const uint8_t*>(data)[element];
      case ir::DType::kI8:
        return static_cast<const int8_t*>(data)[element];
      case ir::DType::kI32:
        return static_cast<const int32_t*>(data)[element];
      case ir::DType::kI16:
        return static_cast<const int16_t*>(data)[element];
      case ir::DType::kU16:
        return static_cast<const uint16_t*>(data)[element];
      case ir::DType::kU32:
        return static_cast<const uint32_t*>(data)[element];
      case ir::DType::kI64:
        return static_cast<double>(static_cast<const int64_t*>(data)[element]);
      case ir::DType::kU64:
        return static_cast<double>(static_cast<const uint64_t*>(data)[element]);
      case ir::DType::kF32:
        return static_cast<const float*>(data)[element];
      case ir::DType::kF64:
        return static_cast<const double*>(data)[element];
      case ir::DType::kF16:
      case ir::DType::kBF16:
        return ir::HalfValue(static_cast<const uint16_t*>(data)[element], tensors[tensor].dtype);
    }
    return 0;
  }

  std::vector<std::vector<uint8_t>> memory;
  std::vector<TensorRef> tensors;

 private:
  void Add(const ir::Buffer& buffer) {
    memory.emplace_back(static_cast<size_t>(buffer.SizeBytes()), uint8_t{0});
    tensors.push_back({buffer.dtype, buffer.shape, memory.back().data()});
  }
};

}  // namespace heddle::interpreter
