// NumPy's .npz files: ZIP archives of .npy files, as numpy.savez and savez_compressed write them.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/modules/npy.h"

namespace heddle::client {

// The arrays by name, without ".npy". InvalidArgument names the problem: not a ZIP archive, a member that
// is damaged, encrypted or compressed in another way than NumPy does, an array that ParseNpy refuses, two
// arrays of one name, or more than 4 GiB in all. The bytes may come from anywhere.
absl::StatusOr<std::map<std::string, NpyArray>> ParseNpz(std::string_view bytes);
absl::StatusOr<std::map<std::string, NpyArray>> ReadNpzFile(const std::string& path);

}  // namespace heddle::client
