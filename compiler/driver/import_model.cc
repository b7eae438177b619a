#include "compiler/driver/import_model.h"

#include "base/status_macros.h"
#include "compiler/classical/import_forest.h"
#include "compiler/classical/read.h"

namespace heddle {

bool IsForestFile(std::string_view bytes) { return classical::IsForestFile(bytes); }

absl::StatusOr<graph::Graph> ImportModel(std::string_view bytes,
                                         const graph::ImportOptions& options) {
  if (!IsForestFile(bytes)) return graph::ImportOnnx(bytes, options);
  HEDDLE_ASSIGN_OR_RETURN(const classical::Forest forest, classical::ReadForest(bytes));
  return classical::ImportForest(forest, options.shapes, options.warnings);
}

}  // namespace heddle
