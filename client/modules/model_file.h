// A model on the user's disk, as it is submitted and imported: a small ONNX file, and its large
// tensors as places in files, with their digests (compiler/onnx/parts.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/service_client.h"
#include "compiler/driver/compile.h"

namespace heddle::client {

struct ModelFile {
  std::string path;             // for messages
  std::string onnx;             // the small file
  std::vector<FilePart> parts;  // each digest once
  int64_t part_bytes = 0;       // of all parts

  // Maps the parts. The result refers to this object.
  graph::ExternalLoader Loader() const;
};

// Reads a model file and the files of external data that it names. Memory does not grow with the
// weights: they are read in pieces and not kept. `progress` is called while they are read.
//
// A tensor's file must lie in the model's folder or below it: its location is a relative path without
// "..", and no symbolic link on the way leaves the folder. Tensors may overlap and begin anywhere.
// NotFound or InvalidArgument, in one line: the model or a tensor's file cannot be read, its location
// is refused, or it is shorter than the model says. The message names the tensor and the path.
absl::StatusOr<ModelFile> OpenModel(const std::string& path,
                                    const std::function<void(int64_t bytes)>& progress = nullptr);

// The same, with a line on stderr that shows how far it is if `animate` and the model is large.
absl::StatusOr<ModelFile> OpenModelShown(const std::string& path, bool animate);

// Whether the file begins as a module does (runtime/module.h). One that cannot be read does not: opening
// it as a model says why.
bool HoldsModule(const std::string& path);

// The file that `location` names in `folder`, as an absolute path without symbolic links.
// InvalidArgument: the location is refused (see OpenModel), or the file cannot be read.
absl::StatusOr<std::string> ResolveLocation(const std::string& folder, const std::string& location);

}  // namespace heddle::client
