// What the operators of terms compute, over integers modulo 2^64, so that nothing is rounded. Each element
// is two such integers: two independent draws, so that equality by chance is out of the question.
//
// A maximum and a map need an order and a function that have no other law by chance: a map is a hash
// of the element and its parameter, and a maximum compares unsigned numbers. An average is a sum: the factor
// does not matter to any law.
//
// Split trees (TASO, section 2.3): each dimension of a tensor remembers how it was concatenated. split0 and
// split1 divide it where it was concatenated last; a dimension that was not cannot be split.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/substitution/term.h"

namespace heddle::substitution {

struct Element {
  uint64_t first = 0, second = 0;
  bool operator==(const Element&) const = default;
};

enum class Sort : uint8_t {
  kScalar,            // []
  kMatrix,            // [rows, columns]
  kImage,             // [batch, channels, height, width]
  kWeights,           // [outputs, inputs, height, width] of a conv
  kDepthwiseWeights,  // [channels, 1, height, width]
  kGroupedWeights,    // [groups, outputs and inputs of a group, height, width]
};

// Null: a leaf, which cannot be split.
struct SplitNode;
using SplitTree = std::shared_ptr<const SplitNode>;
struct SplitNode {
  int64_t first = 0;  // the extent of the first part
  SplitTree left, right;
};
bool SameTree(const SplitTree& a, const SplitTree& b);

struct Type {
  Sort sort = Sort::kScalar;
  std::vector<int64_t> shape;
  std::vector<SplitTree> trees;  // one for each dimension
  int64_t size() const;
};
Type MakeType(Sort sort, std::vector<int64_t> shape);

struct Tensor {
  Type type;
  std::vector<Element> elements;  // dense, row-major
};

// The values of parameters by name. A kernel is its odd extent; a window is one of kWindows; a function is
// any number; a factor of groups is the number of those that become one; movement 1 makes one row of a matrix,
// movement 2 one column, from the last element to the first.
using Parameters = std::map<std::string, int64_t>;

// How a window moves: its stride, and how many rows and columns more than (kernel - 1) / 2 are padded on each
// side. A larger kernel with zeros around it then computes the same with the same window.
struct Window {
  int64_t stride = 1, extra = 0;
};
inline constexpr Window kWindows[] = {{1, 0}, {1, 0}, {2, 0}, {1, -1}, {2, 1}};  // 1: plain

// The result type of an operator other than a variable; nullopt: it cannot be applied. A constant (operator
// without operands) has no type of its own: it is given to Evaluate like a variable.
std::optional<Type> Infer(Op op, std::span<const int64_t> parameters,
                          std::span<const Type* const> operands);
// Precondition: `type` is what Infer gives.
std::vector<Element> Compute(Op op, std::span<const int64_t> parameters,
                             std::span<const Tensor* const> operands, const Type& type);

// The elements of a constant of this type; nullopt: it has no such type.
std::optional<std::vector<Element>> ConstantElements(Op op, std::span<const int64_t> parameters,
                                                     const Type& type);
std::vector<Element> RandomElements(const Type& type, uint64_t seed);

// Tensors by the text of variables and constants ("x", "pool_weights[3]").
using Leaves = std::map<std::string, Tensor>;
// nullopt: an operator cannot be applied, or a leaf is missing. Numbers in brackets are their values.
std::optional<Type> InferTerm(const Term& term, const std::map<std::string, Type>& leaves,
                              const Parameters& parameters);
std::optional<Tensor> Evaluate(const Term& term, const Leaves& leaves,
                               const Parameters& parameters);

// Checks terms against each other, term by term, on all small cases: every variable has every shape with
// extents up to `extent`, with and without a split, every kernel 1 and 3, every window, as far as the
// operators can be applied on both sides.
struct Checked {
  int64_t cases = 0;
  std::string counterexample;  // empty: none
  bool Holds() const { return cases > 0 && counterexample.empty(); }
};
struct CheckLimits {
  int64_t extent = 2;
  int64_t cases = 20'000;  // at most, shared among the values of parameters
  uint64_t seed = 1;
};
Checked CheckEqual(std::span<const Term> left, std::span<const Term> right,
                   const CheckLimits& limits = {});

}  // namespace heddle::substitution
