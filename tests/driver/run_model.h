// Compiling, running and comparing whole models.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "compiler/driver/compile.h"
#include "compiler/runtime/executor.h"

namespace heddle {

inline std::string RandomFloats(int64_t bytes, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::string data(bytes, '\0');
  for (int64_t i = 0; i + 4 <= bytes; i += 4) {
    const float value = uniform(rng);
    std::memcpy(data.data() + i, &value, 4);
  }
  return data;
}

inline std::vector<std::string> RandomInputs(const runtime::Manifest& manifest, uint64_t seed) {
  std::vector<std::string> inputs;
  for (const runtime::TensorSpec& spec : manifest.inputs) {
    inputs.push_back(RandomFloats(spec.SizeBytes(), seed + inputs.size()));
  }
  return inputs;
}

inline absl::StatusOr<std::vector<std::string>> RunModule(runtime::Module module,
                                                          const std::vector<std::string>& inputs,
                                                          int runs = 1, int threads = 0) {
  runtime::Executor::Options options;
  options.threads = threads;
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<runtime::Executor> executor,
                          runtime::Executor::Create(std::move(module), options));
  for (int run = 0; run < runs; ++run) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::memcpy(executor->InputData(static_cast<int>(i)), inputs[i].data(), inputs[i].size());
    }
    HEDDLE_RETURN_IF_ERROR(executor->Run());
  }
  std::vector<std::string> outputs;
  for (const runtime::TensorSpec& spec : executor->manifest().outputs) {
    const auto* data =
        static_cast<const char*>(executor->OutputData(static_cast<int>(outputs.size())));
    outputs.emplace_back(data, spec.SizeBytes());
  }
  return outputs;
}

inline std::vector<float> Floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), values.size() * 4);
  return values;
}

// Largest difference, relative to the largest expected magnitude. Infinite if a value is not
// finite.
inline double RelativeError(const std::string& found, const std::string& expected) {
  if (found.size() != expected.size()) return INFINITY;
  const std::vector<float> a = Floats(found), b = Floats(expected);
  double difference = 0, scale = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return INFINITY;
    difference = std::max<double>(difference, std::fabs(double{a[i]} - b[i]));
    scale = std::max<double>(scale, std::fabs(b[i]));
  }
  return difference / scale;
}

}  // namespace heddle
