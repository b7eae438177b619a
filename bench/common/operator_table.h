// The operators of the tables, by shape alone: what both our workloads and the peers' drivers are
// made from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle::bench {

enum class OperatorKind { kConvolution, kDepthwise, kMatrixProduct };

struct Operator {
  std::string name;
  OperatorKind kind;
  // Convolutions: batch 1, square images and kernels, "same" padding. A depthwise operator has as
  // many outputs as inputs.
  int64_t size = 0, inputs = 0, outputs = 0, kernel = 0, stride = 0;
  // Matrix products: `batch` times [m, k] x [k, n]. Without a batch the right side is a weight,
  // known ahead of time; with one both sides are activations, as in attention.
  int64_t batch = 0, m = 0, n = 0, k = 0;
  bool half = false;  // operands and result are f16, sums f32; for GPUs only

  bool HasWeights() const { return kind != OperatorKind::kMatrixProduct || batch == 0; }
  // Height and width of a convolution's output, and the zeros before and after its image.
  int64_t OutSize() const { return (size + stride - 1) / stride; }
  int64_t PadTotal() const;
  int64_t PadBegin() const { return PadTotal() / 2; }
  int64_t PadEnd() const { return PadTotal() - PadBegin(); }
};

// C1..C12 (convolutions of ResNet-18), D1..D9 (depthwise ones of MobileNet), matrix products.
std::vector<std::string> OperatorNames();

// One of OperatorNames(), any "MxNxK" or "BxMxNxK" with extents from 1 to 65536, or "MxNxKf16".
std::optional<Operator> FindOperator(const std::string& name);

}  // namespace heddle::bench
