// The parts of a model: its large tensors, apart from the rest of the file.
//
// A model travels and is imported as a small ONNX file whose large tensors are named by the SHA-256
// of their elements. It does not matter whether they were in the file itself or beside it in files of
// external data: what is made of both is the same, except for the order of fields. The form is
// ONNX's own for external data, with the location "sha256:DIGEST" and a length, and without an
// offset.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace heddle::onnx {

// Tensors of at least so many bytes become parts. Smaller ones stay in the file: they may be shapes,
// and there may be very many.
inline constexpr int64_t kPartBytes = int64_t{1} << 16;

// Where the elements of a tensor lie, as a model says. Nothing of it is checked.
struct TensorPlace {
  std::string tensor;  // its name; may be empty
  std::string
      location{};       // path of a file, relative to the model's folder; empty: the model itself
  int64_t offset = 0;   // in that file
  int64_t length = -1;  // -1: up to the end of the file
};

// What becomes of a tensor: a part of so many bytes, or bytes in the file, without a digest.
struct PlacedTensor {
  std::string digest;  // empty: `elements` go into the file
  int64_t bytes = 0;
  std::string elements;
};

// Returns the small file of `model`. `place` is called for every tensor that is at least kPartBytes
// long in the file, and for every one of external data, also in subgraphs, attributes and functions.
// The elements in `model` are not read, so `model` may be a mapped file of any size.
// InvalidArgument: this is no ONNX file, or a truncated one; or a tensor's place is malformed. Errors
// of `place` are passed on.
absl::StatusOr<std::string> DetachParts(
    std::string_view model,
    absl::FunctionRef<absl::StatusOr<PlacedTensor>(const TensorPlace&)> place);

// The digest in a location; empty if it names no part.
std::string PartDigest(std::string_view location);

// Parses the entries of external data. InvalidArgument names the tensor: no location, or an offset or
// length that is no number from 0 on. The optional SHA-1 of a file is ignored, because every part has
// a SHA-256 of its own.
absl::Status SetPlace(std::string_view key, std::string_view value, TensorPlace* place);

}  // namespace heddle::onnx
