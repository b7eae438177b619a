// One official ONNX operator test: a model, inputs, expected outputs.
#pragma once

#include <string>
#include <vector>

namespace heddle::onnx_cases {

inline constexpr const char* kCaseFolder = "/usr/share/libonnx-testdata/data/node";

// kRandom: as passed, but without a comparison of values (random_cases.h).
enum class Verdict { kPassed, kUnsupported, kFailed, kRandom };

// The message of a case that passed, but left nothing to run: all its inputs had to be constants.
inline constexpr const char* kAllConstant = "all inputs constant";

struct Result {
  Verdict verdict = Verdict::kFailed;
  std::string message;  // one line
};

// Imports, compiles with default schedules, runs every data set of the case in this folder,
// compares.
//
// The official models feed everything at run time, shapes and axes included, which a compiler for
// static shapes has to know when it compiles. So a model that is refused for that reason is tried
// again with all inputs but the first made constants (as exporters write them), then with all of
// them.
Result RunCase(const std::string& folder);

std::vector<std::string> ListCases();  // names of folders, sorted

}  // namespace heddle::onnx_cases
