// The large tensors of an ONNX file (compiler/onnx/parts.h): a reader of its own over Protobuf's wire format, which clients and
// workers run over whole files.
#include "compiler/onnx/parts.h"

#include <algorithm>
#include <string>

#include "tests/fuzz/fuzz_target.h"

namespace heddle::fuzz {

void Run(std::string_view input) {
  const auto file_bytes = static_cast<int64_t>(input.size());
  int64_t inside = 0;
  const absl::StatusOr<std::string> small = onnx::DetachParts(
      input, [&](const onnx::TensorPlace& place) -> absl::StatusOr<onnx::PlacedTensor> {
        if (place.location.empty()) {
          Require(place.offset >= 0 && place.length >= onnx::kPartBytes &&
                      place.length <= file_bytes && place.offset <= file_bytes - place.length,
                  "a tensor of the file lies in the file");
          inside += place.length;
        }
        const int64_t bytes = std::max<int64_t>(place.length, 0);
        return onnx::PlacedTensor{.digest = std::string(64, 'a'), .bytes = bytes, .elements = {}};
      });
  if (!small.ok()) return;
  Require(inside <= file_bytes, "tensors of the file do not overlap");
  const absl::StatusOr<std::string> again = onnx::DetachParts(
      *small, [](const onnx::TensorPlace& place) -> absl::StatusOr<onnx::PlacedTensor> {
        Require(!onnx::PartDigest(place.location).empty(), "the small file has parts only");
        return onnx::PlacedTensor{
            .digest = onnx::PartDigest(place.location), .bytes = place.length, .elements = {}};
      });
  Require(again.ok(), "the small file is a file");
}

}  // namespace heddle::fuzz
