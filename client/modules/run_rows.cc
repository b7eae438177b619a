#include "client/modules/run_rows.h"

#include <algorithm>
#include <cstring>

#include "base/status_macros.h"
#include "client/views/terminal.h"

namespace heddle::client {
namespace {

using runtime::Executor;
using runtime::TensorSpec;

size_t RowBytes(const TensorSpec& spec) {
  return static_cast<size_t>(spec.SizeBytes() / spec.shape[0]);
}

// Writes `count` rows from row `begin` on, and the last of them again until the input is full.
void SetRows(const std::string& bytes, int64_t begin, int64_t count, const TensorSpec& spec,
             char* to) {
  const size_t row = RowBytes(spec);
  const char* from = bytes.data() + static_cast<size_t>(begin) * row;
  std::memcpy(to, from, static_cast<size_t>(count) * row);
  const char* last = from + static_cast<size_t>(count - 1) * row;
  for (int64_t r = count; r < spec.shape[0]; ++r)
    std::memcpy(to + static_cast<size_t>(r) * row, last, row);
}

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
  const int64_t block = manifest.inputs[0].shape[0];
  std::vector<NpyArray> results = EmptyResults(executor);
  for (NpyArray& result : results) result.shape[0] = inputs.rows;
  for (int64_t begin = 0; begin < inputs.rows; begin += block) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    const int64_t count = std::min(block, inputs.rows - begin);
    for (size_t i = 0; i < manifest.inputs.size(); ++i) {
      SetRows(inputs.bytes[i], begin, count, manifest.inputs[i],
              static_cast<char*>(executor.InputData(static_cast<int>(i))));
    }
    HEDDLE_RETURN_IF_ERROR(executor.Run());
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].bytes.append(static_cast<const char*>(executor.OutputData(static_cast<int>(i))),
                              static_cast<size_t>(count) * RowBytes(manifest.outputs[i]));
    }
  }
  return results;
}

}  // namespace heddle::client
