#include "client/modules/module_signature.h"

#include <fmt/format.h>

#include "absl/time/clock.h"
#include "base/files/mapped_file.h"
#include "base/files/trailer.h"
#include "base/status_macros.h"

namespace heddle::client {
namespace {

constexpr const char* kNoLab =
    "whether a worker of the lab signed a module is told by the lab's certificate: give --tls-dir "
    "(HEDDLE_TLS_DIR)";

}  // namespace

absl::StatusOr<ModuleMaker> MakerOfFile(const std::string& tls_directory, const std::string& path) {
  if (tls_directory.empty()) return absl::InvalidArgumentError(kNoLab);
  HEDDLE_ASSIGN_OR_RETURN(const Credentials lab, LoadCredentials(tls_directory, ""));
  HEDDLE_ASSIGN_OR_RETURN(const SharedBytes file, MapFile(path));
  const absl::StatusOr<ModuleMaker> maker = MakerOfModule(*lab.tls, *file, absl::Now());
  if (maker.ok()) return maker;
  return absl::Status(maker.status().code(),
                      fmt::format("{}: {}", path, std::string(maker.status().message())));
}

std::string SignatureText(const std::string& tls_directory, const std::string& path) {
  const absl::StatusOr<SharedBytes> file = MapFile(path);
  if (!file.ok() || SplitTrailer(**file).text.empty()) return "nobody";
  if (tls_directory.empty()) return "somebody; give --tls-dir to see whether of your lab";
  const absl::StatusOr<ModuleMaker> maker = MakerOfFile(tls_directory, path);
  if (!maker.ok()) return fmt::format("nobody: {}", std::string(maker.status().message()));
  return fmt::format("{} for {}, attempt {}", ToText(maker->worker), maker->job, maker->attempt);
}

}  // namespace heddle::client
