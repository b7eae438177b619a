// Programs for tests of tensor cores: products and convolutions whose operands these take.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"
#include "tests/codegen/cuda/gpu_testing.h"

namespace heddle::testing {

struct Shape {
  ir::DType type = ir::DType::kF16;  // of a and b
  int64_t m = 32, n = 16, k = 32;
  bool a_transposed = false, b_transposed = false;  // [k, m], [n, k]
  bool half_result = false;
};

// y = max(a b + c, 0), summed in f32.
ir::Program Product(const Shape& s);

// A convolution of one image with padding, channels last.
struct Image {
  ir::DType type = ir::DType::kF16;
  int64_t size = 16, inputs = 16, outputs = 16, kernel = 3, stride = 1;
};
ir::Program Convolution(const Image& c);

// sm_90, where f32 may be rounded to tf32.
machine::TargetInfo Tf32Target();

bool HasTensorLoop(const ir::Program& program);

// The default schedule of the product, lowered; it uses tensor cores.
ir::Program Default(const Shape& shape);

// Inputs of numbers that f16, bf16 and tf32 have not.
std::vector<HostTensor> FineInputs(const ir::Program& program);

}  // namespace heddle::testing
