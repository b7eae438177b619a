#include "bench/cuda/conformance.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "bench/common/candidate_runner.h"
#include "bench/common/fork_map.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/pass/lower.h"
#include "compiler/runtime/cuda/device.h"
#include "compiler/runtime/cuda/kernel.h"
#include "compiler/runtime/device_kind.h"
#include "compiler/schedule/space.h"
#include "cost_model/search.h"
#include "tests/codegen/kernel_runner.h"

namespace heddle::bench {
namespace {

using runtime::CudaDevice;
using runtime::CudaModule;
using runtime::DeviceMemory;
using testing::HostTensor;

constexpr size_t kTogether = 48;  // programs that are compiled at a time
constexpr absl::Duration kCompileLimit = absl::Seconds(120);
constexpr absl::Duration kRunLimit = absl::Seconds(20);

// The programs of one compilation, which keep their code between them.
absl::StatusOr<std::string> Compile(const std::vector<ir::Program>& programs, size_t begin,
                                    const Target& target) {
  pass::LowerOptions options;
  HEDDLE_ASSIGN_OR_RETURN(options.target, codegen::DescribeTarget(target));
  std::vector<ir::Program> lowered;
  for (size_t k = begin; k < std::min(begin + kTogether, programs.size()); ++k) {
    HEDDLE_ASSIGN_OR_RETURN(lowered.emplace_back(), pass::Lower(programs[k], options));
  }
  HEDDLE_ASSIGN_OR_RETURN(const codegen::Artifact artifact, codegen::CompileCuda(lowered, target));
  return Pack(artifact);
}

// What a child keeps of the device.
class Runner {
 public:
  explicit Runner(std::string device) : name_(std::move(device)) {}

  absl::Status Check(const ir::Program& program, const codegen::KernelInfo& kernel,
                     const std::string& code) {
    if (device_ == nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(const runtime::DeviceName gpu, runtime::ParseDevice(name_));
      HEDDLE_ASSIGN_OR_RETURN(device_, CudaDevice::Open(gpu.ordinal));
    }
    if (code != code_) {
      HEDDLE_ASSIGN_OR_RETURN(module_, device_->Load(code));
      code_ = code;
    }
    const std::vector<HostTensor> inputs = testing::MakeInputs(program, 1);
    std::vector<HostTensor> expected = testing::MakeOutputs(program);
    std::vector<HostTensor> found = testing::MakeOutputs(program);
    HEDDLE_RETURN_IF_ERROR(testing::RunInterpreter(program, inputs, expected));
    HEDDLE_RETURN_IF_ERROR(Run(program, kernel, inputs, found));
    return testing::Compare(program, expected, found);
  }

 private:
  absl::Status Run(const ir::Program& program, const codegen::KernelInfo& kernel,
                   const std::vector<HostTensor>& inputs, std::vector<HostTensor>& outputs) {
    std::vector<DeviceMemory> blocks;
    std::vector<runtime::CuPointer> buffers;
    const auto add = [&](const ir::Buffer& buffer) -> absl::Status {
      HEDDLE_ASSIGN_OR_RETURN(blocks.emplace_back(), device_->Allocate(buffer.SizeBytes()));
      buffers.push_back(blocks.back().address());
      return device_->Fill(buffers.back(), 0xff, buffer.SizeBytes());  // NaNs
    };
    for (size_t k = 0; k < inputs.size(); ++k) {
      const ir::Buffer& buffer = *program.inputs[k];
      HEDDLE_RETURN_IF_ERROR(add(buffer));
      HEDDLE_RETURN_IF_ERROR(device_->Upload(buffers.back(), inputs[k].data(), buffer.SizeBytes()));
    }
    for (const ir::BufferRef& buffer : program.outputs) HEDDLE_RETURN_IF_ERROR(add(*buffer));
    HEDDLE_ASSIGN_OR_RETURN(const DeviceMemory workspace,
                            device_->Allocate(kernel.workspace_bytes));
    HEDDLE_ASSIGN_OR_RETURN(const runtime::CudaKernel bound,
                            runtime::CudaKernel::Bind(*module_, kernel.launches, buffers,
                                                      workspace.address(), kernel.workspace_bytes));
    HEDDLE_RETURN_IF_ERROR(bound.Launch(*device_));
    for (size_t k = 0; k < outputs.size(); ++k) {
      HEDDLE_RETURN_IF_ERROR(device_->Download(outputs[k].data(), buffers[inputs.size() + k],
                                               program.outputs[k]->SizeBytes()));
    }
    return device_->Synchronize();
  }

  const std::string name_;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<CudaModule> module_;
  std::string code_;  // of module_
};

// Within the operator's domain; most of it, where it is floats.
std::string Argument(ir::Op op, const std::string& type) {
  if (type != "f32" && type != "f64") return "a[i]";
  switch (op) {
    case ir::Op::kAsin:
    case ir::Op::kAcos:
    case ir::Op::kAtanh:
      return "a[i]";
    case ir::Op::kAcosh:
      return absl::StrCat("(abs(a[i]) + 1.5", type, ")");
    case ir::Op::kLog:
    case ir::Op::kSqrt:
      return absl::StrCat("(a[i] + 0.75", type, ")");  // some of it negative: NaN
    default:
      return absl::StrCat("(a[i] * 5.0", type, ")");
  }
}

std::string CallOf(ir::Op op, const std::string& type) {
  const std::string name(ir::Name(op)), a = Argument(op, type);
  if (op == ir::Op::kSelect) return "select((a[i] == b[i]), a[i], b[i])";
  if (ir::Arity(op) == 1) return absl::StrCat(name, "(", a, ")");
  if (op == ir::Op::kPow && a != "a[i]") return absl::StrCat(name, "(abs(", a, "), b[i])");
  if (op == ir::Op::kMin || op == ir::Op::kMax || op == ir::Op::kPow)
    return absl::StrCat(name, "(", a, ", b[i])");
  return absl::StrCat("(", a, " ", name, " b[i])");
}

}  // namespace

std::vector<ir::Program> OperatorPrograms() {
  constexpr const char* kTypes[] = {"bool", "i8",  "u8",  "i16",  "u16", "i32", "u32",
                                    "i64",  "u64", "f16", "bf16", "f32", "f64"};
  std::vector<ir::Program> programs;
  // Of what the verifier refuses there is nothing to check.
  const auto add = [&](const std::string& name, const std::string& type, const std::string& result,
                       const std::string& value) {
    auto program = ir::Parse(absl::StrCat(
        "program ", name, "_", type, "_", result, "(a: ", type, "[64], b: ", type,
        "[64]) -> (y: ", result, "[64]) { for g in 2 blockIdx.x { for t in 32 threadIdx.x { ",
        "block c(i < 64 spatial = ((g * 32) + t)) { y[i] = ", value, " } } } }"));
    if (program.ok() && ir::Verify(*program).ok()) programs.push_back(*std::move(program));
  };
  for (const std::string type : kTypes) {
    for (int k = 0; k <= static_cast<int>(ir::Op::kSelect); ++k) {
      for (const std::string& result : {type, std::string("bool")}) {
        if (type == "bool" && result != type) continue;
        add(absl::StrCat("op", k), type, result, CallOf(static_cast<ir::Op>(k), type));
      }
    }
    const bool real = type == "f32" || type == "f64";
    for (const char* to : kTypes)  // 8 bits overflow
      add("to", type, to, absl::StrCat(to, real ? "((a[i] * 400.0" + type + "))" : "(a[i])"));
  }
  return programs;
}

absl::StatusOr<std::vector<ir::Program>> ConformancePrograms() {
  std::vector<ir::Program> programs;
  for (const ConformanceText& text : ConformanceTexts()) {
    HEDDLE_ASSIGN_OR_RETURN(programs.emplace_back(), ir::Parse(text.text));
    programs.back().name = text.name;
  }
  for (ir::Program& program : OperatorPrograms()) programs.push_back(std::move(program));
  return programs;
}

std::vector<absl::Status> CheckConformance(const std::vector<ir::Program>& programs,
                                           const Target& target, const std::string& device,
                                           const std::vector<int>& build_cpus,
                                           absl::Time deadline) {
  std::vector<std::vector<int>> core_sets;
  for (const int cpu : build_cpus) core_sets.push_back({cpu});
  const size_t groups = (programs.size() + kTogether - 1) / kTogether;
  const auto packed = ForkMap(
      static_cast<int>(groups), core_sets, kCompileLimit,
      [&](int i) { return Compile(programs, static_cast<size_t>(i) * kTogether, target); },
      absl::Now() + (deadline - absl::Now()) / 2);
  std::vector<codegen::Artifact> artifacts(groups);
  for (size_t i = 0; i < groups; ++i) {
    if (packed[i].ok()) artifacts[i] = Unpack(*packed[i]);
  }
  Runner runner(device);  // used by children only
  const auto results = ForkMap(
      static_cast<int>(programs.size()), {{}}, kRunLimit,
      [&](int i) -> absl::StatusOr<std::string> {
        const size_t k = static_cast<size_t>(i), group = k / kTogether;
        if (!packed[group].ok()) return packed[group].status();
        const codegen::Artifact& artifact = artifacts[group];
        HEDDLE_RETURN_IF_ERROR(
            runner.Check(programs[k], artifact.kernels[k % kTogether], artifact.shared_object));
        return std::string();
      },
      deadline);
  std::vector<absl::Status> statuses;
  for (const auto& result : results) statuses.push_back(result.status());
  return statuses;
}

std::vector<CheckedSchedule> CheckSchedules(const Workload& workload,
                                            const machine::TargetInfo& target,
                                            const std::string& device,
                                            const std::vector<int>& build_cpus,
                                            absl::Time deadline) {
  constexpr int kRandom = 3;
  std::vector<std::string> traces;
  const auto naive = ir::Parse(workload.text);
  if (!naive.ok()) return {{"", naive.status()}};
  if (const auto steps = schedule::DefaultTrace(*naive, target); steps.ok())
    traces.push_back(schedule::ToText(*steps));
  const auto search = cost_model::MakeSearch(workload.text, target, {.strategy = "random"});
  if (search.ok()) {
    if (const auto drawn = (*search)->Propose(kRandom); drawn.ok()) {
      for (const cost_model::Candidate& c : *drawn) traces.push_back(c.trace);
    }
  }
  runtime::TimingOptions timing;
  timing.repeats = 1;
  timing.min_repeat = absl::ZeroDuration();
  const CandidateRunner runner(workload.text, target,
                               {.cpus = {},
                                .build_cpus = build_cpus,
                                .timing = timing,
                                .device = device,
                                .deadline = deadline});
  const auto times = runner.Measure(traces, runner.Build(traces));
  std::vector<CheckedSchedule> checked;
  for (size_t i = 0; i < times.size(); ++i) {
    // Beyond the architecture's limits is no candidate at all.
    if (!absl::IsResourceExhausted(times[i].status()))
      checked.push_back({traces[i], times[i].status()});
  }
  return checked;
}

}  // namespace heddle::bench
