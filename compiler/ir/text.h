// The text form of the loop IR. Parse(Print(p)) prints the same text again, for every verified
// program.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

std::string Print(const Program& program);
std::string Print(const Expr& expr);
std::string Print(const Stmt& stmt, int indent = 0);

// InvalidArgument with line and column for anything the grammar in ir.h does not allow. Does not
// verify.
absl::StatusOr<Program> Parse(std::string_view text);

// True for what the grammar takes as a name: a letter or underscore, then letters, digits and any
// of "_.@*", and none of the words that begin a statement or stand for a literal.
bool IsName(std::string_view text);

}  // namespace heddle::ir
