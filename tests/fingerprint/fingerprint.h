// Fingerprints: digests of everything that compiler, search and dispatcher decide, to show that a
// change of structure changes no behaviour. Two builds agree if their lines are the same; `dump`
// writes the texts behind the digests, so that what differs can be read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace heddle::fingerprint {

// Receives one fact: its name, words separated by blanks, and the text that is digested.
using Sink = std::function<void(const std::string& name, std::string_view text)>;

struct CompilerOptions {
  std::vector<std::string> models;      // of the zoo; seed 1
  std::vector<std::string> targets;     // canonical texts
  int points = 4;                       // random points of each task's search space
  bool machine_code = true;             // of default schedules: LLVM's object code, or CUDA C++
  std::vector<std::string> strategies;  // searches that are run for a few rounds on each task
};

// For each model and target: the graph after each pass, the tasks, and for each task its search
// space, the default trace and some random ones, the scheduled and the lowered programs, their
// features and their code. Nothing depends on the machine this runs on.
absl::Status FingerprintCompiler(const CompilerOptions& options, const Sink& sink);

// For each policy and seed: the decisions of the dispatcher in a random world with faults, and in
// one without.
absl::Status FingerprintDispatcher(const std::vector<std::string>& policies, uint64_t first_seed,
                                   uint64_t seeds, const Sink& sink);

// 16 hexadecimal digits.
std::string Digest(std::string_view text);

// A sink that keeps "<digest> <name>" lines.
Sink Lines(std::vector<std::string>* lines);

}  // namespace heddle::fingerprint
