#include "bench/common/operator_table.h"

#include <algorithm>
#include <sstream>
#include <string_view>

namespace heddle::bench {
namespace {

struct Convolution {
  const char* name;
  int64_t size, inputs, outputs, kernel, stride;
};

constexpr Convolution kConvolutions[] = {
    {"C1", 224, 3, 64, 7, 2},    {"C2", 56, 64, 64, 3, 1},    {"C3", 56, 64, 64, 1, 1},
    {"C4", 56, 64, 128, 3, 2},   {"C5", 56, 64, 128, 1, 2},   {"C6", 28, 128, 128, 3, 1},
    {"C7", 28, 128, 256, 3, 2},  {"C8", 28, 128, 256, 1, 2},  {"C9", 14, 256, 256, 3, 1},
    {"C10", 14, 256, 512, 3, 2}, {"C11", 14, 256, 512, 1, 2}, {"C12", 7, 512, 512, 3, 1},
    {"D1", 112, 32, 32, 3, 1},   {"D2", 112, 64, 64, 3, 2},   {"D3", 56, 128, 128, 3, 1},
    {"D4", 56, 128, 128, 3, 2},  {"D5", 28, 256, 256, 3, 1},  {"D6", 28, 256, 256, 3, 2},
    {"D7", 14, 512, 512, 3, 1},  {"D8", 14, 512, 512, 3, 2},  {"D9", 7, 1024, 1024, 3, 1},
};

// The last layer of ResNet-18, a language model's, the layers of BERT-base, a square one; then the
// two products of its attention.
constexpr const char* kMatrixProducts[] = {
    "1x1000x512",   "1x4096x1024",    "128x768x768",   "128x3072x768",
    "128x768x3072", "1024x1024x1024", "12x128x128x64", "12x128x64x128",
};

// The extents of "MxNxK" or "BxMxNxK"; empty if `name` is neither.
std::vector<int64_t> ParseExtents(const std::string& name) {
  std::vector<int64_t> extents;
  std::istringstream parts(name);
  for (std::string part; std::getline(parts, part, 'x');) {
    if (part.empty() || part.size() > 5) return {};
    if (!std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      return {};
    }
    extents.push_back(std::stoll(part));
    if (extents.back() < 1 || extents.back() > 65536) return {};
  }
  return extents.size() == 3 || extents.size() == 4 ? extents : std::vector<int64_t>();
}

}  // namespace

int64_t Operator::PadTotal() const {
  return std::max<int64_t>((OutSize() - 1) * stride + kernel - size, 0);
}

std::vector<std::string> OperatorNames() {
  std::vector<std::string> names;
  for (const Convolution& c : kConvolutions) names.push_back(c.name);
  names.insert(names.end(), std::begin(kMatrixProducts), std::end(kMatrixProducts));
  return names;
}

std::optional<Operator> FindOperator(const std::string& name) {
  for (const Convolution& c : kConvolutions) {
    if (name != c.name) continue;
    const auto kind = name[0] == 'D' ? OperatorKind::kDepthwise : OperatorKind::kConvolution;
    return Operator{name, kind, c.size, c.inputs, c.outputs, c.kernel, c.stride};
  }
  constexpr std::string_view kHalf = "f16";
  const bool half = name.size() > kHalf.size() && name.ends_with(kHalf);
  const std::vector<int64_t> extents =
      ParseExtents(half ? name.substr(0, name.size() - kHalf.size()) : name);
  if (extents.empty() || (half && extents.size() != 3)) return std::nullopt;
  Operator product{name, OperatorKind::kMatrixProduct};
  product.half = half;
  const size_t at = extents.size() - 3;
  if (at == 1) product.batch = extents[0];
  product.m = extents[at];
  product.n = extents[at + 1];
  product.k = extents[at + 2];
  return product;
}

}  // namespace heddle::bench
