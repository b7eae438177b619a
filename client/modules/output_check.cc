#include "client/modules/output_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/sha256.h"
#include "client/commands/model_options.h"
#include "client/modules/model_file.h"
#include "client/views/json.h"
#include "compiler/driver/compile.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/measure/compare.h"

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
  const runtime::Tolerance tolerance = manifest.AllNumerics().Allowed();
  const std::optional<ir::DType> type = ir::DTypeFromName(dtype);
  return type ? Stored(*type, tolerance).relative : tolerance.relative;
}

int CheckAgainstInterpreter(const RunOptions& options, const std::vector<std::string>& inputs,
                            const Executor& executor, const OutputOptions& output) {
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
      model->onnx, FromProto(*model_options, &*model), inputs, [&](int done, int total) {
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
  const std::string_view reason = executor.manifest().AllNumerics().Reason();
  bool good = true;
  for (size_t i = 0; i < expected->size(); ++i) {
    const TensorSpec& spec = executor.manifest().outputs[i];
    const std::string found = executor.Output(static_cast<int>(i));
    if ((*expected)[i].size() != found.size()) {
      const std::string_view why = spec.lengths.empty()
                                       ? "give the --shape that it was tuned with"
                                       : "its size depends on data, and so on rounding";
      return Fail(absl::InvalidArgumentError(
          fmt::format("output '{}' differs in size from {}: {}", spec.name, options.check, why)));
    }
    const double error =
        RelativeError(ToDoubles(found, spec.dtype), ToDoubles((*expected)[i], spec.dtype));
    const double tolerance = OutputTolerance(executor.manifest(), spec.dtype);
    good = good && error <= tolerance;
    if (output.json) {
      fmt::print("{}\n", nlohmann::json{{"schema_version", kJsonSchemaVersion},
                                        {"output", spec.name},
                                        {"relative_error", error},
                                        {"tolerance", tolerance},
                                        {"ok", error <= tolerance}}
                             .dump());
    } else {
      fmt::print("{}: relative error {:.2e} against the interpreter ({} {:.0e}{})\n", spec.name,
                 error, error <= tolerance ? "within" : "OVER", tolerance,
                 reason.empty() ? "" : fmt::format(", with {} kernels", reason));
    }
  }
  if (!good) return Fail(absl::InternalError("the module's result differs from the interpreter's"));
  return kDone;
}

}  // namespace heddle::client
