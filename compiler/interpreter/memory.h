// The memory of the register machine: the buffers, and a record of who wrote which elements.
#pragma once

#include <cstdint>
#include <cstring>

#include "compiler/interpreter/bytecode.h"
#include "compiler/interpreter/races.h"
#include "compiler/ir/arithmetic.h"

namespace heddle::interpreter {

// One buffer.
struct Memory {
  uint8_t* data = nullptr;
  uint8_t* written = nullptr;  // one byte per element; null if not tracked
  uint64_t elements = 0;
  RaceDetector::Watch* watch = nullptr;  // null if races are not checked
};

// Reads one element. The caller has checked that it lies within the buffer.
template <typename T>
inline T Read(const Memory& m, uint64_t element) {
  T value;
  std::memcpy(&value, m.data + element * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
inline void Write(const Memory& m, uint64_t element, T value) {
  std::memcpy(m.data + element * sizeof(T), &value, sizeof(T));
}

inline Register LoadAny(const Memory& m, ir::DType dtype, uint64_t element) {
  Register r{0};
  switch (dtype) {
    case ir::DType::kBool:
    case ir::DType::kU8:
      r.i = Read<uint8_t>(m, element);
      break;
    case ir::DType::kI8:
      r.i = Read<int8_t>(m, element);
      break;
    case ir::DType::kI32:
      r.i = Read<int32_t>(m, element);
      break;
    case ir::DType::kI16:
      r.i = Read<int16_t>(m, element);
      break;
    case ir::DType::kU16:
      r.i = Read<uint16_t>(m, element);
      break;
    case ir::DType::kU32:
      r.i = Read<uint32_t>(m, element);
      break;
    case ir::DType::kI64:
    case ir::DType::kU64:
      r.i = Read<int64_t>(m, element);
      break;
    case ir::DType::kF32:
      r.f = Read<float>(m, element);
      break;
    case ir::DType::kF64:
      r.d = Read<double>(m, element);
      break;
    case ir::DType::kF16:
    case ir::DType::kBF16:
      r.f = ir::HalfValue(Read<uint16_t>(m, element), dtype);
      break;
  }
  return r;
}

inline Register Convert(Register value, ir::DType from, ir::DType to) {
  Register r{0};
  if (!ir::IsFloat(from)) {
    if (to == ir::DType::kF64) {
      r.d = ir::IntToFloat(value.i, from, to);
    } else if (ir::IsFloat(to)) {
      r.f = static_cast<float>(ir::IntToFloat(value.i, from, to));
    } else {
      r.i = ir::WrapInt(value.i, to);
    }
    return r;
  }
  const double x = from == ir::DType::kF64 ? value.d : static_cast<double>(value.f);
  if (to == ir::DType::kF32 || ir::IsHalf(to)) {
    r.f = static_cast<float>(ir::RoundFloat(x, to));
  } else if (to == ir::DType::kF64) {
    r.d = x;
  } else {
    r.i = ir::FloatToInt(x, to);
  }
  return r;
}

}  // namespace heddle::interpreter
