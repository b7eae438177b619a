#include "tests/codegen/gpu_testing.h"

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda_backend.h"
#include "compiler/codegen/interpreter.h"
#include "compiler/codegen/target_info.h"
#include "compiler/ir/status_macros.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verifier.h"
#include "compiler/pass/lower.h"
#include "compiler/schedule/trace.h"

namespace heddle::testing {

namespace {

absl::Status At(const absl::Status& status, const std::string& what) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

}  // namespace

ir::TargetInfo GpuTarget(const std::string& arch) {
  return *codegen::DescribeTarget(*ir::ParseTarget("cuda -arch=" + arch));
}

absl::StatusOr<ir::Program> LowerForGpu(const ir::Program& naive, const schedule::Trace& trace) {
  absl::StatusOr<ir::Program> scheduled = schedule::Replay(naive, trace);
  if (!scheduled.ok()) return At(scheduled.status(), "replay");
  if (absl::Status s = ir::Verify(*scheduled); !s.ok())
    return At(s, absl::StrCat("scheduled ", ir::Print(*scheduled)));
  pass::LowerOptions options;
  options.gpu = true;
  absl::StatusOr<ir::Program> lowered = pass::Lower(*scheduled, options);
  if (!lowered.ok()) return At(lowered.status(), "lower");
  return lowered;
}

absl::Status CheckGpuProgram(const ir::Program& naive, const ir::Program& lowered, uint64_t seed) {
  const std::vector<HostTensor> inputs = MakeInputs(naive, seed);
  std::vector<HostTensor> expected = MakeOutputs(naive), found = MakeOutputs(naive);
  HEDDLE_RETURN_IF_ERROR(RunInterpreter(naive, inputs, expected));
  absl::Status status = RunInterpreter(lowered, inputs, found, {.check_races = true});
  if (status.ok()) status = Compare(naive, expected, found);
  return status.ok() ? status : At(status, ir::Print(lowered));
}

bool HasNvrtc() { return codegen::FindNvrtc().ok(); }

absl::Status CompileForGpu(const std::vector<ir::Program>& lowered, const std::string& arch) {
  if (!HasNvrtc() || lowered.empty()) return absl::OkStatus();
  HEDDLE_ASSIGN_OR_RETURN(const ir::Target target, ir::ParseTarget("cuda -arch=" + arch));
  std::string source;
  codegen::CudaOptions options;
  options.source = &source;
  const auto artifact = codegen::CompileCuda(lowered, target, options);
  if (!artifact.ok()) return At(artifact.status(), source);
  for (const codegen::KernelInfo& kernel : artifact->kernels) {
    for (const runtime::GpuLaunch& launch : kernel.launches) {
      if (launch.registers <= 0 || launch.registers > 255)
        return absl::InternalError(absl::StrCat(launch.symbol, " has no report of its registers"));
    }
  }
  if (artifact->shared_object.substr(0, 4) !=
      "\x7f"
      "ELF")
    return absl::InternalError("the cubin is no ELF file");
  return absl::OkStatus();
}

}  // namespace heddle::testing
