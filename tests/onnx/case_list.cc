#include <algorithm>
#include <filesystem>

#include "tests/onnx/onnx_case.h"

namespace heddle::onnx_cases {

namespace fs = std::filesystem;

std::vector<std::string> ListCases() {
  std::vector<std::string> cases;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kCaseFolder, error)) {
    if (fs::exists(entry.path() / "model.onnx")) cases.push_back(entry.path().filename().string());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

}  // namespace heddle::onnx_cases
