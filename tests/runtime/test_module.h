// Small modules over test_kernels.c.
#pragma once

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "compiler/runtime/module.h"

namespace heddle::runtime {

inline constexpr int kLength = 1000;
inline constexpr int64_t kBytes = kLength * 4;

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The code of test_kernels.c, and nothing that calls it.
inline Module MakeModuleOf(const std::string& model) {
  Module module;
  module.manifest.producer = "heddle test";
  module.manifest.model = model;
  module.manifest.model_digest = std::string(64, 'a');
  module.manifest.target = "llvm -mcpu=x86-64";
  module.code = ReadFile(HEDDLE_TEST_KERNELS);
  return module;
}

// y = (a + b)^2, with b a parameter.
inline Module MakeTestModule() {
  Module module = MakeModuleOf("add-square");
  Manifest& m = module.manifest;
  m.threads = 2;
  m.inputs = {{"a", "f32", {10, 100}}};
  m.outputs = {{"y", "f32", {10, 100}}};
  m.kernels = {{"add", "0123456789abcdef", "add 10x100", 1000, 0, "default", 0, false},
               {"square", "fedcba9876543210", "mul 10x100", 1000, kBytes, "tuned", 0.5, true}};
  m.calls = {
      {0, {{Place::kInput, 0, kBytes}, {Place::kParam, 64, kBytes}, {Place::kArena, 0, kBytes}}},
      {1, {{Place::kArena, 0, kBytes}, {Place::kOutput, 0, kBytes}}}};
  m.arena_bytes = 4032;
  m.unshared_bytes = 4032;
  m.workspace_bytes = kBytes;
  std::vector<float> b(kLength);
  for (int i = 0; i < kLength; ++i) b[i] = static_cast<float>(i) * 0.25f;
  std::string params(64 + kBytes, '\0');
  std::memcpy(params.data() + 64, b.data(), kBytes);
  module.params = SharedBytes::Of(std::move(params));
  return module;
}

// Independent rows in blocks of `blocks` rows, of 8, 3 and 1: the sum of a row and the parameter 100, and the size of the block
// that made it.
inline Module MakeRowsModule(const std::vector<int64_t>& blocks = {8, 3, 1}) {
  Module module = MakeModuleOf("row-sums");
  Manifest& m = module.manifest;
  m.inputs = {{"x", "f32", {blocks[0], 4}}};
  m.outputs = {{"sum", "f32", {blocks[0]}}, {"size", "f32", {blocks[0]}}};
  m.independent_rows = true;
  for (size_t b = 0; b < blocks.size(); ++b) {
    m.kernels.push_back(
        {"row_sums_" + std::to_string(blocks[b]), "", "sums", 0, 0, "default", 0, {}});
    std::vector<CallSpec> calls = {{static_cast<int>(b),
                                    {{Place::kInput, 0, blocks[b] * 16},
                                     {Place::kParam, 0, 4},
                                     {Place::kOutput, 0, blocks[b] * 4},
                                     {Place::kOutput, 1, blocks[b] * 4}}}};
    if (b == 0)
      m.calls = std::move(calls);
    else
      m.smaller_blocks.push_back({blocks[b], std::move(calls)});
  }
  const float p = 100;
  module.params = SharedBytes::Copy({reinterpret_cast<const char*>(&p), sizeof p});
  return module;
}

}  // namespace heddle::runtime
