#include "compiler/pass/drop_unread.h"

#include "compiler/ir/visit.h"

namespace heddle::pass {

using namespace ir;

namespace {

bool IsRead(const Stmt& body, const Buffer* buffer) {
  bool read = false;
  VisitLoads(body, [&](const Expr& load) { read |= load->buffer.get() == buffer; });
  return read;
}

// The same node if every allocation is read; null if nothing is left.
Stmt DropOnce(const Stmt& body) {
  return RewriteStmt(body, [&](const Stmt& s) -> Stmt {
    const Alloc* alloc = As<Alloc>(s);
    if (alloc == nullptr || IsRead(alloc->body, alloc->buffer.get())) return s;
    return RewriteStmt(alloc->body, [&](const Stmt& inner) -> Stmt {
      return WrittenBuffer(inner) == alloc->buffer.get() ? nullptr : inner;
    });
  });
}

}  // namespace

Program DropUnread(const Program& program) {
  Program result = program;
  // Again while something goes: its stores may have been the only ones to read another buffer.
  for (Stmt before = nullptr; result.body != nullptr && result.body != before;) {
    before = result.body;
    result.body = DropOnce(before);
  }
  if (result.body == nullptr) result.body = MakeSeq({});
  return result;
}

}  // namespace heddle::pass
