#include "compiler/substitution/algebra.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/splitmix.h"

namespace heddle::substitution {
namespace {

uint64_t Mix(uint64_t x) { return SplitMix64(x); }

Element operator+(Element a, Element b) { return {a.first + b.first, a.second + b.second}; }
Element operator*(Element a, Element b) { return {a.first * b.first, a.second * b.second}; }

bool SameShape(const Type& a, const Type& b) { return a.sort == b.sort && a.shape == b.shape; }

// Elementwise operators keep what both operands have.
std::vector<SplitTree> CommonTrees(const Type& a, const Type& b) {
  std::vector<SplitTree> trees;
  for (size_t d = 0; d < a.trees.size(); ++d)
    trees.push_back(SameTree(a.trees[d], b.trees[d]) ? a.trees[d] : nullptr);
  return trees;
}

int64_t Axis(std::span<const int64_t> parameters, const Type& type) {
  const int64_t axis = parameters[0];
  return axis < static_cast<int64_t>(type.shape.size()) ? axis : -1;
}

// Positions of a window in an extent; -1: none.
int64_t Positions(int64_t extent, int64_t kernel, int64_t window) {
  const Window w = kWindows[window];
  const int64_t padding = (kernel - 1) / 2 + w.extra;
  if (padding < 0) return -1;
  const int64_t free = extent + 2 * padding - kernel;
  return free < 0 ? -1 : free / w.stride + 1;
}

std::optional<Type> InferWindowed(const Type& image, int64_t channels, SplitTree channel_tree,
                                  int64_t kernel_height, int64_t kernel_width, int64_t window) {
  if (window < 1 || window >= static_cast<int64_t>(std::size(kWindows))) return std::nullopt;
  const int64_t h = Positions(image.shape[2], kernel_height, window);
  const int64_t w = Positions(image.shape[3], kernel_width, window);
  if (h < 1 || w < 1) return std::nullopt;
  Type type = MakeType(Sort::kImage, {image.shape[0], channels, h, w});
  type.trees[0] = image.trees[0];
  type.trees[1] = std::move(channel_tree);
  return type;
}

// The tree of a dimension in which each index becomes `factor` of them.
SplitTree Scaled(const SplitTree& tree, int64_t factor) {
  if (tree == nullptr) return nullptr;
  return std::make_shared<SplitNode>(
      SplitNode{tree->first * factor, Scaled(tree->left, factor), Scaled(tree->right, factor)});
}

std::optional<Type> InferConcat(const Type& a, const Type& b, int64_t axis) {
  if (axis < 0 || a.sort != b.sort) return std::nullopt;
  // Groups are independent; the other dimensions of their weights are not those of a set of things.
  if ((a.sort == Sort::kDepthwiseWeights || a.sort == Sort::kGroupedWeights) && axis != 0)
    return std::nullopt;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (static_cast<int64_t>(d) != axis && a.shape[d] != b.shape[d]) return std::nullopt;
  }
  Type type = a;
  type.trees = CommonTrees(a, b);
  type.shape[axis] += b.shape[axis];
  type.trees[axis] =
      std::make_shared<SplitNode>(SplitNode{a.shape[axis], a.trees[axis], b.trees[axis]});
  return type;
}

std::optional<Type> InferSplit(const Type& x, int64_t axis, bool second) {
  if (axis < 0 || x.trees[axis] == nullptr) return std::nullopt;
  const SplitNode& node = *x.trees[axis];
  Type type = x;
  type.shape[axis] = second ? x.shape[axis] - node.first : node.first;
  type.trees[axis] = second ? node.right : node.left;
  return type;
}

// Visits every element of `shape` with its index.
void ForEach(const std::vector<int64_t>& shape, const auto& visit) {
  std::vector<int64_t> at(shape.size(), 0);
  const int64_t size =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
  for (int64_t i = 0; i < size; ++i) {
    visit(i, at);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
}

int64_t Offset(const std::vector<int64_t>& shape, const std::vector<int64_t>& at) {
  int64_t offset = 0;
  for (size_t d = 0; d < shape.size(); ++d) offset = offset * shape[d] + at[d];
  return offset;
}

// Sums or takes the maximum over a window; `tap(channel of the result, kernel row, kernel column, element,
// channel of the image)` is what it contributes.
std::vector<Element> Windowed(const Tensor& image, const Type& type, int64_t kernel_height,
                              int64_t kernel_width, int64_t window, int64_t inputs, bool all_inputs,
                              bool maximum, const auto& tap) {
  const Window w = kWindows[window];
  const int64_t top = (kernel_height - 1) / 2 + w.extra, left = (kernel_width - 1) / 2 + w.extra;
  std::vector<Element> result(static_cast<size_t>(type.size()));
  ForEach(type.shape, [&](int64_t i, const std::vector<int64_t>& at) {
    Element sum{};
    for (int64_t c = all_inputs ? 0 : at[1]; c < (all_inputs ? inputs : at[1] + 1); ++c) {
      for (int64_t y = 0; y < kernel_height; ++y) {
        for (int64_t x = 0; x < kernel_width; ++x) {
          const int64_t row = at[2] * w.stride + y - top, column = at[3] * w.stride + x - left;
          if (row < 0 || row >= image.type.shape[2] || column < 0 || column >= image.type.shape[3])
            continue;
          const Element e = tap(at[1], y, x, c,
                                image.elements[static_cast<size_t>(
                                    Offset(image.type.shape, {at[0], c, row, column}))]);
          if (maximum) {
            sum = {std::max(sum.first, e.first), std::max(sum.second, e.second)};
          } else {
            sum = sum + e;
          }
        }
      }
    }
    result[static_cast<size_t>(i)] = sum;
  });
  return result;
}

int64_t ParameterValue(const std::string& name, const Parameters& parameters) {
  const auto found = parameters.find(name);
  return found != parameters.end() ? found->second : std::strtoll(name.c_str(), nullptr, 10);
}

std::vector<int64_t> Values(const Term& term, const Parameters& parameters) {
  std::vector<int64_t> values;
  for (const std::string& p : term.parameters) values.push_back(ParameterValue(p, parameters));
  return values;
}

}  // namespace

bool SameTree(const SplitTree& a, const SplitTree& b) {
  if (a == b) return true;
  return a != nullptr && b != nullptr && a->first == b->first && SameTree(a->left, b->left) &&
         SameTree(a->right, b->right);
}

int64_t Type::size() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
}

Type MakeType(Sort sort, std::vector<int64_t> shape) {
  Type type{sort, std::move(shape), {}};
  type.trees.resize(type.shape.size());
  return type;
}

std::optional<Type> Infer(Op op, std::span<const int64_t> parameters,
                          std::span<const Type* const> operands) {
  const auto is = [&](size_t i, Sort sort) { return operands[i]->sort == sort; };
  switch (op) {
    case Op::kAdd:
    case Op::kMul: {
      if (!SameShape(*operands[0], *operands[1]) || is(0, Sort::kScalar)) return std::nullopt;
      Type type = *operands[0];
      type.trees = CommonTrees(*operands[0], *operands[1]);
      return type;
    }
    case Op::kScale:
      if (!is(1, Sort::kScalar)) return std::nullopt;
      return *operands[0];
    case Op::kMap:
      return *operands[0];
    case Op::kMove: {
      if (!is(0, Sort::kMatrix)) return std::nullopt;
      const int64_t size = operands[0]->size();
      return MakeType(Sort::kMatrix, parameters[0] == 1 ? std::vector<int64_t>{1, size}
                                                        : std::vector<int64_t>{size, 1});
    }
    case Op::kTranspose: {
      if (!is(0, Sort::kMatrix)) return std::nullopt;
      Type type = *operands[0];
      std::swap(type.shape[0], type.shape[1]);
      std::swap(type.trees[0], type.trees[1]);
      return type;
    }
    case Op::kMatmul: {
      if (!is(0, Sort::kMatrix) || !is(1, Sort::kMatrix)) return std::nullopt;
      if (operands[0]->shape[1] != operands[1]->shape[0]) return std::nullopt;
      Type type = MakeType(Sort::kMatrix, {operands[0]->shape[0], operands[1]->shape[1]});
      type.trees = {operands[0]->trees[0], operands[1]->trees[1]};
      return type;
    }
    case Op::kConv:
      if (!is(0, Sort::kImage) || !is(1, Sort::kWeights) ||
          operands[0]->shape[1] != operands[1]->shape[1])
        return std::nullopt;
      return InferWindowed(*operands[0], operands[1]->shape[0], operands[1]->trees[0],
                           operands[1]->shape[2], operands[1]->shape[3], parameters[0]);
    case Op::kDepthwise:
      if (!is(0, Sort::kImage) || !is(1, Sort::kDepthwiseWeights) ||
          operands[0]->shape[1] != operands[1]->shape[0])
        return std::nullopt;
      return InferWindowed(*operands[0], operands[1]->shape[0], operands[1]->trees[0],
                           operands[1]->shape[2], operands[1]->shape[3], parameters[0]);
    case Op::kGrouped: {
      if (!is(0, Sort::kImage) || !is(1, Sort::kGroupedWeights)) return std::nullopt;
      const std::vector<int64_t>& w = operands[1]->shape;
      if (operands[0]->shape[1] != w[0] * w[2]) return std::nullopt;
      return InferWindowed(*operands[0], w[0] * w[1], Scaled(operands[1]->trees[0], w[1]), w[3],
                           w[4], parameters[0]);
    }
    case Op::kEnlarge: {
      if (!is(0, Sort::kWeights) && !is(0, Sort::kDepthwiseWeights) &&
          !is(0, Sort::kGroupedWeights))
        return std::nullopt;
      Type type = *operands[0];
      int64_t &width = type.shape.back(), &height = type.shape[type.shape.size() - 2];
      if (height > parameters[0] || width > parameters[0] ||
          (height == parameters[0] && width == parameters[0]))
        return std::nullopt;
      height = width = parameters[0];
      return type;
    }
    case Op::kMergeGroups: {
      const int64_t factor = parameters[0];
      if (!is(0, Sort::kGroupedWeights) || operands[0]->shape[0] % factor != 0) return std::nullopt;
      Type type = *operands[0];
      type.shape[0] /= factor;
      type.shape[1] *= factor;
      type.shape[2] *= factor;
      type.trees.assign(type.shape.size(), nullptr);
      return type;
    }
    case Op::kAvgPool:
    case Op::kMaxPool:
      if (!is(0, Sort::kImage)) return std::nullopt;
      return InferWindowed(*operands[0], operands[0]->shape[1], operands[0]->trees[1],
                           parameters[0], parameters[0], parameters[1]);
    case Op::kConcat:
      return InferConcat(*operands[0], *operands[1], Axis(parameters, *operands[0]));
    case Op::kSplit0:
    case Op::kSplit1:
      return InferSplit(*operands[0], Axis(parameters, *operands[0]), op == Op::kSplit1);
    default:
      return std::nullopt;
  }
}

std::vector<Element> Compute(Op op, std::span<const int64_t> parameters,
                             std::span<const Tensor* const> operands, const Type& type) {
  const auto size = static_cast<size_t>(type.size());
  std::vector<Element> result(size);
  const Tensor& a = *operands[0];
  const auto pairwise = [&](const auto& f) {
    for (size_t i = 0; i < size; ++i) result[i] = f(a.elements[i], operands[1]->elements[i]);
  };
  switch (op) {
    case Op::kAdd:
      pairwise([](Element x, Element y) { return x + y; });
      break;
    case Op::kMul:
      pairwise([](Element x, Element y) { return x * y; });
      break;
    case Op::kScale:
      for (size_t i = 0; i < size; ++i) result[i] = a.elements[i] * operands[1]->elements[0];
      break;
    case Op::kMap: {
      const auto salt = Mix(static_cast<uint64_t>(parameters[0]));
      for (size_t i = 0; i < size; ++i)
        result[i] = {Mix(a.elements[i].first ^ salt), Mix(a.elements[i].second ^ salt)};
      break;
    }
    case Op::kMove:
      result = a.elements;
      if (parameters[0] != 1) std::reverse(result.begin(), result.end());
      break;
    case Op::kTranspose: {
      const int64_t rows = type.shape[0], columns = type.shape[1];
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c)
          result[static_cast<size_t>(r * columns + c)] =
              a.elements[static_cast<size_t>(c * rows + r)];
      }
      break;
    }
    case Op::kMatmul: {
      const int64_t rows = type.shape[0], columns = type.shape[1], inner = a.type.shape[1];
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          Element sum{};
          for (int64_t k = 0; k < inner; ++k) {
            sum = sum + a.elements[static_cast<size_t>(r * inner + k)] *
                            operands[1]->elements[static_cast<size_t>(k * columns + c)];
          }
          result[static_cast<size_t>(r * columns + c)] = sum;
        }
      }
      break;
    }
    case Op::kConv:
    case Op::kDepthwise: {
      const Tensor& w = *operands[1];
      const bool depthwise = op == Op::kDepthwise;
      return Windowed(a, type, w.type.shape[2], w.type.shape[3], parameters[0], a.type.shape[1],
                      !depthwise, false,
                      [&](int64_t o, int64_t y, int64_t x, int64_t c, Element e) {
                        return e * w.elements[static_cast<size_t>(
                                       Offset(w.type.shape, {o, depthwise ? 0 : c, y, x}))];
                      });
    }
    case Op::kAvgPool:
    case Op::kMaxPool:
      return Windowed(a, type, parameters[0], parameters[0], parameters[1], a.type.shape[1], false,
                      op == Op::kMaxPool,
                      [](int64_t, int64_t, int64_t, int64_t, Element e) { return e; });
    case Op::kGrouped: {
      const Tensor& w = *operands[1];
      const int64_t outputs = w.type.shape[1], inputs = w.type.shape[2];
      return Windowed(a, type, w.type.shape[3], w.type.shape[4], parameters[0], a.type.shape[1],
                      true, false, [&](int64_t o, int64_t y, int64_t x, int64_t c, Element e) {
                        const int64_t group = o / outputs;
                        if (c / inputs != group) return Element{};
                        return e * w.elements[static_cast<size_t>(Offset(
                                       w.type.shape, {group, o % outputs, c % inputs, y, x}))];
                      });
    }
    case Op::kEnlarge: {
      const size_t rank = type.shape.size();
      const int64_t top = (type.shape[rank - 2] - a.type.shape[rank - 2]) / 2,
                    left = (type.shape[rank - 1] - a.type.shape[rank - 1]) / 2;
      ForEach(a.type.shape, [&](int64_t i, std::vector<int64_t> at) {
        at[rank - 2] += top;
        at[rank - 1] += left;
        result[static_cast<size_t>(Offset(type.shape, at))] = a.elements[static_cast<size_t>(i)];
      });
      break;
    }
    case Op::kMergeGroups: {
      const int64_t factor = parameters[0];
      ForEach(a.type.shape, [&](int64_t i, std::vector<int64_t> at) {
        const int64_t member = at[0] % factor;
        at[0] /= factor;
        at[1] += member * a.type.shape[1];
        at[2] += member * a.type.shape[2];
        result[static_cast<size_t>(Offset(type.shape, at))] = a.elements[static_cast<size_t>(i)];
      });
      break;
    }
    case Op::kConcat:
    case Op::kSplit0:
    case Op::kSplit1: {
      const auto axis = static_cast<size_t>(parameters[0]);
      const int64_t first = op == Op::kConcat ? a.type.shape[axis] : a.type.trees[axis]->first;
      ForEach(type.shape, [&](int64_t i, std::vector<int64_t> at) {
        const Tensor* from = &a;
        if (op == Op::kConcat && at[axis] >= first) {
          from = operands[1];
          at[axis] -= first;
        } else if (op == Op::kSplit1) {
          at[axis] += first;
        }
        result[static_cast<size_t>(i)] =
            from->elements[static_cast<size_t>(Offset(from->type.shape, at))];
      });
      break;
    }
    default:
      break;
  }
  return result;
}

std::optional<std::vector<Element>> ConstantElements(Op op, std::span<const int64_t> parameters,
                                                     const Type& type) {
  constexpr Element kOne{1, 1};
  std::vector<Element> elements(static_cast<size_t>(type.size()));
  switch (op) {
    case Op::kOnes:
      std::fill(elements.begin(), elements.end(), kOne);
      return elements;
    case Op::kIdentity:
      if (type.sort != Sort::kMatrix || type.shape[0] != type.shape[1]) return std::nullopt;
      for (int64_t i = 0; i < type.shape[0]; ++i)
        elements[static_cast<size_t>(i * (type.shape[0] + 1))] = kOne;
      return elements;
    case Op::kPoolWeights:
      if (type.sort != Sort::kDepthwiseWeights || type.shape[2] != parameters[0] ||
          type.shape[3] != parameters[0])
        return std::nullopt;
      std::fill(elements.begin(), elements.end(), kOne);
      return elements;
    case Op::kIdentityWeights: {
      const int64_t kernel = parameters[0];
      if (type.sort != Sort::kWeights || type.shape[0] != type.shape[1] ||
          type.shape[2] != kernel || type.shape[3] != kernel)
        return std::nullopt;
      for (int64_t o = 0; o < type.shape[0]; ++o)
        elements[static_cast<size_t>(Offset(type.shape, {o, o, kernel / 2, kernel / 2}))] = kOne;
      return elements;
    }
    default:
      return std::nullopt;
  }
}

std::vector<Element> RandomElements(const Type& type, uint64_t seed) {
  std::vector<Element> elements(static_cast<size_t>(type.size()));
  uint64_t state = Mix(seed);
  for (Element& e : elements) {
    e.first = Mix(state++);
    e.second = Mix(state++);
  }
  return elements;
}

std::optional<Type> InferTerm(const Term& term, const std::map<std::string, Type>& leaves,
                              const Parameters& parameters) {
  if (term.operands.empty()) {
    const auto found = leaves.find(ToText(term));
    return found == leaves.end() ? std::nullopt : std::optional<Type>(found->second);
  }
  std::array<Type, 2> types;
  std::array<const Type*, 2> operands{};
  for (size_t i = 0; i < term.operands.size(); ++i) {
    std::optional<Type> type = InferTerm(term.operands[i], leaves, parameters);
    if (!type.has_value()) return std::nullopt;
    types[i] = *std::move(type);
    operands[i] = &types[i];
  }
  return Infer(term.op, Values(term, parameters), std::span(operands).first(term.operands.size()));
}

std::optional<Tensor> Evaluate(const Term& term, const Leaves& leaves,
                               const Parameters& parameters) {
  if (term.operands.empty()) {
    const auto found = leaves.find(ToText(term));
    return found == leaves.end() ? std::nullopt : std::optional<Tensor>(found->second);
  }
  std::array<Tensor, 2> tensors;
  std::array<const Tensor*, 2> operands{};
  std::array<const Type*, 2> types{};
  for (size_t i = 0; i < term.operands.size(); ++i) {
    std::optional<Tensor> tensor = Evaluate(term.operands[i], leaves, parameters);
    if (!tensor.has_value()) return std::nullopt;
    tensors[i] = *std::move(tensor);
    operands[i] = &tensors[i];
    types[i] = &tensors[i].type;
  }
  const size_t n = term.operands.size();
  const std::vector<int64_t> values = Values(term, parameters);
  std::optional<Type> type = Infer(term.op, values, std::span(types).first(n));
  if (!type.has_value()) return std::nullopt;
  Tensor result{*std::move(type), {}};
  result.elements = Compute(term.op, values, std::span(operands).first(n), result.type);
  return result;
}

// ---- Checks on small cases ----

namespace {

// What a parameter stands for, by its place.
enum class ParameterKind { kFunction, kKernel, kWindow, kAxis, kFactor, kMovement };

ParameterKind ParameterKindOf(Op op, size_t place) {
  switch (op) {
    case Op::kMap:
      return ParameterKind::kFunction;
    case Op::kConv:
    case Op::kDepthwise:
    case Op::kGrouped:
      return ParameterKind::kWindow;
    case Op::kMergeGroups:
      return ParameterKind::kFactor;
    case Op::kMove:
      return ParameterKind::kMovement;
    case Op::kAvgPool:
    case Op::kMaxPool:
      return place == 0 ? ParameterKind::kKernel : ParameterKind::kWindow;
    case Op::kConcat:
    case Op::kSplit0:
    case Op::kSplit1:
      return ParameterKind::kAxis;
    default:
      return ParameterKind::kKernel;
  }
}

void CollectParameters(const Term& term, std::map<std::string, ParameterKind>* kinds) {
  for (size_t i = 0; i < term.parameters.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(term.parameters[i][0])) == 0)
      kinds->emplace(term.parameters[i], ParameterKindOf(term.op, i));
  }
  for (const Term& operand : term.operands) CollectParameters(operand, kinds);
}

void CollectLeaves(const Term& term, std::vector<const Term*>* leaves) {
  if (term.operands.empty()) {
    const bool known = std::any_of(leaves->begin(), leaves->end(),
                                   [&](const Term* other) { return *other == term; });
    if (!known) leaves->push_back(&term);
  }
  for (const Term& operand : term.operands) CollectLeaves(operand, leaves);
}

// Which sorts a leaf can have, from the operators that read it.
void CollectSorts(const Term& term, std::map<std::string, std::set<Sort>>* sorts) {
  constexpr Sort kImages[] = {Sort::kImage};
  constexpr Sort kWeights[] = {Sort::kWeights, Sort::kDepthwiseWeights, Sort::kGroupedWeights};
  const auto only = [&](size_t operand, std::span<const Sort> allowed) {
    const Term& leaf = term.operands[operand];
    if (!leaf.operands.empty()) return;
    std::set<Sort>& known = (*sorts)[ToText(leaf)];
    if (known.empty()) known = {allowed.begin(), allowed.end()};
    std::erase_if(known, [&](Sort s) {
      return std::find(allowed.begin(), allowed.end(), s) == allowed.end();
    });
  };
  constexpr Sort kMatrices[] = {Sort::kMatrix};
  switch (term.op) {
    case Op::kMove:
    case Op::kTranspose:
      only(0, kMatrices);
      break;
    case Op::kMatmul:
      only(0, kMatrices);
      only(1, kMatrices);
      break;
    case Op::kConv:
      only(0, kImages);
      only(1, std::span(kWeights).first(1));
      break;
    case Op::kDepthwise:
      only(0, kImages);
      only(1, std::span(kWeights).subspan(1, 1));
      break;
    case Op::kGrouped:
      only(0, kImages);
      only(1, std::span(kWeights).last(1));
      break;
    case Op::kMergeGroups:
      only(0, std::span(kWeights).last(1));
      break;
    case Op::kAvgPool:
    case Op::kMaxPool:
      only(0, kImages);
      break;
    case Op::kEnlarge:
      only(0, kWeights);
      break;
    case Op::kScale: {
      constexpr Sort kScalars[] = {Sort::kScalar};
      only(1, kScalars);
      break;
    }
    default:
      break;
  }
  for (const Term& operand : term.operands) CollectSorts(operand, sorts);
}

void WithSplits(const Type& type, std::vector<Type>* out) {
  out->push_back(type);
  for (size_t d = 0; d < std::min<size_t>(2, type.shape.size()); ++d) {
    if (type.shape[d] < 2) continue;
    Type split = type;
    split.trees[d] = std::make_shared<SplitNode>(SplitNode{1, nullptr, nullptr});
    out->push_back(std::move(split));
  }
}

// The types that a leaf is tried with.
std::vector<Type> TypesOf(Sort sort, int64_t extent) {
  std::vector<Type> types;
  switch (sort) {
    case Sort::kScalar:
      return {MakeType(sort, {})};
    case Sort::kMatrix:
      for (int64_t r = 1; r <= extent; ++r) {
        for (int64_t c = 1; c <= extent; ++c) WithSplits(MakeType(sort, {r, c}), &types);
      }
      return types;
    case Sort::kImage:
      for (int64_t n = 1; n <= extent; ++n) {
        for (int64_t c = 1; c <= extent; ++c) {
          // Odd and even extents meet strides differently.
          WithSplits(MakeType(sort, {n, c, 3, 4}), &types);
        }
      }
      // Groups of several channels.
      types.push_back(MakeType(sort, {1, extent * extent, 3, 4}));
      return types;
    case Sort::kWeights:
      for (int64_t o = 1; o <= extent; ++o) {
        for (int64_t i = 1; i <= extent; ++i) {
          for (const auto& [h, w] : {std::pair{1, 1}, {3, 3}, {1, 3}})
            WithSplits(MakeType(sort, {o, i, h, w}), &types);
        }
      }
      return types;
    case Sort::kDepthwiseWeights:
      for (int64_t c = 1; c <= extent; ++c) {
        for (int64_t k : {1, 3}) WithSplits(MakeType(sort, {c, 1, k, k}), &types);
      }
      return types;
    case Sort::kGroupedWeights:
      for (int64_t g = 1; g <= extent; ++g) {
        for (int64_t o = 1; o <= extent; ++o) {
          for (int64_t i = 1; i <= extent; ++i) {
            for (int64_t k : {1, 3}) types.push_back(MakeType(sort, {g, o, i, k, k}));
          }
        }
      }
      return types;
  }
  return types;
}

// So that the first cases, which may be all, differ in everything.
void Shuffle(uint64_t seed, std::vector<Type>* types) {
  SplitMix random(seed);
  for (size_t i = types->size(); i > 1; --i)
    std::swap((*types)[i - 1], (*types)[random.Next() % i]);
}

class Checker {
 public:
  Checker(std::span<const Term> left, std::span<const Term> right, const CheckLimits& limits)
      : left_(left), right_(right), limits_(limits), share_(limits.cases) {
    std::map<std::string, std::set<Sort>> sorts;
    for (const auto side : {left, right}) {
      for (const Term& term : side) {
        CollectParameters(term, &kinds_);
        CollectLeaves(term, &leaves_);
        CollectSorts(term, &sorts);
        CollectSubterms(term);
      }
    }
    constexpr Sort kAll[] = {Sort::kMatrix,           Sort::kImage,          Sort::kWeights,
                             Sort::kDepthwiseWeights, Sort::kGroupedWeights, Sort::kScalar};
    for (const Term* leaf : leaves_) {
      std::set<Sort>& allowed = sorts[ToText(*leaf)];
      if (allowed.empty()) allowed = {std::begin(kAll), std::end(kAll)};
      std::vector<Type> types;
      for (const Sort sort : allowed) {
        for (Type& type : TypesOf(sort, limits.extent)) types.push_back(std::move(type));
      }
      Shuffle(limits.seed + types_.size(), &types);
      types_.push_back(std::move(types));
    }
  }

  Checked Run() {
    std::vector<std::pair<std::string, ParameterKind>> kinds(kinds_.begin(), kinds_.end());
    for (const auto& [name, kind] : kinds) {
      const int64_t values = kind == ParameterKind::kFunction ? 1
                             : kind == ParameterKind::kWindow ? 4
                                                              : 2;
      share_ = std::max<int64_t>(1, share_ / values);
    }
    Assign(kinds, 0);
    return std::move(checked_);
  }

 private:
  void CollectSubterms(const Term& term) {
    for (const Term& operand : term.operands) CollectSubterms(operand);
    if (!term.operands.empty()) subterms_.push_back(&term);
  }

  // Each assignment of parameters has its share of the cases.
  bool Done() const { return cases_ >= share_ || !checked_.counterexample.empty(); }

  void Assign(const std::vector<std::pair<std::string, ParameterKind>>& kinds, size_t i) {
    if (i == kinds.size()) {
      cases_ = 0;
      Choose(0);
      return;
    }
    static const std::map<ParameterKind, std::vector<int64_t>> kValues = {
        {ParameterKind::kFunction, {7}},        {ParameterKind::kKernel, {1, 3}},
        {ParameterKind::kWindow, {1, 2, 3, 4}}, {ParameterKind::kAxis, {0, 1}},
        {ParameterKind::kFactor, {1, 2}},       {ParameterKind::kMovement, {1, 2}}};
    for (const int64_t value : kValues.at(kinds[i].second)) {
      parameters_[kinds[i].first] =
          kinds[i].second == ParameterKind::kFunction ? value + static_cast<int64_t>(i) : value;
      Assign(kinds, i + 1);
      if (!checked_.counterexample.empty()) return;
    }
  }

  // Gives leaf i each of its types, as long as what can be inferred by then can be applied.
  void Choose(size_t i) {
    if (Done()) return;
    if (i == leaves_.size()) {
      Compare();
      return;
    }
    const std::string text = ToText(*leaves_[i]);
    for (const Type& type : types_[i]) {
      if (leaves_[i]->op != Op::kVariable &&
          !ConstantElements(leaves_[i]->op, Values(*leaves_[i], parameters_), type).has_value())
        continue;
      chosen_[text] = type;
      if (Possible()) Choose(i + 1);
      if (Done()) return;
    }
    chosen_.erase(text);
  }

  bool Known(const Term& term) const {
    if (term.operands.empty()) return chosen_.contains(ToText(term));
    return std::all_of(term.operands.begin(), term.operands.end(),
                       [&](const Term& t) { return Known(t); });
  }

  bool Possible() const {
    return std::all_of(subterms_.begin(), subterms_.end(), [&](const Term* term) {
      return !Known(*term) || InferTerm(*term, chosen_, parameters_).has_value();
    });
  }

  void Compare() {
    Leaves leaves;
    std::vector<std::string> shapes;
    for (const Term* leaf : leaves_) {
      const std::string text = ToText(*leaf);
      const Type& type = chosen_.at(text);
      leaves[text] = {type,
                      leaf->op == Op::kVariable
                          ? RandomElements(type, limits_.seed * 1'000'003 + leaves.size() * 7919 +
                                                     static_cast<uint64_t>(checked_.cases))
                          : *ConstantElements(leaf->op, Values(*leaf, parameters_), type)};
      shapes.push_back(absl::StrCat(text, ":", absl::StrJoin(type.shape, "x")));
    }
    for (size_t i = 0; i < left_.size(); ++i) {
      const auto a = Evaluate(left_[i], leaves, parameters_);
      const auto b = Evaluate(right_[i], leaves, parameters_);
      if (!a.has_value() || !b.has_value()) return;
      if (a->type.sort != b->type.sort || a->type.shape != b->type.shape ||
          a->elements != b->elements) {
        for (const auto& [name, value] : parameters_)
          shapes.push_back(absl::StrCat(name, "=", value));
        checked_.counterexample = absl::StrJoin(shapes, " ");
        return;
      }
    }
    ++cases_;
    ++checked_.cases;
  }

  std::span<const Term> left_, right_;
  CheckLimits limits_;
  std::map<std::string, ParameterKind> kinds_;
  std::vector<const Term*> leaves_;
  std::vector<std::vector<Type>> types_;  // of each leaf
  std::vector<const Term*> subterms_;
  Parameters parameters_;
  std::map<std::string, Type> chosen_;
  Checked checked_;
  int64_t share_;      // of the cases, for one assignment of parameters
  int64_t cases_ = 0;  // of this assignment
};

}  // namespace

Checked CheckEqual(std::span<const Term> left, std::span<const Term> right,
                   const CheckLimits& limits) {
  if (left.size() != right.size()) return {0, "different numbers of terms"};
  return Checker(left, right, limits).Run();
}

}  // namespace heddle::substitution
