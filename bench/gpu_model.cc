#include "bench/gpu_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/line_server.h"
#include "compiler/graph/zoo.h"
#include "compiler/ir/status_macros.h"
#include "compiler/runtime/executor.h"
#include "compiler/runtime/timing.h"

namespace heddle::bench {
namespace {

using Best = std::map<std::string, BestRecord>;

// The first output; `us` receives the time of a run, where it is wanted.
absl::StatusOr<std::vector<float>> Run(const std::string& onnx, const ir::Target& target,
                                       const Best& best, double* us) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string bytes, CompileModel(onnx, {}, target, best, {}));
  HEDDLE_ASSIGN_OR_RETURN(runtime::Module module, runtime::ParseModule(bytes));
  HEDDLE_ASSIGN_OR_RETURN(const auto executor, runtime::Executor::Create(std::move(module)));
  const runtime::Manifest& manifest = executor->manifest();
  for (size_t i = 0; i < manifest.inputs.size(); ++i) {
    auto* data = static_cast<float*>(executor->InputData(static_cast<int>(i)));
    std::fill_n(data, manifest.inputs[i].SizeBytes() / 4, 1.0f);
  }
  HEDDLE_RETURN_IF_ERROR(executor->Run());
  if (us != nullptr) {
    const runtime::Timing timing =
        runtime::TimeCalls([&] { executor->Run().IgnoreError(); }, RoundTiming());
    HEDDLE_RETURN_IF_ERROR(executor->status());
    *us = timing.MedianNs() * 1e-3;
  }
  const auto* out = static_cast<const float*>(executor->OutputData(0));
  return std::vector<float>(out, out + manifest.outputs[0].SizeBytes() / 4);
}

double RelativeError(const std::vector<float>& found, const std::vector<float>& expected) {
  double error = 0, largest = 1e-30;
  for (size_t i = 0; i < expected.size() && i < found.size(); ++i) {
    const double difference = std::fabs(double{found[i]} - double{expected[i]});
    error = std::isnan(difference) ? HUGE_VAL : std::max(error, difference);
    largest = std::max(largest, std::fabs(double{expected[i]}));
  }
  return error / largest;
}

}  // namespace

absl::StatusOr<ModelTimes> TimeModel(const std::string& name, const ir::Target& target,
                                     const Best& best) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string onnx, graph::MakeZooModel(name, 1));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<float> here, Run(onnx, ir::Target(), {}, nullptr));
  ModelTimes times;
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<float> first, Run(onnx, target, {}, &times.default_us));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<float> tuned, Run(onnx, target, best, &times.tuned_us));
  times.relative_error = std::max(RelativeError(first, here), RelativeError(tuned, here));
  return times;
}

}  // namespace heddle::bench
