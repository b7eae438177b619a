#include "compiler/graph/core/op_kind.h"

#include <algorithm>

namespace heddle::graph {
namespace {

const std::array<std::string, kNumOpKinds>& Names() {
  static const auto* names = new std::array<std::string, kNumOpKinds>{
#define HEDDLE_NAME(kind, name) name,
      HEDDLE_OPERATORS(HEDDLE_NAME)
#undef HEDDLE_NAME
  };
  return *names;
}

}  // namespace

const std::string& NameOf(OpKind kind) { return Names()[static_cast<size_t>(kind)]; }

std::optional<OpKind> OpKindFromName(std::string_view name) {
  const auto found = std::find(Names().begin(), Names().end(), name);
  if (found == Names().end()) return std::nullopt;
  return static_cast<OpKind>(found - Names().begin());
}

}  // namespace heddle::graph
