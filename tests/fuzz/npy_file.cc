// NumPy's .npy files, which people give to `heddle run` (client/modules/npy.h).
#include "client/modules/npy.h"
#include "tests/fuzz/fuzz_target.h"

namespace heddle::fuzz {

void Run(std::string_view input) {
  const absl::StatusOr<client::NpyArray> array = client::ParseNpy(input);
  (void)client::NpyFileName(input, 0);
  if (!array.ok()) {
    Require(array.status().code() == absl::StatusCode::kInvalidArgument,
            "an array is invalid, and nothing else");
    return;
  }
  for (const int64_t extent : array->shape) Require(extent >= 0, "an extent is not negative");
  const absl::StatusOr<client::NpyArray> again = client::ParseNpy(client::SerializeNpy(*array));
  Require(again.ok() && again->dtype == array->dtype && again->shape == array->shape &&
              again->bytes == array->bytes,
          "an array round-trips");
}

}  // namespace heddle::fuzz
