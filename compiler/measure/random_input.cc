#include "compiler/measure/random_input.h"

#include <cstdint>

#include "compiler/ir/arithmetic.h"

namespace heddle::internal {
namespace {

template <typename T, typename Next>
void FillWith(const ir::Buffer& buffer, void* data, const Next& next) {
  T* out = static_cast<T*>(data);
  const int64_t count = buffer.NumElements();
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(next());
}

}  // namespace

void FillInput(const ir::Buffer& buffer, void* data, SplitMix& random) {
  const auto small = [&]() -> int64_t {
    if (buffer.below > 0)
      return static_cast<int64_t>(random.Next() % static_cast<uint64_t>(buffer.below));
    return static_cast<int64_t>(random.Next() % 4) + 1;
  };
  const auto real = [&] { return 2 * random.Unit() - 1; };
  switch (buffer.dtype) {
    case ir::DType::kBool:
      return FillWith<uint8_t>(buffer, data, [&] { return random.Next() & 1; });
    case ir::DType::kI8:
    case ir::DType::kU8:
      return FillWith<uint8_t>(buffer, data, small);
    case ir::DType::kI16:
    case ir::DType::kU16:
      return FillWith<uint16_t>(buffer, data, small);
    case ir::DType::kI32:
    case ir::DType::kU32:
      return FillWith<int32_t>(buffer, data, small);
    case ir::DType::kI64:
    case ir::DType::kU64:
      return FillWith<int64_t>(buffer, data, small);
    case ir::DType::kF32:
      return FillWith<float>(buffer, data, real);
    case ir::DType::kF64:
      return FillWith<double>(buffer, data, real);
    case ir::DType::kF16:
    case ir::DType::kBF16:
      return FillWith<uint16_t>(
          buffer, data, [&] { return ir::HalfBits(static_cast<float>(real()), buffer.dtype); });
  }
}

}  // namespace heddle::internal
