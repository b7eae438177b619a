// The machine code of a kernel as people read it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/vocabulary/target.h"

namespace heddle::codegen {

// Lists the instructions of a kernel: of the function `symbol`, and of those that its loops were put into
// (`symbol` and a dot begin their names). `code` is Artifact::shared_object, or the code of a module, as
// it is stored: nothing is compiled, loaded or run. Each function begins with a line of its name and a
// colon. A line of an instruction has its address in the file, as the branches of others name it, and the
// instruction; x86 in Intel's syntax. A call of a function of the code has the name behind a "#".
//
// NotFound: the code has no such kernel. DataLoss: it is no ELF file, or a damaged one. Unimplemented: a
// target whose code LLVM does not read, such as a GPU's. InvalidArgument: the target does not exist.
absl::StatusOr<std::vector<std::string>> Disassemble(std::string_view code, std::string_view symbol,
                                                     const Target& target);

}  // namespace heddle::codegen
