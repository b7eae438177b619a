// A tensor expression says what each element of a result is, and nothing about loops.
//
//   tensor::Builder b("dense");
//   auto x = b.Input("x", DType::kF32, {1, 512});
//   auto w = b.Input("w", DType::kF32, {1000, 512});
//   auto y = b.Reduce("y", {1, 1000}, {512}, ReduceOp::kSum,
//                     [&](Iters s, Iters r) { return x(s[0], r[0]) * w(s[1], r[0]); });
//   ASSIGN_OR_RETURN(TensorProgram p, b.Build({y}));
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace heddle::tensor {

using Iters = std::span<const ir::Expr>;

// A handle on an input or on the result of a stage. Indexing it makes a load. Elements that are
// 16-bit floats are read as f32, because all arithmetic is in f32.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(ir::BufferRef buffer) : buffer_(std::move(buffer)) {}
  const std::vector<int64_t>& shape() const { return buffer_->shape; }
  // The type of an element after the load.
  ir::DType dtype() const { return ir::IsHalf(buffer_->dtype) ? ir::DType::kF32 : buffer_->dtype; }
  int rank() const { return static_cast<int>(buffer_->shape.size()); }
  const ir::BufferRef& buffer() const { return buffer_; }
  template <typename... I>
  ir::Expr operator()(I... indices) const {
    return At({ir::Expr(indices)...});
  }
  ir::Expr At(std::vector<ir::Expr> indices) const {
    return ir::Cast(dtype(), ir::Load(buffer_, std::move(indices)));
  }

 private:
  ir::BufferRef buffer_;
};

// One computed tensor. At each point of `spatial`, the element is `value`, or `value` reduced over
// `reduce`.
struct Stage {
  ir::BufferRef out;
  std::vector<std::pair<ir::VarRef, int64_t>>
      spatial;  // variable and extent of each output dimension
  std::vector<std::pair<ir::VarRef, int64_t>> reduce;
  std::optional<ir::ReduceOp> op;  // set if and only if `reduce` is not empty
  ir::Expr value;
};

struct TensorProgram {
  std::string name;
  std::vector<ir::BufferRef> inputs;
  std::vector<Stage> stages;  // topological order
  std::vector<ir::BufferRef> outputs;
};

class Builder {
 public:
  explicit Builder(std::string name);
  // `constant`: the input is known when a module is made. `below`: as ir::Buffer::below.
  Tensor Input(std::string name, ir::DType dtype, std::vector<int64_t> shape, bool constant = false,
               int64_t below = 0);
  Tensor Compute(std::string name, std::vector<int64_t> shape,
                 const std::function<ir::Expr(Iters)>& fn);
  Tensor Reduce(std::string name, std::vector<int64_t> shape, std::vector<int64_t> reduce_extents,
                ir::ReduceOp op, const std::function<ir::Expr(Iters, Iters)>& fn);
  // A reduction that reads its own result (`self`): fn may load elements that come before the computed
  // one in row-major order, guarded by a condition that is true only for them. Such a stage runs
  // in exactly this order: no schedule changes it, so it must be the only stage of a program.
  Tensor Recur(std::string name, ir::DType dtype, std::vector<int64_t> shape,
               std::vector<int64_t> reduce_extents, ir::ReduceOp op,
               const std::function<ir::Expr(Iters, Iters, const Tensor& self)>& fn);
  // Rounds the tensor to `dtype` if that is a 16-bit float and the tensor is not one yet.
  Tensor Stored(const Tensor& tensor, ir::DType dtype);
  // Drops stages that no output needs, and makes names unique by suffixes.
  absl::StatusOr<TensorProgram> Build(const std::vector<Tensor>& outputs);

 private:
  TensorProgram program_;
};

// The naive loop program: each stage is one block in row-major loops, and intermediate results are
// global allocations. A stage "T" gives the block "T", the buffer "T_buf" and loops "T.<iterator>".
// Expressions that differ only in names of variables give equal text. So the text is the workload,
// and WorkloadKey is its hash.
absl::StatusOr<ir::Program> LowerToLoops(const TensorProgram& program);

}  // namespace heddle::tensor
