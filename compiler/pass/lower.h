// Lowers a scheduled program to one that a back end translates. The passes are one flat list, to be
// read top to bottom in lower.cc.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::pass {

struct LowerOptions {
  // What the code is for: how it executes, its cache lines, what a fetch costs. For
  // Execution::kGrid, barriers are added; loops are neither partitioned nor unrolled, and nothing
  // is prefetched.
  machine::TargetInfo target;
  bool verify_each = true;         // run the verifier after every pass
  std::set<std::string> disabled;  // names of optional passes to skip
  // Called after every pass with its name, the program and the time it took, when set.
  std::function<void(const std::string& pass, const ir::Program&, double milliseconds)> observer;
};

// A lowered program (ir::Level::kLowered): blocks are statements, decided conditions are gone,
// unrolled loops of moderate size are copies, and loops of extent one are substituted.
absl::StatusOr<ir::Program> Lower(const ir::Program& scheduled, const LowerOptions& options = {});

// The passes that LowerOptions::disabled may name, in the order in which they run.
std::vector<std::string> OptionalPasses(machine::Execution execution);

}  // namespace heddle::pass
