// Helpers for the definitions of operators: broadcasting, padding, axes, layouts.
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
// Appends the numbers from begin to end - 1.
void AppendRange(int64_t begin, int64_t end, Shape* list);

// numpy broadcasting; InvalidArgument names both shapes.
absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b);
// The index into a tensor of `shape`, aligned at the right, for element `at` of the broadcast
// result. Only dimensions that are really repeated get the index 0, so an operand of the result's
// own shape is read by plain iterators.
std::vector<ir::Expr> BroadcastIndex(tensor::Iters at, const Shape& result, const Shape& shape);

// `value` as a constant of any type. For integer types, floats are truncated and saturated.
ir::Expr Number(double value, ir::DType dtype);
// A numeric attribute as such a constant. Integers stay integers, because doubles cannot hold all
// of them.
ir::Expr NumberAttr(const OpAttrs& attrs, std::string_view name, ir::DType dtype);
ir::Expr Min(ir::Expr a, ir::Expr b);
ir::Expr Max(ir::Expr a, ir::Expr b);
ir::Expr Div(ir::Expr a, ir::Expr b);
ir::Expr Exp(ir::Expr x);
// The initial value of a maximum over `dtype`.
ir::Expr Lowest(ir::DType dtype);

// x with `begin[d]` elements of `fill` before its elements in dimension d, as a stage named "pad".
// `extents` are those of the result, which may pad or crop the end of x. Returns x if there is
// nothing to do.
tensor::Tensor PadTo(tensor::Builder& b, const tensor::Tensor& x, const Shape& begin,
                     const Shape& extents, const ir::Expr& fill);

// Axes normalised to [0, rank), sorted, distinct; InvalidArgument otherwise.
absl::StatusOr<Shape> NormalizeAxes(const Shape& axes, int rank);
absl::StatusOr<int64_t> NormalizeAxis(int64_t axis, int rank);

// The shape and the stage of a reduction of x over `axes` (normalised).
Shape ReducedShape(const Shape& shape, const Shape& axes, bool keepdims);
tensor::Tensor ReduceOver(tensor::Builder& b, const std::string& name, const tensor::Tensor& x,
                          const Shape& axes, bool keepdims, ir::ReduceOp op,
                          const std::function<ir::Expr(std::vector<ir::Expr> index)>& value);
// The index of the reduced element that element `at` of the operand belongs to. The reduced tensor
// keeps the dimensions `axes` with extent 1.
std::vector<ir::Expr> KeptIndex(tensor::Iters at, const Shape& axes);

absl::Status ExpectInputs(Types inputs, size_t min, size_t max);
absl::Status BadInput(std::string_view what);

// ---- Layouts ----

// Values of LayoutRule::last and LayoutRule::blocked. ResultBlocks: the result has a blocked form.
// OperandAndResultBlock: the first operand and the result have one.
bool Always(const OpUse& use);
bool ResultBlocks(const OpUse& use, int64_t block);
bool OperandAndResultBlock(const OpUse& use, int64_t block);
// The rule for operators that treat all elements of the result alike.
LayoutRule AlignedLayout();

// Makes a definition from the functions and attributes that every operator has.
using InferFn = absl::StatusOr<TensorType> (*)(Types, const OpAttrs&);
using ExpressFn = absl::StatusOr<tensor::Tensor> (*)(tensor::Builder&, Tensors, const OpAttrs&);
OpDef MakeOp(OpKind kind, FusionClass fusion, InferFn infer, ExpressFn express,
             std::vector<AttrSpec> attrs = {});

// ---- Operators by family ----

// Each function is defined in the file named after its family, and appends that family's operators.
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
void AppendSuppressionOps(std::vector<OpDef>& ops);
void AppendSamplingOps(std::vector<OpDef>& ops);
void AppendForestOps(std::vector<OpDef>& ops);
void AppendRandomOps(std::vector<OpDef>& ops);

}  // namespace heddle::graph
