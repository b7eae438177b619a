// How a model is to be imported, as flags, as a message, and as the compiler wants it.
#pragma once

#include "absl/status/statusor.h"
#include "client/commands/model_flags.h"
#include "client/modules/model_file.h"
#include "compiler/driver/compile.h"
#include "proto/worker.pb.h"

namespace heddle::client {

// InvalidArgument shows the form of a flag; an unknown pass lists the passes.
absl::StatusOr<v1::ModelOptions> MakeModelOptions(const ModelFlags& flags);
// With a model, its parts are loaded from its files; the result refers to it.
heddle::ModelOptions FromProto(const v1::ModelOptions& options, const ModelFile* model);

}  // namespace heddle::client
