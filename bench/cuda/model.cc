#include "bench/cuda/model.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "bench/common/line_server.h"
#include "client/zoo/zoo.h"
#include "compiler/measure/compare.h"
#include "compiler/runtime/device_kind.h"
#include "compiler/runtime/executor.h"
#include "compiler/runtime/timing.h"

namespace heddle::bench {
namespace {

using Best = std::map<std::string, BestRecord>;

struct Result {
  std::vector<float> output;  // the first
  double tolerance = 0;       // of its kernels
  double us = 0;              // of a run, where it is timed
};

absl::StatusOr<Result> Run(const std::string& onnx, const Target& target, int gpu, const Best& best,
                           bool timed) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string bytes, CompileModel(onnx, {}, target, best, {}));
  HEDDLE_ASSIGN_OR_RETURN(runtime::Module module, runtime::ParseModule(bytes));
  runtime::Executor::Options options;
  options.gpu = gpu;
  HEDDLE_ASSIGN_OR_RETURN(const auto executor,
                          runtime::Executor::Create(std::move(module), options));
  const runtime::Manifest& manifest = executor->manifest();
  for (const std::vector<runtime::TensorSpec>* tensors : {&manifest.inputs, &manifest.outputs}) {
    for (const runtime::TensorSpec& spec : *tensors) {
      if (spec.dtype != "f32")
        return absl::UnimplementedError(absl::StrCat(spec.name, " is not f32"));
    }
  }
  std::mt19937 rng(1);  // the same inputs for all
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (size_t i = 0; i < manifest.inputs.size(); ++i) {
    auto* data = static_cast<float*>(executor->InputData(static_cast<int>(i)));
    std::generate_n(data, manifest.inputs[i].SizeBytes() / 4, [&] { return uniform(rng); });
  }
  HEDDLE_RETURN_IF_ERROR(executor->Run());
  Result result;
  if (timed) {
    const runtime::Timing timing =
        runtime::TimeCalls([&] { executor->Run().IgnoreError(); }, RoundTiming());
    HEDDLE_RETURN_IF_ERROR(executor->status());
    result.us = timing.MedianNs() * 1e-3;
  }
  const auto* out = static_cast<const float*>(executor->OutputData(0));
  result.output.assign(out, out + manifest.outputs[0].SizeBytes() / 4);
  result.tolerance = manifest.LeastExactNumerics().Allowed().relative;
  return result;
}

}  // namespace

absl::StatusOr<ModelTimes> TimeModel(const std::string& name, const Target& target,
                                     const std::string& device, const Best& best) {
  HEDDLE_ASSIGN_OR_RETURN(const runtime::DeviceName gpu, runtime::ParseDevice(device));
  HEDDLE_ASSIGN_OR_RETURN(const std::string onnx, zoo::MakeZooModel(name, 1));
  HEDDLE_ASSIGN_OR_RETURN(const Result here, Run(onnx, Target(), 0, {}, false));
  HEDDLE_ASSIGN_OR_RETURN(const Result first, Run(onnx, target, gpu.ordinal, {}, true));
  HEDDLE_ASSIGN_OR_RETURN(const Result tuned, Run(onnx, target, gpu.ordinal, best, true));
  ModelTimes times{.default_us = first.us, .tuned_us = tuned.us};
  for (const Result* result : {&first, &tuned}) {
    const double error = RelativeError(result->output, here.output);
    times.relative_error = std::max(times.relative_error, error);
    times.tolerance = std::max({times.tolerance, result->tolerance, here.tolerance});
  }
  return times;
}

}  // namespace heddle::bench
