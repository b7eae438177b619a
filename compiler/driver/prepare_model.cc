// Turns a model into kernels: import, passes, fusion.
#include "base/status_macros.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/model_layout.h"

namespace heddle {

absl::StatusOr<graph::FusedGraph> PrepareModel(std::string_view onnx, const ModelOptions& options,
                                               const Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(const ModelOptions chosen, ForTarget(options, target));
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph imported, graph::ImportOnnx(onnx, options.import));
  HEDDLE_ASSIGN_OR_RETURN(graph::Graph optimised, graph::Optimize(imported, chosen.passes));
  return graph::Fuse(std::move(optimised), options.fuse);
}

}  // namespace heddle
