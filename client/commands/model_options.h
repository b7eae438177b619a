// How a model is to be imported, as flags, as a message, and as the compiler wants it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/modules/model_file.h"
#include "compiler/driver/compile.h"
#include "proto/worker.pb.h"

namespace heddle::client {

// shapes: "name=1x3x224x224". InvalidArgument shows the form; an unknown pass lists the passes.
absl::StatusOr<v1::ModelOptions> MakeModelOptions(const std::vector<std::string>& shapes,
                                                  const std::vector<std::string>& disabled_passes);
// With a model, its parts are loaded from its files; the result refers to it.
heddle::ModelOptions FromProto(const v1::ModelOptions& options, const ModelFile* model);

}  // namespace heddle::client
