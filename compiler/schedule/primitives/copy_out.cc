#include "compiler/schedule/primitives/copy_out.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/visit.h"

namespace heddle::schedule {

using ir::As;
using ir::For;

absl::StatusOr<CopyNest> MakeCopyNest(const Path& path, const std::string& name,
                                      const std::string& infix) {
  const ir::Block& block = path.block();
  CopyNest nest;
  nest.top = path.nodes.size() - 1;
  while (nest.top > 0 && As<For>(path.nodes[nest.top - 1])) --nest.top;
  for (size_t i = 0; i < nest.top; ++i) {
    const auto* loop = As<For>(path.nodes[i]);
    if (loop == nullptr) continue;
    Role role = RoleOf(block, loop->var.get());
    if (role == Role::kReduce || role == Role::kMixed) {
      return absl::FailedPreconditionError(absl::StrCat(
          "block ", Quoted(block.name), " is not final after its loop nest: its reduce loop ",
          Quoted(loop->var->name), " is outside"));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(Mirror mirror,
                          MirrorSpatial(block, path.Loops(nest.top), [&](int k, const For&) {
                            return absl::StrCat(name, infix, ".", k);
                          }));
  nest.loops = mirror.loops;
  nest.where = mirror.where;
  ir::Substitution map;
  for (const ir::BlockIter& iter : block.iters) {
    if (iter.kind != ir::IterKind::kSpatial) continue;
    nest.iters.Add(name, iter.extent, iter.kind, mirror.iter_bindings.at(iter.var.get()));
    map.emplace(iter.var.get(), nest.iters.exprs.back());
  }
  for (const ir::Expr& index : block.store.indices) {
    nest.indices.push_back(ir::Substitute(index, map));
  }
  for (const FreshLoop& loop : nest.loops) nest.names.push_back(loop.var->name);
  for (const ir::BlockIter& iter : nest.iters.iters) nest.names.push_back(iter.var->name);
  return nest;
}

}  // namespace heddle::schedule
