// Writes and reads the manifest of a module file as text. Private to this folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "compiler/runtime/module.h"

namespace heddle::runtime {

// A part of the file after the manifest.
struct Section {
  std::string name;
  int64_t offset = 0;  // from the first 64-byte boundary after the manifest
  int64_t size = 0;
  std::string xxh3;  // 16 hexadecimal digits
};

std::string ManifestText(const Manifest& manifest, const std::vector<Section>& sections);
// InvalidArgument names the first key that is missing or has the wrong type. Values are not
// checked.
absl::Status ParseManifest(std::string_view text, Manifest* manifest,
                           std::vector<Section>* sections);

}  // namespace heddle::runtime
