#include "compiler/codegen/llvm/llvm_backend.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/alignment.h"
#include "base/status_macros.h"
#include "compiler/codegen/llvm/cpu_target.h"
#include "compiler/codegen/llvm/kernel_emitter.h"
#include "compiler/codegen/llvm/link_shared_object.h"
#include "compiler/codegen/llvm/llvm_target.h"
#include "compiler/codegen/workspace.h"
#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/Utils/Cloning.h"

namespace heddle::codegen {

namespace {

absl::Status VerifyModule(const llvm::Module& module) {
  std::string message;
  llvm::raw_string_ostream stream(message);
  if (!llvm::verifyModule(module, &stream)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the LLVM back end made an invalid module: ", stream.str()));
}

// Records the target in every function, because passes read it from functions and not from the
// target machine.
void SetAttributes(llvm::Module& module, const llvm::TargetMachine& machine) {
  const std::string width = std::to_string(DescribeVectorUnit(machine).bytes * 8);
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    // On some CPUs with 64-byte registers LLVM prefers narrower vectors. Here the schedule chooses.
    function.addFnAttr("prefer-vector-width", width);
    function.addFnAttr(llvm::Attribute::NoUnwind);
    // Spilled vectors lie aligned, whatever the caller's stack pointer is. Without this, LLVM does not
    // align the stack of a function that turns out to spill only when registers are allocated. A spill
    // that crosses a cache line costs 8 % of a convolution's time (Zen 4).
    function.addFnAttr(
        llvm::Attribute::getWithStackAlignment(module.getContext(), llvm::Align(kBufferAlignment)));
  }
}

// The passes that make kernels faster. The emitter writes loops in their final order, with register
// tiles unrolled and vectors explicit. The passes promote register tiles to registers, move address
// computations out of loops, and vectorize plain loops of unscheduled code. LLVM's own pipeline
// takes twice the time for code that is no faster.
std::string Passes(bool vectorizer) {
  constexpr std::string_view kCombine = "instcombine<no-verify-fixpoint>";
  return absl::StrCat("function(sroa,early-cse<memssa>,", std::string(kCombine),
                      ",simplifycfg,loop-mssa(licm),gvn,", std::string(kCombine),
                      vectorizer ? ",loop-vectorize" : "", ",loop-unroll<O3>,",
                      std::string(kCombine), ",loop-mssa(licm),adce,simplifycfg)");
}

absl::Status Optimize(llvm::Module& module, llvm::TargetMachine& machine,
                      const LlvmOptions& options) {
  if (options.opt_level == 0) return absl::OkStatus();
  llvm::PassBuilder builder(&machine);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  if (llvm::Error error = builder.parsePassPipeline(passes, Passes(options.vectorizer))) {
    return absl::InternalError(
        absl::StrCat("LLVM refuses the passes: ", llvm::toString(std::move(error))));
  }
  passes.run(module, modules);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Generate(llvm::Module& module, llvm::TargetMachine& machine,
                                     llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, type)) {
    return absl::InternalError("LLVM cannot write object code for this target");
  }
  passes.run(module);
  return std::string(bytes.data(), bytes.size());
}

}  // namespace

absl::StatusOr<Artifact> CompileLlvm(const std::vector<ir::Program>& lowered, const Target& target,
                                     const LlvmOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(Target resolved, ResolveCpu(target));
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<llvm::TargetMachine> machine,
                          MakeTargetMachine(resolved, options.opt_level));
  llvm::LLVMContext context;
  llvm::Module module("heddle", context);
  module.setTargetTriple(machine->getTargetTriple().str());
  module.setDataLayout(machine->createDataLayout());
  module.setPICLevel(llvm::PICLevel::BigPIC);

  const VectorUnit unit = DescribeVectorUnit(*machine);
  const CpuLimits cpu{resolved.threads, unit.bytes, unit.masked_memory, unit.converts_f16,
                      unit.lookup};
  Artifact artifact;
  for (const ir::Program& program : lowered) {
    WorkspacePlan plan = PlanWorkspace(program, resolved.threads);
    HEDDLE_RETURN_IF_ERROR(EmitKernel(program, plan, cpu, module));
    KernelInfo& kernel = artifact.kernels.emplace_back();
    kernel.symbol = program.name;
    kernel.workspace_bytes = plan.bytes;
    for (const auto* list : {&program.inputs, &program.outputs}) {
      for (const ir::BufferRef& buffer : *list) {
        kernel.arguments.push_back({buffer->name, buffer->SizeBytes()});
      }
    }
  }
  SetAttributes(module, *machine);
  HEDDLE_RETURN_IF_ERROR(VerifyModule(module));
  HEDDLE_RETURN_IF_ERROR(Optimize(module, *machine, options));
  if (options.llvm_ir) {
    options.llvm_ir->clear();
    llvm::raw_string_ostream stream(*options.llvm_ir);
    module.print(stream, nullptr);
  }
  if (options.assembly) {
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
    HEDDLE_ASSIGN_OR_RETURN(*options.assembly,
                            Generate(*copy, *machine, llvm::CodeGenFileType::AssemblyFile));
  }
  HEDDLE_ASSIGN_OR_RETURN(std::string object,
                          Generate(module, *machine, llvm::CodeGenFileType::ObjectFile));
  HEDDLE_ASSIGN_OR_RETURN(artifact.shared_object, LinkSharedObject(object));
  return artifact;
}

namespace {

class Llvm final : public Backend {
  absl::StatusOr<Target> Resolve(const Target& target) const override { return ResolveCpu(target); }
  absl::StatusOr<machine::TargetInfo> Describe(const Target& resolved) const override {
    return DescribeCpu(resolved);
  }
  bool RunsHere(const Target& resolved) const override { return CpuRunsHere(resolved); }
  std::vector<std::string> Features(const Target& resolved) const override {
    return CpuFeatures(resolved);
  }
  absl::StatusOr<Toolchain> FindToolchain() const override {
    return Toolchain{"LLVM " LLVM_VERSION_STRING, "", /*caches=*/false};
  }
  absl::Status CheckLimits(const ir::Program&, const Target&) const override {
    return absl::OkStatus();  // memory holds what registers do not
  }
  absl::StatusOr<Artifact> Compile(const std::vector<ir::Program>& lowered,
                                   const Target& resolved) const override {
    return CompileLlvm(lowered, resolved);
  }
};

}  // namespace

const Backend& LlvmBackend() {
  static const Llvm backend;
  return backend;
}

}  // namespace heddle::codegen
