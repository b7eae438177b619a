// Which statements are fetches (see barriers in ir.h).
#pragma once

#include "compiler/ir/ir.h"
#include "compiler/ir/visit.h"

namespace heddle::ir {

// For a statement that no other condition or thread loop encloses.
inline bool IsFetch(const Stmt& s) {
  const For* loop = As<For>(s);
  return (As<If>(s) != nullptr || (loop != nullptr && IsGpuThread(loop->kind))) && StoresShared(s);
}

}  // namespace heddle::ir
