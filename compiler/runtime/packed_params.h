// Parameters that a module's file stores as small integers. A model with weights of 4 or 8 bits is
// computed in f32 or i32, and its weights would take four or eight times the bytes in the file.
//
// A tensor is packed if it comes back bit by bit. It is looked at as [outer, length, inner]; the
// elements that share the first and the last index are a group, such as an output channel, and have
// a scale (f32 only) and a base of their own:
//
//   element = (base + code) * scale      of f32, in f32 arithmetic
//   element = base + code                of integers
//
// The packed form is the bases (i32, by outer and inner), for f32 the scales (f32, the same order), and
// the codes in the order of the elements; of two codes of 4 bits in a byte, the first one is low. All
// are little endian.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files/shared_bytes.h"

namespace heddle::runtime {

struct PackedParam {
  int64_t offset = 0;  // of the tensor in the parameters
  std::string dtype;   // of the tensor: "f32", "i16", "i32", ..
  std::array<int64_t, 3> shape{};
  int bits = 8;  // of a code: 4 or 8

  int64_t Bytes() const;        // of the tensor
  int64_t PackedBytes() const;  // of its packed form
};

// The way in which a tensor is packed; `offset` is 0. Nothing: it cannot be packed, is small, or would
// not get smaller by a quarter.
std::optional<PackedParam> FindPacking(std::string_view bytes, std::string_view dtype,
                                       const std::vector<int64_t>& shape);

// The packed form of a tensor for which FindPacking found this way.
std::string Pack(const PackedParam& param, std::string_view bytes);

// The parameters of a module: the bytes of `plain` with the tensors of `packed_bytes` put in at their
// offsets. InvalidArgument: the list contradicts the bytes. ResourceExhausted: there is no memory.
absl::StatusOr<SharedBytes> UnpackParams(const std::vector<PackedParam>& params,
                                         std::string_view plain, std::string_view packed_bytes);

}  // namespace heddle::runtime
