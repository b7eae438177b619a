// What a kernel costs alone, with cold weights: measured where there is a record, else predicted from the kernels that
// have one. On CPUs, kernels of models of trees have warm ones. What a kernel costs in a model: reuse.h.
//
// A prediction is the estimate of the machine model, which is the roofline with cold weights (roofline.h) plus
// the cost of a call, times a factor. The factor is learned from
// the logarithms of measured time over estimate, in classes that contain each other: all kernels, those
// built around the same operator, those of them in the same layout that have a constant operand, or have none, those
// of them with the same strides and about as many operations for each result, and those of the same workload.
//
// Kernels are known from three places: this job has measured them, or an earlier job on the same device,
// or jobs on other devices (Experience). The logarithm of a factor is a sum. Its first part is pooled over
// the kernels of other devices (plan/pooled_means.h). Its second part is what the device adds to that,
// pooled over the device's own kernels, whichever job measured them. If the device's kernels are predicted
// better without the first part, it is 0. The spread is the error of predictions of known kernels, each
// left out in turn. A kernel that an earlier job measured on this device keeps the factor that it had.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/fusion/fuse.h"
#include "compiler/machine/target_info.h"
#include "compiler/plan/pooled_means.h"
#include "compiler/plan/roofline.h"

namespace heddle::plan {

struct KernelCost {
  enum class Source { kRecord, kLearned, kMachine };
  double ns = 0;
  double spread = 0;  // standard deviation of log(ns); 0 for a record
  Source source = Source::kMachine;
};

// How well measured kernels of this job are predicted.
struct PredictionError {
  int kernels = 0;
  double median = 0;  // of |log(predicted / measured)|
  double rms = 0;
};

// Version of the estimate and of the classes. Factors of another version mean something else.
inline constexpr int kFactorVersion = 4;

// What one measured kernel says of others.
struct KernelFactor {
  std::string key;        // of its workload
  std::string op;         // the operator that it is built around
  std::string layout;     // of that operator; empty: it has none
  std::string window;     // its strides, and the scale of the operations for each result
  double log_factor = 0;  // log(measured / estimated)
};

// What earlier jobs have measured, with schedules made as those of this job. A device is named once for a
// workload.
struct Experience {
  std::vector<KernelFactor> device;  // on the device that the costs are for
  std::vector<KernelFactor> others;  // on other devices
};

// The node that a kernel is built around: the one that is not injective, or else the last.
const graph::Node& AnchorOf(const graph::Graph& graph, const graph::Group& group);

class KernelCosts {
 public:
  // `measured_ns`: median times of this job by workload key. They count instead of what earlier jobs found.
  KernelCosts(const machine::TargetInfo& target, std::map<std::string, double> measured_ns,
              const Experience& experience = {});

  // Learns from the kernels of a graph that have a record. A workload counts once, whatever the number of
  // graphs that have it.
  void Learn(const graph::FusedGraph& fused);
  KernelCost Of(const graph::FusedGraph& fused, const graph::Group& group) const;
  // Of the learned kernels, each predicted from all others that are known.
  const PredictionError& Error() const { return error_; }
  // Of the learned kernels, each predicted from the experience, without what that says of its own workload
  // on the device. No kernels: there is no experience.
  PredictionError ErrorOfExperience() const;
  // The learned kernels, for later jobs.
  const std::vector<KernelFactor>& learned() const { return learned_; }

 private:
  // What a device adds to the others.
  struct Deviations {
    bool from_others = true;     // false: the others say nothing of it
    PooledMeans means;           // of the factors, less what the others say
    std::vector<double> errors;  // of each kernel, predicted by the rest
  };
  double EstimateNs(const graph::FusedGraph& fused, const graph::Group& group) const;
  Deviations DeviationsOf(const std::vector<KernelFactor>& kernels) const;
  void Fit();

  double call_ns_;
  bool may_be_warm_;  // false: all kernels are timed cold
  Roofline roofline_;
  std::map<std::string, double> measured_ns_;
  PooledMeans others_;
  std::map<std::string, KernelFactor> earlier_;  // of the device, by earlier jobs, by workload
  std::vector<KernelFactor> learned_;
  std::set<std::string> seen_;  // workloads that were learned
  Deviations device_;           // of the earlier kernels and the learned ones
  PredictionError error_;
  double spread_ = 0;
};

}  // namespace heddle::plan
