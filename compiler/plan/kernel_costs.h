// What a kernel costs alone, with cold weights: measured where there is a record, else predicted from the kernels that
// have one. What it costs in a model: reuse.h.
//
// A prediction is the estimate of the machine model, which is the roofline with cold weights (roofline.h) plus
// the cost of a call, times a factor. The factor is learned. The
// logarithm of measured time over estimate is averaged in classes that contain each other: all kernels,
// those built around the same operator, those of them in the same layout, and those of them with the same
// strides and about as many operations for each result. The mean of a class is drawn towards the mean of
// the class that contains it, the more the fewer measurements the class has (partial pooling; Gelman and
// Hill, "Data Analysis Using Regression and Multilevel/Hierarchical Models", 2007, chapter 12). How much it
// is drawn is what predicts the known kernels best when each is left out in turn. The spread is the error of
// these predictions.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/fusion/fuse.h"
#include "compiler/machine/target_info.h"
#include "compiler/plan/roofline.h"

namespace heddle::plan {

struct KernelCost {
  enum class Source { kRecord, kLearned, kMachine };
  double ns = 0;
  double spread = 0;  // standard deviation of log(ns); 0 for a record
  Source source = Source::kMachine;
};

// How well kernels are predicted, each from all others.
struct PredictionError {
  int kernels = 0;
  double median = 0;  // of |log(predicted / measured)|
  double rms = 0;
};

// The node that a kernel is built around: the one that is not injective, or else the last.
const graph::Node& AnchorOf(const graph::Graph& graph, const graph::Group& group);

class KernelCosts {
 public:
  // `measured_ns`: median times by workload key.
  KernelCosts(const machine::TargetInfo& target, std::map<std::string, double> measured_ns)
      : call_ns_(target.graph_speed.call_ns),
        roofline_(target),
        measured_ns_(std::move(measured_ns)) {}

  // Learns from the kernels of a graph that have a record. A workload counts once, whatever the number of
  // graphs that have it.
  void Learn(const graph::FusedGraph& fused);
  KernelCost Of(const graph::FusedGraph& fused, const graph::Group& group) const;
  const PredictionError& Error() const { return error_; }

 private:
  using Classes = std::vector<std::string>;  // from the most general on
  struct Mean {
    double sum = 0;
    int count = 0;
  };
  struct Known {
    Classes classes;
    double factor;  // log(measured / estimated)
  };
  double EstimateNs(const graph::FusedGraph& fused, const graph::Group& group) const;
  // The mean of the most special class. `without`, if not null, is left out of all of them.
  double Factor(const Classes& classes, double pooling, const Known* without) const;
  void Fit();

  double call_ns_;
  Roofline roofline_;
  std::map<std::string, double> measured_ns_;
  std::set<std::string> seen_;
  std::vector<Known> known_;
  std::map<std::string, Mean> means_;
  double pooling_ = 1;  // weight of the containing class, in measurements
  PredictionError error_;
};

}  // namespace heddle::plan
