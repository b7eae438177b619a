// What a kernel costs: measured where there is a record, else predicted from the kernels that have one.
//
// A prediction is the estimate of the machine model, which is the longer of arithmetic at the peak and of
// moving each operand and result once, plus the cost of a call, times a factor. The factor is learned: the
// logarithm of measured time over estimate is averaged by the operator that the kernel is built around
// and its layout; that mean is drawn towards the mean of the operator, and this one towards the mean of
// all kernels, the more the fewer measurements there are (partial pooling; Gelman and Hill, "Data Analysis
// Using Regression and Multilevel/Hierarchical Models", 2007, chapter 12, with known variances).
#pragma once

#include <map>
#include <string>

#include "compiler/graph/fusion/fuse.h"
#include "compiler/machine/target_info.h"

namespace heddle::plan {

struct KernelCost {
  enum class Source { kRecord, kLearned, kMachine };
  double ns = 0;
  // Standard deviation of log(ns): 0 for a record.
  double spread = 0;
  Source source = Source::kMachine;
};

class KernelCosts {
 public:
  // `measured_ns`: median times by workload key.
  KernelCosts(const machine::TargetInfo& target, std::map<std::string, double> measured_ns)
      : target_(target), measured_ns_(std::move(measured_ns)) {}

  // Learns from the kernels of a graph that have a record; each workload counts once, whatever the
  // number of graphs that have it.
  void Learn(const graph::FusedGraph& fused);
  KernelCost Of(const graph::FusedGraph& fused, const graph::Group& group) const;

 private:
  struct Mean {
    double sum = 0;
    int count = 0;
  };
  double EstimateNs(const graph::FusedGraph& fused, const graph::Group& group) const;

  machine::TargetInfo target_;
  std::map<std::string, double> measured_ns_;
  std::map<std::string, double> learned_;  // log(measured / estimated) by workload key
  Mean all_;
  std::map<std::string, Mean> by_operator_, by_form_;  // by name, and by name and layout
  double squares_ = 0;                                 // of learned_, summed
};

}  // namespace heddle::plan
