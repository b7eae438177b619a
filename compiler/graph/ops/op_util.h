// What definitions of operators share: broadcasting, padding, axes, layouts.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/operator.h"

namespace heddle::graph {

// Shapes as people write them: "1x3x224x224", "scalar".
std::string ShapeText(const Shape& shape);
int64_t Product(const Shape& shape);        // saturates
Shape RowMajorStrides(const Shape& shape);  // in elements

// numpy broadcasting; InvalidArgument names both shapes.
absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b);
// The index into a tensor of `shape`, which is aligned at the right, of element `at` of the
// broadcast result. Only dimensions that are really repeated have the index 0, so that an operand
// of the result's own shape is read by plain iterators.
std::vector<ir::Expr> BroadcastIndex(tensor::Iters at, const Shape& result, const Shape& shape);

// `value` as a constant of any type; floats given to integer types truncate and saturate.
ir::Expr Number(double value, ir::DType dtype);
// A numeric attribute as such a constant. Integers stay integers: doubles cannot hold all of them.
ir::Expr NumberAttr(const OpAttrs& attrs, std::string_view name, ir::DType dtype);
// The value from which a maximum over `dtype` starts.
ir::Expr Lowest(ir::DType dtype);

// x with `begin[d]` elements of `fill` before dimension d, as a stage named "pad". `extents` are
// those of the result: they say how much follows x, or cut x short. Returns x if there is nothing
// to do.
tensor::Tensor PadTo(tensor::Builder& b, const tensor::Tensor& x, const Shape& begin,
                     const Shape& extents, const ir::Expr& fill);

// Axes normalised to [0, rank), sorted, distinct; InvalidArgument otherwise.
absl::StatusOr<Shape> NormalizeAxes(const Shape& axes, int rank);
absl::StatusOr<int64_t> NormalizeAxis(int64_t axis, int rank);

// A reduction of x over `axes` (normalised): its shape, and the stage.
Shape ReducedShape(const Shape& shape, const Shape& axes, bool keepdims);
tensor::Tensor ReduceOver(tensor::Builder& b, const std::string& name, const tensor::Tensor& x,
                          const Shape& axes, bool keepdims, ir::ReduceOp op,
                          const std::function<ir::Expr(std::vector<ir::Expr> index)>& value);
// The index, in a tensor that is reduced over `axes` and keeps its dimensions, of the element that
// belongs to element `at` of the operand.
std::vector<ir::Expr> KeptIndex(tensor::Iters at, const Shape& axes);

absl::Status ExpectInputs(Types inputs, size_t min, size_t max);
absl::Status BadInput(std::string_view what);

// ---- Layouts ----

// For LayoutRule::last and LayoutRule::blocked: always; if the result has blocks of channels; if
// the first operand and the result have.
bool Always(const OpUse& use);
bool ResultBlocks(const OpUse& use, int64_t block);
bool OperandAndResultBlock(const OpUse& use, int64_t block);
// The rule of operators that treat each element of the result alike.
LayoutRule AlignedLayout();

// A definition from the functions and attributes that each operator has.
using InferFn = absl::StatusOr<TensorType> (*)(Types, const OpAttrs&);
using ExpressFn = absl::StatusOr<tensor::Tensor> (*)(tensor::Builder&, Tensors, const OpAttrs&);
OpDef MakeOp(OpKind kind, FusionClass fusion, InferFn infer, ExpressFn express,
             std::vector<AttrSpec> attrs = {});

// ---- The operators by family ----

// Each is defined in the file of its name and appends the operators of its family.
void AppendElementwiseOps(std::vector<OpDef>& ops);
void AppendReductionOps(std::vector<OpDef>& ops);
void AppendConvolutionOps(std::vector<OpDef>& ops);
void AppendBlockedConvolutionOps(std::vector<OpDef>& ops);
void AppendTransposedConvolutionOps(std::vector<OpDef>& ops);
void AppendPoolingOps(std::vector<OpDef>& ops);
void AppendMatmulOps(std::vector<OpDef>& ops);
void AppendNormalizationOps(std::vector<OpDef>& ops);
void AppendMovementOps(std::vector<OpDef>& ops);
void AppendIndexingOps(std::vector<OpDef>& ops);
void AppendScatterOps(std::vector<OpDef>& ops);
void AppendSamplingOps(std::vector<OpDef>& ops);

}  // namespace heddle::graph
