#include "compiler/runtime/packed_params.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/module_check.h"

namespace heddle::runtime {
namespace {

constexpr int64_t kSmall = 1024;  // elements of a tensor that is not worth it

// Codes count from the smallest element of their group.
struct Group {
  int32_t base = 0;
  float scale = 1;
  int bits = 4;
};

// The elements of a group are `inner` apart.
template <typename T>
struct Elements {
  const char* first;
  int64_t count, stride;
  T operator[](int64_t i) const {
    T value;
    std::memcpy(&value, first + i * stride * static_cast<int64_t>(sizeof(T)), sizeof value);
    return value;
  }
};

std::optional<Group> GroupOf(int64_t low, int64_t high, float scale) {
  if (low < INT32_MIN || low > INT32_MAX || high - low > 255) return std::nullopt;
  return Group{static_cast<int32_t>(low), scale, high - low <= 15 ? 4 : 8};
}

template <typename T>
std::optional<Group> FindGroup(const Elements<T>& elements) {
  int64_t low = INT64_MAX, high = INT64_MIN;
  for (int64_t i = 0; i < elements.count; ++i) {
    // Above the largest i64 there is no base.
    const auto value = static_cast<int64_t>(elements[i]);
    if (std::is_same_v<T, uint64_t> && value < 0) return std::nullopt;
    low = std::min(low, value);
    high = std::max(high, value);
    if (static_cast<uint64_t>(high) - static_cast<uint64_t>(low) > 255) return std::nullopt;
  }
  return GroupOf(low, high, 1);
}

// The multiple of `scale` that has exactly these bits.
std::optional<int64_t> MultipleOf(float value, float scale) {
  constexpr float kMost = 1024;
  const float quotient = std::nearbyint(value / scale);
  if (!(std::abs(quotient) <= kMost)) return std::nullopt;
  if (std::bit_cast<uint32_t>(quotient * scale + 0.0F) != std::bit_cast<uint32_t>(value))
    return std::nullopt;
  return static_cast<int64_t>(quotient);
}

std::optional<Group> FindGroupOfScale(const Elements<float>& elements, float scale) {
  int64_t low = 1024, high = -1024;
  for (int64_t i = 0; i < elements.count; ++i) {
    const std::optional<int64_t> multiple = MultipleOf(elements[i], scale);
    if (!multiple) return std::nullopt;
    low = std::min(low, *multiple);
    high = std::max(high, *multiple);
    if (high - low > 255) return std::nullopt;
  }
  return GroupOf(low, high, scale);
}

// Elements and zero are multiples of the scale, so two of them that are close are a few scales apart,
// mostly one. That tells which multiple the largest element is, which tells the exact scale.
template <>
std::optional<Group> FindGroup(const Elements<float>& elements) {
  constexpr int64_t kSamples = 4096;
  constexpr int kMostApart = 8;
  const int64_t step = (elements.count + kSamples - 1) / kSamples;
  std::vector<float> values = {0};
  for (int64_t i = 0; i < elements.count; i += step) {
    if (!std::isfinite(elements[i])) return std::nullopt;
    values.push_back(elements[i]);
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (values.size() > 256 + 1) return std::nullopt;
  if (values.size() == 1) return FindGroupOfScale(elements, 1);
  float gap = INFINITY;
  for (size_t i = 1; i < values.size(); ++i) gap = std::min(gap, values[i] - values[i - 1]);
  const float largest = std::max(-values.front(), values.back());
  for (int apart = 1; apart <= kMostApart; ++apart) {
    const float multiple = std::nearbyint(largest / gap * static_cast<float>(apart));
    const float scale = largest / multiple;
    for (float candidate : {scale, std::nextafter(scale, 0.0F), std::nextafter(scale, INFINITY)}) {
      // Subnormal scales depend on the mode of the processor.
      if (!(candidate >= 0x1p-126F)) return std::nullopt;
      if (const auto group = FindGroupOfScale(elements, candidate)) return group;
    }
  }
  return std::nullopt;
}

template <typename T>
Elements<T> ElementsOf(const PackedParam& param, std::string_view bytes, int64_t group) {
  const auto [outer, length, inner] = param.shape;
  const int64_t first = group / inner * length * inner + group % inner;
  return {bytes.data() + first * static_cast<int64_t>(sizeof(T)), length, inner};
}

// Calls `visit` with an element of the type.
template <typename Visit>
bool VisitType(std::string_view dtype, const Visit& visit) {
  if (dtype == "f32") return visit(float{});
  if (dtype == "i8") return visit(int8_t{});
  if (dtype == "u8") return visit(uint8_t{});
  if (dtype == "i16") return visit(int16_t{});
  if (dtype == "u16") return visit(uint16_t{});
  if (dtype == "i32") return visit(int32_t{});
  if (dtype == "u32") return visit(uint32_t{});
  if (dtype == "i64") return visit(int64_t{});
  if (dtype == "u64") return visit(uint64_t{});
  return false;
}

int64_t NumGroups(const PackedParam& param) { return param.shape[0] * param.shape[2]; }

int64_t NumElements(const PackedParam& param) { return NumGroups(param) * param.shape[1]; }

int64_t HeadBytes(const PackedParam& param) {
  return NumGroups(param) * (param.dtype == "f32" ? 8 : 4);
}

bool IsWorthIt(const PackedParam& param) { return param.PackedBytes() <= param.Bytes() / 4 * 3; }

// Sets the number of bits. The last group is looked at first, since groups of another shape often
// begin with the same elements.
bool HasGroups(PackedParam& param, std::string_view bytes) {
  return VisitType(param.dtype, [&](auto type) {
    const int64_t groups = NumGroups(param);
    param.bits = 4;
    for (int64_t g = 0; g < groups; ++g) {
      const auto group =
          FindGroup(ElementsOf<decltype(type)>(param, bytes, g == 0 ? groups - 1 : g - 1));
      if (!group) return false;
      param.bits = std::max(param.bits, group->bits);
      if (!IsWorthIt(param)) return false;
    }
    return true;
  });
}

// The ways to look at a shape, those with few groups first. Blocks along a dimension have scales of
// their own in some models.
std::vector<std::array<int64_t, 3>> Views(const std::vector<int64_t>& shape) {
  std::vector<std::array<int64_t, 3>> views;
  const auto product = [&](size_t begin, size_t end) {
    int64_t result = 1;
    for (size_t i = begin; i < end; ++i) result *= shape[i];
    return result;
  };
  for (size_t i = 0; i < shape.size(); ++i) {
    for (size_t j = i + 1; j <= shape.size(); ++j)
      views.push_back({product(0, i), product(i, j), product(j, shape.size())});
    for (int64_t block : {256, 128, 64, 32, 16}) {
      if (shape[i] % block == 0 && shape[i] > block)
        views.push_back({product(0, i) * (shape[i] / block), block, product(i + 1, shape.size())});
    }
  }
  std::stable_sort(views.begin(), views.end(),
                   [](const auto& a, const auto& b) { return a[0] * a[2] < b[0] * b[2]; });
  return views;
}

template <typename T>
void PackAs(const PackedParam& param, std::string_view bytes, std::string& out) {
  const auto [outer, length, inner] = param.shape;
  const int64_t groups = NumGroups(param), head = HeadBytes(param);
  for (int64_t g = 0; g < groups; ++g) {
    const Elements<T> elements = ElementsOf<T>(param, bytes, g);
    const Group group = *FindGroup(elements);
    std::memcpy(out.data() + 4 * g, &group.base, 4);
    if (std::is_same_v<T, float>) std::memcpy(out.data() + 4 * (groups + g), &group.scale, 4);
    for (int64_t i = 0; i < length; ++i) {
      int64_t value;
      if constexpr (std::is_same_v<T, float>)
        value = *MultipleOf(elements[i], group.scale);
      else
        value = static_cast<int64_t>(elements[i]);
      const auto code = static_cast<unsigned>(value - group.base);
      const int64_t e = (g / inner * length + i) * inner + g % inner;
      if (param.bits == 8)
        out[head + e] = static_cast<char>(code);
      else
        out[head + e / 2] =
            static_cast<char>(static_cast<uint8_t>(out[head + e / 2]) | code << (e % 2 * 4));
    }
  }
}

template <typename T>
void UnpackAs(const PackedParam& param, const char* packed, char* out) {
  const auto [outer, length, inner] = param.shape;
  const int64_t groups = NumGroups(param);
  const auto* codes = reinterpret_cast<const uint8_t*>(packed + HeadBytes(param));
  int64_t e = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < length; ++i) {
      for (int64_t g = o * inner; g < (o + 1) * inner; ++g, ++e) {
        int32_t base;
        std::memcpy(&base, packed + 4 * g, 4);
        const int code = param.bits == 8 ? codes[e] : codes[e / 2] >> (e % 2 * 4) & 15;
        T element;
        if constexpr (std::is_same_v<T, float>) {
          float scale;
          std::memcpy(&scale, packed + 4 * (groups + g), 4);
          element = static_cast<float>(base + static_cast<int64_t>(code)) * scale;
        } else {
          element = static_cast<T>(base + static_cast<int64_t>(code));
        }
        std::memcpy(out + e * static_cast<int64_t>(sizeof element), &element, sizeof element);
      }
    }
  }
}

absl::Status BadManifest(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("module manifest is inconsistent: ", what));
}

// Whether no product of what it states overflows.
bool IsSane(const PackedParam& param) {
  int64_t elements = 1;
  for (int64_t extent : param.shape) {
    if (extent < 1 || extent > (INT64_MAX / 64) / elements) return false;
    elements *= extent;
  }
  const bool known = VisitType(param.dtype, [](auto) { return true; });
  return known && (param.bits == 4 || param.bits == 8) && param.offset >= 0;
}

}  // namespace

int64_t PackedParam::Bytes() const { return SizeOfDType(dtype) * NumElements(*this); }

int64_t PackedParam::PackedBytes() const {
  return HeadBytes(*this) + (NumElements(*this) * bits + 7) / 8;
}

std::optional<PackedParam> FindPacking(std::string_view bytes, std::string_view dtype,
                                       const std::vector<int64_t>& shape) {
  PackedParam param{0, std::string(dtype), {}, 8};
  const int64_t size = SizeOfDType(param.dtype);
  if (size == 0 || static_cast<int64_t>(bytes.size()) < kSmall * size) return std::nullopt;
  for (const auto& view : Views(shape)) {
    param.shape = view;
    param.bits = 4;
    const bool possible = param.Bytes() == static_cast<int64_t>(bytes.size());
    if (possible && IsWorthIt(param) && HasGroups(param, bytes)) return param;
  }
  return std::nullopt;
}

std::string Pack(const PackedParam& param, std::string_view bytes) {
  std::string out(static_cast<size_t>(param.PackedBytes()), '\0');
  VisitType(param.dtype, [&](auto type) {
    PackAs<decltype(type)>(param, bytes, out);
    return true;
  });
  return out;
}

absl::StatusOr<SharedBytes> UnpackParams(const std::vector<PackedParam>& params,
                                         std::string_view plain, std::string_view packed_bytes) {
  int64_t plain_end = 0, packed_end = 0, end = 0;
  for (const PackedParam& param : params) {
    if (!IsSane(param)) return BadManifest("a packed parameter");
    plain_end += param.offset - end;
    packed_end += param.PackedBytes();
    const bool inside = param.offset >= end && plain_end <= static_cast<int64_t>(plain.size()) &&
                        packed_end <= static_cast<int64_t>(packed_bytes.size());
    if (!inside) return BadManifest("the place of a packed parameter");
    end = param.offset + param.Bytes();
  }
  if (packed_end != static_cast<int64_t>(packed_bytes.size()))
    return BadManifest("the size of the packed parameters");
  const int64_t total = end + static_cast<int64_t>(plain.size()) - plain_end;
  auto buffer = std::make_shared<AlignedBuffer>(AlignedBuffer::Allocate(total));
  if (!buffer->ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", total, " bytes for the parameters"));
  }
  int64_t at = 0;
  const auto copy = [&](int64_t to) {
    std::memcpy(buffer->data() + at, plain.data(), static_cast<size_t>(to - at));
    plain.remove_prefix(static_cast<size_t>(to - at));
    at = to;
  };
  for (const PackedParam& param : params) {
    copy(param.offset);
    VisitType(param.dtype, [&](auto type) {
      UnpackAs<decltype(type)>(param, packed_bytes.data(), buffer->data() + at);
      return true;
    });
    packed_bytes.remove_prefix(static_cast<size_t>(param.PackedBytes()));
    at += param.Bytes();
  }
  copy(total);
  const std::string_view view(buffer->data(), static_cast<size_t>(total));
  return SharedBytes(std::move(buffer), view);
}

}  // namespace heddle::runtime
