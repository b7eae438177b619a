// The kernels of a module, from naive programs to machine code. Each distinct workload occurs once,
// in order of first use. Internal to this folder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/schedule_and_lower.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"
#include "compiler/runtime/module.h"

namespace heddle::internal {

class KernelTable {
 public:
  struct Workload {
    std::string key;   // WorkloadKey(text)
    std::string text;  // of `naive`
    ir::Program naive;
    std::string label;  // for people to read
    double flops = 0;   // of the direct algorithm
  };

  // The arguments must outlive the table. `warnings` may be null.
  KernelTable(const machine::TargetInfo& target, const std::map<std::string, BestRecord>& best,
              const CompileOptions& options, std::vector<std::string>* warnings)
      : target_(target), best_(best), options_(options), warnings_(warnings) {}

  // The index of the kernel for this workload, which is added if the table lacks it. Internal: the
  // table has another workload with the same key.
  absl::StatusOr<int> Add(Workload workload);

  // Schedules and lowers the kernels that were added since the last call. Each kernel gets the
  // first schedule that works and fits into the limits of the target: that of its record, the
  // default one, naive loops. The warnings name each schedule that does not. Errors
  // name the task for which none does; FailedPrecondition if it does not fit.
  absl::Status Lower();

  // Lowers the remaining kernels and compiles all into one artifact. After that, specs() are
  // complete.
  absl::StatusOr<codegen::Artifact> Compile();

  const ir::Program& naive(int kernel) const { return workloads_[kernel].naive; }
  const LoweredWorkload& lowered(int kernel) const { return lowered_[kernel]; }
  const std::vector<runtime::KernelSpec>& specs() const { return specs_; }

 private:
  // The number of progress steps: one for each kernel, and one for the machine code of all.
  int Steps() const { return static_cast<int>(specs_.size()) + 1; }
  void Progress(int done, const std::string& label) const;
  absl::StatusOr<LoweredWorkload> Schedule(const ir::Program& naive, runtime::KernelSpec* spec);
  void Warn(const runtime::KernelSpec& spec, ScheduleChoice failed, ScheduleChoice next,
            const absl::Status& status);

  const machine::TargetInfo& target_;
  const std::map<std::string, BestRecord>& best_;
  const CompileOptions& options_;
  std::vector<std::string>* warnings_;
  std::map<std::string, int> index_;  // by workload key
  // By kernel. lowered_ may be shorter.
  std::vector<Workload> workloads_;
  std::vector<runtime::KernelSpec> specs_;
  std::vector<LoweredWorkload> lowered_;
};

}  // namespace heddle::internal
