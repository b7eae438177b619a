// The kinds of operators, each with its name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::graph {

// All operators, each with its enumerator and its name in text (Print, labels, names of kernels).
// The meaning of an operator is given by its definition (operator.h). An operator over windows has
// one kind for each number of spatial dimensions.
#define HEDDLE_OPERATORS(X)                                                        \
  /* One operand, element by element. */                                           \
  X(kNeg, "neg")                                                                   \
  X(kAbs, "abs")                                                                   \
  X(kSign, "sign")                                                                 \
  X(kExp, "exp")                                                                   \
  X(kLog, "log")                                                                   \
  X(kSqrt, "sqrt")                                                                 \
  X(kTanh, "tanh")                                                                 \
  X(kErf, "erf")                                                                   \
  X(kSin, "sin")                                                                   \
  X(kCos, "cos")                                                                   \
  X(kTan, "tan")                                                                   \
  X(kAsin, "asin")                                                                 \
  X(kAcos, "acos")                                                                 \
  X(kAtan, "atan")                                                                 \
  X(kSinh, "sinh")                                                                 \
  X(kCosh, "cosh")                                                                 \
  X(kAsinh, "asinh")                                                               \
  X(kAcosh, "acosh")                                                               \
  X(kAtanh, "atanh")                                                               \
  X(kFloor, "floor")                                                               \
  X(kCeil, "ceil")                                                                 \
  X(kRound, "round")                                                               \
  X(kIsnan, "isnan")                                                               \
  X(kIsinf, "isinf")                                                               \
  X(kNot, "not")                                                                   \
  X(kIdentity, "identity")                                                         \
  X(kReciprocal, "reciprocal")                                                     \
  X(kRelu, "relu")                                                                 \
  X(kSigmoid, "sigmoid")                                                           \
  X(kSoftplus, "softplus")                                                         \
  X(kSoftsign, "softsign")                                                         \
  X(kLeakyRelu, "leaky_relu")                                                      \
  X(kElu, "elu")                                                                   \
  X(kSelu, "selu")                                                                 \
  X(kCelu, "celu")                                                                 \
  X(kHardSigmoid, "hard_sigmoid")                                                  \
  X(kHardSwish, "hard_swish")                                                      \
  X(kThresholdedRelu, "thresholded_relu")                                          \
  X(kShrink, "shrink")                                                             \
  X(kClip, "clip")                                                                 \
  /* Two operands, broadcast. */                                                   \
  X(kAdd, "add")                                                                   \
  X(kSub, "sub")                                                                   \
  X(kMul, "mul")                                                                   \
  X(kDiv, "div")                                                                   \
  X(kFloorDiv, "floor_div")                                                        \
  X(kFloorMod, "floor_mod")                                                        \
  X(kTruncatedMod, "truncated_mod")                                                \
  X(kMin, "min")                                                                   \
  X(kMax, "max")                                                                   \
  X(kPow, "pow")                                                                   \
  X(kLess, "less")                                                                 \
  X(kLessEqual, "less_equal")                                                      \
  X(kEqual, "equal")                                                               \
  X(kAnd, "and")                                                                   \
  X(kOr, "or")                                                                     \
  X(kXor, "xor")                                                                   \
  X(kPrelu, "prelu")                                                               \
  X(kWhere, "where")                                                               \
  /* Element by element, with attributes that decide the type or the dimension. */ \
  X(kCast, "cast")                                                                 \
  X(kBatchNorm, "batch_norm")                                                      \
  /* Reductions over axes. */                                                      \
  X(kReduceSum, "reduce_sum")                                                      \
  X(kReduceMean, "reduce_mean")                                                    \
  X(kReduceMax, "reduce_max")                                                      \
  X(kReduceMin, "reduce_min")                                                      \
  X(kReduceProd, "reduce_prod")                                                    \
  X(kReduceL1, "reduce_l1")                                                        \
  X(kReduceL2, "reduce_l2")                                                        \
  X(kReduceSumSquare, "reduce_sum_square")                                         \
  X(kReduceLogSum, "reduce_log_sum")                                               \
  X(kReduceLogSumExp, "reduce_log_sum_exp")                                        \
  X(kArgMax, "arg_max")                                                            \
  X(kArgMin, "arg_min")                                                            \
  X(kCumSum, "cum_sum")                                                            \
  X(kCumProd, "cum_prod")                                                          \
  /* Windows. */                                                                   \
  X(kConv1d, "conv1d")                                                             \
  X(kConv2d, "conv2d")                                                             \
  X(kConv3d, "conv3d")                                                             \
  X(kDepthwiseConv1d, "depthwise_conv1d")                                          \
  X(kDepthwiseConv2d, "depthwise_conv2d")                                          \
  X(kDepthwiseConv3d, "depthwise_conv3d")                                          \
  X(kBlockedConv1d, "blocked_conv1d")                                              \
  X(kBlockedConv2d, "blocked_conv2d")                                              \
  X(kBlockedConv3d, "blocked_conv3d")                                              \
  X(kBlockedDepthwiseConv1d, "blocked_depthwise_conv1d")                           \
  X(kBlockedDepthwiseConv2d, "blocked_depthwise_conv2d")                           \
  X(kBlockedDepthwiseConv3d, "blocked_depthwise_conv3d")                           \
  X(kConvTranspose1d, "conv_transpose1d")                                          \
  X(kConvTranspose2d, "conv_transpose2d")                                          \
  X(kConvTranspose3d, "conv_transpose3d")                                          \
  X(kMaxPool, "max_pool")                                                          \
  X(kAvgPool, "avg_pool")                                                          \
  X(kLpPool, "lp_pool")                                                            \
  /* Matrix products. */                                                           \
  X(kMatmul, "matmul")                                                             \
  X(kEinsum, "einsum")                                                             \
  /* Relative to statistics over neighbours. */                                    \
  X(kSoftmax, "softmax")                                                           \
  X(kLogSoftmax, "log_softmax")                                                    \
  X(kHardmax, "hardmax")                                                           \
  X(kNormalize, "normalize")                                                       \
  X(kLrn, "lrn")                                                                   \
  /* Data movement by indices known at compile time. */                            \
  X(kReshape, "reshape")                                                           \
  X(kTranspose, "transpose")                                                       \
  X(kConcat, "concat")                                                             \
  X(kSlice, "slice")                                                               \
  X(kPad, "pad")                                                                   \
  X(kExpand, "expand")                                                             \
  X(kTile, "tile")                                                                 \
  X(kTrilu, "trilu")                                                               \
  /* Data movement by indices that are data. */                                    \
  X(kGather, "gather")                                                             \
  X(kGatherElements, "gather_elements")                                            \
  X(kGatherNd, "gather_nd")                                                        \
  X(kOneHot, "one_hot")                                                            \
  X(kReverseSequence, "reverse_sequence")                                          \
  /* Writing by indices that are data, sorting, sampling. */                       \
  X(kScatterElements, "scatter_elements")                                          \
  X(kScatterNd, "scatter_nd")                                                      \
  X(kTopK, "top_k")                                                                \
  X(kSuppress, "suppress")                                                         \
  X(kGridSample, "grid_sample")                                                    \
  /* Decision trees. */                                                            \
  X(kForestWalk, "forest_walk")                                                    \
  X(kForestSelect, "forest_select")                                                \
  X(kForestRanks, "forest_ranks")                                                  \
  X(kForestLeaves, "forest_leaves")                                                \
  X(kDigitize, "digitize")                                                         \
  /* Numbers that depend on a seed. */                                             \
  X(kRandomBits, "random_bits")

enum class OpKind : uint8_t {
#define HEDDLE_ENUMERATOR(kind, name) kind,
  HEDDLE_OPERATORS(HEDDLE_ENUMERATOR)
#undef HEDDLE_ENUMERATOR
};

#define HEDDLE_COUNT(kind, name) +1
inline constexpr size_t kNumOpKinds = HEDDLE_OPERATORS(HEDDLE_COUNT);
#undef HEDDLE_COUNT

const std::string& NameOf(OpKind kind);
std::optional<OpKind> OpKindFromName(std::string_view name);

// The kinds of one operator by its number of spatial dimensions, 1 to 3: kConvolutions[n - 1].
using OpKindsByRank = std::array<OpKind, 3>;
inline constexpr OpKindsByRank kConvolutions = {OpKind::kConv1d, OpKind::kConv2d, OpKind::kConv3d};
inline constexpr OpKindsByRank kDepthwiseConvolutions = {
    OpKind::kDepthwiseConv1d, OpKind::kDepthwiseConv2d, OpKind::kDepthwiseConv3d};
inline constexpr OpKindsByRank kBlockedConvolutions = {
    OpKind::kBlockedConv1d, OpKind::kBlockedConv2d, OpKind::kBlockedConv3d};
inline constexpr OpKindsByRank kBlockedDepthwiseConvolutions = {OpKind::kBlockedDepthwiseConv1d,
                                                                OpKind::kBlockedDepthwiseConv2d,
                                                                OpKind::kBlockedDepthwiseConv3d};
inline constexpr OpKindsByRank kTransposedConvolutions = {
    OpKind::kConvTranspose1d, OpKind::kConvTranspose2d, OpKind::kConvTranspose3d};

}  // namespace heddle::graph
