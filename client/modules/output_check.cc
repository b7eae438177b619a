#include "client/modules/output_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "base/sha256.h"
#include "base/status_macros.h"
#include "client/commands/model_options.h"
#include "client/modules/model_file.h"
#include "client/views/json.h"
#include "compiler/driver/compile.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/measure/compare.h"
#include "compiler/onnx/summary.h"

namespace heddle::client {

using runtime::Executor;
using runtime::TensorSpec;

std::vector<double> ToDoubles(const std::string& bytes, const std::string& dtype) {
  std::vector<double> values;
  const auto read = [&]<typename T>(T) {
    for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
      T value;
      std::memcpy(&value, bytes.data() + i, sizeof value);
      values.push_back(static_cast<double>(value));
    }
  };
  if (const auto half = ir::DTypeFromName(dtype); half && ir::IsHalf(*half)) {
    read(uint16_t{});
    for (double& value : values) value = ir::HalfValue(static_cast<uint16_t>(value), *half);
  } else if (dtype == "f32")
    read(float{});
  else if (dtype == "f64")
    read(double{});
  else if (dtype == "i32")
    read(int32_t{});
  else if (dtype == "i64")
    read(int64_t{});
  else if (dtype == "i16")
    read(int16_t{});
  else if (dtype == "u16")
    read(uint16_t{});
  else if (dtype == "u32")
    read(uint32_t{});
  else if (dtype == "u64")
    read(uint64_t{});
  else if (dtype == "i8")
    read(int8_t{});
  else
    read(uint8_t{});
  return values;
}

double OutputTolerance(const runtime::Manifest& manifest, const std::string& dtype) {
  const runtime::Tolerance tolerance = manifest.LeastExactNumerics().Allowed();
  const std::optional<ir::DType> type = ir::DTypeFromName(dtype);
  return type ? Stored(*type, tolerance).relative : tolerance.relative;
}

namespace {

// The bytes of a tensor with every float moved by up to 8 units in its last place.
template <typename T>
void Move(std::mt19937& rng, std::string& bytes) {
  std::uniform_real_distribution<T> part(-1, 1);
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + i, sizeof value);
    value += value * part(rng) * 8 * std::numeric_limits<T>::epsilon();
    std::memcpy(bytes.data() + i, &value, sizeof value);
  }
}

// Whether the model rounds to few bits between its operators.
bool Quantises(const std::string& onnx) {
  const absl::StatusOr<graph::OnnxSummary> summary = graph::SummarizeOnnx(onnx);
  return summary.ok() && std::any_of(summary->operators.begin(), summary->operators.end(),
                                     [](const graph::OnnxSummary::Operator& op) {
                                       return op.name.starts_with("QLinear") ||
                                              op.name.starts_with("DynamicQuantize") ||
                                              op.name == "QuantizeLinear" || op.name == "QGemm" ||
                                              op.name == "QAttention";
                                     });
}

}  // namespace

absl::StatusOr<std::vector<double>> Conditioning(const GivenInputs& inputs,
                                                 const std::vector<NpyArray>& found,
                                                 Executor& executor) {
  constexpr uint32_t kMoves = 16;
  const runtime::Manifest& manifest = executor.manifest();
  std::vector<double> most(found.size(), 0);
  for (uint32_t seed = 0; seed < kMoves; ++seed) {
    std::mt19937 rng(seed);
    GivenInputs moved = inputs;
    for (size_t i = 0; i < moved.bytes.size(); ++i) {
      if (manifest.inputs[i].dtype == "f32") Move<float>(rng, moved.bytes[i]);
      if (manifest.inputs[i].dtype == "f64") Move<double>(rng, moved.bytes[i]);
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<NpyArray> results, RunRows(moved, executor));
    for (size_t i = 0; i < found.size(); ++i) {
      const std::string& dtype = manifest.outputs[i].dtype;
      if (results[i].bytes.size() != found[i].bytes.size()) continue;
      most[i] = std::max(most[i], RelativeError(ToDoubles(results[i].bytes, dtype),
                                                ToDoubles(found[i].bytes, dtype)));
    }
  }
  HEDDLE_RETURN_IF_ERROR(RunRows(inputs, executor).status());
  return most;
}

int CheckAgainstInterpreter(const RunOptions& options, const GivenInputs& inputs,
                            const std::vector<NpyArray>& found, Executor& executor,
                            const OutputOptions& output) {
  const absl::StatusOr<ModelFile> model = OpenModelShown(options.check, CanAnimate(output));
  if (!model.ok()) return Fail(model.status());
  if (Sha256Hex(model->onnx) != executor.manifest().model_digest) {
    return Fail(absl::InvalidArgumentError(
        fmt::format("{} is not the model that {} was made from ({}): give that file to --check",
                    options.check, options.module, executor.manifest().model)));
  }
  const absl::StatusOr<v1::ModelOptions> model_options = MakeModelOptions(options.import);
  if (!model_options.ok()) return Fail(model_options.status());
  const bool animate = CanAnimate(output);
  int shown = -10;
  const absl::StatusOr<std::vector<std::string>> expected = InterpretModel(
      model->onnx, FromProto(*model_options, &*model), inputs.bytes, [&](int done, int total) {
        const int percent = 100 * done / std::max(total, 1);
        if (animate)
          fmt::print(stderr, "\rinterpreting {}: {}/{} operators\x1b[K", options.check, done,
                     total);
        else if (percent >= shown + 25)
          fmt::print(stderr, "interpreting {}: {}/{} operators\n", options.check, done, total),
              shown = percent;
        std::fflush(stderr);
      });
  if (animate) fmt::print(stderr, "\r\x1b[K");
  if (!expected.ok()) return Fail(expected.status());
  const auto results = static_cast<size_t>(executor.manifest().NumResults());
  if (expected->size() != results) {
    return Fail(absl::InvalidArgumentError(
        fmt::format("{} has {} outputs, the module {}", options.check, expected->size(), results)));
  }
  std::vector<double> errors, tolerances;
  for (size_t i = 0; i < results; ++i) {
    const TensorSpec& spec = executor.manifest().outputs[i];
    if ((*expected)[i].size() != found[i].bytes.size()) {
      const std::string_view why = spec.lengths.empty()
                                       ? "give the --shape that it was tuned with"
                                       : "its size depends on data, and so on rounding";
      return Fail(absl::InvalidArgumentError(
          fmt::format("output '{}' differs in size from {}: {}", spec.name, options.check, why)));
    }
    errors.push_back(RelativeError(ToDoubles(found[i].bytes, spec.dtype),
                                   ToDoubles((*expected)[i], spec.dtype)));
    tolerances.push_back(OutputTolerance(executor.manifest(), spec.dtype));
  }
  std::vector<double> allowed = tolerances;
  if (!std::equal(errors.begin(), errors.end(), tolerances.begin(), std::less_equal<>())) {
    const auto conditioning = Conditioning(inputs, found, executor);
    if (!conditioning.ok()) return Fail(conditioning.status());
    for (size_t i = 0; i < results; ++i)
      allowed[i] = std::max(tolerances[i], 3 * (*conditioning)[i]);
  }
  std::string reason(executor.manifest().LeastExactNumerics().Reason());
  if (!reason.empty()) reason = fmt::format(", with {} kernels", reason);
  bool good = true;
  for (size_t i = 0; i < results; ++i) {
    const TensorSpec& spec = executor.manifest().outputs[i];
    const bool ok = errors[i] <= allowed[i];
    good = good && ok;
    if (output.json) {
      fmt::print("{}\n", nlohmann::json{{"schema_version", kJsonSchemaVersion},
                                        {"output", spec.name},
                                        {"relative_error", errors[i]},
                                        {"tolerance", allowed[i]},
                                        {"ok", ok}}
                             .dump());
      continue;
    }
    fmt::print("{}: relative error {:.2e} against the interpreter ({} {:.0e}{})\n", spec.name,
               errors[i], ok ? "within" : "OVER", allowed[i],
               allowed[i] > tolerances[i]
                   ? ", three times what 8 units in the last place of the inputs change"
                   : reason);
  }
  if (!good && Quantises(model->onnx)) {
    return Fail(absl::InternalError(
        "the module's result differs from the interpreter's; the model rounds to few bits inside, "
        "where one rounding that differs spreads, so compare its accuracy on data instead"));
  }
  if (!good) return Fail(absl::InternalError("the module's result differs from the interpreter's"));
  return kDone;
}

}  // namespace heddle::client
