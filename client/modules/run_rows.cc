#include "client/modules/run_rows.h"

#include <algorithm>
#include <cstring>

#include "base/status_macros.h"
#include "client/views/terminal.h"

namespace heddle::client {
namespace {

using runtime::Executor;
using runtime::TensorSpec;

// Blocks between two looks whether Ctrl-C came.
constexpr int64_t kBlocksTogether = 16;

std::vector<NpyArray> EmptyResults(const Executor& executor) {
  std::vector<NpyArray> results;
  for (int i = 0; i < executor.manifest().NumResults(); ++i) {
    const TensorSpec& spec = executor.manifest().outputs[static_cast<size_t>(i)];
    results.push_back({spec.dtype, spec.shape, {}});
  }
  return results;
}

absl::StatusOr<std::vector<NpyArray>> RunOnce(const GivenInputs& inputs, Executor& executor) {
  for (size_t i = 0; i < inputs.bytes.size(); ++i)
    std::memcpy(executor.InputData(static_cast<int>(i)), inputs.bytes[i].data(),
                inputs.bytes[i].size());
  HEDDLE_RETURN_IF_ERROR(executor.Run());
  std::vector<NpyArray> results = EmptyResults(executor);
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].shape = executor.OutputShape(static_cast<int>(i));
    results[i].bytes = executor.Output(static_cast<int>(i));
  }
  return results;
}

}  // namespace

absl::StatusOr<std::vector<NpyArray>> RunRows(const GivenInputs& inputs, Executor& executor) {
  const runtime::Manifest& manifest = executor.manifest();
  if (!manifest.independent_rows) return RunOnce(inputs, executor);
  const int64_t together = kBlocksTogether * manifest.inputs[0].shape[0];
  std::vector<NpyArray> results = EmptyResults(executor);
  std::vector<size_t> row_bytes;  // of inputs, then of results
  for (const auto* specs : {&manifest.inputs, &manifest.outputs}) {
    for (const TensorSpec& spec : *specs)
      row_bytes.push_back(static_cast<size_t>(spec.SizeBytes() / spec.shape[0]));
  }
  const size_t num_inputs = manifest.inputs.size();
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].shape[0] = inputs.rows;
    results[i].bytes.resize(static_cast<size_t>(inputs.rows) * row_bytes[num_inputs + i]);
  }
  std::vector<const void*> from(num_inputs);
  std::vector<void*> to(results.size());
  for (int64_t begin = 0; begin < inputs.rows; begin += together) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    const auto at = static_cast<size_t>(begin);
    for (size_t i = 0; i < from.size(); ++i) from[i] = inputs.bytes[i].data() + at * row_bytes[i];
    for (size_t i = 0; i < to.size(); ++i)
      to[i] = results[i].bytes.data() + at * row_bytes[num_inputs + i];
    HEDDLE_RETURN_IF_ERROR(
        executor.RunRows(std::min(together, inputs.rows - begin), from.data(), to.data()));
  }
  return results;
}

}  // namespace heddle::client
