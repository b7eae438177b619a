// SHA-256, as chunks and manifests carry it.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

std::string Sha256Hex(std::string_view bytes);

}  // namespace heddle
